//! The routing decision: where a message goes next (P-20 … P-26). It compares ids only (P-3), allocates nothing, and
//! every step leads closer to the key.

use super::leaf_set::LeafSet;
use super::routing_table::{Position, RoutingTable};
use crate::id::Id;
use crate::rng::Rng;

/// The next step of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// This node is the closest there is (P-26).
    Deliver,
    /// Another node is closer.
    Forward {
        /// The node.
        to: Id,
        /// Whether that node is the closest there is, as far as the leaf set knows (P-22).
        last: bool,
    },
    /// The node that is to deliver it, or every node on the path to it, is to be avoided.
    Blocked {
        /// The node that it would go to.
        by: Id,
    },
}

/// Nodes that a message is not to go through.
#[derive(Clone, Copy, Debug, Default)]
pub struct Avoid<'a> {
    /// Nodes that did not acknowledge; a probe decides whether they live. A message for one of them is deferred.
    pub suspected: &'a [Id],
    /// Nodes that do not answer (PD-4): the next closest node owns their keys.
    pub away: &'a [Id],
    /// Nodes that certainly did not take this message.
    pub tried: &'a [Id],
    /// The joiner, while its own join is routed (PA-21): it is ignored, and so are the nodes above. A join may end at
    /// the next best node, and two adjacent joiners must not wait for each other.
    pub absent: Option<Id>,
}

impl Avoid<'_> {
    fn has(&self, id: Id) -> bool {
        self.is_absent(id) || self.tried.contains(&id) || self.suspected.contains(&id)
    }

    /// Whether the node counts as one that does not exist.
    fn is_absent(&self, id: Id) -> bool {
        self.absent == Some(id) || self.away.contains(&id)
    }

    fn is_empty(&self) -> bool {
        self.suspected.is_empty() && self.away.is_empty() && self.tried.is_empty() && self.absent.is_none()
    }
}

/// The tables that decide.
#[derive(Clone, Copy)]
pub(super) struct Decider<'a> {
    pub(super) own: Id,
    pub(super) leaf_set: &'a LeafSet,
    pub(super) routing_table: &'a RoutingTable,
}

impl Decider<'_> {
    /// The next step towards `key`.
    pub(super) fn decide(&self, key: Id, avoid: Avoid<'_>) -> Step {
        if self.leaf_set.covers(key) {
            return self.within_leaf_set(key, avoid);
        }
        let at = self.wanted(key);
        match self.routing_table.cell(at) {
            Some(cell) if avoid.is_empty() || !avoid.has(cell.id) => {
                Step::Forward { to: cell.id, last: false }
            }
            _ => self.rare_case(key, at, avoid),
        }
    }

    /// A next step chosen at random among all that lead closer (PA-7a). A retry takes it, to avoid a node that drops
    /// messages.
    pub(super) fn decide_randomly(&self, key: Id, avoid: Avoid<'_>, rng: &mut Rng) -> Step {
        if self.leaf_set.covers(key) {
            return self.within_leaf_set(key, avoid);
        }
        let mut chosen = None;
        let mut seen = 0;
        for id in self.closer(key, self.wanted(key)).filter(|&id| !avoid.has(id)) {
            seen += 1;
            if rng.below(seen) == 0 {
                chosen = Some(id);
            }
        }
        match chosen {
            Some(to) => Step::Forward { to, last: false },
            None => self.decide(key, avoid),
        }
    }

    /// P-22: the key is within the leaf set, so the closest node is known.
    fn within_leaf_set(&self, key: Id, avoid: Avoid<'_>) -> Step {
        let best = match avoid {
            // PA-21: a join ends at the next best node.
            Avoid { absent: Some(_), .. } => self.closest_without(key, |id| avoid.has(id)),
            Avoid { away: [_, ..], .. } => self.closest_without(key, |id| avoid.is_absent(id)),
            _ => self.leaf_set.closest(key),
        };
        if best == self.own {
            Step::Deliver
        } else if avoid.has(best) {
            Step::Blocked { by: best }
        } else {
            Step::Forward { to: best, last: true }
        }
    }

    fn closest_without(&self, key: Id, left_out: impl Fn(Id) -> bool) -> Id {
        let nodes = self.leaf_set.members().filter(|&id| !left_out(id));
        key.closest(nodes.chain([self.own])).expect("the own id is among them")
    }

    /// P-24, P-25: no node has one more digit in common. The numerically closest of all that share as many and are
    /// closer than we are (PA-6, PA-7), the leaf set included (PA-8).
    fn rare_case(&self, key: Id, at: Position, avoid: Avoid<'_>) -> Step {
        let best = key.closest(self.closer(key, at).filter(|&id| !avoid.has(id)));
        if let Some(to) = best {
            return Step::Forward { to, last: false };
        }
        // All of them are avoided, or there is none. A suspected node is better than nothing.
        let untried = |&id: &Id| !avoid.is_absent(id) && !avoid.tried.contains(&id);
        if let Some(to) = key.closest(self.closer(key, at).filter(untried)) {
            return Step::Forward { to, last: false };
        }
        match key.closest(self.closer(key, at).filter(|&id| avoid.absent != Some(id))) {
            Some(by) => Step::Blocked { by },
            None => Step::Deliver,
        }
    }

    /// The position of the table that would bring the message one digit closer (P-23).
    fn wanted(&self, key: Id) -> Position {
        let base = self.routing_table.base();
        let row = self.own.common_prefix(key, base);
        Position { row: row as u8, column: key.digit(base, row) }
    }

    /// Every known node that a message may go to. It shares more digits with the key than this node does, or as many
    /// and is numerically closer (N-3). So each step makes progress, and no two steps can undo each other.
    fn closer(&self, key: Id, at: Position) -> impl Iterator<Item = Id> + '_ {
        let (own, base) = (self.own, self.routing_table.base());
        let rows = self.routing_table.from_row(at.row).iter().map(|cell| cell.id);
        rows.chain(self.leaf_set.members()).filter(move |&id| {
            let shared = id.common_prefix(key, base);
            shared > u32::from(at.row) || (shared == u32::from(at.row) && key.is_closer(id, own))
        })
    }
}

#[cfg(test)]
#[path = "next_hop_tests.rs"]
mod tests;
