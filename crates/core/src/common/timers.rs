//! Timers: keys, each with the time at which it is due.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use crate::time::Instant;

/// Keys with a due time each. A key has at most one timer, so the number of timers is bounded by the number of keys.
///
/// Timers that are due at the same time are taken in the order of their keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timers<K> {
    at: BTreeMap<K, Instant>,
    order: BTreeSet<(Instant, K)>,
}

impl<K> Default for Timers<K> {
    fn default() -> Self {
        Self { at: BTreeMap::new(), order: BTreeSet::new() }
    }
}

impl<K: Copy + Ord> Timers<K> {
    /// Sets the timer of a key, or moves it.
    pub fn set(&mut self, key: K, at: Instant) {
        if let Some(old) = self.at.insert(key, at) {
            if old == at {
                return;
            }
            self.order.remove(&(old, key));
        }
        self.order.insert((at, key));
    }

    /// Sets the timer of a key unless it is set and due no later.
    pub fn set_earlier(&mut self, key: K, at: Instant) {
        if self.get(key).is_none_or(|set| at < set) {
            self.set(key, at);
        }
    }

    /// Removes the timer of a key. Returns whether it was set.
    pub fn cancel(&mut self, key: K) -> bool {
        self.at.remove(&key).is_some_and(|at| self.order.remove(&(at, key)))
    }

    /// Removes all timers.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// Removes the earliest timer and returns its key, if it is due.
    pub fn pop_due(&mut self, now: Instant) -> Option<K> {
        let (_, key) = self.next().filter(|(at, _)| *at <= now)?;
        self.cancel(key);
        Some(key)
    }

    /// Moves all timers into the future by the same duration.
    pub fn postpone(&mut self, by: Duration) {
        self.order = self.order.iter().map(|&(at, key)| (at + by, key)).collect();
        self.at.values_mut().for_each(|at| *at += by);
    }

    /// The earliest timer: its due time and its key.
    #[must_use]
    pub fn next(&self) -> Option<(Instant, K)> {
        self.order.first().copied()
    }

    /// The due time of a key; `None` if its timer is not set.
    #[must_use]
    pub fn get(&self, key: K) -> Option<Instant> {
        self.at.get(&key).copied()
    }

    /// The number of timers.
    #[must_use]
    pub fn len(&self) -> usize {
        self.at.len()
    }

    /// Whether no timer is set.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.at.is_empty()
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
    fn equal_times_are_taken_in_the_order_of_keys() {
        let mut timers = Timers::default();
        for (key, due) in [('b', 5), ('a', 5), ('c', 4)] {
            timers.set(key, at(due));
        }
        let taken: Vec<char> = core::iter::from_fn(|| timers.pop_due(at(5))).collect();
        assert_eq!(taken, ['c', 'a', 'b']);
    }

    #[test]
    fn set_earlier_never_moves_a_timer_into_the_future() {
        let mut timers = Timers::default();
        for due in [9, 12, 7] {
            timers.set_earlier((), at(due));
        }
        assert_eq!(timers.next(), Some((at(7), ())));
        assert!(timers.cancel(()) && !timers.cancel(()) && timers.is_empty());
    }

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Set(u8, u64),
        Earlier(u8, u64),
        Cancel(u8),
        Pop(u64),
        Postpone(u64),
    }

    fn step() -> impl Strategy<Value = Step> {
        let (key, time) = (0..6_u8, 0..40_u64);
        prop_oneof![
            (key.clone(), time.clone()).prop_map(|(key, due)| Step::Set(key, due)),
            (key.clone(), time.clone()).prop_map(|(key, due)| Step::Earlier(key, due)),
            key.prop_map(Step::Cancel),
            time.clone().prop_map(Step::Pop),
            time.prop_map(Step::Postpone),
        ]
    }

    proptest! {
        #[test]
        fn timers_agree_with_a_list(steps in proptest::collection::vec(step(), 0..60)) {
            let (mut timers, mut list) = (Timers::default(), Vec::<(Instant, u8)>::new());
            for step in steps {
                match step {
                    Step::Set(key, due) => {
                        timers.set(key, at(due));
                        list.retain(|(_, other)| *other != key);
                        list.push((at(due), key));
                    }
                    Step::Earlier(key, due) => {
                        timers.set_earlier(key, at(due));
                        let set = list.iter().find(|(_, other)| *other == key).map_or(at(due), |(set, _)| *set);
                        list.retain(|(_, other)| *other != key);
                        list.push((set.min(at(due)), key));
                    }
                    Step::Cancel(key) => {
                        let before = list.len();
                        list.retain(|(_, other)| *other != key);
                        prop_assert_eq!(timers.cancel(key), list.len() < before);
                    }
                    Step::Pop(now) => {
                        let due = list.first().filter(|(due, _)| *due <= at(now)).map(|(_, key)| *key);
                        prop_assert_eq!(timers.pop_due(at(now)), due);
                        list.retain(|(_, key)| Some(*key) != due);
                    }
                    Step::Postpone(by) => {
                        timers.postpone(Duration::from_micros(by));
                        list.iter_mut().for_each(|(due, _)| *due += Duration::from_micros(by));
                    }
                }
                list.sort_unstable();
                prop_assert_eq!(timers.next(), list.first().copied());
                prop_assert_eq!(timers.len(), list.len());
            }
        }
    }
}
