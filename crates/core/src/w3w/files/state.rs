//! The state of each file under way.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use crate::time::Instant;
use crate::w3w::form::{Form, Manifest, PROGRESS_RANGES_MAX, Progress, write_form};
use crate::w3w::nid::{Key, Nid};

/// How many blocks may be under way beyond what the recipient has told.
pub(super) const WINDOW_BLOCKS: usize = 16;
/// After so many blocks the recipient tells how far it is.
pub(super) const PROGRESS_BLOCKS: usize = 8;
/// The most files under way in each direction.
pub(super) const FILES_MAX: usize = 64;
/// The most nodes that send the same file at once, beside the first.
const SENDERS_MAX: usize = 8;
/// How long silence lasts before the recipient is asked: at first, and at most.
const RETRY_AFTER_FIRST: Duration = Duration::from_secs(10);
const RETRY_AFTER_LAST: Duration = Duration::from_secs(300);

/// A file under way, as shown to the application.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FileStatus {
    /// What it is known by.
    pub file: Key,
    /// The node at the other end.
    pub peer: Nid,
    /// Whether we send it.
    pub is_outgoing: bool,
    /// What its sender calls it.
    pub name: String,
    /// How long it is.
    pub size: u64,
    /// How many blocks it has.
    pub blocks: usize,
    /// How many of them the recipient has, as far as is known here.
    pub done: usize,
    /// Whether all of it is there.
    pub is_complete: bool,
    /// The blocks that the application is to give next; of a file of ours only.
    pub wanted: Vec<u32>,
}

/// A file and whom it is for.
pub(in crate::w3w) type Transfer = (Key, Nid);

/// A file of ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Outgoing {
    to: Nid,
    pub(super) manifest: Manifest,
    /// What the recipient lacks, as it last told; `None` until it has told.
    pub(super) missing: Option<Vec<(u32, u32)>>,
    /// Asked from the application or sent, and not told as received yet.
    pub(super) under_way: BTreeSet<u32>,
    /// Those of them that the application has not given yet.
    pub(super) wanted: BTreeSet<u32>,
    /// Makes the first offer differ from every other one; kept with the file.
    pub(super) offer: u32,
    /// Its line in the outbox.
    pub(super) number: Option<u64>,
    pub(super) attempt: u32,
    pub(super) retry_after: Duration,
    /// When the recipient was last heard or asked.
    pub(super) last_progress: Instant,
    /// When the recipient was last heard, or the application last asked for the file to be sent.
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

    /// The recipient has told what it lacks; the blocks to send now.
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

    /// Silence: what is under way counts as lost, and the next silence may last longer.
    pub(super) fn on_timeout(&mut self, now: Instant) {
        self.under_way.clear();
        self.wanted.clear();
        self.attempt = self.attempt.wrapping_add(1);
        self.last_progress = now;
        self.retry_after = (self.retry_after * 2).clamp(RETRY_AFTER_FIRST, RETRY_AFTER_LAST);
    }

    /// The first offer, byte for byte: the outbox knows the file by it.
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

/// A file for us.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Incoming {
    /// Who sent it first.
    pub(super) from: Nid,
    /// Who else sends the same: everybody is told how far it is.
    pub(super) also_from: BTreeSet<Nid>,
    pub(super) manifest: Manifest,
    /// Where the DATA of each block is that has come.
    pub(super) have: BTreeMap<u32, Key>,
    pub(super) since_progress: usize,
    pub(super) round: u32,
    /// All blocks are there, and being made safe.
    pub(super) is_finishing: bool,
    pub(super) is_complete: bool,
    /// When a part of it last came.
    pub(super) last_progress: Instant,
}

impl Incoming {
    /// `round` is where the count of answers begins: anywhere, so that a restart repeats none.
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

    /// Somebody sends this file; false if it is one too many.
    pub(super) fn is_sent_by(&mut self, nid: Nid) -> bool {
        if self.from != nid && self.also_from.len() < SENDERS_MAX {
            self.also_from.insert(nid);
        }
        self.from == nid || self.also_from.contains(&nid)
    }

    /// Everybody who sends it.
    pub(super) fn senders(&self) -> impl Iterator<Item = Nid> {
        core::iter::once(self.from).chain(self.also_from.iter().copied())
    }

    pub(super) fn has_all(&self) -> bool {
        self.have.len() == self.manifest.blocks.len()
    }

    /// Whether this is a block of it that is still missing. Who sent it does not matter: the hash is what counts.
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

    /// What is told to the sender.
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
