//! The duration of a loop, as one node sees it, and the share of time in which the token was lost.
//!
//! A token that returns under its id was never lost: another node held it. A token under another id was made by a
//! restore. Then the time since this node last had the token, or last got an answer of a holder, counts as lost.

use core::time::Duration;

use super::super::message::TokenId;
use crate::time::{Instant, micros};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Loops {
    first: Option<Instant>,
    last: Option<(Instant, TokenId)>,
    mean_micros: u64,
    lost_micros: u64,
    slow: bool,
    /// How long the token was held here in this loop.
    held: Duration,
    /// When a holder last answered in this loop.
    heard_at: Option<Instant>,
    /// Since when this node sends TR1 without an answer of a holder.
    asking_since: Option<Instant>,
}

impl Loops {
    /// Notes that the token was held here until now: that does not count for the loop time.
    pub(super) fn held_until(&mut self, now: Instant) {
        self.held = self.last.map_or(Duration::ZERO, |(last, _)| now.since(last));
    }

    /// Notes the answer of a holder: the token is neither lost nor slow.
    pub(super) fn heard_holder(&mut self, now: Instant) {
        self.heard_at = Some(now);
        self.asking_since = None;
    }

    /// Notes that this node sends TR1.
    pub(super) fn asks(&mut self, now: Instant) {
        self.asking_since.get_or_insert(now);
    }

    /// Begins a tenure. Returns the duration of the loop if it is the first that is longer than `slow` and no known
    /// hold explains it.
    pub(super) fn begin(&mut self, now: Instant, token: TokenId, slow: Duration) -> Option<Duration> {
        self.first.get_or_insert(now);
        self.asking_since = None;
        let heard_at = self.heard_at.take();
        let held = core::mem::take(&mut self.held);
        let (last, before) = self.last.replace((now, token))?;
        let took = now.since(last).saturating_sub(held);
        if before != token && self.mean_micros > 0 {
            let known = heard_at.map_or(last + held, |at| at.max(last));
            self.lost_micros += micros(now.since(known)).saturating_sub(self.mean_micros);
        }
        if heard_at.is_some() {
            return None;
        }
        // A loop with a hold does not count for the mean.
        if held.is_zero() {
            if self.mean_micros == 0 {
                self.mean_micros = micros(took);
            }
            self.mean_micros = (7 * self.mean_micros + micros(took).min(4 * self.mean_micros)) / 8;
        }
        let was_slow = core::mem::replace(&mut self.slow, took > slow);
        (self.slow && !was_slow).then_some(took)
    }

    /// The mean duration of a loop, once there was one.
    pub(super) fn mean(&self) -> Option<Duration> {
        (self.mean_micros > 0).then(|| Duration::from_micros(self.mean_micros))
    }

    /// The share of the time since the first token in which it was not lost, as far as this node knows.
    pub(super) fn availability(&self, now: Instant) -> f64 {
        let Some(first) = self.first else { return 0.0 };
        let asking = self.asking_since.map_or(0, |since| micros(now.since(since)));
        let all = micros(now.since(first)).max(1) as f64;
        (1.0 - (self.lost_micros + asking) as f64 / all).clamp(0.0, 1.0)
    }
}
