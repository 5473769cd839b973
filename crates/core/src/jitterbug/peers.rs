//! Whom to ask beyond the broadcast domain: addresses that somebody else, such as membership, knows of.
//!
//! Each TR1 goes to all of them while they are few, and else to the next so many, round and round: the nodes of another
//! ring all remember who asks, so it is enough to reach some of them, and a restore of a thousand nodes at once must not
//! send a million datagrams.

use std::collections::BTreeSet;
use std::net::IpAddr;

/// The most addresses that are remembered; what is beyond is left out.
pub const PEERS_MAX: usize = 1024;
/// The most addresses that one TR1 goes to.
pub(super) const ASKED_MAX: usize = 64;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Peers {
    known: Vec<IpAddr>,
    next: usize,
}

impl Peers {
    /// Replaces whom to ask. Left out is who cannot be asked from `own`: it itself, another family, and what is no
    /// address of one node.
    pub(super) fn replace(&mut self, own: IpAddr, given: Vec<IpAddr>) {
        let own = own.to_canonical();
        let askable = |ip: &IpAddr| {
            *ip != own && ip.is_ipv4() == own.is_ipv4() && !ip.is_unspecified() && !ip.is_multicast()
        };
        let given = given.into_iter().map(|ip| ip.to_canonical()).filter(askable);
        let known: BTreeSet<IpAddr> = given.take(PEERS_MAX).collect();
        self.known = known.into_iter().collect();
        self.next = 0;
    }

    /// Whom the next TR1 goes to.
    pub(super) fn turn(&mut self) -> impl Iterator<Item = IpAddr> + '_ {
        let (from, len) = (self.next, self.known.len());
        let count = len.min(ASKED_MAX);
        self.next = if len > ASKED_MAX { (from + count) % len } else { 0 };
        self.known.iter().cycle().skip(from).take(count).copied()
    }
}
