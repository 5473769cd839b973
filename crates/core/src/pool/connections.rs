//! The connections of a pool: found by number, and by the address of their peer.

use core::cmp::Reverse;
use std::net::SocketAddr;

use super::Config;
use super::connection::{Connection, Due, Stage};
use crate::tag::StreamId;
use crate::time::Instant;

/// All connections, the sums over them, and their timers.
#[derive(Clone, Debug)]
pub(super) struct Connections<L> {
    config: Config,
    /// In the order of their numbers, for binary search.
    list: Vec<Connection<L>>,
    /// Usable connections, sorted by the address of their peer, the best first. So sending need not check every
    /// connection. A change of a connection renews the entries of its peer.
    usable: Vec<(Place, Rank, StreamId)>,
    /// The timer of each, in the same order: never later than its next action. They are in an array of their own, because all
    /// are scanned, once the first may have expired.
    timers: Vec<Instant>,
    /// No timer expires before this.
    first: Option<Instant>,
    queued_bytes: usize,
    unfinished_bytes: usize,
    unresponsive: usize,
}

/// An address as numbers, which compare faster.
type Place = (u128, u32);

/// The preference between two connections to one peer: a healthy one, then the one on which bytes arrived last.
type Rank = (u8, Reverse<Instant>);

/// The rest follows from the list.
impl<L: PartialEq> PartialEq for Connections<L> {
    fn eq(&self, other: &Self) -> bool {
        self.config == other.config
            && self.list == other.list
            && self.timers == other.timers
            && self.first == other.first
    }
}

impl<L: Eq> Eq for Connections<L> {}

impl<L> Connections<L> {
    pub(super) fn new(config: Config) -> Self {
        let (queued_bytes, unfinished_bytes, unresponsive) = (0, 0, 0);
        let (list, usable, timers, first) = (Vec::new(), Vec::new(), Vec::new(), None);
        Self { config, list, usable, timers, first, queued_bytes, unfinished_bytes, unresponsive }
    }

    pub(super) fn insert(&mut self, mut connection: Connection<L>) {
        connection.keep(self.config.keeps_connections);
        let at = self.index(connection.stream()).unwrap_or_else(|at| at);
        self.queued_bytes += connection.queued_bytes();
        let (peer, due) = (connection.peer(), connection.next_due(&self.config));
        self.list.insert(at, connection);
        self.timers.insert(at, due);
        self.look_by(due);
        self.renew(peer);
    }

    pub(super) fn remove(&mut self, stream: StreamId) -> Option<Connection<L>> {
        let at = self.index(stream).ok()?;
        let connection = self.list.remove(at);
        self.timers.remove(at);
        if self.list.is_empty() {
            self.first = None;
        }
        self.queued_bytes -= connection.queued_bytes();
        self.unfinished_bytes -= connection.unfinished_bytes();
        self.unresponsive -= usize::from(connection.health().is_unresponsive());
        self.renew(connection.peer());
        Some(connection)
    }

    /// Changes a connection, and updates the sums, the usable connections and the timers.
    pub(super) fn change<T>(
        &mut self,
        stream: StreamId,
        change: impl FnOnce(&mut Connection<L>) -> T,
    ) -> Option<T> {
        let at = self.index(stream).ok()?;
        let connection = &mut self.list[at];
        let look = |at: &Connection<L>| (at.stage(), at.peer().is_some(), at.health().is_unresponsive());
        let (before, waited) = (look(connection), connection.health().is_waiting());
        self.queued_bytes -= connection.queued_bytes();
        self.unfinished_bytes -= connection.unfinished_bytes();
        let result = change(connection);
        self.queued_bytes += connection.queued_bytes();
        self.unfinished_bytes += connection.unfinished_bytes();
        let (after, waits) = (look(connection), connection.health().is_waiting());
        let peer = connection.peer();
        // Within a stage, only a wait for an answer can let the next action be due earlier.
        if before != after || waited != waits {
            let due = connection.next_due(&self.config);
            self.timers[at] = due;
            self.look_by(due);
        }
        if before != after {
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
        let is_its = |at: &&Connection<L>| at.peer() == Some(peer) && !self.config.keeps_connections;
        self.list.iter().filter(is_its).map(Connection::stream).collect()
    }

    /// The connections whose timers have expired.
    pub(super) fn expired(&mut self, now: Instant) -> Vec<StreamId> {
        if self.first.is_none_or(|first| first > now) {
            return Vec::new();
        }
        self.first = self.timers.iter().copied().filter(|at| *at > now).min();
        let expired = self.list.iter().zip(&self.timers).filter(|(_, at)| **at <= now);
        expired.map(|(connection, _)| connection.stream()).collect()
    }

    /// The due action of a connection. If there is none, its timer is set again.
    pub(super) fn due(&mut self, now: Instant, stream: StreamId) -> Option<Due> {
        let at = self.index(stream).ok()?;
        match self.list[at].due(now, &self.config) {
            Ok(due) => Some(due),
            Err(next) => {
                self.timers[at] = next;
                self.look_by(next);
                None
            }
        }
    }

    /// When the next timer may expire.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.first
    }

    pub(super) fn config(&self) -> &Config {
        &self.config
    }

    /// The best connection to an address, now or once it is established.
    pub(super) fn usable(&self, to: SocketAddr) -> Option<StreamId> {
        let to = place(to);
        let at = self.usable.partition_point(|(place, ..)| *place < to);
        self.usable.get(at).filter(|(place, ..)| *place == to).map(|(.., stream)| *stream)
    }

    /// The usable connections to an address, the best first.
    pub(super) fn usable_to(&self, to: SocketAddr) -> impl Iterator<Item = &Connection<L>> {
        let to = place(to);
        let first = self.usable.partition_point(|(place, ..)| *place < to);
        let its = self.usable[first..].iter().take_while(move |(place, ..)| *place == to);
        its.filter_map(|(.., stream)| self.get(*stream))
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

    fn look_by(&mut self, due: Instant) {
        self.first = Some(self.first.map_or(due, |first| first.min(due)));
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
