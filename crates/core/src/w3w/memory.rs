//! Memories that fade: what was seen, who was told, who is held off. Each is bounded; beyond its bound the oldest
//! is forgotten first.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use crate::time::Instant;

/// Keys, each remembered until its time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Memory<K> {
    until: BTreeMap<K, Instant>,
    order: BTreeSet<(Instant, K)>,
    keys_max: usize,
}

impl<K: Ord + Copy> Memory<K> {
    pub(super) fn new(keys_max: usize) -> Self {
        Self { until: BTreeMap::new(), order: BTreeSet::new(), keys_max }
    }

    /// Remembers a key until then; true if it was not remembered already, in which case the later time counts.
    pub(super) fn add(&mut self, key: K, now: Instant, until: Instant) -> bool {
        let known = self.until.get(&key).copied();
        if let Some(known) = known {
            self.order.remove(&(known, key));
        }
        let until = known.map_or(until, |known| known.max(until));
        self.until.insert(key, until);
        self.order.insert((until, key));
        if self.until.len() > self.keys_max
            && let Some((_, oldest)) = self.order.pop_first()
        {
            self.until.remove(&oldest);
        }
        known.is_none_or(|known| known <= now)
    }

    pub(super) fn has(&self, key: K, now: Instant) -> bool {
        self.until.get(&key).is_some_and(|until| *until > now)
    }

    pub(super) fn until(&self, key: K) -> Option<Instant> {
        self.until.get(&key).copied()
    }

    pub(super) fn forget(&mut self, key: K) {
        if let Some(until) = self.until.remove(&key) {
            self.order.remove(&(until, key));
        }
    }

    /// Takes one key whose time is over.
    pub(super) fn take_expired(&mut self, now: Instant) -> Option<K> {
        let &(until, key) = self.order.first()?;
        if until > now {
            return None;
        }
        self.forget(key);
        Some(key)
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        self.order.first().map(|(until, _)| *until)
    }

    pub(super) fn len(&self) -> usize {
        self.until.len()
    }
}

/// How often something may happen for each of many: `burst` at once, then one each `every`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Limiter<K> {
    /// When each would be as if nothing had happened. Whoever is past it is forgotten.
    busy_until: BTreeMap<K, Instant>,
    burst: u32,
    every: Duration,
    keys_max: usize,
}

impl<K: Ord + Copy> Limiter<K> {
    pub(super) fn new(burst: u32, every: Duration, keys_max: usize) -> Self {
        Self { busy_until: BTreeMap::new(), burst, every, keys_max }
    }

    /// Whether it may happen now; changes nothing.
    pub(super) fn allows(&self, key: K, now: Instant) -> bool {
        match self.busy_until.get(&key) {
            Some(until) => until.since(now) + self.every <= self.every * self.burst,
            None => self.burst > 0 && (self.busy_until.len() < self.keys_max || self.has_idle(now)),
        }
    }

    /// It happens now.
    pub(super) fn count(&mut self, key: K, now: Instant) {
        if self.busy_until.len() >= self.keys_max {
            self.busy_until.retain(|_, until| *until > now);
        }
        let until = self.busy_until.entry(key).or_insert(now);
        *until = (*until).max(now) + self.every;
    }

    fn has_idle(&self, now: Instant) -> bool {
        self.busy_until.values().any(|until| *until <= now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn at(seconds: u64) -> Instant {
        Instant::ZERO + SECOND * seconds as u32
    }

    #[test]
    fn a_memory_fades_and_is_bounded() {
        let mut memory = Memory::new(2);
        assert!(memory.add(1, at(0), at(10)) && !memory.add(1, at(5), at(8)));
        assert!(memory.has(1, at(9)) && !memory.has(1, at(10)), "the later time counts");
        memory.add(2, at(0), at(20));
        memory.add(3, at(0), at(30));
        assert!(!memory.has(1, at(0)), "the oldest goes first");
        assert_eq!((memory.take_expired(at(20)), memory.take_expired(at(20))), (Some(2), None));
    }

    #[test]
    fn a_limiter_lets_a_burst_through_and_then_one_at_a_time() {
        let mut limiter = Limiter::new(3, SECOND, 2);
        let happened = (0..10).filter(|_| {
            let allowed = limiter.allows('a', at(0));
            if allowed {
                limiter.count('a', at(0));
            }
            allowed
        });
        assert_eq!(happened.count(), 3);
        assert!(limiter.allows('a', at(1)) && limiter.allows('b', at(0)));
        limiter.count('b', at(0));
        assert!(!limiter.allows('c', at(0)), "a table that is full lets nobody new in");
        assert!(limiter.allows('c', at(1)), "until somebody is idle");
    }
}
