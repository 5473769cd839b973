//! One connection: its peer, the frame that is being read, the frames that the kernel has not taken.

use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddrV4};

use bytes::Bytes;

use super::buffer_pool::BufferPool;
use super::frames::Frames;
use crate::outbox::Outbox;
use crate::tag::StreamId;
use crate::time::Instant;
use crate::w3w::machine::{HANDSHAKE, Mesh};
use crate::w3w::message::{EntryId, Here, Message};
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
    frames: Frames,
    /// The memory of its incomplete frame when it was last counted.
    held_bytes: usize,
    malformed: u32,
    /// When the connection was last probed, because it might be dead.
    probed: Instant,
    /// Credit that is withheld because memory is short.
    pub(super) withheld_credit: usize,
    /// Frames written and not taken by the kernel yet: the entry, and the bytes left.
    writing: VecDeque<(Option<EntryId>, usize)>,
    unsent_bytes: usize,
    /// The message that is partly written, and how many bytes of its frame are.
    part: Option<(EntryId, Message, usize)>,
    /// Frames of custody that are written before the next message.
    control: VecDeque<Vec<u8>>,
    written_bytes: u64,
    /// Entries that wait for their turn.
    backlog: VecDeque<EntryId>,
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
        Self {
            role,
            direction,
            peer,
            opened: now,
            is_redial,
            frames: Frames::new(body_bytes_max),
            held_bytes: 0,
            malformed: 0,
            probed: now,
            withheld_credit: 0,
            writing: VecDeque::new(),
            unsent_bytes: 0,
            part: None,
            control: VecDeque::new(),
            written_bytes: 0,
            backlog: VecDeque::new(),
        }
    }

    /// The peer in the ring of this connection.
    pub(in crate::w3w) fn nid(&self) -> Option<Nid> {
        if let Role::Up { nid, .. } = self.role { Some(nid) } else { None }
    }

    /// The memory of its incomplete frame.
    pub(in crate::w3w) fn held_bytes(&self) -> usize {
        self.held_bytes
    }

    /// How many bytes may be written now.
    pub(in crate::w3w) fn room(&self, unsent_bytes_max: usize) -> usize {
        unsent_bytes_max.saturating_sub(self.unsent_bytes)
    }

    /// Notes written bytes; with them the frame of `entry` ends, if one does.
    pub(in crate::w3w) fn wrote(&mut self, entry: Option<EntryId>, bytes: usize) {
        self.written_bytes += bytes as u64;
        self.writing.push_back((entry, bytes));
        self.unsent_bytes += bytes;
    }

    /// Notes bytes that the kernel took. Returns the entries whose frames it has completely.
    pub(in crate::w3w) fn sent(&mut self, mut bytes: usize) -> Vec<EntryId> {
        let mut done = Vec::new();
        self.unsent_bytes = self.unsent_bytes.saturating_sub(bytes);
        while let Some((entry, left)) = self.writing.front_mut() {
            if *left > bytes {
                *left -= bytes;
                break;
            }
            bytes -= *left;
            done.extend(*entry);
            self.writing.pop_front();
        }
        done
    }

    pub(in crate::w3w) fn is_writing(&self) -> bool {
        !self.writing.is_empty()
    }

    /// Every entry that the kernel has not taken completely.
    pub(in crate::w3w) fn entries(&self) -> impl Iterator<Item = EntryId> + '_ {
        let written = self.writing.iter().filter_map(|(entry, _)| *entry);
        written.chain(self.part.iter().map(|(entry, ..)| *entry)).chain(self.backlog.iter().copied())
    }

    pub(in crate::w3w) fn role(&self) -> Role {
        self.role
    }

    pub(in crate::w3w) fn set_role(&mut self, role: Role) {
        self.role = role;
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

    /// Counts a malformed frame. Returns how many there were.
    pub(in crate::w3w) fn count_malformed(&mut self) -> u32 {
        self.malformed += 1;
        self.malformed
    }

    /// Whether a HERE may be written to test whether the connection is alive; notes the time if so.
    pub(in crate::w3w) fn begin_probe(&mut self, now: Instant) -> bool {
        let may_probe = !self.is_writing() && self.part.is_none() && now.since(self.probed) >= HANDSHAKE;
        if may_probe {
            self.probed = now;
        }
        may_probe
    }

    /// Queues an entry on this connection.
    pub(in crate::w3w) fn enqueue(&mut self, entry: EntryId) {
        self.backlog.push_back(entry);
    }

    /// The entry whose turn is next.
    pub(in crate::w3w) fn next_entry(&self) -> Option<EntryId> {
        self.backlog.front().copied()
    }

    /// Skips the next entry: it is gone.
    pub(in crate::w3w) fn skip_entry(&mut self) {
        self.backlog.pop_front();
    }

    /// Begins to write the message of the next entry.
    pub(in crate::w3w) fn begin_message(&mut self, message: Message) {
        if let Some(entry) = self.backlog.pop_front() {
            self.part = Some((entry, message, 0));
        }
    }

    /// Writes at most `room` bytes of the message under way; `None` if there is no such message.
    pub(in crate::w3w) fn write_part(
        &mut self,
        stream: StreamId,
        room: usize,
        out: &mut Outbox<'_, Mesh>,
    ) -> Option<Wrote> {
        let (entry, message, written) = self.part.take()?;
        let was_idle = !self.is_writing();
        let frame_bytes = message.frame.len();
        let until = frame_bytes.min(written + room);
        out.write_shared(stream, message.frame.slice(written..until));
        let is_complete = until == frame_bytes;
        self.wrote(is_complete.then_some(entry), until - written);
        if !is_complete {
            self.part = Some((entry, message, until));
        }
        Some(Wrote { was_idle, completed: is_complete.then_some(entry) })
    }

    /// All bytes that were written to the connection.
    pub(in crate::w3w) fn written_bytes(&self) -> u64 {
        self.written_bytes
    }

    pub(in crate::w3w) fn push_control(&mut self, frame: Vec<u8>) {
        self.control.push_back(frame);
    }

    /// Writes a frame of custody; false if there is none.
    pub(in crate::w3w) fn write_control(&mut self, stream: StreamId, out: &mut Outbox<'_, Mesh>) -> bool {
        let Some(frame) = self.control.pop_front() else { return false };
        self.wrote(None, frame.len());
        out.write(stream, &frame);
        true
    }

    /// Takes the entries that were not completely written.
    pub(in crate::w3w) fn take_unwritten(&mut self) -> Vec<EntryId> {
        let mut waiting: Vec<_> = self.backlog.drain(..).collect();
        // The peer drops an incomplete frame.
        waiting.extend(self.part.take().map(|(entry, ..)| entry));
        waiting
    }

    /// Cuts bytes into frames. Returns the complete ones, and an error if a length is over the limit.
    pub(super) fn take_frames(
        &mut self,
        mut data: &[u8],
        pool: &mut BufferPool,
    ) -> (Vec<Bytes>, Result<(), DecodeError>) {
        let mut frames = Vec::new();
        let end = loop {
            match self.frames.take(&mut data, pool) {
                Ok(Some(frame)) => frames.push(frame),
                Ok(None) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        (frames, end)
    }

    /// Notes how much memory the incomplete frame uses; returns the amounts before and after.
    pub(super) fn note_held(&mut self) -> (usize, usize) {
        let before = core::mem::replace(&mut self.held_bytes, self.frames.held_bytes());
        (before, self.held_bytes)
    }
}

/// The result of writing a part of a message.
pub(in crate::w3w) struct Wrote {
    /// Whether the kernel had taken everything before.
    pub(in crate::w3w) was_idle: bool,
    /// The entry whose whole frame is written.
    pub(in crate::w3w) completed: Option<EntryId>,
}
