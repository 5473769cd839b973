//! The events of a stream.
//!
//! A stream is TCP as it is: each direction ends on its own, a reset destroys bytes in flight, and kernel buffers are
//! between "written" and "received". Every driver keeps these rules:
//!
//! - The first event of a stream is `Accepted` or `Connected` (or `Closed`, if it could not be opened).
//! - `Data` comes only while there is read credit, at most as many bytes as were granted. A new stream has none.
//! - `Finished` needs no credit, but comes after all data; after it, no data comes.
//! - `Sent` reports what the kernel has taken, in order; `fin: true` comes once, after the last byte, when the
//!   kernel has taken the FIN as well. Bytes that were not reported were not taken.
//! - `Confirmed` comes only for a stream that is watched ([`Watch`]): the peer's kernel has acknowledged the bytes. It
//!   is never ahead of `Sent`. An acknowledgement by a kernel is not one by a program.
//! - `Closed` is the last event and comes exactly once, unless the machine aborted the stream: then nothing comes
//!   any more. Both sides finished is `Closed(Done)`.
//! - Actions on a stream that is already closed do nothing: the two may cross.

use core::time::Duration;
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
    /// The peer's kernel has acknowledged this much more of what we wrote (CU-19).
    Confirmed {
        /// Bytes acknowledged since the last report.
        bytes: usize,
    },
    /// The peer has ended its direction; ours may go on.
    Finished,
    /// It is gone.
    Closed(CloseReason),
}

/// Extra reports that a machine wants for a stream. A later one replaces an earlier one.
///
/// A driver that cannot see acknowledgements says so in [`crate::Bound::confirms`] and leaves both undone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Watch {
    /// Whether `Confirmed` is to be reported. Bytes acknowledged before the watch began are in the first report.
    pub confirm: bool,
    /// Closes the stream as `TimedOut` if bytes are unacknowledged and no acknowledgement came for so long (CU-20).
    /// A peer that does not read acknowledges probes of its closed window, so it lives. While nothing is
    /// unacknowledged, keep-alive probes ask instead.
    pub dead_after: Option<Duration>,
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
