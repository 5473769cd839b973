//! The disk of one host: a sorted map with an undo log.
//!
//! A write takes effect at once, and its undo record stays until it is synced. A crash undoes the latest writes, down
//! to a point that the seed chooses. So a batch survives whole or not at all, and no write survives without all
//! earlier ones.

use std::collections::{BTreeMap, VecDeque};

use annulus_core::{Batch, Rng, SpaceId, StoreFault};

/// The effect of a crash on a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskFate {
    /// Every write that was answered is there; those under way may be.
    Kept,
    /// Every durable write that was answered is there; of those after it, as many as the seed chooses.
    UnsyncedLost,
    /// It is empty.
    Lost,
    /// It had called writes durable that were not: of the last of them some are lost. Needs `DiskConfig::history`.
    Lied,
    /// It is as it was at some earlier moment, as if restored from a backup. Needs `DiskConfig::history`.
    Rollback,
}

/// The current fault of a disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DiskHealth {
    /// Nothing.
    #[default]
    Good,
    /// It is full: writes fail.
    Full,
    /// It is broken: reads and writes fail.
    Broken,
    /// The next sync fails and its writes are lost; then the disk is good again.
    SyncFails,
}

/// The disk of one host.
#[derive(Clone, Debug, Default)]
pub struct Disk {
    /// Keys with their space in front.
    entries: BTreeMap<Bytes, Bytes>,
    bytes: u64,
    /// The values that unsynced batches replaced, oldest first.
    undo: VecDeque<Undo>,
    /// The values that the last synced batches replaced, oldest first.
    history: VecDeque<Undo>,
    /// Batches ever written; the youngest has this number.
    written: u64,
    /// The youngest batch that was answered.
    answered: u64,
    pub(crate) health: DiskHealth,
}

#[derive(Clone, Debug)]
struct Undo {
    number: u64,
    replaced: Vec<(Bytes, Option<Bytes>)>,
}

/// Bytes that do not grow.
type Bytes = Box<[u8]>;

/// So many durable batches may turn out not to have been.
const LIES_MAX: usize = 8;

/// Unsynced batches beyond this are taken for synced: no system keeps them for ever.
const UNSYNCED_MAX: usize = 65_536;

impl Disk {
    /// The value of a key.
    #[must_use]
    pub fn value(&self, space: SpaceId, key: &[u8]) -> Option<&[u8]> {
        self.entries.get(full(space, key).as_slice()).map(AsRef::as_ref)
    }

    /// All entries of a space, ascending.
    pub fn entries(&self, space: SpaceId) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.range(space, &[], &[]).map(|(key, value)| (&key[2..], value))
    }

    /// Bytes of keys and values.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Batches that a loss of power could take.
    #[must_use]
    pub fn unsynced(&self) -> usize {
        self.undo.len()
    }

    /// Whether a loss of power leaves the value of a key as it is.
    #[must_use]
    pub fn is_synced(&self, space: SpaceId, key: &[u8]) -> bool {
        let key = full(space, key);
        !self.undo.iter().any(|undo| undo.replaced.iter().any(|(changed, _)| **changed == *key))
    }

    /// Makes all changes and gives the number of the batch.
    ///
    /// # Errors
    /// If the disk cannot; nothing has changed.
    pub(crate) fn write(&mut self, batch: Batch<'_>, bytes_max: Option<u64>) -> Result<u64, StoreFault> {
        match self.health {
            DiskHealth::Good | DiskHealth::SyncFails => {}
            DiskHealth::Full => return Err(StoreFault::Full),
            DiskHealth::Broken => return Err(StoreFault::Broken),
        }
        let growth: usize = batch.iter().map(|change| change.value.map_or(0, |value| value.len())).sum();
        if bytes_max.is_some_and(|max| self.bytes + growth as u64 > max) {
            return Err(StoreFault::Full);
        }
        let mut replaced = Vec::with_capacity(batch.len());
        for change in batch.iter() {
            let key = full(change.space, change.key).into_boxed_slice();
            let old = self.set(key.clone(), change.value.map(|value| Box::from(&*value)));
            replaced.push((key, old));
        }
        self.written += 1;
        self.undo.push_back(Undo { number: self.written, replaced });
        if self.undo.len() > UNSYNCED_MAX {
            self.undo.pop_front();
        }
        Ok(self.written)
    }

    /// A batch was answered; if it was durable it is safe, and so is all before it.
    pub(crate) fn answered(&mut self, number: u64, durable: bool, history_max: usize) {
        self.answered = self.answered.max(number);
        if durable {
            while self.undo.front().is_some_and(|oldest| oldest.number <= number) {
                let Some(oldest) = self.undo.pop_front() else { break };
                if history_max > 0 {
                    self.history.push_back(oldest);
                }
            }
            while self.history.len() > history_max {
                self.history.pop_front();
            }
        }
    }

    /// The host crashes. Gives the number of batches forgotten.
    pub(crate) fn crash(&mut self, fate: DiskFate, rng: &mut Rng) -> u64 {
        let first = self.undo.front().map_or(self.written + 1, |oldest| oldest.number);
        let safe = match fate {
            DiskFate::Lost => {
                *self = Self { health: self.health, ..Self::default() };
                return 0;
            }
            DiskFate::Kept => self.answered.max(first - 1),
            DiskFate::UnsyncedLost | DiskFate::Lied | DiskFate::Rollback => first - 1,
        };
        let survive = rng.between(safe, self.written.max(safe));
        let mut forgotten = 0;
        while self.undo.back().is_some_and(|youngest| youngest.number > survive) {
            let Some(youngest) = self.undo.pop_back() else { break };
            forgotten += self.undo_batch(youngest);
        }
        let undone = match fate {
            DiskFate::Lied => rng.between(0, self.history.len().min(LIES_MAX) as u64),
            DiskFate::Rollback => rng.between(0, self.history.len() as u64),
            _ => 0,
        };
        if undone > 0 {
            // Nothing of a later batch may outlive an earlier one.
            while let Some(youngest) = self.undo.pop_back() {
                forgotten += self.undo_batch(youngest);
            }
        }
        for _ in 0..undone {
            let Some(youngest) = self.history.pop_back() else { break };
            forgotten += self.undo_batch(youngest);
        }
        // Everything that is there after a start is on the disk.
        self.undo.clear();
        forgotten
    }

    /// Undoes a batch; one more that was forgotten.
    fn undo_batch(&mut self, batch: Undo) -> u64 {
        for (key, old) in batch.replaced.into_iter().rev() {
            self.set(key, old);
        }
        1
    }

    /// The entries of a range with their full keys; an empty `until` is no end.
    pub(crate) fn range(
        &self,
        space: SpaceId,
        from: &[u8],
        until: &[u8],
    ) -> impl Iterator<Item = (&[u8], &[u8])> {
        let first = full(space, from).into_boxed_slice();
        let end = (!until.is_empty()).then(|| full(space, until));
        let prefix = first[..2].to_vec();
        self.entries
            .range(first..)
            .take_while(move |(key, _)| {
                key.starts_with(&prefix) && end.as_ref().is_none_or(|end| key.as_ref() < end.as_slice())
            })
            .map(|(key, value)| (key.as_ref(), value.as_ref()))
    }

    fn set(&mut self, key: Bytes, value: Option<Bytes>) -> Option<Bytes> {
        let key_bytes = key.len() as u64 - 2;
        let added = value.as_ref().map_or(0, |value| key_bytes + value.len() as u64);
        let old = match value {
            Some(value) => self.entries.insert(key, value),
            None => self.entries.remove(&key),
        };
        self.bytes += added;
        self.bytes -= old.as_ref().map_or(0, |old| key_bytes + old.len() as u64);
        old
    }
}

/// A key with its space in front, so that spaces lie apart and each is in order.
fn full(space: SpaceId, key: &[u8]) -> Vec<u8> {
    let number = (u16::from(space.service().0) << 8) | space.local();
    let mut full = Vec::with_capacity(key.len() + 2);
    full.extend(number.to_be_bytes());
    full.extend(key);
    full
}
