//! Reachability: one-way cuts and partitions.

use std::collections::{BTreeMap, BTreeSet};

use crate::fault::{Block, Traffic};
use crate::host::HostId;

/// The current cuts. Both kinds add up.
#[derive(Debug, Default)]
pub(crate) struct Links {
    cuts: BTreeSet<(HostId, HostId)>,
    /// The side each host is on; hosts beyond the end are on side 0.
    sides: Vec<u8>,
    /// Filters, delays and path MTUs of one direction each.
    paths: BTreeMap<(HostId, HostId), Path>,
}

/// Filters, delay and path MTU between two hosts.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Path {
    pub(crate) datagrams: Option<Block>,
    pub(crate) streams: Option<Block>,
    pub(crate) delay_micros: u64,
    pub(crate) mtu_bytes: Option<usize>,
}

impl Path {
    /// How it stops this kind of traffic, if it does.
    pub(crate) fn block(&self, traffic: Traffic) -> Option<Block> {
        match traffic {
            Traffic::Datagrams => self.datagrams,
            Traffic::Streams => self.streams,
            Traffic::All => self.datagrams.and(self.streams),
        }
    }
}

impl Links {
    /// Cuts one direction.
    pub(crate) fn cut(&mut self, from: HostId, to: HostId) {
        self.cuts.insert((from, to));
    }

    /// Mends one direction.
    pub(crate) fn mend(&mut self, from: HostId, to: HostId) {
        self.cuts.remove(&(from, to));
        self.paths.remove(&(from, to));
    }

    /// Puts something else between two hosts.
    pub(crate) fn path_mut(&mut self, from: HostId, to: HostId) -> &mut Path {
        self.paths.entry((from, to)).or_default()
    }

    /// Filters, delay and path MTU between two hosts, if there are any.
    #[inline]
    pub(crate) fn path(&self, from: HostId, to: HostId) -> Option<&Path> {
        if self.paths.is_empty() { None } else { self.paths.get(&(from, to)) }
    }

    /// Puts these hosts on a side of their own, apart from all others.
    pub(crate) fn divide(&mut self, side: u8, hosts: &[HostId]) {
        for host in hosts {
            if self.sides.len() <= host.index() {
                self.sides.resize(host.index() + 1, 0);
            }
            self.sides[host.index()] = side;
        }
    }

    /// Joins all sides; one-way cuts stay.
    pub(crate) fn join(&mut self) {
        self.sides.clear();
    }

    /// Mends everything.
    pub(crate) fn heal(&mut self) {
        self.cuts.clear();
        self.sides.clear();
        self.paths.clear();
    }

    /// Whether something sent by `from` reaches `to`.
    #[inline]
    pub(crate) fn pass(&self, from: HostId, to: HostId) -> bool {
        (self.sides.is_empty() || self.side(from) == self.side(to))
            && (self.cuts.is_empty() || !self.cuts.contains(&(from, to)))
    }

    fn side(&self, host: HostId) -> u8 {
        self.sides.get(host.index()).copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_is_one_way_and_a_partition_is_not() {
        let [a, b, c] = [0, 1, 2].map(HostId::new);
        let mut links = Links::default();
        links.cut(a, b);
        assert!(!links.pass(a, b) && links.pass(b, a));
        links.divide(1, &[c]);
        assert!(!links.pass(a, c) && !links.pass(c, a) && links.pass(c, c));
        links.join();
        assert!(links.pass(a, c) && !links.pass(a, b));
        links.heal();
        assert!(links.pass(a, b));
    }
}
