//! Files on their way: what is known of each, without the machine.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::form::{Manifest, PROGRESS_RANGES_MAX, Progress};
use super::nid::{Key, Nid};
use crate::time::Instant;

/// How many blocks may be under way beyond what the recipient has told.
pub(super) const WINDOW_BLOCKS: usize = 16;
/// After so many blocks the recipient tells how far it is.
pub(super) const PROGRESS_BLOCKS: usize = 8;
/// The most files under way in each direction.
pub(super) const FILES_MAX: usize = 64;
/// How long silence lasts before the recipient is asked: at first, and at most.
const PATIENCE_FIRST: Duration = Duration::from_secs(10);
const PATIENCE_LAST: Duration = Duration::from_secs(300);

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
}

/// A file of ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Outgoing {
    pub(super) to: Nid,
    pub(super) manifest: Manifest,
    /// What the recipient lacks, as it last told; `None` until it has told.
    pub(super) missing: Option<Vec<(u32, u32)>>,
    /// Asked from the application or sent, and not told as received yet.
    pub(super) under_way: BTreeSet<u32>,
    pub(super) attempt: u32,
    pub(super) patience: Duration,
    pub(super) news: Instant,
}

impl Outgoing {
    pub(super) fn new(to: Nid, manifest: Manifest, now: Instant) -> Self {
        Self {
            to,
            manifest,
            missing: None,
            under_way: BTreeSet::new(),
            attempt: 0,
            patience: PATIENCE_FIRST,
            news: now,
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
        self.missing = Some(progress.missing.clone());
        self.news = now;
        self.patience = PATIENCE_FIRST;
        let wanted: Vec<u32> = (progress.missing.iter())
            .flat_map(|(first, count)| *first..first.saturating_add(*count).min(blocks))
            .filter(|index| !self.under_way.contains(index))
            .take(WINDOW_BLOCKS - self.under_way.len().min(WINDOW_BLOCKS))
            .collect();
        self.under_way.extend(wanted.iter().copied());
        wanted
    }

    /// Silence: what is under way counts as lost, and the next silence may last longer.
    pub(super) fn lost_patience(&mut self, now: Instant) {
        self.under_way.clear();
        self.attempt += 1;
        self.news = now;
        self.patience = (self.patience * 2).min(PATIENCE_LAST);
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
    pub(super) from: Nid,
    pub(super) manifest: Manifest,
    /// Where the DATA of each block is that has come.
    pub(super) have: BTreeMap<u32, Key>,
    pub(super) since_progress: usize,
    pub(super) round: u32,
    pub(super) is_complete: bool,
}

impl Incoming {
    /// `round` is where the count of answers begins: anywhere, so that a restart repeats none.
    pub(super) fn new(from: Nid, manifest: Manifest, round: u32) -> Self {
        Self { from, manifest, have: BTreeMap::new(), since_progress: 0, round, is_complete: false }
    }

    pub(super) fn has_all(&self) -> bool {
        self.have.len() == self.manifest.blocks.len()
    }

    /// Whether this is a block of it that is still missing.
    pub(super) fn wants(&self, from: Nid, index: u32, bytes: &[u8]) -> bool {
        from == self.from
            && !self.have.contains_key(&index)
            && self.manifest.blocks.get(index as usize).is_some_and(|key| *key == Key::of(bytes))
    }

    /// What is told to the sender.
    pub(super) fn progress(&mut self, file: Key) -> Progress {
        self.since_progress = 0;
        self.round += 1;
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

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Files {
    pub(super) outgoing: BTreeMap<Key, Outgoing>,
    pub(super) incoming: BTreeMap<Key, Incoming>,
}

impl Files {
    /// Where the DATA of a block of a file for us is.
    pub(super) fn block_key(&self, file: Key, index: u32) -> Option<Key> {
        self.incoming.get(&file)?.have.get(&index).copied()
    }

    /// When the first silence has lasted too long.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.outgoing.values().map(|outgoing| outgoing.news + outgoing.patience).min()
    }

    pub(super) fn list(&self) -> Vec<FileStatus> {
        let outgoing = self.outgoing.iter().map(|(file, at)| FileStatus {
            file: *file,
            peer: at.to,
            is_outgoing: true,
            name: at.manifest.name.clone(),
            size: at.manifest.size,
            blocks: at.manifest.blocks.len(),
            done: at.done(),
            is_complete: false,
        });
        let incoming = self.incoming.iter().map(|(file, at)| FileStatus {
            file: *file,
            peer: at.from,
            is_outgoing: false,
            name: at.manifest.name.clone(),
            size: at.manifest.size,
            blocks: at.manifest.blocks.len(),
            done: at.have.len(),
            is_complete: at.is_complete,
        });
        outgoing.chain(incoming).collect()
    }
}
