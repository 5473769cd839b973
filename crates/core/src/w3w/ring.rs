//! The routing ring: the connected peers, in ascending order of their NIDs, closed to a circle.
//!
//! The document builds it with a table of pointer steps that, taken literally, inserts nothing (MA-1 … MA-9). An
//! ordered map does what the table is meant to do. NEW_NODE is `insert`, DEL_NODE is `remove`, NEXT and COMPARE are the
//! search of the map, RE_SORT is its order. Younger is counter-clockwise, older is clockwise.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddrV4};

use serde::Serialize;

use super::message::Here;
use super::nid::Nid;
use crate::ring::{clockwise, closer};
use crate::tag::StreamId;

/// The side that dialled (M-9).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// The peer dialled this node.
    In,
    /// This node dialled the peer.
    Out,
}

/// An element of the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Route {
    pub(super) at: SocketAddrV4,
    pub(super) direction: Direction,
    pub(super) stream: StreamId,
}

/// A peer in the ring, as shown to the application.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Peer {
    /// Its address in the mesh.
    pub nid: Nid,
    /// Its IP address.
    pub ip: Ipv4Addr,
    /// The port of its listener.
    pub port: u16,
    /// The side that dialled.
    pub direction: Direction,
}

/// The three nodes that are "too close" (M-42), by NID.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Triple {
    pub(super) younger: Nid,
    pub(super) middle: Nid,
    pub(super) older: Nid,
}

/// All peers that are connected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Ring {
    own: Nid,
    routes: BTreeMap<Nid, Route>,
}

impl Ring {
    /// The empty ring of phase INIT (M-8, M-30). The own NID is never in it (MA-34).
    pub(super) fn new(own: Nid) -> Self {
        Self { own, routes: BTreeMap::new() }
    }

    /// NEW_NODE: inserts a route, or updates it (MA-8).
    pub(super) fn insert(&mut self, nid: Nid, route: Route) {
        if nid != self.own {
            self.routes.insert(nid, route);
        }
    }

    /// DEL_NODE: removes a route; does nothing if it is absent (MA-9).
    pub(super) fn remove(&mut self, nid: Nid) -> Option<Route> {
        self.routes.remove(&nid)
    }

    pub(super) fn len(&self) -> usize {
        self.routes.len()
    }

    pub(super) fn get(&self, nid: Nid) -> Option<&Route> {
        self.routes.get(&nid)
    }

    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = (Nid, &Route)> {
        self.routes.iter().map(|(nid, route)| (*nid, route))
    }

    /// The HERE of a peer.
    pub(super) fn here(&self, nid: Nid) -> Option<Here> {
        self.get(nid).map(|route| Here { nid, at: route.at })
    }

    /// The next peer counter-clockwise of `point`, `point` itself excluded unless it is the only one.
    pub(super) fn younger(&self, point: Nid) -> Option<Nid> {
        self.routes.range(..point).next_back().or_else(|| self.routes.last_key_value()).map(|(nid, _)| *nid)
    }

    /// The next peer clockwise of `point`.
    pub(super) fn older(&self, point: Nid) -> Option<Nid> {
        let above = (core::ops::Bound::Excluded(point), core::ops::Bound::Unbounded);
        self.routes.range(above).next().or_else(|| self.routes.first_key_value()).map(|(nid, _)| *nid)
    }

    /// The own neighbours.
    pub(super) fn neighbours(&self) -> Option<(Nid, Nid)> {
        Some((self.younger(self.own)?, self.older(self.own)?))
    }

    /// The younger and the older peer for a recipient (M-48), leaving out the peers in `except`.
    pub(super) fn around(&self, point: Nid, except: &[Nid]) -> Option<(Nid, Nid)> {
        let is_left = |nid: &&Nid| !except.contains(nid);
        let above = (core::ops::Bound::Excluded(point), core::ops::Bound::Unbounded);
        let nids = |(nid, _)| nid;
        let before = self.routes.range(..point).rev().chain(self.routes.range(point..).rev());
        let after = self.routes.range(above).chain(self.routes.range(..=point));
        Some((*before.map(nids).find(is_left)?, *after.map(nids).find(is_left)?))
    }

    /// The peer nearest to `point`.
    pub(super) fn nearest(&self, point: Nid) -> Option<Nid> {
        let (younger, older) = self.around(point, &[])?;
        Some(if closer(point, younger, older) { younger } else { older })
    }

    /// Whether `nid` is or would be next to this node in the ring.
    pub(super) fn is_neighbour(&self, nid: Nid) -> bool {
        let Some((younger, older)) = self.neighbours() else { return true };
        clockwise(self.own, nid) <= clockwise(self.own, older)
            || clockwise(nid, self.own) <= clockwise(younger, self.own)
    }

    /// OPTIMIZE 1 (M-42, MA-35, MA-36): the consecutive triple with the smallest span. The own neighbours are never the
    /// middle, and the smallest middle wins a tie. `with` is counted as if it were in the ring.
    pub(super) fn too_close(&self, with: Option<Nid>) -> Option<Triple> {
        let mut nids: Vec<Nid> = self.routes.keys().copied().collect();
        if let Some(nid) = with
            && let Err(place) = nids.binary_search(&nid)
        {
            nids.insert(place, nid);
        }
        if nids.len() < 3 {
            return None;
        }
        let place = nids.partition_point(|nid| *nid < self.own);
        let (older, younger) = (nids[place % nids.len()], nids[(place + nids.len() - 1) % nids.len()]);
        let triples = (0..nids.len()).map(|at| Triple {
            younger: nids[(at + nids.len() - 1) % nids.len()],
            middle: nids[at],
            older: nids[(at + 1) % nids.len()],
        });
        triples
            .filter(|triple| triple.middle != younger && triple.middle != older)
            .min_by_key(|triple| (clockwise(triple.younger, triple.older), triple.middle))
    }

    /// The ring in the form of the document: an array of one-entry objects, in order, all values strings (M-9, MA-58).
    pub(super) fn to_json(&self) -> String {
        let elements: Vec<String> = (self.routes.iter())
            .map(|(nid, route)| {
                let direction = if route.direction == Direction::In { "in" } else { "out" };
                let (ip, port) = (route.at.ip(), route.at.port());
                format!(r#"{{"{nid}": {{"ip": "{ip}", "port": "{port}", "direction": "{direction}"}}}}"#)
            })
            .collect();
        format!("[{}]", elements.join(", "))
    }

    pub(super) fn peers(&self) -> Vec<Peer> {
        let peer = |(nid, route): (Nid, &Route)| Peer {
            nid,
            ip: *route.at.ip(),
            port: route.at.port(),
            direction: route.direction,
        };
        self.iter().map(peer).collect()
    }
}
