//! What the calls of a pool take and give.

use std::net::SocketAddr;

use crate::tag::StreamId;

/// A message was not taken: the limits of `Config` are reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the message was not taken: it is too long, or too much waits already")]
pub struct Full;

/// What the sender of a message waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expects {
    /// The peer answers at once. Its silence makes the connection unresponsive, and the caller sends the message again when
    /// the connection is [lost](Lost).
    Reply,
    /// Nothing. The pool keeps the message through failed connects.
    Nothing,
}

/// Where a message was put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taken {
    /// The connection it goes by.
    pub stream: StreamId,
    /// Whether that connection stands. If it never comes to, the peer has certainly not seen the message.
    pub connected: bool,
}

/// A connection that is no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lost {
    /// Its number.
    pub stream: StreamId,
    /// Where the peer listens, if that was known. `None` for an idle connection that took long to close: that says nothing of
    /// the peer.
    pub peer: Option<SocketAddr>,
    /// Whether it ever stood.
    pub connected: bool,
    /// Whether the peer's kernel refused it: nothing listens there.
    pub refused: bool,
}
