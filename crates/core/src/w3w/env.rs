//! The environment of every part: settings, identity, random numbers, timers, counters and the sums of memory use.
//!
//! Plain data: each part reads what it needs. [`Low`] has the calls of a part of the lower half, [`Cx`] those of a part
//! of the upper half.

use core::time::Duration;
use std::net::SocketAddrV4;

use super::blocks::BlockIndex;
use super::book::{Book, BookEntry};
use super::config::Config;
use super::counters::Counters;
use super::custody::Custody;
use super::disk::Disk;
use super::forward::Forward;
use super::links::Links;
use super::machine::Mesh;
use super::mailboxes::Mailboxes;
use super::message::Here;
use super::nid::Nid;
use super::ring::Ring;
use super::timers::Timer;
use crate::common::Timers;
use crate::outbox::Outbox;
use crate::rng::Rng;
use crate::time::{Instant, Now};

/// How long changes of the address book are collected.
const STORE_BOOK_AFTER: Duration = Duration::from_secs(1);

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Env {
    pub(super) config: Config,
    pub(super) own: Nid,
    /// The address at which this node accepts connections: the content of its HERE.
    pub(super) at: SocketAddrV4,
    pub(super) rng: Rng,
    pub(super) timers: Timers<Timer>,
    pub(super) counters: Counters,
    pub(super) memory: MemoryUse,
    pub(super) is_stopping: bool,
    /// Whether a deadline of a part changed; the machine then sets [`Timer::Expire`] after the call.
    pub(super) is_expiry_stale: bool,
    pub(super) lazy: LazyTimers,
    /// Whether a deadline of custody changed; the machine then sets [`Timer::Custody`] after the call.
    pub(super) is_custody_stale: bool,
}

/// The timers that many inputs would move. They may be early, and are then set anew.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct LazyTimers {
    pub(super) expire: LazyTimer,
    pub(super) custody: LazyTimer,
    pub(super) verdicts: LazyTimer,
    pub(super) stalls: LazyTimer,
}

impl LazyTimers {
    /// Notes that a timer has fired.
    pub(super) fn on_due(&mut self, timer: Timer) {
        match timer {
            Timer::Expire => self.expire = LazyTimer::default(),
            Timer::Custody => self.custody = LazyTimer::default(),
            Timer::Verdicts => self.verdicts = LazyTimer::default(),
            Timer::Stalls => self.stalls = LazyTimer::default(),
            _ => {}
        }
    }
}

/// When such a timer is due, if it is set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct LazyTimer(Option<Instant>);

impl LazyTimer {
    /// Sets the timer unless it is due no later.
    pub(super) fn set(&mut self, timers: &mut Timers<Timer>, timer: Timer, at: Option<Instant>) {
        if let Some(at) = at
            && self.0.is_none_or(|set| at < set)
        {
            self.0 = Some(at);
            timers.set(timer, at);
        }
    }
}

/// Bytes of messages in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct MemoryUse {
    /// Messages of the queue.
    pub(super) queued: usize,
    /// Messages for this node that are being written to the store.
    pub(super) delivering: usize,
    /// Incomplete frames.
    pub(super) partial: usize,
}

impl MemoryUse {
    /// Complete messages: they leave memory when the store has written them.
    pub(super) const fn complete(self) -> usize {
        self.queued + self.delivering
    }

    pub(super) const fn total(self) -> usize {
        self.complete() + self.partial
    }
}

impl Env {
    /// The HERE of this node.
    pub(super) fn here(&self) -> Here {
        Here { nid: self.own, at: self.at }
    }

    /// Notes that a deadline of a part changed.
    pub(super) fn schedule_expiry(&mut self) {
        self.is_expiry_stale = true;
    }

    /// Sets [`Timer::Expire`] for the earliest deadline of all parts. A deadline that is gone leaves the timer as it is:
    /// it is then early, and is set anew when it is due.
    pub(super) fn set_expiry(&mut self, deadline: Option<Instant>, now: Now) {
        let at = deadline.filter(|_| !self.is_stopping).map(|at| not_at_once(at, now));
        self.lazy.expire.set(&mut self.timers, Timer::Expire, at);
    }

    /// Removes all timers.
    pub(super) fn clear_timers(&mut self) {
        self.timers.clear();
        self.lazy = LazyTimers::default();
    }

    /// Notes that a deadline of custody changed.
    pub(super) fn schedule_custody(&mut self) {
        self.is_custody_stale = true;
    }
}

/// The time of a deadline; one that has passed is moved a little, so that the driver does not spin.
pub(super) fn not_at_once(at: Instant, now: Now) -> Instant {
    if at > now.mono { at } else { now.mono + Duration::from_millis(1) }
}

/// The lower parts, without logic.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Lower {
    pub(super) env: Env,
    pub(super) disk: Disk,
    pub(super) blocks: BlockIndex,
    pub(super) mailboxes: Mailboxes,
    pub(super) book: Book,
    pub(super) links: Links,
    pub(super) custody: Custody,
    pub(super) ring: Ring,
}

/// The calls of [`Forward`].
pub(super) struct Low<'a, 'b> {
    pub(super) now: Now,
    pub(super) env: &'a mut Env,
    pub(super) disk: &'a mut Disk,
    pub(super) blocks: &'a mut BlockIndex,
    pub(super) mailboxes: &'a mut Mailboxes,
    pub(super) book: &'a mut Book,
    pub(super) links: &'a mut Links,
    pub(super) custody: &'a mut Custody,
    pub(super) ring: &'a mut Ring,
    pub(super) out: &'a mut Outbox<'b, Mesh>,
}

/// The calls of delivery, peering and files.
pub(super) struct Cx<'a, 'b> {
    pub(super) low: Low<'a, 'b>,
    pub(super) forward: &'a mut Forward,
}

impl Lower {
    pub(super) fn low<'a, 'b>(&'a mut self, now: Now, out: &'a mut Outbox<'b, Mesh>) -> Low<'a, 'b> {
        let Self { env, disk, blocks, mailboxes, book, links, custody, ring } = self;
        Low { now, env, disk, blocks, mailboxes, book, links, custody, ring, out }
    }
}

impl Low<'_, '_> {
    /// Grants the credit that was withheld, as far as memory allows.
    pub(super) fn release_credit(&mut self) {
        self.links.release_credit(self.env, self.now, self.disk.is_full(), self.out);
    }

    /// Grants a peer as many bytes as it sent, unless memory is short.
    pub(super) fn grant(&mut self, stream: crate::tag::StreamId, bytes: usize, is_whole: bool) {
        let is_disk_full = self.disk.is_full();
        self.links.grant(self.env, self.now, (stream, bytes, is_whole), is_disk_full, self.out);
    }

    /// Notes in the address book that a node is present, with facts about it.
    pub(super) fn note_contact(&mut self, nid: Nid, change: impl FnOnce(&mut BookEntry)) {
        if self.book.sight(nid, self.now.wall.as_seconds(), change) {
            self.store_book_later();
        }
    }

    /// Notes in the address book that a letter or a receipt came from a node.
    pub(super) fn note_letters(&mut self, nid: Nid, mailbox: Option<u64>) {
        let known = self.book.get(nid).and_then(|entry| entry.mailbox);
        let is_known = mailbox.is_none() || mailbox == known;
        if !is_known || !self.book.is_current(nid, self.now.wall.as_seconds()) {
            self.note_contact(nid, |entry| {
                entry.knows_letters = true;
                entry.mailbox = mailbox.or(entry.mailbox);
            });
        }
    }

    /// Notes facts about a node in the address book, whether or not it is present.
    pub(super) fn note_about(&mut self, nid: Nid, change: impl FnOnce(&mut BookEntry)) {
        if self.book.note(nid, self.now.wall.as_seconds(), change) {
            self.store_book_later();
        }
    }

    fn store_book_later(&mut self) {
        self.env.timers.set_earlier(Timer::StoreBook, self.now.mono + STORE_BOOK_AFTER);
    }

    /// Deletes a record without awaiting the reply.
    pub(super) fn delete(&mut self, space: crate::tag::SpaceId, key: &[u8]) {
        let op = self.disk.begin(super::disk::Pending::Other);
        self.out.delete(op, space, key, false);
    }
}
