//! The queue: every message that is not for us, until it is handed on, and longer where we have custody of it.
//!
//! A line of the queue is small; the message itself is in the store and is held in memory only while there is room
//! (`memory_bytes_max`). So a slow peer costs lines, not megabytes.

use std::collections::{BTreeMap, BTreeSet};

use super::again::Again;
use super::message::Message;
use super::nid::{Key, Nid};
use crate::tag::StreamId;
use crate::time::Instant;

/// The number of a line, in the store too; counts upwards for ever.
pub(super) type Line = u64;

/// A message that waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) sender: Nid,
    pub(super) recipient: Nid,
    pub(super) key: Key,
    pub(super) size: usize,
    /// The peer it came from: it never goes back there (MA-40).
    pub(super) from: Option<Nid>,
    pub(super) until: Instant,
    pub(super) until_seconds: u64,
    /// Its number in the outbox, if it is ours.
    pub(super) outbox: Option<u64>,
    pub(super) message: Option<Message>,
    /// Whether DATA can be had from the store again.
    pub(super) is_stored: bool,
    /// Whether the line itself is in the store.
    pub(super) is_lined: bool,
    /// Whether the store has answered: nothing is forwarded before (MA-49a).
    pub(super) is_settled: bool,
    /// Connections it is to be written to, or is being written to.
    pub(super) targets: Vec<StreamId>,
    /// Peers it was given to, so that none gets it twice from us.
    pub(super) told: Vec<Nid>,
    /// At least one connection has taken it.
    pub(super) is_handed: bool,
    /// We keep it until it expires (MA-45b).
    pub(super) is_held: bool,
    /// It was handed on and waits for its receipt.
    pub(super) again: Option<Again>,
}

/// What is remembered of whom a message was given to: enough for any ring, and bounded.
const TOLD_MAX: usize = 64;

impl Entry {
    pub(super) fn tell(&mut self, nid: Nid) {
        if self.told.len() == TOLD_MAX {
            self.told.remove(0);
        }
        self.told.push(nid);
    }

    /// Whether it comes from our own application.
    pub(super) fn is_own(&self, own: Nid) -> bool {
        self.from.is_none() && self.sender == own
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Queue {
    entries: BTreeMap<Line, Entry>,
    /// Lines whose message could be let go of: it is stored too.
    sheddable: BTreeSet<Line>,
    /// Lines of ours, by their number in the outbox.
    own: BTreeMap<u64, Line>,
    /// Lines of others.
    transit: BTreeSet<Line>,
    /// Those of them whose message is only in memory.
    unsaved: BTreeSet<Line>,
    order: BTreeSet<(Instant, Line)>,
    next: Line,
    bytes: usize,
    memory_bytes: usize,
    entries_max: usize,
    bytes_max: usize,
}

impl Queue {
    pub(super) fn new(entries_max: usize, bytes_max: usize) -> Self {
        Self {
            entries: BTreeMap::new(),
            sheddable: BTreeSet::new(),
            own: BTreeMap::new(),
            transit: BTreeSet::new(),
            unsaved: BTreeSet::new(),
            order: BTreeSet::new(),
            next: 0,
            bytes: 0,
            memory_bytes: 0,
            entries_max,
            bytes_max,
        }
    }

    /// Whether so much more fits.
    pub(super) fn has_room(&self, size: usize) -> bool {
        self.entries.len() < self.entries_max && self.bytes + size <= self.bytes_max
    }

    /// Whether so much waits that nothing should stay that need not.
    pub(super) fn is_half_full(&self) -> bool {
        self.entries.len() * 2 >= self.entries_max || self.bytes * 2 >= self.bytes_max
    }

    /// The line of a message of ours.
    pub(super) fn line_of(&self, number: u64) -> Option<Line> {
        self.own.get(&number).copied()
    }

    /// What is ours.
    pub(super) fn own_lines(&self) -> impl Iterator<Item = &Entry> {
        self.own.values().filter_map(|line| self.entries.get(line))
    }

    /// Those of ours that wait for a receipt and are such as these may go to their recipients again.
    pub(super) fn offer_again(&mut self, which: impl Fn(&Entry) -> bool) -> Vec<Line> {
        let mut lines = Vec::new();
        for line in self.own.values() {
            if let Some(entry) = self.entries.get_mut(line)
                && entry.again.is_some()
                && which(entry)
            {
                let recipient = entry.recipient;
                entry.told.retain(|nid| *nid != recipient);
                lines.push(*line);
            }
        }
        lines
    }

    pub(super) fn push(&mut self, entry: Entry) -> Line {
        let line = self.next;
        self.next += 1;
        self.put(line, entry);
        line
    }

    /// Takes back a line from the store, under its own number.
    pub(super) fn put(&mut self, line: Line, entry: Entry) {
        self.next = self.next.max(line + 1);
        self.bytes += entry.size;
        self.memory_bytes += entry.message.as_ref().map_or(0, |message| message.body().len());
        self.order.insert((entry.until, line));
        match entry.outbox {
            Some(number) => drop(self.own.insert(number, line)),
            None => drop(self.transit.insert(line)),
        }
        self.entries.insert(line, entry);
    }

    pub(super) fn remove(&mut self, line: Line) -> Option<Entry> {
        let entry = self.entries.remove(&line)?;
        self.order.remove(&(entry.until, line));
        self.sheddable.remove(&line);
        self.transit.remove(&line);
        entry.outbox.map(|number| self.own.remove(&number));
        self.unsaved.remove(&line);
        self.bytes -= entry.size;
        self.memory_bytes -= entry.message.as_ref().map_or(0, |message| message.body().len());
        Some(entry)
    }

    pub(super) fn get(&self, line: Line) -> Option<&Entry> {
        self.entries.get(&line)
    }

    pub(super) fn get_mut(&mut self, line: Line) -> Option<&mut Entry> {
        self.entries.get_mut(&line)
    }

    /// The message is in memory again.
    pub(super) fn loaded(&mut self, line: Line, message: Message) {
        if let Some(entry) = self.entries.get_mut(&line)
            && entry.message.is_none()
        {
            self.memory_bytes += message.body().len();
            entry.message = Some(message);
            self.sheddable.insert(line);
        }
    }

    /// The store has answered: the message may leave memory if it was kept.
    pub(super) fn settled(&mut self, line: Line, is_stored: bool) {
        if let Some(entry) = self.entries.get_mut(&line) {
            entry.is_settled = true;
            entry.is_stored = is_stored;
            if is_stored && entry.message.is_some() {
                self.sheddable.insert(line);
            } else if !is_stored && entry.outbox.is_none() {
                self.unsaved.insert(line);
            }
        }
    }

    /// Lets go of one message that nobody is writing just now.
    pub(super) fn unload(&mut self, line: Line) {
        if self.sheddable.remove(&line)
            && let Some(entry) = self.entries.get_mut(&line)
        {
            self.memory_bytes -= entry.message.take().map_or(0, |message| message.body().len());
        }
    }

    /// Lets go of stored messages, newest first, until memory is within bounds: the oldest are written next.
    pub(super) fn shed(&mut self, memory_bytes_max: usize) {
        while self.memory_bytes > memory_bytes_max {
            let Some(&line) = self.sheddable.last() else { return };
            self.unload(line);
        }
    }

    /// The oldest line in transit: it goes when the queue is full (MA-45).
    pub(super) fn oldest_transit(&self) -> Option<Line> {
        self.transit.first().copied()
    }

    /// The oldest line in transit whose message is only in memory.
    pub(super) fn oldest_unsaved(&self) -> Option<Line> {
        self.unsaved.first().copied()
    }

    /// The line that expires next, if its time is over.
    pub(super) fn expired(&self, now: Instant) -> Option<Line> {
        self.order.first().filter(|(until, _)| *until <= now).map(|(_, line)| *line)
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        self.order.first().map(|(until, _)| *until)
    }

    pub(super) fn lines(&self) -> impl Iterator<Item = (Line, &Entry)> {
        self.entries.iter().map(|(line, entry)| (*line, entry))
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.memory_bytes
    }
}
