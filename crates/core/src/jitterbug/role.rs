//! The role of a node: orphan, waiter or leader (J-13). A role returns a transition, and the machine makes it.

use super::application::Application;
use super::election::Election;
use super::leader::Tenure;
use super::lower::{Cx, Transition};
use super::machine::StateName;
use super::message::{SignedId, TokenId};
use super::waiter::Waiter;

/// A node is in exactly one of these.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Orphan(Election),
    Waiter(Waiter),
    Leader(Box<Tenure>),
}

impl Role {
    /// Advances as far as its timers allow.
    pub(super) fn on_timeout<A: Application>(&mut self, cx: &mut Cx<'_, '_, A>) -> Option<Transition> {
        match self {
            Self::Orphan(election) => election.advance(cx),
            Self::Waiter(waiter) => waiter.on_timeout(cx.now.mono),
            Self::Leader(tenure) => tenure.on_timeout(cx),
        }
    }

    pub(super) fn leader(&mut self) -> Option<&mut Tenure> {
        if let Self::Leader(tenure) = self { Some(tenure) } else { None }
    }

    pub(super) fn is_leader(&self) -> bool {
        matches!(self, Self::Leader(_))
    }

    pub(super) fn name(&self) -> StateName {
        match self {
            Self::Orphan(_) => StateName::Orphan,
            Self::Waiter(_) => StateName::Waiter,
            Self::Leader(_) => StateName::Leader,
        }
    }

    /// A token id with the sign of the role (J-97).
    pub(super) fn signed(&self, id: TokenId) -> SignedId {
        if self.is_leader() { id.held() } else { id.free() }
    }
}
