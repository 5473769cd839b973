//! One connection: what waits to be written, and how much of it the kernel has.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};

use super::frame::{CHUNK_BYTES, HEADER_BYTES, Kind, Reader, header};
use crate::machine::Machine;
use crate::outbox::Outbox;
use crate::tag::StreamId;
use crate::time::Instant;
use crate::wire::DecodeError;

/// How far we write ahead of the kernel. What is written can no longer be overtaken, so it is kept short.
const AHEAD_BYTES: usize = 4 * CHUNK_BYTES;
/// How much a peer may send before more is granted.
pub(super) const CREDIT_BYTES: usize = 4 * CHUNK_BYTES;

/// How far a connection has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Asked for, not there yet.
    Connecting,
    /// It stands, but the peer has not said who it is.
    Silent,
    /// In use.
    Open,
    /// One side has finished: nothing new is written.
    Closing,
}

/// A connection and its queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Connection<L> {
    pub(super) stream: StreamId,
    pub(super) stage: Stage,
    /// Where the peer listens; of an accepted connection it is known once the peer has greeted, if it came from there.
    pub(super) peer: Option<SocketAddr>,
    /// Whence it came, if the peer opened it.
    pub(super) from: Option<IpAddr>,
    /// What the peer's greeting said.
    pub(super) label: Option<L>,
    /// When it was last of use.
    pub(super) used: Instant,
    reader: Reader,
    /// Messages of one frame: they go first.
    small: VecDeque<Vec<u8>>,
    /// Larger ones, the first of them written up to `large_at`.
    large: VecDeque<Vec<u8>>,
    large_at: usize,
    queued_bytes: usize,
    /// Written, but not reported as taken.
    ahead_bytes: usize,
    /// Granted, but not received.
    credit_bytes: usize,
    /// Whether our direction was ended.
    fin: bool,
}

impl<L> Connection<L> {
    pub(super) fn new(stream: StreamId, stage: Stage, peer: Option<SocketAddr>, now: Instant) -> Self {
        Self {
            stream,
            stage,
            peer,
            from: None,
            label: None,
            used: now,
            reader: Reader::default(),
            small: VecDeque::new(),
            large: VecDeque::new(),
            large_at: 0,
            queued_bytes: 0,
            ahead_bytes: 0,
            credit_bytes: CREDIT_BYTES,
            fin: false,
        }
    }

    /// Writes a message if nothing is in its way, else queues it.
    pub(super) fn send<M: Machine>(&mut self, message: &[u8], out: &mut Outbox<'_, M>) {
        self.queued_bytes += message.len();
        if message.len() <= CHUNK_BYTES && self.small.is_empty() && self.ahead_bytes < AHEAD_BYTES {
            return self.write(Kind::Whole, message, out);
        }
        if message.len() <= CHUNK_BYTES {
            self.small.push_back(message.to_vec());
        } else {
            self.large.push_back(message.to_vec());
        }
        self.pump(out);
    }

    /// Ends our direction behind what waits; how much of that was written by it.
    pub(super) fn finish<M: Machine>(&mut self, now: Instant, out: &mut Outbox<'_, M>) -> usize {
        self.stage = Stage::Closing;
        self.used = now;
        let before = self.queued_bytes;
        self.pump(out);
        before - self.queued_bytes
    }

    /// The kernel took `bytes`.
    pub(super) fn sent<M: Machine>(&mut self, bytes: usize, out: &mut Outbox<'_, M>) {
        self.ahead_bytes = self.ahead_bytes.saturating_sub(bytes);
        self.pump(out);
    }

    /// Takes in bytes, grants as many again once half of the credit is used, and gives the messages completed.
    pub(super) fn received<'a, M: Machine>(
        &mut self,
        data: &'a [u8],
        message_bytes_max: usize,
        out: &mut Outbox<'_, M>,
    ) -> Result<Vec<Cow<'a, [u8]>>, DecodeError> {
        let mut messages = Vec::new();
        self.reader.push(data, message_bytes_max, &mut messages)?;
        self.credit_bytes = self.credit_bytes.saturating_sub(data.len());
        if self.credit_bytes <= CREDIT_BYTES / 2 {
            out.read(self.stream, CREDIT_BYTES - self.credit_bytes);
            self.credit_bytes = CREDIT_BYTES;
        }
        Ok(messages)
    }

    /// Bytes that wait to be written.
    pub(super) fn queued_bytes(&self) -> usize {
        self.queued_bytes
    }

    /// The memory of a large message whose end has not come yet.
    pub(super) fn unfinished_bytes(&self) -> usize {
        self.reader.unfinished_bytes()
    }

    /// Whether nothing of ours is under way.
    pub(super) fn is_quiet(&self) -> bool {
        self.queued_bytes == 0 && self.ahead_bytes == 0
    }

    /// Whether the peer may end the stream here.
    pub(super) fn is_between_messages(&self) -> bool {
        self.reader.is_between_messages()
    }

    /// Writes as far ahead as is allowed: small messages first, then one chunk of the large one, and again.
    fn pump<M: Machine>(&mut self, out: &mut Outbox<'_, M>) {
        while self.ahead_bytes < AHEAD_BYTES {
            if let Some(message) = self.small.pop_front() {
                self.write(Kind::Whole, &message, out);
                continue;
            }
            let Some(message) = self.large.pop_front() else { break };
            let rest = &message[self.large_at..];
            if rest.len() > CHUNK_BYTES {
                self.write(Kind::Part, &rest[..CHUNK_BYTES], out);
                self.large_at += CHUNK_BYTES;
                self.large.push_front(message);
            } else {
                self.write(Kind::Last, rest, out);
                self.large_at = 0;
            }
        }
        if self.stage == Stage::Closing && self.queued_bytes == 0 && !self.fin {
            self.fin = true;
            out.finish(self.stream);
        }
    }

    fn write<M: Machine>(&mut self, kind: Kind, payload: &[u8], out: &mut Outbox<'_, M>) {
        let bytes = HEADER_BYTES + payload.len();
        out.write_with(self.stream, bytes, |writer| {
            writer.bytes(&header(kind, payload.len()));
            writer.bytes(payload);
        })
        .expect("a frame has its length");
        self.queued_bytes -= payload.len();
        self.ahead_bytes += bytes;
    }
}
