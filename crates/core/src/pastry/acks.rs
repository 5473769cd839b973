//! Acknowledgements: who took a message answers for it, and who sent it is free of it.
//!
//! What came together is acknowledged together. The owner of a key that got a message from its very origin delivers it on
//! the spot, and that is said in the same breath: a receipt of its own would cost as much as the message.

use core::time::Duration;
use std::net::SocketAddr;

use super::clocks::Clock;
use super::contact::Contact;
use super::machine::{Out, Pastry};
use super::message::{Message, MessageId, Outcome};
use super::passage::{Fresh, payload_bytes};
use crate::time::Now;

/// The longest message whose acknowledgement tells how near a node is.
const SAMPLE_BYTES_MAX: usize = 4096;

/// What is to be said to the node whose messages are being handled; empty between calls.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Acks {
    to: Option<Contact>,
    /// What was taken.
    pub(super) transmissions: Vec<u64>,
    /// What came from its origin and was delivered here.
    delivered: Vec<MessageId>,
}

impl Acks {
    /// From here on messages of this node are handled.
    pub(super) fn begin(&mut self, from: Contact) {
        self.to = Some(from);
    }

    /// Notes that a message was delivered, if its origin is the one to be told; whether that is so.
    pub(super) fn confirm(&mut self, id: MessageId, origin: &Contact, hops: u8) -> bool {
        let suits = hops == 1 && self.to.as_ref() == Some(origin);
        if suits {
            self.delivered.push(id);
        }
        suits
    }
}

impl Pastry {
    /// Acknowledges what was taken, all together.
    pub(super) fn acknowledge(&mut self, now: Now, out: Out<'_, '_>) {
        let Some(to) = self.acks.to.take() else { return };
        if self.acks.transmissions.is_empty() && self.acks.delivered.is_empty() {
            return;
        }
        let Acks { transmissions, delivered, .. } = core::mem::take(&mut self.acks);
        let ack = Message::Ack { clock: Self::clock(now), transmissions, delivered };
        self.send(now, to.addr, &ack, out);
        if let Message::Ack { mut transmissions, mut delivered, .. } = ack {
            transmissions.clear();
            delivered.clear();
            self.acks = Acks { to: None, transmissions, delivered };
        }
    }

    /// Shows our clock to a node that does not know it (PA-36b).
    pub(super) fn show_clock(&mut self, now: Now, to: SocketAddr, out: Out<'_, '_>) {
        let (transmissions, delivered) = (Vec::new(), Vec::new());
        self.send(now, to, &Message::Ack { clock: Self::clock(now), transmissions, delivered }, out);
    }

    pub(super) fn on_acks(
        &mut self,
        now: Now,
        from: Contact,
        clock: Clock,
        transmissions: &[u64],
        delivered: &[MessageId],
        out: Out<'_, '_>,
    ) {
        if transmissions.is_empty() {
            self.saw_clock(now, from.id, clock, self.config.message_timeout, out);
        } else if let Some(slack) = self.end_relays(now, from, transmissions) {
            self.saw_clock(now, from.id, clock, slack, out);
            self.trust(now, from.id, out);
        }
        for &id in delivered {
            match self.sendings.was_sent_to(id, from.id) {
                Some(true) => {
                    self.on_receipt(now, id, Outcome::Delivered { by: from }, 1, Vec::new(), out);
                }
                // It cannot have it from us.
                Some(false) => self.counters.refused += 1,
                None => {}
            }
        }
    }

    /// Ends the relays of these transmissions; how long the last of them took, or `None` if they are none of ours.
    fn end_relays(&mut self, now: Now, from: Contact, transmissions: &[u64]) -> Option<Duration> {
        let mut peer = self.peers.get_mut(from.id);
        let mut took = None;
        for &transmission in transmissions {
            let Some(relay) = self.relays.get(transmission).filter(|relay| relay.to == from.id) else {
                continue;
            };
            let since = now.mono.since(relay.sent);
            if relay.connected && payload_bytes(&relay.passage.envelope) < SAMPLE_BYTES_MAX {
                // P-5: every exchange tells how near a node is.
                peer.iter_mut().for_each(|peer| peer.estimate.add(since));
            }
            took = Some(since);
            self.relays.end(transmission);
        }
        took
    }

    pub(super) fn on_nack(&mut self, now: Now, from: Contact, transmission: u64, out: Out<'_, '_>) {
        if self.relays.get(transmission).is_none_or(|relay| relay.to != from.id) {
            // Nobody waits for the acknowledgement of a join.
            if self.join.is_through(from.addr) {
                self.on_join_refused(now, from.addr, out);
            }
            return;
        }
        let Some(relay) = self.relays.take(transmission) else { return };
        let mut passage = relay.passage;
        if relay.stamped {
            passage.tried.push(from.id);
        }
        passage.tries += 1;
        self.counters.messages_rerouted += 1;
        self.step(now, passage, Fresh::No, out);
    }
}
