//! Observers of a simulation: checkers, hooks and the violations that they report.

use core::fmt;
use std::net::SocketAddr;

use annulus_core::{CloseReason, Machine, RequestId, StreamId};
use serde::Serialize;

use crate::disk::DiskFate;
use crate::host::HostId;
use crate::sim::Sim;

/// Something that must not happen has happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Violation {
    /// The violation, in a sentence.
    pub text: String,
}

impl Violation {
    /// A violation that this sentence describes; the simulation adds when it happened.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Self {
        Self { text: text.into() }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Violation {}

/// The verdict of a checker. The first violation ends the run.
pub type Verdict = Result<(), Violation>;

/// The fate of a datagram that a hook has seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DatagramFate {
    /// It is sent, with the bytes that the hook left.
    Pass,
    /// It is lost.
    Drop,
}

/// A datagram on its way out, before chance has its say.
#[derive(Debug)]
pub struct Datagram<'a> {
    /// The host that sends it.
    pub host: HostId,
    /// From which address.
    pub from: SocketAddr,
    /// The target address.
    pub to: SocketAddr,
    /// Its bytes; a hook may change them.
    pub bytes: &'a mut Vec<u8>,
}

/// Sees everything and may interfere.
///
/// Every method has a default that does nothing, so an observer implements only those that it needs. All of them get
/// the current simulation to read. With [`Sim::inject`] they can cause faults: a crash takes effect at once, between
/// two actions of a machine, anything else right after.
#[expect(unused_variables, reason = "the names are for who implements one")]
pub trait Observer<M: Machine> {
    /// A machine emitted an event to its application.
    ///
    /// # Errors
    /// If it must not have.
    fn on_event(&mut self, sim: &Sim<M>, host: HostId, event: &M::Event) -> Verdict {
        Ok(())
    }

    /// A machine answered a command.
    ///
    /// # Errors
    /// If it must not have.
    fn on_reply(&mut self, sim: &Sim<M>, host: HostId, request: RequestId, reply: &M::Reply) -> Verdict {
        Ok(())
    }

    /// A host was started; its machine has not been called yet.
    fn on_start(&mut self, sim: &Sim<M>, host: HostId) {}

    /// A host is about to crash: its machine can be looked at for the last time. One that is down already has none,
    /// but its disk may be lost all the same.
    fn on_crash(&mut self, sim: &Sim<M>, host: HostId, disk: DiskFate) {}

    /// A host's machine has stopped.
    fn on_stopped(&mut self, sim: &Sim<M>, host: HostId) {}

    /// A datagram goes out. It may be changed or dropped.
    fn on_datagram(&mut self, sim: &Sim<M>, datagram: Datagram<'_>) -> DatagramFate {
        DatagramFate::Pass
    }

    /// A machine writes to a stream.
    fn on_write(&mut self, sim: &Sim<M>, host: HostId, stream: StreamId, bytes: &[u8]) {}

    /// The kernel has taken more of a stream, `bytes` since it was opened, and perhaps its end; the machine is about
    /// to get `Sent`. A crash injected here lies between the two.
    fn on_sent(&mut self, sim: &Sim<M>, host: HostId, stream: StreamId, bytes: u64, fin: bool) {}

    /// A machine is about to get more of a stream: `bytes` since it was opened, these included.
    fn on_received(&mut self, sim: &Sim<M>, host: HostId, stream: StreamId, bytes: u64) {}

    /// A machine got `Closed` for a stream.
    fn on_closed(&mut self, sim: &Sim<M>, host: HostId, stream: StreamId, reason: CloseReason) {}
}

/// Watches nothing.
impl<M: Machine> Observer<M> for () {}
