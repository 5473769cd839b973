//! The tables as the application sees them: changes of the leaf set, the status page, replicas and owned keys.

use super::{SIDES, Step, Tables};
use crate::id::Id;
use crate::pastry::contact::Contact;
use crate::pastry::{CellStatus, Event, KeyRange, PeerStatus, Tables as Status};
use crate::ring::Side;

impl Tables {
    /// The change of the leaf set since the last call, if there is one (N-9, PA-38).
    pub(in crate::pastry) fn take_leaf_set_change(&mut self) -> Option<Event> {
        if core::mem::replace(&mut self.is_shown, true) {
            return None;
        }
        let mut members: Vec<Contact> = self.leaf_set.members().filter_map(|id| self.contact(id)).collect();
        members.sort_unstable_by_key(|contact| contact.id);
        let shown = core::mem::replace(&mut self.shown, members);
        let missing_in = |list: &[Contact], of: &[Contact]| -> Vec<Contact> {
            of.iter().filter(|contact| !list.contains(contact)).copied().collect()
        };
        let (added, removed) = (missing_in(&shown, &self.shown), missing_in(&self.shown, &shown));
        if added.is_empty() && removed.is_empty() {
            return None;
        }
        let side = |side| self.leaf_set.side(side).iter().filter_map(|&id| self.contact(id)).collect();
        Some(Event::LeafSetChanged {
            clockwise: side(Side::Clockwise),
            counter_clockwise: side(Side::CounterClockwise),
            added,
            removed,
        })
    }

    /// All tables, for people.
    pub(in crate::pastry) fn status(&self, own: Contact, active: bool) -> Status {
        let status = |id: Id| {
            let peer = self.peer(id)?;
            let rtt_micros = Some(peer.rtt.score().0).filter(|&rtt| rtt != u32::MAX);
            let suspected = self.is_avoided(id);
            Some(PeerStatus { contact: peer.contact, rtt_micros, suspected })
        };
        let side = |side| self.leaf_set.side(side).iter().filter_map(|&id| status(id)).collect();
        let cells = self.routing_table.cells().iter().filter_map(|cell| {
            Some(CellStatus { row: cell.at.row, column: cell.at.column, peer: status(cell.id)? })
        });
        Status {
            own,
            active,
            versions: self.versions(),
            clockwise: side(Side::Clockwise),
            counter_clockwise: side(Side::CounterClockwise),
            cells: cells.collect(),
            neighbourhood: self.neighbourhood.members().filter_map(status).collect(),
        }
    }

    /// The `count` nodes closest to a key, closest first, nodes that are away left out; `None` if the leaf set does not
    /// reach as far.
    pub(in crate::pastry) fn replicas(&self, own: Contact, key: Id, count: usize) -> Option<Vec<Contact>> {
        let usable = |id: &Id| !self.away().contains(id);
        let mut nodes: Vec<Id> = self.leaf_set.members().filter(usable).chain([self.own]).collect();
        // PA-2: at equal distance the node counter-clockwise of the key comes first.
        nodes.sort_unstable_by_key(|id| (key.distance(*id), id.clockwise_to(key)));
        let is_extreme = |id: &Id| SIDES.iter().any(|&side| self.leaf_set.furthest(side) == Some(*id));
        let chosen = &nodes[..count.min(nodes.len())];
        // No node beyond an extreme is closer than the extreme. If the extreme is not chosen, no unknown node would be.
        let reaches = self.leaf_set.knows_ring()
            || (self.leaf_set.covers(key) && chosen.len() == count && !chosen.iter().any(is_extreme));
        let contact = |id: &Id| if *id == self.own { Some(own) } else { self.contact(*id) };
        reaches.then(|| chosen.iter().filter_map(contact).collect())
    }

    /// The keys that this node owns: from half the distance to the node before it to half the distance to the next one.
    pub(in crate::pastry) fn owned_range(&self) -> KeyRange {
        let nearest =
            |side: Side| self.leaf_set.side(side).iter().copied().find(|id| !self.away().contains(id));
        let (Some(before), Some(after)) = (nearest(Side::CounterClockwise), nearest(Side::Clockwise)) else {
            return KeyRange { first: self.own, last: Id::new(self.own.number().wrapping_sub(1)) };
        };
        // PA-2: at equal distance the node counter-clockwise of the key owns it.
        let behind = before.clockwise_to(self.own);
        let ahead = self.own.clockwise_to(after);
        let first = Id::new(before.number().wrapping_add(behind / 2).wrapping_add(1));
        let last = Id::new(self.own.number().wrapping_add(ahead / 2));
        KeyRange { first, last }
    }

    /// The node that a message to `key` would go to now; `None` if this node owns the key.
    pub(in crate::pastry) fn towards(&self, key: Id) -> Option<Contact> {
        match self.next_hop(key, &[], None) {
            Step::Deliver => None,
            Step::Forward { to, .. } | Step::Blocked { by: to } => self.contact(to),
        }
    }
}
