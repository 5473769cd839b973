//! The state of each file under way.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use crate::time::Instant;
use crate::w3w::form::{Form, Manifest, PROGRESS_RANGES_MAX, Progress, write_form};
use crate::w3w::nid::{Key, Nid};

/// How many blocks may be under way beyond the reported progress.
pub(super) const WINDOW_BLOCKS: usize = 16;
/// After this many blocks the recipient reports its progress.
pub(super) const PROGRESS_BLOCKS: usize = 8;
/// The most files under way in each direction.
pub(super) const FILES_MAX: usize = 64;
/// The most nodes that send the same file at once, beside the first.
const SENDERS_MAX: usize = 8;
/// The time without an answer before the recipient gets a request: at first, and at most.
const RETRY_AFTER_FIRST: Duration = Duration::from_secs(10);
const RETRY_AFTER_LAST: Duration = Duration::from_secs(300);

/// A file under way, as shown to the application.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FileStatus {
    /// The key of the file.
    pub file: Key,
    /// The node at the other end.
    pub peer: Nid,
    /// Whether this node sends it.
    pub is_outgoing: bool,
    /// Its name, as the sender gives it.
    pub name: String,
    /// Its size.
    pub size: u64,
    /// The number of its blocks.
    pub blocks: usize,
    /// How many of them the recipient has, as far as this node knows.
    pub done: usize,
    /// Whether it is complete.
    pub is_complete: bool,
    /// The blocks that the application is to supply next; for outgoing files only.
    pub wanted: Vec<u32>,
}

/// A file and its recipient.
pub(in crate::w3w) type Transfer = (Key, Nid);

/// An outgoing file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Outgoing {
    to: Nid,
    pub(super) manifest: Manifest,
    /// The missing blocks that the recipient last reported; `None` before its first report.
    pub(super) missing: Option<Vec<(u32, u32)>>,
    /// Blocks that were requested from the application or sent, and are not reported as received yet.
    pub(super) under_way: BTreeSet<u32>,
    /// Those of them that the application has not supplied yet.
    pub(super) wanted: BTreeSet<u32>,
    /// Makes the first offer differ from every other one; stored with the file.
    pub(super) offer: u32,
    /// Its line in the outbox.
    pub(super) number: Option<u64>,
    pub(super) attempt: u32,
    pub(super) retry_after: Duration,
    /// When the recipient last answered or got a request.
    pub(super) last_progress: Instant,
    /// When the recipient last answered, or the application last offered the file.
    pub(super) heard: Instant,
}

impl Outgoing {
    pub(super) fn new(to: Nid, manifest: Manifest, offer: u32, now: Instant) -> Self {
        Self {
            to,
            manifest,
            missing: None,
            under_way: BTreeSet::new(),
            wanted: BTreeSet::new(),
            offer,
            number: None,
            attempt: offer,
            retry_after: RETRY_AFTER_FIRST,
            last_progress: now,
            heard: now,
        }
    }

    /// Takes the reported progress. Returns the blocks to send now.
    pub(super) fn progressed(&mut self, progress: &Progress, now: Instant) -> Vec<u32> {
        let blocks = self.manifest.blocks.len() as u32;
        let lacks = |index: u32| {
            progress
                .missing
                .iter()
                .any(|(first, count)| (*first..first.saturating_add(*count)).contains(&index))
        };
        self.under_way.retain(|index| lacks(*index));
        self.wanted.retain(|index| lacks(*index));
        self.missing = Some(progress.missing.clone());
        (self.last_progress, self.heard) = (now, now);
        self.retry_after = RETRY_AFTER_FIRST;
        let wanted: Vec<u32> = (progress.missing.iter())
            .flat_map(|(first, count)| *first..first.saturating_add(*count).min(blocks))
            .filter(|index| !self.under_way.contains(index))
            .take(WINDOW_BLOCKS - self.under_way.len().min(WINDOW_BLOCKS))
            .collect();
        self.under_way.extend(wanted.iter().copied());
        self.wanted.extend(wanted.iter().copied());
        wanted
    }

    /// Handles a timeout: blocks under way count as lost, and the next timeout is longer.
    pub(super) fn on_timeout(&mut self, now: Instant) {
        self.under_way.clear();
        self.wanted.clear();
        self.attempt = self.attempt.wrapping_add(1);
        self.last_progress = now;
        self.retry_after = (self.retry_after * 2).clamp(RETRY_AFTER_FIRST, RETRY_AFTER_LAST);
    }

    /// The first offer, byte for byte: the outbox identifies the file by it.
    pub(super) fn first_offer(&self) -> Vec<u8> {
        write_form(&Form::Manifest { attempt: self.offer, manifest: self.manifest.clone() })
    }

    pub(super) fn status(&self, file: Key) -> FileStatus {
        FileStatus {
            file,
            peer: self.to,
            is_outgoing: true,
            name: self.manifest.shown_name(),
            size: self.manifest.size,
            blocks: self.manifest.blocks.len(),
            done: self.done(),
            is_complete: false,
            wanted: self.wanted.iter().copied().collect(),
        }
    }

    fn done(&self) -> usize {
        let missing =
            |ranges: &Vec<(u32, u32)>| ranges.iter().map(|(_, count)| *count as usize).sum::<usize>();
        self.missing.as_ref().map_or(0, |ranges| self.manifest.blocks.len().saturating_sub(missing(ranges)))
    }
}

/// An incoming file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Incoming {
    /// The first sender.
    pub(super) from: Nid,
    /// Other senders of the same file: all of them get its progress.
    pub(super) also_from: BTreeSet<Nid>,
    pub(super) manifest: Manifest,
    /// The keys of the received blocks.
    pub(super) have: BTreeMap<u32, Key>,
    pub(super) since_progress: usize,
    pub(super) round: u32,
    /// Whether all blocks are there and are being synced.
    pub(super) is_finishing: bool,
    pub(super) is_complete: bool,
    /// When a block last arrived.
    pub(super) last_progress: Instant,
}

impl Incoming {
    /// `round` is the first number of answers: random, so that none repeats after a restart.
    pub(super) fn new(from: Nid, manifest: Manifest, round: u32, now: Instant) -> Self {
        Self {
            from,
            also_from: BTreeSet::new(),
            manifest,
            have: BTreeMap::new(),
            since_progress: 0,
            round,
            is_finishing: false,
            is_complete: false,
            last_progress: now,
        }
    }

    /// Adds a sender of this file. Returns false if there are too many.
    pub(super) fn is_sent_by(&mut self, nid: Nid) -> bool {
        if self.from != nid && self.also_from.len() < SENDERS_MAX {
            self.also_from.insert(nid);
        }
        self.from == nid || self.also_from.contains(&nid)
    }

    /// All senders.
    pub(super) fn senders(&self) -> impl Iterator<Item = Nid> {
        core::iter::once(self.from).chain(self.also_from.iter().copied())
    }

    pub(super) fn has_all(&self) -> bool {
        self.have.len() == self.manifest.blocks.len()
    }

    /// Whether this is a missing block of the file. Its hash decides, not its sender.
    pub(super) fn wants(&self, index: u32, bytes: &[u8]) -> bool {
        !self.have.contains_key(&index)
            && self.manifest.blocks.get(index as usize).is_some_and(|key| *key == Key::of(bytes))
    }

    pub(super) fn status(&self, file: Key) -> FileStatus {
        FileStatus {
            file,
            peer: self.from,
            is_outgoing: false,
            name: self.manifest.shown_name(),
            size: self.manifest.size,
            blocks: self.manifest.blocks.len(),
            done: self.have.len(),
            is_complete: self.is_complete,
            wanted: Vec::new(),
        }
    }

    /// The progress for the senders.
    pub(super) fn progress(&mut self, file: Key) -> Progress {
        self.since_progress = 0;
        self.round = self.round.wrapping_add(1);
        let mut missing: Vec<(u32, u32)> = Vec::new();
        for index in (0..self.manifest.blocks.len() as u32).filter(|index| !self.have.contains_key(index)) {
            let is_full = missing.len() == PROGRESS_RANGES_MAX;
            match missing.last_mut() {
                Some((first, count)) if *first + *count == index => *count += 1,
                _ if is_full => break,
                _ => missing.push((index, 1)),
            }
        }
        Progress { file, round: self.round, is_complete: self.is_complete, missing }
    }
}
