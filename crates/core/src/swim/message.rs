//! What nodes say to each other.

use super::contents::Contents;
use super::sequence::Sequence;
use super::status::{Incarnation, State};
use super::tree::Range;
use super::vivaldi::Coordinate;
use super::wire::{Hashes, Ids, Summaries};
use crate::id::Id;
use crate::time::Wall;

/// Who says it, and the number it has there (S-67, S-77).
///
/// Of a update (Join, Alive, Suspect, Dead, User) that is who first said it, however often it was passed on; of
/// everything else it is who sent the packet (SA-15).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Who.
    pub from: Id,
    /// Which of its messages; an answer has the number of the question (SA-17).
    pub sequence: Sequence,
}

/// A node as it describes itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeView<'a> {
    /// Who it is.
    pub id: Id,
    /// Its addresses and metadata.
    pub contents: Contents<'a>,
}

/// One message. Several travel in a packet (S-84).
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Message<'a> {
    /// Are you there? Answered with an `Ack`.
    Ping {
        /// Who asks.
        header: Header,
        /// Who is asked; the id 0 is whoever lives at the address.
        to: Id,
        /// The asker's clock, to inform (SA-23).
        local_time: Wall,
        /// Whether the answer is to tell where the node is.
        wants_coordinate: bool,
        /// Whether the answer is to have the node's own `Alive` behind its `Ack`: the sequence is then a nonce, and proves
        /// who says it and where (SA-58a).
        wants_alive: bool,
    },
    /// I am. Answers the `Ping` with the same sequence.
    Ack {
        /// Who answers.
        header: Header,
        /// The answerer's clock, to inform.
        local_time: Wall,
        /// The answerer does not know the asker and would like its `Alive`.
        introduce: bool,
        /// Where the answerer is, if that was asked.
        coordinate: Option<Coordinate>,
    },
    /// Please ping `target` for me. Answered with an `IndirectAck` if it answers.
    IndirectPing {
        /// Who asks.
        header: Header,
        /// Who is asked.
        to: Id,
        /// Who is to be pinged.
        target: Id,
        /// Whether an `IndirectNack` is wanted if it does not answer.
        wants_nack: bool,
        /// Where the target may be reached, if the proxy does not know it.
        contents: Contents<'a>,
    },
    /// The target of your `IndirectPing` answered.
    IndirectAck {
        /// The proxy.
        header: Header,
    },
    /// The target of your `IndirectPing` has not answered so far, but I am there: so it is not your line that is
    /// broken (Lifeguard).
    IndirectNack {
        /// The proxy.
        header: Header,
    },
    /// I am new here, tell me who you are. Otherwise as `Alive`.
    Join {
        /// The new node.
        header: Header,
        /// How it describes itself.
        node: NodeView<'a>,
        /// Its incarnation.
        incarnation: Incarnation,
    },
    /// This node lives and is so.
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
        /// Whose probe.
        header: Header,
        /// Which node.
        id: Id,
        /// The incarnation that is suspected.
        incarnation: Incarnation,
    },
    /// Nobody disputed the suspicion in time. From the node itself, it is a goodbye (SA-12).
    Dead {
        /// Who says so.
        header: Header,
        /// Which node.
        id: Id,
        /// The incarnation that is over.
        incarnation: Incarnation,
    },
    /// Something the application wants everybody to know.
    User {
        /// Whose application, and its number there.
        header: Header,
        /// The same node (SA-24).
        id: Id,
        /// What.
        data: &'a [u8],
    },
    /// What I know of the members in this range adds up to this: one hash of all of it, or one for each sixteenth.
    Digest {
        /// Who compares.
        header: Header,
        /// Which members.
        range: Range,
        /// The hashes.
        hashes: Hashes<'a>,
    },
    /// These are the members I know in this range, and what I know of each.
    Summary {
        /// Who compares.
        header: Header,
        /// Which members.
        range: Range,
        /// Who, incarnation, state, and what they tell of themselves in 32 bits.
        entries: Summaries<'a>,
    },
    /// Please tell me all about these.
    Want {
        /// Who asks.
        header: Header,
        /// About whom.
        ids: Ids<'a>,
    },
    /// Of a kind that is not known here: for a handler of the application (S-63).
    Other {
        /// Who sent it.
        header: Header,
        /// Its kind.
        kind: u8,
        /// The rest of it.
        body: &'a [u8],
    },
    /// Bytes that mean nothing: they make a question long enough for its answer (SA-61).
    Padding {
        /// Who sent it.
        header: Header,
        /// How many.
        bytes: u16,
    },
}

impl Message<'_> {
    /// Who says it.
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

    /// The node a update is about.
    #[must_use]
    pub const fn subject(&self) -> Option<Id> {
        match self {
            Self::Join { node, .. } | Self::Alive { node, .. } => Some(node.id),
            Self::Suspect { id, .. } | Self::Dead { id, .. } => Some(*id),
            _ => None,
        }
    }

    /// What a update says of its subject.
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
