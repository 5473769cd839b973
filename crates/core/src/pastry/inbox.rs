//! The inbox: what comes by streams is cut into frames, decoded, and given to who does the work.

use core::time::Duration;
use std::borrow::Cow;

use super::contact::Contact;
use super::machine::{Out, Pastry};
use super::message::Message;
use super::wire::decode;
use crate::machine::Refusal;
use crate::pool::UNFINISHED;
use crate::tag::StreamId;
use crate::time::Now;
use crate::wire::DecodeError;

/// How many messages that came together there is room kept for.
const INBOX_KEPT: usize = 64;

impl Pastry {
    fn handle_message(
        &mut self,
        now: Now,
        (stream, from): (StreamId, Contact),
        message: Message,
        out: Out<'_, '_>,
    ) {
        match message {
            Message::Hello { .. } => {}
            Message::Ping { nonce, .. } => {
                let pong = self.pong(now, nonce);
                self.send(now, from.addr, &pong, out);
                self.asked_again(now, from, out);
            }
            Message::Pong { nonce, from, leaf_set_version, clock, .. } => {
                self.on_pong(now, (nonce, true), from, leaf_set_version, clock, out);
            }
            Message::Route { transmission, sent, envelope } => {
                let age = self.age(now, sent);
                self.on_route(now, from, transmission, age, envelope, out);
            }
            Message::Ack { clock, transmissions, delivered } => {
                self.on_acks(now, from, clock, &transmissions, &delivered, out);
            }
            Message::Nack { transmission } => self.on_nack(now, from, transmission, out),
            Message::Receipt { id, outcome, hops, path } => {
                self.on_receipt(now, id, outcome, hops, path, out);
            }
            // Who answers speaks for itself.
            Message::Answer { from: by, .. } if by != from => self.counters.refused += 1,
            Message::Answer { id, hops, from, payload } => self.on_answer(id, hops, from, payload, out),
            Message::StateRequest { token, wanted } => self.on_state_request(now, from, token, wanted, out),
            Message::State { about, versions, tables } => {
                let vouched = self.pool.vouches(stream, from.addr);
                self.on_state(now, (from, vouched), about, versions, &tables, out);
            }
            Message::Announce { .. } | Message::Exit if !self.pool.vouches(stream, from.addr) => {
                // Anybody could say that: the node is asked at the address it claims.
                self.counters.refused += 1;
                self.see_for_ourselves(now, from);
            }
            Message::Announce { seen, versions, tables } => {
                self.on_announce(now, from, seen, versions, &tables, out);
            }
            Message::Welcome { versions } => self.on_welcome(from.id, versions),
            Message::Exit => self.on_exit(now, from, out),
            Message::Suspect { id } => self.on_suspect(id),
            Message::Refuse => self.on_refuse(now, out),
            Message::Inquire { id, key, age_micros } => {
                let age = Duration::from_micros(age_micros.into());
                self.on_inquire(now, from.id, (id, key, age), out);
            }
            Message::Testify { id, testimony } => self.on_testimony(now, from.id, (id, testimony), out),
        }
    }

    /// Decodes everything that `data` completes before any of it takes effect: bytes that are no message leave the
    /// node as if the stream had been reset before them.
    pub(super) fn received(
        &mut self,
        now: Now,
        stream: StreamId,
        data: &[u8],
        out: Out<'_, '_>,
    ) -> Result<(), Refusal> {
        let frames = match self.pool.received(now.mono, stream, data, out) {
            Ok(frames) => frames,
            Err(DecodeError::Limit(UNFINISHED)) => {
                self.counters.connections_refused += 1;
                let refusal = Refusal::Reject("one large message too many at a time");
                return Err(self.refuse(now, stream, refusal, out));
            }
            Err(error) => return Err(self.refuse(now, stream, error.into(), out)),
        };
        let mut messages = core::mem::take(&mut self.inbox);
        let handled = self.handle_frames(now, stream, &frames, &mut messages, out);
        messages.clear();
        messages.shrink_to(INBOX_KEPT);
        self.inbox = messages;
        self.acknowledge(now, out);
        handled
    }

    fn handle_frames(
        &mut self,
        now: Now,
        stream: StreamId,
        frames: &[Cow<'_, [u8]>],
        messages: &mut Vec<Message>,
        out: Out<'_, '_>,
    ) -> Result<(), Refusal> {
        for frame in frames {
            match decode(frame) {
                Ok(message) => messages.push(message),
                Err(error) => return Err(self.refuse(now, stream, error.into(), out)),
            }
        }
        let mut messages = messages.drain(..);
        if self.pool.label(stream).is_none() {
            let refusal = match messages.next() {
                Some(Message::Hello { ring, from }) if ring == self.ring => {
                    self.greeted(now, stream, from, out);
                    None
                }
                Some(Message::Hello { .. }) => Some("a hello of another ring"),
                Some(_) => Some("a message before the hello"),
                None => None,
            };
            if let Some(refusal) = refusal {
                return Err(self.refuse(now, stream, Refusal::Reject(refusal), out));
            }
        }
        let Some(&from) = self.pool.label(stream) else { return Ok(()) };
        self.acks.begin(from);
        for message in messages {
            self.handle_message(now, (stream, from), message, out);
        }
        Ok(())
    }

    pub(super) fn refuse(
        &mut self,
        now: Now,
        stream: StreamId,
        refusal: Refusal,
        out: Out<'_, '_>,
    ) -> Refusal {
        match refusal {
            Refusal::Decode(_) => self.counters.malformed += 1,
            Refusal::Reject(_) => self.counters.refused += 1,
        }
        let lost = self.pool.abort(stream, out);
        self.lost(now, lost, out);
        refusal
    }
}
