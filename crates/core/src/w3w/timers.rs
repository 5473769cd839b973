//! The timers of a node.

use crate::tag::StreamId;

/// The timers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Timer {
    /// NOUNCE: sends HERE to the known nodes.
    Announce,
    /// Introduces the neighbours to each other, and sends HERE to an unconnected node.
    Maintain,
    /// A handshake or a close took too long.
    Handshake(StreamId),
    /// A peer may not have read for too long (MA-48).
    Stalls,
    /// The unblocked peer has sent nothing for too long.
    Silent(StreamId),
    /// Broken connections are dialled once more (MA-30).
    Redial,
    /// The oldest entry of the queue or of a memory expires.
    Expire,
    /// The known nodes have changed and are to be stored.
    StoreKnown,
    /// A file transfer needs a request.
    Files,
    /// The store was busy: waiting writes are tried again.
    RetryStore,
    /// Deferred messages wait for room.
    Deferred,
    /// A message without receipt is retransmitted.
    Retransmit,
    /// A verdict is overdue, or a foreign peer has kept a message long enough.
    Custody,
    /// The collected verdicts are written.
    Verdicts,
    /// Messages that peers refused are tried again.
    Retry,
    /// Letters without a receipt are sent again.
    Resend,
    /// Receipts of letters are sent.
    Receipts,
    /// The address book has changed and is stored.
    StoreBook,
    /// The node is stopping, and the time for its last bytes is over.
    Stop,
}

impl Timer {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Announce => "mesh.announce",
            Self::Maintain => "mesh.maintain",
            Self::Handshake(_) => "mesh.handshake",
            Self::Stalls => "mesh.stalls",
            Self::Silent(_) => "mesh.silent",
            Self::Redial => "mesh.redial",
            Self::Expire => "mesh.expire",
            Self::StoreKnown => "mesh.store_known",
            Self::Files => "mesh.files",
            Self::RetryStore => "mesh.retry_store",
            Self::Deferred => "mesh.deferred",
            Self::Retransmit => "mesh.retransmit",
            Self::Custody => "mesh.custody",
            Self::Verdicts => "mesh.verdicts",
            Self::Retry => "mesh.retry",
            Self::Resend => "mesh.resend",
            Self::Receipts => "mesh.receipts",
            Self::StoreBook => "mesh.store_book",
            Self::Stop => "mesh.stop",
        }
    }
}
