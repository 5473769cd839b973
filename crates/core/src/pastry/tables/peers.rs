//! The peers: every node that has an entry in a table, and what is known of it.
//!
//! A node is inserted only after contact: it sent a message to this node, or answered a probe (PA-14). A contact that
//! others name is probed first. So a peer that invents nodes cannot fill the tables.

use super::rtt::Rtt;
use crate::id::Id;
use crate::pastry::contact::{Contact, Versions};

/// A node with an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::pastry) struct Peer {
    pub(in crate::pastry) contact: Contact,
    pub(in crate::pastry) rtt: Rtt,
    /// Its tables as they were last seen; `None` of a node that never sent any (PA-25).
    pub(in crate::pastry) versions: Option<Versions>,
    /// The digest of its leaf set that had no node missing in ours.
    pub(in crate::pastry) leaf_set_checked: Option<u32>,
    /// Whether it knows this node: it welcomed an announcement, or announced itself.
    pub(in crate::pastry) knows_us: bool,
    /// How often it warned of a race in this node's join (PA-23).
    pub(in crate::pastry) races: u8,
    /// Whether `members` watches it, and so will report its failure.
    pub(in crate::pastry) is_member: bool,
}

/// The peers, by id.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Peers {
    /// In an array of its own, because every message looks up a node.
    ids: Vec<Id>,
    list: Vec<Peer>,
    /// Nodes that may have failed, by id: messages for them are deferred until a probe decides.
    suspected: Vec<Id>,
    /// Nodes that do not answer, by id: messages for them go to the next closest node.
    away: Vec<Id>,
}

impl Peers {
    /// Adds a peer, or renews its address and generation.
    pub(super) fn insert(&mut self, contact: Contact) -> &mut Peer {
        let index = match self.index(contact.id) {
            Ok(index) => {
                let peer = &mut self.list[index];
                if peer.contact != contact {
                    peer.contact = contact;
                    peer.versions = None;
                    peer.leaf_set_checked = None;
                    peer.knows_us = false;
                    peer.races = 0;
                }
                index
            }
            Err(index) => {
                let peer = Peer {
                    contact,
                    rtt: Rtt::default(),
                    versions: None,
                    leaf_set_checked: None,
                    knows_us: false,
                    races: 0,
                    is_member: false,
                };
                if self.list.len() == self.list.capacity() {
                    // Tables grow slowly, and one process may have many nodes: no doubling.
                    self.list.reserve_exact(16);
                    self.ids.reserve_exact(16);
                }
                self.ids.insert(index, contact.id);
                self.list.insert(index, peer);
                index
            }
        };
        &mut self.list[index]
    }

    pub(super) fn remove(&mut self, id: Id) -> Option<Peer> {
        self.clear(id);
        let index = self.index(id).ok()?;
        self.ids.remove(index);
        Some(self.list.remove(index))
    }

    /// Suspects a peer. Returns whether that is new. A node that is away stays away.
    pub(super) fn suspect(&mut self, id: Id) -> bool {
        match (self.suspected.binary_search(&id), self.index(id)) {
            (Err(at), Ok(_)) if self.away.binary_search(&id).is_err() => {
                self.suspected.insert(at, id);
                true
            }
            _ => false,
        }
    }

    /// Marks a peer as away. Returns whether that is new.
    pub(super) fn set_away(&mut self, id: Id) -> bool {
        match (self.away.binary_search(&id), self.index(id)) {
            (Err(at), Ok(_)) => {
                self.clear(id);
                self.away.insert(at, id);
                true
            }
            _ => false,
        }
    }

    /// Clears a peer. Returns whether it was suspected or away.
    pub(super) fn clear(&mut self, id: Id) -> bool {
        let lists = [&mut self.suspected, &mut self.away];
        lists.into_iter().fold(false, |was, list| {
            let at = list.binary_search(&id);
            at.map(|at| list.remove(at)).is_ok() || was
        })
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

    pub(super) fn away(&self) -> &[Id] {
        &self.away
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Peer> {
        self.list.iter()
    }

    pub(super) fn len(&self) -> usize {
        self.list.len()
    }

    fn index(&self, id: Id) -> Result<usize, usize> {
        self.ids.binary_search(&id)
    }
}
