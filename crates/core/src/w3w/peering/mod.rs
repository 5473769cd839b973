//! Peering: how nodes find each other, which of them connect, and the resulting ring.

mod announce;
mod dial;
mod handshake;
mod known;

use core::time::Duration;
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddrV4};

use super::Event;
use super::book::Presence;
use super::config::Config;
use super::disk::Pending;
use super::env::Cx;
use super::known_nodes::KnownNode;
use super::machine::{HOLD_DOWN_MAX, KNOWN};
use super::message::Here;
use super::nid::Nid;
use super::timers::Timer;
use super::wire::message_frame;
use crate::common::{ExpiringSet, RateLimiter, Timers};
use crate::tag::StreamId;
use crate::time::Instant;

pub(super) use announce::send_here;
use known::Known;

/// The most refused callers that a full ring admits when they dial again.
const RESERVED_MAX: usize = 16;

/// The peering of a node.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Peering {
    directory: Directory,
    dialer: Dialer,
    introducer: Introducer,
}

/// The known nodes, and facts about them.
#[derive(Clone, Debug, PartialEq)]
struct Directory {
    known: Known,
    /// Nodes named by others and not dialled, nearest to this node.
    candidates: BTreeMap<Nid, SocketAddrV4>,
    /// Peers dropped by OPTIMIZE: a HERE does not bring them back for a while (MA-37).
    held_down: ExpiringSet<Nid>,
    /// Nodes that refused this one: a full ring does not dial them for a while, unless they belong next to it.
    refused_by: ExpiringSet<Nid>,
    /// Refused callers that belong next to this node: the next time they are admitted, even if the ring is full.
    reserved: ExpiringSet<Nid>,
}

/// Limits of dialling.
#[derive(Clone, Debug, PartialEq)]
struct Dialer {
    /// Broken connections that are dialled once more.
    redials: BTreeMap<Nid, Here>,
    redials_due: Timers<Nid>,
    by_source: RateLimiter<Ipv4Addr>,
    by_target: RateLimiter<Ipv4Addr>,
    dial_limit: RateLimiter<()>,
}

/// HEREs about this node and about its peers.
#[derive(Clone, Debug, PartialEq)]
struct Introducer {
    /// Pairs of nodes that were introduced (MA-37).
    introduced: ExpiringSet<(Nid, Nid)>,
    room_limit: RateLimiter<()>,
    announce_interval: Duration,
    maintain_interval: Duration,
}

impl Peering {
    pub(super) fn new(config: &Config) -> Self {
        let second = Duration::from_secs(1);
        Self {
            directory: Directory {
                known: Known::new(config.known_max),
                candidates: BTreeMap::new(),
                held_down: ExpiringSet::new(HOLD_DOWN_MAX),
                refused_by: ExpiringSet::new(HOLD_DOWN_MAX),
                reserved: ExpiringSet::new(RESERVED_MAX),
            },
            dialer: Dialer {
                redials: BTreeMap::new(),
                redials_due: Timers::default(),
                by_source: RateLimiter::new(16, second / 4, 1024),
                by_target: RateLimiter::new(4, 15 * second, 1024),
                dial_limit: RateLimiter::new(64, second / 32, 1),
            },
            introducer: Introducer {
                introduced: ExpiringSet::new(HOLD_DOWN_MAX),
                room_limit: RateLimiter::new(4, 5 * second, 1),
                announce_interval: Duration::ZERO,
                maintain_interval: Duration::ZERO,
            },
        }
    }

    /// Adds a known node from a file, from the store or from the configuration.
    pub(super) fn load_known(&mut self, node: KnownNode, now_seconds: u64) {
        self.directory.known.merge(node, now_seconds);
    }

    /// The known nodes, latest first.
    pub(super) fn known(&self) -> Vec<KnownNode> {
        self.directory.known.list()
    }

    /// Notes a contact with another node (M-3).
    pub(super) fn contacted(&mut self, cx: &mut Cx<'_, '_>, ip: Ipv4Addr) {
        if self.directory.known.contacted(ip, cx.low.now.wall.as_seconds()) {
            cx.low.env.timers.set_earlier(Timer::StoreKnown, cx.low.now.mono + Duration::from_secs(1));
        }
    }

    /// Handles a report of `members` about a node (CU-15). Messages for a dead peer take another path at once.
    pub(super) fn on_member(
        &mut self,
        cx: &mut Cx<'_, '_>,
        nid: Nid,
        ip: Option<Ipv4Addr>,
        presence: Presence,
    ) {
        let stream = cx.low.ring.get(nid).map(|route| route.stream);
        match (presence, stream) {
            (Presence::Dead | Presence::Left, Some(stream)) => self.on_peer_silent(cx, stream),
            // The node may have restarted without this connection: a ping detects that.
            (Presence::Suspected | Presence::Alive, Some(stream)) => ping(cx, stream),
            (Presence::Alive, None) => {
                if let Some(ip) = ip.filter(|ip| ip != cx.low.env.at.ip()) {
                    self.contacted(cx, ip);
                    let is_wanted = cx.low.ring.len() < cx.low.env.config.peers_min
                        || cx.low.ring.is_neighbour(nid)
                        || cx.forward.waits_for(nid);
                    if is_wanted {
                        let here = cx.low.env.here();
                        send_here(cx, here, ip);
                    }
                }
            }
            _ => {}
        }
    }

    /// Stores the known nodes (M-2), and reports that the file is to be written.
    pub(super) fn store_known(&mut self, cx: &mut Cx<'_, '_>) {
        let list = self.directory.known.list();
        let op = cx.low.disk.begin(Pending::Other);
        cx.low.out.batch(op, false, |batch| {
            for node in &list {
                batch.put(KNOWN, &node.ip.octets(), &node.seen_at.to_be_bytes());
            }
        });
        cx.low.out.event(Event::KnownNodesChanged { nodes: list.len() });
    }

    /// Forgets everything that has expired.
    pub(super) fn expire(&mut self, now: Instant) {
        while self.directory.held_down.pop_expired(now).is_some() {}
        while self.directory.refused_by.pop_expired(now).is_some() {}
        while self.directory.reserved.pop_expired(now).is_some() {}
        while self.introducer.introduced.pop_expired(now).is_some() {}
    }

    pub(super) fn next_deadline(&self) -> Option<Instant> {
        let deadlines = [
            self.directory.held_down.next_deadline(),
            self.directory.refused_by.next_deadline(),
            self.directory.reserved.next_deadline(),
            self.introducer.introduced.next_deadline(),
        ];
        deadlines.into_iter().flatten().min()
    }
}

/// Pings a peer that speaks custody.
pub(super) fn ping(cx: &mut Cx<'_, '_>, stream: StreamId) {
    let Some(nid) = cx.low.links.get(stream).and_then(super::links::Link::nid) else { return };
    if let Some(data) = cx.low.custody.ping(stream, cx.low.now.mono) {
        let frame = message_frame(cx.low.env.own, nid, &data);
        cx.forward.write_control(&mut cx.low, stream, frame);
        cx.low.env.schedule_custody();
    }
}
