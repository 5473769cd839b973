//! The custody of one connection.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::{Answered, Due};
use crate::common::Timers;
use crate::tag::StreamId;
use crate::time::Instant;
use crate::w3w::form::Verdict;
use crate::w3w::message::{EntryId, SeenKey};
use crate::w3w::nid::Nid;

/// The most unanswered messages and bytes of a peer (CU-14). A sync takes milliseconds, so a fast peer needs many under way.
const GIVEN_FAST: (usize, usize) = (256, 8 << 20);
/// Those of a peer whose answers take longer than [`FAST`]. More would wait in kernels, and its death would be noticed
/// later.
const GIVEN_SLOW: (usize, usize) = (64, 1 << 20);
const FAST: Duration = Duration::from_millis(100);
/// How long a verdict may take (CU-14).
pub(super) const VERDICT_MIN: Duration = Duration::from_millis(500);
pub(super) const VERDICT_MAX: Duration = Duration::from_secs(5);
/// How long a message stays here after a foreign kernel has acknowledged it (CU-16).
pub(super) const FOREIGN_HOLD: Duration = Duration::from_secs(60);
/// Without confirmations a message counts as acknowledged this long after the own kernel took it (CU-19).
const ASSUMED: Duration = Duration::from_secs(30);

#[derive(Clone, Debug, PartialEq)]
pub(super) struct LinkCustody {
    nid: Nid,
    speaks: bool,
    given: BTreeMap<EntryId, Given>,
    given_bytes: usize,
    by_seen: BTreeMap<SeenKey, EntryId>,
    /// Entries whose frames are written, by the time at which they were given. Each entry has that time, so `Timers` would
    /// keep it twice.
    written: BTreeSet<(Instant, EntryId)>,
    kernel: Kernel,
    verdicts: Vec<(SeenKey, Verdict)>,
    /// Smoothed time from giving to the verdict.
    srtt: Option<Duration>,
    /// When bytes of the peer, or acknowledgements of its kernel, last arrived.
    heard_at: Instant,
    pinged_at: Option<Instant>,
}

/// The state of a foreign peer's kernel.
#[derive(Clone, Debug, Default, PartialEq)]
struct Kernel {
    /// Bytes that it has acknowledged.
    confirmed_bytes: u64,
    /// The ends of the frames that it has not acknowledged.
    ends: VecDeque<(u64, EntryId)>,
    /// Entries that it has acknowledged, and when they are released.
    confirmed: Timers<EntryId>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Given {
    seen: SeenKey,
    bytes: usize,
    acceptance: u32,
    at: Instant,
    /// Where its frame ends on the connection, once it is written.
    end: Option<u64>,
}

impl LinkCustody {
    pub(super) fn new(nid: Nid, now: Instant) -> Self {
        Self {
            nid,
            speaks: false,
            given: BTreeMap::new(),
            given_bytes: 0,
            by_seen: BTreeMap::new(),
            written: BTreeSet::new(),
            kernel: Kernel::default(),
            verdicts: Vec::new(),
            srtt: None,
            heard_at: now,
            pinged_at: None,
        }
    }

    pub(super) fn nid(&self) -> Nid {
        self.nid
    }

    pub(super) fn speaks(&self) -> bool {
        self.speaks
    }

    pub(super) fn set_speaks(&mut self) {
        self.speaks = true;
    }

    pub(super) fn entries(&self) -> impl Iterator<Item = EntryId> + '_ {
        self.given.keys().copied()
    }

    pub(super) fn is_given(&self, entry: EntryId) -> bool {
        self.given.contains_key(&entry)
    }

    pub(super) fn on_heard(&mut self, now: Instant) {
        self.heard_at = now;
        self.pinged_at = None;
    }

    pub(super) fn may_give(&self, bytes: usize) -> bool {
        let is_fast = self.srtt.is_some_and(|srtt| srtt <= FAST);
        let (messages_max, bytes_max) = if is_fast { GIVEN_FAST } else { GIVEN_SLOW };
        !self.speaks
            || self.given.is_empty()
            || (self.given.len() < messages_max && self.given_bytes + bytes <= bytes_max)
    }

    pub(super) fn give(
        &mut self,
        entry: EntryId,
        seen: SeenKey,
        bytes: usize,
        acceptance: u32,
        now: Instant,
    ) {
        self.forget(entry);
        // The peer answers once for each copy, and an answer does not say for which.
        if let Some(&earlier) = self.by_seen.get(&seen) {
            self.forget(earlier);
        }
        self.given_bytes += bytes;
        self.by_seen.insert(seen, entry);
        let given = Given { seen, bytes, acceptance, at: now, end: None };
        self.given.insert(entry, given);
    }

    pub(super) fn written(&mut self, entry: EntryId, end: u64) {
        if let Some(given) = self.given.get_mut(&entry) {
            given.end = Some(end);
            self.written.insert((given.at, entry));
            if !self.speaks {
                self.kernel.ends.push_back((end, entry));
            }
        }
    }

    pub(super) fn assume_confirmed(&mut self, entry: EntryId, now: Instant) {
        if !self.speaks {
            self.note_confirmed(entry, now + ASSUMED, true);
        }
    }

    pub(super) fn on_confirmed(&mut self, bytes: usize, now: Instant) -> Vec<EntryId> {
        self.kernel.confirmed_bytes += bytes as u64;
        // A kernel that still takes bytes shows that the link is slow, not dead. Its acknowledgements end when it has
        // everything; from then on only an answer of the program shows that it is alive.
        self.heard_at = now;
        if let Some(pinged_at) = &mut self.pinged_at {
            *pinged_at = now;
        }
        let mut entries = Vec::new();
        while let Some(&(end, entry)) =
            self.kernel.ends.front().filter(|(end, _)| *end <= self.kernel.confirmed_bytes)
        {
            self.kernel.ends.pop_front();
            // An entry that was answered or given again has another end, or none.
            let is_it = |given: &Given| given.end == Some(end);
            if !self.speaks && self.given.get(&entry).is_some_and(is_it) {
                self.note_confirmed(entry, now, false);
                entries.push(entry);
            }
        }
        entries
    }

    /// Notes that a foreign kernel has an entry, or is assumed to.
    fn note_confirmed(&mut self, entry: EntryId, at: Instant, is_assumed: bool) {
        let is_known = is_assumed && self.kernel.confirmed.get(entry).is_some();
        if self.given.contains_key(&entry) && !is_known {
            self.kernel.confirmed.set(entry, at + FOREIGN_HOLD);
        }
    }

    pub(super) fn forget(&mut self, entry: EntryId) {
        if let Some(given) = self.given.remove(&entry) {
            self.given_bytes -= given.bytes;
            self.by_seen.remove(&given.seen);
            self.written.remove(&(given.at, entry));
            self.kernel.confirmed.cancel(entry);
        }
    }

    pub(super) fn on_verdict(&mut self, seen: SeenKey, now: Instant) -> Option<Answered> {
        let entry = *self.by_seen.get(&seen)?;
        let given = *self.given.get(&entry)?;
        self.forget(entry);
        let sample = now.since(given.at);
        self.srtt = Some(self.srtt.map_or(sample, |srtt| (srtt * 7 + sample) / 8));
        Some(Answered { entry, acceptance: given.acceptance })
    }

    /// Adds a verdict. Returns how many are collected.
    pub(super) fn push_verdict(&mut self, seen: SeenKey, verdict: Verdict) -> usize {
        self.verdicts.push((seen, verdict));
        self.verdicts.len()
    }

    pub(super) fn take_verdicts(&mut self) -> Vec<(SeenKey, Verdict)> {
        core::mem::take(&mut self.verdicts)
    }

    pub(super) fn begin_ping(&mut self, now: Instant) -> bool {
        let begins = self.speaks && self.pinged_at.is_none();
        if begins {
            self.pinged_at = Some(now);
        }
        begins
    }

    pub(super) fn is_overdue(&self, now: Instant) -> bool {
        self.speaks && self.overdue_at().is_some_and(|at| at <= now)
    }

    pub(super) fn collect_due(&mut self, stream: StreamId, now: Instant, due: &mut Vec<Due>) {
        if self.silent_at().is_some_and(|at| at <= now) {
            due.push(Due::Silent(stream));
        } else if self.pinged_at.is_none() && self.is_overdue(now) {
            // A peer that sends but does not answer is pinged again after the same time.
            if self.ask_at().is_some_and(|at| at <= now) {
                due.push(Due::Ping(stream));
            }
        }
        if !self.speaks {
            while let Some(entry) = self.kernel.confirmed.pop_due(now) {
                self.forget(entry);
                due.push(Due::Released(stream, entry));
            }
        }
    }

    pub(super) fn next_deadline(&self) -> Option<Instant> {
        let hold = self.kernel.confirmed.next().filter(|_| !self.speaks).map(|(at, _)| at);
        let ask = if self.pinged_at.is_some() { self.silent_at() } else { self.ask_at() };
        hold.into_iter().chain(ask).min()
    }

    /// When the oldest verdict is overdue.
    fn overdue_at(&self) -> Option<Instant> {
        self.written.first().map(|(at, _)| *at + self.answer_timeout())
    }

    /// When the peer is pinged: a verdict is overdue, and no bytes arrived for as long.
    fn ask_at(&self) -> Option<Instant> {
        let overdue_at = self.overdue_at().filter(|_| self.speaks)?;
        Some(overdue_at.max(self.heard_at + self.answer_timeout()))
    }

    /// When a peer that was pinged counts as gone.
    fn silent_at(&self) -> Option<Instant> {
        self.pinged_at.map(|at| at + self.answer_timeout())
    }

    fn answer_timeout(&self) -> Duration {
        let srtt = self.srtt.unwrap_or_default();
        (srtt * 4 + Duration::from_millis(50)).clamp(VERDICT_MIN, VERDICT_MAX)
    }
}
