//! The window: the numbers of the messages delivered last. One that comes again is not delivered again (PA-36).
//!
//! Every delivery asks it, so it is a hash table with chains, over a ring of the numbers in the order they came. The hash
//! is keyed from the machine's seed: nobody outside can choose numbers that meet in one chain.

use super::message::MessageId;

const NONE: u32 = u32::MAX;
/// The first table; it doubles as it fills.
const HEADS_LEAST: usize = 16;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Window {
    key: u64,
    /// The newest entry of each chain; as many as a power of two.
    heads: Vec<u32>,
    /// In a ring once it is full: the oldest is overwritten.
    entries: Vec<Entry>,
    oldest: usize,
    window_max: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    id: MessageId,
    next: u32,
}

impl Window {
    pub(super) fn new(key: u64, window_max: usize) -> Self {
        let window_max = window_max.min(NONE as usize);
        Self { key: key | 1, heads: Vec::new(), entries: Vec::new(), oldest: 0, window_max }
    }

    pub(super) fn contains(&self, id: MessageId) -> bool {
        if self.heads.is_empty() {
            return false;
        }
        let mut at = self.heads[self.chain(id)];
        while let Some(entry) = self.entries.get(at as usize) {
            if entry.id == id {
                return true;
            }
            at = entry.next;
        }
        false
    }

    /// Notes a number; false if it is known already.
    pub(super) fn insert(&mut self, id: MessageId) -> bool {
        if self.window_max == 0 {
            return true;
        }
        if self.contains(id) {
            return false;
        }
        if self.entries.len() < self.window_max {
            if self.entries.len() == self.heads.len() {
                self.grow();
            }
            self.entries.push(Entry { id, next: NONE });
            self.link(self.entries.len() - 1);
        } else {
            self.unlink(self.oldest);
            self.entries[self.oldest].id = id;
            self.link(self.oldest);
            self.oldest = (self.oldest + 1) % self.window_max;
        }
        true
    }

    fn chain(&self, id: MessageId) -> usize {
        let folded = (id.0 >> 64) as u64 ^ (id.0 as u64).rotate_left(32);
        let product = u128::from(folded ^ self.key) * u128::from(self.key);
        ((product >> 64) as u64 ^ product as u64) as usize & (self.heads.len() - 1)
    }

    fn grow(&mut self) {
        self.heads = vec![NONE; (self.heads.len() * 2).max(HEADS_LEAST)];
        (0..self.entries.len()).for_each(|at| self.link(at));
    }

    fn link(&mut self, at: usize) {
        let chain = self.chain(self.entries[at].id);
        self.entries[at].next = core::mem::replace(&mut self.heads[chain], at as u32);
    }

    fn unlink(&mut self, at: usize) {
        let (chain, next) = (self.chain(self.entries[at].id), self.entries[at].next);
        let mut before = self.heads[chain];
        if before == at as u32 {
            self.heads[chain] = next;
            return;
        }
        while let Some(entry) = self.entries.get_mut(before as usize) {
            if entry.next == at as u32 {
                entry.next = next;
                return;
            }
            before = entry.next;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    #[test]
    fn the_window_knows_the_last_ones() {
        let mut window = Window::new(7, 2);
        assert!(window.insert(MessageId(1)) && window.insert(MessageId(2)));
        assert!(!window.insert(MessageId(1)), "a duplicate");
        assert!(window.insert(MessageId(3)));
        assert!(window.insert(MessageId(1)), "forgotten by now");
        assert!(Window::new(7, 0).insert(MessageId(1)), "none is remembered, none is refused");
    }

    #[test]
    fn it_says_the_same_as_a_list() {
        let mut rng = crate::rng::Rng::from_number(1, 0);
        for window_max in [1, 2, 3, 16, 17, 100] {
            let (mut window, mut list) = (Window::new(rng.next_u64(), window_max), VecDeque::new());
            for _ in 0..2000 {
                let id = MessageId(u128::from(rng.below(3 * window_max as u64)) << (rng.below(3) * 40));
                let is_new = !list.contains(&id);
                assert_eq!(window.contains(id), !is_new);
                assert_eq!(window.insert(id), is_new);
                if is_new {
                    list.push_back(id);
                    list.drain(..list.len().saturating_sub(window_max));
                }
            }
        }
    }
}
