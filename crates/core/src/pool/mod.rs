//! A pool of connections: framed, long-lived, bounded, and without I/O like everything here.
//!
//! A machine that talks to many peers over streams gives the pool a message and an address. The pool opens a connection
//! or uses an existing one, and cuts the message into frames (`frame.rs`). It writes only as far ahead as the kernel
//! takes bytes, and closes idle connections. Messages of one frame overtake larger ones: a small message waits behind
//! at most a few chunks of a 16 MiB one.
//!
//! The first message of each side on a connection is its *greeting*: bytes that the machine chooses and that identify
//! it. The pool sends over an accepted connection after [`Pool::greeted`], and only if its source address is that of
//! the named machine. Otherwise a node could claim the messages of another.
//!
//! # Health
//!
//! The pool measures the round trip of every connection and detects when one stops to answer (`health.rs`):
//!
//! | the peer | what the pool does |
//! |---|---|
//! | owes an answer and is silent for q | the connection is *unresponsive*: the pool pings on it, and opens a second connection |
//! | answers on either | that connection stays, the other is closed |
//! | is silent for 2 q more | the connection is aborted |
//! | does not accept a connect within q | the connect is aborted and begun again, each time with twice the timeout, up to 2 s |
//! | refuses a connect | the next one follows after q, doubling to 1 s |
//!
//! [`Pool::next_lost`] returns the aborted connections; the caller retransmits the messages that it gave to them. So a
//! message never waits for the backoff of a kernel. `docs/spec/pool.md` has the clauses.
//!
//! # At the limits
//!
//! | limit | beyond it |
//! |---|---|
//! | `connections_max` | the longest idle connection is closed for a new one; if none is idle, [`Full`] |
//! | `accepted_per_address_max` | one more connection from that address is reset, so that one address cannot take all |
//! | `queue_bytes_max` | the message is refused: [`Full`] |
//! | `queues_bytes_max`, all connections together | the same: a connection may use half of what the others leave |
//! | `message_bytes_max` | a message to send is refused; a peer that sends one is refused |
//! | `unfinished_bytes_max`, of incomplete large messages | a connection that uses more than half of what the others leave is refused |
//! | `connect_timeout` | a connection that sends no greeting or does not close within it is reset |
//! | `idle_timeout` | a connection unused for this long is closed |

mod config;
mod connection;
mod connections;
mod frame;
mod health;
mod second;
mod types;

#[cfg(test)]
mod tests;

use core::time::Duration;
use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};

pub use config::Config;
use connection::{CREDIT_BYTES, Connection, Due, Received, Stage};
use connections::Connections;
pub use frame::{CHUNK_BYTES, HEADER_BYTES};
use health::Silence;
pub use types::{Expects, Full, Lost, Peer, Taken};

use crate::machine::Machine;
use crate::outbox::Outbox;
use crate::stream::CloseReason;
use crate::tag::StreamId;
use crate::time::Instant;
use crate::wire::DecodeError;

/// The refusal of a connection with one large message too many.
pub const UNFINISHED: &str = "large messages under way";

/// The connections of one machine, each labelled by its greeting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pool<L> {
    greeting: Vec<u8>,
    bind: Option<IpAddr>,
    connections: Connections<L>,
    opened: u64,
    /// The nonce of the last ping.
    nonce: u32,
    lost: VecDeque<Lost>,
    /// The round trip that the last received bytes measured.
    measured: Option<(StreamId, Duration)>,
    is_stopping: bool,
}

/// The share of one connection in `all`, while the others use `others`: half of the rest.
fn share(all: usize, others: usize) -> usize {
    all.saturating_sub(others) / 2
}

impl<L: PartialEq> Pool<L> {
    /// An empty pool.
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self {
            connections: Connections::new(config),
            greeting: Vec::new(),
            bind: None,
            opened: 0,
            nonce: 0,
            lost: VecDeque::new(),
            measured: None,
            is_stopping: false,
        }
    }

    /// Sets the greeting of every later connection, and the local address to open it from.
    pub fn set_greeting(&mut self, greeting: Vec<u8>, bind: Option<IpAddr>) {
        self.greeting = greeting;
        self.bind = bind;
    }

    /// Sends a message to the peer that listens at `to`.
    ///
    /// # Errors
    /// If a limit is reached; nothing is sent.
    pub fn send<M: Machine>(
        &mut self,
        now: Instant,
        to: SocketAddr,
        message: &[u8],
        expects: Expects,
        out: &mut Outbox<'_, M>,
    ) -> Result<Taken, Full> {
        if !self.fits(message) {
            return Err(Full);
        }
        let stream = match self.connections.usable(to) {
            Some(stream) => stream,
            None => self.open(now, to, out)?,
        };
        self.send_over(now, stream, message, expects, out)
    }

    /// Answers a message that arrived over the connection `over`, over the same one (PL-12): the clock of the peer runs
    /// on it. If it cannot be used, the answer takes another connection to `to`.
    ///
    /// # Errors
    /// If a limit is reached; nothing is sent.
    pub fn answer<M: Machine>(
        &mut self,
        now: Instant,
        (over, to): (StreamId, SocketAddr),
        message: &[u8],
        out: &mut Outbox<'_, M>,
    ) -> Result<Taken, Full> {
        let suits = |at: &Connection<L>| at.stage() == Stage::Open && at.peer() == Some(to);
        if self.fits(message) && self.connections.get(over).is_some_and(suits) {
            return self.send_over(now, over, message, Expects::Nothing, out);
        }
        self.send(now, to, message, Expects::Nothing, out)
    }

    /// Notes an accepted connection, whose greeting must follow. Returns false if it was reset: that address has too
    /// many.
    pub fn accepted<M: Machine>(
        &mut self,
        now: Instant,
        stream: StreamId,
        from: IpAddr,
        out: &mut Outbox<'_, M>,
    ) -> bool {
        let there = self.connections.iter().filter(|at| at.from() == Some(from)).count();
        if there >= self.connections.config().accepted_per_address_max {
            out.abort(stream);
            return false;
        }
        self.connections.insert(Connection::accepted(stream, from, now));
        out.read(stream, CREDIT_BYTES);
        true
    }

    /// Handles an established connection that this node opened.
    pub fn connected<M: Machine>(&mut self, now: Instant, stream: StreamId, out: &mut Outbox<'_, M>) {
        let is_stopping = self.is_stopping;
        self.connections.change(stream, |connection| {
            if connection.stage() == Stage::Connecting {
                connection.on_connected(now, out);
                let _ = is_stopping.then(|| connection.finish(now, true, out));
            }
        });
    }

    /// Handles the bytes of a connection. Gives the messages they complete to `take`.
    ///
    /// # Errors
    /// If they are no frames, or of a large message without room, or the error of `take`: the caller
    /// [aborts](Pool::abort) the connection.
    pub fn received<M: Machine>(
        &mut self,
        now: Instant,
        stream: StreamId,
        data: &[u8],
        take: &mut dyn FnMut(&[u8]) -> Result<(), DecodeError>,
        out: &mut Outbox<'_, M>,
    ) -> Result<(), DecodeError> {
        let all = self.connections.unfinished_bytes();
        let &Config { message_bytes_max, unfinished_bytes_max, .. } = self.connections.config();
        let received = self.connections.change(stream, |connection| {
            let before = connection.unfinished_bytes();
            let received = connection.received(now, data, message_bytes_max, take, out)?;
            let after = connection.unfinished_bytes();
            if after > before && after > share(unfinished_bytes_max, all - before) {
                return Err(DecodeError::Limit(UNFINISHED));
            }
            Ok(received)
        });
        let Some(received) = received else { return Ok(()) };
        let Received { was_unresponsive, rtt } = received?;
        self.measured = rtt.map(|rtt| (stream, rtt));
        if was_unresponsive || self.connections.has_unresponsive() {
            self.prefer(now, stream, was_unresponsive, out);
        }
        Ok(())
    }

    /// Accepts the greeting of a connection: the peer is `label` and listens at `peer`. If the connection came from the
    /// machine of that address, the pool now also sends over it, our greeting first. Otherwise it opens a connection of
    /// its own to `peer`. Connections to that address with another label become unresponsive: the peer may have
    /// restarted.
    pub fn greeted<M: Machine>(
        &mut self,
        now: Instant,
        stream: StreamId,
        label: L,
        peer: SocketAddr,
        out: &mut Outbox<'_, M>,
    ) {
        let nonce = self.next_nonce();
        let greeting = &self.greeting;
        self.connections.change(stream, |connection| {
            connection.on_greeted((now, nonce), label, peer, greeting, out);
        });
        let Some(connection) = self.connections.get(stream) else { return };
        if connection.peer() != Some(peer) {
            return;
        }
        let is_other = |at: &&Connection<L>| {
            at.peer() == Some(peer) && at.label().is_some() && at.label() != connection.label()
        };
        let others: Vec<_> = self.connections.iter().filter(is_other).map(Connection::stream).collect();
        others.into_iter().for_each(|other| self.mark_unresponsive(now, other, out));
    }

    /// Handles bytes of a connection that the kernel took.
    pub fn sent<M: Machine>(
        &mut self,
        now: Instant,
        stream: StreamId,
        bytes: usize,
        out: &mut Outbox<'_, M>,
    ) {
        self.connections.change(stream, |connection| connection.on_sent(now, bytes, out));
    }

    /// Handles the end of the peer's direction: nothing new is written, and our direction ends too.
    ///
    /// # Errors
    /// If it ended within a message: the caller [aborts](Pool::abort) the connection.
    pub fn finished<M: Machine>(
        &mut self,
        now: Instant,
        stream: StreamId,
        out: &mut Outbox<'_, M>,
    ) -> Result<(), DecodeError> {
        let Some(connection) = self.connections.get(stream) else { return Ok(()) };
        if !connection.is_between_messages() || connection.stage() == Stage::Silent {
            return Err(DecodeError::Truncated);
        }
        if connection.stage() != Stage::Closing {
            self.finish(now, stream, false, out);
        }
        Ok(())
    }

    /// Handles a closed connection. A connect that failed is tried again, if messages waited for it lately.
    pub fn closed<M: Machine>(
        &mut self,
        now: Instant,
        stream: StreamId,
        reason: CloseReason,
        out: &mut Outbox<'_, M>,
    ) -> Option<Lost> {
        if self.connections.get(stream)?.is_unconnected() {
            return self.connect_failed(now, stream, Some(reason), out);
        }
        self.remove(stream)
    }

    /// Resets a connection.
    pub fn abort<M: Machine>(&mut self, stream: StreamId, out: &mut Outbox<'_, M>) -> Option<Lost> {
        let lost = self.remove(stream);
        out.abort(stream);
        lost
    }

    /// Begins a failed connect again at once: a message from this address arrived.
    pub fn reachable<M: Machine>(&mut self, now: Instant, peer: SocketAddr, out: &mut Outbox<'_, M>) {
        let is_stuck = |at: &&Connection<L>| {
            let since = now.since(at.connect_at());
            at.failures() > 0
                && (at.stage() == Stage::Pausing
                    || at.stage() == Stage::Connecting && since > at.health().quiet_max() / 2)
        };
        let Some(stuck) = self.connections.usable_to(peer).find(is_stuck) else { return };
        let stream = stuck.stream();
        if stuck.stage() == Stage::Pausing {
            return self.connect(now, stream, out);
        }
        out.abort(stream);
        let lost = self.connect_failed(now, stream, None, out);
        self.lost.extend(lost);
    }

    /// Closes all connections in good order, after the queued messages.
    pub fn finish_all<M: Machine>(&mut self, now: Instant, out: &mut Outbox<'_, M>) {
        self.is_stopping = true;
        let streams: Vec<_> =
            self.connections.iter().map(|at| (at.stream(), at.stage(), at.is_quiet())).collect();
        for (stream, stage, is_quiet) in streams {
            match stage {
                Stage::Open => self.finish(now, stream, true, out),
                Stage::Connecting if is_quiet => drop(self.abort(stream, out)),
                Stage::Pausing => drop(self.remove(stream)),
                Stage::Connecting | Stage::Silent | Stage::Closing => {}
            }
        }
    }

    /// Does all due work: connects, pings unresponsive peers, closes idle connections, aborts dead ones.
    pub fn expire<M: Machine>(&mut self, now: Instant, out: &mut Outbox<'_, M>) {
        for stream in self.connections.expired(now) {
            if let Some(due) = self.connections.due(now, stream) {
                self.perform(now, stream, due, out);
            }
        }
    }

    /// The next connection that was lost by another call than [`Pool::closed`] and [`Pool::abort`].
    pub fn next_lost(&mut self) -> Option<Lost> {
        self.lost.pop_front()
    }

    /// The connection whose ping the last [received](Pool::received) bytes answered, and the round trip.
    pub fn take_measured(&mut self) -> Option<(StreamId, Duration)> {
        self.measured.take()
    }

    /// The peer of a connection; `None` before its greeting.
    #[must_use]
    pub fn peer(&self, stream: StreamId) -> Option<Peer<'_, L>> {
        let connection = self.connections.get(stream)?;
        let (addr, rtt) = (connection.peer(), connection.health().srtt());
        Some(Peer { label: connection.label()?, addr, rtt })
    }

    /// Whether the pool has this connection.
    #[must_use]
    pub fn contains(&self, stream: StreamId) -> bool {
        self.connections.get(stream).is_some()
    }

    /// Whether a connection to this address is established.
    #[must_use]
    pub fn is_connected(&self, to: SocketAddr) -> bool {
        self.connections.usable_to(to).any(|at| at.stage() == Stage::Open)
    }

    /// How many connections there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.connections.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.connections.len() == 0
    }

    /// When [`Pool::expire`] is to be called next.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        self.connections.deadline()
    }

    fn fits(&self, message: &[u8]) -> bool {
        !message.is_empty() && message.len() <= self.connections.config().message_bytes_max
    }

    fn send_over<M: Machine>(
        &mut self,
        now: Instant,
        stream: StreamId,
        message: &[u8],
        expects: Expects,
        out: &mut Outbox<'_, M>,
    ) -> Result<Taken, Full> {
        let all = self.connections.queued_bytes();
        let &Config { queue_bytes_max, queues_bytes_max, .. } = self.connections.config();
        let taken = self.connections.change(stream, |connection| {
            let before = connection.queued_bytes();
            if before + message.len() > queue_bytes_max.min(share(queues_bytes_max, all - before)) {
                return Err(Full);
            }
            connection.send(now, message, expects, out);
            Ok(Taken { stream, connected: connection.stage() == Stage::Open })
        });
        taken.ok_or(Full)?
    }

    fn open<M: Machine>(
        &mut self,
        now: Instant,
        to: SocketAddr,
        out: &mut Outbox<'_, M>,
    ) -> Result<StreamId, Full> {
        let opened = self.connections.iter().filter(|at| !at.stream().is_accepted()).count();
        if opened >= self.connections.config().connections_max {
            self.make_room(now, out)?;
        }
        let there = self.connections.iter().filter(|at| at.peer() == Some(to));
        let srtt = there.filter_map(|at| at.health().srtt()).max();
        let stream = self.next_stream();
        let mut connection = Connection::dialed(stream, to, now, srtt);
        connection.connect(now, self.bind, &self.greeting, out);
        self.connections.insert(connection);
        Ok(stream)
    }

    fn connect<M: Machine>(&mut self, now: Instant, stream: StreamId, out: &mut Outbox<'_, M>) {
        let (bind, greeting) = (self.bind, &self.greeting);
        self.connections.change(stream, |connection| connection.connect(now, bind, greeting, out));
    }

    /// Handles a failed connect, for this reason or by timeout: prepares the next one, with the messages that are kept.
    fn connect_failed<M: Machine>(
        &mut self,
        now: Instant,
        stream: StreamId,
        reason: Option<CloseReason>,
        out: &mut Outbox<'_, M>,
    ) -> Option<Lost> {
        let connection = self.connections.remove(stream)?;
        let (peer, refused) = (connection.peer(), reason == Some(CloseReason::Refused));
        let lost = Lost { stream, peer, connected: false, refused };
        let pauses = reason.is_some_and(|reason| reason != CloseReason::TimedOut);
        let stream = self.next_stream();
        let next = connection.next_attempt(stream, now, self.connections.config().connect_timeout, pauses);
        let (Some(mut next), Some(peer)) = (next.filter(|_| !self.is_stopping), peer) else {
            return Some(lost);
        };
        if self.has_healthy(peer) {
            // Another connection to the peer is established or being opened: it takes the queued messages.
            for message in next.into_queued() {
                let _ = self.send(now, peer, &message, Expects::Nothing, out);
            }
            return Some(lost);
        }
        if !pauses {
            next.connect(now, self.bind, &self.greeting, out);
        }
        self.connections.insert(next);
        Some(lost)
    }

    fn perform<M: Machine>(&mut self, now: Instant, stream: StreamId, due: Due, out: &mut Outbox<'_, M>) {
        match due {
            Due::Connect => self.connect(now, stream, out),
            Due::ConnectFailed => {
                out.abort(stream);
                let lost = self.connect_failed(now, stream, None, out);
                self.lost.extend(lost);
            }
            Due::Idle => self.finish(now, stream, true, out),
            Due::SlowClose => {
                let lost = self.abort(stream, out).map(|lost| Lost { peer: None, ..lost });
                self.lost.extend(lost);
            }
            Due::Silence(Silence::Unresponsive) => self.mark_unresponsive(now, stream, out),
            Due::Hung | Due::Silence(Silence::Dead) => self.drop_connection(stream, out),
        }
    }

    fn drop_connection<M: Machine>(&mut self, stream: StreamId, out: &mut Outbox<'_, M>) {
        let is_pausing = self.connections.get(stream).is_some_and(|at| at.stage() == Stage::Pausing);
        let lost = if is_pausing { self.remove(stream) } else { self.abort(stream, out) };
        self.lost.extend(lost);
    }

    fn finish<M: Machine>(&mut self, now: Instant, stream: StreamId, is_idle: bool, out: &mut Outbox<'_, M>) {
        self.connections.change(stream, |connection| connection.finish(now, is_idle, out));
    }

    fn remove(&mut self, stream: StreamId) -> Option<Lost> {
        let connection = self.connections.remove(stream)?;
        let connected = !connection.is_unconnected();
        Some(Lost { stream, peer: connection.peer(), connected, refused: false })
    }

    /// Closes the longest idle connection. It exists until the close is complete, so the limit may be exceeded by those
    /// that are closing.
    fn make_room<M: Machine>(&mut self, now: Instant, out: &mut Outbox<'_, M>) -> Result<(), Full> {
        let closing = self.connections.iter().filter(|at| at.stage() == Stage::Closing).count();
        let ours = self.connections.iter().filter(|at| !at.stream().is_accepted() && at.is_quiet());
        let idle = ours.filter(|at| matches!(at.stage(), Stage::Open | Stage::Pausing));
        let idle = idle.min_by_key(|at| at.used()).ok_or(Full)?;
        let stream = idle.stream();
        if idle.stage() == Stage::Pausing {
            self.remove(stream);
            return Ok(());
        }
        if closing >= self.connections.config().connections_max {
            return Err(Full);
        }
        self.finish(now, stream, true, out);
        Ok(())
    }

    fn next_stream(&mut self) -> StreamId {
        self.opened += 1;
        StreamId::opened(self.opened)
    }

    fn next_nonce(&mut self) -> u32 {
        self.nonce = self.nonce.wrapping_add(1);
        self.nonce
    }
}
