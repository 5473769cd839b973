//! What a node tells about itself.

use std::net::SocketAddr;

use serde::Serialize;

use super::application::Application;
use super::machine::{Jitterbug, State};
use super::message::{HostId, TokenId};
use super::penalties::Penalty;
use crate::time::{Instant, micros};

/// The three states.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum StateName {
    /// Of no ring: asks whether it may make a token.
    Orphan,
    /// Waits for the token.
    Waiter,
    /// Has the token.
    Leader,
}

/// Everything about a node.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Status {
    /// Its state.
    pub state: StateName,
    /// The token's id, without its sign.
    pub token_id: TokenId,
    /// Who it is.
    pub host_id: HostId,
    /// Where its listener is.
    pub addr: SocketAddr,
    /// The ring, in order.
    pub nodes: Vec<NodeStatus>,
    /// How many nodes wait to be added.
    pub waiting: usize,
    /// The number of our last tenure.
    pub fence: Option<u64>,
    /// Who has the token, as far as this node knows: itself, or whom it gave it to, or who denied it a restore. In a ring
    /// that turns the token has been elsewhere since.
    pub holder: Option<HostId>,
    /// To whom we last passed the token.
    pub passed_to: Option<HostId>,
    /// The usual time of a loop, in microseconds.
    pub loop_micros: Option<u64>,
    /// The share of the time in which the token went round, by what this node saw.
    pub availability: f64,
    /// How long a waiter waits now, in microseconds.
    pub renew_timeout_micros: u64,
    /// How many bytes the data has.
    pub data_bytes: usize,
}

/// One node of the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct NodeStatus {
    /// Who.
    pub host_id: HostId,
    /// Where.
    pub addr: SocketAddr,
    /// How far it is kept out.
    #[serde(flatten)]
    pub penalty: Penalty,
}

impl<A: Application> Jitterbug<A> {
    /// Everything about the node.
    #[must_use]
    pub fn status(&self, now: Instant) -> Status {
        let nodes = (self.list.nodes().iter())
            .map(|node| NodeStatus {
                host_id: node.host_id,
                addr: node.addr,
                penalty: self.penalties.of(node.host_id),
            })
            .collect();
        Status {
            state: self.state_name(),
            token_id: self.token,
            host_id: self.host_id,
            addr: self.own_entry().addr,
            nodes,
            waiting: self.add_set.len(),
            fence: self.fence,
            holder: if matches!(self.state, State::Leader(_)) { Some(self.host_id) } else { self.holder },
            passed_to: self.passed_to,
            loop_micros: self.loops.mean().map(micros),
            availability: self.loops.availability(now),
            renew_timeout_micros: micros(self.renew()),
            data_bytes: self.data.len(),
        }
    }

    /// The state.
    #[must_use]
    pub fn state_name(&self) -> StateName {
        match &self.state {
            State::Orphan(_) => StateName::Orphan,
            State::Waiter { .. } => StateName::Waiter,
            State::Leader(_) => StateName::Leader,
        }
    }

    /// Whether the node has an attempt to pass the token under way.
    #[must_use]
    pub fn is_passing(&self) -> bool {
        matches!(&self.state, State::Leader(lead) if lead.pass().is_some())
    }

    /// The token's id, without its sign.
    #[must_use]
    pub fn token_id(&self) -> TokenId {
        self.token
    }

    /// Who the node is; host 0 until it has started.
    #[must_use]
    pub fn host_id(&self) -> HostId {
        self.host_id
    }

    /// The data as it is here.
    #[must_use]
    pub fn data(&self) -> &[u8] {
        &self.data
    }

    /// The ring, in order.
    #[must_use]
    pub fn list(&self) -> &super::NodeList {
        &self.list
    }

    /// The penalties, by host.
    #[must_use]
    pub fn penalties(&self) -> &super::Penalties {
        &self.penalties
    }

    /// The number of our last tenure.
    #[must_use]
    pub fn fence(&self) -> Option<u64> {
        self.fence
    }

    /// The number of the hold in force, if there is one.
    #[must_use]
    pub fn held(&self) -> Option<u64> {
        self.holds.active().map(|hold| hold.fence)
    }

    /// The application.
    #[must_use]
    pub fn application(&self) -> &A {
        &self.app
    }
}
