//! The chain of handlers that see every message before the protocol does (S-99 … S-104).

use core::fmt;

use super::member::Member;
use super::message::Message;
use crate::common::caught;

/// The decision of a handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The handler leaves the message to the protocol.
    Pass,
    /// The handler consumed the message; the protocol does not see it.
    Taken,
    /// The handler refused the message; the protocol does not see it, and counts it.
    Refused,
}

/// A handler of the chain. The machine calls it directly, so it decides at once and does no I/O.
///
/// It may read the record of the member that a message is about, or else of its sender (S-9). It passes other messages
/// to [`Next::handle`]. Its caller sees the verdict that it returns.
pub trait Handler: fmt::Debug + Send + Sync {
    /// Handles a message, or passes it on.
    fn handle(&mut self, message: &Message<'_>, member: Option<&Member>, next: Next<'_>) -> Verdict;

    /// A copy, so that a machine can be copied.
    fn boxed(&self) -> Box<dyn Handler>;
}

/// The rest of the chain.
pub struct Next<'a>(&'a mut [Box<dyn Handler>]);

impl Next<'_> {
    /// Lets the next handler decide; at the end of the chain it is [`Verdict::Pass`].
    pub fn handle(self, message: &Message<'_>, member: Option<&Member>) -> Verdict {
        match self.0.split_first_mut() {
            Some((first, rest)) => first.handle(message, member, Next(rest)),
            None => Verdict::Pass,
        }
    }
}

/// The chain, in the order the handlers were added.
#[derive(Debug, Default)]
pub struct Handlers(Vec<Box<dyn Handler>>);

impl Handlers {
    /// Adds a handler behind the others (S-108).
    pub fn push(&mut self, handler: Box<dyn Handler>) {
        self.0.push(handler);
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The verdict of the chain on a message. A handler that panics refuses the message.
    pub fn handle(&mut self, message: &Message<'_>, member: Option<&Member>) -> Verdict {
        caught(|| Next(&mut self.0).handle(message, member)).unwrap_or(Verdict::Refused)
    }
}

impl Clone for Handlers {
    fn clone(&self) -> Self {
        Self(self.0.iter().map(|handler| handler.boxed()).collect())
    }
}

/// Two chains are equal if they print equal: a handler's state is in its `Debug`.
impl PartialEq for Handlers {
    fn eq(&self, other: &Self) -> bool {
        format!("{:?}", self.0) == format!("{:?}", other.0)
    }
}
