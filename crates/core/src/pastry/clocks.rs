//! Clocks: how old a message is when it is read.
//!
//! A message may wait long before its next node reads it: in the kernel of a process that stood still, or on a cut line.
//! By then its sender has given it up and sent it another way. Nobody's clock tells the time of anybody else's, but every
//! acknowledgement and every pong shows the clock of who sends it, and whoever saw it knows what that clock shows at
//! least: what it showed, and the time since. That goes with the next message there (`Route`'s `sent`), and its receiver
//! compares it with its own clock. The difference is the age of the message, or more, never less.
//!
//! | age | what the receiver does with a message that may not be repeated |
//! |---|---|
//! | less than its sender waits for an acknowledgement | nothing: nobody has given it up |
//! | not known | shows its clock, and does not take the message: the sender sends it again, and says |
//! | more | marks it as doubtful: there may be another of it |
//! | more than its sender waits for its end | lets it end as "unknown" |
//!
//! A machine that sleeps stops its clock. If the receiver slept, a message comes before it was sent; if we slept, our
//! reckoning of every other clock is behind, so what we send seems too old, and the next clock we see tells us.

use core::time::Duration;

use serde::Serialize;

use super::machine::{Out, Pastry};
use super::message::{Copies, Outcome};
use super::relays::Passage;
use crate::id::Id;
use crate::machine::Machine;
use crate::time::{Instant, Now, micros};

/// How much two clocks may differ for no reason, and a thousandth of the time since they were compared.
const TOLERANCE: Duration = Duration::from_millis(50);
const DRIFT_DIVISOR: u32 = 1000;
/// How long a clock that was seen can be reckoned on.
const RECKONED_MAX: Duration = Duration::from_secs(1200);

/// What the clock of a node shows, in microseconds. It says nothing about any other clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct Clock(pub u64);

/// When a message was sent, by the clock of its receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Sent {
    /// What that clock showed, at least.
    pub clock: Clock,
    /// How long the sender waits for the acknowledgement, in microseconds.
    pub patience_micros: u32,
    /// How long the message had been under way by then, in microseconds, at most.
    pub age_micros: u32,
}

/// The clock of another node as it was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    clock: Clock,
    at: Instant,
    /// How old it may have been when it came.
    slack: Duration,
}

impl Seen {
    /// What that clock shows now, at least.
    fn reckoned(&self, now: Instant) -> Option<Clock> {
        let since = now.since(self.at);
        (since <= RECKONED_MAX).then(|| Clock(self.clock.0.saturating_add(micros(since))))
    }

    /// When a message goes out, by that clock; `None` if we know too little of it.
    pub(super) fn sent(&self, now: Instant, patience: Duration, age: Duration) -> Option<Sent> {
        let short = |duration| micros(duration).try_into().unwrap_or(u32::MAX);
        Some(Sent { clock: self.reckoned(now)?, patience_micros: short(patience), age_micros: short(age) })
    }

    /// Whether a newer reading shows that our own clock stood still in between.
    fn shows_sleep(&self, newer: Clock, now: Instant) -> bool {
        let tolerance = TOLERANCE + now.since(self.at) / DRIFT_DIVISOR + self.slack;
        self.reckoned(now).is_some_and(|reckoned| newer.0 > reckoned.0.saturating_add(micros(tolerance)))
    }
}

/// How old a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Age {
    /// Its sender still waits for the acknowledgement.
    Young,
    /// Its sender does not know our clock.
    Untold,
    /// Its sender may have sent it another way.
    Doubtful,
    /// Its origin has given it up.
    Outlived,
}

impl Pastry {
    /// Our clock, to be shown to others.
    pub(super) fn clock(now: Now) -> Clock {
        Clock(now.mono.as_micros())
    }

    /// How old a message is that says when it was sent: what that means, and how long it has been under way at most.
    pub(super) fn age(&self, now: Now, sent: Option<Sent>) -> (Age, Duration) {
        let Some(Sent { clock: sent, patience_micros, age_micros }) = sent else {
            return (Age::Untold, Duration::MAX);
        };
        let early = Duration::from_micros(sent.0.saturating_sub(now.mono.as_micros()));
        let late = Duration::from_micros(now.mono.as_micros().saturating_sub(sent.0));
        let under_way = Duration::from_micros(age_micros.into()) + late;
        if early > TOLERANCE + RECKONED_MAX / DRIFT_DIVISOR || under_way > self.config.message_timeout {
            (Age::Outlived, under_way)
        } else if late >= Duration::from_micros(patience_micros.into()) {
            (Age::Doubtful, under_way)
        } else {
            (Age::Young, under_way)
        }
    }

    /// A node showed us its clock, at most `slack` ago.
    pub(super) fn saw_clock(&mut self, now: Now, id: Id, clock: Clock, slack: Duration, out: Out<'_, '_>) {
        let Some(peer) = self.peers.get_mut(id) else { return };
        let slept = peer.clock.is_some_and(|seen| seen.shows_sleep(clock, now.mono));
        peer.clock = Some(Seen { clock, at: now.mono, slack });
        if slept {
            self.outlive_all(now, out);
        }
    }

    /// The others did without us for a while: what is ours now was theirs until now.
    pub(super) fn returned(&mut self, now: Now) {
        self.joined = Some(now.mono);
    }

    /// Notices that we stood still, by a timer that is long overdue.
    pub(super) fn notice_standstill(&mut self, now: Now) {
        let due = self.poll_timeout().map_or(now.mono, |(due, _)| due);
        if now.mono.since(due) >= self.config.network_timeout {
            self.come_back(now);
        }
    }

    /// We were not there for a while, so others may have taken us for dead: our leaves are asked and hear of us at once.
    fn come_back(&mut self, now: Now) {
        self.returned(now);
        if !self.join.is_active() {
            return;
        }
        let leaves: Vec<Id> = self.leaf_set.members().collect();
        for id in leaves {
            if let Some(peer) = self.peers.get_mut(id) {
                peer.knows_us = false;
            }
        }
        self.periods.leaf = self.periods.leaf.map(|at| at.min(now.mono));
    }

    /// We slept: whatever is under way here was given up by all others.
    fn outlive_all(&mut self, now: Now, out: Out<'_, '_>) {
        self.come_back(now);
        let once = |passage: &Passage| passage.envelope.copies != Copies::Many;
        let mut passages = self.relays.drain_all(once);
        passages.extend(self.inquiries.drain(once));
        for passage in passages {
            self.end(now, &passage.envelope, Outcome::Unknown, out);
        }
    }
}
