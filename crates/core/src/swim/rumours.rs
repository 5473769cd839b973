//! What is done with news about members, and about ourselves.

use core::time::Duration;
use std::net::SocketAddr;

use super::contents::Contents;
use super::gossip::Rumour;
use super::inbox::Packet;
use super::limits::suspicion;
use super::machine::{Out, Swim};
use super::member::Member;
use super::members::Slot;
use super::message::{Header, Message, NodeView};
use super::past::PastMember;
use super::queue::Pushed;
use super::sequence::Sequence;
use super::standing::{Incarnation, Standing, State, refutation};
use super::suspicions::Term;
use super::{Event, JoinReason};
use crate::id::Id;
use crate::tag::RequestId;
use crate::time::Now;

impl Swim {
    /// A node lives, and says how it is to be reached. Whether that was news.
    pub(super) fn alive(
        &mut self,
        now: Now,
        packet: &Packet,
        message: Message<'_>,
        node: NodeView<'_>,
        incarnation: Incarnation,
        out: Out<'_, '_>,
    ) -> bool {
        let standing = Standing::new(incarnation, State::Alive);
        let Some(slot) = self.members.find(node.id) else {
            return self.newcomer(now, packet, message, node, standing, out);
        };
        let before = self.members.get(slot).standing();
        if incarnation.leaps_from(before.incarnation) {
            self.counters.leaps_refused += 1;
            return false;
        }
        if !self.members.merge(slot, standing, Some(node.contents)) {
            self.contradict(packet, slot, node, incarnation, out);
            return false;
        }
        self.spread(message, None);
        self.keeper.change(node.id, now.mono);
        let (id, addr) = (node.id, node.contents.addr().socket());
        if !before.accepts(standing) {
            out.event(Event::MemberUpdated { id, addr, incarnation: before.incarnation });
            return true;
        }
        match before.state {
            State::Alive => out.event(Event::MemberUpdated { id, addr, incarnation }),
            State::Suspect => {
                self.suspicions.end(slot);
                out.event(Event::MemberRecovered { id, incarnation });
            }
            State::Dead | State::Left => {
                self.graves.cancel(slot);
                self.selection.add(slot, &mut self.rng);
                let reason = JoinReason::Returned;
                out.event(Event::MemberJoined { id, addr, incarnation, reason });
            }
        }
        true
    }

    /// A node is suspected: by a probe of ours, or by somebody else's.
    pub(super) fn suspect(&mut self, now: Now, slot: Slot, message: Message<'_>, out: Out<'_, '_>) {
        let Message::Suspect { header, id, incarnation } = message else { return };
        let (standing, by) = (Standing::new(incarnation, State::Suspect), header.from);
        let known = self.members.get(slot).standing();
        if incarnation.leaps_from(known.incarnation) {
            self.counters.leaps_refused += 1;
        } else if known.accepts(standing) {
            let was_live = known.state.is_live();
            self.members.merge(slot, standing, None);
            if !was_live {
                self.graves.cancel(slot);
                self.selection.add(slot, &mut self.rng);
            }
            let term = self.term();
            self.suspicions.start(slot, incarnation, by, term, now.mono);
            self.counters.suspicions += 1;
            out.event(Event::MemberSuspected { id, incarnation, by });
            self.spread(message, None);
        } else if known == standing && !self.suspicions.is_under_way(slot) {
            // The detector was stopped meanwhile.
            let term = self.term();
            self.suspicions.start(slot, incarnation, by, term, now.mono);
        } else if known == standing && self.suspicions.confirm(slot, incarnation, by) {
            self.spread(message, None);
        }
    }

    /// A node is dead, or left.
    pub(super) fn dead(&mut self, now: Now, slot: Slot, message: Message<'_>, out: Out<'_, '_>) {
        let Message::Dead { header, id, incarnation } = message else { return };
        let state = if header.from == id { State::Left } else { State::Dead };
        let (standing, known) = (Standing::new(incarnation, state), self.members.get(slot).standing());
        if incarnation.leaps_from(known.incarnation) {
            self.counters.leaps_refused += 1;
            return;
        }
        if !known.accepts(standing) {
            return;
        }
        self.members.merge(slot, standing, None);
        self.suspicions.end(slot);
        self.selection.remove(slot);
        self.graves.set(slot, now.mono + self.retention());
        self.keeper.change(id, now.mono);
        if state == State::Left {
            out.event(Event::MemberLeft { id, incarnation });
        } else {
            self.counters.deaths += 1;
            out.event(Event::MemberDied { id, incarnation, by: header.from });
        }
        self.spread(message, None);
    }

    /// Nobody disputed a suspicion in time (S-R5).
    pub(super) fn suspicion_over(
        &mut self,
        now: Now,
        slot: Slot,
        incarnation: Incarnation,
        out: Out<'_, '_>,
    ) {
        let id = self.members.get(slot).id();
        self.dead(now, slot, Message::Dead { header: self.header(self.sequence), id, incarnation }, out);
    }

    /// Somebody speaks of us (SA-5): what accuses us, or is not us, is contradicted with a higher number.
    pub(super) fn about_me(
        &mut self,
        now: Now,
        packet: &Packet,
        news: Standing,
        contents: Option<Contents<'_>>,
        out: Out<'_, '_>,
    ) {
        if self.leaving {
            return;
        }
        let own = self.members.get(self.me).incarnation();
        let same = contents.is_none_or(|contents| contents == self.own_contents.borrow());
        let Some(next) = refutation(own, news, same) else {
            self.counters.leaps_refused += u64::from(news.incarnation.leaps_from(own));
            return;
        };
        if let Some(contents) = contents.filter(|_| !same) {
            // SA-58: another node with our id, or ourselves before we moved.
            let addr = contents.addr().socket();
            if self.budget.conflicts == 0 {
                self.counters.conflicts_dropped += 1;
                return;
            }
            self.budget.conflicts -= 1;
            self.counters.conflicts += 1;
            if !self.own_contents.borrow().addrs().any(|own| own == addr) {
                out.event(Event::IdConflict { addr });
            }
        }
        self.counters.refutations += 1;
        if news.state != State::Alive {
            self.health.worse(1);
        }
        self.raise_to(next);
        out.event(Event::Refuted { incarnation: next });
        self.announce(None);
        let alive = self.own_alive();
        self.mail.send(packet.addr, &[alive.message(&self.own_contents)], self.members.live(), out);
        let _ = now;
    }

    /// Raises our number: everybody takes what we say with it over what was said before.
    pub(super) fn raise_to(&mut self, incarnation: Incarnation) {
        let standing = Standing::new(incarnation, State::Alive);
        self.members.merge(self.me, standing, Some(self.own_contents.borrow()));
    }

    /// Spreads that we live, and how we are to be reached.
    pub(super) fn announce(&mut self, waiter: Option<RequestId>) {
        let alive = self.own_alive();
        let message = alive.message(&self.own_contents);
        self.mail.gossip.spread(Rumour::new(&message, waiter));
        self.wake_gossip();
    }

    /// Passes a rumour on, if it is news to the queue as well.
    pub(super) fn spread(&mut self, message: Message<'_>, waiter: Option<RequestId>) -> Pushed {
        let message = match message {
            // SA-9a: if only the one who is asked answers a Join, everybody else hears of an Alive.
            Message::Join { header, node, incarnation } if !self.settings.everyone_answers => {
                Message::Alive { header, node, incarnation }
            }
            other => other,
        };
        let pushed = self.mail.gossip.spread(Rumour::new(&message, waiter));
        self.wake_gossip();
        pushed
    }

    /// How long the dead are remembered (SA-33).
    pub(super) fn retention(&self) -> Duration {
        self.settings.dead_retention.max(2 * self.term().least)
    }

    /// How long a suspicion that begins now lasts.
    pub(super) fn term(&self) -> Term {
        let (settings, live) = (&self.settings, self.members.live());
        let (mult, interval) = (settings.suspicion_mult, settings.probe_interval);
        let least = suspicion(mult, settings.suspicion_scale, live, interval);
        let wanted = mult.saturating_sub(2) as usize;
        // With so few others that enough can never share it, it is as short as it gets.
        let shrinks = settings.suspicion_max_mult > 1 && live >= wanted + 2;
        let enough = if shrinks { wanted } else { 0 };
        Term { least, most: least * settings.suspicion_max_mult, enough }
    }

    /// Somebody we never heard of, or forgot.
    fn newcomer(
        &mut self,
        now: Now,
        packet: &Packet,
        message: Message<'_>,
        node: NodeView<'_>,
        standing: Standing,
        out: Out<'_, '_>,
    ) -> bool {
        if standing.incarnation.0 > Incarnation::FIRST_MAX {
            self.counters.leaps_refused += 1;
            return false;
        }
        if let Some(ended) = self.past.standing(node.id).filter(|ended| *ended >= standing) {
            self.tell_owner(packet, node, accusation(node.id, ended, self.id), out);
            return false;
        }
        let Some(slot) = self.members.insert(node.id, standing, node.contents) else {
            self.counters.members_refused += 1;
            return false;
        };
        self.past.remove(node.id);
        self.selection.add(slot, &mut self.rng);
        self.keeper.change(node.id, now.mono);
        let (addr, incarnation) = (node.contents.addr().socket(), standing.incarnation);
        out.event(Event::MemberJoined { id: node.id, addr, incarnation, reason: JoinReason::New });
        self.spread(message, None);
        true
    }

    /// An Alive that is no news. If we know better (SA-6), or otherwise (SA-3a), the node itself should hear of it.
    fn contradict(
        &mut self,
        packet: &Packet,
        slot: Slot,
        node: NodeView<'_>,
        said: Incarnation,
        out: Out<'_, '_>,
    ) {
        let member = self.members.get(slot);
        let (known, told) = (member.standing(), member.contents_incarnation());
        let differs = told == said && member.contents() != node.contents;
        let direct = packet.sender == node.id;
        let news = Standing::new(said, State::Alive);
        let better = known > news && (direct || !known.state.is_live());
        if !better && !differs {
            return;
        }
        let by = self.suspicions.accuser(slot).unwrap_or(self.id);
        match accusation(node.id, known, by) {
            Some(accusation) => self.tell_owner(packet, node, Some(accusation), out),
            None => {
                let member = self.members.get(slot);
                let header = Header { from: node.id, sequence: Sequence::default() };
                let held = NodeView { id: node.id, contents: member.contents() };
                let alive = Message::Alive { header, node: held, incarnation: told.max(known.incarnation) };
                if self.budget.pokes > 0 {
                    self.budget.pokes -= 1;
                    let to = owner_addr(packet, node);
                    self.mail.send_all(to, core::iter::once(alive), 1, out);
                }
            }
        }
    }

    /// Tells a node what is held against it, where it says it is: if it lives, it will contradict. Only so often
    /// per period: one contradiction reaches everybody.
    fn tell_owner(
        &mut self,
        packet: &Packet,
        node: NodeView<'_>,
        accusation: Option<Message<'_>>,
        out: Out<'_, '_>,
    ) {
        if self.budget.pokes == 0 {
            self.counters.pokes_dropped += 1;
            return;
        }
        if let Some(accusation) = accusation {
            self.budget.pokes -= 1;
            self.counters.pokes += 1;
            self.mail.send_all(owner_addr(packet, node), core::iter::once(accusation), 1, out);
        }
    }

    /// The retention of a dead member is over: it is forgotten, but for the list of the past.
    pub(super) fn forget(&mut self, now: Now, slot: Slot, out: Out<'_, '_>) {
        let member = self.members.get(slot);
        let (id, standing, addr) = (member.id(), member.standing(), member.contents().addr());
        self.past.add(id, PastMember { addr, standing: Some(standing) });
        self.members.remove(slot);
        self.keeper.change(id, now.mono);
        out.event(Event::MemberForgotten { id });
    }
}

/// Messages that say what is known of a member, for somebody who may not have heard of it; `by` accuses it, if
/// anybody does.
pub(super) fn record(member: &Member, by: Id) -> impl Iterator<Item = Message<'_>> {
    let (id, standing) = (member.id(), member.standing());
    let header = Header { from: id, sequence: Sequence::default() };
    let node = NodeView { id, contents: member.contents() };
    let alive = Message::Alive { header, node, incarnation: member.contents_incarnation() };
    [Some(alive).filter(|_| standing.state.is_live()), accusation(id, standing, by)].into_iter().flatten()
}

/// Where to tell a node something about itself: where it speaks from, if it is the one who speaks.
fn owner_addr(packet: &Packet, node: NodeView<'_>) -> SocketAddr {
    if packet.sender == node.id { packet.addr } else { node.contents.addr().socket() }
}

/// What is held against a node, as a message; nothing against one that is alive.
pub(super) fn accusation(id: Id, standing: Standing, by: Id) -> Option<Message<'static>> {
    let (incarnation, sequence) = (standing.incarnation, Sequence::default());
    match standing.state {
        State::Alive => None,
        State::Suspect => Some(Message::Suspect { header: Header { from: by, sequence }, id, incarnation }),
        State::Dead => {
            // SA-12: a Dead from the node itself would be a goodbye; nobody but it says that.
            Some(Message::Dead { header: Header { from: by, sequence }, id, incarnation })
        }
        State::Left => Some(Message::Dead { header: Header { from: id, sequence }, id, incarnation }),
    }
}
