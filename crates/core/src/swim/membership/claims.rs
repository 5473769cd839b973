//! Alive claims: accepted with proof, or verified with a nonce (SA-7c, SA-58a).

use std::net::SocketAddr;

use super::Membership;
use crate::id::Id;
use crate::swim::api::{Event, JoinReason};
use crate::swim::lower::Cx;
use crate::swim::member::Member;
use crate::swim::members::Slot;
use crate::swim::message::{Header, Message, NodeView};
use crate::swim::packet::Packet;
use crate::swim::records::accusation;
use crate::swim::sequence::Sequence;
use crate::swim::status::{Incarnation, State, Status};
use crate::swim::tags::common_name;
use crate::swim::verifier::Move;

impl Membership {
    /// Handles an Alive or a Join. Returns whether it changed anything.
    pub(in crate::swim) fn on_alive(
        &mut self,
        cx: &mut Cx<'_, '_>,
        packet: &Packet,
        message: Message<'_>,
        node: NodeView<'_>,
        incarnation: Incarnation,
    ) -> bool {
        if incarnation.0 > Incarnation::FIRST_MAX {
            cx.count().leaps_refused += 1;
            return false;
        }
        let status = Status::new(incarnation, State::Alive);
        let proof = cx.lower.proof(cx.now, packet, node);
        let Some(slot) = cx.lower.members.find(node.id) else {
            return self.on_newcomer(cx, packet, proof, message, node, status);
        };
        let member = cx.lower.members.get(slot);
        if proof.is_some() && incarnation >= member.incarnation() {
            cx.lower.verifier.end_leave(slot);
        }
        if proof.is_some_and(|addr| is_lost_number(cx, slot, addr, incarnation)) {
            self.forget_lost(cx, slot);
            return self.on_newcomer(cx, packet, proof, message, node, status);
        }
        let member = cx.lower.members.get(slot);
        if !member.is_news(status, Some(node.contents)) {
            self.refute(cx, packet, slot, node, incarnation);
            return false;
        }
        match proof {
            None => self.on_unproved(cx, packet, slot, message, node, incarnation),
            Some(addr) if is_move(cx, slot, addr) => {
                begin_move(cx, slot, node, incarnation);
                false
            }
            Some(_) => {
                self.accept_alive(cx, slot, message, node, incarnation, true);
                true
            }
        }
    }

    /// Marks a node as alive, with the contents that it describes.
    pub(super) fn accept_alive(
        &mut self,
        cx: &mut Cx<'_, '_>,
        slot: Slot,
        message: Message<'_>,
        node: NodeView<'_>,
        incarnation: Incarnation,
        is_proved: bool,
    ) {
        let status = Status::new(incarnation, State::Alive);
        let before = cx.lower.members.get(slot).status();
        if !cx.lower.members.merge(slot, status, Some(node.contents)) {
            return;
        }
        cx.lower.members.at_mut(slot).note_proof(before.incarnation, is_proved);
        cx.lower.verifier.end_leave(slot);
        cx.broadcast_update(message, None);
        cx.lower.history.change(node.id, cx.now.mono);
        check_name(cx, node);
        let (id, addr) = (node.id, node.contents.addr().socket());
        if !before.accepts(status) {
            cx.out.event(Event::MemberUpdated { id, addr, incarnation: before.incarnation });
            return;
        }
        match before.state {
            State::Alive => cx.out.event(Event::MemberUpdated { id, addr, incarnation }),
            State::Suspect => {
                cx.lower.suspicions.end(slot);
                cx.out.event(Event::MemberRecovered { id, addr, incarnation });
            }
            State::Dead | State::Left => {
                cx.lower.history.revive(slot);
                cx.lower.verifier.end_rechecks(slot);
                cx.lower.selection.add(slot, cx.lower.env.rng());
                let reason = JoinReason::Returned;
                cx.out.event(Event::MemberJoined { id, addr, incarnation, reason });
            }
        }
    }

    /// Handles an answer from the old address of a member: the node that answered elsewhere is another one.
    pub(in crate::swim) fn on_conflict(&mut self, cx: &mut Cx<'_, '_>, id: Id, to: &Move) {
        if !self.take_conflict() {
            cx.count().conflicts_dropped += 1;
            return;
        }
        cx.count().conflicts += 1;
        let Some(slot) = cx.lower.members.find(id) else { return };
        let member: &Member = cx.lower.members.get(slot);
        let (other, header) = (to.contents.borrow(), Header { from: id, sequence: Sequence::default() });
        cx.out.event(Event::MemberConflict { id, addr: member.addr(), other: other.addr().socket() });
        let (here, incarnation) = (member.contents().to_owned(), member.incarnation());
        for (target, about) in [(here.borrow(), other), (other, here.borrow())] {
            let node = NodeView { id, contents: about };
            let alive = Message::Alive { header, node, incarnation: incarnation.max(to.incarnation) };
            cx.send_alone(target.addr().socket(), alive);
        }
    }

    /// Ends a move: the old address of the member was silent.
    pub(in crate::swim) fn finish_move(&mut self, cx: &mut Cx<'_, '_>, id: Id, to: &Move) {
        let Some(slot) = cx.lower.members.find(id) else { return };
        let node = NodeView { id, contents: to.contents.borrow() };
        let header = Header { from: id, sequence: Sequence::default() };
        let message = Message::Alive { header, node, incarnation: to.incarnation };
        self.accept_alive(cx, slot, message, node, to.incarnation, true);
    }

    /// Handles an Alive from other nodes, without proof. This node accepts a slightly higher incarnation of a live
    /// member. It verifies with the node itself everything that ends a suspicion, revives a dead member or changes
    /// contents (SA-7c, SA-31a).
    fn on_unproved(
        &mut self,
        cx: &mut Cx<'_, '_>,
        packet: &Packet,
        slot: Slot,
        message: Message<'_>,
        node: NodeView<'_>,
        incarnation: Incarnation,
    ) -> bool {
        let member = cx.lower.members.get(slot);
        let is_same = member.contents() == node.contents;
        let is_credible = is_same && member.is_credible(incarnation);
        match member.state() {
            State::Alive if is_credible => {
                self.accept_alive(cx, slot, message, node, incarnation, false);
                return true;
            }
            State::Suspect if is_credible => {
                if cx.lower.suspicions.refuted(slot, incarnation) {
                    cx.broadcast_update(message, None);
                }
            }
            _ => cx.count().leaps_refused += u64::from(is_same && !is_credible),
        }
        verify_claim(cx, packet, message, node);
        false
    }

    /// Handles an Alive of an unknown or forgotten node. The node becomes a member once it has answered a nonce.
    fn on_newcomer(
        &mut self,
        cx: &mut Cx<'_, '_>,
        packet: &Packet,
        proof: Option<SocketAddr>,
        message: Message<'_>,
        node: NodeView<'_>,
        status: Status,
    ) -> bool {
        let ended = cx.lower.history.status(node.id).filter(|ended| *ended >= status);
        // SA-7c: a node that lost its incarnation and would not follow to this one returns as a new node.
        if let Some(ended) = ended.filter(|ended| !ended.incarnation.leaps_from(status.incarnation)) {
            let held = accusation(node.id, ended, cx.lower.env.id());
            self.notify_subject(cx, packet, node, held);
            return false;
        }
        if proof.is_none() {
            verify_claim(cx, packet, message, node);
            return false;
        }
        let Some(slot) = cx.lower.members.insert(node.id, status, node.contents) else {
            cx.count().members_refused += 1;
            return false;
        };
        cx.lower.history.forget(node.id);
        cx.lower.selection.add(slot, cx.lower.env.rng());
        cx.lower.history.change(node.id, cx.now.mono);
        let (addr, incarnation) = (node.contents.addr().socket(), status.incarnation);
        cx.out.event(Event::MemberJoined { id: node.id, addr, incarnation, reason: JoinReason::New });
        check_name(cx, node);
        let message = join_or_alive(cx, message);
        cx.broadcast_update(message, None);
        true
    }
}

/// Sends a nonce to the subject of a claim. A node that joins directly gets its nonce with the answer to its Join.
fn verify_claim(cx: &mut Cx<'_, '_>, packet: &Packet, message: Message<'_>, node: NodeView<'_>) {
    let is_direct_join = matches!(message, Message::Join { .. }) && packet.sender == node.id;
    if !is_direct_join {
        cx.verify(node.id, node.contents);
    }
}

/// Whether a suspect or dead member answers at its address with an incarnation from which it does not follow to the known
/// one: it lost its number in a restart (SA-7c). It can refute nothing that is held against it.
fn is_lost_number(cx: &Cx<'_, '_>, slot: Slot, addr: SocketAddr, said: Incarnation) -> bool {
    let member = cx.lower.members.get(slot);
    let is_ended = member.state() != State::Alive && member.incarnation().leaps_from(said);
    cx.lower.env.settings().verify && is_ended && !is_move(cx, slot, addr)
}

/// Whether a live member has proved an address that was not known.
fn is_move(cx: &Cx<'_, '_>, slot: Slot, addr: SocketAddr) -> bool {
    let member = cx.lower.members.get(slot);
    let is_known = member.contents().addrs().any(|known| known == addr);
    cx.lower.env.settings().verify && member.state().is_live() && !is_known
}

/// Begins a move: a member answers at a new address. If the old address answers as well, there are two nodes (SA-58a).
fn begin_move(cx: &mut Cx<'_, '_>, slot: Slot, node: NodeView<'_>, incarnation: Incarnation) {
    let (id, nonce) = (node.id, cx.lower.env.nonce());
    let until = cx.now.mono + cx.lower.env.settings().probe_timeout;
    let to = Move { contents: node.contents.to_owned(), incarnation, nonce, until };
    if !cx.lower.verifier.begin_move(id, to) {
        return;
    }
    let ping = Message::Ping {
        header: cx.lower.env.header(nonce),
        to: id,
        local_time: cx.now.wall,
        wants_coordinate: false,
        wants_alive: false,
    };
    let known: Vec<SocketAddr> = cx.lower.members.get(slot).contents().addrs().collect();
    for addr in known {
        cx.send_alone(addr, ping);
    }
}

/// Reports a member with our name. That member reports the same, since it sees this node.
fn check_name(cx: &mut Cx<'_, '_>, node: NodeView<'_>) {
    if let Some(name) = common_name(cx.lower.env.own_contents().borrow().meta(), node.contents.meta()) {
        let addr = node.contents.addr().socket();
        cx.out.event(Event::NameConflict { name: name.into(), id: node.id, addr });
    }
}

/// Where all members answer a Join: a Join that arrived before its node was proved is forwarded as a Join.
fn join_or_alive<'m>(cx: &Cx<'_, '_>, message: Message<'m>) -> Message<'m> {
    match message {
        Message::Alive { header, node, incarnation } if cx.lower.verifier.is_joiner(node.id, cx.now.mono) => {
            Message::Join { header, node, incarnation }
        }
        other => other,
    }
}
