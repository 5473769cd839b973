//! The index of the stored blocks, and the choice of blocks to evict.
//!
//! Lines of the inbox, entries of the queue and incoming files pin the blocks that they refer to. Pinned blocks stay;
//! the oldest of the others is evicted first. When pinned blocks fill the quota, a local send is refused and a message
//! in transit is forwarded from memory.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use super::Event;
use super::counters::Counters;
use super::disk::{Disk, Pending, delete_blocks};
use super::machine::Mesh;
use super::nid::Key;
use crate::outbox::Outbox;
use crate::time::Instant;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Block {
    bytes: u64,
    pins: u32,
    until: Instant,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct BlockIndex {
    blocks: BTreeMap<Key, Block>,
    /// Unpinned blocks, in order of expiry: the oldest first.
    unpinned: BTreeSet<(Instant, Key)>,
    bytes: u64,
    /// Bytes of unpinned blocks.
    unpinned_bytes: u64,
    bytes_max: u64,
    blocks_max: usize,
    keep: Duration,
}

/// A block that is pinned for a new reference.
pub(super) struct Claimed {
    /// Whether the block is not in the store yet.
    pub(super) is_new: bool,
    /// The blocks to delete, to make room for it.
    pub(super) evicted: Vec<Key>,
}

impl BlockIndex {
    pub(super) fn new(bytes_max: u64, blocks_max: usize, keep: Duration) -> Self {
        let (blocks, unpinned) = (BTreeMap::new(), BTreeSet::new());
        Self { blocks, unpinned, bytes: 0, unpinned_bytes: 0, bytes_max, blocks_max, keep }
    }

    /// Adds a block that is `age` old, unpinned; does nothing if it is there.
    pub(super) fn insert(&mut self, key: Key, bytes: u64, age: Duration, now: Instant) {
        let until = now + self.keep.saturating_sub(age);
        if let std::collections::btree_map::Entry::Vacant(place) = self.blocks.entry(key) {
            place.insert(Block { bytes, pins: 0, until });
            self.unpinned.insert((until, key));
            self.bytes += bytes;
            self.unpinned_bytes += bytes;
        }
    }

    /// Adds a reference to a block.
    pub(super) fn pin(&mut self, key: Key) {
        if let Some(block) = self.blocks.get_mut(&key) {
            block.pins += 1;
            if self.unpinned.remove(&(block.until, key)) {
                self.unpinned_bytes -= block.bytes;
            }
        }
    }

    /// Removes a reference to a block.
    pub(super) fn unpin(&mut self, key: Key) {
        if let Some(block) = self.blocks.get_mut(&key) {
            block.pins = block.pins.saturating_sub(1);
            if block.pins == 0 {
                let is_news = self.unpinned.insert((block.until, key));
                self.unpinned_bytes += if is_news { block.bytes } else { 0 };
            }
        }
    }

    /// Removes a reference to a block, and the block if that was the last. Returns whether the store must delete it.
    pub(super) fn release(&mut self, key: Key) -> bool {
        self.unpin(key);
        let is_last = self.blocks.get(&key).is_some_and(|block| block.pins == 0);
        if is_last {
            self.remove(key);
        }
        is_last
    }

    pub(super) fn remove(&mut self, key: Key) {
        if let Some(block) = self.blocks.remove(&key) {
            if self.unpinned.remove(&(block.until, key)) {
                self.unpinned_bytes -= block.bytes;
            }
            self.bytes -= block.bytes;
        }
    }

    /// Evicts blocks until `bytes` more fit. Returns `None`, and evicts nothing, if pinned blocks fill the quota.
    pub(super) fn evict_for(&mut self, bytes: u64) -> Option<Vec<Key>> {
        let (mut left, mut count, mut gone) = (self.bytes, self.blocks.len(), Vec::new());
        let mut unpinned = self.unpinned.iter();
        while left + bytes > self.bytes_max || count >= self.blocks_max {
            let (_, key) = unpinned.next()?;
            left -= self.blocks.get(key).map_or(0, |block| block.bytes);
            count -= 1;
            gone.push(*key);
        }
        gone.iter().for_each(|key| self.remove(*key));
        Some(gone)
    }

    /// Makes room for a block, inserts it and pins it; `None` if pinned blocks fill the quota.
    pub(super) fn claim(
        &mut self,
        counters: &mut Counters,
        key: Key,
        bytes: usize,
        now: Instant,
    ) -> Option<Claimed> {
        if self.contains(key) {
            self.pin(key);
            return Some(Claimed { is_new: false, evicted: Vec::new() });
        }
        let evicted = self.evict_for(bytes as u64)?;
        counters.blocks_evicted += evicted.len() as u64;
        self.blocks.insert(key, Block { bytes: bytes as u64, pins: 1, until: now + self.keep });
        self.bytes += bytes as u64;
        Some(Claimed { is_new: true, evicted })
    }

    /// Notes that a block could not be written.
    pub(super) fn write_failed(&mut self, key: Key, is_new: bool) {
        self.unpin(key);
        if is_new {
            self.remove(key);
        }
    }

    /// Deletes a block that does not match its key.
    pub(super) fn delete_corrupt(
        &mut self,
        counters: &mut Counters,
        disk: &mut Disk,
        key: Key,
        out: &mut Outbox<'_, Mesh>,
    ) {
        counters.blocks_corrupt += 1;
        self.remove(key);
        let op = disk.begin(Pending::Other);
        out.batch(op, false, |batch| delete_blocks(&[key], batch));
        out.event(Event::BlockCorrupted { key });
    }

    /// Whether a block is here or fits; evicts nothing.
    pub(super) fn has_room_for(&self, key: Key, bytes: u64) -> bool {
        let pinned = self.blocks.len() - self.unpinned.len();
        self.contains(key)
            || (self.bytes - self.unpinned_bytes + bytes <= self.bytes_max && pinned < self.blocks_max)
    }

    /// Whether pinned blocks take more than half of the quota: optional messages should then not be kept.
    pub(super) fn is_half_pinned(&self) -> bool {
        let pinned = self.blocks.len() - self.unpinned.len();
        (self.bytes - self.unpinned_bytes) * 2 > self.bytes_max || pinned * 2 > self.blocks_max
    }

    /// Removes the oldest unpinned block if it has expired.
    pub(super) fn pop_expired(&mut self, now: Instant) -> Option<Key> {
        let &(until, key) = self.unpinned.first()?;
        if until > now {
            return None;
        }
        self.remove(key);
        Some(key)
    }

    /// Removes every unpinned block.
    pub(super) fn remove_unpinned(&mut self) -> Vec<Key> {
        let keys: Vec<Key> = self.unpinned.iter().map(|(_, key)| *key).collect();
        keys.iter().for_each(|key| self.remove(*key));
        keys
    }

    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.unpinned.first().map(|(until, _)| *until)
    }

    pub(super) fn contains(&self, key: Key) -> bool {
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

    fn index() -> BlockIndex {
        let mut index = BlockIndex::new(100, 10, Duration::from_secs(10));
        for number in 0..4 {
            index.insert(key(number), 25, Duration::ZERO, Instant::from_micros(u64::from(number)));
        }
        index
    }

    #[test]
    fn the_oldest_unpinned_block_is_evicted_first() {
        let mut index = index();
        index.pin(key(0));
        assert_eq!(index.evict_for(30), Some(vec![key(1), key(2)]));
        assert_eq!((index.len(), index.bytes()), (2, 50));
        index.unpin(key(0));
        assert_eq!(index.evict_for(60), Some(vec![key(0)]));
    }

    #[test]
    fn a_quota_full_of_pins_takes_nothing_and_loses_nothing() {
        let mut index = index();
        (0..4).for_each(|number| index.pin(key(number)));
        index.unpin(key(3));
        assert_eq!(index.evict_for(26), None);
        assert_eq!(index.len(), 4, "an eviction that would not suffice evicts nothing");
        assert_eq!(index.evict_for(25), Some(vec![key(3)]));
    }

    #[test]
    fn blocks_expire_and_are_counted() {
        let mut index = index();
        index.pin(key(1));
        let end = Instant::from_micros(10_000_000);
        assert_eq!((index.pop_expired(end), index.pop_expired(end)), (Some(key(0)), None));
        let late = Instant::from_micros(10_000_003);
        assert_eq!([index.pop_expired(late), index.pop_expired(late)], [Some(key(2)), Some(key(3))]);
        assert_eq!(index.pop_expired(late), None, "a pinned one stays");
    }

    #[test]
    fn the_number_of_blocks_is_bounded_too() {
        let mut index = BlockIndex::new(u64::MAX, 2, Duration::from_secs(10));
        (0..2).for_each(|number| index.insert(key(number), 0, Duration::ZERO, Instant::ZERO));
        assert_eq!(index.evict_for(0).map(|gone| gone.len()), Some(1));
    }
}
