//! The waiting room before the store: what is to be saved, while the store has enough to do.
//!
//! A driver keeps a bounded number of operations waiting and refuses more. A peer may send thousands of small
//! messages at once, and a message for us that the store refused would not be in the inbox; so they wait here, and
//! the peer has to wait as well when they become many.

use core::time::Duration;
use std::collections::{BTreeSet, VecDeque};

use super::alarms::Alarm;
use super::deliver::Delivery;
use super::machine::{INBOX, Mesh, OUTBOX, Out, SEEN};
use super::message::{Message, SeenKey};
use super::nid::Key;
use super::queue::Line;
use super::save::{Pending, forget_blocks, put_block};
use crate::time::Now;

/// How many operations may be under way at once before others wait, and how many bytes.
const OPS_MAX: usize = 256;
const BYTES_MAX: usize = 8 << 20;
/// So many may wait before peers have to.
const WAITING_MAX: usize = 1024;
/// How long to rest when the store is busy all the same, with what others ask of it.
const BUSY_PAUSE: Duration = Duration::from_millis(100);

/// A message to be saved.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Saving {
    /// One in transit.
    Transit { line: Line, key: Key, is_new: bool, message: Message, evicted: Vec<Key> },
    /// One for us.
    Deliver(Box<Delivery>),
}

impl Saving {
    fn bytes(&self) -> usize {
        match self {
            Self::Transit { message, .. } => message.body().len(),
            Self::Deliver(delivery) => delivery.message.body().len(),
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Room {
    waiting: VecDeque<Saving>,
    under_way_bytes: usize,
    /// Lines of the queue whose message could not be read.
    unread: BTreeSet<Line>,
}

impl Room {
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Whether so many wait that nobody should send more.
    pub(super) fn is_full(&self) -> bool {
        self.waiting.len() > WAITING_MAX
    }
}

impl Mesh {
    /// The store was busy, or failed, and may have recovered.
    pub(super) fn try_again(&mut self, now: Now, out: Out<'_, '_>) {
        for line in core::mem::take(&mut self.room.unread) {
            self.fetch(line, out);
        }
        self.admit(now, out);
    }

    /// A message that waits could not be read; that says nothing of the block, so it is tried again.
    pub(super) fn fetch_later(&mut self, now: Now, line: Line) {
        self.room.unread.insert(line);
        self.alarms.set_by(Alarm::Room, now.mono + BUSY_PAUSE);
    }

    /// Saves a message when its turn comes.
    pub(super) fn save(&mut self, now: Now, saving: Saving, out: Out<'_, '_>) {
        self.room.waiting.push_back(saving);
        self.admit(now, out);
    }

    /// Hands over to the store what has its turn.
    pub(super) fn admit(&mut self, now: Now, out: Out<'_, '_>) {
        while self.ops.len() < OPS_MAX
            && self.room.under_way_bytes < BYTES_MAX
            && let Some(saving) = self.room.waiting.pop_front()
        {
            self.room.under_way_bytes += saving.bytes();
            self.hand_over(now, saving, out);
        }
    }

    fn hand_over(&mut self, now: Now, saving: Saving, out: Out<'_, '_>) {
        let seconds = now.wall.as_seconds();
        let op = self.begin(Pending::Save(saving.clone()));
        match saving {
            Saving::Transit { key, is_new, message, evicted, .. } => out.batch(op, false, |batch| {
                forget_blocks(&evicted, batch);
                if is_new {
                    put_block(key, message.shared_data(), seconds, batch);
                }
            }),
            Saving::Deliver(delivery) => {
                let Delivery { message, key, is_new, is_part, received, evicted, confirms, request, .. } =
                    &*delivery;
                let seen = SeenKey::new(message.sender, message.recipient, *key);
                let until = seconds + self.config.expiry.as_secs();
                out.batch(op, !is_part, |batch| {
                    forget_blocks(evicted, batch);
                    if *is_new {
                        put_block(*key, message.shared_data(), seconds, batch);
                    }
                    batch.put(SEEN, &seen.0, &until.to_be_bytes());
                    for sent in confirms.iter().chain(request.as_ref().map(|(_, sent)| sent)) {
                        batch.put(OUTBOX, &sent.number.to_be_bytes(), &sent.to_bytes());
                    }
                    if let Some(received) = received {
                        batch.put(INBOX, &received.number.to_be_bytes(), &received.to_bytes());
                    }
                });
            }
        }
    }

    /// The store has answered to a message that was to be saved.
    pub(super) fn saved(&mut self, saving: &Saving) {
        self.room.under_way_bytes -= saving.bytes();
    }

    /// The store was too busy: the message is the first that is tried again.
    pub(super) fn save_later(&mut self, now: Now, saving: Saving) {
        self.room.waiting.push_front(saving);
        self.alarms.set_by(Alarm::Room, now.mono + BUSY_PAUSE);
    }
}
