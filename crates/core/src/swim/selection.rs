//! The choice of probe targets: some of the nearest, the rest from the regions (S-40, S-47 … S-49).

use super::buckets::BucketList;
use super::members::Slot;
use super::shuffle::ShuffleList;
use crate::rng::Rng;

/// The document's PrioritySelectionList: a neighbourhood of the `r` nearest and regional buckets of the others.
///
/// With one region and no neighbourhood it *is* a [`ShuffleList`], draw for draw (S-138), and needs no sorting.
/// Otherwise [`Selection::is_unsorted`] says that nodes came or went. [`Selection::update`] then takes all nodes in
/// order: once per period, however many changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selection {
    region: BucketList,
    neighbors: ShuffleList,
    neighbor_count: usize,
    region_probes: usize,
    neighbor_probes: usize,
    sorts: bool,
    unsorted: bool,
}

impl Selection {
    /// An empty list: `regions` buckets, a neighbourhood of `neighbor_count`, and how many of each are chosen.
    #[must_use]
    pub fn new(regions: usize, region_probes: usize, neighbor_count: usize, neighbor_probes: usize) -> Self {
        Self {
            region: BucketList::new(regions),
            neighbors: ShuffleList::new(),
            neighbor_count,
            region_probes,
            neighbor_probes,
            sorts: regions > 1 || neighbor_count > 0,
            unsorted: false,
        }
    }

    /// Adds a node.
    pub fn add(&mut self, slot: Slot, rng: &mut Rng) {
        if self.sorts {
            self.unsorted = true;
        } else {
            self.region.add_unsorted(slot, rng);
        }
    }

    /// Removes a node.
    pub fn remove(&mut self, slot: Slot) {
        if !self.neighbors.remove(slot) {
            self.region.remove(slot);
        }
        self.unsorted = self.sorts;
    }

    /// Replaces all nodes by these, in ascending order of distance.
    pub fn update(&mut self, sorted: &[Slot], rng: &mut Rng) {
        let (near, far) = sorted.split_at(self.neighbor_count.min(sorted.len()));
        let gone: Vec<Slot> =
            self.neighbors.list().iter().filter(|slot| !near.contains(slot)).copied().collect();
        for slot in gone {
            self.neighbors.remove(slot);
        }
        for slot in near {
            self.neighbors.add(*slot, rng);
        }
        self.region.update_in_place(far, rng);
        self.unsorted = false;
    }

    /// The probe targets of one protocol period, each once. If one list is too short, the other fills the rest (SA-41).
    pub fn targets(&mut self, rng: &mut Rng) -> Vec<Slot> {
        let total = self.region_probes + self.neighbor_probes;
        let mut chosen = self.neighbors.choose(self.neighbor_probes, rng, |_| false);
        chosen.extend(self.region.choose(total - chosen.len(), rng, |_| false));
        if chosen.len() < total {
            let more = self.neighbors.choose(total - chosen.len(), rng, |slot| chosen.contains(&slot));
            chosen.extend(more);
        }
        chosen
    }

    /// Any node.
    pub fn pick(&self, rng: &mut Rng) -> Option<Slot> {
        self.at(rng.index(self.len()))
    }

    /// Up to `count` different nodes.
    pub fn pick_some(&self, count: usize, rng: &mut Rng) -> Vec<Slot> {
        let (count, mut indexes) = (count.min(self.len()), Vec::new());
        // Floyd's algorithm: one draw for each, however many there are.
        for last in self.len() - count..self.len() {
            let drawn = rng.index(last + 1);
            indexes.push(if indexes.contains(&drawn) { last } else { drawn });
        }
        indexes.into_iter().filter_map(|index| self.at(index)).collect()
    }

    fn at(&self, mut index: usize) -> Option<Slot> {
        let lists = core::iter::once(&self.neighbors).chain(self.region.buckets());
        for list in lists {
            if let Some(slot) = list.list().get(index) {
                return Some(*slot);
            }
            index -= list.len();
        }
        None
    }

    /// All nodes.
    pub fn iter(&self) -> impl Iterator<Item = Slot> {
        self.neighbors.list().iter().copied().chain(self.region.list())
    }

    /// How many nodes there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.neighbors.len() + self.region.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether nodes came or went since the last [`Selection::update`].
    #[must_use]
    pub fn is_unsorted(&self) -> bool {
        self.unsorted
    }

    /// The regional nodes.
    #[must_use]
    pub fn region(&self) -> &BucketList {
        &self.region
    }

    /// The neighbourhood.
    #[must_use]
    pub fn neighbors(&self) -> &ShuffleList {
        &self.neighbors
    }
}
