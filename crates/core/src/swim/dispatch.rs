//! Incoming messages: each goes to its part, and the machine passes the reports of one part to the others.

use std::net::SocketAddr;

use super::addr::Addr;
use super::api::Event;
use super::codec::Codec;
use super::contents::OwnContents;
use super::handlers::Verdict;
use super::machine::{Out, Swim};
use super::members::Slot;
use super::message::{Header, Message, NodeView};
use super::packet::Packet;
use super::records::accusation;
use super::status::{State, Status};
use super::sync;
use super::vivaldi::Coordinate;
use super::wire::{HEAD_BYTES, Head, Messages};
use crate::id::Id;
use crate::machine::Refusal;
use crate::time::Now;

impl Swim {
    /// Handles a packet from any source.
    pub(super) fn packet(
        &mut self,
        now: Now,
        from: SocketAddr,
        bytes: &[u8],
        out: Out<'_, '_>,
    ) -> Result<(), Refusal> {
        let compact = Codec::to_compact(bytes);
        let (head, messages) = Head::read(&compact)?;
        // One node may send from 10.0.0.1 and from ::ffff:10.0.0.1: addresses have one form here.
        let mut packet = Packet::new(Addr::from(from).socket(), head.from, bytes.len());
        if head.ring != self.lower.packets.ring() {
            return self.other_ring(now, &packet, messages, out);
        }
        if head.from == self.lower.env.id() {
            return self.own_packet(now, &packet, out);
        }
        let (mut taken, mut first_error) = (false, None);
        for message in messages {
            match message {
                Ok(message) => {
                    if !core::mem::replace(&mut taken, true) {
                        self.heard(now, &mut packet, out);
                    }
                    self.message(now, &mut packet, message, out);
                    self.apply(now, out);
                }
                // SA-54: one bad message is counted, and the rest of the packet is delivered.
                Err(error) => {
                    self.lower.env.count().malformed += u64::from(first_error.replace(error).is_some());
                }
            }
        }
        match first_error {
            Some(error) if !taken => Err(error.into()),
            Some(_) => {
                self.lower.env.count().malformed += 1;
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Handles a packet with our own id. Another node has the same id (SA-58a), or the network returned our own packet.
    fn own_packet(&mut self, now: Now, packet: &Packet, out: Out<'_, '_>) -> Result<(), Refusal> {
        let is_ours = self.lower.env.own_contents().borrow().addrs().any(|addr| addr == packet.addr);
        if is_ours || !self.membership.take_conflict() {
            return Err(Refusal::Reject("a packet with our own id"));
        }
        self.lower.env.count().conflicts += 1;
        out.event(Event::IdConflict { addr: packet.addr });
        // The other node detects the conflict in the same way. The budget ends the exchange.
        self.answer_alive(now, packet, out);
        Ok(())
    }

    /// Handles a packet of another ring. If it comes from an address that this node joins, the join fails for that
    /// reason. A node that joins through this one gets our Alive: it sees the other ring, and drops the Alive.
    fn other_ring(
        &mut self,
        now: Now,
        packet: &Packet,
        mut messages: Messages<'_>,
        out: Out<'_, '_>,
    ) -> Result<(), Refusal> {
        if self.joining.on_other_ring(&mut self.lower.cx(now, out), packet.addr) {
            return Ok(());
        }
        let is_join = messages.any(|message| matches!(message, Ok(Message::Join { .. })));
        if !is_join || !self.membership.take_conflict() {
            return Err(Refusal::Reject("a packet of another ring"));
        }
        self.answer_alive(now, packet, out);
        Ok(())
    }

    /// Sends our Alive to the source of a packet, if the packet affords it.
    fn answer_alive(&mut self, now: Now, packet: &Packet, out: Out<'_, '_>) {
        let (alive, contents) = (self.lower.own_alive(), self.lower.env.own_contents().clone());
        let alive = alive.message(&contents);
        if packet.affords(HEAD_BYTES + self.lower.packets.bytes_of(&[alive])) {
            self.lower.cx(now, out).send_alone(packet.addr, alive);
        }
    }

    /// Handles the sender of a packet that has at least one message.
    fn heard(&mut self, now: Now, packet: &mut Packet, out: Out<'_, '_>) {
        if let Some(slot) = packet.resolve(&self.lower.members) {
            self.lower.members.at_mut(slot).heard(self.lower.env.period());
        }
        self.joining.on_packet(&mut self.lower.cx(now, out), packet);
    }

    /// Lets the handlers decide, then gives a message to its part.
    fn message(&mut self, now: Now, packet: &mut Packet, message: Message<'_>, out: Out<'_, '_>) {
        if !self.handlers.is_empty() {
            let about = message.subject().unwrap_or(message.header().from);
            match self.handlers.handle(&message, self.lower.members.member(about)) {
                Verdict::Pass => {}
                Verdict::Taken => return,
                Verdict::Refused => {
                    self.lower.env.count().handlers_refused += 1;
                    return;
                }
            }
        }
        match message {
            Message::Ping { header, to, wants_coordinate, wants_alive, .. } => {
                self.ping(now, packet, header, to, (wants_coordinate, wants_alive), out);
            }
            Message::Ack { header, introduce, coordinate, .. } => {
                self.ack(now, packet, header, introduce, coordinate, out);
            }
            Message::IndirectPing { header, to, target, wants_nack, contents } => {
                let target = NodeView { id: target, contents };
                self.indirect_ping(now, packet, (header, to), target, wants_nack, out);
            }
            Message::IndirectAck { header } => {
                self.prober.on_indirect_ack(&mut self.lower.cx(now, out), header);
            }
            Message::IndirectNack { header } => {
                let cx = &mut self.lower.cx(now, out);
                if let Some(slot) = self.prober.on_indirect_nack(cx, header) {
                    self.membership.on_silence(cx, slot);
                }
            }
            Message::Join { .. } | Message::Alive { .. } | Message::Suspect { .. } | Message::Dead { .. } => {
                self.update(now, packet, message, out);
            }
            Message::User { header, id, data } => {
                self.users.on_message(&mut self.lower.cx(now, out), message, (id, header.sequence), data);
            }
            Message::Digest { .. } | Message::Summary { .. } | Message::Want { .. } => {
                self.compare(packet, message, out);
            }
            // S-63, SA-50: no handler took it; bytes of an unknown kind are no reason to panic.
            Message::Other { .. } => self.lower.env.count().unknown_kinds += 1,
            Message::Padding { .. } => {}
        }
    }

    /// Handles a message of a table comparison.
    fn compare(&mut self, packet: &Packet, message: Message<'_>, out: Out<'_, '_>) {
        let (id, members, packets) = (self.lower.env.id(), &self.lower.members, &mut self.lower.packets);
        let cx = &mut sync::Cx { id, members, packets, out };
        match message {
            Message::Digest { range, hashes, .. } => self.sync.on_digest(packet, range, hashes, cx),
            Message::Summary { range, entries, .. } => self.sync.on_summary(packet, range, entries, cx),
            Message::Want { ids, .. } => self.sync.on_want(packet, ids, cx),
            _ => {}
        }
    }

    fn ping(
        &mut self,
        now: Now,
        packet: &Packet,
        header: Header,
        to: Id,
        (wants_coordinate, wants_alive): (bool, bool),
        out: Out<'_, '_>,
    ) {
        if to != self.lower.env.id() && to != Id::MIN {
            self.lower.env.count().misaddressed += 1; // SA-21
            return;
        }
        self.lower.env.count().pings_answered += 1;
        let slot = packet.slot(&self.lower.members);
        let status = slot.map(|slot| self.lower.members.get(slot).status());
        let coordinate = (wants_coordinate && !wants_alive).then_some(self.prober.coordinate());
        let (header, local_time) = (self.lower.env.header(header.sequence), now.wall);
        let ack = Message::Ack { header, local_time, introduce: slot.is_none(), coordinate };
        // SA-6: a sender that this node holds suspect or dead gets that with the answer.
        let ended = status.or_else(|| self.lower.history.status(packet.sender));
        let by = slot.map_or_else(|| self.lower.env.id(), |slot| self.lower.accuser(slot));
        let held = ended.and_then(|ended| accusation(packet.sender, ended, by));
        let is_there = slot.is_some_and(|slot| self.lower.is_at(slot, packet.addr));
        let to = self.reply_addr(packet);
        let mut said: Vec<Message<'_>> = held.into_iter().chain([ack]).collect();
        if is_there && !wants_alive {
            self.lower.cx(now, out).send(to, &said);
            return;
        }
        let contents = self.lower.env.own_contents().clone();
        if wants_alive {
            let word = self.own_word(to, &contents);
            said.push(word);
            let bytes = HEAD_BYTES + self.lower.packets.bytes_of(&said);
            if !is_there && !packet.affords(bytes) {
                said.pop();
            }
        }
        self.lower.packets.send_all(to, said.into_iter(), 2, out);
    }

    fn ack(
        &mut self,
        now: Now,
        packet: &mut Packet,
        header: Header,
        introduce: bool,
        coordinate: Option<Coordinate>,
        out: Out<'_, '_>,
    ) {
        let cx = &mut self.lower.cx(now, out);
        packet.acked = Some(header.sequence);
        if let Some(to) = cx.lower.verifier.stays(packet.sender, header.sequence) {
            self.membership.on_conflict(cx, packet.sender, &to);
            return;
        }
        let is_verified = cx.lower.env.settings().verify;
        if is_verified && cx.lower.verifier.is_nonce(header.sequence, packet.sender, packet.addr, now.mono) {
            packet.proved = Some(packet.addr);
            self.joining.on_answer(cx, packet.addr);
            if introduce {
                cx.send_own_alive(packet.addr);
            }
            return;
        }
        // A node that does not know us and wants to gets our Alive.
        if introduce && !is_verified {
            cx.send_own_alive(packet.addr);
        }
        let Some(answered) = self.prober.on_ack(cx, packet.sender, header) else { return };
        packet.proved = Some(cx.lower.members.get(answered.slot).addr());
        if introduce && is_verified {
            cx.send_own_alive(packet.addr);
        }
        if let Some(rtt) = answered.rtt {
            self.prober.measure(cx, answered.slot, rtt, coordinate);
        }
    }

    fn indirect_ping(
        &mut self,
        now: Now,
        packet: &Packet,
        (header, to): (Header, Id),
        target: NodeView<'_>,
        wants_nack: bool,
        out: Out<'_, '_>,
    ) {
        if to != self.lower.env.id() {
            self.lower.env.count().misaddressed += 1;
            return;
        }
        let reply_to = self.reply_addr(packet);
        let cx = &mut self.lower.cx(now, out);
        if target.id == to {
            let is_known = cx.lower.is_known_at_source(packet);
            let header = cx.lower.env.header(header.sequence);
            cx.answer(reply_to, is_known, Message::IndirectAck { header });
            return;
        }
        self.prober.on_indirect_ping(cx, packet, (reply_to, header.sequence), target, wants_nack);
    }

    fn update(&mut self, now: Now, packet: &Packet, message: Message<'_>, out: Out<'_, '_>) {
        let own = self.lower.env.id();
        let cx = &mut self.lower.cx(now, out);
        match message {
            Message::Join { node, incarnation, .. } | Message::Alive { node, incarnation, .. } => {
                if node.id == own {
                    let news = Status::new(incarnation, State::Alive);
                    self.membership.about_me(cx, packet, news, Some(node.contents));
                    return;
                }
                let news = self.membership.on_alive(cx, packet, message, node, incarnation);
                if matches!(message, Message::Join { .. }) {
                    self.joining.on_join(cx, packet, node, news);
                }
            }
            Message::Suspect { id, incarnation, .. } | Message::Dead { id, incarnation, .. } => {
                let state = message.state().unwrap_or_default();
                if id == own {
                    let is_past = state == State::Dead && incarnation < cx.lower.own_incarnation();
                    self.membership.about_me(cx, packet, Status::new(incarnation, state), None);
                    // SA-6: the sender holds this node for dead, and missed what was said since.
                    if is_past && message.header().from == packet.sender && !self.lower.env.is_leaving() {
                        self.answer_alive(now, packet, out);
                    }
                } else {
                    self.membership.on_accusation(cx, packet, id, message);
                }
            }
            _ => {}
        }
    }

    /// Our own record for a node that asks: an Alive, a Join while we join through it, or a Dead once we leave.
    fn own_word<'c>(&mut self, to: SocketAddr, contents: &'c OwnContents) -> Message<'c> {
        if self.lower.env.is_leaving() {
            let (header, id) = (self.lower.env.last_header(), self.lower.env.id());
            return Message::Dead { header, id, incarnation: self.lower.own_incarnation() };
        }
        let own = self.lower.own_alive();
        if self.joining.is_joining(to) { own.join(contents) } else { own.message(contents) }
    }

    /// The address for an answer: the source of the question. Without verification it is the known address of the node,
    /// if that differs from the source (SA-22a).
    fn reply_addr(&self, packet: &Packet) -> SocketAddr {
        if self.lower.env.settings().verify {
            return packet.addr;
        }
        let known = |slot: Slot| {
            let member = self.lower.members.get(slot);
            let is_there = member.contents().addrs().any(|addr| addr == packet.addr);
            if is_there { packet.addr } else { member.addr() }
        };
        packet.slot(&self.lower.members).map_or(packet.addr, known)
    }
}
