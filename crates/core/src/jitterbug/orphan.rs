//! The orphan: restores, and what everybody says to one.

use std::net::{IpAddr, SocketAddr};

use super::Event;
use super::application::{Application, Restored};
use super::config::is_link_local;
use super::graph::What;
use super::machine::{Jitterbug, Out, State, UDP};
use super::message::{Message, NodeEntry, SignedId};
use super::restore::{Attempt, Restore, Step};
use super::wire::{TR1_BYTES, TR2_BYTES, encode};
use crate::machine::Refusal;
use crate::time::Now;
use crate::wire::{DecodeError, Writer};

impl<A: Application> Jitterbug<A> {
    /// Belongs to no ring from here on, and starts token_restore.
    pub(super) fn become_orphan(&mut self, now: Now, out: Out<'_, '_, A>) {
        self.counters.restores += 1;
        self.holder = None;
        self.enter(State::Orphan(Restore::new(self.token, now.mono)), out);
        self.restore(now, out);
    }

    /// Goes on with the restore, as far as it is due.
    pub(super) fn restore(&mut self, now: Now, out: Out<'_, '_, A>) {
        let (interval, count) = (self.config.tr_interval, self.config.tr_count);
        while let State::Orphan(restore) = &mut self.state {
            match restore.step(now.mono, interval, count) {
                None => return,
                Some(Step::Ask) => {
                    let token_id = restore.tried().free();
                    self.ask(token_id, out);
                }
                Some(Step::Granted(Attempt::First)) => {
                    self.token = self.config.draw.draw(&mut self.rng, restore.tried());
                    restore.second(self.token, now.mono);
                }
                Some(Step::Granted(Attempt::Second)) => {
                    let from = restore.origin();
                    self.make_token(now, from, out);
                }
                Some(Step::Denied) => self.denied(now, out),
            }
        }
    }

    /// A TR1 came (J-49 … J-53).
    pub(super) fn asked(
        &mut self,
        now: Now,
        asker: NodeEntry,
        tried: SignedId,
        out: Out<'_, '_, A>,
    ) -> Result<(), Refusal> {
        let ip = asker.addr.ip();
        if asker.host_id.number() == 0 && ip.is_ipv6() {
            // JA-10: −0 is 0, so such a node has no entry in a list.
            self.counters.malformed += 1;
            return Err(DecodeError::Field("host_id").into());
        }
        if asker == self.own_entry() {
            self.counters.echoes += 1;
            return Ok(());
        }
        if !self.limiter.allow(now.mono, ip) {
            self.counters.refused += 1;
            return Err(Refusal::Reject("too many requests from there"));
        }
        if asker.host_id == self.host_id {
            // JA-18: a clone is reported and answered, but there is no room for it in the list.
            self.report_duplicate(asker.addr, out);
        } else {
            self.remember(asker);
        }
        if self.signed() >= tried {
            let answer = Message::Tr2 { token_id: self.signed() };
            // JA-22: to the ring's port, never to the port it came from.
            let to = SocketAddr::new(ip, self.config.udp_port);
            out.send_with(UDP, to, TR2_BYTES, |writer| encode(&answer, writer))
                .expect("a TR2 has its length");
        }
        self.restore_together(now, tried, out);
        Ok(())
    }

    /// A TR2 came: it matters to a try under way, and to nothing else.
    pub(super) fn answered(
        &mut self,
        now: Now,
        from: IpAddr,
        answer: SignedId,
        out: Out<'_, '_, A>,
    ) -> Result<(), Refusal> {
        let State::Orphan(restore) = &mut self.state else {
            self.counters.answers_unasked += 1;
            return Err(Refusal::Reject("an answer to no try"));
        };
        if restore.heard(answer) {
            if answer.is_held() {
                self.holder = self.list.at_ip(from).next();
                self.loops.heard_holder();
            }
            self.denied(now, out);
        }
        Ok(())
    }

    pub(super) fn report_duplicate(&mut self, at: SocketAddr, out: Out<'_, '_, A>) {
        if self.duplicate.replace(at) != Some(at) {
            out.event(Event::DuplicateHostId { at });
        }
    }

    /// Remembers a node for the list (JA-20: in every state), and that it lives (JA-44a).
    fn remember(&mut self, node: NodeEntry) {
        let listed = self.list.addr(node.host_id);
        if listed.is_some_and(|addr| addr.ip().to_canonical() == node.addr.ip()) {
            self.penalties.clear(node.host_id);
            self.peers.others_ask();
        }
        // JA-37: without its interface nobody could dial it.
        if listed == Some(node.addr) || is_link_local(node.addr.ip()) {
            return;
        }
        if !self.add_set.remember(node) {
            self.counters.add_set_full += 1;
        }
    }

    fn ask(&mut self, token_id: SignedId, out: Out<'_, '_, A>) {
        let message = Message::Tr1 { token_id, host_id: self.host_id, tcp_port: self.tcp_port };
        let mut bytes = Vec::with_capacity(TR1_BYTES);
        encode(&message, &mut Writer::new(&mut bytes, TR1_BYTES));
        out.broadcast(UDP, &bytes);
        for ip in self.peers.turn() {
            out.send(UDP, SocketAddr::new(ip, self.config.udp_port), &bytes);
        }
    }

    fn denied(&mut self, now: Now, out: Out<'_, '_, A>) {
        self.counters.restores_denied += 1;
        out.event(Event::RestoreDenied { token_id: self.token });
        // JA-24 (ii): the wait begins now, not with the last token.
        self.become_waiter(now, out);
    }

    fn make_token(&mut self, now: Now, from: super::TokenId, out: Out<'_, '_, A>) {
        self.counters.restores_granted += 1;
        self.log.push(now.wall, What::Restored { from, to: self.token });
        out.event(Event::TokenRestored { from, token_id: self.token });
        let blind = now.mono.since(self.known_at);
        self.lead(now, Some(Restored { from, blind }), out);
        self.proceed(now, out);
    }

    /// JA-24 (iv): somebody with our id restores, and we have waited for half of the time too.
    fn restore_together(&mut self, now: Now, tried: SignedId, out: Out<'_, '_, A>) {
        let State::Waiter { renew_at } = self.state else { return };
        let half = now.mono + self.renew() / 2;
        if self.config.restore_together && tried == self.signed() && renew_at <= half {
            self.become_orphan(now, out);
        }
    }
}
