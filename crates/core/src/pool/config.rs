//! The limits of a pool.

use core::time::Duration;

/// The settings of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The most connections we open and keep.
    pub connections_max: usize,
    /// The most connections that may be accepted from one address.
    pub accepted_per_address_max: usize,
    /// The most bytes that may wait on one connection.
    pub queue_bytes_max: usize,
    /// The most bytes that may wait on all connections. One connection may have half of what the others leave: so there
    /// is always room for one more, whoever does not read.
    pub queues_bytes_max: usize,
    /// The longest message.
    pub message_bytes_max: usize,
    /// The most bytes of large messages whose end has not come yet, shared out in the same way.
    pub unfinished_bytes_max: usize,
    /// How long a connection may take until its greeting and to its end, and how long a message that nobody answers outlives failed
    /// connects.
    pub connect_timeout: Duration,
    /// How long an unused connection is kept.
    pub idle_timeout: Duration,
    /// A fault to build in: a connection that stands is kept until the kernel gives it up.
    #[doc(hidden)]
    pub keeps_connections: bool,
}
