//! Holds: the application keeps the token while it works. There is one hold per tenure, in the order of the requests.

use core::time::Duration;
use std::collections::VecDeque;

use super::records::{Asked, Hold};
use super::{Event, LostReason};
use crate::tag::RequestId;
use crate::time::Instant;

/// The most holds that may wait.
const WAITING_MAX: usize = 64;

/// The shortest hold: one of length zero would be over before its client got the reply.
const LIMIT_LEAST: Duration = Duration::from_micros(1);

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Holds {
    waiting: VecDeque<Asked>,
    active: Option<Hold>,
    last_fence: Option<u64>,
}

impl Holds {
    /// Queues a request; false if too many wait.
    pub(super) fn ask(&mut self, asked: Asked) -> bool {
        if self.waiting.len() >= WAITING_MAX {
            return false;
        }
        self.waiting.push_back(asked);
        true
    }

    /// Grants the first request, in a tenure with this fence.
    pub(super) fn grant(&mut self, now: Instant, fence: u64) -> Option<Hold> {
        let asked = self.waiting.pop_front()?;
        let hold =
            Hold { request: asked.request, key: asked.key, fence, until: now + asked.limit.max(LIMIT_LEAST) };
        self.active = Some(hold);
        self.last_fence = Some(fence);
        Some(hold)
    }

    /// The request with this key, in force or waiting.
    pub(super) fn request_of(&self, key: u64) -> Option<RequestId> {
        let active = self.active.filter(|hold| hold.key == Some(key)).map(|hold| hold.request);
        let waiting = || self.waiting.iter().find(|asked| asked.key == Some(key)).map(|asked| asked.request);
        active.or_else(waiting)
    }

    /// Ends the hold of `request`, in force or waiting.
    pub(super) fn release(&mut self, request: RequestId) -> Released {
        if let Some(hold) = self.active.take_if(|hold| hold.request == request) {
            return Released::Active(hold);
        }
        match self.waiting.iter().position(|asked| asked.request == request) {
            Some(place) => {
                self.waiting.remove(place);
                Released::Waiting
            }
            None => Released::Unknown,
        }
    }

    /// Ends the hold in force. Returns the event, if there was one.
    pub(super) fn lose(&mut self, reason: LostReason) -> Option<Event> {
        let hold = self.active.take()?;
        Some(Event::TokenLost { hold: hold.request, fence: hold.fence, reason })
    }

    /// The same, if its limit is reached.
    pub(super) fn expire(&mut self, now: Instant) -> Option<Event> {
        self.active.filter(|hold| hold.until <= now)?;
        self.lose(LostReason::Limit)
    }

    /// Takes all waiting requests.
    pub(super) fn take_waiting(&mut self) -> VecDeque<Asked> {
        core::mem::take(&mut self.waiting)
    }

    /// Whether the last hold had this fence: no other hold may get it.
    pub(super) fn used(&self, fence: Option<u64>) -> bool {
        self.last_fence == fence
    }

    pub(super) fn active(&self) -> Option<Hold> {
        self.active
    }
}

/// The result of a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Released {
    Active(Hold),
    Waiting,
    Unknown,
}
