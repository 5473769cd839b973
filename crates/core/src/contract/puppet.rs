//! A scripted machine: it does what its commands say and reports every input as an event. Tests of drivers use it.

use core::fmt;
use core::time::Duration;
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use serde::Serialize;

use crate::counters::{Counter, VisitCounter};
use crate::endpoint::{Bound, Endpoints, Listener, Socket, Space};
use crate::machine::{Machine, Refusal};
use crate::outbox::Outbox;
use crate::store::{StoreFault, StoreReply, StoreResult};
use crate::stream::{CloseReason, StreamEvent, Watch};
use crate::tag::{ListenerId, OpId, RequestId, Service, SocketId, SpaceId, StreamId};
use crate::time::{Instant, Now};

/// The socket of a puppet.
pub const UDP: SocketId = SocketId::new(0);
/// The listener of a puppet.
pub const TCP: ListenerId = ListenerId::new(0);
/// The store space of a puppet.
pub const SPACE: SpaceId = SpaceId::new(0);
/// Bytes that a puppet refuses, as a datagram and on a stream.
pub const GARBAGE: &[u8] = b"garbage";

/// The pause between two timers while a puppet stops.
const STOP_INTERVAL: Duration = Duration::from_millis(5);

/// A machine that does what its commands say.
#[derive(Clone, Debug)]
pub struct Puppet {
    /// The address of its socket and its listener.
    pub bind: SocketAddr,
    /// The broadcast addresses of its socket.
    pub broadcast: Vec<SocketAddr>,
    /// The limit of its listener.
    pub streams_max: usize,
    /// Whether it sends every datagram back.
    pub echo: bool,
    /// The read credit that it grants to every new stream.
    pub credit: usize,
    /// Its actions at the start.
    pub at_start: Vec<Do>,
    /// How many timers must expire after a stop request before it has stopped.
    pub stop_timers: u32,
    /// Whether it never stops.
    pub refuses_to_stop: bool,
    /// Whether it has a socket and a listener.
    pub has_endpoints: bool,
    /// Whether it has a store space.
    pub has_store: bool,
    /// Its state.
    pub state: State,
}

/// The state of a puppet.
#[derive(Clone, Debug, Default)]
pub struct State {
    is_stopping: bool,
    spins: bool,
    streams: u64,
    ops: u64,
    timer: Option<Instant>,
    inputs: u64,
    live: BTreeSet<StreamId>,
}

impl Default for Puppet {
    fn default() -> Self {
        Self {
            bind: (Ipv4Addr::LOCALHOST, 0).into(),
            broadcast: Vec::new(),
            streams_max: 64,
            echo: false,
            credit: 0,
            at_start: Vec::new(),
            stop_timers: 0,
            refuses_to_stop: false,
            has_endpoints: true,
            has_store: false,
            state: State::default(),
        }
    }
}

/// One action of a puppet.
#[derive(Clone, Debug)]
pub enum Do {
    /// Sends a datagram.
    Send(SocketAddr, Vec<u8>),
    /// Broadcasts a datagram.
    Broadcast(Vec<u8>),
    /// Opens a stream, perhaps from an address, under the next number.
    Open(SocketAddr, Option<IpAddr>),
    /// Opens a stream under this number.
    OpenAs(StreamId, SocketAddr, Option<IpAddr>),
    /// Writes to a stream.
    Write(StreamId, Vec<u8>),
    /// Grants read credit.
    Read(StreamId, usize),
    /// Closes the sending side of a stream.
    Finish(StreamId),
    /// Watches a stream.
    Watch(StreamId, Watch),
    /// Resets a stream.
    Abort(StreamId),
    /// Writes a value to the store, durably or not.
    Put(&'static str, Vec<u8>, bool),
    /// Reads a value from the store.
    Get(&'static str),
    /// Reads the entries between two keys, at most this many.
    Page(&'static str, &'static str, u32),
    /// Emits this many events.
    Shout(u32),
    /// Sets the timer.
    Wake(Duration),
    /// Sets the timer to now and never cancels it.
    Spin,
    /// Sends no reply to this command.
    Ignore,
}

/// The reply of a puppet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Done {
    /// The stream that it opened last.
    pub stream: StreamId,
    /// The clocks as it saw them.
    pub now: Now,
}

/// An input of a puppet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[expect(missing_docs, reason = "the variants are those of the contract")]
pub enum Saw {
    Start,
    Datagram(SocketAddr, Vec<u8>),
    Accepted(StreamId, SocketAddr),
    Connected(StreamId, SocketAddr),
    Data(StreamId, Vec<u8>),
    Sent(StreamId, usize, bool),
    Confirmed(StreamId, usize),
    Finished(StreamId),
    Closed(StreamId, CloseReason),
    Value(Option<Vec<u8>>),
    Page(Vec<Vec<u8>>, bool),
    Written,
    Failed(StoreFault),
    Command,
    Timeout,
    Stop,
    Shout(u32),
}

impl fmt::Display for Saw {
    /// One line; long bytes are only counted.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Start => f.write_str("started"),
            Self::Datagram(from, bytes) => write!(f, "{} from {}", text(bytes), from.ip()),
            Self::Accepted(stream, from) => write!(f, "{stream} accepted {}", from.ip()),
            Self::Connected(stream, local) => write!(f, "{stream} connected {}", local.ip()),
            Self::Data(stream, bytes) => write!(f, "{stream} data {}", text(bytes)),
            Self::Sent(stream, bytes, fin) => {
                write!(f, "{stream} sent {bytes}{}", if *fin { " fin" } else { "" })
            }
            Self::Confirmed(stream, bytes) => write!(f, "{stream} confirmed {bytes}"),
            Self::Finished(stream) => write!(f, "{stream} finished"),
            Self::Closed(stream, reason) => write!(f, "{stream} closed {reason:?}"),
            Self::Value(value) => write!(f, "value {:?}", value.as_deref().map(text)),
            Self::Page(keys, more) => {
                let keys: Vec<String> = keys.iter().map(|key| text(key)).collect();
                write!(f, "page {} more {more}", keys.join(","))
            }
            Self::Written => f.write_str("written"),
            Self::Failed(fault) => write!(f, "failed {fault:?}"),
            Self::Command => f.write_str("command"),
            Self::Timeout => f.write_str("woken"),
            Self::Stop => f.write_str("asked to stop"),
            Self::Shout(number) => write!(f, "shout {number}"),
        }
    }
}

fn text(bytes: &[u8]) -> String {
    if bytes.len() > 16 { format!("{} B", bytes.len()) } else { String::from_utf8_lossy(bytes).into_owned() }
}

impl Puppet {
    fn act(&mut self, now: Now, what: Do, out: &mut Outbox<'_, Self>) {
        match what {
            Do::Send(to, bytes) => out.send(UDP, to, &bytes),
            Do::Broadcast(bytes) => out.broadcast(UDP, &bytes),
            Do::Open(to, from) => {
                out.open(StreamId::opened(self.state.streams), to, from);
                self.state.streams += 1;
            }
            Do::OpenAs(stream, to, from) => out.open(stream, to, from),
            Do::Write(stream, bytes) => out.write(stream, &bytes),
            Do::Read(stream, credit) => out.read(stream, credit),
            Do::Finish(stream) => out.finish(stream),
            Do::Watch(stream, watch) => out.watch(stream, watch),
            Do::Abort(stream) => {
                self.state.live.remove(&stream);
                out.abort(stream);
            }
            Do::Put(key, value, durable) => out.put(self.op(), SPACE, key.as_bytes(), &value, durable),
            Do::Get(key) => out.get(self.op(), SPACE, key.as_bytes()),
            Do::Page(from, until, entries_max) => {
                out.page(self.op(), SPACE, from.as_bytes(), until.as_bytes(), entries_max);
            }
            Do::Shout(count) => (0..count).for_each(|n| out.event(Saw::Shout(n))),
            Do::Wake(after) => self.state.timer = Some(now.mono + after),
            Do::Spin => (self.state.timer, self.state.spins) = (Some(now.mono), true),
            Do::Ignore => {}
        }
    }

    fn op(&mut self) -> OpId {
        self.state.ops += 1;
        OpId::new(self.state.ops)
    }
}

impl Machine for Puppet {
    type Command = Vec<Do>;
    type Reply = Done;
    type Event = Saw;

    fn endpoints(&self) -> Endpoints {
        let mut endpoints = Endpoints::default();
        if self.has_endpoints {
            let (bind, broadcast) = (self.bind, self.broadcast.clone());
            endpoints.sockets.push(Socket { id: UDP, name: "puppet/udp", bind, broadcast });
            let streams_max = self.streams_max;
            endpoints.listeners.push(Listener { id: TCP, name: "puppet/tcp", bind, streams_max });
        }
        if self.has_store {
            endpoints.spaces.push(Space { id: SPACE, name: "puppet" });
        }
        endpoints
    }

    fn handle_start(&mut self, now: Now, _bound: &Bound, out: &mut Outbox<'_, Self>) {
        out.event(Saw::Start);
        for what in core::mem::take(&mut self.at_start) {
            self.act(now, what, out);
        }
    }

    fn handle_datagram(
        &mut self,
        _now: Now,
        socket: SocketId,
        from: SocketAddr,
        bytes: &[u8],
        out: &mut Outbox<'_, Self>,
    ) -> Result<(), Refusal> {
        self.state.inputs += 1;
        if bytes == GARBAGE {
            return Err(Refusal::Reject("garbage"));
        }
        out.event(Saw::Datagram(from, bytes.to_vec()));
        if self.echo {
            out.send(socket, from, bytes);
        }
        Ok(())
    }

    /// # Panics
    /// If the first event of a stream is not one that a stream may begin with.
    fn handle_stream(
        &mut self,
        _now: Now,
        id: StreamId,
        event: StreamEvent<'_>,
        out: &mut Outbox<'_, Self>,
    ) -> Result<(), Refusal> {
        self.state.inputs += 1;
        let is_first = self.state.live.insert(id);
        if is_first && self.credit > 0 && !matches!(event, StreamEvent::Closed(_)) {
            out.read(id, self.credit);
        }
        let saw = match event {
            StreamEvent::Accepted { from, .. } => Saw::Accepted(id, from),
            StreamEvent::Connected { local } => Saw::Connected(id, local),
            StreamEvent::Closed(reason) => {
                self.state.live.remove(&id);
                Saw::Closed(id, reason)
            }
            _ if is_first => panic!("the first event of {id} is {event:?}"),
            StreamEvent::Data(bytes) => Saw::Data(id, bytes.to_vec()),
            StreamEvent::Sent { bytes, fin } => Saw::Sent(id, bytes, fin),
            StreamEvent::Confirmed { bytes } => Saw::Confirmed(id, bytes),
            StreamEvent::Finished => Saw::Finished(id),
        };
        let is_garbage = matches!(&saw, Saw::Data(_, bytes) if bytes == GARBAGE);
        out.event(saw);
        if is_garbage {
            self.state.live.remove(&id);
            out.abort(id);
            return Err(Refusal::Reject("garbage"));
        }
        Ok(())
    }

    fn handle_stored(&mut self, _now: Now, reply: StoreReply<'_>, out: &mut Outbox<'_, Self>) {
        out.event(match reply.result {
            StoreResult::Value(value) => Saw::Value(value.map(<[u8]>::to_vec)),
            StoreResult::Page { entries, more } => {
                Saw::Page(entries.iter().map(|(key, _)| key.clone()).collect(), more)
            }
            StoreResult::Written => Saw::Written,
            StoreResult::Failed(fault) => Saw::Failed(fault),
        });
    }

    fn handle_command(&mut self, now: Now, request: RequestId, command: Vec<Do>, out: &mut Outbox<'_, Self>) {
        let is_answered = !command.iter().any(|what| matches!(what, Do::Ignore));
        out.event(Saw::Command);
        for what in command {
            self.act(now, what, out);
        }
        if is_answered {
            out.reply(request, Done { stream: StreamId::opened(self.state.streams.saturating_sub(1)), now });
        }
    }

    fn handle_timeout(&mut self, now: Now, out: &mut Outbox<'_, Self>) {
        if self.state.timer.is_some_and(|at| at <= now.mono) && !self.state.spins {
            self.state.timer = None;
            out.event(Saw::Timeout);
            if self.state.is_stopping && self.stop_timers > 0 {
                self.stop_timers -= 1;
                self.state.timer = (self.stop_timers > 0).then_some(now.mono + STOP_INTERVAL);
            }
        }
    }

    fn handle_stop(&mut self, now: Now, out: &mut Outbox<'_, Self>) {
        self.state.is_stopping = true;
        self.state.timer = (self.stop_timers > 0).then_some(now.mono + STOP_INTERVAL);
        out.event(Saw::Stop);
    }

    fn is_stopped(&self) -> bool {
        self.state.is_stopping && self.stop_timers == 0 && !self.refuses_to_stop
    }

    fn poll_timeout(&self) -> Option<(Instant, &'static str)> {
        self.state.timer.map(|at| (at, "puppet"))
    }

    fn counters(&self, visit: VisitCounter<'_>) {
        let (service, help) = (Service(0), "Inputs from the network.");
        visit(Counter { service, name: "inputs", help, value: self.state.inputs });
    }
}
