//! The bytes that go out on one connection: messages that wait, the one that is being written, and frames that the kernel
//! has not taken.

use std::collections::VecDeque;

use crate::outbox::Outbox;
use crate::tag::StreamId;
use crate::w3w::machine::Mesh;
use crate::w3w::message::{EntryId, Message};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::w3w) struct WriteQueue {
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

/// The result of writing a part of a message.
pub(in crate::w3w) struct Wrote {
    /// Whether the kernel had taken everything before.
    pub(in crate::w3w) was_idle: bool,
    /// The entry whose whole frame is written.
    pub(in crate::w3w) completed: Option<EntryId>,
}

impl WriteQueue {
    /// Notes written bytes; with them the frame of `entry` ends, if one does.
    pub(in crate::w3w) fn wrote(&mut self, entry: Option<EntryId>, bytes: usize) {
        self.written_bytes += bytes as u64;
        self.writing.push_back((entry, bytes));
        self.unsent_bytes += bytes;
    }

    /// Notes bytes that the kernel took. Returns the entries whose frames it has completely.
    pub(super) fn sent(&mut self, mut bytes: usize) -> Vec<EntryId> {
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

    /// Queues an entry on this connection.
    pub(in crate::w3w) fn enqueue(&mut self, entry: EntryId) {
        self.backlog.push_back(entry);
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

    /// How many bytes may be written now.
    pub(in crate::w3w) fn room(&self, unsent_bytes_max: usize) -> usize {
        unsent_bytes_max.saturating_sub(self.unsent_bytes)
    }

    pub(super) fn is_writing(&self) -> bool {
        !self.writing.is_empty()
    }

    /// Whether no message is partly written, and the kernel has taken everything else.
    pub(super) fn is_idle(&self) -> bool {
        self.writing.is_empty() && self.part.is_none()
    }

    /// Every entry that the kernel has not taken completely.
    pub(in crate::w3w) fn entries(&self) -> impl Iterator<Item = EntryId> + '_ {
        let written = self.writing.iter().filter_map(|(entry, _)| *entry);
        written.chain(self.part.iter().map(|(entry, ..)| *entry)).chain(self.backlog.iter().copied())
    }

    /// The entry whose turn is next.
    pub(in crate::w3w) fn next_entry(&self) -> Option<EntryId> {
        self.backlog.front().copied()
    }

    /// The entries that wait for their turn, the next one first.
    pub(in crate::w3w) fn next_entries(&self) -> impl Iterator<Item = EntryId> + '_ {
        self.backlog.iter().copied()
    }

    /// All bytes that were written to the connection.
    pub(in crate::w3w) fn written_bytes(&self) -> u64 {
        self.written_bytes
    }
}
