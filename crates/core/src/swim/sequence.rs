//! Sequence numbers, compared as RFC 1982 does.

use core::cmp::Ordering;
use core::fmt;

use serde::Serialize;

/// A number that wraps. It names a probe, or a user message of one originator (SA-16).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct Sequence(pub u32);

impl Sequence {
    /// The number after this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.wrapping_add(1))
    }

    /// The order of two numbers on the circle; `None` if they are exactly half of it apart (SA-7).
    #[must_use]
    pub fn compare(self, other: Self) -> Option<Ordering> {
        match self.0.wrapping_sub(other.0) {
            0 => Some(Ordering::Equal),
            0x8000_0000 => None,
            ahead if ahead < 0x8000_0000 => Some(Ordering::Greater),
            _ => Some(Ordering::Less),
        }
    }
}

impl fmt::Display for Sequence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}
