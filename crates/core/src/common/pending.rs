//! Requests that wait for an answer.

use std::collections::{BTreeMap, VecDeque};

use crate::time::Instant;

/// The table has no room for one more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

/// Requests that wait for an answer, each until its deadline.
///
/// It is designed for requests with one common timeout. Then the oldest expires first, and every operation but the
/// lookup takes constant time on average. Deadlines in any other order are correct, only slower.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pending<K, V> {
    entries: BTreeMap<K, (Instant, V)>,
    /// Deadlines in order. The deadline of an ended entry stays here until it is the first.
    order: VecDeque<(Instant, K)>,
    entries_max: usize,
}

impl<K: Copy + Ord, V> Pending<K, V> {
    /// An empty table of at most `entries_max` requests.
    #[must_use]
    pub const fn new(entries_max: usize) -> Self {
        Self { entries: BTreeMap::new(), order: VecDeque::new(), entries_max }
    }

    /// Inserts a request that waits until `deadline`. A request with the same key is replaced.
    ///
    /// # Errors
    /// [`Full`] if the table has `entries_max` requests; then nothing changes.
    pub fn insert(&mut self, key: K, value: V, deadline: Instant) -> Result<(), Full> {
        if self.is_full() && !self.contains(key) {
            return Err(Full);
        }
        self.entries.insert(key, (deadline, value));
        let place = match self.order.back() {
            Some((last, _)) if *last > deadline => self.order.partition_point(|(at, _)| *at <= deadline),
            _ => self.order.len(),
        };
        self.order.insert(place, (deadline, key));
        self.drop_ended();
        Ok(())
    }

    /// Ends a request: its answer came.
    pub fn take(&mut self, key: K) -> Option<V> {
        let (_, value) = self.entries.remove(&key)?;
        self.drop_ended();
        Some(value)
    }

    /// Ends one request whose deadline has come.
    pub fn pop_expired(&mut self, now: Instant) -> Option<(K, V)> {
        let &(_, key) = self.order.front().filter(|(deadline, _)| *deadline <= now)?;
        self.take(key).map(|value| (key, value))
    }

    /// Ends all requests and returns them in the order of their keys.
    pub fn drain(&mut self) -> impl Iterator<Item = (K, V)> + use<K, V> {
        self.order.clear();
        core::mem::take(&mut self.entries).into_iter().map(|(key, (_, value))| (key, value))
    }

    /// A request that waits.
    #[must_use]
    pub fn get(&self, key: K) -> Option<&V> {
        self.entries.get(&key).map(|(_, value)| value)
    }

    /// A request that waits, to change it; its deadline stays.
    pub fn get_mut(&mut self, key: K) -> Option<&mut V> {
        self.entries.get_mut(&key).map(|(_, value)| value)
    }

    /// Whether a request waits.
    #[must_use]
    pub fn contains(&self, key: K) -> bool {
        self.entries.contains_key(&key)
    }

    /// Whether the table has no room for one more.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.entries.len() >= self.entries_max
    }

    /// When the next request expires.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        self.order.front().map(|(deadline, _)| *deadline)
    }

    /// All requests in the order of their keys.
    pub fn iter(&self) -> impl Iterator<Item = (K, &V)> {
        self.entries.iter().map(|(key, (_, value))| (*key, value))
    }

    /// The number of requests that wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether no request waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Keeps two invariants. The first deadline belongs to a waiting request. The deadlines of ended requests are no
    /// more than the table may have entries.
    fn drop_ended(&mut self) {
        let entries = &self.entries;
        let waits = |&(deadline, key): &(Instant, K)| {
            entries.get(&key).is_some_and(|(current, _)| *current == deadline)
        };
        while self.order.front().is_some_and(|first| !waits(first)) {
            self.order.pop_front();
        }
        if self.order.len() > 2 * self.entries_max {
            self.order.retain(waits);
        }
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
    fn a_request_without_an_answer_does_not_block_others() {
        let mut pending = Pending::new(3);
        assert_eq!(pending.insert(0, 'a', at(0)), Ok(()));
        for key in 1..100 {
            assert_eq!(pending.insert(key, 'b', at(key)), Ok(()), "{key}");
            assert_eq!(pending.take(key), Some('b'));
            assert!(pending.order.len() <= 7, "deadlines of ended requests are bounded");
        }
        assert_eq!(pending.insert(100, 'c', at(100)), Ok(()));
        assert_eq!(pending.insert(101, 'd', at(101)), Ok(()));
        assert_eq!(pending.insert(102, 'e', at(102)), Err(Full));
        assert_eq!(pending.insert(101, 'f', at(103)), Ok(()), "a known key needs no room");
        assert_eq!(pending.pop_expired(at(0)), Some((0, 'a')));
        assert_eq!((pending.pop_expired(at(99)), pending.next_deadline()), (None, Some(at(100))));
    }

    proptest! {
        #[test]
        fn pending_agrees_with_a_list(
            steps in proptest::collection::vec((0..8_u8, 0..4_u8, 0..30_u64), 0..80),
        ) {
            let (mut pending, mut list) = (Pending::new(4), Vec::<(Instant, u8)>::new());
            for (key, action, time) in steps {
                let known = list.iter().position(|(_, other)| *other == key);
                match action {
                    0 => {
                        prop_assert_eq!(pending.take(key).is_some(), known.is_some());
                        known.map(|at| list.remove(at));
                    }
                    1 => {
                        let expired = pending.pop_expired(at(time)).map(|(key, ())| key);
                        let due = list.iter().position(|(_, other)| Some(*other) == expired);
                        match due {
                            Some(due) => {
                                let (deadline, _) = list.remove(due);
                                prop_assert!(deadline <= at(time));
                                prop_assert!(list.iter().all(|(other, _)| *other >= deadline));
                            }
                            None => prop_assert!(list.iter().all(|(deadline, _)| *deadline > at(time))),
                        }
                    }
                    _ => {
                        let full = list.len() >= 4 && known.is_none();
                        prop_assert_eq!(pending.insert(key, (), at(time)).is_err(), full);
                        if !full {
                            known.map(|at| list.remove(at));
                            list.push((at(time), key));
                        }
                    }
                }
                prop_assert_eq!(pending.next_deadline(), list.iter().map(|(deadline, _)| *deadline).min());
                prop_assert_eq!(pending.len(), list.len());
                prop_assert!(pending.order.len() <= 9);
            }
        }
    }
}
