//! Probes of the current period, and pings that we send for others.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use super::deadlines::Deadlines;
use super::members::Slot;
use super::sequence::Sequence;
use crate::id::Id;
use crate::time::Instant;

/// One member asked in this period.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Probe {
    pub(super) sequence: Sequence,
    pub(super) target: Slot,
    pub(super) id: Id,
    pub(super) sent: Instant,
    /// When others are asked for help; `None` once they were.
    pub(super) help_at: Option<Instant>,
    /// The helpers, each with whether it said no in time.
    pub(super) helpers: Vec<(Id, bool)>,
    pub(super) answered: bool,
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

    /// A probe that nobody answered in the time for direct answers.
    pub(super) fn pop_help(&mut self, now: Instant) -> Option<Probe> {
        let due = |probe: &&mut Probe| !probe.answered && probe.help_at.is_some_and(|at| at <= now);
        let probe = self.under_way.iter_mut().find(due)?;
        probe.help_at = None;
        Some(probe.clone())
    }

    /// Ends the period: all its probes.
    pub(super) fn take(&mut self) -> Vec<Probe> {
        core::mem::take(&mut self.under_way)
    }

    /// When the next one needs help.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.under_way.iter().filter(|probe| !probe.answered).filter_map(|probe| probe.help_at).min()
    }
}

/// A ping that we sent for somebody else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Relay {
    pub(super) requester: Id,
    pub(super) reply_to: SocketAddr,
    /// The number of the request there.
    pub(super) sequence: Sequence,
    pub(super) target: Id,
    /// When to say that no answer came so far.
    pub(super) nack: bool,
    /// When to forget it.
    pub(super) until: Instant,
}

/// All pings for others under way. One more than `relays_max`, or than `PER_REQUESTER` of one requester, is refused:
/// nobody makes us his weapon (SA-28).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Relays {
    by_sequence: BTreeMap<Sequence, Relay>,
    requesters: BTreeMap<Id, u32>,
    deadlines: Deadlines<Sequence>,
    relays_max: usize,
}

const PER_REQUESTER: u32 = 8;

impl Relays {
    pub(super) fn new(relays_max: usize) -> Self {
        Self {
            by_sequence: BTreeMap::new(),
            requesters: BTreeMap::new(),
            deadlines: Deadlines::default(),
            relays_max,
        }
    }

    /// Whether one more of this requester would be taken.
    pub(super) fn has_room(&self, requester: Id) -> bool {
        self.by_sequence.len() < self.relays_max
            && self.requesters.get(&requester).is_none_or(|&count| count < PER_REQUESTER)
    }

    pub(super) fn add(&mut self, own: Sequence, relay: Relay, first: Instant) {
        *self.requesters.entry(relay.requester).or_insert(0) += 1;
        self.by_sequence.insert(own, relay);
        self.deadlines.set(own, first);
    }

    /// The answer came: to whom it is to be passed on.
    pub(super) fn answer(&mut self, own: Sequence, from: Id) -> Option<Relay> {
        self.by_sequence.get(&own).filter(|relay| relay.target == from)?;
        self.remove(own)
    }

    /// Takes a relay whose time has come: to say no, if that was wanted; later, to be forgotten.
    pub(super) fn pop_due(&mut self, now: Instant) -> Option<Relay> {
        let own = self.deadlines.pop_due(now)?;
        let relay = self.by_sequence.get_mut(&own)?;
        if core::mem::take(&mut relay.nack) && relay.until > now {
            let told = *relay;
            self.deadlines.set(own, told.until);
            return Some(Relay { nack: true, ..told });
        }
        self.remove(own)
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        self.deadlines.next()
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
