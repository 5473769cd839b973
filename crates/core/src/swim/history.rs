//! History: members that failed or left, when and by whom they were ended, and the known members on disk (SA-33a, SA-33b).

use core::ops::Bound::{Excluded, Unbounded};
use core::time::Duration;
use std::collections::BTreeMap;
use std::net::SocketAddr;

use super::api::MemberStatus;
use super::config::Config;
use super::env::Env;
use super::machine::{Out, SPACE};
use super::members::{Members, Slot};
use super::snapshot::{PAGE_ENTRIES, Snapshot, Stored};
use super::status::{Incarnation, State, Status};
use super::tombstones::{Ended, Tombstone, Tombstones};
use crate::common::Timers;
use crate::id::Id;
use crate::tag::OpId;
use crate::time::{Instant, Now, Wall, micros};

/// The result of reading a page of the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Loaded {
    /// More entries follow this key.
    More(Vec<u8>),
    /// Everything was read.
    All,
}

/// How a member of the table ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct EndedMember {
    since: Wall,
    by: Id,
    /// Whether the node itself or an operator here said that it left. It is then not probed again (SA-33c).
    is_final: bool,
}

/// Members that ended: they stay in the table during their retention, then they are tombstones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct History {
    tombstones: Tombstones,
    snapshot: Snapshot,
    /// The members that ended and are still in the table.
    ended: BTreeMap<Slot, EndedMember>,
    /// The member of the table that was probed last.
    cursor: Option<Slot>,
    retention: Timers<Slot>,
    keep_failed: Duration,
}

impl History {
    pub(super) fn new(config: &Config) -> Self {
        Self {
            tombstones: Tombstones::new(config.tombstones_max),
            snapshot: Snapshot::new(config.store_interval, config.stored_max),
            ended: BTreeMap::new(),
            cursor: None,
            retention: Timers::default(),
            keep_failed: config.keep_failed,
        }
    }

    /// Schedules a write of a member that came, changed or went.
    pub(super) fn change(&mut self, id: Id, now: Instant) {
        self.snapshot.change(id, now);
    }

    /// Records that a member ended. It stays in the table until `until`.
    pub(super) fn end(&mut self, slot: Slot, since: Wall, by: Id, until: Instant) {
        self.ended.entry(slot).or_insert(EndedMember { since, by, is_final: false });
        self.retention.set(slot, until);
    }

    /// Records that the node itself or an operator here said that a member of the table left.
    pub(super) fn confirm_leave(&mut self, slot: Slot) {
        if let Some(ended) = self.ended.get_mut(&slot) {
            ended.is_final = true;
        }
    }

    /// Records that a member of the table is back.
    pub(super) fn revive(&mut self, slot: Slot) {
        self.ended.remove(&slot);
        self.retention.cancel(slot);
    }

    /// Records that a member of the table is suspect again, instead of dead.
    pub(super) fn reopen(&mut self, slot: Slot) {
        self.retention.cancel(slot);
    }

    /// Takes a member whose retention is over.
    pub(super) fn pop_retained(&mut self, now: Instant) -> Option<Slot> {
        self.retention.pop_due(now)
    }

    /// Turns a member that the table is about to forget into a tombstone.
    pub(super) fn retire(&mut self, members: &Members, slot: Slot, now: Instant) {
        let member = members.get(slot);
        let (id, status, addr) = (member.id(), member.status(), member.contents().addr());
        let contents = member.contents().to_owned();
        let member = self.ended.remove(&slot);
        let is_final = member.is_some_and(|member| member.is_final);
        let ended = member.map(|EndedMember { since, by, .. }| Ended { since, by, contents });
        self.retention.cancel(slot);
        self.tombstones.add(id, Tombstone { addr, status: Some(status), ended, is_final });
        self.snapshot.change(id, now);
    }

    /// Marks a tombstone as one of a member that left. Returns whether there is one.
    pub(super) fn set_left(&mut self, id: Id) -> bool {
        self.tombstones.set_left(id)
    }

    /// Removes a tombstone: its member is back, or is to be forgotten.
    pub(super) fn forget(&mut self, id: Id) {
        self.tombstones.remove(id);
    }

    /// The next member to probe of those that ended and are still in the table (SA-33c).
    pub(super) fn next_ended(&mut self) -> Option<Slot> {
        let after = self.cursor.map_or(Unbounded, Excluded);
        let all = self.ended.range((after, Unbounded)).chain(&self.ended);
        self.cursor = all.into_iter().find(|(_, ended)| !ended.is_final).map(|(slot, _)| *slot);
        self.cursor
    }

    /// The next past member to probe.
    pub(super) fn next_absent(&mut self) -> Option<(Id, Tombstone)> {
        self.tombstones.next()
    }

    /// Reads the entries of the store from a key on. Returns false if nothing is stored.
    pub(super) fn read(&mut self, from: &[u8], out: Out<'_, '_>) -> bool {
        let op = self.snapshot.read();
        if let Some(op) = op {
            out.page(op, SPACE, from, &[], PAGE_ENTRIES);
        }
        op.is_some()
    }

    /// Whether this operation is the one that reads.
    pub(super) fn is_reading(&mut self, op: OpId) -> bool {
        self.snapshot.is_reading(op)
    }

    /// Loads entries of the store. Incarnations that this node had before a restart are put into `former`.
    pub(super) fn load(
        &mut self,
        env: &mut Env,
        entries: &[(Vec<u8>, Vec<u8>)],
        more: bool,
        former: &mut Vec<Incarnation>,
    ) -> Loaded {
        let mut room = true;
        for (key, value) in entries {
            match Stored::decode(key, value) {
                Some(Stored { id, addr, status, ended }) if id != env.id() => {
                    room = self.snapshot.loaded(id);
                    let is_final = status.is_some_and(|status| status.state == State::Left);
                    self.tombstones.add(id, Tombstone { addr, status, ended, is_final });
                }
                Some(own) => former.extend(own.status.map(|status| status.incarnation)),
                None => env.count().stored_unreadable += 1,
            }
        }
        let last = entries.last().map(|(key, _)| [key.as_slice(), &[0]].concat());
        last.filter(|_| more && room).map_or(Loaded::All, Loaded::More)
    }

    /// Notes that a write is over, whether or not it succeeded.
    pub(super) fn written(&mut self, op: OpId) {
        self.snapshot.written(op);
    }

    /// Writes pending changes at the next call of `write`.
    pub(super) fn write_now(&mut self, now: Instant) {
        self.snapshot.write_now(now);
    }

    /// Writes pending changes of the known members, if that is due.
    pub(super) fn write(&mut self, now: Instant, own: Id, members: &Members, out: Out<'_, '_>) {
        let Some((op, ids)) = self.snapshot.due(now) else { return };
        let stored: Vec<(Id, Option<Stored>)> =
            ids.into_iter().map(|id| (id, self.stored_form(id, own, members))).collect();
        let snapshot = &mut self.snapshot;
        // Durable: it is one write in some seconds, and after a crash only these addresses lead back to the group.
        out.batch(op, true, |batch| {
            for (id, stored) in stored {
                let is_stored = snapshot.decided(id, stored.is_some());
                match stored.filter(|_| is_stored) {
                    Some(stored) => batch.put(SPACE, &id.to_bytes(), &stored.encode()),
                    None => batch.delete(SPACE, &id.to_bytes()),
                }
            }
        });
    }

    /// When and by whom a member of the table was ended.
    pub(super) fn ended(&self, slot: Slot) -> Option<(Wall, Id)> {
        self.ended.get(&slot).map(|ended| (ended.since, ended.by))
    }

    /// The final status of a past member.
    pub(super) fn status(&self, id: Id) -> Option<Status> {
        self.tombstones.status(id)
    }

    /// The addresses of past members that may return.
    pub(super) fn addrs(&self) -> impl Iterator<Item = SocketAddr> {
        self.tombstones.addrs()
    }

    /// The past members that are no longer in the table but still listed.
    pub(super) fn shown(&self, now: Now) -> impl Iterator<Item = MemberStatus> {
        self.tombstones.iter().filter_map(move |(id, past)| {
            let (status, ended) = (past.status?, past.ended.as_ref()?);
            let age = now.wall.as_micros().saturating_sub(ended.since.as_micros());
            (age < micros(self.keep_failed)).then(|| MemberStatus {
                node: super::Node::new(id, ended.contents.borrow()),
                state: status.state,
                incarnation: status.incarnation,
                rtt_micros: None,
                since_micros: Some(ended.since.as_micros()),
                by: Some(ended.by),
                is_self: false,
            })
        })
    }

    /// How many tombstones there are.
    pub(super) fn len(&self) -> usize {
        self.tombstones.len()
    }

    /// Whether nothing waits to be written.
    pub(super) fn is_settled(&self) -> bool {
        self.snapshot.is_settled()
    }

    pub(super) fn retention_deadline(&self) -> Option<Instant> {
        self.retention.next().map(|(at, _)| at)
    }

    pub(super) fn write_deadline(&self) -> Option<Instant> {
        self.snapshot.deadline()
    }

    /// The stored form of a node: of a live member only its address, of the local node also its incarnation.
    fn stored_form(&self, id: Id, own: Id, members: &Members) -> Option<Stored> {
        let Some(slot) = members.find(id) else {
            let Tombstone { addr, status, ended, .. } = self.tombstones.get(id)?.clone();
            return Some(Stored { id, addr, status, ended });
        };
        let member = members.get(slot);
        let is_plain = member.state().is_live() && id != own;
        let status = Some(member.status()).filter(|_| !is_plain);
        let contents = || member.contents().to_owned();
        let ended = self.ended.get(&slot);
        let ended = ended.map(|ended| Ended { since: ended.since, by: ended.by, contents: contents() });
        Some(Stored { id, addr: member.contents().addr(), status, ended })
    }
}
