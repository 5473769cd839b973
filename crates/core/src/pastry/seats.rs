//! Seats: who gets into the tables and who loses its place.

use core::time::Duration;

use super::Event;
use super::config::Liveness;
use super::contact::Contact;
use super::machine::{Out, Pastry};
use super::message::{Message, TablesSent, Wanted};
use super::probes::Ground;
use super::proximity::{Estimate, Score};
use super::relays::Held;
use crate::id::Id;
use crate::ring::Side;
use crate::time::{Instant, Now};

const SIDES: [Side; 2] = [Side::Clockwise, Side::CounterClockwise];
/// How long a seat is kept before it changes hands again (PA-30).
const SEAT_KEPT: Duration = Duration::from_secs(60);
/// How long a node that is gone is not asked again because of hearsay.
const DEPARTED_KEPT: Duration = Duration::from_secs(60);
/// The most nodes that are gone and remembered so. For one more the oldest is forgotten.
const DEPARTED_MAX: usize = 256;
/// How long the repair of the neighbourhood set waits for further losses.
const NEIGHBOURHOOD_PAUSE: Duration = Duration::from_secs(10);

/// How much a node heard of must promise to be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Interest {
    /// A leaf seat, or an empty cell.
    Gap,
    /// Also a cell that is taken, or a place in the neighbourhood set (P-12, P-33a).
    Nearer,
}

/// Why a node loses its seats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    /// It does not answer.
    Failed,
    /// It said goodbye.
    Left,
}

/// Nodes that are gone: what others say of them does not count for a while.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Departed {
    list: Vec<(Contact, Instant)>,
}

impl Departed {
    fn insert(&mut self, contact: &Contact, now: Instant) {
        self.remove(contact.id);
        if self.list.len() >= DEPARTED_MAX {
            self.list.remove(0);
        }
        self.list.push((*contact, now + DEPARTED_KEPT));
    }

    pub(super) fn remove(&mut self, id: Id) {
        self.list.retain(|(gone, _)| gone.id != id);
    }

    /// Whether one of them would own the key if it were there.
    pub(super) fn owned(&self, key: Id, own: Id, now: Instant) -> bool {
        self.list.iter().any(|(gone, until)| now < *until && key.is_closer(gone.id, own))
    }

    fn has(&self, contact: &Contact, now: Instant) -> bool {
        let is_it = |gone: &Contact| gone.id == contact.id && gone.addr == contact.addr;
        self.list
            .iter()
            .any(|(gone, until)| is_it(gone) && contact.incarnation <= gone.incarnation && now < *until)
    }
}

impl Pastry {
    /// Hears of nodes: those that promise something are measured (P-32), and get a seat only if they answer (PA-14).
    pub(super) fn learn(&mut self, now: Now, contacts: &[Contact], interest: Interest) {
        for contact in contacts {
            if !self.is_interesting(now, contact, interest) {
                continue;
            }
            let leaf = self.leaf_set.would_take(contact.id);
            self.ask(*contact, leaf, Ground::Hearsay);
        }
    }

    fn is_interesting(&self, now: Now, contact: &Contact, interest: Interest) -> bool {
        if contact.id == self.own.id || self.departed.has(contact, now.mono) {
            return false;
        }
        if let Some(peer) = self.peers.get(contact.id) {
            return contact.incarnation > peer.contact.incarnation;
        }
        if self.leaf_set.would_take(contact.id) {
            return true;
        }
        let cell = self.routing_table.position(contact.id).and_then(|at| self.routing_table.cell(at));
        let Some(cell) = cell else { return true };
        if interest == Interest::Gap {
            return false;
        }
        // P-32: the cache is looked at before anybody is asked.
        self.cache
            .score(contact.id, now.mono)
            .is_none_or(|score| score < self.score(cell.id) || self.neighbourhood.would_take(score))
    }

    /// A node spoke to us, or answered after `sample`: it gets the seats it deserves. False if another one is known under
    /// its id, in a life that is not earlier: that is asked first whether it is still there (PA-22).
    pub(super) fn admit(
        &mut self,
        now: Now,
        contact: Contact,
        sample: Option<Duration>,
        out: Out<'_, '_>,
    ) -> bool {
        if contact.id == self.own.id {
            return false;
        }
        if let Some(known) = self.contact(contact.id)
            && known.addr != contact.addr
            && known.incarnation >= contact.incarnation
            && self.config.liveness == Liveness::Own
        {
            self.see_for_ourselves(now, known);
            return false;
        }
        self.departed.remove(contact.id);
        let score = self.measured(now, contact.id, sample);
        let extremes =
            [self.leaf_set.furthest(Side::Clockwise), self.leaf_set.furthest(Side::CounterClockwise)];
        let new_leaf = self.leaf_set.insert(contact.id);
        let replaced = self.seat_in_table(now, contact.id, score);
        let crowded_out =
            (score != Score::UNKNOWN).then(|| self.neighbourhood.insert(contact.id, score)).flatten();
        if self.has_seat(contact.id) {
            self.past.retain(|past| past.id != contact.id);
            let peer = self.peers.insert(contact, now.mono);
            if new_leaf {
                peer.since = now.mono;
            }
            if let Some(sample) = sample {
                peer.estimate.add(sample);
            }
            self.trust(now, contact.id, out);
        }
        for id in extremes.into_iter().flatten().chain(replaced).chain(crowded_out) {
            if !self.has_seat(id) {
                self.peers.remove(id);
            }
        }
        if new_leaf {
            self.introduce(now, contact.id, out);
        }
        if score == Score::UNKNOWN && !self.probes.is_pending(contact.id) {
            // It spoke first: its distance is still to be measured (P-32).
            self.ask(contact, false, Ground::Own);
        }
        true
    }

    /// The score of a node, the new sample included.
    fn measured(&mut self, now: Now, id: Id, sample: Option<Duration>) -> Score {
        let mut estimate = self.peers.get(id).map_or_else(Estimate::default, |peer| peer.estimate);
        let Some(sample) = sample else {
            let cached = || self.cache.score(id, now.mono).unwrap_or(Score::UNKNOWN);
            return if estimate.score() == Score::UNKNOWN { cached() } else { estimate.score() };
        };
        estimate.add(sample);
        self.cache.put(id, estimate.score(), now.mono);
        estimate.score()
    }

    /// Gives a node its cell if that is empty, or held by one that is further away (P-12); who lost it.
    fn seat_in_table(&mut self, now: Now, id: Id, score: Score) -> Option<Id> {
        let Some(&cell) = self.routing_table.position(id).and_then(|at| self.routing_table.cell(at)) else {
            self.routing_table.insert(id);
            return None;
        };
        if cell.id == id {
            return None;
        }
        let holder = self.score(cell.id);
        // While the table is being filled any nearer node is taken; later a clearly nearer one, or any if the seat has
        // not changed hands for a minute (PA-30).
        let filling = !self.join.is_active() || self.repairs.is_improving();
        let settled = cell.replaced.is_none_or(|at| now.mono.since(at) >= SEAT_KEPT);
        let better = score < holder && (filling || settled || score.is_clearly_better_than(holder));
        if better { self.routing_table.replace(id, now.mono) } else { None }
    }

    fn score(&self, id: Id) -> Score {
        self.peers.get(id).map_or(Score::UNKNOWN, |peer| peer.estimate.score())
    }

    fn has_seat(&self, id: Id) -> bool {
        self.leaf_set.contains(id) || self.routing_table.contains(id) || self.neighbourhood.contains(id)
    }

    /// A node is gone: it loses its seats, and they are filled anew (P-10, P-15, P-19).
    pub(super) fn dismiss(&mut self, now: Now, id: Id, cause: Cause, out: Out<'_, '_>) {
        self.probes.forget(id);
        let Some(peer) = self.peers.remove(id) else { return };
        let contact = peer.contact;
        self.cache.remove(id);
        self.departed.insert(&contact, now.mono);
        if cause == Cause::Failed {
            self.counters.peers_failed += 1;
            self.remember(contact);
            out.event(Event::PeerFailed { contact });
        } else {
            out.event(Event::PeerLeft { contact });
        }
        self.vacate_leaf_seat(now, id, cause, out);
        self.vacate_cell(now, id);
        if self.neighbourhood.remove(id) {
            self.repairs.lost_neighbour(now.mono + NEIGHBOURHOOD_PAUSE);
        }
        self.reroute_from(now, id, out);
        self.release(now, Held::UntilVerdict(id), out);
    }

    fn vacate_leaf_seat(&mut self, now: Now, id: Id, cause: Cause, out: Out<'_, '_>) {
        let sides = SIDES;
        let on = sides.map(|side| self.leaf_set.side(side).contains(&id));
        let was_next = sides.iter().any(|&side| self.leaf_set.nearest(side) == Some(id));
        if !self.leaf_set.remove(id) {
            return;
        }
        self.refill_leaf_set();
        for (side, _) in sides.into_iter().zip(on).filter(|(_, on)| *on) {
            self.repairs.lost_leaf(side, now.mono);
        }
        if was_next && cause == Cause::Failed && self.config.liveness == Liveness::Own {
            // Only the two neighbours tell the others, so that a failure is no storm.
            let leaves: Vec<Id> = self.leaf_set.members().collect();
            for leaf in leaves {
                self.send_to(now, leaf, &Message::Suspect { id }, out);
            }
        }
    }

    /// Whoever else is known is asked, and gets the seat if it answers (N-12). But a side is never left empty:
    /// everything that way would count as ours.
    fn refill_leaf_set(&mut self) {
        let is_bare = SIDES.into_iter().any(|side| self.leaf_set.side(side).is_empty());
        let known: Vec<Contact> = self.peers.iter().map(|peer| peer.contact).collect();
        for contact in known {
            if self.leaf_set.would_take(contact.id) {
                self.ask(contact, true, Ground::Own);
                if is_bare {
                    self.leaf_set.insert(contact.id);
                }
            }
        }
    }

    fn vacate_cell(&mut self, now: Now, id: Id) {
        let Some(at) = self.routing_table.remove(id) else { return };
        let fits = self.peers.iter().filter(|peer| self.routing_table.position(peer.contact.id) == Some(at));
        match fits.min_by_key(|peer| peer.estimate.score()).map(|peer| peer.contact.id) {
            Some(known) => {
                self.routing_table.insert(known);
            }
            None => self.repairs.lost_cell(at, now.mono),
        }
    }

    /// What others say of a node that did not answer does not count for a while.
    pub(super) fn bury(&mut self, contact: &Contact, now: Instant) {
        self.cache.remove(contact.id);
        self.departed.insert(contact, now);
    }

    /// Keeps a node in mind that was lost: perhaps a part of the ring was (PA-42).
    pub(super) fn remember(&mut self, contact: Contact) {
        self.past.retain(|past| past.id != contact.id);
        if self.past.len() >= self.config.past_max {
            self.past.pop_front();
        }
        if self.config.past_max > 0 {
            self.past.push_back(contact);
        }
    }

    /// Messages go through a node again.
    pub(super) fn trust(&mut self, now: Now, id: Id, out: Out<'_, '_>) {
        if self.peers.trust(id) {
            self.release(now, Held::UntilVerdict(id), out);
        }
    }

    /// Messages go around a node until it is known whether it lives, which is found out now.
    pub(super) fn suspect(&mut self, id: Id) {
        self.peers.suspect(id);
        if let Some(contact) = self.contact(id) {
            self.ask(contact, self.leaf_set.contains(id), Ground::Suspicion);
        }
    }

    /// Has a node asked whether it is there. `leaf` is whether a leaf seat depends on it.
    pub(super) fn ask(&mut self, contact: Contact, leaf: bool, ground: Ground) {
        if !self.probes.want(contact, leaf, ground) {
            self.counters.candidates_dropped += 1;
        }
    }

    /// Sends a message to a node with a seat.
    pub(super) fn send_to(&mut self, now: Now, id: Id, message: &Message, out: Out<'_, '_>) -> bool {
        let Some(addr) = self.peers.get(id).map(|peer| peer.contact.addr) else { return false };
        self.send(now, addr, message, out).is_some()
    }

    /// The parts of the tables that somebody wants.
    pub(super) fn tables_for(&self, wanted: &Wanted) -> TablesSent {
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
        sent
    }

    /// Tells the application of the leaf set, if it changed (N-9, PA-38).
    pub(super) fn show_leaf_set(&mut self, out: Out<'_, '_>) {
        if self.leaf_set.version() == self.shown_version {
            return;
        }
        self.shown_version = self.leaf_set.version();
        let mut members: Vec<Id> = self.leaf_set.members().collect();
        members.sort_unstable();
        let added: Vec<Id> =
            members.iter().filter(|id| self.shown.binary_search(id).is_err()).copied().collect();
        let removed: Vec<Id> =
            self.shown.iter().filter(|id| members.binary_search(id).is_err()).copied().collect();
        self.shown = members;
        if added.is_empty() && removed.is_empty() {
            return;
        }
        let side = |side| self.leaf_set.side(side).iter().filter_map(|&id| self.contact(id)).collect();
        out.event(Event::LeafSetChanged {
            clockwise: side(Side::Clockwise),
            counter_clockwise: side(Side::CounterClockwise),
            added,
            removed,
        });
    }
}
