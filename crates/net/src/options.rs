//! The limits of a driver.

use std::time::Duration;

use annulus_core::KeepAlive;

use crate::gate::Gate;
use crate::store::Store;

/// The limits of a driver. Every queue has a limit, and a counter of dropped items.
#[derive(Clone, Debug)]
pub struct Options {
    /// The place of the store.
    pub store: Store,
    /// The grace period of a stop.
    pub grace: Duration,
    /// The most commands that wait; the caller of a further one waits too.
    pub commands_max: usize,
    /// The most commands without a reply; the driver takes no further one until one of them has its reply.
    pub requests_max: usize,
    /// The most unread events of one subscriber; it misses further ones.
    pub events_max: usize,
    /// Datagrams of one socket that wait for the system to take them; more are shed.
    pub datagrams_max: usize,
    /// Bytes written to one stream that the system has not taken; at more the stream is reset as `Overrun`.
    pub stream_bytes_max: usize,
    /// Store operations that may wait for their answer; more are answered `Busy`.
    pub store_ops_max: usize,
    /// Bytes of writes that may wait for the store; with more waiting, operations are answered `Busy`.
    pub store_bytes_max: usize,
    /// When an idle stream is probed for whether its peer still lives.
    pub keepalive: KeepAlive,
    /// The longest wait between two retransmissions on a stream, by TCP_RTO_MAX_MS. Linux before 6.15 and other systems do
    /// not have it: their waits double to 120 s, so a stream that was cut is silent for as long again.
    pub rto_max: Duration,
    /// Faults to inject, for demos and tests.
    pub gate: Option<Gate>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            store: Store::Memory,
            grace: Duration::from_secs(5),
            commands_max: 256,
            requests_max: 1024,
            events_max: 1024,
            datagrams_max: 256,
            stream_bytes_max: 1024 * 1024,
            store_ops_max: 1024,
            store_bytes_max: 16 * 1024 * 1024,
            keepalive: KeepAlive::default(),
            rto_max: Duration::from_secs(1),
            gate: None,
        }
    }
}

impl Options {
    /// The default limits, with the store at this place.
    #[must_use]
    pub fn with_store(store: Store) -> Self {
        Self { store, ..Self::default() }
    }
}
