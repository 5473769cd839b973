//! NOUNCE, and the HEREs that keep the ring together.
//!
//! Only HERE is there to tell nodes of each other, so three habits of it make every ring good enough:
//!
//! - *announce* (NOUNCE): we tell the known nodes that we are here, at the start and while peers are missing;
//! - *introduce* (MA-36a): a new peer's two neighbours in our ring are told of it, and it of our other neighbour if
//!   it is next to us;
//! - *tend*: after a change next to us, our neighbours are introduced to each other and to those behind them a few
//!   times more, at pauses that double, which makes good a lost datagram; and for ever, at the longest pause, one known
//!   node that is no peer is told of us, which makes one ring of two after a partition has healed.

use core::time::Duration;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};

use super::alarms::Alarm;
use super::config::{Announce, Fault};
use super::machine::{HOLD_DOWN, Mesh, Out, UDP};
use super::message::Here;
use super::nid::Nid;
use super::wire::{HERE_BYTES_MAX, encode_here};
use crate::ring::closer;
use crate::time::Now;

/// The first repetition of NOUNCE with an empty ring, the longest pause then, and the pause below `peers_min`.
const ANNOUNCE_FIRST: Duration = Duration::from_secs(5);
const ANNOUNCE_LAST: Duration = Duration::from_secs(300);
const ANNOUNCE_BELOW_MIN: Duration = Duration::from_secs(600);
/// The pause between two rounds of tending: after a change, and at most.
const TEND_FIRST: Duration = Duration::from_secs(30);
const TEND_LAST: Duration = Duration::from_secs(600);
/// How often a settled round of a full ring tells a stranger of us.
const STRANGER_CHANCE_FULL: f64 = 0.25;
/// How many known nodes are told of us when a neighbour is lost.
const RESCUE_NODES: usize = 3;
/// How many nodes we have heard of are kept for the day a neighbour is lost.
const CANDIDATES_MAX: usize = 16;

impl Mesh {
    /// NOUNCE (M-33, M-34): HERE to every known node, latest first, and to the seeds.
    pub(super) fn announce(&mut self, now: Now, out: Out<'_, '_>) {
        tracing::debug!(state = "NOUNCE", nid = %self.own);
        for (index, ip) in self.addresses().into_iter().enumerate() {
            let mut here = self.here();
            if let Announce::Incrementing { ports } = self.config.announce {
                // M-34 by the letter: `++port` for each of them.
                here.at.set_port(self.at.port() + 1 + (index % usize::from(ports)) as u16);
            }
            self.send_here(here, ip, out);
        }
        self.plan_announce(now, true);
    }

    /// MA-21: again after 5 s, doubling to 5 min, while the ring is empty; every 10 min below `peers_min`.
    pub(super) fn plan_announce(&mut self, now: Now, is_announced: bool) {
        let pause = if self.ring.len() == 0 {
            let doubled = if is_announced { self.announce_interval * 2 } else { ANNOUNCE_FIRST };
            self.announce_interval = doubled.clamp(ANNOUNCE_FIRST, ANNOUNCE_LAST);
            self.announce_interval
        } else if self.ring.len() < self.config.peers_min {
            self.announce_interval = Duration::ZERO;
            ANNOUNCE_BELOW_MIN
        } else {
            self.announce_interval = Duration::ZERO;
            return self.alarms.clear(Alarm::Announce);
        };
        if self.is_stopping {
            return;
        }
        if is_announced || self.ring.len() > 0 {
            self.alarms.set(Alarm::Announce, now.mono + pause);
        } else {
            self.alarms.set_by(Alarm::Announce, now.mono + pause);
        }
    }

    /// Tells `to` of `about`, both peers, unless that was done within the hold-down (MA-37).
    pub(super) fn introduce(&mut self, now: Now, about: Nid, to: Nid, out: Out<'_, '_>) {
        let (Some(here), Some(route)) = (self.ring.here(about), self.ring.get(to)) else { return };
        self.tell(now, here, to, *route.at.ip(), out);
    }

    /// Tells the node `to` at `ip` of somebody, unless that was done within the hold-down (MA-37).
    pub(super) fn tell(&mut self, now: Now, here: Here, to: Nid, ip: Ipv4Addr, out: Out<'_, '_>) {
        let is_useless = here.nid == to || self.config.fault == Some(Fault::NoIntroductions);
        if !is_useless && self.introduced.add((here.nid, to), now.mono, now.mono + HOLD_DOWN) {
            self.remind(now);
            self.send_here(here, ip, out);
        }
    }

    /// MA-36a: whoever is next to a new peer in our ring is told of it.
    pub(super) fn introduce_newcomer(&mut self, now: Now, nid: Nid, out: Out<'_, '_>) {
        let (Some(younger), Some(older)) = (self.ring.younger(nid), self.ring.older(nid)) else { return };
        self.introduce(now, nid, younger, out);
        self.introduce(now, nid, older, out);
        if let Some((own_younger, own_older)) = self.ring.neighbours()
            && (nid == own_younger || nid == own_older)
        {
            let other = if nid == own_younger { own_older } else { own_younger };
            self.introduce(now, other, nid, out);
            self.hurry_tending(now);
        }
    }

    /// A round of tending.
    pub(super) fn tend(&mut self, now: Now, out: Out<'_, '_>) {
        let is_settled = self.tend_interval >= TEND_LAST;
        if let Some((younger, older)) = self.ring.neighbours() {
            // A neighbour that died without a word would leave a hole: a few bytes find it out.
            let streams = [younger, older].map(|nid| self.ring.get(nid).map(|route| route.stream));
            streams.into_iter().flatten().for_each(|stream| self.probe(now, stream, out));
        }
        if !is_settled && let Some((younger, older)) = self.ring.neighbours() {
            self.introduce(now, older, younger, out);
            self.introduce(now, younger, older, out);
            let behind = (self.ring.younger(younger), self.ring.older(older));
            if let (Some(second_younger), Some(second_older)) = behind {
                self.introduce(now, younger, second_younger, out);
                self.introduce(now, older, second_older, out);
            }
        }
        // A full ring answers a stranger with a refusal and a hint, which costs both sides more: it asks less often.
        let is_full = self.ring.len() >= self.config.peers_max;
        if self.ring.len() > 0 && (!is_full || !is_settled || self.rng.chance(STRANGER_CHANCE_FULL)) {
            let strangers = self.strangers();
            if let Some(&ip) = self.rng.pick(&strangers) {
                self.send_here(self.here(), ip, out);
            }
        }
        self.tend_interval = (self.tend_interval * 2).clamp(TEND_FIRST, TEND_LAST);
        self.plan_tending(now);
    }

    /// Something changed next to us: tend soon, and often again.
    pub(super) fn hurry_tending(&mut self, now: Now) {
        self.tend_interval = TEND_FIRST;
        self.plan_tending(now);
    }

    fn plan_tending(&mut self, now: Now) {
        if !self.is_stopping {
            // Nodes that started together do not tend together.
            let jitter = self.rng.duration_below(self.tend_interval / 4);
            self.alarms.set(Alarm::Tend, now.mono + self.tend_interval - jitter);
        }
    }

    /// MA-21a: a neighbour is gone. Dials the nearest node we have heard of on each side, and tells a few known
    /// nodes of us: through them whoever is next to us now will hear of it.
    pub(super) fn neighbour_lost(&mut self, now: Now, out: Out<'_, '_>) {
        self.hurry_tending(now);
        let heard: Vec<Here> = self.candidates.iter().map(|(&nid, &at)| Here { nid, at }).collect();
        for here in heard {
            if self.ring.is_neighbour(here.nid) && self.may_dial(now, here) {
                self.candidates.remove(&here.nid);
                self.dial(now, here, false, out);
            }
        }
        let mut strangers = self.strangers();
        self.rng.shuffle(&mut strangers);
        for ip in strangers.into_iter().take(RESCUE_NODES) {
            self.send_here(self.here(), ip, out);
        }
    }

    /// Remembers a node that was not dialled, if it is nearer to us than those remembered.
    pub(super) fn remember_candidate(&mut self, here: Here) {
        self.candidates.insert(here.nid, here.at);
        if self.candidates.len() > CANDIDATES_MAX {
            let farthest = self
                .candidates
                .keys()
                .copied()
                .reduce(|far, nid| if closer(self.own, far, nid) { nid } else { far });
            farthest.map(|nid| self.candidates.remove(&nid));
        }
    }

    pub(super) fn send_here(&mut self, here: Here, ip: Ipv4Addr, out: Out<'_, '_>) {
        let to = SocketAddr::V4(SocketAddrV4::new(ip, self.config.bind.port()));
        self.counters.here_sent += 1;
        out.send_with(UDP, to, HERE_BYTES_MAX, |writer| encode_here(&here, writer))
            .expect("no HERE is longer than the longest");
    }

    /// Known nodes and seeds, without ourselves (MF-20).
    fn addresses(&self) -> Vec<Ipv4Addr> {
        let mut addresses: Vec<Ipv4Addr> = self.known.list().iter().map(|node| node.ip).collect();
        let seeds = self.config.seeds.iter().filter(|seed| !addresses.contains(seed));
        addresses.extend(seeds.copied().collect::<Vec<_>>());
        addresses.retain(|ip| ip != self.at.ip());
        addresses
    }

    /// Addresses at which no peer of ours is.
    fn strangers(&self) -> Vec<Ipv4Addr> {
        let peers: std::collections::BTreeSet<Ipv4Addr> =
            self.ring.iter().map(|(_, route)| *route.at.ip()).collect();
        self.addresses().into_iter().filter(|ip| !peers.contains(ip)).collect()
    }
}
