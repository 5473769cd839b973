//! The connections of a pool: found by number, and by the address of their peer.

use core::cmp::Reverse;
use std::net::SocketAddr;

use super::Config;
use super::connection::{Connection, Stage};
use crate::tag::StreamId;
use crate::time::Instant;

/// All connections, and the sums over them.
#[derive(Clone, Debug)]
pub(super) struct Connections<L> {
    /// In the order of their numbers, for binary search.
    list: Vec<Connection<L>>,
    /// Usable connections, sorted by the address of their peer, the best first. So sending need not check every
    /// connection. A change of a connection renews the entries of its peer.
    usable: Vec<(Place, Rank, StreamId)>,
    queued_bytes: usize,
    unfinished_bytes: usize,
    unresponsive: usize,
    /// Whether connections are kept until the kernel closes them.
    keeps: bool,
}

/// An address as numbers, which compare faster.
type Place = (u128, u32);

/// The preference between two connections to one peer: a healthy one, then the one on which bytes arrived last.
type Rank = (u8, Reverse<Instant>);

/// All else follows from the list.
impl<L: PartialEq> PartialEq for Connections<L> {
    fn eq(&self, other: &Self) -> bool {
        self.list == other.list
    }
}

impl<L: Eq> Eq for Connections<L> {}

impl<L> Connections<L> {
    pub(super) fn new(keeps: bool) -> Self {
        let (queued_bytes, unfinished_bytes, unresponsive) = (0, 0, 0);
        Self { list: Vec::new(), usable: Vec::new(), queued_bytes, unfinished_bytes, unresponsive, keeps }
    }

    pub(super) fn insert(&mut self, mut connection: Connection<L>) {
        connection.keep(self.keeps);
        let at = self.index(connection.stream()).unwrap_or_else(|at| at);
        self.queued_bytes += connection.queued_bytes();
        let peer = connection.peer();
        self.list.insert(at, connection);
        self.renew(peer);
    }

    pub(super) fn remove(&mut self, stream: StreamId) -> Option<Connection<L>> {
        let connection = self.list.remove(self.index(stream).ok()?);
        self.queued_bytes -= connection.queued_bytes();
        self.unfinished_bytes -= connection.unfinished_bytes();
        self.unresponsive -= usize::from(connection.health().is_unresponsive());
        self.renew(connection.peer());
        Some(connection)
    }

    /// Changes a connection, and updates the sums and the usable connections.
    pub(super) fn change<T>(
        &mut self,
        stream: StreamId,
        change: impl FnOnce(&mut Connection<L>) -> T,
    ) -> Option<T> {
        let at = self.index(stream).ok()?;
        let connection = &mut self.list[at];
        let look = |at: &Connection<L>| (at.stage(), at.peer().is_some(), at.health().is_unresponsive());
        let before = look(connection);
        self.queued_bytes -= connection.queued_bytes();
        self.unfinished_bytes -= connection.unfinished_bytes();
        let result = change(connection);
        self.queued_bytes += connection.queued_bytes();
        self.unfinished_bytes += connection.unfinished_bytes();
        let after = look(connection);
        if before != after {
            let peer = connection.peer();
            self.unresponsive = self.unresponsive - usize::from(before.2) + usize::from(after.2);
            self.renew(peer);
        }
        Some(result)
    }

    pub(super) fn get(&self, stream: StreamId) -> Option<&Connection<L>> {
        self.index(stream).ok().map(|at| &self.list[at])
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Connection<L>> {
        self.list.iter()
    }

    /// The numbers of the connections to an address that this node may close.
    pub(super) fn to(&self, peer: SocketAddr) -> Vec<StreamId> {
        self.list.iter().filter(|at| at.peer() == Some(peer) && !self.keeps).map(Connection::stream).collect()
    }

    /// The connections with a due action, and the next time of the others.
    pub(super) fn due(&self, now: Instant, config: &Config) -> (Vec<StreamId>, Option<Instant>) {
        let (mut due, mut next) = (Vec::new(), None);
        for connection in &self.list {
            let at = connection.next_due(config);
            if at <= now {
                due.push(connection.stream());
            } else if next.is_none_or(|next| at < next) {
                next = Some(at);
            }
        }
        (due, next)
    }

    /// The best connection to an address, now or once it is established.
    pub(super) fn usable(&self, to: SocketAddr) -> Option<StreamId> {
        let to = place(to);
        let at = self.usable.partition_point(|(place, ..)| *place < to);
        self.usable.get(at).filter(|(place, ..)| *place == to).map(|(.., stream)| *stream)
    }

    pub(super) fn len(&self) -> usize {
        self.list.len()
    }

    /// The queued bytes of all connections.
    pub(super) fn queued_bytes(&self) -> usize {
        self.queued_bytes
    }

    /// The bytes of incomplete large messages on all connections.
    pub(super) fn unfinished_bytes(&self) -> usize {
        self.unfinished_bytes
    }

    pub(super) fn has_unresponsive(&self) -> bool {
        self.unresponsive > 0
    }

    /// Renews the entries of the usable connections to a peer.
    fn renew(&mut self, peer: Option<SocketAddr>) {
        let Some(peer) = peer else { return };
        let to = place(peer);
        let first = self.usable.partition_point(|(place, ..)| *place < to);
        let count = self.usable[first..].iter().take_while(|(place, ..)| *place == to).count();
        self.usable.drain(first..first + count);
        let usable = self.list.iter().filter(|at| at.peer() == Some(peer) && at.is_usable());
        for (count, connection) in usable.enumerate() {
            let entry = (to, rank(connection), connection.stream());
            let at = self.usable[first..first + count].partition_point(|other| *other < entry);
            self.usable.insert(first + at, entry);
        }
    }

    fn index(&self, stream: StreamId) -> Result<usize, usize> {
        self.list.binary_search_by_key(&stream, Connection::stream)
    }
}

fn rank<L>(connection: &Connection<L>) -> Rank {
    let class = match connection.stage() {
        Stage::Open if !connection.health().is_unresponsive() => 0,
        Stage::Open => 1,
        Stage::Connecting => 2,
        _ => 3,
    };
    (class, Reverse(connection.health().heard()))
}

fn place(addr: SocketAddr) -> Place {
    let port = u32::from(addr.port());
    match addr {
        SocketAddr::V4(addr) => (u128::from(addr.ip().to_bits()), port),
        // No address of the other family has a port beyond 16 bits.
        SocketAddr::V6(addr) => (addr.ip().to_bits(), port | 1 << 16),
    }
}
