//! Joining: this node joins a group, answers Joins of others, and finds lost members again.

use std::net::SocketAddr;

use super::api::Event;
use super::config::Config;
use super::join_targets::{JoinTargets, JoinTurn, TRANSFER_PACKETS, Transfer, Transfers};
use super::lower::{Cx, Lower};
use super::member::Member;
use super::members::Slot;
use super::message::{Message, NodeView};
use super::packet::Packet;
use super::records::{accusation, record};
use super::status::Status;
use super::verifier::Question;
use super::wire::HEAD_BYTES;
use crate::common::Timers;
use crate::id::Id;
use crate::time::Instant;

/// How often a Join is sent without an answer (SA-11).
const JOIN_TIMES: u32 = 3;
/// How many of the stored members are joined through at the start.
const REJOINED: usize = 3;
/// The least number of periods between two probes of past members. In a group of more nodes each waits as many periods as
/// it has live members, so the group sends about one probe per period (SA-33c).
const RETRY_PERIODS_MIN: usize = 3;

/// Joins under way, of this node and of others.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Joining {
    seeds: Vec<SocketAddr>,
    targets: JoinTargets,
    transfers: Transfers,
    /// Joiners whose Join arrived through other members, and when they get our Alive.
    replies: Timers<Id>,
    next_retry: Option<Instant>,
    /// When a node without other members next joins its seeds again.
    next_seeds: Instant,
}

impl Joining {
    pub(super) fn new(config: &Config) -> Self {
        Self {
            seeds: config.seeds.clone(),
            targets: JoinTargets::new(config.joins_max),
            transfers: Transfers::new(config.transfers_max),
            replies: Timers::default(),
            next_retry: None,
            next_seeds: Instant::ZERO,
        }
    }

    /// Joins the seeds, and some of the stored members.
    pub(super) fn begin(&mut self, cx: &mut Cx<'_, '_>) {
        let retry = cx.lower.env.settings().retry_interval;
        let first = || cx.now.mono + cx.lower.env.rng().duration_below(retry);
        self.next_retry = (!retry.is_zero()).then(first);
        self.next_seeds = cx.now.mono + retry;
        for seed in self.seeds.clone() {
            self.join(cx, seed);
        }
        let mut kept: Vec<SocketAddr> = cx.lower.history.addrs().collect();
        cx.lower.env.rng().shuffle(&mut kept);
        for addr in kept.into_iter().take(REJOINED) {
            self.join(cx, addr);
        }
    }

    /// Ends the joins of this node, and the retries of past members.
    pub(super) fn stop(&mut self) {
        self.next_retry = None;
        self.targets.clear();
    }

    /// Drops the pending answers to joiners.
    pub(super) fn drop_replies(&mut self) {
        self.replies.clear();
    }

    /// Begins to join an address; false if it is our own, or under way, or one too many.
    pub(super) fn join(&mut self, cx: &mut Cx<'_, '_>, addr: SocketAddr) -> bool {
        let is_own = cx.lower.env.own_contents().borrow().addrs().any(|own| own == addr);
        let next = cx.now.mono + cx.lower.env.settings().probe_interval;
        if is_own || !self.targets.add(addr, JOIN_TIMES - 1, next) {
            return false;
        }
        send_join(cx, addr, None);
        true
    }

    /// Handles the sender of a packet. If its address is being joined, a nonce verifies that a node is there.
    pub(super) fn on_packet(&mut self, cx: &mut Cx<'_, '_>, packet: &Packet) {
        if self.targets.is_empty() || !self.targets.contains(packet.addr) {
            return;
        }
        if cx.lower.env.settings().verify {
            cx.ask(Question { id: packet.sender, addr: packet.addr.into(), answer_bytes: 0 });
        } else {
            self.on_answer(cx, packet.addr);
        }
    }

    /// Handles an answer from an address. If the address was being joined, it now is joined.
    pub(super) fn on_answer(&mut self, cx: &mut Cx<'_, '_>, addr: SocketAddr) {
        if self.targets.answered(addr) {
            cx.out.event(Event::Joined { addr });
        }
    }

    /// Handles a packet of another ring. If its address is being joined, the join fails for that reason. Returns false
    /// if it is not, or if the reason is known already.
    pub(super) fn on_other_ring(&mut self, cx: &mut Cx<'_, '_>, addr: SocketAddr) -> bool {
        let is_new = self.targets.is_elsewhere(addr);
        if is_new {
            cx.out.event(Event::WrongRing { addr });
        }
        is_new
    }

    /// Handles a Join. The node that it was sent to answers with its own Alive and its table (SA-9, SA-10).
    pub(super) fn on_join(&mut self, cx: &mut Cx<'_, '_>, packet: &Packet, node: NodeView<'_>, news: bool) {
        let is_known = cx.lower.members.find(node.id).is_some();
        if packet.sender == node.id && cx.lower.proof(cx.now, packet, node).is_some() {
            cx.count().joins_answered += 1;
            cx.send_own_alive(packet.addr);
            // The table goes only to an address that the node claims. So no node can have it sent to another.
            if node.contents.addrs().any(|addr| addr == packet.addr) {
                self.transfers.add(packet.addr, cx.now.mono);
                self.transfer(cx);
            }
        } else if packet.sender == node.id {
            answer_unproved_join(cx, packet);
        } else if cx.lower.env.settings().everyone_answers && (news || !is_known) {
            cx.lower.verifier.heard_join(node.id, cx.now.mono);
            let interval = cx.lower.env.settings().probe_interval;
            let delay = cx.lower.env.rng().duration_below(interval);
            self.replies.set(node.id, cx.now.mono + delay);
        }
    }

    /// Runs everything that is due, except retries.
    pub(super) fn run_due(&mut self, cx: &mut Cx<'_, '_>) {
        while let Some(id) = self.replies.pop_due(cx.now.mono) {
            // Answers a node whose Join arrived through other members.
            if let Some(addr) = cx.lower.members.member(id).map(Member::addr) {
                cx.send_own_alive(addr);
            }
        }
        let interval = cx.lower.env.settings().probe_interval;
        while let Some(turn) = self.targets.pop_due(cx.now.mono, interval) {
            match turn {
                JoinTurn::Again(addr) => send_join(cx, addr, None),
                JoinTurn::Failed(addr) => cx.out.event(Event::JoinFailed { addr }),
            }
        }
        self.transfer(cx);
    }

    /// Sends a Join to past members (SA-33a, SA-33c), if that is due: to one that is still in the table, and to one
    /// tombstone. A node without other members also sends one to its seeds.
    pub(super) fn retry(&mut self, cx: &mut Cx<'_, '_>) {
        let now = cx.now.mono;
        if self.next_retry.is_none_or(|at| at > now) {
            return;
        }
        let (settings, live) = (cx.lower.env.settings(), cx.lower.members.live());
        let (every, period) = (settings.retry_interval, settings.probe_interval);
        let share = period.saturating_mul(live.max(RETRY_PERIODS_MIN) as u32);
        self.next_retry = Some(now + share.min(every));
        if live <= 1 && self.next_seeds <= now {
            self.next_seeds = now + every;
            for seed in self.seeds.clone() {
                self.join(cx, seed);
            }
        }
        let ended = cx.lower.history.next_ended().map(|slot| cx.lower.members.get(slot));
        if let Some(member) = ended.filter(|member| !member.state().is_live()) {
            let (id, status, addr) = (member.id(), member.status(), member.addr());
            cx.count().retries += 1;
            send_join(cx, addr, Some((id, status)));
        }
        if let Some((id, past)) = cx.lower.history.next_absent() {
            cx.count().retries += 1;
            send_join(cx, past.addr.socket(), past.status.map(|status| (id, status)));
        }
    }

    /// Whether this address is being joined.
    pub(super) fn is_joining(&self, addr: SocketAddr) -> bool {
        self.targets.contains(addr)
    }

    pub(super) fn join_deadline(&self) -> Option<Instant> {
        self.targets.deadline()
    }

    pub(super) fn reply_deadline(&self) -> Option<Instant> {
        self.replies.next().map(|(at, _)| at)
    }

    pub(super) fn transfer_deadline(&self) -> Option<Instant> {
        self.transfers.deadline()
    }

    pub(super) const fn retry_deadline(&self) -> Option<Instant> {
        self.next_retry
    }

    /// Continues the table transfers.
    fn transfer(&mut self, cx: &mut Cx<'_, '_>) {
        for transfer in self.transfers.take_due(cx.now.mono) {
            if let Some(from) = send_table(cx, transfer) {
                self.transfers.put_back(Transfer { from, ..transfer }, cx.now.mono);
            }
        }
    }
}

/// Sends the next records of a table. Returns the id to continue with, if there are more.
fn send_table(cx: &mut Cx<'_, '_>, transfer: Transfer) -> Option<u128> {
    let Lower { env, members, packets, suspicions, .. } = &mut *cx.lower;
    // More records than fit. The transfer continues after the last record that fitted.
    let per_burst = TRANSFER_PACKETS * packets.packet_bytes_max() / 32;
    let live = members.from(transfer.from).filter(|(_, member)| member.state().is_live());
    let slots: Vec<Slot> = live.take(per_burst).map(|(slot, _)| slot).collect();
    let accuser = |slot: Slot| suspicions.accuser(slot).unwrap_or_else(|| env.id());
    let records = slots.iter().flat_map(|slot| record(members.get(*slot), accuser(*slot)));
    let records: Vec<Message<'_>> = records.collect();
    let last = slots.last().map(|slot| members.get(*slot).id());
    let sent = packets.send_all(transfer.to, records.iter().copied(), TRANSFER_PACKETS, cx.out);
    let next = match records.get(sent).and_then(Message::subject) {
        Some(unsent) => Some(unsent.number()),
        None if slots.len() == per_burst => last.and_then(|last| last.number().checked_add(1)),
        None => None,
    };
    next.filter(|_| sent > 0)
}

/// The first Join of a node: it gets our Alive (S-83) and a nonce, and no more than a few times what it sent (SA-61).
fn answer_unproved_join(cx: &mut Cx<'_, '_>, packet: &Packet) {
    let ping = cx.lower.question(cx.now, packet.sender, packet.addr);
    let alive = cx.lower.own_alive();
    let alive = alive.message(cx.lower.env.own_contents());
    let affords = |said: &[Message<'_>]| packet.affords(HEAD_BYTES + cx.lower.packets.bytes_of(said));
    let is_short = affords(&[alive, ping]);
    if is_short || affords(&[ping]) {
        let said = Some(alive).filter(|_| is_short).into_iter().chain([ping]);
        cx.lower.packets.send_all(packet.addr, said, 1, cx.out);
    }
}

/// Sends a Join. A past member also gets its own accusation, so that both nodes learn of each other at once.
fn send_join(cx: &mut Cx<'_, '_>, to: SocketAddr, past: Option<(Id, Status)>) {
    let join = cx.lower.own_alive();
    let join = join.join(cx.lower.env.own_contents());
    let by = cx.lower.env.id();
    let held = past.and_then(|(id, ended)| accusation(id, ended, by));
    cx.lower.packets.send_all(to, core::iter::once(join).chain(held), 2, cx.out);
}
