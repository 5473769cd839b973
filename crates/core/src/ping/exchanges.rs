//! The exchanges: pings over streams, own ones and those of others.
//!
//! The prober opens the stream, writes a ping and finishes its direction. The peer reads to that FIN, writes a pong and
//! finishes. A message is complete only at the FIN, so nothing is decided before it. Each side reads at most one byte
//! more than a message has: enough to detect excess bytes.

use core::time::Duration;
use std::collections::BTreeMap;
use std::net::SocketAddr;

use super::message::Message;
use super::wire::{MESSAGE_BYTES, decode};
use crate::tag::StreamId;
use crate::time::Instant;
use crate::wire::DecodeError;

/// How many bytes are read before the FIN: a message, and one byte to detect excess.
pub(super) const CREDIT: usize = MESSAGE_BYTES + 1;

/// The bytes received on a stream so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Received {
    bytes: [u8; CREDIT],
    len: usize,
}

impl Received {
    fn push(&mut self, data: &[u8]) -> Result<(), DecodeError> {
        let room = self.bytes.get_mut(self.len..self.len + data.len()).ok_or(DecodeError::Trailing)?;
        room.copy_from_slice(data);
        self.len += data.len();
        if self.len > MESSAGE_BYTES { Err(DecodeError::Trailing) } else { Ok(()) }
    }

    fn message(&self) -> Result<Message, DecodeError> {
        decode(&self.bytes[..self.len])
    }
}

/// An own ping on its stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Asking {
    pub(super) sequence: u64,
    pub(super) to: SocketAddr,
    received: Received,
}

/// A ping of another node on its stream.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Answering {
    since: Instant,
    received: Received,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Exchanges {
    asking: BTreeMap<StreamId, Asking>,
    /// Drivers number accepted streams upwards, so the first is the oldest.
    answering: BTreeMap<StreamId, Answering>,
    opened: u64,
    timeout: Duration,
}

impl Exchanges {
    pub(super) fn new(timeout: Duration) -> Self {
        Self { asking: BTreeMap::new(), answering: BTreeMap::new(), opened: 0, timeout }
    }

    /// How long an answer over a stream may take.
    pub(super) fn timeout(&self) -> Duration {
        self.timeout
    }

    /// A number for a stream about to be opened.
    pub(super) fn allot(&mut self) -> StreamId {
        self.opened += 1;
        StreamId::opened(self.opened)
    }

    pub(super) fn ask(&mut self, stream: StreamId, sequence: u64, to: SocketAddr) {
        self.asking.insert(stream, Asking { sequence, to, received: Received::default() });
    }

    pub(super) fn accept(&mut self, stream: StreamId, now: Instant) {
        self.answering.insert(stream, Answering { since: now, received: Received::default() });
    }

    /// Takes the next bytes of a stream.
    pub(super) fn push(&mut self, stream: StreamId, data: &[u8]) -> Result<(), DecodeError> {
        let received = match (self.asking.get_mut(&stream), self.answering.get_mut(&stream)) {
            (Some(asking), _) => &mut asking.received,
            (None, Some(answering)) => &mut answering.received,
            (None, None) => return Ok(()),
        };
        received.push(data)
    }

    /// The message that a FIN has completed.
    pub(super) fn message(&self, stream: StreamId) -> Option<Result<Message, DecodeError>> {
        let asking = self.asking.get(&stream).map(|asking| &asking.received);
        let answering = || self.answering.get(&stream).map(|answering| &answering.received);
        asking.or_else(answering).map(Received::message)
    }

    pub(super) fn asking(&self, stream: StreamId) -> Option<&Asking> {
        self.asking.get(&stream)
    }

    /// Forgets a stream. Returns its ping, if it was an own one.
    pub(super) fn remove(&mut self, stream: StreamId) -> Option<Asking> {
        self.answering.remove(&stream);
        self.asking.remove(&stream)
    }

    /// Forgets the oldest stream of another node, if it has timed out.
    pub(super) fn take_expired(&mut self, now: Instant) -> Option<StreamId> {
        if self.deadline()? > now {
            return None;
        }
        self.answering.pop_first().map(|(stream, _)| stream)
    }

    /// When the oldest stream of another node times out. Own ones time out with their probes.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.answering.first_key_value().map(|(_, answering)| answering.since + self.timeout)
    }
}
