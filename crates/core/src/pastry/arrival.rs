//! Arrival: how a node comes into the ring, seen from the joiner and from those it meets (P-27 … P-38).

use std::net::SocketAddr;

use super::Event;
use super::contact::{Contact, Versions};
use super::join::Stage;
use super::machine::{Out, Pastry};
use super::message::{About, Body, Copies, Envelope, Message, MessageId, TablesSent, Wanted};
use super::passage::Fresh;
use super::relays::{Held, Passage, UNTRACKED};
use super::repairs::Why;
use super::seats::Interest;
use super::sendings::NO_PLACE;
use crate::id::Id;
use crate::ring::Side;
use crate::time::Now;

/// How often one node may warn of a race before it is left at that (PA-23).
const RACES_MAX: u8 = 3;

impl Pastry {
    /// The first step after the start. Without a seed this node is the first of its ring (PA-20), unless `members` is to
    /// name one.
    pub(super) fn start_joining(&mut self, now: Now, out: Out<'_, '_>) {
        if self.seeds().next().is_some() {
            self.try_seed(now, out);
        } else if !self.config.await_members {
            self.activate(now, out);
        }
    }

    /// Goes on with the join as far as it goes now.
    pub(super) fn go_on_joining(&mut self, now: Now, out: Out<'_, '_>) {
        let is_due = self.join.deadline().is_some_and(|at| at <= now.mono);
        match self.join.stage() {
            Stage::Waiting if is_due => self.try_seed(now, out),
            // PA-17: it ends early when every hop has reported and every possible leaf has answered.
            Stage::Seeking if self.join.has_arrived() && (is_due || self.has_gathered()) => {
                self.announce_to_all(now, out);
            }
            Stage::Seeking if is_due => self.give_up_seed(now, out),
            Stage::Announcing => self.go_on_announcing(now, is_due, out),
            _ => {}
        }
    }

    fn has_gathered(&self) -> bool {
        self.join.is_complete() && self.probes.leaf_pending() == 0
    }

    /// PA-27: active as soon as the nearest leaf of each side knows of us, and nobody nearer is still to be asked.
    fn go_on_announcing(&mut self, now: Now, is_due: bool, out: Out<'_, '_>) {
        if self.leaf_set.is_empty() {
            return self.give_up_seed(now, out);
        }
        let nearest = [Side::Clockwise, Side::CounterClockwise].map(|side| self.leaf_set.nearest(side));
        let unaware: Vec<Id> = nearest
            .into_iter()
            .flatten()
            .filter(|&id| self.peers.get(id).is_some_and(|peer| !peer.knows_us))
            .collect();
        if unaware.is_empty() && self.probes.leaf_pending() == 0 {
            self.activate(now, out);
        } else if is_due {
            for id in unaware {
                self.suspect(id);
                self.announce(now, id, true, out);
            }
            self.join.announce(now.mono + self.config.network_timeout * 2);
        }
    }

    fn try_seed(&mut self, now: Now, out: Out<'_, '_>) {
        let count = self.seeds().count();
        let way_in = self.join.take_way_in();
        let Some(seed) = way_in.or_else(|| self.seeds().nth(self.next_seed % count.max(1))) else {
            // Who was named is gone again: a timer that stays due would let the driver spin.
            return self.join.pause(now.mono, &mut self.rng);
        };
        self.next_seed = self.next_seed.wrapping_add(usize::from(way_in.is_none()));
        let id = self.allot_message(NO_PLACE);
        self.join.seek(id, seed, now.mono + self.config.network_timeout);
        if !self.send_join(now, id, seed, out) {
            self.give_up_seed(now, out);
        }
    }

    /// Sends the join message, whose key is the own id (P-28, PA-41).
    fn send_join(&mut self, now: Now, id: MessageId, through: SocketAddr, out: Out<'_, '_>) -> bool {
        let envelope = Envelope::new(id, self.own.id, self.own, self.config.ttl, Copies::Many, Body::Join);
        let transmission = UNTRACKED;
        self.send(now, through, &Message::Route { transmission, sent: None, envelope }, out).is_some()
    }

    /// A node of the ring that we may have lost a part of is asked for whom we should know (PA-42): it is a join, but
    /// we stay what we are.
    pub(super) fn explore(&mut self, now: Now, through: SocketAddr, out: Out<'_, '_>) {
        let id = self.allot_message(NO_PLACE);
        self.join.explore(id, through);
        self.send_join(now, id, through, out);
    }

    /// The application names a way in, or to a part of the ring that is not known here.
    pub(super) fn join_through(&mut self, now: Now, addr: SocketAddr, out: Out<'_, '_>) {
        if self.join.is_active() {
            return self.explore(now, addr, out);
        }
        if !self.config.seeds.contains(&addr) {
            self.config.seeds.push(addr);
        }
        if self.join.stage() == Stage::Waiting {
            self.join.wait_until(now.mono);
        }
    }

    /// Nobody let us in this time. Who is itself among the seeds founds the ring once all others were tried.
    pub(super) fn give_up_seed(&mut self, now: Now, out: Out<'_, '_>) {
        let tries = self.join.tries();
        out.event(Event::JoinFailed { tries });
        if self.join.has_way_in() {
            return self.join.wait_until(now.mono);
        }
        let (others, is_seed) = (self.seeds().count(), self.config.seeds.contains(&self.own.addr));
        let ends_round = (tries as usize).is_multiple_of(others.max(1));
        let founds = is_seed && ends_round && !self.join.leaves_founding();
        if tries as usize >= others && (founds || self.is_first_member()) {
            return self.activate(now, out);
        }
        if ends_round {
            self.join.pause(now.mono, &mut self.rng);
        } else {
            // The next seed has not been tried in this round.
            self.join.wait_until(now.mono + self.config.ack_timeout_min);
        }
    }

    pub(super) fn seeds(&self) -> impl Iterator<Item = SocketAddr> + '_ {
        let named = self.named.iter().map(|(_, addr)| *addr).filter(|addr| !self.config.seeds.contains(addr));
        self.config.seeds.iter().copied().chain(named).filter(|seed| *seed != self.own.addr)
    }

    fn announce_to_all(&mut self, now: Now, out: Out<'_, '_>) {
        self.join.announce(now.mono + self.config.network_timeout * 2);
        let known: Vec<Id> = self.peers.ids().collect();
        for id in known {
            self.announce(now, id, true, out);
        }
    }

    fn activate(&mut self, now: Now, out: Out<'_, '_>) {
        self.join.activate();
        self.meet_named(now);
        self.joined = Some(now.mono);
        self.schedule_periods(now);
        out.event(Event::Joined { peers: self.peers.len() });
        self.release(now, Held::UntilActive, out);
        self.start_improving();
    }

    /// Announces us to a node (P-35, P-36), with all tables or with the leaf set only.
    fn announce(&mut self, now: Now, to: Id, all_tables: bool, out: Out<'_, '_>) {
        let Some(peer) = self.peers.get(to) else { return };
        let (addr, seen) = (peer.contact.addr, peer.versions);
        let rows = if all_tables { u128::MAX } else { 0 };
        let wanted = Wanted { leaf_set: true, neighbourhood: all_tables, rows, cell: None };
        let tables = self.tables_for(&wanted);
        self.counters.announcements_sent += 1;
        self.send(now, addr, &Message::Announce { seen, versions: self.versions(), tables }, out);
    }

    /// A node got a leaf seat: it is to know of us too, if it doesn't.
    pub(super) fn introduce(&mut self, now: Now, id: Id, out: Out<'_, '_>) {
        let ready = matches!(self.join.stage(), Stage::Announcing | Stage::Active);
        if ready && self.peers.get(id).is_some_and(|peer| !peer.knows_us) {
            self.announce(now, id, false, out);
        }
    }

    /// Somebody announces itself: it gets its seats, and so do those it knows, if they answer (P-38).
    pub(super) fn on_announce(
        &mut self,
        now: Now,
        from: Contact,
        seen: Option<Versions>,
        versions: Versions,
        tables: &TablesSent,
        out: Out<'_, '_>,
    ) {
        self.counters.announcements_received += 1;
        if from.id == self.own.id {
            return self.refuse_joiner(now, from, out);
        }
        let has_raced = seen.is_some_and(|seen| self.versions().have_changed_since(seen));
        if !self.admit(now, from, None, out) {
            return self.let_object(now, from, out);
        }
        let mut warn = false;
        if let Some(peer) = self.peers.get_mut(from.id) {
            peer.versions = Some(versions);
            peer.knows_us = true;
            warn = has_raced && peer.races < RACES_MAX;
            peer.races += u8::from(warn);
        }
        self.learn_all(now, tables, Interest::Gap);
        self.heed_way_in(now, from.addr);
        let versions = self.versions();
        if warn {
            self.counters.races_warned += 1;
            let wanted = Wanted { leaf_set: true, rows: self.rows_for(from.id), ..Wanted::default() };
            let tables = self.tables_for(&wanted);
            self.send(now, from.addr, &Message::State { about: About::Race, versions, tables }, out);
        } else {
            self.send(now, from.addr, &Message::Welcome { versions }, out);
        }
    }

    /// Who announces itself has found a ring: while we have not, it is tried next, and at once.
    fn heed_way_in(&mut self, now: Now, addr: SocketAddr) {
        if matches!(self.join.stage(), Stage::Waiting | Stage::Seeking) {
            self.join.offer(addr);
        }
        if self.join.stage() == Stage::Waiting && self.join.has_way_in() {
            self.join.wait_until(now.mono);
        }
    }

    /// The node through which we would join has not joined itself.
    pub(super) fn on_join_refused(&mut self, now: Now, by: SocketAddr, out: Out<'_, '_>) {
        self.join.hope();
        if by < self.own.addr {
            self.join.yield_to_another();
        }
        self.give_up_seed(now, out);
    }

    pub(super) fn on_welcome(&mut self, from: Id, versions: Versions) {
        if let Some(peer) = self.peers.get_mut(from) {
            peer.versions = Some(versions);
            peer.knows_us = true;
        }
    }

    /// State came: of a hop of our join, of a race, or because we asked.
    pub(super) fn on_state(
        &mut self,
        now: Now,
        (from, vouched): (Contact, bool),
        about: About,
        versions: Versions,
        tables: &TablesSent,
        out: Out<'_, '_>,
    ) {
        match about {
            About::Join { id, hop, last } => {
                let due = now.mono + self.config.network_timeout * 2;
                if !self.join.report(id, hop, last, due) {
                    self.counters.refused += 1;
                    return;
                }
                if vouched {
                    self.admit(now, from, None, out);
                } else {
                    // Anybody could say that it is that node: it is asked at the address it claims.
                    self.learn(now, &[from], Interest::Nearer);
                }
                self.learn_all(now, tables, Interest::Nearer);
            }
            About::Race => {
                self.counters.races_received += 1;
                let Some(peer) = self.peers.get_mut(from.id) else { return };
                peer.versions = Some(versions);
                peer.races = peer.races.saturating_add(1);
                // Whoever warned has us in its tables; after a few rounds that is enough (PA-23).
                peer.knows_us = peer.races > RACES_MAX;
                let again = !peer.knows_us;
                self.learn_all(now, tables, Interest::Gap);
                if again {
                    self.announce(now, from.id, false, out);
                }
            }
            About::Request { token } => {
                let Some(request) = self.requests.take(token, from.id) else {
                    self.counters.refused += 1;
                    return;
                };
                self.answered(now, from, request.why, tables, out);
                if request.why == Why::LeafCheck {
                    self.leaf_set_checked(from.id, versions, &tables.leaf_set);
                }
            }
        }
        if let Some(peer) = self.peers.get_mut(from.id) {
            peer.versions = Some(versions);
        }
    }

    /// A neighbour's leaf set needs no second look once we have everybody of it whom we should have. Some are not asked
    /// at once, or do not answer the first time.
    fn leaf_set_checked(&mut self, from: Id, versions: Versions, theirs: &[Contact]) {
        let is_missing = |contact: &Contact| {
            contact.id != self.own.id
                && !self.leaf_set.contains(contact.id)
                && self.leaf_set.would_take(contact.id)
        };
        let checked = (!theirs.iter().any(is_missing)).then_some(versions.leaf_set);
        if let Some(peer) = self.peers.get_mut(from) {
            peer.leaf_set_checked = checked;
        }
    }

    /// What was asked for is there.
    fn answered(&mut self, now: Now, from: Contact, why: Why, tables: &TablesSent, out: Out<'_, '_>) {
        let interest = match why {
            Why::LeafSet(_) | Why::LeafCheck | Why::Cell(_) => Interest::Gap,
            Why::Neighbourhood | Why::Improve => Interest::Nearer,
        };
        self.learn_all(now, tables, interest);
        if matches!(why, Why::LeafSet(_) | Why::LeafCheck) {
            self.check_our_seat(now, from.id, &tables.leaf_set, out);
        }
        self.request_ended(now, why);
    }

    /// A leaf whose leaf set should have us, but has not, does not know of us any more.
    fn check_our_seat(&mut self, now: Now, leaf: Id, theirs: &[Contact], out: Out<'_, '_>) {
        let own = self.own.id;
        let has_us = theirs.iter().any(|contact| contact.id == own);
        let mut seen = super::LeafSet::new(leaf, self.config.side_max());
        for contact in theirs {
            seen.insert(contact.id);
        }
        if !has_us && seen.would_take(own) && self.leaf_set.contains(leaf) {
            self.returned(now);
            self.announce(now, leaf, false, out);
        }
    }

    fn learn_all(&mut self, now: Now, tables: &TablesSent, interest: Interest) {
        self.learn(now, &tables.leaf_set, interest);
        self.learn(now, &tables.routing_table, interest);
        self.learn(now, &tables.neighbourhood, interest);
    }

    /// The rows that suit a node: those in which every entry has a place in its table too (PA-15).
    pub(super) fn rows_for(&self, id: Id) -> u128 {
        let shared = self.own.id.common_prefix(id, self.config.base);
        u128::MAX >> (127 - shared.min(127))
    }

    /// A join passed by and goes on: the joiner gets our state (P-29).
    pub(super) fn report_passing_join(
        &mut self,
        now: Now,
        passage: &Passage,
        fresh: Fresh,
        out: Out<'_, '_>,
    ) {
        if fresh == Fresh::Yes && passage.envelope.body == Body::Join {
            self.report_to_joiner(now, &passage.envelope, false, out);
        }
    }

    /// Sends a joiner our state: rows of the table; from the first node the neighbourhood set too (P-30), from the last
    /// the leaf set too (P-31).
    pub(super) fn report_to_joiner(&mut self, now: Now, envelope: &Envelope, last: bool, out: Out<'_, '_>) {
        let joiner = envelope.origin;
        let wanted = Wanted {
            leaf_set: last,
            neighbourhood: envelope.hops == 0,
            rows: self.rows_for(joiner.id),
            cell: None,
        };
        let about = About::Join { id: envelope.id, hop: envelope.hops, last };
        let state = Message::State { about, versions: self.versions(), tables: self.tables_for(&wanted) };
        self.send(now, joiner.addr, &state, out);
        if last {
            self.let_object(now, joiner, out);
        }
    }

    /// If somebody lives elsewhere under the id of this one, it will object (PA-22).
    fn let_object(&mut self, now: Now, joiner: Contact, out: Out<'_, '_>) {
        let Some(known) = self.contact(joiner.id).filter(|known| known.addr != joiner.addr) else { return };
        let id = self.allot_message(NO_PLACE);
        let envelope = Envelope::new(id, joiner.id, joiner, 1, Copies::Many, Body::Join);
        let transmission = UNTRACKED;
        self.send(now, known.addr, &Message::Route { transmission, sent: None, envelope }, out);
    }

    /// Somebody wants to be us (PA-22).
    pub(super) fn refuse_joiner(&mut self, now: Now, joiner: Contact, out: Out<'_, '_>) {
        if joiner.addr != self.own.addr {
            self.send(now, joiner.addr, &Message::Refuse, out);
        }
    }

    pub(super) fn on_refuse(&mut self, now: Now, out: Out<'_, '_>) {
        if !self.join.is_active() {
            out.event(Event::IdTaken);
            self.join.pause(now.mono, &mut self.rng);
        }
    }
}
