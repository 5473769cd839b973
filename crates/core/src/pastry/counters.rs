//! What a routing node counts.

crate::counters! {
    /// What a routing node counts.
    pub struct Counters {
        /// Messages of our own that were sent.
        messages_sent,
        /// Messages of our own that were sent again.
        messages_retried,
        /// Messages that an application accepted here.
        messages_delivered,
        /// Messages that came again and were not delivered again.
        duplicates_dropped,
        /// Messages sent to a next node.
        messages_forwarded,
        /// Messages that a next node did not acknowledge in time.
        messages_overdue,
        /// Messages that took another path because a node certainly did not take them.
        messages_rerouted,
        /// Messages that a next node may have taken, or not: reported to their origins.
        messages_lost,
        /// Attempts that failed here.
        messages_failed,
        /// Messages that were not taken because too many were in flight or open.
        messages_refused,
        /// Messages that an application stopped, changed or redirected here.
        messages_intercepted,
        /// Messages of the protocol sent over streams, all kinds.
        frames_sent,
        /// Messages of the protocol that were not sent: too long, or too much waited, on that connection or on all.
        frames_refused,
        /// Connections that were reset: too many of one address, or too many large messages at a time.
        connections_refused,
        /// Probes sent, by datagram or stream.
        probes_sent,
        /// Nodes that were probed because it was time, not because something had happened.
        probes_periodic,
        /// Probes answered.
        probes_answered,
        /// Joins that came by.
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
        /// Nodes that did not answer: messages for them moved, their entries stayed.
        peers_away,
        /// Nodes that were removed because they did not answer.
        peers_failed,
        /// Probes that were not sent because too many waited.
        probes_dropped,
        /// Pongs that answer nothing: late, repeated or forged.
        pongs_unmatched,
        /// Datagrams and streams that were not a message.
        malformed,
        /// Well-formed messages that were refused: of another ring, or out of turn.
        refused,
    }
}
