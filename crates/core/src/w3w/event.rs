//! The events of a node.

use core::fmt;
use std::net::Ipv4Addr;

use bytes::Bytes;
use serde::Serialize;

use super::Direction;
use super::message::Message;
use super::nid::{Key, Nid};
use super::records::{Received, SentState};
#[cfg(doc)]
use super::{Command, read_form};
use crate::store::StoreFault;

/// The events of `mesh`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// INIT is over.
    Started {
        /// Who we are.
        nid: Nid,
        /// How many messages wait since before.
        waiting: usize,
        /// How many nodes are known.
        known: usize,
    },
    /// A peer came into the ring.
    PeerConnected {
        /// Which.
        nid: Nid,
        /// Where it is.
        ip: Ipv4Addr,
        /// Where it accepts connections there.
        port: u16,
        /// Who dialled.
        direction: Direction,
    },
    /// A peer left the ring.
    PeerDisconnected {
        /// Which.
        nid: Nid,
        /// Why.
        why: Leave,
    },
    /// Two nodes claim one NID (MA-14); the first stays.
    IdentityClashed {
        /// Which.
        nid: Nid,
        /// Where the second is.
        ip: Ipv4Addr,
    },
    /// A message for us came and is safe. It is told once.
    MessageReceived {
        /// Its line in the inbox.
        #[serde(flatten)]
        message: Received,
        /// The DATA; [`read_form`] gives the payload.
        #[serde(skip)]
        data: Data,
    },
    /// A message for this node finds no room in the store. The node neither delivers nor confirms it: it defers or
    /// forgets it.
    MessageDeferred {
        /// Who sent it, or claims to have.
        from: Nid,
        /// What its DATA would be found under.
        key: Key,
        /// How long it is.
        size: u64,
        /// Whether it waits here for room; if not, its sender may have kept it.
        is_waiting: bool,
    },
    /// A message was given to peers, by us as its sender or in transit.
    MessageForwarded {
        /// Who sent it.
        sender: Nid,
        /// Whom it is for.
        recipient: Nid,
        /// Where its DATA is.
        key: Key,
        /// The peer it came from; `None` if it is ours.
        from: Option<Nid>,
        /// The peers it goes to.
        to: Vec<Nid>,
    },
    /// More is known of a message of ours.
    MessageStateChanged {
        /// Its number in the outbox.
        number: u64,
        /// Where its DATA is.
        key: Key,
        /// What is known now.
        state: SentState,
    },
    /// The recipient of a message of ours has confirmed it.
    MessageConfirmed {
        /// Its number in the outbox.
        number: u64,
        /// By whom.
        by: Nid,
        /// Where its DATA is.
        key: Key,
        /// When it arrived, by the recipient's clock, in seconds since 1970.
        received_at: u64,
    },
    /// The recipient's receipts come from another store than before: it lost its disk (CU-10).
    RecipientLostStore {
        /// Which.
        nid: Nid,
    },
    /// The known nodes have changed: write the file.
    KnownNodesChanged {
        /// How many they are.
        nodes: usize,
    },
    /// The store could not do something.
    StoreFailed {
        /// Why.
        fault: StoreFault,
    },
    /// A block was not what its key says, and is gone.
    BlockCorrupted {
        /// Which.
        key: Key,
    },
    /// A file is offered to us.
    FileOffered {
        /// What it is known by.
        file: Key,
        /// By whom.
        from: Nid,
        /// What its sender calls it.
        name: String,
        /// How long it is.
        size: u64,
    },
    /// A file for us is whole and safe.
    FileReceived {
        /// What it is known by.
        file: Key,
        /// From whom.
        from: Nid,
        /// What its sender calls it.
        name: String,
        /// How long it is.
        size: u64,
    },
    /// The recipient of a file of ours has told what it lacks.
    FileProgressed {
        /// Which file.
        file: Key,
        /// Who the recipient is.
        to: Nid,
        /// The blocks it lacks: first, and how many.
        missing: Vec<(u32, u32)>,
    },
    /// A block of a file of ours is to be sent: give it with [`Command::Supply`].
    BlockWanted {
        /// Of which file.
        file: Key,
        /// To whom it goes.
        to: Nid,
        /// Which block.
        index: u32,
    },
    /// A file transfer timed out, or one side dropped it.
    FileGivenUp {
        /// Which file.
        file: Key,
        /// The node at the other end.
        peer: Nid,
    },
    /// A file of ours is whole and safe at its recipient.
    FileDelivered {
        /// Which file.
        file: Key,
        /// Where.
        to: Nid,
    },
}

/// Why a peer left the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Leave {
    /// Its connection broke.
    Broken,
    /// It ended the connection.
    Closed,
    /// There were too many, and it was too close to others.
    Optimized,
    /// It sent frames that were no messages.
    Malformed,
    /// It took nothing for too long.
    Stalled,
    /// It answered neither messages nor a ping, or `members` says that it is gone.
    Silent,
    /// We are stopping.
    Stopped,
}

/// Bytes that are shared, not copied, when an event is.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Data {
    bytes: Bytes,
}

impl core::ops::Deref for Data {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl From<&[u8]> for Data {
    fn from(bytes: &[u8]) -> Self {
        Self { bytes: Bytes::copy_from_slice(bytes) }
    }
}

impl From<Message> for Data {
    fn from(message: Message) -> Self {
        Self { bytes: message.shared_data() }
    }
}

impl fmt::Debug for Data {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.len())
    }
}
