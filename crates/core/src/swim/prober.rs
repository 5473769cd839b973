//! The prober: one or more members per period, directly and through proxies, and pings for others (S-R2 … S-R4).
//!
//! It owns the clock of periods, the probes under way, the local health and our network coordinate. It returns the
//! members whose probes failed; `Membership` suspects them.

use core::time::Duration;
use std::net::SocketAddr;

use super::config::Config;
use super::health::Health;
use super::lower::{Cx, Lower};
use super::member::Member;
use super::members::Slot;
use super::message::{Header, Message, NodeView};
use super::packet::Packet;
use super::probes::{Probe, Probes, Relay, Relays};
use super::rtt::Rtt;
use super::sequence::Sequence;
use super::status::State;
use super::vivaldi::Coordinate;
use crate::id::Id;
use crate::time::{Instant, micros};

/// The most suspects of others that are probed in one period.
const CONFIRMED_MAX: usize = 8;
/// The most places in it for members that are dead to others in an older incarnation. Forged Deads get no further ones.
const CONFIRMED_OLD_MAX: usize = 4;

/// Within this many periods at most one accusation counts for the local health.
const ACCUSED_PERIODS: u32 = 1;

/// The probes of one node.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Prober {
    probes: Probes,
    relays: Relays,
    health: Health,
    coordinate: Coordinate,
    /// When the next ping requests a coordinate.
    coordinate_at: Instant,
    /// The member of the last measured round trip, until `take_measured` takes it.
    measured: Option<Id>,
    /// Suspects of other nodes that are probed in the next period as well, at most [`CONFIRMED_MAX`].
    confirming: Vec<Slot>,
    /// The period in which an accusation last counted as a sign of slowness.
    accused_in: Option<u32>,
    next_period: Option<Instant>,
    aligned: bool,
}

impl Prober {
    pub(super) fn new(config: &Config) -> Self {
        Self {
            probes: Probes::default(),
            relays: Relays::new(config.relays_max),
            health: Health::new(config.settings.health_max),
            coordinate: Coordinate::default(),
            coordinate_at: Instant::ZERO,
            measured: None,
            confirming: Vec::new(),
            accused_in: None,
            next_period: None,
            aligned: config.aligned,
        }
    }

    /// Sets the first period.
    pub(super) fn begin(&mut self, cx: &mut Cx<'_, '_>) {
        self.next_period = None;
        self.next_period = Some(self.first_period(cx));
    }

    /// Ends the periods and their probes.
    pub(super) fn stop(&mut self) {
        self.next_period = None;
        self.confirming.clear();
        self.probes.take();
    }

    /// Ends a period, and returns the members whose probes failed.
    pub(super) fn end_period(&mut self, cx: &mut Cx<'_, '_>) -> Vec<Slot> {
        let now = cx.now.mono;
        let lateness = now.since(self.next_period.unwrap_or(now));
        let (interval, is_guarded) =
            (cx.lower.env.settings().probe_interval, cx.lower.env.settings().late_tick_guard);
        let is_late = lateness > interval;
        if is_late {
            cx.count().late_ticks += 1;
            self.health.worse(1);
            if is_guarded {
                cx.lower.suspicions.postpone(lateness);
                let term = cx.lower.term();
                for slot in self.probes.take_last() {
                    cx.lower.suspicions.restart(slot, term, now);
                }
            }
        }
        let failed: Vec<Probe> = self.probes.take().into_iter().filter(|probe| !probe.answered).collect();
        let is_excused = is_late && is_guarded;
        failed.iter().filter_map(|probe| self.on_silence(cx, probe, is_excused)).collect()
    }

    /// Begins a period, and sends its probes.
    pub(super) fn begin_period(&mut self, cx: &mut Cx<'_, '_>) {
        let (now, due) = (cx.now.mono, self.next_period.unwrap_or(cx.now.mono));
        sort_if_needed(cx.lower);
        let Lower { env, selection, .. } = &mut *cx.lower;
        for slot in selection.targets(env.rng()) {
            self.probe(cx, slot, None);
        }
        for slot in core::mem::take(&mut self.confirming) {
            if cx.lower.members.get(slot).state().is_live() {
                self.probe(cx, slot, None);
            }
        }
        let next = due + self.interval(cx);
        self.next_period = Some(if next > now { next } else { self.first_period(cx) });
    }

    /// Probes a suspect for the last time (SA-31a).
    pub(super) fn probe_last(&mut self, cx: &mut Cx<'_, '_>, slot: Slot) {
        let until = cx.now.mono + self.interval(cx);
        self.probe(cx, slot, Some(until));
    }

    /// Probes a suspect of another node in the next period, to confirm the suspicion or to end it (SA-31b).
    pub(super) fn confirm(&mut self, slot: Slot) {
        self.confirm_within(CONFIRMED_MAX, slot);
    }

    /// Probes a live member in the next period that is dead to others in an older incarnation (SA-31b).
    pub(super) fn confirm_old(&mut self, slot: Slot) {
        self.confirm_within(CONFIRMED_OLD_MAX, slot);
    }

    /// Sends a ping-req (`IndirectPing`) to proxies for each member that sent no direct Ack in time.
    pub(super) fn continue_probes(&mut self, cx: &mut Cx<'_, '_>) {
        while let Some(probe) = self.probes.pop_indirect(cx.now.mono) {
            self.probe_indirectly(cx, &probe);
        }
    }

    /// Takes a last probe whose time is over.
    pub(super) fn pop_last(&mut self, now: Instant) -> Option<Probe> {
        self.probes.pop_last(now)
    }

    /// Sends a nack to requesters whose target has not answered so far, and drops expired relays.
    pub(super) fn expire_relays(&mut self, cx: &mut Cx<'_, '_>) {
        while let Some(relay) = self.relays.pop_due(cx.now.mono) {
            if relay.nack {
                let nack = Message::IndirectNack { header: cx.lower.env.header(relay.sequence) };
                cx.answer(relay.reply_to, relay.is_known, nack);
            }
        }
    }

    /// Counts an accusation of this node as a sign that it is slow. At most one counts in [`ACCUSED_PERIODS`], so that
    /// forged ones do not lengthen its periods.
    pub(super) fn on_accused(&mut self, period: u32) {
        if self.accused_in.is_none_or(|last| period.wrapping_sub(last) >= ACCUSED_PERIODS) {
            self.accused_in = Some(period);
            self.health.worse(1);
        }
    }

    /// Handles an Ack, of a probe or of a ping that was sent as a proxy. Returns the slot of a probed member: the
    /// packet then proves its address.
    pub(super) fn on_ack(&mut self, cx: &mut Cx<'_, '_>, from: Id, header: Header) -> Option<Answered> {
        if let Some(relay) = self.relays.answer(header.sequence, from) {
            let header = cx.lower.env.header(relay.sequence);
            cx.answer(relay.reply_to, relay.is_known, Message::IndirectAck { header });
            return None;
        }
        let probe = self.probes.find(header.sequence).filter(|probe| probe.id == from);
        let Some(probe) = probe.filter(|probe| !probe.answered) else {
            cx.count().acks_unmatched += 1;
            return None;
        };
        probe.answered = true;
        let (slot, rtt, was_indirect) =
            (probe.target, cx.now.mono.since(probe.sent), probe.indirect_at.is_none());
        self.health.better();
        if cx.lower.members.find(from) != Some(slot) {
            return None;
        }
        // After several addresses were tried, it is unknown which of them was answered.
        let is_plain = !was_indirect || cx.lower.members.get(slot).contents().addrs().nth(1).is_none();
        Some(Answered { slot, rtt: is_plain.then_some(rtt) })
    }

    /// Takes a measured round trip.
    pub(super) fn measure(
        &mut self,
        cx: &mut Cx<'_, '_>,
        slot: Slot,
        rtt: Duration,
        coordinate: Option<Coordinate>,
    ) {
        let settings = cx.lower.env.settings();
        let (assumed, adaptive) = (Rtt::assumed(settings.probe_timeout), settings.adaptive_timeout);
        self.measured = Some(cx.lower.members.get(slot).id());
        let path = cx.lower.members.at_mut(slot).path_mut();
        match &mut path.rtt {
            Some(known) => known.add(rtt),
            None if adaptive => path.rtt = Some(Rtt::first(rtt)),
            None => path.rtt.insert(assumed).add(rtt),
        }
        if let Some(other) = coordinate {
            path.coordinate = Some(other);
            self.coordinate.update(&other, rtt, cx.lower.env.rng());
        }
    }

    /// Pings a node as a proxy (S-70).
    pub(super) fn on_indirect_ping(
        &mut self,
        cx: &mut Cx<'_, '_>,
        packet: &Packet,
        (reply_to, sequence): (SocketAddr, Sequence),
        target: NodeView<'_>,
        wants_nack: bool,
    ) {
        let (requester, is_known) = (packet.sender, cx.lower.is_known_at_source(packet));
        if !self.relays.has_room(requester) {
            cx.count().relays_refused += 1;
            return;
        }
        cx.count().relays += 1;
        // SA-28: to the address that this node knows, not to the one that the requester names.
        let known = cx.lower.members.member(target.id).map(Member::addr);
        let addr = known.unwrap_or_else(|| target.contents.addr().socket());
        let own = cx.lower.env.nonce();
        let ping = Message::Ping {
            header: cx.lower.env.header(own),
            to: target.id,
            local_time: cx.now.wall,
            wants_coordinate: false,
            wants_alive: false,
        };
        // Any node could name the address of a target that this node does not know.
        cx.answer(addr, known.is_some(), ping);
        let settings = cx.lower.env.settings();
        let (interval, timeout) = (settings.probe_interval, settings.probe_timeout);
        let until = cx.now.mono + interval;
        let first = if wants_nack { cx.now.mono + (interval - timeout) * 4 / 5 } else { until };
        let (target, nack) = (target.id, wants_nack);
        let relay = Relay { requester, reply_to, is_known, sequence, target, nack, until };
        self.relays.add(own, relay, first);
    }

    /// Handles the report of a proxy that the target answered.
    pub(super) fn on_indirect_ack(&mut self, cx: &mut Cx<'_, '_>, header: Header) {
        let asked = |proxies: &[(Id, Option<bool>)]| proxies.iter().any(|(id, _)| *id == header.from);
        match self.probes.find(header.sequence).filter(|probe| asked(&probe.proxies)) {
            Some(probe) => {
                // The last probe of a suspicion needs more than one proxy.
                probe.answered |= probe.until.is_none();
                probe.said_by_proxy(header.from, true);
                cx.count().indirect_answers += 1;
            }
            None => cx.count().acks_unmatched += 1,
        }
    }

    /// Handles the report of a proxy that the target has not answered so far. Once all proxies report so, the probe
    /// ends before its period does (SA-31c). Returns the member if it is to be suspected.
    pub(super) fn on_indirect_nack(&mut self, cx: &mut Cx<'_, '_>, header: Header) -> Option<Slot> {
        self.probes.find(header.sequence)?.said_by_proxy(header.from, false);
        let probe = self.probes.take_denied(header.sequence)?;
        self.on_silence(cx, &probe, false)
    }

    /// The member of the last measured round trip, unless it was taken already.
    pub(super) const fn take_measured(&mut self) -> Option<Id> {
        self.measured.take()
    }

    /// Our network coordinate.
    pub(super) const fn coordinate(&self) -> Coordinate {
        self.coordinate
    }

    pub(super) const fn health(&self) -> Health {
        self.health
    }

    pub(super) fn is_period_due(&self, now: Instant) -> bool {
        self.next_period.is_some_and(|at| at <= now)
    }

    pub(super) const fn period_deadline(&self) -> Option<Instant> {
        self.next_period
    }

    pub(super) fn probe_deadline(&self) -> Option<Instant> {
        self.probes.deadline()
    }

    pub(super) fn relay_deadline(&self) -> Option<Instant> {
        self.relays.deadline()
    }

    #[cfg(test)]
    pub(super) const fn probes(&self) -> &Probes {
        &self.probes
    }

    /// When the next period begins, at the start or after an interruption. Nodes that start together draw different
    /// offsets; aligned nodes begin at multiples of the interval.
    fn first_period(&self, cx: &mut Cx<'_, '_>) -> Instant {
        let (now, interval) = (cx.now.mono, self.interval(cx));
        if self.aligned {
            let interval = micros(interval);
            return Instant::from_micros((now.as_micros() / interval + 1) * interval);
        }
        if self.next_period.is_some() {
            now + interval
        } else {
            now + cx.lower.env.rng().duration_below(interval)
        }
    }

    fn confirm_within(&mut self, most: usize, slot: Slot) {
        if self.confirming.len() < most && !self.confirming.contains(&slot) {
            self.confirming.push(slot);
        }
    }

    /// Asks proxies, and tries the other addresses of the target.
    fn probe_indirectly(&mut self, cx: &mut Cx<'_, '_>, probe: &Probe) {
        let known = cx.lower.members.find(probe.id);
        let Some(slot) = known.filter(|slot| cx.lower.members.get(*slot).state().is_live()) else { return };
        cx.count().indirect_probes += 1;
        if cx.lower.env.settings().all_addrs {
            let others: Vec<SocketAddr> = cx.lower.members.get(slot).contents().addrs().skip(1).collect();
            for addr in others {
                let ping = self.ping_message(cx, probe.sequence, probe.id);
                cx.send(addr, &[ping]);
            }
        }
        if probe.until.is_some() {
            let addr = cx.lower.members.get(slot).addr();
            let ping = self.ping_message(cx, probe.sequence, probe.id);
            let said = cx.lower.held_against(slot).into_iter().chain([ping]);
            cx.lower.packets.send_all(addr, said, 1, cx.out);
            // Proxies are asked only if a node reported that the suspect has refuted.
            if cx.lower.suspicions.refutation(slot).is_none() {
                return;
            }
        }
        let proxies = proxies(cx.lower, slot);
        let Lower { env, members, packets, .. } = &mut *cx.lower;
        let header = env.header(probe.sequence);
        for proxy in &proxies {
            let (to, addr) = (members.get(*proxy).id(), members.get(*proxy).addr());
            let contents = members.get(slot).contents();
            let wants_nack = env.settings().health_max > 0;
            let message = Message::IndirectPing { header, to, target: probe.id, wants_nack, contents };
            packets.send(addr, &[message], members.live(), cx.out);
        }
        let proxies = proxies.iter().map(|slot| (members.get(*slot).id(), None)).collect();
        if let Some(probe) = self.probes.find(probe.sequence) {
            probe.proxies = proxies;
        }
    }

    /// The length of a period; it grows with the local health score.
    fn interval(&self, cx: &Cx<'_, '_>) -> Duration {
        cx.lower.env.settings().probe_interval * self.health.factor()
    }

    fn probe(&mut self, cx: &mut Cx<'_, '_>, slot: Slot, until: Option<Instant>) {
        let (member, period) = (cx.lower.members.get(slot), cx.lower.env.period());
        if member.last_sent() == period && until.is_none() {
            return; // SA-26: one direct ping per node and period.
        }
        let (id, addr, state) = (member.id(), member.addr(), member.state());
        let sequence = cx.lower.env.nonce();
        let ping = self.ping_message(cx, sequence, id);
        cx.count().probes += u64::from(until.is_none());
        // SA-20: a suspect first learns that it is suspected.
        let is_notified = until.is_some() || (cx.lower.env.settings().buddy && state == State::Suspect);
        let held = cx.lower.held_against(slot).filter(|_| is_notified);
        let said: Vec<Message<'_>> = held.into_iter().chain([ping]).collect();
        cx.send(addr, &said);
        let indirect_at = Some(cx.now.mono + self.timeout(cx, slot));
        if until.is_none() {
            cx.lower.members.at_mut(slot).pinged(period);
        }
        self.probes.add(Probe {
            sequence,
            target: slot,
            id,
            sent: cx.now.mono,
            indirect_at,
            proxies: Vec::new(),
            answered: false,
            until,
        });
    }

    fn ping_message(&mut self, cx: &Cx<'_, '_>, sequence: Sequence, to: Id) -> Message<'static> {
        let Lower { env, members, verifier, .. } = &*cx.lower;
        let every = env.settings().coordinate_interval;
        let member = members.member(to);
        let is_unproved = |member: &Member| member.is_unproved() || member.state() == State::Suspect;
        let is_leaving = members.find(to).is_some_and(|slot| verifier.is_leaving(slot));
        let wants_alive = env.settings().verify && (member.is_some_and(is_unproved) || is_leaving);
        let is_unplaced = member.is_some_and(|member| member.coordinate().is_none());
        let is_due = cx.now.mono >= self.coordinate_at || is_unplaced;
        let wants_coordinate = !every.is_zero() && is_due && !wants_alive;
        if wants_coordinate {
            self.coordinate_at = cx.now.mono + every;
        }
        let header = env.header(sequence);
        Message::Ping { header, to, local_time: cx.now.wall, wants_coordinate, wants_alive }
    }

    /// The time for a direct Ack: configured or measured, and multiplied by the local health.
    fn timeout(&self, cx: &Cx<'_, '_>, slot: Slot) -> Duration {
        let settings = cx.lower.env.settings();
        let configured = settings.probe_timeout;
        let measured = cx.lower.members.get(slot).rtt().filter(|_| settings.adaptive_timeout);
        let base = measured.map_or(configured, |rtt| {
            let most = settings.probe_interval * 3 / 4;
            rtt.timeout().clamp(configured / 5, most.max(configured))
        });
        base * self.health.factor()
    }

    /// Handles a probe that got no answer within its period (S-R4). Returns the member if it is to be suspected.
    fn on_silence(&mut self, cx: &mut Cx<'_, '_>, probe: &Probe, is_excused: bool) -> Option<Slot> {
        cx.count().probes_failed += 1;
        if is_excused {
            return None;
        }
        let silent = probe.proxies.iter().filter(|(_, said)| said.is_none()).count() as u32;
        self.health.worse(if probe.proxies.is_empty() { 1 } else { silent });
        let slot = cx.lower.members.find(probe.id).filter(|slot| *slot == probe.target)?;
        let is_live = cx.lower.members.get(slot).state().is_live();
        (is_live && !cx.lower.env.is_leaving()).then_some(slot)
    }
}

/// A probe that was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Answered {
    pub(super) slot: Slot,
    /// The round-trip time, if it is known.
    pub(super) rtt: Option<Duration>,
}

/// Chooses the proxies: distinct and alive, neither this node nor the target (SA-27).
fn proxies(lower: &mut Lower, target: Slot) -> Vec<Slot> {
    let Lower { env, members, selection, .. } = lower;
    let wanted = env.settings().indirect_probes;
    let mut proxies = Vec::with_capacity(wanted);
    let is_fit = |slot: Slot| slot != target && members.get(slot).state() == State::Alive;
    if selection.len() <= 4 * wanted {
        let mut all: Vec<Slot> = selection.iter().filter(|slot| is_fit(*slot)).collect();
        env.rng().shuffle(&mut all);
        all.truncate(wanted);
        return all;
    }
    for _ in 0..8 * wanted {
        let Some(slot) = selection.pick(env.rng()) else { break };
        if proxies.len() < wanted && is_fit(slot) && !proxies.contains(&slot) {
            proxies.push(slot);
        }
    }
    proxies
}

fn sort_if_needed(lower: &mut Lower) {
    let Lower { env, members, selection, .. } = lower;
    if !selection.is_unsorted() {
        return;
    }
    let live = members.iter().filter(|(slot, member)| *slot != env.me() && member.state().is_live());
    let mut slots: Vec<Slot> = live.map(|(slot, _)| slot).collect();
    let id_of = |slot: &Slot| members.get(*slot).id().to_bytes().to_vec();
    let sorted = env.settings().sorter.sort(&mut slots, &env.id().to_bytes(), id_of);
    debug_assert!(sorted.is_ok(), "all ids have 16 bytes");
    selection.update(&slots, env.rng());
}
