//! What the service `members` tells of others: who lives, who may not, who is gone, and how near they are.
//!
//! Both services know a node by the same id, and each listens at an address of its own: the addresses here are those of
//! `route`. With [`Liveness::Members`](super::Liveness::Members) this is all the upkeep there is at rest (PA-34a), but for
//! nodes that `members` has not named: nobody would tell when they are gone, so they are asked as without it. What
//! `members` says makes a node a candidate, as hearsay does: it gets a seat when it answers (PA-14).

use core::time::Duration;
use std::net::SocketAddr;

use super::Command;
use super::contact::{Contact, Incarnation};
use super::join::Stage;
use super::machine::{Out, Pastry};
use super::probes::Ground;
use super::proximity::Estimate;
use super::seats::{Cause, Interest};
use crate::id::Id;
use crate::time::Now;

/// The most nodes kept to join through. Of more the first ones stay.
const NAMED_MAX: usize = 32;

impl Pastry {
    /// Takes in what `members` tells.
    pub(super) fn heed_members(&mut self, now: Now, told: &Command, out: Out<'_, '_>) {
        match *told {
            Command::MemberAlive { id, addr } if id != self.own.id => self.member_alive(now, id, addr),
            Command::MemberSuspected(id) => {
                self.peers.suspect(id);
            }
            Command::MemberRecovered(id) => {
                self.vouch(id);
                self.trust(now, id, out);
            }
            Command::MemberFailed(id) => self.member_gone(now, id, Cause::Failed, out),
            Command::MemberLeft(id) => self.member_gone(now, id, Cause::Left, out),
            Command::MemberRtt { id, addr, rtt } if id != self.own.id => {
                self.member_rtt(now, id, addr, rtt, out);
            }
            _ => {}
        }
    }

    /// Whether nobody that `members` named has a lesser id: if all of them wait, this one founds the ring.
    pub(super) fn is_first_member(&self) -> bool {
        self.config.await_members
            && !self.named.is_empty()
            && self.named.iter().all(|(id, _)| self.own.id < *id)
    }

    fn member_alive(&mut self, now: Now, id: Id, addr: SocketAddr) {
        self.departed.remove(id);
        let contact = hearsay(id, addr);
        match self.peers.get(id).map(|peer| peer.contact.addr) {
            Some(known) if known == addr => self.vouch(id),
            // It has moved: nobody else may be asked about it.
            Some(_) => self.ask(contact, self.leaf_set.contains(id), Ground::Own),
            None if self.join.is_active() => self.learn(now, &[contact], Interest::Gap),
            None => self.join_through_member(now, id, addr),
        }
    }

    /// `members` watches this one from now on.
    fn vouch(&mut self, id: Id) {
        if let Some(peer) = self.peers.get_mut(id) {
            peer.is_member = true;
        }
    }

    fn join_through_member(&mut self, now: Now, id: Id, addr: SocketAddr) {
        let named = self.named.iter().position(|(named, _)| *named == id);
        match named {
            Some(at) if self.named[at].1 == addr => return,
            Some(at) => self.named[at].1 = addr,
            None if self.named.len() >= NAMED_MAX => return,
            None => self.named.push((id, addr)),
        }
        self.join.hope();
        if self.join.stage() == Stage::Waiting {
            self.join.wait_until(now.mono);
        }
    }

    /// In the ring now, those who were named are met: some may not have found their way in.
    pub(super) fn meet_named(&mut self, now: Now) {
        for (id, addr) in core::mem::take(&mut self.named) {
            self.learn(now, &[hearsay(id, addr)], Interest::Gap);
        }
    }

    fn member_gone(&mut self, now: Now, id: Id, cause: Cause, out: Out<'_, '_>) {
        self.named.retain(|(named, _)| *named != id);
        self.dismiss(now, id, cause, out);
    }

    /// A node with a seat is measured by that. One without is asked if it is nearer than who has the seat (P-12).
    fn member_rtt(&mut self, now: Now, id: Id, addr: SocketAddr, rtt: Duration, out: Out<'_, '_>) {
        if let Some(contact) = self.contact(id) {
            self.vouch(id);
            self.admit(now, contact, Some(rtt), out);
            return;
        }
        let mut estimate = Estimate::default();
        estimate.add(rtt);
        self.cache.put(id, estimate.score(), now.mono);
        if self.join.is_active() {
            self.learn(now, &[hearsay(id, addr)], Interest::Nearer);
        }
    }
}

/// A node of which it is not known which life it is in.
fn hearsay(id: Id, addr: SocketAddr) -> Contact {
    Contact { id, addr, incarnation: Incarnation(0) }
}
