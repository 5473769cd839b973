//! The counters of a node of the ring, by their names in the metrics.

crate::counters! {
    /// The counters of a node of the token ring.
    pub struct Counters {
        /// Tenures begun.
        tenures,
        /// Tokens passed on.
        passes,
        /// Attempts to pass that failed.
        passes_failed,
        /// Restores begun.
        restores,
        /// Restores granted: tokens made.
        restores_granted,
        /// Restores denied.
        restores_denied,
        /// Tokens dropped at random (J-31).
        random_drops,
        /// Tokens dropped because this process was paused.
        stalls,
        /// Tokens dropped to find named addresses that are not in the list.
        unlisted_sought,
        /// Tokens made here and dropped because their fence could not be made durable.
        unsaved_drops,
        /// Merges of data.
        merges,
        /// Merges of two branches.
        branches_merged,
        /// Tokens that arrived at a leader and were merged with its own.
        tokens_coalesced,
        /// Tenures lengthened because the ring has a second token.
        duplicates_awaited,
        /// Complete tokens discarded because the own one was being passed.
        tokens_discarded,
        /// Offers refused while a pass was under way.
        offers_refused,
        /// Datagrams and streams that could not be decoded.
        malformed,
        /// Datagrams and streams refused: not allowed, too many, or in a state that does not accept them.
        refused,
        /// TR2 that answer no TR1 under way.
        answers_unasked,
        /// Own datagrams that came back.
        echoes,
        /// Streams of others that timed out.
        streams_expired,
        /// Nodes not remembered because the add-set was full.
        add_set_full,
        /// Calls of the application that failed.
        application_failures,
        /// Operations of the store that failed.
        store_failures,
    }
}
