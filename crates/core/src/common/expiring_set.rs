//! A bounded set of keys, each valid until a time of its own.

use super::timers::Timers;
use crate::time::Instant;

/// Keys, each valid until its time. Beyond the limit the set drops the key that expires first.
///
/// An expired key stays in the set, and counts towards the limit, until [`pop_expired`](Self::pop_expired) removes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpiringSet<K> {
    until: Timers<K>,
    keys_max: usize,
}

impl<K: Copy + Ord> ExpiringSet<K> {
    /// An empty set of at most `keys_max` keys.
    #[must_use]
    pub fn new(keys_max: usize) -> Self {
        Self { until: Timers::default(), keys_max }
    }

    /// Inserts a key until a time, or extends its time; it never shortens it. Returns whether the key was not valid before.
    pub fn insert(&mut self, key: K, now: Instant, until: Instant) -> bool {
        let known = self.until(key);
        self.until.set(key, known.map_or(until, |known| known.max(until)));
        if self.until.len() > self.keys_max
            && let Some((_, first)) = self.until.next()
        {
            self.until.cancel(first);
        }
        known.is_none_or(|known| known <= now)
    }

    /// Removes a key. Returns whether it was in the set.
    pub fn remove(&mut self, key: K) -> bool {
        self.until.cancel(key)
    }

    /// Removes one expired key and returns it.
    pub fn pop_expired(&mut self, now: Instant) -> Option<K> {
        self.until.pop_due(now)
    }

    /// Whether a key is in the set and has not expired.
    #[must_use]
    pub fn contains(&self, key: K, now: Instant) -> bool {
        self.until(key).is_some_and(|until| until > now)
    }

    /// The time until which a key is valid, also if that is over; `None` if the key is not in the set.
    #[must_use]
    pub fn until(&self, key: K) -> Option<Instant> {
        self.until.get(key)
    }

    /// When the next key expires.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        self.until.next().map(|(until, _)| until)
    }

    /// The number of keys, those included that have expired and were not removed.
    #[must_use]
    pub fn len(&self) -> usize {
        self.until.len()
    }

    /// Whether no key is in the set.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.until.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(micros: u64) -> Instant {
        Instant::from_micros(micros)
    }

    #[test]
    fn the_later_time_counts_and_the_limit_drops_the_key_that_expires_first() {
        let mut set = ExpiringSet::new(2);
        assert!(set.insert(1, at(0), at(10)) && !set.insert(1, at(5), at(8)));
        assert!(set.contains(1, at(9)) && !set.contains(1, at(10)));
        set.insert(2, at(0), at(20));
        set.insert(3, at(0), at(30));
        assert_eq!([1, 2, 3].map(|key| set.contains(key, at(0))), [false, true, true]);
        assert_eq!((set.pop_expired(at(20)), set.pop_expired(at(20))), (Some(2), None));
        assert_eq!(set.next_deadline(), Some(at(30)));
    }

    proptest! {
        #[test]
        fn a_set_with_room_has_exactly_the_keys_that_have_not_expired(
            steps in proptest::collection::vec((0..5_u8, 0..20_u64, 0..3_u8), 0..60),
        ) {
            let (mut set, mut until) = (ExpiringSet::new(5), [0_u64; 5]);
            for (now, (key, length, action)) in (0..).zip(steps) {
                if action == 0 {
                    let is_in = set.until(key).is_some();
                    prop_assert_eq!(set.remove(key), is_in);
                    until[usize::from(key)] = 0;
                } else {
                    let was_valid = until[usize::from(key)] > now;
                    prop_assert_eq!(set.insert(key, at(now), at(now + length)), !was_valid);
                    until[usize::from(key)] = until[usize::from(key)].max(now + length);
                }
                for (key, until) in (0..5).zip(until) {
                    prop_assert_eq!(set.contains(key, at(now)), until > now);
                }
            }
        }
    }
}
