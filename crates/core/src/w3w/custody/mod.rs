//! Custody between neighbours: messages that a peer was given and has not answered, and verdicts that are owed to it.
//!
//! | peer | a message was given | this node drops it |
//! |---|---|---|
//! | speaks custody (CU-7) | when it is written | when the peer answers `held` or `delivered` (CU-11, CU-12) |
//! | foreign | when it is written | 60 s after the peer's kernel has acknowledged it (CU-16) |
//!
//! If a verdict is overdue, this part requests a ping. A peer that stays silent after it is disconnected (CU-14). The
//! part knows entries of the queue by their numbers only.

mod link;

use core::time::Duration;
use std::collections::BTreeMap;

use super::form::{Custody as Frame, Form, Verdict, write_form};
use super::message::{EntryId, SeenKey};
use super::nid::Nid;
use super::wire::form_frame;
use crate::id::hash;
use crate::tag::StreamId;
use crate::time::Instant;

use link::LinkCustody;

/// How long verdicts are collected before they are written, and how many at most (CU-13).
const COLLECT: Duration = Duration::from_millis(2);
const COLLECT_MAX: usize = 16;
/// The most verdicts in one frame.
const VERDICTS_MAX: usize = 1024;

/// The durations of this part near which faults are drawn (FA-30).
pub(super) const TIMESCALES: [(&str, Duration); 3] = [
    ("mesh.verdict_min", link::VERDICT_MIN),
    ("mesh.verdict_max", link::VERDICT_MAX),
    ("mesh.foreign_hold", link::FOREIGN_HOLD),
];

/// The custody of all connections.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Custody {
    links: BTreeMap<StreamId, LinkCustody>,
    /// Whether the driver reports the bytes that the peer's kernel has acknowledged.
    confirms: bool,
    /// When the collected verdicts are written.
    flush_at: Option<Instant>,
    /// Nothing else is due before this time. It may be early: [`Custody::due`] looks at all connections and sets it anew.
    due_at: Option<Instant>,
}

/// A due action on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    /// A verdict is overdue: ping the peer.
    Ping(StreamId),
    /// The peer answered neither a message nor a ping.
    Silent(StreamId),
    /// A foreign peer has kept its connection long enough after its kernel acknowledged the message.
    Released(StreamId, EntryId),
}

/// The answer of a peer about a message that it was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Answered {
    pub(super) entry: EntryId,
    /// How often this node had answered `held` for the entry when it gave it.
    pub(super) acceptance: u32,
}

/// The NID in the second HERE of a connection, which says that `from` speaks custody to `to` (CU-7).
pub(super) fn hello_nid(from: Nid, to: Nid) -> Nid {
    Nid::from_bytes(hash(&[&b"annulus/custody/1"[..], &from.to_bytes(), &to.to_bytes()].concat()))
}

impl Custody {
    pub(super) fn set_confirms(&mut self, confirms: bool) {
        self.confirms = confirms;
    }

    /// Notes a new peer of the ring.
    pub(super) fn on_up(&mut self, stream: StreamId, nid: Nid, now: Instant) {
        self.links.insert(stream, LinkCustody::new(nid, now));
    }

    /// Notes that the peer speaks custody.
    pub(super) fn on_hello(&mut self, stream: StreamId) {
        self.change(stream, LinkCustody::set_speaks);
    }

    /// Closes the connection. Returns the entries that were given and not answered.
    pub(super) fn on_closed(&mut self, stream: StreamId) -> Vec<EntryId> {
        self.links.remove(&stream).map(|link| link.entries().collect()).unwrap_or_default()
    }

    /// Notes that bytes came from the peer.
    pub(super) fn on_heard(&mut self, stream: StreamId, now: Instant) {
        if let Some(link) = self.links.get_mut(&stream) {
            link.on_heard(now);
        }
    }

    /// Whether the peer speaks custody.
    pub(super) fn speaks(&self, stream: StreamId) -> bool {
        self.links.get(&stream).is_some_and(LinkCustody::speaks)
    }

    /// Whether the peer with this NID speaks custody.
    pub(super) fn speaks_to(&self, nid: Nid) -> bool {
        self.links.values().any(|link| link.nid() == nid && link.speaks())
    }

    /// Whether the peer has to answer about this entry.
    pub(super) fn is_given(&self, stream: StreamId, entry: EntryId) -> bool {
        self.links.get(&stream).is_some_and(|link| link.is_given(entry))
    }

    /// Whether a verdict of this peer is overdue: other peers get new messages first.
    pub(super) fn is_overdue(&self, stream: StreamId, now: Instant) -> bool {
        self.links.get(&stream).is_some_and(|link| link.is_overdue(now))
    }

    /// Whether a message of this length may be given now (CU-14).
    pub(super) fn may_give(&self, stream: StreamId, bytes: usize) -> bool {
        self.links.get(&stream).is_none_or(|link| link.may_give(bytes))
    }

    /// Notes a message that is being written to a connection.
    pub(super) fn give(
        &mut self,
        stream: StreamId,
        entry: EntryId,
        seen: SeenKey,
        bytes: usize,
        acceptance: u32,
        now: Instant,
    ) {
        if let Some(link) = self.links.get_mut(&stream) {
            link.give(entry, seen, bytes, acceptance, now);
        }
    }

    /// Notes where the frame of a given message ends, in bytes of the connection.
    pub(super) fn written(&mut self, stream: StreamId, entry: EntryId, end: u64) {
        self.change(stream, |link| link.written(entry, end));
    }

    /// Notes that the own kernel has taken the whole frame. A driver without confirmations reports nothing more.
    pub(super) fn on_sent(&mut self, stream: StreamId, entry: EntryId, now: Instant) {
        if !self.confirms {
            self.change(stream, |link| link.assume_confirmed(entry, now));
        }
    }

    /// Notes bytes that the peer's kernel has acknowledged. Returns the entries that it has completely.
    pub(super) fn on_confirmed(&mut self, stream: StreamId, bytes: usize, now: Instant) -> Vec<EntryId> {
        self.change(stream, |link| link.on_confirmed(bytes, now)).unwrap_or_default()
    }

    /// Forgets an entry: no answer about it is awaited.
    pub(super) fn forget(&mut self, stream: StreamId, entry: EntryId) {
        if let Some(link) = self.links.get_mut(&stream) {
            link.forget(entry);
        }
    }

    /// Handles a verdict of the peer.
    pub(super) fn on_verdict(&mut self, stream: StreamId, seen: SeenKey, now: Instant) -> Option<Answered> {
        self.change(stream, |link| link.on_verdict(seen, now))?
    }

    /// Owes a verdict to a peer. The verdict goes to all connections of the peer, since one of them may be closing. A
    /// verdict on a message that was not given there is ignored.
    pub(super) fn answer(&mut self, nid: Nid, seen: SeenKey, verdict: Verdict, now: Instant) {
        for link in self.links.values_mut().filter(|link| link.nid() == nid && link.speaks()) {
            if link.push_verdict(seen, verdict) >= COLLECT_MAX {
                self.flush_at = Some(now);
            }
            self.flush_at.get_or_insert(now + COLLECT);
        }
    }

    /// Pings a peer, unless a ping is under way. Returns the frame to write.
    pub(super) fn ping(&mut self, stream: StreamId, now: Instant) -> Option<Vec<u8>> {
        let begins = self.change(stream, |link| link.begin_ping(now))?;
        begins.then(|| frame(Frame { flag: Frame::PING, verdicts: Vec::new() }))
    }

    /// The frames of this node for all verdicts that are due.
    pub(super) fn take_verdicts(&mut self, own: Nid, now: Instant) -> Vec<(StreamId, Vec<u8>)> {
        if self.flush_at.is_none_or(|at| at > now) {
            return Vec::new();
        }
        self.flush_at = None;
        let mut frames = Vec::new();
        for (stream, link) in &mut self.links {
            let mut verdicts = link.take_verdicts();
            while !verdicts.is_empty() {
                let rest = verdicts.split_off(verdicts.len().min(VERDICTS_MAX));
                let form = Form::Custody(Frame { flag: Frame::VERDICTS, verdicts });
                frames.push((*stream, form_frame(own, link.nid(), &form)));
                verdicts = rest;
            }
        }
        frames
    }

    /// The due actions of all connections.
    pub(super) fn due(&mut self, now: Instant) -> Vec<Due> {
        let mut due = Vec::new();
        if self.due_at.is_none_or(|at| at > now) {
            return due;
        }
        for (stream, link) in &mut self.links {
            link.collect_due(*stream, now, &mut due);
        }
        self.due_at = self.links.values().filter_map(LinkCustody::next_deadline).min();
        due
    }

    /// Nothing but verdicts is due before this time.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.due_at
    }

    /// When the collected verdicts are written.
    pub(super) fn flush_at(&self) -> Option<Instant> {
        self.flush_at
    }

    /// Changes the custody of a connection, which may have an earlier deadline from then on.
    fn change<T>(&mut self, stream: StreamId, change: impl FnOnce(&mut LinkCustody) -> T) -> Option<T> {
        let link = self.links.get_mut(&stream)?;
        let result = change(link);
        self.due_at = self.due_at.into_iter().chain(link.next_deadline()).min();
        Some(result)
    }
}

/// The DATA of the answer to a ping.
pub(super) fn pong() -> Vec<u8> {
    frame(Frame { flag: Frame::PONG, verdicts: Vec::new() })
}

fn frame(custody: Frame) -> Vec<u8> {
    write_form(&Form::Custody(custody))
}
