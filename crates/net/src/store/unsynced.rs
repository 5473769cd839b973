//! Writes that are not durable yet. If the database is opened again after a full disk, it has lost them, and they are
//! written again from here.

use std::collections::BTreeMap;
use std::ops::Bound;

use annulus_core::SpaceId;
use bytes::Bytes;

use super::free::Extent;

/// When so many bytes are kept here, it is time for a sync.
const BYTES_MAX: usize = 4 * 1024 * 1024;
/// The cost of an entry beside its bytes.
const ENTRY_BYTES: usize = 96;

/// The value of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Stored {
    /// No value.
    Nothing,
    /// This value.
    Inline(Bytes),
    /// A value in the file of large ones.
    Far(Extent),
}

#[derive(Debug, Default)]
pub(super) struct Unsynced {
    changes: BTreeMap<(SpaceId, Vec<u8>), Stored>,
    bytes: usize,
}

impl Unsynced {
    pub(super) fn insert(&mut self, space: SpaceId, key: Vec<u8>, stored: Stored) {
        self.bytes += ENTRY_BYTES + key.len() + stored.len();
        if let Some(old) = self.changes.insert((space, key), stored) {
            self.bytes -= old.len();
        }
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    pub(super) fn get(&self, space: SpaceId, key: &[u8]) -> Option<&Stored> {
        self.changes.get(&(space, key.to_vec()))
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (SpaceId, &[u8], &Stored)> {
        self.changes.iter().map(|((space, key), stored)| (*space, &key[..], stored))
    }

    /// Those of a range; an empty `until` is no end.
    pub(super) fn range<'a>(
        &'a self,
        space: SpaceId,
        from: &[u8],
        until: &'a [u8],
    ) -> impl Iterator<Item = (&'a [u8], &'a Stored)> {
        self.changes
            .range((Bound::Included((space, from.to_vec())), Bound::Unbounded))
            .take_while(move |((at, key), _)| *at == space && (until.is_empty() || key.as_slice() < until))
            .map(|((_, key), stored)| (&key[..], stored))
    }

    pub(super) fn len(&self) -> usize {
        self.changes.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// Whether so much is kept here that it should be made safe.
    pub(super) fn is_full(&self) -> bool {
        self.bytes > BYTES_MAX
    }
}

impl Stored {
    fn len(&self) -> usize {
        if let Self::Inline(value) = self { value.len() } else { 0 }
    }
}
