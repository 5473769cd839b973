//! The neighbourhood set: the nodes nearest in the network (P-17 … P-19). It fills and repairs the routing table and
//! is never used to route.

use super::proximity::Score;
use crate::id::Id;

/// The nodes with the lowest scores, lowest first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Neighbourhood {
    nodes: Vec<(Score, Id)>,
    nodes_max: usize,
    version: u32,
}

impl Neighbourhood {
    /// An empty set with room for `nodes_max`.
    #[must_use]
    pub fn new(nodes_max: usize) -> Self {
        Self { nodes: Vec::new(), nodes_max, version: 0 }
    }

    /// Inserts a node by its score, if it is among the lowest (P-18). Returns the node that lost its entry, if one did.
    /// A node already there moves.
    pub fn insert(&mut self, id: Id, score: Score) -> Option<Id> {
        let was_there = self.nodes.iter().position(|(_, node)| *node == id);
        if let Some(at) = was_there {
            if self.nodes[at].0 == score {
                return None;
            }
            self.nodes.remove(at);
        }
        let at = self.nodes.partition_point(|node| *node < (score, id));
        if at >= self.nodes_max {
            return None;
        }
        self.nodes.insert(at, (score, id));
        // Only the members of the set are visible, not their scores.
        self.version += u32::from(was_there.is_none());
        if self.nodes.len() > self.nodes_max { self.nodes.pop().map(|(_, id)| id) } else { None }
    }

    /// Removes a node. Returns whether it was there.
    pub fn remove(&mut self, id: Id) -> bool {
        let before = self.nodes.len();
        self.nodes.retain(|(_, node)| *node != id);
        let changed = self.nodes.len() != before;
        self.version += u32::from(changed);
        changed
    }

    /// Whether a node with this score would get an entry.
    #[must_use]
    pub fn would_take(&self, score: Score) -> bool {
        self.nodes.len() < self.nodes_max || self.nodes.last().is_some_and(|(worst, _)| score < *worst)
    }

    /// Whether the node has an entry.
    #[must_use]
    pub fn contains(&self, id: Id) -> bool {
        self.nodes.iter().any(|(_, node)| *node == id)
    }

    /// Its nodes, nearest first.
    pub fn members(&self) -> impl Iterator<Item = Id> + '_ {
        self.nodes.iter().map(|(_, id)| *id)
    }

    /// How often it has changed.
    #[must_use]
    pub fn version(&self) -> u32 {
        self.version
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn members(set: &Neighbourhood) -> Vec<u128> {
        set.members().map(Id::number).collect()
    }

    #[test]
    fn p_18_the_lowest_scores_stay_in_order() {
        let mut set = Neighbourhood::new(3);
        for (id, score) in [(1, 10), (3, 30), (5, 50)] {
            assert_eq!(set.insert(Id::new(id), Score(score)), None);
        }
        // A node in the middle pushes out the last one, not the one it displaces.
        assert_eq!(set.insert(Id::new(2), Score(20)), Some(Id::new(5)));
        assert_eq!(members(&set), [1, 2, 3]);
        assert_eq!(set.insert(Id::new(9), Score(31)), None);
        assert!(!set.would_take(Score(30)) && set.would_take(Score(29)));
        assert_eq!(members(&set), [1, 2, 3]);
    }

    #[test]
    fn p_17_a_node_has_one_entry_and_moves_with_its_score() {
        let mut set = Neighbourhood::new(3);
        for (id, score) in [(1, 10), (2, 20), (3, 30)] {
            set.insert(Id::new(id), Score(score));
        }
        let version = set.version();
        set.insert(Id::new(1), Score(25));
        assert_eq!((members(&set), set.version()), (vec![2, 1, 3], version), "no node came or went");
        assert!(set.remove(Id::new(2)) && !set.remove(Id::new(2)));
        assert_eq!(set.version(), version + 1);
    }
}
