//! Limits that grow with the number of members: transmissions of an update, length of a suspicion.

use core::time::Duration;

use crate::time::micros;

/// How a limit grows with the group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Scale {
    /// The number of decimal digits of N: `ceil(log10(N + 1))`, at least 1, without floating point (SA-29).
    #[default]
    Digits,
    /// `log10(N)`, at least 1, to the thousandth: as memberlist computes its suspicion.
    Smooth,
}

impl Scale {
    /// The factor for a group of `members`, in thousandths.
    #[must_use]
    pub fn thousandths(self, members: usize) -> u64 {
        match self {
            Self::Digits => u64::from(digits(members)) * 1000,
            Self::Smooth => (1000.0 * libm::log10(members.max(1) as f64).max(1.0)) as u64,
        }
    }
}

/// `max(1, ceil(log10(members + 1)))`: the number of decimal digits.
#[must_use]
pub fn digits(members: usize) -> u32 {
    members.checked_ilog10().map_or(1, |log| log + 1)
}

/// The most transmissions of one update: `mult * log(N + 1)` (S-81, S-116). `Gossip::fill` may raise it.
#[must_use]
pub fn transmit_limit(mult: u32, members: usize) -> u32 {
    mult.saturating_mul(digits(members))
}

/// How long a suspicion lasts: `mult * log(N + 1) * interval` (S-117).
#[must_use]
pub fn suspicion(mult: u32, scale: Scale, members: usize, interval: Duration) -> Duration {
    let thousandths = u64::from(mult) * scale.thousandths(members);
    Duration::from_micros(micros(interval).saturating_mul(thousandths) / 1000)
}
