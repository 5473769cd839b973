//! Join: the joiner's side of a join (P-27 … P-38), and the search for lost parts of the ring (PA-42).
//!
//! `stage.rs` has the stages of one join. The nodes on the path answer in `state_transfer.rs`.

mod lost;
mod stage;

use core::time::Duration;
use std::collections::VecDeque;
use std::net::SocketAddr;

use super::Event;
use super::contact::{Contact, Generation, Versions};
use super::effects::Effect;
use super::lower::Cx;
use super::message::{About, Message, MessageId, TablesSent, Wanted};
use super::state_transfer::{self, join_message};
use super::tables::{Interest, SIDES, Score};
use crate::id::Id;
use crate::time::{Instant, micros};
use lost::{Batch, LostPeers};
use stage::{Progress, Stage};

/// How often one node may warn of a race (PA-23).
const RACES_MAX: u8 = 3;
/// The most nodes named by `members` that are kept to join through. The first ones stay.
const NAMED_MAX: usize = 32;
/// The most nodes whose connections are being measured. Beyond that the oldest is forgotten; its next exchange measures
/// it.
const UNMEASURED_MAX: usize = 64;

/// The least share of the nodes of a ring that look for another ring at their seeds in each `merge_interval`.
const SEED_SHARE_MIN: f64 = 0.1;

/// A state message about a join or a race.
pub(super) struct StateReceived<'a> {
    pub(super) from: Contact,
    /// The round trip of its connection.
    pub(super) rtt: Option<Duration>,
    /// Whether the connection proves the address of the sender.
    pub(super) is_validated: bool,
    pub(super) versions: Versions,
    pub(super) tables: &'a TablesSent,
}

/// The join of a node, and its search for lost parts of the ring.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Join {
    progress: Progress,
    seeds: Vec<SocketAddr>,
    next_seed: usize,
    /// Nodes that `members` named while this one has not joined.
    named: Vec<(Id, SocketAddr)>,
    /// Senders whose connections were not measured yet.
    unmeasured: VecDeque<Contact>,
    lost: LostPeers,
}

impl Join {
    pub(super) fn new(seeds: Vec<SocketAddr>, lost_max: usize) -> Self {
        let (progress, named, unmeasured) = (Progress::new(), Vec::new(), VecDeque::new());
        Self { progress, seeds, next_seed: 0, named, unmeasured, lost: LostPeers::new(lost_max) }
    }

    /// Begins to join. Without a seed this node is the first of its ring (PA-20), unless `members` is to name one.
    pub(super) fn start(&mut self, cx: &mut Cx<'_, '_>) {
        if self.other_seeds(cx).next().is_some() {
            self.try_seed(cx);
        } else if !cx.config().await_members {
            self.activate(cx);
        }
    }

    /// Continues the join as far as possible now.
    pub(super) fn advance(&mut self, cx: &mut Cx<'_, '_>) {
        let is_due = self.progress.deadline().is_some_and(|at| at <= cx.now.mono);
        match self.progress.stage() {
            Stage::Waiting if is_due => self.try_seed(cx),
            // PA-17: it ends early when every hop has reported and every possible leaf has answered.
            Stage::Seeking if self.progress.has_arrived() && (is_due || self.has_gathered(cx)) => {
                self.announce_to_all(cx);
            }
            Stage::Seeking if is_due => self.give_up_seed(cx),
            Stage::Announcing => self.advance_announcing(cx, is_due),
            _ => {}
        }
    }

    /// Joins through this address. A node that has joined searches there for unknown nodes of its ring.
    pub(super) fn through(&mut self, cx: &mut Cx<'_, '_>, addr: SocketAddr) {
        if self.progress.is_active() {
            return self.probe_ring(cx, addr);
        }
        if !self.seeds.contains(&addr) {
            self.seeds.push(addr);
        }
        self.retry_now(cx.now.mono);
    }

    /// Handles a live member: this node joins through its address.
    pub(super) fn on_member(&mut self, now: Instant, id: Id, addr: SocketAddr) {
        match self.named.iter().position(|(named, _)| *named == id) {
            Some(at) if self.named[at].1 == addr => return,
            Some(at) => self.named[at].1 = addr,
            None if self.named.len() >= NAMED_MAX => return,
            None => self.named.push((id, addr)),
        }
        self.progress.reset_backoff();
        self.retry_now(now);
    }

    /// Handles a member that failed or left.
    pub(super) fn on_member_gone(&mut self, id: Id) {
        self.named.retain(|(named, _)| *named != id);
    }

    /// Handles an announcement: inserts the sender, and the nodes it names if they answer (P-38).
    pub(super) fn on_announce(
        &mut self,
        cx: &mut Cx<'_, '_>,
        state: &StateReceived<'_>,
        seen: Option<Versions>,
        wants_welcome: bool,
    ) {
        let &StateReceived { from, versions, tables, .. } = state;
        cx.count().announcements_received += 1;
        if from.id == cx.own().id {
            return state_transfer::reject_duplicate_id(cx, from);
        }
        let has_raced = seen.is_some_and(|seen| cx.tables().versions().have_changed_since(seen));
        if !self.insert(cx, state) {
            return state_transfer::check_id_conflict(cx, from);
        }
        let mut warn = false;
        if let Some(peer) = cx.lower.tables.peer_mut(from.id) {
            peer.versions = Some(versions);
            peer.knows_us = true;
            warn = has_raced && peer.races < RACES_MAX;
            peer.races += u8::from(warn);
        }
        // The node rejoined by itself.
        self.lost.remove(from.id);
        cx.consider_all(tables, Interest::EmptySlot, None);
        self.on_invitation(cx, from.addr);
        let versions = cx.tables().versions();
        if warn {
            cx.count().races_warned += 1;
            let rows = cx.tables().rows_for(from.id);
            let wanted = Wanted { leaf_set: true, rows, ..Wanted::default() };
            let tables = cx.tables().part(&wanted);
            cx.send(from.addr, &Message::State { about: About::Race, versions, tables });
        } else if wants_welcome {
            cx.send(from.addr, &Message::Welcome { versions });
        }
    }

    /// Handles a measured connection. If its node announced itself and is nearer than an entry, it is probed.
    pub(super) fn on_measured(&mut self, cx: &mut Cx<'_, '_>, contact: Contact, rtt: Duration) {
        if let Some(at) = self.unmeasured.iter().position(|unmeasured| *unmeasured == contact) {
            self.unmeasured.remove(at);
            consider_nearer(cx, contact, rtt);
        }
    }

    /// Handles the welcome to this node's announcement.
    pub(super) fn on_welcome(&mut self, cx: &mut Cx<'_, '_>, from: Id, versions: Versions) {
        if let Some(peer) = cx.lower.tables.peer_mut(from) {
            peer.versions = Some(versions);
            peer.knows_us = true;
        }
    }

    /// Handles the state that a hop of this node's join sends.
    pub(super) fn on_join_state(
        &mut self,
        cx: &mut Cx<'_, '_>,
        state: &StateReceived<'_>,
        (id, hop, last): (MessageId, u8, bool),
    ) {
        let stragglers_due = cx.now.mono + cx.config().network_timeout * 2;
        if !self.progress.report(id, hop, last, stragglers_due) {
            cx.count().refused += 1;
            return;
        }
        if state.is_validated {
            self.insert(cx, state);
        } else {
            // Any node could claim that id: the claimed address is probed.
            cx.consider(&[state.from], Interest::Nearer);
        }
        // The connection to the first hop was measured; those of the others were not.
        let distance = cx.tables().distance(state.from.id).or(state.rtt.map(Score::of));
        cx.consider_all(state.tables, Interest::Nearer, distance);
        set_versions(cx, state);
    }

    /// Handles a race warning: the tables of a node have changed since this node saw them (P-37).
    pub(super) fn on_race(&mut self, cx: &mut Cx<'_, '_>, state: &StateReceived<'_>) {
        cx.count().races_received += 1;
        let Some(peer) = cx.lower.tables.peer_mut(state.from.id) else { return };
        peer.versions = Some(state.versions);
        peer.races = peer.races.saturating_add(1);
        // The node that warns has this one in its tables; after a few rounds that is enough (PA-23).
        peer.knows_us = peer.races > RACES_MAX;
        let again = !peer.knows_us;
        cx.consider_all(state.tables, Interest::EmptySlot, None);
        if again {
            self.announce(cx, state.from.id, false);
        }
        set_versions(cx, state);
    }

    /// Handles a nack: the node through which this one would join has not joined itself.
    pub(super) fn on_nack(&mut self, cx: &mut Cx<'_, '_>, from: SocketAddr) {
        if !self.progress.is_through(from) {
            return;
        }
        self.progress.reset_backoff();
        if from < cx.own().addr {
            self.progress.defer_bootstrap();
        }
        self.give_up_seed(cx);
    }

    /// Handles a refusal: a live node has this node's id (PA-22).
    pub(super) fn on_refuse(&mut self, cx: &mut Cx<'_, '_>) {
        if !self.progress.is_active() {
            cx.out.event(Event::IdTaken);
            self.progress.back_off(cx.now.mono, cx.lower.env.rng());
        }
    }

    /// Handles a broken connection to this address.
    pub(super) fn on_connection_lost(&mut self, cx: &mut Cx<'_, '_>, addr: SocketAddr) {
        if self.progress.is_through(addr) {
            self.give_up_seed(cx);
        }
    }

    /// Announces this node to a leaf that does not know it.
    pub(super) fn announce_to(&mut self, cx: &mut Cx<'_, '_>, id: Id) {
        let ready = matches!(self.progress.stage(), Stage::Announcing | Stage::Active);
        if ready && cx.tables().peer(id).is_some_and(|peer| !peer.knows_us) {
            self.announce(cx, id, false);
        }
    }

    /// Announces this node to a leaf that has forgotten it.
    pub(super) fn announce_again(&mut self, cx: &mut Cx<'_, '_>, id: Id) {
        if let Some(peer) = cx.lower.tables.peer_mut(id) {
            peer.knows_us = false;
        }
        self.announce_to(cx, id);
    }

    /// Remembers a node that was removed because it did not answer: the ring may be partitioned (PA-42).
    pub(super) fn on_failed(&mut self, now: Instant, contact: Contact) {
        self.lost.insert(contact, now);
    }

    /// Handles an answered probe. If the node was lost, a part of the ring may be behind it.
    pub(super) fn on_probe_answered(&mut self, cx: &mut Cx<'_, '_>, contact: Contact) {
        if self.lost.remove(contact.id) && self.progress.is_active() {
            self.probe_ring(cx, contact.addr);
        }
    }

    /// Probes lost nodes and seeds, when it is time (PA-42). Seeds are tried even while lost nodes are probed: a lost
    /// node may never return, and two rings would stay apart.
    pub(super) fn merge_due(&mut self, cx: &mut Cx<'_, '_>) {
        let interval = cx.config().merge_interval;
        let known = cx.tables().len();
        let Some(Batch { lost, is_fast }) = self.lost.due(cx.now.mono, interval, known) else { return };
        lost.into_iter().for_each(|contact| cx.ask(contact, false, super::prober::Reason::Known));
        let is_unknown = |seed: &SocketAddr| cx.tables().peer_at(*seed).is_none();
        let unknown: Vec<SocketAddr> = self.other_seeds(cx).filter(is_unknown).collect();
        let Some(&seed) = cx.lower.env.rng().pick(&unknown) else { return };
        // In each interval about one node of a small ring looks for another ring, and a tenth of the nodes of a large one. A
        // fast batch has a lower share, so that a new join does not replace one that is under way.
        let share = if is_fast { SEED_SHARE_MIN } else { f64::max(SEED_SHARE_MIN, 1.0 / (known + 1) as f64) };
        if (known == 0 || !is_fast) && cx.lower.env.rng().chance(share) {
            self.probe_ring(cx, seed);
        }
    }

    pub(super) fn is_active(&self) -> bool {
        self.progress.is_active()
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        self.progress.deadline()
    }

    pub(super) fn merge_deadline(&self) -> Option<Instant> {
        self.lost.deadline()
    }

    /// Inserts the sender of a message where there is room. Where it would replace another node, the round trip of the
    /// connection decides whether it is worth a probe (P-12). That is known now, or soon.
    fn insert(&mut self, cx: &mut Cx<'_, '_>, state: &StateReceived<'_>) -> bool {
        if !cx.insert(state.from, None) {
            return false;
        }
        match state.rtt {
            _ if cx.tables().peer(state.from.id).is_some() => {}
            Some(rtt) => consider_nearer(cx, state.from, rtt),
            None if self.unmeasured.contains(&state.from) => {}
            None => {
                self.unmeasured.push_back(state.from);
                if self.unmeasured.len() > UNMEASURED_MAX {
                    self.unmeasured.pop_front();
                }
            }
        }
        true
    }

    fn has_gathered(&self, cx: &Cx<'_, '_>) -> bool {
        self.progress.is_complete() && cx.lower.prober.leaf_pending() == 0
    }

    /// PA-27: active as soon as the nearest leaf of each side knows this node, and no nearer node is still to be
    /// probed.
    fn advance_announcing(&mut self, cx: &mut Cx<'_, '_>, is_due: bool) {
        if cx.tables().leaf_set().is_empty() {
            return self.give_up_seed(cx);
        }
        let tables = cx.tables();
        let unaware: Vec<Id> = SIDES
            .into_iter()
            .filter_map(|side| tables.leaf_set().nearest(side))
            .filter(|&id| tables.peer(id).is_some_and(|peer| !peer.knows_us))
            .collect();
        if unaware.is_empty() && cx.lower.prober.leaf_pending() == 0 {
            self.activate(cx);
        } else if is_due {
            for id in unaware {
                cx.suspect(id);
                self.announce(cx, id, true);
            }
            self.progress.announce(cx.now.mono + cx.config().network_timeout * 2);
        }
    }

    fn try_seed(&mut self, cx: &mut Cx<'_, '_>) {
        let count = self.other_seeds(cx).count();
        let invitation = self.progress.take_invitation();
        let next = self.next_seed % count.max(1);
        let Some(seed) = invitation.or_else(|| self.other_seeds(cx).nth(next)) else {
            // The named node is gone again. A timer that stays due would make the driver spin.
            return self.progress.back_off(cx.now.mono, cx.lower.env.rng());
        };
        self.next_seed = self.next_seed.wrapping_add(usize::from(invitation.is_none()));
        let id = cx.lower.env.next_message_id();
        self.progress.seek(id, seed, cx.now.mono + cx.config().network_timeout);
        if !send_join(cx, id, seed) {
            self.give_up_seed(cx);
        }
    }

    /// Routes a join through a node of a part of the ring that is not known here, without leaving the ring (PA-42).
    fn probe_ring(&mut self, cx: &mut Cx<'_, '_>, through: SocketAddr) {
        let id = cx.lower.env.next_message_id();
        self.progress.probe_ring(id, through);
        send_join(cx, id, through);
    }

    /// Ends a try: no node accepted this one. A node that is itself among the seeds bootstraps the ring once all others
    /// were tried.
    fn give_up_seed(&mut self, cx: &mut Cx<'_, '_>) {
        let (now, tries) = (cx.now.mono, self.progress.tries());
        cx.out.event(Event::JoinFailed { tries });
        if self.progress.has_invitation() {
            return self.progress.wait_until(now);
        }
        let (others, is_seed) = (self.other_seeds(cx).count(), self.seeds.contains(&cx.own().addr));
        let ends_round = (tries as usize).is_multiple_of(others.max(1));
        let bootstraps = is_seed && ends_round && !self.progress.defers_bootstrap();
        if tries as usize >= others && (bootstraps || self.is_first_member(cx)) {
            return self.activate(cx);
        }
        if ends_round {
            self.progress.back_off(now, cx.lower.env.rng());
        } else {
            // The next seed has not been tried in this round.
            self.progress.wait_until(now + cx.config().ack_timeout_min);
        }
    }

    /// Whether no node that `members` named has a lesser id: if all of them wait, this one bootstraps the ring.
    fn is_first_member(&self, cx: &Cx<'_, '_>) -> bool {
        let own = cx.own().id;
        cx.config().await_members && !self.named.is_empty() && self.named.iter().all(|(id, _)| own < *id)
    }

    /// Handles an announcement before this node has joined: the sender is in a ring, so this node tries it next.
    fn on_invitation(&mut self, cx: &mut Cx<'_, '_>, addr: SocketAddr) {
        if matches!(self.progress.stage(), Stage::Waiting | Stage::Seeking) {
            self.progress.invite(addr);
        }
        if self.progress.has_invitation() {
            self.retry_now(cx.now.mono);
        }
    }

    fn retry_now(&mut self, now: Instant) {
        if self.progress.stage() == Stage::Waiting {
            self.progress.wait_until(now);
        }
    }

    fn other_seeds(&self, cx: &Cx<'_, '_>) -> impl Iterator<Item = SocketAddr> + use<'_> {
        let own = cx.own().addr;
        let named = self.named.iter().map(|(_, addr)| *addr).filter(|addr| !self.seeds.contains(addr));
        self.seeds.iter().copied().chain(named).filter(move |seed| *seed != own)
    }

    fn announce_to_all(&mut self, cx: &mut Cx<'_, '_>) {
        self.progress.announce(cx.now.mono + cx.config().network_timeout * 2);
        let known: Vec<Id> = cx.tables().peers().map(|peer| peer.contact.id).collect();
        for id in known {
            self.announce(cx, id, true);
        }
    }

    fn activate(&mut self, cx: &mut Cx<'_, '_>) {
        self.progress.activate();
        // Some of the named nodes may not have joined.
        for (id, addr) in core::mem::take(&mut self.named) {
            cx.consider(&[Contact { id, addr, generation: Generation(0) }], Interest::EmptySlot);
        }
        let merge_interval = cx.config().merge_interval;
        let first = merge_interval / 2 + cx.lower.env.rng().duration_below(merge_interval / 2);
        self.lost.start(cx.now.mono + first);
        cx.out.event(Event::Joined { peers: cx.lower.tables.len() });
        cx.effect(Effect::Activated);
    }

    /// Announces this node to another (P-35, P-36), with all tables or with the leaf set only.
    fn announce(&mut self, cx: &mut Cx<'_, '_>, to: Id, all_tables: bool) {
        let Some(peer) = cx.tables().peer(to) else { return };
        let (addr, seen) = (peer.contact.addr, peer.versions);
        let rows = if all_tables { u128::MAX } else { 0 };
        let wanted = Wanted { leaf_set: true, neighbourhood: all_tables, rows, cell: None };
        let (versions, tables) = (cx.tables().versions(), cx.tables().part(&wanted));
        let wants_welcome = cx.tables().leaf_set().contains(to);
        cx.count().announcements_sent += 1;
        cx.send(addr, &Message::Announce { seen, wants_welcome, versions, tables });
    }
}

/// Probes a node without entry, if the round trip of its connection makes it useful.
fn consider_nearer(cx: &mut Cx<'_, '_>, contact: Contact, rtt: Duration) {
    if cx.tables().peer(contact.id).is_none() {
        cx.lower.tables.remember_distance(cx.now.mono, contact.id, rtt);
        cx.consider(&[contact], Interest::Nearer);
    }
}

fn send_join(cx: &mut Cx<'_, '_>, id: MessageId, through: SocketAddr) -> bool {
    let lifetime_millis = u32::try_from(micros(cx.config().network_timeout) / 1000).unwrap_or(u32::MAX);
    let message = join_message(id, cx.own(), cx.config().ttl, lifetime_millis);
    cx.send(through, &message).is_some()
}

fn set_versions(cx: &mut Cx<'_, '_>, state: &StateReceived<'_>) {
    if let Some(peer) = cx.lower.tables.peer_mut(state.from.id) {
        peer.versions = Some(state.versions);
    }
}
