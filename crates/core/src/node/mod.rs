//! The node: several machines that run as one.
//!
//! A [`Node`] is itself a machine. Each of its parts is a service with a tag. The node adds the tag to every id in the
//! actions of a part, and removes it from the part's inputs. So the parts are independent. `glue.rs` forwards failures,
//! round-trip times and known nodes from `members` to the other services. A [`Companion`] is a machine of the
//! application beside them. It receives events of the others and sends them commands.

mod assembly;
mod companion;
mod glue;
mod machine;
mod ring_turns;
pub mod services;

#[cfg(test)]
mod tests;

use serde::Serialize;

pub use assembly::{Assembly, AssemblyError, MEMBERS_PORT, Setup};
pub use companion::{Companion, Hearing, NotUnderstood, Own, OwnEvent, OwnPart, Panicked};
pub use machine::Node;

use crate::tag::Service;
use crate::{jitterbug, pastry, ping, swim, turns, w3w};

/// A machine that can be part of a node.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Part {
    /// The tutorial; no service of the agent.
    Ping(Box<ping::Ping>),
    /// `members`: failure detection.
    Members(Box<swim::Swim>),
    /// `token`: a token ring.
    Token(Box<Token>),
    /// `route`: finds the owner of a key.
    Route(Box<pastry::Pastry>),
    /// `mesh`: store and forward.
    Mesh(Box<w3w::Mesh>),
    /// Grants and takes exclusive turns.
    Turns(Box<turns::Turns>),
    /// A machine of the application.
    Own(OwnPart),
}

/// The token with one of the shipped applications.
pub type Token = jitterbug::Jitterbug<jitterbug::Shipped>;

/// A command to one part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    /// The tag of the part.
    pub service: Service,
    /// The command itself.
    pub command: PartCommand,
}

/// A command of one of the protocols.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PartCommand {
    /// For `ping`.
    Ping(ping::Command),
    /// For `members`.
    Members(swim::Command),
    /// For `token`.
    Token(jitterbug::Command<jitterbug::Set>),
    /// For `route`.
    Route(pastry::Command),
    /// For `mesh`.
    Mesh(w3w::Command),
    /// For `turns`.
    Turns(turns::Command),
    /// For a companion.
    Own(Own),
}

/// The reply of one part.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Reply {
    /// From `ping`.
    Ping(ping::Reply),
    /// From `members`.
    Members(swim::Reply),
    /// From `token`.
    Token(jitterbug::Reply),
    /// From `route`.
    Route(pastry::Reply),
    /// From `mesh`.
    Mesh(w3w::Reply),
    /// From `turns`.
    Turns(turns::Reply),
    /// From a companion.
    Own(Own),
    /// This node has no such service, or it is of another protocol than the command.
    NoSuchService,
}

/// An event of one part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Event {
    /// The tag of the part.
    pub service: Service,
    /// The event itself.
    #[serde(flatten)]
    pub event: PartEvent,
}

/// An event of one of the protocols.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "protocol", rename_all = "snake_case")]
#[non_exhaustive]
pub enum PartEvent {
    /// From `ping`.
    Ping(ping::Event),
    /// From `members`.
    Members(swim::Event),
    /// From `token`.
    Token(jitterbug::Event),
    /// From `route`.
    Route(pastry::Event),
    /// From `mesh`.
    Mesh(w3w::Event),
    /// From `turns`.
    Turns(turns::Event),
    /// From a companion.
    Own(OwnEvent),
}

/// Two parts were given one tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("service {0} is there twice: give each part of a node a tag of its own")]
pub struct DuplicateService(pub Service);
