//! The operations of the store under way, and the writes that wait for their turn.
//!
//! A driver keeps a bounded number of operations waiting and refuses more. A peer may send thousands of small
//! messages at once, so writes wait here. When too many wait, the links withhold credit from the peers.

use core::time::Duration;
use std::collections::VecDeque;

use bytes::Bytes;

use super::env::Env;
use super::machine::{BLOCKS, INBOX, INDEX, LETTERS, Mesh, OUTBOX, QUEUE, SEEN};
use super::message::{EntryId, LetterId, Message, SeenKey};
use super::nid::{Key, Nid};
use super::records::{Received, Sent, Waiting};
use super::timers::Timer;
use crate::outbox::{BatchWriter, Outbox};
use crate::tag::{OpId, RequestId};
use crate::time::Now;

/// Operations and bytes under way before further writes wait.
const OPS_MAX: usize = 256;
const BYTES_MAX: usize = 8 << 20;
/// Waiting writes before peers get no more credit.
const WAITING_MAX: usize = 1024;
/// The pause after the store answered that it is busy.
const BUSY_PAUSE: Duration = Duration::from_millis(100);

/// The purpose of an operation of the store.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Pending {
    /// A page of a space, at the start.
    Load,
    /// A message in transit, or one for this node.
    Write(PendingWrite),
    /// A message from this node.
    Own { entry: EntryId, key: Key, is_new: bool, request: Option<(RequestId, u64)> },
    /// The record of an entry is synced, so that its peers can get the verdict `held`.
    Promise(EntryId),
    /// The final state of a letter of this node.
    Close { letter: LetterId, number: u64 },
    /// The application withdraws a message.
    Cancel { request: RequestId, number: u64 },
    /// A letter with another attempt.
    Resend { entry: EntryId, key: Key, is_new: bool },
    /// A queued message is read again.
    Fetch(EntryId),
    /// The application reads a block.
    Read { request: RequestId, key: Key, is_part: bool },
    /// All blocks of a file are synced.
    FileSync(Received),
    /// No part awaits the reply.
    Other,
}

/// A message to be written.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum PendingWrite {
    /// In transit.
    Transit(Box<PendingTransit>),
    /// For this node.
    Deliver(Box<PendingDelivery>),
}

/// A message for another node that is being written.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct PendingTransit {
    pub(super) entry: EntryId,
    pub(super) key: Key,
    /// The block is written for the first time.
    pub(super) is_new: bool,
    pub(super) message: Message,
    /// Blocks that are deleted to make room.
    pub(super) evicted: Vec<Key>,
    /// The record of the entry, if the peer waits for the verdict `held`: both are synced.
    pub(super) record: Option<Waiting>,
}

/// A message for this node that is being written.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct PendingDelivery {
    pub(super) message: Message,
    pub(super) key: Key,
    pub(super) seen: SeenKey,
    /// Whether the block is written for the first time.
    pub(super) is_new: bool,
    /// Whether the block is stored at all.
    pub(super) is_stored: bool,
    /// Whether the message is a block of a file: the sync of the whole file covers it.
    pub(super) is_part: bool,
    pub(super) received: Option<Received>,
    /// Blocks that are deleted to make room.
    pub(super) evicted: Vec<Key>,
    /// The confirmed outbox lines, in their new state. One batch writes them and the message.
    pub(super) confirms: Vec<Sent>,
    /// For a letter: its epoch and number, and the record that is written in the same batch (CU-9).
    pub(super) letter: Option<LetterRecord>,
    /// The peer that awaits a verdict.
    pub(super) from: Option<Nid>,
    /// For a message from this node to itself: the request, and the outbox line.
    pub(super) request: Option<(RequestId, Sent)>,
}

/// The record of a received letter in [`LETTERS`].
#[derive(Clone, Debug, PartialEq)]
pub(super) struct LetterRecord {
    pub(super) epoch: u64,
    pub(super) number: u64,
    pub(super) key: Vec<u8>,
    pub(super) value: Vec<u8>,
}

impl PendingWrite {
    fn bytes(&self) -> usize {
        match self {
            Self::Transit(transit) => transit.message.body().len(),
            Self::Deliver(delivery) => delivery.message.body().len(),
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Disk {
    /// Operations under way, in the order of their numbers; `None` if one was answered before an earlier one.
    ops: VecDeque<Option<Pending>>,
    begun: u64,
    under_way: usize,
    waiting: VecDeque<PendingWrite>,
    under_way_bytes: usize,
}

impl Disk {
    /// Registers an operation and returns its number.
    pub(super) fn begin(&mut self, pending: Pending) -> OpId {
        self.ops.push_back(Some(pending));
        self.begun += 1;
        self.under_way += 1;
        OpId::new(self.begun)
    }

    /// The store answered: returns the purpose of the operation.
    pub(super) fn answered(&mut self, op: OpId) -> Option<Pending> {
        let first = self.begun - self.ops.len() as u64 + 1;
        let index = usize::try_from(op.local().checked_sub(first)?).ok()?;
        let pending = self.ops.get_mut(index)?.take()?;
        self.under_way -= 1;
        while let Some(None) = self.ops.front() {
            self.ops.pop_front();
        }
        if let Pending::Write(write) = &pending {
            self.under_way_bytes -= write.bytes();
        }
        Some(pending)
    }

    /// Writes a message when its turn comes.
    pub(super) fn write(&mut self, env: &Env, now: Now, write: PendingWrite, out: &mut Outbox<'_, Mesh>) {
        self.waiting.push_back(write);
        self.resume(env, now, out);
    }

    /// Submits the writes whose turn has come.
    pub(super) fn resume(&mut self, env: &Env, now: Now, out: &mut Outbox<'_, Mesh>) {
        while self.under_way < OPS_MAX
            && self.under_way_bytes < BYTES_MAX
            && let Some(write) = self.waiting.pop_front()
        {
            self.under_way_bytes += write.bytes();
            self.submit(env, now, write, out);
        }
    }

    /// Puts a write back at the front: the store was busy.
    pub(super) fn retry(&mut self, env: &mut Env, now: Now, write: PendingWrite) {
        self.waiting.push_front(write);
        Self::retry_later(env, now);
    }

    pub(super) fn retry_later(env: &mut Env, now: Now) {
        env.timers.set_earlier(Timer::RetryStore, now.mono + BUSY_PAUSE);
    }

    /// Whether nothing is under way and nothing waits.
    pub(super) fn is_idle(&self) -> bool {
        self.under_way == 0 && self.waiting.is_empty()
    }

    /// Whether so many writes wait that peers get no more credit.
    pub(super) fn is_full(&self) -> bool {
        self.waiting.len() > WAITING_MAX
    }

    #[cfg(test)]
    pub(super) fn begun(&self) -> u64 {
        self.begun
    }

    fn submit(&mut self, env: &Env, now: Now, write: PendingWrite, out: &mut Outbox<'_, Mesh>) {
        let seconds = now.wall.as_seconds();
        let op = OpId::new(self.begun + 1);
        match &write {
            PendingWrite::Transit(transit) => {
                let PendingTransit { entry, key, is_new, message, evicted, record } = &**transit;
                out.batch(op, record.is_some() && !env.config.replies_before_durable(), |batch| {
                    delete_blocks(evicted, batch);
                    if *is_new {
                        put_block(*key, message.shared_data(), seconds, batch);
                    }
                    if let Some(record) = record {
                        batch.put(QUEUE, &entry.to_be_bytes(), &record.to_bytes());
                    }
                });
            }
            PendingWrite::Deliver(delivery) => {
                let PendingDelivery {
                    message,
                    key,
                    seen,
                    is_new,
                    is_part,
                    received,
                    evicted,
                    confirms,
                    request,
                    letter,
                    ..
                } = &**delivery;
                let until = seconds + env.config.seen_for(received.is_some()).as_secs();
                let is_unsynced = env.config.confirms_before_durable() && request.is_none();
                out.batch(op, !is_part && !is_unsynced, |batch| {
                    delete_blocks(evicted, batch);
                    if *is_new {
                        put_block(*key, message.shared_data(), seconds, batch);
                    }
                    match letter {
                        Some(letter) => batch.put(LETTERS, &letter.key, &letter.value),
                        None => batch.put(SEEN, &seen.fingerprint().to_bytes(), &until.to_be_bytes()),
                    }
                    for sent in confirms.iter().chain(request.as_ref().map(|(_, sent)| sent)) {
                        batch.put(OUTBOX, &sent.number.to_be_bytes(), &sent.to_bytes());
                    }
                    if let Some(received) = received {
                        batch.put(INBOX, &received.number.to_be_bytes(), &received.to_bytes());
                    }
                });
            }
        }
        self.begin(Pending::Write(write));
    }
}

/// Writes a block and its line of the index.
pub(super) fn put_block(key: Key, data: Bytes, seconds: u64, batch: &mut BatchWriter<'_>) {
    let mut about = [0; 16];
    about[..8].copy_from_slice(&(data.len() as u64).to_be_bytes());
    about[8..].copy_from_slice(&seconds.to_be_bytes());
    batch.put_shared(BLOCKS, &key.to_bytes(), data);
    batch.put(INDEX, &key.to_bytes(), &about);
}

/// Deletes blocks and their lines of the index.
pub(super) fn delete_blocks(keys: &[Key], batch: &mut BatchWriter<'_>) {
    for key in keys {
        batch.delete(BLOCKS, &key.to_bytes());
        batch.delete(INDEX, &key.to_bytes());
    }
}
