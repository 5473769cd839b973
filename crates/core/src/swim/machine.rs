//! The machine: gives every input to a part, and turns reports of parts into calls to others.

use core::time::Duration;
use std::collections::VecDeque;
use std::net::SocketAddr;

use super::config::{Config, ConfigError};
use super::contents::OwnContents;
use super::dissemination::Dissemination;
use super::env::Env;
use super::handlers::{Handler, Handlers};
use super::history::{History, Loaded};
use super::joining::Joining;
use super::lower::{Effect, Lower};
use super::members::Members;
use super::membership::Membership;
use super::packets::Packets;
use super::prober::Prober;
use super::selection::Selection;
use super::sequence::Sequence;
use super::status::{Incarnation, State, Status};
use super::suspicions::Suspicions;
use super::sync::{self, AntiEntropy};
use super::user_messages::UserMessages;
use super::verifier::Verifier;
use super::{Command, Counters, Event, Node, Reply};
use crate::counters::VisitCounter;
use crate::endpoint::{Bound, Endpoints, Socket, Space};
use crate::id::Id;
use crate::machine::{Machine, Refusal};
use crate::outbox::Outbox;
use crate::rng::{Rng, Seed};
use crate::store::{StoreReply, StoreResult};
use crate::tag::{RequestId, SocketId, SpaceId};
use crate::time::{Instant, Now};

/// The datagram socket.
pub const UDP: SocketId = SocketId::new(0);
/// The store space of the known members.
pub const SPACE: SpaceId = SpaceId::new(0);

/// The timers, by the names that `poll_timeout` returns.
mod timer {
    /// The next protocol period.
    pub(super) const PERIOD: &str = "members.period";
    /// A direct Ack is overdue: proxies are asked.
    pub(super) const INDIRECT: &str = "members.indirect";
    /// A suspicion was not refuted.
    pub(super) const SUSPICION: &str = "members.suspicion";
    /// A question is sent, also to a member that ended a moment ago, or a claim was not disputed.
    pub(super) const PROOF: &str = "members.proof";
    /// A dead member is forgotten.
    pub(super) const RETENTION: &str = "members.retention";
    /// A ping sent as a proxy is overdue.
    pub(super) const RELAY: &str = "members.relay";
    /// A Join is sent again, or fails.
    pub(super) const JOIN: &str = "members.join";
    /// A joiner gets our Alive.
    pub(super) const JOIN_REPLY: &str = "members.join_reply";
    /// A table transfer continues.
    pub(super) const TRANSFER: &str = "members.transfer";
    /// Updates go out between pings.
    pub(super) const GOSSIP: &str = "members.gossip";
    /// A past member is probed again.
    pub(super) const RETRY: &str = "members.retry";
    /// Tables are compared.
    pub(super) const SYNC: &str = "members.sync";
    /// Changes of the known members are written.
    pub(super) const SNAPSHOT: &str = "members.snapshot";
    /// A waiting command times out.
    pub(super) const WAITING: &str = "members.waiting";
    /// The Dead of this node has been sent long enough.
    pub(super) const STOP: &str = "members.stop";
}

/// One member of a group.
#[derive(Clone, Debug, PartialEq)]
pub struct Swim {
    pub(super) lower: Lower,
    pub(super) prober: Prober,
    pub(super) membership: Membership,
    pub(super) joining: Joining,
    pub(super) sync: AntiEntropy,
    pub(super) users: UserMessages,
    pub(super) handlers: Handlers,
    bind: SocketAddr,
    advertises: bool,
    leave_on_stop: bool,
}

pub(super) type Out<'a, 'b> = &'a mut Outbox<'b, Swim>;

impl Swim {
    /// A node with these settings; `seed` decides all random choices.
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
            .insert(config.id, Status::default(), own_contents.borrow())
            .expect("an empty table has room for one");
        let sequence = Sequence(rng.next_u32());
        let user_sequence = Sequence(rng.next_u32());
        let verifier = Verifier::new(core::array::from_fn(|_| rng.next_u32() as u8));
        let selection = Selection::new(
            settings.region_count,
            settings.region_probes,
            settings.neighbor_count,
            settings.neighbor_probes,
        );
        let lower = Lower {
            members,
            selection,
            packets: Packets::new(config),
            dissemination: Dissemination::new(config.waiting_max),
            suspicions: Suspicions::new(settings.last_probe()),
            verifier,
            history: History::new(config),
            effects: VecDeque::new(),
            env: Env::new((config.id, me), own_contents, settings, rng, sequence),
        };
        Ok(Self {
            lower,
            prober: Prober::new(config),
            membership: Membership::new(),
            joining: Joining::new(config),
            sync: AntiEntropy::new(config),
            users: UserMessages::new(config.origins_max, config.user_events_max, user_sequence),
            handlers: Handlers::default(),
            bind: config.bind,
            advertises: !config.addrs.is_empty(),
            leave_on_stop: config.leave_on_stop,
        })
    }

    /// Adds a handler that sees every message before the protocol does (S-108).
    pub fn use_handler(&mut self, handler: Box<dyn Handler>) {
        self.handlers.push(handler);
    }

    /// Takes these nodes for live members of incarnation 0, as if each had sent an Alive: for experiments that skip
    /// joining.
    pub fn assume(&mut self, nodes: &[Node]) {
        let Lower { env, members, selection, .. } = &mut self.lower;
        let own = env.id();
        for node in nodes.iter().filter(|node| node.id != own) {
            let Some(contents) = OwnContents::new(&node.addrs, &node.meta) else { continue };
            let status = Status::new(Incarnation::default(), State::Alive);
            if let Some(slot) = members.insert(node.id, status, contents.borrow()) {
                selection.add(slot, env.rng());
            }
        }
    }

    /// The counters.
    #[must_use]
    pub fn counted(&self) -> Counters {
        let (packets_sent, bytes_sent) = self.lower.packets.counted();
        let (syncs, syncs_refused) = self.sync.counted();
        Counters { packets_sent, bytes_sent, syncs, syncs_refused, ..self.lower.env.counters() }
    }

    /// Sets all counters to zero, so that two states can be compared without them.
    pub fn forget_counters(&mut self) {
        *self.lower.env.count() = Counters::default();
        self.lower.packets.forget_counts();
        self.sync.forget_counts();
    }

    /// The table of members.
    #[must_use]
    pub const fn members(&self) -> &Members {
        &self.lower.members
    }

    /// The member to which a round trip was measured since the last call.
    pub fn take_measured(&mut self) -> Option<Id> {
        self.prober.take_measured()
    }

    /// Its id.
    #[must_use]
    pub const fn id(&self) -> Id {
        self.lower.env.id()
    }

    /// Its own incarnation.
    #[must_use]
    pub fn incarnation(&self) -> Incarnation {
        self.lower.own_incarnation()
    }

    /// The number of the current protocol period.
    #[must_use]
    pub const fn period(&self) -> u32 {
        self.lower.env.period()
    }

    /// Starts the first period and the first joins, once the store is read.
    pub(super) fn begin(&mut self, now: Now, out: Out<'_, '_>) {
        let cx = &mut self.lower.cx(now, out);
        cx.lower.env.set_running(true);
        self.prober.begin(cx);
        self.sync.begin(now.mono, cx.lower.env.rng());
        self.joining.begin(cx);
    }

    /// Turns reports of parts into calls to others.
    pub(super) fn apply(&mut self, now: Now, out: Out<'_, '_>) {
        while let Some(effect) = self.lower.effects.pop_front() {
            match effect {
                Effect::ProbeLast(slot) => self.prober.probe_last(&mut self.lower.cx(now, out), slot),
                Effect::Confirm(slot) => self.prober.confirm(slot),
                Effect::ConfirmOld(slot) => self.prober.confirm_old(slot),
                Effect::Accused => self.prober.on_accused(self.lower.env.period()),
            }
        }
    }

    /// Ends every call: answers waiting commands, and sets the gossip timer.
    fn flush(&mut self, now: Now, out: Out<'_, '_>) {
        for request in self.lower.packets.gossip_mut().settle() {
            out.reply(request, Reply::Done);
        }
        self.lower.dissemination.answer_sent(&mut self.lower.packets, out);
        if self.lower.selection.is_empty() {
            // SF-16: the last member that could receive the update is gone.
            self.end_waiting(&Reply::Done, out);
        }
        if self.lower.dissemination.take_wanted() {
            let cx = &mut self.lower.cx(now, out);
            cx.gossip_soon();
            if cx.lower.dissemination.next().is_none() {
                cx.time_gossip();
            }
        }
        if self.lower.env.stopping().is_some() {
            // Changes that arrive while this node leaves are written at once, not after the interval.
            self.lower.history.write_now(now.mono);
            self.write(now, out);
        }
    }

    /// Ends one period and begins the next.
    fn tick(&mut self, now: Now, out: Out<'_, '_>) {
        let cx = &mut self.lower.cx(now, out);
        for slot in self.prober.end_period(cx) {
            self.membership.on_silence(cx, slot);
        }
        cx.lower.env.next_period();
        self.membership.new_period();
        self.users.new_period();
        self.sync.new_period();
        cx.verify_refutations();
        self.prober.begin_period(cx);
    }

    /// Runs everything that is due, except the period itself.
    fn due(&mut self, now: Now, out: Out<'_, '_>) {
        self.prober.continue_probes(&mut self.lower.cx(now, out));
        while let Some(probe) = self.prober.pop_last(now.mono) {
            self.membership.judge(&mut self.lower.cx(now, out), &probe);
            self.apply(now, out);
        }
        let cx = &mut self.lower.cx(now, out);
        cx.recheck();
        cx.send_questions();
        while let Some((id, to)) = cx.lower.verifier.pop_moved(now.mono) {
            self.membership.finish_move(cx, id, &to);
        }
        self.prober.expire_relays(cx);
        while let Some((slot, incarnation)) = self.lower.suspicions.pop_due(now.mono) {
            self.membership.on_suspicion_over(&mut self.lower.cx(now, out), slot, incarnation);
            self.apply(now, out);
        }
        let cx = &mut self.lower.cx(now, out);
        while let Some(slot) = cx.lower.history.pop_retained(now.mono) {
            self.membership.forget(cx, slot);
        }
        self.joining.run_due(cx);
        self.write(now, out);
        let cx = &mut self.lower.cx(now, out);
        if cx.lower.dissemination.next().is_some_and(|at| at <= now.mono) {
            cx.gossip_once();
            cx.time_gossip();
        }
        self.joining.retry(cx);
        if self.sync.is_due(now.mono) {
            let Lower { env, members, selection, packets, .. } = &mut self.lower;
            let with = selection.pick(env.rng()).map(|slot| members.get(slot).addr());
            self.sync.start(now.mono, with, &mut sync::Cx { id: env.id(), members, packets, out });
        }
        self.lower.dissemination.time_out(now.mono, out);
        if self.lower.env.stopping().is_some_and(|at| at <= now.mono) {
            self.lower.packets.gossip_mut().stop();
            self.lower.dissemination.set_next(None);
        }
    }

    /// Reads the next stored members, or begins if none are stored.
    fn read_stored(&mut self, now: Now, from: &[u8], out: Out<'_, '_>) {
        if !self.lower.history.read(from, out) {
            self.begin(now, out);
        }
    }

    /// Handles a reply of the store.
    fn stored(&mut self, now: Now, reply: StoreReply<'_>, out: Out<'_, '_>) {
        let is_reading = self.lower.history.is_reading(reply.op);
        match reply.result {
            StoreResult::Page { entries, more } if is_reading => {
                let Lower { env, history, .. } = &mut self.lower;
                let mut former = Vec::new();
                let loaded = history.load(env, entries, more, &mut former);
                // SA-7c: this node begins above its former incarnations, so that no member has to accuse it of one.
                former.into_iter().for_each(|former| self.lower.raise_to(former.next()));
                match loaded {
                    Loaded::More(after) => self.read_stored(now, &after, out),
                    Loaded::All => self.begin(now, out),
                }
            }
            StoreResult::Failed(fault) => {
                out.event(Event::StoreFailed { fault });
                self.lower.history.written(reply.op);
                if is_reading {
                    self.begin(now, out);
                }
            }
            StoreResult::Written => self.lower.history.written(reply.op),
            StoreResult::Page { .. } | StoreResult::Value(_) => {}
        }
    }

    /// Writes pending changes of the known members, if that is due.
    fn write(&mut self, now: Now, out: Out<'_, '_>) {
        let Lower { env, members, history, .. } = &mut self.lower;
        history.write(now.mono, env.id(), members, out);
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
            let meta = self.lower.env.own_contents().borrow().meta().to_vec();
            if let Some(contents) = OwnContents::new(&[addr], &meta) {
                self.lower.members.describe(self.lower.env.me(), contents.borrow());
                self.lower.env.set_own_contents(contents);
            }
        }
        self.read_stored(now, &[], out);
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
        let outcome = if self.lower.env.is_running() || self.lower.env.stopping().is_some() {
            self.packet(now, from, bytes, out)
        } else {
            Err(Refusal::Reject("not started"))
        };
        match outcome {
            Ok(()) => self.flush(now, out),
            Err(Refusal::Decode(_)) => self.lower.env.count().malformed += 1,
            Err(Refusal::Reject(_)) => self.lower.env.count().rejected += 1,
        }
        outcome
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
        // The period first: if it is late, the other timers are postponed (SA-32).
        if self.prober.is_period_due(now.mono) {
            self.tick(now, out);
        }
        self.due(now, out);
        self.flush(now, out);
    }

    fn handle_stop(&mut self, now: Now, out: Out<'_, '_>) {
        if self.lower.env.stopping().is_some() {
            return;
        }
        self.lower.env.stop_at(now.mono + self.lower.env.settings().probe_interval);
        if self.leave_on_stop && self.lower.env.is_running() && !self.lower.env.is_leaving() {
            self.broadcast_leave(now, None, out);
        }
        self.lower.env.set_running(false);
        self.prober.stop();
        self.sync.stop();
        self.joining.stop();
        let cx = &mut self.lower.cx(now, out);
        cx.gossip_once();
        cx.time_gossip();
        self.end_waiting(&Reply::Stopped, out);
        self.lower.history.write_now(now.mono);
        self.write(now, out);
        self.flush(now, out);
    }

    fn is_stopped(&self) -> bool {
        let is_silent = self.lower.dissemination.next().is_none();
        self.lower.env.stopping().is_some() && is_silent && self.lower.history.is_settled()
    }

    fn poll_timeout(&self) -> Option<(Instant, &'static str)> {
        let Lower { env, dissemination, suspicions, verifier, history, .. } = &self.lower;
        let timers = [
            (self.prober.period_deadline(), timer::PERIOD),
            (self.prober.probe_deadline(), timer::INDIRECT),
            (suspicions.deadline(), timer::SUSPICION),
            (verifier.deadline(), timer::PROOF),
            (history.retention_deadline(), timer::RETENTION),
            (self.prober.relay_deadline(), timer::RELAY),
            (self.joining.join_deadline(), timer::JOIN),
            (self.joining.reply_deadline(), timer::JOIN_REPLY),
            (self.joining.transfer_deadline(), timer::TRANSFER),
            (dissemination.next(), timer::GOSSIP),
            (self.joining.retry_deadline(), timer::RETRY),
            (self.sync.deadline(), timer::SYNC),
            (history.write_deadline(), timer::SNAPSHOT),
            (dissemination.waiting_deadline(), timer::WAITING),
            (env.stopping().filter(|_| dissemination.next().is_some()), timer::STOP),
        ];
        timers.into_iter().filter_map(|(at, name)| at.map(|at| (at, name))).min()
    }

    fn counters(&self, visit: VisitCounter<'_>) {
        self.counted().visit(visit);
    }

    fn timescales(&self) -> Vec<(&'static str, Duration)> {
        let set = self.lower.env.settings();
        vec![
            ("members.probe_interval", set.probe_interval),
            ("members.probe_timeout", set.probe_timeout),
            ("members.gossip_interval", set.gossip_interval),
            ("members.retry_interval", set.retry_interval),
        ]
    }
}
