//! Upkeep: finding out who lives and how near it is, and filling what is empty.

use core::time::Duration;

use super::clocks::Clock;
use super::config::Liveness;
use super::contact::Contact;
use super::machine::{Out, Pastry};
use super::message::{About, Message, Wanted};
use super::probes::{Expired, Ground};
use super::repairs::Why;
use super::routing_table::Position;
use super::seats::{Cause, Interest};
use super::{CellStatus, Command, PeerStatus, Reply, Tables};
use crate::id::Id;
use crate::ring::Side;
use crate::tag::{RequestId, StreamId};
use crate::time::{Instant, Now};

const SIDES: [Side; 2] = [Side::Clockwise, Side::CounterClockwise];

impl Pastry {
    /// A stream's greeting was ours to accept: who speaks is known from here on.
    pub(super) fn greeted(&mut self, now: Now, stream: StreamId, from: Contact, out: Out<'_, '_>) {
        self.pool.greeted(stream, from, from.addr, out);
        // Whoever had that address before is probably not there any more, which is found out: anybody can claim it.
        let former = self.peers.iter().map(|peer| peer.contact).find(|at| at.addr == from.addr);
        if let Some(former) = former.filter(|former| former.id != from.id) {
            self.see_for_ourselves(now, former);
        }
    }

    /// Asks a node of which something was said that it did not say itself.
    pub(super) fn see_for_ourselves(&mut self, now: Now, contact: Contact) {
        if self.peers.get(contact.id).is_some() {
            self.probe(contact.id);
        } else {
            self.learn(now, &[contact], Interest::Gap);
        }
    }

    pub(super) fn pong(&self, now: Now, nonce: u64) -> Message {
        let (leaf_set_version, clock) = (self.leaf_set.version(), Self::clock(now));
        Message::Pong { ring: self.ring, nonce, from: self.own, leaf_set_version, clock }
    }

    /// A leaf asks over a stream, because we did not answer its datagram. If we stood still it may have given us up by now,
    /// and nothing here need tell us: it hears of us once more.
    pub(super) fn asked_again(&mut self, now: Now, from: Contact, out: Out<'_, '_>) {
        if self.join.is_active()
            && self.leaf_set.contains(from.id)
            && let Some(peer) = self.peers.get_mut(from.id)
            && peer.contact.addr == from.addr
        {
            peer.knows_us = false;
            self.introduce(now, from.id, out);
        }
    }

    /// Sends the probes that wait, as many as may be under way.
    pub(super) fn ask_candidates(&mut self, now: Now, out: Out<'_, '_>) {
        if !self.probes.has_next() {
            return;
        }
        let timeout = self.config.network_timeout / 3;
        while let Some((nonce, contact)) = self.probes.next(now.mono, timeout) {
            self.counters.probes_sent += 1;
            let ping = Message::Ping { ring: self.ring, nonce, from: self.own };
            self.send_datagram(contact.addr, &ping, out);
        }
    }

    /// A probe was answered; false if it was none of ours.
    pub(super) fn on_pong(
        &mut self,
        now: Now,
        (nonce, by_stream): (u64, bool),
        from: Contact,
        leaf_set_version: u32,
        clock: Clock,
        out: Out<'_, '_>,
    ) -> bool {
        let Some(probe) = self.probes.get(nonce) else {
            self.counters.pongs_unmatched += 1;
            return false;
        };
        let (asked, sample) = (probe.contact, probe.sample(now.mono, by_stream));
        // Who answers at an address is there; that it is elsewhere, anybody could say.
        let from = Contact { addr: asked.addr, ..from };
        self.probes.take(nonce);
        self.counters.probes_answered += 1;
        let was_lost = self.past.iter().any(|past| past.id == from.id);
        if asked.id != from.id {
            // Somebody else lives there now.
            self.dismiss(now, asked.id, Cause::Failed, out);
        }
        self.admit(now, from, Some(sample), out);
        self.saw_clock(now, from.id, clock, sample, out);
        if was_lost {
            self.past.retain(|past| past.id != from.id);
            self.explore(now, from.addr, out);
        }
        let checked = self.peers.get(from.id).and_then(|peer| peer.leaf_set_checked);
        let is_next = SIDES.iter().any(|&side| self.leaf_set.nearest(side) == Some(from.id));
        if is_next && checked != Some(leaf_set_version) && self.join.is_active() {
            self.request(now, from.id, Why::LeafCheck, Wanted { leaf_set: true, ..Wanted::default() }, out);
        }
        true
    }

    /// Probes that ran out are sent again over a stream; those that ran out twice mean that a node is dead.
    pub(super) fn expire_probes(&mut self, now: Now, out: Out<'_, '_>) {
        while let Some(expired) = self.probes.expired(now.mono) {
            match expired {
                Expired::Again { nonce, contact } => {
                    self.counters.probes_sent += 1;
                    let ping = Message::Ping { ring: self.ring, nonce, from: self.own };
                    let taken = self.send(now, contact.addr, &ping, out);
                    let connected = taken.is_some_and(|taken| taken.connected);
                    self.probes.again(nonce, now.mono, self.config.network_timeout, connected);
                }
                Expired::Dead { contact } => self.on_dead(now, contact, out),
            }
        }
        while let Some(request) = self.requests.expired(now.mono) {
            self.suspect(request.to);
            self.request_ended(now, request.why);
        }
    }

    fn on_dead(&mut self, now: Now, contact: Contact, out: Out<'_, '_>) {
        if self.contact(contact.id).is_some_and(|known| known.addr != contact.addr) {
            // Somebody said that it lives elsewhere, or in a later life. Nobody does there, which says nothing of the node
            // that we know: else anybody could evict it (PA-39).
            return;
        }
        if self.peers.get(contact.id).is_some_and(|peer| peer.contact.incarnation > contact.incarnation) {
            return;
        }
        self.dismiss(now, contact.id, Cause::Failed, out);
        self.bury(&contact, now.mono);
    }

    /// Sends a request for state, unless the same is under way.
    fn request(&mut self, now: Now, to: Id, why: Why, wanted: Wanted, out: Out<'_, '_>) -> bool {
        if self.requests.contains(to, why) {
            return false;
        }
        let token = self.requests.insert(to, why, now.mono + self.config.network_timeout);
        self.counters.requests_sent += 1;
        self.send_to(now, to, &Message::StateRequest { token, wanted }, out)
    }

    pub(super) fn on_state_request(
        &mut self,
        now: Now,
        from: Contact,
        token: u32,
        wanted: Wanted,
        out: Out<'_, '_>,
    ) {
        self.counters.requests_answered += 1;
        let (about, versions) = (About::Request { token }, self.versions());
        let state = Message::State { about, versions, tables: self.tables_for(&wanted) };
        self.send(now, from.addr, &state, out);
    }

    /// A request was answered, or will not be: what it was for goes on once its candidates have had their time.
    pub(super) fn request_ended(&mut self, now: Now, why: Why) {
        let soon = now.mono + self.config.network_timeout / 2;
        match why {
            Why::LeafSet(side) => self.repairs.leaf_again(side, soon),
            Why::Cell(at) => self.repairs.cell_answered(at, soon),
            Why::Improve => self.repairs.improved(),
            Why::LeafCheck | Why::Neighbourhood => {}
        }
    }

    /// Asks for what is missing in the tables.
    pub(super) fn go_on_repairing(&mut self, now: Now, out: Out<'_, '_>) {
        let leaf_set = Wanted { leaf_set: true, ..Wanted::default() };
        for side in SIDES {
            // P-15: the furthest of the side. If the side is empty so is the other, and all tables (PA-12).
            let furthest = self.leaf_set.furthest(side);
            if let Some(to) = self.repairs.leaf_due(side, furthest, now.mono) {
                self.request(now, to, Why::LeafSet(side), leaf_set, out);
            }
        }
        let pause = self.config.network_timeout * 2;
        while let Some((Position { row, column }, nodes)) =
            self.repairs.cell_due(&self.routing_table, now.mono, pause)
        {
            let wanted = Wanted { cell: Some((row, column)), ..Wanted::default() };
            for to in nodes {
                self.request(now, to, Why::Cell(Position { row, column }), wanted, out);
            }
        }
        if self.repairs.neighbourhood_due(now.mono) {
            // P-19: every node of the set.
            let nodes: Vec<Id> = self.neighbourhood.members().collect();
            let wanted = Wanted { neighbourhood: true, ..Wanted::default() };
            for to in nodes {
                self.request(now, to, Why::Neighbourhood, wanted, out);
            }
        }
    }

    /// The second stage of a join (PA-15): everybody in table and neighbourhood set is asked for nearer nodes.
    pub(super) fn start_improving(&mut self) {
        let mut nodes: Vec<Id> = self.neighbourhood.members().collect();
        nodes.extend(self.routing_table.cells().iter().map(|cell| cell.id));
        nodes.sort_unstable();
        nodes.dedup();
        self.rng.shuffle(&mut nodes);
        self.repairs.improve(nodes);
    }

    pub(super) fn go_on_improving(&mut self, now: Now, out: Out<'_, '_>) {
        while let Some(to) = self.repairs.next_to_improve() {
            let wanted = Wanted { rows: self.rows_for(to), neighbourhood: true, ..Wanted::default() };
            if !self.request(now, to, Why::Improve, wanted, out) {
                self.repairs.improved();
            }
        }
    }

    pub(super) fn schedule_periods(&mut self, now: Now) {
        // Nodes that join together do not probe together.
        let mut within = |period: Duration| Some(now.mono + period / 2 + self.rng.duration_below(period / 2));
        self.periods.leaf = within(self.config.leaf_interval);
        self.periods.table = within(self.config.table_interval);
        self.periods.merge = within(self.config.merge_interval);
    }

    pub(super) fn do_periodic_work(&mut self, now: Now, out: Out<'_, '_>) {
        if due(&mut self.periods.leaf, now.mono, self.config.leaf_interval) {
            self.tend_leaves(now, out);
        }
        if due(&mut self.periods.table, now.mono, self.config.table_interval) {
            self.tend_table(now);
        }
        if due(&mut self.periods.merge, now.mono, self.config.merge_interval) {
            self.look_for_the_lost(now, out);
        }
    }

    /// Probes the nearest leaf of each side (N-11, PA-34a), and introduces us to leaves that do not know us yet.
    fn tend_leaves(&mut self, now: Now, out: Out<'_, '_>) {
        match self.config.liveness {
            Liveness::Own => {
                for id in SIDES.map(|side| self.leaf_set.nearest(side)).into_iter().flatten() {
                    self.probe(id);
                }
            }
            Liveness::Members => self.probe_unnamed(|pastry, id| pastry.leaf_set.contains(id)),
        }
        let unaware: Vec<Id> = self
            .leaf_set
            .members()
            .filter(|&id| self.peers.get(id).is_some_and(|peer| !peer.knows_us))
            .collect();
        for id in unaware {
            self.introduce(now, id, out);
        }
    }

    /// Measures everybody anew (N-14), and asks one node of each row for nearer ones. With `members` the round-trip times
    /// come by themselves, also of nodes that are nearer.
    fn tend_table(&mut self, now: Now) {
        self.cache.sweep(now.mono);
        if self.config.liveness == Liveness::Members {
            return self.probe_unnamed(|_, _| true);
        }
        let known: Vec<Id> = self.peers.ids().collect();
        known.into_iter().for_each(|id| self.probe(id));
        let rows = self.routing_table.cells().last().map_or(0, |cell| cell.at.row + 1);
        let mut chosen = Vec::new();
        for row in 0..rows {
            chosen.extend(self.rng.pick(self.routing_table.row(row)).map(|cell| cell.id));
        }
        self.repairs.improve(chosen);
    }

    /// Probes those of our peers that `members` has not named: it would not tell when they are gone.
    fn probe_unnamed(&mut self, wanted: impl Fn(&Self, Id) -> bool) {
        let unnamed: Vec<Id> =
            self.peers.iter().filter(|peer| !peer.is_member).map(|peer| peer.contact.id).collect();
        for id in unnamed {
            if wanted(self, id) {
                self.probe(id);
            }
        }
    }

    /// Tries one of the nodes that were lost, or a seed: if it lives, a part of the ring may be behind it (PA-42).
    fn look_for_the_lost(&mut self, now: Now, out: Out<'_, '_>) {
        if let Some(past) = self.past.pop_front() {
            self.past.push_back(past);
            self.ask(past, false, Ground::Own);
            return;
        }
        let known = |addr| self.peers.iter().any(|peer| peer.contact.addr == addr);
        let unknown: Vec<_> = self.seeds().filter(|&seed| !known(seed)).collect();
        if let Some(&seed) = self.rng.pick(&unknown)
            && (self.peers.len() == 0 || self.rng.chance(0.1))
        {
            self.explore(now, seed, out);
        }
    }

    /// Asks a node with a seat whether it is there.
    fn probe(&mut self, id: Id) {
        if let Some(contact) = self.contact(id) {
            self.ask(contact, false, Ground::Own);
        }
    }

    /// Somebody does not get answers from a node: we see for ourselves (PF-13: one report evicts nobody).
    pub(super) fn on_suspect(&mut self, id: Id) {
        self.probe(id);
    }

    /// A node says goodbye.
    pub(super) fn on_exit(&mut self, now: Now, from: Contact, out: Out<'_, '_>) {
        self.dismiss(now, from.id, Cause::Left, out);
    }

    /// What the application asked.
    pub(super) fn command(&mut self, now: Now, request: RequestId, command: Command, out: Out<'_, '_>) {
        let reply = match command {
            Command::Route { app, key, payload, retries } => {
                let body = super::Body::App { app, ask: false, payload };
                return self.originate(now, request, key, body, retries, out);
            }
            Command::Ask { app, key, payload, retries } => {
                let body = super::Body::App { app, ask: true, payload };
                return self.originate(now, request, key, body, retries, out);
            }
            Command::Trace { key } => {
                let body = super::Body::Trace { path: Vec::new() };
                return self.originate(now, request, key, body, 2, out);
            }
            Command::Answer { id, payload } => self.answer(now, id, payload, out),
            Command::Tables => Reply::Tables(Box::new(self.status())),
            Command::Register(name) => {
                self.register(name);
                Reply::Done
            }
            Command::Unregister(name) => {
                self.apps.retain(|app| app.name != name);
                Reply::Done
            }
            Command::Join(addr) => {
                self.join_through(now, addr, out);
                Reply::Done
            }
            told => {
                self.heed_members(now, &told, out);
                Reply::Done
            }
        };
        out.reply(request, reply);
    }

    fn status(&self) -> Tables {
        let status = |id: Id| {
            let peer = self.peers.get(id)?;
            let rtt_micros = Some(peer.estimate.score().0).filter(|&rtt| rtt != u32::MAX);
            let suspected = self.peers.suspected().contains(&id);
            Some(PeerStatus { contact: peer.contact, rtt_micros, suspected })
        };
        let side = |side| self.leaf_set.side(side).iter().filter_map(|&id| status(id)).collect();
        let cells = self.routing_table.cells().iter().filter_map(|cell| {
            Some(CellStatus { row: cell.at.row, column: cell.at.column, peer: status(cell.id)? })
        });
        Tables {
            own: self.own,
            active: self.join.is_active(),
            versions: self.versions(),
            clockwise: side(Side::Clockwise),
            counter_clockwise: side(Side::CounterClockwise),
            cells: cells.collect(),
            neighbourhood: self.neighbourhood.members().filter_map(status).collect(),
        }
    }
}

/// Whether something periodic is due. Being late does not make it happen twice.
fn due(at: &mut Option<Instant>, now: Instant, period: Duration) -> bool {
    if at.is_none_or(|at| at > now) {
        return false;
    }
    *at = Some(now + period);
    true
}
