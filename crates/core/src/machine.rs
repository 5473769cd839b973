//! The contract between a protocol and its driver.
//!
//! A protocol is a struct with no sockets, no clock, no threads and no randomness of its own. A driver calls `handle_*`
//! with an input and an [`Outbox`]. The machine changes its state and puts actions into the outbox. The driver performs
//! them in that order. Two drivers exist: `annulus-net` on tokio and `annulus-sim` in virtual time. A machine cannot
//! distinguish the two.
//!
//! # Promises of a driver
//!
//! 1. It binds everything in [`Machine::endpoints`], then calls [`Machine::handle_start`] once, before all else.
//! 2. *Loading*: from `handle_start` until the store has answered all requests, the driver calls only
//!    [`Machine::handle_stored`] and [`Machine::handle_timeout`]. So no message reaches a machine before it has read
//!    its state.
//! 3. `now` never goes back between calls, keeps running while the computer is suspended, and is read again for each
//!    call.
//! 4. After each call (or several) it calls [`Machine::poll_timeout`], and calls [`Machine::handle_timeout`] at that
//!    moment or later.
//! 5. It performs actions in order. A datagram may be lost. The driver reports the result of a stream or store
//!    operation, as [`crate::StreamEvent`] and [`StoreReply`] say.
//!
//! # Promises of a machine
//!
//! 1. The same calls give the same actions: state and seed decide everything.
//! 2. It owns its timers: waking it early, late or twice is harmless.
//! 3. Inputs may follow each other before the driver empties the outbox.
//! 4. Bytes it cannot use give a [`Refusal`] and change nothing but counters.
//! 5. Nothing from the network makes it panic, allocate by a declared length, or work without bound in one call.
//!
//! [`crate::contract`] tests a machine against the second list; `crates/sim` tests it in a simulated network.

use core::time::Duration;
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

/// A protocol without I/O. Methods that many machines do not need have a default.
pub trait Machine: Sized {
    /// A command of the application.
    type Command: Debug;
    /// A reply: exactly one for each command, unless the machine is dropped before.
    type Reply: Debug;
    /// An event for the application.
    type Event: Debug + Serialize;

    /// The sockets, listeners and store spaces of the machine.
    fn endpoints(&self) -> Endpoints;

    /// The first call. `bound` has the real addresses of the endpoints. The machine reads its state from the store
    /// here.
    fn handle_start(&mut self, now: Now, bound: &Bound, out: &mut Outbox<'_, Self>);

    /// Handles a datagram.
    ///
    /// # Errors
    /// If the bytes are not a message, or the machine refuses the message in its present state. Only counters have
    /// changed.
    fn handle_datagram(
        &mut self,
        now: Now,
        socket: SocketId,
        from: SocketAddr,
        bytes: &[u8],
        out: &mut Outbox<'_, Self>,
    ) -> Result<(), Refusal>;

    /// Handles an event of a stream.
    ///
    /// # Errors
    /// If its bytes are no message, or one that is refused in the present state. The machine has then aborted the
    /// stream. Otherwise its state is as if the peer had reset the stream before these bytes.
    #[expect(unused_variables, reason = "the names are for who implements it")]
    fn handle_stream(
        &mut self,
        now: Now,
        stream: StreamId,
        event: StreamEvent<'_>,
        out: &mut Outbox<'_, Self>,
    ) -> Result<(), Refusal> {
        Ok(())
    }

    /// Handles a reply of the store.
    #[expect(unused_variables, reason = "the names are for who implements it")]
    fn handle_stored(&mut self, now: Now, reply: StoreReply<'_>, out: &mut Outbox<'_, Self>) {}

    /// Handles a command of the application. The machine answers with [`Outbox::reply`] under the same number, now or
    /// later.
    fn handle_command(
        &mut self,
        now: Now,
        request: RequestId,
        command: Self::Command,
        out: &mut Outbox<'_, Self>,
    );

    /// Handles timers that may have fired.
    fn handle_timeout(&mut self, now: Now, out: &mut Outbox<'_, Self>);

    /// Stops the node: the machine leaves its group and saves its state, then [`Machine::is_stopped`] becomes true. The
    /// driver continues as usual until then, or until its stop timeout.
    #[expect(unused_variables, reason = "the names are for who implements it")]
    fn handle_stop(&mut self, now: Now, out: &mut Outbox<'_, Self>) {}

    /// Whether the machine has finished after [`Machine::handle_stop`].
    fn is_stopped(&self) -> bool {
        true
    }

    /// The next time at which the machine needs `handle_timeout`, and the name of that timer.
    fn poll_timeout(&self) -> Option<(Instant, &'static str)>;

    /// Shows every counter.
    #[expect(unused_variables, reason = "the names are for who implements it")]
    fn counters(&self, visit: VisitCounter<'_>) {}

    /// The durations in its configuration. The simulator draws the length of faults near them (FA-30).
    fn timescales(&self) -> Vec<(&'static str, Duration)> {
        Vec::new()
    }
}

/// Why a machine refused an input from the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The bytes are not a message.
    #[error("malformed: {0}")]
    Decode(#[from] DecodeError),
    /// A valid message that this machine refuses in its present state.
    #[error("refused: {0}")]
    Reject(&'static str),
}
