//! NOUNCE, and the HEREs that keep the ring together.
//!
//! HERE is the only message by which nodes learn of each other. Three uses of it keep the ring together:
//!
//! - *announce* (NOUNCE): the node sends its HERE to the known nodes, at the start and while peers are missing;
//! - *introduce* (MA-36a): the two neighbours of a new peer get its HERE. A new neighbour of this node also gets the
//!   HERE of the other neighbour;
//! - *maintain*: after a change next to it, the node introduces its neighbours to each other and to the peers behind
//!   them a few times more, at intervals that double. That makes up for lost datagrams. At the longest interval it also
//!   sends its HERE to one known node that is no peer, for ever. So two rings become one after a partition.

use core::time::Duration;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};

use super::Peering;
use crate::ring::closer;
use crate::w3w::config::Announce;
use crate::w3w::env::Cx;
use crate::w3w::machine::{HOLD_DOWN, UDP};
use crate::w3w::message::Here;
use crate::w3w::nid::Nid;
use crate::w3w::timers::Timer;
use crate::w3w::wire::{HERE_BYTES_MAX, encode_here};

/// The first repetition of NOUNCE, the longest pause with an empty ring, and the longest below `peers_min`.
const ANNOUNCE_FIRST: Duration = Duration::from_secs(5);
const ANNOUNCE_LAST: Duration = Duration::from_secs(300);
const ANNOUNCE_BELOW_MIN: Duration = Duration::from_secs(600);
/// The pause between two rounds of maintenance: after a change, and at most.
const MAINTAIN_FIRST: Duration = Duration::from_secs(30);
const MAINTAIN_LAST: Duration = Duration::from_secs(600);
/// How often a settled round of a full ring sends HERE to an unconnected node.
const UNCONNECTED_CHANCE_FULL: f64 = 0.25;
/// How many known nodes get a HERE when a neighbour is lost.
const RESCUE_NODES: usize = 3;
/// How many nodes from HEREs are remembered, to dial when a neighbour is lost.
const CANDIDATES_MAX: usize = 16;

impl Peering {
    /// NOUNCE (M-33, M-34): HERE to every known node, latest first, and to the seeds.
    pub(in crate::w3w) fn announce(&mut self, cx: &mut Cx<'_, '_>) {
        tracing::debug!(state = "NOUNCE", nid = %cx.low.env.own);
        let addresses = if cx.low.ring.len() == 0 { self.addresses(cx) } else { self.unconnected(cx) };
        for (index, ip) in addresses.into_iter().enumerate() {
            let mut here = cx.low.env.here();
            if let Announce::Incrementing { ports } = cx.low.env.config.announce {
                // M-34 taken literally: `++port` for each of them.
                here.at.set_port(cx.low.env.at.port() + 1 + (index % usize::from(ports)) as u16);
            }
            send_here(cx, here, ip);
        }
        self.plan_announce(cx, true);
    }

    /// MA-21: again after 5 s, doubling up to 5 min while the ring is empty, and up to 10 min below `peers_min`.
    pub(in crate::w3w) fn plan_announce(&mut self, cx: &mut Cx<'_, '_>, is_announced: bool) {
        if cx.low.ring.len() >= cx.low.env.config.peers_min && cx.low.ring.len() > 0 {
            self.introducer.announce_interval = Duration::ZERO;
            cx.low.env.timers.cancel(Timer::Announce);
            return;
        }
        let longest = if cx.low.ring.len() == 0 { ANNOUNCE_LAST } else { ANNOUNCE_BELOW_MIN };
        let doubled = if is_announced { self.introducer.announce_interval * 2 } else { ANNOUNCE_FIRST };
        let pause = doubled.clamp(ANNOUNCE_FIRST, longest);
        self.introducer.announce_interval = pause;
        if cx.low.env.is_stopping {
            return;
        }
        if is_announced {
            cx.low.env.timers.set(Timer::Announce, cx.low.now.mono + pause);
        } else {
            cx.low.env.timers.set_earlier(Timer::Announce, cx.low.now.mono + pause);
        }
    }

    /// Sends the HERE of `about` to `to`, both peers, unless that was done within the hold-down (MA-37).
    pub(in crate::w3w) fn introduce(&mut self, cx: &mut Cx<'_, '_>, about: Nid, to: Nid) {
        let (Some(here), Some(route)) = (cx.low.ring.here(about), cx.low.ring.get(to)) else { return };
        self.tell(cx, here, to, *route.at.ip());
    }

    /// Sends a HERE to the node `to` at `ip`, unless that was done within the hold-down (MA-37).
    pub(in crate::w3w) fn tell(&mut self, cx: &mut Cx<'_, '_>, here: Here, to: Nid, ip: Ipv4Addr) {
        let is_useless = here.nid == to || cx.low.env.config.introduces_nobody();
        if !is_useless
            && self.introducer.introduced.insert((here.nid, to), cx.low.now.mono, cx.low.now.mono + HOLD_DOWN)
        {
            cx.low.env.schedule_expiry();
            send_here(cx, here, ip);
        }
    }

    /// MA-36a: sends the HERE of a new peer to its neighbours in our ring.
    pub(in crate::w3w) fn introduce_newcomer(&mut self, cx: &mut Cx<'_, '_>, nid: Nid) {
        let (Some(younger), Some(older)) = (cx.low.ring.younger(nid), cx.low.ring.older(nid)) else { return };
        self.introduce(cx, nid, younger);
        self.introduce(cx, nid, older);
        if let Some((own_younger, own_older)) = cx.low.ring.neighbours()
            && (nid == own_younger || nid == own_older)
        {
            let other = if nid == own_younger { own_older } else { own_younger };
            self.introduce(cx, other, nid);
            self.maintain_now(cx);
        }
    }

    /// A round of maintenance.
    pub(in crate::w3w) fn maintain(&mut self, cx: &mut Cx<'_, '_>) {
        let is_settled = self.introducer.maintain_interval >= MAINTAIN_LAST;
        if let Some((younger, older)) = cx.low.ring.neighbours() {
            // A neighbour that failed silently would leave a gap: writing a few bytes detects it.
            let streams = [younger, older].map(|nid| cx.low.ring.get(nid).map(|route| route.stream));
            streams.into_iter().flatten().for_each(|stream| self.probe(cx, stream));
        }
        if !is_settled && let Some((younger, older)) = cx.low.ring.neighbours() {
            self.introduce(cx, older, younger);
            self.introduce(cx, younger, older);
            let behind = (cx.low.ring.younger(younger), cx.low.ring.older(older));
            if let (Some(second_younger), Some(second_older)) = behind {
                self.introduce(cx, younger, second_younger);
                self.introduce(cx, older, second_older);
            }
        }
        // A full ring refuses an unconnected node and sends it a hint, which costs both sides more. So it sends HERE
        // less often.
        let is_full = cx.low.ring.len() >= cx.low.env.config.peers_max;
        if cx.low.ring.len() > 0
            && (!is_full || !is_settled || cx.low.env.rng.chance(UNCONNECTED_CHANCE_FULL))
        {
            let unconnected = self.unconnected(cx);
            if let Some(&ip) = cx.low.env.rng.pick(&unconnected) {
                send_here(cx, cx.low.env.here(), ip);
            }
        }
        self.introducer.maintain_interval =
            (self.introducer.maintain_interval * 2).clamp(MAINTAIN_FIRST, MAINTAIN_LAST);
        self.schedule_maintenance(cx);
    }

    /// Starts maintenance again at the shortest interval: something changed next to this node.
    pub(in crate::w3w) fn maintain_now(&mut self, cx: &mut Cx<'_, '_>) {
        self.introducer.maintain_interval = MAINTAIN_FIRST;
        self.schedule_maintenance(cx);
    }

    fn schedule_maintenance(&mut self, cx: &mut Cx<'_, '_>) {
        if !cx.low.env.is_stopping {
            // Nodes that started together draw different offsets.
            let jitter = cx.low.env.rng.duration_below(self.introducer.maintain_interval / 4);
            cx.low
                .env
                .timers
                .set(Timer::Maintain, cx.low.now.mono + self.introducer.maintain_interval - jitter);
        }
    }

    /// MA-21a: handles the loss of a neighbour. Dials the nearest candidate on each side, and sends HERE to a few known
    /// nodes. Through them the new neighbour of this node learns of it.
    pub(in crate::w3w) fn on_neighbour_lost(&mut self, cx: &mut Cx<'_, '_>) {
        self.maintain_now(cx);
        let heard: Vec<Here> = self.directory.candidates.iter().map(|(&nid, &at)| Here { nid, at }).collect();
        for here in heard {
            if cx.low.ring.is_neighbour(here.nid) && self.may_dial(cx, here) {
                self.directory.candidates.remove(&here.nid);
                self.dial(cx, here, false);
            }
        }
        let mut unconnected = self.unconnected(cx);
        cx.low.env.rng.shuffle(&mut unconnected);
        for ip in unconnected.into_iter().take(RESCUE_NODES) {
            send_here(cx, cx.low.env.here(), ip);
        }
    }

    /// Remembers a node that was not dialled, if it is nearer than those remembered.
    pub(in crate::w3w) fn remember_candidate(&mut self, cx: &Cx<'_, '_>, here: Here) {
        self.directory.candidates.insert(here.nid, here.at);
        if self.directory.candidates.len() > CANDIDATES_MAX {
            let farthest = self
                .directory
                .candidates
                .keys()
                .copied()
                .reduce(|far, nid| if closer(cx.low.env.own, far, nid) { nid } else { far });
            farthest.map(|nid| self.directory.candidates.remove(&nid));
        }
    }

    /// Known nodes and seeds, without the own address (MF-20).
    fn addresses(&self, cx: &Cx<'_, '_>) -> Vec<Ipv4Addr> {
        let mut addresses: Vec<Ipv4Addr> = self.directory.known.list().iter().map(|node| node.ip).collect();
        let seeds = cx.low.env.config.seeds.iter().filter(|seed| !addresses.contains(seed));
        addresses.extend(seeds.copied().collect::<Vec<_>>());
        addresses.retain(|ip| ip != cx.low.env.at.ip());
        addresses
    }

    /// Addresses without a peer.
    fn unconnected(&self, cx: &Cx<'_, '_>) -> Vec<Ipv4Addr> {
        let peers: std::collections::BTreeSet<Ipv4Addr> =
            cx.low.ring.iter().map(|(_, route)| *route.at.ip()).collect();
        self.addresses(cx).into_iter().filter(|ip| !peers.contains(ip)).collect()
    }
}

/// Sends a HERE by datagram.
pub(in crate::w3w) fn send_here(cx: &mut Cx<'_, '_>, here: Here, ip: Ipv4Addr) {
    let to = SocketAddr::V4(SocketAddrV4::new(ip, cx.low.env.config.bind.port()));
    cx.low.env.counters.here_sent += 1;
    cx.low
        .out
        .send_with(UDP, to, HERE_BYTES_MAX, |writer| encode_here(&here, writer))
        .expect("no HERE is longer than the longest");
}
