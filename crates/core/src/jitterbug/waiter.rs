//! The waiter: it takes the token for lost when none comes for `renew_timeout`, and becomes an orphan.

use core::time::Duration;

use super::lower::Transition;
use crate::time::Instant;

/// A waiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Waiter {
    renew_at: Instant,
}

impl Waiter {
    /// A waiter that waits from now on for `renew`.
    pub(super) fn new(now: Instant, renew: Duration) -> Self {
        Self { renew_at: now + renew }
    }

    /// A waiter that waits for ever: the node has not started, or stops.
    pub(super) fn idle() -> Self {
        Self { renew_at: Instant::FAR }
    }

    /// JA-46: restarts the wait, since a valid TP1 came.
    pub(super) fn offered(&mut self, now: Instant, renew: Duration) {
        *self = Self::new(now, renew);
    }

    pub(super) fn on_timeout(&self, now: Instant) -> Option<Transition> {
        (self.renew_at <= now).then_some(Transition::Orphan)
    }

    /// Whether it has waited for half of the time.
    pub(super) fn waited_half(&self, now: Instant, renew: Duration) -> bool {
        self.renew_at <= now + renew / 2
    }

    pub(super) fn due(&self) -> Option<Instant> {
        Some(self.renew_at).filter(|at| *at < Instant::FAR)
    }
}
