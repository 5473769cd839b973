//! The clock of the driver.

#[cfg(any(test, not(target_os = "linux")))]
use std::time::Duration;
use std::time::{SystemTime, UNIX_EPOCH};

use annulus_core::{Instant, Now, Wall, micros};

/// The clocks of one driver.
///
/// TU-18: the monotonic clock counts the sleep of the machine and is read for every input. On Linux it is CLOCK_BOOTTIME
/// itself, so two processes of one boot have one clock. Elsewhere it is the system's monotonic clock from one second
/// on, so that a machine that looks back a little at its start does not meet the edge.
///
/// The wall clock is read once per turn and carried forward by the monotonic one within it: no decision depends on it.
#[derive(Debug)]
pub(crate) struct Clock {
    #[cfg_attr(target_os = "linux", expect(dead_code, reason = "what other systems count from"))]
    start: std::time::Instant,
    wall_at_zero_micros: u64,
}

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

    /// The time now.
    pub(crate) fn now(&self) -> Now {
        let mono = self.mono();
        Now::new(mono, Wall::from_micros(self.wall_at_zero_micros.saturating_add(mono.as_micros())))
    }

    /// The same moment for tokio's timers, if the machine does not sleep before; `None` if it never comes.
    pub(crate) fn to_tokio(&self, at: Instant) -> Option<tokio::time::Instant> {
        tokio::time::Instant::now().checked_add(at.since(self.mono()))
    }

    #[cfg(target_os = "linux")]
    #[expect(clippy::unused_self, reason = "other systems need it")]
    fn mono(&self) -> Instant {
        Instant::ZERO + annulus_sys::boot_time()
    }

    #[cfg(not(target_os = "linux"))]
    fn mono(&self) -> Instant {
        Instant::ZERO + (self.start.elapsed() + Duration::from_secs(1))
    }
}

/// The time on a clock that counts the sleep of the machine, where the system has one: on Linux that of every driver.
#[must_use]
pub fn monotonic() -> Instant {
    #[cfg(target_os = "linux")]
    let since = annulus_sys::boot_time();
    #[cfg(not(target_os = "linux"))]
    let since = {
        static START: std::sync::OnceLock<std::time::Instant> = std::sync::OnceLock::new();
        START.get_or_init(std::time::Instant::now).elapsed()
    };
    Instant::ZERO + since
}

/// The name of this boot, where the system gives it one.
pub(crate) fn boot_id() -> Option<[u8; 16]> {
    if cfg!(target_os = "linux") {
        parse_boot_id(&std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?)
    } else {
        None
    }
}

/// 32 hexadecimal digits with dashes between them.
fn parse_boot_id(text: &str) -> Option<[u8; 16]> {
    let digits: String = text.trim().chars().filter(|digit| *digit != '-').collect();
    let number = u128::from_str_radix(&digits, 16).ok()?;
    (digits.len() == 32).then(|| number.to_be_bytes())
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
        let before = tokio::time::Instant::now();
        let at = clock.to_tokio(second.mono + Duration::from_secs(3600)).unwrap();
        assert!(
            at > before + Duration::from_secs(3000)
                && at <= tokio::time::Instant::now() + Duration::from_secs(3600)
        );
        assert!(clock.to_tokio(Instant::FAR).is_none_or(|at| at > tokio::time::Instant::now()));
        assert!(
            clock.to_tokio(first.mono).unwrap() <= tokio::time::Instant::now(),
            "what is over is due now"
        );
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn tu_18_two_clocks_of_one_boot_are_one() {
        let (one, other) = (Clock::new(), Clock::new());
        let (first, second, third) = (one.now().mono, other.now().mono, one.now().mono);
        assert!(first <= second && second <= third);
        assert_eq!(boot_id(), boot_id());
        assert!(boot_id().is_some());
    }

    #[test]
    fn a_boot_id_is_a_uuid() {
        let text = "0a1b2c3d-0000-4000-8000-0000000000ff\n";
        assert_eq!(parse_boot_id(text).unwrap()[..4], [0x0a, 0x1b, 0x2c, 0x3d]);
        assert_eq!(parse_boot_id(text).unwrap()[15], 0xff);
        assert_eq!(parse_boot_id("0a1b"), None);
        assert_eq!(parse_boot_id("no uuid at all, but long enough."), None);
    }
}
