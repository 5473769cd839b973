//! The limits of a pool.

use core::time::Duration;

/// The settings of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The most connections that this node opens and keeps.
    pub connections_max: usize,
    /// The most connections that may be accepted from one address.
    pub accepted_per_address_max: usize,
    /// The most bytes queued on one connection.
    pub queue_bytes_max: usize,
    /// The most bytes queued on all connections. One connection may use half of what the others leave. So there is
    /// always room for one more, even if some peers do not read.
    pub queues_bytes_max: usize,
    /// The longest message.
    pub message_bytes_max: usize,
    /// The most bytes of incomplete large messages, shared out in the same way.
    pub unfinished_bytes_max: usize,
    /// How long a connection may take until its greeting and for its close, and how long a message without expected
    /// answer is kept through failed connects.
    pub connect_timeout: Duration,
    /// How long an unused connection is kept.
    pub idle_timeout: Duration,
    /// A fault to build in: an established connection is kept until the kernel closes it.
    #[doc(hidden)]
    pub keeps_connections: bool,
}
