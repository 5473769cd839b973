//! The status of a node.

use std::net::{IpAddr, SocketAddr};

use serde::Serialize;

use super::super::application::Application;
use super::super::message::{HostId, TokenId};
use super::super::ring::Penalty;
use super::super::role::Role;
use super::Jitterbug;
use crate::time::{Instant, micros};

/// The three states.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum StateName {
    /// Belongs to no ring: asks whether it may make a token.
    Orphan,
    /// Waits for the token.
    Waiter,
    /// Has the token.
    Leader,
}

/// The status of a node.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Status {
    /// Its state.
    pub state: StateName,
    /// The token's id, without its sign.
    pub token_id: TokenId,
    /// Its host id.
    pub host_id: HostId,
    /// The endpoint of its listener.
    pub addr: SocketAddr,
    /// The ring, in order.
    pub nodes: Vec<NodeStatus>,
    /// How many nodes wait to be added.
    pub waiting: usize,
    /// The fence of the last own tenure.
    pub fence: Option<u64>,
    /// The holder, as far as this node knows: itself, the node it passed to, or the one that denied a restore. In a
    /// working ring the token has moved on since.
    pub holder: Option<HostId>,
    /// The node to which this one last passed the token.
    pub passed_to: Option<HostId>,
    /// How many tenures this node has begun since it started.
    pub tenures: u64,
    /// The usual time of a loop, in microseconds.
    pub loop_micros: Option<u64>,
    /// The share of the time in which the token was not lost, as far as this node knows. A hold of another node is no
    /// loss.
    pub availability: f64,
    /// How long a waiter waits now, in microseconds.
    pub renew_timeout_micros: u64,
    /// How many bytes the data has.
    pub data_bytes: usize,
    /// How long this node sends TR1 before it makes a token, in microseconds (TU-41).
    pub grace_micros: u64,
    /// How long the process of a holder may be paused before its hold is lost, in microseconds (TU-42).
    pub pause_max_micros: u64,
    /// Whether values that this node passed on were missing when the token came back: a node of the ring drops them.
    pub values_dropped: bool,
    /// The group of voters that this node or the data names: then weak turns are refused (TU-31).
    pub voters: Option<String>,
    /// Tokens with data that the application of this node cannot read.
    pub refused_tokens: Vec<RefusedTokens>,
}

/// Tokens that were refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct RefusedTokens {
    /// The address that sent them.
    pub from: IpAddr,
    /// How many.
    pub count: u64,
}

/// One node of the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct NodeStatus {
    /// Its host id.
    pub host_id: HostId,
    /// Its endpoint.
    pub addr: SocketAddr,
    /// Its penalty.
    #[serde(flatten)]
    pub penalty: Penalty,
    /// Whether it is left out of the round, because the token was lost after it.
    pub left_out: bool,
}

impl<A: Application> Jitterbug<A> {
    /// The status of the node.
    #[must_use]
    pub fn status(&self, now: Instant) -> Status {
        let super::super::lower::Lower { env, ring, token, .. } = &self.lower;
        let nodes = (ring.list().nodes().iter())
            .map(|node| NodeStatus {
                host_id: node.host_id,
                addr: node.addr,
                penalty: ring.penalties().of(node.host_id),
                left_out: ring.leaves_out(node, now),
            })
            .collect();
        Status {
            state: self.role.name(),
            token_id: token.id(),
            host_id: env.host_id(),
            addr: env.own_entry().addr,
            nodes,
            waiting: ring.waiting(),
            fence: token.fence(),
            holder: if self.role.is_leader() { Some(env.host_id()) } else { ring.holder() },
            passed_to: ring.passed_to(),
            tenures: env.counters().tenures,
            loop_micros: ring.loop_time().map(micros),
            availability: ring.availability(now),
            renew_timeout_micros: micros(ring.renew(env.config())),
            data_bytes: token.data().len(),
            grace_micros: micros(env.config().grace()),
            pause_max_micros: micros(env.config().pause_max()),
            values_dropped: token.app().drops_values(),
            voters: token.app().voters().map(str::to_owned),
            refused_tokens: env.refused_tokens().map(|(from, count)| RefusedTokens { from, count }).collect(),
        }
    }

    /// The state.
    #[must_use]
    pub fn state_name(&self) -> StateName {
        self.role.name()
    }

    /// Whether the node has an attempt to pass the token under way.
    #[must_use]
    pub fn is_passing(&self) -> bool {
        matches!(&self.role, Role::Leader(tenure) if tenure.is_passing())
    }

    /// The token's id, without its sign.
    #[must_use]
    pub fn token_id(&self) -> TokenId {
        self.lower.token.id()
    }

    /// The host id of the node; 0 until it has started.
    #[must_use]
    pub fn host_id(&self) -> HostId {
        self.lower.env.host_id()
    }

    /// The data as it is here.
    #[must_use]
    pub fn data(&self) -> &[u8] {
        self.lower.token.data()
    }

    /// The ring, in order.
    #[must_use]
    pub fn list(&self) -> &super::super::NodeList {
        self.lower.ring.list()
    }

    /// The penalties, by host.
    #[must_use]
    pub fn penalties(&self) -> &super::super::Penalties {
        self.lower.ring.penalties()
    }

    /// The fence of the last own tenure.
    #[must_use]
    pub fn fence(&self) -> Option<u64> {
        self.lower.token.fence()
    }

    /// The fence of the hold in force, if there is one.
    #[must_use]
    pub fn held(&self) -> Option<u64> {
        self.lower.holds.active().map(|hold| hold.fence)
    }

    /// The application.
    #[must_use]
    pub fn application(&self) -> &A {
        self.lower.token.app()
    }
}
