//! Removed nodes: the report of a removal to the other parts, and the recently removed nodes.

use core::time::Duration;

use super::Position;
use crate::id::Id;
use crate::pastry::contact::Contact;
use crate::time::Instant;

/// How long claims of others about a removed node are ignored.
const REMOVED_KEPT: Duration = Duration::from_secs(60);
/// The most removed nodes remembered. For one more the oldest is forgotten.
const REMOVED_MAX: usize = 256;

/// A node that was removed from the tables, and its former entries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::pastry) struct Removed {
    pub(in crate::pastry) contact: Contact,
    /// Whether it was on each side of the leaf set, in the order of `SIDES`.
    pub(in crate::pastry) sides: [bool; 2],
    /// Known nodes that fit into the leaf set now.
    pub(in crate::pastry) candidates: Vec<Contact>,
    /// The cell of the routing table that is empty now.
    pub(in crate::pastry) empty_cell: Option<Position>,
    pub(in crate::pastry) was_neighbour: bool,
}

/// Recently removed nodes: claims of others about them are ignored for a while.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct RecentlyRemoved {
    list: Vec<(Contact, Instant)>,
}

impl RecentlyRemoved {
    pub(super) fn insert(&mut self, contact: &Contact, now: Instant) {
        self.remove(contact.id);
        if self.list.len() >= REMOVED_MAX {
            self.list.remove(0);
        }
        self.list.push((*contact, now + REMOVED_KEPT));
    }

    pub(super) fn remove(&mut self, id: Id) {
        self.list.retain(|(gone, _)| gone.id != id);
    }

    pub(super) fn has(&self, contact: &Contact, now: Instant) -> bool {
        let is_it = |gone: &Contact| gone.id == contact.id && gone.addr == contact.addr;
        self.list
            .iter()
            .any(|(gone, until)| is_it(gone) && contact.generation <= gone.generation && now < *until)
    }
}
