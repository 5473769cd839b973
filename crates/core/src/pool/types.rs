//! The arguments and results of a pool's calls.

use core::time::Duration;
use std::net::SocketAddr;

use crate::tag::StreamId;

/// A message was refused: a limit of `Config` is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the message was not taken: it is too long, or too much waits already")]
pub struct Full;

/// The answer that the sender of a message expects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expects {
    /// The peer answers at once. Its silence makes the connection unresponsive, and the caller retransmits the message
    /// when the connection is [lost](Lost).
    Reply,
    /// No answer. The pool keeps the message through failed connects.
    Nothing,
}

/// The connection of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taken {
    /// Its number.
    pub stream: StreamId,
    /// Whether that connection is established. If it never is, the peer has certainly not seen the message.
    pub connected: bool,
}

/// The peer of a connection whose greeting was accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer<'a, L> {
    /// The label from its greeting.
    pub label: &'a L,
    /// Where the peer listens. `None` if the connection came from another machine than the one that its greeting names.
    pub addr: Option<SocketAddr>,
    /// The round trip of the connection; `None` before it was measured.
    pub rtt: Option<Duration>,
}

/// A lost connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lost {
    /// Its number.
    pub stream: StreamId,
    /// Where the peer listens, if that was known. `None` for an idle connection that took long to close: that says nothing of
    /// the peer.
    pub peer: Option<SocketAddr>,
    /// Whether it was ever established.
    pub connected: bool,
    /// Whether the peer's kernel refused it: nothing listens there.
    pub refused: bool,
}
