//! The messages of the protocol.

use super::contents::Contents;
use super::sequence::Sequence;
use super::status::{Incarnation, State};
use super::tree::Range;
use super::vivaldi::Coordinate;
use super::wire::{Hashes, Ids, Summaries};
use crate::id::Id;
use crate::time::Wall;

/// The originator of a message and its sequence number there (S-67, S-77).
///
/// For an update (Join, Alive, Suspect, Dead, User) it names the originator, however often the update was forwarded.
/// For all other messages it names the sender of the packet (SA-15).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The originator.
    pub from: Id,
    /// Its sequence number; an answer has that of the question (SA-17).
    pub sequence: Sequence,
}

/// A node as it describes itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeView<'a> {
    /// Its id.
    pub id: Id,
    /// Its addresses and metadata.
    pub contents: Contents<'a>,
}

/// One message. Several travel in a packet (S-84).
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Message<'a> {
    /// Requests an `Ack`.
    Ping {
        /// The prober.
        header: Header,
        /// The probed node; the id 0 is any node at the address.
        to: Id,
        /// The prober's clock, for information (SA-23).
        local_time: Wall,
        /// Whether the answer is to carry a coordinate.
        wants_coordinate: bool,
        /// Whether the node's own `Alive` is to follow its `Ack`. The sequence is then a nonce, which proves id and
        /// address (SA-58a).
        wants_alive: bool,
    },
    /// Answers the `Ping` with the same sequence.
    Ack {
        /// The probed node.
        header: Header,
        /// Its clock, for information.
        local_time: Wall,
        /// Whether it does not know the prober and requests its `Alive`.
        introduce: bool,
        /// Its coordinate, if that was requested.
        coordinate: Option<Coordinate>,
    },
    /// Asks a proxy to ping `target`. Answered with an `IndirectAck` if the target answers.
    IndirectPing {
        /// The requester.
        header: Header,
        /// The proxy.
        to: Id,
        /// The node to ping.
        target: Id,
        /// Whether the proxy sends an `IndirectNack` if the target does not answer.
        wants_nack: bool,
        /// The addresses of the target, if the proxy does not know it.
        contents: Contents<'a>,
    },
    /// The target of an `IndirectPing` answered.
    IndirectAck {
        /// The proxy.
        header: Header,
    },
    /// The target of an `IndirectPing` has not answered so far. The proxy is reachable, so the requester's own link
    /// works (Lifeguard).
    IndirectNack {
        /// The proxy.
        header: Header,
    },
    /// As `Alive`, from a new node that requests the `Alive` and the table of the receiver.
    Join {
        /// The new node.
        header: Header,
        /// How it describes itself.
        node: NodeView<'a>,
        /// Its incarnation.
        incarnation: Incarnation,
    },
    /// A node is alive and describes itself.
    Alive {
        /// The node itself.
        header: Header,
        /// How it describes itself.
        node: NodeView<'a>,
        /// Its incarnation.
        incarnation: Incarnation,
    },
    /// A probe of this node failed.
    Suspect {
        /// The node whose probe failed.
        header: Header,
        /// Which node.
        id: Id,
        /// The incarnation that is suspected.
        incarnation: Incarnation,
    },
    /// A suspicion was not refuted in time. From the node itself, it means that the node leaves (SA-12).
    Dead {
        /// The node that declares it.
        header: Header,
        /// Which node.
        id: Id,
        /// The incarnation that is over.
        incarnation: Incarnation,
    },
    /// A message of the application for all members.
    User {
        /// The originator, and the sequence number there.
        header: Header,
        /// The same node (SA-24).
        id: Id,
        /// The content.
        data: &'a [u8],
    },
    /// Hashes of the records in this range: one of all of them, or one for each sixteenth.
    Digest {
        /// The node that compares.
        header: Header,
        /// The range of ids.
        range: Range,
        /// The hashes.
        hashes: Hashes<'a>,
    },
    /// The members that the sender knows in this range, and the state of each.
    Summary {
        /// The node that compares.
        header: Header,
        /// The range of ids.
        range: Range,
        /// Id, incarnation, state, and a fingerprint of the contents in 32 bits.
        entries: Summaries<'a>,
    },
    /// Requests the full records of these members.
    Want {
        /// The requester.
        header: Header,
        /// The members.
        ids: Ids<'a>,
    },
    /// A message of an unknown kind: for a handler of the application (S-63).
    Other {
        /// The sender.
        header: Header,
        /// Its kind.
        kind: u8,
        /// The rest of it.
        body: &'a [u8],
    },
    /// Bytes without meaning: they make a question long enough for its answer (SA-61).
    Padding {
        /// The sender.
        header: Header,
        /// How many.
        bytes: u16,
    },
}

impl Message<'_> {
    /// Its header.
    #[must_use]
    pub const fn header(&self) -> Header {
        match self {
            Self::Ping { header, .. }
            | Self::Ack { header, .. }
            | Self::IndirectPing { header, .. }
            | Self::IndirectAck { header }
            | Self::IndirectNack { header }
            | Self::Join { header, .. }
            | Self::Alive { header, .. }
            | Self::Suspect { header, .. }
            | Self::Dead { header, .. }
            | Self::User { header, .. }
            | Self::Digest { header, .. }
            | Self::Summary { header, .. }
            | Self::Want { header, .. }
            | Self::Other { header, .. }
            | Self::Padding { header, .. } => *header,
        }
    }

    /// The node that an update is about.
    #[must_use]
    pub const fn subject(&self) -> Option<Id> {
        match self {
            Self::Join { node, .. } | Self::Alive { node, .. } => Some(node.id),
            Self::Suspect { id, .. } | Self::Dead { id, .. } => Some(*id),
            _ => None,
        }
    }

    /// The state that an update claims for its subject.
    #[must_use]
    pub fn state(&self) -> Option<State> {
        match self {
            Self::Join { .. } | Self::Alive { .. } => Some(State::Alive),
            Self::Suspect { .. } => Some(State::Suspect),
            Self::Dead { header, id, .. } if header.from == *id => Some(State::Left),
            Self::Dead { .. } => Some(State::Dead),
            _ => None,
        }
    }
}
