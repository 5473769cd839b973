//! What is done with each message that comes in.

use std::net::SocketAddr;

use super::Event;
use super::gossip::Rumour;
use super::handlers::Verdict;
use super::machine::{Out, Swim};
use super::members::{Members, Slot};
use super::message::{Header, Message, NodeView};
use super::probes::Relay;
use super::rtt::Rtt;
use super::rumours::accusation;
use super::sequence::Sequence;
use super::standing::{Incarnation, Standing, State};
use super::vivaldi::Coordinate;
use crate::id::Id;
use crate::time::Now;

/// Where a message came from: the node that sent the packet, and its address (SA-22).
#[derive(Clone, Copy, Debug)]
pub(super) struct Packet {
    pub(super) addr: SocketAddr,
    pub(super) sender: Id,
    /// The sender, if it was a member when the packet came. Nobody is forgotten while a packet is read.
    slot: Option<Slot>,
}

impl Packet {
    pub(super) const fn new(addr: SocketAddr, sender: Id) -> Self {
        Self { addr, sender, slot: None }
    }

    /// The sender among the members; a message of its own may have made it one.
    fn slot(&self, members: &Members) -> Option<Slot> {
        self.slot.or_else(|| members.find(self.sender))
    }
}

impl Swim {
    /// Somebody sent us a packet that has at least one message.
    pub(super) fn heard(&mut self, packet: &mut Packet, out: Out<'_, '_>) {
        packet.slot = self.members.find(packet.sender);
        if let Some(slot) = packet.slot {
            self.members.at_mut(slot).heard(self.period);
        }
        if !self.joins.is_empty() && self.joins.answered(packet.addr) {
            out.event(Event::Joined { addr: packet.addr });
        }
    }

    /// Lets the handlers decide, then does what is to be done with a message.
    pub(super) fn message(&mut self, now: Now, packet: &Packet, message: Message<'_>, out: Out<'_, '_>) {
        if !self.handlers.is_empty() {
            let about = message.subject().unwrap_or(message.header().from);
            match self.handlers.handle(&message, self.members.member(about)) {
                Verdict::Pass => {}
                Verdict::Taken => return,
                Verdict::Refused => {
                    self.counters.handlers_refused += 1;
                    return;
                }
            }
        }
        match message {
            Message::Ping { header, to, wants_coordinate, .. } => {
                self.ping(now, packet, header, to, wants_coordinate, out);
            }
            Message::Ack { header, introduce, coordinate, .. } => {
                self.ack(now, packet, header, introduce, coordinate, out);
            }
            Message::IndirectPing { header, to, target, wants_nack, contents } => {
                let target = NodeView { id: target, contents };
                self.indirect_ping(now, packet, header, to, target, wants_nack, out);
            }
            Message::IndirectAck { header } => self.indirect_ack(header),
            Message::IndirectNack { header } => self.indirect_nack(header),
            Message::Join { .. } | Message::Alive { .. } | Message::Suspect { .. } | Message::Dead { .. } => {
                self.rumour(now, packet, message, out);
            }
            Message::User { header, id, data } => self.user(header, id, data, message, out),
            Message::Digest { range, hashes, .. } => self.digest(packet, range, hashes, out),
            Message::Summary { range, entries, .. } => self.summary(now, packet, range, entries, out),
            Message::Want { ids, .. } => self.want(packet, ids, out),
            // S-63, SA-50: no handler took it; a stranger's bytes are no reason to panic.
            Message::Other { .. } => self.counters.unknown_kinds += 1,
        }
    }

    fn ping(
        &mut self,
        now: Now,
        packet: &Packet,
        header: Header,
        to: Id,
        wants_coordinate: bool,
        out: Out<'_, '_>,
    ) {
        if to != self.id && to != Id::MIN {
            self.counters.misaddressed += 1; // SA-21
            return;
        }
        self.counters.pings_answered += 1;
        let slot = packet.slot(&self.members);
        let standing = slot.map(|slot| self.members.get(slot).standing());
        let coordinate = wants_coordinate.then_some(self.coordinate);
        let (header, local_time) = (self.header(header.sequence), now.wall);
        let introduce = slot.is_none();
        let ack = Message::Ack { header, local_time, introduce, coordinate };
        let to = self.reply_addr(packet);
        // SA-6: who is held to be other than alive hears of it with the answer.
        let ended = standing.or_else(|| self.past.standing(packet.sender));
        let by = slot.and_then(|slot| self.suspicions.accuser(slot)).unwrap_or(self.id);
        match (ended.and_then(|ended| accusation(packet.sender, ended, by)), introduce) {
            (Some(accusation), _) => self.mail.send(to, &[accusation, ack], self.members.live(), out),
            (None, false) => self.mail.send(to, &[ack], self.members.live(), out),
            (None, true) => {
                self.mail.send_all(to, core::iter::once(ack), 1, out);
            }
        }
    }

    fn ack(
        &mut self,
        now: Now,
        packet: &Packet,
        header: Header,
        introduce: bool,
        coordinate: Option<Coordinate>,
        out: Out<'_, '_>,
    ) {
        if introduce {
            let alive = self.own_alive();
            let alive = alive.message(&self.own_contents);
            self.mail.send_all(packet.addr, core::iter::once(alive), 1, out);
        }
        if let Some(relay) = self.relays.answer(header.sequence, packet.sender) {
            let header = self.header(relay.sequence);
            self.mail.send(relay.reply_to, &[Message::IndirectAck { header }], self.members.live(), out);
            return;
        }
        let probe = self.probes.find(header.sequence).filter(|probe| probe.id == packet.sender);
        let Some(probe) = probe.filter(|probe| !probe.answered) else {
            self.counters.acks_unmatched += 1;
            return;
        };
        probe.answered = true;
        let (slot, rtt, helped) = (probe.target, now.mono.since(probe.sent), probe.help_at.is_none());
        self.health.better();
        // Once several addresses were tried it is not known which of them the answer came by.
        let clear = !helped || self.members.get(slot).contents().addrs().nth(1).is_none();
        if !clear || self.members.find(packet.sender) != Some(slot) {
            return;
        }
        let assumed = Rtt::assumed(self.settings.probe_timeout);
        let adaptive = self.settings.adaptive_timeout;
        self.measured = Some(packet.sender);
        let path = self.members.at_mut(slot).path_mut();
        match &mut path.rtt {
            Some(known) => known.add(rtt),
            None if adaptive => path.rtt = Some(Rtt::first(rtt)),
            None => path.rtt.insert(assumed).add(rtt),
        }
        if let Some(other) = coordinate {
            path.coordinate = Some(other);
            self.coordinate.update(&other, rtt, &mut self.rng);
        }
    }

    #[expect(clippy::too_many_arguments, reason = "the fields of one message")]
    fn indirect_ping(
        &mut self,
        now: Now,
        packet: &Packet,
        header: Header,
        to: Id,
        target: NodeView<'_>,
        wants_nack: bool,
        out: Out<'_, '_>,
    ) {
        if to != self.id {
            self.counters.misaddressed += 1;
            return;
        }
        let reply_to = self.reply_addr(packet);
        if target.id == self.id {
            let header = self.header(header.sequence);
            self.mail.send(reply_to, &[Message::IndirectAck { header }], self.members.live(), out);
            return;
        }
        if !self.relays.has_room(packet.sender) {
            self.counters.relays_refused += 1;
            return;
        }
        self.counters.relays += 1;
        // SA-28: where we know it to be, not where the requester says.
        let known = self.members.member(target.id).map(super::Member::addr);
        let addr = known.unwrap_or_else(|| target.contents.addr().socket());
        let own = self.next_sequence();
        let ping = Message::Ping {
            header: self.header(own),
            to: target.id,
            local_time: now.wall,
            wants_coordinate: false,
        };
        self.mail.send(addr, &[ping], self.members.live(), out);
        let (interval, timeout) = (self.settings.probe_interval, self.settings.probe_timeout);
        let until = now.mono + interval;
        let first = if wants_nack { now.mono + (interval - timeout) * 4 / 5 } else { until };
        let relay = Relay {
            requester: packet.sender,
            reply_to,
            sequence: header.sequence,
            target: target.id,
            nack: wants_nack,
            until,
        };
        self.relays.add(own, relay, first);
    }

    fn indirect_ack(&mut self, header: Header) {
        let asked = |helpers: &[(Id, bool)]| helpers.iter().any(|(id, _)| *id == header.from);
        match self.probes.find(header.sequence).filter(|probe| asked(&probe.helpers)) {
            Some(probe) => {
                probe.answered = true;
                self.counters.indirect_answers += 1;
            }
            None => self.counters.acks_unmatched += 1,
        }
    }

    fn indirect_nack(&mut self, header: Header) {
        let Some(probe) = self.probes.find(header.sequence) else { return };
        for (_, nacked) in probe.helpers.iter_mut().filter(|(id, _)| *id == header.from) {
            *nacked = true;
        }
    }

    fn rumour(&mut self, now: Now, packet: &Packet, message: Message<'_>, out: Out<'_, '_>) {
        match message {
            Message::Join { node, incarnation, .. } | Message::Alive { node, incarnation, .. } => {
                if node.id == self.id {
                    let news = Standing::new(incarnation, State::Alive);
                    self.about_me(now, packet, news, Some(node.contents), out);
                    return;
                }
                let news = self.alive(now, packet, message, node, incarnation, out);
                if matches!(message, Message::Join { .. }) {
                    self.answer_join(now, packet, node, news, out);
                }
            }
            Message::Suspect { id, incarnation, .. } | Message::Dead { id, incarnation, .. } => {
                let state = message.state().unwrap_or_default();
                if id == self.id {
                    self.about_me(now, packet, Standing::new(incarnation, state), None, out);
                } else {
                    self.accused(now, id, message, out);
                }
            }
            _ => {}
        }
    }

    fn accused(&mut self, now: Now, id: Id, message: Message<'_>, out: Out<'_, '_>) {
        match self.members.find(id) {
            None => self.counters.unknown_subjects += 1, // SA-8
            Some(slot) if matches!(message, Message::Suspect { .. }) => self.suspect(now, slot, message, out),
            Some(slot) => self.dead(now, slot, message, out),
        }
    }

    fn user(&mut self, header: Header, id: Id, data: &[u8], message: Message<'_>, out: Out<'_, '_>) {
        if id == self.id || !self.seen.take(id, header.sequence) {
            self.counters.users_repeated += 1;
            return;
        }
        if self.budget.users >= self.user_events_max {
            self.counters.users_dropped += 1; // SA-25
        } else {
            self.budget.users += 1;
            self.counters.users_received += 1;
            out.event(Event::UserReceived { from: id, sequence: header.sequence, data: data.to_vec() });
        }
        if !self.mail.gossip.relay_user(Rumour::new(&message, None)) {
            self.counters.users_not_relayed += 1;
        }
        self.wake_gossip();
    }

    /// Where an answer goes: to where the question came from, if the node is known to be there or is not known at
    /// all, else to where it is known to be (SA-22).
    fn reply_addr(&self, packet: &Packet) -> SocketAddr {
        let Some(slot) = packet.slot(&self.members) else { return packet.addr };
        let member = self.members.get(slot);
        if member.contents().addrs().any(|addr| addr == packet.addr) { packet.addr } else { member.addr() }
    }
}

/// An Alive of our own, before the contents are put in.
#[derive(Clone, Copy, Debug)]
pub(super) struct OwnAlive {
    pub(super) header: Header,
    pub(super) incarnation: Incarnation,
}

impl OwnAlive {
    pub(super) fn message(self, contents: &super::OwnContents) -> Message<'_> {
        let node = NodeView { id: self.header.from, contents: contents.borrow() };
        Message::Alive { header: self.header, node, incarnation: self.incarnation }
    }

    pub(super) fn join(self, contents: &super::OwnContents) -> Message<'_> {
        let node = NodeView { id: self.header.from, contents: contents.borrow() };
        Message::Join { header: self.header, node, incarnation: self.incarnation }
    }
}

impl Swim {
    /// An Alive of our own.
    pub(super) fn own_alive(&mut self) -> OwnAlive {
        let sequence: Sequence = self.next_sequence();
        OwnAlive { header: self.header(sequence), incarnation: self.members.get(self.me).incarnation() }
    }
}
