//! The settings, and the combinations that are invalid.

use core::time::Duration;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use super::draw::Draw;
use super::message::HostId;
use crate::time::micros;

/// The longest `renew_timeout`: a longer one would not detect the loss of the token.
const RENEW_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// The settings of one node.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The announced address: the source of datagrams and streams, and the address in the list. One node per address
    /// (JA-22, JA-51).
    pub addr: IpAddr,
    /// The port of all datagrams, the same in the whole ring.
    pub udp_port: u16,
    /// The port of our listener; 0 takes any free one, and keeps it as long as the node runs.
    pub tcp_port: u16,
    /// Where a TR1 goes: broadcast addresses, or any others.
    pub broadcast: Vec<IpAddr>,
    /// Our host id; `None` takes the stored one, or draws and stores one.
    pub host_id: Option<HostId>,
    /// How long a waiter waits for a message before it becomes an orphan. It is raised while the list is so long that a
    /// loop could take longer (JA-28b).
    pub renew_timeout: Duration,
    /// How long one attempt to pass the token may take in all.
    pub pass_timeout: Duration,
    /// The time between two TR1, and between two rounds of a leader whose token no candidate takes.
    pub tr_interval: Duration,
    /// How many TR1 a try sends.
    pub tr_count: u32,
    /// A leader drops the token with probability 1 / (N · this): about once in this many loops (J-30).
    pub loose_prob_base: f64,
    /// The shortest tenure (JA-28a). Zero is as fast as the network allows; then `loose_prob_base` must grow to match.
    pub pace: Duration,
    /// The number of nodes for which `renew_timeout` must be long enough. Longer lists raise the timeout, so this need
    /// not be the maximum.
    pub nodes_expected: usize,
    /// The ids from which a restore draws.
    pub draw: Draw,
    /// Starts a restore when another node with our id does and we have waited for half of `renew_timeout`, so that
    /// restores overlap (JA-24 iv). It deviates from the document, so it is off.
    pub restore_together: bool,
    /// Sends TR1 for [`Config::grace`] before a token is made, and ends holds after pauses of [`Config::pause_max`]
    /// (TU-41, TU-42). Without it a restore takes two tries, as in the document, and two nodes can hold at once. For
    /// comparison.
    pub is_patient: bool,
    /// When an address is named (`Command::Ask`) that is not in the list, drops the token once, to find that node and
    /// its ring. The document has no such names; without this, two rings meet at the next random drop.
    pub seek_unlisted: bool,
    /// The token holding time: the longest hold.
    pub hold_max: Duration,
    /// The longest computation of an application outside of the machine; then the token continues without it.
    pub compute_max: Duration,
    /// The most nodes that wait to be added.
    pub add_set_max: usize,
    /// The most streams that others may have open to this node.
    pub streams_max: usize,
    /// The most bytes of data, own or received.
    pub data_bytes_max: usize,
    /// The most TR1 per second that are accepted from one source.
    pub tr1_per_second_max: u32,
    /// If not empty, only messages from these networks (address, bits) are accepted.
    pub allow: Vec<(IpAddr, u8)>,
}

impl Default for Config {
    fn default() -> Self {
        Self::lan()
    }
}

impl Config {
    /// For machines on one network. The token is dropped once in 400 loops. So a ring of two has no token for 3 % of
    /// the time, and two rings of twenty find each other within minutes (JA-28b).
    #[must_use]
    pub fn lan() -> Self {
        Self {
            addr: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            udp_port: 30_041,
            tcp_port: 0,
            broadcast: Vec::new(),
            host_id: None,
            renew_timeout: Duration::from_secs(10),
            pass_timeout: Duration::from_secs(1),
            tr_interval: Duration::from_millis(200),
            tr_count: 3,
            loose_prob_base: 400.0,
            pace: Duration::from_millis(50),
            nodes_expected: 5,
            draw: Draw::Better,
            restore_together: false,
            is_patient: true,
            seek_unlisted: true,
            hold_max: Duration::from_secs(60),
            compute_max: Duration::from_secs(60),
            add_set_max: 1024,
            streams_max: 64,
            data_bytes_max: 64 << 20,
            tr1_per_second_max: 32,
            allow: Vec::new(),
        }
    }

    /// For nodes on one machine: short timers, since there is no network delay.
    #[must_use]
    pub fn local() -> Self {
        Self {
            renew_timeout: Duration::from_secs(2),
            pass_timeout: Duration::from_millis(400),
            tr_interval: Duration::from_millis(100),
            pace: Duration::from_millis(20),
            loose_prob_base: 800.0,
            ..Self::lan()
        }
    }

    /// The probability that a tenure in a list of `nodes` begins by dropping the token.
    #[must_use]
    pub fn drop_probability(&self, nodes: usize) -> f64 {
        1.0 / (nodes.max(1) as f64 * self.loose_prob_base)
    }

    /// How long a waiter waits in a list of this many nodes: the configured time, or longer if a loop needs it.
    #[must_use]
    pub fn renew_for(&self, nodes: usize) -> Duration {
        let loop_twice = self.pace.saturating_mul(u32::try_from(2 * nodes).unwrap_or(u32::MAX));
        self.renew_timeout.max(loop_twice.saturating_add(self.renew_floor()))
    }

    /// The time that two dead candidates and a whole restore may take (JA-47).
    fn renew_floor(&self) -> Duration {
        self.pass_timeout.saturating_mul(3).saturating_add(self.restore_time())
    }

    /// The duration of a granted restore.
    #[must_use]
    pub fn restore_time(&self) -> Duration {
        self.tr_interval.saturating_mul(2 * self.tr_count.min(1000))
    }

    /// How long a node of a ring sends TR1 before it makes a token (P in TU-41).
    #[must_use]
    pub fn grace(&self) -> Duration {
        self.renew_timeout / 2
    }

    /// How long the process of a holder may be paused; a longer pause ends its hold (TU-42).
    #[must_use]
    pub fn pause_max(&self) -> Duration {
        if self.is_patient { self.grace() / 2 } else { self.renew_timeout }
    }

    /// How often a leader checks whether its process was paused: the resolution of a measured pause.
    pub(super) fn pause_check_interval(&self) -> Duration {
        self.renew_timeout / 32
    }

    /// How many tries of an election fill the grace period.
    pub(super) fn grace_tries(&self) -> u32 {
        if !self.is_patient {
            return 1;
        }
        let one = micros(self.tr_interval.saturating_mul(self.tr_count)).max(1);
        u32::try_from(micros(self.grace()).div_ceil(one)).unwrap_or(u32::MAX)
    }

    /// The time in which a source regains one TR1 (JA-53).
    pub(super) fn tr1_interval(&self) -> Duration {
        Duration::from_secs(1) / self.tr1_per_second_max.max(1)
    }

    /// Whether messages from an address are accepted.
    #[must_use]
    pub fn allows(&self, ip: IpAddr) -> bool {
        self.allow.is_empty() || self.allow.iter().any(|(net, bits)| in_network(ip, *net, *bits))
    }

    pub(super) fn udp(&self) -> SocketAddr {
        SocketAddr::new(self.addr, self.udp_port)
    }

    pub(super) fn check(&self) -> Result<(), ConfigError> {
        if self.addr.is_unspecified() || self.addr.is_multicast() || is_link_local(self.addr) {
            return Err(ConfigError::Addr { addr: self.addr });
        }
        if self.udp_port == 0 {
            return Err(ConfigError::UdpPort);
        }
        if self.host_id.is_some_and(|host_id| host_id.number() == 0) {
            return Err(ConfigError::HostId);
        }
        if self.tr_interval.is_zero() || self.pass_timeout.is_zero() {
            return Err(ConfigError::ZeroInterval);
        }
        if self.tr_count == 0 || self.tr_count > 1000 {
            return Err(ConfigError::TrCount { tr_count: self.tr_count });
        }
        // NaN is not above 1 either.
        if self.loose_prob_base.partial_cmp(&1.0) != Some(core::cmp::Ordering::Greater) {
            return Err(ConfigError::Base { base: self.loose_prob_base });
        }
        if self.renew_timeout < self.renew_floor() {
            return Err(ConfigError::Renew { renew_timeout: self.renew_timeout, least: self.renew_floor() });
        }
        let whole_loop = self.pace.saturating_mul(u32::try_from(2 * self.nodes_expected).unwrap_or(u32::MAX));
        if self.renew_timeout < whole_loop {
            return Err(ConfigError::Loop {
                renew_timeout: self.renew_timeout,
                least: whole_loop,
                nodes: self.nodes_expected,
            });
        }
        if self.renew_timeout > RENEW_MAX {
            return Err(ConfigError::RenewMax { renew_timeout: self.renew_timeout });
        }
        if let Some(ip) = self.broadcast.iter().find(|ip| ip.is_unspecified() || **ip == self.addr) {
            return Err(ConfigError::Broadcast { ip: *ip });
        }
        if self.data_bytes_max == 0 || self.add_set_max == 0 || self.streams_max == 0 {
            return Err(ConfigError::ZeroLimit);
        }
        Ok(())
    }
}

/// Why a configuration cannot work.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// Other nodes could not reach this address.
    #[error(
        "token.addr is {addr}: give an address at which the others reach this node, not a wildcard, multicast or link-local one"
    )]
    Addr {
        /// As configured.
        addr: IpAddr,
    },
    /// The ring needs one known port.
    #[error("token.udp_port is 0: all nodes of a ring use one port, such as 30041")]
    UdpPort,
    /// 0 equals its negative.
    #[error("token.host_id is 0: give one from 1 to 2147483647, or none")]
    HostId,
    /// A zero timer.
    #[error("token.tr_interval or token.pass_timeout is zero: give it a duration such as \"200ms\"")]
    ZeroInterval,
    /// No try, or an endless one.
    #[error("token.tr_count is {tr_count}: give it from 1 to 1000")]
    TrCount {
        /// As configured.
        tr_count: u32,
    },
    /// The random drop would always drop the token.
    #[error("token.loose_prob_base is {base}: it must be above 1, or a lone node drops every token")]
    Base {
        /// As configured.
        base: f64,
    },
    /// Two dead candidates would make every waiter an orphan.
    #[error(
        "token.renew_timeout is {renew_timeout:?}: it must be at least {least:?}, three times token.pass_timeout and a whole restore"
    )]
    Renew {
        /// As configured.
        renew_timeout: Duration,
        /// The least value.
        least: Duration,
    },
    /// A healthy loop would take longer than a waiter waits.
    #[error(
        "token.renew_timeout is {renew_timeout:?}: a ring of {nodes} nodes needs at least {least:?}, twice a loop; raise it, or lower token.pace"
    )]
    Loop {
        /// As configured.
        renew_timeout: Duration,
        /// The least value.
        least: Duration,
        /// The number of nodes.
        nodes: usize,
    },
    /// No node would detect the loss of the token.
    #[error("token.renew_timeout is {renew_timeout:?}: give it at most 24h")]
    RenewMax {
        /// As configured.
        renew_timeout: Duration,
    },
    /// TR1 would reach no other node.
    #[error(
        "token.broadcast names {ip}: give the broadcast address of the network, or addresses of other nodes"
    )]
    Broadcast {
        /// As configured.
        ip: IpAddr,
    },
    /// A limit of zero.
    #[error("a limit of token (data_bytes_max, add_set_max, streams_max) is zero: give it at least 1")]
    ZeroLimit,
}

/// Whether an address means something only together with an interface (JA-37).
pub(super) fn is_link_local(ip: IpAddr) -> bool {
    matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local())
}

fn in_network(ip: IpAddr, net: IpAddr, bits: u8) -> bool {
    let (ip, net, width) = match (ip.to_canonical(), net.to_canonical()) {
        (IpAddr::V4(ip), IpAddr::V4(net)) => (u128::from(ip.to_bits()), u128::from(net.to_bits()), 32),
        (IpAddr::V6(ip), IpAddr::V6(net)) => (ip.to_bits(), net.to_bits(), 128),
        _ => return false,
    };
    let host_bits = width - u32::from(bits).min(width);
    (ip ^ net).checked_shr(host_bits).unwrap_or(0) == 0
}
