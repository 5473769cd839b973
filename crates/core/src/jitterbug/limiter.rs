//! How many TR1 a source may send: a forged flood costs no more than this (JA-53).

use core::time::Duration;
use std::collections::BTreeMap;
use std::net::IpAddr;

use crate::time::Instant;

/// The most sources that are told apart in one window; more of them are refused until it ends.
const SOURCES_MAX: usize = 4096;
const WINDOW: Duration = Duration::from_secs(1);

/// Counts per source within windows of a second.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Limiter {
    since: Instant,
    seen: BTreeMap<IpAddr, u32>,
    per_second_max: u32,
}

impl Limiter {
    pub(super) fn new(per_second_max: u32) -> Self {
        Self { since: Instant::ZERO, seen: BTreeMap::new(), per_second_max }
    }

    /// Whether one more from this source is taken; nothing changes if not.
    pub(super) fn allow(&mut self, now: Instant, from: IpAddr) -> bool {
        if now.since(self.since) >= WINDOW {
            self.since = now;
            self.seen.clear();
        }
        let full = self.seen.len() >= SOURCES_MAX;
        match self.seen.get_mut(&from) {
            Some(count) if *count >= self.per_second_max => false,
            Some(count) => {
                *count += 1;
                true
            }
            None if full => false,
            None => {
                self.seen.insert(from, 1);
                true
            }
        }
    }
}
