//! Errors of a router.

use annulus_core::pastry::{ConfigError, Failure, Outcome, Reply};
use annulus_net::Stopped;

use crate::start::StartError;

/// The error of a [`Router`](super::Router) method.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RouteError {
    /// The settings cannot work.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The node could not start.
    #[error(transparent)]
    Start(#[from] StartError),
    /// The application of the owner refused the message, for this reason.
    #[error("the application refused it: {0}")]
    Refused(String),
    /// No application saw the message, and none will.
    #[error("{}", why(*.0))]
    Failed(Failure),
    /// The deadline passed: an application may have accepted the message.
    #[error(
        "delivery unknown: the owner may have received the message; resend it only if a duplicate is harmless"
    )]
    Unknown,
    /// Too many messages are under way.
    #[error("too many messages are under way: wait for some of them to end")]
    Full,
    /// The message is longer than the configuration allows.
    #[error("the message is longer than `message_bytes_max`: send less, or send where to find it")]
    TooLong,
    /// The message is not open: it was settled, or its sender waits no longer.
    #[error("the message is not open: it was settled, or its sender waits no longer")]
    NotOpen,
    /// Another [`Server`](super::Server) or [`Inbox`](super::Inbox) of this node serves the application.
    #[error("this node serves the application already: drop the other server or inbox first")]
    AlreadyServed,
    /// The node ended before or during this call.
    #[error("the node has ended: start it again")]
    Stopped,
}

fn why(failure: Failure) -> &'static str {
    match failure {
        Failure::NoApplication => "the owner runs no application of that name: serve it there",
        Failure::Stopped => "an application on the path stopped the message",
        Failure::HopLimit => "it took more hops than `ttl` allows: the ring is being repaired, try again",
        Failure::NoRoute => "every path that was tried failed: the ring is being repaired, try again",
        Failure::Busy => "the owner, or a node on the path, had no room for it: try again later",
        Failure::NoSuchNode => "no node has that id: look at the members",
        _ => "the ring reported a failure that this version of the library does not know",
    }
}

impl From<Stopped> for RouteError {
    fn from(_: Stopped) -> Self {
        Self::Stopped
    }
}

/// The error of an unexpected reply.
pub(super) fn refused(reply: Reply) -> RouteError {
    match reply {
        Reply::Outcome(Outcome::Failed { why }) => RouteError::Failed(why),
        Reply::Outcome(Outcome::Refused { reason, .. }) => RouteError::Refused(reason),
        Reply::Outcome(_) => RouteError::Unknown,
        Reply::Full => RouteError::Full,
        Reply::TooLong => RouteError::TooLong,
        Reply::AlreadyServed => RouteError::AlreadyServed,
        _ => RouteError::Stopped,
    }
}
