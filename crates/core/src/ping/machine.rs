//! The machine: matches inputs and delegates to the parts.

use core::time::Duration;
use std::net::SocketAddr;

use super::config::{Config, ConfigError, Fault};
use super::count::{COUNT_KEY, Count};
use super::exchanges::{CREDIT, Exchanges};
use super::message::Message;
use super::peers::Peers;
use super::probes::{Probe, Probes};
use super::wire::{MESSAGE_BYTES, decode, encode};
use super::{Command, Event, Reply, Via, rtt_micros};
use crate::counters::VisitCounter;
use crate::endpoint::{Bound, Endpoints, Listener, Socket, Space};
use crate::machine::{Machine, Refusal};
use crate::outbox::Outbox;
use crate::rng::{Rng, Seed};
use crate::store::{StoreFault, StoreReply, StoreResult};
use crate::stream::StreamEvent;
use crate::tag::{ListenerId, OpId, RequestId, SocketId, SpaceId, StreamId};
use crate::time::{Instant, Now};
use crate::wire::DecodeError;

/// The datagram socket.
pub const UDP: SocketId = SocketId::new(0);
/// The stream listener.
pub const TCP: ListenerId = ListenerId::new(0);
/// The store space of the count.
pub const SPACE: SpaceId = SpaceId::new(0);

crate::counters! {
    /// The counters of a pinging node.
    pub struct Counters {
        /// Pings sent.
        pings_sent,
        /// Pings of this node that were answered.
        pongs_received,
        /// Pings of this node without an answer in time.
        pings_missed,
        /// Pings of others that were answered.
        pings_answered,
        /// Pongs that match no ping under way: late, repeated or forged.
        pongs_unmatched,
        /// Datagrams and streams that could not be decoded.
        malformed,
        /// Streams of others that timed out.
        streams_expired,
        /// Regular pings not sent because too many were under way.
        pings_skipped,
    }
}

/// The timers, by the names that `poll_timeout` returns.
mod timer {
    /// The next round of pings.
    pub(super) const ROUND: &str = "ping.round";
    /// The oldest own ping times out.
    pub(super) const PROBE: &str = "ping.probe";
    /// The oldest stream of another node times out.
    pub(super) const STREAM: &str = "ping.stream";
    /// The count is to be written.
    pub(super) const KEEP: &str = "ping.keep";
}

/// A node that pings its peers and answers every ping.
#[derive(Clone, Debug, PartialEq)]
pub struct Ping {
    bind: SocketAddr,
    interval: Duration,
    stream_every: u32,
    streams_max: usize,
    answers_twice: bool,
    syncs: bool,
    rng: Rng,
    peers: Peers,
    probes: Probes,
    exchanges: Exchanges,
    count: Count,
    rounds: u32,
    next_round: Option<Instant>,
    stopping: bool,
    counters: Counters,
}

type Out<'a, 'b> = &'a mut Outbox<'b, Ping>;

impl Ping {
    /// A node with these settings; `seed` decides all random choices.
    ///
    /// # Errors
    /// If the settings cannot work together.
    pub fn new(config: &Config, seed: Seed) -> Result<Self, ConfigError> {
        config.check()?;
        let mut rng = Rng::new(seed);
        Ok(Self {
            peers: Peers::new(&config.peers, config.peers_max, config.vanished_after),
            probes: Probes::new(rng.next_u64(), config.probes_max, config.timeout),
            exchanges: Exchanges::new(config.timeout),
            count: Count::new(config.keep_interval),
            bind: config.bind,
            interval: config.interval,
            stream_every: config.stream_every,
            streams_max: config.streams_max,
            answers_twice: config.has(Fault::AnswerTwice),
            syncs: !config.has(Fault::KeepWithoutSync),
            rng,
            rounds: 0,
            next_round: None,
            stopping: false,
            counters: Counters::default(),
        })
    }

    /// The counters so far.
    #[must_use]
    pub fn counted(&self) -> Counters {
        self.counters
    }

    /// Sets all counters to zero, so that two states can be compared without them.
    pub fn forget_counters(&mut self) {
        self.counters = Counters::default();
    }

    /// How many pings were ever answered here.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count.value()
    }

    /// All peers, in the order they were added.
    #[must_use]
    pub fn peers(&self) -> &[super::PeerStatus] {
        self.peers.list()
    }

    fn round(&mut self, now: Now, out: Out<'_, '_>) {
        self.rounds = self.rounds.wrapping_add(1);
        let by_stream = self.stream_every != 0 && self.rounds.is_multiple_of(self.stream_every);
        let via = if by_stream { Via::Stream } else { Via::Datagram };
        for index in 0..self.peers.len() {
            if !self.ping(now, self.peers.addr(index), via, None, out) {
                self.counters.pings_skipped += 1;
            }
        }
        // The next round is due one interval after this one was due, not after it ran, so that delays do not add up.
        // After a long pause the missed rounds are skipped.
        let due = self.next_round.unwrap_or(now.mono) + self.interval;
        self.next_round = Some(if due > now.mono { due } else { now.mono + self.interval });
    }

    /// Sends one ping. Returns false if too many are under way.
    fn ping(
        &mut self,
        now: Now,
        to: SocketAddr,
        via: Via,
        request: Option<RequestId>,
        out: Out<'_, '_>,
    ) -> bool {
        let stream = (via == Via::Stream).then(|| self.exchanges.allot());
        let Some(sequence) = self.probes.add(to, now.mono, stream, request) else { return false };
        self.counters.pings_sent += 1;
        match stream {
            None => send(to, Message::Ping { sequence }, out),
            Some(stream) => {
                self.exchanges.ask(stream, sequence, to);
                out.open(stream, to, Some(self.bind.ip()));
                write(stream, Message::Ping { sequence }, out);
                out.read(stream, CREDIT);
            }
        }
        true
    }

    fn handle_message(
        &mut self,
        now: Now,
        from: SocketAddr,
        message: Message,
        out: Out<'_, '_>,
    ) -> Result<(), Refusal> {
        match message {
            Message::Ping { sequence } => {
                self.answer(now);
                send(from, Message::Pong { sequence }, out);
                Ok(())
            }
            Message::Pong { sequence } => self.pong(now, sequence, from, None, out),
        }
    }

    fn answer(&mut self, now: Now) {
        self.counters.pings_answered += 1;
        self.count.add_one(now.mono);
    }

    fn pong(
        &mut self,
        now: Now,
        sequence: u64,
        from: SocketAddr,
        stream: Option<StreamId>,
        out: Out<'_, '_>,
    ) -> Result<(), Refusal> {
        let Some(probe) = self.probes.find(sequence, from, stream).cloned() else {
            self.counters.pongs_unmatched += 1;
            return Err(Refusal::Reject("a pong that answers no ping under way"));
        };
        if !self.answers_twice {
            self.probes.take(sequence);
        }
        if let Some(stream) = stream {
            // Both sides have finished: the driver closes the stream.
            self.exchanges.remove(stream);
        }
        self.counters.pongs_received += 1;
        let (rtt, via) = (now.mono.since(probe.sent), probe.via());
        let changed = self.peers.answered(from, rtt);
        let rtt_micros = rtt_micros(rtt);
        out.event(Event::PingAnswered { peer: from, sequence, via, rtt_micros });
        changed.into_iter().for_each(|event| out.event(event));
        if let Some(request) = probe.request {
            out.reply(request, Reply::Answered { rtt_micros });
        }
        Ok(())
    }

    fn miss(&mut self, probe: &Probe, out: Out<'_, '_>) {
        self.counters.pings_missed += 1;
        let changed = self.peers.missed(probe.to);
        out.event(Event::PingMissed { peer: probe.to, sequence: probe.sequence, via: probe.via() });
        changed.into_iter().for_each(|event| out.event(event));
        if let Some(request) = probe.request {
            out.reply(request, Reply::Missed);
        }
    }

    /// Handles the peer's FIN: the message is complete, or invalid.
    fn finished(&mut self, now: Now, stream: StreamId, out: Out<'_, '_>) -> Result<(), Refusal> {
        let Some(message) = self.exchanges.message(stream) else { return Ok(()) };
        let asked = self.exchanges.asking(stream).map(|asking| asking.to);
        match (message, asked) {
            (Ok(Message::Ping { sequence }), None) => {
                self.answer(now);
                write(stream, Message::Pong { sequence }, out);
                Ok(())
            }
            (Ok(Message::Pong { sequence }), Some(to)) => {
                self.pong(now, sequence, to, Some(stream), out).inspect_err(|_| self.break_off(stream, out))
            }
            (Ok(_), _) => Err(self.refuse_stream(stream, DecodeError::Kind, out)),
            (Err(error), _) => Err(self.refuse_stream(stream, error, out)),
        }
    }

    fn refuse_stream(&mut self, stream: StreamId, error: DecodeError, out: Out<'_, '_>) -> Refusal {
        self.counters.malformed += 1;
        self.break_off(stream, out);
        error.into()
    }

    /// Resets a stream with invalid bytes; an own ping on it ends.
    fn break_off(&mut self, stream: StreamId, out: Out<'_, '_>) {
        out.abort(stream);
        self.closed(stream, out);
    }

    fn closed(&mut self, stream: StreamId, out: Out<'_, '_>) {
        let asking = self.exchanges.remove(stream);
        if let Some(probe) = asking.and_then(|asking| self.probes.take(asking.sequence)) {
            self.miss(&probe, out);
        }
    }

    fn keep(&mut self, now: Now, out: Out<'_, '_>) {
        if let Some((op, value)) = self.count.write(now.mono) {
            let durable = self.syncs;
            out.put(op, SPACE, COUNT_KEY, &value.to_be_bytes(), durable);
        }
    }

    fn loaded(&mut self, now: Now, op: OpId, value: Result<u64, StoreFault>, out: Out<'_, '_>) {
        if !self.count.loaded(op, value) {
            return;
        }
        match value {
            Ok(count) => out.event(Event::CountLoaded { count }),
            Err(fault) => out.event(Event::CountFailed { fault }),
        }
        // Nodes that start together draw different offsets.
        self.next_round = Some(now.mono + self.rng.duration_below(self.interval));
    }
}

impl Machine for Ping {
    type Command = Command;
    type Reply = Reply;
    type Event = Event;

    fn endpoints(&self) -> Endpoints {
        Endpoints {
            sockets: vec![Socket { id: UDP, name: "ping/udp", bind: self.bind, broadcast: Vec::new() }],
            listeners: vec![Listener {
                id: TCP,
                name: "ping/tcp",
                bind: self.bind,
                streams_max: self.streams_max,
            }],
            spaces: vec![Space { id: SPACE, name: "ping" }],
        }
    }

    fn handle_start(&mut self, _: Now, _: &Bound, out: Out<'_, '_>) {
        let op = self.count.load();
        out.get(op, SPACE, COUNT_KEY);
    }

    fn handle_datagram(
        &mut self,
        now: Now,
        _: SocketId,
        from: SocketAddr,
        bytes: &[u8],
        out: Out<'_, '_>,
    ) -> Result<(), Refusal> {
        match decode(bytes) {
            Ok(message) => self.handle_message(now, from, message, out),
            Err(error) => {
                self.counters.malformed += 1;
                Err(error.into())
            }
        }
    }

    fn handle_stream(
        &mut self,
        now: Now,
        stream: StreamId,
        event: StreamEvent<'_>,
        out: Out<'_, '_>,
    ) -> Result<(), Refusal> {
        match event {
            StreamEvent::Accepted { .. } => {
                self.exchanges.accept(stream, now.mono);
                out.read(stream, CREDIT);
            }
            StreamEvent::Data(data) => {
                self.exchanges.push(stream, data).map_err(|error| self.refuse_stream(stream, error, out))?;
            }
            StreamEvent::Finished => self.finished(now, stream, out)?,
            StreamEvent::Closed(_) => self.closed(stream, out),
            // Everything was written at once and fits any buffer: these events have no effect.
            StreamEvent::Connected { .. } | StreamEvent::Sent { .. } | StreamEvent::Confirmed { .. } => {}
        }
        Ok(())
    }

    fn handle_stored(&mut self, now: Now, reply: StoreReply<'_>, out: Out<'_, '_>) {
        match reply.result {
            StoreResult::Value(value) => {
                let count = value.map_or(Some(0), |bytes| bytes.try_into().ok().map(u64::from_be_bytes));
                self.loaded(now, reply.op, count.ok_or(StoreFault::Broken), out);
            }
            StoreResult::Written => {
                if let Some(count) = self.count.written(reply.op, now.mono, true) {
                    out.event(Event::CountKept { count });
                }
            }
            StoreResult::Failed(fault) if self.count.is_loading() => {
                self.loaded(now, reply.op, Err(fault), out);
            }
            StoreResult::Failed(fault) => {
                self.count.written(reply.op, now.mono, false);
                out.event(Event::CountFailed { fault });
            }
            StoreResult::Page { .. } => {}
        }
    }

    fn handle_command(&mut self, now: Now, request: RequestId, command: Command, out: Out<'_, '_>) {
        let reply = match command {
            _ if self.stopping => Reply::Stopping,
            Command::Ping { to, via } => {
                if self.ping(now, to, via, Some(request), out) {
                    return; // The reply comes with the answer, or with the timeout.
                }
                Reply::Full
            }
            Command::AddPeer(addr) => {
                if self.peers.add(addr) {
                    Reply::Done
                } else {
                    Reply::Full
                }
            }
            Command::RemovePeer(addr) => {
                self.peers.remove(addr);
                Reply::Done
            }
            Command::Peers => Reply::Peers(self.peers.list().to_vec()),
            Command::Count => Reply::Count(self.count.value()),
        };
        out.reply(request, reply);
    }

    fn handle_timeout(&mut self, now: Now, out: Out<'_, '_>) {
        while let Some(probe) = self.probes.take_expired(now.mono) {
            if let Some(stream) = probe.stream {
                self.exchanges.remove(stream);
                out.abort(stream);
            }
            self.miss(&probe, out);
        }
        while let Some(stream) = self.exchanges.take_expired(now.mono) {
            self.counters.streams_expired += 1;
            out.abort(stream);
        }
        self.keep(now, out);
        if self.next_round.is_some_and(|at| at <= now.mono) && !self.stopping {
            self.round(now, out);
        }
    }

    fn handle_stop(&mut self, now: Now, out: Out<'_, '_>) {
        self.stopping = true;
        self.next_round = None;
        self.count.hurry(now.mono);
        self.keep(now, out);
    }

    fn is_stopped(&self) -> bool {
        self.stopping && self.count.is_settled()
    }

    fn poll_timeout(&self) -> Option<(Instant, &'static str)> {
        let timers = [
            (self.next_round, timer::ROUND),
            (self.probes.deadline(), timer::PROBE),
            (self.exchanges.deadline(), timer::STREAM),
            (self.count.deadline(), timer::KEEP),
        ];
        timers.into_iter().filter_map(|(at, name)| at.map(|at| (at, name))).min()
    }

    fn counters(&self, visit: VisitCounter<'_>) {
        self.counters.visit(visit);
    }

    fn timescales(&self) -> Vec<(&'static str, Duration)> {
        vec![("ping.interval", self.interval), ("ping.timeout", self.exchanges.timeout())]
    }
}

fn send(to: SocketAddr, message: Message, out: Out<'_, '_>) {
    out.send_with(UDP, to, MESSAGE_BYTES, |writer| encode(message, writer))
        .expect("a message has its length");
}

/// Writes a message and ends our direction.
fn write(stream: StreamId, message: Message, out: Out<'_, '_>) {
    out.write_with(stream, MESSAGE_BYTES, |writer| encode(message, writer))
        .expect("a message has its length");
    out.finish(stream);
}
