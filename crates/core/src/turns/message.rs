//! The messages and their meaning.

use core::fmt;
use std::net::SocketAddr;

use serde::{Serialize, Serializer};

use super::record::Record;
use crate::id::{Id, hash};
use crate::outbox::Hex;

/// A name on the wire: BLAKE2b-256 of its text.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(pub [u8; 32]);

impl Key {
    /// The key of a name.
    #[must_use]
    pub fn of(name: &str) -> Self {
        Self(hash(name.as_bytes()))
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}…", Hex(&self.0[..4]))
    }
}

/// The group of voters: 16 random bytes, drawn when it is founded. Zero is "not known".
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Group(pub [u8; 16]);

impl fmt::Debug for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Hex(&self.0).fmt(f)
    }
}

impl Serialize for Group {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// One datagram (TU-10).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// The sender's group.
    pub group: Group,
    /// The sender's epoch.
    pub epoch: u32,
    /// The number that an answer repeats.
    pub nonce: u64,
    /// The content.
    pub body: Body,
}

/// The content of a datagram.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// An asker requests or renews a lease. Every voter answers with [`Body::Answer`].
    Ask(Ask),
    /// A voter's answer to an [`Body::Ask`] with the same nonce.
    Answer(Answer),
    /// An asker ends its lease. With session 0 it only leaves the queue.
    Release(Ended),
    /// A voter confirms a [`Body::Release`].
    Released(Ended),
    /// A voter notifies the first waiter that the name became free.
    Free {
        /// The name.
        key: Key,
        /// The greatest number this voter granted for it.
        top: u64,
    },
    /// The founder offers a record.
    Offer {
        /// The record.
        record: Box<Record>,
        /// The group that it replaces, if an operator founds a new one (TU-28).
        replaces: Option<Group>,
    },
    /// A voter has written the record offered under the same nonce.
    Accepted {
        /// The voter's bound: every number it ever granted is at most this.
        bound: u64,
    },
    /// Requests the [`Body::State`] of a voter.
    Read {
        /// A name whose lease is requested as well.
        key: Option<Key>,
    },
    /// The state of a voter; also its answer to a message of another group.
    State(Box<State>),
}

/// A request for a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ask {
    /// The name.
    pub key: Key,
    /// The number of the turn: its fence.
    pub number: u64,
    /// The asker.
    pub holder: Id,
    /// A random number, new for every attempt (TU-17).
    pub session: u64,
    /// The length of the lease in milliseconds.
    pub length_ms: u32,
    /// How long the longest waiter of this node has waited, in milliseconds.
    pub waited_ms: u32,
    /// Whether this extends a turn under way.
    pub renew: bool,
    /// Whether the voter is to put the asker into its queue if the name is not free.
    pub queue: bool,
}

/// A voter's answer to an [`Ask`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The decision.
    pub verdict: Verdict,
    /// The greatest number of this name here.
    pub top: u64,
    /// The number above which every name starts here.
    pub floor: u64,
}

/// A voter's decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The lease is granted.
    Granted,
    /// Another session has the lease, or the name is reserved for the first waiter.
    Held {
        /// The node that has it.
        holder: Id,
        /// Its number.
        number: u64,
        /// The rest of its lease in milliseconds.
        left_ms: u32,
    },
    /// The number is not above the greatest one granted.
    Behind,
    /// The voter has started and grants nothing yet (TU-19).
    Resting {
        /// The rest in milliseconds.
        left_ms: u32,
    },
    /// This node does not vote.
    NotVoter,
}

/// The lease that a [`Body::Release`] ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// The name.
    pub key: Key,
    /// The number of the turn.
    pub number: u64,
    /// Its session.
    pub session: u64,
}

/// The state of a voter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    /// The node.
    pub id: Id,
    /// A random number drawn at its start: two processes with one id differ in it (TU-22).
    pub start: u64,
    /// Whether it votes.
    pub standing: Standing,
    /// Every number it ever granted is at most this.
    pub bound: u64,
    /// The number above which every name starts here.
    pub floor: u64,
    /// Its record.
    pub record: Option<Record>,
    /// The lease of the requested name.
    pub lease: Option<LeaseSeen>,
}

/// Whether a node votes, and why not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Standing {
    /// It is not in the list of voters.
    Outsider,
    /// It has no record yet.
    NoRecord,
    /// It has written a record that not all voters have.
    Founding,
    /// It lost its record and reads the bounds of the others (TU-21).
    Recovering,
    /// It has started and waits until all leases that it may have forgotten have expired (TU-19).
    Resting,
    /// It votes.
    Voting,
    /// It must not vote: an operator has to decide.
    Halted,
}

/// A lease as a voter shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct LeaseSeen {
    /// The node that has it; none if the name is free.
    pub holder: Option<Id>,
    /// The greatest number of the name.
    pub number: u64,
    /// The rest of the lease in milliseconds.
    pub left_ms: u32,
    /// How many wait.
    pub waiting: u16,
}

/// A voter of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct VoterEntry {
    /// Its id when the group was founded.
    pub id: Id,
    /// Its address.
    pub addr: SocketAddr,
}
