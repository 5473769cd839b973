//! The round-trip time to a node: a smoothed estimate and its deviation (S-R10).

use core::time::Duration;

/// Weight of a new sample in the estimate.
const ALPHA: f64 = 0.125;
/// Weight of a new sample in the deviation.
const BETA: f64 = 0.25;

/// Round-trip time to one node, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Rtt {
    estimate: f32,
    deviation: f32,
}

impl Rtt {
    /// Before any sample, as the document says: an estimate from the configuration, and no deviation.
    #[must_use]
    pub fn assumed(initial: Duration) -> Self {
        Self { estimate: as_micros(initial), deviation: 0.0 }
    }

    /// After the first sample, as RFC 6298 says: the sample, and half of it as deviation.
    #[must_use]
    pub fn first(sample: Duration) -> Self {
        Self { estimate: as_micros(sample), deviation: as_micros(sample) / 2.0 }
    }

    /// Adds a sample: first to the estimate, then the deviation from the new estimate, in the document's order.
    pub fn add(&mut self, sample: Duration) {
        let (sample, old) = (f64::from(as_micros(sample)), f64::from(self.estimate));
        let estimate = (1.0 - ALPHA) * old + ALPHA * sample;
        let deviation = (1.0 - BETA) * f64::from(self.deviation) + BETA * (sample - estimate).abs();
        (self.estimate, self.deviation) = (estimate as f32, deviation as f32);
    }

    /// The smoothed estimate.
    #[must_use]
    pub fn estimate(&self) -> Duration {
        Duration::from_micros(self.estimate as u64)
    }

    /// The smoothed deviation.
    #[must_use]
    pub fn deviation(&self) -> Duration {
        Duration::from_micros(self.deviation as u64)
    }

    /// The longest time that an answer is expected to take: the estimate and four deviations.
    #[must_use]
    pub fn timeout(&self) -> Duration {
        Duration::from_micros((self.estimate + 4.0 * self.deviation) as u64)
    }
}

fn as_micros(duration: Duration) -> f32 {
    duration.as_micros() as f32
}
