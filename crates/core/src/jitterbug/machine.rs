//! The machine: matches what comes in and delegates to the states and the nouns.

use core::time::Duration;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use super::add_set::AddSet;
use super::application::Application;
use super::changes::Changes;
use super::config::{Config, ConfigError};
use super::graph::Log;
use super::holds::{Asked, Holds, Released};
use super::incoming::Incomings;
use super::lead::Lead;
use super::limiter::Limiter;
use super::list::NodeList;
use super::loops::Loops;
use super::message::{HostId, Message, NodeEntry, SignedId, TokenId};
use super::peers::Peers;
use super::penalties::Penalties;
use super::restore::Restore;
use super::start::Stage;
use super::twins::Twins;
use super::wire::decode_datagram;
use super::{Command, Event, LostReason, Reply};
use crate::counters::VisitCounter;
use crate::endpoint::{Bound, Endpoints, Listener, Socket, Space};
use crate::machine::{Machine, Refusal};
use crate::outbox::Outbox;
use crate::rng::{Rng, Seed};
use crate::store::StoreReply;
use crate::stream::StreamEvent;
use crate::tag::{ListenerId, OpId, RequestId, SocketId, SpaceId, StreamId};
use crate::time::{Instant, Now};

/// The datagram socket.
pub const UDP: SocketId = SocketId::new(0);
/// The stream listener.
pub const TCP: ListenerId = ListenerId::new(0);
/// The space of the identity and of what the application keeps.
pub const SPACE: SpaceId = SpaceId::new(0);

crate::counters! {
    /// What a node of the token ring counts.
    pub struct Counters {
        /// Tenures begun.
        tenures,
        /// Tokens passed on.
        passes,
        /// Attempts to pass that failed.
        passes_failed,
        /// Restores begun.
        restores,
        /// Restores granted: tokens made.
        restores_granted,
        /// Restores denied.
        restores_denied,
        /// Tokens dropped by the coin.
        coin_drops,
        /// Tokens dropped because this node stood still.
        stalls,
        /// Tokens dropped to look for nodes that were named and are not in the list.
        strangers_sought,
        /// Merges of data.
        merges,
        /// Merges in which two lines met.
        lines_met,
        /// Tokens that met a leader and became one with its own.
        tokens_coalesced,
        /// Tenures lengthened because the token has a twin in the ring.
        twins_awaited,
        /// Whole tokens given up because ours was on its way out.
        tokens_discarded,
        /// Offers refused while a pass was under way.
        offers_refused,
        /// Datagrams and streams that were no message of ours.
        malformed,
        /// Datagrams and streams refused: not allowed, too many, or not now.
        refused,
        /// Answers that came when nothing was asked.
        answers_unasked,
        /// Own datagrams that came back.
        echoes,
        /// Streams of others that ran out of time.
        streams_expired,
        /// Nodes not remembered because the add-set was full.
        add_set_full,
        /// Calls of the application that failed.
        application_failures,
        /// Operations of the store that failed.
        store_failures,
    }
}

/// The timers, by the name under which `poll_timeout` tells them.
pub(super) mod timer {
    /// The next step of a restore.
    pub(crate) const RESTORE: &str = "token.restore";
    /// A waiter has waited long enough.
    pub(crate) const RENEW: &str = "token.renew";
    /// The next step of a leader: pass, new round, or an attempt's end.
    pub(crate) const LEAD: &str = "token.lead";
    /// The oldest stream of somebody else runs out.
    pub(crate) const STREAM: &str = "token.stream";
    /// A stream on which we passed the token runs out.
    pub(crate) const LINGER: &str = "token.linger";
    /// The disk is read again.
    pub(crate) const LOAD: &str = "token.load";
    /// A hold reaches its limit.
    pub(crate) const HOLD: &str = "token.hold";
    /// A change is taken back.
    pub(crate) const CHANGE: &str = "token.change";
    /// A leader looks whether it stood still.
    pub(crate) const PULSE: &str = "token.pulse";
}

/// A node is in exactly one of these (J-13).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum State {
    Orphan(Restore),
    Waiter { renew_at: Instant },
    Leader(Box<Lead>),
}

/// A node of the token ring, carrying the data of an application.
#[derive(Clone, Debug, PartialEq)]
pub struct Jitterbug<A> {
    pub(super) config: Config,
    pub(super) app: A,
    pub(super) rng: Rng,
    pub(super) stage: Stage,
    pub(super) state: State,
    pub(super) host_id: HostId,
    pub(super) tcp_port: u16,
    // The state variables of the document.
    pub(super) token: TokenId,
    pub(super) data: Vec<u8>,
    pub(super) list: NodeList,
    pub(super) add_set: AddSet,
    pub(super) penalties: Penalties,
    /// When the data was last known to be that of the token.
    pub(super) known_at: Instant,
    /// The lines that met here since our last tenure: ours, theirs.
    pub(super) merged: Vec<(TokenId, TokenId)>,
    pub(super) incomings: Incomings,
    /// Streams on which we passed the token, until when the candidate may take to read it.
    pub(super) lingering: BTreeMap<StreamId, Instant>,
    pub(super) holds: Holds,
    pub(super) changes: Changes,
    pub(super) limiter: Limiter,
    pub(super) loops: Loops,
    pub(super) twins: Twins,
    pub(super) log: Log,
    /// Whom to ask beyond the broadcast domain.
    pub(super) peers: Peers,
    pub(super) fence: Option<u64>,
    pub(super) passed_to: Option<HostId>,
    /// Who has the token while we have not, as far as we were told.
    pub(super) holder: Option<HostId>,
    pub(super) duplicate: Option<SocketAddr>,
    pub(super) renew_told: Duration,
    pub(super) numbers: Numbers,
    pub(super) counters: Counters,
}

/// Counts up whatever needs a number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Numbers {
    streams: u64,
    ops: u64,
    asks: u64,
}

impl Numbers {
    pub(super) fn stream(&mut self) -> StreamId {
        self.streams += 1;
        StreamId::opened(self.streams)
    }

    pub(super) fn op(&mut self) -> OpId {
        self.ops += 1;
        OpId::new(self.ops)
    }

    pub(super) fn ask(&mut self) -> u64 {
        self.asks += 1;
        self.asks
    }
}

pub(super) type Out<'a, 'b, A> = &'a mut Outbox<'b, Jitterbug<A>>;

impl<A: Application> Jitterbug<A> {
    /// A node with these settings; `seed` decides all it draws.
    ///
    /// # Errors
    /// If the settings cannot work together.
    pub fn new(config: &Config, app: A, seed: Seed) -> Result<Self, ConfigError> {
        config.check()?;
        let mut rng = Rng::new(seed);
        let token = TokenId::draw(&mut rng);
        Ok(Self {
            app,
            stage: Stage::Created,
            state: State::Waiter { renew_at: Instant::FAR },
            host_id: HostId::new(0).expect("0 is a host id"),
            tcp_port: config.tcp_port,
            token,
            data: Vec::new(),
            list: NodeList::new(),
            add_set: AddSet::new(config.add_set_max),
            penalties: Penalties::default(),
            known_at: Instant::ZERO,
            merged: Vec::new(),
            incomings: Incomings::new(config.streams_max, config.data_bytes_max),
            lingering: BTreeMap::new(),
            holds: Holds::default(),
            changes: Changes::default(),
            limiter: Limiter::new(config.tr1_per_second_max),
            loops: Loops::default(),
            twins: Twins::default(),
            log: Log::default(),
            peers: Peers::default(),
            fence: None,
            passed_to: None,
            holder: None,
            duplicate: None,
            renew_told: config.renew_timeout,
            numbers: Numbers::default(),
            counters: Counters::default(),
            config: config.clone(),
            rng,
        })
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

    /// The own id with the sign of the state (J-97).
    pub(super) fn signed(&self) -> SignedId {
        match self.state {
            State::Leader(_) => self.token.held(),
            State::Orphan(_) | State::Waiter { .. } => self.token.free(),
        }
    }

    pub(super) fn own_entry(&self) -> NodeEntry {
        NodeEntry::new(self.host_id, self.config.addr.to_canonical(), self.tcp_port)
    }

    /// How many nodes there are, as far as we know.
    pub(super) fn nodes_known(&self) -> usize {
        self.list.len() + self.add_set.unknown_to(&self.list)
    }

    /// How long a waiter waits now.
    pub(super) fn renew(&self) -> Duration {
        self.config.renew_for(self.nodes_known())
    }

    pub(super) fn enter(&mut self, state: State, out: Out<'_, '_, A>) {
        self.state = state;
        out.event(Event::StateEntered { state: self.state_name(), token_id: self.token });
    }

    pub(super) fn become_waiter(&mut self, now: Now, out: Out<'_, '_, A>) {
        // Who leaves does not come back for the token, however long its last streams and its disk take.
        let renew_at = if self.stage.is_ending() { Instant::FAR } else { now.mono + self.renew() };
        self.enter(State::Waiter { renew_at }, out);
    }

    fn hold(&mut self, now: Now, request: RequestId, limit: Duration, out: Out<'_, '_, A>) -> Option<Reply> {
        let limit = limit.min(self.config.hold_max);
        if !self.holds.ask(Asked { request, limit }) {
            return Some(Reply::Refused(
                "64 turns wait for the token at this agent already: try again when some are over",
            ));
        }
        self.grant_hold(now, out);
        None // The reply comes with the token.
    }

    fn release(&mut self, now: Now, hold: RequestId, out: Out<'_, '_, A>) -> Reply {
        match self.holds.release(hold) {
            Released::Active(released) => {
                out.event(Event::TokenReleased { hold, fence: released.fence });
                self.proceed(now, out);
                Reply::Done
            }
            Released::Waiting => {
                out.reply(hold, Reply::NotHeld);
                Reply::Done
            }
            Released::Unknown => Reply::NotHeld,
        }
    }

    fn expire(&mut self, now: Now, out: Out<'_, '_, A>) {
        while let Some(stream) = self.incomings.take_expired(now.mono) {
            self.counters.streams_expired += 1;
            out.abort(stream);
        }
        let over: Vec<StreamId> = self
            .lingering
            .iter()
            .filter(|(_, until)| **until <= now.mono)
            .map(|(stream, _)| *stream)
            .collect();
        for stream in over {
            self.lingering.remove(&stream);
            out.abort(stream);
        }
        if self.holds.active().is_some_and(|hold| hold.until <= now.mono) {
            self.lose_hold(LostReason::Limit, out);
        }
    }

    fn message(
        &mut self,
        now: Now,
        from: IpAddr,
        message: &Message,
        out: Out<'_, '_, A>,
    ) -> Result<(), Refusal> {
        match *message {
            Message::Tr1 { token_id, host_id, tcp_port } => {
                self.asked(now, NodeEntry::new(host_id, from, tcp_port), token_id, out)
            }
            Message::Tr2 { token_id } => self.answered(now, from, token_id, out),
            _ => unreachable!("a datagram is a TR1 or a TR2"),
        }
    }
}

impl<A: Application> Machine for Jitterbug<A> {
    type Command = Command<A::Change>;
    type Reply = Reply;
    type Event = Event;

    fn endpoints(&self) -> Endpoints {
        let broadcast = &self.config.broadcast;
        Endpoints {
            sockets: vec![Socket {
                id: UDP,
                name: "token/udp",
                bind: self.config.udp(),
                broadcast: broadcast.iter().map(|ip| SocketAddr::new(*ip, self.config.udp_port)).collect(),
            }],
            listeners: vec![Listener {
                id: TCP,
                name: "token/tcp",
                bind: SocketAddr::new(self.config.addr, self.config.tcp_port),
                streams_max: self.config.streams_max,
            }],
            spaces: vec![Space { id: SPACE, name: "token" }],
        }
    }

    fn handle_start(&mut self, now: Now, bound: &Bound, out: Out<'_, '_, A>) {
        if let Some(addr) = bound.listener(TCP) {
            self.tcp_port = addr.port();
        }
        self.load(now, out);
    }

    fn handle_datagram(
        &mut self,
        now: Now,
        _: SocketId,
        from: SocketAddr,
        bytes: &[u8],
        out: Out<'_, '_, A>,
    ) -> Result<(), Refusal> {
        self.wake(now, out);
        if self.stage != Stage::Running {
            self.counters.refused += 1;
            return Err(Refusal::Reject("the node is starting or stopping"));
        }
        let from = from.ip().to_canonical();
        if !self.config.allows(from) {
            self.counters.refused += 1;
            return Err(Refusal::Reject("its network is not allowed"));
        }
        let message = decode_datagram(bytes).inspect_err(|_| self.counters.malformed += 1)?;
        self.message(now, from, &message, out)
    }

    fn handle_stream(
        &mut self,
        now: Now,
        stream: StreamId,
        event: StreamEvent<'_>,
        out: Out<'_, '_, A>,
    ) -> Result<(), Refusal> {
        self.wake(now, out);
        if stream.is_accepted() {
            self.incoming(now, stream, event, out)
        } else {
            self.outgoing(now, stream, event, out)
        }
    }

    fn handle_stored(&mut self, now: Now, reply: StoreReply<'_>, out: Out<'_, '_, A>) {
        self.wake(now, out);
        self.stored(now, reply, out);
    }

    fn handle_command(&mut self, now: Now, request: RequestId, command: Self::Command, out: Out<'_, '_, A>) {
        self.wake(now, out);
        let reply = match command {
            _ if self.stage.is_ending() => Some(Reply::Stopping),
            Command::Status => Some(Reply::Status(Box::new(self.status(now.mono)))),
            Command::Data => Some(Reply::Data(self.data.clone())),
            Command::Log => Some(Reply::Log(self.log.entries())),
            Command::Change { change, wait } => self.change(now, request, change, wait),
            Command::Hold { limit } => self.hold(now, request, limit, out),
            Command::Release { hold } => Some(self.release(now, hold, out)),
            Command::Ask(peers) => {
                self.peers.replace(now.mono, self.config.addr, peers);
                Some(Reply::Done)
            }
            Command::Computed { ask, result } => Some(self.computed(now, ask, result, out)),
        };
        if let Some(reply) = reply {
            out.reply(request, reply);
        }
    }

    fn handle_timeout(&mut self, now: Now, out: Out<'_, '_, A>) {
        self.wake(now, out);
        self.expire(now, out);
        self.take_back(now, out);
        if let Stage::Unread { again_at } = self.stage
            && again_at <= now.mono
        {
            self.load(now, out);
        }
        match &self.state {
            State::Orphan(_) => self.restore(now, out),
            State::Waiter { renew_at } if *renew_at <= now.mono => self.become_orphan(now, out),
            State::Waiter { .. } => {}
            State::Leader(_) => self.lead_on(now, out),
        }
    }

    fn handle_stop(&mut self, now: Now, out: Out<'_, '_, A>) {
        self.stop(now, out);
    }

    fn is_stopped(&self) -> bool {
        self.stage == Stage::Stopping(None)
            && !matches!(self.state, State::Leader(_))
            && self.lingering.is_empty()
    }

    fn poll_timeout(&self) -> Option<(Instant, &'static str)> {
        let state = match &self.state {
            State::Orphan(restore) => (Some(restore.due()), timer::RESTORE),
            State::Waiter { renew_at } => (Some(*renew_at).filter(|at| *at < Instant::FAR), timer::RENEW),
            State::Leader(lead) => (lead.due(&self.config, self.holds.active().is_some()), timer::LEAD),
        };
        let timers = [
            state,
            (self.incomings.deadline(), timer::STREAM),
            (self.lingering.values().min().copied(), timer::LINGER),
            (self.holds.active().map(|hold| hold.until), timer::HOLD),
            (self.stage.again_at(), timer::LOAD),
            (self.changes.due(), timer::CHANGE),
            (self.pulse(), timer::PULSE),
        ];
        timers.into_iter().filter_map(|(at, name)| at.map(|at| (at, name))).min()
    }

    fn counters(&self, visit: VisitCounter<'_>) {
        self.counters.visit(visit);
    }
}
