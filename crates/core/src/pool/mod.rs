//! A pool of connections: framed, long-lived, bounded, and without I/O like everything here.
//!
//! A machine that talks to many peers over streams gives the pool a message and an address. The pool opens a
//! connection or uses the one it has, cuts the message into frames (`frame.rs`), writes no further ahead than the
//! kernel follows, and ends what nobody has used for a while. Messages of one frame overtake larger ones, so a
//! small message waits behind at most a few chunks of a 16 MiB one.
//!
//! The first message of each side on a connection is its *greeting*: bytes that the machine chose, by which the
//! other side knows who speaks. An accepted connection is used for sending once its greeting was accepted with
//! [`Pool::greeted`], if it came from the machine that the greeting names: else anybody could have what is for another.
//!
//! # At the limits
//!
//! | limit | at it |
//! |---|---|
//! | `connections_max` | the connection that was idle longest is ended for a new one; if none is idle, [`Full`] |
//! | `accepted_per_address_max` | one more connection from that address is reset, so that it shuts nobody out |
//! | `queue_bytes_max` | the message is not taken: [`Full`] |
//! | `queues_bytes_max`, all connections together | the same: a connection may have half of what the others leave |
//! | `message_bytes_max` | a message of ours is not taken; a peer that sends one is refused |
//! | `unfinished_bytes_max`, of the large messages that are coming | whose message has more than half of what the others leave is refused |
//! | `connect_timeout` | a connection that does not stand, greet or close within it is reset |
//! | `idle_timeout` | a connection unused for so long is finished |

mod connection;
mod frame;

#[cfg(test)]
mod tests;

use core::time::Duration;
use std::borrow::Cow;
use std::net::{IpAddr, SocketAddr};

use connection::{CREDIT_BYTES, Connection, Stage};
pub use frame::{CHUNK_BYTES, HEADER_BYTES};

use crate::machine::Machine;
use crate::outbox::Outbox;
use crate::tag::StreamId;
use crate::time::Instant;
use crate::wire::DecodeError;

/// The settings of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The most connections we open and keep.
    pub connections_max: usize,
    /// The most connections that may be accepted from one address.
    pub accepted_per_address_max: usize,
    /// The most bytes that may wait on one connection.
    pub queue_bytes_max: usize,
    /// The most bytes that may wait on all connections. One connection may have half of what the others leave: so there
    /// is always room for one more, whoever does not read.
    pub queues_bytes_max: usize,
    /// The longest message.
    pub message_bytes_max: usize,
    /// The most bytes of large messages whose end has not come yet, shared out in the same way.
    pub unfinished_bytes_max: usize,
    /// How long a connection may take to stand, to greet, and to end.
    pub connect_timeout: Duration,
    /// How long an unused connection is kept.
    pub idle_timeout: Duration,
}

/// What is said of a connection whose large message is one too many.
pub const UNFINISHED: &str = "large messages under way";

/// A message was not taken: the limits of [`Config`] are reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the message was not taken: it is too long, or too much waits already")]
pub struct Full;

/// Where a message was put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taken {
    /// The connection it goes by.
    pub stream: StreamId,
    /// Whether that connection stands. If it never comes to, the peer has certainly not seen the message.
    pub connected: bool,
}

/// A connection that is no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lost {
    /// Its number.
    pub stream: StreamId,
    /// Where the peer listens, if that was known.
    pub peer: Option<SocketAddr>,
    /// Whether it ever stood.
    pub connected: bool,
}

/// The connections of one machine, each labelled with what its greeting said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pool<L> {
    config: Config,
    greeting: Vec<u8>,
    bind: Option<IpAddr>,
    /// In the order of their numbers, so that one is found by bisection.
    connections: Vec<Connection<L>>,
    opened: u64,
    /// What waits on all of them.
    queued_bytes: usize,
    /// The large messages that are coming by all of them.
    unfinished_bytes: usize,
    usable: Usable,
    /// No connection runs out before this.
    check: Option<Instant>,
}

/// Which connections can be sent by, sorted by where they lead, open ones first. It is made anew when it is asked for
/// after a change, so that sending costs no look at every connection.
#[derive(Clone, Debug, Default)]
struct Usable {
    list: Option<Vec<(Place, bool, StreamId)>>,
}

impl Usable {
    fn forget(&mut self) {
        self.list = None;
    }

    fn renew<L>(&mut self, connections: &[Connection<L>]) {
        self.list.get_or_insert_with(|| Self::of(connections));
    }

    fn of<L>(connections: &[Connection<L>]) -> Vec<(Place, bool, StreamId)> {
        let usable = connections.iter().filter(|at| matches!(at.stage, Stage::Open | Stage::Connecting));
        let mut list: Vec<_> = usable
            .filter_map(|at| Some((place(at.peer?), at.stage == Stage::Connecting, at.stream)))
            .collect();
        list.sort_unstable();
        list
    }

    fn find(list: &[(Place, bool, StreamId)], to: SocketAddr) -> Option<StreamId> {
        let to = place(to);
        let at = list.partition_point(|(addr, ..)| *addr < to);
        list.get(at).filter(|(addr, ..)| *addr == to).map(|(.., stream)| *stream)
    }
}

/// What one may have of `all`, of which the others have so much: half of the rest.
fn share(all: usize, others: usize) -> usize {
    all.saturating_sub(others) / 2
}

/// An address as numbers, which compare faster.
type Place = (u128, u32);

fn place(addr: SocketAddr) -> Place {
    let port = u32::from(addr.port());
    match addr {
        SocketAddr::V4(addr) => (u128::from(addr.ip().to_bits()), port),
        // No address of the other family has a port beyond 16 bits.
        SocketAddr::V6(addr) => (addr.ip().to_bits(), port | 1 << 16),
    }
}

/// It follows from the connections.
impl PartialEq for Usable {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Usable {}

impl<L> Pool<L> {
    /// An empty pool.
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self {
            config,
            greeting: Vec::new(),
            bind: None,
            connections: Vec::new(),
            opened: 0,
            queued_bytes: 0,
            unfinished_bytes: 0,
            usable: Usable::default(),
            check: None,
        }
    }

    /// What to say first on every connection from now on, and from which address to open it.
    pub fn set_greeting(&mut self, greeting: Vec<u8>, bind: Option<IpAddr>) {
        self.greeting = greeting;
        self.bind = bind;
    }

    /// Sends a message to whoever listens at `to`.
    ///
    /// # Errors
    /// If a limit is reached; nothing is sent.
    pub fn send<M: Machine>(
        &mut self,
        now: Instant,
        to: SocketAddr,
        message: &[u8],
        out: &mut Outbox<'_, M>,
    ) -> Result<Taken, Full> {
        if message.is_empty() || message.len() > self.config.message_bytes_max {
            return Err(Full);
        }
        self.usable.renew(&self.connections);
        let index = match self.usable(to) {
            Some(index) => index,
            None => self.open(now, to, out)?,
        };
        let connection = &mut self.connections[index];
        let before = connection.queued_bytes();
        let share = share(self.config.queues_bytes_max, self.queued_bytes - before);
        if before + message.len() > self.config.queue_bytes_max.min(share) {
            return Err(Full);
        }
        connection.used = now;
        connection.send(message, out);
        self.queued_bytes = self.queued_bytes - before + connection.queued_bytes();
        Ok(Taken { stream: connection.stream, connected: connection.stage == Stage::Open })
    }

    /// A peer opened a connection; its greeting is awaited. False if it was reset: that address has too many.
    pub fn accepted<M: Machine>(
        &mut self,
        now: Instant,
        stream: StreamId,
        from: IpAddr,
        out: &mut Outbox<'_, M>,
    ) -> bool {
        let there = self.connections.iter().filter(|at| at.from == Some(from)).count();
        if there >= self.config.accepted_per_address_max {
            out.abort(stream);
            return false;
        }
        let mut connection = Connection::new(stream, Stage::Silent, None, now);
        connection.from = Some(from);
        self.insert(connection);
        out.read(stream, CREDIT_BYTES);
        self.check_by(now + self.config.connect_timeout);
        true
    }

    /// A connection we opened stands.
    pub fn connected(&mut self, now: Instant, stream: StreamId) {
        if let Some(connection) = self.find_mut(stream).filter(|at| at.stage == Stage::Connecting) {
            connection.stage = Stage::Open;
            connection.used = now;
            self.usable.forget();
        }
    }

    /// Takes in the bytes of a connection: the messages they complete.
    ///
    /// # Errors
    /// If they are no frames, or of a large message for which there is no room: the caller [aborts](Pool::abort) the
    /// connection.
    pub fn received<'a, M: Machine>(
        &mut self,
        now: Instant,
        stream: StreamId,
        data: &'a [u8],
        out: &mut Outbox<'_, M>,
    ) -> Result<Vec<Cow<'a, [u8]>>, DecodeError> {
        let Ok(index) = self.index(stream) else { return Ok(Vec::new()) };
        let connection = &mut self.connections[index];
        connection.used = now;
        let before = connection.unfinished_bytes();
        let messages = connection.received(data, self.config.message_bytes_max, out);
        let after = connection.unfinished_bytes();
        if before != after {
            let others = self.unfinished_bytes - before;
            self.unfinished_bytes = others + after;
            if after > before && after > share(self.config.unfinished_bytes_max, others) {
                return Err(DecodeError::Limit(UNFINISHED));
            }
        }
        messages
    }

    /// The peer's greeting on a connection was accepted: it is `label` and says that it listens at `peer`. From here on an
    /// accepted connection that came from that machine is used for sending as well, our own greeting first. By one that
    /// came from elsewhere nothing is sent: whoever listens at `peer` gets a connection of our own.
    pub fn greeted<M: Machine>(
        &mut self,
        stream: StreamId,
        label: L,
        peer: SocketAddr,
        out: &mut Outbox<'_, M>,
    ) {
        let Ok(index) = self.index(stream) else { return };
        let connection = &mut self.connections[index];
        connection.label = Some(label);
        if connection.stage == Stage::Silent {
            connection.stage = Stage::Open;
            if connection.from == Some(peer.ip()) {
                connection.peer = Some(peer);
                connection.send(&self.greeting, out);
            }
            self.usable.forget();
        }
    }

    /// The kernel took bytes of a connection.
    pub fn sent<M: Machine>(&mut self, stream: StreamId, bytes: usize, out: &mut Outbox<'_, M>) {
        if let Ok(index) = self.index(stream) {
            let connection = &mut self.connections[index];
            let before = connection.queued_bytes();
            connection.sent(bytes, out);
            self.queued_bytes = self.queued_bytes - before + connection.queued_bytes();
        }
    }

    /// The peer ended its direction: nothing new is written, and ours ends too.
    ///
    /// # Errors
    /// If it ended within a message: the caller [aborts](Pool::abort) the connection.
    pub fn finished<M: Machine>(
        &mut self,
        now: Instant,
        stream: StreamId,
        out: &mut Outbox<'_, M>,
    ) -> Result<(), DecodeError> {
        let by = now + self.config.connect_timeout;
        let Ok(index) = self.index(stream) else { return Ok(()) };
        let connection = &mut self.connections[index];
        if !connection.is_between_messages() || connection.stage == Stage::Silent {
            return Err(DecodeError::Truncated);
        }
        if connection.stage != Stage::Closing {
            self.queued_bytes -= connection.finish(now, out);
            self.usable.forget();
            self.check_by(by);
        }
        Ok(())
    }

    /// A connection is gone.
    pub fn closed(&mut self, stream: StreamId) -> Option<Lost> {
        let index = self.index(stream).ok()?;
        let connection = self.connections.remove(index);
        self.queued_bytes -= connection.queued_bytes();
        self.unfinished_bytes -= connection.unfinished_bytes();
        self.usable.forget();
        let connected = connection.stage != Stage::Connecting;
        Some(Lost { stream, peer: connection.peer, connected })
    }

    /// Resets a connection.
    pub fn abort<M: Machine>(&mut self, stream: StreamId, out: &mut Outbox<'_, M>) -> Option<Lost> {
        out.abort(stream);
        self.closed(stream)
    }

    /// Ends all connections in good order, behind what waits on them.
    pub fn finish_all<M: Machine>(&mut self, now: Instant, out: &mut Outbox<'_, M>) {
        for connection in &mut self.connections {
            if connection.stage == Stage::Open {
                self.queued_bytes -= connection.finish(now, out);
            }
        }
        self.usable.forget();
        self.check_by(now + self.config.connect_timeout);
    }

    /// Ends what has run out: idle connections in good order, the others by reset. Those reset are appended to
    /// `lost`.
    pub fn expire<M: Machine>(&mut self, now: Instant, lost: &mut Vec<Lost>, out: &mut Outbox<'_, M>) {
        if self.check.is_none_or(|at| at > now) {
            return;
        }
        self.check = None;
        self.usable.forget();
        let (idle, connect) = (self.config.idle_timeout, self.config.connect_timeout);
        let mut next: Option<Instant> = None;
        let (queued, unfinished) = (&mut self.queued_bytes, &mut self.unfinished_bytes);
        self.connections.retain_mut(|connection| {
            let mut due = connection.used + if connection.stage == Stage::Open { idle } else { connect };
            if due <= now && connection.stage == Stage::Open && connection.is_quiet() {
                *queued -= connection.finish(now, out);
                due = now + connect;
            }
            if due <= now {
                // It never came to stand, does not read, or does not end: nothing is to be hoped for.
                out.abort(connection.stream);
                *queued -= connection.queued_bytes();
                *unfinished -= connection.unfinished_bytes();
                let connected = connection.stage != Stage::Connecting;
                lost.push(Lost { stream: connection.stream, peer: connection.peer, connected });
                return false;
            }
            next = Some(next.map_or(due, |next| next.min(due)));
            true
        });
        self.check = next;
    }

    /// What the greeting on a connection said; `None` before it came.
    #[must_use]
    pub fn label(&self, stream: StreamId) -> Option<&L> {
        self.connections[self.index(stream).ok()?].label.as_ref()
    }

    /// Whether a connection shows that who speaks can be reached at `addr`: we opened it to there, or it came from that
    /// machine.
    #[must_use]
    pub fn vouches(&self, stream: StreamId, addr: SocketAddr) -> bool {
        let Ok(index) = self.index(stream) else { return false };
        let connection = &self.connections[index];
        match connection.from {
            Some(from) => from == addr.ip(),
            None => connection.peer == Some(addr),
        }
    }

    /// Whether the pool has this connection.
    #[must_use]
    pub fn contains(&self, stream: StreamId) -> bool {
        self.index(stream).is_ok()
    }

    /// Whether a connection to this address stands.
    #[must_use]
    pub fn is_connected(&self, to: SocketAddr) -> bool {
        self.usable(to).is_some_and(|index| self.connections[index].stage == Stage::Open)
    }

    /// How many connections there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.connections.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.connections.is_empty()
    }

    /// When [`Pool::expire`] is to be called next.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        self.check
    }

    fn open<M: Machine>(
        &mut self,
        now: Instant,
        to: SocketAddr,
        out: &mut Outbox<'_, M>,
    ) -> Result<usize, Full> {
        let opened = self.connections.iter().filter(|at| !at.stream.is_accepted()).count();
        if opened >= self.config.connections_max {
            self.make_room(now, out)?;
        }
        self.opened += 1;
        let stream = StreamId::opened(self.opened);
        out.open(stream, to, self.bind);
        out.read(stream, CREDIT_BYTES);
        let mut connection = Connection::new(stream, Stage::Connecting, Some(to), now);
        if !self.greeting.is_empty() {
            connection.send(&self.greeting, out);
        }
        let index = self.insert(connection);
        self.check_by(now + self.config.connect_timeout);
        Ok(index)
    }

    /// Ends the connection that was idle longest. It lives on for the moment its end takes, so the limit may be
    /// exceeded by those that are closing.
    fn make_room<M: Machine>(&mut self, now: Instant, out: &mut Outbox<'_, M>) -> Result<(), Full> {
        let by = now + self.config.connect_timeout;
        let closing = self.connections.iter().filter(|at| at.stage == Stage::Closing).count();
        let open = (self.connections.iter_mut())
            .filter(|at| !at.stream.is_accepted() && at.stage == Stage::Open && at.is_quiet());
        let idle = open.min_by_key(|at| at.used).ok_or(Full)?;
        if closing >= self.config.connections_max {
            return Err(Full);
        }
        self.queued_bytes -= idle.finish(now, out);
        self.usable.forget();
        self.check_by(by);
        Ok(())
    }

    /// The connection to send by, an open one if there is one.
    fn usable(&self, to: SocketAddr) -> Option<usize> {
        match &self.usable.list {
            Some(list) => self.index(Usable::find(list, to)?).ok(),
            None => self.index(Usable::find(&Usable::of(&self.connections), to)?).ok(),
        }
    }

    fn check_by(&mut self, at: Instant) {
        self.check = Some(self.check.map_or(at, |check| check.min(at)));
    }

    fn insert(&mut self, connection: Connection<L>) -> usize {
        let index = self.index(connection.stream).unwrap_or_else(|at| at);
        self.connections.insert(index, connection);
        self.usable.forget();
        index
    }

    fn find_mut(&mut self, stream: StreamId) -> Option<&mut Connection<L>> {
        let index = self.index(stream).ok()?;
        Some(&mut self.connections[index])
    }

    fn index(&self, stream: StreamId) -> Result<usize, usize> {
        self.connections.binary_search_by_key(&stream, |connection| connection.stream)
    }
}
