//! The machine: matches inputs, delegates to the parts, and applies their effects.

use core::time::Duration;
use std::collections::VecDeque;
use std::net::SocketAddr;

use super::asker::{self, Asker};
use super::config::{Config, ConfigError, Fault};
use super::disk::{BOUND_KEY, Disk, Found, RECORD_KEY, SNAPSHOT_KEY, Write, encode_record};
use super::effects::{Effects, Sending};
use super::membership::{self, Membership};
use super::message::{Answer, Ask, Body, Message, Standing, Verdict};
use super::record::milliseconds;
use super::voter::{Call, Decision, Voter};
use super::wire::{MESSAGE_BYTES_MAX, decode, encode};
use super::{Command, Event, Reply, Status};
use crate::counters::VisitCounter;
use crate::endpoint::{Bound, Endpoints, Socket, Space};
use crate::machine::{Machine, Refusal};
use crate::outbox::Outbox;
use crate::rng::{Rng, Seed};
use crate::store::{StoreFault, StoreReply, StoreResult};
use crate::stream::StreamEvent;
use crate::tag::{RequestId, SocketId, SpaceId, StreamId};
use crate::time::{Instant, Now, micros};

/// The datagram socket.
pub const UDP: SocketId = SocketId::new(0);
/// The store space of record, bound and snapshot.
pub const SPACE: SpaceId = SpaceId::new(0);

/// The most Asks that wait for the disk; further ones are not answered.
const WAITING_MAX: usize = 256;

crate::counters! {
    /// The counters of a node that takes or grants turns.
    pub struct Counters {
        /// Asks for a first lease that this voter received.
        asks_received,
        /// Renewals that this voter received.
        renewals_received,
        /// Leases and renewals that this voter granted.
        granted,
        /// Asks that this voter refused because another node holds the name.
        held,
        /// Asks that this voter did not grant because it rests.
        resting,
        /// Turns that this node got.
        turns_granted,
        /// Turns of this node that were released.
        turns_released,
        /// Turns of this node that were lost.
        turns_lost,
        /// Messages of another group or epoch.
        groups_differ,
        /// Datagrams that could not be decoded, or that this node does not accept in its state.
        refused,
        /// Writes that the disk refused.
        writes_failed,
    }
}

/// The timers, by the names that `poll_timeout` returns.
mod timer {
    /// A lease or a reservation of a voter ends.
    pub(super) const VOTER: &str = "turns.voter";
    /// The asker sends, renews, repeats, or fails.
    pub(super) const ASKER: &str = "turns.asker";
    /// The voters are queried.
    pub(super) const READ: &str = "turns.read";
    /// The start repeats what the disk refused.
    pub(super) const DISK: &str = "turns.disk";
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Life {
    Loading,
    /// The snapshot is being erased: the voter does not answer before that is durable (TU-19).
    Erasing,
    Running,
    Stopping,
}

/// A node that requests turns, and may vote.
#[derive(Clone, Debug, PartialEq)]
pub struct Turns {
    config: Config,
    rng: Rng,
    pub(super) membership: Membership,
    pub(super) voter: Voter,
    pub(super) asker: Asker,
    disk: Disk,
    pub(super) effects: Effects,
    pub(super) waiting: VecDeque<(SocketAddr, u64, Ask)>,
    /// The content of the disk, kept until the snapshot is erased.
    pub(super) found: Option<Found>,
    pub(super) boot_id: Option<[u8; 16]>,
    pub(super) retry_at: Option<Instant>,
    pub(super) life: Life,
    pub(super) counters: Counters,
}

type Out<'a, 'b> = &'a mut Outbox<'b, Turns>;

impl Turns {
    /// A node with these settings; `seed` decides all random choices.
    ///
    /// # Errors
    /// If the settings cannot work together.
    pub fn new(config: &Config, seed: Seed) -> Result<Self, ConfigError> {
        config.check()?;
        let mut rng = Rng::new(seed);
        Ok(Self {
            membership: Membership::new(config, rng.next_u64()),
            voter: Voter::new(config.names_max),
            asker: Asker::new(config.wishes_max),
            disk: Disk::default(),
            effects: Effects::default(),
            waiting: VecDeque::new(),
            found: None,
            boot_id: None,
            retry_at: None,
            life: Life::Loading,
            counters: Counters::default(),
            config: config.clone(),
            rng,
        })
    }

    /// The counters.
    #[must_use]
    pub fn counted(&self) -> Counters {
        self.counters
    }

    /// Sets all counters to zero, so that two states can be compared without them.
    pub fn forget_counters(&mut self) {
        self.counters = Counters::default();
    }

    /// Whether this node votes now, or why not.
    #[must_use]
    pub fn standing(&self, now: Instant) -> Standing {
        self.membership.standing(now)
    }

    /// Notes a fence of this node's token ledger: a group that is founded here starts above it (TU-8).
    pub fn saw_ledger_fence(&mut self, fence: u64) {
        self.voter.saw_ledger_fence(fence);
    }

    /// The group of voters, once it is known.
    #[must_use]
    pub fn group(&self) -> Option<super::Group> {
        self.membership.known().map(|record| record.group)
    }

    /// The length of a lease, once the group is known; zero before.
    #[must_use]
    pub fn lease(&self) -> Duration {
        self.membership.known().map_or(Duration::ZERO, |record| record.lease)
    }

    /// The status of the node.
    #[must_use]
    pub fn status(&self, now: Instant) -> Status {
        let known = self.membership.known();
        Status {
            group: known.map(|record| record.group),
            epoch: known.map_or(0, |record| record.epoch),
            boot_id: self.boot_id.map(|boot| crate::outbox::Hex(&boot).to_string()),
            lease_micros: known.map_or(0, |record| micros(record.lease)),
            majority: known.map_or(0, super::Record::majority),
            standing: self.membership.standing(now),
            halted: self.membership.halted(),
            resting_micros: self.membership.resting_until(now).map_or(0, |until| micros(until.since(now))),
            voters: self.membership.status(now),
            turns: self.asker.status(now, self.config.id),
        }
    }

    pub(super) fn with_asker<R>(
        &mut self,
        now: Now,
        call: impl FnOnce(&mut Asker, &mut asker::Cx<'_>) -> R,
    ) -> R {
        let mut cx = asker::Cx {
            now: now.mono,
            id: self.config.id,
            record: self.membership.known(),
            rng: &mut self.rng,
            effects: &mut self.effects,
        };
        call(&mut self.asker, &mut cx)
    }

    pub(super) fn with_membership<R>(
        &mut self,
        now: Now,
        call: impl FnOnce(&mut Membership, &mut membership::Cx<'_>) -> R,
    ) -> R {
        let mut cx = membership::Cx { now, rng: &mut self.rng, effects: &mut self.effects };
        call(&mut self.membership, &mut cx)
    }

    fn handle_message(&mut self, now: Now, from: SocketAddr, message: Message) -> Result<(), Refusal> {
        let Message { group, epoch, nonce, body } = message;
        let is_own_group = (group, epoch) == self.membership.stamp();
        match body {
            Body::Ask(_) | Body::Release(_) if !is_own_group && self.membership.voting_record().is_some() => {
                self.counters.groups_differ += 1;
                self.send_state(now, from, nonce, None);
                Ok(())
            }
            Body::Ask(ask) => self.on_ask(now, from, nonce, ask),
            Body::Release(ended) => {
                let record =
                    self.membership.voting_record().ok_or(Refusal::Reject("a release to no voter"))?;
                let call = self.voter.release(now.mono, from, &ended, record.lease);
                if ended.session != 0 {
                    self.send_as_voter(from, nonce, Body::Released(ended));
                }
                call.into_iter().for_each(|call| self.call_waiter(call));
                Ok(())
            }
            Body::Answer(answer) => {
                let place = self.place_of(group, epoch, from)?;
                self.with_asker(now, |asker, cx| asker.on_answer(cx, place, nonce, &answer))?;
                self.membership.heard_from(now.mono, from);
                Ok(())
            }
            Body::Released(_) => {
                let place = self.place_of(group, epoch, from)?;
                self.with_asker(now, |asker, cx| asker.on_released(cx, place, nonce))
            }
            Body::Free { key, top } => {
                let place = self.place_of(group, epoch, from)?;
                self.with_asker(now, |asker, cx| asker.on_free(cx, place, key, top));
                Ok(())
            }
            Body::Offer { record, replaces } => {
                let bound = self.voter.told_bound();
                self.with_membership(now, |membership, cx| {
                    membership.on_offer(cx, from, nonce, *record, replaces, bound)
                })
            }
            Body::Accepted { bound } => {
                self.with_membership(now, |membership, cx| membership.on_accepted(cx, from, nonce, bound))
            }
            Body::Read { key } => {
                self.send_state(now, from, nonce, key);
                Ok(())
            }
            Body::State(state) => self.on_state(now, from, nonce, *state),
        }
    }

    fn on_state(
        &mut self,
        now: Now,
        from: SocketAddr,
        nonce: u64,
        state: super::State,
    ) -> Result<(), Refusal> {
        // A voter that does not vote may have forgotten its leases: it cannot report that a name is free.
        let lease = state.lease.filter(|_| state.standing == Standing::Voting);
        let floor = state.floor;
        let changed =
            self.with_membership(now, |membership, cx| membership.on_state(cx, from, nonce, state))?;
        self.asker.saw_floor(floor);
        if let Some(lease) = lease {
            self.effects.event(Event::LeaseSeen { nonce, from, lease });
        }
        if changed {
            self.with_asker(now, Asker::wake);
        }
        Ok(())
    }

    /// The place of a voter in the group that this node sends its Asks to.
    fn place_of(&self, group: super::Group, epoch: u32, from: SocketAddr) -> Result<usize, Refusal> {
        let record = self.membership.known().filter(|record| (record.group, record.epoch) == (group, epoch));
        record.and_then(|record| record.place_of(from)).ok_or(Refusal::Reject("not a voter of this group"))
    }

    pub(super) fn on_ask(&mut self, now: Now, from: SocketAddr, nonce: u64, ask: Ask) -> Result<(), Refusal> {
        let Some(record) = self.membership.voting_record() else {
            let answer = Answer { verdict: Verdict::NotVoter, top: 0, floor: 0 };
            self.send_as_voter(from, nonce, Body::Answer(answer));
            return Ok(());
        };
        let lease = record.lease;
        if let Some(until) = self.membership.resting_until(now.mono)
            && !(ask.renew && self.config.has(Fault::GrantsWhileResting))
        {
            // TU-20: a renewal must wait as well.
            self.counters.resting += 1;
            let left_ms = milliseconds(until.since(now.mono));
            self.answer(from, nonce, &ask, Verdict::Resting { left_ms });
            return Ok(());
        }
        let needs_bound = !self.config.has(Fault::BoundAfterGrant);
        match self.voter.ask(now.mono, from, &ask, lease, needs_bound) {
            Decision::Refuse(why) => return Err(Refusal::Reject(why)),
            Decision::NeedsBound => {
                if self.waiting.len() >= WAITING_MAX {
                    return Err(Refusal::Reject("too many Asks wait for the disk"));
                }
                self.waiting.push_back((from, nonce, ask));
                self.reserve_bound(ask.number);
            }
            Decision::Answer(verdict) => {
                self.count(&ask, verdict);
                self.answer(from, nonce, &ask, verdict);
                if !needs_bound && ask.number > self.voter.bound() {
                    self.reserve_bound(ask.number);
                }
            }
        }
        Ok(())
    }

    fn count(&mut self, ask: &Ask, verdict: Verdict) {
        let kind =
            if ask.renew { &mut self.counters.renewals_received } else { &mut self.counters.asks_received };
        *kind += 1;
        match verdict {
            Verdict::Granted => self.counters.granted += 1,
            Verdict::Held { .. } => self.counters.held += 1,
            _ => {}
        }
    }

    /// Writes a bound that covers the number, unless one is under way.
    pub(super) fn reserve_bound(&mut self, number: u64) {
        let is_broken = self.config.has(Fault::BoundAfterGrant);
        let bound = if is_broken { number } else { self.voter.bound_for(number) };
        if self.disk.bound_under_way().is_none_or(|under_way| under_way < number) {
            self.effects.write(Write::Bound(bound));
        }
    }

    fn answer(&mut self, to: SocketAddr, nonce: u64, ask: &Ask, verdict: Verdict) {
        let (top, floor) = (self.voter.top(ask.key), self.voter.floor());
        self.send_as_voter(to, nonce, Body::Answer(Answer { verdict, top, floor }));
    }

    fn call_waiter(&mut self, call: Call) {
        self.send_as_voter(call.to, 0, Body::Free { key: call.key, top: call.top });
    }

    fn send_state(&mut self, now: Now, to: SocketAddr, nonce: u64, key: Option<super::Key>) {
        let mut state = self.membership.state(now.mono, self.voter.told_bound(), self.voter.floor());
        state.lease = key.map(|key| self.voter.seen(now.mono, key));
        self.send_as_voter(to, nonce, Body::State(Box::new(state)));
    }

    fn send_as_voter(&mut self, to: SocketAddr, nonce: u64, body: Body) {
        let (group, epoch) = self.membership.stamp();
        self.effects.outgoing.push(Sending { to, group, epoch, nonce, body });
    }

    /// Applies the effects of the parts.
    fn load(&mut self, out: Out<'_, '_>) {
        for (op, key) in self.disk.load() {
            out.get(op, SPACE, key);
        }
    }

    fn apply(&mut self, out: Out<'_, '_>) {
        for Sending { to, group, epoch, nonce, body } in self.effects.outgoing.drain(..) {
            let message = Message { group, epoch, nonce, body };
            out.send_with(UDP, to, MESSAGE_BYTES_MAX, |writer| encode(&message, writer))
                .expect("seven voters fit into a message");
        }
        for write in self.effects.writes.drain(..) {
            let op = self.disk.writing(write.clone());
            match write {
                Write::Record(record, bound) => out.batch(op, true, |batch| {
                    match record {
                        Some(record) => batch.put(SPACE, RECORD_KEY, &encode_record(&record)),
                        None => batch.delete(SPACE, RECORD_KEY),
                    }
                    if let Some(bound) = bound {
                        batch.put(SPACE, BOUND_KEY, &bound.to_be_bytes());
                    }
                }),
                Write::Bound(bound) => out.put(op, SPACE, BOUND_KEY, &bound.to_be_bytes(), true),
                Write::Snapshot(bytes) => out.put(op, SPACE, SNAPSHOT_KEY, &bytes, true),
                Write::EraseSnapshot => out.delete(op, SPACE, SNAPSHOT_KEY, true),
            }
        }
        for event in self.effects.events.drain(..) {
            match &event {
                Event::TurnGranted { .. } => self.counters.turns_granted += 1,
                Event::TurnReleased { .. } => self.counters.turns_released += 1,
                Event::TurnLost { .. } => self.counters.turns_lost += 1,
                _ => {}
            }
            out.event(event);
        }
        for (request, reply) in self.effects.replies.drain(..) {
            out.reply(request, reply);
        }
    }

    /// Queries the voters for the holder of a name. This node answers for itself, since it accepts no State from its
    /// own address.
    fn on_query(&mut self, now: Instant, request: RequestId, name: &str) {
        let nonce = self.rng.next_u64();
        let key = super::Key::of(name);
        let Some(record) = self.membership.known() else {
            return self.effects.reply(request, Reply::NoMajority { have: 0, need: 0 });
        };
        let (group, epoch, own) = (record.group, record.epoch, self.config.own);
        for to in record.voters.iter().map(|voter| voter.addr).filter(|addr| *addr != own) {
            let body = Body::Read { key: Some(key) };
            self.effects.outgoing.push(Sending { to, group, epoch, nonce, body });
        }
        let is_voter = record.place_of(own).is_some() && self.membership.stamp() == (group, epoch);
        if is_voter && self.membership.standing(now) == Standing::Voting {
            let lease = self.voter.seen(now, key);
            self.effects.event(Event::LeaseSeen { nonce, from: own, lease });
        }
        self.effects.reply(request, Reply::Asked { nonce });
    }
}

impl Machine for Turns {
    type Command = Command;
    type Reply = Reply;
    type Event = Event;

    fn endpoints(&self) -> Endpoints {
        Endpoints {
            sockets: vec![Socket {
                id: UDP,
                name: "turns/udp",
                bind: self.config.bind,
                broadcast: Vec::new(),
            }],
            listeners: Vec::new(),
            spaces: vec![Space { id: SPACE, name: "turns" }],
        }
    }

    fn handle_start(&mut self, _: Now, bound: &Bound, out: Out<'_, '_>) {
        self.boot_id = bound.boot_id;
        self.load(out);
    }

    fn handle_datagram(
        &mut self,
        now: Now,
        _: SocketId,
        from: SocketAddr,
        bytes: &[u8],
        out: Out<'_, '_>,
    ) -> Result<(), Refusal> {
        let done = match decode(bytes) {
            Ok(_) if self.life != Life::Running => Err(Refusal::Reject("the node does not run")),
            Ok(message) => self.handle_message(now, from, message),
            Err(error) => Err(error.into()),
        };
        if done.is_err() {
            self.counters.refused += 1;
        }
        self.apply(out);
        done
    }

    fn handle_stream(
        &mut self,
        _: Now,
        _: StreamId,
        _: StreamEvent<'_>,
        _: Out<'_, '_>,
    ) -> Result<(), Refusal> {
        Ok(())
    }

    fn handle_stored(&mut self, now: Now, reply: StoreReply<'_>, out: Out<'_, '_>) {
        let op = reply.op;
        if self.disk.is_loading() {
            let value = match reply.result {
                StoreResult::Value(value) => Ok(value),
                StoreResult::Failed(fault) => Err(fault),
                _ => Err(StoreFault::Broken),
            };
            if let Some(found) = self.disk.loaded(op, value).filter(|_| self.life == Life::Loading) {
                self.on_loaded(now, found);
            }
        } else if let Some(write) = self.disk.written(op) {
            match reply.result {
                StoreResult::Failed(fault) => self.on_write_failed(now.mono, fault, &write),
                _ => self.on_written(now, write),
            }
        }
        self.apply(out);
    }

    fn handle_command(&mut self, now: Now, request: RequestId, command: Command, out: Out<'_, '_>) {
        match command {
            Command::Status => self.effects.reply(request, Reply::Status(Box::new(self.status(now.mono)))),
            _ if self.life != Life::Running => self.effects.reply(request, Reply::Stopping),
            Command::Lock(lock) => self.with_asker(now, |asker, cx| asker.lock(cx, request, lock)),
            Command::Keep(turn) => self.with_asker(now, |asker, cx| asker.keep(cx, request, turn)),
            Command::Check(turn) => self.with_asker(now, |asker, cx| asker.check(cx, request, turn)),
            Command::Release(turn) => {
                self.with_asker(now, |asker, cx| asker.release(cx, Some(request), turn));
            }
            Command::Resume(resume) => self.with_asker(now, |asker, cx| asker.resume(cx, request, resume)),
            Command::Query(name) => self.on_query(now.mono, request, &name),
            Command::Refound => {
                let bound = self.voter.told_bound();
                let done = self.with_membership(now, |membership, cx| membership.refound(cx, bound));
                self.voter.forget_leases();
                self.effects.reply(request, if done { Reply::Done } else { Reply::NotVoter });
            }
            Command::Renew => {
                let done = self.with_membership(now, Membership::renew);
                self.effects.reply(request, if done { Reply::Done } else { Reply::NotVoter });
            }
        }
        self.apply(out);
    }

    fn handle_timeout(&mut self, now: Now, out: Out<'_, '_>) {
        if self.life == Life::Running {
            let changed = self.membership.known().is_none();
            self.with_membership(now, Membership::poll);
            if changed && self.membership.known().is_some() {
                self.with_asker(now, Asker::wake);
            }
            self.with_asker(now, Asker::poll);
            for call in self.voter.poll(now.mono) {
                self.call_waiter(call);
            }
        } else if self.retry(now.mono) {
            self.load(out);
        }
        self.apply(out);
    }

    fn handle_stop(&mut self, now: Now, out: Out<'_, '_>) {
        if self.life == Life::Running {
            self.with_asker(now, Asker::stop);
            if let Some(snapshot) = self.snapshot(now) {
                self.effects.write(Write::Snapshot(snapshot));
            }
        }
        self.life = Life::Stopping;
        self.retry_at = None;
        self.waiting.clear();
        self.apply(out);
    }

    fn is_stopped(&self) -> bool {
        self.life == Life::Stopping && self.disk.is_idle()
    }

    fn poll_timeout(&self) -> Option<(Instant, &'static str)> {
        if self.life != Life::Running {
            return self.retry_at.map(|at| (at, timer::DISK));
        }
        let timers = [
            (self.voter.next(), timer::VOTER),
            (self.asker.next(), timer::ASKER),
            (self.membership.next(), timer::READ),
        ];
        timers.into_iter().filter_map(|(at, name)| at.map(|at| (at, name))).min()
    }

    fn counters(&self, visit: VisitCounter<'_>) {
        self.counters.visit(visit);
    }

    fn timescales(&self) -> Vec<(&'static str, Duration)> {
        let lease = self.config.lease;
        let renew = super::keeping::interval(lease);
        vec![("turns.lease", lease), ("turns.renew", renew), ("turns.first", super::attempt::FIRST)]
    }
}
