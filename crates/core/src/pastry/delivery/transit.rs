//! A message at this node, on its way to the next hop.

use crate::id::Id;
use crate::pastry::message::{Body, Envelope};

/// A message and the next hops that were tried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Transit {
    pub(super) envelope: Envelope,
    /// The nodes that certainly did not take it.
    pub(super) tried: Vec<Id>,
    /// How many next hops were tried without success.
    pub(super) tries: usize,
    /// Whether the joiner got this node's state, if it is a join.
    pub(super) is_reported: bool,
}

impl Transit {
    pub(super) fn new(envelope: Envelope) -> Self {
        Self { envelope, tried: Vec::new(), tries: 0, is_reported: false }
    }

    pub(super) fn is_join(&self) -> bool {
        self.envelope.body == Body::Join
    }

    /// Notes that a node did not take it.
    pub(super) fn refused_by(&mut self, node: Id) {
        self.tried.push(node);
        self.tries += 1;
    }

    pub(super) fn payload_bytes(&self) -> usize {
        match &self.envelope.body {
            Body::App { payload, .. } => payload.len(),
            Body::Join | Body::Trace { .. } => 0,
        }
    }
}
