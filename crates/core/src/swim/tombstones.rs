//! Past members: their addresses, to probe them again now and then, and their final status, so that an old update does
//! not revive them (SA-33a).

use std::collections::BTreeMap;
use std::net::SocketAddr;

use super::addr::Addr;
use super::contents::OwnContents;
use super::status::{State, Status};
use crate::id::Id;
use crate::time::Wall;

/// One past member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Tombstone {
    pub(super) addr: Addr,
    /// The last known status; `None` for one that was alive when it was stored, where only the address counts.
    pub(super) status: Option<Status>,
    /// When and by whom it was ended, and how it described itself.
    pub(super) ended: Option<Ended>,
    /// Whether it is not probed again: the node itself or an operator here said that it left (SA-33c).
    pub(super) is_final: bool,
}

/// When and by whom a member was ended, and how it described itself (SA-33b).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Ended {
    pub(super) since: Wall,
    pub(super) by: Id,
    pub(super) contents: OwnContents,
}

/// A bounded list of past members. When it is full, a new one replaces the one probed last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Tombstones {
    by_id: BTreeMap<Id, Tombstone>,
    /// The one probed last.
    cursor: Id,
    tombstones_max: usize,
}

impl Tombstones {
    pub(super) const fn new(tombstones_max: usize) -> Self {
        Self { by_id: BTreeMap::new(), cursor: Id::MIN, tombstones_max }
    }

    /// Remembers a member.
    pub(super) fn add(&mut self, id: Id, member: Tombstone) {
        if self.tombstones_max == 0 {
            return;
        }
        if self.by_id.len() >= self.tombstones_max && !self.by_id.contains_key(&id) {
            let last = self.by_id.range(..=self.cursor).next_back().or_else(|| self.by_id.iter().next_back());
            if let Some(last) = last.map(|(id, _)| *id) {
                self.by_id.remove(&last);
            }
        }
        self.by_id.insert(id, member);
    }

    /// Forgets a past member: it is back, or is not to be probed again.
    pub(super) fn remove(&mut self, id: Id) -> bool {
        self.by_id.remove(&id).is_some()
    }

    /// The next to probe, in order of ids, round and round. Members that left for good are skipped.
    pub(super) fn next(&mut self) -> Option<(Id, Tombstone)> {
        let after = (core::ops::Bound::Excluded(self.cursor), core::ops::Bound::Unbounded);
        let mut round = self.by_id.range(after).chain(self.by_id.range(..=self.cursor));
        let (id, member) =
            round.find(|(_, member)| !member.is_final).map(|(id, member)| (*id, member.clone()))?;
        self.cursor = id;
        Some((id, member))
    }

    /// The final status of a past member.
    pub(super) fn status(&self, id: Id) -> Option<Status> {
        self.by_id.get(&id).and_then(|member| member.status)
    }

    pub(super) fn get(&self, id: Id) -> Option<&Tombstone> {
        self.by_id.get(&id)
    }

    pub(super) fn len(&self) -> usize {
        self.by_id.len()
    }

    /// All of them, in order of ids.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Id, &Tombstone)> {
        self.by_id.iter().map(|(id, member)| (*id, member))
    }

    /// The addresses of those that may return.
    pub(super) fn addrs(&self) -> impl Iterator<Item = SocketAddr> {
        self.by_id.values().filter(|member| !member.is_final).map(|member| member.addr.socket())
    }

    /// Marks a failed member as left: it is not probed again. Returns whether there is one.
    pub(super) fn set_left(&mut self, id: Id) -> bool {
        let Some(member) = self.by_id.get_mut(&id) else { return false };
        let incarnation = member.status.unwrap_or_default().incarnation;
        member.status = Some(Status::new(incarnation, State::Left));
        member.is_final = true;
        true
    }
}
