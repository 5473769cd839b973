//! The settings, and the checks that they work together.

use core::time::Duration;
use std::net::{Ipv4Addr, SocketAddr};

/// The settings of one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The address to receive on, both datagrams and streams.
    pub bind: SocketAddr,
    /// The peers to ping from the start.
    pub peers: Vec<SocketAddr>,
    /// The interval between two pings of a peer.
    pub interval: Duration,
    /// The timeout of an answer. At most the interval, so that a peer has one datagram ping under way.
    pub timeout: Duration,
    /// Every this many rounds the pings go over streams; 0 is never.
    pub stream_every: u32,
    /// A peer has vanished after this many misses in a row.
    pub vanished_after: u32,
    /// How long a change of the count may wait to be written.
    pub keep_interval: Duration,
    /// The most peers.
    pub peers_max: usize,
    /// The most pings under way, those of commands included.
    pub probes_max: usize,
    /// The most streams that others may have open to this node.
    pub streams_max: usize,
    /// A fault to build in, so that the tests can show that they would notice it.
    #[cfg(any(test, feature = "flaws"))]
    #[doc(hidden)]
    pub fault: Option<Fault>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            bind: SocketAddr::from((Ipv4Addr::LOCALHOST, 7001)),
            peers: Vec::new(),
            interval: Duration::from_secs(1),
            timeout: Duration::from_millis(500),
            stream_every: 10,
            vanished_after: 3,
            keep_interval: Duration::from_secs(1),
            peers_max: 1024,
            probes_max: 4096,
            streams_max: 64,
            #[cfg(any(test, feature = "flaws"))]
            fault: None,
        }
    }
}

impl Config {
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        if self.interval.is_zero() {
            return Err(ConfigError::ZeroInterval);
        }
        if self.timeout.is_zero() || self.timeout > self.interval {
            return Err(ConfigError::Timeout { timeout: self.timeout, interval: self.interval });
        }
        if self.vanished_after == 0 {
            return Err(ConfigError::ZeroVanishedAfter);
        }
        if self.peers.len() > self.peers_max {
            return Err(ConfigError::Peers { peers: self.peers.len(), peers_max: self.peers_max });
        }
        Ok(())
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

/// Why a configuration cannot work.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// No time between pings.
    #[error("ping.interval is zero: give it a duration such as \"1s\"")]
    ZeroInterval,
    /// No time for an answer, or more than there is.
    #[error("ping.timeout is {timeout:?}: it must be above zero and at most ping.interval ({interval:?})")]
    Timeout {
        /// As configured.
        timeout: Duration,
        /// As configured.
        interval: Duration,
    },
    /// Every peer would have vanished from the start.
    #[error("ping.vanished_after is zero: a peer needs at least one miss to vanish")]
    ZeroVanishedAfter,
    /// More peers than allowed.
    #[error("{peers} peers are over ping.peers_max ({peers_max}): raise it or name fewer")]
    Peers {
        /// As configured.
        peers: usize,
        /// As configured.
        peers_max: usize,
    },
}

/// A fault that can be built in on purpose.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The count is reported as kept although it is not durable.
    KeepWithoutSync,
    /// A pong that comes twice is reported twice.
    AnswerTwice,
}
