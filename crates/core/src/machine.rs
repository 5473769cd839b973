//! The contract between a protocol and whoever runs it: the heart of the project.
//!
//! A protocol is a struct with no sockets, no clock, no threads and no randomness of its own. A driver calls
//! `handle_*` with what happened and gives it an [`Outbox`]; the machine changes its state and puts actions into
//! the outbox; the driver carries them out in that order. Two drivers exist, `annulus-net` on tokio and
//! `annulus-sim` in virtual time, and neither can be told from the other by a machine.
//!
//! # What a driver promises
//!
//! 1. It binds everything in [`Machine::endpoints`], then calls [`Machine::handle_start`] once, before all else.
//! 2. *Loading*: from there until the store has answered everything it was asked, the machine gets nothing but
//!    [`Machine::handle_stored`] and [`Machine::handle_timeout`]. So a machine reads its state at the start and no
//!    message meets it half-read.
//! 3. `now` never goes back between calls.
//! 4. After each call (or several) it asks [`Machine::poll_timeout`] and calls [`Machine::handle_timeout`] at that
//!    moment or later.
//! 5. Actions are carried out in order. A datagram may be lost; what becomes of a stream or a store operation is
//!    reported back, as [`crate::StreamEvent`] and [`StoreReply`] say.
//!
//! # What a machine promises
//!
//! 1. The same calls give the same actions: state and seed decide everything.
//! 2. It owns its timers: waking it early, late or twice is harmless.
//! 3. Inputs may follow each other without the outbox being emptied.
//! 4. Bytes it cannot use give a [`Refusal`] and change nothing but counters.
//! 5. Nothing from the network makes it panic, allocate by a declared length, or work without bound in one call.
//!
//! [`crate::contract`] tests a machine against the second list; `crates/sim` tests it against the world.

use std::fmt::Debug;
use std::net::SocketAddr;

use serde::Serialize;

use crate::counters::VisitCounter;
use crate::endpoint::{Bound, Endpoints};
use crate::outbox::Outbox;
use crate::store::StoreReply;
use crate::stream::StreamEvent;
use crate::tag::{RequestId, SocketId, StreamId};
use crate::time::{Instant, Now};
use crate::wire::DecodeError;

/// A protocol without I/O.
pub trait Machine: Sized {
    /// What the application may ask.
    type Command: Debug;
    /// What it gets for it, exactly once for each command unless the machine is dropped before.
    type Reply: Debug;
    /// What the application is told unasked.
    type Event: Debug + Serialize;

    /// The sockets, listeners and store spaces it wants.
    fn endpoints(&self) -> Endpoints;

    /// The first call: `bound` tells where the endpoints really are. State is asked from the store here.
    fn handle_start(&mut self, now: Now, bound: &Bound, out: &mut Outbox<'_, Self>);

    /// A datagram came.
    ///
    /// # Errors
    /// If the bytes are no message, or one that is refused here and now; nothing but counters has changed.
    fn handle_datagram(
        &mut self,
        now: Now,
        socket: SocketId,
        from: SocketAddr,
        bytes: &[u8],
        out: &mut Outbox<'_, Self>,
    ) -> Result<(), Refusal>;

    /// Something happened to a stream.
    ///
    /// # Errors
    /// If its bytes are no message, or one that is refused here and now: the machine has aborted the stream and is
    /// otherwise as if the peer had reset it before these bytes.
    fn handle_stream(
        &mut self,
        now: Now,
        stream: StreamId,
        event: StreamEvent<'_>,
        out: &mut Outbox<'_, Self>,
    ) -> Result<(), Refusal>;

    /// The store answered.
    fn handle_stored(&mut self, now: Now, reply: StoreReply<'_>, out: &mut Outbox<'_, Self>);

    /// The application asks something; the answer goes out as [`Outbox::reply`] with the same number, now or later.
    fn handle_command(
        &mut self,
        now: Now,
        request: RequestId,
        command: Self::Command,
        out: &mut Outbox<'_, Self>,
    );

    /// A timer may have run out.
    fn handle_timeout(&mut self, now: Now, out: &mut Outbox<'_, Self>);

    /// The node is to end in good order: say goodbye, save, then let [`Machine::is_stopped`] become true. The
    /// driver goes on as usual until then, or until its patience ends.
    fn handle_stop(&mut self, now: Now, out: &mut Outbox<'_, Self>);

    /// Whether there is nothing left to do after [`Machine::handle_stop`].
    fn is_stopped(&self) -> bool;

    /// When the machine wants to be woken, and the name of the timer that asks.
    fn poll_timeout(&self) -> Option<(Instant, &'static str)>;

    /// Shows every counter.
    fn counters(&self, visit: VisitCounter<'_>);
}

/// Why a machine did not take what the network brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The bytes are not a message.
    #[error("malformed: {0}")]
    Decode(#[from] DecodeError),
    /// A message, but not one for here and now.
    #[error("refused: {0}")]
    Reject(&'static str),
}
