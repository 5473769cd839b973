//! token_restore: how an orphan finds out whether it may make a token.
//!
//! Two tries. The first asks with the own id; if nobody objects, a new id is drawn and the second try asks with
//! that. What objects is any answer that is greater as a signed number: every holder's, and that of whoever has a
//! better id. A try ends Granted, Denied, or Aborted by the arrival of a token (JA-14); the last is not seen here:
//! the machine throws the restore away.

use core::time::Duration;

use super::message::{SignedId, TokenId};
use crate::rng::Rng;
use crate::time::Instant;

/// From where a new id is drawn when the first try was granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Draw {
    /// From those that beat the id of the first try, while enough of them are left (JA-24b).
    Better,
    /// From all, as the document's appendix imagines it. To compare.
    Any,
}

/// The least number of ids that are enough to draw from: two that restore together must not draw the same.
const ENOUGH: u32 = 1 << 16;
/// The part of the better ids that is drawn from, so that they last for hundreds of restores instead of thirty.
const PART: u32 = 64;

impl Draw {
    /// A new id, after `tried` was granted.
    pub fn draw(self, rng: &mut Rng, tried: TokenId) -> TokenId {
        // Without a token the smaller magnitude wins.
        let better = tried.magnitude() - 1;
        if self == Self::Any || better < ENOUGH {
            return TokenId::draw(rng);
        }
        let window = (better / PART).max(ENOUGH);
        let magnitude = better - rng.below(u64::from(window)) as u32;
        TokenId::new(magnitude).expect("the window is no larger than the better ids are many")
    }
}

/// Which of the two tries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Attempt {
    First,
    Second,
}

/// What a restore wants when its time has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Send a TR1 with the id tried.
    Ask,
    /// This try was granted.
    Granted(Attempt),
    /// It was denied.
    Denied,
}

/// A restore under way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Restore {
    attempt: Attempt,
    /// The id before the restore.
    origin: TokenId,
    tried: TokenId,
    sent: u32,
    due: Instant,
    denied: bool,
}

impl Restore {
    pub(super) fn new(own: TokenId, now: Instant) -> Self {
        Self { attempt: Attempt::First, origin: own, tried: own, sent: 0, due: now, denied: false }
    }

    /// Begins the second try.
    pub(super) fn second(&mut self, id: TokenId, now: Instant) {
        *self = Self { attempt: Attempt::Second, origin: self.origin, ..Self::new(id, now) };
    }

    /// What is due. Every step is one interval after the one before really was, so that a process that slept does
    /// not decide before it could hear an answer.
    pub(super) fn step(&mut self, now: Instant, interval: Duration, count: u32) -> Option<Step> {
        if self.due > now {
            return None;
        }
        if self.sent < count {
            self.sent += 1;
            self.due = now + interval;
            return Some(Step::Ask);
        }
        Some(if self.denied { Step::Denied } else { Step::Granted(self.attempt) })
    }

    /// Takes an answer in; true if it ends the try at once, for its sender holds the token (JA-16).
    pub(super) fn heard(&mut self, answer: SignedId) -> bool {
        self.denied |= answer > self.tried.free();
        answer.is_held()
    }

    pub(super) fn tried(&self) -> TokenId {
        self.tried
    }

    pub(super) fn origin(&self) -> TokenId {
        self.origin
    }

    pub(super) fn due(&self) -> Instant {
        self.due
    }
}
