//! The events of a stream.
//!
//! A stream behaves like TCP. Each direction ends on its own, a reset destroys bytes in flight, and kernel buffers are
//! between "written" and "received". Every driver keeps these rules:
//!
//! - The first event of a stream is `Accepted` or `Connected` (or `Closed`, if it could not be opened).
//! - `Data` comes only while there is read credit, at most as many bytes as were granted. A new stream has none.
//! - `Finished` needs no credit, but comes after all data; after it, no data comes.
//! - `Sent` reports the bytes that the kernel has taken, in order. `fin: true` comes once, after the last byte, when
//!   the kernel has taken the FIN as well. Bytes that were not reported were not taken.
//! - `Confirmed` comes only for a stream that is watched ([`Watch`]): the peer's kernel has acknowledged the bytes. It
//!   is never ahead of `Sent`. An acknowledgement by a kernel is not one by a program.
//! - `Closed` is the last event and comes exactly once. If the machine aborted the stream, no event follows. Once both
//!   sides have finished, it is `Closed(Done)`.
//! - Actions on a stream that is already closed do nothing: an action and the event may cross.

use core::time::Duration;
use std::net::SocketAddr;

use serde::Serialize;

use crate::tag::ListenerId;

/// An event of one stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamEvent<'a> {
    /// A peer opened it.
    Accepted {
        /// The listener that accepted it.
        listener: ListenerId,
        /// The peer's end.
        from: SocketAddr,
        /// Our end.
        local: SocketAddr,
    },
    /// The stream that this node opened is established.
    Connected {
        /// Our end.
        local: SocketAddr,
    },
    /// The next bytes from the peer.
    Data(&'a [u8]),
    /// The kernel has taken this many more bytes: the machine may write more, and these bytes count as sent.
    Sent {
        /// Bytes taken since the last report.
        bytes: usize,
        /// Whether our FIN was taken too.
        fin: bool,
    },
    /// The peer's kernel has acknowledged this many more bytes (CU-19).
    Confirmed {
        /// Bytes acknowledged since the last report.
        bytes: usize,
    },
    /// The peer has ended its direction; ours may continue.
    Finished,
    /// The stream is closed.
    Closed(CloseReason),
}

/// Extra reports that a machine requests for a stream. A later request replaces an earlier one.
///
/// A driver that cannot see acknowledgements reports that in [`crate::Bound::confirms`] and does neither.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Watch {
    /// Whether `Confirmed` is to be reported. Bytes acknowledged before the watch began are in the first report.
    pub confirm: bool,
    /// Closes the stream as `TimedOut` if bytes are unacknowledged and no acknowledgement came for this long (CU-20). A
    /// peer that does not read acknowledges probes of its closed window, so it counts as alive. While all bytes are
    /// acknowledged, keep-alive probes test the peer instead.
    pub dead_after: Option<Duration>,
}

/// Why a stream is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum CloseReason {
    /// Both sides finished.
    Done,
    /// Nothing listens at that address.
    Refused,
    /// There is no route to that address.
    Unreachable,
    /// The peer stopped answering.
    TimedOut,
    /// The peer reset it.
    Reset,
    /// More was written than the driver buffers: the machine did not wait for `Sent`.
    Overrun,
    /// The own system failed: no descriptor, no port, no address.
    Failed,
}
