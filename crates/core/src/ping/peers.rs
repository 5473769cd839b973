//! The peers: the pinged addresses, and the state of each.

use core::time::Duration;
use std::net::SocketAddr;

use serde::Serialize;

use super::{Event, rtt_micros};

/// Whether a peer answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PeerState {
    /// No answer came yet.
    Unknown,
    /// It answers.
    Present,
    /// It no longer answers.
    Vanished,
}

/// The state of a peer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PeerStatus {
    /// Its address.
    pub addr: SocketAddr,
    /// Whether it answers.
    pub state: PeerState,
    /// The smoothed round-trip time in microseconds; `None` before the first answer.
    pub rtt_micros: Option<u64>,
    /// Pings it answered.
    pub answered: u64,
    /// Pings it did not answer.
    pub missed: u64,
    /// Misses since the last answer.
    pub missed_in_a_row: u32,
}

/// All peers, in the order they were added.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Peers {
    list: Vec<PeerStatus>,
    peers_max: usize,
    vanished_after: u32,
}

impl Peers {
    pub(super) fn new(addrs: &[SocketAddr], peers_max: usize, vanished_after: u32) -> Self {
        let mut peers = Self { list: Vec::with_capacity(addrs.len()), peers_max, vanished_after };
        for &addr in addrs {
            peers.add(addr);
        }
        peers
    }

    /// Adds a peer. Returns false if there is no room. A known one stays unchanged.
    pub(super) fn add(&mut self, addr: SocketAddr) -> bool {
        if self.list.iter().any(|peer| peer.addr == addr) {
            return true;
        }
        if self.list.len() >= self.peers_max {
            return false;
        }
        self.list.push(PeerStatus {
            addr,
            state: PeerState::Unknown,
            rtt_micros: None,
            answered: 0,
            missed: 0,
            missed_in_a_row: 0,
        });
        true
    }

    pub(super) fn remove(&mut self, addr: SocketAddr) {
        self.list.retain(|peer| peer.addr != addr);
    }

    /// Notes an answer. Returns the event if the peer's state changed.
    pub(super) fn answered(&mut self, addr: SocketAddr, rtt: Duration) -> Option<Event> {
        let peer = self.list.iter_mut().find(|peer| peer.addr == addr)?;
        let sample = rtt_micros(rtt);
        // One eighth of the new sample, as RFC 6298 smooths a round-trip time.
        peer.rtt_micros = Some(peer.rtt_micros.map_or(sample, |old| (old * 7 + sample) / 8));
        peer.answered += 1;
        peer.missed_in_a_row = 0;
        let appeared = peer.state != PeerState::Present;
        peer.state = PeerState::Present;
        appeared.then_some(Event::PeerAppeared { peer: addr })
    }

    /// Notes a miss. Returns the event if the peer's state changed.
    pub(super) fn missed(&mut self, addr: SocketAddr) -> Option<Event> {
        let peer = self.list.iter_mut().find(|peer| peer.addr == addr)?;
        peer.missed += 1;
        peer.missed_in_a_row = peer.missed_in_a_row.saturating_add(1);
        let vanished = peer.missed_in_a_row >= self.vanished_after && peer.state != PeerState::Vanished;
        if vanished {
            peer.state = PeerState::Vanished;
        }
        vanished.then_some(Event::PeerVanished { peer: addr })
    }

    pub(super) fn len(&self) -> usize {
        self.list.len()
    }

    pub(super) fn addr(&self, index: usize) -> SocketAddr {
        self.list[index].addr
    }

    pub(super) fn list(&self) -> &[PeerStatus] {
        &self.list
    }
}
