//! Contacts: id and address of a node, and the versions of its tables.

use std::net::SocketAddr;

use serde::Serialize;

use crate::id::Id;

/// The generation of a node: a node that restarts takes a greater one, and the greatest counts (PA-21).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct Generation(pub u64);

/// A node as others know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Contact {
    /// Its place on the ring.
    pub id: Id,
    /// Its address.
    pub addr: SocketAddr,
    /// Its generation.
    pub generation: Generation,
}

/// How often each table of a node has changed in its generation (PA-24). The versions are sent with the tables, so that
/// a joiner knows which state it saw (P-36).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Versions {
    /// Changes of the leaf set.
    pub leaf_set: u32,
    /// Changes of the routing table.
    pub routing_table: u32,
    /// Changes of the neighbourhood set, for information. They follow the noise of round-trip times, so they do not
    /// count as a race (PA-26).
    pub neighbourhood: u32,
}

impl Versions {
    /// Whether these tables have changed since a node saw `seen` of them (P-37). Lower versions are of a later
    /// generation, which began at 0 (PA-24).
    #[must_use]
    pub fn have_changed_since(self, seen: Self) -> bool {
        self.leaf_set != seen.leaf_set || self.routing_table != seen.routing_table
    }
}
