//! The known-nodes list: the nodes to contact when a node starts without peers (M-1).

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use crate::w3w::known_nodes::KnownNode;

/// An entry is refreshed at most this often (MA-56).
const REFRESH_SECONDS: u64 = 60;

/// The list, bounded: beyond `nodes_max` the one with the oldest contact is dropped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Known {
    nodes: BTreeMap<Ipv4Addr, u64>,
    nodes_max: usize,
}

impl Known {
    pub(super) fn new(nodes_max: usize) -> Self {
        Self { nodes: BTreeMap::new(), nodes_max }
    }

    /// Adds an entry from a file, from the store or from the configuration; a time in the future is cut to now (MA-55).
    pub(super) fn merge(&mut self, node: KnownNode, now_seconds: u64) {
        let seen_at = node.seen_at.min(now_seconds);
        let entry = self.nodes.entry(node.ip).or_insert(seen_at);
        *entry = (*entry).max(seen_at);
        self.trim();
    }

    /// Notes a contact (MA-56: a handshake or a message, never a bare HERE). Returns whether the list changed.
    pub(super) fn contacted(&mut self, ip: Ipv4Addr, now_seconds: u64) -> bool {
        let is_fresh = self.nodes.get(&ip).is_some_and(|at| now_seconds.abs_diff(*at) < REFRESH_SECONDS);
        if !is_fresh {
            self.nodes.insert(ip, now_seconds);
            self.trim();
        }
        !is_fresh
    }

    /// Latest first (M-4); equal times in order of address.
    pub(super) fn list(&self) -> Vec<KnownNode> {
        let mut list: Vec<KnownNode> =
            self.nodes.iter().map(|(&ip, &seen_at)| KnownNode { ip, seen_at }).collect();
        list.sort_by_key(|node| (core::cmp::Reverse(node.seen_at), node.ip));
        list
    }

    fn trim(&mut self) {
        while self.nodes.len() > self.nodes_max {
            let oldest = self.nodes.iter().min_by_key(|(ip, at)| (**at, **ip)).map(|(ip, _)| *ip);
            oldest.map(|ip| self.nodes.remove(&ip));
        }
    }
}
