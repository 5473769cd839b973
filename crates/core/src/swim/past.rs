//! Members of the past: where they were, to ask again now and then, and what ended them, so that an old rumour does
//! not bring them back (SA-33a).

use std::collections::BTreeMap;
use std::net::SocketAddr;

use super::addr::Addr;
use super::standing::{Standing, State};
use crate::id::Id;

/// One past member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PastMember {
    pub(super) addr: Addr,
    /// What was last known; `None` of one read from the store, where only the address counts.
    pub(super) standing: Option<Standing>,
}

/// A bounded list of past members. When it is full, a new one takes the place of the one asked last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Past {
    by_id: BTreeMap<Id, PastMember>,
    /// The one asked last.
    cursor: Id,
    past_max: usize,
}

impl Past {
    pub(super) const fn new(past_max: usize) -> Self {
        Self { by_id: BTreeMap::new(), cursor: Id::MIN, past_max }
    }

    /// Remembers a member.
    pub(super) fn add(&mut self, id: Id, member: PastMember) {
        if self.past_max == 0 {
            return;
        }
        if self.by_id.len() >= self.past_max && !self.by_id.contains_key(&id) {
            let last = self.by_id.range(..=self.cursor).next_back().or_else(|| self.by_id.iter().next_back());
            if let Some(last) = last.map(|(id, _)| *id) {
                self.by_id.remove(&last);
            }
        }
        self.by_id.insert(id, member);
    }

    /// Forgets a member: it is back, or it is not to be asked again.
    pub(super) fn remove(&mut self, id: Id) -> bool {
        self.by_id.remove(&id).is_some()
    }

    /// The next to be asked, one after the other in order of ids, for ever. Who said goodbye is not.
    pub(super) fn next(&mut self) -> Option<(Id, PastMember)> {
        let absent = |member: &PastMember| member.standing.is_none_or(|known| known.state != State::Left);
        let after = (core::ops::Bound::Excluded(self.cursor), core::ops::Bound::Unbounded);
        let mut round = self.by_id.range(after).chain(self.by_id.range(..=self.cursor));
        let (id, member) = round.find(|(_, member)| absent(member)).map(|(id, member)| (*id, *member))?;
        self.cursor = id;
        Some((id, member))
    }

    /// What ended a past member.
    pub(super) fn standing(&self, id: Id) -> Option<Standing> {
        self.by_id.get(&id).and_then(|member| member.standing)
    }

    pub(super) fn get(&self, id: Id) -> Option<&PastMember> {
        self.by_id.get(&id)
    }

    pub(super) fn len(&self) -> usize {
        self.by_id.len()
    }

    /// Their ids and first addresses.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Id, SocketAddr)> {
        self.by_id.iter().map(|(id, member)| (*id, member.addr.socket()))
    }
}
