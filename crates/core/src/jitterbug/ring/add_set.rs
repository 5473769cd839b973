//! The add-set: nodes that sent TR1 and are not in the list yet, or have another endpoint there.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use super::super::Event;
use super::super::message::{HostId, NodeEntry};
use super::list::NodeList;
use super::penalties::Penalties;

/// Nodes to add at the next own tenure, in the order in which their TR1 arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AddSet {
    nodes: BTreeMap<HostId, Waiting>,
    /// How many of them are not in the list.
    unlisted: usize,
    next: u64,
    nodes_max: usize,
    /// Nodes that sent one TR1 from another port than the ring's.
    unconfirmed: BTreeSet<NodeEntry>,
}

/// The most nodes that wait for a second TR1; beyond that the first is dropped.
const UNCONFIRMED_MAX: usize = 256;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Waiting {
    order: u64,
    addr: SocketAddr,
}

impl AddSet {
    pub(super) fn new(nodes_max: usize) -> Self {
        Self { nodes: BTreeMap::new(), unlisted: 0, next: 0, nodes_max, unconfirmed: BTreeSet::new() }
    }

    /// Notes a TR1 from another port than the ring's. Returns whether one came before, with the same host id, address
    /// and port.
    pub(super) fn confirm(&mut self, node: NodeEntry) -> bool {
        if self.unconfirmed.remove(&node) {
            return true;
        }
        if self.unconfirmed.len() >= UNCONFIRMED_MAX {
            self.unconfirmed.pop_first();
        }
        self.unconfirmed.insert(node);
        false
    }

    /// Remembers a node; the newest endpoint of a host counts. Returns false if the set is full.
    pub(super) fn remember(&mut self, node: NodeEntry, list: &NodeList) -> bool {
        if let Some(known) = self.nodes.get_mut(&node.host_id) {
            known.addr = node.addr;
            return true;
        }
        if self.nodes.len() >= self.nodes_max {
            return false;
        }
        self.nodes.insert(node.host_id, Waiting { order: self.next, addr: node.addr });
        self.unlisted += usize::from(!list.contains(node.host_id));
        self.next += 1;
        true
    }

    /// Remembers the nodes of the old list that the new one lacks: no limit may lose them (J-6).
    pub(super) fn retain_missing(&mut self, old: &NodeList, new: &NodeList) {
        for node in old.nodes().iter().filter(|node| !new.contains(node.host_id)) {
            let order = self.next;
            self.nodes.entry(node.host_id).or_insert(Waiting { order, addr: node.addr });
            self.next += 1;
        }
        self.count_unlisted(new);
    }

    /// Adds new nodes to the list, and moves those that may be moved (JA-38). Applied nodes leave the set; nodes that
    /// may not be moved yet stay. Returns additions and moves as events.
    pub(super) fn apply(&mut self, list: &mut NodeList, penalties: &mut Penalties) -> Vec<Event> {
        let mut waiting: Vec<(u64, NodeEntry)> = (self.nodes.iter())
            .map(|(&host_id, at)| (at.order, NodeEntry { host_id, addr: at.addr }))
            .collect();
        waiting.sort_unstable_by_key(|(order, _)| *order);
        let (mut events, mut moved) = (Vec::new(), Vec::new());
        for (_, node) in waiting {
            let done = match list.addr(node.host_id) {
                None => {
                    let added = list.append(node);
                    events.extend(added.then_some(Event::NodeAdded { node }));
                    added
                }
                Some(addr) if addr == node.addr => true,
                Some(addr) => {
                    let may = addr.ip() == node.addr.ip() || penalties.threshold(node.host_id) > 0;
                    if may {
                        list.replace(node);
                        penalties.clear(node.host_id);
                        moved.push(Event::NodeMoved { node });
                    }
                    may
                }
            };
            if done {
                self.nodes.remove(&node.host_id);
            }
        }
        self.count_unlisted(list);
        events.append(&mut moved);
        events
    }

    /// How many waiting hosts are not in the list. Every TR1 reads it, so it is counted when list or set change.
    pub(super) fn unlisted(&self) -> usize {
        self.unlisted
    }

    fn count_unlisted(&mut self, list: &NodeList) {
        self.unlisted = self.nodes.keys().filter(|host_id| !list.contains(**host_id)).count();
    }

    pub(super) fn len(&self) -> usize {
        self.nodes.len()
    }
}
