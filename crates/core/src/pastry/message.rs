//! What the messages mean.

use core::fmt;

use bytes::Bytes;
use serde::{Serialize, Serializer};

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
    },
    /// A message on its way to its key. Whoever takes it acknowledges it, then delivers or forwards it.
    Route {
        /// The sender's number for this transmission.
        transmission: u64,
        /// What is under way.
        envelope: Envelope,
    },
    /// Took the transmissions of these numbers: they are no longer the sender's.
    Ack {
        /// Which transmissions.
        transmissions: Vec<u64>,
        /// The messages among them that came straight from their origin and were delivered: it gets no other receipt.
        delivered: Vec<MessageId>,
    },
    /// Did not take it: the sender tries another way.
    Nack {
        /// Which transmission.
        transmission: u64,
    },
    /// To the origin of a message: what became of one attempt.
    Receipt {
        /// Which message.
        id: MessageId,
        /// Which attempt of it.
        attempt: u16,
        /// After how many hops.
        hops: u8,
        /// What became of it.
        report: Report,
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
    /// "I am here" (P-35): the sender wants to be in the receiver's tables. Answered with a `State` about a race (P-37), or
    /// with a `Welcome` if it wants one.
    Announce {
        /// The receiver's tables as the sender saw them; `None` if it never did (PA-25).
        seen: Option<Versions>,
        /// Whether the sender waits for a `Welcome`: the receiver is in its leaf set.
        wants_welcome: bool,
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
}

/// A message under way to a key. Only its origin makes copies of it, one for each attempt. A node on the way hands a copy
/// on, or reports its loss to the origin; it never sends a copy again that the next node may have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Envelope {
    /// Its number. It stays the same for all attempts.
    pub id: MessageId,
    /// 0 for the first attempt, then counting. A later attempt takes another path (PA-7a).
    pub attempt: u16,
    /// Where it goes.
    pub key: Id,
    /// Whether it is for the node with that id only, and fails if that is not there.
    pub to_node: bool,
    /// Who sent it.
    pub origin: Contact,
    /// How many hops it may still take (PA-36).
    pub ttl: u8,
    /// How many hops it has taken.
    pub hops: u8,
    /// How long the origin still waits, in milliseconds, when it sent this attempt.
    pub lifetime_millis: u32,
    /// What it is.
    pub body: Body,
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
        /// Whether the origin wants the application's answer.
        wants_answer: bool,
        /// What.
        #[serde(serialize_with = "as_bytes")]
        payload: Bytes,
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

/// What became of one attempt of a message, as the node reports it where the attempt ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "report", rename_all = "snake_case")]
pub enum Report {
    /// The application of the owner accepted it. The owner is the node that sends the report.
    Delivered {
        /// The application's answer, if the origin wants one.
        #[serde(serialize_with = "as_optional_bytes")]
        answer: Option<Bytes>,
    },
    /// A trace reached the owner.
    Traced {
        /// The path it took, the owner last.
        path: Vec<PathStep>,
    },
    /// The application of the owner refused it.
    Refused {
        /// Why, in the application's words: [`Report::REASON_BYTES_MAX`] bytes at most.
        reason: String,
    },
    /// The attempt ended before an application saw it.
    Failed {
        /// Why.
        why: Failure,
    },
    /// The owner has no room for it now, and no application saw this attempt.
    Busy {
        /// When to try again, in milliseconds.
        after_millis: u32,
    },
    /// The next node did not acknowledge it: that node may have it, or not.
    Lost,
    /// The application of the owner has stored it, and will handle it later.
    Kept,
}

impl Report {
    /// The longest reason; a longer one is cut.
    pub const REASON_BYTES_MAX: usize = 255;
}

/// How a message of ours ended (PD-9).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum Outcome {
    /// The application of the owner accepted it.
    Delivered {
        /// The owner of the key.
        by: Contact,
        /// After how many hops.
        hops: u8,
        /// The application's answer, if one was wanted and given.
        answer: Option<Vec<u8>>,
    },
    /// The application of the owner has stored it, and will handle it later.
    Kept {
        /// The owner of the key.
        by: Contact,
        /// After how many hops.
        hops: u8,
    },
    /// The application of the owner refused it.
    Refused {
        /// The owner of the key.
        by: Contact,
        /// Why, in the application's words.
        reason: String,
    },
    /// No application saw it, and none will.
    Failed {
        /// Why.
        why: Failure,
    },
    /// The deadline passed, or an attempt of a message sent `once` was lost: perhaps an application accepted it.
    Unknown,
}

/// Why no application saw a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub enum Failure {
    /// The owner runs no application of that name.
    NoApplication = 0,
    /// An application on the path stopped it.
    Stopped = 1,
    /// It took more hops than it may.
    HopLimit = 2,
    /// Every path that was tried failed.
    NoRoute = 3,
    /// A node on the path, or the owner, had no room for it until the deadline.
    Busy = 4,
    /// It was for one node, which is not there.
    NoSuchNode = 5,
}

impl Failure {
    /// All of them, by number.
    pub const ALL: [Self; 6] =
        [Self::NoApplication, Self::Stopped, Self::HopLimit, Self::NoRoute, Self::Busy, Self::NoSuchNode];
}

fn as_bytes<S: Serializer>(bytes: &Bytes, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(bytes.iter())
}

fn as_optional_bytes<S: Serializer>(bytes: &Option<Bytes>, serializer: S) -> Result<S::Ok, S::Error> {
    match bytes {
        Some(bytes) => serializer.collect_seq(bytes.iter()),
        None => serializer.serialize_none(),
    }
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
    /// The round trips from the sender to the nodes of the routing table, then to those of the neighbourhood set, in
    /// microseconds. [`u32::MAX`] is unknown, and so are those that the list does not reach.
    pub rtts_micros: Vec<u32>,
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
