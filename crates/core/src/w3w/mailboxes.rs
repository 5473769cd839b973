//! Inbox and outbox: messages for this node and messages from it.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use super::disk::{Disk, Pending};
use super::machine::{Mesh, OUTBOX};
use super::nid::{Key, Nid};
use super::records::{Received, Sent, SentState};
use crate::common::Timers;
use crate::outbox::Outbox;
use crate::time::{Instant, Now};

/// The entry of a message in the outbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Listing {
    pub(super) wants_receipt: bool,
    pub(super) is_file: bool,
    /// The size shown to the user: for a file, that of the whole file.
    pub(super) size: u64,
    /// Epoch and number of a letter.
    pub(super) letter: Option<(u64, u64)>,
    pub(super) lifetime: Duration,
}

/// Inbox and outbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mailboxes {
    inbox: BTreeMap<u64, Received>,
    outbox: BTreeMap<u64, Sent>,
    /// The files in the inbox.
    files: BTreeSet<(Key, u64)>,
    /// Messages of this node that requested a receipt.
    asked: BTreeSet<(Nid, Key, u64)>,
    /// Those whose receipt has not come, with its deadline.
    awaited: Timers<u64>,
    /// Those whose receipt is being written: their state does not change meanwhile.
    confirming: BTreeSet<u64>,
    /// Lines of the outbox with a final state.
    closed: BTreeSet<u64>,
    lines_max: usize,
    next_in: u64,
    next_out: u64,
}

impl Mailboxes {
    pub(super) fn new(lines_max: usize) -> Self {
        Self {
            inbox: BTreeMap::new(),
            outbox: BTreeMap::new(),
            files: BTreeSet::new(),
            asked: BTreeSet::new(),
            awaited: Timers::default(),
            confirming: BTreeSet::new(),
            closed: BTreeSet::new(),
            lines_max,
            next_in: 0,
            next_out: 0,
        }
    }

    /// A number for a line of the inbox; the line is inserted once it is on disk.
    pub(super) fn allot_in(&mut self) -> u64 {
        self.next_in += 1;
        self.next_in - 1
    }

    pub(super) fn allot_out(&mut self) -> u64 {
        self.next_out += 1;
        self.next_out - 1
    }

    /// Inserts a line into the inbox.
    pub(super) fn insert_inbox(&mut self, line: Received) {
        self.next_in = self.next_in.max(line.number + 1);
        if line.is_file {
            self.files.insert((line.key, line.number));
        }
        self.inbox.insert(line.number, line);
    }

    /// Inserts a line into the outbox. Returns the evicted line, if there is one.
    pub(super) fn insert_outbox(&mut self, line: Sent, until: Instant) -> Option<Sent> {
        self.next_out = self.next_out.max(line.number + 1);
        self.outbox.insert(line.number, line);
        self.note_closed(&line);
        let is_open = matches!(line.state, SentState::Waiting | SentState::Given);
        if line.wants_receipt && is_open {
            self.awaited.set(line.number, until);
        }
        if line.wants_receipt {
            self.asked.insert((line.to, line.key, line.number));
        }
        // An open line is never evicted for a new one.
        let &oldest = self.closed.first()?;
        if self.outbox.len() > self.lines_max { self.remove_out(oldest) } else { None }
    }

    pub(super) fn remove_in(&mut self, number: u64) -> Option<Received> {
        let line = self.inbox.remove(&number)?;
        self.files.remove(&(line.key, number));
        Some(line)
    }

    pub(super) fn remove_out(&mut self, number: u64) -> Option<Sent> {
        self.awaited.cancel(number);
        self.confirming.remove(&number);
        let line = self.outbox.remove(&number)?;
        self.closed.remove(&number);
        self.asked.remove(&(line.to, line.key, number));
        Some(line)
    }

    /// Changes the state of a message of this node. Returns the line if the state is new. `Delivered` is final.
    pub(super) fn note_state(&mut self, number: u64, state: SentState) -> Option<Sent> {
        let line = self.outbox.get_mut(&number)?;
        let is_final = matches!(line.state, SentState::Delivered | SentState::Refused);
        let is_settled = is_final || self.confirming.contains(&number);
        if line.state == state || is_settled {
            return None;
        }
        line.state = state;
        let line = *line;
        if !matches!(state, SentState::Waiting | SentState::UnderWay | SentState::Given) {
            self.awaited.cancel(number);
        }
        self.note_closed(&line);
        Some(line)
    }

    /// Records the state of a message of this node; returns the line if the state is new.
    pub(super) fn set_state(
        &mut self,
        disk: &mut Disk,
        number: u64,
        state: SentState,
        out: &mut Outbox<'_, Mesh>,
    ) -> Option<Sent> {
        let line = self.note_state(number, state)?;
        let op = disk.begin(Pending::Other);
        out.put(op, OUTBOX, &number.to_be_bytes(), &line.to_bytes(), state == SentState::Delivered);
        out.event(line.state_changed());
        Some(line)
    }

    /// A new line of the outbox.
    pub(super) fn new_sent(&mut self, now: Now, to: Nid, key: Key, listing: Listing) -> Sent {
        Sent {
            number: self.allot_out(),
            to,
            key,
            size: listing.size,
            sent_at: now.wall.as_seconds(),
            wants_receipt: listing.wants_receipt,
            is_file: listing.is_file,
            state: SentState::Waiting,
            until: now.wall.as_seconds() + listing.lifetime.as_secs(),
            letter: listing.letter,
            delivered_at: None,
            custodians: [None; 2],
            refusal: None,
            why: None,
        }
    }

    /// Changes a line of the outbox and writes it. Returns the line if something changed. A line whose receipt is being
    /// written stays unchanged: the older state would replace the receipt on disk.
    pub(super) fn update(
        &mut self,
        disk: &mut Disk,
        number: u64,
        change: impl FnOnce(&mut Sent),
        out: &mut Outbox<'_, Mesh>,
    ) -> Option<Sent> {
        let line = self.outbox.get_mut(&number)?;
        let before = *line;
        change(line);
        let line = *line;
        if line == before || self.confirming.contains(&number) {
            return None;
        }
        let op = disk.begin(Pending::Other);
        out.put(op, OUTBOX, &number.to_be_bytes(), &line.to_bytes(), false);
        Some(line)
    }

    /// A peer holds a letter of this node: the line has the last two, and the letter is under way.
    pub(super) fn add_custodian(
        &mut self,
        disk: &mut Disk,
        number: u64,
        nid: Nid,
        out: &mut Outbox<'_, Mesh>,
    ) {
        let is_waiting = self.state(number) == Some(SentState::Waiting);
        let changed = self.update(
            disk,
            number,
            |line| {
                if !line.custodians.contains(&Some(nid)) {
                    line.custodians = [Some(nid), line.custodians[0]];
                }
                if is_waiting {
                    line.state = SentState::UnderWay;
                }
            },
            out,
        );
        if let Some(line) = changed.filter(|_| is_waiting) {
            out.event(line.state_changed());
        }
    }

    /// A message has left this node: its state changes unless more is known already.
    pub(super) fn leave_waiting(
        &mut self,
        disk: &mut Disk,
        number: u64,
        state: SentState,
        out: &mut Outbox<'_, Mesh>,
    ) {
        if self.state(number) == Some(SentState::Waiting) {
            self.set_state(disk, number, state, out);
        }
    }

    /// Changes the key of a letter that is sent again with other bytes. Returns the line to write, unless its receipt
    /// is being written.
    pub(super) fn change_key(&mut self, number: u64, key: Key) -> Option<Sent> {
        let is_confirming = self.confirming.contains(&number);
        let line = self.outbox.get_mut(&number)?;
        if self.asked.remove(&(line.to, line.key, number)) {
            self.asked.insert((line.to, key, number));
        }
        line.key = key;
        (!is_confirming).then_some(*line)
    }

    /// The open letters of the outbox.
    pub(super) fn open_letters(&self) -> Vec<u64> {
        let is_open = |line: &&Sent| line.letter.is_some() && line.state.is_open();
        self.outbox.values().filter(is_open).map(|line| line.number).collect()
    }

    /// A line of the outbox.
    pub(super) fn sent(&self, number: u64) -> Option<&Sent> {
        self.outbox.get(&number)
    }

    /// Whether the inbox is full: no line is evicted for a new one.
    pub(super) fn is_inbox_full(&self) -> bool {
        self.inbox.len() >= self.lines_max
    }

    /// Whether the outbox is full of open lines.
    pub(super) fn is_outbox_full(&self) -> bool {
        self.outbox.len() >= self.lines_max && self.closed.is_empty()
    }

    /// Adds a line to the outbox; deletes the oldest line beyond the limit.
    pub(super) fn append_outbox(
        &mut self,
        disk: &mut Disk,
        sent: Sent,
        until: Instant,
        out: &mut Outbox<'_, Mesh>,
    ) {
        if let Some(gone) = self.insert_outbox(sent, until) {
            let op = disk.begin(Pending::Other);
            out.delete(op, OUTBOX, &gone.number.to_be_bytes(), false);
        }
    }

    /// Begins to write a receipt. Returns the line in its new state, unless it is confirmed already.
    pub(super) fn begin_confirming(&mut self, number: u64, at: u64) -> Option<Sent> {
        let line = *self.outbox.get(&number)?;
        let is_news = line.state != SentState::Delivered && self.confirming.insert(number);
        is_news.then_some(Sent { state: SentState::Delivered, delivered_at: Some(at), ..line })
    }

    /// Begins to write the final state of a line: the line does not change until the store has answered. Returns false
    /// if another one is being written.
    pub(super) fn begin_closing(&mut self, number: u64) -> bool {
        self.confirming.insert(number)
    }

    /// Notes that the final state of a line could not be written.
    pub(super) fn abandon_closing(&mut self, number: u64) {
        self.confirming.remove(&number);
    }

    pub(super) fn end_confirming(&mut self, sent: &Sent) {
        self.confirming.remove(&sent.number);
        if let Some(line) = self.outbox.get_mut(&sent.number) {
            line.delivered_at = sent.delivered_at;
        }
    }

    /// The message that a receipt of this key from this node confirms.
    pub(super) fn answered_by(&self, from: Nid, key: Key) -> Option<u64> {
        self.asked.range((from, key, 0)..=(from, key, u64::MAX)).next_back().map(|(.., number)| *number)
    }

    /// Whether a receipt of this message can still come.
    pub(super) fn is_awaited(&self, number: u64) -> bool {
        self.awaited.get(number).is_some()
    }

    /// Takes a message whose receipt did not come in time.
    pub(super) fn take_overdue(&mut self, now: Instant) -> Option<u64> {
        self.awaited.pop_due(now)
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        self.awaited.next().map(|(until, _)| until)
    }

    pub(super) fn inbox(&self, from: u64, lines_max: usize) -> Vec<Received> {
        self.inbox.range(from..).take(lines_max).map(|(_, line)| *line).collect()
    }

    pub(super) fn outbox(&self, from: u64, lines_max: usize) -> Vec<Sent> {
        self.outbox.range(from..).take(lines_max).map(|(_, line)| *line).collect()
    }

    pub(super) fn state(&self, number: u64) -> Option<SentState> {
        self.outbox.get(&number).map(|line| line.state)
    }

    /// Whether this file is in the inbox, and so is complete.
    pub(super) fn has_file(&self, file: Key) -> bool {
        self.file_number(file).is_some()
    }

    /// The line of the inbox of this file.
    pub(super) fn file_number(&self, file: Key) -> Option<u64> {
        self.files.range((file, 0)..=(file, u64::MAX)).next().map(|(_, number)| *number)
    }

    pub(super) fn len(&self) -> (usize, usize) {
        (self.inbox.len(), self.outbox.len())
    }

    fn note_closed(&mut self, line: &Sent) {
        if line.state.is_open() || (line.wants_receipt && line.state == SentState::Given) {
            self.closed.remove(&line.number);
        } else {
            self.closed.insert(line.number);
        }
    }
}

/// The time from `now` to `until` by the wall clock, at most `most`. Records have wall time, and a clock that jumped
/// must not make anything last for ever (MF-18).
pub(super) fn remaining(until_seconds: u64, now_seconds: u64, most: Duration) -> Duration {
    Duration::from_secs(until_seconds.saturating_sub(now_seconds)).min(most)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(number: u64, to: u8, key: u8, wants_receipt: bool) -> Sent {
        let (to, key) = (Nid::from_bytes([to; 32]), Key::of(&[key]));
        Sent {
            number,
            to,
            key,
            size: 1,
            sent_at: 0,
            wants_receipt,
            is_file: false,
            state: SentState::Waiting,
            until: 0,
            letter: None,
            delivered_at: None,
            custodians: [None; 2],
            refusal: None,
            why: None,
        }
    }

    fn received(number: u64, key: u8, is_file: bool) -> Received {
        let (from, key) = (Nid::from_bytes([9; 32]), Key::of(&[key]));
        Received { number, from, key, size: 1, received_at: 0, is_file }
    }

    #[test]
    fn a_receipt_confirms_the_latest_listed_message_that_requested_one() {
        let mut boxes = Mailboxes::new(9);
        let until = Instant::from_micros(10);
        for (number, to, wants) in [(0, 1, true), (1, 2, true), (2, 1, true), (3, 1, false)] {
            boxes.insert_outbox(sent(number, to, 7, wants), until);
        }
        let answered =
            |boxes: &Mailboxes, to: u8| boxes.answered_by(Nid::from_bytes([to; 32]), Key::of(&[7]));
        assert_eq!((answered(&boxes, 1), answered(&boxes, 2), answered(&boxes, 3)), (Some(2), Some(1), None));
        boxes.remove_out(2);
        boxes.remove_out(0);
        assert_eq!(answered(&boxes, 1), None, "3 did not ask");
        assert_eq!((boxes.take_overdue(until), boxes.take_overdue(until)), (Some(1), None));
    }

    #[test]
    fn an_open_line_of_the_outbox_is_not_evicted() {
        let mut boxes = Mailboxes::new(2);
        boxes.insert_outbox(sent(0, 1, 1, false), Instant::ZERO);
        boxes.insert_outbox(sent(1, 1, 2, false), Instant::ZERO);
        assert!(boxes.is_outbox_full());
        boxes.note_state(1, SentState::Delivered);
        assert!(!boxes.is_outbox_full());
        assert_eq!(boxes.insert_outbox(sent(2, 1, 3, false), Instant::ZERO).map(|line| line.number), Some(1));
    }

    #[test]
    fn a_file_is_present_as_long_as_the_inbox_lists_it() {
        let mut boxes = Mailboxes::new(2);
        boxes.insert_inbox(received(0, 1, true));
        boxes.insert_inbox(received(1, 2, false));
        assert!(boxes.is_inbox_full(), "no line is evicted");
        assert!(boxes.has_file(Key::of(&[1])) && !boxes.has_file(Key::of(&[2])));
        boxes.remove_in(0);
        assert!(!boxes.has_file(Key::of(&[1])));
    }
}
