//! The parts that the roles of a node work with, as one bundle without logic, and the context of a call to a role.

use core::time::Duration;

use super::DropReason;
use super::LostReason;
use super::application::Application;
use super::changes::Changes;
use super::env::Env;
use super::holds::Holds;
use super::machine::Out;
use super::message::TokenId;
use super::ring::Ring;
use super::streams::Streams;
use super::token::Token;
use crate::time::{Instant, Now};

/// All parts of a node below its role.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Lower<A> {
    pub(super) env: Env,
    pub(super) ring: Ring,
    pub(super) token: Token<A>,
    pub(super) holds: Holds,
    pub(super) changes: Changes,
    pub(super) streams: Streams,
}

impl<A: Application> Lower<A> {
    /// Whether this node grants no weak turns because it reaches less than half of its ring (TU-42). With voters, they
    /// decide.
    pub(super) fn is_cut_off(&self, now: Instant) -> bool {
        let config = self.env.config();
        config.is_patient && self.ring.is_cut_off(now, config) && self.token.app().voters().is_none()
    }
}

/// The context of a role during one call.
pub(super) struct Cx<'a, 'b, A: Application> {
    pub(super) now: Now,
    pub(super) lower: &'a mut Lower<A>,
    pub(super) is_stopping: bool,
    pub(super) out: Out<'a, 'b, A>,
}

impl<A: Application> Cx<'_, '_, A> {
    /// How long a waiter waits now.
    pub(super) fn renew(&self) -> Duration {
        self.lower.ring.renew(self.lower.env.config())
    }

    /// Ends the hold in force, if there is one, and reports it.
    pub(super) fn lose_hold(&mut self, reason: LostReason) {
        if let Some(lost) = self.lower.holds.lose(reason) {
            self.out.event(lost);
        }
    }
}

/// The role that a node takes next. Roles return it; only the machine acts on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Transition {
    /// To orphan: starts a restore.
    Orphan,
    /// To orphan, after dropping the token.
    Drop(DropReason),
    /// To waiter.
    Waiter,
    /// To waiter: drops a token that was made here and cannot be used.
    GiveUp,
    /// To leader, with a token made here; its id before the restore.
    Restored { from: TokenId },
    /// To leader again: no candidate took the token.
    Again,
}
