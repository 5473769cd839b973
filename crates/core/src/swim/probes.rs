//! Probes of the current period, and pings sent as a proxy.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use super::members::Slot;
use super::sequence::Sequence;
use crate::common::Timers;
use crate::id::Id;
use crate::time::Instant;

/// The probe of one member in this period.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Probe {
    pub(super) sequence: Sequence,
    pub(super) target: Slot,
    pub(super) id: Id,
    pub(super) sent: Instant,
    /// When proxies are asked; `None` once they were.
    pub(super) indirect_at: Option<Instant>,
    /// The proxies, each with its report if one came: whether the target answered.
    pub(super) proxies: Vec<(Id, Option<bool>)>,
    pub(super) answered: bool,
    /// The end of the last probe of a suspicion; other probes end with their period.
    pub(super) until: Option<Instant>,
}

impl Probe {
    /// Notes the report of a proxy.
    pub(super) fn said_by_proxy(&mut self, proxy: Id, answers: bool) {
        for (_, said) in self.proxies.iter_mut().filter(|(id, _)| *id == proxy) {
            *said = Some(answers);
        }
    }

    /// Whether all proxies report that the target does not answer.
    fn is_denied(&self) -> bool {
        !self.proxies.is_empty() && self.proxies.iter().all(|(_, said)| *said == Some(false))
    }

    /// Whether at least as many proxies report that the target answers as that it does not.
    pub(super) fn is_vouched_for(&self) -> bool {
        let count = |said: bool| self.proxies.iter().filter(|(_, answer)| *answer == Some(said)).count();
        count(true) > 0 && count(true) >= count(false)
    }
}

/// The probes of the current period: as many as the configuration sends at once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Probes {
    under_way: Vec<Probe>,
}

impl Probes {
    pub(super) fn add(&mut self, probe: Probe) {
        self.under_way.push(probe);
    }

    /// The probe with this number.
    pub(super) fn find(&mut self, sequence: Sequence) -> Option<&mut Probe> {
        self.under_way.iter_mut().find(|probe| probe.sequence == sequence)
    }

    /// A probe that got no direct Ack in time.
    pub(super) fn pop_indirect(&mut self, now: Instant) -> Option<Probe> {
        let due = |probe: &&mut Probe| !probe.answered && probe.indirect_at.is_some_and(|at| at <= now);
        let probe = self.under_way.iter_mut().find(due)?;
        probe.indirect_at = None;
        Some(probe.clone())
    }

    /// Ends the period: all its probes.
    pub(super) fn take(&mut self) -> Vec<Probe> {
        self.under_way.extract_if(.., |probe| probe.until.is_none()).collect()
    }

    /// Takes the probe with this number if it got no answer and all its proxies report that the target does not answer.
    /// The last probe of a suspicion always runs until its end.
    pub(super) fn take_denied(&mut self, sequence: Sequence) -> Option<Probe> {
        let is_over = |probe: &Probe| {
            probe.sequence == sequence && !probe.answered && probe.until.is_none() && probe.is_denied()
        };
        let place = self.under_way.iter().position(is_over)?;
        Some(self.under_way.swap_remove(place))
    }

    /// Takes a last probe whose time is over.
    pub(super) fn pop_last(&mut self, now: Instant) -> Option<Probe> {
        let over = |probe: &Probe| probe.until.is_some_and(|until| until <= now);
        let place = self.under_way.iter().position(over)?;
        Some(self.under_way.swap_remove(place))
    }

    /// Drops all last probes, and returns their targets.
    pub(super) fn take_last(&mut self) -> Vec<Slot> {
        self.under_way.extract_if(.., |probe| probe.until.is_some()).map(|probe| probe.target).collect()
    }

    /// When the next probe needs proxies, or ends.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let indirect =
            self.under_way.iter().filter(|probe| !probe.answered).filter_map(|probe| probe.indirect_at);
        indirect.chain(self.under_way.iter().filter_map(|probe| probe.until)).min()
    }
}

/// A ping sent as a proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Relay {
    pub(super) requester: Id,
    pub(super) reply_to: SocketAddr,
    /// Whether the requester is known at its address.
    pub(super) is_known: bool,
    /// The sequence number of the request.
    pub(super) sequence: Sequence,
    pub(super) target: Id,
    /// Whether to send a nack when the target has not answered in time.
    pub(super) nack: bool,
    /// When to forget it.
    pub(super) until: Instant,
}

/// All pings sent as a proxy. One more than `relays_max`, or than `PER_REQUESTER` of one requester, is refused. So a
/// node cannot be used to flood a target (SA-28).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Relays {
    by_sequence: BTreeMap<Sequence, Relay>,
    requesters: BTreeMap<Id, u32>,
    deadlines: Timers<Sequence>,
    relays_max: usize,
}

const PER_REQUESTER: u32 = 8;

impl Relays {
    pub(super) fn new(relays_max: usize) -> Self {
        Self {
            by_sequence: BTreeMap::new(),
            requesters: BTreeMap::new(),
            deadlines: Timers::default(),
            relays_max,
        }
    }

    /// Whether one more request of this requester is accepted.
    pub(super) fn has_room(&self, requester: Id) -> bool {
        self.by_sequence.len() < self.relays_max
            && self.requesters.get(&requester).is_none_or(|&count| count < PER_REQUESTER)
    }

    pub(super) fn add(&mut self, own: Sequence, relay: Relay, first: Instant) {
        *self.requesters.entry(relay.requester).or_insert(0) += 1;
        self.by_sequence.insert(own, relay);
        self.deadlines.set(own, first);
    }

    /// Takes the relay that an Ack answers.
    pub(super) fn answer(&mut self, own: Sequence, from: Id) -> Option<Relay> {
        self.by_sequence.get(&own).filter(|relay| relay.target == from)?;
        self.remove(own)
    }

    /// Takes a relay whose timer fired: first for its nack, if one is wanted; later to be dropped.
    pub(super) fn pop_due(&mut self, now: Instant) -> Option<Relay> {
        let own = self.deadlines.pop_due(now)?;
        let relay = self.by_sequence.get_mut(&own)?;
        if core::mem::take(&mut relay.nack) && relay.until > now {
            let due = *relay;
            self.deadlines.set(own, due.until);
            return Some(Relay { nack: true, ..due });
        }
        self.remove(own)
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        self.deadlines.next().map(|(at, _)| at)
    }

    fn remove(&mut self, own: Sequence) -> Option<Relay> {
        let relay = self.by_sequence.remove(&own)?;
        self.deadlines.cancel(own);
        if let Some(count) = self.requesters.get_mut(&relay.requester) {
            *count -= 1;
            if *count == 0 {
                self.requesters.remove(&relay.requester);
            }
        }
        Some(relay)
    }
}
