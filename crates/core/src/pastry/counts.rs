//! What a routing node counts.

crate::counters! {
    /// What a routing node counts.
    pub struct Counters {
        /// Messages of our own that were sent.
        messages_sent,
        /// Messages delivered here.
        messages_delivered,
        /// Messages that came again and were not delivered again.
        messages_repeated,
        /// Messages passed on.
        messages_forwarded,
        /// Messages that a node did not acknowledge in time.
        messages_overdue,
        /// Messages that went another way because a node did not acknowledge.
        messages_rerouted,
        /// Messages that failed here.
        messages_failed,
        /// Messages that were not taken because too many were under way.
        messages_refused,
        /// Messages an application stopped, changed or redirected here.
        messages_judged,
        /// Messages of the protocol sent over streams, all kinds.
        frames_sent,
        /// Messages of the protocol that were not sent: too long, or too much waited, on that connection or on all.
        frames_refused,
        /// Connections that were reset: too many of one address, or too many large messages at a time.
        connections_refused,
        /// Probes sent, by datagram or stream.
        probes_sent,
        /// Probes answered.
        probes_answered,
        /// Neighbours asked whether they delivered a message of which there may be two.
        inquiries_sent,
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
        /// Nodes that lost their seats because they do not answer.
        peers_failed,
        /// Nodes that were not asked whether they are there because too many waited.
        candidates_dropped,
        /// Pongs that answer nothing: late, repeated or forged.
        pongs_unmatched,
        /// Datagrams and streams that were not a message.
        malformed,
        /// Well-formed messages that were refused: of another ring, or out of turn.
        refused,
    }
}
