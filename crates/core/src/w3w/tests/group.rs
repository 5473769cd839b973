//! A few nodes on a small network in memory: latency, order, loss, partitions, slow readers, disks that forget.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};

use crate::endpoint::Bound;
use crate::machine::Machine;
use crate::outbox::{Action, Queue};
use crate::rng::Rng;
use crate::store::{StoreFault, StoreOp, StoreReply, StoreResult};
use crate::stream::{CloseReason, StreamEvent};
use crate::tag::{OpId, RequestId, SpaceId, StreamId};
use crate::time::{Instant, Now, Wall};
use crate::w3w::{Command, Config, Event, Form, Mesh, Nid, Reply, TCP, UDP, read_form};

type Disk = BTreeMap<(SpaceId, Vec<u8>), Vec<u8>>;

/// One end of a stream: node and number.
type End = (usize, StreamId);

enum What {
    Wake(usize),
    Datagram { to: usize, from: SocketAddr, bytes: Vec<u8> },
    Accepted { at: End, from: SocketAddr },
    Connected(End),
    Data { at: End, bytes: Vec<u8> },
    Fin(End),
    Closed(End, CloseReason),
    Stored(usize, OpId, Answer),
}

enum Answer {
    Value(Option<Vec<u8>>),
    Page(Vec<(Vec<u8>, Vec<u8>)>, bool),
    Written,
    Failed(StoreFault),
}

#[derive(Default)]
struct Pipe {
    peer: Option<End>,
    credit: usize,
    arrived: Vec<u8>,
    fin: bool,
    fin_told: bool,
    finished: bool,
    /// The bytes that the peer sent and this end has not taken; `Sent` reports them when it does.
    unread: usize,
    last: Instant,
}

pub(super) struct Member {
    pub(super) mesh: Mesh,
    config: Config,
    queue: Queue<Mesh>,
    pub(super) disk: Disk,
    synced: Disk,
    pub(super) is_up: bool,
    pub(super) full_disk: bool,
    /// Reads nothing from its streams.
    pub(super) is_slow: bool,
    accepted: u64,
    pub(super) events: Vec<Event>,
    pub(super) replies: BTreeMap<RequestId, Reply>,
    asked: u64,
}

pub(super) struct Group {
    pub(super) now: Instant,
    pub(super) members: Vec<Member>,
    pub(super) by_ip: BTreeMap<Ipv4Addr, usize>,
    pipes: BTreeMap<End, Pipe>,
    todo: BTreeMap<(Instant, u64), What>,
    sequence: u64,
    rng: Rng,
    pub(super) loss: f64,
    /// Nodes in different sets cannot reach each other.
    pub(super) side: Vec<u8>,
    pub(super) datagrams: u64,
    pub(super) writes: u64,
    starts: u64,
}

const KERNEL_BYTES: usize = 64 * 1024;

pub(super) fn ip(number: usize) -> Ipv4Addr {
    Ipv4Addr::new(127, 1 + (number >> 16) as u8, (number >> 8) as u8, number as u8)
}

impl Group {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            now: Instant::from_micros(1_000_000),
            members: Vec::new(),
            by_ip: BTreeMap::new(),
            pipes: BTreeMap::new(),
            todo: BTreeMap::new(),
            sequence: 0,
            rng: Rng::from_number(seed, 0),
            loss: 0.0,
            side: Vec::new(),
            datagrams: 0,
            writes: 0,
            starts: 0,
        }
    }

    /// Adds a node that knows the nodes with these numbers.
    pub(super) fn add(&mut self, seeds: &[usize], change: impl FnOnce(&mut Config)) -> usize {
        let number = self.members.len();
        let mut uuid = [0; 16];
        uuid[..8].copy_from_slice(&(number as u64 + 1).to_be_bytes());
        let mut config = Config {
            uuid,
            bind: SocketAddrV4::new(ip(number), 22_000),
            seeds: seeds.iter().map(|seed| ip(*seed)).collect(),
            expiry: Duration::from_secs(3600),
            ..Config::default()
        };
        change(&mut config);
        self.by_ip.insert(*config.bind.ip(), number);
        self.side.push(0);
        self.members.push(Member {
            mesh: Mesh::new(&config, [0; 32]).unwrap(),
            config,
            queue: Queue::new(),
            disk: Disk::new(),
            synced: Disk::new(),
            is_up: false,
            full_disk: false,
            is_slow: false,
            accepted: 0,
            events: Vec::new(),
            replies: BTreeMap::new(),
            asked: 0,
        });
        self.start(number);
        number
    }

    /// Starts a node again, with the content of its disk.
    pub(super) fn start(&mut self, number: usize) {
        self.starts += 1;
        let seed = Rng::from_number(self.starts, 1).seed();
        let member = &mut self.members[number];
        member.mesh = Mesh::new(&member.config, seed).unwrap();
        member.queue = Queue::new();
        member.is_up = true;
        let addr = SocketAddr::V4(member.config.bind);
        let bound = Bound { sockets: vec![(UDP, addr)], listeners: vec![(TCP, addr)], ..Bound::default() };
        let now = now(self.now);
        member.mesh.handle_start(now, &bound, &mut member.queue.outbox());
        self.settle(number);
    }

    /// Kills a node: its disk keeps what was synced, its peers get a reset, or nothing.
    pub(super) fn kill(&mut self, number: usize, is_silent: bool) {
        let member = &mut self.members[number];
        member.is_up = false;
        member.disk = member.synced.clone();
        let ends: Vec<End> = self.pipes.keys().filter(|(node, _)| *node == number).copied().collect();
        for end in ends {
            let peer = self.pipes.remove(&end).and_then(|pipe| pipe.peer);
            if let (Some(peer), false) = (peer, is_silent) {
                self.later(peer, What::Closed(peer, CloseReason::Reset));
            }
        }
    }

    /// Breaks connections between sides that cannot reach each other.
    pub(super) fn break_across(&mut self) {
        let is_across =
            |end: &End, pipe: &Pipe| pipe.peer.is_some_and(|peer| self.side[peer.0] != self.side[end.0]);
        let ends: Vec<End> =
            (self.pipes.iter()).filter(|(end, pipe)| is_across(end, pipe)).map(|(end, _)| *end).collect();
        for end in ends {
            self.later(end, What::Closed(end, CloseReason::TimedOut));
        }
    }

    pub(super) fn ask(&mut self, number: usize, command: Command) -> RequestId {
        let member = &mut self.members[number];
        member.asked += 1;
        let request = RequestId(member.asked);
        member.mesh.handle_command(now(self.now), request, command, &mut member.queue.outbox());
        self.settle(number);
        request
    }

    pub(super) fn send(&mut self, from: usize, to: usize, data: &[u8]) -> RequestId {
        let to = self.members[to].mesh.nid();
        self.ask(from, Command::Send { to, data: data.to_vec(), receipt: false })
    }

    /// Brings a datagram from nowhere.
    pub(super) fn inject(&mut self, to: usize, from: SocketAddr, bytes: &[u8]) {
        let member = &mut self.members[to];
        let _ = member.mesh.handle_datagram(now(self.now), UDP, from, bytes, &mut member.queue.outbox());
        self.settle(to);
    }

    pub(super) fn run(&mut self, by: Duration) {
        let until = self.now + by;
        while let Some(entry) = self.todo.first_entry().filter(|entry| entry.key().0 <= until) {
            let ((at, _), what) = entry.remove_entry();
            self.now = self.now.max(at);
            self.happen(what);
        }
        self.now = until;
    }

    pub(super) fn nid(&self, number: usize) -> Nid {
        self.members[number].mesh.nid()
    }

    /// Whether every live node is connected to both its neighbours among the live ones of its side.
    pub(super) fn inexact(&self) -> usize {
        let mut order: BTreeMap<u8, Vec<(Nid, usize)>> = BTreeMap::new();
        for (number, member) in self.members.iter().enumerate().filter(|(_, member)| member.is_up) {
            order.entry(self.side[number]).or_default().push((member.mesh.nid(), number));
        }
        let mut wrong = 0;
        for nodes in order.values_mut() {
            nodes.sort();
            for at in 0..nodes.len() {
                let (nid, number) = nodes[at];
                let older = nodes[(at + 1) % nodes.len()].0;
                let has = |nid: Nid| self.members[number].mesh.peers().iter().any(|peer| peer.nid == nid);
                wrong += usize::from(older != nid && !has(older));
            }
        }
        wrong
    }

    /// How many of the live nodes can be reached from the first of them over connections.
    pub(super) fn reachable(&self) -> usize {
        let by_nid: BTreeMap<Nid, usize> = (self.members.iter().enumerate())
            .filter(|(_, m)| m.is_up)
            .map(|(n, m)| (m.mesh.nid(), n))
            .collect();
        let Some(&first) = by_nid.values().next() else { return 0 };
        let (mut seen, mut todo) = (BTreeSet::from([first]), vec![first]);
        while let Some(number) = todo.pop() {
            for peer in self.members[number].mesh.peers() {
                todo.extend(by_nid.get(&peer.nid).copied().filter(|next| seen.insert(*next)));
            }
        }
        seen.len()
    }

    /// How often each node's application got a message with this DATA.
    pub(super) fn got(&self, number: usize, data: &[u8]) -> usize {
        let is_it = |event: &&Event| match event {
            Event::MessageReceived { data: got, .. } => match read_form(got) {
                Form::Letter(letter) => letter.payload == data,
                _ => **got == *data,
            },
            _ => false,
        };
        self.members[number].events.iter().filter(is_it).count()
    }

    fn happen(&mut self, what: What) {
        match what {
            What::Wake(number) => {
                let at = now(self.now);
                let member = &mut self.members[number];
                if !member.is_up || member.mesh.poll_timeout().is_none_or(|(due, _)| due > at.mono) {
                    return;
                }
                member.mesh.handle_timeout(at, &mut member.queue.outbox());
                self.settle(number);
            }
            What::Datagram { to, from, bytes } => {
                if self.members[to].is_up {
                    self.inject(to, from, &bytes);
                }
            }
            What::Accepted { at, from } => {
                let local = SocketAddr::V4(self.members[at.0].config.bind);
                self.tell(at, StreamEvent::Accepted { listener: TCP, from, local });
            }
            What::Connected(at) => {
                let local = SocketAddr::V4(self.members[at.0].config.bind);
                self.tell(at, StreamEvent::Connected { local });
            }
            What::Data { at, bytes } => {
                if let Some(pipe) = self.pipes.get_mut(&at) {
                    pipe.arrived.extend_from_slice(&bytes);
                    self.flow(at);
                }
            }
            What::Fin(at) => {
                if let Some(pipe) = self.pipes.get_mut(&at) {
                    pipe.fin = true;
                    self.flow(at);
                }
            }
            What::Closed(at, reason) => {
                if self.pipes.remove(&at).is_some() {
                    self.tell_gone(at, StreamEvent::Closed(reason));
                }
            }
            What::Stored(number, op, answer) => {
                let at = now(self.now);
                let member = &mut self.members[number];
                if !member.is_up {
                    return;
                }
                let result = match &answer {
                    Answer::Value(value) => StoreResult::Value(value.as_deref()),
                    Answer::Page(entries, more) => StoreResult::Page { entries, more: *more },
                    Answer::Written => StoreResult::Written,
                    Answer::Failed(fault) => StoreResult::Failed(*fault),
                };
                member.mesh.handle_stored(at, StoreReply { op, result }, &mut member.queue.outbox());
                self.settle(number);
            }
        }
    }

    /// Delivers arrived bytes within the credit, and reports taken bytes to the other side.
    fn flow(&mut self, at: End) {
        let is_slow = self.members[at.0].is_slow;
        let Some(pipe) = self.pipes.get_mut(&at) else { return };
        let take = if is_slow { 0 } else { pipe.arrived.len().min(pipe.credit) };
        let data: Vec<u8> = pipe.arrived.drain(..take).collect();
        pipe.credit -= take;
        let is_end = pipe.fin && pipe.arrived.is_empty() && !pipe.fin_told;
        pipe.fin_told |= is_end;
        let room = KERNEL_BYTES.saturating_sub(pipe.arrived.len());
        let peer = pipe.peer;
        if !data.is_empty() {
            self.tell(at, StreamEvent::Data(&data));
        }
        if is_end && self.pipes.contains_key(&at) {
            self.tell(at, StreamEvent::Finished);
        }
        if let Some(peer) = peer
            && let Some(pipe) = self.pipes.get_mut(&peer)
            && pipe.unread > 0
        {
            let bytes = pipe.unread.min(room.max(if is_slow { 0 } else { pipe.unread }));
            pipe.unread -= bytes;
            if bytes > 0 {
                self.tell(peer, StreamEvent::Sent { bytes, fin: false });
            }
        }
        self.close_if_done(at);
    }

    fn close_if_done(&mut self, at: End) {
        let Some(peer) = self.pipes.get(&at).and_then(|pipe| pipe.peer) else { return };
        let is_done = |end: &End| self.pipes.get(end).is_none_or(|pipe| pipe.finished && pipe.fin_told);
        if is_done(&at) && is_done(&peer) {
            for end in [at, peer] {
                if self.pipes.remove(&end).is_some() {
                    self.tell_gone(end, StreamEvent::Closed(CloseReason::Done));
                }
            }
        }
    }

    fn tell(&mut self, at: End, event: StreamEvent<'_>) {
        if self.pipes.contains_key(&at) {
            self.tell_gone(at, event);
        }
    }

    fn tell_gone(&mut self, (number, stream): End, event: StreamEvent<'_>) {
        let member = &mut self.members[number];
        if member.is_up {
            let _ = member.mesh.handle_stream(now(self.now), stream, event, &mut member.queue.outbox());
            self.settle(number);
        }
    }

    fn delay(&mut self) -> Duration {
        Duration::from_micros(self.rng.between(5_000, 25_000))
    }

    fn put(&mut self, at: Instant, what: What) {
        self.sequence += 1;
        self.todo.insert((at, self.sequence), what);
    }

    /// Queues an event for one end of a stream, after those before it.
    fn later(&mut self, to: End, what: What) {
        let mut at = self.now + self.delay();
        if let Some(pipe) = self.pipes.get_mut(&to) {
            at = at.max(pipe.last);
            pipe.last = at;
        }
        self.put(at, what);
    }

    /// Carries out the actions of a node.
    pub(super) fn settle(&mut self, number: usize) {
        let mut queue = core::mem::take(&mut self.members[number].queue);
        while let Some(action) = queue.next() {
            match action {
                Action::Send { to, bytes, .. } => {
                    self.datagrams += 1;
                    let SocketAddr::V4(to) = to else { continue };
                    let Some(&target) = self.by_ip.get(to.ip()) else { continue };
                    let lost = self.rng.chance(self.loss) || self.side[target] != self.side[number];
                    let at = self.now + self.delay();
                    let from = SocketAddr::V4(self.members[number].config.bind);
                    if !lost {
                        self.put(at, What::Datagram { to: target, from, bytes: bytes.to_vec() });
                    }
                }
                Action::Open { stream, to, .. } => self.open((number, stream), to),
                Action::Write { stream, bytes } => self.write((number, stream), bytes.to_vec()),
                Action::Read { stream, credit } => {
                    if let Some(pipe) = self.pipes.get_mut(&(number, stream)) {
                        pipe.credit += credit;
                        let at = self.now;
                        self.put(at, What::Data { at: (number, stream), bytes: Vec::new() });
                    }
                }
                Action::Finish { stream } => {
                    let peer = self.pipes.get_mut(&(number, stream)).and_then(|pipe| {
                        pipe.finished = true;
                        pipe.peer
                    });
                    if let Some(peer) = peer {
                        self.later(peer, What::Fin(peer));
                    }
                }
                Action::Abort { stream } => {
                    let peer = self.pipes.remove(&(number, stream)).and_then(|pipe| pipe.peer);
                    if let Some(peer) = peer {
                        self.later(peer, What::Closed(peer, CloseReason::Reset));
                    }
                }
                Action::Store { op, request } => self.store(number, op, request),
                Action::Event(event) => self.members[number].events.push(event),
                Action::Reply(request, reply) => {
                    self.members[number].replies.insert(request, reply);
                }
                Action::Watch { .. } | Action::Broadcast { .. } => {}
            }
        }
        self.members[number].queue = queue;
        if let Some((at, _)) = self.members[number].mesh.poll_timeout() {
            let at = at.max(self.now);
            self.put(at, What::Wake(number));
        }
    }

    fn open(&mut self, from: End, to: SocketAddr) {
        let target = match to {
            SocketAddr::V4(to) => self.by_ip.get(to.ip()).copied(),
            SocketAddr::V6(_) => None,
        };
        let is_there =
            |target: &usize| self.members[*target].is_up && self.side[*target] == self.side[from.0];
        let Some(target) = target.filter(is_there) else {
            self.pipes.insert(from, Pipe::default());
            return self.later(from, What::Closed(from, CloseReason::Refused));
        };
        self.members[target].accepted += 1;
        let other = (target, StreamId::accepted(self.members[target].accepted));
        self.pipes.insert(from, Pipe { peer: Some(other), ..Pipe::default() });
        self.pipes.insert(other, Pipe { peer: Some(from), ..Pipe::default() });
        let source = SocketAddr::from((*self.members[from.0].config.bind.ip(), 40_000));
        self.later(other, What::Accepted { at: other, from: source });
        self.later(from, What::Connected(from));
    }

    fn write(&mut self, from: End, bytes: Vec<u8>) {
        let Some(pipe) = self.pipes.get_mut(&from) else { return };
        pipe.unread += bytes.len();
        self.writes += 1;
        let Some(peer) = pipe.peer else { return };
        if self.side[peer.0] == self.side[from.0] && self.members[peer.0].is_up {
            self.later(peer, What::Data { at: peer, bytes });
        }
    }

    fn store(&mut self, number: usize, op: OpId, request: StoreOp<'_>) {
        let member = &mut self.members[number];
        let answer = match request {
            StoreOp::Get { space, key } => Answer::Value(member.disk.get(&(space, key.to_vec())).cloned()),
            StoreOp::Page { space, from, entries_max, .. } => {
                let mut found = (member.disk.range((space, from.to_vec())..))
                    .take_while(|((at, _), _)| *at == space)
                    .map(|((_, key), value)| (key.clone(), value.clone()));
                let entries: Vec<_> = found.by_ref().take(entries_max as usize).collect();
                let more = found.next().is_some();
                Answer::Page(entries, more)
            }
            StoreOp::Write { .. } if member.full_disk => Answer::Failed(StoreFault::Full),
            StoreOp::Write { batch, durable } => {
                for change in batch.iter() {
                    let at = (change.space, change.key.to_vec());
                    match change.value {
                        Some(value) => member.disk.insert(at, value.to_vec()),
                        None => member.disk.remove(&at),
                    };
                }
                if durable {
                    member.synced = member.disk.clone();
                }
                Answer::Written
            }
        };
        let at = self.now + Duration::from_micros(100);
        self.put(at, What::Stored(number, op, answer));
    }
}

fn now(mono: Instant) -> Now {
    Now::new(mono, Wall::from_micros(1_700_000_000_000_000 + mono.as_micros()))
}
