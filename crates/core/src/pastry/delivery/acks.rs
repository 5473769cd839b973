//! Acknowledgements: messages that arrive together are acknowledged together. A message that came directly from its
//! origin and was settled at once has its receipt in the same `Ack` (PA-35a).

use crate::pastry::contact::Contact;
use crate::pastry::message::{Message, MessageId};
use crate::tag::StreamId;

/// The acknowledgements for the node whose messages are being handled; empty between calls.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Acks {
    /// That node, and the connection over which its messages arrived.
    to: Option<(Contact, StreamId)>,
    transmissions: Vec<u64>,
    delivered: Vec<MessageId>,
}

impl Acks {
    /// Begins with the messages of this node, which arrived over this connection.
    pub(super) fn begin(&mut self, from: Contact, over: StreamId) {
        self.to = Some((from, over));
    }

    /// The connection over which the messages arrived.
    pub(super) fn over(&self) -> Option<StreamId> {
        self.to.map(|(_, over)| over)
    }

    pub(super) fn push(&mut self, transmission: u64) {
        self.transmissions.push(transmission);
    }

    /// Notes that a message was accepted, if the acknowledgement goes to its origin. Returns whether it does.
    pub(super) fn confirm(&mut self, id: MessageId, origin: &Contact, hops: u8) -> bool {
        let suits = hops == 1 && self.to.as_ref().is_some_and(|(to, _)| to == origin);
        if suits {
            self.delivered.push(id);
        }
        suits
    }

    /// The acknowledgement, the node it is for, and the connection.
    pub(super) fn take(&mut self) -> Option<((Contact, StreamId), Message)> {
        let to = self.to.take()?;
        if self.transmissions.is_empty() && self.delivered.is_empty() {
            return None;
        }
        let Self { transmissions, delivered, .. } = core::mem::take(self);
        Some((to, Message::Ack { transmissions, delivered }))
    }

    /// Reuses the memory of an acknowledgement that was sent.
    pub(super) fn recycle(&mut self, ack: Message) {
        if let Message::Ack { mut transmissions, mut delivered } = ack {
            transmissions.clear();
            delivered.clear();
            (self.transmissions, self.delivered) = (transmissions, delivered);
        }
    }
}
