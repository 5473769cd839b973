//! The set of nodes to add: who was heard of and is not in the list yet, or elsewhere.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use super::list::NodeList;
use super::message::{HostId, NodeEntry};
use super::penalties::Penalties;

/// Nodes to be added when this node leads next, in the order they were heard of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AddSet {
    nodes: BTreeMap<HostId, Waiting>,
    next: u64,
    nodes_max: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Waiting {
    order: u64,
    addr: SocketAddr,
}

/// What became of the list when the set was applied.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Applied {
    pub(super) added: Vec<NodeEntry>,
    pub(super) moved: Vec<NodeEntry>,
}

impl AddSet {
    pub(super) fn new(nodes_max: usize) -> Self {
        Self { nodes: BTreeMap::new(), next: 0, nodes_max }
    }

    /// Remembers a node; the newest endpoint of a host counts. False if the set is full.
    pub(super) fn remember(&mut self, node: NodeEntry) -> bool {
        if let Some(known) = self.nodes.get_mut(&node.host_id) {
            known.addr = node.addr;
            return true;
        }
        if self.nodes.len() >= self.nodes_max {
            return false;
        }
        self.nodes.insert(node.host_id, Waiting { order: self.next, addr: node.addr });
        self.next += 1;
        true
    }

    /// Remembers a node that was in the list until now: it must not be lost, whatever the limit (J-6).
    pub(super) fn retain(&mut self, node: NodeEntry) {
        let order = self.next;
        self.nodes.entry(node.host_id).or_insert(Waiting { order, addr: node.addr });
        self.next += 1;
    }

    /// Adds to the list what is not in it, and moves what may be moved (JA-38). What was applied leaves the set;
    /// what may not be moved yet stays.
    pub(super) fn apply(&mut self, list: &mut NodeList, penalties: &mut Penalties) -> Applied {
        let mut waiting: Vec<(u64, NodeEntry)> = (self.nodes.iter())
            .map(|(&host_id, at)| (at.order, NodeEntry { host_id, addr: at.addr }))
            .collect();
        waiting.sort_unstable_by_key(|(order, _)| *order);
        let mut applied = Applied::default();
        for (_, node) in waiting {
            let done = match list.addr(node.host_id) {
                None => {
                    let added = list.append(node);
                    applied.added.extend(added.then_some(node));
                    added
                }
                Some(addr) if addr == node.addr => true,
                Some(addr) => {
                    let may = addr.ip() == node.addr.ip() || penalties.threshold(node.host_id) > 0;
                    if may {
                        list.replace(node);
                        penalties.clear(node.host_id);
                        applied.moved.push(node);
                    }
                    may
                }
            };
            if done {
                self.nodes.remove(&node.host_id);
            }
        }
        applied
    }

    /// How many hosts wait that are not in the list.
    pub(super) fn unknown_to(&self, list: &NodeList) -> usize {
        self.nodes.keys().filter(|host_id| !list.contains(**host_id)).count()
    }

    pub(super) fn len(&self) -> usize {
        self.nodes.len()
    }
}
