//! The ids that were inserted last, for duplicate suppression on a hot path.
//!
//! A hash table with chains indexes a ring buffer of the ids in the order of their insertion. The hash is keyed from
//! the machine's seed, so that no peer can choose ids that meet in one chain.

/// Small, so that the whole table stays in the processor's cache. It bounds the number of ids.
type Index = u16;

const NONE: Index = Index::MAX;
/// The size of the first table; it doubles as the table fills.
const HEADS_MIN: usize = 64;

/// The ids that were inserted last, at most `ids_max` of them; beyond that a new id replaces the oldest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecentIds {
    key: u64,
    /// The newest entry of each chain. There are a power of two of them, at least twice as many as entries. So most chains
    /// are empty, and one lookup shows that an id is new.
    heads: Vec<Index>,
    links: Vec<Link>,
    /// A ring buffer once it is full. It is apart from the links because only an id whose tag matches is compared here.
    ids: Vec<u128>,
    oldest: usize,
    ids_max: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Link {
    /// Part of the hash.
    tag: u16,
    next: Index,
}

impl RecentIds {
    /// An empty table of at most `ids_max` ids, 65 535 at most. `key` is random, from the seed of the machine.
    #[must_use]
    pub fn new(key: u64, ids_max: usize) -> Self {
        let (heads, links, ids) = (Vec::new(), Vec::new(), Vec::new());
        Self { key: key | 1, heads, links, ids, oldest: 0, ids_max: ids_max.min(NONE as usize) }
    }

    /// Inserts an id. Returns false if it is known already.
    pub fn insert(&mut self, id: u128) -> bool {
        if self.ids_max == 0 {
            return true;
        }
        if self.contains(id) {
            return false;
        }
        if self.ids.len() < self.ids_max {
            if 2 * self.ids.len() >= self.heads.len() {
                self.grow();
            }
            self.ids.push(id);
            self.links.push(Link { tag: 0, next: NONE });
            self.link(self.ids.len() - 1);
        } else {
            self.unlink(self.oldest);
            self.ids[self.oldest] = id;
            self.link(self.oldest);
            self.oldest = (self.oldest + 1) % self.ids_max;
        }
        true
    }

    /// Whether an id is known.
    #[must_use]
    pub fn contains(&self, id: u128) -> bool {
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

    fn hash(&self, id: u128) -> u64 {
        let folded = (id >> 64) as u64 ^ (id as u64).rotate_left(32);
        let product = u128::from(folded ^ self.key) * u128::from(self.key);
        (product >> 64) as u64 ^ product as u64
    }

    fn chain(&self, hash: u64) -> usize {
        hash as usize & self.heads.len().wrapping_sub(1)
    }

    /// Doubles the table, with room for its entries at once.
    fn grow(&mut self) {
        self.heads = vec![NONE; (self.heads.len() * 2).max(HEADS_MIN)];
        let room = (self.heads.len() / 2).min(self.ids_max) - self.ids.len();
        self.ids.reserve_exact(room);
        self.links.reserve_exact(room);
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

    #[test]
    fn the_oldest_id_is_replaced_first() {
        let mut recent = RecentIds::new(7, 2);
        assert!(recent.insert(1) && recent.insert(2));
        assert!(!recent.insert(1), "a duplicate");
        assert!(recent.insert(3));
        assert!(recent.insert(1), "replaced by now");
        assert!(RecentIds::new(7, 0).insert(1), "without room every id is new");
    }

    #[test]
    fn recent_ids_agree_with_a_list() {
        let mut rng = crate::rng::Rng::from_number(1, 0);
        for ids_max in [1, 2, 3, 16, 17, 100] {
            let (mut recent, mut list) = (RecentIds::new(rng.next_u64(), ids_max), VecDeque::new());
            for _ in 0..2000 {
                let id = u128::from(rng.below(3 * ids_max as u64)) << (rng.below(3) * 40);
                let is_new = !list.contains(&id);
                assert_eq!(recent.contains(id), !is_new);
                assert_eq!(recent.insert(id), is_new);
                if is_new {
                    list.push_back(id);
                    list.drain(..list.len().saturating_sub(ids_max));
                }
            }
        }
    }
}
