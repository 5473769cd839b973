//! Recovery of a voter that lost its record: it rests for the lease of its group, then counts the bounds of the others (TU-21).

use core::time::Duration;
use std::collections::BTreeMap;
use std::net::SocketAddr;

use crate::time::Instant;

/// The rest of a voter without a record, and the bounds that it read after it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Recovery {
    began: Instant,
    /// The longest lease that this voter may have granted and forgotten.
    lease: Duration,
    bounds: BTreeMap<SocketAddr, u64>,
}

impl Recovery {
    pub(super) fn new(now: Instant, lease: Duration) -> Self {
        Self { began: now, lease, bounds: BTreeMap::new() }
    }

    /// Takes the lease of a record that names this voter. A longer one prolongs the rest, and bounds that were read
    /// before its end do not count.
    pub(super) fn take_lease(&mut self, lease: Duration) {
        if lease > self.lease {
            self.lease = lease;
            self.bounds.clear();
        }
    }

    /// The longest lease that this voter may have granted and forgotten.
    pub(super) fn lease(&self) -> Duration {
        self.lease
    }

    pub(super) fn rest_until(&self) -> Instant {
        self.began + self.lease
    }

    /// Counts the bound of an intact voter.
    pub(super) fn note_bound(&mut self, from: SocketAddr, bound: u64) {
        self.bounds.insert(from, bound);
    }

    /// The bounds of intact voters, by address.
    pub(super) fn bounds(&self) -> &BTreeMap<SocketAddr, u64> {
        &self.bounds
    }
}
