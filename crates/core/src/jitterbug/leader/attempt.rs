//! One attempt to pass the token to one candidate: the messages exchanged, and the bytes that the kernel has taken.
//!
//! The commit point is exact (JA-33): the token is passed once the kernel has taken the last byte of TP5 *and* the FIN.
//! Before that a reset undoes the attempt; after that the token is passed, whatever happens.

use core::time::Duration;

use super::super::message::NodeEntry;
use crate::tag::StreamId;
use crate::time::Instant;

/// How many bytes are written at once.
const CHUNK: usize = 64 * 1024;
/// How many written bytes the kernel may not have taken yet.
const WINDOW: usize = 4 * CHUNK;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// TP1 is sent; the answer is awaited.
    Offered,
    /// The rest is being written.
    Handing,
    /// All is written, the FIN behind it.
    Finishing,
}

/// An attempt to pass the token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Attempt {
    stream: StreamId,
    to: NodeEntry,
    deadline: Instant,
    stage: Stage,
    /// TP4 if the candidate requested it, and the first byte of TP5.
    head: Vec<u8>,
    /// How many bytes of head and data are written.
    written: usize,
    /// How many written bytes the kernel has not taken.
    in_flight: usize,
    is_extended: bool,
}

/// The next piece to write.
pub(super) enum Piece<'a> {
    /// The rest of the head, followed by data: one write, so that a small token is one segment.
    Bytes(&'a [u8], &'a [u8]),
    /// Nothing follows: end our direction.
    Fin,
}

impl Attempt {
    /// An attempt whose offer, with this many bytes, has been written.
    pub(super) fn new(stream: StreamId, to: NodeEntry, deadline: Instant, offer_bytes: usize) -> Self {
        Self {
            stream,
            to,
            deadline,
            stage: Stage::Offered,
            head: Vec::new(),
            written: 0,
            in_flight: offer_bytes,
            is_extended: false,
        }
    }

    /// Notes that the candidate accepts: `head` goes before the data.
    pub(super) fn accepted(&mut self, head: Vec<u8>) {
        self.head = head;
        self.stage = Stage::Handing;
    }

    pub(super) fn stream(&self) -> StreamId {
        self.stream
    }

    pub(super) fn to(&self) -> NodeEntry {
        self.to
    }

    pub(super) fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Extends the deadline once, by `interval`, if the timer is later than that. Returns whether it did.
    pub(super) fn extend_late(&mut self, now: Instant, interval: Duration) -> bool {
        let extends = !self.is_extended && now.since(self.deadline) > interval;
        if extends {
            self.is_extended = true;
            self.deadline = now + interval;
        }
        extends
    }

    pub(super) fn is_offered(&self) -> bool {
        self.stage == Stage::Offered
    }

    /// The next piece to write, if the kernel keeps up.
    pub(super) fn piece<'a>(&'a mut self, data: &'a [u8]) -> Option<Piece<'a>> {
        if self.stage != Stage::Handing || self.in_flight >= WINDOW {
            return None;
        }
        let (head, offset) = match self.written.checked_sub(self.head.len()) {
            None => (&self.head[self.written..], 0),
            Some(offset) => (&self.head[..0], offset),
        };
        let head = &head[..head.len().min(CHUNK)];
        let rest = &data[offset..];
        // Data follows once the head is written.
        let room = if self.written + head.len() < self.head.len() { 0 } else { CHUNK - head.len() };
        let rest = &rest[..rest.len().min(room)];
        if head.is_empty() && rest.is_empty() {
            self.stage = Stage::Finishing;
            return Some(Piece::Fin);
        }
        self.written += head.len() + rest.len();
        self.in_flight += head.len() + rest.len();
        Some(Piece::Bytes(head, rest))
    }

    /// Notes that the kernel has taken this many bytes. Returns true if that was all, and the FIN.
    pub(super) fn sent(&mut self, bytes: usize, fin: bool) -> bool {
        self.in_flight = self.in_flight.saturating_sub(bytes);
        fin && self.stage == Stage::Finishing
    }
}
