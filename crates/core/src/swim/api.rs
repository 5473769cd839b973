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
    /// Its id.
    pub id: Id,
    /// Its addresses, the best first.
    pub addrs: Vec<SocketAddr>,
    /// The metadata that it publishes: see [`super::Tags`].
    pub meta: Vec<u8>,
}

impl Node {
    pub(super) fn new(id: Id, contents: Contents<'_>) -> Self {
        Self { id, addrs: contents.addrs().collect(), meta: contents.meta().to_vec() }
    }
}

/// A member and its state as this node knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MemberStatus {
    /// The node.
    #[serde(flatten)]
    pub node: Node,
    /// Its membership state.
    pub state: State,
    /// Its incarnation.
    pub incarnation: Incarnation,
    /// The round-trip time to it, if one was measured.
    pub rtt_micros: Option<u64>,
    /// Since when it is dead or has left, in microseconds since the Unix epoch.
    pub since_micros: Option<u64>,
    /// The node whose last probe of it failed; itself, if it left or an operator marked it as left.
    pub by: Option<Id>,
    /// Whether it is the local node.
    pub is_self: bool,
}

/// The commands of the application.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Command {
    /// Starts failure detection again after a [`Command::Stop`]; a new machine starts by itself (S-132).
    Start,
    /// Stops failure detection without leaving. Queued updates are sent once (S-133).
    Stop,
    /// As `Stop`, but drops queued updates (S-111).
    Close,
    /// Joins a group through any of these addresses (S-135). The reply comes once the Joins are sent. [`Event::Joined`]
    /// or [`Event::JoinFailed`] reports the result for each address.
    Join {
        /// The addresses to join through.
        addrs: Vec<SocketAddr>,
    },
    /// Leaves the group. The reply comes when a first member was sent the Dead of this node, or at the timeout (S-136).
    Leave {
        /// How long to wait; `None` waits for ever.
        timeout: Option<Duration>,
    },
    /// Broadcasts an Alive of this node. The reply comes when it was sent to a first member, or at the timeout (S-134).
    Update {
        /// How long to wait; `None` waits for ever.
        timeout: Option<Duration>,
    },
    /// Replaces the metadata of this node (S-131).
    SetMeta {
        /// The new metadata.
        meta: Vec<u8>,
    },
    /// Sends a user message to every member (S-127).
    Broadcast {
        /// The content.
        data: Vec<u8>,
        /// Whether to wait while the queue of user messages is full, instead of getting [`Reply::Full`] (S-98).
        wait: bool,
    },
    /// Marks a failed member as left. A member that is alive refutes it.
    ForceLeave {
        /// The member.
        id: Id,
        /// Whether the member is forgotten as well: neither listed nor stored.
        prune: bool,
    },
    /// Returns the local node (S-128).
    LocalNode,
    /// Returns all members (S-129).
    Members {
        /// Whether to include dead and left members that are still remembered.
        all: bool,
    },
    /// Returns the number of members (S-130).
    MemberCount,
    /// Returns the round-trip time between two members.
    Rtt {
        /// The first member; `None` is the local node.
        from: Option<Id>,
        /// The second member.
        to: Id,
    },
    /// Reports the state of this node.
    Info,
}

/// The replies to commands.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Reply {
    /// The command is done.
    Done,
    /// Joins were sent.
    Joining {
        /// The number of addresses; our own and those already being joined are left out.
        addrs: usize,
    },
    /// None of the addresses can be joined: each is our own, is being joined already, or exceeds `joins_max`.
    NoAddress,
    /// The message does not fit a packet.
    TooLarge {
        /// Its size.
        bytes: usize,
        /// The largest size.
        bytes_max: usize,
    },
    /// The queue of user messages is full.
    Full,
    /// The timeout passed before a member was sent the update. The update stays in the queue.
    TimedOut,
    /// The node has left. It sends nothing about itself until it joins again.
    HasLeft,
    /// The failure detector is stopped: send [`Command::Start`] first.
    NotStarted,
    /// The failure detector runs already.
    AlreadyStarted,
    /// The failure detector is stopped already.
    Stopped,
    /// No such member is known.
    NoSuchMember,
    /// The local node.
    LocalNode(Node),
    /// The members, in order of ids.
    Members(Vec<MemberStatus>),
    /// The number of members, the local node included.
    Count(usize),
    /// The round-trip time in microseconds, if it is known.
    Rtt(Option<u64>),
    /// The state of this node.
    Info(Info),
}

/// The state of a node.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Info {
    /// Its id.
    pub id: Id,
    /// Its incarnation.
    pub incarnation: Incarnation,
    /// The number of protocol periods it has begun.
    pub period: u32,
    /// The number of live members that it knows.
    pub live: usize,
    /// The number of members that it knows, the recently dead included.
    pub known: usize,
    /// The number of past members that it still probes.
    pub past: usize,
    /// Its local health score: 0 is healthy.
    pub health: u32,
    /// Updates about members that wait to be sent.
    pub updates: usize,
    /// User messages that wait to be sent.
    pub users: usize,
    /// Its network coordinate.
    pub coordinate: Coordinate,
}

/// Why a member joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum JoinReason {
    /// This node did not know it.
    New,
    /// It was dead, or had left.
    Returned,
}

/// The events of `members`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Event {
    /// A member joined.
    MemberJoined {
        /// The member.
        id: Id,
        /// Its address.
        addr: SocketAddr,
        /// Its incarnation.
        incarnation: Incarnation,
        /// Whether it is new or has returned.
        reason: JoinReason,
    },
    /// A member changed its address or its metadata.
    MemberUpdated {
        /// The member.
        id: Id,
        /// Its new address.
        addr: SocketAddr,
        /// Its incarnation.
        incarnation: Incarnation,
    },
    /// A probe of a member failed.
    MemberSuspected {
        /// The suspect.
        id: Id,
        /// Its address.
        addr: SocketAddr,
        /// The suspected incarnation.
        incarnation: Incarnation,
        /// The node whose probe failed.
        by: Id,
    },
    /// A suspected member refuted.
    MemberRecovered {
        /// The member.
        id: Id,
        /// Its address.
        addr: SocketAddr,
        /// Its incarnation.
        incarnation: Incarnation,
    },
    /// A suspected member did not refute in time.
    MemberDied {
        /// The member.
        id: Id,
        /// Its last address.
        addr: SocketAddr,
        /// Its last incarnation.
        incarnation: Incarnation,
        /// The node whose suspicion timeout passed.
        by: Id,
    },
    /// A member left.
    MemberLeft {
        /// The member.
        id: Id,
        /// Its last address.
        addr: SocketAddr,
        /// Its last incarnation.
        incarnation: Incarnation,
    },
    /// A dead member is no longer listed.
    MemberForgotten {
        /// The member.
        id: Id,
    },
    /// This node was suspected or declared dead, and refuted it.
    Refuted {
        /// The new incarnation of this node.
        incarnation: Incarnation,
    },
    /// Another node has the id of this node.
    IdConflict {
        /// The address of the other node.
        addr: SocketAddr,
    },
    /// Two nodes answer to the id of one member.
    MemberConflict {
        /// The id of both.
        id: Id,
        /// The address of the member that keeps the id.
        addr: SocketAddr,
        /// The address of the other node.
        other: SocketAddr,
    },
    /// A member has the name of this node.
    NameConflict {
        /// The name of both.
        name: String,
        /// The member.
        id: Id,
        /// Its address.
        addr: SocketAddr,
    },
    /// A node answered at an address that this node joins.
    Joined {
        /// The address.
        addr: SocketAddr,
    },
    /// A node of another ring answered at an address that this node joins.
    WrongRing {
        /// The address.
        addr: SocketAddr,
    },
    /// No node answered at an address that this node joins.
    JoinFailed {
        /// The address.
        addr: SocketAddr,
    },
    /// A user message of a member arrived (S-125).
    UserReceived {
        /// The member that sent it.
        from: Id,
        /// Its sequence number at that member.
        sequence: Sequence,
        /// The content.
        data: Vec<u8>,
    },
    /// The store could not read or write the known members.
    StoreFailed {
        /// The cause.
        fault: StoreFault,
    },
}

crate::counters! {
    /// The counters of a member.
    pub struct Counters {
        /// Packets sent.
        packets_sent,
        /// Bytes in packets sent.
        bytes_sent,
        /// Members probed.
        probes,
        /// Probes for which proxies were asked.
        indirect_probes,
        /// Probes that a proxy answered.
        indirect_answers,
        /// Probes that failed, directly and through proxies.
        probes_failed,
        /// Pings of others that were answered.
        pings_answered,
        /// Pings sent as a proxy.
        relays,
        /// Requests for pings refused because too many were under way.
        relays_refused,
        /// Acks that match no probe under way.
        acks_unmatched,
        /// Members that this node began to suspect.
        suspicions,
        /// Members that this node declared dead.
        deaths,
        /// Accusations of this node that it refuted.
        refutations,
        /// Accusations of this node that it did not refute because of the limit per period.
        refutations_dropped,
        /// Nonces sent to verify the address of a node.
        questions,
        /// Nonces not sent because one was sent a moment ago, or because the queue was full.
        questions_dropped,
        /// Signs of another node with our id that were acted on.
        conflicts,
        /// Further signs of another node with our id in the same period.
        conflicts_dropped,
        /// Nodes that were sent their own suspicion or death.
        notifications,
        /// Nodes not sent their suspicion or death because of the limit per period.
        notifications_dropped,
        /// Joins that were answered.
        joins_answered,
        /// Past members that were sent a Join to see whether they are back.
        retries,
        /// Table comparisons begun.
        syncs,
        /// Messages of table comparisons refused because their sender is no member.
        syncs_refused,
        /// User messages delivered to the application.
        users_received,
        /// User messages that had been seen before.
        users_repeated,
        /// User messages not delivered because of the limit per period.
        users_dropped,
        /// User messages not forwarded because the queue was full.
        users_not_relayed,
        /// Periods that began more than an interval late.
        late_ticks,
        /// Incarnations refused because they are too far above the known one.
        leaps_refused,
        /// New members refused because the table is full.
        members_refused,
        /// Suspicions and deaths of unknown nodes.
        unknown_subjects,
        /// Messages of an unknown kind that no handler took.
        unknown_kinds,
        /// Messages that a handler refused.
        handlers_refused,
        /// Pings meant for another node.
        misaddressed,
        /// Packets and messages that could not be decoded.
        malformed,
        /// Packets of another ring, with the id of this node, or in a state that does not accept them.
        rejected,
        /// Entries of the store that could not be decoded.
        stored_unreadable,
    }
}
