//! The letters of one sender and epoch that are in the inbox, or were.

use core::time::Duration;
use std::collections::BTreeSet;

use crate::time::{Instant, Now};
use crate::w3w::nid::Nid;

/// The most numbers above the contiguous ones (CU-9).
const ABOVE_MAX: usize = 4096;
/// Single records are replaced by a cumulative one when there are this many.
const COMPACT_AT: usize = 32;

/// The result of checking a letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::w3w) enum Arrival {
    /// It is new.
    New,
    /// It is in the inbox, was there, or is closed.
    Known,
    /// It is being stored.
    Storing,
    /// There are too many numbers above a gap: the sender must wait (CU-9).
    Full,
}

/// A cumulative record and the single ones that it replaces.
pub(in crate::w3w) struct Compaction {
    pub(in crate::w3w) key: Vec<u8>,
    pub(in crate::w3w) value: Vec<u8>,
    pub(in crate::w3w) replaced: Vec<Vec<u8>>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct ReceivedNumbers {
    /// Every number up to this one is known.
    up_to: u64,
    above: BTreeSet<u64>,
    storing: BTreeSet<u64>,
    /// Numbers with a record of their own.
    singles: BTreeSet<u64>,
    /// When the lifetimes of all its letters end, by both clocks.
    until: Instant,
    until_seconds: u64,
    /// When its last letter came, in seconds since 1970.
    received_at: u64,
}

/// When a letter arrived and when its lifetime ends: the content of its record in the store.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(in crate::w3w) struct Span {
    received_at: u64,
    until_seconds: u64,
    until: Instant,
}

impl Span {
    /// A letter of this lifetime that arrives now.
    pub(in crate::w3w) fn new(now: Now, lifetime: Duration) -> Self {
        let received_at = now.wall.as_seconds();
        let until_seconds = received_at.saturating_add(lifetime.as_secs());
        Self { received_at, until_seconds, until: now.mono + lifetime }
    }

    /// The record of the store.
    pub(in crate::w3w) fn to_bytes(self) -> Vec<u8> {
        [self.until_seconds, self.received_at].map(u64::to_be_bytes).concat()
    }

    /// Reads a record, or the end of a cumulative one. A clock that jumped makes nothing last for ever.
    pub(super) fn from_bytes(bytes: &[u8], now: Now, longest: Duration) -> Option<Self> {
        let (until, rest) = bytes.split_first_chunk::<8>()?;
        let until_seconds = u64::from_be_bytes(*until);
        let received_at = rest.try_into().map_or(until_seconds, u64::from_be_bytes);
        let left = Duration::from_secs(until_seconds.saturating_sub(now.wall.as_seconds()));
        Some(Self { received_at, until_seconds, until: now.mono + left.min(longest) })
    }
}

impl ReceivedNumbers {
    pub(super) fn until(&self) -> Instant {
        self.until
    }

    pub(super) fn arrived(&mut self, number: u64, least: u64) -> Arrival {
        self.close_below(least);
        if number <= self.up_to || self.above.contains(&number) {
            Arrival::Known
        } else if self.storing.contains(&number) {
            Arrival::Storing
        } else if self.above.len() + self.storing.len() >= ABOVE_MAX {
            Arrival::Full
        } else {
            Arrival::New
        }
    }

    pub(super) fn storing(&mut self, number: u64, least: u64, span: Span) {
        self.close_below(least);
        self.storing.insert(number);
        self.extend(span);
    }

    /// Extends the span by one more letter.
    pub(super) fn extend(&mut self, span: Span) {
        self.until = self.until.max(span.until);
        self.until_seconds = self.until_seconds.max(span.until_seconds);
        self.received_at = self.received_at.max(span.received_at);
    }

    pub(super) fn stored(&mut self, number: u64, is_stored: bool) {
        self.storing.remove(&number);
        if is_stored {
            self.singles.insert(number);
            self.above.insert(number);
            self.advance();
        }
    }

    /// When its last letter arrived.
    pub(super) fn received_at(&self) -> u64 {
        self.received_at
    }

    /// The keys of all its records in the store.
    pub(super) fn record_keys(&self, from: Nid, epoch: u64) -> Vec<Vec<u8>> {
        let singles = self.singles.iter().map(|number| single_key(from, epoch, *number));
        singles.chain([pair_key(from, epoch)]).collect()
    }

    pub(super) fn load_single(&mut self, number: u64) {
        self.singles.insert(number);
        if number > self.up_to {
            self.above.insert(number);
            self.advance();
        }
    }

    pub(super) fn load_up_to(&mut self, up_to: u64) {
        self.close_below(up_to.saturating_add(1));
    }

    /// The contiguous numbers, and ranges above them.
    pub(super) fn ranges(&self) -> (u64, Vec<(u64, u32)>) {
        let mut ranges: Vec<(u64, u32)> = Vec::new();
        for number in &self.above {
            match ranges.last_mut() {
                Some((first, count)) if *first + u64::from(*count) == *number => *count += 1,
                _ => ranges.push((*number, 1)),
            }
        }
        (self.up_to, ranges)
    }

    pub(super) fn compact(&mut self, from: Nid, epoch: u64) -> Option<Compaction> {
        let replaced: Vec<u64> = self.singles.range(..=self.up_to).copied().collect();
        if replaced.len() < COMPACT_AT {
            return None;
        }
        self.singles = self.singles.split_off(&(self.up_to + 1));
        let key = pair_key(from, epoch);
        let replaced = replaced.into_iter().map(|number| single_key(from, epoch, number)).collect();
        let numbers = [self.up_to, self.until_seconds, self.received_at];
        Some(Compaction { key, value: numbers.map(u64::to_be_bytes).concat(), replaced })
    }

    fn close_below(&mut self, least: u64) {
        self.up_to = self.up_to.max(least.saturating_sub(1));
        if self.above.first().is_some_and(|first| *first <= self.up_to) {
            self.above = self.above.split_off(&self.up_to.saturating_add(1));
        }
        self.advance();
    }

    fn advance(&mut self) {
        while let Some(next) = self.up_to.checked_add(1)
            && self.above.remove(&next)
        {
            self.up_to = next;
        }
    }
}

fn pair_key(from: Nid, epoch: u64) -> Vec<u8> {
    [&from.to_bytes()[..], &epoch.to_be_bytes()].concat()
}

/// The key of the record of one letter.
pub(in crate::w3w) fn single_key(from: Nid, epoch: u64, number: u64) -> Vec<u8> {
    [&pair_key(from, epoch)[..], &number.to_be_bytes()].concat()
}

/// Sender, epoch, and the number of a single record.
pub(super) fn read_key(key: &[u8]) -> Option<(Nid, u64, Option<u64>)> {
    let (from, rest) = key.split_first_chunk::<32>()?;
    let (epoch, rest) = rest.split_first_chunk::<8>()?;
    let number = match rest {
        [] => None,
        rest => Some(u64::from_be_bytes(rest.try_into().ok()?)),
    };
    Some((Nid::from_bytes(*from), u64::from_be_bytes(*epoch), number))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored(received: &mut ReceivedNumbers, numbers: impl IntoIterator<Item = u64>) {
        for number in numbers {
            received.storing(number, 1, Span::default());
            received.stored(number, true);
        }
    }

    #[test]
    fn cu_9_a_number_is_new_once() {
        let mut received = ReceivedNumbers::default();
        assert_eq!(received.arrived(2, 1), Arrival::New);
        received.storing(2, 1, Span::default());
        assert_eq!(received.arrived(2, 1), Arrival::Storing);
        received.stored(2, false);
        assert_eq!(received.arrived(2, 1), Arrival::New, "the disk did not take it");
        stored(&mut received, [2, 4, 5]);
        assert_eq!([2, 4, 5].map(|n| received.arrived(n, 1)), [Arrival::Known; 3]);
        assert_eq!(received.ranges(), (0, vec![(2, 1), (4, 2)]));
        stored(&mut received, [1, 3]);
        assert_eq!(received.ranges(), (5, vec![]));
    }

    #[test]
    fn cu_9_least_closes_gaps_and_a_large_gap_makes_the_sender_wait() {
        let mut received = ReceivedNumbers::default();
        stored(&mut received, [3]);
        assert_eq!(received.arrived(1, 3), Arrival::Known, "1 and 2 are over at their sender");
        assert_eq!(received.ranges(), (3, vec![]));
        stored(&mut received, 5..5 + ABOVE_MAX as u64);
        assert_eq!(received.arrived(100_000, 3), Arrival::Full);
        assert_eq!(received.arrived(100_000, 99_999), Arrival::New, "the sender closed the missing numbers");
    }

    #[test]
    fn a_cumulative_record_replaces_single_ones() {
        let (from, mut received) = (Nid::from_bytes([7; 32]), ReceivedNumbers::default());
        stored(&mut received, 1..40);
        stored(&mut received, [50]);
        let compaction = received.compact(from, 9).unwrap();
        assert_eq!((compaction.replaced.len(), read_key(&compaction.key)), (39, Some((from, 9, None))));
        assert!(received.compact(from, 9).is_none());
        assert_eq!(read_key(&single_key(from, 9, 3)), Some((from, 9, Some(3))));
    }
}
