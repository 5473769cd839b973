//! The lower parts in one bundle, and the context through which an upper part calls them.
//!
//! `Join`, `Repair` and `Delivery` are not in it, so none of them can call another. They get [`Effect`]s instead.

use core::time::Duration;
use std::collections::VecDeque;
use std::net::SocketAddr;

use super::Pastry;
use super::config::Config;
use super::contact::Contact;
use super::counters::Counters;
use super::effects::Effect;
use super::env::Env;
use super::message::{Message, TablesSent};
use super::prober::{Due, Prober, Reason};
use super::tables::{IdConflict, Interest, Score, Tables};
use super::transport::Transport;
use super::wire::encode;
use crate::id::Id;
use crate::outbox::Outbox;
use crate::pool::{Expects, Taken};
use crate::tag::StreamId;
use crate::time::Now;

/// The parts that all upper parts may call.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Lower {
    pub(super) env: Env,
    pub(super) transport: Transport,
    pub(super) tables: Tables,
    pub(super) prober: Prober,
    pub(super) effects: VecDeque<Effect>,
}

impl Lower {
    pub(super) fn cx<'a, 'b>(&'a mut self, now: Now, out: &'a mut Outbox<'b, Pastry>) -> Cx<'a, 'b> {
        Cx { now, lower: self, out }
    }
}

/// The calls of an upper part during one input.
pub(super) struct Cx<'a, 'b> {
    pub(super) now: Now,
    pub(super) lower: &'a mut Lower,
    pub(super) out: &'a mut Outbox<'b, Pastry>,
}

impl Cx<'_, '_> {
    pub(super) fn config(&self) -> &Config {
        self.lower.env.config()
    }

    pub(super) fn own(&self) -> Contact {
        self.lower.env.own()
    }

    pub(super) fn count(&mut self) -> &mut Counters {
        self.lower.env.count()
    }

    pub(super) fn tables(&self) -> &Tables {
        &self.lower.tables
    }

    pub(super) fn effect(&mut self, effect: Effect) {
        self.lower.effects.push_back(effect);
    }

    /// Sends a message over a connection; `None` if a limit is reached.
    pub(super) fn send(&mut self, to: SocketAddr, message: &Message) -> Option<Taken> {
        let Lower { env, transport, .. } = &mut *self.lower;
        let to = (to, Expects::Nothing);
        transport.send_with(env, self.now.mono, to, |writer| encode(message, writer), self.out)
    }

    /// Answers a message that a node sent over a connection.
    pub(super) fn answer(&mut self, over: StreamId, to: SocketAddr, message: &Message) -> Option<Taken> {
        let Lower { env, transport, .. } = &mut *self.lower;
        transport.answer(env, self.now.mono, (over, to), message, self.out)
    }

    /// Sends a message to a node with an entry. Returns whether it was sent.
    pub(super) fn send_to(&mut self, id: Id, message: &Message) -> bool {
        let Some(contact) = self.tables().contact(id) else { return false };
        self.send(contact.addr, message).is_some()
    }

    /// Inserts the sender of a message, or a node that answered after `sample`. Returns false if another node is known
    /// under its id; that one is probed first (PA-22).
    pub(super) fn insert(&mut self, contact: Contact, sample: Option<Duration>) -> bool {
        if contact.id == self.own().id {
            return false;
        }
        let inserted = match self.lower.tables.insert(self.now.mono, contact, sample) {
            Ok(inserted) => inserted,
            Err(IdConflict(known)) => {
                self.verify(known);
                return false;
            }
        };
        if inserted.recovered {
            self.lower.prober.forget(contact.id);
            self.effect(Effect::Recovered(contact.id));
        }
        if inserted.new_leaf {
            self.effect(Effect::NewLeaf(contact.id));
        }
        if inserted.unmeasured && !self.lower.prober.is_pending(contact.id) {
            // The node sent first: a probe verifies its address and measures its distance (P-32).
            self.ask(contact, false, Reason::Known);
        }
        true
    }

    /// Probes the nodes that others named and that would be useful (P-32); they are inserted only if they answer (PA-14).
    pub(super) fn consider(&mut self, contacts: &[Contact], interest: Interest) {
        for contact in contacts {
            if self.tables().is_useful(self.now.mono, contact, interest, None) {
                let leaf = self.tables().leaf_set().would_take(contact.id);
                self.ask(*contact, leaf, Reason::Unverified);
            }
        }
    }

    /// The same for nodes from the tables of a node at `distance`. That node sends its own distances to them. Only
    /// nodes that are probably nearer than the current entries are probed (PA-15).
    pub(super) fn consider_all(&mut self, tables: &TablesSent, interest: Interest, distance: Option<Score>) {
        self.consider(&tables.leaf_set, Interest::EmptySlot);
        let named = tables.routing_table.iter().chain(&tables.neighbourhood);
        let rtts = tables.rtts_micros.iter().copied().chain(core::iter::repeat(u32::MAX));
        for (contact, rtt) in named.zip(rtts) {
            let estimate = distance.map_or(Score::UNKNOWN, |distance| distance.beyond(Score(rtt)));
            if self.tables().is_useful(self.now.mono, contact, interest, Some(estimate)) {
                let leaf = self.tables().leaf_set().would_take(contact.id);
                self.ask(*contact, leaf, Reason::Unverified);
            }
        }
    }

    /// Queues a probe of a node. `leaf` is whether an entry in the leaf set depends on it.
    pub(super) fn ask(&mut self, contact: Contact, leaf: bool, reason: Reason) {
        if !self.lower.prober.ask(contact, leaf, reason) {
            self.count().probes_dropped += 1;
        }
    }

    /// Probes a node with an entry.
    pub(super) fn probe(&mut self, id: Id) {
        if let Some(contact) = self.tables().contact(id) {
            self.ask(contact, false, Reason::Known);
        }
    }

    /// Probes a contact that another node named.
    pub(super) fn verify(&mut self, contact: Contact) {
        if self.tables().peer(contact.id).is_some() {
            self.probe(contact.id);
        } else {
            self.consider(&[contact], Interest::EmptySlot);
        }
    }

    /// Defers messages for a node until a probe has decided whether it is alive.
    pub(super) fn suspect(&mut self, id: Id) {
        let Some(contact) = self.tables().contact(id) else { return };
        if self.tables().away().contains(&id) {
            return;
        }
        self.lower.tables.suspect(id);
        let leaf = self.tables().leaf_set().contains(id);
        self.ask(contact, leaf, Reason::Suspected);
    }

    /// Clears the suspicion of a node.
    pub(super) fn clear_suspicion(&mut self, id: Id) {
        if self.lower.tables.clear_suspicion(id) {
            self.lower.prober.forget(id);
            self.effect(Effect::Recovered(id));
        }
    }

    /// Begins waiting probes, up to the limit.
    pub(super) fn start_probes(&mut self) {
        while self.lower.prober.has_next() {
            let Lower { env, prober, tables, .. } = &mut *self.lower;
            let nonce = env.rng().next_u64();
            let started = prober.start_next(self.now.mono, nonce, |id| tables.ack_timeout(id));
            let Some((contact, by_stream)) = started else { break };
            self.send_ping(nonce, contact);
            if by_stream {
                self.ping_over_stream(nonce, contact);
            }
        }
    }

    /// Sends due probes again, and reports verdicts.
    pub(super) fn continue_probes(&mut self) {
        let now = self.now.mono;
        while let Some(due) = self.lower.prober.pop_due(now) {
            match due {
                Due::Send { nonce, contact, by_stream } => {
                    self.send_ping(nonce, contact);
                    if by_stream {
                        self.ping_over_stream(nonce, contact);
                    }
                }
                Due::Silent { nonce, contact, reason } => self.on_silent(nonce, contact, reason),
                Due::StillAway { contact } => self.effect(Effect::StillAway(contact.id)),
                Due::Overdue { nonce, contact } => {
                    if self.tables().peer(contact.id).is_some_and(|peer| peer.is_member) {
                        // `members` decides.
                        self.lower.prober.set_away(nonce, now);
                    } else {
                        self.lower.prober.end(nonce);
                        self.effect(Effect::Dead(contact));
                    }
                }
            }
        }
    }

    /// Handles a pong. Returns false if it answers no probe of this node.
    pub(super) fn on_pong(
        &mut self,
        nonce: u64,
        over_stream: bool,
        from: Contact,
        leaf_set_digest: u32,
    ) -> bool {
        if !over_stream && self.lower.prober.is_half_answered(nonce, self.now.mono) {
            self.count().probes_answered += 1;
            return true;
        }
        let Some(answer) = self.lower.prober.on_answer(nonce, self.now.mono, over_stream) else {
            self.count().pongs_unmatched += 1;
            return false;
        };
        self.count().probes_answered += 1;
        // The node is at the address that was probed. Any node could claim another address.
        let contact = Contact { addr: answer.contact.addr, ..from };
        if answer.contact.id != contact.id {
            // Another node has that address now.
            self.effect(Effect::Dead(answer.contact));
        }
        self.insert(contact, Some(answer.rtt));
        self.clear_suspicion(contact.id);
        self.effect(Effect::ProbeAnswered { contact, leaf_set_digest });
        true
    }

    /// The answer to a probe.
    pub(super) fn pong(&self, nonce: u64) -> Message {
        let leaf_set_digest = self.tables().leaf_set().digest();
        Message::Pong { ring: self.lower.env.ring(), nonce, from: self.own(), leaf_set_digest }
    }

    /// Notes a round-trip time of a node that others measured: its entries may change.
    pub(super) fn measured(&mut self, contact: Contact, rtt: Duration) {
        let was_avoided = self.tables().is_avoided(contact.id);
        if !was_avoided {
            self.insert(contact, Some(rtt));
        }
    }

    fn on_silent(&mut self, nonce: u64, contact: Contact, reason: Reason) {
        let known = self.tables().contact(contact.id);
        if reason != Reason::Unverified && known.is_some_and(|known| known.addr == contact.addr) {
            self.lower.prober.set_away(nonce, self.now.mono);
            if self.lower.tables.set_away(contact.id) {
                self.count().peers_away += 1;
                self.effect(Effect::Away(contact.id));
            }
            return;
        }
        // Silence at the claimed address says nothing about the node that we know at another address (PA-39).
        self.lower.prober.end(nonce);
        if known.is_none() {
            self.lower.tables.mark_removed(self.now.mono, &contact);
        }
    }

    fn send_ping(&mut self, nonce: u64, contact: Contact) {
        self.count().probes_sent += 1;
        let ping = Message::Ping { ring: self.lower.env.ring(), nonce, from: self.own() };
        self.lower.transport.send_datagram(contact.addr, &ping, self.out);
    }

    fn ping_over_stream(&mut self, nonce: u64, contact: Contact) {
        self.count().probes_sent += 1;
        let ping = Message::Ping { ring: self.lower.env.ring(), nonce, from: self.own() };
        // The pool looks for another connection if this one stays silent (PL-4).
        let Lower { env, transport, .. } = &mut *self.lower;
        let to = (contact.addr, Expects::Reply);
        let taken = transport.send_with(env, self.now.mono, to, |writer| encode(&ping, writer), self.out);
        let connected = taken.is_some_and(|taken| taken.connected);
        self.lower.prober.sent_by_stream(nonce, self.now.mono, connected);
    }
}
