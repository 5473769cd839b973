//! The messages of the protocol.

use core::fmt;

use bytes::Bytes;
use serde::{Serialize, Serializer};

use super::contact::{Contact, Versions};
use crate::id::Id;

/// Separates rings on one network (PA-44): the beginning of the hash of the ring's name.
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

/// The number of a routed message: never used twice. Each generation of its sender draws a new upper half.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MessageId(pub u128);

impl fmt::Display for MessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// As text: few readers of JSON support numbers of 128 bits.
impl Serialize for MessageId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// A message on the wire. All but `Ping` and `Pong` go over streams. These two go in datagrams, and over a stream if no
/// datagram is answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "message", rename_all = "snake_case")]
pub enum Message {
    /// The first message of each side on a stream: its contact and its ring. A `Hello` of another ring is refused.
    Hello {
        /// The ring.
        ring: RingTag,
        /// The sender.
        from: Contact,
    },
    /// Requests a `Pong`; answered in every state.
    Ping {
        /// The ring.
        ring: RingTag,
        /// The prober's nonce.
        nonce: u64,
        /// The prober.
        from: Contact,
    },
    /// Answers a `Ping`. It counts only if its nonce is awaited.
    Pong {
        /// The ring.
        ring: RingTag,
        /// The number of the ping.
        nonce: u64,
        /// The probed node.
        from: Contact,
        /// The digest of its leaf set. A nearest leaf that expects another one requests the leaf set (PA-34b).
        leaf_set_digest: u32,
    },
    /// A message to a key. The receiver acknowledges it, then delivers or forwards it.
    Route {
        /// The sender's number for this transmission.
        transmission: u64,
        /// The message.
        envelope: Envelope,
    },
    /// The sender took responsibility for these transmissions.
    Ack {
        /// The transmissions.
        transmissions: Vec<u64>,
        /// The messages among them that came directly from their origin and were delivered: it gets no other receipt.
        delivered: Vec<MessageId>,
    },
    /// The sender did not take the message: the receiver of the nack tries another path.
    Nack {
        /// The transmission.
        transmission: u64,
    },
    /// Reports the result of one attempt to the origin of a message.
    Receipt {
        /// The message.
        id: MessageId,
        /// The attempt.
        attempt: u16,
        /// The number of hops.
        hops: u8,
        /// The result.
        report: Report,
    },
    /// Requests parts of the tables.
    StateRequest {
        /// The requester's number for it.
        token: u32,
        /// The parts.
        wanted: Wanted,
    },
    /// Parts of the sender's tables. The receiver decides where each node belongs.
    State {
        /// The reason for sending it.
        about: About,
        /// The versions of the tables they were taken from.
        versions: Versions,
        /// The nodes.
        tables: TablesSent,
    },
    /// Announces the sender (P-35), which wants to be in the receiver's tables. Answered with a `State` about a race
    /// (P-37), or with a `Welcome` if it wants one.
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
    /// The receiver inserted the announcer.
    Welcome {
        /// The versions of the sender's tables, the announcer included.
        versions: Versions,
    },
    /// The sender leaves. A node can send this only about itself (PA-39).
    Exit,
    /// A node no longer answers the sender. A receiver that has it in a table probes it.
    Suspect {
        /// The node.
        id: Id,
    },
    /// The joiner's id belongs to a live node (PA-22).
    Refuse,
}

/// A message under way to a key. Only its origin makes copies of it, one for each attempt. A node on the path forwards
/// a copy or reports its loss to the origin. It never resends a copy that the next hop may have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Envelope {
    /// Its number. It stays the same for all attempts.
    pub id: MessageId,
    /// 0 for the first attempt, then counting. A later attempt takes another path (PA-7a).
    pub attempt: u16,
    /// Its key.
    pub key: Id,
    /// Whether it is for the node with that id only, and fails if that node is absent.
    pub to_node: bool,
    /// The node that sent it.
    pub origin: Contact,
    /// How many hops it may still take (PA-36).
    pub ttl: u8,
    /// How many hops it has taken.
    pub hops: u8,
    /// How long the origin still waited, in milliseconds, when it sent this attempt.
    pub lifetime_millis: u32,
    /// The content.
    pub body: Body,
}

/// The content of a routed message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "body", rename_all = "snake_case")]
pub enum Body {
    /// The origin wants to join (P-28): every node on the path sends it state.
    Join,
    /// A message for an application.
    App {
        /// The application.
        app: AppName,
        /// Whether the origin wants the application's answer.
        wants_answer: bool,
        /// The payload.
        #[serde(serialize_with = "as_bytes")]
        payload: Bytes,
    },
    /// Records its path to the owner of the key.
    Trace {
        /// The nodes that it passed.
        path: Vec<PathStep>,
    },
}

/// One node on the path of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct PathStep {
    /// The node.
    pub contact: Contact,
    /// The round-trip time to the next node, in microseconds; `None` if not measured, or at the end.
    pub rtt_micros: Option<u32>,
}

/// The result of one attempt of a message, reported by the node where the attempt ended.
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
        /// The application's reason, at most [`Report::REASON_BYTES_MAX`] bytes.
        reason: String,
    },
    /// The attempt ended before an application saw it.
    Failed {
        /// The reason.
        why: Failure,
    },
    /// The owner has no room for it now, and no application saw this attempt.
    Busy {
        /// When to retry, in milliseconds.
        after_millis: u32,
    },
    /// The next hop did not acknowledge it, and may or may not have it.
    Lost,
    /// The application of the owner has stored it, and will handle it later.
    Kept,
}

impl Report {
    /// The longest reason; a longer one is cut.
    pub const REASON_BYTES_MAX: usize = 255;
}

/// The outcome of a message of this node (PD-9).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Outcome {
    /// The application of the owner accepted it.
    Delivered {
        /// The owner of the key.
        by: Contact,
        /// The number of hops.
        hops: u8,
        /// The application's answer, if one was wanted and given.
        answer: Option<Vec<u8>>,
    },
    /// The application of the owner has stored it, and will handle it later.
    Kept {
        /// The owner of the key.
        by: Contact,
        /// The number of hops.
        hops: u8,
    },
    /// The application of the owner refused it.
    Refused {
        /// The owner of the key.
        by: Contact,
        /// The application's reason.
        reason: String,
    },
    /// No application saw it, and none will.
    Failed {
        /// The reason.
        why: Failure,
    },
    /// The deadline passed, or an attempt of a message sent `once` was lost: an application may have accepted it.
    Unknown,
}

/// Why no application saw a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
#[non_exhaustive]
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
    /// It was for one node, which is absent.
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

/// The requested parts of the tables.
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

/// The reason for sending state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "about", rename_all = "snake_case")]
pub enum About {
    /// A request.
    Request {
        /// Its number.
        token: u32,
    },
    /// A join that passed this node (P-29).
    Join {
        /// The join message.
        id: MessageId,
        /// How many nodes it passed before.
        hop: u8,
        /// Whether the path ends here (P-31).
        last: bool,
    },
    /// A race: the tables have changed since the announcer saw them (P-37).
    Race,
}

/// Nodes from the sender's tables.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TablesSent {
    /// Nodes of the leaf set.
    pub leaf_set: Vec<Contact>,
    /// Nodes of the routing table.
    pub routing_table: Vec<Contact>,
    /// Nodes of the neighbourhood set.
    pub neighbourhood: Vec<Contact>,
    /// The round trips from the sender to the nodes of the routing table, then to those of the neighbourhood set, in
    /// microseconds. [`u32::MAX`] is unknown, and so is any missing at the end of the list.
    pub rtts_micros: Vec<u32>,
}

/// The name of an application: up to [`AppName::BYTES_MAX`] bytes.
#[derive(Clone, Debug, Default, Eq, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct AppName(String);

/// Most names are empty. Comparing two empty strings is slow, because it loads from a dangling address; so they are not
/// compared.
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
