//! The fences (numbers of turns) that this node has seen: the next Ask needs one above them (TU-13).

use std::collections::BTreeMap;

use super::message::Key;

/// The most names whose numbers are remembered. A forgotten one costs another round trip: a voter answers `behind`.
const TOPS_MAX: usize = 4096;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Numbers {
    tops: BTreeMap<Key, u64>,
    floor: u64,
}

impl Numbers {
    /// Notes the floor of a voter.
    pub(super) fn saw_floor(&mut self, floor: u64) {
        self.floor = self.floor.max(floor);
    }

    /// Notes the greatest number of a name at a voter.
    pub(super) fn saw(&mut self, key: Key, top: u64) {
        if self.tops.len() >= TOPS_MAX && !self.tops.contains_key(&key) {
            self.tops.pop_first();
        }
        let known = self.tops.entry(key).or_insert(0);
        *known = top.max(*known);
    }

    /// The least number that may be granted.
    pub(super) fn next(&self, key: Key) -> u64 {
        self.tops.get(&key).copied().unwrap_or(0).max(self.floor).saturating_add(1)
    }
}
