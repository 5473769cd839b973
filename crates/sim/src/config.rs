//! The settings of the simulated world: network, streams, disks and hosts.
//!
//! The defaults are a quiet local network. Everything may be changed while a simulation runs.

use core::time::Duration;
use std::ops::RangeInclusive;

use annulus_core::KeepAlive;

use crate::fault::Block;
use crate::latency::Latency;

/// The world a simulation starts with.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Config {
    /// Between the hosts.
    pub network: NetworkConfig,
    /// The streams of their kernels.
    pub stream: StreamConfig,
    /// Their disks.
    pub disk: DiskConfig,
    /// The hosts themselves.
    pub host: HostConfig,
}

/// How datagrams and segments travel.
#[derive(Clone, Debug, PartialEq)]
pub struct NetworkConfig {
    /// The latency of a path.
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
    /// Probability that a datagram strays: it arrives, but up to `stray_by` later.
    pub stray: f64,
    /// See `stray`.
    pub stray_by: Duration,
    /// A connection that was silent for longer is forgotten by a middlebox (NAT, firewall) between the hosts.
    pub flow_idle_max: Option<Duration>,
    /// The fate of its later segments: they vanish, or a reset answers them.
    pub flow_end: Block,
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
            stray: 0.0,
            stray_by: Duration::from_secs(60),
            flow_idle_max: None,
            flow_end: Block::Drop,
            mtu_bytes: 65_507,
            bandwidth: None,
            backlog_max: Duration::from_millis(500),
        }
    }
}

/// How the simulated kernels treat streams. The default is [`StreamConfig::linux`].
#[derive(Clone, Debug, PartialEq)]
pub struct StreamConfig {
    /// The bytes that a kernel takes from a writer before the peer has acknowledged any.
    pub send_buffer_bytes: usize,
    /// The buffer grows to twice the bytes that the peer has confirmed, up to this.
    pub send_buffer_max_bytes: usize,
    /// The bytes that a kernel buffers for a reader without credit: the window that it advertises.
    pub receive_buffer_bytes: usize,
    /// The bytes that the driver buffers beyond the kernel; one byte more is an overrun.
    pub unsent_max_bytes: usize,
    /// The most that one segment carries.
    pub segment_bytes: usize,
    /// Probability that a piece of data is cut at a random place, on the wire and at the delivery to the machine.
    pub odd_chunks: f64,
    /// The timeout of a connect.
    pub connect_timeout: Duration,
    /// So many waits for an answer to a SYN are as long as the first, 1 s; later ones double …
    pub syn_linear: u32,
    /// … up to this.
    pub syn_wait_max: Duration,
    /// The time of retransmissions after which a stream times out.
    pub give_up_after: Duration,
    /// The shortest wait before bytes are sent again; it doubles each time …
    pub retransmit_min: Duration,
    /// … up to this.
    pub rto_max: Duration,
    /// How idle streams are probed; `None` is not at all.
    pub keepalive: Option<KeepAlive>,
    /// How long a kernel waits for the FIN of a peer when its own process has gone.
    pub orphan_timeout: Duration,
    /// Whether drivers see acknowledgements: [`annulus_core::Bound::confirms`].
    pub confirms: bool,
}

impl StreamConfig {
    /// Linux's defaults, and those of our driver (FA-1, FA-2). A buffer grows to 4 MiB. A segment is tried 15 times in 924 s
    /// with waits of up to 120 s, and a SYN for 131 s.
    #[must_use]
    pub fn linux() -> Self {
        Self {
            send_buffer_bytes: 64 * 1024,
            send_buffer_max_bytes: 4 * 1024 * 1024,
            receive_buffer_bytes: 64 * 1024,
            unsent_max_bytes: 1024 * 1024,
            segment_bytes: 1448,
            odd_chunks: 0.0,
            connect_timeout: Duration::from_secs(131),
            syn_linear: 4,
            syn_wait_max: Duration::from_secs(64),
            give_up_after: Duration::from_millis(924_600),
            retransmit_min: Duration::from_millis(200),
            rto_max: Duration::from_secs(120),
            keepalive: Some(KeepAlive::default()),
            orphan_timeout: Duration::from_secs(60),
            confirms: true,
        }
    }

    /// As on Linux 6.15 and later, where our driver bounds the waits with TCP_RTO_MAX_MS. The kernel still tries 15
    /// times, which now takes 14.4 s.
    #[must_use]
    pub fn linux_rto_max() -> Self {
        Self {
            rto_max: Duration::from_secs(1),
            give_up_after: Duration::from_millis(14_400),
            ..Self::linux()
        }
    }

    /// A kernel with a short timeout, without keep-alive and with a buffer of fixed size: for tests of other things.
    #[must_use]
    pub fn quick() -> Self {
        Self {
            send_buffer_max_bytes: 0,
            connect_timeout: Duration::from_secs(10),
            syn_linear: 0,
            syn_wait_max: Duration::from_micros(3_333_333),
            give_up_after: Duration::from_secs(30),
            rto_max: Duration::from_secs(10),
            keepalive: None,
            orphan_timeout: Duration::MAX,
            ..Self::linux()
        }
    }
}

impl Default for StreamConfig {
    fn default() -> Self {
        Self::linux()
    }
}

/// How disks behave. A duration is drawn uniformly from its range for each operation.
#[derive(Clone, Debug, PartialEq)]
pub struct DiskConfig {
    /// The time of a read.
    pub read: RangeInclusive<Duration>,
    /// The time of a write that need not be durable.
    pub write: RangeInclusive<Duration>,
    /// The time of a durable write.
    pub sync: RangeInclusive<Duration>,
    /// Operations that wait at most; one more fails as busy.
    pub ops_max: u32,
    /// Bytes of keys and values that fit; `None` is no limit.
    pub bytes_max: Option<u64>,
    /// Probability that a write fails and leaves nothing.
    pub failure: f64,
    /// Probability that a durable write takes up to 30 s.
    pub sync_tail: f64,
    /// The number of durable batches that a disk remembers, so that [`crate::DiskFate::Lied`] and `Rollback` can undo them.
    pub history: usize,
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
            sync_tail: 0.0,
            history: 0,
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
    /// Connections that wait for a process to accept them; a SYN above that is dropped, as a kernel does.
    pub backlog: usize,
    /// The longest time of a stop before the process is killed.
    pub stop_timeout: Duration,
}

impl Default for HostConfig {
    fn default() -> Self {
        Self {
            clock_start_max: Duration::from_secs(1_000_000),
            wake_late_max: Duration::ZERO,
            waiting_max: 256,
            backlog: 1024,
            stop_timeout: Duration::from_secs(10),
        }
    }
}
