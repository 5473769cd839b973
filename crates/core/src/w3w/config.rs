//! The settings, and the combinations that are invalid.

use core::time::Duration;
use std::net::{Ipv4Addr, SocketAddrV4};

use super::known_nodes::KnownNode;
use super::wire::{DATA_BYTES_MAX, HEADER_BYTES};

/// The settings of one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The identity of the node: its NID is the hash of this (M-31). Kept across restarts (MA-12).
    pub uuid: [u8; 16],
    /// The address to receive on, both datagrams and streams; the whole network has the same port (MA-19).
    pub bind: SocketAddrV4,
    /// The address to announce, if it is not that of `bind` (M-32, MA-26).
    pub ip: Option<Ipv4Addr>,
    /// The announced port.
    pub announce: Announce,
    /// Addresses to announce to beside the known nodes (MA-57).
    pub seeds: Vec<Ipv4Addr>,
    /// The known nodes of a file; those in the store are added (M-29).
    pub known: Vec<KnownNode>,
    /// The most peers in the ring, at least 4 (MA-34).
    pub peers_max: usize,
    /// With fewer peers the node continues to announce itself (MA-21).
    pub peers_min: usize,
    /// The peers to which a relay forwards a message (MA-60).
    pub forward: Forward,
    /// How long a message waits unless its sender sets a lifetime, and how long plain ones are remembered as seen
    /// (MA-40b).
    pub expiry: Duration,
    /// The most bytes of DATA in the store.
    pub quota_bytes: u64,
    /// The most blocks in the store.
    pub blocks_max: usize,
    /// How long an unreferenced block stays.
    pub keep: Duration,
    /// The longest DATA (MA-28).
    pub data_bytes_max: usize,
    /// The most queued messages.
    pub queue_max: usize,
    /// The most bytes of queued messages, in the store.
    pub queue_bytes_max: usize,
    /// The most bytes of messages in memory. Beyond it they are read from the store again, and peers get no credit.
    pub memory_bytes_max: usize,
    /// The most bytes written to one connection and not taken by the kernel.
    pub unsent_bytes_max: usize,
    /// The most plain messages for this node that are remembered as seen (CU-22). Beyond it no more are accepted until
    /// some expire.
    pub seen_max: usize,
    /// The most lines of inbox and outbox each. A line that is open or unread is never evicted.
    pub boxes_max: usize,
    /// The most known nodes (MA-56).
    pub known_max: usize,
    /// The most dials under way.
    pub dials_max: usize,
    /// The most connections that others may have open to this node.
    pub streams_max: usize,
    /// Networks of the nodes that this one connects to, with the length of their prefixes; all if empty.
    pub allow: Vec<(Ipv4Addr, u8)>,
    /// Whether a refused caller gets a HERE about our peer nearest to it (MA-33).
    pub hint: bool,
    /// A fault to build in, so that the tests can show that they would notice it.
    #[cfg(any(test, feature = "flaws"))]
    #[doc(hidden)]
    pub fault: Option<Fault>,
}

/// The announced port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Announce {
    /// The one listening port, always (MA-16).
    Fixed,
    /// M-34 taken literally: the first known node gets the next port, the second the one after it. The node listens on
    /// this many ports; the count starts again after the last.
    Incrementing {
        /// The number of ports.
        ports: u16,
    },
}

/// The peers to which a relay forwards a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forward {
    /// To the nearer of the recipient's two neighbours.
    Nearest,
    /// To both, as in the document (M-49).
    Both,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            uuid: [0; 16],
            bind: SocketAddrV4::new(Ipv4Addr::LOCALHOST, 22_000),
            ip: None,
            announce: Announce::Fixed,
            seeds: Vec::new(),
            known: Vec::new(),
            peers_max: 32,
            peers_min: 4,
            forward: Forward::Nearest,
            expiry: Duration::from_secs(7 * 86_400),
            quota_bytes: 4 << 30,
            blocks_max: 1 << 18,
            keep: Duration::from_secs(7 * 86_400),
            data_bytes_max: DATA_BYTES_MAX,
            queue_max: 16_384,
            queue_bytes_max: 1 << 30,
            memory_bytes_max: 32 << 20,
            unsent_bytes_max: 512 << 10,
            seen_max: 1_000_000,
            boxes_max: 65_536,
            known_max: 1024,
            dials_max: 16,
            streams_max: 256,
            allow: Vec::new(),
            hint: true,
            #[cfg(any(test, feature = "flaws"))]
            fault: None,
        }
    }
}

impl Config {
    /// The address to announce.
    #[must_use]
    pub fn own_ip(&self) -> Ipv4Addr {
        self.ip.unwrap_or(*self.bind.ip())
    }

    /// How long a message for this node is remembered as seen. Repeated receipts and messages of files do no harm.
    pub(super) fn seen_for(&self, is_user_message: bool) -> Duration {
        if is_user_message { self.expiry } else { self.expiry.min(Duration::from_secs(3600)) }
    }

    /// Whether this node connects to a node at this address.
    pub(super) fn allows(&self, ip: Ipv4Addr) -> bool {
        let is_in = |(net, bits): &(Ipv4Addr, u8)| {
            let host_bits = 32 - u32::from(*bits).min(32);
            (ip.to_bits() ^ net.to_bits()).checked_shr(host_bits).unwrap_or(0) == 0
        };
        self.allow.is_empty() || self.allow.iter().any(is_in)
    }

    /// How long a plain message of others waits here (MA-40a, CU-17). It is a little less than foreign nodes remember
    /// it as seen: this copy may have arrived some time after another reached its recipient.
    pub(super) fn transit_expiry(&self) -> Duration {
        let expiry = self.expiry.min(Duration::from_secs(3600));
        expiry - expiry / 60
    }

    pub(super) fn forgets_seen(&self) -> bool {
        self.has(Fault::ForgetSeen)
    }

    pub(super) fn replies_before_durable(&self) -> bool {
        self.has(Fault::ReplyBeforeDurable)
    }

    pub(super) fn introduces_nobody(&self) -> bool {
        self.has(Fault::NoIntroductions)
    }

    pub(super) fn drops_neighbours(&self) -> bool {
        self.has(Fault::DropNeighbours)
    }

    pub(super) fn forgets_numbers(&self) -> bool {
        self.has(Fault::ForgetNumbers)
    }

    pub(super) fn trusts_kernel(&self) -> bool {
        self.has(Fault::TrustKernel)
    }

    pub(super) fn drops_when_held(&self) -> bool {
        self.has(Fault::DropWhenHeld)
    }

    pub(super) fn confirms_before_durable(&self) -> bool {
        self.has(Fault::ConfirmBeforeDurable)
    }

    pub(super) fn is_foreign(&self) -> bool {
        self.has(Fault::Foreign)
    }

    pub(super) fn answers_from_memory(&self) -> bool {
        self.has(Fault::HeldFromMemory)
    }

    pub(super) fn body_bytes_max(&self) -> usize {
        HEADER_BYTES + self.data_bytes_max
    }

    pub(super) fn check(&self) -> Result<(), ConfigError> {
        let ip = self.own_ip();
        if ip.is_unspecified() || ip.is_multicast() || ip.is_broadcast() {
            return Err(ConfigError::Ip { ip });
        }
        if self.peers_max < 4 {
            return Err(ConfigError::Max { peers_max: self.peers_max });
        }
        if self.peers_min > self.peers_max {
            return Err(ConfigError::Min { peers_min: self.peers_min, peers_max: self.peers_max });
        }
        if self.expiry.is_zero() {
            return Err(ConfigError::Expiry);
        }
        if let Announce::Incrementing { ports } = self.announce
            && (ports == 0 || self.bind.port() == 0 || self.bind.port().checked_add(ports).is_none())
        {
            return Err(ConfigError::Ports { ports, port: self.bind.port() });
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// Other nodes could not reach this address.
    #[error("{ip} is no address that others can dial: set node.bind to one of this machine")]
    Ip {
        /// As configured.
        ip: Ipv4Addr,
    },
    /// Too few peers for a ring.
    #[error("mesh.max is {peers_max}: a ring needs at least 4 peers")]
    Max {
        /// As configured.
        peers_max: usize,
    },
    /// The node would announce itself for ever.
    #[error("mesh.min is {peers_min}: it must be at most mesh.max ({peers_max})")]
    Min {
        /// As configured.
        peers_min: usize,
        /// As configured.
        peers_max: usize,
    },
    /// No message would wait.
    #[error("mesh.expiry is zero: give it a duration such as \"1h\"")]
    Expiry,
    /// There are not that many ports.
    #[error("mesh.announce asks for {ports} ports above {port}: choose a fixed port with room above it")]
    Ports {
        /// As configured.
        ports: u16,
        /// As configured.
        port: u16,
    },
}

/// A fault that can be built in on purpose.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Nothing is remembered as seen.
    ForgetSeen,
    /// A sender or a peer gets its reply before the message is on disk.
    ReplyBeforeDurable,
    /// No peer is introduced to another.
    NoIntroductions,
    /// OPTIMIZE drops the own neighbours too.
    DropNeighbours,
    /// A node answers `held` for a message that it once had (CU-12).
    HeldFromMemory,
    /// A recipient does not remember the numbers of letters.
    ForgetNumbers,
    /// A node drops a message when its own kernel has taken it.
    TrustKernel,
    /// The sender of a letter drops it when a peer holds it.
    DropWhenHeld,
    /// A recipient confirms a letter before its disk has it.
    ConfirmBeforeDurable,
    /// No fault but a foreign node: it speaks the document, and neither custody nor letters.
    Foreign,
}
