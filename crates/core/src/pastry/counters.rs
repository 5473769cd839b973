//! The counters of a routing node.

crate::counters! {
    /// The counters of a routing node.
    pub struct Counters {
        /// Messages that this node sent as origin.
        messages_sent,
        /// Retries of messages of this node.
        messages_retried,
        /// Messages that an application accepted here.
        messages_delivered,
        /// Duplicates of accepted messages that were not delivered again.
        duplicates_dropped,
        /// Messages sent to a next hop.
        messages_forwarded,
        /// Messages that a next hop did not acknowledge in time.
        messages_overdue,
        /// Messages that took another path because a next hop certainly did not take them.
        messages_rerouted,
        /// Messages that a next hop may have taken: reported to their origins as lost.
        messages_lost,
        /// Attempts that failed here.
        messages_failed,
        /// Messages refused because too many were in flight or open.
        messages_refused,
        /// Messages that an application stopped, changed or redirected here.
        messages_intercepted,
        /// Messages of the protocol sent over streams, all kinds.
        frames_sent,
        /// Messages of the protocol that were not sent: too long, or the queue of their connection or of all was full.
        frames_refused,
        /// Connections reset: too many from one address, or too many large messages at a time.
        connections_refused,
        /// Probes sent, by datagram or stream.
        probes_sent,
        /// Nodes that were probed because it was time, not because something had happened.
        probes_periodic,
        /// Probes answered.
        probes_answered,
        /// Joins that passed through this node.
        joins_seen,
        /// Announcements sent.
        announcements_sent,
        /// Announcements received.
        announcements_received,
        /// Race warnings sent.
        races_warned,
        /// Race warnings received.
        races_received,
        /// Requests for state sent.
        requests_sent,
        /// Requests for state answered.
        requests_answered,
        /// Nodes marked as away: messages for them moved, their entries stayed.
        peers_away,
        /// Nodes removed because they did not answer.
        peers_failed,
        /// Probes not sent because too many waited.
        probes_dropped,
        /// Pongs that match no probe: late, repeated or forged.
        pongs_unmatched,
        /// Datagrams and streams that could not be decoded.
        malformed,
        /// Well-formed messages that were refused: of another ring, or in a state that does not accept them.
        refused,
    }
}
