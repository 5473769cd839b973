//! Writing queued messages to connections.

use super::Forward;
use super::queue::{Entry, Progress};
use crate::tag::StreamId;
use crate::w3w::env::Low;
use crate::w3w::form::needs_custody;
use crate::w3w::links::{Link, Role};
use crate::w3w::message::EntryId;
use crate::w3w::nid::Nid;
use crate::w3w::records::SentState;

/// How many of the next messages of a connection are read from the store at once, and their bytes: a read waits for the sync
/// of the writes before it. One is always read.
const FETCH_AHEAD: usize = 16;
const FETCH_BYTES: usize = 1 << 20;

impl Forward {
    /// Writes queued messages to a connection, as long as it takes more.
    pub(in crate::w3w) fn pump(&mut self, low: &mut Low<'_, '_>, stream: StreamId) {
        while let Some(writes) = low.links.get_mut(stream).map(Link::writes_mut) {
            let room = writes.room(low.env.config.unsent_bytes_max);
            if room == 0 {
                return self.queue.shed(&mut low.env.memory, low.env.config.memory_bytes_max);
            }
            if let Some(wrote) = writes.write_part(stream, room, low.out) {
                if let Some(id) = wrote.completed {
                    low.env.counters.messages_written += 1;
                    low.custody.written(stream, id, writes.written_bytes());
                }
                if wrote.was_idle {
                    low.links.watch_stall(low.env, low.now, stream);
                }
                continue;
            }
            if writes.write_control(stream, low.out) {
                continue;
            }
            let Some(id) = writes.next_entry() else { return };
            match self.queue.get(id).map(|entry| (entry, &entry.storage.message)) {
                None => writes.skip_entry(),
                Some((Entry { envelope, .. }, None))
                    if envelope.letter.is_some() && !low.custody.may_give(stream, envelope.size) =>
                {
                    return;
                }
                Some((_, None)) => {
                    let next: Vec<EntryId> = writes.next_entries().take(FETCH_AHEAD).collect();
                    return self.fetch_some(low, &next);
                }
                Some((entry, Some(message))) => {
                    let bytes = message.frame.len();
                    if needs_custody(message.data()) {
                        if !low.custody.may_give(stream, bytes) {
                            return;
                        }
                        low.custody.give(
                            stream,
                            id,
                            entry.envelope.seen,
                            bytes,
                            entry.upstream.acceptance,
                            low.now.mono,
                        );
                        low.env.schedule_custody();
                    }
                    writes.begin_message(message.clone());
                    self.on_writing(id);
                }
            }
        }
    }

    /// Reads the next messages of a connection, as many as their bytes allow.
    fn fetch_some(&mut self, low: &mut Low<'_, '_>, next: &[EntryId]) {
        let mut bytes = 0;
        for id in next {
            bytes += self.queue.get(*id).map_or(0, |entry| entry.envelope.size);
            if bytes > FETCH_BYTES && Some(id) != next.first() {
                return;
            }
            self.fetch(low, *id);
        }
    }

    /// Writes a frame of custody after the message that is being written.
    pub(in crate::w3w) fn write_control(&mut self, low: &mut Low<'_, '_>, stream: StreamId, frame: Vec<u8>) {
        if let Some(link) = low.links.get_mut(stream).filter(|link| link.nid().is_some()) {
            link.writes_mut().push_control(frame);
            self.pump(low, stream);
        }
    }

    /// Writes the verdicts that are due.
    pub(in crate::w3w) fn write_verdicts(&mut self, low: &mut Low<'_, '_>) {
        for (stream, frame) in low.custody.take_verdicts(low.env.own, low.now.mono) {
            self.write_control(low, stream, frame);
        }
        low.env.schedule_custody();
    }

    /// Handles bytes that the kernel has taken.
    pub(in crate::w3w) fn on_sent(&mut self, low: &mut Low<'_, '_>, stream: StreamId, bytes: usize) {
        let Some(link) = low.links.get(stream) else { return };
        let to = match link.role() {
            Role::Up { nid, .. } | Role::Leaving { nid } => Some(nid),
            _ => None,
        };
        for id in low.links.on_sent(low.env, low.now, stream, bytes) {
            if low.custody.is_given(stream, id) && !low.env.config.trusts_kernel() {
                self.on_given(low, stream, id);
            } else {
                self.on_relayed(low, stream, id, to);
            }
        }
        self.pump(low, stream);
        low.release_credit();
    }

    /// SEND 3 (M-50): a connection has taken a message that needs no custody.
    fn on_relayed(&mut self, low: &mut Low<'_, '_>, stream: StreamId, id: EntryId, to: Option<Nid>) {
        let Some(entry) = self.queue.get_mut(id) else { return };
        if !entry.paths.on_taken(stream) {
            return;
        }
        let (outbox, is_idle) = (entry.outbox, entry.paths.is_idle());
        let is_over = to == Some(entry.envelope.recipient) || (!entry.in_custody && is_idle);
        if entry.progress == Progress::Queued {
            entry.progress = Progress::Relayed;
        }
        if let Some(number) = outbox {
            low.mailboxes.leave_waiting(low.disk, number, SentState::Given, low.out);
        }
        if is_over && !self.keep_for_receipt(low, id) {
            self.drop_entry(low, id);
        } else if is_idle {
            self.unload(low, id);
        }
    }
}
