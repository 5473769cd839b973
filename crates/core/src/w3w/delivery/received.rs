//! Plain messages that were for this node, so that none is delivered twice (MA-40, CU-22).
//!
//! Memory and store keep 16 bytes of each, for `mesh.expiry`. Repeated receipts and messages of files do no harm: they
//! are remembered for an hour at most.

use crate::common::ExpiringSet;
use crate::time::Instant;
use crate::w3w::message::{Fingerprint, SeenKey};

#[derive(Clone, Debug, PartialEq)]
pub(super) struct ReceivedSet {
    set: ExpiringSet<Fingerprint>,
    keys_max: usize,
}

impl ReceivedSet {
    pub(super) fn new(keys_max: usize) -> Self {
        Self { set: ExpiringSet::new(keys_max), keys_max }
    }

    /// Remembers a message. Returns whether it is new.
    pub(super) fn insert(&mut self, seen: SeenKey, now: Instant, until: Instant) -> bool {
        self.load(seen.fingerprint(), now, until)
    }

    /// Remembers a message whose fingerprint is in the store.
    pub(super) fn load(&mut self, seen: Fingerprint, now: Instant, until: Instant) -> bool {
        self.set.insert(seen, now, until)
    }

    pub(super) fn remove(&mut self, seen: SeenKey) {
        self.set.remove(seen.fingerprint());
    }

    pub(super) fn contains(&self, seen: SeenKey, now: Instant) -> bool {
        self.set.contains(seen.fingerprint(), now)
    }

    /// Whether there is room to remember one more; without it a user message is not accepted.
    pub(super) fn has_room_for(&self, seen: SeenKey) -> bool {
        self.set.len() < self.keys_max || self.until(seen).is_some()
    }

    pub(super) fn until(&self, seen: SeenKey) -> Option<Instant> {
        self.set.until(seen.fingerprint())
    }

    pub(super) fn pop_expired(&mut self, now: Instant) -> Option<Fingerprint> {
        self.set.pop_expired(now)
    }

    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.set.next_deadline()
    }

    pub(super) fn len(&self) -> usize {
        self.set.len()
    }
}
