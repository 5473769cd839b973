//! The settings, and the combinations that are invalid.

use core::time::Duration;
use std::net::{Ipv4Addr, SocketAddr};

use super::codec::Codec;
use super::contents::{ADDRS_MAX, META_BYTES_MAX};
use super::preset::Preset;
use super::scaling::Scale;
use super::sorter::NodeSorter;
use crate::id::Id;

/// The settings of one node: its own, and those of a [`Preset`] that the whole group should share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The id of the node (S-112).
    pub id: Id,
    /// The address to receive on.
    pub bind: SocketAddr,
    /// The addresses at which others reach it, the best first; empty means `bind` (SA-56).
    pub addrs: Vec<SocketAddr>,
    /// Its first metadata, at most 512 bytes: see [`super::Tags`].
    pub meta: Vec<u8>,
    /// The name that separates this group from others in the same network.
    pub ring: String,
    /// The addresses to join through.
    pub seeds: Vec<SocketAddr>,
    /// The settings of the protocol.
    pub settings: Settings,
    /// Periods begin at multiples of the interval, the same on all nodes: for experiments that count them.
    pub aligned: bool,
    /// Whether a node that is stopped leaves first.
    pub leave_on_stop: bool,
    /// The most members, the recently dead included. Further ones are refused and counted.
    pub members_max: usize,
    /// The most past members to probe again. A new one replaces the one probed last. 0 is none.
    pub tombstones_max: usize,
    /// How long failed and left members are listed (SA-33b).
    pub keep_failed: Duration,
    /// The most members stored on disk. 0 is none.
    pub stored_max: usize,
    /// How long a change of the stored members may wait to be written.
    pub store_interval: Duration,
    /// The most queued user messages (S-91); further ones wait for room. 0 is no limit.
    pub user_max: usize,
    /// The most user broadcasts waiting for room; further ones are refused.
    pub blocked_max: usize,
    /// The most originators whose user messages are checked for duplicates.
    pub origins_max: usize,
    /// The most user messages delivered to the application in one period. Further ones are dropped and counted (SA-25).
    pub user_events_max: u32,
    /// The most pings under way as a proxy.
    pub relays_max: usize,
    /// The most addresses being joined at a time.
    pub joins_max: usize,
    /// The most table transfers to joiners at a time.
    pub transfers_max: usize,
    /// The most commands waiting for their reply.
    pub waiting_max: usize,
}

/// The settings of the protocol. A [`Preset`] has a value for each; `docs/spec/swim.md` has the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Time between protocol periods (S-119).
    pub probe_interval: Duration,
    /// Time for a direct Ack before proxies are asked (S-120).
    pub probe_timeout: Duration,
    /// The number of proxies (S-118).
    pub indirect_probes: usize,
    /// Each update is sent this many times, times the digits of N (S-116).
    pub retransmit_mult: u32,
    /// A suspicion lasts this many intervals, times the digits of N (S-117).
    pub suspicion_mult: u32,
    /// How the suspicion timeout grows with N.
    pub suspicion_scale: Scale,
    /// The number of regional buckets (S-121).
    pub region_count: usize,
    /// The number of regional nodes probed per period (S-122).
    pub region_probes: usize,
    /// The number of nodes in the neighbourhood (S-123).
    pub neighbor_count: usize,
    /// The number of neighbours probed per period (S-124).
    pub neighbor_probes: usize,
    /// The distance between nodes (S-113).
    pub sorter: NodeSorter,
    /// The form of the messages that the node sends (S-114). All nodes of a group should have the same.
    pub codec: Codec,
    /// The largest packet.
    pub packet_bytes_max: usize,
    /// Claims are verified. A node must answer a nonce before claims about it are accepted, and a last probe precedes
    /// every death (SA-7c, SA-31a, SA-58a, SA-61).
    pub verify: bool,
    /// A tick that comes more than an interval late suspects no member (SA-32).
    pub late_tick_guard: bool,
    /// The other addresses of a node are tried when the first does not answer (SA-59a).
    pub all_addrs: bool,
    /// Every member answers a Join, not only the one it was sent to (SA-9a).
    pub everyone_answers: bool,
    /// A ping to a suspect carries its suspicion (SA-20; Lifeguard's buddy system).
    pub buddy: bool,
    /// The highest local health score, 0 is off (Lifeguard).
    pub health_max: u32,
    /// A suspicion timeout begins this many times longer and shrinks with confirmations; 1 is off (Lifeguard).
    pub suspicion_max_mult: u32,
    /// The time for a direct Ack follows the measured round-trip time.
    pub adaptive_timeout: bool,
    /// The share of a packet reserved for user messages, in percent; `None` is one queue for all.
    pub user_share: Option<u8>,
    /// The interval at which updates also go out between pings; zero is off (S-R9).
    pub gossip_interval: Duration,
    /// The number of members that get updates at each such interval.
    pub gossip_nodes: usize,
    /// The interval at which past members are probed; zero is off.
    pub retry_interval: Duration,
    /// The interval of anti-entropy (push-pull) with a random member; zero is off.
    pub sync_interval: Duration,
    /// The interval at which a ping requests a coordinate; zero is off.
    pub coordinate_interval: Duration,
    /// The least time for which dead members are remembered (SA-33).
    pub dead_retention: Duration,
}

impl Config {
    /// A node with this id and the settings of a preset.
    #[must_use]
    pub fn new(id: Id, preset: Preset) -> Self {
        let lasting = preset.remembers();
        Self {
            id,
            bind: SocketAddr::from((Ipv4Addr::LOCALHOST, 7946)),
            addrs: Vec::new(),
            meta: Vec::new(),
            ring: "annulus".into(),
            seeds: Vec::new(),
            settings: preset.settings(),
            aligned: false,
            leave_on_stop: true,
            members_max: 65_536,
            tombstones_max: if lasting { 1024 } else { 0 },
            keep_failed: Duration::from_secs(24 * 3600),
            stored_max: if lasting { 1024 } else { 0 },
            store_interval: Duration::from_secs(5),
            user_max: 256,
            blocked_max: 64,
            origins_max: 1024,
            user_events_max: 4096,
            relays_max: 256,
            joins_max: 64,
            transfers_max: 16,
            waiting_max: 1024,
        }
    }

    /// The addresses at which others reach it.
    pub(super) fn advertised(&self) -> Vec<SocketAddr> {
        if self.addrs.is_empty() { vec![self.bind] } else { self.addrs.clone() }
    }

    pub(super) fn check(&self) -> Result<(), ConfigError> {
        if self.id == Id::MIN {
            return Err(ConfigError::ZeroId);
        }
        let addrs = self.advertised();
        if addrs.len() > ADDRS_MAX {
            return Err(ConfigError::Addrs(addrs.len()));
        }
        if let Some(addr) = addrs.iter().find(|addr| addr.ip().is_unspecified()) {
            return Err(ConfigError::Unreachable(*addr));
        }
        if self.meta.len() > META_BYTES_MAX {
            return Err(ConfigError::Meta(self.meta.len()));
        }
        self.settings.check()
    }
}

impl Settings {
    /// How long before its end a suspicion starts its last probe.
    pub(super) const fn last_probe(&self) -> Duration {
        if self.verify { self.probe_interval } else { Duration::ZERO }
    }

    /// Checks that these settings can work.
    ///
    /// # Errors
    /// The first setting that cannot work.
    pub fn check(&self) -> Result<(), ConfigError> {
        if self.probe_interval < INTERVAL_MIN {
            return Err(ConfigError::Interval(self.probe_interval));
        }
        if self.probe_timeout.is_zero() || self.probe_timeout >= self.probe_interval {
            let (timeout, interval) = (self.probe_timeout, self.probe_interval);
            return Err(ConfigError::Timeout { timeout, interval });
        }
        if self.retransmit_mult == 0 || self.suspicion_mult == 0 || self.suspicion_max_mult == 0 {
            return Err(ConfigError::ZeroMult);
        }
        if self.region_count == 0 {
            return Err(ConfigError::NoRegions);
        }
        if self.region_probes + self.neighbor_probes == 0 {
            return Err(ConfigError::NoProbes);
        }
        if self.neighbor_probes > self.neighbor_count {
            let (probes, count) = (self.neighbor_probes, self.neighbor_count);
            return Err(ConfigError::Neighbors { probes, count });
        }
        if !(PACKET_BYTES_MIN..=PACKET_BYTES_MAX).contains(&self.packet_bytes_max) {
            return Err(ConfigError::Packet(self.packet_bytes_max));
        }
        if self.user_share.is_some_and(|percent| percent > 90) {
            return Err(ConfigError::Share);
        }
        Ok(())
    }
}

/// The shortest period: a shorter one would take all of a node's time.
pub const INTERVAL_MIN: Duration = Duration::from_millis(1);
/// The smallest packet: it holds its head and one Alive with the most addresses and the most metadata.
pub const PACKET_BYTES_MIN: usize = 768;
/// The largest packet: one UDP datagram.
pub const PACKET_BYTES_MAX: usize = 32_767;

/// Why a configuration cannot work.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The id 0, which in a ping means any node.
    #[error("the id is zero, which stands for nobody: make an id from a UUID")]
    ZeroId,
    /// Too many addresses.
    #[error("{0} addresses are over the limit of {ADDRS_MAX}: name the best ones")]
    Addrs(usize),
    /// An address that no node can send to.
    #[error("{0} is not an address that others can reach: give one that is in `addrs`, or bind to one")]
    Unreachable(SocketAddr),
    /// Too much metadata.
    #[error("{0} bytes of metadata are over the limit of {META_BYTES_MAX}: use fewer or shorter tags")]
    Meta(usize),
    /// The interval is too short.
    #[error("the probe interval is {0:?}: it must be at least {INTERVAL_MIN:?}, such as 1s")]
    Interval(Duration),
    /// The probe timeout leaves no time for indirect probes (SA-34).
    #[error(
        "the probe timeout is {timeout:?}: it must be above zero and below the probe interval ({interval:?})"
    )]
    Timeout {
        /// As configured.
        timeout: Duration,
        /// As configured.
        interval: Duration,
    },
    /// A multiplier of zero.
    #[error("a multiplier is zero: each must be at least 1")]
    ZeroMult,
    /// No region.
    #[error("region_count is 0: members have to be in some region, so give at least 1")]
    NoRegions,
    /// No member would ever be probed.
    #[error("nobody would be probed: region_probes or neighbor_probes must be at least 1")]
    NoProbes,
    /// More neighbours would be probed than the neighbourhood has.
    #[error(
        "neighbor_probes is {probes}, but the neighbourhood has {count} nodes: raise neighbor_count or probe fewer"
    )]
    Neighbors {
        /// As configured.
        probes: usize,
        /// As configured.
        count: usize,
    },
    /// A packet too small for a message, or too large for a datagram.
    #[error("the largest packet is {0} bytes: it must be between {PACKET_BYTES_MIN} and {PACKET_BYTES_MAX}")]
    Packet(usize),
    /// Updates about members would starve.
    #[error("the user share is over 90 percent: leave the membership its share")]
    Share,
}
