//! The lower parts in one bundle, and the context through which an upper part calls them.
//!
//! `Prober`, `Membership` and `Joining` are not in it, so none of them can call another. They get [`Effect`]s instead.

use core::time::Duration;
use std::collections::VecDeque;
use std::net::SocketAddr;

use super::api::Counters;
use super::contents::Contents;
use super::dissemination::Dissemination;
use super::env::{Env, OwnAlive};
use super::gossip::Update;
use super::history::History;
use super::machine::Swim;
use super::members::{Members, Slot};
use super::message::{Message, NodeView};
use super::packet::{ANSWER_FACTOR, Packet};
use super::packets::Packets;
use super::records::accusation;
use super::scaling::suspicion;
use super::selection::Selection;
use super::sequence::Sequence;
use super::status::{Incarnation, State, Status};
use super::suspicions::{Suspicions, Term};
use super::verifier::{Question, Verifier};
use super::wire::HEAD_BYTES;
use crate::id::Id;
use crate::outbox::Outbox;
use crate::tag::RequestId;
use crate::time::Now;

/// A report of a part to the machine, which then calls another part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    /// A suspect, or a node that is said to have left, needs its last probe (SA-31a).
    ProbeLast(Slot),
    /// A suspect of another node needs a probe in the next period as well (SA-31b).
    Confirm(Slot),
    /// A live member is dead to others in an older incarnation. It needs a probe in the next period, too (SA-31b).
    ConfirmOld(Slot),
    /// This node was accused, and refuted it. It may be slow (Lifeguard).
    Accused,
}

/// The parts that all upper parts may call.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Lower {
    pub(super) env: Env,
    pub(super) members: Members,
    pub(super) selection: Selection,
    pub(super) packets: Packets,
    pub(super) dissemination: Dissemination,
    pub(super) suspicions: Suspicions,
    pub(super) verifier: Verifier,
    pub(super) history: History,
    pub(super) effects: VecDeque<Effect>,
}

impl Lower {
    pub(super) fn cx<'a, 'b>(&'a mut self, now: Now, out: &'a mut Outbox<'b, Swim>) -> Cx<'a, 'b> {
        Cx { now, lower: self, out }
    }

    /// An Alive of this node.
    pub(super) fn own_alive(&mut self) -> OwnAlive {
        let sequence = self.env.next_sequence();
        OwnAlive { header: self.env.header(sequence), incarnation: self.own_incarnation() }
    }

    /// Raises our incarnation. Our messages then take precedence over everything said before.
    pub(super) fn raise_to(&mut self, incarnation: Incarnation) {
        let status = Status::new(incarnation, State::Alive);
        self.members.merge(self.env.me(), status, Some(self.env.own_contents().borrow()));
    }

    pub(super) fn own_incarnation(&self) -> Incarnation {
        self.members.get(self.env.me()).incarnation()
    }

    /// The accusation of a member, as a message.
    pub(super) fn held_against(&self, slot: Slot) -> Option<Message<'static>> {
        let (id, status) = (self.members.get(slot).id(), self.members.get(slot).status());
        if self.verifier.is_leaving(slot) {
            return accusation(id, Status { state: State::Left, ..status }, self.env.id());
        }
        accusation(id, status, self.accuser(slot))
    }

    /// The node that suspected a member first; this one, if none is known.
    pub(super) fn accuser(&self, slot: Slot) -> Id {
        self.suspicions.accuser(slot).unwrap_or_else(|| self.env.id())
    }

    /// Whether a member is known to be at this address.
    pub(super) fn is_at(&self, slot: Slot, addr: SocketAddr) -> bool {
        !self.env.settings().verify || self.members.get(slot).contents().addrs().any(|known| known == addr)
    }

    /// Whether the source address of a packet is a known address of its sender. Only then do answers carry updates
    /// (SA-22a).
    pub(super) fn is_known_at_source(&self, packet: &Packet) -> bool {
        let slot = packet.slot(&self.members);
        !self.env.settings().verify || slot.is_some_and(|slot| self.is_at(slot, packet.addr))
    }

    /// The address that the subject of this packet has proved to be its own.
    pub(super) fn proof(&self, now: Now, packet: &Packet, node: NodeView<'_>) -> Option<SocketAddr> {
        if !self.env.settings().verify {
            return Some(node.contents.addr().socket());
        }
        let proved = packet.proved.filter(|_| packet.sender == node.id);
        let is_own = |addr: &SocketAddr| node.contents.addrs().any(|own| own == *addr);
        proved.filter(is_own).or_else(|| {
            let said = packet.acked.filter(|_| packet.sender == node.id)?;
            node.contents.addrs().find(|addr| self.verifier.is_nonce(said, node.id, *addr, now.mono))
        })
    }

    /// A ping with a nonce: its answer proves which node is at the address.
    pub(super) fn question(&self, now: Now, id: Id, addr: SocketAddr) -> Message<'static> {
        let header = self.env.header(self.verifier.nonce(id, addr, now.mono));
        Message::Ping { header, to: id, local_time: now.wall, wants_coordinate: false, wants_alive: true }
    }

    /// The expected length of an answer to a nonce, by a node with these contents.
    fn answer_bytes(&self, contents: Contents<'_>) -> u16 {
        self.packets.codec().answer_bytes(contents.bytes()) as u16
    }

    /// The suspicion timeout for this group size, and how many confirmations shorten it (Lifeguard).
    pub(super) fn term(&self) -> Term {
        let (settings, live) = (self.env.settings(), self.members.live());
        let (mult, interval) = (settings.suspicion_mult, settings.probe_interval);
        let least = suspicion(mult, settings.suspicion_scale, live, interval);
        let wanted = mult.saturating_sub(2) as usize;
        // With too few other members to confirm it, the suspicion has its shortest timeout from the start.
        let shrinks = settings.suspicion_max_mult > 1 && live >= wanted + 2;
        let enough = if shrinks { wanted } else { 0 };
        Term { least, most: least * settings.suspicion_max_mult, enough }
    }

    /// How long dead members are remembered (SA-33).
    pub(super) fn retention(&self) -> Duration {
        self.env.settings().dead_retention.max(2 * self.term().least)
    }
}

/// The parts that an upper part may call during one input.
pub(super) struct Cx<'a, 'b> {
    pub(super) now: Now,
    pub(super) lower: &'a mut Lower,
    pub(super) out: &'a mut Outbox<'b, Swim>,
}

impl Cx<'_, '_> {
    pub(super) fn count(&mut self) -> &mut Counters {
        self.lower.env.count()
    }

    pub(super) fn effect(&mut self, effect: Effect) {
        self.lower.effects.push_back(effect);
    }

    /// Sends messages to a member, with as many updates as fit behind them.
    pub(super) fn send(&mut self, to: SocketAddr, messages: &[Message<'_>]) {
        self.lower.packets.send(to, messages, self.lower.members.live(), self.out);
    }

    /// Sends one message without updates, to a node that need not be a member.
    pub(super) fn send_alone(&mut self, to: SocketAddr, message: Message<'_>) {
        self.lower.packets.send_all(to, core::iter::once(message), 1, self.out);
    }

    /// Answers a node: with updates if it is known at that address, else without (SA-22a).
    pub(super) fn answer(&mut self, to: SocketAddr, is_known: bool, message: Message<'_>) {
        if is_known {
            self.send(to, &[message]);
        } else {
            self.send_alone(to, message);
        }
    }

    /// Sends our own Alive to a node that need not be a member.
    pub(super) fn send_own_alive(&mut self, to: SocketAddr) {
        let alive = self.lower.own_alive();
        let alive = alive.message(self.lower.env.own_contents());
        self.lower.packets.send_all(to, core::iter::once(alive), 1, self.out);
    }

    /// Broadcasts an Alive of this node.
    pub(super) fn announce(&mut self, waiter: Option<RequestId>) {
        let alive = self.lower.own_alive();
        let alive = alive.message(self.lower.env.own_contents());
        let update = Update::new(self.lower.packets.codec(), &alive, waiter);
        self.lower.packets.gossip_mut().broadcast_update(update);
        self.lower.dissemination.wake();
    }

    /// Queues an update, unless the queue has a newer one.
    pub(super) fn broadcast_update(&mut self, message: Message<'_>, waiter: Option<RequestId>) {
        let message = match message {
            // SA-9a: if only the addressed node answers a Join, all others get it as an Alive.
            Message::Join { header, node, incarnation } if !self.lower.env.settings().everyone_answers => {
                Message::Alive { header, node, incarnation }
            }
            other => other,
        };
        let update = Update::new(self.lower.packets.codec(), &message, waiter);
        self.lower.packets.gossip_mut().broadcast_update(update);
        self.lower.dissemination.wake();
    }

    /// Sends new updates before the next gossip interval, unless gossip was sent a moment ago. Each update is sent
    /// sooner, not more often.
    pub(super) fn gossip_soon(&mut self) {
        let every = self.lower.env.settings().gossip_interval;
        if self.lower.env.is_running() && self.lower.dissemination.may_hurry(self.now.mono, every) {
            self.gossip_now();
        }
    }

    /// Sends updates to some members at once, if that is configured.
    pub(super) fn gossip_now(&mut self) {
        let every = self.lower.env.settings().gossip_interval;
        if !every.is_zero() {
            self.lower.dissemination.set_next(Some(self.now.mono + every));
            self.gossip_once();
        }
    }

    /// Sends updates to some random members, to each once. In a small group all members get them at once.
    pub(super) fn gossip_once(&mut self) {
        let Lower { env, members, selection, packets, .. } = &mut *self.lower;
        let nodes = env.settings().gossip_nodes;
        for slot in selection.pick_some(nodes, env.rng()) {
            if packets.gossip().is_empty() {
                break;
            }
            packets.send(members.get(slot).addr(), &[], members.live(), self.out);
        }
    }

    /// Sets the next gossip; there is none while the queues are empty.
    pub(super) fn time_gossip(&mut self) {
        let Lower { env, selection, packets, dissemination, .. } = &mut *self.lower;
        let settings = env.settings();
        let hurry = settings.probe_interval / 10;
        let every = if env.stopping().is_some() { hurry } else { settings.gossip_interval };
        let wanted = !packets.gossip().is_empty() && !selection.is_empty() && !every.is_zero();
        dissemination.set_next(wanted.then(|| self.now.mono + every));
    }

    /// Sends a nonce to the address that a node is said to have.
    pub(super) fn verify(&mut self, id: Id, contents: Contents<'_>) {
        let answer_bytes = self.lower.answer_bytes(contents);
        self.ask(Question { id, addr: contents.addr(), answer_bytes });
    }

    /// Sends a nonce to the known address of a member.
    pub(super) fn verify_slot(&mut self, slot: Slot) {
        let member = self.lower.members.get(slot);
        let (id, contents) = (member.id(), member.contents().to_owned());
        self.verify(id, contents.borrow());
    }

    /// Asks the members again that ended a moment ago, whatever else waits to be asked (SA-31d).
    pub(super) fn recheck(&mut self) {
        let every = self.lower.env.settings().probe_timeout;
        while let Some(slot) = self.lower.verifier.pop_recheck(self.now.mono, every) {
            let member = self.lower.members.get(slot);
            let (id, contents) = (member.id(), member.contents());
            let answer_bytes = self.lower.answer_bytes(contents);
            let question = Question { id, addr: contents.addr(), answer_bytes };
            self.send_question(question);
        }
    }

    pub(super) fn ask(&mut self, question: Question) {
        let again_after = self.lower.env.settings().probe_timeout / 2;
        if self.lower.verifier.ask(question, self.now.mono, again_after) {
            self.send_questions();
        } else {
            self.count().questions_dropped += 1;
        }
    }

    /// Sends a nonce again to all suspects that are said to have refuted: their answers may have been lost.
    pub(super) fn verify_refutations(&mut self) {
        for slot in self.lower.suspicions.refuting() {
            self.verify_slot(slot);
        }
    }

    /// Sends the nonces that are due. Each carries the accusation of its node, so that the node can refute at once.
    pub(super) fn send_questions(&mut self) {
        while let Some(question) = self.lower.verifier.pop_due(self.now.mono) {
            self.send_question(question);
        }
    }

    fn send_question(&mut self, question: Question) {
        let (id, addr) = (question.id, question.addr.socket());
        self.count().questions += 1;
        let ping = self.lower.question(self.now, id, addr);
        let held = self.lower.members.find(id).and_then(|slot| self.lower.held_against(slot));
        let packets = &self.lower.packets;
        let bytes = HEAD_BYTES + packets.bytes_of(&[ping]) + packets.bytes_of(held.as_slice());
        let wanted = usize::from(question.answer_bytes).div_ceil(ANSWER_FACTOR);
        // The frame of the padding comes on top: a question may be too long, but never too short for its answer.
        let header = self.lower.env.header(Sequence::default());
        let padding = wanted
            .checked_sub(bytes)
            .filter(|missing| *missing > 0)
            .map(|missing| Message::Padding { header, bytes: missing as u16 });
        let said = held.into_iter().chain([ping]).chain(padding);
        self.lower.packets.send_all(addr, said, 1, self.out);
    }
}
