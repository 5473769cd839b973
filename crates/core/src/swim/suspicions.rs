//! Suspicions under way: the time that each has left, and its confirmations.

use core::time::Duration;
use std::collections::BTreeMap;

use super::members::Slot;
use super::status::Incarnation;
use crate::common::Timers;
use crate::id::Id;
use crate::time::{Instant, micros};

/// The timeout of a suspicion: at most `most`, at least `least`, and shorter with more confirmations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Term {
    /// The timeout with enough confirmations.
    pub(super) least: Duration,
    /// The timeout without confirmation.
    pub(super) most: Duration,
    /// How many confirmations are enough; 0 is `least` at once (SA-31).
    pub(super) enough: usize,
}

impl Term {
    /// The timeout with `others` confirmations: it falls with the logarithm (Lifeguard).
    pub(super) fn after(&self, others: usize) -> Duration {
        if self.enough == 0 || others >= self.enough {
            return self.least;
        }
        let share = libm::log(others as f64 + 1.0) / libm::log(self.enough as f64 + 1.0);
        let (least, most) = (micros(self.least), micros(self.most));
        let less = (most.saturating_sub(least)) as f64 * share;
        Duration::from_micros(most.saturating_sub(less as u64).max(least))
    }
}

/// How many suspects are sent a nonce again at a time.
const REFUTING_MAX: usize = 32;

/// One suspicion.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Suspicion {
    incarnation: Incarnation,
    started: Instant,
    term: Term,
    /// The accusers; the first does not confirm itself.
    accusers: Vec<Id>,
    /// The incarnation with which the suspect is said to have refuted. The report alone does not end the suspicion
    /// (SA-31a).
    refuted: Option<Incarnation>,
    /// Whether the last probe is under way.
    is_probed: bool,
    /// Whether it was prolonged because of a reported refutation.
    is_prolonged: bool,
}

/// All suspicions of one node. At most one per member, so bounded by the table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Suspicions {
    by_slot: BTreeMap<Slot, Suspicion>,
    deadlines: Timers<Slot>,
    /// How long before its end a suspicion is due, for a last probe; zero is no last probe.
    last_probe: Duration,
}

impl Suspicions {
    pub(super) fn new(last_probe: Duration) -> Self {
        Self { last_probe, ..Self::default() }
    }

    /// Starts a suspicion, or restarts it in another incarnation.
    pub(super) fn start(&mut self, slot: Slot, incarnation: Incarnation, by: Id, term: Term, now: Instant) {
        let suspicion = Suspicion {
            incarnation,
            started: now,
            term,
            accusers: vec![by],
            refuted: None,
            is_probed: false,
            is_prolonged: false,
        };
        self.deadlines.set(slot, now + self.wait(term, 0));
        self.by_slot.insert(slot, suspicion);
    }

    /// Raises the incarnation of a suspicion. Its timeout continues, so that forged incarnations cannot prolong it.
    pub(super) fn renumber(&mut self, slot: Slot, incarnation: Incarnation) {
        if let Some(suspicion) = self.by_slot.get_mut(&slot) {
            suspicion.incarnation = incarnation;
        }
    }

    /// Notes a reported refutation. Returns whether it is new.
    pub(super) fn refuted(&mut self, slot: Slot, incarnation: Incarnation) -> bool {
        let Some(suspicion) = self.by_slot.get_mut(&slot) else { return false };
        let is_new = suspicion.refuted.is_none_or(|known| known < incarnation);
        if is_new {
            suspicion.refuted = Some(incarnation);
        }
        is_new
    }

    /// The incarnation with which the suspect is said to have refuted.
    pub(super) fn refutation(&self, slot: Slot) -> Option<Incarnation> {
        self.by_slot.get(&slot).and_then(|suspicion| suspicion.refuted)
    }

    /// Suspects that are said to have refuted.
    pub(super) fn refuting(&self) -> Vec<Slot> {
        let refuting = self.by_slot.iter().filter(|(_, suspicion)| suspicion.refuted.is_some());
        refuting.map(|(slot, _)| *slot).take(REFUTING_MAX).collect()
    }

    /// Prolongs the suspicion of a suspect that is said to have refuted, after its last probe failed: once, by half of
    /// its timeout. Returns whether it does.
    pub(super) fn prolong(&mut self, slot: Slot, now: Instant) -> bool {
        let Some(suspicion) = self.by_slot.get_mut(&slot) else { return false };
        let is_due = suspicion.refuted.is_some() && !suspicion.is_prolonged;
        if is_due {
            (suspicion.is_prolonged, suspicion.is_probed) = (true, false);
            self.deadlines.set(slot, now + suspicion.term.least / 2);
        }
        is_due
    }

    /// Makes the last probe due now, unless it is under way or the suspect is said to have refuted.
    pub(super) fn probe_now(&mut self, slot: Slot, now: Instant) {
        let is_open = |suspicion: &Suspicion| !suspicion.is_probed && suspicion.refuted.is_none();
        if self.by_slot.get(&slot).is_some_and(is_open) {
            self.deadlines.set(slot, now);
        }
    }

    /// Starts the suspicion again: its last probe was answered, or cannot be judged.
    pub(super) fn restart(&mut self, slot: Slot, term: Term, now: Instant) {
        let wait = self.wait(term, 0);
        if let Some(suspicion) = self.by_slot.get_mut(&slot) {
            (suspicion.started, suspicion.term, suspicion.is_probed) = (now, term, false);
            suspicion.accusers.truncate(1);
            self.deadlines.set(slot, now + wait);
        }
    }

    /// Notes another accuser of the same incarnation, and shortens the timeout. Returns whether the accuser is new.
    pub(super) fn confirm(&mut self, slot: Slot, incarnation: Incarnation, by: Id) -> bool {
        let Some(suspicion) = self.by_slot.get_mut(&slot) else { return false };
        let others = suspicion.accusers.len() - 1;
        if suspicion.incarnation != incarnation
            || others >= suspicion.term.enough
            || suspicion.accusers.contains(&by)
            || suspicion.is_probed
        {
            return false;
        }
        suspicion.accusers.push(by);
        let (started, term) = (suspicion.started, suspicion.term);
        self.deadlines.set_earlier(slot, started + self.wait(term, others + 1));
        true
    }

    /// Ends a suspicion.
    pub(super) fn end(&mut self, slot: Slot) {
        self.by_slot.remove(&slot);
        self.deadlines.cancel(slot);
    }

    /// Takes a suspicion that was not refuted in time. With a last probe it stays until the probe is judged.
    pub(super) fn pop_due(&mut self, now: Instant) -> Option<(Slot, Incarnation)> {
        let slot = self.deadlines.pop_due(now)?;
        if self.last_probe.is_zero() {
            return self.by_slot.remove(&slot).map(|suspicion| (slot, suspicion.incarnation));
        }
        let suspicion = self.by_slot.get_mut(&slot)?;
        suspicion.is_probed = true;
        Some((slot, suspicion.incarnation))
    }

    /// Postpones all timeouts after a pause of this node: it could not receive refutations meanwhile (SA-32).
    pub(super) fn postpone(&mut self, by: Duration) {
        self.deadlines.postpone(by);
        self.by_slot.values_mut().for_each(|suspicion| suspicion.started += by);
    }

    /// Whether this member is suspected, with a timer running.
    pub(super) fn is_under_way(&self, slot: Slot) -> bool {
        self.by_slot.contains_key(&slot)
    }

    /// The first accuser.
    pub(super) fn accuser(&self, slot: Slot) -> Option<Id> {
        self.by_slot.get(&slot).and_then(|suspicion| suspicion.accusers.first().copied())
    }

    /// The next timeout.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.deadlines.next().map(|(at, _)| at)
    }

    /// The time until the last probe of a suspicion with `others` confirmations.
    fn wait(&self, term: Term, others: usize) -> Duration {
        term.after(others).saturating_sub(self.last_probe)
    }
}
