//! The list of nodes: the ring's order. It only grows (J-6). Its hash shows whether two lists are the same.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use super::super::message::{HostId, NodeEntry};
use super::super::wire::{ENTRY_BYTES_MAX, LIST_MAX, encode_entry, hash577_on};
use crate::wire::Writer;

/// The nodes in the order in which the token visits them, each host once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeList {
    nodes: Vec<NodeEntry>,
    places: BTreeMap<HostId, u32>,
    hash: i32,
}

impl NodeList {
    /// An empty list.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A list of these nodes; of entries with one host id the first counts (JA-35).
    pub fn of(nodes: impl IntoIterator<Item = NodeEntry>) -> Self {
        let mut list = Self::new();
        nodes.into_iter().for_each(|node| {
            list.append(node);
        });
        list
    }

    /// Puts a node at the end; false if its host is there already or the list is full.
    pub fn append(&mut self, node: NodeEntry) -> bool {
        if self.places.contains_key(&node.host_id) || self.nodes.len() >= LIST_MAX {
            return false;
        }
        self.places.insert(node.host_id, self.nodes.len() as u32);
        self.hash = hash_on(self.hash, &node);
        self.nodes.push(node);
        true
    }

    /// Gives a host another endpoint, at the same position (JA-38).
    pub fn replace(&mut self, node: NodeEntry) {
        if let Some(&place) = self.places.get(&node.host_id) {
            self.nodes[place as usize] = node;
            self.hash = self.nodes.iter().fold(0, hash_on);
        }
    }

    /// The nodes, in order.
    #[must_use]
    pub fn nodes(&self) -> &[NodeEntry] {
        &self.nodes
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// The endpoint of a host.
    #[must_use]
    pub fn addr(&self, host_id: HostId) -> Option<SocketAddr> {
        self.places.get(&host_id).map(|&place| self.nodes[place as usize].addr)
    }

    /// Whether this host is in it.
    #[must_use]
    pub fn contains(&self, host_id: HostId) -> bool {
        self.places.contains_key(&host_id)
    }

    /// The hash of the entries, without their number (JA-11).
    #[must_use]
    pub fn hash(&self) -> i32 {
        self.hash
    }

    /// The hosts at an address.
    pub fn at_ip(&self, ip: IpAddr) -> impl Iterator<Item = HostId> + '_ {
        let here = move |node: &&NodeEntry| node.addr.ip().to_canonical() == ip;
        self.nodes.iter().filter(here).map(|node| node.host_id)
    }

    /// The `nth` candidate of a round: those after `own`, then those before it (JA-42). A host that is not in the list
    /// tries all.
    #[must_use]
    pub fn candidate(&self, own: HostId, nth: usize) -> Option<NodeEntry> {
        let len = self.nodes.len();
        let (first, count) = match self.places.get(&own) {
            Some(&place) => (place as usize + 1, len - 1),
            None => (0, len),
        };
        (nth < count).then(|| self.nodes[(first + nth) % len])
    }
}

fn hash_on(hash: i32, node: &NodeEntry) -> i32 {
    let mut bytes = Vec::with_capacity(ENTRY_BYTES_MAX);
    encode_entry(node, &mut Writer::new(&mut bytes, ENTRY_BYTES_MAX));
    hash577_on(hash, &bytes)
}
