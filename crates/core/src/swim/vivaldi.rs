//! Network coordinates after Vivaldi: they estimate the round-trip time between two nodes.
//!
//! Each node has a point in eight dimensions and a height above it (its last mile). Every measured round-trip time
//! moves the point a little. It moves further if the other node's error is smaller.

use core::time::Duration;

use crate::rng::Rng;
use crate::wire::{DecodeError, Reader, Writer};

/// How many dimensions a coordinate has.
pub const DIMENSIONS: usize = 8;

/// The error of a new node, and the largest error that is accepted.
const ERROR_MAX: f64 = 1.5;
/// How fast the error follows the samples.
const CE: f64 = 0.25;
/// How far one sample moves a node.
const CC: f64 = 0.25;
/// The least height: 10 µs, in seconds.
const HEIGHT_MIN: f64 = 1.0e-5;
/// The distance from the origin, in seconds, at which gravity takes effect: it keeps coordinates from drifting away.
const GRAVITY_RHO: f64 = 150.0;
/// Points closer than this are treated as equal, and a random direction is drawn.
const SAME: f64 = 1.0e-6;
/// The longest distance, in seconds; a coordinate beyond it is forged.
const REACH_MAX: f32 = 60.0;

/// A position. Distances are seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Coordinate {
    /// The point.
    pub point: [f32; DIMENSIONS],
    /// The height above the point.
    pub height: f32,
    /// The error: 0 is certain.
    pub error: f32,
}

impl Default for Coordinate {
    fn default() -> Self {
        Self { point: [0.0; DIMENSIONS], height: HEIGHT_MIN as f32, error: ERROR_MAX as f32 }
    }
}

impl Coordinate {
    /// The encoded length.
    pub const BYTES: usize = 4 * (DIMENSIONS + 2);

    /// Moves the point according to a round-trip time to `other`.
    pub fn update(&mut self, other: &Self, rtt: Duration, rng: &mut Rng) {
        let rtt = rtt.as_secs_f64().max(SAME);
        let wrong = (self.seconds_to(other) - rtt).abs() / rtt;
        let total = f64::from(self.error) + f64::from(other.error);
        let weight = if total > 0.0 { f64::from(self.error) / total } else { 0.5 };
        let error = CE * weight * wrong + f64::from(self.error) * (1.0 - CE * weight);
        self.error = error.min(ERROR_MAX) as f32;
        let force = CC * weight * (rtt - self.seconds_to(other));
        self.push(force, other, rng);
        self.pull_back();
    }

    /// The estimated round-trip time between the two.
    #[must_use]
    pub fn rtt_to(&self, other: &Self) -> Duration {
        Duration::from_secs_f64(self.seconds_to(other).min(f64::from(REACH_MAX)))
    }

    pub(super) fn write(&self, writer: &mut Writer<'_>) {
        for value in self.point.iter().chain([&self.height, &self.error]) {
            writer.u32(value.to_bits());
        }
    }

    /// Reads what [`Coordinate::write`] wrote; it refuses values out of range.
    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let mut values = [0.0f32; DIMENSIONS + 2];
        for value in &mut values {
            *value = f32::from_bits(reader.u32()?);
            if !value.is_finite() || value.abs() > REACH_MAX {
                return Err(DecodeError::Field("coordinate"));
            }
        }
        let [point @ .., height, error] = values;
        if height < 0.0 || error < 0.0 {
            return Err(DecodeError::Field("coordinate"));
        }
        Ok(Self { point, height, error: error.min(ERROR_MAX as f32) })
    }

    fn seconds_to(&self, other: &Self) -> f64 {
        length(&self.offset(other)) + f64::from(self.height) + f64::from(other.height)
    }

    /// The vector from `other` to here.
    fn offset(&self, other: &Self) -> [f64; DIMENSIONS] {
        core::array::from_fn(|at| f64::from(self.point[at]) - f64::from(other.point[at]))
    }

    /// Moves by `force` seconds away from `other`; the height takes its share.
    fn push(&mut self, force: f64, other: &Self, rng: &mut Rng) {
        let mut away = self.offset(other);
        let mut apart = length(&away);
        if apart < SAME {
            away = core::array::from_fn(|_| rng.unit() - 0.5);
            apart = length(&away).max(SAME);
        } else {
            let height = (f64::from(self.height) + f64::from(other.height)) * force / apart;
            self.height = (f64::from(self.height) + height).clamp(HEIGHT_MIN, f64::from(REACH_MAX)) as f32;
        }
        for (value, direction) in self.point.iter_mut().zip(away) {
            *value = bounded(f64::from(*value) + force * direction / apart);
        }
    }

    fn pull_back(&mut self) {
        let away = self.offset(&Self { point: [0.0; DIMENSIONS], ..*self });
        let far = length(&away);
        if far >= SAME {
            let force = (far / GRAVITY_RHO) * (far / GRAVITY_RHO);
            for (value, direction) in self.point.iter_mut().zip(away) {
                *value = bounded(f64::from(*value) - force * direction / far);
            }
        }
    }
}

fn bounded(value: f64) -> f32 {
    value.clamp(f64::from(-REACH_MAX), f64::from(REACH_MAX)) as f32
}

fn length(vector: &[f64; DIMENSIONS]) -> f64 {
    libm::sqrt(vector.iter().map(|value| value * value).sum())
}
