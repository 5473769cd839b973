//! Buckets of falling size: near nodes are probed more often than far ones (S-44 … S-46).

use super::members::Slot;
use super::shuffle::ShuffleList;
use crate::rng::Rng;

/// How many of `nodes` go into each of `buckets`, the farthest first.
///
/// The document's `ceil(n · 2/3 · (1/3)^i)` does not add up to n, and for one bucket it does not give the original
/// SWIM. So each bucket takes what the formula says while nodes last, and the last bucket takes the rest (SA-36).
#[must_use]
pub fn sizes(nodes: usize, buckets: usize) -> Vec<usize> {
    let mut rest = nodes;
    let mut power = 1usize;
    (0..buckets)
        .map(|index| {
            power = power.saturating_mul(3);
            let size = if index + 1 == buckets { rest } else { rest.min((2 * nodes).div_ceil(power)) };
            rest -= size;
            size
        })
        .collect()
}

/// Nodes in order of distance, cut into buckets that take turns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BucketList {
    sorted: Vec<Slot>,
    /// Bucket 0 holds the farthest (SA-37).
    buckets: Vec<ShuffleList>,
    turn: usize,
}

impl BucketList {
    /// An empty list of `count` buckets, at least one.
    #[must_use]
    pub fn new(count: usize) -> Self {
        Self { sorted: Vec::new(), buckets: vec![ShuffleList::new(); count.max(1)], turn: 0 }
    }

    /// Replaces all nodes by these, in ascending order of distance. A node that stays in its bucket keeps its place in
    /// the round. A bucket whose nodes did not change stays as it is (S-45, SA-38).
    pub fn update_in_place(&mut self, sorted: &[Slot], rng: &mut Rng) {
        let mut farthest_first = sorted.iter().rev();
        let sizes = sizes(sorted.len(), self.buckets.len());
        for (bucket, size) in self.buckets.iter_mut().zip(sizes) {
            let now: Vec<Slot> = farthest_first.by_ref().take(size).copied().collect();
            let mut keep = now.clone();
            keep.sort_unstable();
            let gone: Vec<Slot> =
                bucket.list().iter().filter(|slot| keep.binary_search(slot).is_err()).copied().collect();
            for slot in gone {
                bucket.remove(slot);
            }
            for slot in now {
                bucket.add(slot, rng);
            }
        }
        sorted.clone_into(&mut self.sorted);
    }

    /// Adds a node without sorting, if there is only one bucket.
    ///
    /// # Panics
    /// If there are more buckets: only a sort can place the node.
    pub fn add_unsorted(&mut self, slot: Slot, rng: &mut Rng) {
        assert!(self.buckets.len() == 1, "one bucket needs no order");
        self.buckets[0].add(slot, rng);
    }

    /// Removes a node; the next update corrects the sizes.
    pub fn remove(&mut self, slot: Slot) {
        for bucket in &mut self.buckets {
            if bucket.remove(slot) {
                self.sorted.retain(|at| *at != slot);
                return;
            }
        }
    }

    /// The next node, from the next bucket that has any.
    pub fn next(&mut self, rng: &mut Rng) -> Option<Slot> {
        for _ in 0..self.buckets.len() {
            let turn = self.turn;
            self.turn = (turn + 1) % self.buckets.len();
            if let Some(slot) = self.buckets[turn].next(rng) {
                return Some(slot);
            }
        }
        None
    }

    /// Up to `count` distinct nodes in the order of [`BucketList::next`], without those that `exclude` matches.
    pub fn choose(&mut self, count: usize, rng: &mut Rng, exclude: impl Fn(Slot) -> bool) -> Vec<Slot> {
        let mut chosen = Vec::with_capacity(count);
        // Small buckets come round often: two passes over all nodes and buckets reach every node.
        for _ in 0..2 * self.len() * self.buckets.len() {
            if chosen.len() == count {
                break;
            }
            match self.next(rng) {
                Some(slot) if !exclude(slot) && !chosen.contains(&slot) => chosen.push(slot),
                Some(_) => {}
                None => break,
            }
        }
        chosen
    }

    /// All nodes, bucket by bucket.
    pub fn list(&self) -> impl Iterator<Item = Slot> {
        self.buckets.iter().flat_map(|bucket| bucket.list().iter().copied())
    }

    /// How many nodes there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.buckets.iter().map(ShuffleList::len).sum()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The nodes of each bucket, the farthest bucket first.
    #[must_use]
    pub fn buckets(&self) -> &[ShuffleList] {
        &self.buckets
    }
}
