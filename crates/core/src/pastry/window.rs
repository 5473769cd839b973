//! The window: the numbers of the messages delivered last. One that comes again is not delivered again (PA-36).
//!
//! Every delivery asks it, so it is a hash table with chains, over a ring of the numbers in the order they came. The hash
//! is keyed from the machine's seed: nobody outside can choose numbers that meet in one chain.

use super::message::MessageId;
use crate::time::Instant;

/// Small, so that the whole window stays in the processor's cache; it bounds the window.
type Index = u16;

const NONE: Index = Index::MAX;
/// The first table; it doubles as it fills.
const HEADS_LEAST: usize = 16;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Window {
    key: u64,
    /// The newest entry of each chain; a power of two of them, at least twice as many as entries: most chains are empty,
    /// and a new number is known as new at the first look.
    heads: Vec<Index>,
    links: Vec<Link>,
    /// In a ring once it is full: the oldest is overwritten. Apart from the links, because only a number that looks
    /// familiar is looked up here.
    ids: Vec<MessageId>,
    oldest: usize,
    window_max: usize,
    /// When the first place of each half of the ring was last taken.
    halves: [Instant; 2],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Link {
    /// Of the hash.
    tag: u16,
    next: Index,
}

impl Window {
    pub(super) fn new(key: u64, window_max: usize) -> Self {
        let (heads, links, ids) = (Vec::new(), Vec::new(), Vec::new());
        let halves = [Instant::ZERO; 2];
        Self { key: key | 1, heads, links, ids, oldest: 0, window_max: window_max.min(NONE as usize), halves }
    }

    pub(super) fn contains(&self, id: MessageId) -> bool {
        let hash = self.hash(id);
        let tag = tag(hash);
        let mut at = self.heads.get(self.chain(hash)).copied().unwrap_or(NONE);
        while let Some(link) = self.links.get(at as usize) {
            if link.tag == tag && self.ids[at as usize] == id {
                return true;
            }
            at = link.next;
        }
        false
    }

    /// Notes a number; false if it is known already.
    pub(super) fn insert(&mut self, id: MessageId, now: Instant) -> bool {
        if self.window_max == 0 {
            return true;
        }
        if self.contains(id) {
            return false;
        }
        if self.ids.len() < self.window_max {
            if 2 * self.ids.len() >= self.heads.len() {
                self.grow();
            }
            self.ids.push(id);
            self.links.push(Link { tag: 0, next: NONE });
            self.took(self.ids.len() - 1, now);
        } else {
            self.unlink(self.oldest);
            self.ids[self.oldest] = id;
            self.took(self.oldest, now);
            self.oldest = (self.oldest + 1) % self.window_max;
        }
        true
    }

    /// Since when every number is known that was noted; `None` if none was ever forgotten.
    pub(super) fn complete_since(&self) -> Option<Instant> {
        let forgets = self.ids.len() >= self.window_max;
        let [one, other] = self.halves;
        forgets.then(|| if self.window_max < 2 { Instant::from_micros(u64::MAX) } else { one.min(other) })
    }

    fn took(&mut self, place: usize, now: Instant) {
        self.link(place);
        if place == 0 {
            self.halves[0] = now;
        } else if place == self.window_max / 2 {
            self.halves[1] = now;
        }
    }

    fn hash(&self, id: MessageId) -> u64 {
        let folded = (id.0 >> 64) as u64 ^ (id.0 as u64).rotate_left(32);
        let product = u128::from(folded ^ self.key) * u128::from(self.key);
        (product >> 64) as u64 ^ product as u64
    }

    fn chain(&self, hash: u64) -> usize {
        hash as usize & self.heads.len().wrapping_sub(1)
    }

    fn grow(&mut self) {
        self.heads = vec![NONE; (self.heads.len() * 2).max(HEADS_LEAST)];
        (0..self.ids.len()).for_each(|at| self.link(at));
    }

    fn link(&mut self, at: usize) {
        let hash = self.hash(self.ids[at]);
        let chain = self.chain(hash);
        let next = core::mem::replace(&mut self.heads[chain], at as Index);
        self.links[at] = Link { tag: tag(hash), next };
    }

    fn unlink(&mut self, at: usize) {
        let (chain, next) = (self.chain(self.hash(self.ids[at])), self.links[at].next);
        let mut before = self.heads[chain];
        if before == at as Index {
            self.heads[chain] = next;
            return;
        }
        while let Some(link) = self.links.get_mut(before as usize) {
            if link.next == at as Index {
                link.next = next;
                return;
            }
            before = link.next;
        }
    }
}

fn tag(hash: u64) -> u16 {
    (hash >> 48) as u16
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    const NOW: Instant = Instant::from_micros(5);

    #[test]
    fn it_says_how_far_its_memory_reaches() {
        for window_max in [2, 3, 4, 5, 10] {
            let mut window = Window::new(7, window_max);
            for number in 0..200_u64 {
                window.insert(MessageId(number.into()), Instant::from_micros(number));
                let since = window.complete_since().map_or(0, Instant::as_micros);
                assert!((since..=number).all(|number| window.contains(MessageId(number.into()))));
                let known = (0..=number).filter(|&number| window.contains(MessageId(number.into()))).count();
                assert!((number + 1 - since) as usize * 2 >= known, "at least half of what it knows");
            }
        }
        assert_eq!(Window::new(7, 9).complete_since(), None);
        assert!(Window::new(7, 0).complete_since() > Some(NOW), "who remembers nothing knows nothing");
    }

    #[test]
    fn the_window_knows_the_last_ones() {
        let mut window = Window::new(7, 2);
        assert!(window.insert(MessageId(1), NOW) && window.insert(MessageId(2), NOW));
        assert!(!window.insert(MessageId(1), NOW), "a duplicate");
        assert!(window.insert(MessageId(3), NOW));
        assert!(window.insert(MessageId(1), NOW), "forgotten by now");
        assert!(Window::new(7, 0).insert(MessageId(1), NOW), "none is remembered, none is refused");
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
                assert_eq!(window.insert(id, NOW), is_new);
                if is_new {
                    list.push_back(id);
                    list.drain(..list.len().saturating_sub(window_max));
                }
            }
        }
    }
}
