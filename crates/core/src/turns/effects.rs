//! The effects of the parts: a queue that only the machine empties.

use std::net::SocketAddr;

use super::disk::Write;
use super::message::{Body, Group};
use super::{Event, Reply};
use crate::tag::RequestId;

/// A datagram to send.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Sending {
    pub(super) to: SocketAddr,
    pub(super) group: Group,
    pub(super) epoch: u32,
    pub(super) nonce: u64,
    pub(super) body: Body,
}

/// The effects, in order within each kind.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Effects {
    pub(super) outgoing: Vec<Sending>,
    pub(super) events: Vec<Event>,
    pub(super) replies: Vec<(RequestId, Reply)>,
    pub(super) writes: Vec<Write>,
}

impl Effects {
    pub(super) fn event(&mut self, event: Event) {
        self.events.push(event);
    }

    pub(super) fn reply(&mut self, request: RequestId, reply: Reply) {
        self.replies.push((request, reply));
    }

    pub(super) fn write(&mut self, write: Write) {
        self.writes.push(write);
    }
}
