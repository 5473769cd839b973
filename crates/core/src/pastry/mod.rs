//! Pastry: who owns this key, and how do I reach it?
//!
//! Every node has an [`Id`] on a circle, and owns the keys that are closest to it. Any node that is given a key and a
//! message gets it to the owner in about log₁₆ N steps over nearby nodes, while nodes come and go. The documents are the
//! specification of Wendy (clauses P-n) and notes on the Pastry paper (N-n); `docs/spec/pastry.md` restates them and says
//! what we decided where they are silent (PA-n).
//!
//! # The files
//!
//! | file | what it is |
//! |---|---|
//! | `mod.rs` | this page, and the public types |
//! | `config.rs` | what can be set, and the checks on it |
//! | `message.rs`, `wire.rs` | what the messages mean, and their bytes |
//! | `machine.rs`, `inbox.rs` | the [`Machine`] implementation: matches and delegates; what comes by streams |
//! | `leaf_set.rs`, `routing_table.rs`, `neighbourhood.rs` | the three tables |
//! | `routing.rs` | the decision where a message goes next |
//! | `counts.rs`, `apps.rs` | what is counted; the applications |
//! | `contact.rs`, `peers.rs`, `proximity.rs` | who is known, and how near it is |
//! | `seats.rs` | who gets into the tables and who loses its place |
//! | `acks.rs`, `clocks.rs` | who took a message and says so; how old a message is when it is read |
//! | `join.rs`, `arrival.rs` | how far a join has come; joins, ours and others' |
//! | `relays.rs`, `sendings.rs`, `passage.rs` | messages passed on, messages of our own; their way through here |
//! | `window.rs`, `inquiry.rs` | the messages delivered last; whether a neighbour delivered one of which there may be a copy |
//! | `members.rs` | what the service `members` tells of others |
//! | `probes.rs`, `repairs.rs`, `upkeep.rs` | questions whether nodes live; what is to be asked; the work of it |
//!
//! # The messages
//!
//! All go over kept connections ([`crate::pool`]); probes go in datagrams first.
//!
//! | message | what a node does with it |
//! |---|---|
//! | `Hello` | opens every connection, both ways; one of another ring is refused |
//! | `Ping`, `Pong` | answered in every state; the time between them is how near a node is |
//! | `Route` | acknowledged, then delivered or forwarded; a node that is still joining keeps what is its own |
//! | `Ack`, `Nack` | the sender is free of it, and if it was delivered at once its origin knows; or it tries another way |
//! | `Receipt`, `Answer` | tell the origin what became of its message, straight |
//! | `StateRequest`, `State` | ask for and give parts of the tables |
//! | `Announce`, `Welcome` | a joiner wants to be known, and is |
//! | `Inquire`, `Testify` | whether a neighbour delivered a message of which there may be two |
//! | `Exit`, `Suspect`, `Refuse` | the sender leaves; somebody does not answer; that id is taken |
//!
//! # A node in twenty lines
//!
//! ```
//! use annulus_core::pastry::{AppName, Command, Config, Pastry};
//! use annulus_core::{Action, Bound, Id, Instant, Machine, Now, Queue, RequestId, StoreReply, StoreResult, Wall};
//!
//! let config = Config { id: Id::from_text("node 1"), ..Config::default() };
//! let mut pastry = Pastry::new(config, [7; 32])?;
//! let mut queue = Queue::new();
//! let now = Now::new(Instant::ZERO, Wall::from_micros(1_700_000_000_000_000));
//!
//! // It starts, reads its incarnation from an empty store, and is the first of its ring.
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
//! // All keys are its own, so a message is delivered here.
//! let (app, key) = (AppName::default(), Id::from_text("some key"));
//! let command = Command::Route { app, key, payload: b"hello".to_vec(), retries: 0 };
//! pastry.handle_command(now, RequestId(1), command, &mut queue.outbox());
//! let mut told = Vec::new();
//! while let Some(action) = queue.next() {
//!     told.push(format!("{action:?}"));
//! }
//! assert!(told.iter().any(|action| action.starts_with("Event Delivered")));
//! assert!(told.iter().any(|action| action.starts_with("Reply 1 Delivered")));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Where we differ from the documents
//!
//! A join does not sleep but ends when all have reported (PA-17); announcements after a race go to one node and are
//! counted (PA-23); the neighbourhood set's version is not compared (PA-26); nodes that others name must answer before
//! they get a place (PA-14); every step is acknowledged (PA-35).

mod acks;
mod apps;
mod arrival;
mod clocks;
mod config;
mod contact;
mod counts;
mod inbox;
mod inquiry;
mod join;
mod leaf_set;
mod machine;
mod members;
mod message;
mod neighbourhood;
mod passage;
mod peers;
mod probes;
mod proximity;
mod relays;
mod repairs;
mod routing;
mod routing_table;
mod seats;
mod sendings;
mod upkeep;
mod window;
mod wire;

#[cfg(test)]
mod tests;

use core::time::Duration;
use std::net::SocketAddr;

use serde::Serialize;

pub use clocks::{Clock, Sent};
pub use config::{Config, ConfigError, Liveness, PORT};
pub use contact::{Contact, Incarnation, Versions};
pub use counts::Counters;
pub use leaf_set::LeafSet;
pub use machine::{Pastry, SPACE, TCP, UDP};
pub use message::{
    About, AppName, AppNameTooLong, Body, Copies, Envelope, Failure, Message, MessageId, Outcome, PathStep,
    RingTag, TablesSent, Testimony, Wanted,
};
pub use neighbourhood::Neighbourhood;
pub use proximity::{Estimate, Score};
pub use routing::{Avoid, Step};
pub use routing_table::{Cell, Position, RoutingTable};
pub use wire::{decode, encode};

use crate::id::Id;
#[cfg(doc)]
use crate::machine::Machine;

/// What the application may ask.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Send a message to the owner of a key (N-6). The reply tells what became of it.
    Route {
        /// For which application.
        app: AppName,
        /// To whose owner.
        key: Id,
        /// What.
        payload: Vec<u8>,
        /// How often to send it again, by another way, when no receipt comes. With 0 it is delivered at most once,
        /// whatever happens. With more it is delivered again in one case: its owner died after delivering it.
        retries: u8,
    },
    /// Ask the owner of a key. The reply is the owner's answer. The question is put again by another way when no answer
    /// comes, so an application may see it more than once; the answer is given at most once.
    Ask {
        /// Which application.
        app: AppName,
        /// Whose owner.
        key: Id,
        /// What.
        payload: Vec<u8>,
        /// How often to ask again.
        retries: u8,
    },
    /// Answer a question that came as [`Event::Delivered`].
    Answer {
        /// Its number there.
        id: MessageId,
        /// The answer.
        payload: Vec<u8>,
    },
    /// Find the owner of a key and the way there.
    Trace {
        /// Which key.
        key: Id,
    },
    /// Tell about all tables.
    Tables,
    /// Run an application of this name from now on.
    Register(AppName),
    /// Run it no longer.
    Unregister(AppName),
    /// Join through this address, if not in a ring yet; else look there for nodes of this ring that are not known here.
    Join(SocketAddr),
    /// `members`: this node lives, and its `route` listens there. Say it of every member when it joins, returns or
    /// moves. A node that has not joined yet joins through it; else it is asked, and gets the seats it deserves.
    MemberAlive {
        /// Which node.
        id: Id,
        /// Where its `route` listens; not where its `members` does.
        addr: SocketAddr,
    },
    /// `members`: this node may be failing. Messages go around it.
    MemberSuspected(Id),
    /// `members`: it is not failing after all. Messages go through it again.
    MemberRecovered(Id),
    /// `members`: this node has failed. It loses its seats, and they are filled anew.
    MemberFailed(Id),
    /// `members`: this node has left. It loses its seats, and they are filled anew.
    MemberLeft(Id),
    /// `members`: a round trip to this node took so long.
    MemberRtt {
        /// Which node.
        id: Id,
        /// Where its `route` listens: if it is nearer than who has its seat, it is asked there.
        addr: SocketAddr,
        /// How long.
        rtt: Duration,
    },
}

/// What the application gets for a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// The message was delivered.
    Delivered {
        /// Where.
        by: Contact,
        /// After how many steps.
        hops: u8,
    },
    /// The message was certainly not delivered.
    Failed {
        /// Why.
        reason: Failure,
    },
    /// Whether the message was delivered is not known.
    Unknown,
    /// The answer to a question.
    Answered {
        /// Who answers.
        by: Contact,
        /// After how many steps the question was there.
        hops: u8,
        /// The answer.
        payload: Vec<u8>,
    },
    /// The way to a key; its owner is the last step.
    Path(Vec<PathStep>),
    /// All tables.
    Tables(Box<Tables>),
    /// It is done.
    Done,
    /// There is no room: as many messages under way as the configuration allows.
    Full,
    /// The message is longer than the configuration allows.
    TooLong,
    /// That question is not open: it was answered, or nobody waits any more.
    NoSuchQuestion,
    /// The node is stopping.
    Stopping,
}

/// What the application is told unasked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// The node has found its place: from here on it delivers.
    Joined {
        /// How many nodes it knows.
        peers: usize,
    },
    /// It could not join; it tries again.
    JoinFailed {
        /// How often it has tried.
        tries: u32,
    },
    /// A living node has the same id (PA-22). Give this one another id.
    IdTaken,
    /// A message arrived at this node, the owner of its key (N-7).
    Delivered {
        /// Its number; for [`Command::Answer`].
        id: MessageId,
        /// For which application.
        app: AppName,
        /// Its key.
        key: Id,
        /// Who sent it.
        origin: Contact,
        /// What.
        payload: Vec<u8>,
        /// After how many steps.
        hops: u8,
        /// Whether the sender waits for an answer.
        ask: bool,
    },
    /// The leaf set changed (N-9); all changes of one moment together (PA-38).
    LeafSetChanged {
        /// As it is now: clockwise, nearest first.
        clockwise: Vec<Contact>,
        /// As it is now: counter-clockwise, nearest first.
        counter_clockwise: Vec<Contact>,
        /// Who is new in it.
        added: Vec<Id>,
        /// Who is no longer in it.
        removed: Vec<Id>,
    },
    /// A node that had a seat does not answer any more.
    PeerFailed {
        /// Which.
        contact: Contact,
    },
    /// A node that had a seat said that it leaves.
    PeerLeft {
        /// Which.
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

/// A node with a seat, for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct PeerStatus {
    /// Who and where.
    pub contact: Contact,
    /// How long a request takes, in microseconds.
    pub rtt_micros: Option<u32>,
    /// Whether messages go around it for now.
    pub suspected: bool,
}

/// A filled cell, for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct CellStatus {
    /// Digits shared with the node.
    pub row: u8,
    /// The first digit that differs.
    pub column: u8,
    /// Who.
    #[serde(flatten)]
    pub peer: PeerStatus,
}

/// What an application decides about messages that pass (N-8). It is called inside the machine, so it must be quick
/// and may not wait.
pub trait Application: Send + Sync {
    /// Called at every node on the way, the first and the last included, before the message goes on.
    fn forward(&self, passing: &Passing<'_>) -> Verdict;
}

/// A message about to go on.
#[derive(Clone, Copy, Debug)]
pub struct Passing<'a> {
    /// Which application it is for.
    pub app: &'a AppName,
    /// Its key.
    pub key: Id,
    /// Who sent it.
    pub origin: Contact,
    /// What it is.
    pub payload: &'a [u8],
    /// Where it would go next; `None` if it would be delivered here.
    pub next: Option<Id>,
}

/// What becomes of a message that passes (PA-37).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It goes on as it is.
    Forward,
    /// It goes on with this content.
    Rewrite(Vec<u8>),
    /// It goes to this node next. If that is not known here, it goes on as it is.
    Redirect(Id),
    /// It ends here; its sender learns that it was stopped.
    Stop,
}
