//! Where `now` comes from.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use annulus_core::{Instant, Now, Wall, micros};

/// The clocks of one driver.
///
/// The monotonic clock starts at one second rather than at zero, so that a machine that looks back a little at its
/// start does not meet the edge. The wall clock is read once per turn and carried forward by the monotonic one
/// within it: reading both for each datagram costs more than handling some of them.
///
/// The system's monotonic clock stands still while the machine sleeps; the one here goes on, as far as the system tells how
/// long that was. A machine that slept must know that the others did not.
#[derive(Debug)]
pub(crate) struct Clock {
    start: std::time::Instant,
    /// What the clock that also counts sleep showed then, if there is one.
    start_since_boot: Option<Duration>,
    /// How long the machine has slept since.
    slept: Duration,
    wall_at_zero_micros: u64,
}

/// The shortest sleep that is noticed.
const SLEEP_MIN: Duration = Duration::from_millis(100);

/// What the monotonic clock shows at the start.
const START: Duration = Duration::from_secs(1);

impl Clock {
    pub(crate) fn new() -> Self {
        let start = std::time::Instant::now();
        let mut clock =
            Self { start, start_since_boot: since_boot(), slept: Duration::ZERO, wall_at_zero_micros: 0 };
        clock.read_wall();
        clock
    }

    /// Reads the wall clock, which may have jumped, and whether the machine has slept.
    pub(crate) fn read_wall(&mut self) {
        if let Some((now, start)) = since_boot().zip(self.start_since_boot) {
            self.note_sleep((now.saturating_sub(start)).saturating_sub(self.start.elapsed()));
        }
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
        let after = Duration::from_micros(at.as_micros()).saturating_sub(START + self.slept);
        self.start.checked_add(after).map(tokio::time::Instant::from_std)
    }

    /// The machine has slept so long in all. Two clocks that are read one after the other differ a little: that is no sleep.
    fn note_sleep(&mut self, slept: Duration) {
        if slept > self.slept + SLEEP_MIN {
            self.slept = slept;
        }
    }

    fn mono(&self) -> Instant {
        Instant::ZERO + (self.start.elapsed() + self.slept + START)
    }
}

/// The time since the machine was started, sleep included.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn since_boot() -> Option<Duration> {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    Duration::try_from(time).ok()
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn since_boot() -> Option<Duration> {
    None
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

    #[test]
    fn a_machine_that_slept_finds_that_time_went_on() {
        let mut clock = Clock::new();
        assert_eq!(clock.slept, Duration::ZERO);
        let before = clock.now();
        let due = clock.to_tokio(before.mono + Duration::from_secs(3600)).unwrap();
        clock.note_sleep(Duration::from_millis(1));
        assert_eq!(clock.slept, Duration::ZERO, "two looks at two clocks");
        clock.note_sleep(Duration::from_secs(3600));
        assert!(clock.now().mono >= before.mono + Duration::from_secs(3600));
        let now_due = clock.to_tokio(before.mono + Duration::from_secs(3600)).unwrap();
        assert_eq!(due - now_due, Duration::from_secs(3600), "what was due then is due now");
        clock.note_sleep(Duration::ZERO);
        assert!(clock.now().mono >= before.mono + Duration::from_secs(3600), "it never goes back");
    }
}
