//! What can be set, and what cannot be set together.

use core::time::Duration;
use std::net::{Ipv4Addr, SocketAddr};

use super::message::AppName;
use crate::id::{Base, Id};

/// The port of the service.
pub const PORT: u16 = 22001;

/// The settings of one node. Every `_max` says in its line what happens at it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The own place on the ring.
    pub id: Id,
    /// Where to listen, for streams and for datagrams.
    pub bind: SocketAddr,
    /// Where others reach us, if that is not where we listen.
    pub advertise: Option<SocketAddr>,
    /// The name of the ring (PA-44). Nodes of another name are refused.
    pub ring: String,
    /// Nodes to join through. None makes this node the first of a ring (PA-20); one that lists its own address founds
    /// the ring if none of the others lets it in.
    pub seeds: Vec<SocketAddr>,
    /// Bits of a digit, the parameter `b` (N-2).
    pub base: Base,
    /// |L|: nodes of the leaf set, both sides together. More are not kept: the nearest stay.
    pub leaf_set_max: usize,
    /// |M|: nodes of the neighbourhood set. More are not kept: the nearest stay.
    pub neighbourhood_max: usize,
    /// The applications that run here from the start. A message for another one fails.
    pub applications: Vec<AppName>,
    /// Who says which nodes live.
    pub liveness: Liveness,
    /// Whether a node without seeds waits until `members` names a node to join through, instead of being the first of
    /// its ring. If none of those named lets it in, the one with the least id bootstraps the ring.
    pub await_members: bool,

    /// How long a request may take. Twice that bounds the wait for stragglers of a join (P-35, PA-17).
    pub network_timeout: Duration,
    /// The shortest acknowledgement timeout, whatever the measured round-trip times say (PD-3).
    pub ack_timeout_min: Duration,
    /// How long the origin of a message waits for its end, all attempts together, unless the command says otherwise.
    pub message_timeout: Duration,
    /// How many hops a message may take (PA-36).
    pub ttl: u8,
    /// How many other next nodes are tried when one certainly did not get the message (PA-35); then the attempt fails.
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

    /// The longest message, frames and all. A longer one is refused. Of large ones that are coming eight times that is
    /// kept at most: whose message has more than half of what the others leave is refused.
    pub message_bytes_max: usize,
    /// The most bytes that wait on one connection, and half of what waits on all at most; one connection may have half of
    /// what the others leave. More make the message go another way.
    pub queue_bytes_max: usize,
    /// The most connections we open. For one more the longest idle is ended.
    pub connections_max: usize,
    /// The most connections others open to us, a quarter of them from one address. One more is reset.
    pub accepted_max: usize,
    /// The most proximities kept. For one more the oldest is forgotten (PA-31).
    pub proximities_max: usize,
    /// The most messages passed on that wait for their acknowledgement, and as many that are held. One more is not
    /// taken: the sender tries another way.
    pub relays_max: usize,
    /// The most messages of our own that wait for their end. One more is refused.
    pub outstanding_max: usize,
    /// The most messages that the own applications have not settled. For one more the owner answers `Busy`.
    pub open_max: usize,
    /// The most bytes of such messages. Beyond that the owner answers `Busy`.
    pub open_bytes_max: usize,
    /// The most numbers of accepted messages remembered against duplicates. For one more the oldest is forgotten.
    pub window_max: usize,
    /// The most nodes heard of that wait to be measured, and as many of our own that wait to be asked. One more is not;
    /// of our own, those that are suspected stay.
    pub candidates_max: usize,
    /// The most probes under way to nodes heard of, and as many to our own. More wait.
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
    /// A connection that stands is kept until the kernel gives it up, however long the peer is silent.
    KeepConnections,
    /// A message is reported as delivered in the call that gives it to the application.
    ReportBeforeSettled,
}

/// Who says which nodes live (PA-13).
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
pub enum ConfigError {
    /// The leaf set has two sides of one size.
    #[error("route.leaf_set_max is {leaf_set_max}: it must be even and at least 2, half for each side")]
    LeafSet {
        /// As configured.
        leaf_set_max: usize,
    },
    /// The node would tell others an address that is none.
    #[error("others cannot reach route at {addr}: bind to an address of this machine (node.bind)")]
    Unreachable {
        /// As configured.
        addr: SocketAddr,
    },
    /// Something may not be zero.
    #[error("route.{name} is zero: give it a value above zero")]
    Zero {
        /// What.
        name: &'static str,
    },
    /// The tables would not fit into a message.
    #[error("route.message_bytes_max is {message_bytes_max}: tables need {} bytes", MESSAGE_BYTES_LEAST)]
    MessageBytes {
        /// As configured.
        message_bytes_max: usize,
    },
}
