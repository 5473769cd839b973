//! The node: several machines that run as one.
//!
//! A [`Node`] is itself a machine. Each of its parts is a service with a tag; what a part puts out is stamped with
//! the tag, what comes in is stripped of it and handed to the part it belongs to. No part can tell that it is not
//! alone. What the parts tell each other (failures, round-trip times, known nodes) is glue, in a file of its own.

mod glue;
mod machine;

#[cfg(test)]
mod tests;

use serde::Serialize;

pub use machine::Node;

use crate::tag::Service;
use crate::{jitterbug, pastry, ping, swim, w3w};

/// A machine that can be part of a node.
#[derive(Clone, Debug, PartialEq)]
pub enum Part {
    /// Pings.
    Ping(Box<ping::Ping>),
    /// Knows who is alive.
    Members(Box<swim::Swim>),
    /// Takes turns.
    Token(Box<Token>),
    /// Finds who owns a key.
    Route(Box<pastry::Pastry>),
    /// Reaches people who are away.
    Mesh(Box<w3w::Mesh>),
}

/// The token with the application that is shipped with it.
pub type Token = jitterbug::Jitterbug<jitterbug::Ledger>;

/// A command to one part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    /// Which part is to do it.
    pub service: Service,
    /// What it is to do.
    pub command: PartCommand,
}

/// A command of one of the protocols.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PartCommand {
    /// Of ping.
    Ping(ping::Command),
    /// Of members.
    Members(swim::Command),
    /// Of token.
    Token(jitterbug::Command<jitterbug::Set>),
    /// Of route.
    Route(pastry::Command),
    /// Of mesh.
    Mesh(w3w::Command),
}

/// The answer of one part.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    /// Of ping.
    Ping(ping::Reply),
    /// Of members.
    Members(swim::Reply),
    /// Of token.
    Token(jitterbug::Reply),
    /// Of route.
    Route(pastry::Reply),
    /// Of mesh.
    Mesh(w3w::Reply),
    /// This node has no such service, or it is of another protocol than the command.
    NoSuchService,
}

/// What one part tells.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Event {
    /// Which part.
    pub service: Service,
    /// What it tells.
    #[serde(flatten)]
    pub event: PartEvent,
}

/// An event of one of the protocols.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "protocol", rename_all = "snake_case")]
pub enum PartEvent {
    /// Of ping.
    Ping(ping::Event),
    /// Of members.
    Members(swim::Event),
    /// Of token.
    Token(jitterbug::Event),
    /// Of route.
    Route(pastry::Event),
    /// Of mesh.
    Mesh(w3w::Event),
}

/// Two parts were given one tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("service {0} is there twice: give each part of a node a tag of its own")]
pub struct DuplicateService(pub Service);
