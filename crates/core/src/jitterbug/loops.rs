//! How long the token takes round the ring, as one node sees it, and how much of the time it went round at all.

use core::time::Duration;

use crate::time::{Instant, micros};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Loops {
    first: Option<Instant>,
    last: Option<Instant>,
    mean_micros: u64,
    lost_micros: u64,
    slow: bool,
    /// How much of this loop the token was held here.
    held: Duration,
    /// A holder elsewhere was heard in this loop.
    held_elsewhere: bool,
}

impl Loops {
    /// The token goes on, and was held here: that is no part of the way round.
    pub(super) fn held_until(&mut self, now: Instant) {
        self.held = self.last.map_or(Duration::ZERO, |last| now.since(last));
    }

    /// Somebody has the token and says so: it is neither lost nor slow.
    pub(super) fn heard_holder(&mut self) {
        self.held_elsewhere = true;
    }

    /// A tenure begins; how long the loop was, if it is the first to take longer than `slow` and nobody is known to have held
    /// the token so long.
    pub(super) fn begin(&mut self, now: Instant, slow: Duration) -> Option<Duration> {
        self.first.get_or_insert(now);
        let held_elsewhere = core::mem::take(&mut self.held_elsewhere);
        let held = core::mem::take(&mut self.held);
        let took = now.since(self.last.replace(now)?).saturating_sub(held);
        if held_elsewhere {
            return None;
        }
        // What is over twice the usual is time in which the token was lost. A loop with a hold in it is not usual.
        if !held.is_zero() {
            let was_slow = core::mem::replace(&mut self.slow, took > slow);
            return (self.slow && !was_slow).then_some(took);
        }
        if self.mean_micros > 0 && micros(took) > 2 * self.mean_micros {
            self.lost_micros += micros(took) - self.mean_micros;
        } else if self.mean_micros == 0 {
            self.mean_micros = micros(took);
        }
        self.mean_micros = (7 * self.mean_micros + micros(took).min(4 * self.mean_micros)) / 8;
        let was_slow = core::mem::replace(&mut self.slow, took > slow);
        (self.slow && !was_slow).then_some(took)
    }

    /// The usual time of a loop, once there was one.
    pub(super) fn mean(&self) -> Option<Duration> {
        (self.mean_micros > 0).then(|| Duration::from_micros(self.mean_micros))
    }

    /// The share of the time since the first token in which it went round, by what this node saw.
    pub(super) fn availability(&self, now: Instant) -> f64 {
        let Some((first, last)) = self.first.zip(self.last) else { return 0.0 };
        let waiting = micros(now.since(last)).saturating_sub(2 * self.mean_micros.max(1));
        let lost = (self.lost_micros + waiting) as f64;
        let all = micros(now.since(first)).max(1) as f64;
        (1.0 - lost / all).clamp(0.0, 1.0)
    }
}
