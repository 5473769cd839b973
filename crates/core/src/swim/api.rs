//! The commands, replies and events of `members` (S-125 … S-136).

use core::time::Duration;
use std::net::SocketAddr;

use serde::Serialize;

use super::contents::Contents;
use super::sequence::Sequence;
use super::status::{Incarnation, State};
use super::vivaldi::Coordinate;
use crate::id::Id;
use crate::store::StoreFault;

/// A node as the application sees it (S-5 … S-10).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Node {
    /// Who it is.
    pub id: Id,
    /// Where it may be reached, the best first.
    pub addrs: Vec<SocketAddr>,
    /// What it tells of itself: see [`super::Tags`].
    pub meta: Vec<u8>,
}

impl Node {
    pub(super) fn new(id: Id, contents: Contents<'_>) -> Self {
        Self { id, addrs: contents.addrs().collect(), meta: contents.meta().to_vec() }
    }
}

/// A member and what is known of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MemberStatus {
    /// The node.
    #[serde(flatten)]
    pub node: Node,
    /// Whether it lives.
    pub state: State,
    /// Its incarnation.
    pub incarnation: Incarnation,
    /// How long the way there and back takes, if that was measured.
    pub rtt_micros: Option<u64>,
    /// Since when it is dead or has left, in microseconds since the Unix epoch.
    pub since_micros: Option<u64>,
    /// Whose last probe of it failed; itself, if it said goodbye or an operator did for it.
    pub by: Option<Id>,
    /// Whether it is the node that is asked.
    pub is_self: bool,
}

/// What the application may ask.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Detect failures again after a [`Command::Stop`]; a machine begins by itself (S-132).
    Start,
    /// Detect failures no longer, without saying goodbye; what waits to be sent is sent once (S-133).
    Stop,
    /// As `Stop`, and what waits to be sent is dropped (S-111).
    Close,
    /// Join a group through any of these (S-135). Answered when the Joins are on their way; [`Event::Joined`] or
    /// [`Event::JoinFailed`] tell what became of each.
    Join {
        /// Through whom.
        addrs: Vec<SocketAddr>,
    },
    /// Leave the group. The reply comes when a first member was sent the Dead of this node, or at the timeout (S-136).
    Leave {
        /// How long to wait; `None` is for ever.
        timeout: Option<Duration>,
    },
    /// Broadcast an Alive of this node. The reply comes when it was sent to a first member, or at the timeout (S-134).
    Update {
        /// How long to wait; `None` is for ever.
        timeout: Option<Duration>,
    },
    /// Replace the metadata of this node (S-131).
    SetMeta {
        /// The new metadata.
        meta: Vec<u8>,
    },
    /// Send a user message to every member (S-127).
    Broadcast {
        /// What.
        data: Vec<u8>,
        /// Whether to wait if too many wait to be sent, rather than be refused (S-98).
        wait: bool,
    },
    /// Mark a failed member as left. A member that is alive refutes it.
    ForceLeave {
        /// Which.
        id: Id,
        /// Whether it is forgotten as well: no longer shown, and not stored.
        prune: bool,
    },
    /// Tell about ourselves (S-128).
    LocalNode,
    /// Tell about all members (S-129).
    Members {
        /// Also about the dead and those who left, as long as they are remembered.
        all: bool,
    },
    /// Tell how many members there are (S-130).
    MemberCount,
    /// Tell how long the way between two members takes.
    Rtt {
        /// From whom; `None` is us.
        from: Option<Id>,
        /// To whom.
        to: Id,
    },
    /// Report the state of this node.
    Info,
}

/// What the application gets for a command.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    /// It is done.
    Done,
    /// Joins are on their way.
    Joining {
        /// To how many addresses; our own and those under way are left out.
        addrs: usize,
    },
    /// None of the addresses can be joined: our own, or under way, or too many at once.
    NoAddress,
    /// It does not fit a packet.
    TooLarge {
        /// How large it is.
        bytes: usize,
        /// How large it may be.
        bytes_max: usize,
    },
    /// Too many user messages wait to be sent.
    Full,
    /// The timeout passed before a member was sent the update; it stays in the queue.
    TimedOut,
    /// The node has said goodbye: it tells nothing until it joins again.
    HasLeft,
    /// The failure detector does not run: give [`Command::Start`] first.
    NotStarted,
    /// It was started already.
    AlreadyStarted,
    /// It was stopped before.
    Stopped,
    /// No such member is known.
    NoSuchMember,
    /// Ourselves.
    LocalNode(Node),
    /// The members, in order of ids.
    Members(Vec<MemberStatus>),
    /// How many members there are, ourselves included.
    Count(usize),
    /// The round-trip time in microseconds, if it can be told.
    Rtt(Option<u64>),
    /// How we are.
    Info(Info),
}

/// How a node is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Info {
    /// Who it is.
    pub id: Id,
    /// Its incarnation.
    pub incarnation: Incarnation,
    /// How many protocol periods it has begun.
    pub period: u32,
    /// How many members live, as far as it knows.
    pub live: usize,
    /// How many it knows, the recently dead included.
    pub known: usize,
    /// How many past members it still asks for.
    pub past: usize,
    /// How bad its own health is: 0 is well.
    pub health: u32,
    /// Updates about members that wait to be sent.
    pub updates: usize,
    /// User messages that wait to be sent.
    pub users: usize,
    /// Where it is.
    pub coordinate: Coordinate,
}

/// How a member came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum JoinReason {
    /// Nobody knew it.
    New,
    /// It was dead, or had left.
    Returned,
}

/// The events of `members`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// A member is there.
    MemberJoined {
        /// Who.
        id: Id,
        /// Where.
        addr: SocketAddr,
        /// In which incarnation.
        incarnation: Incarnation,
        /// Whether it is new.
        reason: JoinReason,
    },
    /// A member has another address, or tells something else of itself.
    MemberUpdated {
        /// Who.
        id: Id,
        /// Where it is now.
        addr: SocketAddr,
        /// In which incarnation.
        incarnation: Incarnation,
    },
    /// A probe of a member failed.
    MemberSuspected {
        /// Who is suspected.
        id: Id,
        /// Where it was.
        addr: SocketAddr,
        /// In which incarnation.
        incarnation: Incarnation,
        /// Whose probe it was.
        by: Id,
    },
    /// A suspected member contradicted.
    MemberRecovered {
        /// Who.
        id: Id,
        /// Where.
        addr: SocketAddr,
        /// In which incarnation.
        incarnation: Incarnation,
    },
    /// A member did not contradict in time.
    MemberDied {
        /// Who.
        id: Id,
        /// Where it was.
        addr: SocketAddr,
        /// In which incarnation.
        incarnation: Incarnation,
        /// The node whose suspicion timeout passed.
        by: Id,
    },
    /// A member said goodbye.
    MemberLeft {
        /// Who.
        id: Id,
        /// Where it was.
        addr: SocketAddr,
        /// In which incarnation.
        incarnation: Incarnation,
    },
    /// A dead member is no longer shown.
    MemberForgotten {
        /// Who.
        id: Id,
    },
    /// This node was suspected or declared dead, and refuted it.
    Refuted {
        /// Our incarnation now.
        incarnation: Incarnation,
    },
    /// Somebody else has our id.
    IdConflict {
        /// Where it is.
        addr: SocketAddr,
    },
    /// Two nodes answer to the id of one member.
    MemberConflict {
        /// Whose id.
        id: Id,
        /// Where the member is that keeps it.
        addr: SocketAddr,
        /// Where the other node is.
        other: SocketAddr,
    },
    /// A member has the name of this node.
    NameConflict {
        /// The name of both.
        name: String,
        /// Which member.
        id: Id,
        /// Where it is.
        addr: SocketAddr,
    },
    /// Somebody answers at an address we wanted to join.
    Joined {
        /// Which.
        addr: SocketAddr,
    },
    /// A node of another ring answers at an address we wanted to join.
    WrongRing {
        /// Which.
        addr: SocketAddr,
    },
    /// Nobody answers at an address we wanted to join.
    JoinFailed {
        /// Which.
        addr: SocketAddr,
    },
    /// The application of a member has something to say (S-125).
    UserReceived {
        /// Which member.
        from: Id,
        /// Its number there.
        sequence: Sequence,
        /// What.
        data: Vec<u8>,
    },
    /// The known members could not be read or kept.
    StoreFailed {
        /// Why.
        fault: StoreFault,
    },
}

crate::counters! {
    /// What a member of a group counts.
    pub struct Counters {
        /// Packets sent.
        packets_sent,
        /// Bytes in packets sent.
        bytes_sent,
        /// Members probed.
        probes,
        /// Probes for which others were asked for help.
        indirect_probes,
        /// Probes that a proxy answered.
        indirect_answers,
        /// Probes that nobody answered.
        probes_failed,
        /// Pings of others that were answered.
        pings_answered,
        /// Pings sent for others.
        relays,
        /// Pings for others refused because too many were under way.
        relays_refused,
        /// Acks that answer nothing under way.
        acks_unmatched,
        /// Members that became suspect here.
        suspicions,
        /// Members that died here.
        deaths,
        /// Accusations against ourselves that were contradicted.
        refutations,
        /// Accusations not answered because too many were in the same period.
        refutations_dropped,
        /// Questions to nodes that are not believed yet.
        questions,
        /// Questions not asked because the same was asked a moment ago, or too many waited.
        questions_dropped,
        /// Signs of another node with our id that were acted on.
        conflicts,
        /// Further signs of another node with our id in the same period.
        conflicts_dropped,
        /// Nodes that were sent their own suspicion or death.
        notifications,
        /// Nodes not told because too many were in the same period.
        notifications_dropped,
        /// Joins that were answered.
        joins_answered,
        /// Tombstones whose members were asked whether they are back.
        retries,
        /// Comparisons of tables begun.
        syncs,
        /// Messages of comparisons from nodes that are no members.
        syncs_refused,
        /// User messages given to the application.
        users_received,
        /// User messages that had been seen before.
        users_repeated,
        /// User messages not given to the application because there were too many in one period.
        users_dropped,
        /// User messages not passed on because too many waited to be sent.
        users_not_relayed,
        /// Periods that began more than an interval late.
        late_ticks,
        /// Incarnations too far above the known one.
        leaps_refused,
        /// New members refused because the table is full.
        members_refused,
        /// Suspicions and deaths of nodes that are not known.
        unknown_subjects,
        /// Messages of an unknown kind that no handler took.
        unknown_kinds,
        /// Messages that a handler refused.
        handlers_refused,
        /// Pings meant for another node.
        misaddressed,
        /// Packets and messages that were not readable.
        malformed,
        /// Packets of another ring, of our own id, or at a wrong time.
        rejected,
        /// Entries of the store that were not a kept member.
        stored_unreadable,
    }
}
