//! What can happen to a stream.
//!
//! A stream is TCP as it is, not as one would like it: each direction ends on its own, a reset destroys what was
//! under way, and the kernel's buffer stands between "written" and "received". The rules that every driver keeps:
//!
//! - The first event of a stream is `Accepted` or `Connected` (or `Closed`, if it could not be opened).
//! - `Data` comes only while there is read credit, at most as many bytes as were granted. A new stream has none.
//! - `Finished` needs no credit, but comes after all data; after it, no data comes.
//! - `Sent` reports what the kernel has taken, in order; `fin: true` comes once, after the last byte, when the
//!   kernel has taken the FIN as well. What was not reported was not taken.
//! - `Closed` is the last event and comes exactly once, unless the machine aborted the stream: then nothing comes
//!   any more. Both sides finished is `Closed(Done)`.
//! - Actions on a stream that is already closed do nothing: the two may cross.

use std::net::SocketAddr;

use serde::Serialize;

use crate::tag::ListenerId;

/// News of one stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamEvent<'a> {
    /// A peer opened it.
    Accepted {
        /// Which of our listeners it came to.
        listener: ListenerId,
        /// The peer's end.
        from: SocketAddr,
        /// Our end.
        local: SocketAddr,
    },
    /// It stands, as we asked.
    Connected {
        /// Our end.
        local: SocketAddr,
    },
    /// The next bytes from the peer.
    Data(&'a [u8]),
    /// The kernel has taken this much more of what we wrote: time to write on, and the exact point from which
    /// "sent" is true.
    Sent {
        /// Bytes taken since the last report.
        bytes: usize,
        /// Whether our FIN was taken too.
        fin: bool,
    },
    /// The peer has ended its direction; ours may go on.
    Finished,
    /// It is gone.
    Closed(CloseReason),
}

/// Why a stream is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CloseReason {
    /// Both sides finished.
    Done,
    /// Nobody listens there.
    Refused,
    /// There is no way there.
    Unreachable,
    /// The peer stopped answering.
    TimedOut,
    /// The peer reset it.
    Reset,
    /// More was written than the driver keeps; the machine did not heed `Sent`.
    Overrun,
    /// The own system could not: no descriptor, no port, no address.
    Failed,
}
