//! Where `now` comes from.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use annulus_core::{Instant, Now, Wall, micros};

/// The clocks of one driver.
///
/// The monotonic clock starts at one second rather than at zero, so that a machine that looks back a little at its
/// start does not meet the edge. The wall clock is read once per turn and carried forward by the monotonic one
/// within it: reading both for each datagram costs more than handling some of them.
#[derive(Debug)]
pub(crate) struct Clock {
    start: std::time::Instant,
    wall_at_zero_micros: u64,
}

/// What the monotonic clock shows at the start.
const START: Duration = Duration::from_secs(1);

impl Clock {
    pub(crate) fn new() -> Self {
        let mut clock = Self { start: std::time::Instant::now(), wall_at_zero_micros: 0 };
        clock.read_wall();
        clock
    }

    /// Reads the wall clock, which may have jumped.
    pub(crate) fn read_wall(&mut self) {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.wall_at_zero_micros = micros(wall).saturating_sub(self.mono().as_micros());
    }

    /// What time it is.
    pub(crate) fn now(&self) -> Now {
        let mono = self.mono();
        Now::new(mono, Wall::from_micros(self.wall_at_zero_micros.saturating_add(mono.as_micros())))
    }

    /// The same moment for tokio's timers; `None` if it never comes.
    pub(crate) fn to_tokio(&self, at: Instant) -> Option<tokio::time::Instant> {
        let after = Duration::from_micros(at.as_micros()).saturating_sub(START);
        self.start.checked_add(after).map(tokio::time::Instant::from_std)
    }

    fn mono(&self) -> Instant {
        Instant::ZERO + (self.start.elapsed() + START)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_clocks_run_and_a_moment_is_the_same_for_tokio() {
        let mut clock = Clock::new();
        let first = clock.now();
        clock.read_wall();
        let second = clock.now();
        assert!(second.mono >= first.mono);
        let system = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        assert!(system.abs_diff(Duration::from_micros(second.wall.as_micros())) < Duration::from_secs(60));
        let at = clock.to_tokio(second.mono + Duration::from_secs(5)).unwrap();
        let ahead = at - tokio::time::Instant::from_std(clock.start);
        assert_eq!(ahead + START, Duration::from_micros(second.mono.as_micros()) + Duration::from_secs(5));
        assert!(clock.to_tokio(Instant::FAR).is_none_or(|at| at > tokio::time::Instant::now()));
    }
}
