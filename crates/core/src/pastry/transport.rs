//! Transport: messages over kept connections and in datagrams.

use core::time::Duration;
use std::net::{IpAddr, SocketAddr};

use super::Pastry;
use super::config::{Config, Fault};
use super::contact::Contact;
use super::env::Env;
use super::message::Message;
use super::wire::{decode, encode};
use crate::outbox::Outbox;
use crate::pool::{self, Expects, Full, Lost, Pool, Taken};
use crate::stream::CloseReason;
use crate::tag::{SocketId, StreamId};
use crate::time::Instant;
use crate::wire::{DecodeError, Writer};

/// The datagram socket, for probes.
pub const UDP: SocketId = SocketId::new(0);
/// How much of the write buffer is kept between calls.
const SCRATCH_KEPT_BYTES: usize = 4096;
/// The longest datagram: a pong from an IPv6 address.
const DATAGRAM_BYTES_MAX: usize = 128;
/// For how many decoded messages room is kept.
const RECEIVED_KEPT: usize = 64;

type Out<'a, 'b> = &'a mut Outbox<'b, Pastry>;

/// The node at the other end of a connection.
#[derive(Clone, Copy)]
pub(super) struct Sender {
    /// The node, as its greeting claims.
    pub(super) contact: Contact,
    pub(super) stream: StreamId,
    /// The round trip, if it was measured and the connection proves the address.
    pub(super) rtt: Option<Duration>,
    /// Whether the connection proves that the node can be reached at its address: this node opened it to that address, or
    /// it came from that IP address.
    pub(super) is_validated: bool,
}

/// The connections of a node.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Transport {
    pool: Pool<Contact>,
    /// Empty between calls; its memory is kept.
    scratch: Vec<u8>,
    /// Empty between calls; its memory is kept.
    received: Vec<Message>,
}

impl Transport {
    pub(super) fn new(config: &Config) -> Self {
        let pool = Pool::new(pool::Config {
            connections_max: config.connections_max,
            accepted_per_address_max: (config.accepted_max / 4).max(1),
            queue_bytes_max: config.queue_bytes_max,
            queues_bytes_max: config.queue_bytes_max.saturating_mul(2),
            message_bytes_max: config.message_bytes_max,
            unfinished_bytes_max: config.message_bytes_max.saturating_mul(8),
            connect_timeout: config.network_timeout,
            idle_timeout: config.idle_timeout,
            keeps_connections: config.has(Fault::KeepConnections),
        });
        Self { pool, scratch: Vec::new(), received: Vec::new() }
    }

    /// Sets the greeting of every connection, and the source address of connections.
    pub(super) fn set_greeting(&mut self, hello: &Message, bind: IpAddr) {
        let mut bytes = Vec::new();
        let mut writer = Writer::new(&mut bytes, DATAGRAM_BYTES_MAX);
        encode(hello, &mut writer);
        writer.finish().expect("a hello is short");
        self.pool.set_greeting(bytes, Some(bind));
    }

    /// Sends a message that `write` writes over a connection; `None` if a limit is reached.
    pub(super) fn send_with(
        &mut self,
        env: &mut Env,
        now: Instant,
        (to, expects): (SocketAddr, Expects),
        write: impl FnOnce(&mut Writer<'_>),
        out: Out<'_, '_>,
    ) -> Option<Taken> {
        self.write(env, write, |pool, bytes| pool.send(now, to, bytes, expects, out))
    }

    /// Answers a message that arrived over a connection, over the same one if that can be used (PL-12).
    pub(super) fn answer(
        &mut self,
        env: &mut Env,
        now: Instant,
        to: (StreamId, SocketAddr),
        message: &Message,
        out: Out<'_, '_>,
    ) -> Option<Taken> {
        self.write(env, |writer| encode(message, writer), |pool, bytes| pool.answer(now, to, bytes, out))
    }

    /// Sends a message in a datagram.
    pub(super) fn send_datagram(&self, to: SocketAddr, message: &Message, out: Out<'_, '_>) {
        out.send_with(UDP, to, DATAGRAM_BYTES_MAX, |writer| encode(message, writer))
            .expect("pings and pongs are short");
    }

    /// Handles an accepted connection. Returns false if it was reset, because its address has too many.
    pub(super) fn accepted(
        &mut self,
        now: Instant,
        stream: StreamId,
        from: IpAddr,
        out: Out<'_, '_>,
    ) -> bool {
        self.pool.accepted(now, stream, from, out)
    }

    pub(super) fn connected(&mut self, now: Instant, stream: StreamId, out: Out<'_, '_>) {
        self.pool.connected(now, stream, out);
    }

    pub(super) fn sent(&mut self, now: Instant, stream: StreamId, bytes: usize, out: Out<'_, '_>) {
        self.pool.sent(now, stream, bytes, out);
    }

    /// The messages that `data` completes. All are decoded before any of them takes effect. Invalid bytes have the same
    /// effect as a reset of the stream before them.
    pub(super) fn received(
        &mut self,
        now: Instant,
        stream: StreamId,
        data: &[u8],
        out: Out<'_, '_>,
    ) -> Result<Vec<Message>, DecodeError> {
        let mut messages = core::mem::take(&mut self.received);
        let mut take = |frame: &[u8]| {
            messages.push(decode(frame)?);
            Ok(())
        };
        match self.pool.received(now, stream, data, &mut take, out) {
            Ok(()) => Ok(messages),
            Err(error) => {
                self.recycle(messages);
                Err(error)
            }
        }
    }

    /// The node whose connection the last received bytes measured, and the round trip; only if the connection proves
    /// its address.
    pub(super) fn take_measured(&mut self) -> Option<(Contact, Duration)> {
        let (stream, rtt) = self.pool.take_measured()?;
        self.sender(stream).filter(|sender| sender.is_validated).map(|sender| (sender.contact, rtt))
    }

    /// Reuses the memory of messages that were handled.
    pub(super) fn recycle(&mut self, mut messages: Vec<Message>) {
        messages.clear();
        messages.shrink_to(RECEIVED_KEPT);
        self.received = messages;
    }

    /// Handles the end of the peer's direction.
    pub(super) fn finished(
        &mut self,
        now: Instant,
        stream: StreamId,
        out: Out<'_, '_>,
    ) -> Result<(), DecodeError> {
        self.pool.finished(now, stream, out)
    }

    /// Handles a closed connection. One that ended in good order lost nothing: acknowledgements still arrive, over
    /// another connection.
    pub(super) fn closed(
        &mut self,
        now: Instant,
        stream: StreamId,
        reason: CloseReason,
        out: Out<'_, '_>,
    ) -> Option<Lost> {
        self.pool.closed(now, stream, reason, out).filter(|_| reason != CloseReason::Done)
    }

    /// Resets a connection.
    pub(super) fn abort(&mut self, stream: StreamId, out: Out<'_, '_>) -> Option<Lost> {
        self.pool.abort(stream, out)
    }

    /// Runs what is due on the connections.
    pub(super) fn expire(&mut self, now: Instant, out: Out<'_, '_>) {
        self.pool.expire(now, out);
    }

    /// The next connection that the pool closed by itself.
    pub(super) fn next_lost(&mut self) -> Option<Lost> {
        self.pool.next_lost()
    }

    /// Treats the connections of a suspected node as unresponsive (PL-10).
    pub(super) fn suspect(&mut self, now: Instant, addr: SocketAddr, out: Out<'_, '_>) {
        self.pool.suspect(now, addr, out);
    }

    /// Aborts the connections of a node that died or left (PL-10).
    pub(super) fn gone(&mut self, addr: SocketAddr, out: Out<'_, '_>) {
        self.pool.gone(addr, out);
    }

    /// Begins a failed connect again at once: a message from this address arrived (PL-8).
    pub(super) fn reachable(&mut self, now: Instant, addr: SocketAddr, out: Out<'_, '_>) {
        self.pool.reachable(now, addr, out);
    }

    /// Ends all connections in good order.
    pub(super) fn finish_all(&mut self, now: Instant, out: Out<'_, '_>) {
        self.pool.finish_all(now, out);
    }

    /// The greeting on a connection was accepted.
    pub(super) fn greeted(&mut self, now: Instant, stream: StreamId, from: Contact, out: Out<'_, '_>) {
        self.pool.greeted(now, stream, from, from.addr, out);
    }

    /// The node at the other end of a connection; `None` before its greeting.
    pub(super) fn sender(&self, stream: StreamId) -> Option<Sender> {
        let pool::Peer { label: &contact, addr, rtt } = self.pool.peer(stream)?;
        let is_validated = addr == Some(contact.addr);
        Some(Sender { contact, stream, rtt: rtt.filter(|_| is_validated), is_validated })
    }

    pub(super) fn connections(&self) -> usize {
        self.pool.len()
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        self.pool.deadline()
    }

    /// Writes a message into the scratch buffer and lets `send` send it.
    fn write(
        &mut self,
        env: &mut Env,
        write: impl FnOnce(&mut Writer<'_>),
        send: impl FnOnce(&mut Pool<Contact>, &[u8]) -> Result<Taken, Full>,
    ) -> Option<Taken> {
        let mut writer = Writer::new(&mut self.scratch, env.config().message_bytes_max);
        write(&mut writer);
        let fits = writer.finish().is_ok();
        let taken = if fits { send(&mut self.pool, &self.scratch).ok() } else { None };
        self.scratch.clear();
        self.scratch.shrink_to(SCRATCH_KEPT_BYTES);
        env.count().frames_sent += u64::from(taken.is_some());
        env.count().frames_refused += u64::from(taken.is_none());
        taken
    }
}
