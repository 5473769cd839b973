//! Verdicts: answers of peers about the messages they were given, and answers of this node about theirs.

use core::time::Duration;

use super::queue::{Block, Entry, Progress};
use super::{Forward, Pending};
use crate::tag::StreamId;
use crate::w3w::env::Low;
use crate::w3w::form::{Verdict, needs_custody};
use crate::w3w::links::Link;
use crate::w3w::machine::QUEUE;
use crate::w3w::message::{EntryId, Message, SeenKey};
use crate::w3w::nid::{Key, Nid};
use crate::w3w::records::SentState;
use crate::w3w::timers::Timer;

/// The longest time that a plain message waits once it was given (CU-17).
const PLAIN_GIVEN: Duration = Duration::from_secs(3600);

impl Forward {
    /// Handles a message that was seen before. A peer that speaks custody gets the verdict that is true now (CU-12).
    pub(in crate::w3w) fn on_duplicate(
        &mut self,
        low: &mut Low<'_, '_>,
        from: Nid,
        message: Message,
        (key, seen): (Key, SeenKey),
    ) {
        if !low.custody.speaks_to(from) || !needs_custody(message.data()) {
            return;
        }
        let Some(id) = self.queue.id_of_seen(seen) else {
            return self.take_again(low, from, message, (key, seen));
        };
        let Some(entry) = self.queue.get_mut(id) else { return };
        if !entry.upstream.awaiting.contains(&from) {
            entry.upstream.awaiting.push(from);
        }
        match entry.storage.block {
            // The peers get their verdict when the store has answered.
            Block::Writing => {}
            Block::Stored if entry.storage.is_durable => self.on_promised(low, id, true),
            Block::Stored => self.sync_record(low, id),
            Block::MemoryOnly => self.on_promised(low, id, false),
        }
    }

    /// Syncs the record of an entry, and with it everything that was written before: its block.
    pub(super) fn sync_record(&mut self, low: &mut Low<'_, '_>, id: EntryId) {
        let Some(record) = self.queue.get(id).map(Entry::record) else { return };
        let op = low.disk.begin(Pending::Promise(id));
        low.out.put(op, QUEUE, &id.to_be_bytes(), &record.to_bytes(), true);
    }

    /// Accepts a message again, once, that this node has seen but no longer holds.
    fn take_again(
        &mut self,
        low: &mut Low<'_, '_>,
        from: Nid,
        message: Message,
        (key, seen): (Key, SeenKey),
    ) {
        if low.env.config.answers_from_memory() {
            low.custody.answer(from, seen, Verdict::Held, low.now.mono);
        } else if self.retaken.insert(seen.fingerprint(), low.now.mono, low.now.mono + low.env.config.expiry)
        {
            self.accept(low, from, message, (key, seen));
        } else {
            low.custody.answer(from, seen, Verdict::Unable, low.now.mono);
        }
        low.env.schedule_custody();
        low.env.schedule_expiry();
    }

    /// Handles the store's reply: the peers that gave an entry get their verdict.
    pub(in crate::w3w) fn on_promised(&mut self, low: &mut Low<'_, '_>, id: EntryId, is_stored: bool) {
        let Some(entry) = self.queue.get_mut(id) else { return };
        let (seen, first) = (entry.envelope.seen, entry.upstream.from);
        let upstreams = core::mem::take(&mut entry.upstream.awaiting);
        let verdict = if is_stored { Verdict::Held } else { Verdict::Full };
        // An answer to an earlier copy no longer counts, unless the peer is the one it came from.
        entry.upstream.acceptance += u32::from(is_stored && upstreams.iter().any(|nid| Some(*nid) != first));
        for nid in upstreams {
            low.custody.answer(nid, seen, verdict, low.now.mono);
        }
        low.env.schedule_custody();
        if is_stored {
            self.queue.promise(id);
        }
    }

    /// Handles a verdict of a peer.
    pub(in crate::w3w) fn on_verdict(
        &mut self,
        low: &mut Low<'_, '_>,
        (stream, nid): (StreamId, Nid),
        seen: SeenKey,
        verdict: Verdict,
    ) {
        let was_overdue = low.custody.is_overdue(stream, low.now.mono);
        let Some(answered) = low.custody.on_verdict(stream, seen, low.now.mono) else { return };
        low.env.schedule_custody();
        if was_overdue && !low.custody.is_overdue(stream, low.now.mono) {
            // The peer answers again: it gets messages that took other paths meanwhile.
            for id in self.queue.ids_to(nid) {
                self.route(low, id);
            }
        }
        let id = answered.entry;
        if let Some(entry) = self.queue.get_mut(id) {
            entry.paths.on_answered(stream);
            match verdict {
                // A node that keeps the entry in any case answers `held`.
                Verdict::Held
                    if answered.acceptance != entry.upstream.acceptance
                        && !entry.in_custody
                        && !entry.is_own_letter() =>
                {
                    entry.paths.forget(nid);
                    self.route(low, id);
                }
                Verdict::Held => self.on_placed(low, id, nid, false),
                Verdict::Delivered => self.on_placed(low, id, nid, true),
                Verdict::Full | Verdict::Unable => self.on_refused(low, id, nid, verdict == Verdict::Full),
            }
        }
        self.pump(low, stream);
        low.release_credit();
    }

    /// Handles `held` or `delivered` of a peer.
    fn on_placed(&mut self, low: &mut Low<'_, '_>, id: EntryId, nid: Nid, is_delivered: bool) {
        let Some(entry) = self.queue.get_mut(id) else { return };
        entry.paths.on_placed();
        if entry.is_own_letter() && !low.env.config.drops_when_held() {
            let number = entry.outbox.unwrap_or_default();
            low.mailboxes.add_custodian(low.disk, number, nid, low.out);
            if entry.paths.is_idle() {
                self.unload(low, id);
            }
            return;
        }
        let (outbox, is_idle, in_custody) = (entry.outbox, entry.paths.is_idle(), entry.in_custody);
        leave_waiting(low, outbox);
        if is_delivered || (is_idle && !in_custody) {
            self.finish(low, id);
        } else if is_idle {
            self.unload(low, id);
        }
    }

    /// Handles a refusal of a peer: another one is tried now, and this one later.
    fn on_refused(&mut self, low: &mut Low<'_, '_>, id: EntryId, nid: Nid, is_full: bool) {
        let Some(entry) = self.queue.get_mut(id) else { return };
        let at = low.now.mono + entry.paths.on_refused(nid);
        self.retries.set_earlier(id, at);
        low.env.timers.set_earlier(Timer::Retry, at);
        if is_full {
            low.env.counters.peers_full += 1;
        }
        self.route(low, id);
        if self.queue.get(id).is_some_and(|entry| entry.paths.is_idle()) {
            self.unload(low, id);
        }
    }

    /// Tries refused messages again.
    pub(in crate::w3w) fn retry_due(&mut self, low: &mut Low<'_, '_>) {
        while let Some(id) = self.retries.pop_due(low.now.mono) {
            if let Some(entry) = self.queue.get_mut(id) {
                entry.paths.retry_refused();
                self.route(low, id);
            }
        }
        if let Some((at, _)) = self.retries.next() {
            low.env.timers.set_earlier(Timer::Retry, at);
        }
    }

    /// Handles acknowledgements of a foreign peer's kernel (CU-16, CU-21).
    pub(in crate::w3w) fn on_confirmed(&mut self, low: &mut Low<'_, '_>, stream: StreamId, bytes: usize) {
        for id in low.custody.on_confirmed(stream, bytes, low.now.mono) {
            if let Some(entry) = self.queue.get(id)
                && let Some(number) = entry.outbox
            {
                let state =
                    if entry.envelope.letter.is_some() { SentState::UnderWay } else { SentState::Given };
                low.mailboxes.leave_waiting(low.disk, number, state, low.out);
            }
        }
        low.env.schedule_custody();
    }

    /// Handles a foreign peer that kept its connection long enough after it had a message.
    pub(in crate::w3w) fn on_released(&mut self, low: &mut Low<'_, '_>, stream: StreamId, id: EntryId) {
        let nid = low.links.get(stream).and_then(Link::nid);
        let Some(entry) = self.queue.get_mut(id) else { return };
        entry.paths.on_released(stream);
        if entry.is_own_letter() {
            let number = entry.outbox.unwrap_or_default();
            return low.mailboxes.leave_waiting(low.disk, number, SentState::UnderWay, low.out);
        }
        let is_over = nid == Some(entry.envelope.recipient) || (entry.paths.is_idle() && !entry.in_custody);
        leave_waiting(low, entry.outbox);
        if is_over {
            self.finish(low, id);
        }
    }

    /// Removes a message for which this node is no longer responsible; it is no letter of its own.
    pub(super) fn finish(&mut self, low: &mut Low<'_, '_>, id: EntryId) {
        leave_waiting(low, self.queue.get(id).and_then(|entry| entry.outbox));
        if !self.keep_for_receipt(low, id) {
            self.drop_entry(low, id);
        }
    }

    /// Notes that the own kernel has taken the frame of a message: its peer must answer.
    pub(super) fn on_given(&mut self, low: &mut Low<'_, '_>, stream: StreamId, id: EntryId) {
        low.custody.on_sent(stream, id, low.now.mono);
        low.env.schedule_custody();
        let Some(entry) = self.queue.get_mut(id) else { return };
        if !entry.paths.on_given(stream, low.now.mono) {
            return;
        }
        if entry.envelope.letter.is_none() {
            // CU-17: with two holders and foreign memories of an hour it could be delivered twice.
            let until = low.now.mono + PLAIN_GIVEN;
            if until < entry.until {
                self.queue.shorten(id, until);
                low.env.schedule_expiry();
            }
        }
        if self.queue.get(id).is_some_and(|entry| entry.paths.targets().is_empty()) {
            self.unload(low, id);
        }
    }

    /// Notes that the message is being written: from now on it may have left this node.
    pub(super) fn on_writing(&mut self, id: EntryId) {
        if let Some(entry) = self.queue.get_mut(id)
            && entry.progress == Progress::Queued
        {
            entry.progress = Progress::Relayed;
        }
    }
}

/// Notes that a peer has a plain message of this node, also if this node keeps its copy (CU-23).
fn leave_waiting(low: &mut Low<'_, '_>, outbox: Option<u64>) {
    if let Some(number) = outbox {
        low.mailboxes.leave_waiting(low.disk, number, SentState::Given, low.out);
    }
}
