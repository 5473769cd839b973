//! Membership: the states of members and of this node (SA-7c, SA-31a, SA-58a).
//!
//! | update | what this node does |
//! |---|---|
//! | an Alive with proof | accepts it; before it accepts a new address, it probes the old one |
//! | an Alive without proof | accepts a slightly higher incarnation of a live member; verifies all else with the node |
//! | a Suspect | starts the suspicion, or confirms it |
//! | a Dead, or a leave | probes the member for the last time; the probe decides |
//! | anything wrong about this node | refutes it with a higher incarnation |
//!
//! `claims.rs` handles Alives, this file accusations. It also counts what is limited per period.

mod claims;

use std::net::SocketAddr;

use super::api::Event;
use super::contents::Contents;
use super::lower::{Cx, Effect};
use super::members::Slot;
use super::message::{Header, Message, NodeView};
use super::packet::Packet;
use super::probes::Probe;
use super::records::accusation;
use super::sequence::Sequence;
use super::status::{Incarnation, State, Status, refutation};
use super::wire::HEAD_BYTES;
use crate::id::Id;

/// Nodes that are sent their own suspicion or death in one period.
const NOTIFICATIONS: u32 = 16;
/// Accusations that are refuted in one period.
const REFUTATIONS: u32 = 4;
/// Signs of another node with our id, or of two nodes with one id, that are acted on in one period.
const CONFLICTS: u32 = 1;
/// Addresses that others know under our id and that are asked in one period.
const ADDRESSES_ASKED: u32 = 1;

/// This many nodes probe a suspect for each confirmation that the suspicion needs.
const CONFIRMERS: usize = 3;

/// The remaining budgets of this period.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Membership {
    notifications_left: u32,
    refutations_left: u32,
    conflicts_left: u32,
    asked_left: u32,
}

impl Membership {
    pub(super) const fn new() -> Self {
        Self {
            notifications_left: NOTIFICATIONS,
            refutations_left: REFUTATIONS,
            conflicts_left: CONFLICTS,
            asked_left: ADDRESSES_ASKED,
        }
    }

    pub(super) const fn new_period(&mut self) {
        *self = Self::new();
    }

    /// Whether a conflict of ids may be acted on; it is then counted.
    pub(super) const fn take_conflict(&mut self) -> bool {
        let has_left = self.conflicts_left > 0;
        self.conflicts_left -= has_left as u32;
        has_left
    }

    /// Suspects a member after a failed probe of this node.
    pub(super) fn on_silence(&mut self, cx: &mut Cx<'_, '_>, slot: Slot) {
        let member = cx.lower.members.get(slot);
        let (id, incarnation) = (member.id(), member.incarnation());
        let header = cx.lower.env.last_header();
        self.on_suspect(cx, slot, Message::Suspect { header, id, incarnation });
    }

    /// Handles an accusation of a member.
    pub(super) fn on_accusation(
        &mut self,
        cx: &mut Cx<'_, '_>,
        packet: &Packet,
        id: Id,
        message: Message<'_>,
    ) {
        match cx.lower.members.find(id) {
            None => cx.count().unknown_subjects += 1, // SA-8
            Some(slot) if matches!(message, Message::Suspect { .. }) => self.on_suspect(cx, slot, message),
            Some(slot) => self.on_dead(cx, packet, slot, message),
        }
    }

    /// Handles the end of a suspicion timeout (S-R5): the member is dead, or is probed for the last time.
    pub(super) fn on_suspicion_over(&mut self, cx: &mut Cx<'_, '_>, slot: Slot, incarnation: Incarnation) {
        if cx.lower.env.settings().verify {
            cx.effect(Effect::ProbeLast(slot));
        } else {
            let by = cx.lower.env.id();
            self.end_member(cx, slot, Status::new(incarnation, State::Dead), by);
        }
    }

    /// Judges a last probe, of a suspect or of a node that is said to have left.
    pub(super) fn judge(&mut self, cx: &mut Cx<'_, '_>, probe: &Probe) {
        let (slot, now) = (probe.target, cx.now.mono);
        let is_known = cx.lower.members.find(probe.id) == Some(slot);
        if !is_known || !cx.lower.members.get(slot).state().is_live() || cx.lower.env.is_leaving() {
            cx.lower.verifier.end_leave(slot);
            return;
        }
        let until = probe.until.unwrap_or(now);
        if !probe.answered && now.since(until) > cx.lower.env.settings().probe_interval / 4 {
            // SA-32: if this node was paused, it may not have read the answer yet.
            cx.effect(Effect::ProbeLast(slot));
            return;
        }
        let status = cx.lower.members.get(slot).status();
        let is_silent = !probe.answered && !probe.is_vouched_for();
        if cx.lower.verifier.end_leave(slot) && is_silent {
            self.end_member(cx, slot, Status { state: State::Left, ..status }, probe.id);
            cx.lower.verifier.begin_rechecks(slot, now);
        } else if status.state == State::Suspect && is_silent {
            if cx.lower.suspicions.prolong(slot, now) {
                return;
            }
            let by = cx.lower.env.id();
            self.end_member(cx, slot, Status { state: State::Dead, ..status }, by);
            cx.lower.verifier.begin_rechecks(slot, now);
        } else if status.state == State::Suspect {
            self.acquit(cx, slot);
        }
    }

    /// Marks a node as dead or left.
    pub(super) fn end_member(&mut self, cx: &mut Cx<'_, '_>, slot: Slot, status: Status, by: Id) {
        let member = cx.lower.members.get(slot);
        let (id, addr, before) = (member.id(), member.addr(), member.incarnation());
        let Status { incarnation, state } = status;
        if !cx.lower.members.merge(slot, status, None) {
            return;
        }
        cx.lower.members.at_mut(slot).note_proof(before, false);
        cx.lower.suspicions.end(slot);
        cx.lower.verifier.end_leave(slot);
        cx.lower.selection.remove(slot);
        let until = cx.now.mono + cx.lower.retention();
        cx.lower.history.end(slot, cx.now.wall, by, until);
        cx.lower.history.change(id, cx.now.mono);
        if state == State::Left {
            cx.out.event(Event::MemberLeft { id, addr, incarnation });
        } else {
            cx.count().deaths += 1;
            cx.out.event(Event::MemberDied { id, addr, incarnation, by });
        }
        let header = cx.lower.env.last_header();
        let header = Header { from: if state == State::Left { id } else { by }, ..header };
        cx.broadcast_update(Message::Dead { header, id, incarnation }, None);
    }

    /// Forgets a dead member whose retention is over, except for its tombstone.
    pub(super) fn forget(&mut self, cx: &mut Cx<'_, '_>, slot: Slot) {
        let id = cx.lower.members.get(slot).id();
        cx.lower.history.retire(&cx.lower.members, slot, cx.now.mono);
        cx.lower.verifier.end_rechecks(slot);
        cx.lower.members.remove(slot);
        cx.out.event(Event::MemberForgotten { id });
    }

    /// Forgets a node that lost its incarnation, so that it returns as a new one.
    pub(super) fn forget_lost(&mut self, cx: &mut Cx<'_, '_>, slot: Slot) {
        cx.lower.suspicions.end(slot);
        cx.lower.verifier.end_leave(slot);
        cx.lower.selection.remove(slot);
        self.forget(cx, slot);
    }

    /// Handles an update about this node (SA-5). A wrong one is refuted with a higher incarnation.
    pub(super) fn about_me(
        &mut self,
        cx: &mut Cx<'_, '_>,
        packet: &Packet,
        news: Status,
        contents: Option<Contents<'_>>,
    ) {
        if cx.lower.env.is_leaving() {
            return;
        }
        let own = cx.lower.own_incarnation();
        let same = contents.is_none_or(|contents| contents == cx.lower.env.own_contents().borrow());
        let Some(next) = refutation(own, news, same) else {
            cx.count().leaps_refused += u64::from(news.incarnation.leaps_from(own));
            return;
        };
        if self.refutations_left == 0 {
            cx.count().refutations_dropped += 1;
            return;
        }
        self.refutations_left -= 1;
        if let Some(contents) = contents.filter(|_| !same) {
            // SA-58a: another node with our id, or this node before it moved.
            if !self.other_contents(cx, contents) {
                cx.count().conflicts_dropped += 1;
                return;
            }
        }
        cx.count().refutations += 1;
        // SA-7c: an incarnation that no honest node holds is forged. It says nothing about this node's health.
        let is_credible = news.incarnation.0.saturating_sub(own.0) <= Incarnation::UNPROVED_MAX;
        if news.state != State::Alive && is_credible {
            cx.effect(Effect::Accused);
        }
        cx.lower.raise_to(next);
        cx.out.event(Event::Refuted { incarnation: next });
        cx.announce(None);
        let (alive, contents) = (cx.lower.own_alive(), cx.lower.env.own_contents().clone());
        let alive = alive.message(&contents);
        // A node that is not known at its source gets at most a few times the bytes that it sent (SA-61).
        let is_known = cx.lower.is_known_at_source(packet);
        if is_known || packet.affords(HEAD_BYTES + cx.lower.packets.bytes_of(&[alive])) {
            cx.answer(packet.addr, is_known, alive);
        }
        let id = cx.lower.env.id();
        cx.lower.history.change(id, cx.now.mono);
    }

    /// Handles other contents under our id. A node that was started again at another address hears of its old one. So the
    /// node asks there, and reports the conflict when a node answers. Returns whether this period allows it.
    fn other_contents(&mut self, cx: &mut Cx<'_, '_>, contents: Contents<'_>) -> bool {
        let addr = contents.addr().socket();
        let is_ours = cx.lower.env.own_contents().borrow().addrs().any(|own| own == addr);
        if cx.lower.env.settings().verify {
            let may_ask = self.asked_left > 0;
            self.asked_left -= u32::from(may_ask);
            if may_ask && !is_ours {
                cx.verify(cx.lower.env.id(), contents);
            }
            return may_ask;
        }
        if !self.take_conflict() {
            return false;
        }
        cx.count().conflicts += 1;
        if !is_ours {
            cx.out.event(Event::IdConflict { addr });
        }
        true
    }

    /// Handles a suspicion, of this node or of another.
    fn on_suspect(&mut self, cx: &mut Cx<'_, '_>, slot: Slot, message: Message<'_>) {
        let Message::Suspect { header, id, incarnation: said } = message else { return };
        let (member, by) = (cx.lower.members.get(slot), header.from);
        let (known, addr) = (member.status(), member.addr());
        let (incarnation, now) = (believed(cx, slot, said), cx.now.mono);
        let message = Message::Suspect { header, id, incarnation };
        let status = Status::new(incarnation, State::Suspect);
        let is_verified = cx.lower.env.settings().verify;
        if is_verified && !known.state.is_live() {
            // If it is back, its own Alive says so.
            if said > known.incarnation {
                cx.verify_slot(slot);
            }
            self.repeat_death(cx, slot, by);
        } else if self.is_contested(cx, slot, said) {
            cx.effect(Effect::Confirm(slot));
        } else if known.accepts(status) {
            cx.lower.members.merge(slot, status, None);
            cx.lower.members.at_mut(slot).note_proof(known.incarnation, false);
            if !known.state.is_live() {
                cx.lower.history.reopen(slot);
                cx.lower.selection.add(slot, cx.lower.env.rng());
            }
            if is_verified && cx.lower.suspicions.is_under_way(slot) {
                cx.lower.suspicions.renumber(slot, incarnation);
                cx.lower.suspicions.confirm(slot, incarnation, by);
            } else {
                let term = cx.lower.term();
                cx.lower.suspicions.start(slot, incarnation, by, term, now);
                self.confirm_soon(cx, slot, by, term.enough);
            }
            cx.count().suspicions += 1;
            cx.out.event(Event::MemberSuspected { id, addr, incarnation, by });
            cx.broadcast_update(message, None);
        } else if known == status && !cx.lower.suspicions.is_under_way(slot) {
            // The detector was stopped meanwhile.
            let term = cx.lower.term();
            cx.lower.suspicions.start(slot, incarnation, by, term, now);
        } else if is_shared(known, status, is_verified)
            && cx.lower.suspicions.confirm(slot, known.incarnation, by)
        {
            cx.broadcast_update(Message::Suspect { header, id, incarnation: known.incarnation }, None);
        }
    }

    /// Whether an accusation is older than the claims of others about a live member, but not older than its last proof.
    /// The higher incarnation may be forged, so the member is probed (SA-31b).
    fn is_contested(&self, cx: &Cx<'_, '_>, slot: Slot, said: Incarnation) -> bool {
        let member = cx.lower.members.get(slot);
        let is_alive = member.state() == State::Alive;
        cx.lower.env.settings().verify && is_alive && member.is_above_proof(said)
    }

    /// Handles a suspicion of a member that is dead here. The sender may have missed the death, so this node broadcasts
    /// it again.
    fn repeat_death(&mut self, cx: &mut Cx<'_, '_>, slot: Slot, by: Id) {
        let (member, own) = (cx.lower.members.get(slot), cx.lower.env.id());
        if member.state() != State::Dead || by == own || self.notifications_left == 0 {
            return;
        }
        self.notifications_left -= 1;
        let (id, incarnation, header) = (member.id(), member.incarnation(), cx.lower.env.last_header());
        cx.broadcast_update(Message::Dead { header, id, incarnation }, None);
    }

    /// SA-31b: some of the nodes that receive a suspicion probe the suspect themselves. So enough of them confirm the
    /// suspicion within its shortest timeout, or the suspect receives it and refutes.
    fn confirm_soon(&mut self, cx: &mut Cx<'_, '_>, slot: Slot, by: Id, enough: usize) {
        let is_ours = by == cx.lower.env.id();
        let (live, wanted) = (cx.lower.members.live() as u64, (CONFIRMERS * enough) as u64);
        if enough > 0 && !is_ours && cx.lower.env.rng().below(live.max(1)) < wanted {
            cx.effect(Effect::Confirm(slot));
        }
    }

    /// Handles a Dead, of a death or a leave. The node is probed first, so that a forged Dead ends no member (SA-31a).
    fn on_dead(&mut self, cx: &mut Cx<'_, '_>, packet: &Packet, slot: Slot, message: Message<'_>) {
        let Message::Dead { header, id, incarnation } = message else { return };
        let state = if header.from == id { State::Left } else { State::Dead };
        let incarnation = believed(cx, slot, incarnation);
        let (status, known) = (Status::new(incarnation, state), cx.lower.members.get(slot).status());
        if self.is_contested(cx, slot, incarnation) {
            cx.effect(Effect::Confirm(slot));
            return;
        }
        let is_verified = cx.lower.env.settings().verify;
        // SA-31b: others may have missed the last refutation of a node that is dead since.
        if is_verified && known.state == State::Alive && incarnation < known.incarnation {
            cx.effect(Effect::ConfirmOld(slot));
            return;
        }
        if is_verified && state == State::Dead && is_shared(known, status, is_verified) {
            self.on_suspect(cx, slot, Message::Suspect { header, id, incarnation });
            cx.lower.suspicions.probe_now(slot, cx.now.mono);
            return;
        }
        if !known.accepts(status) {
            return;
        }
        let says_so_itself = state == State::Left && packet.sender == id && packet.proved.is_some();
        let is_sure = !is_verified || says_so_itself;
        if is_sure || !known.state.is_live() {
            self.end_member(cx, slot, status, header.from);
            // SA-33c: a goodbye that any node may have forged changes how the member is listed, and nothing else.
            if is_sure && state == State::Left {
                cx.lower.history.confirm_leave(slot);
            }
            return;
        }
        if state == State::Left {
            if cx.lower.verifier.begin_leave(slot) {
                cx.broadcast_update(Message::Dead { header, id, incarnation }, None);
                cx.effect(Effect::ProbeLast(slot));
            }
            return;
        }
        self.on_suspect(cx, slot, Message::Suspect { header, id, incarnation });
        cx.lower.suspicions.probe_now(slot, cx.now.mono);
    }

    /// Handles an answered last probe. A reported refutation is accepted; without one the suspicion starts again.
    fn acquit(&mut self, cx: &mut Cx<'_, '_>, slot: Slot) {
        let member = cx.lower.members.get(slot);
        let (id, known) = (member.id(), member.incarnation());
        match cx.lower.suspicions.refutation(slot).filter(|refuted| *refuted > known) {
            Some(incarnation) => {
                let contents = member.contents().to_owned();
                let node = NodeView { id, contents: contents.borrow() };
                let header = Header { from: id, sequence: Sequence::default() };
                let message = Message::Alive { header, node, incarnation };
                self.accept_alive(cx, slot, message, node, incarnation, false);
            }
            None => {
                let term = cx.lower.term();
                cx.lower.suspicions.restart(slot, term, cx.now.mono);
            }
        }
    }

    /// Handles an Alive that is not new. If this node knows a newer status (SA-6) or other contents (SA-3a), it
    /// notifies the subject.
    fn refute(
        &mut self,
        cx: &mut Cx<'_, '_>,
        packet: &Packet,
        slot: Slot,
        node: NodeView<'_>,
        said: Incarnation,
    ) {
        let member = cx.lower.members.get(slot);
        let (known, described) = (member.status(), member.contents_incarnation());
        let differs = described == said && member.contents() != node.contents;
        let direct = packet.sender == node.id;
        let news = Status::new(said, State::Alive);
        let better = known > news && (direct || !known.state.is_live());
        if !better && !differs {
            return;
        }
        if let Some(accusation) = accusation(node.id, known, cx.lower.accuser(slot)) {
            self.notify_subject(cx, packet, node, Some(accusation));
            return;
        }
        let header = Header { from: node.id, sequence: Sequence::default() };
        let contents = member.contents().to_owned();
        let held = NodeView { id: node.id, contents: contents.borrow() };
        let alive = Message::Alive { header, node: held, incarnation: described.max(known.incarnation) };
        if self.notifications_left > 0 && packet.affords(HEAD_BYTES + cx.lower.packets.bytes_of(&[alive])) {
            self.notifications_left -= 1;
            cx.send_alone(subject_addr(packet, node), alive);
        }
    }

    /// Sends a node its own accusation, at the address that it claims. A live node refutes it. The number per period is
    /// limited: one refutation reaches all members.
    fn notify_subject(
        &mut self,
        cx: &mut Cx<'_, '_>,
        packet: &Packet,
        node: NodeView<'_>,
        accusation: Option<Message<'_>>,
    ) {
        if self.notifications_left == 0 {
            cx.count().notifications_dropped += 1;
            return;
        }
        let affords = |said: &Message<'_>| packet.affords(HEAD_BYTES + cx.lower.packets.bytes_of(&[*said]));
        if let Some(accusation) = accusation.filter(affords) {
            self.notifications_left -= 1;
            cx.count().notifications += 1;
            cx.send_alone(subject_addr(packet, node), accusation);
        }
    }
}

/// Whether a suspicion is of the incarnation suspected here. Forged Alives let nodes hold slightly different
/// incarnations of one node. So an incarnation that is lower by up to the unproved limit counts, too (SA-31b).
const fn is_shared(known: Status, news: Status, is_verified: bool) -> bool {
    let (ours, theirs) = (known.incarnation.0, news.incarnation.0);
    let slack = if is_verified { Incarnation::UNPROVED_MAX } else { 0 };
    matches!(known.state, State::Suspect) && theirs <= ours && ours - theirs <= slack
}

/// The incarnation to use for a claim: the claimed one, or the known one if the claim is too far ahead (SA-7c).
fn believed(cx: &mut Cx<'_, '_>, slot: Slot, said: Incarnation) -> Incarnation {
    let (member, is_verified) = (cx.lower.members.get(slot), cx.lower.env.settings().verify);
    let is_too_far = if is_verified { !member.is_credible(said) } else { said.0 > Incarnation::FIRST_MAX };
    let known = member.incarnation();
    cx.count().leaps_refused += u64::from(is_too_far);
    if is_too_far && is_verified { known } else { said.min(Incarnation(Incarnation::FIRST_MAX)) }
}

/// The address for a notification of a node: the source of the packet, if the node itself sent it.
fn subject_addr(packet: &Packet, node: NodeView<'_>) -> SocketAddr {
    if packet.sender == node.id { packet.addr } else { node.contents.addr().socket() }
}
