//! The counters of a node of the mesh.

crate::counters! {
    /// The counters of a node of the mesh.
    pub struct Counters {
        /// HEREs sent by datagram.
        here_sent,
        /// HEREs received by datagram.
        here_received,
        /// HEREs ignored: about this node, about a peer, on hold-down, or not to be dialled.
        here_ignored,
        /// HEREs refused by the rate limit.
        here_limited,
        /// HEREs about others forwarded towards their subject.
        here_passed_on,
        /// Datagrams that are no HERE.
        malformed_datagrams,
        /// Frames that are no message.
        malformed_frames,
        /// Connections closed because of their content.
        connections_refused,
        /// Dials.
        dials,
        /// Dials that led to no peer.
        dials_failed,
        /// Callers refused because the ring is full.
        callers_refused,
        /// Second connections of one peer that were closed.
        second_connections,
        /// Peers added to the ring.
        peers_added,
        /// Peers removed from the ring.
        peers_removed,
        /// Peers dropped by OPTIMIZE.
        peers_optimized,
        /// Messages sent by the own application.
        messages_sent,
        /// Messages that came over a connection.
        messages_received,
        /// Messages delivered to the own application.
        messages_delivered,
        /// Messages written to a connection.
        messages_written,
        /// Messages dropped because they were seen before.
        duplicates_dropped,
        /// Messages dropped because the queue was full.
        queue_dropped,
        /// Messages that expired in the queue.
        expired,
        /// Messages not stored because the store was full or failed: forwarded from memory, deferred or refused.
        messages_unsaved,
        /// Blocks evicted to make room.
        blocks_evicted,
        /// Blocks that did not match their key when they were read.
        blocks_corrupt,
        /// Store operations that failed.
        store_failed,
        /// Connections closed because the peer did not read.
        peers_stalled,
        /// Receipts that match no message of this node.
        receipts_unmatched,
        /// Messages that this node had no room for and left with the peer.
        verdicts_full,
        /// Messages that a peer had no room for.
        peers_full,
        /// Letters sent again because no receipt came.
        letters_resent,
        /// Connections closed because the peer answered neither messages nor a ping, or is dead.
        peers_silent,
        /// Blocks of files that are not needed: unknown file, wrong hash or already received.
        file_blocks_unwanted,
    }
}
