//! One name that this node wants or has: the requests for it, and the stage of the first of them.

use core::time::Duration;
use std::collections::VecDeque;

use super::attempt::{Attempt, Turn};
use super::{Blocker, TurnId, TurnStatus};
use crate::id::Id;
use crate::tag::RequestId;
use crate::time::{Instant, micros};

/// How long after the expiry of its lease the reported holder of a name still counts.
const BLOCKER_KEPT: Duration = Duration::from_secs(2);

/// A request for a turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wish {
    pub(super) turn: TurnId,
    pub(super) request: RequestId,
    pub(super) since: Instant,
    pub(super) until: Instant,
    pub(super) limit: Duration,
    pub(super) is_try: bool,
    pub(super) attended: bool,
    pub(super) tries: u32,
}

/// The stage of a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// An Ask follows at this moment, or when a voter reports that the name is free.
    Waiting(Instant),
    Asking(Attempt),
    Held(Turn),
}

/// One name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Name {
    pub(super) text: String,
    pub(super) wishes: VecDeque<Wish>,
    pub(super) stage: Stage,
    pub(super) failures: u32,
    pub(super) blocker: Option<(Blocker, Instant)>,
    pub(super) answered: usize,
}

impl Name {
    pub(super) fn new(text: String, now: Instant) -> Self {
        let (wishes, stage) = (VecDeque::new(), Stage::Waiting(now));
        Self { text, wishes, stage, failures: 0, blocker: None, answered: 0 }
    }

    /// When the next action for it is due.
    pub(super) fn next(&self) -> Option<Instant> {
        let wishes = self.wishes.iter().map(|wish| wish.until).min();
        let stage = match &self.stage {
            Stage::Waiting(at) => *at,
            Stage::Asking(attempt) => attempt.round.resend_at().min(attempt.ends()),
            Stage::Held(turn) => turn.next(),
        };
        wishes.into_iter().chain([stage]).min()
    }

    /// The turn and the requests, for display. `own` is this node.
    pub(super) fn status(&self, now: Instant, own: Id) -> Vec<TurnStatus> {
        let held = match &self.stage {
            Stage::Held(turn) => Some(TurnStatus {
                name: self.text.clone(),
                turn: turn.turn,
                fence: Some(turn.number),
                left_micros: micros(turn.until().since(now)),
                waits_for: None,
            }),
            _ => None,
        };
        let blocker = self.blocker(now, own);
        let waiting = self.wishes.iter().map(|wish| TurnStatus {
            name: self.text.clone(),
            turn: wish.turn,
            fence: None,
            left_micros: micros(wish.until.since(now)),
            waits_for: blocker,
        });
        held.into_iter().chain(waiting).collect()
    }

    /// The node that holds the name: `own`, which is this node, or another, as a voter reported lately.
    pub(super) fn blocker(&self, now: Instant, own: Id) -> Option<Blocker> {
        if let Stage::Held(turn) = &self.stage {
            let left_micros = micros(turn.until().since(now));
            return Some(Blocker { by: own, fence: turn.number, left_micros });
        }
        let known = self.blocker.filter(|(_, until)| now < *until + BLOCKER_KEPT);
        known.map(|(blocker, until)| blocker.at(now, until))
    }

    /// Whether the turn with this id is held or requested here.
    pub(super) fn has(&self, turn: TurnId) -> bool {
        matches!(&self.stage, Stage::Held(held) if held.turn == turn)
            || self.wishes.iter().any(|wish| wish.turn == turn)
    }
}
