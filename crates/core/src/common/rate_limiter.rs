//! A rate limiter per key: the generic cell rate algorithm (GCRA), which needs one time per key.

use core::time::Duration;

use super::timers::Timers;
use crate::time::Instant;

/// For each key: `burst` at once, then one per `interval`.
///
/// At most `keys_max` keys are known. A key that could use its whole burst again makes room for another. If there is none,
/// new keys are refused: a flood from invented sources costs a full table and nothing more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RateLimiter<K> {
    /// The theoretical arrival time of each key: when its whole burst is there again.
    idle_at: Timers<K>,
    burst: u32,
    interval: Duration,
    keys_max: usize,
}

impl<K: Copy + Ord> RateLimiter<K> {
    /// A limiter that has counted nothing.
    #[must_use]
    pub fn new(burst: u32, interval: Duration, keys_max: usize) -> Self {
        Self { idle_at: Timers::default(), burst, interval, keys_max }
    }

    /// Counts one more for a key if the limit [allows](Self::allows) it. Returns whether it does.
    pub fn admit(&mut self, key: K, now: Instant) -> bool {
        let allowed = self.allows(key, now);
        if allowed {
            self.count(key, now);
        }
        allowed
    }

    /// Counts one more for a key, allowed or not. In a full table it replaces the key that is idle first.
    pub fn count(&mut self, key: K, now: Instant) {
        let idle_at = self.idle_at.get(key);
        if idle_at.is_none()
            && self.idle_at.len() >= self.keys_max
            && let Some((_, first)) = self.idle_at.next()
        {
            self.idle_at.cancel(first);
        }
        self.idle_at.set(key, idle_at.map_or(now, |at| at.max(now)) + self.interval);
    }

    /// Whether one more for a key keeps the limit now.
    #[must_use]
    pub fn allows(&self, key: K, now: Instant) -> bool {
        match self.idle_at.get(key) {
            Some(at) => at.since(now) + self.interval <= self.interval * self.burst,
            None => self.burst > 0 && (self.idle_at.len() < self.keys_max || self.has_idle(now)),
        }
    }

    fn has_idle(&self, now: Instant) -> bool {
        self.idle_at.next().is_some_and(|(at, _)| at <= now)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn at(seconds: u64) -> Instant {
        Instant::from_micros(seconds * 1_000_000)
    }

    #[test]
    fn a_burst_passes_and_then_one_per_interval() {
        let mut limiter = RateLimiter::new(3, SECOND, 2);
        assert_eq!((0..10).filter(|_| limiter.admit('a', at(0))).count(), 3);
        assert!(limiter.admit('a', at(1)) && !limiter.admit('a', at(1)));
        assert_eq!(
            (0..10).filter(|_| limiter.admit('a', at(100))).count(),
            3,
            "the whole burst is there again"
        );
        assert!(!RateLimiter::new(0, SECOND, 9).allows('a', at(0)), "a burst of 0 allows nothing");
    }

    #[test]
    fn a_full_table_refuses_new_keys_until_one_is_idle() {
        let mut limiter = RateLimiter::new(2, SECOND, 2);
        assert!(limiter.admit('a', at(0)) && limiter.admit('b', at(0)));
        assert!(!limiter.allows('c', at(0)) && limiter.allows('a', at(0)));
        assert!(limiter.admit('c', at(1)));
        for key in 'd'..='z' {
            limiter.count(key, at(1));
        }
        assert_eq!(limiter.idle_at.len(), 2, "the table stays bounded");
    }

    proptest! {
        #[test]
        fn no_window_has_more_than_the_burst_and_its_share(
            burst in 1..5_u32,
            waits in proptest::collection::vec(0..1500_u64, 1..80),
        ) {
            let (mut limiter, mut now, mut admitted) = (RateLimiter::new(burst, SECOND, 1), 0, Vec::new());
            for wait in waits {
                now += wait * 1000;
                if limiter.admit((), Instant::from_micros(now)) {
                    admitted.push(now);
                }
            }
            for (first, from) in admitted.iter().enumerate() {
                for (last, to) in admitted.iter().enumerate().skip(first) {
                    prop_assert!((last - first + 1) as u64 <= u64::from(burst) + (to - from) / 1_000_000);
                }
            }
        }
    }
}
