//! The disk as a machine sees it: keys and values in a few spaces, by request and reply.
//!
//! A write is a batch and is atomic: after a crash all of it is there, or nothing. A *durable* write is answered once
//! it would survive a loss of power; it makes all earlier writes durable as well. A write that is not durable is
//! answered at once, and a crash may lose it. Writes are never lost out of order: if a later write survived, so did
//! every earlier one.

use core::fmt;

use bytes::Bytes;
use serde::Serialize;

use crate::outbox::Place;
use crate::payload::Payload;
use crate::tag::{OpId, SpaceId};

/// A request to the store. The bytes live in the outbox's arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreOp<'a> {
    /// The value of a key. Answered with [`StoreResult::Value`].
    Get {
        /// The space.
        space: SpaceId,
        /// The key.
        key: &'a [u8],
    },
    /// The next keys of a range with their values, ascending. Answered with [`StoreResult::Page`].
    Page {
        /// The space.
        space: SpaceId,
        /// The first key that may be in the page.
        from: &'a [u8],
        /// The first key beyond the range; empty means that it has no end.
        until: &'a [u8],
        /// The most entries in the answer.
        entries_max: u32,
    },
    /// Makes all of these changes, or none. Answered with [`StoreResult::Written`].
    Write {
        /// The changes, in order.
        batch: Batch<'a>,
        /// Whether the answer waits until the write is durable.
        durable: bool,
    },
}

/// The changes of one write, in order.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Batch<'a> {
    pub(crate) changes: &'a [ChangeRecord],
    pub(crate) bytes: &'a [u8],
    pub(crate) shared: &'a [Bytes],
}

impl<'a> Batch<'a> {
    /// How many changes there are.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.changes.len()
    }

    /// Whether there are none. An empty durable batch is a sync.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// The changes, in order.
    pub fn iter(&self) -> impl Iterator<Item = Change<'a>> + use<'a> {
        let (bytes, shared) = (self.bytes, self.shared);
        self.changes.iter().map(move |change| Change {
            space: change.space,
            key: &bytes[change.key.0 as usize..change.key.1 as usize],
            value: change.value.map(|place| place.of(bytes, shared)),
        })
    }
}

/// Shows the changes only, not the whole arena.
impl fmt::Debug for Batch<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// One change of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change<'a> {
    /// The space.
    pub space: SpaceId,
    /// The key.
    pub key: &'a [u8],
    /// Its new value; `None` deletes it.
    pub value: Option<Payload<'a>>,
}

/// A [`Change`] as places in the arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ChangeRecord {
    pub(crate) space: SpaceId,
    pub(crate) key: (u32, u32),
    pub(crate) value: Option<Place>,
}

/// The answer to one operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreReply<'a> {
    /// The operation, as the machine numbered it.
    pub op: OpId,
    /// The result.
    pub result: StoreResult<'a>,
}

/// The result of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreResult<'a> {
    /// The value of the key, if there is one.
    Value(Option<&'a [u8]>),
    /// Entries in ascending order of keys.
    Page {
        /// Keys and values.
        entries: &'a [(Vec<u8>, Vec<u8>)],
        /// Whether the range has more after the last of them.
        more: bool,
    },
    /// The write is done; if it was to be durable, it is.
    Written,
    /// The operation failed, and nothing of it was stored.
    Failed(StoreFault),
}

/// Why the store failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum StoreFault {
    /// The driver's queue of operations is full.
    Busy,
    /// The disk is full.
    Full,
    /// The disk failed.
    Broken,
}
