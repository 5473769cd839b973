//! A disk in memory for tests.

use std::collections::BTreeMap;

use crate::store::{StoreFault, StoreOp, StoreResult};
use crate::tag::SpaceId;

/// Values by space and key.
pub type Entries = BTreeMap<(SpaceId, Vec<u8>), Vec<u8>>;

/// The entries of a store, and those of them that a loss of power keeps.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Disk {
    /// All entries, by space and key.
    pub entries: Entries,
    /// The error of every write while it is set.
    pub fault: Option<StoreFault>,
    synced: Entries,
}

impl Disk {
    /// Drops every write since the last durable one.
    pub fn lose_power(&mut self) {
        self.entries.clone_from(&self.synced);
    }

    /// Performs an operation at once.
    pub(super) fn perform(&mut self, op: StoreOp<'_>) -> Answer {
        let is_durable = match op {
            StoreOp::Write { durable, .. } => match self.fault {
                Some(fault) => return Answer::Failed(fault),
                None => durable,
            },
            StoreOp::Get { .. } | StoreOp::Page { .. } => false,
        };
        let answer = perform(&mut self.entries, op);
        if is_durable {
            self.synced.clone_from(&self.entries);
        }
        answer
    }
}

/// Performs an operation on the entries of a store.
pub(super) fn perform(entries: &mut Entries, op: StoreOp<'_>) -> Answer {
    match op {
        StoreOp::Get { space, key } => Answer::Value(entries.get(&(space, key.to_vec())).cloned()),
        StoreOp::Page { space, from, until, entries_max } => {
            let inside = |key: &[u8]| until.is_empty() || key < until;
            let mut found = entries
                .range((space, from.to_vec())..)
                .take_while(|((at, key), _)| *at == space && inside(key))
                .map(|((_, key), value)| (key.clone(), value.clone()));
            let page: Vec<_> = found.by_ref().take(entries_max as usize).collect();
            let more = found.next().is_some();
            Answer::Page(page, more)
        }
        StoreOp::Write { batch, .. } => {
            for change in batch.iter() {
                let at = (change.space, change.key.to_vec());
                match change.value {
                    Some(value) => entries.insert(at, value.to_vec()),
                    None => entries.remove(&at),
                };
            }
            Answer::Written
        }
    }
}

/// The answer to an operation.
pub(super) enum Answer {
    Value(Option<Vec<u8>>),
    Page(Vec<(Vec<u8>, Vec<u8>)>, bool),
    Written,
    Failed(StoreFault),
}

impl Answer {
    pub(super) fn result(&self) -> StoreResult<'_> {
        match self {
            Self::Value(value) => StoreResult::Value(value.as_deref()),
            Self::Page(entries, more) => StoreResult::Page { entries, more: *more },
            Self::Written => StoreResult::Written,
            Self::Failed(fault) => StoreResult::Failed(*fault),
        }
    }
}
