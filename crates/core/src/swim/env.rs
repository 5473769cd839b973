//! The environment of all parts: identity, settings, random numbers, counters and the stage of life of this node.

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

/// What every part may ask.
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
    /// Whether this node said goodbye.
    is_leaving: bool,
    /// When the last goodbye has had its time, once the machine is stopped.
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

    /// The machine is stopped, and silent at this time.
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

    /// A number that nobody can guess, for a ping: its answer proves that the ping was received.
    pub(super) fn nonce(&mut self) -> Sequence {
        Sequence(self.rng.next_u32())
    }

    pub(super) const fn id(&self) -> Id {
        self.id
    }

    /// The place of our own record.
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

    /// The start of a message of ours.
    pub(super) const fn header(&self, sequence: Sequence) -> Header {
        Header { from: self.id, sequence }
    }

    /// The start of a message of ours, with the last number that was given out.
    pub(super) const fn last_header(&self) -> Header {
        self.header(self.sequence)
    }
}

/// An Alive of our own, before the contents are put in.
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
