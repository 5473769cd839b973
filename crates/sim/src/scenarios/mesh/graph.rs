//! Connectivity of the mesh: nodes whose loss splits it.

/// The nodes without which the others would not all be connected: the cut vertices of the graph. `None` if they are
/// not connected as it is. `peers[i]` are the neighbours of node `i`; a link counts in both directions.
pub(super) fn cut_nodes(peers: &[Vec<usize>]) -> Option<Vec<usize>> {
    let count = peers.len();
    let mut walk = Walk { peers, order: vec![0; count], low: vec![0; count], next: 1 };
    let cut = walk.from(0);
    (walk.next > count).then_some(cut)
}

/// A walk in depth: when each node was first seen, and the earliest node that it and those behind it can reach.
struct Walk<'a> {
    peers: &'a [Vec<usize>],
    order: Vec<usize>,
    low: Vec<usize>,
    next: usize,
}

impl Walk<'_> {
    fn from(&mut self, root: usize) -> Vec<usize> {
        let mut is_cut = vec![false; self.peers.len()];
        let mut children_of_root = 0;
        // Each step: a node, where it was reached from, and which of its peers is next.
        let mut path = vec![(root, root, 0)];
        self.enter(root);
        while let Some((node, parent, at)) = path.last_mut() {
            let (node, parent) = (*node, *parent);
            if let Some(&peer) = self.peers[node].get(*at) {
                *at += 1;
                if self.order[peer] == 0 {
                    children_of_root += usize::from(node == root);
                    self.enter(peer);
                    path.push((peer, node, 0));
                } else if peer != parent {
                    self.low[node] = self.low[node].min(self.order[peer]);
                }
                continue;
            }
            path.pop();
            if node != root {
                self.low[parent] = self.low[parent].min(self.low[node]);
                is_cut[parent] |= parent != root && self.low[node] >= self.order[parent];
            }
        }
        is_cut[root] = children_of_root > 1;
        (0..is_cut.len()).filter(|node| is_cut[*node]).collect()
    }

    fn enter(&mut self, node: usize) {
        self.order[node] = self.next;
        self.low[node] = self.next;
        self.next += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::cut_nodes;

    /// By the definition: take each away and see.
    fn slowly(peers: &[Vec<usize>]) -> Option<Vec<usize>> {
        let is_whole_without = |gone: Option<usize>| {
            let left: Vec<usize> = (0..peers.len()).filter(|node| Some(*node) != gone).collect();
            let mut seen = vec![left[0]];
            let mut at = 0;
            while at < seen.len() {
                for &peer in &peers[seen[at]] {
                    if Some(peer) != gone && !seen.contains(&peer) {
                        seen.push(peer);
                    }
                }
                at += 1;
            }
            seen.len() == left.len()
        };
        let cut = (0..peers.len()).filter(|node| !is_whole_without(Some(*node))).collect();
        is_whole_without(None).then_some(cut)
    }

    #[test]
    fn cut_nodes_are_those_that_cut() {
        let star = vec![vec![1, 2, 3], vec![0], vec![0], vec![0]];
        assert_eq!(cut_nodes(&star), Some(vec![0]));
        let circle: Vec<Vec<usize>> = (0..6).map(|at| vec![(at + 1) % 6, (at + 5) % 6]).collect();
        assert_eq!(cut_nodes(&circle), Some(Vec::new()));
        assert_eq!(cut_nodes(&[vec![1], vec![0], vec![]]), None);
        let mut rng = annulus_core::Rng::from_number(1, 1);
        for _ in 0..300 {
            let count = rng.between(2, 9) as usize;
            let mut peers = vec![Vec::new(); count];
            for one in 0..count {
                for other in one + 1..count {
                    if rng.chance(0.35) {
                        peers[one].push(other);
                        peers[other].push(one);
                    }
                }
            }
            assert_eq!(cut_nodes(&peers), slowly(&peers), "{peers:?}");
        }
    }
}
