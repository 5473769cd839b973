//! The timers of a node.

use crate::tag::StreamId;

/// What a node waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Timer {
    /// NOUNCE: say HERE to the known nodes.
    Announce,
    /// Introduce our neighbours to each other, and ourselves to somebody new.
    Maintain,
    /// A handshake, or the end of a connection, has lasted long enough.
    Handshake(StreamId),
    /// A peer has not read for too long (MA-48).
    Stalled(StreamId),
    /// The one peer that may send while memory is short does not.
    Silent(StreamId),
    /// A broken connection is dialled once more (MA-30).
    Redial(super::nid::Nid),
    /// The oldest entry of the queue or of a memory expires.
    Expire,
    /// The known nodes have changed and are to be kept.
    StoreKnown,
    /// A file on its way needs a push.
    Files,
    /// The store was busy: what is to be saved is tried again.
    RetryStore,
    /// Messages for us wait for room.
    Deferred,
    /// A message of ours is offered again.
    Retransmit,
    /// A verdict is overdue, verdicts are to be written, or a foreign peer has kept a message long enough.
    Custody,
    /// Messages that peers refused are tried again.
    Retry,
    /// Letters without a receipt are sent again.
    Resend,
    /// Receipts of letters are sent.
    Receipts,
    /// The address book has changed and is stored.
    StoreBook,
    /// The node is stopping and has waited long enough for its last bytes.
    Stop,
}

impl Timer {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Announce => "mesh.announce",
            Self::Maintain => "mesh.maintain",
            Self::Handshake(_) => "mesh.handshake",
            Self::Stalled(_) => "mesh.stalled",
            Self::Silent(_) => "mesh.silent",
            Self::Redial(_) => "mesh.redial",
            Self::Expire => "mesh.expire",
            Self::StoreKnown => "mesh.store_known",
            Self::Files => "mesh.files",
            Self::RetryStore => "mesh.retry_store",
            Self::Deferred => "mesh.deferred",
            Self::Retransmit => "mesh.retransmit",
            Self::Custody => "mesh.custody",
            Self::Retry => "mesh.retry",
            Self::Resend => "mesh.resend",
            Self::Receipts => "mesh.receipts",
            Self::StoreBook => "mesh.store_book",
            Self::Stop => "mesh.stop",
        }
    }
}
