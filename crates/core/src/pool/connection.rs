//! One connection: its stage, its queued messages, and the bytes that the kernel has taken.

use core::time::Duration;
use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};

use super::frame::{CHUNK_BYTES, HEADER_BYTES, Kind, PROBE_BYTES, Probe, Reader, Take, header};
use super::health::{Health, Silence};
use super::{Config, Expects};
use crate::machine::Machine;
use crate::outbox::Outbox;
use crate::stream::Watch;
use crate::tag::StreamId;
use crate::time::Instant;
use crate::wire::DecodeError;

/// How far the pool writes ahead of the kernel. Written bytes can no longer be overtaken, so this is short.
const AHEAD_BYTES: usize = 4 * CHUNK_BYTES;
/// How many bytes a peer may send before more credit is granted.
pub(super) const CREDIT_BYTES: usize = 4 * CHUNK_BYTES;
/// How long connects to a peer are retried after the last message for it.
const REDIAL_FOR: Duration = Duration::from_secs(10);
/// The longest pause before a refused connect is tried again.
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// The longest timeout of a connect. The kernel repeats its SYN after 1 s, so one goes out every second.
const CONNECT_MAX: Duration = Duration::from_secs(2);

/// The least time after which the driver closes a stream without acknowledgements. Half of it is the interval of
/// keep-alive probes, which must stay rare.
const DEAD_AFTER_MIN: Duration = Duration::from_secs(4);

/// The stage of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// A connect failed, and the next is due later.
    Pausing,
    /// The connect is under way.
    Connecting,
    /// The connection is established, but the peer has not greeted.
    Silent,
    /// In use.
    Open,
    /// One side has finished: nothing new is written.
    Closing,
}

/// The due action of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    /// The pause is over: connect.
    Connect,
    /// The connect takes too long: abort it.
    ConnectFailed,
    /// It is unused: close it.
    Idle,
    /// It sends no greeting, does not read or does not close: abort it.
    Hung,
    /// It was idle and does not close: abort it. That says nothing of the peer (PL-6).
    SlowClose,
    /// The peer is silent.
    Silence(Silence),
}

/// The result of received bytes.
pub(super) struct Received {
    /// Whether the connection was unresponsive until now.
    pub(super) was_unresponsive: bool,
    /// The round trip of a ping that they answer.
    pub(super) rtt: Option<Duration>,
}

/// A queued message.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Queued {
    bytes: Vec<u8>,
    /// Since when, if it is kept through failed connects.
    kept_since: Option<Instant>,
}

/// A connection and its queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Connection<L> {
    stream: StreamId,
    stage: Stage,
    /// The address at which the peer listens. For an accepted connection it is known after the greeting, if it came
    /// from that address.
    peer: Option<SocketAddr>,
    /// The source address, if the peer opened it.
    from: Option<IpAddr>,
    /// The label from the peer's greeting.
    label: Option<L>,
    /// When it was last used.
    used: Instant,
    /// When the connect began, or will.
    connect_at: Instant,
    /// How many connects to this peer failed in a row.
    failures: u32,
    health: Health,
    /// The time without acknowledgements after which the driver closes it.
    dead_after: Duration,
    /// Whether a message that the peer must answer was written before it was established.
    is_asked: bool,
    /// Copies of the messages that were written before it was established and are kept through failed connects.
    early: Vec<Queued>,
    reader: Reader,
    /// Messages of one frame: they go first.
    small: VecDeque<Queued>,
    /// Larger ones, the first of them written up to `large_at`.
    large: VecDeque<Queued>,
    large_at: usize,
    queued_bytes: usize,
    /// Bytes written that the kernel has not taken.
    ahead_bytes: usize,
    /// Bytes granted that were not received.
    credit_bytes: usize,
    /// Whether our direction has ended.
    fin: bool,
    /// Whether this node closes it because it was idle.
    is_idle_close: bool,
    /// Whether it is kept until the kernel closes it.
    is_kept: bool,
}

impl<L> Connection<L> {
    fn new(stream: StreamId, stage: Stage, now: Instant, srtt: Option<Duration>) -> Self {
        Self {
            stream,
            stage,
            peer: None,
            from: None,
            label: None,
            used: now,
            connect_at: now,
            failures: 0,
            health: Health::new(now, srtt),
            dead_after: Duration::ZERO,
            is_asked: false,
            early: Vec::new(),
            reader: Reader::default(),
            small: VecDeque::new(),
            large: VecDeque::new(),
            large_at: 0,
            queued_bytes: 0,
            ahead_bytes: 0,
            credit_bytes: CREDIT_BYTES,
            fin: false,
            is_idle_close: false,
            is_kept: false,
        }
    }

    /// A connection that a peer opened.
    pub(super) fn accepted(stream: StreamId, from: IpAddr, now: Instant) -> Self {
        Self { from: Some(from), ..Self::new(stream, Stage::Silent, now, None) }
    }

    /// A connection to open.
    pub(super) fn dialed(stream: StreamId, to: SocketAddr, now: Instant, srtt: Option<Duration>) -> Self {
        Self { peer: Some(to), ..Self::new(stream, Stage::Pausing, now, srtt) }
    }

    /// Keeps the connection until the kernel closes it: a fault to build in.
    pub(super) fn keep(&mut self, is_kept: bool) {
        self.is_kept = is_kept;
    }

    /// The next attempt after a failed connect, with the messages that are kept; `None` if it is not needed.
    pub(super) fn next_attempt(
        self,
        stream: StreamId,
        now: Instant,
        kept_max: Duration,
        refused: bool,
    ) -> Option<Self> {
        let peer = self.peer?;
        let is_kept = |queued: &Queued| queued.kept_since.is_some_and(|since| now.since(since) < kept_max);
        let mut next = Self::dialed(stream, peer, now, self.health.srtt());
        let is_small = |queued: &Queued| queued.bytes.len() <= CHUNK_BYTES;
        let all = self.early.into_iter().chain(self.small).chain(self.large).filter(is_kept);
        (next.small, next.large) = all.partition(is_small);
        next.queued_bytes = next.small.iter().chain(&next.large).map(|queued| queued.bytes.len()).sum();
        next.used = self.used;
        next.failures = self.failures.saturating_add(1);
        if refused {
            // The peer's system refused at once: an immediate retry would be refused as well.
            next.connect_at = now + next.doubling(next.health.quiet_max()).min(PAUSE_MAX);
        }
        (next.queued_bytes > 0 || now.since(next.used) < REDIAL_FOR).then_some(next)
    }

    /// Opens the stream: the greeting goes first, then the queued messages.
    pub(super) fn connect<M: Machine>(
        &mut self,
        now: Instant,
        bind: Option<IpAddr>,
        greeting: &[u8],
        out: &mut Outbox<'_, M>,
    ) {
        let Some(to) = self.peer else { return };
        self.stage = Stage::Connecting;
        self.connect_at = now;
        out.open(self.stream, to, bind);
        out.read(self.stream, CREDIT_BYTES);
        self.send_greeting(greeting, out);
        self.pump(out);
    }

    /// Handles an established stream.
    pub(super) fn on_connected<M: Machine>(&mut self, now: Instant, out: &mut Outbox<'_, M>) {
        self.stage = Stage::Open;
        self.failures = 0;
        self.used = now;
        let rtt = now.since(self.connect_at);
        self.health = Health::new(now, self.health.srtt());
        self.health.sample(rtt);
        self.health.wrote(now, self.ahead_bytes + self.queued_bytes, self.is_asked);
        self.early = Vec::new();
        self.watch(out);
    }

    /// Handles the greeting on a connection that the peer opened. It is used for sending if it came from the address of
    /// `peer`. A ping after our greeting measures it.
    pub(super) fn on_greeted<M: Machine>(
        &mut self,
        (now, nonce): (Instant, u32),
        label: L,
        peer: SocketAddr,
        greeting: &[u8],
        out: &mut Outbox<'_, M>,
    ) {
        self.label = Some(label);
        if self.stage != Stage::Silent {
            return;
        }
        self.stage = Stage::Open;
        self.watch(out);
        if self.from == Some(peer.ip()) {
            self.peer = Some(peer);
            self.send_greeting(greeting, out);
            self.ping(now, nonce, out);
        }
    }

    /// Writes a message if the queue is empty, else queues it.
    pub(super) fn send<M: Machine>(
        &mut self,
        now: Instant,
        message: &[u8],
        expects: Expects,
        out: &mut Outbox<'_, M>,
    ) {
        self.used = now;
        let stands = self.stage == Stage::Open;
        if stands {
            self.health.wrote(now, message.len(), expects == Expects::Reply);
        }
        self.is_asked |= expects == Expects::Reply;
        self.queued_bytes += message.len();
        let is_small = message.len() <= CHUNK_BYTES;
        if is_small && stands && self.small.is_empty() && self.ahead_bytes < AHEAD_BYTES {
            return self.write(Kind::Whole, message, out);
        }
        let kept_since = (expects == Expects::Nothing).then_some(now);
        let queued = Queued { bytes: message.to_vec(), kept_since };
        if is_small {
            self.small.push_back(queued);
        } else {
            self.large.push_back(queued);
        }
        self.pump(out);
    }

    /// Marks it as unresponsive and pings the peer. Returns whether that is new.
    pub(super) fn mark_unresponsive<M: Machine>(
        &mut self,
        now: Instant,
        nonce: u32,
        out: &mut Outbox<'_, M>,
    ) -> bool {
        let is_new = self.stage == Stage::Open && self.health.mark_unresponsive(now);
        if is_new {
            self.ping(now, nonce, out);
        }
        is_new
    }

    /// Ends our direction after the queued messages, because it is idle or the peer ended. Returns how many of their bytes
    /// were written.
    pub(super) fn finish<M: Machine>(
        &mut self,
        now: Instant,
        is_idle: bool,
        out: &mut Outbox<'_, M>,
    ) -> usize {
        (self.stage, self.is_idle_close) = (Stage::Closing, is_idle);
        self.used = now;
        let before = self.queued_bytes;
        self.pump(out);
        before - self.queued_bytes
    }

    /// Handles bytes that the kernel took.
    pub(super) fn on_sent<M: Machine>(&mut self, now: Instant, bytes: usize, out: &mut Outbox<'_, M>) {
        self.ahead_bytes = self.ahead_bytes.saturating_sub(bytes);
        if self.ahead_bytes > 0 || self.queued_bytes > 0 {
            self.health.progressed(now);
        }
        self.pump(out);
    }

    /// Handles received bytes: gives the completed messages to `take`, grants new credit once half of it is used, and
    /// answers a ping.
    pub(super) fn received<M: Machine>(
        &mut self,
        now: Instant,
        data: &[u8],
        message_bytes_max: usize,
        take: Take<'_>,
        out: &mut Outbox<'_, M>,
    ) -> Result<Received, DecodeError> {
        let probes = self.reader.push(data, message_bytes_max, take)?;
        self.used = now;
        self.credit_bytes = self.credit_bytes.saturating_sub(data.len());
        if self.credit_bytes <= CREDIT_BYTES / 2 {
            out.read(self.stream, CREDIT_BYTES - self.credit_bytes);
            self.credit_bytes = CREDIT_BYTES;
        }
        let was_unresponsive = self.health.on_heard(now);
        let rtt = probes.pong.and_then(|nonce| self.health.on_pong(now, nonce));
        if rtt.is_some() {
            self.watch(out);
        }
        if let Some(nonce) = probes.ping {
            self.write_probe(Probe::Pong(nonce), out);
        }
        Ok(Received { was_unresponsive, rtt })
    }

    /// The action that is due now, or when the next one will be.
    pub(super) fn due(&mut self, now: Instant, config: &Config) -> Result<Due, Instant> {
        let (at, due) = self.staged(config);
        if due == Due::ConnectFailed && at <= now && self.health.extend(now, at) {
            self.connect_at = now;
            return Err(now + self.connect_max());
        }
        if at <= now {
            return Ok(due);
        }
        if self.stage != Stage::Open || self.is_kept {
            return Err(at);
        }
        match self.health.silence(now) {
            Some(silence) => Ok(Due::Silence(silence)),
            None => Err(self.health.deadline().map_or(at, |deadline| deadline.min(at))),
        }
    }

    /// When the next action is due at the earliest. Unread bytes may end the connection sooner than idleness, so the lower
    /// bound of both counts; then nothing that is written or taken moves the timer.
    pub(super) fn next_due(&self, config: &Config) -> Instant {
        if self.stage != Stage::Open {
            return self.staged(config).0;
        }
        let at = self.used + config.idle_timeout;
        let silence = self.health.deadline().filter(|_| !self.is_kept);
        silence.map_or(at, |silence| silence.min(at))
    }

    /// The queued messages, in the order of sending.
    pub(super) fn into_queued(self) -> impl Iterator<Item = Vec<u8>> {
        self.small.into_iter().chain(self.large).map(|queued| queued.bytes)
    }

    pub(super) fn stream(&self) -> StreamId {
        self.stream
    }

    pub(super) fn stage(&self) -> Stage {
        self.stage
    }

    pub(super) fn peer(&self) -> Option<SocketAddr> {
        self.peer
    }

    pub(super) fn from(&self) -> Option<IpAddr> {
        self.from
    }

    pub(super) fn label(&self) -> Option<&L> {
        self.label.as_ref()
    }

    pub(super) fn used(&self) -> Instant {
        self.used
    }

    pub(super) fn failures(&self) -> u32 {
        self.failures
    }

    pub(super) fn connect_at(&self) -> Instant {
        self.connect_at
    }

    pub(super) fn health(&self) -> &Health {
        &self.health
    }

    /// Whether messages can be sent over it, now or once it is established.
    pub(super) fn is_usable(&self) -> bool {
        matches!(self.stage, Stage::Open | Stage::Connecting | Stage::Pausing)
    }

    /// Whether it was never established.
    pub(super) fn is_unconnected(&self) -> bool {
        matches!(self.stage, Stage::Connecting | Stage::Pausing)
    }

    /// Bytes in the queue.
    pub(super) fn queued_bytes(&self) -> usize {
        self.queued_bytes
    }

    /// The memory of an incomplete large message.
    pub(super) fn unfinished_bytes(&self) -> usize {
        self.reader.unfinished_bytes()
    }

    /// Whether none of our bytes are under way.
    pub(super) fn is_quiet(&self) -> bool {
        self.queued_bytes == 0 && self.ahead_bytes == 0
    }

    /// Whether the peer may end the stream here.
    pub(super) fn is_between_messages(&self) -> bool {
        self.reader.is_between_messages()
    }

    /// The next action of this stage, whether or not the peer is silent, and its time.
    fn staged(&self, config: &Config) -> (Instant, Due) {
        match self.stage {
            Stage::Pausing => (self.connect_at, Due::Connect),
            Stage::Connecting => (self.connect_at + self.connect_max(), Due::ConnectFailed),
            Stage::Closing if self.is_idle_close => (self.used + config.connect_timeout, Due::SlowClose),
            Stage::Silent | Stage::Closing => (self.used + config.connect_timeout, Due::Hung),
            Stage::Open if self.is_quiet() => (self.used + self.idle_max(config), Due::Idle),
            Stage::Open => (self.used + config.idle_timeout, Due::Hung),
        }
    }

    /// How long the connection may be idle: up to half as long again as the timeout, by its number. Connections that a node
    /// opened together do not end together; a slow peer would have no time for anything else.
    fn idle_max(&self, config: &Config) -> Duration {
        let sixteenths = (self.stream.local() >> 1).wrapping_sub(1) % 8;
        config.idle_timeout + config.idle_timeout / 16 * sixteenths as u32
    }

    /// How long a connect is waited for: q, and twice as long after each failure.
    fn connect_max(&self) -> Duration {
        self.doubling(self.health.quiet_max()).min(CONNECT_MAX)
    }

    fn doubling(&self, of: Duration) -> Duration {
        of.saturating_mul(1 << self.failures.min(8))
    }

    fn send_greeting<M: Machine>(&mut self, greeting: &[u8], out: &mut Outbox<'_, M>) {
        if !greeting.is_empty() {
            self.queued_bytes += greeting.len();
            self.write(Kind::Whole, greeting, out);
        }
    }

    fn ping<M: Machine>(&mut self, now: Instant, nonce: u32, out: &mut Outbox<'_, M>) {
        self.health.pinged(now, nonce);
        self.write_probe(Probe::Ping(nonce), out);
    }

    /// Lets the driver close the stream after 8 q without an acknowledgement; repeated when q has changed much.
    fn watch<M: Machine>(&mut self, out: &mut Outbox<'_, M>) {
        let dead_after = (self.health.quiet_max() * 8).max(DEAD_AFTER_MIN);
        let has_changed = dead_after * 2 <= self.dead_after || dead_after >= self.dead_after * 2;
        if has_changed && !self.is_kept {
            self.dead_after = dead_after;
            out.watch(self.stream, Watch { confirm: false, dead_after: Some(dead_after) });
        }
    }

    /// Writes a probe ahead of the queue. A peer that does not read gets none.
    fn write_probe<M: Machine>(&mut self, probe: Probe, out: &mut Outbox<'_, M>) {
        if self.ahead_bytes < 2 * AHEAD_BYTES && !self.fin {
            self.queued_bytes += PROBE_BYTES;
            self.write(Kind::Probe, &probe.encode(), out);
        }
    }

    /// Writes as far ahead as allowed: small messages first, then one chunk of the large one, and again.
    fn pump<M: Machine>(&mut self, out: &mut Outbox<'_, M>) {
        if self.stage == Stage::Pausing {
            return;
        }
        while self.ahead_bytes < AHEAD_BYTES {
            if let Some(message) = self.small.pop_front() {
                self.write(Kind::Whole, &message.bytes, out);
                self.keep_early(message);
                continue;
            }
            let Some(message) = self.large.pop_front() else { break };
            let rest = &message.bytes[self.large_at..];
            if rest.len() > CHUNK_BYTES {
                self.write(Kind::Part, &rest[..CHUNK_BYTES], out);
                self.large_at += CHUNK_BYTES;
                self.large.push_front(message);
            } else {
                self.write(Kind::Last, rest, out);
                self.large_at = 0;
                self.keep_early(message);
            }
        }
        if self.stage == Stage::Closing && self.queued_bytes == 0 && !self.fin {
            self.fin = true;
            out.finish(self.stream);
        }
    }

    /// Keeps a message that was written before the connection is established, if it is kept through failed connects.
    fn keep_early(&mut self, message: Queued) {
        if self.stage == Stage::Connecting && message.kept_since.is_some() {
            self.early.push(message);
        }
    }

    fn write<M: Machine>(&mut self, kind: Kind, payload: &[u8], out: &mut Outbox<'_, M>) {
        let bytes = HEADER_BYTES + payload.len();
        out.write_with(self.stream, bytes, |writer| {
            writer.bytes(&header(kind, payload.len()));
            writer.bytes(payload);
        })
        .expect("a frame has its length");
        self.queued_bytes -= payload.len();
        self.ahead_bytes += bytes;
    }
}
