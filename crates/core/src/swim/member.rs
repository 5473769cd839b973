//! The record of one member: its replicated state, and the measurements of this node.

use core::cmp::Ordering;
use std::net::SocketAddr;

use super::addr::Addr;
use super::contents::Contents;
use super::rtt::Rtt;
use super::status::{Incarnation, State, Status};
use super::tree::member_hash;
use super::vivaldi::Coordinate;
use crate::id::Id;

/// One member, as handlers see it (S-9, S-15). Small: a node holds one for every member of the group.
///
/// The replicated state is a product of two orders: the status, and the contents with their incarnation.
/// [`Member::merge`] takes the greater in each. So two nodes with the same updates have the same state, in whatever
/// order the updates came.
#[derive(Clone, Debug, PartialEq)]
pub struct Member {
    id: [u8; 16],
    addr: Addr,
    state: State,
    incarnation: Incarnation,
    contents_incarnation: Incarnation,
    /// SA-7c: how far the incarnation is above the last one that the node has proved to us.
    unproved: u8,
    /// S-17: our period in which its last packet arrived.
    seen: u32,
    /// S-18: our period in which we last pinged it.
    sent: u32,
    rest: Option<Box<Rest>>,
    path: Option<Box<Path>>,
}

/// Data that few members have: more than one address, or metadata.
#[derive(Clone, Debug, PartialEq)]
struct Rest {
    bytes: Box<[u8]>,
}

/// The measurements of the path to a member.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Path {
    pub(super) rtt: Option<Rtt>,
    pub(super) coordinate: Option<Coordinate>,
}

impl Member {
    /// A member with this status and these contents.
    #[must_use]
    pub fn new(id: Id, status: Status, contents: Contents<'_>) -> Self {
        let mut member = Self {
            id: id.to_bytes(),
            addr: contents.addr(),
            state: status.state,
            incarnation: status.incarnation,
            contents_incarnation: status.incarnation,
            unproved: 0,
            seen: 0,
            sent: 0,
            rest: None,
            path: None,
        };
        member.put(contents);
        member
    }

    /// Merges an update; returns whether anything changed. The join of the semilattice (SA-3a).
    pub fn merge(&mut self, status: Status, contents: Option<Contents<'_>>) -> bool {
        let news = self.status().accepts(status);
        if news {
            (self.incarnation, self.state) = (status.incarnation, status.state);
        }
        let is_better = contents.is_some_and(|contents| self.merge_contents(status.incarnation, contents));
        news || is_better
    }

    /// Whether this update would change anything.
    #[must_use]
    pub fn is_news(&self, status: Status, contents: Option<Contents<'_>>) -> bool {
        self.status().accepts(status)
            || contents.is_some_and(|contents| self.are_better(status.incarnation, contents))
    }

    /// Its hash in the table comparison; 0 if it is not live.
    #[must_use]
    pub(super) fn hash(&self) -> u64 {
        if self.state.is_live() { member_hash(self.id(), self.incarnation, self.contents()) } else { 0 }
    }

    /// Its id.
    #[must_use]
    pub const fn id(&self) -> Id {
        Id::from_bytes(self.id)
    }

    /// Its incarnation and state.
    #[must_use]
    pub const fn status(&self) -> Status {
        Status::new(self.incarnation, self.state)
    }

    /// Its status (S-19, S-26).
    #[must_use]
    pub const fn state(&self) -> State {
        self.state
    }

    /// The last known incarnation (S-16).
    #[must_use]
    pub const fn incarnation(&self) -> Incarnation {
        self.incarnation
    }

    /// The incarnation of its contents.
    #[must_use]
    pub const fn contents_incarnation(&self) -> Incarnation {
        self.contents_incarnation
    }

    /// Its addresses and metadata.
    #[must_use]
    pub fn contents(&self) -> Contents<'_> {
        Contents::from_parts(self.addr, self.rest.as_ref().map_or(&[], |rest| &rest.bytes))
    }

    /// Its first address.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.addr.socket()
    }

    /// The last of our periods in which a packet of it arrived (S-17, S-24).
    #[must_use]
    pub const fn last_seen(&self) -> u32 {
        self.seen
    }

    /// The last of our periods in which we pinged it (S-18, S-25).
    #[must_use]
    pub const fn last_sent(&self) -> u32 {
        self.sent
    }

    /// The round-trip time to it, if it was ever measured.
    #[must_use]
    pub fn rtt(&self) -> Option<Rtt> {
        self.path.as_ref().and_then(|path| path.rtt)
    }

    /// Its network coordinate, if it ever sent one.
    #[must_use]
    pub fn coordinate(&self) -> Option<Coordinate> {
        self.path.as_ref().and_then(|path| path.coordinate)
    }

    /// SA-7c: whether this incarnation is accepted from other nodes without proof.
    pub(super) fn is_credible(&self, said: Incarnation) -> bool {
        let step = said.0.saturating_sub(self.incarnation.0);
        step.saturating_add(u32::from(self.unproved)) <= Incarnation::UNPROVED_MAX
    }

    /// Whether this incarnation is below the known one because that may be forged. It then is not below the last proved
    /// one, or it differs more than those of honest nodes do.
    pub(super) fn is_above_proof(&self, said: Incarnation) -> bool {
        let behind = self.incarnation.0.checked_sub(said.0);
        behind.is_some_and(|behind| {
            (1..=u32::from(self.unproved)).contains(&behind) || behind > Incarnation::UNPROVED_MAX
        })
    }

    /// Whether its incarnation comes from other nodes only.
    pub(super) const fn is_unproved(&self) -> bool {
        self.unproved > 0
    }

    /// Notes that the incarnation was `before`, and whether the new one is proved.
    pub(super) fn note_proof(&mut self, before: Incarnation, is_proved: bool) {
        let step = self.incarnation.0.saturating_sub(before.0);
        let unproved = u32::from(self.unproved).saturating_add(step);
        self.unproved = if is_proved { 0 } else { u8::try_from(unproved).unwrap_or(u8::MAX) };
    }

    pub(super) fn heard(&mut self, period: u32) {
        self.seen = period;
    }

    pub(super) fn pinged(&mut self, period: u32) {
        self.sent = period;
    }

    pub(super) fn path_mut(&mut self) -> &mut Path {
        self.path.get_or_insert_default()
    }

    /// Sets the contents of our own record before they are first sent.
    pub(super) fn describe(&mut self, contents: Contents<'_>) {
        self.put(contents);
    }

    /// Later contents win. Between two in one incarnation the greater wins: arbitrary, but the same on every node, until the
    /// owner learns of it and raises its incarnation.
    fn merge_contents(&mut self, incarnation: Incarnation, contents: Contents<'_>) -> bool {
        let better = self.are_better(incarnation, contents);
        if better {
            self.contents_incarnation = incarnation;
            self.put(contents);
        }
        better
    }

    fn are_better(&self, incarnation: Incarnation, contents: Contents<'_>) -> bool {
        let newer = incarnation.cmp(&self.contents_incarnation).then_with(|| contents.cmp(&self.contents()));
        newer == Ordering::Greater
    }

    fn put(&mut self, contents: Contents<'_>) {
        self.addr = contents.addr();
        let rest = contents.rest();
        self.rest = (!rest.is_empty()).then(|| Box::new(Rest { bytes: rest.into() }));
    }
}
