//! The doorstep: messages for us that find no room, because the quota is full or the disk is.
//!
//! They are not delivered: neither told to the application nor confirmed to their senders. They wait here, in memory and
//! therefore bounded, and come in when there is room. What finds no place even here is forgotten, and forgotten to have been
//! seen, so that the copy which its sender keeps until a receipt comes (`again.rs`) is welcome later.

use core::time::Duration;
use std::collections::VecDeque;

use super::Event;
use super::alarms::Alarm;
use super::machine::{Mesh, Out};
use super::message::{Message, SeenKey};
use super::nid::{Key, Nid};
use crate::time::{Instant, Now};

/// The most messages that wait; their bytes are at most half of `memory_bytes_max`, or one message.
const WAITING_MAX: usize = 1024;
/// How often it is looked whether there is room, and how many are tried then.
const PAUSE: Duration = Duration::from_secs(1);
const TRIED_MAX: usize = 16;

#[derive(Clone, Debug, PartialEq)]
struct Guest {
    message: Message,
    key: Key,
    /// As long as it counts as seen: another copy could be delivered after that.
    until: Instant,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Doorstep {
    waiting: VecDeque<Guest>,
    bytes: usize,
    /// The disk failed last: one message at a time finds out whether it still does.
    pub(super) is_stuck: bool,
}

impl Doorstep {
    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether this message waits here.
    pub(super) fn has(&self, sender: Nid, key: Key) -> bool {
        self.waiting.iter().any(|guest| guest.key == key && guest.message.sender == sender)
    }

    fn push(&mut self, guest: Guest) {
        self.bytes += guest.message.body().len();
        self.waiting.push_back(guest);
    }

    fn pop(&mut self) -> Option<Guest> {
        let guest = self.waiting.pop_front()?;
        self.bytes -= guest.message.body().len();
        Some(guest)
    }

    fn has_place(&self, bytes: usize, bytes_max: usize) -> bool {
        self.waiting.is_empty() || self.waiting.len() < WAITING_MAX && self.bytes + bytes <= bytes_max
    }
}

impl Mesh {
    /// There is no room for a message for us: it waits, or it has never come.
    pub(super) fn wait_outside(&mut self, now: Now, message: Message, key: Key, out: Out<'_, '_>) {
        let seen = SeenKey::new(message.sender, message.recipient, key);
        let bytes = message.data().len() as u64;
        let has_place = self.doorstep.has_place(message.body().len(), self.config.memory_bytes_max / 2);
        let is_waiting = has_place && bytes <= self.config.quota_bytes && !self.is_stopping;
        self.counters.unsaved += 1;
        out.event(Event::MessageKeptOut { from: message.sender, key, size: bytes, is_waiting });
        if !is_waiting {
            return self.received.forget(seen);
        }
        let until = self.received.until(seen).unwrap_or(now.mono + self.config.expiry);
        self.doorstep.push(Guest { message, key, until });
        self.alarms.set_by(Alarm::Door, now.mono + PAUSE);
    }

    /// There may be room now.
    pub(super) fn knock(&mut self, now: Now) {
        if self.doorstep.len() > 0 && !self.is_stopping {
            self.alarms.set_by(Alarm::Door, now.mono);
        }
    }

    /// Lets in those for whom there is room, those who have waited longest first.
    pub(super) fn open_door(&mut self, now: Now, out: Out<'_, '_>) {
        let tries = if self.doorstep.is_stuck { 1 } else { TRIED_MAX };
        let mut tried = 0;
        for _ in 0..self.doorstep.len() {
            let Some(guest) = self.doorstep.pop() else { break };
            if guest.until <= now.mono {
                self.counters.expired += 1;
            } else if tried < tries && self.shelf.could_take(guest.key, guest.message.data().len() as u64) {
                tried += 1;
                self.deliver(now, guest.message, guest.key, None, out);
            } else {
                self.doorstep.push(guest);
            }
        }
        if self.doorstep.len() > 0 {
            self.alarms.set_by(Alarm::Door, now.mono + PAUSE);
        }
    }
}
