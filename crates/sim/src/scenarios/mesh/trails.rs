//! The paths of messages.

use std::collections::BTreeMap;

use annulus_core::w3w::{Key, Nid};

/// The path of one message so far.
#[derive(Default)]
struct Trail {
    /// How far from its sender each node was when it first got the message.
    depth: BTreeMap<Nid, u32>,
    sends: u32,
}

/// The paths of all watched messages.
#[derive(Default)]
pub(super) struct Trails {
    trails: BTreeMap<Key, Trail>,
}

impl Trails {
    /// Watches a message.
    pub(super) fn watch(&mut self, key: Key, sender: Nid) {
        self.trails.entry(key).or_default().depth.insert(sender, 0);
    }

    /// A node passed a message on.
    pub(super) fn passed_on(&mut self, key: Key, at: Nid, to: &[Nid]) {
        let Some(trail) = self.trails.get_mut(&key) else { return };
        trail.sends += to.len() as u32;
        let next = trail.depth.get(&at).map_or(1, |depth| depth + 1);
        for nid in to {
            trail.depth.entry(*nid).or_insert(next);
        }
    }

    /// After how many hops a node got a message.
    pub(super) fn hops(&self, key: Key, at: Nid) -> Option<u32> {
        self.trails.get(&key)?.depth.get(&at).copied()
    }

    /// How often all messages together were sent from one node to another.
    pub(super) fn sends(&self) -> u64 {
        self.trails.values().map(|trail| u64::from(trail.sends)).sum()
    }
}
