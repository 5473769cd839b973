//! The store of a build without the feature `disk`: maps that are forgotten with the node. It answers as the database does.

use std::collections::BTreeMap;
use std::ops::Bound;

use annulus_core::{Space, SpaceId, StoreFault};
use bytes::Bytes;

use super::{Change, Outcome, PAGE_BYTES, Store, Work};
use crate::error::OpenError;

/// The values by space and key.
#[derive(Debug)]
pub(super) struct Memory {
    spaces: BTreeMap<SpaceId, BTreeMap<Vec<u8>, Bytes>>,
}

impl Memory {
    /// An empty store with these spaces.
    #[expect(clippy::unnecessary_wraps, reason = "the database has the same function")]
    pub(super) fn open(_: &Store, spaces: &[Space]) -> Result<Self, OpenError> {
        Ok(Self { spaces: spaces.iter().map(|space| (space.id, BTreeMap::new())).collect() })
    }

    /// Carries out a group: one outcome for each, in order.
    pub(super) fn run<'a>(&mut self, group: impl Iterator<Item = &'a Work>) -> Vec<Outcome> {
        group.map(|work| self.answer(work)).collect()
    }

    /// There is nothing to make safe.
    #[cfg(not(feature = "disk"))]
    #[expect(clippy::unused_self, reason = "the database has the same function")]
    pub(super) fn sync(&mut self) {}

    /// Nothing waits to be made safe.
    #[cfg(not(feature = "disk"))]
    #[expect(clippy::unused_self, reason = "the database has the same function")]
    pub(super) fn is_synced(&self) -> bool {
        true
    }

    fn answer(&mut self, work: &Work) -> Outcome {
        match work {
            Work::Get { space, key } => {
                let Some(values) = self.spaces.get(space) else { return unknown(*space) };
                Outcome::Value(values.get(key).map(|value| value.to_vec()))
            }
            Work::Page { space, from, until, entries_max } => {
                let Some(values) = self.spaces.get(space) else { return unknown(*space) };
                page(values, from, until, *entries_max as usize)
            }
            Work::Write { changes, .. } => self.write(changes),
        }
    }

    fn write(&mut self, changes: &[Change]) -> Outcome {
        if let Some((space, ..)) = changes.iter().find(|(space, ..)| !self.spaces.contains_key(space)) {
            return unknown(*space);
        }
        for (space, key, value) in changes {
            let values = self.spaces.entry(*space).or_default();
            match value {
                Some(value) => drop(values.insert(key.clone(), value.clone())),
                None => drop(values.remove(key)),
            }
        }
        Outcome::Written
    }
}

/// The entries from `from` until before `until`, at most so many; an empty `until` is the end.
fn page(values: &BTreeMap<Vec<u8>, Bytes>, from: &[u8], until: &[u8], entries_max: usize) -> Outcome {
    let (mut entries, mut bytes) = (Vec::new(), 0);
    for (key, value) in values.range::<[u8], _>((Bound::Included(from), Bound::Unbounded)) {
        if !until.is_empty() && key.as_slice() >= until {
            break;
        }
        if entries.len() >= entries_max || bytes >= PAGE_BYTES {
            return Outcome::Page { entries, more: true };
        }
        bytes += key.len() + value.len();
        entries.push((key.clone(), value.to_vec()));
    }
    Outcome::Page { entries, more: false }
}

/// The error for a space that was not declared: a bug of the machine.
fn unknown(space: SpaceId) -> Outcome {
    tracing::error!(%space, "the machine used a space it did not declare");
    Outcome::Failed(StoreFault::Broken)
}
