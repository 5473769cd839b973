//! Letters: messages with numbers between nodes that know them (CU-8 … CU-10).
//!
//! The sender's side allots numbers and knows the open letters. The recipient's side knows the received numbers, so
//! that a letter is in the inbox once, whatever happens on its path. It also owes receipts.

mod received;

use core::time::Duration;
use std::collections::BTreeMap;

use super::form::Receipts;
use super::message::LetterId;
use super::nid::Nid;
use crate::common::Timers;
use crate::rng::Rng;
use crate::time::{Instant, Now};

use received::ReceivedNumbers;
pub(super) use received::{Arrival, Span, single_key};

/// The interval between two receipts to one sender.
const RECEIPT_INTERVAL: Duration = Duration::from_millis(200);
/// The most pairs of sender and epoch (CU-9).
const PAIRS_MAX: usize = 65_536;
/// Letters that arrived in this many seconds before the last one are confirmed again after a restart.
const UNSURE_SECONDS: u64 = 10;
/// The most senders to which a receipt is owed at once.
const OWED_MAX: usize = 4096;

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Letters {
    /// Drawn at each start (CU-8).
    epoch: u64,
    /// Identifies the store of this node; `None` until it is read or drawn.
    mailbox: Option<u64>,
    next: BTreeMap<Nid, u64>,
    /// Open letters of this node and their numbers in the outbox.
    open: BTreeMap<LetterId, u64>,
    received: BTreeMap<(Nid, u64), ReceivedNumbers>,
    /// Receipts that are owed, and when they are sent.
    owed: Timers<(Nid, u64)>,
    /// When the next receipt may go to a sender that got one.
    pauses: Timers<Nid>,
}

impl Letters {
    /// Draws the epoch, and the mailbox unless the store has one; returns a mailbox that must be stored.
    pub(super) fn start(&mut self, rng: &mut Rng) -> Option<u64> {
        self.epoch = rng.next_u64();
        if self.mailbox.is_some() {
            return None;
        }
        self.mailbox = Some(rng.next_u64());
        self.mailbox
    }

    pub(super) fn set_mailbox(&mut self, mailbox: u64) {
        self.mailbox = Some(mailbox);
    }

    /// The next letter to a recipient: epoch, number and the lowest open number.
    pub(super) fn allot(&mut self, to: Nid) -> (u64, u64, u64) {
        let next = self.next.entry(to).or_insert(1);
        let number = *next;
        *next += 1;
        (self.epoch, number, self.least(to, self.epoch).unwrap_or(number))
    }

    /// The lowest open number of an epoch.
    pub(super) fn least(&self, to: Nid, epoch: u64) -> Option<u64> {
        self.open.range((to, epoch, 0)..=(to, epoch, u64::MAX)).next().map(|((.., number), _)| *number)
    }

    /// Notes an open letter.
    pub(super) fn opened(&mut self, letter: LetterId, outbox: u64) {
        self.open.insert(letter, outbox);
    }

    /// Notes a closed letter.
    pub(super) fn closed(&mut self, letter: LetterId) {
        self.open.remove(&letter);
    }

    /// The outbox line of an open letter.
    pub(super) fn outbox_of(&self, letter: LetterId) -> Option<u64> {
        self.open.get(&letter).copied()
    }

    /// The outbox lines of the open letters that a receipt covers.
    pub(super) fn covered(&self, from: Nid, receipts: &Receipts) -> Vec<u64> {
        let of_epoch = (from, receipts.epoch, 0)..=(from, receipts.epoch, u64::MAX);
        let open = self.open.range(of_epoch).filter(|((.., number), _)| receipts.covers(*number));
        open.map(|(_, outbox)| *outbox).collect()
    }

    /// Checks whether a letter is new here. Closes the gaps below `least`.
    pub(super) fn arrived(&mut self, (from, epoch, number): LetterId, least: u64) -> Arrival {
        match self.received.get_mut(&(from, epoch)) {
            Some(numbers) => numbers.arrived(number, least),
            None => Arrival::New,
        }
    }

    /// Notes that a letter is being stored. Returns the keys of evicted records; `None` if there is no room for another
    /// sender.
    pub(super) fn storing(
        &mut self,
        (from, epoch, number): LetterId,
        least: u64,
        now: Instant,
        span: Span,
    ) -> Option<Vec<Vec<u8>>> {
        let is_known = self.received.contains_key(&(from, epoch));
        let evicted = if is_known { Vec::new() } else { self.make_room(now)? };
        self.received.entry((from, epoch)).or_default().storing(number, least, span);
        Some(evicted)
    }

    /// Handles the store's reply about a letter.
    pub(super) fn stored(&mut self, (from, epoch, number): LetterId, is_stored: bool) {
        if let Some(numbers) = self.received.get_mut(&(from, epoch)) {
            numbers.stored(number, is_stored);
        }
    }

    /// Owes a receipt to a sender. Returns when it is due.
    pub(super) fn owe(&mut self, from: Nid, epoch: u64, now: Instant) -> Instant {
        let due = self.pauses.get(from).map_or(now, |until| until.max(now));
        if self.owed.len() < OWED_MAX {
            self.owed.set_earlier((from, epoch), due);
        }
        due
    }

    /// The receipts that are due.
    pub(super) fn take_receipts(&mut self, now: Instant, rng: &mut Rng) -> Vec<(Nid, Receipts)> {
        while self.pauses.pop_due(now).is_some() {}
        let mut receipts = Vec::new();
        while let Some(pair) = self.owed.pop_due(now) {
            let Some(numbers) = self.received.get(&pair) else { continue };
            self.pauses.set(pair.0, now + RECEIPT_INTERVAL);
            let (up_to, ranges) = numbers.ranges();
            let mailbox = self.mailbox.unwrap_or_default();
            let nonce = rng.next_u64();
            receipts.push((pair.0, Receipts { nonce, epoch: pair.1, mailbox, up_to, ranges }));
        }
        receipts
    }

    /// When the next receipt is due.
    pub(super) fn next_receipt(&self) -> Option<Instant> {
        self.owed.next().map(|(at, _)| at)
    }

    /// The single records of a pair that one cumulative record can replace: its key, its value, and their keys.
    pub(super) fn compact(&mut self, from: Nid, epoch: u64) -> Option<received::Compaction> {
        self.received.get_mut(&(from, epoch))?.compact(from, epoch)
    }

    /// Loads a record of the store: a cumulative one, or that of a single letter.
    pub(super) fn load(&mut self, key: &[u8], value: &[u8], now: Now, longest: Duration) {
        let Some((from, epoch, number)) = received::read_key(key) else { return };
        let Some((up_to, rest)) = value.split_first_chunk::<8>() else { return };
        let span = if number.is_some() { value } else { rest };
        let Some(span) = Span::from_bytes(span, now, longest) else { return };
        let numbers = self.received.entry((from, epoch)).or_default();
        numbers.extend(span);
        match number {
            Some(number) => numbers.load_single(number),
            None => numbers.load_up_to(u64::from_be_bytes(*up_to)),
        }
    }

    /// Owes receipts again for the letters that arrived last before the restart, since those receipts may not have been
    /// sent. Receipts of earlier letters were queued before a later letter was synced. Returns whether there are any.
    pub(super) fn owe_again(&mut self, now: Instant) -> bool {
        let last = self.received.values().map(ReceivedNumbers::received_at).max().unwrap_or(0);
        let is_late = |numbers: &ReceivedNumbers| numbers.received_at() + UNSURE_SECONDS >= last;
        let late = self.received.iter().filter(|(_, numbers)| is_late(numbers)).map(|(pair, _)| *pair);
        late.take(OWED_MAX).for_each(|pair| self.owed.set(pair, now));
        !self.owed.is_empty()
    }

    /// Makes room for a pair: evicts the one whose letters expired first (CU-9). Returns the keys of its records.
    fn make_room(&mut self, now: Instant) -> Option<Vec<Vec<u8>>> {
        if self.received.len() < PAIRS_MAX {
            return Some(Vec::new());
        }
        let over = self.received.iter().filter(|(_, numbers)| numbers.until() <= now);
        let pair = over.min_by_key(|(_, numbers)| numbers.until()).map(|(pair, _)| *pair)?;
        self.received.remove(&pair).map(|numbers| numbers.record_keys(pair.0, pair.1))
    }
}
