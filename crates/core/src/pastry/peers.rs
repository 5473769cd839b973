//! The peers: every node that has a seat in a table, and what is known of it.
//!
//! A node comes in only after contact: it spoke to us, or answered (PA-14). What others say of it is hearsay and makes
//! it a candidate to be asked, no more. So whoever invents nodes fills nobody's tables.

use super::clocks::Seen;
use super::contact::{Contact, Versions};
use super::proximity::Estimate;
use crate::id::Id;
use crate::time::Instant;

/// A node with a seat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Peer {
    pub(super) contact: Contact,
    pub(super) estimate: Estimate,
    /// Its tables as we last saw them; `None` of a node that never sent any (PA-25).
    pub(super) versions: Option<Versions>,
    /// When it last took a seat in the leaf set, or in any table if it has none there.
    pub(super) since: Instant,
    /// When it last said anything.
    pub(super) heard: Instant,
    /// The version of its leaf set that held nobody we miss in ours.
    pub(super) leaf_set_checked: Option<u32>,
    /// Whether it knows of us: it welcomed our announcement, or announced itself.
    pub(super) knows_us: bool,
    /// How often it warned of a race in our join (PA-23).
    pub(super) races: u8,
    /// Its clock as we last saw it.
    pub(super) clock: Option<Seen>,
    /// Whether `members` knows it, and so will tell when it is gone.
    pub(super) is_member: bool,
}

/// The peers, by id.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Peers {
    /// Apart from the rest, because every message looks somebody up.
    ids: Vec<Id>,
    list: Vec<Peer>,
    /// Those to route around, by id: they did not acknowledge, or `members` suspects them.
    suspected: Vec<Id>,
}

impl Peers {
    /// Adds a peer, or renews what is known of its address and life.
    pub(super) fn insert(&mut self, contact: Contact, now: Instant) -> &mut Peer {
        let index = match self.index(contact.id) {
            Ok(index) => {
                let peer = &mut self.list[index];
                if peer.contact != contact {
                    peer.contact = contact;
                    peer.versions = None;
                    peer.leaf_set_checked = None;
                    peer.knows_us = false;
                    peer.races = 0;
                    peer.clock = None;
                    peer.since = now;
                }
                index
            }
            Err(index) => {
                let estimate = Estimate::default();
                let peer = Peer {
                    contact,
                    estimate,
                    versions: None,
                    leaf_set_checked: None,
                    since: now,
                    heard: now,
                    knows_us: false,
                    races: 0,
                    clock: None,
                    is_member: false,
                };
                if self.list.len() == self.list.capacity() {
                    // Tables grow slowly and there may be many nodes in one process: no doubling.
                    self.list.reserve_exact(16);
                    self.ids.reserve_exact(16);
                }
                self.ids.insert(index, contact.id);
                self.list.insert(index, peer);
                index
            }
        };
        self.list[index].heard = now;
        &mut self.list[index]
    }

    pub(super) fn remove(&mut self, id: Id) -> Option<Peer> {
        self.trust(id);
        let index = self.index(id).ok()?;
        self.ids.remove(index);
        Some(self.list.remove(index))
    }

    /// Routes around a peer from now on; whether that is new.
    pub(super) fn suspect(&mut self, id: Id) -> bool {
        match (self.suspected.binary_search(&id), self.index(id)) {
            (Err(at), Ok(_)) => {
                self.suspected.insert(at, id);
                true
            }
            _ => false,
        }
    }

    /// Routes through a peer again; whether it was suspected.
    pub(super) fn trust(&mut self, id: Id) -> bool {
        let at = self.suspected.binary_search(&id);
        at.map(|at| self.suspected.remove(at)).is_ok()
    }

    pub(super) fn get(&self, id: Id) -> Option<&Peer> {
        self.index(id).ok().map(|index| &self.list[index])
    }

    pub(super) fn get_mut(&mut self, id: Id) -> Option<&mut Peer> {
        self.index(id).ok().map(|index| &mut self.list[index])
    }

    pub(super) fn suspected(&self) -> &[Id] {
        &self.suspected
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Peer> {
        self.list.iter()
    }

    pub(super) fn ids(&self) -> impl Iterator<Item = Id> + '_ {
        self.ids.iter().copied()
    }

    pub(super) fn len(&self) -> usize {
        self.list.len()
    }

    fn index(&self, id: Id) -> Result<usize, usize> {
        self.ids.binary_search(&id)
    }
}
