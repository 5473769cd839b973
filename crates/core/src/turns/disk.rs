//! The disk: its content, and the reads and writes under way (TU-7, TU-11, TU-19).

use std::collections::BTreeMap;

use super::record::Record;
use crate::store::StoreFault;
use crate::tag::OpId;
use crate::wire::{DecodeError, Reader, Writer};

/// The key of the record.
pub const RECORD_KEY: &[u8] = b"record";
/// The key of the bound: eight bytes, big-endian.
pub const BOUND_KEY: &[u8] = b"bound";
/// The key of the leases that a voter wrote when it stopped in good order.
pub const SNAPSHOT_KEY: &[u8] = b"snapshot";

/// The longest record on disk.
pub(super) const RECORD_BYTES_MAX: usize = 512;

/// Something to make durable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Write {
    /// The record, or none; with a bound that belongs to it.
    Record(Option<Record>, Option<u64>),
    /// The bound.
    Bound(u64),
    /// The leases of a voter that stops.
    Snapshot(Vec<u8>),
    /// No leases.
    EraseSnapshot,
}

/// The content of a voter's disk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) record: Option<Record>,
    pub(super) bound: u64,
    pub(super) snapshot: Option<Vec<u8>>,
    /// Whether something is no record and no bound: then the voter must not vote.
    pub(super) broken: bool,
    /// The disk refused a read: it is read again.
    pub(super) refused: Option<StoreFault>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Get {
    Record,
    Bound,
    Snapshot,
}

/// The operations under way.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Disk {
    ops: u64,
    gets: BTreeMap<OpId, Get>,
    writes: BTreeMap<OpId, Write>,
    found: Found,
}

impl Disk {
    /// The reads of the start: operations and keys.
    pub(super) fn load(&mut self) -> [(OpId, &'static [u8]); 3] {
        [(Get::Record, RECORD_KEY), (Get::Bound, BOUND_KEY), (Get::Snapshot, SNAPSHOT_KEY)].map(
            |(get, key)| {
                let op = self.op();
                self.gets.insert(op, get);
                (op, key)
            },
        )
    }

    /// Notes the reply to a read. Returns everything once the last one is answered.
    pub(super) fn loaded(&mut self, op: OpId, value: Result<Option<&[u8]>, StoreFault>) -> Option<Found> {
        let get = self.gets.remove(&op)?;
        match (get, value) {
            (_, Err(fault)) => self.found.refused = Some(fault),
            (_, Ok(None)) => {}
            (Get::Record, Ok(Some(bytes))) => match decode_record(bytes) {
                Ok(record) => self.found.record = Some(record),
                Err(_) => self.found.broken = true,
            },
            (Get::Bound, Ok(Some(bytes))) => match bytes.try_into() {
                Ok(bytes) => self.found.bound = u64::from_be_bytes(bytes),
                Err(_) => self.found.broken = true,
            },
            (Get::Snapshot, Ok(Some(bytes))) => self.found.snapshot = Some(bytes.to_vec()),
        }
        self.gets.is_empty().then(|| core::mem::take(&mut self.found))
    }

    /// Registers a write.
    pub(super) fn writing(&mut self, write: Write) -> OpId {
        let op = self.op();
        self.writes.insert(op, write);
        op
    }

    /// Ends a write that was answered.
    pub(super) fn written(&mut self, op: OpId) -> Option<Write> {
        self.writes.remove(&op)
    }

    pub(super) fn is_loading(&self) -> bool {
        !self.gets.is_empty()
    }

    /// The greatest bound under way.
    pub(super) fn bound_under_way(&self) -> Option<u64> {
        self.writes
            .values()
            .filter_map(|write| if let Write::Bound(bound) = write { Some(*bound) } else { None })
            .max()
    }

    pub(super) fn is_idle(&self) -> bool {
        self.gets.is_empty() && self.writes.is_empty()
    }

    fn op(&mut self) -> OpId {
        self.ops += 1;
        OpId::new(self.ops)
    }
}

pub(super) fn encode_record(record: &Record) -> Vec<u8> {
    let mut bytes = Vec::new();
    record.encode(&mut Writer::new(&mut bytes, RECORD_BYTES_MAX));
    bytes
}

fn decode_record(bytes: &[u8]) -> Result<Record, DecodeError> {
    let mut reader = Reader::new(bytes);
    let record = Record::decode(&mut reader)?;
    reader.finish()?;
    Ok(record)
}
