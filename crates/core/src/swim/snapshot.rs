//! The known members on disk: a node reads them at the start, and finds its group again without seeds.

use core::time::Duration;
use std::collections::BTreeSet;

use super::addr::Addr;
use super::contents::Contents;
use super::status::{Incarnation, State, Status};
use super::tombstones::Ended;
use crate::id::Id;
use crate::tag::OpId;
use crate::time::{Instant, Wall};
use crate::wire::{Reader, Writer};

/// Entries per read and per write.
pub(super) const PAGE_ENTRIES: u32 = 256;

/// The members that wait to be written, and the reads and writes under way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Snapshot {
    interval: Duration,
    stored_max: usize,
    kept: BTreeSet<Id>,
    changed: BTreeSet<Id>,
    write_at: Option<Instant>,
    reading: Option<OpId>,
    writing: Option<OpId>,
    ops: u64,
}

impl Snapshot {
    /// A snapshot of up to `stored_max` members, written at most once per `interval`; 0 stores nothing.
    pub(super) const fn new(interval: Duration, stored_max: usize) -> Self {
        Self {
            interval,
            stored_max,
            kept: BTreeSet::new(),
            changed: BTreeSet::new(),
            write_at: None,
            reading: None,
            writing: None,
            ops: 0,
        }
    }

    /// Begins to read; `None` if nothing is stored.
    pub(super) fn read(&mut self) -> Option<OpId> {
        if self.stored_max == 0 {
            return None;
        }
        let op = self.op();
        self.reading = Some(op);
        Some(op)
    }

    /// Whether this operation is the read under way.
    pub(super) fn is_reading(&mut self, op: OpId) -> bool {
        self.reading.take_if(|reading| *reading == op).is_some()
    }

    /// Notes a member that is on disk. Returns false if no more are loaded.
    pub(super) fn loaded(&mut self, id: Id) -> bool {
        self.kept.insert(id);
        self.kept.len() < self.stored_max
    }

    /// Notes a member that came, changed or went.
    pub(super) fn change(&mut self, id: Id, now: Instant) {
        if self.stored_max > 0 && (self.kept.contains(&id) || self.kept.len() < self.stored_max) {
            self.changed.insert(id);
            self.write_at.get_or_insert(now + self.interval);
        }
    }

    /// The members to write now, at most a page of them.
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

    /// Notes whether a member of a write is stored or deleted. Returns whether it is stored: false also if there is no
    /// room.
    pub(super) fn decided(&mut self, id: Id, keep: bool) -> bool {
        if !keep {
            self.kept.remove(&id);
            return false;
        }
        let room = self.kept.len() < self.stored_max || self.kept.contains(&id);
        if room {
            self.kept.insert(id);
        }
        room
    }

    /// Notes that the write is over, whether or not it succeeded. Its members are written again when they change again.
    pub(super) fn written(&mut self, op: OpId) {
        self.writing.take_if(|writing| *writing == op);
    }

    /// Makes pending changes due now.
    pub(super) fn write_now(&mut self, now: Instant) {
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

/// A stored member: its address, and its final status if it ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Stored {
    pub(super) id: Id,
    pub(super) addr: Addr,
    pub(super) status: Option<Status>,
    pub(super) ended: Option<Ended>,
}

impl Stored {
    /// The value: its first address, then its incarnation and state. If it ended, these follow: the time, the accuser,
    /// and its contents.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut writer = Writer::new(&mut bytes, VALUE_BYTES_MAX);
        self.addr.write(&mut writer);
        if let Some(status) = self.status {
            writer.u32(status.incarnation.0);
            writer.u8(status.state as u8);
            if let Some(ended) = &self.ended {
                writer.u64(ended.since.as_micros());
                writer.u128(ended.by.number());
                ended.contents.borrow().write(&mut writer);
            }
        }
        bytes
    }

    /// Reads an entry; `None` if it is no stored member.
    pub(super) fn decode(key: &[u8], value: &[u8]) -> Option<Self> {
        let id = Id::from_bytes(key.try_into().ok()?);
        let mut reader = Reader::new(value);
        let addr = Addr::read(&mut reader).ok()?;
        let mut stored = Self { id, addr, status: None, ended: None };
        if reader.remaining() > 0 {
            let incarnation = Incarnation(reader.u32().ok()?);
            stored.status = Some(Status::new(incarnation, State::from_number(reader.u8().ok()?)?));
        }
        if reader.remaining() > 0 {
            let since = Wall::from_micros(reader.u64().ok()?);
            let by = Id::new(reader.u128().ok()?);
            let contents = Contents::read(&mut reader).ok()?.to_owned();
            stored.ended = Some(Ended { since, by, contents });
        }
        reader.finish().is_ok().then_some(stored)
    }
}

/// An address, a status, and contents with the most addresses and the most metadata.
const VALUE_BYTES_MAX: usize = 1024;
