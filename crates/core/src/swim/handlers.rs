//! The chain of handlers that see every message before the protocol does (S-99 … S-104).

use core::fmt;

use super::member::Member;
use super::message::Message;
use crate::common::caught;

/// What a handler decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Not its affair: the protocol does what it does with such a message.
    Pass,
    /// Dealt with: the protocol does not see it.
    Taken,
    /// Not wanted: the protocol does not see it, and it is counted.
    Refused,
}

/// A link of the chain. It is called inside the machine, so it decides at once and does no I/O.
///
/// It may look at the record of the member a message is about, or else of who sent it (S-9). What it cannot deal
/// with it gives to [`Next::handle`]; what it returns is what its caller sees.
pub trait Handler: fmt::Debug + Send + Sync {
    /// Deals with a message, or passes it on.
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

    /// What the chain decides on a message. A handler that panics refuses it.
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
