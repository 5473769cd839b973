//! The machine: gives every input to a part, and turns the effects of lower parts into calls to others.

use core::time::Duration;
use std::net::SocketAddr;
use std::sync::Arc;

use super::config::{Config, ConfigError};
use super::contact::{Contact, Generation};
use super::counters::Counters;
use super::delivery::Delivery;
use super::effects::Effect;
use super::env::Env;
use super::join::Join;
use super::lower::Lower;
use super::message::{AppName, Message};
use super::prober::{Prober, Reason};
use super::repair::Repair;
use super::tables::{LeafSet, Neighbourhood, RoutingTable, Step, Tables};
use super::transport::{Transport, UDP};
use super::wire::decode;
use super::{Application, Command, Event, Reply};
use crate::counters::VisitCounter;
use crate::endpoint::{Bound, Endpoints, Listener, Socket, Space};
use crate::id::Id;
use crate::machine::{Machine, Refusal};
use crate::outbox::Outbox;
use crate::pool::Lost;
use crate::rng::Seed;
use crate::store::{StoreReply, StoreResult};
use crate::stream::{CloseReason, StreamEvent};
use crate::tag::{ListenerId, OpId, RequestId, SocketId, SpaceId, StreamId};
use crate::time::{Instant, Now};

/// The stream listener, for everything but probes.
pub const TCP: ListenerId = ListenerId::new(0);
/// The space of the generation.
pub const SPACE: SpaceId = SpaceId::new(0);

const GENERATION_KEY: &[u8] = b"generation";
const LOAD: OpId = OpId::new(1);
const STORE: OpId = OpId::new(2);

/// The timers, by the names that `poll_timeout` returns.
mod timer {
    /// The join continues, or is tried again.
    pub(super) const JOIN: &str = "route.join";
    /// A probe was not answered.
    pub(super) const PROBE: &str = "route.probe";
    /// A message was not acknowledged, or was deferred too long.
    pub(super) const IN_FLIGHT: &str = "route.in_flight";
    /// A message of our own got no receipt.
    pub(super) const OUTSTANDING: &str = "route.outstanding";
    /// An application has not settled a message.
    pub(super) const OPEN: &str = "route.open";
    /// A request for state was not answered.
    pub(super) const REQUEST: &str = "route.request";
    /// A table is to be repaired.
    pub(super) const REPAIR: &str = "route.repair";
    /// The nearest leaves are to be probed.
    pub(super) const LEAF: &str = "route.leaf";
    /// All known nodes are to be probed.
    pub(super) const TABLE: &str = "route.table";
    /// A lost node is to be probed.
    pub(super) const MERGE: &str = "route.merge";
    /// A connection times out.
    pub(super) const CONNECTION: &str = "route.connection";
    /// The time to stop is over.
    pub(super) const STOP: &str = "route.stop";
}

/// Why a node is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    /// It does not answer.
    Failed,
    /// It left.
    Left,
}

/// A node of a Pastry ring.
#[derive(Clone, Debug, PartialEq)]
pub struct Pastry {
    pub(super) lower: Lower,
    pub(super) join: Join,
    pub(super) repair: Repair,
    pub(super) delivery: Delivery,
}

pub(super) type Out<'a, 'b> = &'a mut Outbox<'b, Pastry>;

impl Pastry {
    /// A node with these settings; `seed` decides all random choices.
    ///
    /// # Errors
    /// If the settings cannot work together.
    pub fn new(config: Config, seed: Seed) -> Result<Self, ConfigError> {
        config.check()?;
        let (transport, tables) = (Transport::new(&config), Tables::new(&config));
        let prober = Prober::new(config.probes_max, config.candidates_max, config.away_timeout);
        let join = Join::new(config.seeds.clone(), config.past_max);
        let mut env = Env::new(config, seed);
        let key = env.rng().next_u64();
        let delivery = Delivery::new(env.config(), key);
        let lower = Lower { env, transport, tables, prober, effects: Default::default() };
        Ok(Self { lower, join, repair: Repair::default(), delivery })
    }

    /// Adds an application inside the machine for messages to `name`.
    #[must_use]
    pub fn with_application(mut self, name: AppName, application: Arc<dyn Application>) -> Self {
        self.delivery.register_with(name, application);
        self
    }

    /// The counters.
    #[must_use]
    pub fn counted(&self) -> Counters {
        *self.lower.env.counters()
    }

    /// Sets all counters to zero, so that two states can be compared without them.
    pub fn forget_counters(&mut self) {
        self.lower.env.reset_counters();
    }

    /// The node as others know it.
    #[must_use]
    pub fn own(&self) -> Contact {
        self.lower.env.own()
    }

    /// Whether it has joined: it delivers.
    #[must_use]
    pub fn is_active(&self) -> bool {
        self.join.is_active()
    }

    /// Whether it is at rest: no probe, request or improvement is under way.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.lower.prober.is_idle() && self.repair.is_idle()
    }

    /// The leaf set.
    #[must_use]
    pub fn leaf_set(&self) -> &LeafSet {
        self.lower.tables.leaf_set()
    }

    /// The routing table.
    #[must_use]
    pub fn routing_table(&self) -> &RoutingTable {
        self.lower.tables.routing_table()
    }

    /// The neighbourhood set.
    #[must_use]
    pub fn neighbourhood(&self) -> &Neighbourhood {
        self.lower.tables.neighbourhood()
    }

    /// The contact of a node with an entry.
    #[must_use]
    pub fn contact(&self, id: Id) -> Option<Contact> {
        self.lower.tables.contact(id)
    }

    /// The nodes for which messages are deferred until a probe decides.
    #[must_use]
    pub fn suspected(&self) -> &[Id] {
        self.lower.tables.suspected()
    }

    /// The nodes that do not answer: messages for them go to the next closest node (PD-4).
    #[must_use]
    pub fn away(&self) -> &[Id] {
        self.lower.tables.away()
    }

    /// How many connections there are.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.lower.transport.connections()
    }

    /// Where a message to `key` would go next. Allocates nothing.
    #[must_use]
    pub fn decide(&self, key: Id) -> Step {
        self.lower.tables.next_hop(key, &[], None)
    }

    /// Removes a node from the tables: the one place where a removal becomes calls to other parts.
    pub(super) fn remove(&mut self, now: Now, id: Id, cause: Cause, out: Out<'_, '_>) {
        self.lower.prober.forget(id);
        let Some(removed) = self.lower.tables.remove(now.mono, id) else { return };
        let cx = &mut self.lower.cx(now, out);
        let contact = removed.contact;
        removed.candidates.iter().for_each(|candidate| cx.ask(*candidate, true, Reason::Known));
        if cause == Cause::Failed {
            cx.count().peers_failed += 1;
            cx.lower.transport.gone(contact.addr, cx.out);
            self.join.on_failed(now.mono, contact);
            cx.out.event(Event::PeerFailed { contact });
        } else {
            cx.out.event(Event::PeerLeft { contact });
        }
        self.repair.on_removed(cx, &removed);
        self.delivery.on_unreachable(cx, id);
    }

    /// Handles a lost connection: the driver gives a reason, or this node reset it.
    pub(super) fn connection_lost(
        &mut self,
        now: Now,
        lost: Option<Lost>,
        reason: Option<CloseReason>,
        out: Out<'_, '_>,
    ) {
        let Some(lost) = lost else { return };
        let cx = &mut self.lower.cx(now, out);
        // The driver reports `Connected` before it writes anything. A connection that this node resets may have been
        // established without its knowledge.
        let never_sent = !lost.connected && reason.is_some();
        let is_refused = lost.refused || reason == Some(CloseReason::Refused);
        self.delivery.on_connection_lost(cx, lost.stream, never_sent);
        let Some(addr) = lost.peer else { return };
        if is_refused {
            cx.lower.prober.on_refused(addr, now.mono);
        }
        self.join.on_connection_lost(cx, addr);
        if let Some(contact) = cx.tables().peer_at(addr) {
            if lost.connected {
                cx.out.event(Event::ConnectionBroken { contact });
            }
            // A broken connection is no verdict, but a reason to probe.
            let leaf = cx.tables().leaf_set().contains(contact.id);
            cx.ask(contact, leaf, Reason::Known);
        }
    }

    /// Acts on the effects of lower parts until there are none.
    #[inline]
    fn apply(&mut self, now: Now, out: Out<'_, '_>) {
        while let Some(effect) = self.lower.effects.pop_front() {
            self.act_on(now, effect, out);
        }
    }

    fn act_on(&mut self, now: Now, effect: Effect, out: Out<'_, '_>) {
        let cx = &mut self.lower.cx(now, out);
        match effect {
            Effect::NewLeaf(id) | Effect::AnnounceTo(id) => self.join.announce_to(cx, id),
            Effect::ForgottenBy(id) => self.join.announce_again(cx, id),
            Effect::Recovered(id) => self.delivery.on_recovered(cx, id),
            Effect::Away(id) => self.delivery.on_unreachable(cx, id),
            Effect::StillAway(id) => self.repair.on_still_away(cx, id),
            Effect::Dead(contact) => self.on_dead(now, contact, out),
            Effect::ProbeAnswered { contact, leaf_set_digest } => {
                self.join.on_probe_answered(cx, contact);
                self.repair.on_probe_answered(cx, contact.id, leaf_set_digest);
            }
            Effect::Activated => {
                self.repair.start(cx);
                self.delivery.on_activated(cx);
            }
        }
    }

    /// Handles the connections that the pool has closed.
    fn give_up_connections(&mut self, now: Now, out: Out<'_, '_>) {
        while let Some(lost) = self.lower.transport.next_lost() {
            self.connection_lost(now, Some(lost), None, out);
        }
    }

    fn on_dead(&mut self, now: Now, contact: Contact, out: Out<'_, '_>) {
        if let Some(known) = self.lower.tables.contact(contact.id)
            && (known.addr != contact.addr || known.generation > contact.generation)
        {
            // The known node is at another address, or in a later generation. Otherwise any node could evict it
            // (PA-39).
            return;
        }
        self.remove(now, contact.id, Cause::Failed, out);
        self.lower.tables.mark_removed(now.mono, &contact);
    }

    /// Ends every call: applies effects, and does work that became possible.
    fn settle(&mut self, now: Now, out: Out<'_, '_>) {
        self.give_up_connections(now, out);
        self.apply(now, out);
        if self.lower.env.is_stopping() {
            return;
        }
        if !self.join.is_active() {
            self.join.advance(&mut self.lower.cx(now, out));
            self.apply(now, out);
        }
        let cx = &mut self.lower.cx(now, out);
        self.repair.advance(cx);
        self.delivery.retry_ready(cx);
        cx.start_probes();
        self.apply(now, out);
        let is_filling = !self.join.is_active() || self.repair.is_improving();
        self.lower.tables.set_filling(is_filling);
        if let Some(change) = self.lower.tables.take_leaf_set_change() {
            out.event(change);
        }
    }

    /// Detects by a long overdue timer that this process was paused. Its leaves may have removed it without its
    /// knowledge, so it probes them and announces itself at once.
    fn check_pause(&mut self, now: Now) {
        let due = self.poll_timeout().map_or(now.mono, |(due, _)| due);
        if now.mono.since(due) < self.lower.env.config().network_timeout || !self.join.is_active() {
            return;
        }
        let leaves: Vec<Id> = self.lower.tables.leaf_set().members().collect();
        for id in leaves {
            if let Some(peer) = self.lower.tables.peer_mut(id) {
                peer.knows_us = false;
            }
        }
        self.repair.on_resume(now.mono);
    }

    fn loaded(&mut self, now: Now, stored: Option<u64>, out: Out<'_, '_>) {
        // Without a stored generation the wall clock is the generation; it only decides which of two generations is
        // later.
        let generation = stored.map_or(now.wall.as_micros(), |last| last.saturating_add(1));
        let own = Contact { generation: Generation(generation), ..self.lower.env.own() };
        self.lower.env.set_own(own);
        out.put(STORE, SPACE, GENERATION_KEY, &generation.to_be_bytes(), true);
        let hello = Message::Hello { ring: self.lower.env.ring(), from: own };
        let bind = self.lower.env.config().bind.ip();
        self.lower.transport.set_greeting(&hello, bind);
        self.join.start(&mut self.lower.cx(now, out));
    }
}

impl Machine for Pastry {
    type Command = Command;
    type Reply = Reply;
    type Event = Event;

    fn endpoints(&self) -> Endpoints {
        let config = self.lower.env.config();
        let (bind, streams_max) = (config.bind, config.accepted_max);
        Endpoints {
            sockets: vec![Socket { id: UDP, name: "route/udp", bind, broadcast: Vec::new() }],
            listeners: vec![Listener { id: TCP, name: "route/tcp", bind, streams_max }],
            spaces: vec![Space { id: SPACE, name: "route" }],
        }
    }

    fn handle_start(&mut self, _: Now, bound: &Bound, out: Out<'_, '_>) {
        if let (None, Some(addr)) = (self.lower.env.config().advertise, bound.listener(TCP)) {
            self.lower.env.set_own(Contact { addr, ..self.lower.env.own() });
        }
        out.get(LOAD, SPACE, GENERATION_KEY);
    }

    fn handle_datagram(
        &mut self,
        now: Now,
        _: SocketId,
        from: SocketAddr,
        bytes: &[u8],
        out: Out<'_, '_>,
    ) -> Result<(), Refusal> {
        let message = decode(bytes).inspect_err(|_| self.lower.env.count().malformed += 1)?;
        let ours = self.lower.env.ring();
        let cx = &mut self.lower.cx(now, out);
        match message {
            Message::Ping { ring, nonce, .. } if ring == ours => {
                let pong = cx.pong(nonce);
                cx.lower.transport.send_datagram(from, &pong, cx.out);
            }
            Message::Pong { ring, nonce, from, leaf_set_digest } if ring == ours => {
                if !cx.on_pong(nonce, false, from, leaf_set_digest) {
                    return Err(Refusal::Reject("a pong that answers no probe under way"));
                }
            }
            _ => {
                cx.count().refused += 1;
                return Err(Refusal::Reject("not a probe of this ring"));
            }
        }
        self.lower.transport.reachable(now.mono, from, out);
        self.settle(now, out);
        Ok(())
    }

    fn handle_stream(
        &mut self,
        now: Now,
        stream: StreamId,
        event: StreamEvent<'_>,
        out: Out<'_, '_>,
    ) -> Result<(), Refusal> {
        let mut outcome = Ok(());
        match event {
            StreamEvent::Accepted { from, .. } => {
                let is_taken = self.lower.transport.accepted(now.mono, stream, from.ip(), out);
                self.lower.env.count().connections_refused += u64::from(!is_taken);
            }
            StreamEvent::Connected { .. } => self.lower.transport.connected(now.mono, stream, out),
            StreamEvent::Data(data) => outcome = self.received(now, stream, data, out),
            // The hot path: room on a connection makes no other work possible.
            StreamEvent::Sent { bytes, .. } => {
                self.lower.transport.sent(now.mono, stream, bytes, out);
                return Ok(());
            }
            StreamEvent::Confirmed { .. } => return Ok(()),
            StreamEvent::Finished => {
                if let Err(error) = self.lower.transport.finished(now.mono, stream, out) {
                    outcome = Err(self.refuse(now, stream, error.into(), out));
                }
            }
            StreamEvent::Closed(reason) => {
                let lost = self.lower.transport.closed(now.mono, stream, reason, out);
                self.connection_lost(now, lost, Some(reason), out);
            }
        }
        // A stream that was reset may be a reason to probe.
        self.settle(now, out);
        outcome
    }

    fn handle_stored(&mut self, now: Now, reply: StoreReply<'_>, out: Out<'_, '_>) {
        if reply.op == LOAD {
            let stored = match reply.result {
                StoreResult::Value(None) => Some(0),
                StoreResult::Value(Some(bytes)) => bytes.try_into().ok().map(u64::from_be_bytes),
                _ => None,
            };
            self.loaded(now, stored, out);
            self.settle(now, out);
        }
    }

    fn handle_command(&mut self, now: Now, request: RequestId, command: Command, out: Out<'_, '_>) {
        if self.lower.env.is_stopping() {
            out.reply(request, Reply::Stopping);
            return;
        }
        self.command(now, request, command, out);
        self.settle(now, out);
    }

    fn handle_timeout(&mut self, now: Now, out: Out<'_, '_>) {
        self.check_pause(now);
        self.lower.transport.expire(now.mono, out);
        self.give_up_connections(now, out);
        let cx = &mut self.lower.cx(now, out);
        self.delivery.expire(cx);
        if !cx.lower.env.is_stopping() {
            cx.continue_probes();
            self.apply(now, out);
            let cx = &mut self.lower.cx(now, out);
            self.repair.run_due(cx);
            self.join.merge_due(cx);
        } else if cx.lower.env.stop_at().is_some_and(|at| at <= now.mono) {
            cx.lower.env.stop(Instant::ZERO);
        }
        self.settle(now, out);
    }

    fn handle_stop(&mut self, now: Now, out: Out<'_, '_>) {
        if self.lower.env.is_stopping() {
            return;
        }
        let cx = &mut self.lower.cx(now, out);
        let peers: Vec<SocketAddr> = cx.tables().peers().map(|peer| peer.contact.addr).collect();
        for to in peers {
            cx.send(to, &Message::Exit);
        }
        self.delivery.stop(cx);
        let network_timeout = cx.config().network_timeout;
        cx.lower.transport.finish_all(now.mono, cx.out);
        cx.lower.env.stop(now.mono + network_timeout);
    }

    fn is_stopped(&self) -> bool {
        let stop_at = self.lower.env.stop_at();
        stop_at.is_some() && (self.lower.transport.connections() == 0 || stop_at == Some(Instant::ZERO))
    }

    fn poll_timeout(&self) -> Option<(Instant, &'static str)> {
        let [in_flight, outstanding, open] = self.delivery.deadlines();
        let [request, repair, leaf, table] = self.repair.deadlines();
        let timers = [
            (self.lower.transport.deadline(), timer::CONNECTION),
            (in_flight, timer::IN_FLIGHT),
            (outstanding, timer::OUTSTANDING),
            (open, timer::OPEN),
            (self.lower.prober.deadline(), timer::PROBE),
            (request, timer::REQUEST),
            (repair, timer::REPAIR),
            (self.join.deadline(), timer::JOIN),
            (leaf, timer::LEAF),
            (table, timer::TABLE),
            (self.join.merge_deadline(), timer::MERGE),
        ];
        // A node that stops only closes its connections.
        let stop_at = self.lower.env.stop_at();
        let relevant = if stop_at.is_some() { &timers[..4] } else { &timers[..] };
        let stop = stop_at.filter(|at| *at > Instant::ZERO).map(|at| (at, timer::STOP));
        relevant.iter().filter_map(|(at, name)| at.map(|at| (at, *name))).chain(stop).min()
    }

    fn counters(&self, visit: VisitCounter<'_>) {
        self.lower.env.counters().visit(visit);
    }

    fn timescales(&self) -> Vec<(&'static str, Duration)> {
        let config = self.lower.env.config();
        vec![
            ("route.ack_timeout_min", config.ack_timeout_min),
            ("route.network_timeout", config.network_timeout),
            ("route.message_timeout", config.message_timeout),
            ("route.away_timeout", config.away_timeout),
            ("route.leaf_interval", config.leaf_interval),
            ("route.merge_interval", config.merge_interval),
        ]
    }
}
