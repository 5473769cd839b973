//! Reports of the service `members` about other nodes: alive, suspected, failed or left, and their round-trip times.
//!
//! Both services know a node by the same id, and each listens at an address of its own: the addresses here are those of
//! `route`. With [`Liveness::Members`](super::Liveness::Members) these reports replace periodic probes (PA-34a), except
//! for nodes that `members` does not watch. A node that `members` names is probed, and inserted when it answers
//! (PA-14).

use core::time::Duration;
use std::net::SocketAddr;

use super::Command;
use super::contact::{Contact, Generation};
use super::machine::{Cause, Out, Pastry};
use super::prober::Reason;
use super::tables::Interest;
use crate::id::Id;
use crate::time::Now;

impl Pastry {
    /// Handles a report of `members`.
    pub(super) fn on_membership(&mut self, now: Now, report: &Command, out: Out<'_, '_>) {
        let own = self.lower.env.own().id;
        let cx = &mut self.lower.cx(now, out);
        match *report {
            Command::MemberAlive { id, addr } if id != own => self.member_alive(now, id, addr, out),
            // PL-10: the own probes decide within a few round trips.
            Command::MemberSuspected(id) => {
                if let Some(contact) = cx.tables().contact(id) {
                    cx.lower.transport.suspect(now.mono, contact.addr, cx.out);
                }
                cx.suspect(id);
            }
            Command::MemberRecovered(id) => {
                self.watch(id);
                let cx = &mut self.lower.cx(now, out);
                if let Some(contact) = cx.tables().contact(id) {
                    cx.lower.transport.reachable(now.mono, contact.addr, cx.out);
                }
                cx.clear_suspicion(id);
            }
            Command::MemberFailed(id) => self.member_gone(now, id, Cause::Failed, out),
            Command::MemberLeft(id) => self.member_gone(now, id, Cause::Left, out),
            Command::MemberRtt { id, addr, rtt } if id != own => self.member_rtt(now, id, addr, rtt, out),
            _ => {}
        }
    }

    fn member_alive(&mut self, now: Now, id: Id, addr: SocketAddr, out: Out<'_, '_>) {
        self.lower.tables.unmark_removed(id);
        self.lower.transport.reachable(now.mono, addr, out);
        let is_active = self.join.is_active();
        let cx = &mut self.lower.cx(now, out);
        match cx.tables().contact(id).map(|contact| contact.addr) {
            Some(known) if known == addr => {
                cx.lower.prober.hasten_away(id, now.mono);
                self.watch(id);
            }
            // The node has moved: the probe of its old address ends, and the new address is probed.
            Some(_) => {
                let leaf = cx.tables().leaf_set().contains(id);
                cx.lower.prober.forget(id);
                cx.ask(named(id, addr), leaf, Reason::Known);
            }
            None if is_active => cx.consider(&[named(id, addr)], Interest::EmptySlot),
            None => self.join.on_member(now.mono, id, addr),
        }
    }

    /// `members` watches this node from now on.
    fn watch(&mut self, id: Id) {
        if let Some(peer) = self.lower.tables.peer_mut(id) {
            peer.is_member = true;
        }
    }

    fn member_gone(&mut self, now: Now, id: Id, cause: Cause, out: Out<'_, '_>) {
        self.join.on_member_gone(id);
        self.remove(now, id, cause, out);
    }

    /// Takes a round trip. A node without entry is probed if it is nearer than the node in its cell (P-12).
    fn member_rtt(&mut self, now: Now, id: Id, addr: SocketAddr, rtt: Duration, out: Out<'_, '_>) {
        if let Some(contact) = self.lower.tables.contact(id) {
            self.watch(id);
            // The round trip shows the distance of the node, not that its `route` answers.
            self.lower.cx(now, out).measured(contact, rtt);
            return;
        }
        self.lower.tables.remember_distance(now.mono, id, rtt);
        if self.join.is_active() {
            self.lower.cx(now, out).consider(&[named(id, addr)], Interest::Nearer);
        }
    }
}

/// A node whose generation is not known.
fn named(id: Id, addr: SocketAddr) -> Contact {
    Contact { id, addr, generation: Generation(0) }
}
