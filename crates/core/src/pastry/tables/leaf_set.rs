//! The leaf set: the immediate neighbours on the ring, on both sides (P-13 … P-16).
//!
//! Each side holds the nodes nearest in its direction, nearest first. A node of a small ring is on both sides
//! (PA-10): then the sides overlap and the leaf set knows the whole ring (PA-9).

use crate::id::Id;
use crate::ring::Side;

/// An odd number with many bits set, which spreads the bits of an id.
const DIGEST_FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

/// The nearest nodes in each direction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeafSet {
    own: Id,
    side_max: usize,
    clockwise: Vec<Id>,
    counter_clockwise: Vec<Id>,
    version: u32,
}

impl LeafSet {
    /// An empty leaf set of `own` with room for `side_max` nodes on each side.
    #[must_use]
    pub fn new(own: Id, side_max: usize) -> Self {
        Self { own, side_max, clockwise: Vec::new(), counter_clockwise: Vec::new(), version: 0 }
    }

    /// Inserts a node on each side where it is among the nearest (P-14). Returns whether anything changed.
    pub fn insert(&mut self, id: Id) -> bool {
        let (own, side_max) = (self.own, self.side_max);
        let mut changed = false;
        for side in [Side::Clockwise, Side::CounterClockwise] {
            let nodes = self.side_mut(side);
            let at = nodes.partition_point(|&node| offset(own, side, node) < offset(own, side, id));
            if id != own && at < side_max && nodes.get(at) != Some(&id) {
                nodes.insert(at, id);
                nodes.truncate(side_max);
                changed = true;
            }
        }
        self.version += u32::from(changed);
        changed
    }

    /// Removes a node. Returns whether it was there.
    pub fn remove(&mut self, id: Id) -> bool {
        let before = self.clockwise.len() + self.counter_clockwise.len();
        self.clockwise.retain(|&node| node != id);
        self.counter_clockwise.retain(|&node| node != id);
        let changed = self.clockwise.len() + self.counter_clockwise.len() != before;
        self.version += u32::from(changed);
        changed
    }

    /// Whether [`LeafSet::insert`] would change anything.
    #[must_use]
    pub fn would_take(&self, id: Id) -> bool {
        id != self.own
            && [Side::Clockwise, Side::CounterClockwise].into_iter().any(|side| {
                let nodes = self.side(side);
                let at =
                    nodes.partition_point(|&node| offset(self.own, side, node) < offset(self.own, side, id));
                at < self.side_max && nodes.get(at) != Some(&id)
            })
    }

    /// Whether the key lies between the extremes, both included (PA-11), or the sides meet (PA-9).
    #[must_use]
    pub fn covers(&self, key: Id) -> bool {
        let (Some(&last), Some(&first)) = (self.clockwise.last(), self.counter_clockwise.last()) else {
            // No other node is known: this node owns all keys.
            return true;
        };
        self.sides_meet(first, last) || key.is_between(first, last)
    }

    /// The node closest to a key that is covered, the own one included.
    #[must_use]
    pub fn closest(&self, key: Id) -> Id {
        let ahead = self.own.clockwise_to(key);
        // The nodes of a side follow each other on the ring without a gap, so the closest is one of the two
        // around the key.
        if self.clockwise.last().is_some_and(|&last| ahead <= self.own.clockwise_to(last)) {
            let at = self.clockwise.partition_point(|&node| self.own.clockwise_to(node) < ahead);
            return self.closest_of(key, &self.clockwise, at);
        }
        let behind = key.clockwise_to(self.own);
        let nodes = &self.counter_clockwise;
        let at = nodes.partition_point(|&node| node.clockwise_to(self.own) < behind);
        self.closest_of(key, nodes, at)
    }

    /// Whether the sides meet: then every node of the ring is in it (PA-9).
    #[must_use]
    pub fn knows_ring(&self) -> bool {
        match (self.clockwise.last(), self.counter_clockwise.last()) {
            (Some(&last), Some(&first)) => self.sides_meet(first, last),
            _ => true,
        }
    }

    /// Whether the node is in it.
    #[must_use]
    pub fn contains(&self, id: Id) -> bool {
        self.clockwise.contains(&id) || self.counter_clockwise.contains(&id)
    }

    /// The nodes of one side, nearest first.
    #[must_use]
    pub fn side(&self, side: Side) -> &[Id] {
        match side {
            Side::Clockwise => &self.clockwise,
            Side::CounterClockwise => &self.counter_clockwise,
        }
    }

    /// The nearest node of a side.
    #[must_use]
    pub fn nearest(&self, side: Side) -> Option<Id> {
        self.side(side).first().copied()
    }

    /// The furthest node of a side.
    #[must_use]
    pub fn furthest(&self, side: Side) -> Option<Id> {
        self.side(side).last().copied()
    }

    /// Every node once: the clockwise side, then those that are on the other side only.
    pub fn members(&self) -> impl Iterator<Item = Id> + '_ {
        let only_behind = self.counter_clockwise.iter().filter(|id| !self.clockwise.contains(id));
        self.clockwise.iter().chain(only_behind).copied()
    }

    /// Whether it has no node.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.clockwise.is_empty()
    }

    /// How often it has changed.
    #[must_use]
    pub fn version(&self) -> u32 {
        self.version
    }

    /// A number that names the nearest nodes of both sides, all but the furthest. The next node on the ring has all of these
    /// in its own leaf set, so it can compute the same number (PA-34b).
    #[must_use]
    pub fn digest(&self) -> u32 {
        let depth = self.side_max.saturating_sub(1).max(1);
        let mut hash: u64 = 0;
        for nodes in [&self.clockwise, &self.counter_clockwise] {
            // The sides are apart: a node that is missing on one is not made up for by the other.
            hash = hash.rotate_left(7) ^ 1;
            for id in nodes.iter().take(depth).map(|id| id.number()) {
                hash = (hash ^ (id >> 64) as u64).wrapping_mul(DIGEST_FACTOR).rotate_left(29) ^ id as u64;
            }
        }
        (hash.wrapping_mul(DIGEST_FACTOR) >> 32) as u32
    }

    /// The leaf set that another node has, as far as this one knows.
    #[must_use]
    pub fn seen_from(&self, node: Id) -> Self {
        let mut seen = Self::new(node, self.side_max);
        seen.insert(self.own);
        self.members().for_each(|id| {
            seen.insert(id);
        });
        seen
    }

    /// The sides of a small ring meet, since every node is on both; also in a ring too small to fill them.
    fn sides_meet(&self, first: Id, last: Id) -> bool {
        self.own.clockwise_to(last) >= self.own.clockwise_to(first)
    }

    /// The closest of a side's nodes around position `at`, and of the own id if that is around it.
    fn closest_of(&self, key: Id, nodes: &[Id], at: usize) -> Id {
        let nearer = if at == 0 { self.own } else { nodes[at - 1] };
        match nodes.get(at) {
            Some(&further) if key.is_closer(further, nearer) => further,
            _ => nearer,
        }
    }

    fn side_mut(&mut self, side: Side) -> &mut Vec<Id> {
        match side {
            Side::Clockwise => &mut self.clockwise,
            Side::CounterClockwise => &mut self.counter_clockwise,
        }
    }
}

/// The distance from `own` to `id` in the direction of `side`.
fn offset(own: Id, side: Side, id: Id) -> u128 {
    match side {
        Side::Clockwise => own.clockwise_to(id),
        Side::CounterClockwise => id.clockwise_to(own),
    }
}

#[cfg(test)]
#[path = "leaf_set_tests.rs"]
mod tests;
