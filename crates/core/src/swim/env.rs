//! The environment of all parts: identity, settings, random numbers, counters and the stage of this node.

use super::api::Counters;
use super::config::Settings;
use super::contents::OwnContents;
use super::members::Slot;
use super::message::{Header, Message, NodeView};
use super::sequence::Sequence;
use super::status::Incarnation;
use crate::id::Id;
use crate::rng::Rng;
use crate::time::Instant;

/// The state that every part may read.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Env {
    id: Id,
    me: Slot,
    own_contents: OwnContents,
    settings: Settings,
    rng: Rng,
    sequence: Sequence,
    period: u32,
    /// Whether failures are detected.
    is_running: bool,
    /// Whether this node has left.
    is_leaving: bool,
    /// When the machine is finished, once it is stopping: the Dead of this node has been sent often enough by then.
    stopping: Option<Instant>,
    counters: Counters,
}

impl Env {
    pub(super) fn new(
        (id, me): (Id, Slot),
        own_contents: OwnContents,
        settings: Settings,
        rng: Rng,
        sequence: Sequence,
    ) -> Self {
        Self {
            id,
            me,
            own_contents,
            settings,
            rng,
            sequence,
            period: 0,
            is_running: false,
            is_leaving: false,
            stopping: None,
            counters: Counters::default(),
        }
    }

    pub(super) fn set_own_contents(&mut self, contents: OwnContents) {
        self.own_contents = contents;
    }

    pub(super) const fn set_running(&mut self, is_running: bool) {
        self.is_running = is_running;
    }

    pub(super) const fn set_leaving(&mut self, is_leaving: bool) {
        self.is_leaving = is_leaving;
    }

    /// Stops the machine; it is silent from this time on.
    pub(super) const fn stop_at(&mut self, at: Instant) {
        self.stopping = Some(at);
    }

    pub(super) const fn next_period(&mut self) {
        self.period = self.period.wrapping_add(1);
    }

    pub(super) const fn rng(&mut self) -> &mut Rng {
        &mut self.rng
    }

    pub(super) const fn count(&mut self) -> &mut Counters {
        &mut self.counters
    }

    pub(super) const fn next_sequence(&mut self) -> Sequence {
        self.sequence = self.sequence.next();
        self.sequence
    }

    /// An unpredictable number for a ping: its answer proves that the ping was received.
    pub(super) fn nonce(&mut self) -> Sequence {
        Sequence(self.rng.next_u32())
    }

    pub(super) const fn id(&self) -> Id {
        self.id
    }

    /// The slot of our own record.
    pub(super) const fn me(&self) -> Slot {
        self.me
    }

    pub(super) const fn own_contents(&self) -> &OwnContents {
        &self.own_contents
    }

    pub(super) const fn settings(&self) -> &Settings {
        &self.settings
    }

    pub(super) const fn period(&self) -> u32 {
        self.period
    }

    pub(super) const fn is_running(&self) -> bool {
        self.is_running
    }

    pub(super) const fn is_leaving(&self) -> bool {
        self.is_leaving
    }

    pub(super) const fn stopping(&self) -> Option<Instant> {
        self.stopping
    }

    pub(super) const fn counters(&self) -> Counters {
        self.counters
    }

    /// The header of a message of this node.
    pub(super) const fn header(&self, sequence: Sequence) -> Header {
        Header { from: self.id, sequence }
    }

    /// The header of a message of this node, with the last sequence number that was used.
    pub(super) const fn last_header(&self) -> Header {
        self.header(self.sequence)
    }
}

/// An Alive of this node, before the contents are put in.
#[derive(Clone, Copy, Debug)]
pub(super) struct OwnAlive {
    pub(super) header: Header,
    pub(super) incarnation: Incarnation,
}

impl OwnAlive {
    pub(super) fn message(self, contents: &OwnContents) -> Message<'_> {
        let node = NodeView { id: self.header.from, contents: contents.borrow() };
        Message::Alive { header: self.header, node, incarnation: self.incarnation }
    }

    pub(super) fn join(self, contents: &OwnContents) -> Message<'_> {
        let node = NodeView { id: self.header.from, contents: contents.borrow() };
        Message::Join { header: self.header, node, incarnation: self.incarnation }
    }
}
