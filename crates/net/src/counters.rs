//! The counters of a driver.

use annulus_core::{CloseReason, Counter};

annulus_core::counters! {
    /// The work that a driver did for its machine, and the work that it had to drop.
    pub struct DriverCounters {
        /// Datagrams handed to the system.
        datagrams_sent,
        /// Bytes of the datagrams handed to the system.
        datagram_bytes_sent,
        /// Datagrams that came in.
        datagrams_received,
        /// Bytes of the datagrams that came in.
        datagram_bytes_received,
        /// Datagrams that the machine refused.
        datagrams_refused,
        /// Datagrams not sent because the system took no more and the queue was full.
        datagrams_shed,
        /// Datagrams not sent because they are larger than a datagram can be.
        datagrams_oversize,
        /// Datagrams not sent because the system refused them: no way there, forbidden.
        datagrams_failed,
        /// Errors of a datagram socket while receiving; the socket stays open.
        datagram_receive_errors,
        /// Streams that the machine opened and that stood.
        streams_opened,
        /// Streams that the machine opened and that never stood.
        streams_failed,
        /// Streams accepted.
        streams_accepted,
        /// Streams reset at once because their listener had as many as it may have.
        streams_refused,
        /// Streams reset by the peer.
        streams_reset,
        /// Streams reset by the machine.
        streams_aborted,
        /// Streams reset because the machine wrote more than is kept for a slow reader.
        streams_overrun,
        /// Messages on streams that the machine refused.
        stream_refusals,
        /// Bytes that streams brought.
        stream_bytes_received,
        /// Bytes of streams handed to the system.
        stream_bytes_sent,
        /// Failed attempts to accept a stream: too many open files, usually.
        accept_errors,
        /// Commands taken from the application.
        commands,
        /// Events handed to subscribers, once for each.
        events,
        /// Events that a subscriber missed because it had too many unread.
        events_shed,
        /// Operations given to the store.
        store_ops,
        /// Operations not given to the store because it had too many waiting.
        store_ops_shed,
        /// Operations that the store could not carry out.
        store_ops_failed,
        /// Times the machine was woken by its timer.
        timeouts,
        /// Times the driver ran.
        turns,
    }
}

impl DriverCounters {
    /// Counts the end of a stream.
    pub(crate) fn closed(&mut self, reason: CloseReason) {
        match reason {
            CloseReason::Reset => self.streams_reset += 1,
            CloseReason::Overrun => self.streams_overrun += 1,
            _ => {}
        }
    }
}

/// The counters of a driver and its machine at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// The counters of the driver.
    pub driver: DriverCounters,
    /// The counters of the machine.
    pub machine: Vec<Counter>,
}

impl Counters {
    /// The machine's counter of this name, summed over its services.
    #[must_use]
    pub fn machine(&self, name: &str) -> u64 {
        self.machine.iter().filter(|counter| counter.name == name).map(|counter| counter.value).sum()
    }
}
