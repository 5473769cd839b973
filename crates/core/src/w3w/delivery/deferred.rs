//! Deferred deliveries: messages that the store cannot take yet, because the quota or the disk is full.
//!
//! The node neither reports nor confirms them until they are on disk. They wait in memory, within a bound. A message
//! beyond the bound is forgotten, also as seen, so that a retransmission of its sender can be delivered later.

use core::time::Duration;
use std::collections::VecDeque;

use super::Delivery;
use crate::time::Instant;
use crate::w3w::Event;
use crate::w3w::env::Cx;
use crate::w3w::message::{Message, SeenKey};
use crate::w3w::nid::{Key, Nid};
use crate::w3w::timers::Timer;

/// The most messages that wait; their bytes are at most half of `memory_bytes_max`, or one message.
const WAITING_MAX: usize = 1024;
/// The interval between attempts, and the messages tried in one attempt.
const PAUSE: Duration = Duration::from_secs(1);
const TRIED_MAX: usize = 16;

#[derive(Clone, Debug, PartialEq)]
struct Deferred {
    message: Message,
    key: Key,
    /// When it no longer counts as seen: after that another copy could be delivered.
    until: Instant,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct DeferredDeliveries {
    waiting: VecDeque<Deferred>,
    bytes: usize,
    /// Whether the last write failed: then one message at a time tests whether the disk works again.
    is_stuck: bool,
}

impl DeferredDeliveries {
    pub(super) fn set_stuck(&mut self, is_stuck: bool) {
        self.is_stuck = is_stuck;
    }

    pub(super) fn contains(&self, sender: Nid, key: Key) -> bool {
        self.waiting.iter().any(|waiting| waiting.key == key && waiting.message.sender == sender)
    }

    fn push(&mut self, deferred: Deferred) {
        self.bytes += deferred.message.body().len();
        self.waiting.push_back(deferred);
    }

    fn pop(&mut self) -> Option<Deferred> {
        let deferred = self.waiting.pop_front()?;
        self.bytes -= deferred.message.body().len();
        Some(deferred)
    }

    fn has_room(&self, bytes: usize, bytes_max: usize) -> bool {
        self.waiting.is_empty() || self.waiting.len() < WAITING_MAX && self.bytes + bytes <= bytes_max
    }
}

impl Delivery {
    /// Deferred messages, and their bytes.
    pub(in crate::w3w) fn deferred(&self) -> (usize, usize) {
        (self.deferred.waiting.len(), self.deferred.bytes)
    }

    /// Defers a message that the store has no room for, or forgets it as if it had never arrived.
    pub(super) fn defer(&mut self, cx: &mut Cx<'_, '_>, message: Message, key: Key) {
        let seen = SeenKey::new(message.sender, message.recipient, key);
        let bytes = message.data().len() as u64;
        let has_room = self.deferred.has_room(message.body().len(), cx.low.env.config.memory_bytes_max / 2);
        let is_waiting = has_room && bytes <= cx.low.env.config.quota_bytes && !cx.low.env.is_stopping;
        cx.low.env.counters.messages_unsaved += 1;
        cx.low.out.event(Event::MessageDeferred { from: message.sender, key, size: bytes, is_waiting });
        if !is_waiting {
            self.received.remove(seen);
            return;
        }
        let until = self.received.until(seen).unwrap_or(cx.low.now.mono + cx.low.env.config.expiry);
        self.deferred.push(Deferred { message, key, until });
        let at = cx.low.now.mono + PAUSE;
        cx.low.env.timers.set_earlier(Timer::Deferred, at);
    }

    /// Retries soon: there may be room now.
    pub(in crate::w3w) fn wake_deferred(&mut self, cx: &mut Cx<'_, '_>) {
        if !self.deferred.waiting.is_empty() && !cx.low.env.is_stopping {
            let now = cx.low.now.mono;
            cx.low.env.timers.set_earlier(Timer::Deferred, now);
        }
    }

    /// Delivers the messages for which there is room, oldest first.
    pub(in crate::w3w) fn retry_deferred(&mut self, cx: &mut Cx<'_, '_>) {
        let tries = if self.deferred.is_stuck { 1 } else { TRIED_MAX };
        let mut tried = 0;
        for _ in 0..self.deferred.waiting.len() {
            let Some(deferred) = self.deferred.pop() else { break };
            if deferred.until <= cx.low.now.mono {
                cx.low.env.counters.expired += 1;
            } else if tried < tries
                && !cx.low.mailboxes.is_inbox_full()
                && cx.low.blocks.has_room_for(deferred.key, deferred.message.data().len() as u64)
            {
                tried += 1;
                let Deferred { message, key, .. } = deferred;
                let seen = SeenKey::new(message.sender, message.recipient, key);
                self.deliver(cx, None, message, (key, seen), Vec::new(), None);
            } else {
                self.deferred.push(deferred);
            }
        }
        if !self.deferred.waiting.is_empty() {
            let at = cx.low.now.mono + PAUSE;
            cx.low.env.timers.set_earlier(Timer::Deferred, at);
        }
    }
}
