//! The machine: matches what comes in and delegates to the nouns.

use std::net::SocketAddr;

use super::addr::Addr;
use super::config::{Config, ConfigError, Settings};
use super::contents::OwnContents;
use super::deadlines::Deadlines;
use super::handlers::{Handler, Handlers};
use super::health::Health;
use super::inbox::Packet;
use super::joins::{Joins, Transfers};
use super::keeper::Keeper;
use super::mail::Mail;
use super::members::{Members, Slot};
use super::message::Message;
use super::past::Past;
use super::probes::{Probes, Relays};
use super::selection::Selection;
use super::sequence::Sequence;
use super::standing::{Incarnation, Standing, State};
use super::suspicions::Suspicions;
use super::users::Seen;
use super::vivaldi::Coordinate;
use super::wire::Head;
use super::{Command, Counters, Event, Node, Reply};
use crate::counters::VisitCounter;
use crate::endpoint::{Bound, Endpoints, Socket, Space};
use crate::id::Id;
use crate::machine::{Machine, Refusal};
use crate::outbox::Outbox;
use crate::rng::{Rng, Seed};
use crate::store::StoreReply;
use crate::stream::StreamEvent;
use crate::tag::{RequestId, SocketId, SpaceId, StreamId};
use crate::time::{Instant, Now};

/// The datagram socket.
pub const UDP: SocketId = SocketId::new(0);
/// The space of the known members.
pub const SPACE: SpaceId = SpaceId::new(0);

/// The timers, by the name under which `poll_timeout` tells them.
mod timer {
    /// The next protocol period.
    pub(super) const PERIOD: &str = "members.period";
    /// A direct answer is overdue: others are asked for help.
    pub(super) const HELP: &str = "members.help";
    /// A suspicion was not disputed.
    pub(super) const SUSPICION: &str = "members.suspicion";
    /// A dead member is forgotten.
    pub(super) const GRAVE: &str = "members.grave";
    /// A ping for somebody else is overdue.
    pub(super) const RELAY: &str = "members.relay";
    /// A Join is sent again, or given up.
    pub(super) const JOIN: &str = "members.join";
    /// A joiner is greeted.
    pub(super) const GREETING: &str = "members.greeting";
    /// A table goes on.
    pub(super) const TRANSFER: &str = "members.transfer";
    /// Rumours go out between pings.
    pub(super) const GOSSIP: &str = "members.gossip";
    /// A past member is asked again.
    pub(super) const RETRY: &str = "members.retry";
    /// Tables are compared.
    pub(super) const SYNC: &str = "members.sync";
    /// The known members are written.
    pub(super) const KEEP: &str = "members.keep";
    /// A command has waited long enough.
    pub(super) const WAITING: &str = "members.waiting";
    /// The last goodbye has had its time.
    pub(super) const STOP: &str = "members.stop";
}

/// A command that waits for its rumour to be handed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Waiting {
    pub(super) request: RequestId,
    pub(super) until: Option<Instant>,
}

/// What may be done only so often in one period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Budget {
    /// Nodes told what is held against them.
    pub(super) pokes: u32,
    /// Contradictions of somebody else with our id.
    pub(super) conflicts: u32,
    /// User messages given to the application.
    pub(super) users: u32,
}

impl Budget {
    pub(super) const fn new() -> Self {
        Self { pokes: 16, conflicts: 1, users: 0 }
    }
}

/// One member of a group.
#[derive(Clone, Debug, PartialEq)]
pub struct Swim {
    pub(super) id: Id,
    pub(super) me: Slot,
    pub(super) own_contents: OwnContents,
    pub(super) settings: Settings,
    pub(super) seeds: Vec<SocketAddr>,
    pub(super) rng: Rng,
    pub(super) members: Members,
    pub(super) selection: Selection,
    pub(super) probes: Probes,
    pub(super) relays: Relays,
    pub(super) suspicions: Suspicions,
    pub(super) graves: Deadlines<Slot>,
    pub(super) greetings: Deadlines<Id>,
    pub(super) mail: Mail,
    pub(super) health: Health,
    pub(super) past: Past,
    pub(super) joins: Joins,
    pub(super) transfers: Transfers,
    pub(super) keeper: Keeper,
    pub(super) seen: Seen,
    pub(super) handlers: Handlers,
    pub(super) coordinate: Coordinate,
    /// Whom the last round trip was measured to, until somebody takes it.
    pub(super) measured: Option<Id>,
    pub(super) sequence: Sequence,
    pub(super) user_sequence: Sequence,
    pub(super) period: u32,
    pub(super) budget: Budget,
    pub(super) waiting: Vec<Waiting>,
    pub(super) next_tick: Option<Instant>,
    pub(super) next_gossip: Option<Instant>,
    pub(super) gossip_wanted: bool,
    pub(super) next_retry: Option<Instant>,
    pub(super) next_sync: Option<Instant>,
    pub(super) coordinate_at: Instant,
    pub(super) stopping: Option<Instant>,
    pub(super) running: bool,
    pub(super) leaving: bool,
    pub(super) aligned: bool,
    pub(super) sync_packets_max: usize,
    pub(super) user_events_max: u32,
    pub(super) waiting_max: usize,
    bind: SocketAddr,
    advertises: bool,
    leave_on_stop: bool,
    pub(super) counters: Counters,
}

pub(super) type Out<'a, 'b> = &'a mut Outbox<'b, Swim>;

impl Swim {
    /// A node with these settings; `seed` decides all it draws.
    ///
    /// # Errors
    /// If the settings cannot work.
    pub fn new(config: &Config, seed: Seed) -> Result<Self, ConfigError> {
        config.check()?;
        let mut rng = Rng::new(seed);
        let settings = config.settings.clone();
        let contents = OwnContents::new(&config.advertised(), &config.meta);
        let own_contents = contents.ok_or(ConfigError::Meta(config.meta.len()))?;
        let mut members = Members::new(config.members_max.max(1));
        let me = members
            .insert(config.id, Standing::default(), own_contents.borrow())
            .expect("an empty table has room for one");
        let sequence = config.first_sequence.unwrap_or_else(|| Sequence(rng.next_u32()));
        let user_sequence = config.first_sequence.unwrap_or_else(|| Sequence(rng.next_u32()));
        let selection = Selection::new(
            settings.region_count,
            settings.region_probes,
            settings.neighbor_count,
            settings.neighbor_probes,
        );
        Ok(Self {
            id: config.id,
            me,
            own_contents,
            seeds: config.seeds.clone(),
            rng,
            members,
            selection,
            probes: Probes::default(),
            relays: Relays::new(config.relays_max),
            suspicions: Suspicions::default(),
            graves: Deadlines::default(),
            greetings: Deadlines::default(),
            mail: Mail::new(config),
            health: Health::new(settings.health_max),
            past: Past::new(config.past_max),
            joins: Joins::new(config.joins_max),
            transfers: Transfers::new(config.transfers_max),
            keeper: Keeper::new(config.keep_interval, config.kept_max),
            seen: Seen::new(config.origins_max),
            handlers: Handlers::default(),
            coordinate: Coordinate::default(),
            measured: None,
            sequence,
            user_sequence,
            period: 0,
            budget: Budget::new(),
            waiting: Vec::new(),
            next_tick: None,
            next_gossip: None,
            gossip_wanted: false,
            next_retry: None,
            next_sync: None,
            coordinate_at: Instant::ZERO,
            stopping: None,
            running: false,
            leaving: false,
            aligned: config.aligned,
            sync_packets_max: config.sync_packets_max,
            user_events_max: config.user_events_max,
            waiting_max: config.waiting_max,
            bind: config.bind,
            advertises: !config.addrs.is_empty(),
            leave_on_stop: config.leave_on_stop,
            counters: Counters::default(),
            settings,
        })
    }

    /// Adds a handler that sees every message before the protocol does (S-108).
    pub fn use_handler(&mut self, handler: Box<dyn Handler>) {
        self.handlers.push(handler);
    }

    /// Takes these nodes for living members of incarnation 0, as if each had told: for experiments with groups that
    /// need not first be joined.
    pub fn assume(&mut self, nodes: &[Node]) {
        for node in nodes.iter().filter(|node| node.id != self.id) {
            let Some(contents) = OwnContents::new(&node.addrs, &node.meta) else { continue };
            let standing = Standing::new(Incarnation::default(), State::Alive);
            if let Some(slot) = self.members.insert(node.id, standing, contents.borrow()) {
                self.selection.add(slot, &mut self.rng);
            }
        }
    }

    /// What it has counted so far.
    #[must_use]
    pub fn counted(&self) -> Counters {
        Counters { packets_sent: self.mail.packets, bytes_sent: self.mail.bytes, ..self.counters }
    }

    /// Sets all counters to zero, so that two states can be compared without them.
    pub fn forget_counters(&mut self) {
        self.counters = Counters::default();
        (self.mail.packets, self.mail.bytes) = (0, 0);
    }

    /// All it knows of everybody.
    #[must_use]
    pub const fn members(&self) -> &Members {
        &self.members
    }

    /// The member to which a round trip was measured since this was last asked.
    pub fn take_measured(&mut self) -> Option<Id> {
        self.measured.take()
    }

    /// Who it is.
    #[must_use]
    pub const fn id(&self) -> Id {
        self.id
    }

    /// Its own incarnation.
    #[must_use]
    pub fn incarnation(&self) -> Incarnation {
        self.members.get(self.me).incarnation()
    }

    /// The number of the current protocol period.
    #[must_use]
    pub const fn period(&self) -> u32 {
        self.period
    }

    pub(super) fn next_sequence(&mut self) -> Sequence {
        self.sequence = self.sequence.next();
        self.sequence
    }

    /// There are rumours: if they go out between pings, they do so soon.
    pub(super) fn wake_gossip(&mut self) {
        self.gossip_wanted = true;
    }

    /// Sends rumours to some members at once, if that is configured.
    pub(super) fn gossip_now(&mut self, now: Now, out: Out<'_, '_>) {
        if !self.settings.gossip_interval.is_zero() {
            self.next_gossip = Some(now.mono + self.settings.gossip_interval);
            self.gossip_once(out);
        }
    }

    /// Sends rumours to some random members, to each once: in a small group everybody hears them at once.
    pub(super) fn gossip_once(&mut self, out: Out<'_, '_>) {
        for slot in self.selection.pick_some(self.settings.gossip_nodes, &mut self.rng) {
            if self.mail.gossip.is_empty() {
                break;
            }
            self.mail.send(self.members.get(slot).addr(), &[], self.members.live(), out);
        }
    }

    /// What every call ends with: those who wait are answered, and gossip is timed.
    fn flush(&mut self, now: Now, out: Out<'_, '_>) {
        for request in self.mail.gossip.settle() {
            out.reply(request, Reply::Done);
        }
        self.answer_handed(out);
        if self.selection.is_empty() {
            // SF-16: the last one who could have heard it is gone.
            self.end_waiting(&Reply::Done, out);
        }
        if core::mem::take(&mut self.gossip_wanted) && self.next_gossip.is_none() {
            self.time_gossip(now);
        }
        if self.stopping.is_some() {
            // What others still say while we say goodbye is kept too, and not in some seconds.
            self.keeper.hurry(now.mono);
            self.keep(now, out);
        }
    }

    /// Who waited for a rumour that was handed on is told.
    pub(super) fn answer_handed(&mut self, out: Out<'_, '_>) {
        for request in core::mem::take(&mut self.mail.handed) {
            if let Some(place) = self.waiting.iter().position(|waiting| waiting.request == request) {
                self.waiting.remove(place);
                out.reply(request, Reply::Done);
            }
        }
    }

    fn time_gossip(&mut self, now: Now) {
        let hurry = self.settings.probe_interval / 10;
        let every = if self.stopping.is_some() { hurry } else { self.settings.gossip_interval };
        let wanted = !self.mail.gossip.is_empty() && !self.selection.is_empty() && !every.is_zero();
        self.next_gossip = wanted.then(|| now.mono + every);
    }

    fn packet(&mut self, now: Now, from: SocketAddr, bytes: &[u8], out: Out<'_, '_>) -> Result<(), Refusal> {
        let (head, messages) = Head::read(bytes)?;
        if head.ring != self.mail.head.ring {
            return Err(Refusal::Reject("a packet of another ring"));
        }
        // The same node may come as 10.0.0.1 and as ::ffff:10.0.0.1: addresses have one form here.
        let mut packet = Packet::new(Addr::from(from).socket(), head.from);
        if head.from == self.id {
            return self.own_packet(&packet, out);
        }
        let (mut taken, mut first_error) = (false, None);
        for message in messages {
            match message {
                Ok(message) => {
                    if !core::mem::replace(&mut taken, true) {
                        self.heard(&mut packet, out);
                    }
                    self.message(now, &packet, message, out);
                }
                // SA-54: one bad message is counted, the rest of the packet is delivered.
                Err(error) => {
                    self.counters.malformed += u64::from(first_error.replace(error).is_some());
                }
            }
        }
        match first_error {
            Some(error) if !taken => Err(error.into()),
            Some(_) => {
                self.counters.malformed += 1;
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// A packet with our own id: somebody else has it, too (SA-58), or the network sent our own back.
    fn own_packet(&mut self, packet: &Packet, out: Out<'_, '_>) -> Result<(), Refusal> {
        let ours = self.own_contents.borrow().addrs().any(|addr| addr == packet.addr);
        if ours || self.budget.conflicts == 0 {
            return Err(Refusal::Reject("a packet with our own id"));
        }
        self.budget.conflicts -= 1;
        self.counters.conflicts += 1;
        out.event(Event::IdConflict { addr: packet.addr });
        Ok(())
    }

    /// Everything whose time has come, but for the period itself.
    fn due(&mut self, now: Now, out: Out<'_, '_>) {
        while let Some(probe) = self.probes.pop_help(now.mono) {
            self.ask_for_help(now, &probe, out);
        }
        while let Some(relay) = self.relays.pop_due(now.mono) {
            if relay.nack {
                let nack = Message::IndirectNack { header: self.header(relay.sequence) };
                self.mail.send(relay.reply_to, &[nack], self.members.live(), out);
            }
        }
        while let Some((slot, incarnation)) = self.suspicions.pop_due(now.mono) {
            self.suspicion_over(now, slot, incarnation, out);
        }
        while let Some(slot) = self.graves.pop_due(now.mono) {
            self.forget(now, slot, out);
        }
        while let Some(id) = self.greetings.pop_due(now.mono) {
            self.greet(id, out);
        }
        self.join_again(now, out);
        self.transfer(now, out);
        self.keep(now, out);
        if self.next_gossip.is_some_and(|at| at <= now.mono) {
            self.gossip_once(out);
            self.time_gossip(now);
        }
        if self.next_retry.is_some_and(|at| at <= now.mono) {
            self.retry(now, out);
        }
        if self.next_sync.is_some_and(|at| at <= now.mono) {
            self.start_sync(out);
            self.next_sync = Some(now.mono + self.settings.sync_interval);
        }
        self.give_up_waiting(now, out);
        if self.stopping.is_some_and(|at| at <= now.mono) {
            self.mail.gossip.stop();
            self.next_gossip = None;
        }
    }

    fn give_up_waiting(&mut self, now: Now, out: Out<'_, '_>) {
        let over = |waiting: &Waiting| waiting.until.is_some_and(|until| until <= now.mono);
        for waiting in self.waiting.iter().filter(|waiting| over(waiting)) {
            out.reply(waiting.request, Reply::TimedOut);
        }
        self.waiting.retain(|waiting| !over(waiting));
    }
}

impl Machine for Swim {
    type Command = Command;
    type Reply = Reply;
    type Event = Event;

    fn endpoints(&self) -> Endpoints {
        Endpoints {
            sockets: vec![Socket { id: UDP, name: "members/udp", bind: self.bind, broadcast: Vec::new() }],
            listeners: Vec::new(),
            spaces: vec![Space { id: SPACE, name: "members" }],
        }
    }

    fn handle_start(&mut self, now: Now, bound: &Bound, out: Out<'_, '_>) {
        if let Some(addr) = bound.socket(UDP).filter(|_| !self.advertises) {
            let meta = self.own_contents.borrow().meta().to_vec();
            if let Some(contents) = OwnContents::new(&[addr], &meta) {
                self.members.describe(self.me, contents.borrow());
                self.own_contents = contents;
            }
        }
        self.read_kept(now, &[], out);
        self.flush(now, out);
    }

    fn handle_datagram(
        &mut self,
        now: Now,
        _: SocketId,
        from: SocketAddr,
        bytes: &[u8],
        out: Out<'_, '_>,
    ) -> Result<(), Refusal> {
        let outcome = if self.running || self.stopping.is_some() {
            self.packet(now, from, bytes, out)
        } else {
            Err(Refusal::Reject("not started"))
        };
        match outcome {
            Ok(()) => self.flush(now, out),
            Err(Refusal::Decode(_)) => self.counters.malformed += 1,
            Err(Refusal::Reject(_)) => self.counters.rejected += 1,
        }
        outcome
    }

    fn handle_stream(
        &mut self,
        _: Now,
        _: StreamId,
        _: StreamEvent<'_>,
        _: Out<'_, '_>,
    ) -> Result<(), Refusal> {
        // It has no listener and opens none.
        Ok(())
    }

    fn handle_stored(&mut self, now: Now, reply: StoreReply<'_>, out: Out<'_, '_>) {
        self.stored(now, reply, out);
        self.flush(now, out);
    }

    fn handle_command(&mut self, now: Now, request: RequestId, command: Command, out: Out<'_, '_>) {
        if let Some(reply) = self.command(now, request, command, out) {
            out.reply(request, reply);
        }
        self.flush(now, out);
    }

    fn handle_timeout(&mut self, now: Now, out: Out<'_, '_>) {
        // The period first: if it is late, what ran out meanwhile has not (SA-32).
        if self.next_tick.is_some_and(|at| at <= now.mono) {
            self.tick(now, out);
        }
        self.due(now, out);
        self.flush(now, out);
    }

    fn handle_stop(&mut self, now: Now, out: Out<'_, '_>) {
        if self.stopping.is_some() {
            return;
        }
        self.stopping = Some(now.mono + self.settings.probe_interval);
        if self.leave_on_stop && self.running && !self.leaving {
            self.say_goodbye(None);
        }
        (self.next_tick, self.next_sync, self.next_retry) = (None, None, None);
        self.running = false;
        self.probes.take();
        self.joins.clear();
        self.gossip_once(out);
        self.time_gossip(now);
        self.end_waiting(&Reply::Stopped, out);
        self.keeper.hurry(now.mono);
        self.keep(now, out);
        self.flush(now, out);
    }

    fn is_stopped(&self) -> bool {
        let silent = self.next_gossip.is_none();
        self.stopping.is_some() && silent && self.keeper.is_settled()
    }

    fn poll_timeout(&self) -> Option<(Instant, &'static str)> {
        let timers = [
            (self.next_tick, timer::PERIOD),
            (self.probes.deadline(), timer::HELP),
            (self.suspicions.deadline(), timer::SUSPICION),
            (self.graves.next(), timer::GRAVE),
            (self.relays.deadline(), timer::RELAY),
            (self.joins.deadline(), timer::JOIN),
            (self.greetings.next(), timer::GREETING),
            (self.transfers.deadline(), timer::TRANSFER),
            (self.next_gossip, timer::GOSSIP),
            (self.next_retry, timer::RETRY),
            (self.next_sync, timer::SYNC),
            (self.keeper.deadline(), timer::KEEP),
            (self.waiting.iter().filter_map(|waiting| waiting.until).min(), timer::WAITING),
            (self.stopping.filter(|_| self.next_gossip.is_some()), timer::STOP),
        ];
        timers.into_iter().filter_map(|(at, name)| at.map(|at| (at, name))).min()
    }

    fn counters(&self, visit: VisitCounter<'_>) {
        self.counted().visit(visit);
    }
}
