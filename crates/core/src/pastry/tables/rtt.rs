//! Round-trip time of one peer: its score for the tables, and the timeout of its acknowledgements (P-5, PA-35).

use core::time::Duration;

use super::proximity::Score;

/// The estimates from the samples of one node's round-trip time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rtt {
    /// For entries: follows a change within a few samples.
    score: Score,
    /// For timeouts: mean and mean deviation, smoothed as RFC 6298 does.
    mean: u32,
    deviation: u32,
}

impl Default for Rtt {
    fn default() -> Self {
        Self { score: Score::UNKNOWN, mean: 0, deviation: 0 }
    }
}

impl Rtt {
    /// Takes a sample in (P-5: every time two nodes communicate).
    pub fn add(&mut self, sample: Duration) {
        let sample = Score::of(sample);
        if self.score == Score::UNKNOWN {
            *self = Self { score: sample, mean: sample.0, deviation: sample.0 / 2 };
            return;
        }
        let error = self.mean.abs_diff(sample.0);
        self.deviation = smooth(self.deviation, error, 4);
        self.mean = smooth(self.mean, sample.0, 8);
        self.score = Score(smooth(self.score.0, sample.0, 2).max(1));
    }

    /// Doubles the timeout: the node did not acknowledge in time. The next samples bring it down again.
    pub fn back_off(&mut self) {
        if self.score != Score::UNKNOWN {
            let timeout = u64::from(self.mean) + 4 * u64::from(self.deviation);
            let more = u32::try_from(timeout / 4).unwrap_or(u32::MAX).max(1);
            self.deviation = self.deviation.saturating_add(more).min(BACKED_OFF_MAX);
        }
    }

    /// The distance of the node.
    #[must_use]
    pub fn score(&self) -> Score {
        self.score
    }

    /// How long an acknowledgement may take: mean and four deviations (PA-35), `None` before the first sample.
    #[must_use]
    pub fn timeout(&self) -> Option<Duration> {
        (self.score != Score::UNKNOWN)
            .then(|| Duration::from_micros(u64::from(self.mean) + 4 * u64::from(self.deviation)))
    }
}

/// The greatest deviation that unacknowledged messages lead to, in microseconds.
const BACKED_OFF_MAX: u32 = 1_000_000;

fn smooth(old: u32, new: u32, weight: u64) -> u32 {
    ((u64::from(old) * (weight - 1) + u64::from(new)) / weight) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p_5_every_exchange_moves_the_score() {
        let mut rtt = Rtt::default();
        assert_eq!((rtt.score(), rtt.timeout()), (Score::UNKNOWN, None));
        rtt.add(Duration::from_micros(1000));
        assert_eq!(rtt.score(), Score(1000));
        assert_eq!(rtt.timeout(), Some(Duration::from_micros(1000 + 4 * 500)));
        // PF-18: a near node that becomes far is known as far after a few exchanges.
        for _ in 0..8 {
            rtt.add(Duration::from_micros(50_000));
        }
        assert!(rtt.score() > Score(49_000), "{:?}", rtt.score());
    }

    #[test]
    fn samples_that_agree_make_the_timeout_tight() {
        let mut rtt = Rtt::default();
        for _ in 0..40 {
            rtt.add(Duration::from_millis(10));
        }
        assert!(rtt.timeout().unwrap() < Duration::from_millis(11));
    }
}
