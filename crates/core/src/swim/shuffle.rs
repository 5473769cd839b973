//! Round-robin in random order: every node once per round, each round shuffled anew (S-41 … S-43).

use super::members::{Slot, grow};
use crate::rng::Rng;

/// The nodes of one round. `order[..next]` were chosen in this round, `order[next..]` were not yet.
///
/// A node that stays in the list is chosen again after at most 2n − 1 turns: first in one round and last in the next
/// (S-R7). Adding and removing keep that bound (SA-39). Their cost does not depend on the length.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShuffleList {
    order: Vec<Slot>,
    /// Where in `order` each slot is, by slot.
    places: Vec<u32>,
    next: usize,
}

const ABSENT: u32 = u32::MAX;

impl ShuffleList {
    /// An empty list.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a node at a random place among those not yet chosen in this round; a known one stays where it is.
    pub fn add(&mut self, slot: Slot, rng: &mut Rng) {
        if self.contains(slot) {
            return;
        }
        let (last, index) = (self.order.len(), slot.index());
        grow(&mut self.order);
        self.order.push(slot);
        if self.places.len() <= index {
            let more = index + 1 - self.places.len();
            self.places.reserve_exact(more + index / 8);
            self.places.resize(index + 1, ABSENT);
        }
        let place = self.next + rng.index(last + 1 - self.next);
        self.put(last, slot);
        self.swap(last, place);
    }

    /// Removes a node; returns whether it was there.
    pub fn remove(&mut self, slot: Slot) -> bool {
        let Some(mut place) = self.place(slot) else { return false };
        if place < self.next {
            // Closes the gap among the chosen nodes, so that no other node is skipped.
            self.next -= 1;
            self.swap(place, self.next);
            place = self.next;
        }
        self.swap(place, self.order.len() - 1);
        self.order.pop();
        self.places[slot.index()] = ABSENT;
        true
    }

    /// The next node. A new round is shuffled when the old one is over. `None` if the list is empty.
    pub fn next(&mut self, rng: &mut Rng) -> Option<Slot> {
        if self.next >= self.order.len() {
            self.shuffle(rng);
        }
        let slot = *self.order.get(self.next)?;
        self.next += 1;
        Some(slot)
    }

    /// Up to `count` distinct nodes in the order of [`ShuffleList::next`], without those that `exclude` matches
    /// (SA-40).
    pub fn choose(&mut self, count: usize, rng: &mut Rng, exclude: impl Fn(Slot) -> bool) -> Vec<Slot> {
        let mut chosen = Vec::with_capacity(count);
        // Every node comes up within 2n − 1 turns, from any place in the round.
        for _ in 0..2 * self.order.len() {
            if chosen.len() == count {
                break;
            }
            match self.next(rng) {
                Some(slot) if !exclude(slot) && !chosen.contains(&slot) => chosen.push(slot),
                _ => {}
            }
        }
        chosen
    }

    /// All nodes: first those chosen in this round, then the others.
    #[must_use]
    pub fn list(&self) -> &[Slot] {
        &self.order
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.order.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    /// Whether this node is in the list.
    #[must_use]
    pub fn contains(&self, slot: Slot) -> bool {
        self.place(slot).is_some()
    }

    fn place(&self, slot: Slot) -> Option<usize> {
        self.places.get(slot.index()).filter(|&&place| place != ABSENT).map(|&place| place as usize)
    }

    fn shuffle(&mut self, rng: &mut Rng) {
        rng.shuffle(&mut self.order);
        for place in 0..self.order.len() {
            self.put(place, self.order[place]);
        }
        self.next = 0;
    }

    fn swap(&mut self, a: usize, b: usize) {
        let (at_a, at_b) = (self.order[a], self.order[b]);
        self.put(a, at_b);
        self.put(b, at_a);
    }

    fn put(&mut self, place: usize, slot: Slot) {
        self.order[place] = slot;
        self.places[slot.index()] = place as u32;
    }
}
