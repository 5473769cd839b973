//! A machine that does what a test tells it and tells the test everything that happens to it.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use annulus_core::{
    Bound, CloseReason, Counter, Endpoints, Instant, Listener, ListenerId, Machine, Now, OpId, Outbox,
    Refusal, RequestId, Socket, SocketId, Space, SpaceId, StoreFault, StoreReply, StoreResult, StreamEvent,
    StreamId, VisitCounter,
};
use annulus_net::{BindError, Driver, Events, Handle, Options, Store};
use serde::Serialize;

pub(crate) const UDP: SocketId = SocketId::new(0);
pub(crate) const TCP: ListenerId = ListenerId::new(0);
pub(crate) const SPACE: SpaceId = SpaceId::new(0);
/// A datagram that the puppet refuses.
pub(crate) const GARBAGE: &[u8] = b"garbage";

/// What a puppet is like.
#[derive(Clone, Debug)]
pub(crate) struct Puppet {
    pub(crate) bind: SocketAddr,
    pub(crate) broadcast: Vec<SocketAddr>,
    pub(crate) streams_max: usize,
    /// Send datagrams back to where they came from.
    pub(crate) echo: bool,
    /// What it does at its start.
    pub(crate) at_start: Vec<Do>,
    /// How often it is not yet stopped when asked, until a timer of this length has run out so often.
    pub(crate) stop_timers: u32,
    pub(crate) refuses_to_stop: bool,
    pub(crate) endpoints: bool,
    pub(crate) store: bool,
    pub(crate) state: State,
}

/// What a puppet remembers.
#[derive(Clone, Debug, Default)]
pub(crate) struct State {
    stopping: bool,
    streams: u64,
    ops: u64,
    timer: Option<Instant>,
    inputs: u64,
    live: BTreeSet<StreamId>,
}

impl Default for Puppet {
    fn default() -> Self {
        Self {
            bind: "127.0.0.1:0".parse().unwrap(),
            broadcast: Vec::new(),
            streams_max: 64,
            echo: false,
            at_start: Vec::new(),
            stop_timers: 0,
            refuses_to_stop: false,
            endpoints: true,
            store: false,
            state: State::default(),
        }
    }
}

/// What a puppet can be told.
#[derive(Clone, Debug)]
pub(crate) enum Do {
    Send(SocketAddr, Vec<u8>),
    Broadcast(Vec<u8>),
    Open(SocketAddr, Option<IpAddr>),
    Write(StreamId, Vec<u8>),
    Read(StreamId, usize),
    Finish(StreamId),
    Abort(StreamId),
    Put(&'static str, Vec<u8>, bool),
    Get(&'static str),
    Page(u32),
    Shout(u32),
    Wake(Duration),
    /// Reply never.
    Ignore,
}

/// What a puppet answers: the stream it opened last, if any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Done(pub(crate) StreamId);

/// What a puppet saw.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) enum Saw {
    Start,
    Datagram(SocketAddr, Vec<u8>),
    Accepted(StreamId, SocketAddr),
    Connected(StreamId, SocketAddr),
    Data(StreamId, Vec<u8>),
    Sent(StreamId, usize, bool),
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

impl Puppet {
    fn act(&mut self, now: Now, what: Do, out: &mut Outbox<'_, Self>) {
        match what {
            Do::Send(to, bytes) => out.send(UDP, to, &bytes),
            Do::Broadcast(bytes) => out.broadcast(UDP, &bytes),
            Do::Open(to, from) => {
                out.open(StreamId::opened(self.state.streams), to, from);
                self.state.streams += 1;
            }
            Do::Write(stream, bytes) => out.write(stream, &bytes),
            Do::Read(stream, credit) => out.read(stream, credit),
            Do::Finish(stream) => out.finish(stream),
            Do::Abort(stream) => {
                self.state.live.remove(&stream);
                out.abort(stream);
            }
            Do::Put(key, value, durable) => {
                out.put(OpId::new(self.state.ops), SPACE, key.as_bytes(), &value, durable);
                self.state.ops += 1;
            }
            Do::Get(key) => {
                out.get(OpId::new(self.state.ops), SPACE, key.as_bytes());
                self.state.ops += 1;
            }
            Do::Page(entries_max) => {
                out.page(OpId::new(self.state.ops), SPACE, b"", b"", entries_max);
                self.state.ops += 1;
            }
            Do::Shout(count) => (0..count).for_each(|n| out.event(Saw::Shout(n))),
            Do::Wake(after) => self.state.timer = Some(now.mono + after),
            Do::Ignore => {}
        }
    }
}

impl Machine for Puppet {
    type Command = Vec<Do>;
    type Reply = Done;
    type Event = Saw;

    fn endpoints(&self) -> Endpoints {
        let mut endpoints = Endpoints::default();
        if self.endpoints {
            let (bind, broadcast) = (self.bind, self.broadcast.clone());
            endpoints.sockets.push(Socket { id: UDP, name: "puppet/udp", bind, broadcast });
            let streams_max = self.streams_max;
            endpoints.listeners.push(Listener { id: TCP, name: "puppet/tcp", bind, streams_max });
        }
        if self.store {
            endpoints.spaces.push(Space { id: SPACE, name: "puppet" });
        }
        endpoints
    }

    fn handle_start(&mut self, now: Now, _bound: &Bound, out: &mut Outbox<'_, Self>) {
        out.event(Saw::Start);
        for what in std::mem::take(&mut self.at_start) {
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

    fn handle_stream(
        &mut self,
        _now: Now,
        id: StreamId,
        event: StreamEvent<'_>,
        out: &mut Outbox<'_, Self>,
    ) -> Result<(), Refusal> {
        self.state.inputs += 1;
        let is_first = self.state.live.insert(id);
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
            StreamEvent::Finished => Saw::Finished(id),
        };
        let garbage = matches!(&saw, Saw::Data(_, bytes) if bytes == GARBAGE);
        out.event(saw);
        if garbage {
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
        let mut answer = true;
        out.event(Saw::Command);
        for what in command {
            answer &= !matches!(what, Do::Ignore);
            self.act(now, what, out);
        }
        if answer {
            out.reply(request, Done(StreamId::opened(self.state.streams.saturating_sub(1))));
        }
    }

    fn handle_timeout(&mut self, now: Now, out: &mut Outbox<'_, Self>) {
        if self.state.timer.is_some_and(|at| at <= now.mono) {
            self.state.timer = None;
            out.event(Saw::Timeout);
            if self.state.stopping && self.stop_timers > 0 {
                self.stop_timers -= 1;
                self.state.timer = (self.stop_timers > 0).then_some(now.mono + Duration::from_millis(5));
            }
        }
    }

    fn handle_stop(&mut self, now: Now, out: &mut Outbox<'_, Self>) {
        self.state.stopping = true;
        self.state.timer = (self.stop_timers > 0).then_some(now.mono + Duration::from_millis(5));
        out.event(Saw::Stop);
    }

    fn is_stopped(&self) -> bool {
        self.state.stopping && self.stop_timers == 0 && !self.refuses_to_stop
    }

    fn poll_timeout(&self) -> Option<(Instant, &'static str)> {
        self.state.timer.map(|at| (at, "wake"))
    }

    fn counters(&self, visit: VisitCounter<'_>) {
        visit(Counter {
            service: annulus_core::Service(0),
            name: "inputs",
            help: "Inputs from the network.",
            value: self.state.inputs,
        });
    }
}

/// A running puppet and everything it saw.
pub(crate) struct Stage {
    pub(crate) handle: Handle<Puppet>,
    pub(crate) events: Events<Puppet>,
}

impl Stage {
    /// Lets a puppet run.
    pub(crate) fn new(puppet: Puppet, options: Options) -> Self {
        Self::try_new(puppet, options).unwrap()
    }

    /// Lets a puppet run if it can be bound.
    pub(crate) fn try_new(puppet: Puppet, options: Options) -> Result<Self, BindError> {
        let (driver, handle) = Driver::bind(puppet, options)?;
        let events = handle.events();
        tokio::spawn(driver);
        Ok(Self { handle, events })
    }

    pub(crate) fn plain() -> Self {
        Self::new(Puppet::default(), patient())
    }

    pub(crate) fn udp(&self) -> SocketAddr {
        self.handle.bound().socket(UDP).unwrap()
    }

    pub(crate) fn tcp(&self) -> SocketAddr {
        self.handle.bound().listener(TCP).unwrap()
    }

    /// Tells it what to do; done when this returns.
    pub(crate) async fn tell(&self, what: impl IntoIterator<Item = Do>) -> StreamId {
        let command = self.handle.command(what.into_iter().collect());
        guard(command).await.unwrap().0
    }

    /// The next that it saw and for which `pick` has a use; everything before it is passed over.
    pub(crate) async fn see<T>(&mut self, mut pick: impl FnMut(&Saw) -> Option<T>) -> T {
        loop {
            let event = guard(self.events.next()).await.expect("the puppet lives");
            if let Some(found) = pick(&event) {
                return found;
            }
        }
    }

    /// What it saw next, commands aside.
    pub(crate) async fn next(&mut self) -> Saw {
        self.see(|saw| (*saw != Saw::Command && *saw != Saw::Start).then(|| saw.clone())).await
    }

    /// Everything that it saw and nobody looked at, after the driver had a few turns to do what it should not.
    pub(crate) async fn rest(&mut self) -> Vec<Saw> {
        for _ in 0..20 {
            self.tell([]).await;
            tokio::task::yield_now().await;
        }
        let mut rest = Vec::new();
        while let Some(event) = self.events.try_next() {
            if *event != Saw::Command && *event != Saw::Start {
                rest.push(Saw::clone(&event));
            }
        }
        rest
    }

    /// The stream that was accepted next.
    pub(crate) async fn accepted(&mut self) -> StreamId {
        self.see(|saw| match saw {
            Saw::Accepted(id, _) => Some(*id),
            _ => None,
        })
        .await
    }

    /// Why this stream was closed.
    pub(crate) async fn closed(&mut self, stream: StreamId) -> CloseReason {
        self.see(|saw| match saw {
            Saw::Closed(id, reason) if *id == stream => Some(*reason),
            _ => None,
        })
        .await
    }

    pub(crate) async fn counters(&self) -> annulus_net::DriverCounters {
        guard(self.handle.counters()).await.unwrap().driver
    }
}

/// Waits, but not for ever: a hang is a failure with a place.
#[track_caller]
pub(crate) fn guard<F: Future>(future: F) -> impl Future<Output = F::Output> {
    let place = std::panic::Location::caller();
    async move {
        match tokio::time::timeout(Duration::from_secs(60), future).await {
            Ok(output) => output,
            Err(_) => panic!("nothing happened for a minute at {place}"),
        }
    }
}

/// The default limits, with patience: on a loaded machine a sync alone may take seconds.
pub(crate) fn patient() -> Options {
    Options { grace: Duration::from_secs(60), ..Options::default() }
}

/// The same with a store.
pub(crate) fn with_store(store: Store) -> Options {
    Options { store, ..patient() }
}

/// Shares an event's content.
pub(crate) fn datagram(saw: &Saw) -> Option<(SocketAddr, Vec<u8>)> {
    match saw {
        Saw::Datagram(from, bytes) => Some((*from, bytes.clone())),
        _ => None,
    }
}

/// A store in a file that goes away with the returned directory.
pub(crate) fn file() -> (tempfile::TempDir, Store) {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::File(directory.path().join("store.redb"));
    (directory, store)
}

/// Keeps an `Arc` event comparable.
pub(crate) fn owned(event: Option<Arc<Saw>>) -> Option<Saw> {
    event.map(|event| Saw::clone(&event))
}
