//! Acknowledgements: what came together is acknowledged together. A message that came from its very origin, and was
//! settled in the call that delivered it, has its receipt in the same `Ack` (PA-35a).

use crate::pastry::contact::Contact;
use crate::pastry::message::{Message, MessageId};

/// What is to be sent to the node whose messages are being handled; empty between calls.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Acks {
    to: Option<Contact>,
    transmissions: Vec<u64>,
    delivered: Vec<MessageId>,
}

impl Acks {
    /// From here on messages of this node are handled.
    pub(super) fn begin(&mut self, from: Contact) {
        self.to = Some(from);
    }

    pub(super) fn push(&mut self, transmission: u64) {
        self.transmissions.push(transmission);
    }

    /// Notes that a message was accepted, if its origin gets the acknowledgement; whether that is so.
    pub(super) fn confirm(&mut self, id: MessageId, origin: &Contact, hops: u8) -> bool {
        let suits = hops == 1 && self.to.as_ref() == Some(origin);
        if suits {
            self.delivered.push(id);
        }
        suits
    }

    /// The acknowledgement, and the node it is for.
    pub(super) fn take(&mut self) -> Option<(Contact, Message)> {
        let to = self.to.take()?;
        if self.transmissions.is_empty() && self.delivered.is_empty() {
            return None;
        }
        let Self { transmissions, delivered, .. } = core::mem::take(self);
        Some((to, Message::Ack { transmissions, delivered }))
    }

    /// Takes back the memory of an acknowledgement that was sent.
    pub(super) fn recycle(&mut self, ack: Message) {
        if let Message::Ack { mut transmissions, mut delivered } = ack {
            transmissions.clear();
            delivered.clear();
            (self.transmissions, self.delivered) = (transmissions, delivered);
        }
    }
}
