//! How long the token takes round the ring, as one node sees it, and how much of the time it was lost.
//!
//! A token that comes back under its id was never lost: another node held it. A token under another id was made by a
//! restore; the time since this node last had the token, or last heard a holder, counts as lost.

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
    /// How much of this loop the token was held here.
    held: Duration,
    /// When a holder elsewhere was heard in this loop.
    heard_at: Option<Instant>,
    /// Since when this node asks for the token and hears no holder.
    asking_since: Option<Instant>,
}

impl Loops {
    /// The token goes on, and was held here: that is no part of the way round.
    pub(super) fn held_until(&mut self, now: Instant) {
        self.held = self.last.map_or(Duration::ZERO, |(last, _)| now.since(last));
    }

    /// A holder elsewhere answered: the token is neither lost nor slow.
    pub(super) fn heard_holder(&mut self, now: Instant) {
        self.heard_at = Some(now);
        self.asking_since = None;
    }

    /// This node asks for the token.
    pub(super) fn asks(&mut self, now: Instant) {
        self.asking_since.get_or_insert(now);
    }

    /// A tenure begins; how long the loop was, if it is the first to take longer than `slow` and no node is known to have
    /// held the token so long.
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
        // A loop with a hold in it is not usual.
        if held.is_zero() {
            if self.mean_micros == 0 {
                self.mean_micros = micros(took);
            }
            self.mean_micros = (7 * self.mean_micros + micros(took).min(4 * self.mean_micros)) / 8;
        }
        let was_slow = core::mem::replace(&mut self.slow, took > slow);
        (self.slow && !was_slow).then_some(took)
    }

    /// The usual time of a loop, once there was one.
    pub(super) fn mean(&self) -> Option<Duration> {
        (self.mean_micros > 0).then(|| Duration::from_micros(self.mean_micros))
    }

    /// The share of the time since the first token in which it was not lost, by what this node knows.
    pub(super) fn availability(&self, now: Instant) -> f64 {
        let Some(first) = self.first else { return 0.0 };
        let asking = self.asking_since.map_or(0, |since| micros(now.since(since)));
        let all = micros(now.since(first)).max(1) as f64;
        (1.0 - (self.lost_micros + asking) as f64 / all).clamp(0.0, 1.0)
    }
}
