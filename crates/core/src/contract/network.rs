//! A small network in memory for tests of any machine: a few nodes, latency, loss, cuts, pauses, crashes and disks.
//!
//! The simulator has more faults and the checkers. This network is for tests that read like a transcript: start, command,
//! run for a while, look at the nodes. `w3w` keeps its own group: its tests need readers that stall, full disks, random delays and
//! silent kills, which no other machine's tests need.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use super::disk::Disk;
use crate::endpoint::{Bound, Endpoints};
use crate::machine::Machine;
use crate::outbox::{Action, Outbox, Queue};
use crate::store::StoreReply;
use crate::stream::{CloseReason, StreamEvent};
use crate::tag::{ListenerId, OpId, RequestId, SocketId, StreamId};
use crate::time::{Instant, Now, Wall};

/// The bytes that a receiving kernel buffers for one stream; the sender's machine gets `Sent` for no more.
const KERNEL_BYTES: usize = 64 * 1024;
/// The time that the store needs for an operation.
const STORE_TIME: Duration = Duration::from_micros(100);

/// One end of a stream: the node and its number there.
type End = (usize, StreamId);
type Make<M> = Box<dyn FnMut(u64) -> M>;

/// A node of the network.
pub struct Node<M: Machine> {
    /// The machine, as its last start left it.
    pub machine: M,
    /// Its events, oldest first.
    pub events: Vec<M::Event>,
    /// Its replies.
    pub replies: BTreeMap<RequestId, M::Reply>,
    /// Its disk.
    pub disk: Disk,
    make: Make<M>,
    /// The declarations of the machine at its last start.
    endpoints: Endpoints,
    queue: Queue<M>,
    state: State,
    /// Inputs that wait until the process is resumed.
    waiting: Vec<Input>,
    starts: u64,
    accepted: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Up,
    Paused,
    /// The process has ended.
    Down,
    /// The host is off.
    Off,
}

/// An input of a node.
enum Input {
    Wake,
    Datagram { socket: SocketId, from: SocketAddr, bytes: Vec<u8> },
    Accepted { stream: StreamId, listener: ListenerId, from: SocketAddr, local: SocketAddr },
    Connected { stream: StreamId, local: SocketAddr },
    Arrived { stream: StreamId, bytes: Vec<u8>, fin: bool },
    Closed { stream: StreamId, reason: CloseReason },
    Stored { op: OpId, answer: super::disk::Answer },
}

#[derive(Default)]
struct Pipe {
    peer: Option<End>,
    credit: usize,
    arrived: Vec<u8>,
    /// Whether the peer has closed its side, and the machine got that.
    fin: bool,
    fin_given: bool,
    /// Whether this side is closed, and the machine got that as sent.
    finished: bool,
    /// Bytes that the machine wrote and that were not reported as sent.
    unreported: usize,
    /// When the last input for this end arrives: streams keep their order.
    last: Instant,
}

/// Decides whether a datagram from one node to another is dropped.
type DropIf = Box<dyn FnMut(usize, usize, &[u8]) -> bool>;

/// Nodes and the network between them. Time passes only in [`run`](Self::run).
pub struct Network<M: Machine> {
    /// The nodes in the order they were added.
    pub nodes: Vec<Node<M>>,
    /// How many datagrams and writes were sent so far, those included that were dropped.
    pub packets: u64,
    now: Instant,
    pipes: BTreeMap<End, Pipe>,
    inputs: BTreeMap<(Instant, u64), (usize, Input)>,
    sequence: u64,
    requests: u64,
    cut: BTreeSet<(usize, usize)>,
    latency: Box<dyn FnMut(usize, usize) -> Duration>,
    drop_if: DropIf,
}

impl<M: Machine> Default for Network<M> {
    /// An empty network with a latency of 5 ms and no loss.
    fn default() -> Self {
        Self {
            nodes: Vec::new(),
            packets: 0,
            now: Instant::from_micros(1_000_000),
            pipes: BTreeMap::new(),
            inputs: BTreeMap::new(),
            sequence: 0,
            requests: 0,
            cut: BTreeSet::new(),
            latency: Box::new(|_, _| Duration::from_millis(5)),
            drop_if: Box::new(|_, _, _| false),
        }
    }
}

impl<M: Machine> Network<M> {
    /// Adds a node and starts it. `make` gets the number of the start, from 1, and makes the machine each time.
    pub fn add(&mut self, mut make: impl FnMut(u64) -> M + 'static) -> usize {
        let node = Node {
            machine: make(0),
            events: Vec::new(),
            replies: BTreeMap::new(),
            disk: Disk::default(),
            make: Box::new(make),
            endpoints: Endpoints::default(),
            queue: Queue::new(),
            state: State::Down,
            waiting: Vec::new(),
            starts: 0,
            accepted: 0,
        };
        self.nodes.push(node);
        self.start(self.nodes.len() - 1);
        self.nodes.len() - 1
    }

    /// Starts a node that is down, with the content of its disk.
    pub fn start(&mut self, index: usize) {
        let node = &mut self.nodes[index];
        node.starts += 1;
        node.machine = (node.make)(node.starts);
        node.queue = Queue::new();
        node.state = State::Up;
        node.endpoints = node.machine.endpoints();
        let Endpoints { sockets, listeners, .. } = &node.endpoints;
        let bound = Bound {
            sockets: sockets.iter().map(|socket| (socket.id, socket.bind)).collect(),
            listeners: listeners.iter().map(|listener| (listener.id, listener.bind)).collect(),
            ..Bound::default()
        };
        self.call(index, |machine, now, out| machine.handle_start(now, &bound, out));
    }

    /// Gives a command to a node.
    pub fn command(&mut self, index: usize, command: M::Command) -> RequestId {
        self.requests += 1;
        let request = RequestId(self.requests);
        self.call(index, |machine, now, out| machine.handle_command(now, request, command, out));
        request
    }

    /// The reply to a command, once it is there.
    #[must_use]
    pub fn reply(&self, index: usize, request: RequestId) -> Option<&M::Reply> {
        self.nodes[index].replies.get(&request)
    }

    /// Calls the machine of a node, and performs its actions.
    pub fn call(&mut self, index: usize, call: impl FnOnce(&mut M, Now, &mut Outbox<'_, M>)) {
        let now = self.time();
        let node = &mut self.nodes[index];
        if node.state == State::Up {
            call(&mut node.machine, now, &mut node.queue.outbox());
            self.perform(index);
        }
    }

    /// Lets time pass.
    pub fn run(&mut self, by: Duration) {
        let until = self.now + by;
        while let Some(entry) = self.inputs.first_entry().filter(|entry| entry.key().0 <= until) {
            let ((at, _), (index, input)) = entry.remove_entry();
            self.now = self.now.max(at);
            match self.nodes[index].state {
                State::Up => self.deliver(index, input),
                State::Paused => self.nodes[index].waiting.push(input),
                State::Down | State::Off => {}
            }
        }
        self.now = until;
    }

    /// Lets time pass in steps of 5 ms until `done`, and returns how long it took.
    ///
    /// # Panics
    /// If that is longer than `most`.
    pub fn run_until(&mut self, most: Duration, done: impl Fn(&Self) -> bool) -> Duration {
        let begin = self.now;
        while !done(self) {
            assert!(self.now.since(begin) < most, "not within {most:?}");
            self.run(Duration::from_millis(5));
        }
        self.now.since(begin)
    }

    /// Drops everything between two groups of nodes from now on.
    pub fn cut(&mut self, some: &[usize], others: &[usize]) {
        for (&one, &other) in some.iter().flat_map(|one| others.iter().map(move |other| (one, other))) {
            self.cut.extend([(one, other), (other, one)]);
        }
    }

    /// Ends all cuts. Streams lost bytes meanwhile, so those across a cut are closed.
    pub fn heal(&mut self) {
        let cut = core::mem::take(&mut self.cut);
        let is_across = |end: &End, pipe: &Pipe| pipe.peer.is_some_and(|peer| cut.contains(&(end.0, peer.0)));
        let ends: Vec<End> =
            self.pipes.iter().filter(|(end, pipe)| is_across(end, pipe)).map(|(end, _)| *end).collect();
        for (index, stream) in ends {
            self.send_stream((index, stream), Input::Closed { stream, reason: CloseReason::TimedOut });
        }
    }

    /// Pauses a process: its inputs wait.
    pub fn pause(&mut self, index: usize) {
        self.nodes[index].state = State::Paused;
    }

    /// Resumes a paused process: first its timers, then the inputs that waited.
    pub fn resume(&mut self, index: usize) {
        self.nodes[index].state = State::Up;
        self.deliver(index, Input::Wake);
        for input in core::mem::take(&mut self.nodes[index].waiting) {
            self.deliver(index, input);
        }
    }

    /// Ends a process at once. With `power` its host is off: the disk loses unsynced writes, and peers get no answer.
    pub fn crash(&mut self, index: usize, power: bool) {
        let node = &mut self.nodes[index];
        node.state = if power { State::Off } else { State::Down };
        node.waiting.clear();
        if power {
            node.disk.lose_power();
        }
        let ends: Vec<End> = self.pipes.keys().filter(|(node, _)| *node == index).copied().collect();
        for end in ends {
            self.reset(end, !power);
        }
    }

    /// Sets the latency from one node to another.
    pub fn latency(&mut self, latency: impl FnMut(usize, usize) -> Duration + 'static) {
        self.latency = Box::new(latency);
    }

    /// Drops every datagram and every write from one node to another for which this is true.
    pub fn drop_if(&mut self, drop_if: impl FnMut(usize, usize, &[u8]) -> bool + 'static) {
        self.drop_if = Box::new(drop_if);
    }

    /// The clocks.
    #[must_use]
    pub fn time(&self) -> Now {
        Now::new(self.now, Wall::from_micros(1_700_000_000_000_000 + self.now.as_micros()))
    }

    /// Whether a node runs.
    #[must_use]
    pub fn is_up(&self, index: usize) -> bool {
        matches!(self.nodes[index].state, State::Up | State::Paused)
    }

    fn deliver(&mut self, index: usize, input: Input) {
        match input {
            Input::Wake => {
                if self.nodes[index].machine.poll_timeout().is_some_and(|(at, _)| at <= self.now) {
                    self.call(index, M::handle_timeout);
                }
            }
            Input::Datagram { socket, from, bytes } => self.call(index, |machine, now, out| {
                let _ = machine.handle_datagram(now, socket, from, &bytes, out);
            }),
            Input::Accepted { stream, listener, from, local } => {
                self.stream_event((index, stream), StreamEvent::Accepted { listener, from, local });
            }
            Input::Connected { stream, local } => {
                self.stream_event((index, stream), StreamEvent::Connected { local });
            }
            Input::Arrived { stream, bytes, fin } => {
                if let Some(pipe) = self.pipes.get_mut(&(index, stream)) {
                    pipe.arrived.extend_from_slice(&bytes);
                    pipe.fin |= fin;
                    self.flow((index, stream));
                }
            }
            Input::Closed { stream, reason } => {
                self.stream_event((index, stream), StreamEvent::Closed(reason));
                self.pipes.remove(&(index, stream));
            }
            Input::Stored { op, answer } => self.call(index, |machine, now, out| {
                machine.handle_stored(now, StoreReply { op, result: answer.result() }, out);
            }),
        }
    }

    /// Gives an event of a stream that the node still has.
    fn stream_event(&mut self, (index, stream): End, event: StreamEvent<'_>) {
        if self.pipes.contains_key(&(index, stream)) {
            self.call(index, |machine, now, out| {
                let _ = machine.handle_stream(now, stream, event, out);
            });
        }
    }

    /// Delivers arrived bytes within the granted credit, and reports to the sender the bytes that fit the buffer.
    fn flow(&mut self, at: End) {
        let Some(pipe) = self.pipes.get_mut(&at) else { return };
        let take = pipe.arrived.len().min(pipe.credit);
        let data: Vec<u8> = pipe.arrived.drain(..take).collect();
        pipe.credit -= take;
        let is_end = pipe.fin && pipe.arrived.is_empty() && !pipe.fin_given;
        pipe.fin_given |= is_end;
        let (room, peer) = (KERNEL_BYTES.saturating_sub(pipe.arrived.len()), pipe.peer);
        if !data.is_empty() {
            self.stream_event(at, StreamEvent::Data(&data));
        }
        if is_end {
            self.stream_event(at, StreamEvent::Finished);
        }
        if let Some(peer) = peer
            && let Some(pipe) = self.pipes.get_mut(&peer)
        {
            let bytes = pipe.unreported.min(room);
            pipe.unreported -= bytes;
            let fin = pipe.finished && pipe.unreported == 0 && is_end;
            if bytes > 0 || fin {
                self.stream_event(peer, StreamEvent::Sent { bytes, fin });
            }
        }
        self.close_if_done(at);
    }

    fn close_if_done(&mut self, at: End) {
        let Some(peer) = self.pipes.get(&at).and_then(|pipe| pipe.peer) else { return };
        let is_done = |end: &End| self.pipes.get(end).is_some_and(|pipe| pipe.finished && pipe.fin_given);
        if is_done(&at) && is_done(&peer) {
            for end in [at, peer] {
                self.stream_event(end, StreamEvent::Closed(CloseReason::Done));
                self.pipes.remove(&end);
            }
        }
    }

    /// Removes an end; its peer gets a reset, or nothing.
    fn reset(&mut self, end: End, is_reported: bool) {
        let Some(peer) = self.pipes.remove(&end).and_then(|pipe| pipe.peer) else { return };
        if is_reported && !self.cut.contains(&(end.0, peer.0)) {
            self.send_stream(peer, Input::Closed { stream: peer.1, reason: CloseReason::Reset });
        }
    }

    /// Performs the actions of a node.
    fn perform(&mut self, index: usize) {
        let mut queue = core::mem::take(&mut self.nodes[index].queue);
        while let Some(action) = queue.next() {
            match action {
                Action::Send { to, bytes, socket } => self.datagram(index, socket, to, bytes),
                Action::Broadcast { bytes, socket } => self.broadcast(index, socket, bytes),
                Action::Open { stream, to, from } => self.open((index, stream), to, from),
                Action::Write { stream, bytes } => self.write((index, stream), &bytes),
                Action::Read { stream, credit } => {
                    if let Some(pipe) = self.pipes.get_mut(&(index, stream)) {
                        pipe.credit += credit;
                        let nothing = Input::Arrived { stream, bytes: Vec::new(), fin: false };
                        self.put(self.now, index, nothing);
                    }
                }
                Action::Finish { stream } => {
                    let Some(pipe) = self.pipes.get_mut(&(index, stream)) else { continue };
                    pipe.finished = true;
                    if let Some(peer) = pipe.peer.filter(|peer| !self.cut.contains(&(index, peer.0))) {
                        self.send_stream(
                            peer,
                            Input::Arrived { stream: peer.1, bytes: Vec::new(), fin: true },
                        );
                    }
                }
                Action::Abort { stream } => self.reset((index, stream), true),
                Action::Store { op, request } => {
                    let answer = self.nodes[index].disk.perform(request);
                    self.put(self.now + STORE_TIME, index, Input::Stored { op, answer });
                }
                Action::Event(event) => self.nodes[index].events.push(event),
                Action::Reply(request, reply) => {
                    self.nodes[index].replies.insert(request, reply);
                }
                Action::Watch { .. } => {}
            }
        }
        self.nodes[index].queue = queue;
        if let Some((at, _)) = self.nodes[index].machine.poll_timeout() {
            self.put(at.max(self.now), index, Input::Wake);
        }
    }

    fn datagram(&mut self, from: usize, socket: SocketId, to: SocketAddr, bytes: &[u8]) {
        self.packets += 1;
        let Some(source) = self.socket_addr(from, socket) else { return };
        for index in 0..self.nodes.len() {
            let sockets = &self.nodes[index].endpoints.sockets;
            if let Some(socket) = sockets.iter().find(|socket| socket.bind == to).map(|socket| socket.id) {
                let datagram = Input::Datagram { socket, from: source, bytes: bytes.to_vec() };
                self.send_datagram(from, index, datagram);
            }
        }
    }

    fn broadcast(&mut self, from: usize, socket: SocketId, bytes: &[u8]) {
        self.packets += 1;
        let Some(source) = self.socket_addr(from, socket) else { return };
        for index in 0..self.nodes.len() {
            self.send_datagram(from, index, Input::Datagram { socket, from: source, bytes: bytes.to_vec() });
        }
    }

    fn socket_addr(&self, index: usize, socket: SocketId) -> Option<SocketAddr> {
        let sockets = &self.nodes[index].endpoints.sockets;
        sockets.iter().find(|known| known.id == socket).map(|socket| socket.bind)
    }

    fn send_datagram(&mut self, from: usize, to: usize, input: Input) {
        let Input::Datagram { bytes, .. } = &input else { return };
        if !self.cut.contains(&(from, to)) && !(self.drop_if)(from, to, bytes) {
            let at = self.now + (self.latency)(from, to);
            self.put(at, to, input);
        }
    }

    /// Opens a connection. One to a node that is down is refused. One across a cut, or to a host that is off, gets no answer.
    ///
    /// # Panics
    /// If the local address is not one of the node: a kernel has no such address.
    fn open(&mut self, from: End, to: SocketAddr, local: Option<IpAddr>) {
        self.pipes.insert(from, Pipe::default());
        let own = self.nodes[from.0].endpoints.listeners.first().map_or(to.ip(), |own| own.bind.ip());
        assert!(local.is_none_or(|local| local == own), "{local:?} is no address of node {}", from.0);
        let listens = |node: &Node<M>| {
            let listeners = &node.endpoints.listeners;
            listeners.iter().find(|listener| listener.bind == to).map(|listener| listener.id)
        };
        let mut targets = (0..self.nodes.len()).filter_map(|at| Some((at, listens(&self.nodes[at])?)));
        // A node that took over the address of another counts.
        let target = targets.clone().find(|(at, _)| self.is_up(*at)).or_else(|| targets.next());
        let Some((target, listener)) = target.filter(|(at, _)| self.nodes[*at].state != State::Down) else {
            return self.send_stream(from, Input::Closed { stream: from.1, reason: CloseReason::Refused });
        };
        let is_cut = self.cut.contains(&(from.0, target)) || self.cut.contains(&(target, from.0));
        if is_cut || !self.is_up(target) {
            return;
        }
        self.nodes[target].accepted += 1;
        let other = (target, StreamId::accepted(self.nodes[target].accepted));
        self.pipes.insert(from, Pipe { peer: Some(other), ..Pipe::default() });
        self.pipes.insert(other, Pipe { peer: Some(from), ..Pipe::default() });
        let source = SocketAddr::new(own, 40_000);
        self.send_stream(other, Input::Accepted { stream: other.1, listener, from: source, local: to });
        self.send_stream(from, Input::Connected { stream: from.1, local: source });
    }

    fn write(&mut self, from: End, bytes: &[u8]) {
        self.packets += 1;
        let Some(pipe) = self.pipes.get_mut(&from) else { return };
        pipe.unreported += bytes.len();
        let Some(peer) = pipe.peer else { return };
        if !self.cut.contains(&(from.0, peer.0)) && !(self.drop_if)(from.0, peer.0, bytes) {
            self.send_stream(peer, Input::Arrived { stream: peer.1, bytes: bytes.to_vec(), fin: false });
        }
    }

    /// Sends an input to one end of a stream, behind those before it.
    fn send_stream(&mut self, to: End, input: Input) {
        let from = self.pipes.get(&to).and_then(|pipe| pipe.peer).map_or(to.0, |peer| peer.0);
        let mut at = self.now + (self.latency)(from, to.0);
        if let Some(pipe) = self.pipes.get_mut(&to) {
            at = at.max(pipe.last);
            pipe.last = at;
        }
        self.put(at, to.0, input);
    }

    fn put(&mut self, at: Instant, index: usize, input: Input) {
        self.sequence += 1;
        self.inputs.insert((at, self.sequence), (index, input));
    }
}
