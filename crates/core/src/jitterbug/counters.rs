//! What a node of the ring counts, by the names under which metrics show it.

crate::counters! {
    /// What a node of the token ring counts.
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
        /// Tokens dropped to look for nodes that were named and are not in the list.
        unlisted_sought,
        /// Tokens made here and dropped because their fence could not be made durable.
        unsaved_drops,
        /// Merges of data.
        merges,
        /// Merges of two branches.
        branches_merged,
        /// Tokens that met a leader and became one with its own.
        tokens_coalesced,
        /// Tenures lengthened because the ring has a second token.
        duplicates_awaited,
        /// Whole tokens given up because ours was on its way out.
        tokens_discarded,
        /// Offers refused while a pass was under way.
        offers_refused,
        /// Datagrams and streams that were no message of ours.
        malformed,
        /// Datagrams and streams refused: not allowed, too many, or not now.
        refused,
        /// Answers that came when nothing was asked.
        answers_unasked,
        /// Own datagrams that came back.
        echoes,
        /// Streams of others that ran out of time.
        streams_expired,
        /// Nodes not remembered because the add-set was full.
        add_set_full,
        /// Calls of the application that failed.
        application_failures,
        /// Operations of the store that failed.
        store_failures,
    }
}
