//! Proximity: the distance of nodes in the network, by round-trip time (P-4 … P-7).
//!
//! It decides which node gets an entry in the tables, never where a message goes.

use core::time::Duration;

use serde::Serialize;

use crate::id::Id;
use crate::time::{Instant, micros};

/// The distance of a node: its round-trip time in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct Score(pub u32);

impl Score {
    /// Not measured: worse than anything measured (PA-29).
    pub const UNKNOWN: Self = Self(u32::MAX);

    pub(in crate::pastry) fn of(sample: Duration) -> Self {
        Self(u32::try_from(micros(sample)).unwrap_or(u32::MAX).clamp(1, u32::MAX - 1))
    }

    /// The estimated distance of a node that is `further` from a node at this distance: as if the two paths met at a
    /// right angle.
    pub(in crate::pastry) fn beyond(self, further: Self) -> Self {
        if self == Self::UNKNOWN || further == Self::UNKNOWN {
            return Self::UNKNOWN;
        }
        let (here, there) = (f64::from(self.0), f64::from(further.0));
        Self(libm::sqrt(here * here + there * there) as u32)
    }

    /// Whether it is better than `other` by more than a fifth (PA-30): noise does not replace an entry.
    #[must_use]
    pub fn is_clearly_better_than(self, other: Self) -> bool {
        u64::from(self.0) * 5 < u64::from(other.0) * 4
    }
}

/// Scores of contacted nodes, also of those that have no entry (P-6): a node that is named again is not measured again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ProximityCache {
    /// By id.
    entries: Vec<Entry>,
    entries_max: usize,
    lifetime: Duration,
}

/// An id as two words, so that an entry has no padding.
type Words = (u64, u64);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    id: Words,
    score: Score,
    /// Seconds on the clock.
    at: u32,
}

fn words(id: Id) -> Words {
    ((id.number() >> 64) as u64, id.number() as u64)
}

fn seconds(now: Instant) -> u32 {
    (now.as_micros() / 1_000_000) as u32
}

impl ProximityCache {
    pub(super) fn new(entries_max: usize, lifetime: Duration) -> Self {
        Self { entries: Vec::new(), entries_max, lifetime }
    }

    /// Keeps a score. At the limit the oldest entry gives way (PA-31).
    pub(super) fn put(&mut self, id: Id, score: Score, now: Instant) {
        let entry = Entry { id: words(id), score, at: seconds(now) };
        match self.index(id) {
            Ok(index) => self.entries[index] = entry,
            Err(_) if self.entries_max == 0 => {}
            Err(index) if self.entries.len() < self.entries_max => self.entries.insert(index, entry),
            Err(_) => {
                let oldest = (0..self.entries.len()).min_by_key(|&at| self.entries[at].at).unwrap_or(0);
                self.entries.remove(oldest);
                let index = self.index(id).unwrap_or_else(|at| at);
                self.entries.insert(index, entry);
            }
        }
    }

    pub(super) fn remove(&mut self, id: Id) {
        if let Ok(index) = self.index(id) {
            self.entries.remove(index);
        }
    }

    /// The score of a node, unless it is older than the lifetime.
    pub(super) fn score(&self, id: Id, now: Instant) -> Option<Score> {
        let entry = self.entries[self.index(id).ok()?];
        self.is_fresh(&entry, now).then_some(entry.score)
    }

    /// Forgets what is too old.
    pub(super) fn sweep(&mut self, now: Instant) {
        let lifetime = self.lifetime.as_secs();
        self.entries.retain(|entry| u64::from(seconds(now).saturating_sub(entry.at)) < lifetime);
        self.entries.shrink_to(self.entries.len() + self.entries.len() / 4);
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    fn is_fresh(&self, entry: &Entry, now: Instant) -> bool {
        u64::from(seconds(now).saturating_sub(entry.at)) < self.lifetime.as_secs()
    }

    fn index(&self, id: Id) -> Result<usize, usize> {
        self.entries.binary_search_by_key(&words(id), |entry| entry.id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    fn at(seconds: u64) -> Instant {
        Instant::from_micros(seconds * 1_000_000)
    }

    #[test]
    fn p_6_a_score_is_kept_for_an_hour() {
        let mut cache = ProximityCache::new(8, HOUR);
        cache.put(Id::new(5), Score(70), at(10));
        assert_eq!(cache.score(Id::new(5), at(3609)), Some(Score(70)));
        assert_eq!(cache.score(Id::new(5), at(3610)), None);
        assert_eq!(cache.score(Id::new(6), at(11)), None);
        cache.sweep(at(3610));
        assert_eq!(cache.len(), 0);
    }

    #[test]
    fn p_6_a_full_cache_forgets_the_oldest() {
        let mut cache = ProximityCache::new(3, HOUR);
        for (id, second) in [(1, 3), (2, 1), (3, 2), (4, 4)] {
            cache.put(Id::new(id), Score(id as u32), at(second));
        }
        let known: Vec<u128> = (1..=4).filter(|&id| cache.score(Id::new(id), at(5)).is_some()).collect();
        assert_eq!((known, cache.len()), (vec![1, 3, 4], 3));
        cache.put(Id::new(3), Score(9), at(6));
        assert_eq!((cache.score(Id::new(3), at(6)), cache.len()), (Some(Score(9)), 3));
    }

    #[test]
    fn a_fifth_is_the_least_that_counts() {
        assert!(Score(79).is_clearly_better_than(Score(100)));
        assert!(!Score(80).is_clearly_better_than(Score(100)));
        assert!(Score(1).is_clearly_better_than(Score::UNKNOWN));
        assert!(!Score::UNKNOWN.is_clearly_better_than(Score::UNKNOWN));
    }
}
