//! The shelf: an index of the blocks in the store, and what may be thrown away to make room.
//!
//! The policy, in one sentence: what somebody waits for stays, of the rest the oldest goes first. A block is
//! *pinned* by every line of the inbox, of the queue and of the unfinished outbox that needs it; what was only
//! passing through, and what we sent and have handed on, is not pinned. When pinned blocks alone fill the quota,
//! nothing more is kept: a local send is refused, a message in transit is passed on without being saved.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use super::nid::Key;
use crate::time::Instant;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Block {
    bytes: u64,
    pins: u32,
    until: Instant,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Shelf {
    blocks: BTreeMap<Key, Block>,
    /// Unpinned blocks, those that expire first in front: they are the oldest.
    loose: BTreeSet<(Instant, Key)>,
    bytes: u64,
    /// Bytes of unpinned blocks.
    loose_bytes: u64,
    bytes_max: u64,
    blocks_max: usize,
    keep: Duration,
}

impl Shelf {
    pub(super) fn new(bytes_max: u64, blocks_max: usize, keep: Duration) -> Self {
        let (blocks, loose) = (BTreeMap::new(), BTreeSet::new());
        Self { blocks, loose, bytes: 0, loose_bytes: 0, bytes_max, blocks_max, keep }
    }

    /// Adds a block that is `age` old, unpinned; does nothing if it is there.
    pub(super) fn add(&mut self, key: Key, bytes: u64, age: Duration, now: Instant) {
        let until = now + self.keep.saturating_sub(age);
        if let std::collections::btree_map::Entry::Vacant(place) = self.blocks.entry(key) {
            place.insert(Block { bytes, pins: 0, until });
            self.loose.insert((until, key));
            self.bytes += bytes;
            self.loose_bytes += bytes;
        }
    }

    /// One more line needs it.
    pub(super) fn pin(&mut self, key: Key) {
        if let Some(block) = self.blocks.get_mut(&key) {
            block.pins += 1;
            if self.loose.remove(&(block.until, key)) {
                self.loose_bytes -= block.bytes;
            }
        }
    }

    /// One line fewer needs it.
    pub(super) fn unpin(&mut self, key: Key) {
        if let Some(block) = self.blocks.get_mut(&key) {
            block.pins = block.pins.saturating_sub(1);
            if block.pins == 0 {
                let is_news = self.loose.insert((block.until, key));
                self.loose_bytes += if is_news { block.bytes } else { 0 };
            }
        }
    }

    pub(super) fn remove(&mut self, key: Key) {
        if let Some(block) = self.blocks.remove(&key) {
            if self.loose.remove(&(block.until, key)) {
                self.loose_bytes -= block.bytes;
            }
            self.bytes -= block.bytes;
        }
    }

    /// Takes away what must go so that `bytes` more fit; `None`, and nothing taken, if pinned blocks fill the quota.
    pub(super) fn make_room(&mut self, bytes: u64) -> Option<Vec<Key>> {
        let (mut left, mut count, mut gone) = (self.bytes, self.blocks.len(), Vec::new());
        let mut loose = self.loose.iter();
        while left + bytes > self.bytes_max || count >= self.blocks_max {
            let (_, key) = loose.next()?;
            left -= self.blocks.get(key).map_or(0, |block| block.bytes);
            count -= 1;
            gone.push(*key);
        }
        gone.iter().for_each(|key| self.remove(*key));
        Some(gone)
    }

    /// Whether a block is here or fits; takes nothing away.
    pub(super) fn could_take(&self, key: Key, bytes: u64) -> bool {
        let pinned = self.blocks.len() - self.loose.len();
        self.has(key) || (self.bytes - self.loose_bytes + bytes <= self.bytes_max && pinned < self.blocks_max)
    }

    /// Whether so much is waited for that nothing more should be that need not.
    pub(super) fn is_half_pinned(&self) -> bool {
        let pinned = self.blocks.len() - self.loose.len();
        (self.bytes - self.loose_bytes) * 2 > self.bytes_max || pinned * 2 > self.blocks_max
    }

    /// Takes away the oldest unpinned block if its time is over.
    pub(super) fn take_expired(&mut self, now: Instant) -> Option<Key> {
        let &(until, key) = self.loose.first()?;
        if until > now {
            return None;
        }
        self.remove(key);
        Some(key)
    }

    /// Takes away every unpinned block.
    pub(super) fn sweep(&mut self) -> Vec<Key> {
        let keys: Vec<Key> = self.loose.iter().map(|(_, key)| *key).collect();
        keys.iter().for_each(|key| self.remove(*key));
        keys
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        self.loose.first().map(|(until, _)| *until)
    }

    pub(super) fn has(&self, key: Key) -> bool {
        self.blocks.contains_key(&key)
    }

    /// The keys between these two.
    pub(super) fn range(&self, first: Key, last: Key) -> impl Iterator<Item = Key> {
        self.blocks.range(first..=last).map(|(key, _)| *key)
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn len(&self) -> usize {
        self.blocks.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: u8) -> Key {
        Key::of(&[number])
    }

    fn shelf() -> Shelf {
        let mut shelf = Shelf::new(100, 10, Duration::from_secs(10));
        for number in 0..4 {
            shelf.add(key(number), 25, Duration::ZERO, Instant::from_micros(u64::from(number)));
        }
        shelf
    }

    #[test]
    fn of_what_nobody_waits_for_the_oldest_goes_first() {
        let mut shelf = shelf();
        shelf.pin(key(0));
        assert_eq!(shelf.make_room(30), Some(vec![key(1), key(2)]));
        assert_eq!((shelf.len(), shelf.bytes()), (2, 50));
        shelf.unpin(key(0));
        assert_eq!(shelf.make_room(60), Some(vec![key(0)]));
    }

    #[test]
    fn a_quota_full_of_pins_takes_nothing_and_loses_nothing() {
        let mut shelf = shelf();
        (0..4).for_each(|number| shelf.pin(key(number)));
        shelf.unpin(key(3));
        assert_eq!(shelf.make_room(26), None);
        assert_eq!(shelf.len(), 4, "what would not have been enough is not thrown away");
        assert_eq!(shelf.make_room(25), Some(vec![key(3)]));
    }

    #[test]
    fn blocks_expire_and_are_counted() {
        let mut shelf = shelf();
        shelf.pin(key(1));
        let end = Instant::from_micros(10_000_000);
        assert_eq!((shelf.take_expired(end), shelf.take_expired(end)), (Some(key(0)), None));
        let late = Instant::from_micros(10_000_003);
        assert_eq!([shelf.take_expired(late), shelf.take_expired(late)], [Some(key(2)), Some(key(3))]);
        assert_eq!(shelf.take_expired(late), None, "a pinned one stays");
    }

    #[test]
    fn the_number_of_blocks_is_bounded_too() {
        let mut shelf = Shelf::new(u64::MAX, 2, Duration::from_secs(10));
        (0..2).for_each(|number| shelf.add(key(number), 0, Duration::ZERO, Instant::ZERO));
        assert_eq!(shelf.make_room(0).map(|gone| gone.len()), Some(1));
    }
}
