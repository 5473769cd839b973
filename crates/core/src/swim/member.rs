//! The record of one member: what everybody knows of it, and what only we do.

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
/// What everybody knows of it is a product of two orders, and [`Member::merge`] takes the greater in each: its
/// status, and its contents with the incarnation they were told in. So any two nodes that heard the same news
/// hold the same, in whatever order it came.
#[derive(Clone, Debug, PartialEq)]
pub struct Member {
    id: [u8; 16],
    addr: Addr,
    state: State,
    incarnation: Incarnation,
    contents_incarnation: Incarnation,
    /// SA-7c: how far the incarnation is above the last that the node has proved to us.
    unproved: u8,
    /// S-17: our period in which it last spoke to us.
    seen: u32,
    /// S-18: our period in which we last pinged it.
    sent: u32,
    rest: Option<Box<Rest>>,
    path: Option<Box<Path>>,
}

/// What few members have: more than one address, or metadata.
#[derive(Clone, Debug, PartialEq)]
struct Rest {
    bytes: Box<[u8]>,
}

/// What is known of the way to a member we have measured.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Path {
    pub(super) rtt: Option<Rtt>,
    pub(super) coordinate: Option<Coordinate>,
}

impl Member {
    /// A member of which this much is known.
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

    /// Takes news in; whether anything changed. The join of the semilattice (SA-3a).
    pub fn merge(&mut self, status: Status, contents: Option<Contents<'_>>) -> bool {
        let news = self.status().accepts(status);
        if news {
            (self.incarnation, self.state) = (status.incarnation, status.state);
        }
        let told = contents.is_some_and(|contents| self.merge_contents(status.incarnation, contents));
        news || told
    }

    /// Whether this news would change anything.
    #[must_use]
    pub fn is_news(&self, status: Status, contents: Option<Contents<'_>>) -> bool {
        self.status().accepts(status)
            || contents.is_some_and(|contents| self.is_told_better(status.incarnation, contents))
    }

    /// Its hash in the comparison of tables; nothing, if it does not live.
    #[must_use]
    pub(super) fn hash(&self) -> u64 {
        if self.state.is_live() { member_hash(self.id(), self.incarnation, self.contents()) } else { 0 }
    }

    /// Who it is.
    #[must_use]
    pub const fn id(&self) -> Id {
        Id::from_bytes(self.id)
    }

    /// What is known of its life.
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

    /// The incarnation in which it described itself as it is known here.
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

    /// The last of our periods in which it spoke to us (S-17, S-24).
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

    /// Where it is, if it ever told.
    #[must_use]
    pub fn coordinate(&self) -> Option<Coordinate> {
        self.path.as_ref().and_then(|path| path.coordinate)
    }

    /// SA-7c: whether others may be believed this number without proof.
    pub(super) fn is_credible(&self, said: Incarnation) -> bool {
        let step = said.0.saturating_sub(self.incarnation.0);
        step.saturating_add(u32::from(self.unproved)) <= Incarnation::UNPROVED_MAX
    }

    /// Whether this number is below the known one because a forger may have driven that: not below the last that the node
    /// itself has proved, or further below than honest nodes differ.
    pub(super) fn is_above_proof(&self, said: Incarnation) -> bool {
        let behind = self.incarnation.0.checked_sub(said.0);
        behind.is_some_and(|behind| {
            (1..=u32::from(self.unproved)).contains(&behind) || behind > Incarnation::UNPROVED_MAX
        })
    }

    /// Whether only others named its incarnation.
    pub(super) const fn is_unproved(&self) -> bool {
        self.unproved > 0
    }

    /// Notes how the incarnation came to be what it is: it was `before`, and is proved or not.
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

    /// Sets the contents without further ado: of our own record, before anybody was told.
    pub(super) fn describe(&mut self, contents: Contents<'_>) {
        self.put(contents);
    }

    /// Later contents win, and of two told in one incarnation the greater: arbitrary, but the same everywhere,
    /// until the owner hears of it and raises its number.
    fn merge_contents(&mut self, told: Incarnation, contents: Contents<'_>) -> bool {
        let better = self.is_told_better(told, contents);
        if better {
            self.contents_incarnation = told;
            self.put(contents);
        }
        better
    }

    fn is_told_better(&self, told: Incarnation, contents: Contents<'_>) -> bool {
        let newer = told.cmp(&self.contents_incarnation).then_with(|| contents.cmp(&self.contents()));
        newer == Ordering::Greater
    }

    fn put(&mut self, contents: Contents<'_>) {
        self.addr = contents.addr();
        let rest = contents.rest();
        self.rest = (!rest.is_empty()).then(|| Box::new(Rest { bytes: rest.into() }));
    }
}
