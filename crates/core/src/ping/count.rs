//! The count: how many pings this node has ever answered, kept across restarts.
//!
//! It is written durably, at most once per `keep_interval` and once more at the stop, one write at a time. The promise
//! is PI-14: once it is reported as kept, it never goes down, whatever happens to the process.

use core::time::Duration;

use crate::store::StoreFault;
use crate::tag::OpId;
use crate::time::Instant;

/// The key of the count in the store; its value is eight bytes, big-endian.
pub const COUNT_KEY: &[u8] = b"answered";

#[derive(Clone, Debug, PartialEq, Eq)]
enum Stage {
    /// Requested from the store, not known yet.
    Loading(OpId),
    /// Known; nothing is under way.
    Idle,
    /// This value is being written.
    Writing(OpId, u64),
    /// It could not be read: the value on disk stays as it is.
    Unreadable,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Count {
    value: u64,
    kept: u64,
    stage: Stage,
    due: Option<Instant>,
    keep_interval: Duration,
    ops: u64,
}

impl Count {
    pub(super) fn new(keep_interval: Duration) -> Self {
        Self { value: 0, kept: 0, stage: Stage::Idle, due: None, keep_interval, ops: 0 }
    }

    /// The operation to load the count with.
    pub(super) fn load(&mut self) -> OpId {
        let op = self.op();
        self.stage = Stage::Loading(op);
        op
    }

    pub(super) fn add_one(&mut self, now: Instant) {
        self.value = self.value.saturating_add(1);
        self.due.get_or_insert(now + self.keep_interval);
    }

    /// Makes a change due at once.
    pub(super) fn hurry(&mut self, now: Instant) {
        if self.value != self.kept {
            self.due = Some(now);
        }
    }

    /// The value to write now, if one is due and none is being written.
    pub(super) fn write(&mut self, now: Instant) -> Option<(OpId, u64)> {
        if self.deadline()? > now {
            return None;
        }
        let op = self.op();
        self.due = None;
        self.stage = Stage::Writing(op, self.value);
        Some((op, self.value))
    }

    /// Takes the reply to the load. Returns whether it was one.
    pub(super) fn loaded(&mut self, op: OpId, value: Result<u64, StoreFault>) -> bool {
        if self.stage != Stage::Loading(op) {
            return false;
        }
        self.stage = if value.is_ok() { Stage::Idle } else { Stage::Unreadable };
        self.kept = value.unwrap_or(0);
        // Pings that were answered while loading count too.
        self.value = self.value.saturating_add(self.kept);
        true
    }

    /// Takes the reply to a write. Returns the value that is durable now.
    pub(super) fn written(&mut self, op: OpId, now: Instant, done: bool) -> Option<u64> {
        let Stage::Writing(writing, value) = self.stage else { return None };
        if writing != op {
            return None;
        }
        self.stage = Stage::Idle;
        if done {
            self.kept = value;
        }
        if self.value != self.kept {
            self.due.get_or_insert(now + self.keep_interval);
        }
        done.then_some(value)
    }

    /// When the next write is due.
    pub(super) fn deadline(&self) -> Option<Instant> {
        if self.stage == Stage::Idle { self.due } else { None }
    }

    pub(super) fn is_loading(&self) -> bool {
        matches!(self.stage, Stage::Loading(_))
    }

    /// Whether everything is written that can be.
    pub(super) fn is_settled(&self) -> bool {
        match self.stage {
            Stage::Idle => self.value == self.kept,
            Stage::Unreadable => true,
            Stage::Loading(_) | Stage::Writing(..) => false,
        }
    }

    pub(super) fn value(&self) -> u64 {
        self.value
    }

    fn op(&mut self) -> OpId {
        self.ops += 1;
        OpId::new(self.ops)
    }
}
