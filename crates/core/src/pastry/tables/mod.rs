//! The tables of a node: their entries, the nodes to avoid for now, and the recently removed nodes.
//!
//! This part does not call the parts above it. It decides by ids and measured round-trip times which node gets an entry
//! (P-12, P-14, P-18), and where a message goes next (`next_hop.rs`). It reports changes as return values.

mod leaf_set;
mod neighbourhood;
mod next_hop;
mod peers;
mod proximity;
mod removed;
mod routing_table;
mod rtt;
mod status;

use core::time::Duration;

pub use leaf_set::LeafSet;
pub use neighbourhood::Neighbourhood;
pub use next_hop::{Avoid, Step};
pub use proximity::Score;
pub use routing_table::{Cell, Position, RoutingTable};
pub use rtt::Rtt;

pub(super) use peers::Peer;
pub(super) use removed::Removed;

use next_hop::Decider;
use peers::Peers;
use proximity::ProximityCache;
use removed::RecentlyRemoved;

use super::config::{Config, Liveness};
use super::contact::{Contact, Versions};
use super::message::{TablesSent, Wanted};
use crate::id::Id;
use crate::ring::Side;
use crate::rng::Rng;
use crate::time::Instant;

pub(super) const SIDES: [Side; 2] = [Side::Clockwise, Side::CounterClockwise];
/// How long an entry is kept before another node may replace it again (PA-30).
const ENTRY_KEPT: Duration = Duration::from_secs(60);
/// The longest acknowledgement timeout (PD-3).
const ACK_TIMEOUT_MAX: Duration = Duration::from_secs(1);
/// The acknowledgement timeout of a node that was never measured (PD-3).
const ACK_TIMEOUT_UNMEASURED: Duration = Duration::from_millis(500);

/// How useful a node must be to get a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Interest {
    /// It fits into the leaf set or an empty slot.
    EmptySlot,
    /// The same, or it may be nearer than a node in the routing table or the neighbourhood set (P-12, P-33a).
    Nearer,
}

/// The result of an insertion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Inserted {
    /// Whether it is new in the leaf set.
    pub(super) new_leaf: bool,
    /// Whether it has an entry, and its distance was never measured.
    pub(super) unmeasured: bool,
    /// Whether messages avoided it until now.
    pub(super) recovered: bool,
}

/// Another node is known under this id, in a generation that is not older, at another address (PA-22).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct IdConflict(pub(super) Contact);

/// All tables of a node.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Tables {
    own: Id,
    liveness: Liveness,
    ack_timeout_min: Duration,
    peers: Peers,
    leaf_set: LeafSet,
    routing_table: RoutingTable,
    neighbourhood: Neighbourhood,
    proximity: ProximityCache,
    removed: RecentlyRemoved,
    /// Whether any nearer node takes a cell: while the node joins and improves its table (PA-30).
    is_filling: bool,
    /// The leaf set as the application last got it, by id.
    shown: Vec<Contact>,
    /// Whether it may have changed since.
    is_shown: bool,
}

impl Tables {
    pub(super) fn new(config: &Config) -> Self {
        Self {
            own: config.id,
            liveness: config.liveness,
            ack_timeout_min: config.ack_timeout_min,
            peers: Peers::default(),
            leaf_set: LeafSet::new(config.id, config.side_max()),
            routing_table: RoutingTable::new(config.id, config.base),
            neighbourhood: Neighbourhood::new(config.neighbourhood_max),
            proximity: ProximityCache::new(config.proximities_max, config.proximity_lifetime),
            removed: RecentlyRemoved::default(),
            is_filling: true,
            shown: Vec::new(),
            is_shown: true,
        }
    }

    /// Inserts the sender of a message, or a node that answered after `sample`, into every table where it belongs.
    pub(super) fn insert(
        &mut self,
        now: Instant,
        contact: Contact,
        sample: Option<Duration>,
    ) -> Result<Inserted, IdConflict> {
        if let Some(known) = self.contact(contact.id)
            && known.addr != contact.addr
            && known.generation >= contact.generation
            && self.liveness == Liveness::Own
        {
            return Err(IdConflict(known));
        }
        let has_changed = self.contact(contact.id).is_some_and(|known| known != contact);
        self.removed.remove(contact.id);
        let score = self.measured(now, contact.id, sample);
        let extremes = SIDES.map(|side| self.leaf_set.furthest(side));
        let new_leaf = self.leaf_set.insert(contact.id);
        let replaced = self.insert_in_table(now, contact.id, score);
        let crowded_out =
            (score != Score::UNKNOWN).then(|| self.neighbourhood.insert(contact.id, score)).flatten();
        self.is_shown &= !(new_leaf || (has_changed && self.leaf_set.contains(contact.id)));
        let mut recovered = false;
        let has_entry = self.has_entry(contact.id);
        if has_entry {
            let peer = self.peers.insert(contact);
            if let Some(sample) = sample {
                peer.rtt.add(sample);
            }
            if sample.is_some() || has_changed {
                recovered = self.peers.clear(contact.id);
            }
        }
        for id in extremes.into_iter().flatten().chain(replaced).chain(crowded_out) {
            if !self.has_entry(id) {
                self.peers.remove(id);
            }
        }
        Ok(Inserted { new_leaf, unmeasured: has_entry && score == Score::UNKNOWN, recovered })
    }

    /// Removes a node from all tables. A known node that fits its cell takes the cell at once. Those that fit the leaf
    /// set are returned, to be probed. A side of the leaf set is never left empty: this node would own every key on
    /// that side.
    pub(super) fn remove(&mut self, now: Instant, id: Id) -> Option<Removed> {
        let contact = self.peers.remove(id)?.contact;
        self.mark_removed(now, &contact);
        let sides = SIDES.map(|side| self.leaf_set.side(side).contains(&id));
        let was_leaf = self.leaf_set.remove(id);
        self.is_shown &= !was_leaf;
        let candidates = if was_leaf { self.leaf_candidates() } else { Vec::new() };
        if SIDES.into_iter().any(|side| self.leaf_set.side(side).is_empty()) {
            candidates.iter().for_each(|contact| {
                self.leaf_set.insert(contact.id);
            });
        }
        let empty_cell = self.vacate_cell(id);
        let was_neighbour = self.neighbourhood.remove(id);
        Some(Removed { contact, sides, candidates, empty_cell, was_neighbour })
    }

    /// Ignores for a while what others claim about a node that does not answer.
    pub(super) fn mark_removed(&mut self, now: Instant, contact: &Contact) {
        self.proximity.remove(contact.id);
        self.removed.insert(contact, now);
    }

    /// Ends that: contacts that others name count again.
    pub(super) fn unmark_removed(&mut self, id: Id) {
        self.removed.remove(id);
    }

    /// Defers messages for a node until a probe decides whether it is alive. Returns whether that is new.
    pub(super) fn suspect(&mut self, id: Id) -> bool {
        self.peers.suspect(id)
    }

    /// Moves messages for a node to the next closest one, but keeps its entries (PD-4). Returns whether that is new.
    pub(super) fn set_away(&mut self, id: Id) -> bool {
        self.peers.set_away(id)
    }

    /// Clears the suspicion of a node. Returns whether messages avoided it until now.
    pub(super) fn clear_suspicion(&mut self, id: Id) -> bool {
        self.peers.clear(id)
    }

    /// Takes a round-trip time that an acknowledgement shows (P-5).
    pub(super) fn add_sample(&mut self, id: Id, sample: Duration) {
        if let Some(peer) = self.peers.get_mut(id) {
            peer.rtt.add(sample);
        }
    }

    /// Backs off: a node did not acknowledge in time, so its timeout grows until the next sample.
    pub(super) fn back_off(&mut self, id: Id) {
        if let Some(peer) = self.peers.get_mut(id) {
            peer.rtt.back_off();
        }
    }

    /// Caches a round-trip time of a node that has no entry.
    pub(super) fn remember_distance(&mut self, now: Instant, id: Id, rtt: Duration) {
        let mut estimate = Rtt::default();
        estimate.add(rtt);
        self.proximity.put(id, estimate.score(), now);
    }

    pub(super) fn forget_old_distances(&mut self, now: Instant) {
        self.proximity.sweep(now);
    }

    pub(super) fn set_filling(&mut self, is_filling: bool) {
        self.is_filling = is_filling;
    }

    pub(super) fn peer_mut(&mut self, id: Id) -> Option<&mut Peer> {
        self.peers.get_mut(id)
    }

    pub(super) fn peer(&self, id: Id) -> Option<&Peer> {
        self.peers.get(id)
    }

    pub(super) fn peers(&self) -> impl Iterator<Item = &Peer> {
        self.peers.iter()
    }

    pub(super) fn peer_at(&self, addr: std::net::SocketAddr) -> Option<Contact> {
        self.peers.iter().map(|peer| peer.contact).find(|contact| contact.addr == addr)
    }

    pub(super) fn len(&self) -> usize {
        self.peers.len()
    }

    pub(super) fn contact(&self, id: Id) -> Option<Contact> {
        self.peers.get(id).map(|peer| peer.contact)
    }

    pub(super) fn leaf_set(&self) -> &LeafSet {
        &self.leaf_set
    }

    pub(super) fn routing_table(&self) -> &RoutingTable {
        &self.routing_table
    }

    pub(super) fn neighbourhood(&self) -> &Neighbourhood {
        &self.neighbourhood
    }

    pub(super) fn suspected(&self) -> &[Id] {
        self.peers.suspected()
    }

    pub(super) fn away(&self) -> &[Id] {
        self.peers.away()
    }

    /// Whether messages avoid a node.
    pub(super) fn is_avoided(&self, id: Id) -> bool {
        self.peers.suspected().contains(&id) || self.peers.away().contains(&id)
    }

    /// The acknowledgement timeout of a node (PD-3).
    pub(super) fn ack_timeout(&self, id: Id) -> Duration {
        self.ack_timeout_of(self.peers.get(id).map_or_else(Rtt::default, |peer| peer.rtt))
    }

    /// The acknowledgement timeout of a node with this round-trip time.
    pub(super) fn ack_timeout_of(&self, rtt: Rtt) -> Duration {
        let measured = rtt.timeout().unwrap_or(ACK_TIMEOUT_UNMEASURED);
        measured.min(ACK_TIMEOUT_MAX).max(self.ack_timeout_min)
    }

    /// The next step of a message to `key`.
    pub(super) fn next_hop(&self, key: Id, tried: &[Id], absent: Option<Id>) -> Step {
        self.decider().decide(key, self.avoid(tried, absent))
    }

    /// The same, at random among the nodes that lead closer (PA-7a).
    pub(super) fn next_hop_at_random(
        &self,
        key: Id,
        tried: &[Id],
        absent: Option<Id>,
        rng: &mut Rng,
    ) -> Step {
        self.decider().decide_randomly(key, self.avoid(tried, absent), rng)
    }

    /// Whether a contact that others named is worth a probe (P-32). `estimate` is its estimated distance.
    pub(super) fn is_useful(
        &self,
        now: Instant,
        contact: &Contact,
        interest: Interest,
        estimate: Option<Score>,
    ) -> bool {
        if contact.id == self.own || self.removed.has(contact, now) {
            return false;
        }
        if let Some(peer) = self.peers.get(contact.id) {
            return contact.generation > peer.contact.generation;
        }
        if self.leaf_set.would_take(contact.id) {
            return true;
        }
        let cell = self.routing_table.position(contact.id).and_then(|at| self.routing_table.cell(at));
        let Some(cell) = cell else { return true };
        if interest == Interest::EmptySlot {
            return false;
        }
        // P-32: the cache is read before any node is probed.
        let score = self.proximity.score(contact.id, now).or(estimate);
        score.is_none_or(|score| score < self.score(cell.id) || self.neighbourhood.would_take(score))
    }

    pub(super) fn versions(&self) -> Versions {
        Versions {
            leaf_set: self.leaf_set.version(),
            routing_table: self.routing_table.version(),
            neighbourhood: self.neighbourhood.version(),
        }
    }

    /// The nearest nodes of each row, and of the neighbourhood set: their tables resemble this node's.
    pub(super) fn nearest_of_rows(&self, per_row: usize, neighbours: usize) -> Vec<Id> {
        let mut nearest: Vec<Id> = self.neighbourhood.members().take(neighbours).collect();
        let rows = self.routing_table.cells().last().map_or(0, |cell| cell.at.row + 1);
        for row in 0..rows {
            let mut cells: Vec<(Score, Id)> =
                self.routing_table.row(row).iter().map(|cell| (self.score(cell.id), cell.id)).collect();
            cells.sort_unstable();
            let chosen = cells.into_iter().map(|(_, id)| id).filter(|id| !nearest.contains(id));
            let chosen: Vec<Id> = chosen.take(per_row).collect();
            nearest.extend(chosen);
        }
        nearest
    }

    /// The distance of a node with an entry.
    pub(super) fn distance(&self, id: Id) -> Option<Score> {
        Some(self.score(id)).filter(|score| *score != Score::UNKNOWN)
    }

    /// The rows in which every entry has a place in the table of `id` as well (PA-15).
    pub(super) fn rows_for(&self, id: Id) -> u128 {
        let shared = self.own.common_prefix(id, self.routing_table.base());
        u128::MAX >> (127 - shared.min(127))
    }

    /// The same from a row on; the last of them in any case.
    pub(super) fn rows_from(&self, id: Id, row: u8) -> u128 {
        let rows = self.rows_for(id);
        let last = 127 - rows.leading_zeros();
        rows & u128::MAX << last.min(row.into())
    }

    /// The requested parts of the tables.
    pub(super) fn part(&self, wanted: &Wanted) -> TablesSent {
        let contact = |id: Id| self.contact(id);
        let mut sent = TablesSent::default();
        if wanted.leaf_set {
            sent.leaf_set = self.leaf_set.members().filter_map(contact).collect();
        }
        if wanted.neighbourhood {
            sent.neighbourhood = self.neighbourhood.members().filter_map(contact).collect();
        }
        let in_row = |row: u8| wanted.rows.checked_shr(u32::from(row)).is_some_and(|bits| bits & 1 == 1);
        let is_cell = |row, column| wanted.cell == Some((row, column));
        let cells = self.routing_table.cells().iter();
        sent.routing_table = cells
            .filter(|cell| in_row(cell.at.row) || is_cell(cell.at.row, cell.at.column))
            .filter_map(|cell| contact(cell.id))
            .collect();
        let measured = sent.routing_table.iter().chain(&sent.neighbourhood);
        sent.rtts_micros = measured.map(|contact| self.score(contact.id).0).collect();
        sent
    }

    fn decider(&self) -> Decider<'_> {
        Decider { own: self.own, leaf_set: &self.leaf_set, routing_table: &self.routing_table }
    }

    fn avoid<'a>(&'a self, tried: &'a [Id], absent: Option<Id>) -> Avoid<'a> {
        Avoid { suspected: self.peers.suspected(), away: self.peers.away(), tried, absent }
    }

    /// The score of a node, the new sample included.
    fn measured(&mut self, now: Instant, id: Id, sample: Option<Duration>) -> Score {
        let mut rtt = self.peers.get(id).map_or_else(Rtt::default, |peer| peer.rtt);
        let Some(sample) = sample else {
            let cached = || self.proximity.score(id, now).unwrap_or(Score::UNKNOWN);
            return if rtt.score() == Score::UNKNOWN { cached() } else { rtt.score() };
        };
        rtt.add(sample);
        self.proximity.put(id, rtt.score(), now);
        rtt.score()
    }

    /// Inserts a node into its cell if that is empty or has a node that is further away (P-12). Returns the node that
    /// was replaced.
    fn insert_in_table(&mut self, now: Instant, id: Id, score: Score) -> Option<Id> {
        let Some(&cell) = self.routing_table.position(id).and_then(|at| self.routing_table.cell(at)) else {
            self.routing_table.insert(id);
            return None;
        };
        if cell.id == id {
            return None;
        }
        let holder = self.score(cell.id);
        // PA-30: while the table is being filled, any nearer node is taken. Later a clearly nearer one is taken, or any
        // nearer one if the entry is a minute old.
        let settled = cell.replaced.is_none_or(|at| now.since(at) >= ENTRY_KEPT);
        let better = score < holder && (self.is_filling || settled || score.is_clearly_better_than(holder));
        if better { self.routing_table.replace(id, now) } else { None }
    }

    /// Known nodes that the leaf set would take.
    fn leaf_candidates(&self) -> Vec<Contact> {
        let known = self.peers.iter().map(|peer| peer.contact);
        known.filter(|contact| self.leaf_set.would_take(contact.id)).collect()
    }

    /// Empties the cell of a node, or gives it to the nearest known node that fits. Returns the cell if it is empty
    /// now.
    fn vacate_cell(&mut self, id: Id) -> Option<Position> {
        let at = self.routing_table.remove(id)?;
        let fits = self.peers.iter().filter(|peer| self.routing_table.position(peer.contact.id) == Some(at));
        match fits.min_by_key(|peer| peer.rtt.score()).map(|peer| peer.contact.id) {
            Some(known) => {
                self.routing_table.insert(known);
                None
            }
            None => Some(at),
        }
    }

    fn score(&self, id: Id) -> Score {
        self.peers.get(id).map_or(Score::UNKNOWN, |peer| peer.rtt.score())
    }

    fn has_entry(&self, id: Id) -> bool {
        self.leaf_set.contains(id) || self.routing_table.contains(id) || self.neighbourhood.contains(id)
    }
}
