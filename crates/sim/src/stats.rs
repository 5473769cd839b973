//! The counters of a simulation.

use serde::Serialize;

/// Declares a struct of counters, each with its meaning.
macro_rules! stats {
    ($($(#[$doc:meta])+ $field:ident,)+) => {
        /// Counts over a whole simulation.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
        #[non_exhaustive]
        pub struct Stats { $($(#[$doc])+ pub $field: u64,)+ }
    };
}

stats! {
    /// Everything taken from the queue that still meant something: wake-ups, arrivals, store answers, steps.
    events,
    /// Calls of machines.
    calls,
    /// Datagrams given to the network, one for each receiver of a broadcast.
    datagrams_sent,
    /// Datagrams that a machine got.
    datagrams_delivered,
    /// Bytes of the datagrams given to the network.
    datagram_bytes_sent,
    /// Datagrams lost by chance.
    datagrams_lost,
    /// Datagrams that arrived once more.
    datagrams_duplicated,
    /// Datagrams held up so that others overtook them.
    datagrams_reordered,
    /// Datagrams above the MTU.
    datagrams_oversize,
    /// Datagrams stopped by a cut or a partition.
    datagrams_cut,
    /// Datagrams dropped by a hook of the scenario.
    datagrams_dropped,
    /// Datagrams to a host that is down or to an unbound port.
    datagrams_unreachable,
    /// Datagrams dropped because a queue before a line or a host was full.
    datagrams_shed,
    /// Datagrams and stream events that a machine refused.
    refusals,
    /// Streams that machines asked for.
    streams_opened,
    /// Streams that machines accepted.
    streams_accepted,
    /// Streams refused because no listener was bound.
    streams_refused,
    /// Streams reset, as seen by one end.
    streams_reset,
    /// Streams that timed out because the peer did not answer, as seen by one end.
    streams_timed_out,
    /// Connections that a full accept queue did not take.
    syns_dropped,
    /// Streams above a listener's limit.
    streams_above_limit,
    /// Streams closed because more was written than a driver keeps.
    streams_overrun,
    /// Bytes that kernels took from machines.
    stream_bytes_sent,
    /// Bytes that machines got.
    stream_bytes_delivered,
    /// Segments given to the network.
    segments_sent,
    /// Segments that did not arrive.
    segments_lost,
    /// Times a retransmission timer ran out.
    retransmissions,
    /// Store operations asked for.
    store_ops,
    /// Store operations that failed.
    store_failures,
    /// Unsynced writes that a crash took.
    writes_forgotten,
    /// Commands given.
    commands,
    /// Replies that came.
    replies,
    /// Events that machines emitted.
    machine_events,
    /// Hosts crashed.
    crashes,
    /// Machines started, first starts included.
    starts,
    /// Hosts suspended.
    suspensions,
    /// Cuts and partitions made.
    cuts,
}

/// Counts of one host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct HostStats {
    /// Datagrams it sent.
    pub datagrams_sent: u64,
    /// Bytes in them.
    pub datagram_bytes_sent: u64,
    /// Datagrams its machine got.
    pub datagrams_received: u64,
    /// Bytes its kernel took for streams.
    pub stream_bytes_sent: u64,
    /// Bytes of streams that its machine got.
    pub stream_bytes_received: u64,
}
