//! The known members on disk: read at the start, so that a node finds its group again without being told.

use core::time::Duration;
use std::collections::BTreeSet;

use super::addr::Addr;
use crate::id::Id;
use crate::tag::OpId;
use crate::time::Instant;
use crate::wire::{Reader, Writer};

/// Entries asked for at once, and written at once.
pub(super) const PAGE_ENTRIES: u32 = 256;

/// What waits to be written, and what is being read or written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Keeper {
    interval: Duration,
    kept_max: usize,
    kept: BTreeSet<Id>,
    changed: BTreeSet<Id>,
    write_at: Option<Instant>,
    reading: Option<OpId>,
    writing: Option<OpId>,
    ops: u64,
}

impl Keeper {
    /// A keeper of up to `kept_max` members that writes at most once per `interval`; 0 keeps nothing.
    pub(super) const fn new(interval: Duration, kept_max: usize) -> Self {
        Self {
            interval,
            kept_max,
            kept: BTreeSet::new(),
            changed: BTreeSet::new(),
            write_at: None,
            reading: None,
            writing: None,
            ops: 0,
        }
    }

    /// Begins to read; `None` if nothing is kept.
    pub(super) fn read(&mut self) -> Option<OpId> {
        if self.kept_max == 0 {
            return None;
        }
        let op = self.op();
        self.reading = Some(op);
        Some(op)
    }

    /// Whether this answers what is being read.
    pub(super) fn is_reading(&mut self, op: OpId) -> bool {
        self.reading.take_if(|reading| *reading == op).is_some()
    }

    /// A member is on disk; false if no more are read.
    pub(super) fn loaded(&mut self, id: Id) -> bool {
        self.kept.insert(id);
        self.kept.len() < self.kept_max
    }

    /// A member came, changed or went.
    pub(super) fn change(&mut self, id: Id, now: Instant) {
        if self.kept_max > 0 && (self.kept.contains(&id) || self.kept.len() < self.kept_max) {
            self.changed.insert(id);
            self.write_at.get_or_insert(now + self.interval);
        }
    }

    /// What is to be written now, at most a page of it.
    pub(super) fn due(&mut self, now: Instant) -> Option<(OpId, Vec<Id>)> {
        if self.writing.is_some() || self.write_at.is_none_or(|at| at > now) {
            return None;
        }
        let ids: Vec<Id> =
            core::iter::from_fn(|| self.changed.pop_first()).take(PAGE_ENTRIES as usize).collect();
        self.write_at = (!self.changed.is_empty()).then(|| now + self.interval);
        let op = self.op();
        self.writing = Some(op);
        Some((op, ids))
    }

    /// What was decided for a member of a write: kept, or no longer.
    pub(super) fn decided(&mut self, id: Id, keep: bool) -> bool {
        if !keep {
            self.kept.remove(&id);
            return false;
        }
        let room = self.kept.len() < self.kept_max || self.kept.contains(&id);
        if room {
            self.kept.insert(id);
        }
        room
    }

    /// The write is over, well or not: what it held is written again when it changes again.
    pub(super) fn written(&mut self, op: OpId) {
        self.writing.take_if(|writing| *writing == op);
    }

    /// Writes now what waits.
    pub(super) fn hurry(&mut self, now: Instant) {
        if self.write_at.is_some() {
            self.write_at = Some(now);
        }
    }

    /// Whether nothing waits and nothing is under way.
    pub(super) fn is_settled(&self) -> bool {
        self.write_at.is_none() && self.writing.is_none()
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        self.write_at.filter(|_| self.writing.is_none())
    }

    fn op(&mut self) -> OpId {
        self.ops += 1;
        OpId::new(self.ops)
    }
}

/// The value of a kept member: its first address.
pub(super) fn encode(addr: Addr) -> Vec<u8> {
    let mut bytes = Vec::new();
    addr.write(&mut Writer::new(&mut bytes, Addr::V6_BYTES));
    bytes
}

/// A kept member; `None` if the entry is not one.
pub(super) fn decode(key: &[u8], value: &[u8]) -> Option<(Id, Addr)> {
    let id = Id::from_bytes(key.try_into().ok()?);
    let mut reader = Reader::new(value);
    let addr = Addr::read(&mut reader).ok()?;
    reader.finish().is_ok().then_some((id, addr))
}
