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
#[non_exhaustive]
pub enum Event {
    /// INIT is over.
    Started {
        /// The address of this node in the mesh.
        nid: Nid,
        /// The number of messages queued before the start.
        waiting: usize,
        /// The number of known nodes.
        known: usize,
    },
    /// A peer joined the ring.
    PeerConnected {
        /// The peer.
        nid: Nid,
        /// Its IP address.
        ip: Ipv4Addr,
        /// The port of its listener.
        port: u16,
        /// The side that dialled.
        direction: Direction,
    },
    /// A peer left the ring.
    PeerDisconnected {
        /// The peer.
        nid: Nid,
        /// The reason.
        why: Leave,
    },
    /// Two nodes claim one NID (MA-14); the first stays.
    IdentityClashed {
        /// The NID.
        nid: Nid,
        /// The IP address of the second.
        ip: Ipv4Addr,
    },
    /// A message for this node is on disk. Each is reported once.
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
        /// Its claimed sender.
        from: Nid,
        /// The key of its DATA.
        key: Key,
        /// Its size.
        size: u64,
        /// Whether it waits here for room; if not, its sender may still have it.
        is_waiting: bool,
    },
    /// A message was given to peers, as its sender or in transit.
    MessageForwarded {
        /// The sender.
        sender: Nid,
        /// The recipient.
        recipient: Nid,
        /// The key of its DATA.
        key: Key,
        /// The peer it came from; `None` if this node sent it.
        from: Option<Nid>,
        /// The peers it goes to.
        to: Vec<Nid>,
    },
    /// The state of a message of this node changed.
    MessageStateChanged {
        /// Its number in the outbox.
        number: u64,
        /// The key of its DATA.
        key: Key,
        /// The new state.
        state: SentState,
    },
    /// The recipient confirmed a message of this node.
    MessageConfirmed {
        /// Its number in the outbox.
        number: u64,
        /// The recipient.
        by: Nid,
        /// The key of its DATA.
        key: Key,
        /// When it arrived, by the recipient's clock, in seconds since 1970.
        received_at: u64,
    },
    /// The recipient's receipts come from another store than before: it lost its disk (CU-10).
    RecipientLostStore {
        /// The recipient.
        nid: Nid,
    },
    /// The known nodes have changed: the application is to write the file.
    KnownNodesChanged {
        /// Their number.
        nodes: usize,
    },
    /// An operation of the store failed.
    StoreFailed {
        /// The cause.
        fault: StoreFault,
    },
    /// A block did not match its key, and was deleted.
    BlockCorrupted {
        /// The key.
        key: Key,
    },
    /// A node offers a file to this one.
    FileOffered {
        /// The key of the file.
        file: Key,
        /// The sender.
        from: Nid,
        /// Its name, as the sender gives it.
        name: String,
        /// Its size.
        size: u64,
    },
    /// An incoming file is complete and on disk.
    FileReceived {
        /// The key of the file.
        file: Key,
        /// The sender.
        from: Nid,
        /// Its name, as the sender gives it.
        name: String,
        /// Its size.
        size: u64,
    },
    /// The recipient of an outgoing file reported its missing blocks.
    FileProgressed {
        /// The file.
        file: Key,
        /// The recipient.
        to: Nid,
        /// The missing blocks: first, and how many.
        missing: Vec<(u32, u32)>,
    },
    /// A block of an outgoing file is to be sent: supply it with [`Command::Supply`].
    BlockWanted {
        /// The file.
        file: Key,
        /// The recipient.
        to: Nid,
        /// The index of the block.
        index: u32,
    },
    /// A file transfer timed out, or one side dropped it.
    FileGivenUp {
        /// The file.
        file: Key,
        /// The node at the other end.
        peer: Nid,
    },
    /// An outgoing file is complete and on disk at its recipient.
    FileDelivered {
        /// The file.
        file: Key,
        /// The recipient.
        to: Nid,
    },
}

/// Why a peer left the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Leave {
    /// Its connection broke.
    Broken,
    /// It ended the connection.
    Closed,
    /// The ring was too full, and OPTIMIZE dropped it.
    Optimized,
    /// It sent frames that were no messages.
    Malformed,
    /// Its kernel took no bytes for too long.
    Stalled,
    /// It answered neither messages nor a ping, or `members` reports that it is gone.
    Silent,
    /// This node is stopping.
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
