//! Suspicions under way: how long each still has, and who else shares it.

use core::time::Duration;
use std::collections::BTreeMap;

use super::deadlines::Deadlines;
use super::members::Slot;
use super::standing::Incarnation;
use crate::id::Id;
use crate::time::{Instant, micros};

/// How long a suspicion lasts: at most `most`, at least `least`, the shorter the more others share it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Term {
    /// Once enough others share it.
    pub(super) least: Duration,
    /// While nobody does.
    pub(super) most: Duration,
    /// How many others are enough; 0 is `least` at once (SA-31).
    pub(super) enough: usize,
}

impl Term {
    /// How long a suspicion lasts that `others` share: falls with the logarithm (Lifeguard).
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

/// One suspicion.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Suspicion {
    incarnation: Incarnation,
    started: Instant,
    term: Term,
    /// Who said so; the first does not confirm itself.
    accusers: Vec<Id>,
}

/// All suspicions of one node. At most one per member, so bounded by the table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Suspicions {
    by_slot: BTreeMap<Slot, Suspicion>,
    deadlines: Deadlines<Slot>,
}

impl Suspicions {
    /// Starts a suspicion, or starts it anew in another incarnation.
    pub(super) fn start(&mut self, slot: Slot, incarnation: Incarnation, by: Id, term: Term, now: Instant) {
        let suspicion = Suspicion { incarnation, started: now, term, accusers: vec![by] };
        self.deadlines.set(slot, now + term.after(0));
        self.by_slot.insert(slot, suspicion);
    }

    /// Somebody else suspects the same incarnation: whether that is news, and how long the suspicion then lasts.
    pub(super) fn confirm(&mut self, slot: Slot, incarnation: Incarnation, by: Id) -> bool {
        let Some(suspicion) = self.by_slot.get_mut(&slot) else { return false };
        let others = suspicion.accusers.len() - 1;
        if suspicion.incarnation != incarnation
            || others >= suspicion.term.enough
            || suspicion.accusers.contains(&by)
        {
            return false;
        }
        suspicion.accusers.push(by);
        self.deadlines.set(slot, suspicion.started + suspicion.term.after(others + 1));
        true
    }

    /// Ends a suspicion.
    pub(super) fn end(&mut self, slot: Slot) {
        self.by_slot.remove(&slot);
        self.deadlines.cancel(slot);
    }

    /// Takes one that nobody disputed in time.
    pub(super) fn pop_due(&mut self, now: Instant) -> Option<(Slot, Incarnation)> {
        let slot = self.deadlines.pop_due(now)?;
        self.by_slot.remove(&slot).map(|suspicion| (slot, suspicion.incarnation))
    }

    /// The machine slept: nobody could dispute anything meanwhile (SA-32).
    pub(super) fn postpone(&mut self, by: Duration) {
        self.deadlines.postpone(by);
        self.by_slot.values_mut().for_each(|suspicion| suspicion.started += by);
    }

    /// Whether this member is suspected, with a timer running.
    pub(super) fn is_under_way(&self, slot: Slot) -> bool {
        self.by_slot.contains_key(&slot)
    }

    /// Who said it first.
    pub(super) fn accuser(&self, slot: Slot) -> Option<Id> {
        self.by_slot.get(&slot).and_then(|suspicion| suspicion.accusers.first().copied())
    }

    /// When the next one is over.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.deadlines.next()
    }
}
