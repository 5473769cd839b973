//! Inbox and outbox in memory.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use super::boxes::{Received, Sent, SentState};
use super::nid::{Key, Nid};
use crate::time::Instant;

/// What is for us and what we sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Post {
    inbox: BTreeMap<u64, Received>,
    outbox: BTreeMap<u64, Sent>,
    /// The files in the inbox.
    files: BTreeSet<(Key, u64)>,
    /// Messages of ours that asked for a receipt.
    asked: BTreeSet<(Nid, Key, u64)>,
    /// Those whose receipt has not come: until when it may.
    awaited: BTreeSet<(Instant, u64)>,
    awaited_until: BTreeMap<u64, Instant>,
    /// Those whose receipt is being written down: nothing else is news of them.
    confirming: BTreeSet<u64>,
    lines_max: usize,
    next_in: u64,
    next_out: u64,
}

impl Post {
    pub(super) fn new(lines_max: usize) -> Self {
        Self {
            inbox: BTreeMap::new(),
            outbox: BTreeMap::new(),
            files: BTreeSet::new(),
            asked: BTreeSet::new(),
            awaited: BTreeSet::new(),
            awaited_until: BTreeMap::new(),
            confirming: BTreeSet::new(),
            lines_max,
            next_in: 0,
            next_out: 0,
        }
    }

    /// Numbers begin no lower than this: the lines in the store could not be read.
    pub(super) fn skip_to(&mut self, number: u64) {
        self.next_in = self.next_in.max(number);
        self.next_out = self.next_out.max(number);
    }

    /// A number for a line of the inbox; it is put there once it is safe.
    pub(super) fn allot_in(&mut self) -> u64 {
        self.next_in += 1;
        self.next_in - 1
    }

    pub(super) fn allot_out(&mut self) -> u64 {
        self.next_out += 1;
        self.next_out - 1
    }

    /// Puts a line into the inbox; the one that had to make room, if one had to.
    pub(super) fn put_in(&mut self, line: Received) -> Option<Received> {
        self.next_in = self.next_in.max(line.number + 1);
        if line.is_file {
            self.files.insert((line.key, line.number));
        }
        self.inbox.insert(line.number, line);
        let &oldest = self.inbox.keys().next()?;
        if self.inbox.len() > self.lines_max { self.remove_in(oldest) } else { None }
    }

    /// Puts a line into the outbox; the one that had to make room, if one had to.
    pub(super) fn put_out(&mut self, line: Sent, until: Instant) -> Option<Sent> {
        self.next_out = self.next_out.max(line.number + 1);
        self.outbox.insert(line.number, line);
        let is_open = matches!(line.state, SentState::Waiting | SentState::HandedOn);
        if line.wants_receipt && is_open {
            self.awaited.insert((until, line.number));
            self.awaited_until.insert(line.number, until);
        }
        if line.wants_receipt {
            self.asked.insert((line.to, line.key, line.number));
        }
        let &oldest = self.outbox.keys().next()?;
        if self.outbox.len() > self.lines_max { self.remove_out(oldest) } else { None }
    }

    pub(super) fn remove_in(&mut self, number: u64) -> Option<Received> {
        let line = self.inbox.remove(&number)?;
        self.files.remove(&(line.key, number));
        Some(line)
    }

    pub(super) fn remove_out(&mut self, number: u64) -> Option<Sent> {
        self.expect_no_more(number);
        self.confirming.remove(&number);
        let line = self.outbox.remove(&number)?;
        self.asked.remove(&(line.to, line.key, number));
        Some(line)
    }

    /// Changes what is known of a message of ours; the line, if that is news. A message that was delivered stays so.
    pub(super) fn set_state(&mut self, number: u64, state: SentState) -> Option<Sent> {
        let line = self.outbox.get_mut(&number)?;
        let is_settled = line.state == SentState::Delivered || self.confirming.contains(&number);
        if line.state == state || is_settled {
            return None;
        }
        line.state = state;
        let line = *line;
        if matches!(state, SentState::Delivered | SentState::Expired | SentState::Unknown) {
            self.expect_no_more(number);
        }
        Some(line)
    }

    /// A receipt came: the line as it will be when that is written down, unless it is confirmed already.
    pub(super) fn begin_confirming(&mut self, number: u64) -> Option<Sent> {
        let line = *self.outbox.get(&number)?;
        let is_news = line.state != SentState::Delivered && self.confirming.insert(number);
        is_news.then_some(Sent { state: SentState::Delivered, ..line })
    }

    pub(super) fn end_confirming(&mut self, number: u64) {
        self.confirming.remove(&number);
    }

    /// The message that a receipt of this key from this node answers.
    pub(super) fn answered_by(&self, from: Nid, key: Key) -> Option<u64> {
        self.asked.range((from, key, 0)..=(from, key, u64::MAX)).next_back().map(|(.., number)| *number)
    }

    /// Whether a receipt of this message of ours can still come.
    pub(super) fn is_awaited(&self, number: u64) -> bool {
        self.awaited_until.contains_key(&number)
    }

    /// Takes a message whose receipt has not come in time.
    pub(super) fn take_overdue(&mut self, now: Instant) -> Option<u64> {
        let &(until, number) = self.awaited.first()?;
        if until > now {
            return None;
        }
        self.expect_no_more(number);
        Some(number)
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        self.awaited.first().map(|(until, _)| *until)
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

    /// Whether this file is in the inbox, so that all of it is there.
    pub(super) fn has_file(&self, file: Key) -> bool {
        self.file_number(file).is_some()
    }

    /// The line of the inbox that tells of this file.
    pub(super) fn file_number(&self, file: Key) -> Option<u64> {
        self.files.range((file, 0)..=(file, u64::MAX)).next().map(|(_, number)| *number)
    }

    pub(super) fn len(&self) -> (usize, usize) {
        (self.inbox.len(), self.outbox.len())
    }

    /// No receipt of this one is waited for any more.
    fn expect_no_more(&mut self, number: u64) {
        if let Some(until) = self.awaited_until.remove(&number) {
            self.awaited.remove(&(until, number));
        }
    }
}

/// How long it is from `now` to `until` by the wall clock, at most `most`: files keep wall time, and a clock that
/// jumped must not make anything last for ever (MF-18).
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
        }
    }

    fn received(number: u64, key: u8, is_file: bool) -> Received {
        let (from, key) = (Nid::from_bytes([9; 32]), Key::of(&[key]));
        Received { number, from, key, size: 1, received_at: 0, is_file }
    }

    #[test]
    fn a_receipt_answers_the_latest_message_that_asked_and_is_still_listed() {
        let mut post = Post::new(3);
        let until = Instant::from_micros(10);
        for (number, to, wants) in [(0, 1, true), (1, 2, true), (2, 1, true), (3, 1, false)] {
            post.put_out(sent(number, to, 7, wants), until);
        }
        let answered = |post: &Post, to: u8| post.answered_by(Nid::from_bytes([to; 32]), Key::of(&[7]));
        assert_eq!((answered(&post, 1), answered(&post, 2), answered(&post, 3)), (Some(2), Some(1), None));
        post.remove_out(2);
        assert_eq!(answered(&post, 1), None, "0 had to make room, 3 did not ask");
        assert_eq!((post.take_overdue(until), post.take_overdue(until)), (Some(1), None));
    }

    #[test]
    fn a_file_is_there_as_long_as_a_line_of_the_inbox_says_so() {
        let mut post = Post::new(2);
        post.put_in(received(0, 1, true));
        post.put_in(received(1, 2, false));
        assert!(post.has_file(Key::of(&[1])) && !post.has_file(Key::of(&[2])));
        assert_eq!(post.put_in(received(2, 3, true)).map(|line| line.number), Some(0));
        assert!(!post.has_file(Key::of(&[1])) && post.has_file(Key::of(&[3])));
        post.remove_in(2);
        assert!(!post.has_file(Key::of(&[3])));
    }
}
