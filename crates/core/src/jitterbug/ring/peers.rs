//! Addresses that get TR1 beyond the broadcast domain: those that another service, such as membership, knows.
//!
//! Each TR1 goes to all of them if they are few, and else to the next 64, in turn. All nodes of another ring remember
//! the sender, so it is enough to reach some of them. A restore of a thousand nodes at once must not send a million
//! datagrams.
//!
//! Only an orphan sends TR1, and in a working ring a node becomes one only by a random drop. So a ring with a new
//! address would find that node, and perhaps its whole ring, only at the next drop. Instead, an address that is named
//! for the first time makes the next tenure drop the token once. One node per ring is enough: a node that receives the
//! TR1 of another does not do it again.

use core::time::Duration;
use std::collections::BTreeSet;
use std::net::IpAddr;

use super::list::NodeList;
use crate::time::Instant;

/// The most addresses that are remembered; further ones are left out.
pub const PEERS_MAX: usize = 1024;
/// The most addresses that one TR1 goes to.
pub(super) const ASKED_MAX: usize = 64;

/// The most addresses remembered as named; beyond that all but the present ones are forgotten.
const NAMED_MAX: usize = 4 * PEERS_MAX;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Peers {
    known: Vec<IpAddr>,
    next: usize,
    /// Addresses that were ever named: each is new once.
    named: BTreeSet<IpAddr>,
    /// Addresses that are new and were not looked for yet; `fresh_since` is when the first of them was named.
    fresh: BTreeSet<IpAddr>,
    fresh_since: Instant,
    /// When the token was last dropped to look for one.
    sought_at: Option<Instant>,
}

impl Peers {
    /// Replaces the addresses. It leaves out those that cannot be reached from `own`: `own` itself, another family, and
    /// wildcard or multicast addresses.
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

    /// Whether a new address has had time to join by itself and is not in `list`. Each counts once, and none before
    /// `pause` is over.
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

    /// Notes that another node of the ring sends TR1 to its addresses: this node need not do the same.
    pub(super) fn others_ask(&mut self) {
        self.fresh.clear();
    }

    /// The addresses of the next TR1.
    pub(super) fn turn(&mut self) -> impl Iterator<Item = IpAddr> + '_ {
        let (from, len) = (self.next, self.known.len());
        let count = len.min(ASKED_MAX);
        self.next = if len > ASKED_MAX { (from + count) % len } else { 0 };
        self.known.iter().cycle().skip(from).take(count).copied()
    }
}
