//! Pastry: finds the owner of a key and routes messages to it.
//!
//! Every node has an [`Id`] on a circle and owns the keys that are closest to it. Any node routes a message to the
//! owner of its key in about log₁₆ N hops over nearby nodes, while nodes join and fail. The documents are the
//! specification of Wendy (clauses P-n) and notes on the Pastry paper (N-n). `docs/spec/pastry.md` restates them, with
//! our decisions where they are silent (PA-n).
//!
//! # The parts
//!
//! ```text
//!    machine.rs  dispatch.rs  membership.rs     the only `impl Pastry`; effects become calls here
//!      |           |            |
//!    join/      repair/     delivery/           upper parts: none calls another
//!      +-----------+------------+
//!    state_transfer.rs -> prober.rs -> tables/ -> transport.rs -> env.rs
//! ```
//!
//! | part | what it owns |
//! |---|---|
//! | `env.rs` | the configuration, the own contact, randomness, counters |
//! | `transport.rs` | connections ([`crate::pool`]) and datagrams |
//! | `tables/` | leaf set, routing table, neighbourhood set; suspected and away nodes; the routing decision |
//! | `prober.rs` | probes; whether a node does not answer now (away) or for `away_timeout` (overdue) |
//! | `state_transfer.rs` | nothing: sends parts of the tables to joiners and to nodes that ask |
//! | `join/` | the join of this node, and the search for lost parts of the ring |
//! | `repair/` | requests that fill the tables, periodic probes |
//! | `delivery/` | messages: in flight, our own, and those that applications have not settled |
//! | `lower.rs`, `effects.rs` | the calls of an upper part; the reports of a lower part |
//! | `message.rs`, `wire.rs`, `config.rs`, `contact.rs`, `counters.rs` | plain data that all parts use |
//!
//! # The messages
//!
//! All go over kept connections ([`crate::pool`]); probes go in datagrams first.
//!
//! | message | what a node does with it |
//! |---|---|
//! | `Hello` | opens every connection, both ways; one of another ring is refused |
//! | `Ping`, `Pong` | answered in every state; the time between them is the round-trip time |
//! | `Route` | is acknowledged, then delivered or forwarded; a joining node defers messages for its own keys |
//! | `Ack`, `Nack` | an Ack ends the transmission and may carry the receipt; after a Nack the sender tries another hop |
//! | `Receipt` | reports the result of one attempt of a message to its origin |
//! | `StateRequest`, `State` | request and carry parts of the tables |
//! | `Announce`, `Welcome` | a joiner announces itself; the receiver has inserted it |
//! | `Exit`, `Suspect`, `Refuse` | the sender leaves; a node does not answer; the joiner's id is taken |
//!
//! # A node in twenty lines
//!
//! ```
//! use annulus_core::pastry::{AppName, Command, Config, Event, Pastry, Verdict};
//! use annulus_core::{Action, Bound, Id, Instant, Machine, Now, Queue, RequestId, StoreReply, StoreResult, Wall};
//!
//! let config = Config { id: Id::from_text("node 1"), ..Config::default() };
//! let mut pastry = Pastry::new(config, [7; 32])?;
//! let mut queue = Queue::new();
//! let now = Now::new(Instant::ZERO, Wall::from_micros(1_700_000_000_000_000));
//!
//! // It starts, reads its generation from an empty store, and is the first of its ring.
//! pastry.handle_start(now, &Bound::default(), &mut queue.outbox());
//! let mut asked = Vec::new();
//! while let Some(action) = queue.next() {
//!     if let Action::Store { op, .. } = action {
//!         asked.push(op);
//!     }
//! }
//! for op in asked {
//!     let reply = StoreReply { op, result: StoreResult::Value(None) };
//!     pastry.handle_stored(now, reply, &mut queue.outbox());
//! }
//! assert!(pastry.is_active());
//!
//! // All keys are its own, so a message is delivered to the application here, which accepts it.
//! let app = AppName::default();
//! pastry.handle_command(now, RequestId(1), Command::Register(app.clone()), &mut queue.outbox());
//! let command = Command::route(app, Id::from_text("some key"), b"hello".to_vec());
//! pastry.handle_command(now, RequestId(2), command, &mut queue.outbox());
//! let mut open = None;
//! while let Some(action) = queue.next() {
//!     if let Action::Event(Event::Delivered { id, .. }) = action {
//!         open = Some(id);
//!     }
//! }
//! let settle = Command::Settle(vec![(open.expect("it was delivered"), Verdict::Accept)]);
//! pastry.handle_command(now, RequestId(3), settle, &mut queue.outbox());
//! let mut told = Vec::new();
//! while let Some(action) = queue.next() {
//!     told.push(format!("{action:?}"));
//! }
//! assert!(told.iter().any(|action| action.starts_with("Reply 2 Outcome(Delivered")));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Where we differ from the documents
//!
//! A join has no fixed wait: it ends when all nodes on the path have reported (PA-17). Announcements after a race go
//! to one node and are counted (PA-23). A node is active once the nearest leaf of each side knows it, not all leaves
//! (PA-27). The version of the neighbourhood set is not compared (PA-26). A node that others name must answer a probe
//! before it gets a table entry (PA-14). Every hop is acknowledged (PA-35).

mod config;
mod contact;
mod counters;
mod delivery;
mod dispatch;
mod effects;
mod env;
mod join;
mod lower;
mod machine;
mod membership;
mod message;
mod prober;
mod repair;
mod state_transfer;
mod tables;
mod transport;
mod wire;

#[cfg(test)]
mod tests;

use core::time::Duration;
use std::net::SocketAddr;

use serde::Serialize;

pub use config::{Config, ConfigError, Fault, Liveness, PORT};
pub use contact::{Contact, Generation, Versions};
pub use counters::Counters;
pub use machine::{Pastry, SPACE, TCP};
pub use message::{
    About, AppName, AppNameTooLong, Body, Envelope, Failure, Message, MessageId, Outcome, PathStep, Report,
    RingTag, TablesSent, Wanted,
};
pub use tables::{Avoid, Cell, LeafSet, Neighbourhood, Position, RoutingTable, Rtt, Score, Step};
pub use transport::UDP;
pub use wire::{decode, encode};

use crate::id::Id;
#[cfg(doc)]
use crate::machine::Machine;

/// The commands of the application.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Command {
    /// Sends a message to the owner of a key (N-6). The reply is its [`Outcome`].
    ///
    /// The origin retransmits the message, over another path and under the same number, until its outcome is known or
    /// the deadline has passed. So an application may see it more than once; [`Event::Delivered`] has its number and
    /// the attempt.
    Route {
        /// The application.
        app: AppName,
        /// The key.
        key: Id,
        /// The content.
        payload: Vec<u8>,
        /// Whether there is one copy at a time. The origin then retransmits only after an attempt that certainly
        /// reached no application. No application gets it twice, but [`Outcome::Unknown`] is more frequent.
        once: bool,
        /// Whether the sender wants the application's answer.
        wants_answer: bool,
        /// The deadline for the outcome; [`Config::message_timeout`] if `None`.
        deadline: Option<Duration>,
    },
    /// Sends a message to one node, whatever keys it owns. The message fails if that node cannot be found.
    SendTo {
        /// The application.
        app: AppName,
        /// The node.
        node: Id,
        /// The content.
        payload: Vec<u8>,
        /// As for [`Command::Route`].
        once: bool,
        /// As for [`Command::Route`].
        wants_answer: bool,
        /// As for [`Command::Route`].
        deadline: Option<Duration>,
    },
    /// Returns the nodes closest to a key, closest first: the order in which they would own it.
    Replicas {
        /// The key.
        key: Id,
        /// How many.
        count: usize,
    },
    /// Returns the next hop of a message to a key.
    NextHop {
        /// The key.
        key: Id,
    },
    /// Returns the keys that this node owns.
    OwnedRange,
    /// The verdicts of applications on messages that came as [`Event::Delivered`]. The reply says how many of them were
    /// open.
    Settle(Vec<(MessageId, Verdict)>),
    /// Finds the owner of a key and the path to it.
    Trace {
        /// The key.
        key: Id,
    },
    /// Returns all tables.
    Tables,
    /// Registers a server for the application of this name: its messages come as [`Event::Delivered`]. It has one
    /// server; for a second one the reply is [`Reply::AlreadyServed`].
    Register(AppName),
    /// Removes that server. An [`Application`] of that name inside the machine stays.
    Unregister(AppName),
    /// Joins through this address. A node that has joined searches there for unknown nodes of its ring.
    Join(SocketAddr),
    /// `members`: this node is alive, and its `route` listens at this address. Send it for every member that joins,
    /// returns or moves. A node that has not joined joins through it. Otherwise it is probed, and inserted into the
    /// tables that it fits.
    MemberAlive {
        /// The node.
        id: Id,
        /// The address of its `route`, not of its `members`.
        addr: SocketAddr,
    },
    /// `members`: this node is suspected. Messages are routed around it.
    MemberSuspected(Id),
    /// `members`: the suspicion was refuted. Messages are routed through this node again.
    MemberRecovered(Id),
    /// `members`: this node has failed. It is removed from all tables, and they are repaired.
    MemberFailed(Id),
    /// `members`: this node has left. It is removed from all tables, and they are repaired.
    MemberLeft(Id),
    /// `members`: a measured round trip to this node.
    MemberRtt {
        /// The node.
        id: Id,
        /// The address of its `route`. A node that is nearer than the entry of its cell is probed there.
        addr: SocketAddr,
        /// The round-trip time.
        rtt: Duration,
    },
}

impl Command {
    /// A message with retries and the default deadline, without an answer.
    #[must_use]
    pub fn route(app: AppName, key: Id, payload: Vec<u8>) -> Self {
        Self::Route { app, key, payload, once: false, wants_answer: false, deadline: None }
    }
}

/// The replies to commands.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reply {
    /// The outcome of a message.
    Outcome(Outcome),
    /// How many of the settled messages were open. The others had been settled, or their origins no longer wait.
    Settled {
        /// How many.
        open: usize,
    },
    /// The nodes closest to a key, closest first; `None` if the leaf set does not reach that far: ask a closer node.
    Replicas(Option<Vec<Contact>>),
    /// The next hop towards a key; `None` if this node owns it.
    NextHop(Option<Contact>),
    /// The keys that this node owns.
    OwnedRange(KeyRange),
    /// The path to a key; its owner is the last step.
    Path(Vec<PathStep>),
    /// All tables.
    Tables(Box<Tables>),
    /// The command is done.
    Done,
    /// The application has a server already.
    AlreadyServed,
    /// Too many messages are under way.
    Full,
    /// The message is longer than the configuration allows.
    TooLong,
    /// The node is stopping.
    Stopping,
}

/// The events of `route`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Event {
    /// The node has joined, and delivers messages from now on.
    Joined {
        /// How many nodes it knows.
        peers: usize,
    },
    /// A join failed; the node tries again.
    JoinFailed {
        /// How often it has tried.
        tries: u32,
    },
    /// A live node has the same id (PA-22). Give this one another id.
    IdTaken,
    /// A message arrived at this node, the owner of its key (N-7). Unless it is settled already, the application answers
    /// with [`Command::Settle`]; the origin waits until then.
    Delivered {
        /// Its number; for [`Command::Settle`].
        id: MessageId,
        /// Which attempt this is, from 0. A later one may repeat a message that the application has seen.
        attempt: u16,
        /// The node that sent it.
        origin: Contact,
        /// The application.
        app: AppName,
        /// Its key.
        key: Id,
        /// The content.
        payload: Vec<u8>,
        /// The number of hops.
        hops: u8,
        /// Whether the sender wants an answer.
        wants_answer: bool,
        /// Whether [`Application::deliver`] has settled it.
        is_settled: bool,
    },
    /// The leaf set changed (N-9). Changes within one call are reported together (PA-38).
    LeafSetChanged {
        /// The clockwise side now, nearest first.
        clockwise: Vec<Contact>,
        /// The counter-clockwise side now, nearest first.
        counter_clockwise: Vec<Contact>,
        /// Nodes that are new in it. A node that restarted is removed in its old generation and added in the new one.
        added: Vec<Contact>,
        /// Nodes that are no longer in it.
        removed: Vec<Contact>,
    },
    /// An established connection to a known node broke. Messages sent over it may be lost.
    ConnectionBroken {
        /// The node.
        contact: Contact,
    },
    /// A node with a table entry no longer answers.
    PeerFailed {
        /// The node.
        contact: Contact,
    },
    /// A node with a table entry announced that it leaves.
    PeerLeft {
        /// The node.
        contact: Contact,
    },
}

/// All tables of a node, for people.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Tables {
    /// The node itself.
    pub own: Contact,
    /// Whether it has joined.
    pub active: bool,
    /// The versions of the tables.
    pub versions: Versions,
    /// The leaf set clockwise, nearest first.
    pub clockwise: Vec<PeerStatus>,
    /// The leaf set counter-clockwise, nearest first.
    pub counter_clockwise: Vec<PeerStatus>,
    /// The filled cells of the routing table.
    pub cells: Vec<CellStatus>,
    /// The neighbourhood set, nearest first.
    pub neighbourhood: Vec<PeerStatus>,
}

/// A node with a table entry, for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct PeerStatus {
    /// Its contact.
    pub contact: Contact,
    /// The round-trip time in microseconds.
    pub rtt_micros: Option<u32>,
    /// Whether messages avoid it for now.
    pub suspected: bool,
}

/// A filled cell, for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct CellStatus {
    /// Digits shared with the node.
    pub row: u8,
    /// The first digit that differs.
    pub column: u8,
    /// The node.
    #[serde(flatten)]
    pub peer: PeerStatus,
}

/// A range of keys on the ring, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct KeyRange {
    /// The first key.
    pub first: Id,
    /// The last key, clockwise of it.
    pub last: Id,
}

impl KeyRange {
    /// Whether a key is in it.
    #[must_use]
    pub fn contains(self, key: Id) -> bool {
        key.is_between(self.first, self.last)
    }
}

/// The verdict of an application on a delivered message (PD-6).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Verdict {
    /// The application accepts the message: it is delivered.
    Accept,
    /// As `Accept`, with an answer for the sender if it wants one.
    Answer(Vec<u8>),
    /// The application has stored the message and will handle it later. It recognises a duplicate by its number.
    Keep,
    /// The application refuses the message. The sender gets the reason, cut to [`Report::REASON_BYTES_MAX`] bytes.
    Refuse(String),
    /// The application cannot take the message now. The sender retries after this time, until its deadline.
    Busy(Duration),
}

/// An application inside the machine. The machine calls it directly, so it must be quick and must not block.
pub trait Application: Send + Sync {
    /// Called at every node on the path, the first and the last included, before the message is forwarded (N-8). It is
    /// called again for each retry and each other path.
    fn forward(&self, passing: &Passing<'_>) -> Forward {
        let _ = passing;
        Forward::Continue
    }

    /// Called if the choice of [`Application::forward`] is impossible. The message continues unchanged.
    fn forward_failed(&self, passing: &Passing<'_>, error: ForwardError) {
        let _ = (passing, error);
    }

    /// Called at the owner of the key. A verdict settles the message at once, and the receipt goes with the
    /// acknowledgement; `None` leaves it open until [`Command::Settle`].
    fn deliver(&self, arrived: &Passing<'_>) -> Option<Verdict> {
        let _ = arrived;
        None
    }
}

/// A message at a node.
#[derive(Clone, Copy, Debug)]
pub struct Passing<'a> {
    /// Its number.
    pub id: MessageId,
    /// Which attempt, from 0.
    pub attempt: u16,
    /// The application.
    pub app: &'a AppName,
    /// Its key.
    pub key: Id,
    /// The node that sent it.
    pub origin: Contact,
    /// The content.
    pub payload: &'a [u8],
    /// How many hops it has taken.
    pub hops: u8,
    /// Whether the sender wants an answer.
    pub wants_answer: bool,
    /// The next hop; `None` if the message would be delivered here.
    pub next: Option<Id>,
}

/// The decision about a message on its path (PA-37).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Forward {
    /// It continues unchanged.
    Continue,
    /// It continues with changes.
    Change {
        /// Its new content, if that changes.
        payload: Option<Vec<u8>>,
        /// The next hop, if that changes. The own id delivers it here.
        next: Option<Id>,
    },
    /// It ends here; its sender gets [`Failure::Stopped`].
    Stop,
}

/// Why a choice of [`Application::forward`] is impossible.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ForwardError {
    /// The chosen next node is in none of this node's tables.
    #[error("{0} is in none of this node's tables: choose a node of them")]
    UnknownNode(Id),
    /// The new content is longer than the configuration allows.
    #[error("the new content has {0} bytes, more than a message may have: shorten it")]
    TooLong(usize),
}
