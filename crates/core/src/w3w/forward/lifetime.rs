//! The lifetimes of queued messages: how they return after a restart, and how they end.

use super::queue::{Block, Entry, Envelope, Progress, Storage};
use super::{Forward, LIFETIME_MAX, retransmit};
use crate::time::Instant;
use crate::w3w::env::Low;
use crate::w3w::mailboxes::remaining;
use crate::w3w::message::{EntryId, LetterId, SeenKey};
use crate::w3w::records::{SentState, Waiting};

impl Forward {
    /// Inserts an entry that was queued before the restart.
    pub(in crate::w3w) fn load(&mut self, low: &mut Low<'_, '_>, id: EntryId, record: Waiting) {
        let most = if record.letter.is_some() { LIFETIME_MAX } else { low.env.config.expiry };
        let left = remaining(record.until, low.now.wall.as_seconds(), most);
        let until = low.now.mono + left;
        let seen = SeenKey::new(record.sender, record.recipient, record.key);
        self.passed.insert(seen.fingerprint(), low.now.mono, until);
        low.blocks.pin(record.key);
        let Waiting { sender, recipient, key, letter, .. } = record;
        let envelope = Envelope { sender, recipient, key, seen, size: record.size as usize, letter };
        let entry = Entry {
            until,
            until_seconds: record.until,
            outbox: record.outbox,
            storage: Storage { message: None, block: Block::Stored, is_listed: true, is_durable: true },
            // Whether it had left this node before the restart is unknown.
            progress: Progress::Relayed,
            ..Entry::new(envelope)
        };
        let is_letter = entry.is_own_letter();
        self.queue.put(&mut low.env.memory, id, entry);
        if is_letter {
            self.schedule_resend(low, id, retransmit::RESEND_FIRST);
        }
    }

    /// Compares queue and outbox after a restart: the process may have been killed between their last writes. A closed
    /// message leaves the queue. An open letter that is not queued can no longer be sent: it ends as unconfirmed.
    pub(in crate::w3w) fn reconcile(&mut self, low: &mut Low<'_, '_>) {
        let is_over = |entry: &Entry| {
            let line = entry.outbox.and_then(|number| low.mailboxes.sent(number));
            entry.is_own_letter() && line.is_none_or(|line| !line.state.is_open())
        };
        let over: Vec<EntryId> =
            self.queue.iter().filter(|(_, entry)| is_over(entry)).map(|(id, _)| id).collect();
        over.into_iter().for_each(|id| self.drop_entry(low, id));
        for number in low.mailboxes.open_letters() {
            if self.queue.id_of(number).is_none() {
                low.mailboxes.set_state(low.disk, number, SentState::Unconfirmed, low.out);
            }
        }
    }

    /// Forgets seen messages that have expired.
    pub(in crate::w3w) fn expire_seen(&mut self, now: Instant) {
        while self.passed.pop_expired(now).is_some() {}
        while self.retaken.pop_expired(now).is_some() {}
    }

    /// Drops queued messages that have expired. Returns the letters of this node among them, with their numbers in the
    /// outbox.
    pub(in crate::w3w) fn expire(&mut self, low: &mut Low<'_, '_>) -> Vec<(LetterId, u64)> {
        let mut letters = Vec::new();
        while let Some(id) = self.queue.expired(low.now.mono) {
            low.env.counters.expired += 1;
            letters.extend(self.end_own(low, id));
            self.drop_entry(low, id);
        }
        letters
    }

    /// Ends a message of this node; its state says whether it had left. Returns the letter, if it is one.
    pub(super) fn end_own(&mut self, low: &mut Low<'_, '_>, id: EntryId) -> Option<(LetterId, u64)> {
        let entry = self.queue.get(id)?;
        let number = entry.outbox?;
        let is_given = low.mailboxes.state(number) == Some(SentState::Given);
        if entry.progress == Progress::Queued {
            low.mailboxes.set_state(low.disk, number, SentState::Expired, low.out);
        } else if !is_given {
            low.mailboxes.set_state(low.disk, number, SentState::Unconfirmed, low.out);
        }
        entry.envelope.letter.map(|(epoch, letter)| ((entry.envelope.recipient, epoch, letter), number))
    }

    pub(in crate::w3w) fn next_deadline(&self) -> Option<Instant> {
        [self.passed.next_deadline(), self.retaken.next_deadline(), self.queue.deadline()]
            .into_iter()
            .flatten()
            .min()
    }
}
