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
    /// Messages whose receipt has not come: until when it may.
    awaited: BTreeSet<(Instant, u64)>,
    lines_max: usize,
    next_in: u64,
    next_out: u64,
}

impl Post {
    pub(super) fn new(lines_max: usize) -> Self {
        Self {
            inbox: BTreeMap::new(),
            outbox: BTreeMap::new(),
            awaited: BTreeSet::new(),
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
        self.inbox.insert(line.number, line);
        if self.inbox.len() > self.lines_max { self.inbox.pop_first().map(|(_, line)| line) } else { None }
    }

    /// Puts a line into the outbox; the one that had to make room, if one had to.
    pub(super) fn put_out(&mut self, line: Sent, until: Instant) -> Option<Sent> {
        self.next_out = self.next_out.max(line.number + 1);
        self.outbox.insert(line.number, line);
        let is_open = matches!(line.state, SentState::Waiting | SentState::HandedOn);
        if line.wants_receipt && is_open {
            self.awaited.insert((until, line.number));
        }
        if self.outbox.len() > self.lines_max { self.outbox.pop_first().map(|(_, line)| line) } else { None }
    }

    pub(super) fn remove_in(&mut self, number: u64) -> Option<Received> {
        self.inbox.remove(&number)
    }

    pub(super) fn remove_out(&mut self, number: u64) -> Option<Sent> {
        self.awaited.retain(|(_, awaited)| *awaited != number);
        self.outbox.remove(&number)
    }

    /// Changes what is known of a message of ours; the line, if that is news. A message that was delivered stays so.
    pub(super) fn set_state(&mut self, number: u64, state: SentState) -> Option<Sent> {
        let line = self.outbox.get_mut(&number)?;
        if line.state == state || line.state == SentState::Delivered {
            return None;
        }
        line.state = state;
        let line = *line;
        if matches!(state, SentState::Delivered | SentState::Expired | SentState::Unknown) {
            self.awaited.retain(|(_, awaited)| *awaited != number);
        }
        Some(line)
    }

    /// The message that a receipt of this key from this node answers.
    pub(super) fn answered_by(&self, from: Nid, key: Key) -> Option<u64> {
        let is_it = |line: &Sent| line.wants_receipt && line.key == key && line.to == from;
        self.outbox.values().rev().find(|line| is_it(line)).map(|line| line.number)
    }

    /// Takes a message whose receipt has not come in time.
    pub(super) fn take_overdue(&mut self, now: Instant) -> Option<u64> {
        let &(until, number) = self.awaited.first()?;
        if until > now {
            return None;
        }
        self.awaited.pop_first();
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
        self.inbox.values().any(|line| line.is_file && line.key == file)
    }

    pub(super) fn len(&self) -> (usize, usize) {
        (self.inbox.len(), self.outbox.len())
    }
}

/// How long it is from `now` to `until` by the wall clock, at most `most`: files keep wall time, and a clock that
/// jumped must not make anything last for ever (MF-18).
pub(super) fn remaining(until_seconds: u64, now_seconds: u64, most: Duration) -> Duration {
    Duration::from_secs(until_seconds.saturating_sub(now_seconds)).min(most)
}
