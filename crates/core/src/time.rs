//! Time as a machine sees it: two numbers that a driver passes in.
//!
//! A machine never reads a clock. [`Now`] comes with every input and has two parts: a monotonic clock for all logic,
//! and the wall clock for files and for fields that only inform. Both count microseconds in a `u64`, so that simulated
//! time is cheap, exact and the same on every machine.

use core::fmt;
use core::ops::{Add, AddAssign, Sub};
use core::time::Duration;

use serde::Serialize;

/// A point on the monotonic clock of one process, in microseconds since an arbitrary start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct Instant(u64);

impl Instant {
    /// The start of the clock.
    pub const ZERO: Self = Self(0);
    /// A time that is never reached.
    pub const FAR: Self = Self(u64::MAX);

    /// The moment `micros` microseconds after the start of the clock.
    #[must_use]
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros)
    }

    /// Microseconds since the start of the clock.
    #[must_use]
    pub const fn as_micros(self) -> u64 {
        self.0
    }

    /// The time from `earlier` to here; zero if `earlier` is later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Instant {
    type Output = Self;

    /// Saturates at [`Instant::FAR`]: a timeout of "for ever" is a duration like any other.
    fn add(self, after: Duration) -> Self {
        Self(self.0.saturating_add(micros(after)))
    }
}

impl AddAssign<Duration> for Instant {
    fn add_assign(&mut self, after: Duration) {
        *self = *self + after;
    }
}

impl Sub<Duration> for Instant {
    type Output = Self;

    /// Saturates at [`Instant::ZERO`].
    fn sub(self, before: Duration) -> Self {
        Self(self.0.saturating_sub(micros(before)))
    }
}

impl fmt::Display for Instant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:06}", self.0 / 1_000_000, self.0 % 1_000_000)
    }
}

/// A point on the wall clock, in microseconds since the Unix epoch. It may jump in both directions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct Wall(u64);

impl Wall {
    /// The moment `micros` microseconds after the Unix epoch.
    #[must_use]
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros)
    }

    /// Microseconds since the Unix epoch.
    #[must_use]
    pub const fn as_micros(self) -> u64 {
        self.0
    }

    /// Whole seconds since the Unix epoch, for files.
    #[must_use]
    pub const fn as_seconds(self) -> u64 {
        self.0 / 1_000_000
    }
}

/// The two clocks that a driver passes with every call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// The clock for all logic. It never goes back, and keeps running while the computer is suspended (TU-18): each
    /// input has a reading of its own. [`crate::Bound::boot_id`] says when two processes share it.
    pub mono: Instant,
    /// The clock for display. It may jump, and no decision may depend on it.
    pub wall: Wall,
}

impl Now {
    /// Both clocks at once.
    #[must_use]
    pub const fn new(mono: Instant, wall: Wall) -> Self {
        Self { mono, wall }
    }
}

/// A duration in whole microseconds, `u64::MAX` if it does not fit.
#[must_use]
pub fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_saturates_at_both_ends() {
        assert_eq!(Instant::ZERO - Duration::from_secs(1), Instant::ZERO);
        assert_eq!(Instant::from_micros(5) + Duration::MAX, Instant::FAR);
        assert_eq!(Instant::from_micros(5).since(Instant::from_micros(9)), Duration::ZERO);
    }

    #[test]
    fn prints_seconds_with_microseconds() {
        assert_eq!(Instant::from_micros(61_000_042).to_string(), "61.000042");
    }
}
