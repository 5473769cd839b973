//! Dispatch: gives every message of a connection, and every command, to the part that handles it.

use super::contact::Contact;
use super::delivery::Sending;
use super::join::StateReceived;
use super::machine::{Cause, Out, Pastry};
use super::message::{About, Body, Message};
use super::transport::Sender;
use super::{Command, Reply, state_transfer};
use crate::machine::Refusal;
use crate::pool::UNFINISHED;
use crate::tag::{RequestId, StreamId};
use crate::time::Now;
use crate::wire::DecodeError;

impl Pastry {
    /// Handles the bytes of a connection.
    pub(super) fn received(
        &mut self,
        now: Now,
        stream: StreamId,
        data: &[u8],
        out: Out<'_, '_>,
    ) -> Result<(), Refusal> {
        let mut messages = match self.lower.transport.received(now.mono, stream, data, out) {
            Ok(messages) => messages,
            Err(DecodeError::Limit(UNFINISHED)) => {
                self.lower.env.count().connections_refused += 1;
                let refusal = Refusal::Reject("one large message too many at a time");
                return Err(self.refuse(now, stream, refusal, out));
            }
            Err(error) => return Err(self.refuse(now, stream, error.into(), out)),
        };
        let mut drained = messages.drain(..);
        let (mut refusal, mut sender) = (None, self.lower.transport.sender(stream));
        if sender.is_none() {
            refusal = match drained.next() {
                Some(Message::Hello { ring, from }) if ring == self.lower.env.ring() => {
                    self.greeted(now, stream, from, out);
                    None
                }
                Some(Message::Hello { .. }) => Some("a hello of another ring"),
                Some(_) => Some("a message before the hello"),
                None => None,
            };
            sender = self.lower.transport.sender(stream);
        }
        if let Some(sender) = sender {
            let Sender { contact, is_validated, .. } = sender;
            if self.lower.tables.is_avoided(contact.id) && is_validated {
                // PD-4: a message from it arrived, so it is probed at once.
                self.lower.prober.hasten_away(contact.id, now.mono);
            }
            self.delivery.begin_acks(contact, stream);
            for message in drained {
                self.handle_message(now, sender, message, out);
            }
            self.delivery.send_acks(&mut self.lower.cx(now, out));
        } else {
            drop(drained);
        }
        self.lower.transport.recycle(messages);
        if let Some((contact, rtt)) = self.lower.transport.take_measured() {
            self.join.on_measured(&mut self.lower.cx(now, out), contact, rtt);
        }
        match refusal {
            Some(refusal) => Err(self.refuse(now, stream, Refusal::Reject(refusal), out)),
            None => Ok(()),
        }
    }

    fn handle_message(&mut self, now: Now, sender: Sender, message: Message, out: Out<'_, '_>) {
        let Sender { contact: from, stream, is_validated, .. } = sender;
        let cx = &mut self.lower.cx(now, out);
        match message {
            Message::Hello { .. } => {}
            Message::Ping { nonce, .. } => {
                let pong = cx.pong(nonce);
                cx.answer(stream, from.addr, &pong);
                // A leaf probes over a connection because it got no answer over UDP. It may have removed this node.
                if self.join.is_active() && cx.tables().leaf_set().contains(from.id) {
                    self.join.announce_again(cx, from.id);
                }
            }
            Message::Pong { nonce, from, leaf_set_digest, .. } => {
                cx.on_pong(nonce, true, from, leaf_set_digest);
            }
            Message::Route { transmission, envelope } => {
                self.delivery.on_route(cx, from, transmission, envelope);
            }
            // Any node could forge these: only the machine that got the message may acknowledge it.
            Message::Ack { .. } | Message::Nack { .. } if !is_validated => cx.count().refused += 1,
            Message::Ack { transmissions, delivered } => {
                self.delivery.on_acks(cx, from, &transmissions, &delivered);
            }
            Message::Nack { transmission } => {
                if !self.delivery.on_nack(cx, from, transmission) {
                    // The sender keeps no state for the acknowledgement of a join.
                    self.join.on_nack(cx, from.addr);
                }
            }
            Message::Receipt { id, attempt, hops, report } => {
                self.delivery.on_report(cx, from, (id, attempt, hops), report);
            }
            Message::Announce { .. } | Message::Exit if !is_validated => {
                // Any node could forge this: the claimed address is probed.
                cx.count().refused += 1;
                cx.verify(from);
            }
            Message::Exit => self.remove(now, from.id, Cause::Left, out),
            other => self.handle_tables(now, sender, other, out),
        }
    }

    /// Handles the messages that maintain the tables.
    fn handle_tables(&mut self, now: Now, sender: Sender, message: Message, out: Out<'_, '_>) {
        let Sender { contact: from, rtt, is_validated, .. } = sender;
        let cx = &mut self.lower.cx(now, out);
        match message {
            Message::StateRequest { token, wanted } => {
                state_transfer::answer_request(cx, from, token, wanted);
            }
            Message::State { about, versions, tables } => {
                let state = StateReceived { from, rtt, is_validated, versions, tables: &tables };
                match about {
                    About::Join { id, hop, last } => self.join.on_join_state(cx, &state, (id, hop, last)),
                    About::Race => self.join.on_race(cx, &state),
                    About::Request { token } => self.repair.on_state(cx, from, token, versions, &tables),
                }
            }
            Message::Announce { seen, wants_welcome, versions, tables } => {
                let state = StateReceived { from, rtt, is_validated, versions, tables: &tables };
                self.join.on_announce(cx, &state, seen, wants_welcome);
            }
            Message::Welcome { versions } => self.join.on_welcome(cx, from.id, versions),
            // One report removes no node (PF-13).
            Message::Suspect { id } => cx.probe(id),
            Message::Refuse => self.join.on_refuse(cx),
            _ => {}
        }
    }

    /// Handles a command of the application.
    pub(super) fn command(&mut self, now: Now, request: RequestId, command: Command, out: Out<'_, '_>) {
        let cx = &mut self.lower.cx(now, out);
        let reply = match command {
            Command::Route { app, key, payload, once, wants_answer, deadline } => {
                let body = Body::App { app, wants_answer, payload: payload.into() };
                let sending = Sending { key, to_node: false, body, once, deadline };
                return self.delivery.originate(cx, request, sending);
            }
            Command::SendTo { app, node, payload, once, wants_answer, deadline } => {
                let body = Body::App { app, wants_answer, payload: payload.into() };
                let sending = Sending { key: node, to_node: true, body, once, deadline };
                return self.delivery.originate(cx, request, sending);
            }
            Command::Replicas { key, count } => Reply::Replicas(cx.tables().replicas(cx.own(), key, count)),
            Command::NextHop { key } => Reply::NextHop(cx.tables().towards(key)),
            Command::OwnedRange => Reply::OwnedRange(cx.tables().owned_range()),
            Command::Trace { key } => {
                let body = Body::Trace { path: Vec::new() };
                let sending = Sending { key, to_node: false, body, once: false, deadline: None };
                return self.delivery.originate(cx, request, sending);
            }
            Command::Settle(verdicts) => Reply::Settled { open: self.delivery.settle(cx, verdicts) },
            Command::Tables => {
                let (own, is_active) = (cx.own(), self.join.is_active());
                Reply::Tables(Box::new(cx.tables().status(own, is_active)))
            }
            Command::Register(name) if self.delivery.register(name.clone()) => Reply::Done,
            Command::Register(_) => Reply::AlreadyServed,
            Command::Unregister(name) => {
                self.delivery.unregister(cx, &name);
                Reply::Done
            }
            Command::Join(addr) => {
                self.join.through(cx, addr);
                Reply::Done
            }
            report => {
                self.on_membership(now, &report, out);
                Reply::Done
            }
        };
        out.reply(request, reply);
    }

    /// Handles the greeting of a connection, which names its peer.
    fn greeted(&mut self, now: Now, stream: StreamId, from: Contact, out: Out<'_, '_>) {
        self.lower.transport.greeted(now.mono, stream, from, out);
        // The node that had that address before is probably gone. It is probed, since any node can claim an address.
        let former = self.lower.tables.peer_at(from.addr);
        if let Some(former) = former.filter(|former| former.id != from.id) {
            self.lower.cx(now, out).verify(former);
        }
    }

    pub(super) fn refuse(
        &mut self,
        now: Now,
        stream: StreamId,
        refusal: Refusal,
        out: Out<'_, '_>,
    ) -> Refusal {
        match refusal {
            Refusal::Decode(_) => self.lower.env.count().malformed += 1,
            Refusal::Reject(_) => self.lower.env.count().refused += 1,
        }
        let lost = self.lower.transport.abort(stream, out);
        self.connection_lost(now, lost, None, out);
        refusal
    }
}
