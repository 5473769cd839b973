//! Holds: the application asks that the token stay while it works. One per tenure, in the order they were asked.

use core::time::Duration;
use std::collections::VecDeque;

use crate::tag::RequestId;
use crate::time::Instant;

/// The most holds that may wait.
const WAITING_MAX: usize = 64;

/// The shortest hold: one without any length would be over before anybody could be told that it is there.
const LIMIT_LEAST: Duration = Duration::from_micros(1);

/// A hold that was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Asked {
    pub(super) request: RequestId,
    pub(super) limit: Duration,
}

/// A hold in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hold {
    pub(super) request: RequestId,
    pub(super) fence: u64,
    pub(super) until: Instant,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Holds {
    waiting: VecDeque<Asked>,
    active: Option<Hold>,
    last_fence: Option<u64>,
}

impl Holds {
    /// Puts a wish at the end; false if too many wait.
    pub(super) fn ask(&mut self, asked: Asked) -> bool {
        if self.waiting.len() >= WAITING_MAX {
            return false;
        }
        self.waiting.push_back(asked);
        true
    }

    /// A tenure with this fence is there: the first wish is granted.
    pub(super) fn grant(&mut self, now: Instant, fence: u64) -> Option<Hold> {
        let asked = self.waiting.pop_front()?;
        let hold = Hold { request: asked.request, fence, until: now + asked.limit.max(LIMIT_LEAST) };
        self.active = Some(hold);
        self.last_fence = Some(fence);
        Some(hold)
    }

    /// Ends the hold that was asked for as `request`; it may also still wait.
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

    /// Ends the hold in force.
    pub(super) fn take_active(&mut self) -> Option<Hold> {
        self.active.take()
    }

    /// Ends the wait of everybody.
    pub(super) fn take_waiting(&mut self) -> VecDeque<Asked> {
        core::mem::take(&mut self.waiting)
    }

    /// The number of the last hold: no other may get it.
    pub(super) fn last_fence(&self) -> Option<u64> {
        self.last_fence
    }

    pub(super) fn active(&self) -> Option<Hold> {
        self.active
    }
}

/// What a release found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Released {
    Active(Hold),
    Waiting,
    Unknown,
}
