//! Settings of the machine, and the checks on them.

use core::time::Duration;
use std::net::SocketAddr;

use crate::id::Id;

/// The most voters a group may have.
pub const VOTERS_MAX: usize = 7;

/// The UDP port of a node that sets none (TU-9).
pub const PORT: u16 = 30_042;

/// The settings of one node.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The id of this node.
    pub id: Id,
    /// The address of the socket.
    pub bind: SocketAddr,
    /// The address at which others reach this node. It votes if this address is one of `voters`.
    pub own: SocketAddr,
    /// The voters that found the group, and later the addresses to query (TU-6).
    pub voters: Vec<SocketAddr>,
    /// The length L of a lease. The founder writes it into the record; later the record's value counts.
    pub lease: Duration,
    /// The most requests and turns of this node at a time; one more is answered with `Full`.
    pub wishes_max: usize,
    /// The most names a voter remembers; a voter forgets the longest unused name first.
    pub names_max: usize,
    /// A fault built in on purpose, to see a checker catch it.
    #[cfg(any(test, feature = "flaws"))]
    #[doc(hidden)]
    pub fault: Option<Fault>,
}

impl Default for Config {
    fn default() -> Self {
        let any = SocketAddr::from(([127, 0, 0, 1], PORT));
        Self {
            id: Id::MIN,
            bind: any,
            own: any,
            voters: Vec::new(),
            lease: Duration::from_secs(10),
            wishes_max: 1024,
            names_max: 16_384,
            #[cfg(any(test, feature = "flaws"))]
            fault: None,
        }
    }
}

impl Config {
    /// Checks that the settings can work together.
    ///
    /// # Errors
    /// If they do not.
    pub fn check(&self) -> Result<(), ConfigError> {
        let voters = self.voters.len();
        if voters == 0 || voters > VOTERS_MAX {
            return Err(ConfigError::Voters(voters));
        }
        let twice = |(at, addr): (usize, &SocketAddr)| self.voters[..at].contains(addr);
        if let Some((_, addr)) = self.voters.iter().enumerate().find(|each| twice(*each)) {
            return Err(ConfigError::Twice(*addr));
        }
        if !(LEASE_MIN..=LEASE_MAX).contains(&self.lease) {
            return Err(ConfigError::Lease(self.lease));
        }
        Ok(())
    }

    /// The voters in ascending order: the order of the record.
    pub(super) fn sorted_voters(&self) -> Vec<SocketAddr> {
        let mut voters = self.voters.clone();
        voters.sort_unstable();
        voters
    }

    /// Whether this fault is built in. In a shipped node it is not.
    #[cfg(any(test, feature = "flaws"))]
    pub(super) fn has(&self, fault: Fault) -> bool {
        self.fault == Some(fault)
    }

    /// Whether this fault is built in. In a shipped node it is not.
    #[cfg(not(any(test, feature = "flaws")))]
    pub(super) fn has(&self, _: Fault) -> bool {
        false
    }
}

const LEASE_MIN: Duration = Duration::from_secs(2);
const LEASE_MAX: Duration = Duration::from_secs(600);

/// Why a configuration cannot work.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// None, or too many.
    #[error("token.voters names {0} addresses: name 1, 3, 5 or 7, the same on all nodes")]
    Voters(usize),
    /// An address is listed twice.
    #[error("token.voters names {0} twice: name each voter once")]
    Twice(SocketAddr),
    /// Too short to be renewed, or too long to wait for.
    #[error("turns.lease is {0:?}: give it 2s to 10min")]
    Lease(Duration),
}

/// A fault that can be built in on purpose.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A voter that rests grants renewals (against TU-20).
    GrantsWhileResting,
    /// A voter grants first and makes its bound durable later (against TU-11).
    BoundAfterGrant,
    /// A voter that lost its disk reads the bounds of the others before its rest (against TU-21).
    ReadsBeforeRest,
}
