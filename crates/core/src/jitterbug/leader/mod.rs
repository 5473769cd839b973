//! The leader: a tenure from the arrival of the token to the FIN of its pass.
//!
//! `tenure.rs` computes: random drop, merges, next data, holds. `handoff.rs` passes the token on, candidate by candidate;
//! `attempt.rs` is one attempt. A tenure runs through fixed steps, and each may have to wait for the application or the disk.
//! [`Tenure`] has the completed steps and the awaited result; `advance` does all steps that are possible now. A token
//! that arrives in between (JA-30) is queued to be merged. If the next data was computed without it, it is computed
//! again.

mod attempt;
mod handoff;
mod tenure;

use core::time::Duration;
use std::collections::VecDeque;
use std::net::IpAddr;

use attempt::Attempt;

use super::application::{Next, Restored};
use super::config::Config;
use super::message::TokenId;
use super::records::Branch;
use crate::tag::OpId;
use crate::time::Instant;

/// The most tokens that may wait to be merged.
const ARRIVALS_MAX: usize = 4;

/// The request to the application outside of the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Awaited {
    ask: u64,
    deadline: Instant,
    /// The branch to merge; `None` for the next data.
    branch: Option<Branch>,
}

/// The position of the token.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    /// Here, until the work is done, the pace has passed and no hold is in force.
    Here,
    /// Offered to a candidate.
    Passing(Attempt),
    /// Here, because no candidate took it; a new tenure begins at `until`.
    Idle { until: Instant },
}

/// A tenure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Tenure {
    since: Instant,
    /// When the next pause check is due.
    pause_check_at: Instant,
    /// The ring has a second token, which may arrive until then.
    duplicate_until: Instant,
    restored: Option<Restored>,
    /// Whether the random drop is decided.
    begun: bool,
    /// Whether the next data is computed, or failed.
    computed: bool,
    arrivals: VecDeque<Branch>,
    awaited: Option<Awaited>,
    keeping: Option<(OpId, Next)>,
    step: Step,
    /// How many candidates this round has tried or skipped.
    seen: usize,
}

impl Tenure {
    pub(super) fn new(now: Instant, config: &Config, restored: Option<Restored>) -> Self {
        Self {
            since: now,
            pause_check_at: now + config.pause_check_interval(),
            duplicate_until: now,
            restored,
            begun: false,
            computed: false,
            arrivals: VecDeque::new(),
            awaited: None,
            keeping: None,
            step: Step::Here,
            seen: 0,
        }
    }

    /// Keeps the token for this time, so that a second one can arrive.
    pub(super) fn await_duplicate(&mut self, now: Instant, wait: Duration) {
        self.duplicate_until = now + wait;
    }

    pub(super) fn is_passing(&self) -> bool {
        self.attempt().is_some()
    }

    /// Whether this node would take a token from that address now (JA-30); `own` and `addr` are its own.
    pub(super) fn takes(&self, own: TokenId, addr: IpAddr, token: TokenId, from: IpAddr) -> bool {
        if self.arrivals.len() >= ARRIVALS_MAX {
            return false;
        }
        match self.attempt() {
            None => true,
            // Two leaders with equal ids that pass to each other would refuse each other for ever. Both know both
            // addresses: the lower one takes, the higher one gives.
            Some(_) if token == own => from > addr,
            Some(_) => token > own,
        }
    }

    /// When its next step is due.
    pub(super) fn due(&self, config: &Config, held: bool) -> Option<Instant> {
        match &self.step {
            Step::Passing(attempt) => Some(attempt.deadline()),
            Step::Idle { until } => Some(*until),
            Step::Here => match &self.awaited {
                Some(awaited) => Some(awaited.deadline),
                None if self.keeping.is_some() || held => None,
                None => Some(self.leaves_at(config)),
            },
        }
    }

    pub(super) fn pause_check_at(&self) -> Instant {
        self.pause_check_at
    }

    /// Whether the next data is being computed or stored.
    pub(super) fn computes(&self) -> bool {
        self.keeping.is_some() || self.awaited.as_ref().is_some_and(|awaited| awaited.branch.is_none())
    }

    fn attempt(&self) -> Option<&Attempt> {
        if let Step::Passing(attempt) = &self.step { Some(attempt) } else { None }
    }

    fn attempt_mut(&mut self) -> Option<&mut Attempt> {
        if let Step::Passing(attempt) = &mut self.step { Some(attempt) } else { None }
    }

    /// When the token may be passed.
    fn leaves_at(&self, config: &Config) -> Instant {
        self.duplicate_until.max(self.since + config.pace)
    }

    fn is_waiting(&self) -> bool {
        self.awaited.is_some() || self.keeping.is_some()
    }
}
