//! The clocks of one host: how its time relates to the true time of the simulation.
//!
//! A host's monotonic clock starts at any value, drifts, and may stop while the host is suspended. Its wall clock
//! follows the monotonic one and jumps when a fault sets it. All of
//! it is integer arithmetic, so that it is the same everywhere.

use annulus_core::{Instant, Now, Wall};

/// The wall clock at the start of a simulation: 14 November 2023, 22:13:20.
const EPOCH_MICROS: u64 = 1_700_000_000_000_000;

const MILLION: u128 = 1_000_000;

/// The clocks of one host.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    /// True time of the last change.
    base_true: u64,
    /// The monotonic clock at that time.
    base_local: u64,
    /// How much too fast it runs, in parts per million.
    drift_ppm: i32,
    /// Whether it is stopped.
    frozen: bool,
    /// Wall clock minus monotonic clock.
    wall_offset: i64,
}

impl Clock {
    /// A clock that shows `local` at the true time `at`, with the right wall time.
    pub(crate) fn new(at: u64, local: u64) -> Self {
        let wall_offset = (EPOCH_MICROS + at) as i64 - local as i64;
        Self { base_true: at, base_local: local, drift_ppm: 0, frozen: false, wall_offset }
    }

    /// Makes it run too fast by so many parts per million (too slow, if negative), from `at` on.
    pub(crate) fn drift(&mut self, at: u64, ppm: i32) {
        self.rebase(at);
        self.drift_ppm = ppm.clamp(-900_000, 9_000_000);
    }

    /// Sets the wall clock ahead (back, if negative).
    pub(crate) fn jump(&mut self, micros: i64) {
        self.wall_offset = self.wall_offset.saturating_add(micros);
    }

    /// Stops both clocks, as the sleep of a machine does; the wall clock is right again when it wakes.
    pub(crate) fn freeze(&mut self, at: u64) {
        self.rebase(at);
        self.frozen = true;
    }

    /// Lets them run again.
    pub(crate) fn thaw(&mut self, at: u64) {
        self.rebase(at);
        self.frozen = false;
    }

    /// Starts the monotonic clock anew, as a loss of power does; the wall clock goes on.
    pub(crate) fn reboot(&mut self, at: u64, local: u64) {
        self.rebase(at);
        self.wall_offset += self.base_local as i64 - local as i64;
        self.base_local = local;
    }

    /// Whether it runs too fast or too slow.
    pub(crate) fn drifts(&self) -> bool {
        self.drift_ppm != 0
    }

    /// The clocks at the true time `at`.
    pub(crate) fn now(&self, at: u64) -> Now {
        let local = self.local(at);
        let wall = (local as i64).saturating_add(self.wall_offset).max(0) as u64;
        Now::new(Instant::from_micros(local), Wall::from_micros(wall))
    }

    /// The first true time at which the monotonic clock shows `local` or more.
    pub(crate) fn when(&self, local: Instant) -> u64 {
        let ahead = local.as_micros().saturating_sub(self.base_local);
        if self.drift_ppm == 0 {
            return self.base_true.saturating_add(ahead);
        }
        let rate = (MILLION as i128 + i128::from(self.drift_ppm)) as u128;
        let elapsed = (u128::from(ahead) * MILLION).div_ceil(rate);
        self.base_true.saturating_add(u64::try_from(elapsed).unwrap_or(u64::MAX))
    }

    fn local(&self, at: u64) -> u64 {
        let elapsed = at.saturating_sub(self.base_true);
        if self.frozen {
            return self.base_local;
        }
        if self.drift_ppm == 0 {
            return self.base_local + elapsed;
        }
        let rate = (MILLION as i128 + i128::from(self.drift_ppm)) as u128;
        self.base_local + (u128::from(elapsed) * rate / MILLION) as u64
    }

    fn rebase(&mut self, at: u64) {
        self.base_local = self.local(at);
        if self.frozen {
            self.wall_offset += at.saturating_sub(self.base_true) as i64;
        }
        self.base_true = at;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drift_changes_the_rate_and_not_the_moment() {
        let mut clock = Clock::new(1_000, 50);
        let before = clock.now(2_000);
        clock.drift(2_000, 100_000);
        assert_eq!(clock.now(2_000), before);
        assert_eq!(clock.now(12_000).mono.as_micros() - before.mono.as_micros(), 11_000);
    }

    #[test]
    fn when_is_the_first_moment_that_shows_it() {
        for ppm in [-200_000, -37, 0, 41, 333_333] {
            let mut clock = Clock::new(10, 999);
            clock.drift(10, ppm);
            for local in (999..5_000).step_by(7) {
                let at = clock.when(Instant::from_micros(local));
                assert!(clock.now(at).mono.as_micros() >= local, "{ppm} {local}");
                assert!(at <= 10 || clock.now(at - 1).mono.as_micros() < local, "{ppm} {local}");
            }
        }
    }

    #[test]
    fn a_jump_moves_the_wall_clock_alone() {
        let mut clock = Clock::new(0, 7);
        let before = clock.now(100);
        clock.jump(-5_000_000);
        let after = clock.now(100);
        assert_eq!(after.mono, before.mono);
        assert_eq!(before.wall.as_micros() - after.wall.as_micros(), 5_000_000);
    }

    #[test]
    fn a_boot_starts_the_monotonic_clock_and_keeps_the_date() {
        let mut clock = Clock::new(0, 5_000);
        clock.reboot(1_000, 7);
        assert_eq!(clock.now(1_000).mono.as_micros(), 7);
        assert_eq!(clock.now(3_000).wall.as_micros(), EPOCH_MICROS + 3_000);
    }

    #[test]
    fn a_sleeping_machine_loses_monotonic_time_and_keeps_the_date() {
        let mut clock = Clock::new(0, 0);
        clock.freeze(1_000);
        assert_eq!(clock.now(5_000).mono.as_micros(), 1_000);
        clock.thaw(5_000);
        assert_eq!(clock.now(6_000).mono.as_micros(), 2_000);
        assert_eq!(clock.now(6_000).wall.as_micros(), EPOCH_MICROS + 6_000);
    }
}
