//! What the simulated world is like: the settings of network, streams, disks and hosts.
//!
//! The defaults are a quiet local network. Everything may be changed while a simulation runs.

use core::time::Duration;
use std::ops::RangeInclusive;

use crate::latency::Latency;

/// The world a simulation starts with.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Config {
    /// Between the hosts.
    pub network: NetworkConfig,
    /// What their kernels do with streams.
    pub stream: StreamConfig,
    /// Their disks.
    pub disk: DiskConfig,
    /// The hosts themselves.
    pub host: HostConfig,
}

/// How datagrams and segments travel.
#[derive(Clone, Debug, PartialEq)]
pub struct NetworkConfig {
    /// How long the way is.
    pub latency: Latency,
    /// Up to this much more, uniformly, for each datagram.
    pub jitter: Duration,
    /// Probability that a datagram or a segment is lost.
    pub loss: f64,
    /// Probability that a datagram arrives twice.
    pub duplicate: f64,
    /// Probability that a datagram is held up so that others overtake it.
    pub reorder: f64,
    /// For how long at most it is held up.
    pub reorder_by: Duration,
    /// The largest datagram that passes; larger ones are dropped and counted.
    pub mtu_bytes: usize,
    /// Bytes a second that a host can send; `None` is no limit.
    pub bandwidth: Option<u64>,
    /// How much may wait for the line, as time; more is dropped as a full queue drops it.
    pub backlog_max: Duration,
}

impl Default for NetworkConfig {
    fn default() -> Self {
        Self {
            latency: Latency::Constant(Duration::from_millis(1)),
            jitter: Duration::ZERO,
            loss: 0.0,
            duplicate: 0.0,
            reorder: 0.0,
            reorder_by: Duration::from_millis(50),
            mtu_bytes: 65_507,
            bandwidth: None,
            backlog_max: Duration::from_millis(500),
        }
    }
}

/// How the simulated kernels treat streams.
#[derive(Clone, Debug, PartialEq)]
pub struct StreamConfig {
    /// What a kernel takes from a writer before the peer has confirmed it.
    pub send_buffer_bytes: usize,
    /// What a kernel keeps for a reader that gives no credit; it is the window told to the peer.
    pub receive_buffer_bytes: usize,
    /// What the driver keeps beyond the kernel's buffer; one byte more is an overrun.
    pub unsent_max_bytes: usize,
    /// The most that one segment carries.
    pub segment_bytes: usize,
    /// Probability that a piece of data is cut at a random place, on the wire and when it is handed over.
    pub odd_chunks: f64,
    /// How long a connection is tried.
    pub connect_timeout: Duration,
    /// How long unconfirmed bytes are sent again before the peer is given up.
    pub give_up_after: Duration,
    /// The shortest wait before bytes are sent again; it doubles each time.
    pub retransmit_min: Duration,
}

impl Default for StreamConfig {
    fn default() -> Self {
        Self {
            send_buffer_bytes: 64 * 1024,
            receive_buffer_bytes: 64 * 1024,
            unsent_max_bytes: 1024 * 1024,
            segment_bytes: 1448,
            odd_chunks: 0.0,
            connect_timeout: Duration::from_secs(10),
            give_up_after: Duration::from_secs(30),
            retransmit_min: Duration::from_millis(200),
        }
    }
}

/// How disks behave. A duration is drawn uniformly from its range for each operation.
#[derive(Clone, Debug, PartialEq)]
pub struct DiskConfig {
    /// How long a read takes.
    pub read: RangeInclusive<Duration>,
    /// How long a write takes that need not be durable.
    pub write: RangeInclusive<Duration>,
    /// How long a durable write takes.
    pub sync: RangeInclusive<Duration>,
    /// Operations that wait at most; one more fails as busy.
    pub ops_max: u32,
    /// Bytes of keys and values that fit; `None` is no limit.
    pub bytes_max: Option<u64>,
    /// Probability that a write fails and leaves nothing.
    pub failure: f64,
}

impl Default for DiskConfig {
    fn default() -> Self {
        let micros = Duration::from_micros;
        Self {
            read: micros(50)..=micros(200),
            write: micros(10)..=micros(50),
            sync: micros(1_000)..=micros(8_000),
            ops_max: 1024,
            bytes_max: None,
            failure: 0.0,
        }
    }
}

/// How hosts behave.
#[derive(Clone, Debug, PartialEq)]
pub struct HostConfig {
    /// A monotonic clock starts somewhere below this: no machine may think that it starts at zero, or that two
    /// hosts agree.
    pub clock_start_max: Duration,
    /// A machine is woken up to this much later than it asked, uniformly.
    pub wake_late_max: Duration,
    /// Datagrams that wait for a host that is suspended, busy or loading; more are dropped and counted.
    pub waiting_max: usize,
    /// How long a machine may take to stop in good order before its process is ended.
    pub stop_patience: Duration,
}

impl Default for HostConfig {
    fn default() -> Self {
        Self {
            clock_start_max: Duration::from_secs(1_000_000),
            wake_late_max: Duration::ZERO,
            waiting_max: 256,
            stop_patience: Duration::from_secs(10),
        }
    }
}
