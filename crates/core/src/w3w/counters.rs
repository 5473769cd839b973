//! What a node of the mesh counts.

crate::counters! {
    /// What a node of the mesh counts.
    pub struct Counters {
        /// HEREs sent by datagram.
        here_sent,
        /// HEREs received by datagram.
        here_received,
        /// HEREs that were ignored: about us, about a peer, on hold-down, or not to be dialled.
        here_ignored,
        /// HEREs refused because too many came.
        here_limited,
        /// HEREs about others passed on towards them.
        here_passed_on,
        /// Datagrams that were no HERE.
        malformed_datagrams,
        /// Frames that were no message.
        malformed_frames,
        /// Connections closed for what was said on them.
        connections_refused,
        /// Dials.
        dials,
        /// Dials that led to no peer.
        dials_failed,
        /// Callers refused because the ring is full.
        callers_refused,
        /// Second connections of one peer that were closed.
        second_connections,
        /// Peers that came into the ring.
        peers_added,
        /// Peers that left the ring.
        peers_removed,
        /// Peers dropped by OPTIMIZE.
        peers_optimized,
        /// Messages sent by our own application.
        messages_sent,
        /// Messages that came over a connection.
        messages_received,
        /// Messages delivered to our own application.
        messages_delivered,
        /// Messages written to a connection.
        messages_written,
        /// Messages dropped because they were seen before.
        duplicates_dropped,
        /// Messages dropped because the queue was full.
        queue_dropped,
        /// Messages that expired while they waited.
        expired,
        /// Messages that were not saved because the store is full or failed: passed on all the same, or kept out.
        messages_unsaved,
        /// Blocks thrown away to make room.
        blocks_evicted,
        /// Blocks that did not hash to their key when they were read.
        blocks_corrupt,
        /// Store operations that failed.
        store_failed,
        /// Connections given up because the peer did not read.
        peers_stalled,
        /// Receipts that answer nothing we sent.
        receipts_unmatched,
        /// Messages that this node had no room for and left with the peer that gave them.
        verdicts_full,
        /// Messages that a peer had no room for.
        peers_full,
        /// Letters sent again because no receipt came.
        letters_resent,
        /// Connections ended because the peer answered neither messages nor a ping, or is dead.
        peers_silent,
        /// Blocks of files that are not wanted: unknown file, wrong hash or already there.
        file_blocks_unwanted,
    }
}
