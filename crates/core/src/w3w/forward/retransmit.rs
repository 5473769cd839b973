//! Retransmission: messages of this node whose receipt is outstanding.
//!
//! The recipient may have had no room, or may have failed before the message was on its disk. A recipient that has the
//! message drops the same bytes as seen (MA-40). They go only to the recipient, since relays would drop them as well.
//!
//! A letter without a receipt is sent again through the relays, with another attempt, so that its bytes differ (CU-18).

use core::time::Duration;

use super::Forward;
use super::queue::{Block, Entry, Progress};
use crate::time::Instant;
use crate::w3w::blocks::Claimed;
use crate::w3w::disk::{Pending, delete_blocks, put_block};
use crate::w3w::env::Low;
use crate::w3w::form::{Form, Letter, read_form, write_form};
use crate::w3w::machine::{OUTBOX, QUEUE};
use crate::w3w::message::{EntryId, Message, SeenKey};
use crate::w3w::nid::{Key, Nid};
use crate::w3w::timers::Timer;

/// The time to the first retransmission; it doubles each time.
const RETRANSMIT_FIRST: Duration = Duration::from_secs(60);

/// The time to the second attempt of a letter; it doubles to [`RESEND_LAST`].
pub(super) const RESEND_FIRST: Duration = Duration::from_secs(600);
const RESEND_LAST: Duration = Duration::from_secs(86_400);

/// When a message is retransmitted, and the interval after that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Retransmit {
    at: Instant,
    interval: Duration,
}

impl Forward {
    /// Keeps a relayed message in the queue if its receipt can still come. Returns whether it does.
    pub(super) fn keep_for_receipt(&mut self, low: &mut Low<'_, '_>, id: EntryId) -> bool {
        // Mandatory messages take precedence over optional ones.
        let is_crowded = self.queue.is_half_full() || low.blocks.is_half_pinned();
        let Some(entry) = self.queue.get_mut(id) else { return false };
        let is_awaited = entry.outbox.is_some_and(|number| low.mailboxes.is_awaited(number));
        if !is_awaited || entry.storage.block != Block::Stored || is_crowded {
            return false;
        }
        let interval = entry.retransmit().map_or(RETRANSMIT_FIRST, |last| last.interval * 2);
        let at = low.now.mono + interval;
        entry.progress = Progress::AwaitingReceipt(Retransmit { at, interval });
        low.env.timers.set_earlier(Timer::Retransmit, at);
        self.unload(low, id);
        true
    }

    /// Notes that the recipient has gone: it gets unconfirmed messages again when it returns.
    pub(in crate::w3w) fn on_recipient_gone(&mut self, nid: Nid) {
        self.queue.reoffer(|entry| entry.envelope.recipient == nid);
        self.queue.forget_sent_to_recipient(nid);
    }

    /// Retransmits messages whose receipt is overdue.
    pub(in crate::w3w) fn retransmit_due(&mut self, low: &mut Low<'_, '_>) {
        let now = low.now.mono;
        let is_due =
            |entry: &Entry| entry.paths.is_idle() && entry.retransmit().is_some_and(|next| next.at <= now);
        let due = self.queue.reoffer(is_due);
        for id in due {
            if let Some(entry) = self.queue.get_mut(id)
                && let Progress::AwaitingReceipt(next) = &mut entry.progress
            {
                // If the recipient is absent this has no effect; its return retransmits the message.
                next.at = now + next.interval;
            }
            self.route(low, id);
        }
        let idle = self.queue.own_entries().filter(|entry| entry.paths.is_idle());
        let next = idle.filter_map(Entry::retransmit).map(|next| next.at).min();
        if let Some(at) = next {
            low.env.timers.set_earlier(Timer::Retransmit, at);
        }
    }

    /// Sends a letter again after `interval`, unless its receipt comes.
    pub(super) fn schedule_resend(&mut self, low: &mut Low<'_, '_>, id: EntryId, interval: Duration) {
        let at = low.now.mono + interval;
        self.resends.set(id, at);
        low.env.timers.set_earlier(Timer::Resend, at);
    }

    /// Sends letters again whose receipt is overdue.
    pub(in crate::w3w) fn resend_due(&mut self, low: &mut Low<'_, '_>) {
        while let Some(id) = self.resends.pop_due(low.now.mono) {
            let Some(entry) = self.queue.get_mut(id) else { continue };
            if !entry.paths.is_placed() && entry.paths.is_idle() {
                // No peer has it, so another attempt would change nothing.
                self.schedule_resend(low, id, RESEND_FIRST);
                continue;
            }
            entry.is_resend_due = true;
            if entry.storage.message.is_some() {
                self.resend(low, id);
            } else {
                self.fetch(low, id);
            }
        }
        if let Some((at, _)) = self.resends.next() {
            low.env.timers.set_earlier(Timer::Resend, at);
        }
    }

    /// Writes a letter with its next attempt. Relays that have seen the last one forward it again.
    pub(super) fn resend(&mut self, low: &mut Low<'_, '_>, id: EntryId) {
        let Some(entry) = self.queue.get_mut(id) else { return };
        entry.is_resend_due = false;
        let Some(message) = &entry.storage.message else { return };
        let Form::Letter(letter) = read_form(message.data()) else { return };
        let attempt = letter.attempt.saturating_add(1);
        let data = write_form(&Form::Letter(Letter { attempt, ..letter }));
        let (key, recipient, number) =
            (Key::of(&data), entry.envelope.recipient, entry.outbox.unwrap_or_default());
        let (old_key, size) = (entry.envelope.key, data.len());
        let doubled = RESEND_FIRST.saturating_mul(1 << u32::from(attempt).min(8)).min(RESEND_LAST);
        self.schedule_resend(low, id, doubled);
        let claimed = low.blocks.claim(&mut low.env.counters, key, size, low.now.mono);
        let Some(Claimed { is_new, evicted }) = claimed else { return };
        let Some(entry) = self.queue.get_mut(id) else { return };
        entry.paths.restart().into_iter().for_each(|stream| low.custody.forget(stream, id));
        entry.upstream.acceptance = 0;
        let seen = SeenKey::new(low.env.own, recipient, key);
        let message = Message::new(low.env.own, recipient, &data);
        let block = message.shared_data();
        self.queue.replace(&mut low.env.memory, id, message, key, seen);
        self.note_seen(low, seen);
        low.blocks.unpin(old_key);
        low.env.counters.letters_resent += 1;
        let Some(record) = self.queue.get(id).map(Entry::record) else { return };
        let sent = low.mailboxes.change_key(number, key);
        let op = low.disk.begin(Pending::Resend { entry: id, key, is_new });
        low.out.batch(op, true, |batch| {
            delete_blocks(&evicted, batch);
            if is_new {
                put_block(key, block.clone(), low.now.wall.as_seconds(), batch);
            }
            batch.put(QUEUE, &id.to_be_bytes(), &record.to_bytes());
            if let Some(sent) = sent {
                batch.put(OUTBOX, &number.to_be_bytes(), &sent.to_bytes());
            }
        });
    }

    /// Handles the store's reply about another attempt. If the disk failed, the letter is sent from memory.
    pub(in crate::w3w) fn on_resent(&mut self, low: &mut Low<'_, '_>, id: EntryId, is_stored: bool) {
        self.queue.set_block(id, if is_stored { Block::Stored } else { Block::MemoryOnly });
        self.route(low, id);
    }
}
