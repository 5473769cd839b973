//! Nodes that membership cannot reach (TU-42). A holder that is cut off from most of its ring loses its hold, because the
//! others make a token of their own.
//!
//! A node that was unreachable for six times `renew_timeout` is dead: it counts neither as reached nor as missed.

use core::time::Duration;
use std::collections::BTreeMap;
use std::net::IpAddr;

use super::list::NodeList;
use super::peers::PEERS_MAX;
use crate::time::Instant;

/// The unreachable nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Reach {
    /// Since when each is unreachable; at most [`PEERS_MAX`], beyond that the oldest is forgotten.
    unreachable: BTreeMap<IpAddr, Instant>,
}

impl Reach {
    pub(super) fn lost(&mut self, now: Instant, ip: IpAddr) {
        if self.unreachable.len() >= PEERS_MAX
            && let Some(oldest) = self.unreachable.iter().min_by_key(|(_, since)| **since).map(|(ip, _)| *ip)
        {
            self.unreachable.remove(&oldest);
        }
        self.unreachable.entry(ip).or_insert(now);
    }

    pub(super) fn regained(&mut self, ip: IpAddr) {
        self.unreachable.remove(&ip);
    }

    /// Whether less than half of the list has been reached for half of `grace`. Membership detects the nodes behind a
    /// partition one after another. So the time counts from the first that was lost within `grace` before the last.
    pub(super) fn is_minority(
        &self,
        now: Instant,
        list: &NodeList,
        grace: Duration,
        dead_after: Duration,
    ) -> bool {
        if self.unreachable.is_empty() {
            return false;
        }
        let since = |ip: IpAddr| self.unreachable.get(&ip.to_canonical()).copied();
        let marks: Vec<Option<Instant>> = list.nodes().iter().map(|node| since(node.addr.ip())).collect();
        let missed: Vec<Instant> =
            marks.iter().flatten().copied().filter(|since| now.since(*since) < dead_after).collect();
        let reached = marks.iter().filter(|mark| mark.is_none()).count();
        let Some(last) = missed.iter().max().copied() else { return false };
        let first = missed.iter().filter(|since| last.since(**since) <= grace).min().copied();
        reached < missed.len() && now.since(first.unwrap_or(last)) >= grace / 2
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::message::{HostId, NodeEntry};
    use super::*;

    const GRACE: Duration = Duration::from_secs(5);
    const DEAD: Duration = Duration::from_secs(60);

    fn ip(node: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, node])
    }

    fn list(nodes: u8) -> NodeList {
        let host = |node: u8| HostId::new(u32::from(node)).expect("it is small");
        NodeList::of((1..=nodes).map(|node| NodeEntry::new(host(node), ip(node), 4001)))
    }

    fn at(ms: u64) -> Instant {
        Instant::from_micros(ms * 1000)
    }

    #[test]
    fn less_than_half_for_half_of_the_grace_is_a_minority() {
        let (list, mut reach) = (list(5), Reach::default());
        reach.lost(at(1500), ip(2));
        reach.lost(at(2500), ip(3));
        assert!(!reach.is_minority(at(9000), &list, GRACE, DEAD), "three of five are reached");
        reach.lost(at(3500), ip(4));
        assert!(!reach.is_minority(at(3900), &list, GRACE, DEAD));
        assert!(reach.is_minority(at(4000), &list, GRACE, DEAD), "counted from the first that was lost");
        assert!(reach.is_minority(at(30_000), &list, GRACE, DEAD));
        reach.regained(ip(3));
        assert!(!reach.is_minority(at(30_000), &list, GRACE, DEAD));
    }

    #[test]
    fn nodes_that_were_lost_long_ago_are_no_part_of_the_ring() {
        let (list, mut reach) = (list(5), Reach::default());
        for node in 2..=4 {
            reach.lost(at(0), ip(node));
        }
        assert!(reach.is_minority(at(59_000), &list, GRACE, DEAD));
        assert!(!reach.is_minority(at(60_000), &list, GRACE, DEAD), "a ring of two goes on");
        reach.lost(at(61_000), ip(5));
        assert!(!reach.is_minority(at(70_000), &list, GRACE, DEAD), "half of two is not less than half");
    }
}
