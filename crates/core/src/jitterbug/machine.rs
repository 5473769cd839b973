//! The machine: gives every input to its part, and makes the transitions that roles return.

use std::net::{IpAddr, SocketAddr};

use super::application::{Application, Restored};
use super::changes::Changes;
use super::config::{Config, ConfigError};
use super::counters::Counters;
use super::election::{self, Asker, Election};
use super::env::Env;
use super::holds::{Holds, Released};
use super::leader::Tenure;
use super::lower::{Cx, Lower, Transition};
use super::message::{Message, NodeEntry, SignedId, TokenId};
use super::records::Asked;
use super::ring::Ring;
use super::role::Role;
use super::streams::Streams;
use super::token::Token;
use super::waiter::Waiter;
use super::wire::decode_datagram;
use super::{Command, DropReason, Event, LostReason, Reply};
use crate::counters::VisitCounter;
use crate::endpoint::{Bound, Endpoints, Listener, Socket, Space};
use crate::machine::{Machine, Refusal};
use crate::outbox::Outbox;
use crate::rng::{Rng, Seed};
use crate::store::StoreReply;
use crate::stream::{CloseReason, StreamEvent};
use crate::tag::{ListenerId, RequestId, SocketId, SpaceId, StreamId};
use crate::time::{Instant, Now, micros};

mod receive;
mod start;
mod status;

use start::Stage;
pub use start::{IDENTITY_KEY, Identity, KEPT_KEY};
pub use status::{NodeStatus, RefusedTokens, StateName, Status};

/// The datagram socket.
pub const UDP: SocketId = SocketId::new(0);
/// The stream listener.
pub const TCP: ListenerId = ListenerId::new(0);
/// The store space of the identity and of the application's record.
pub const SPACE: SpaceId = SpaceId::new(0);

/// The timers, by the names that `poll_timeout` returns.
pub(super) mod timer {
    /// The next step of a restore.
    pub(crate) const RESTORE: &str = "token.restore";
    /// `renew_timeout` of a waiter.
    pub(crate) const RENEW: &str = "token.renew";
    /// The next step of a leader: pass, new round, or an attempt's end.
    pub(crate) const LEAD: &str = "token.lead";
    /// The oldest stream of a peer times out.
    pub(crate) const STREAM: &str = "token.stream";
    /// A stream on which this node passed the token times out.
    pub(crate) const LINGER: &str = "token.linger";
    /// The disk is read again.
    pub(crate) const LOAD: &str = "token.load";
    /// A hold reaches its limit.
    pub(crate) const HOLD: &str = "token.hold";
    /// A change is withdrawn.
    pub(crate) const CHANGE: &str = "token.change";
    /// A leader checks whether its process was paused.
    pub(crate) const PAUSE_CHECK: &str = "token.pause_check";
}

/// A node of the token ring, carrying the data of an application.
#[derive(Clone, Debug, PartialEq)]
pub struct Jitterbug<A> {
    lower: Lower<A>,
    role: Role,
    stage: Stage,
}

pub(super) type Out<'a, 'b, A> = &'a mut Outbox<'b, Jitterbug<A>>;

impl<A: Application> Jitterbug<A> {
    /// A node with these settings; `seed` decides all random choices.
    ///
    /// # Errors
    /// If the settings cannot work together.
    pub fn new(config: &Config, app: A, seed: Seed) -> Result<Self, ConfigError> {
        config.check()?;
        let mut rng = Rng::new(seed);
        let token = TokenId::draw(&mut rng);
        let lower = Lower {
            env: Env::new(config, rng),
            ring: Ring::new(config),
            token: Token::new(app, token),
            holds: Holds::default(),
            changes: Changes::default(),
            streams: Streams::new(config),
        };
        Ok(Self { lower, role: Role::Waiter(Waiter::idle()), stage: Stage::Created })
    }

    /// The counters.
    #[must_use]
    pub fn counted(&self) -> Counters {
        self.lower.env.counters()
    }

    /// Sets all counters to zero, so that two states can be compared without them.
    pub fn forget_counters(&mut self) {
        self.lower.env.reset_counters();
    }

    /// The role, and its context for one call.
    fn split<'a, 'b>(&'a mut self, now: Now, out: Out<'a, 'b, A>) -> (&'a mut Role, Cx<'a, 'b, A>) {
        let is_stopping = self.stage.is_ending();
        (&mut self.role, Cx { now, lower: &mut self.lower, is_stopping, out })
    }

    /// Makes a transition, and those that follow from it.
    fn follow(&mut self, now: Now, transition: Option<Transition>, out: Out<'_, '_, A>) {
        let mut next = transition;
        while let Some(transition) = next {
            match transition {
                Transition::Waiter => self.enter_waiter(now, out),
                Transition::GiveUp => {
                    self.drop_token(now, DropReason::Unsaved, out);
                    self.enter_waiter(now, out);
                }
                Transition::Orphan => self.enter_orphan(now, true, out),
                Transition::Drop(reason) => {
                    self.drop_token(now, reason, out);
                    // A node that drops its own token knows that no other node has it (TU-41).
                    self.enter_orphan(now, reason == DropReason::Stalled, out);
                }
                Transition::Restored { from } => {
                    let token_id = self.lower.token.id();
                    self.lower.env.count().restores_granted += 1;
                    let restored = self.lower.token.restored(now, from);
                    out.event(Event::TokenRestored { from, token_id });
                    self.enter_leader(now, Some(restored), out);
                }
                Transition::Again => self.enter_leader(now, None, out),
            }
            let (role, mut cx) = self.split(now, &mut *out);
            next = match role {
                Role::Orphan(election) => election.advance(&mut cx),
                Role::Waiter(_) => None,
                Role::Leader(tenure) => tenure.advance(&mut cx),
            };
        }
    }

    /// Begins a tenure in any state; it ends an election under way (JA-15).
    fn enter_leader(&mut self, now: Now, restored: Option<Restored>, out: Out<'_, '_, A>) {
        let lower = &mut self.lower;
        lower.env.count().tenures += 1;
        let renew_timeout = lower.ring.renew(lower.env.config());
        // No candidate took it after a hold: the hold does not count for the loop time, however short it is.
        let was_held = self.role.is_leader() && lower.holds.used(lower.token.fence());
        if let Some(took) = lower.ring.tenure_begins(now.mono, lower.token.id(), renew_timeout / 2, was_held)
        {
            let (took_micros, renew_timeout_micros) = (micros(took), micros(renew_timeout));
            out.event(Event::LoopSlow { took_micros, renew_timeout_micros });
        }
        let tenure = Tenure::new(now.mono, lower.env.config(), restored);
        self.enter(Role::Leader(Box::new(tenure)), out);
    }

    fn enter_waiter(&mut self, now: Now, out: Out<'_, '_, A>) {
        // A node that stops starts no election, however long its last streams and its disk take.
        let renew = self.lower.ring.renew(self.lower.env.config());
        let waiter = if self.stage.is_ending() { Waiter::idle() } else { Waiter::new(now.mono, renew) };
        self.enter(Role::Waiter(waiter), out);
    }

    fn enter_orphan(&mut self, now: Now, is_patient: bool, out: Out<'_, '_, A>) {
        let Lower { env, ring, token, .. } = &mut self.lower;
        env.count().restores += 1;
        ring.forget_holder(now.mono);
        // TU-41: not for a node that has just started or is alone.
        let patient = if ring.has_others() { env.config().grace_tries() } else { 1 };
        let tries = if is_patient { patient } else { 1 };
        let election = Election::new(token.id(), now.mono, tries, patient);
        self.enter(Role::Orphan(election), out);
    }

    fn drop_token(&mut self, now: Now, reason: DropReason, out: Out<'_, '_, A>) {
        let count = self.lower.env.count();
        match reason {
            DropReason::Random => count.random_drops += 1,
            DropReason::Stalled => count.stalls += 1,
            DropReason::Unlisted => count.unlisted_sought += 1,
            DropReason::Unsaved => count.unsaved_drops += 1,
        }
        self.lower.token.dropped(now, reason);
        out.event(Event::TokenDropped { token_id: self.lower.token.id(), reason });
    }

    fn enter(&mut self, role: Role, out: Out<'_, '_, A>) {
        self.role = role;
        out.event(Event::StateEntered { state: self.role.name(), token_id: self.lower.token.id() });
    }

    /// Runs before every input: checks whether this process was paused.
    fn check_pause(&mut self, now: Now, out: Out<'_, '_, A>) {
        let (role, mut cx) = self.split(now, &mut *out);
        let next = role.leader().and_then(|tenure| tenure.check_pause(&mut cx));
        self.follow(now, next, out);
    }

    fn advance(&mut self, now: Now, out: Out<'_, '_, A>) {
        let (role, mut cx) = self.split(now, &mut *out);
        let next = role.leader().and_then(|tenure| tenure.advance(&mut cx));
        self.follow(now, next, out);
    }

    fn hold_as(
        &mut self,
        now: Now,
        request: RequestId,
        key: Option<u64>,
        limit: core::time::Duration,
        out: Out<'_, '_, A>,
    ) -> Option<Reply> {
        let limit = limit.min(self.lower.env.config().hold_max);
        if !self.lower.holds.ask(Asked { request, key, limit }) {
            return Some(Reply::Refused(
                "64 turns wait for the token at this agent already: try again when some are over",
            ));
        }
        let (role, mut cx) = self.split(now, out);
        if let Some(tenure) = role.leader() {
            tenure.grant_hold(&mut cx);
        }
        None // The reply comes with the token.
    }

    fn release(&mut self, now: Now, hold: RequestId, out: Out<'_, '_, A>) -> Reply {
        match self.lower.holds.release(hold) {
            Released::Active(released) => {
                out.event(Event::TokenReleased { hold, fence: released.fence });
                self.advance(now, out);
                Reply::Done
            }
            Released::Waiting => {
                out.reply(hold, Reply::NotHeld);
                Reply::Done
            }
            Released::Unknown => Reply::NotHeld,
        }
    }

    /// Ends the hold with this key, or the wait for it.
    fn withdraw(&mut self, now: Now, key: u64, out: Out<'_, '_, A>) -> Reply {
        match self.lower.holds.request_of(key) {
            Some(request) => self.release(now, request, out),
            None => Reply::NotHeld,
        }
    }

    /// How long the hold is safe: a node of the ring that gets no answer waits for the grace period before it makes a
    /// token.
    fn kept(&self, now: Now, hold: RequestId) -> Reply {
        match self.lower.holds.active().filter(|active| active.request == hold && active.until > now.mono) {
            Some(active) => Reply::Kept {
                left_micros: micros(self.lower.env.config().grace()),
                limit_micros: micros(active.until.since(now.mono)),
            },
            None => Reply::NotHeld,
        }
    }

    /// TU-40: membership declared a node dead. If this node takes it for the holder, the election begins at once.
    fn member_unreachable(&mut self, now: Now, ip: IpAddr, out: Out<'_, '_, A>) {
        self.lower.ring.reaches_no_more(now.mono, ip);
        let waits = matches!(self.role, Role::Waiter(_)) && self.stage == Stage::Running;
        if waits && self.lower.ring.holder_is_at(ip) {
            self.follow(now, Some(Transition::Orphan), out);
        }
    }

    fn change(
        &mut self,
        now: Now,
        request: RequestId,
        change: A::Change,
        wait: core::time::Duration,
    ) -> Option<Reply> {
        match self.lower.token.change(change) {
            Ok(number) => {
                self.lower.changes.insert(request, number, now.mono + wait);
                None // The reply comes with the tenure that makes the change.
            }
            Err(reason) => Some(Reply::Refused(reason)),
        }
    }

    fn computed(&mut self, now: Now, ask: u64, result: Option<super::Next>, out: Out<'_, '_, A>) -> Reply {
        let (role, mut cx) = self.split(now, &mut *out);
        let Some(tenure) = role.leader() else { return Reply::Refused("nothing is computed") };
        match tenure.on_computed(&mut cx, ask, result) {
            Ok(next) => {
                self.follow(now, next, out);
                Reply::Done
            }
            Err(reason) => Reply::Refused(reason),
        }
    }

    fn expire(&mut self, now: Now, out: Out<'_, '_, A>) {
        let lower = &mut self.lower;
        while let Some(stream) = lower.streams.pop_expired(now.mono) {
            lower.env.count().streams_expired += 1;
            out.abort(stream);
        }
        while let Some(stream) = lower.streams.pop_lingered(now.mono) {
            out.abort(stream);
        }
        let is_cut_off = lower.is_cut_off(now.mono);
        let cut_off = is_cut_off.then(|| lower.holds.lose(LostReason::CutOff)).flatten();
        for lost in cut_off.into_iter().chain(lower.holds.expire(now.mono)) {
            out.event(lost);
        }
        let in_work = matches!(&self.role, Role::Leader(tenure) if tenure.computes());
        let grace = lower.env.config().tr_interval;
        for (request, number) in lower.changes.expire(now.mono, in_work, grace) {
            lower.token.withdraw(number);
            out.reply(request, Reply::NotChanged);
        }
    }

    /// Handles a TR1.
    fn on_tr1(
        &mut self,
        now: Now,
        asker: NodeEntry,
        is_ring_port: bool,
        tried: SignedId,
        out: Out<'_, '_, A>,
    ) -> Result<(), Refusal> {
        let own = self.role.signed(self.lower.token.id());
        let (role, mut cx) = self.split(now, &mut *out);
        if election::on_tr1(&mut cx, own, asker, is_ring_port, tried)? == Asker::Ourselves {
            return Ok(());
        }
        cx.lower.ring.asked(now.mono, asker.host_id, tried.id(), cx.lower.env.config());
        // JA-24 (iv): another node with our id restores, and we have waited for half of the time too.
        let renew = cx.renew();
        let together = matches!(role, Role::Waiter(waiter) if waiter.waited_half(now.mono, renew));
        if cx.lower.env.config().restore_together && tried == own && together {
            self.follow(now, Some(Transition::Orphan), out);
        }
        Ok(())
    }

    /// Handles a TR2: it only matters to a try under way.
    fn on_tr2(
        &mut self,
        now: Now,
        from: IpAddr,
        answer: SignedId,
        out: Out<'_, '_, A>,
    ) -> Result<(), Refusal> {
        let (role, mut cx) = self.split(now, &mut *out);
        let Role::Orphan(election) = role else {
            cx.lower.env.count().answers_unasked += 1;
            return Err(Refusal::Reject("an answer to no try"));
        };
        let next = election.on_tr2(&mut cx, from, answer);
        self.follow(now, next, out);
        Ok(())
    }

    /// Handles an event of a stream that this node opened.
    fn on_outgoing(
        &mut self,
        now: Now,
        stream: StreamId,
        event: &StreamEvent<'_>,
        out: Out<'_, '_, A>,
    ) -> Result<(), Refusal> {
        let (role, mut cx) = self.split(now, &mut *out);
        let outcome = role.leader().and_then(|tenure| tenure.on_stream(&mut cx, stream, event));
        if let Some((next, verdict)) = outcome {
            self.follow(now, next, out);
            return verdict;
        }
        match event {
            StreamEvent::Finished => self.lower.ring.was_read(stream),
            StreamEvent::Closed(reason) => {
                // A reset of the candidate: it has read, and does not want it.
                if *reason != CloseReason::TimedOut {
                    self.lower.ring.was_read(stream);
                }
                self.lower.streams.closed(stream);
            }
            _ => {}
        }
        Ok(())
    }
}

impl<A: Application> Machine for Jitterbug<A> {
    type Command = Command<A::Change>;
    type Reply = Reply;
    type Event = Event;

    fn endpoints(&self) -> Endpoints {
        let config = self.lower.env.config();
        Endpoints {
            sockets: vec![Socket {
                id: UDP,
                name: "token/udp",
                bind: config.udp(),
                broadcast: config.broadcast.iter().map(|ip| SocketAddr::new(*ip, config.udp_port)).collect(),
            }],
            listeners: vec![Listener {
                id: TCP,
                name: "token/tcp",
                bind: SocketAddr::new(config.addr, config.tcp_port),
                streams_max: config.streams_max,
            }],
            spaces: vec![Space { id: SPACE, name: "token" }],
        }
    }

    fn handle_start(&mut self, now: Now, bound: &Bound, out: Out<'_, '_, A>) {
        if let Some(addr) = bound.listener(TCP) {
            self.lower.env.bound(addr.port());
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
        self.check_pause(now, out);
        if self.stage != Stage::Running {
            self.lower.env.count().refused += 1;
            return Err(Refusal::Reject("the node is starting or stopping"));
        }
        let (from, port) = (from.ip().to_canonical(), from.port());
        if !self.lower.env.config().allows(from) {
            self.lower.env.count().refused += 1;
            return Err(Refusal::Reject("its network is not allowed"));
        }
        let message = decode_datagram(bytes).inspect_err(|_| self.lower.env.count().malformed += 1)?;
        if self.lower.ring.is_foreign(now.mono, from) {
            // JA-32c: its token and its id say nothing about ours.
            self.lower.env.count().refused += 1;
            return Err(Refusal::Reject("it is a node of another application"));
        }
        match message {
            Message::Tr1 { token_id, host_id, tcp_port } => {
                let is_ring_port = port == self.lower.env.config().udp_port;
                self.on_tr1(now, NodeEntry::new(host_id, from, tcp_port), is_ring_port, token_id, out)
            }
            Message::Tr2 { token_id } => self.on_tr2(now, from, token_id, out),
            _ => unreachable!("a datagram is a TR1 or a TR2"),
        }
    }

    fn handle_stream(
        &mut self,
        now: Now,
        stream: StreamId,
        event: StreamEvent<'_>,
        out: Out<'_, '_, A>,
    ) -> Result<(), Refusal> {
        self.check_pause(now, out);
        if stream.is_accepted() {
            self.on_incoming(now, stream, &event, out)
        } else {
            self.on_outgoing(now, stream, &event, out)
        }
    }

    fn handle_stored(&mut self, now: Now, reply: StoreReply<'_>, out: Out<'_, '_, A>) {
        self.check_pause(now, out);
        self.stored(now, reply, out);
    }

    fn handle_command(&mut self, now: Now, request: RequestId, command: Self::Command, out: Out<'_, '_, A>) {
        self.check_pause(now, out);
        let reply = match command {
            _ if self.stage.is_ending() => Some(Reply::Stopping),
            Command::Status => Some(Reply::Status(Box::new(self.status(now.mono)))),
            Command::Data => Some(Reply::Data(self.lower.token.data().to_vec())),
            Command::Log => Some(Reply::Log(self.lower.token.log())),
            Command::Change { change, wait } => self.change(now, request, change, wait),
            Command::Hold { limit } => self.hold_as(now, request, None, limit, out),
            Command::HoldAs { key, limit } => self.hold_as(now, request, Some(key), limit, out),
            Command::Withdraw { key } => Some(self.withdraw(now, key, out)),
            Command::Release { hold } => Some(self.release(now, hold, out)),
            Command::Keep { hold } => Some(self.kept(now, hold)),
            Command::MemberUnreachable(ip) => {
                self.member_unreachable(now, ip, out);
                Some(Reply::Done)
            }
            Command::MemberReachable(ip) => {
                self.lower.ring.reaches(ip);
                Some(Reply::Done)
            }
            Command::DeclareVoters(group) => {
                self.lower.token.app_mut().declare_voters(&group);
                Some(Reply::Done)
            }
            Command::Ask(peers) => {
                let own = self.lower.env.config().addr;
                self.lower.ring.set_peers(now.mono, own, peers);
                Some(Reply::Done)
            }
            Command::Computed { ask, result } => Some(self.computed(now, ask, result, out)),
        };
        if let Some(reply) = reply {
            out.reply(request, reply);
        }
    }

    fn handle_timeout(&mut self, now: Now, out: Out<'_, '_, A>) {
        self.check_pause(now, out);
        self.expire(now, out);
        if let Stage::Unread { again_at } = self.stage
            && again_at <= now.mono
        {
            self.load(now, out);
        }
        let (role, mut cx) = self.split(now, &mut *out);
        let next = role.on_timeout(&mut cx);
        self.follow(now, next, out);
    }

    fn handle_stop(&mut self, now: Now, out: Out<'_, '_, A>) {
        self.stop(now, out);
    }

    fn is_stopped(&self) -> bool {
        self.stage == Stage::Stopping(None)
            && !self.role.is_leader()
            && self.lower.streams.linger_deadline().is_none()
    }

    fn poll_timeout(&self) -> Option<(Instant, &'static str)> {
        let Lower { env, holds, changes, streams, .. } = &self.lower;
        let held = holds.active();
        let (role, pause_check) = match &self.role {
            Role::Orphan(election) => ((Some(election.due()), timer::RESTORE), None),
            Role::Waiter(waiter) => ((waiter.due(), timer::RENEW), None),
            Role::Leader(tenure) => {
                ((tenure.due(env.config(), held.is_some()), timer::LEAD), Some(tenure.pause_check_at()))
            }
        };
        let timers = [
            role,
            (streams.deadline(), timer::STREAM),
            (streams.linger_deadline(), timer::LINGER),
            (held.map(|hold| hold.until), timer::HOLD),
            (self.stage.again_at(), timer::LOAD),
            (changes.due(), timer::CHANGE),
            (pause_check, timer::PAUSE_CHECK),
        ];
        timers.into_iter().filter_map(|(at, name)| at.map(|at| (at, name))).min()
    }

    fn counters(&self, visit: VisitCounter<'_>) {
        self.lower.env.counters().visit(visit);
    }

    fn timescales(&self) -> Vec<(&'static str, core::time::Duration)> {
        let config = self.lower.env.config();
        vec![
            ("token.tr_interval", config.tr_interval),
            ("token.pass_timeout", config.pass_timeout),
            ("token.pause_max", config.pause_max()),
            ("token.grace", config.grace()),
            ("token.renew_timeout", config.renew_timeout),
        ]
    }
}
