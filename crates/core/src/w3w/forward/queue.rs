//! The queue: every message that is not for this node, until another node has it, and longer while in custody.
//!
//! An entry is small; its message is in the store and stays in memory only while there is room (`memory_bytes_max`).
//! So a slow peer costs entries, not the memory of its messages.

use std::collections::{BTreeMap, BTreeSet};

use super::paths::Paths;
use super::quotas::Quotas;
use super::retransmit::Retransmit;
use crate::time::Instant;
use crate::w3w::env::MemoryUse;
use crate::w3w::form::Receipts;
use crate::w3w::message::{EntryId, Message, SeenKey};
use crate::w3w::nid::{Key, Nid};
use crate::w3w::records::Waiting;

/// A queued message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) envelope: Envelope,
    pub(super) upstream: Upstream,
    pub(super) storage: Storage,
    pub(super) paths: Paths,
    pub(super) until: Instant,
    pub(super) until_seconds: u64,
    /// Its number in the outbox, if it is from this node.
    pub(super) outbox: Option<u64>,
    pub(super) progress: Progress,
    /// Whether it is to be sent again, with another attempt, when its message is in memory (CU-18).
    pub(super) is_resend_due: bool,
    /// Whether the node keeps it until it expires (MA-45b).
    pub(super) in_custody: bool,
}

/// The identity of a queued message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Envelope {
    pub(super) sender: Nid,
    pub(super) recipient: Nid,
    pub(super) key: Key,
    pub(super) seen: SeenKey,
    /// The length of its DATA.
    pub(super) size: usize,
    /// Epoch and number of a letter.
    pub(super) letter: Option<(u64, u64)>,
}

/// The peers that gave a message to this node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Upstream {
    /// The peer it came from: it never goes back there (MA-40).
    pub(super) from: Option<Nid>,
    /// Peers that get a verdict once it is stored.
    pub(super) awaiting: Vec<Nid>,
    /// How often this node has answered `held`. An answer to a copy given before that is out of date: otherwise all
    /// nodes of a circle could drop the message (CU-12).
    pub(super) acceptance: u32,
}

/// The copies of a message at this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Storage {
    /// The copy in memory.
    pub(super) message: Option<Message>,
    pub(super) block: Block,
    /// Whether the record of the entry is on disk, and whether it is synced there.
    pub(super) is_listed: bool,
    pub(super) is_durable: bool,
}

/// The place of an entry's DATA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Block {
    /// The store has not answered: the entry is not forwarded yet (MA-49a).
    Writing,
    /// In the store.
    Stored,
    /// The store did not write it.
    MemoryOnly,
}

/// The progress of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// No connection has taken it.
    Queued,
    /// At least one connection has taken it.
    Relayed,
    /// A connection has taken it, and its receipt is outstanding.
    AwaitingReceipt(Retransmit),
}

impl Storage {
    /// The memory of the copy.
    fn memory_bytes(&self) -> usize {
        self.message.as_ref().map_or(0, |message| message.body().len())
    }
}

impl Entry {
    /// An entry of a message that is neither in memory nor on disk, and that never expires.
    pub(super) fn new(envelope: Envelope) -> Self {
        Self {
            envelope,
            upstream: Upstream::default(),
            storage: Storage { message: None, block: Block::Writing, is_listed: false, is_durable: false },
            paths: Paths::new(),
            until: Instant::ZERO,
            until_seconds: 0,
            outbox: None,
            progress: Progress::Queued,
            is_resend_due: false,
            in_custody: false,
        }
    }

    /// Whether it comes from the application of this node.
    pub(super) fn is_own(&self, own: Nid) -> bool {
        self.upstream.from.is_none() && self.envelope.sender == own
    }

    pub(super) fn retransmit(&self) -> Option<Retransmit> {
        if let Progress::AwaitingReceipt(retransmit) = self.progress { Some(retransmit) } else { None }
    }

    /// Its record in the store.
    pub(super) fn record(&self) -> Waiting {
        let Envelope { sender, recipient, key, size, letter, .. } = self.envelope;
        let (until, outbox) = (self.until_seconds, self.outbox);
        Waiting { sender, recipient, key, size: size as u64, until, outbox, letter }
    }

    /// Whether it is a letter that this node forwards.
    pub(super) fn is_letter_of_others(&self) -> bool {
        self.outbox.is_none() && self.envelope.letter.is_some()
    }

    /// Whether it is a letter of this node: it stays until its receipt comes (CU-11).
    pub(super) fn is_own_letter(&self) -> bool {
        self.outbox.is_some() && self.envelope.letter.is_some()
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Queue {
    entries: BTreeMap<EntryId, Box<Entry>>,
    /// Lines whose message could be let go of: it is stored too.
    sheddable: BTreeSet<EntryId>,
    /// Entries of this node, by their number in the outbox.
    own: BTreeMap<u64, EntryId>,
    /// Lines of others that no peer was promised.
    droppable: BTreeSet<EntryId>,
    /// Lines of others whose message is only in memory.
    unsaved: BTreeSet<EntryId>,
    by_seen: BTreeMap<SeenKey, EntryId>,
    /// Letters in transit: sender, recipient, epoch, number.
    letters: BTreeMap<(Nid, Nid, u64, u64), EntryId>,
    quotas: Quotas,
    /// Entries by the end of their lifetime. Each entry has its own, so `Timers` would keep it twice.
    order: BTreeSet<(Instant, EntryId)>,
    next: EntryId,
    bytes: usize,
    limits: Limits,
}

/// The most that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Limits {
    entries: usize,
    bytes: usize,
}

impl Queue {
    pub(super) fn new(entries_max: usize, bytes_max: usize) -> Self {
        Self {
            entries: BTreeMap::new(),
            sheddable: BTreeSet::new(),
            own: BTreeMap::new(),
            droppable: BTreeSet::new(),
            unsaved: BTreeSet::new(),
            by_seen: BTreeMap::new(),
            letters: BTreeMap::new(),
            quotas: Quotas::default(),
            order: BTreeSet::new(),
            next: 0,
            bytes: 0,
            limits: Limits { entries: entries_max, bytes: bytes_max },
        }
    }

    /// Whether a message of this size fits.
    pub(super) fn has_room(&self, size: usize) -> bool {
        self.entries.len() < self.limits.entries && self.bytes + size <= self.limits.bytes
    }

    /// Whether the queue is more than half full: optional messages should then not be kept.
    pub(super) fn is_half_full(&self) -> bool {
        self.entries.len() * 2 >= self.limits.entries || self.bytes * 2 >= self.limits.bytes
    }

    /// The entry of an outbox line.
    pub(super) fn id_of(&self, number: u64) -> Option<EntryId> {
        self.own.get(&number).copied()
    }

    /// The entries of this node.
    pub(super) fn own_entries(&self) -> impl Iterator<Item = &Entry> {
        self.own.values().filter_map(|id| self.get(*id))
    }

    /// Lets matching entries that await a receipt go to their recipients again; returns them.
    pub(super) fn reoffer(&mut self, which: impl Fn(&Entry) -> bool) -> Vec<EntryId> {
        let mut ids = Vec::new();
        for id in self.own.values() {
            if let Some(entry) = self.entries.get_mut(id)
                && entry.retransmit().is_some()
                && which(entry)
            {
                entry.paths.forget(entry.envelope.recipient);
                ids.push(*id);
            }
        }
        ids
    }

    pub(super) fn push(&mut self, memory: &mut MemoryUse, entry: Entry) -> EntryId {
        let id = self.next;
        self.next += 1;
        self.put(memory, id, entry);
        id
    }

    /// Inserts an entry from the store, with its own number.
    pub(super) fn put(&mut self, memory: &mut MemoryUse, id: EntryId, entry: Entry) {
        self.next = self.next.max(id + 1);
        self.bytes += entry.envelope.size;
        memory.queued += entry.storage.memory_bytes();
        self.order.insert((entry.until, id));
        match entry.outbox {
            Some(number) => {
                self.own.insert(number, id);
            }
            None => {
                if !entry.storage.is_durable {
                    self.droppable.insert(id);
                }
                if let Some((epoch, number)) = entry.envelope.letter {
                    let Envelope { sender, recipient, .. } = entry.envelope;
                    self.letters.insert((sender, recipient, epoch, number), id);
                }
            }
        }
        self.quotas.add(&entry);
        self.by_seen.insert(entry.envelope.seen, id);
        self.entries.insert(id, Box::new(entry));
    }

    pub(super) fn remove(&mut self, memory: &mut MemoryUse, id: EntryId) -> Option<Entry> {
        let entry = self.entries.remove(&id)?;
        self.order.remove(&(entry.until, id));
        self.sheddable.remove(&id);
        if self.by_seen.get(&entry.envelope.seen) == Some(&id) {
            self.by_seen.remove(&entry.envelope.seen);
        }
        match entry.outbox {
            Some(number) => {
                self.own.remove(&number);
            }
            None => {
                self.droppable.remove(&id);
                self.unsaved.remove(&id);
                if let Some((epoch, number)) = entry.envelope.letter {
                    let Envelope { sender, recipient, .. } = entry.envelope;
                    self.letters.remove(&(sender, recipient, epoch, number));
                }
            }
        }
        self.quotas.subtract(&entry);
        self.bytes -= entry.envelope.size;
        memory.queued -= entry.storage.memory_bytes();
        Some(*entry)
    }

    pub(super) fn get(&self, id: EntryId) -> Option<&Entry> {
        self.entries.get(&id).map(|entry| &**entry)
    }

    pub(super) fn get_mut(&mut self, id: EntryId) -> Option<&mut Entry> {
        self.entries.get_mut(&id).map(|entry| &mut **entry)
    }

    /// Puts the message back into memory.
    pub(super) fn loaded(&mut self, memory: &mut MemoryUse, id: EntryId, message: Message) {
        if let Some(entry) = self.entries.get_mut(&id)
            && entry.storage.message.is_none()
        {
            memory.queued += message.body().len();
            entry.storage.message = Some(message);
            self.sheddable.insert(id);
        }
    }

    /// Notes the store's reply: a stored message may leave memory.
    pub(super) fn set_block(&mut self, id: EntryId, block: Block) {
        if let Some(entry) = self.entries.get_mut(&id) {
            entry.storage.block = block;
            if block == Block::Stored && entry.storage.message.is_some() {
                self.sheddable.insert(id);
            } else if block == Block::MemoryOnly && entry.outbox.is_none() {
                self.unsaved.insert(id);
            }
        }
    }

    /// Removes one message from memory that is stored, and returns it.
    pub(super) fn unload(&mut self, memory: &mut MemoryUse, id: EntryId) -> Option<Message> {
        if !self.sheddable.remove(&id) {
            return None;
        }
        let message = self.entries.get_mut(&id)?.storage.message.take()?;
        memory.queued -= message.body().len();
        Some(message)
    }

    /// Removes stored messages from memory, newest first, until memory is within bounds: the oldest are written next.
    pub(super) fn shed(&mut self, memory: &mut MemoryUse, memory_bytes_max: usize) {
        while memory.queued > memory_bytes_max {
            let Some(&id) = self.sheddable.last() else { return };
            self.unload(memory, id);
        }
    }

    /// The oldest entry in transit for which no peer got `held`: it is dropped when the queue is full (MA-45, CU-13).
    pub(super) fn oldest_droppable(&self) -> Option<EntryId> {
        self.droppable.first().copied()
    }

    /// Notes that this node answers `held` for the entry: it is never dropped for another one.
    pub(super) fn promise(&mut self, id: EntryId) {
        if let Some(entry) = self.entries.get_mut(&id) {
            (entry.storage.is_listed, entry.storage.is_durable) = (true, true);
            self.droppable.remove(&id);
        }
    }

    /// The entry of a message.
    pub(super) fn id_of_seen(&self, seen: SeenKey) -> Option<EntryId> {
        self.by_seen.get(&seen).copied()
    }

    /// Shortens the lifetime of an entry.
    pub(super) fn shorten(&mut self, id: EntryId, until: Instant) {
        if let Some(entry) = self.entries.get_mut(&id) {
            self.order.remove(&(entry.until, id));
            entry.until = until;
            self.order.insert((until, id));
        }
    }

    /// Notes that the recipient has gone: entries may go to it again when it returns.
    pub(super) fn forget_sent_to_recipient(&mut self, nid: Nid) {
        for entry in self.entries.values_mut().filter(|entry| entry.envelope.recipient == nid) {
            entry.paths.forget(nid);
        }
    }

    /// The entries for a recipient.
    pub(super) fn ids_to(&self, nid: Nid) -> Vec<EntryId> {
        self.entries.iter().filter(|(_, entry)| entry.envelope.recipient == nid).map(|(id, _)| *id).collect()
    }

    /// Replaces the bytes of a letter: it is another message.
    pub(super) fn replace(
        &mut self,
        memory: &mut MemoryUse,
        id: EntryId,
        message: Message,
        key: Key,
        seen: SeenKey,
    ) {
        self.unload(memory, id);
        let Some(entry) = self.entries.get_mut(&id) else { return };
        if self.by_seen.get(&entry.envelope.seen) == Some(&id) {
            self.by_seen.remove(&entry.envelope.seen);
        }
        memory.queued -= entry.storage.message.take().map_or(0, |message| message.body().len());
        memory.queued += message.body().len();
        (entry.envelope.key, entry.envelope.seen) = (key, seen);
        (entry.storage.message, entry.storage.block) = (Some(message), Block::Writing);
        self.by_seen.insert(seen, id);
    }

    /// The letters in transit between two nodes that are in the recipient's inbox.
    pub(super) fn covered(&self, sender: Nid, recipient: Nid, receipts: &Receipts) -> Vec<EntryId> {
        let (from, epoch) = ((sender, recipient, receipts.epoch, 0), receipts.epoch);
        let letters = self.letters.range(from..=(sender, recipient, epoch, u64::MAX));
        letters.filter(|((.., number), _)| receipts.covers(*number)).map(|(_, id)| *id).collect()
    }

    /// The quotas of those whose messages are queued.
    pub(super) fn quotas(&self) -> &Quotas {
        &self.quotas
    }

    /// The oldest entry in transit whose message is only in memory.
    pub(super) fn oldest_unsaved(&self) -> Option<EntryId> {
        self.unsaved.first().copied()
    }

    /// The entry that expires next, if it has expired.
    pub(super) fn expired(&self, now: Instant) -> Option<EntryId> {
        self.order.first().filter(|(until, _)| *until <= now).map(|(_, id)| *id)
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        self.order.first().map(|(until, _)| *until)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (EntryId, &Entry)> {
        self.entries.iter().map(|(id, entry)| (*id, &**entry))
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }
}
