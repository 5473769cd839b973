//! What a driver may use, and where it stops.

use std::time::Duration;

use crate::store::Store;

/// The limits of a driver. Every queue has one, and a counter of what was shed at it.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where the store is.
    pub store: Store,
    /// How long a graceful stop may take.
    pub grace: Duration,
    /// Commands that may wait; who gives one more waits too.
    pub commands_max: usize,
    /// Commands that may be without a reply; no further one is taken until one of them has it.
    pub requests_max: usize,
    /// Unread events of one subscriber; it misses what comes beyond.
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

/// How an idle stream is probed. With the defaults a dead peer is noticed after about two minutes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeepAlive {
    /// Silence before the first probe.
    pub idle: Duration,
    /// Time between probes.
    pub interval: Duration,
    /// Probes without an answer before the stream is `TimedOut`.
    pub probes: u32,
}

impl Default for KeepAlive {
    fn default() -> Self {
        Self { idle: Duration::from_secs(60), interval: Duration::from_secs(15), probes: 4 }
    }
}
