//! What the messages mean.

use core::fmt;

use serde::{Serialize, Serializer};

use super::clocks::{Clock, Sent};
use super::contact::{Contact, Versions};
use crate::id::Id;

/// Tells rings apart on one network (PA-44): the beginning of the hash of the ring's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct RingTag(pub u64);

impl RingTag {
    /// The tag of a name.
    #[must_use]
    pub fn new(name: &str) -> Self {
        let hash = crate::id::hash(name.as_bytes());
        Self(u64::from_be_bytes(*hash.first_chunk().expect("a hash has 32 bytes")))
    }
}

/// The number of a message that is routed: never used twice. The upper half is drawn anew in each life of its sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MessageId(pub u128);

impl fmt::Display for MessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// As text: few readers of JSON know numbers of 128 bits.
impl Serialize for MessageId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// What goes on the wire. All but `Ping` and `Pong` go over streams; these two go in datagrams, and over a stream when
/// no datagram was answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "message", rename_all = "snake_case")]
pub enum Message {
    /// The first message of each side on a stream: who speaks, and in which ring. Another ring's is refused.
    Hello {
        /// Which ring.
        ring: RingTag,
        /// Who.
        from: Contact,
    },
    /// Are you there? Answered with a `Pong` in every state.
    Ping {
        /// Which ring.
        ring: RingTag,
        /// The asker's number for it.
        nonce: u64,
        /// The asker.
        from: Contact,
    },
    /// I am. It counts only for who waits for that number.
    Pong {
        /// Which ring.
        ring: RingTag,
        /// The number of the ping.
        nonce: u64,
        /// Who answers.
        from: Contact,
        /// How often its leaf set has changed: who has seen another version asks for the leaf set.
        leaf_set_version: u32,
        /// Its clock.
        clock: Clock,
    },
    /// A message on its way to its key. Whoever takes it acknowledges it, then delivers or forwards it.
    Route {
        /// The sender's number for this transmission.
        transmission: u64,
        /// When it was sent, as far as the sender can tell.
        sent: Option<Sent>,
        /// What is under way.
        envelope: Envelope,
    },
    /// Took the transmissions of these numbers: they are no longer the sender's.
    Ack {
        /// The clock of who took them.
        clock: Clock,
        /// Which transmissions; with none it only shows the clock.
        transmissions: Vec<u64>,
        /// The messages among them that came straight from their origin and were delivered: it gets no other receipt.
        delivered: Vec<MessageId>,
    },
    /// Did not take it: the sender tries another way.
    Nack {
        /// Which transmission.
        transmission: u64,
    },
    /// To the origin of a message: what became of it.
    Receipt {
        /// Which message.
        id: MessageId,
        /// What became of it.
        outcome: Outcome,
        /// After how many steps.
        hops: u8,
        /// The way it took, if it was to note that.
        path: Vec<PathStep>,
    },
    /// To the origin of a question: the owner's answer.
    Answer {
        /// Which message was the question.
        id: MessageId,
        /// After how many steps it was asked.
        hops: u8,
        /// Who answers.
        from: Contact,
        /// The answer.
        payload: Vec<u8>,
    },
    /// Asks for parts of the tables.
    StateRequest {
        /// The asker's number for it.
        token: u32,
        /// Which parts.
        wanted: Wanted,
    },
    /// Parts of the sender's tables. The receiver finds the place of each node by itself.
    State {
        /// Why it was sent.
        about: About,
        /// The versions of the tables they were taken from.
        versions: Versions,
        /// The nodes.
        tables: TablesSent,
    },
    /// "I am here" (P-35): the sender wants to be in the receiver's tables. Answered with `Welcome`, or with a `State`
    /// about a race (P-37).
    Announce {
        /// The receiver's tables as the sender saw them; `None` if it never did (PA-25).
        seen: Option<Versions>,
        /// The versions of the sender's tables.
        versions: Versions,
        /// The sender's tables, if it is joining; else its leaf set.
        tables: TablesSent,
    },
    /// The announcement was taken in.
    Welcome {
        /// The versions of the sender's tables, the announcer included.
        versions: Versions,
    },
    /// The sender leaves. Nobody can say it of somebody else (PA-39).
    Exit,
    /// Somebody does not answer the sender any more: whoever has it in a table sees for itself.
    Suspect {
        /// Who.
        id: Id,
    },
    /// The joiner's id belongs to somebody who is alive (PA-22).
    Refuse,
    /// A message of which there may be another copy has arrived at the sender: did the receiver deliver it?
    Inquire {
        /// Which message.
        id: MessageId,
        /// Its key.
        key: Id,
        /// How old it is at most, in microseconds.
        age_micros: u32,
    },
    /// The answer to that.
    Testify {
        /// Which message.
        id: MessageId,
        /// What is known of it.
        testimony: Testimony,
    },
}

/// What a node says of a message that a neighbour asks about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Testimony {
    /// It did not deliver it, and will not.
    No,
    /// It delivered it.
    Delivered,
    /// It cannot tell: it has not been there as long as the message, or takes itself for the owner of the key.
    Perhaps,
}

impl Testimony {
    /// All of them, in the order of their bytes.
    pub const ALL: [Self; 3] = [Self::No, Self::Delivered, Self::Perhaps];
}

/// Whether there may be more than one of a message under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Copies {
    /// There is one, and it is delivered at most once.
    One,
    /// It may be sent again on purpose: joins, questions, messages with retries.
    Many,
    /// There should be one, but it was sent another way because a node did not acknowledge, and that node may have it.
    /// Who owns its key only since a moment ago does not deliver it: the former owner may have.
    Doubtful,
}

impl Copies {
    /// All of them, in the order of their bytes.
    pub const ALL: [Self; 3] = [Self::One, Self::Many, Self::Doubtful];
}

/// A message under way to a key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Envelope {
    /// Its number.
    pub id: MessageId,
    /// 0 the first time its origin sent it, then counting: a retry goes by another way (PA-7a).
    pub attempt: u8,
    /// Where it goes.
    pub key: Id,
    /// Who sent it.
    pub origin: Contact,
    /// How many steps it may still take (PA-36).
    pub ttl: u8,
    /// How many steps it has taken.
    pub hops: u8,
    /// Whether there may be more than one of it.
    pub copies: Copies,
    /// Nodes that did not acknowledge it, and may have it: [`Envelope::DOUBTED_MAX`] at most.
    pub doubted: Vec<Id>,
    /// What it is.
    pub body: Body,
}

impl Envelope {
    /// How many nodes may have it before nobody can tell what became of it.
    pub const DOUBTED_MAX: usize = 4;

    /// A message at its origin, sent for the first time.
    #[must_use]
    pub fn new(id: MessageId, key: Id, origin: Contact, ttl: u8, copies: Copies, body: Body) -> Self {
        Self { id, attempt: 0, key, origin, ttl, hops: 0, copies, doubted: Vec::new(), body }
    }
}

/// What a routed message is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "body", rename_all = "snake_case")]
pub enum Body {
    /// The origin wants to join (P-28): everybody on the way sends it state.
    Join,
    /// For an application.
    App {
        /// Which.
        app: AppName,
        /// Whether the origin waits for an answer of the application.
        ask: bool,
        /// What.
        payload: Vec<u8>,
    },
    /// Notes its way: the answer to "who owns this key, and how do I get there".
    Trace {
        /// Where it has been.
        path: Vec<PathStep>,
    },
}

/// One node on the way of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct PathStep {
    /// Who.
    pub contact: Contact,
    /// How long a request from there to the next node takes, in microseconds; `None` if not measured, or at the end.
    pub rtt_micros: Option<u32>,
}

/// What became of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum Outcome {
    /// Delivered at this node.
    Delivered {
        /// The owner of the key.
        by: Contact,
    },
    /// Certainly not delivered.
    Failed {
        /// Why.
        reason: Failure,
    },
    /// It was sent to its owner, which has vanished since: perhaps delivered, perhaps not.
    Unknown,
}

/// Why a message was not delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub enum Failure {
    /// The owner runs no application of that name.
    NoApplication = 0,
    /// An application on the way stopped it.
    Stopped = 1,
    /// It took more steps than it may.
    HopLimit = 2,
    /// Every way that was tried failed.
    NoRoute = 3,
    /// A node on the way had no room for it.
    Busy = 4,
    /// The owner's application gave no answer in time.
    NoAnswer = 5,
}

impl Failure {
    /// All of them, by number.
    pub const ALL: [Self; 6] =
        [Self::NoApplication, Self::Stopped, Self::HopLimit, Self::NoRoute, Self::Busy, Self::NoAnswer];
}

/// Which parts of the tables somebody asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Wanted {
    /// The leaf set.
    pub leaf_set: bool,
    /// The neighbourhood set.
    pub neighbourhood: bool,
    /// Rows of the routing table, one bit each. Bits of rows that do not exist mean nothing.
    pub rows: u128,
    /// One cell of the routing table: row and column.
    pub cell: Option<(u8, u8)>,
}

/// Why state was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "about", rename_all = "snake_case")]
pub enum About {
    /// It was asked for.
    Request {
        /// Under this number.
        token: u32,
    },
    /// A join passed by (P-29).
    Join {
        /// The join message.
        id: MessageId,
        /// How many nodes it passed before.
        hop: u8,
        /// Whether the way ends here (P-31).
        last: bool,
    },
    /// The tables have changed since the announcer saw them (P-37).
    Race,
}

/// Nodes out of somebody's tables.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TablesSent {
    /// Of the leaf set.
    pub leaf_set: Vec<Contact>,
    /// Of the routing table.
    pub routing_table: Vec<Contact>,
    /// Of the neighbourhood set.
    pub neighbourhood: Vec<Contact>,
}

/// The name of an application: up to [`AppName::BYTES_MAX`] bytes.
#[derive(Clone, Debug, Default, Eq, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct AppName(String);

/// Most have the empty name, and to compare two empty strings costs the processor more than one would think: it loads
/// from an address that is none.
impl PartialEq for AppName {
    fn eq(&self, other: &Self) -> bool {
        self.0.len() == other.0.len() && (self.0.is_empty() || self.0 == other.0)
    }
}

impl AppName {
    /// The longest name.
    pub const BYTES_MAX: usize = 64;

    /// The application of that name.
    ///
    /// # Errors
    /// If the name is too long.
    pub fn new(name: impl Into<String>) -> Result<Self, AppNameTooLong> {
        let name = name.into();
        if name.len() > Self::BYTES_MAX { Err(AppNameTooLong { bytes: name.len() }) } else { Ok(Self(name)) }
    }

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// An application's name is too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an application's name has at most {} bytes, this one has {bytes}: shorten it", AppName::BYTES_MAX)]
pub struct AppNameTooLong {
    /// Its length.
    pub bytes: usize,
}
