//! Addresses to ask beyond the broadcast domain: those that another service, such as membership, knows of.
//!
//! Each TR1 goes to all of them while they are few, and else to the next so many, round and round: the nodes of another
//! ring all remember who asks, so it is enough to reach some of them, and a restore of a thousand nodes at once must not
//! send a million datagrams.
//!
//! Only an orphan asks, and in a ring that turns a node becomes one only by a random drop. So a ring that learns of a node it
//! does not have would wait for the next drop to find it, and with it perhaps a whole other ring. Instead, an address that is
//! named for the first time makes the next tenure drop the token once. One node of a ring is enough: a node that hears
//! another one ask does not do it again.

use core::time::Duration;
use std::collections::BTreeSet;
use std::net::IpAddr;

use super::list::NodeList;
use crate::time::Instant;

/// The most addresses that are remembered; what is beyond is left out.
pub const PEERS_MAX: usize = 1024;
/// The most addresses that one TR1 goes to.
pub(super) const ASKED_MAX: usize = 64;

/// The most addresses of which is remembered that they were named; then all but the present ones are forgotten.
const NAMED_MAX: usize = 4 * PEERS_MAX;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Peers {
    known: Vec<IpAddr>,
    next: usize,
    /// Who was ever named: everybody is news once.
    named: BTreeSet<IpAddr>,
    /// Who was named for the first time and was not looked for yet, and since when there is somebody.
    fresh: BTreeSet<IpAddr>,
    fresh_since: Instant,
    /// When somebody was looked for the last time.
    sought_at: Option<Instant>,
}

impl Peers {
    /// Replaces whom to ask. Left out is who cannot be asked from `own`: it itself, another family, and what is no
    /// address of one node.
    pub(super) fn replace(&mut self, now: Instant, own: IpAddr, given: Vec<IpAddr>) {
        let own = own.to_canonical();
        let askable = |ip: &IpAddr| {
            *ip != own && ip.is_ipv4() == own.is_ipv4() && !ip.is_unspecified() && !ip.is_multicast()
        };
        let given = given.into_iter().map(|ip| ip.to_canonical()).filter(askable);
        let known: BTreeSet<IpAddr> = given.take(PEERS_MAX).collect();
        if self.named.len() > NAMED_MAX {
            self.named.retain(|ip| known.contains(ip));
        }
        self.fresh.retain(|ip| known.contains(ip));
        if self.fresh.is_empty() {
            self.fresh_since = now;
        }
        for ip in &known {
            if self.named.insert(*ip) {
                self.fresh.insert(*ip);
            }
        }
        self.known = known.into_iter().collect();
        self.next = 0;
    }

    /// Whether somebody was named who is news, has had time to join by itself, and is not in `list`. It is asked about
    /// once, and not again before `pause` is over.
    pub(super) fn seeks(
        &mut self,
        now: Instant,
        time_to_join: Duration,
        pause: Duration,
        list: &NodeList,
    ) -> bool {
        let soon = self.fresh_since + time_to_join > now || self.sought_at.is_some_and(|at| at + pause > now);
        if self.fresh.is_empty() || soon {
            return false;
        }
        let listed: BTreeSet<IpAddr> =
            list.nodes().iter().map(|node| node.addr.ip().to_canonical()).collect();
        let is_unlisted = !core::mem::take(&mut self.fresh).is_subset(&listed);
        if is_unlisted {
            self.sought_at = Some(now);
        }
        is_unlisted
    }

    /// Somebody of our ring asks everybody it knows of: we need not do the same right after it.
    pub(super) fn others_ask(&mut self) {
        self.fresh.clear();
    }

    /// Whom the next TR1 goes to.
    pub(super) fn turn(&mut self) -> impl Iterator<Item = IpAddr> + '_ {
        let (from, len) = (self.next, self.known.len());
        let count = len.min(ASKED_MAX);
        self.next = if len > ASKED_MAX { (from + count) % len } else { 0 };
        self.known.iter().cycle().skip(from).take(count).copied()
    }
}
