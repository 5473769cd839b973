//! Who can reach whom: one-way cuts and partitions.

use std::collections::BTreeSet;

use crate::host::HostId;

/// What is cut at the moment. Both kinds add up.
#[derive(Debug, Default)]
pub(crate) struct Links {
    cuts: BTreeSet<(HostId, HostId)>,
    /// The side each host is on; hosts beyond the end are on side 0.
    sides: Vec<u8>,
}

impl Links {
    /// Cuts one direction.
    pub(crate) fn cut(&mut self, from: HostId, to: HostId) {
        self.cuts.insert((from, to));
    }

    /// Mends one direction.
    pub(crate) fn mend(&mut self, from: HostId, to: HostId) {
        self.cuts.remove(&(from, to));
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
