//! A few nodes and a network between them, in virtual time: enough to see the protocol work, small enough to read.
//! Faults and checkers are in the simulator.

use core::cmp::Reverse;
use core::time::Duration;
use std::collections::{BTreeMap, BinaryHeap};
use std::net::SocketAddr;
use std::sync::Arc;

use crate::pastry::{
    AppName, Application, Command, Config, Event, Passing, Pastry, Reply, TCP, UDP, Verdict,
};
use crate::ring::Side;
use crate::{
    Action, Bound, CloseReason, Id, Instant, Machine, Now, Queue, RequestId, Rng, StoreOp, StoreReply,
    StoreResult, StreamEvent, StreamId, Wall,
};

/// Accepts every message that wants no answer.
pub(super) struct Accepts;

impl Application for Accepts {
    fn deliver(&self, arrived: &Passing<'_>) -> Option<Verdict> {
        (!arrived.wants_answer).then_some(Verdict::Accept)
    }
}

/// Data under way.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Packet {
    Datagram { from: SocketAddr, bytes: Vec<u8> },
    Accept { stream: StreamId, from: SocketAddr },
    Connected { stream: StreamId },
    Data { stream: StreamId, bytes: Vec<u8> },
    Sent { stream: StreamId, bytes: usize },
    Finished { stream: StreamId },
    Closed { stream: StreamId, done: bool },
}

/// A node, its actions and its events.
pub(super) struct Member {
    pub(super) pastry: Pastry,
    queue: Queue<Pastry>,
    disk: Option<Vec<u8>>,
    pub(super) alive: bool,
    /// The node at the other end of each stream, and the stream's number there.
    streams: BTreeMap<StreamId, (usize, StreamId)>,
    accepted: u64,
    pub(super) events: Vec<Event>,
    pub(super) replies: Vec<(u64, Reply)>,
}

type Latency = Box<dyn Fn(usize, usize) -> Duration>;
type Filter = Box<dyn FnMut(usize, usize, &[u8]) -> bool>;

/// The nodes and the network.
pub(super) struct Group {
    pub(super) now: Instant,
    pub(super) members: Vec<Member>,
    packets: BinaryHeap<Reverse<(Instant, u64, usize, Packet)>>,
    wakes: BinaryHeap<Reverse<(Instant, usize)>>,
    order: u64,
    requests: u64,
    pub(super) latency: Latency,
    /// Decides whether bytes from one node to another arrive.
    pub(super) passes: Filter,
    /// Bytes from the first node to the second arrive at this time.
    pub(super) stalled: Option<(usize, usize, Instant)>,
    pub(super) datagrams: u64,
    pub(super) frames: u64,
    seed: u64,
}

pub(super) fn addr(index: usize) -> SocketAddr {
    SocketAddr::from(([10, 0, (index / 250) as u8, (index % 250) as u8 + 1], 22001))
}

impl Group {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            now: Instant::from_micros(1_000_000),
            members: Vec::new(),
            packets: BinaryHeap::new(),
            wakes: BinaryHeap::new(),
            order: 0,
            requests: 0,
            latency: Box::new(|_, _| Duration::from_millis(5)),
            passes: Box::new(|_, _, _| true),
            stalled: None,
            datagrams: 0,
            frames: 0,
            seed,
        }
    }

    /// A ring of `count` nodes with random ids, joined one after the other.
    pub(super) fn ring(count: usize, seed: u64, config: &Config) -> Self {
        let mut group = Self::new(seed);
        let mut rng = Rng::from_number(seed, 1);
        for _ in 0..count {
            let id = Id::new(rng.next_u128());
            let index = group.start_joining(id, config);
            group.run_until_active(index);
        }
        group.run(Duration::from_secs(5));
        group
    }

    /// Starts a node that joins through a random earlier one.
    pub(super) fn start_joining(&mut self, id: Id, config: &Config) -> usize {
        let mut rng = Rng::from_number(self.seed, 1000 + self.members.len() as u64);
        let alive: Vec<usize> = (0..self.members.len()).filter(|&at| self.members[at].alive).collect();
        let seeds = rng.pick(&alive).map(|&at| addr(at)).into_iter().collect();
        self.start(Config { id, seeds, ..config.clone() })
    }

    /// Starts a node at its own address, with everything else as configured.
    pub(super) fn start(&mut self, config: Config) -> usize {
        self.start_machine(|bind, seed| {
            let pastry = Pastry::new(Config { bind, ..config }, seed).unwrap();
            pastry.with_application(AppName::default(), Arc::new(Accepts))
        })
    }

    pub(super) fn start_machine(&mut self, make: impl FnOnce(SocketAddr, [u8; 32]) -> Pastry) -> usize {
        let index = self.members.len();
        let seed = Rng::from_number(self.seed, 2000 + index as u64).seed();
        self.members.push(Member {
            pastry: make(addr(index), seed),
            queue: Queue::new(),
            disk: None,
            alive: true,
            streams: BTreeMap::new(),
            accepted: 0,
            events: Vec::new(),
            replies: Vec::new(),
        });
        let bound = Bound {
            sockets: vec![(UDP, addr(index))],
            listeners: vec![(TCP, addr(index))],
            ..Bound::default()
        };
        let now = self.time();
        let member = &mut self.members[index];
        member.pastry.handle_start(now, &bound, &mut member.queue.outbox());
        self.carry_out(index);
        index
    }

    pub(super) fn run_until_active(&mut self, index: usize) {
        for _ in 0..1000 {
            if self.members[index].pastry.is_active() {
                return;
            }
            self.run(Duration::from_millis(20));
        }
        panic!("node {index} did not join");
    }

    pub(super) fn command(&mut self, index: usize, command: Command) -> u64 {
        self.requests += 1;
        let (now, request) = (self.time(), RequestId(self.requests));
        let member = &mut self.members[index];
        member.pastry.handle_command(now, request, command, &mut member.queue.outbox());
        self.carry_out(index);
        request.0
    }

    /// The reply to a command, once it is there.
    pub(super) fn reply(&self, index: usize, request: u64) -> Option<&Reply> {
        self.members[index].replies.iter().find(|(at, _)| *at == request).map(|(_, reply)| reply)
    }

    /// Stops a node without notice.
    pub(super) fn kill(&mut self, index: usize) {
        self.members[index].alive = false;
    }

    pub(super) fn stop(&mut self, index: usize) {
        let now = self.time();
        let member = &mut self.members[index];
        member.pastry.handle_stop(now, &mut member.queue.outbox());
        self.carry_out(index);
    }

    /// Lets time pass.
    pub(super) fn run(&mut self, by: Duration) {
        let until = self.now + by;
        loop {
            let packet = self.packets.peek().map(|Reverse((at, ..))| *at);
            let wake = self.wakes.peek().map(|Reverse((at, _))| *at);
            let Some(at) = packet.into_iter().chain(wake).min().filter(|at| *at <= until) else { break };
            self.now = self.now.max(at);
            if packet == Some(at) {
                let Some(Reverse((_, _, to, packet))) = self.packets.pop() else { break };
                self.deliver(to, packet);
            } else {
                let Some(Reverse((_, index))) = self.wakes.pop() else { break };
                self.wake(index);
            }
        }
        self.now = until;
    }

    /// The live node closest to a key.
    pub(super) fn owner(&self, key: Id) -> Id {
        key.closest(self.alive().map(|member| member.pastry.own().id)).unwrap()
    }

    pub(super) fn alive(&self) -> impl Iterator<Item = &Member> {
        self.members.iter().filter(|member| member.alive)
    }

    /// Checks that every live node has exactly the leaf set it should have.
    pub(super) fn assert_leaf_sets_are_exact(&self) {
        let mut ids: Vec<Id> = self.alive().map(|member| member.pastry.own().id).collect();
        ids.sort_unstable();
        for member in self.alive() {
            let own = member.pastry.own().id;
            let leaf_set = member.pastry.leaf_set();
            let at = ids.binary_search(&own).unwrap();
            let side_max = member.pastry.lower.env.config().side_max().min(ids.len() - 1);
            let ahead: Vec<Id> = (1..=side_max).map(|n| ids[(at + n) % ids.len()]).collect();
            let behind: Vec<Id> = (1..=side_max).map(|n| ids[(at + ids.len() - n) % ids.len()]).collect();
            assert_eq!(leaf_set.side(Side::Clockwise), ahead, "clockwise of {own:?}");
            assert_eq!(leaf_set.side(Side::CounterClockwise), behind, "counter-clockwise of {own:?}");
        }
    }

    pub(super) fn time(&self) -> Now {
        Now::new(self.now, Wall::from_micros(1_700_000_000_000_000 + self.now.as_micros()))
    }

    fn wake(&mut self, index: usize) {
        let now = self.time();
        let member = &mut self.members[index];
        if !member.alive || member.pastry.poll_timeout().is_none_or(|(at, _)| at > now.mono) {
            return;
        }
        member.pastry.handle_timeout(now, &mut member.queue.outbox());
        self.carry_out(index);
    }

    fn deliver(&mut self, to: usize, packet: Packet) {
        let now = self.time();
        let member = &mut self.members[to];
        if !member.alive {
            return;
        }
        let out = &mut member.queue.outbox();
        match packet {
            Packet::Datagram { from, bytes } => {
                let _ = member.pastry.handle_datagram(now, UDP, from, &bytes, out);
            }
            Packet::Accept { stream, from } => {
                let event = StreamEvent::Accepted { listener: TCP, from, local: addr(to) };
                let _ = member.pastry.handle_stream(now, stream, event, out);
            }
            other => {
                let (stream, event) = match &other {
                    Packet::Connected { stream } => (*stream, StreamEvent::Connected { local: addr(to) }),
                    Packet::Data { stream, bytes } => (*stream, StreamEvent::Data(bytes)),
                    Packet::Sent { stream, bytes } => {
                        (*stream, StreamEvent::Sent { bytes: *bytes, fin: false })
                    }
                    Packet::Finished { stream } => (*stream, StreamEvent::Finished),
                    Packet::Closed { stream, done } => {
                        let reason = if *done { CloseReason::Done } else { CloseReason::Reset };
                        (*stream, StreamEvent::Closed(reason))
                    }
                    Packet::Datagram { .. } | Packet::Accept { .. } => unreachable!("handled above"),
                };
                if member.streams.contains_key(&stream) {
                    if matches!(event, StreamEvent::Closed(_)) {
                        member.streams.remove(&stream);
                    }
                    let _ = member.pastry.handle_stream(now, stream, event, out);
                }
            }
        }
        self.carry_out(to);
    }

    fn put(&mut self, at: Instant, to: usize, packet: Packet) {
        self.order += 1;
        self.packets.push(Reverse((at, self.order, to, packet)));
    }

    fn carry_out(&mut self, index: usize) {
        loop {
            let mut packets = Vec::new();
            let mut stored = Vec::new();
            let member = &mut self.members[index];
            while let Some(action) = member.queue.next() {
                match action {
                    Action::Send { to, bytes, .. } => packets.push((to, None, Out::Datagram(bytes.to_vec()))),
                    Action::Open { stream, to, .. } => packets.push((to, Some(stream), Out::Open)),
                    Action::Write { stream, bytes } => {
                        packets.push((addr(0), Some(stream), Out::Write(bytes.to_vec())));
                    }
                    Action::Finish { stream } => packets.push((addr(0), Some(stream), Out::Finish)),
                    Action::Abort { stream } => packets.push((addr(0), Some(stream), Out::Abort)),
                    Action::Store { op, request } => {
                        if let StoreOp::Write { batch, .. } = &request {
                            member.disk = batch
                                .iter()
                                .next()
                                .and_then(|change| change.value.map(|value| value.to_vec()));
                        }
                        stored.push((op, matches!(request, StoreOp::Get { .. })));
                    }
                    Action::Event(event) => member.events.push(event),
                    Action::Reply(request, reply) => member.replies.push((request.0, reply)),
                    Action::Read { .. } | Action::Watch { .. } | Action::Broadcast { .. } => {}
                }
            }
            for (to, stream, out) in packets {
                self.carry(index, to, stream, out);
            }
            if stored.is_empty() {
                break;
            }
            let now = self.time();
            for (op, is_get) in stored {
                let member = &mut self.members[index];
                let disk = member.disk.clone();
                let result = if is_get { StoreResult::Value(disk.as_deref()) } else { StoreResult::Written };
                member.pastry.handle_stored(now, StoreReply { op, result }, &mut member.queue.outbox());
            }
        }
        if let Some((at, _)) = self.members[index].pastry.poll_timeout() {
            self.wakes.push(Reverse((at.max(self.now), index)));
        }
    }

    /// When data that one node sends now arrives at another.
    fn arrives(&self, from: usize, to: usize) -> Instant {
        let at = self.now + (self.latency)(from, to);
        match self.stalled {
            Some((one, other, until)) if (one, other) == (from, to) => at.max(until),
            _ => at,
        }
    }

    fn carry(&mut self, index: usize, to: SocketAddr, stream: Option<StreamId>, out: Out) {
        let other_of =
            |group: &Self| stream.and_then(|stream| group.members[index].streams.get(&stream).copied());
        match (out, stream) {
            (Out::Datagram(bytes), _) => {
                self.datagrams += 1;
                let Some(peer) = (0..self.members.len()).find(|&at| addr(at) == to) else { return };
                if (self.passes)(index, peer, &bytes) {
                    let at = self.arrives(index, peer);
                    self.put(at, peer, Packet::Datagram { from: addr(index), bytes });
                }
            }
            (Out::Open, Some(stream)) => {
                let Some(peer) = (0..self.members.len()).find(|&at| addr(at) == to) else { return };
                if !self.members[peer].alive || !(self.passes)(index, peer, &[]) {
                    return; // Silence: the pool's own timeout ends it.
                }
                self.members[peer].accepted += 1;
                let theirs = StreamId::accepted(self.members[peer].accepted);
                self.members[index].streams.insert(stream, (peer, theirs));
                self.members[peer].streams.insert(theirs, (index, stream));
                let latency = (self.latency)(index, peer);
                self.put(self.now + latency, peer, Packet::Accept { stream: theirs, from: addr(index) });
                self.put(self.now + latency * 2, index, Packet::Connected { stream });
            }
            (Out::Write(bytes), Some(stream)) => {
                self.put(self.now, index, Packet::Sent { stream, bytes: bytes.len() });
                let Some((peer, theirs)) = other_of(self) else { return };
                self.frames += 1;
                if (self.passes)(index, peer, &bytes) {
                    let at = self.arrives(index, peer);
                    self.put(at, peer, Packet::Data { stream: theirs, bytes });
                }
            }
            (Out::Finish, Some(_)) => {
                let Some((peer, theirs)) = other_of(self) else { return };
                let at = self.now + (self.latency)(index, peer);
                self.put(at, peer, Packet::Finished { stream: theirs });
                self.put(
                    at + (self.latency)(index, peer) * 2,
                    peer,
                    Packet::Closed { stream: theirs, done: true },
                );
            }
            (Out::Abort, Some(stream)) => {
                let Some((peer, theirs)) = other_of(self) else { return };
                self.members[index].streams.remove(&stream);
                let at = self.now + (self.latency)(index, peer);
                self.put(at, peer, Packet::Closed { stream: theirs, done: false });
            }
            (_, None) => {}
        }
    }
}

enum Out {
    Datagram(Vec<u8>),
    Open,
    Write(Vec<u8>),
    Finish,
    Abort,
}
