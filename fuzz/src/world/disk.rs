//! A store in memory that fails on request.

use std::collections::BTreeMap;

use annulus_core::{SpaceId, StoreFault, StoreOp, StoreResult};

#[derive(Debug, Default)]
pub(super) struct Disk {
    entries: BTreeMap<(SpaceId, Vec<u8>), Vec<u8>>,
    /// Whether everything fails from now on.
    pub(super) fails: bool,
}

/// A [`StoreResult`] that owns its bytes.
#[derive(Debug)]
pub(super) enum Answer {
    Value(Option<Vec<u8>>),
    Page(Vec<(Vec<u8>, Vec<u8>)>, bool),
    Written,
    Failed,
}

impl Answer {
    pub(super) fn result(&self) -> StoreResult<'_> {
        match self {
            Self::Value(value) => StoreResult::Value(value.as_deref()),
            Self::Page(entries, more) => StoreResult::Page { entries, more: *more },
            Self::Written => StoreResult::Written,
            Self::Failed => StoreResult::Failed(StoreFault::Full),
        }
    }
}

impl Disk {
    pub(super) fn perform(&mut self, op: StoreOp<'_>) -> Answer {
        if self.fails {
            return Answer::Failed;
        }
        match op {
            StoreOp::Get { space, key } => Answer::Value(self.entries.get(&(space, key.to_vec())).cloned()),
            StoreOp::Page { space, from, until, entries_max } => {
                let mut inside = (self.entries.range((space, from.to_vec())..))
                    .take_while(|((at, key), _)| *at == space && (until.is_empty() || key.as_slice() < until))
                    .map(|((_, key), value)| (key.clone(), value.clone()));
                let entries = inside.by_ref().take(entries_max as usize).collect();
                Answer::Page(entries, inside.next().is_some())
            }
            StoreOp::Write { batch, .. } => {
                for change in batch.iter() {
                    let at = (change.space, change.key.to_vec());
                    match change.value {
                        Some(value) => self.entries.insert(at, value.to_vec()),
                        None => self.entries.remove(&at),
                    };
                }
                Answer::Written
            }
        }
    }
}
