//! The protocol period: probes, help, suspicion at its end (S-R2 … S-R4).

use core::time::Duration;
use std::net::SocketAddr;

use super::machine::{Out, Swim};
use super::members::Slot;
use super::message::{Header, Message};
use super::probes::Probe;
use super::standing::State;
use crate::id::Id;
use crate::time::{Instant, Now, micros};

impl Swim {
    /// Ends one period and begins the next.
    pub(super) fn tick(&mut self, now: Now, out: Out<'_, '_>) {
        let due = self.next_tick.unwrap_or(now.mono);
        let lateness = now.mono.since(due);
        let late = lateness > self.settings.probe_interval;
        if late {
            self.counters.late_ticks += 1;
            self.health.worse(1);
            if self.settings.late_tick_guard {
                self.suspicions.postpone(lateness);
            }
        }
        let excused = late && self.settings.late_tick_guard;
        for probe in self.probes.take() {
            if !probe.answered {
                self.probe_failed(now, &probe, excused, out);
            }
        }
        self.period = self.period.wrapping_add(1);
        self.budget = super::machine::Budget::new();
        self.sort_if_needed();
        for slot in self.selection.targets(&mut self.rng) {
            self.probe(now, slot, out);
        }
        let next = due + self.interval();
        self.next_tick = Some(if next > now.mono { next } else { self.first_tick(now.mono) });
    }

    /// When periods begin after an interruption: nodes that start together do not tick together, unless told to.
    pub(super) fn first_tick(&mut self, now: Instant) -> Instant {
        let interval = self.interval();
        if self.aligned {
            let interval = micros(interval);
            return Instant::from_micros((now.as_micros() / interval + 1) * interval);
        }
        if self.next_tick.is_some() { now + interval } else { now + self.rng.duration_below(interval) }
    }

    /// A probe needs help: others are asked, and other addresses tried.
    pub(super) fn ask_for_help(&mut self, now: Now, probe: &Probe, out: Out<'_, '_>) {
        let known = self.members.find(probe.id);
        let Some(slot) = known.filter(|slot| self.members.get(*slot).state().is_live()) else { return };
        self.counters.indirect_probes += 1;
        if self.settings.all_addrs {
            let others: Vec<SocketAddr> = self.members.get(slot).contents().addrs().skip(1).collect();
            for addr in others {
                let ping = self.ping_message(now, probe.sequence.into(), probe.id);
                self.mail.send(addr, &[ping], self.members.live(), out);
            }
        }
        let helpers = self.helpers(slot);
        let header = self.header(probe.sequence);
        for helper in &helpers {
            let (to, addr) = (self.members.get(*helper).id(), self.members.get(*helper).addr());
            let contents = self.members.get(slot).contents();
            let wants_nack = self.settings.health_max > 0;
            let message = Message::IndirectPing { header, to, target: probe.id, wants_nack, contents };
            self.mail.send(addr, &[message], self.members.live(), out);
        }
        let helpers = helpers.iter().map(|slot| (self.members.get(*slot).id(), false)).collect();
        if let Some(probe) = self.probes.find(probe.sequence) {
            probe.helpers = helpers;
        }
    }

    /// The length of a period, longer if we are not well.
    pub(super) fn interval(&self) -> Duration {
        self.settings.probe_interval * self.health.factor()
    }

    /// The start of a message of ours.
    pub(super) const fn header(&self, sequence: super::Sequence) -> Header {
        Header { from: self.id, sequence }
    }

    fn probe(&mut self, now: Now, slot: Slot, out: Out<'_, '_>) {
        let member = self.members.get(slot);
        if member.last_sent() == self.period {
            return; // SA-26: one direct ping per node and period.
        }
        let (id, addr, standing) = (member.id(), member.addr(), member.standing());
        let sequence = self.next_sequence();
        let ping = self.ping_message(now, sequence.into(), id);
        self.counters.probes += 1;
        if self.settings.buddy && standing.state == State::Suspect {
            // SA-20: it learns first of all that it is suspected.
            let from = self.suspicions.accuser(slot).unwrap_or(self.id);
            let header = Header { from, sequence };
            let suspect = Message::Suspect { header, id, incarnation: standing.incarnation };
            self.mail.send(addr, &[suspect, ping], self.members.live(), out);
        } else {
            self.mail.send(addr, &[ping], self.members.live(), out);
        }
        let help_at = Some(now.mono + self.timeout(slot));
        self.members.at_mut(slot).pinged(self.period);
        let helpers = Vec::new();
        self.probes.add(Probe {
            sequence,
            target: slot,
            id,
            sent: now.mono,
            help_at,
            helpers,
            answered: false,
        });
    }

    fn ping_message(&mut self, now: Now, sequence: Option<super::Sequence>, to: Id) -> Message<'static> {
        let sequence = sequence.unwrap_or_default();
        let every = self.settings.coordinate_interval;
        let wants_coordinate = !every.is_zero() && now.mono >= self.coordinate_at;
        if wants_coordinate {
            self.coordinate_at = now.mono + every;
        }
        Message::Ping { header: self.header(sequence), to, local_time: now.wall, wants_coordinate }
    }

    /// The time for a direct answer: as configured, or as the path has shown, and longer if we are not well.
    fn timeout(&self, slot: Slot) -> Duration {
        let configured = self.settings.probe_timeout;
        let measured = self.members.get(slot).rtt().filter(|_| self.settings.adaptive_timeout);
        let base = measured.map_or(configured, |rtt| {
            let most = self.settings.probe_interval * 3 / 4;
            rtt.timeout().clamp(configured / 5, most.max(configured))
        });
        base * self.health.factor()
    }

    /// Who is asked for help: distinct, alive, neither we nor the target (SA-27).
    fn helpers(&mut self, target: Slot) -> Vec<Slot> {
        let wanted = self.settings.indirect_probes;
        let mut helpers = Vec::with_capacity(wanted);
        let others = self.selection.len();
        let alive =
            |swim: &Self, slot: Slot| slot != target && swim.members.get(slot).state() == State::Alive;
        if others <= 4 * wanted {
            let mut all: Vec<Slot> = self.selection.iter().filter(|slot| alive(self, *slot)).collect();
            self.rng.shuffle(&mut all);
            all.truncate(wanted);
            return all;
        }
        for _ in 0..8 * wanted {
            let Some(slot) = self.selection.pick(&mut self.rng) else { break };
            if helpers.len() < wanted && alive(self, slot) && !helpers.contains(&slot) {
                helpers.push(slot);
            }
        }
        helpers
    }

    /// Nobody answered before the period was over (S-R4).
    fn probe_failed(&mut self, now: Now, probe: &Probe, excused: bool, out: Out<'_, '_>) {
        self.counters.probes_failed += 1;
        if excused {
            return;
        }
        let silent = probe.helpers.iter().filter(|(_, nacked)| !nacked).count() as u32;
        self.health.worse(if probe.helpers.is_empty() { 1 } else { silent });
        let Some(slot) = self.members.find(probe.id).filter(|slot| *slot == probe.target) else { return };
        let member = self.members.get(slot);
        if !member.state().is_live() || self.leaving {
            return;
        }
        let (id, incarnation) = (member.id(), member.incarnation());
        let header = self.header(self.sequence);
        self.suspect(now, slot, Message::Suspect { header, id, incarnation }, out);
    }

    fn sort_if_needed(&mut self) {
        if !self.selection.is_unsorted() {
            return;
        }
        let (me, members) = (self.me, &self.members);
        let live = members.iter().filter(|(slot, member)| *slot != me && member.state().is_live());
        let mut slots: Vec<Slot> = live.map(|(slot, _)| slot).collect();
        let id_of = |slot: &Slot| members.get(*slot).id().to_bytes().to_vec();
        let sorted = self.settings.sorter.sort(&mut slots, &self.id.to_bytes(), id_of);
        debug_assert!(sorted.is_ok(), "all ids have 16 bytes");
        self.selection.update(&slots, &mut self.rng);
    }
}
