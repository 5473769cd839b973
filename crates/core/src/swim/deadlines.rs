//! Things that run out, each at its own moment.

use std::collections::{BTreeMap, BTreeSet};

use core::time::Duration;

use crate::time::Instant;

/// A set of keys with a moment each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Deadlines<K> {
    queue: BTreeSet<(Instant, K)>,
    by_key: BTreeMap<K, Instant>,
}

impl<K> Default for Deadlines<K> {
    fn default() -> Self {
        Self { queue: BTreeSet::new(), by_key: BTreeMap::new() }
    }
}

impl<K: Copy + Ord> Deadlines<K> {
    /// Sets or moves the moment of a key.
    pub(super) fn set(&mut self, key: K, at: Instant) {
        if let Some(old) = self.by_key.insert(key, at) {
            self.queue.remove(&(old, key));
        }
        self.queue.insert((at, key));
    }

    /// Forgets a key.
    pub(super) fn cancel(&mut self, key: K) -> bool {
        let Some(old) = self.by_key.remove(&key) else { return false };
        self.queue.remove(&(old, key))
    }

    /// Takes a key whose moment has come.
    pub(super) fn pop_due(&mut self, now: Instant) -> Option<K> {
        let &(at, key) = self.queue.first()?;
        if at > now {
            return None;
        }
        self.cancel(key);
        Some(key)
    }

    /// Moves every moment: the machine slept, and nobody's time shall have run out meanwhile.
    pub(super) fn postpone(&mut self, by: Duration) {
        self.queue = self.queue.iter().map(|&(at, key)| (at + by, key)).collect();
        self.by_key.values_mut().for_each(|at| *at += by);
    }

    /// The next moment.
    pub(super) fn next(&self) -> Option<Instant> {
        self.queue.first().map(|(at, _)| *at)
    }
}
