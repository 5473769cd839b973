//! One connection: its peer, the bytes that come in, and the bytes that go out.

use std::net::{Ipv4Addr, SocketAddrV4};

use bytes::Bytes;

use super::buffer_pool::BufferPool;
use super::frames::Frames;
use super::write_queue::WriteQueue;
use crate::time::Instant;
use crate::w3w::machine::HANDSHAKE;
use crate::w3w::message::{EntryId, Here};
use crate::w3w::nid::Nid;
use crate::w3w::ring::Direction;
use crate::wire::DecodeError;

/// The stage of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::w3w) enum Role {
    /// This node dialled and awaits the HERE of the expected node.
    Dialling {
        /// The expected node and its address.
        expected: Here,
        /// Another address of that node, from a later HERE (MA-24).
        otherwise: Option<SocketAddrV4>,
        /// Whether the stream is established.
        is_connected: bool,
    },
    /// This node accepted and awaits the caller's HERE.
    AwaitingHere,
    /// The peer is in the ring.
    Up {
        /// Its NID.
        nid: Nid,
        /// The address of its listener.
        at: SocketAddrV4,
    },
    /// This node has ended its direction and reads the rest.
    Leaving {
        /// Its former NID.
        nid: Nid,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::w3w) struct Link {
    role: Role,
    direction: Direction,
    /// The address at the other end.
    peer: Ipv4Addr,
    opened: Instant,
    /// Whether it was dialled because the connection before it broke (MA-30).
    is_redial: bool,
    /// When the connection was last probed, because it might be dead.
    probed: Instant,
    reading: Reading,
    writes: WriteQueue,
    /// When the peer counts as stalled, while its kernel has not taken everything (MA-48).
    stalled_at: Option<Instant>,
}

/// The bytes that come in.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Reading {
    frames: Frames,
    /// The memory of the incomplete frame when it was last counted.
    held_bytes: usize,
    malformed: u32,
    /// Credit that is withheld because memory is short.
    withheld_credit: usize,
}

impl Link {
    pub(in crate::w3w) fn new(
        role: Role,
        direction: Direction,
        peer: Ipv4Addr,
        now: Instant,
        body_bytes_max: usize,
        is_redial: bool,
    ) -> Self {
        let frames = Frames::new(body_bytes_max);
        Self {
            role,
            direction,
            peer,
            opened: now,
            is_redial,
            probed: now,
            reading: Reading { frames, held_bytes: 0, malformed: 0, withheld_credit: 0 },
            writes: WriteQueue::default(),
            stalled_at: None,
        }
    }

    pub(in crate::w3w) fn set_role(&mut self, role: Role) {
        self.role = role;
    }

    /// The bytes that go out.
    pub(in crate::w3w) fn writes_mut(&mut self) -> &mut WriteQueue {
        &mut self.writes
    }

    /// Notes bytes that the kernel took; if others are left, it must take some until `stalled_at`. Returns the entries
    /// whose frames it has completely.
    pub(super) fn on_sent(&mut self, bytes: usize, stalled_at: Instant) -> Vec<EntryId> {
        let done = self.writes.sent(bytes);
        self.stalled_at = self.writes.is_writing().then_some(stalled_at);
        done
    }

    /// Notes that bytes were written to an idle connection.
    pub(super) fn watch_stall(&mut self, stalled_at: Instant) {
        self.stalled_at = Some(stalled_at);
    }

    pub(super) fn stalled_at(&self) -> Option<Instant> {
        self.stalled_at
    }

    /// Counts a malformed frame. Returns how many there were.
    pub(in crate::w3w) fn count_malformed(&mut self) -> u32 {
        self.reading.malformed += 1;
        self.reading.malformed
    }

    /// Whether a HERE may be written to test whether the connection is alive; notes the time if so.
    pub(in crate::w3w) fn begin_probe(&mut self, now: Instant) -> bool {
        let may_probe = self.writes.is_idle() && now.since(self.probed) >= HANDSHAKE;
        if may_probe {
            self.probed = now;
        }
        may_probe
    }

    /// Cuts bytes into frames. Returns the complete ones, and an error if a length is over the limit.
    pub(super) fn take_frames(
        &mut self,
        mut data: &[u8],
        pool: &mut BufferPool,
    ) -> (Vec<Bytes>, Result<(), DecodeError>) {
        let mut frames = Vec::new();
        let end = loop {
            match self.reading.frames.take(&mut data, pool) {
                Ok(Some(frame)) => frames.push(frame),
                Ok(None) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        (frames, end)
    }

    /// Notes how much memory the incomplete frame uses; returns the amounts before and after.
    pub(super) fn note_held(&mut self) -> (usize, usize) {
        let after = self.reading.frames.held_bytes();
        (core::mem::replace(&mut self.reading.held_bytes, after), after)
    }

    /// Withholds credit: memory is short.
    pub(super) fn withhold(&mut self, bytes: usize) {
        self.reading.withheld_credit += bytes;
    }

    /// Takes the credit that was withheld.
    pub(super) fn take_withheld(&mut self) -> usize {
        core::mem::take(&mut self.reading.withheld_credit)
    }

    /// Credit that is withheld because memory is short.
    pub(super) fn withheld_credit(&self) -> usize {
        self.reading.withheld_credit
    }

    /// The memory of its incomplete frame.
    pub(in crate::w3w) fn held_bytes(&self) -> usize {
        self.reading.held_bytes
    }

    /// The bytes that go out.
    pub(in crate::w3w) fn writes(&self) -> &WriteQueue {
        &self.writes
    }

    /// The peer in the ring of this connection.
    pub(in crate::w3w) fn nid(&self) -> Option<Nid> {
        if let Role::Up { nid, .. } = self.role { Some(nid) } else { None }
    }

    pub(in crate::w3w) fn role(&self) -> Role {
        self.role
    }

    pub(in crate::w3w) fn direction(&self) -> Direction {
        self.direction
    }

    pub(in crate::w3w) fn peer(&self) -> Ipv4Addr {
        self.peer
    }

    pub(in crate::w3w) fn opened(&self) -> Instant {
        self.opened
    }

    /// Whether it was dialled because the connection before it broke (MA-30).
    pub(in crate::w3w) fn is_redial(&self) -> bool {
        self.is_redial
    }
}
