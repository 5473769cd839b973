//! The machine: matches what comes in and delegates to the nouns.
//!
//! The work is in `arrival.rs` (joins, ours and others'), `passage.rs` (messages that are routed), `seats.rs` (who is in
//! the tables) and `upkeep.rs` (probes and repairs).

use core::time::Duration;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;

use super::acks::Acks;
use super::apps::Registered;
use super::config::{Config, ConfigError};
use super::contact::{Contact, Incarnation, Versions};
use super::counts::Counters;
use super::inquiry::Inquiries;
use super::join::Join;
use super::leaf_set::LeafSet;
use super::message::{AppName, Message, MessageId, RingTag};
use super::neighbourhood::Neighbourhood;
use super::peers::Peers;
use super::probes::Probes;
use super::proximity::ProximityCache;
use super::relays::Relays;
use super::repairs::{Repairs, Requests};
use super::routing::{Avoid, Step, Tables};
use super::routing_table::RoutingTable;
use super::seats::Departed;
use super::sendings::{Questions, Sendings};
use super::window::Window;
use super::wire::{decode, encode};
use super::{Application, Command, Event, Reply};
use crate::counters::VisitCounter;
use crate::endpoint::{Bound, Endpoints, Listener, Socket, Space};
use crate::id::Id;
use crate::machine::{Machine, Refusal};
use crate::outbox::Outbox;
use crate::pool::{self, Pool, Taken};
use crate::rng::{Rng, Seed};
use crate::store::{StoreReply, StoreResult};
use crate::stream::{CloseReason, StreamEvent};
use crate::tag::{ListenerId, OpId, RequestId, SocketId, SpaceId, StreamId};
use crate::time::{Instant, Now};
use crate::wire::Writer;

/// The datagram socket, for probes.
pub const UDP: SocketId = SocketId::new(0);
/// The stream listener, for everything else.
pub const TCP: ListenerId = ListenerId::new(0);
/// The space of the incarnation.
pub const SPACE: SpaceId = SpaceId::new(0);

const INCARNATION_KEY: &[u8] = b"incarnation";
const LOAD: OpId = OpId::new(1);
const KEEP: OpId = OpId::new(2);
/// What is kept of the memory in which messages are written.
const SCRATCH_KEPT_BYTES: usize = 4096;
/// The longest datagram: a pong from an IPv6 address.
const DATAGRAM_BYTES_MAX: usize = 128;

/// The timers, by the name under which `poll_timeout` tells them.
mod timer {
    /// The join goes on, or is tried again.
    pub(super) const JOIN: &str = "route.join";
    /// A probe was not answered.
    pub(super) const PROBE: &str = "route.probe";
    /// A message was not acknowledged, or was held too long.
    pub(super) const RELAY: &str = "route.relay";
    /// A message of ours got no receipt.
    pub(super) const MESSAGE: &str = "route.message";
    /// A question got no answer from our application.
    pub(super) const QUESTION: &str = "route.question";
    /// A neighbour did not say whether it delivered a message.
    pub(super) const INQUIRY: &str = "route.inquiry";
    /// A request for state was not answered.
    pub(super) const REQUEST: &str = "route.request";
    /// A table is to be repaired.
    pub(super) const REPAIR: &str = "route.repair";
    /// The nearest leaves are to be probed.
    pub(super) const LEAF: &str = "route.leaf";
    /// The whole table is to be probed and improved.
    pub(super) const TABLE: &str = "route.table";
    /// A lost node is to be tried again.
    pub(super) const MERGE: &str = "route.merge";
    /// A connection runs out.
    pub(super) const CONNECTION: &str = "route.connection";
    /// The goodbye has had its time.
    pub(super) const STOP: &str = "route.stop";
}

/// When the periodic work is due; nothing before the node is active.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Periods {
    pub(super) leaf: Option<Instant>,
    pub(super) table: Option<Instant>,
    pub(super) merge: Option<Instant>,
}

/// A node of a Pastry ring.
#[derive(Clone, Debug, PartialEq)]
pub struct Pastry {
    pub(super) config: Config,
    /// How long a node that did not acknowledge has to answer whether it lives.
    pub(super) grace: Duration,
    pub(super) own: Contact,
    pub(super) ring: RingTag,
    pub(super) rng: Rng,
    pub(super) apps: Vec<Registered>,
    pub(super) peers: Peers,
    pub(super) leaf_set: LeafSet,
    pub(super) routing_table: RoutingTable,
    pub(super) neighbourhood: Neighbourhood,
    pub(super) cache: ProximityCache,
    pub(super) departed: Departed,
    pub(super) past: VecDeque<Contact>,
    pub(super) pool: Pool<Contact>,
    pub(super) probes: Probes,
    pub(super) requests: Requests,
    pub(super) repairs: Repairs,
    pub(super) relays: Relays,
    pub(super) sendings: Sendings,
    pub(super) questions: Questions,
    pub(super) window: Window,
    /// Messages that we told a neighbour we did not deliver.
    pub(super) denied: Window,
    pub(super) inquiries: Inquiries,
    pub(super) join: Join,
    pub(super) next_seed: usize,
    /// When this node found its place among others.
    pub(super) joined: Option<Instant>,
    /// When this life began.
    pub(super) started: Instant,
    /// Nodes that `members` named while this one has not joined.
    pub(super) named: Vec<(Id, SocketAddr)>,
    pub(super) periods: Periods,
    /// The leaf set as the application was last told of it.
    pub(super) shown: Vec<Id>,
    pub(super) shown_version: u32,
    /// The upper halves of the numbers of our messages: only who carried a message knows its number.
    numbers: Rng,
    messages: u64,
    stopping: Option<Instant>,
    pub(super) acks: Acks,
    /// Empty between calls; its memory is kept.
    pub(super) inbox: Vec<Message>,
    /// Empty between calls; its memory is kept.
    scratch: Vec<u8>,
    pub(super) counters: Counters,
}

pub(super) type Out<'a, 'b> = &'a mut Outbox<'b, Pastry>;

impl Pastry {
    /// A node with these settings; `seed` decides all it draws.
    ///
    /// # Errors
    /// If the settings cannot work together.
    pub fn new(config: Config, seed: Seed) -> Result<Self, ConfigError> {
        config.check()?;
        let mut rng = Rng::new(seed);
        let addr = config.advertise.unwrap_or(config.bind);
        let pool = Pool::new(pool::Config {
            connections_max: config.connections_max,
            accepted_per_address_max: (config.accepted_max / 4).max(1),
            queue_bytes_max: config.queue_bytes_max,
            queues_bytes_max: config.queue_bytes_max.saturating_mul(2),
            message_bytes_max: config.message_bytes_max,
            unfinished_bytes_max: config.message_bytes_max.saturating_mul(8),
            connect_timeout: config.network_timeout,
            idle_timeout: config.idle_timeout,
        });
        let applications = config.applications.iter();
        Ok(Self {
            grace: config.network_timeout / 3,
            own: Contact { id: config.id, addr, incarnation: Incarnation(0) },
            ring: RingTag::new(&config.ring),
            apps: applications.map(|name| Registered { name: name.clone(), application: None }).collect(),
            peers: Peers::default(),
            leaf_set: LeafSet::new(config.id, config.side_max()),
            routing_table: RoutingTable::new(config.id, config.base),
            neighbourhood: Neighbourhood::new(config.neighbourhood_max),
            cache: ProximityCache::new(config.proximities_max, config.proximity_lifetime),
            departed: Departed::default(),
            past: VecDeque::new(),
            pool,
            probes: Probes::new(rng.next_u64(), config.probes_max, config.candidates_max),
            requests: Requests::default(),
            repairs: Repairs::default(),
            relays: Relays::new(config.relays_max),
            sendings: Sendings::new(config.sendings_max),
            questions: Questions::new(config.questions_max),
            window: Window::new(rng.next_u64(), config.window_max),
            denied: Window::new(rng.next_u64(), config.window_max),
            inquiries: Inquiries::default(),
            join: Join::new(),
            next_seed: 0,
            joined: None,
            started: Instant::ZERO,
            named: Vec::new(),
            periods: Periods::default(),
            shown: Vec::new(),
            shown_version: 0,
            numbers: Rng::from_number(rng.next_u64(), 0),
            messages: 0,
            stopping: None,
            acks: Acks::default(),
            inbox: Vec::new(),
            scratch: Vec::new(),
            counters: Counters::default(),
            rng,
            config,
        })
    }

    /// Has `application` decide about messages for `name` that pass, and runs it here.
    #[must_use]
    pub fn with_application(mut self, name: AppName, application: Arc<dyn Application>) -> Self {
        self.apps.retain(|app| app.name != name);
        self.apps.push(Registered { name, application: Some(application) });
        self
    }

    /// What it has counted so far.
    #[must_use]
    pub fn counted(&self) -> Counters {
        self.counters
    }

    /// Sets all counters to zero, so that two states can be compared without them.
    pub fn forget_counters(&mut self) {
        self.counters = Counters::default();
    }

    /// The node as others know it.
    #[must_use]
    pub fn own(&self) -> Contact {
        self.own
    }

    /// Whether it has joined: it delivers.
    #[must_use]
    pub fn is_active(&self) -> bool {
        self.join.is_active()
    }

    /// Whether it is at rest: no probe, request or improvement is under way.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.probes.is_idle() && self.requests.len() == 0 && !self.repairs.is_improving()
    }

    /// The leaf set.
    #[must_use]
    pub fn leaf_set(&self) -> &LeafSet {
        &self.leaf_set
    }

    /// The routing table.
    #[must_use]
    pub fn routing_table(&self) -> &RoutingTable {
        &self.routing_table
    }

    /// The neighbourhood set.
    #[must_use]
    pub fn neighbourhood(&self) -> &Neighbourhood {
        &self.neighbourhood
    }

    /// Who and where a node with a seat is.
    #[must_use]
    pub fn contact(&self, id: Id) -> Option<Contact> {
        self.peers.get(id).map(|peer| peer.contact)
    }

    /// The nodes that messages go around for now.
    #[must_use]
    pub fn suspected(&self) -> &[Id] {
        self.peers.suspected()
    }

    /// How many connections there are.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.pool.len()
    }

    /// Where a message to `key` would go next. Allocates nothing.
    #[must_use]
    pub fn decide(&self, key: Id) -> Step {
        self.tables().decide(key, Avoid { suspected: self.peers.suspected(), ..Avoid::default() })
    }

    pub(super) fn register(&mut self, name: AppName) {
        if self.apps.iter().all(|app| app.name != name) {
            self.apps.push(Registered { name, application: None });
        }
    }

    pub(super) fn tables(&self) -> Tables<'_> {
        Tables { own: self.own.id, leaf_set: &self.leaf_set, routing_table: &self.routing_table }
    }

    pub(super) fn versions(&self) -> Versions {
        Versions {
            leaf_set: self.leaf_set.version(),
            routing_table: self.routing_table.version(),
            neighbourhood: self.neighbourhood.version(),
        }
    }

    /// A number for a message of our own, at this place among the sendings.
    pub(super) fn allot_message(&mut self, place: u64) -> MessageId {
        self.messages += 1;
        let number = Sendings::number(self.messages, place);
        MessageId(u128::from(self.numbers.next_u64()) << 64 | u128::from(number))
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.stopping.is_some()
    }

    /// Sends a message over a stream; `None` if a limit is reached.
    pub(super) fn send(
        &mut self,
        now: Now,
        to: SocketAddr,
        message: &Message,
        out: Out<'_, '_>,
    ) -> Option<Taken> {
        self.send_with(now, to, |writer| encode(message, writer), out)
    }

    /// The same, of a message that is written on the way.
    pub(super) fn send_with(
        &mut self,
        now: Now,
        to: SocketAddr,
        write: impl FnOnce(&mut Writer<'_>),
        out: Out<'_, '_>,
    ) -> Option<Taken> {
        let mut bytes = core::mem::take(&mut self.scratch);
        let mut writer = Writer::new(&mut bytes, self.config.message_bytes_max);
        write(&mut writer);
        let fits = writer.finish().is_ok();
        let taken = if fits { self.pool.send(now.mono, to, &bytes, out).ok() } else { None };
        bytes.clear();
        bytes.shrink_to(SCRATCH_KEPT_BYTES);
        self.scratch = bytes;
        self.counters.frames_sent += u64::from(taken.is_some());
        self.counters.frames_refused += u64::from(taken.is_none());
        taken
    }

    /// Sends a message in a datagram.
    pub(super) fn send_datagram(&mut self, to: SocketAddr, message: &Message, out: Out<'_, '_>) {
        out.send_with(UDP, to, DATAGRAM_BYTES_MAX, |writer| encode(message, writer))
            .expect("pings and pongs are short");
    }

    /// What every call ends with: work that became possible by it.
    fn settle(&mut self, now: Now, out: Out<'_, '_>) {
        if self.is_stopping() {
            return;
        }
        self.ask_candidates(now, out);
        self.go_on_joining(now, out);
        self.go_on_improving(now, out);
        self.show_leaf_set(out);
    }

    fn loaded(&mut self, now: Now, stored: Option<u64>, out: Out<'_, '_>) {
        // A life that cannot be counted is told apart by the clock; nothing is decided by that but which of two
        // lives is the later one.
        let incarnation = stored.map_or(now.wall.as_micros(), |last| last.saturating_add(1));
        self.own.incarnation = Incarnation(incarnation);
        self.started = now.mono;
        out.put(KEEP, SPACE, INCARNATION_KEY, &incarnation.to_be_bytes(), true);
        let hello = Message::Hello { ring: self.ring, from: self.own };
        let greeting = bytes_of(&hello, DATAGRAM_BYTES_MAX).expect("a hello is short");
        self.pool.set_greeting(greeting, Some(self.config.bind.ip()));
        self.start_joining(now, out);
    }
}

/// The bytes of a message; `None` if there are too many.
fn bytes_of(message: &Message, bytes_max: usize) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut writer = Writer::new(&mut bytes, bytes_max);
    encode(message, &mut writer);
    writer.finish().ok()?;
    Some(bytes)
}

impl Machine for Pastry {
    type Command = Command;
    type Reply = Reply;
    type Event = Event;

    fn endpoints(&self) -> Endpoints {
        let (bind, streams_max) = (self.config.bind, self.config.accepted_max);
        Endpoints {
            sockets: vec![Socket { id: UDP, name: "route/udp", bind, broadcast: Vec::new() }],
            listeners: vec![Listener { id: TCP, name: "route/tcp", bind, streams_max }],
            spaces: vec![Space { id: SPACE, name: "route" }],
        }
    }

    fn handle_start(&mut self, _: Now, bound: &Bound, out: Out<'_, '_>) {
        if let (None, Some(addr)) = (self.config.advertise, bound.listener(TCP)) {
            self.own.addr = addr;
        }
        out.get(LOAD, SPACE, INCARNATION_KEY);
    }

    fn handle_datagram(
        &mut self,
        now: Now,
        _: SocketId,
        from: SocketAddr,
        bytes: &[u8],
        out: Out<'_, '_>,
    ) -> Result<(), Refusal> {
        let message = decode(bytes).inspect_err(|_| self.counters.malformed += 1)?;
        match message {
            Message::Ping { ring, nonce, .. } if ring == self.ring => {
                let pong = self.pong(now, nonce);
                self.send_datagram(from, &pong, out);
            }
            Message::Pong { ring, nonce, from, leaf_set_version, clock } if ring == self.ring => {
                if !self.on_pong(now, (nonce, false), from, leaf_set_version, clock, out) {
                    return Err(Refusal::Reject("a pong that answers no probe under way"));
                }
            }
            _ => {
                self.counters.refused += 1;
                return Err(Refusal::Reject("not a probe of this ring"));
            }
        }
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
                let is_taken = self.pool.accepted(now.mono, stream, from.ip(), out);
                self.counters.connections_refused += u64::from(!is_taken);
            }
            StreamEvent::Connected { .. } => self.pool.connected(now.mono, stream),
            StreamEvent::Data(data) => outcome = self.received(now, stream, data, out),
            StreamEvent::Sent { bytes, .. } => self.pool.sent(stream, bytes, out),
            StreamEvent::Finished => {
                if let Err(error) = self.pool.finished(now.mono, stream, out) {
                    outcome = Err(self.refuse(now, stream, error.into(), out));
                }
            }
            StreamEvent::Closed(reason) => {
                // One that ended in good order took nothing with it: acknowledgements still come, by another.
                let lost = self.pool.closed(stream).filter(|_| reason != CloseReason::Done);
                self.lost(now, lost, out);
            }
        }
        // What is refused is a stream that was reset, and that may be a reason to ask somebody.
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
        if self.is_stopping() {
            out.reply(request, Reply::Stopping);
            return;
        }
        self.command(now, request, command, out);
        self.settle(now, out);
    }

    fn handle_timeout(&mut self, now: Now, out: Out<'_, '_>) {
        self.notice_standstill(now);
        let mut lost = Vec::new();
        self.pool.expire(now.mono, &mut lost, out);
        lost.into_iter().for_each(|lost| self.lost(now, Some(lost), out));
        self.expire_messages(now, out);
        if self.stopping.is_some_and(|at| at <= now.mono) {
            self.stopping = Some(Instant::ZERO);
        }
        if !self.is_stopping() {
            self.expire_probes(now, out);
            self.go_on_repairing(now, out);
            self.do_periodic_work(now, out);
        }
        self.settle(now, out);
    }

    fn handle_stop(&mut self, now: Now, out: Out<'_, '_>) {
        if self.is_stopping() {
            return;
        }
        let peers: Vec<SocketAddr> = self.peers.iter().map(|peer| peer.contact.addr).collect();
        for to in peers {
            self.send(now, to, &Message::Exit, out);
        }
        self.end_held(now, out);
        for sending in self.sendings.drain() {
            out.reply(sending.request, Reply::Unknown);
        }
        self.pool.finish_all(now.mono, out);
        self.stopping = Some(now.mono + self.config.network_timeout);
    }

    fn is_stopped(&self) -> bool {
        self.stopping.is_some() && (self.pool.is_empty() || self.stopping == Some(Instant::ZERO))
    }

    fn poll_timeout(&self) -> Option<(Instant, &'static str)> {
        let timers = [
            (self.pool.deadline(), timer::CONNECTION),
            (self.relays.deadline(), timer::RELAY),
            (self.sendings.deadline(), timer::MESSAGE),
            (self.questions.deadline(), timer::QUESTION),
            (self.inquiries.deadline(), timer::INQUIRY),
            (self.probes.deadline(), timer::PROBE),
            (self.requests.deadline(), timer::REQUEST),
            (self.repairs.deadline(), timer::REPAIR),
            (self.join.deadline(), timer::JOIN),
            (self.periods.leaf, timer::LEAF),
            (self.periods.table, timer::TABLE),
            (self.periods.merge, timer::MERGE),
        ];
        // A node that leaves has nothing to do but to let its goodbyes out.
        let relevant = if self.is_stopping() { &timers[..5] } else { &timers[..] };
        let stop = self.stopping.filter(|at| *at > Instant::ZERO).map(|at| (at, timer::STOP));
        relevant.iter().filter_map(|(at, name)| at.map(|at| (at, *name))).chain(stop).min()
    }

    fn counters(&self, visit: VisitCounter<'_>) {
        self.counters.visit(visit);
    }
}
