//! The settings, and the combinations that are invalid.

use core::time::Duration;
use std::net::{Ipv4Addr, SocketAddr};

use super::message::AppName;
use crate::id::{Base, Id};

/// The port of the service.
pub const PORT: u16 = 22001;

/// The settings of one node. Each `_max` says what happens beyond it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The id of the node.
    pub id: Id,
    /// The address to listen on, for streams and datagrams.
    pub bind: SocketAddr,
    /// The address at which others reach the node, if it differs from `bind`.
    pub advertise: Option<SocketAddr>,
    /// The name of the ring (PA-44). Nodes of another name are refused.
    pub ring: String,
    /// Nodes to join through. A node without seeds is the first of a ring (PA-20). A node that lists its own address
    /// bootstraps the ring if no other seed accepts it.
    pub seeds: Vec<SocketAddr>,
    /// Bits of a digit, the parameter `b` (N-2).
    pub base: Base,
    /// |L|: nodes of the leaf set, both sides together; the nearest are kept.
    pub leaf_set_max: usize,
    /// |M|: nodes of the neighbourhood set; the nearest are kept.
    pub neighbourhood_max: usize,
    /// The applications that run here from the start. A message for any other one fails.
    pub applications: Vec<AppName>,
    /// The source of liveness verdicts.
    pub liveness: Liveness,
    /// Whether a node without seeds waits until `members` names a node to join through, instead of being the first of
    /// its ring. If none of the named nodes accepts it, the one with the least id bootstraps the ring.
    pub await_members: bool,

    /// How long a request may take. Twice that bounds the wait for stragglers of a join (P-35, PA-17).
    pub network_timeout: Duration,
    /// The shortest acknowledgement timeout, whatever the measured round-trip times say (PD-3).
    pub ack_timeout_min: Duration,
    /// How long the origin of a message waits for its outcome, all attempts together, unless the command sets a
    /// deadline.
    pub message_timeout: Duration,
    /// How many hops a message may take (PA-36).
    pub ttl: u8,
    /// How many other next hops are tried when one certainly did not get the message (PA-35); then the attempt fails.
    pub reroutes_max: usize,
    /// How often the nearest leaf of each side is probed (PA-34a).
    pub leaf_interval: Duration,
    /// How often table and neighbourhood set are probed and improved (PA-34a).
    pub table_interval: Duration,
    /// How long a node that does not answer keeps its entries while messages for it go elsewhere (PD-4).
    pub away_timeout: Duration,
    /// How often a lost node is probed, once the first minutes are over (PA-42).
    pub merge_interval: Duration,
    /// How long a proximity counts (P-6).
    pub proximity_lifetime: Duration,
    /// How long an unused connection is kept.
    pub idle_timeout: Duration,

    /// The longest message, frames included. A longer one is refused. Incomplete large messages of all connections take
    /// at most eight times that. One connection may use half of the bytes that the others leave free; beyond that it is
    /// refused.
    pub message_bytes_max: usize,
    /// The most bytes queued on one connection; all connections together have twice as many. One connection may use
    /// half of the bytes that the others leave free. Beyond that the message takes another path.
    pub queue_bytes_max: usize,
    /// The most connections that this node opens. For one more the longest idle one is closed.
    pub connections_max: usize,
    /// The most connections that others open to this node, a quarter of them from one address. One more is reset.
    pub accepted_max: usize,
    /// The most proximities kept. For one more the oldest is forgotten (PA-31).
    pub proximities_max: usize,
    /// The most forwarded messages that wait for their acknowledgement, and as many deferred ones. One more gets a
    /// nack, and its sender tries another path.
    pub relays_max: usize,
    /// The most messages of this node without outcome. One more is refused.
    pub outstanding_max: usize,
    /// The most messages that applications have not settled. For one more the owner answers `Busy`.
    pub open_max: usize,
    /// The most bytes of such messages. Beyond that the owner answers `Busy`.
    pub open_bytes_max: usize,
    /// The most numbers of accepted messages remembered to drop duplicates. For one more the oldest is forgotten.
    pub window_max: usize,
    /// The most nodes named by others that wait for a probe, and as many known nodes. Further ones are dropped; among
    /// known nodes the suspected ones stay.
    pub candidates_max: usize,
    /// The most probes under way to nodes named by others, and as many to known nodes. Further ones wait.
    pub probes_max: usize,
    /// The most lost nodes remembered for a merge (PA-42). For one more the oldest is forgotten.
    pub past_max: usize,
    /// A fault to build in, so that the tests can show that they would notice it.
    #[cfg(any(test, feature = "flaws"))]
    #[doc(hidden)]
    pub fault: Option<Fault>,
}

/// A fault that can be built in on purpose: an earlier version had it.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// An established connection is kept until the kernel closes it, however long the peer is silent.
    KeepConnections,
    /// A message is reported as delivered in the call that gives it to the application.
    ReportBeforeSettled,
}

/// The source of liveness verdicts (PA-13).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Liveness {
    /// This machine, by its own probes (PA-34a).
    Own,
    /// The service `members`, by commands; no probe is sent unless a message was not acknowledged.
    Members,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            id: Id::MIN,
            bind: SocketAddr::from((Ipv4Addr::LOCALHOST, PORT)),
            advertise: None,
            ring: "annulus".to_owned(),
            seeds: Vec::new(),
            base: Base::B4,
            leaf_set_max: 32,
            neighbourhood_max: 32,
            applications: Vec::new(),
            liveness: Liveness::Own,
            await_members: false,
            network_timeout: Duration::from_secs(3),
            ack_timeout_min: Duration::from_millis(50),
            message_timeout: Duration::from_secs(10),
            ttl: 64,
            reroutes_max: 3,
            leaf_interval: Duration::from_secs(30),
            table_interval: Duration::from_secs(900),
            away_timeout: Duration::from_secs(10),
            merge_interval: Duration::from_secs(60),
            proximity_lifetime: Duration::from_secs(3600),
            idle_timeout: Duration::from_secs(60),
            message_bytes_max: 16 * 1024 * 1024 + 1024,
            queue_bytes_max: 64 * 1024 * 1024,
            connections_max: 256,
            accepted_max: 1024,
            proximities_max: 4096,
            relays_max: 4096,
            outstanding_max: 4096,
            open_max: 4096,
            open_bytes_max: 64 * 1024 * 1024,
            window_max: 4096,
            candidates_max: 2048,
            probes_max: 64,
            past_max: 20,
            #[cfg(any(test, feature = "flaws"))]
            fault: None,
        }
    }
}

impl Config {
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        if self.leaf_set_max < 2 || !self.leaf_set_max.is_multiple_of(2) {
            return Err(ConfigError::LeafSet { leaf_set_max: self.leaf_set_max });
        }
        if self.advertise.unwrap_or(self.bind).ip().is_unspecified() {
            return Err(ConfigError::Unreachable { addr: self.advertise.unwrap_or(self.bind) });
        }
        let durations = [
            ("network_timeout", self.network_timeout),
            ("ack_timeout_min", self.ack_timeout_min),
            ("message_timeout", self.message_timeout),
            ("leaf_interval", self.leaf_interval),
            ("table_interval", self.table_interval),
            ("away_timeout", self.away_timeout),
            ("merge_interval", self.merge_interval),
            ("idle_timeout", self.idle_timeout),
        ];
        if let Some((name, _)) = durations.into_iter().find(|(_, duration)| duration.is_zero()) {
            return Err(ConfigError::Zero { name });
        }
        let limits = [
            ("ttl", usize::from(self.ttl)),
            ("connections_max", self.connections_max),
            ("accepted_max", self.accepted_max),
            ("relays_max", self.relays_max),
            ("outstanding_max", self.outstanding_max),
            ("candidates_max", self.candidates_max),
            ("probes_max", self.probes_max),
        ];
        if let Some((name, _)) = limits.into_iter().find(|(_, limit)| *limit == 0) {
            return Err(ConfigError::Zero { name });
        }
        if self.message_bytes_max < MESSAGE_BYTES_LEAST {
            return Err(ConfigError::MessageBytes { message_bytes_max: self.message_bytes_max });
        }
        Ok(())
    }

    pub(super) fn side_max(&self) -> usize {
        self.leaf_set_max / 2
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

/// An announcement of full tables must fit.
const MESSAGE_BYTES_LEAST: usize = 64 * 1024;

/// Why a configuration cannot work.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The leaf set has two sides of one size.
    #[error("route.leaf_set_max is {leaf_set_max}: it must be even and at least 2, half for each side")]
    LeafSet {
        /// As configured.
        leaf_set_max: usize,
    },
    /// The node would advertise an address that others cannot reach.
    #[error("others cannot reach route at {addr}: bind to an address of this machine (node.bind)")]
    Unreachable {
        /// As configured.
        addr: SocketAddr,
    },
    /// A setting may not be zero.
    #[error("route.{name} is zero: give it a value above zero")]
    Zero {
        /// Its name.
        name: &'static str,
    },
    /// The tables would not fit into a message.
    #[error("route.message_bytes_max is {message_bytes_max}: tables need {} bytes", MESSAGE_BYTES_LEAST)]
    MessageBytes {
        /// As configured.
        message_bytes_max: usize,
    },
}
