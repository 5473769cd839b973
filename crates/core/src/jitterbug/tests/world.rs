//! A few nodes on a perfect network without delays; the test advances it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::*;
use crate::endpoint::Bound;
use crate::machine::Machine;
use crate::outbox::{Action, Queue};
use crate::store::{StoreOp, StoreReply, StoreResult};
use crate::stream::CloseReason;
use crate::time::{Instant, Now, Wall};

type Node = Jitterbug<Ledger>;

enum Input {
    Datagram(SocketAddr, Vec<u8>),
    Accepted(StreamId, SocketAddr),
    Connected(StreamId),
    Data(StreamId, Vec<u8>),
    Sent(StreamId, usize, bool),
    Finished(StreamId),
    Closed(StreamId, CloseReason),
    Stored(crate::OpId, Option<Option<Vec<u8>>>),
}

#[derive(Default)]
struct End {
    peer: Option<(u8, StreamId)>,
    credit: usize,
    unread: Vec<u8>,
    fin: bool,
    fin_told: bool,
}

/// Nodes by the last byte of their address.
pub(super) struct World {
    pub(super) nodes: BTreeMap<u8, Node>,
    pub(super) now: Now,
    pub(super) events: Vec<(u8, Event)>,
    /// Pairs that cannot reach each other, lower first.
    pub(super) cut: BTreeSet<(u8, u8)>,
    pub(super) disks: BTreeMap<(u8, Vec<u8>), Vec<u8>>,
    ends: BTreeMap<(u8, StreamId), End>,
    inputs: VecDeque<(u8, Input)>,
    accepted: u64,
}

impl World {
    pub(super) fn new() -> Self {
        Self {
            nodes: BTreeMap::new(),
            now: Now::new(Instant::from_micros(1_000_000), Wall::from_micros(1_700_000_000_000_000)),
            events: Vec::new(),
            cut: BTreeSet::new(),
            disks: BTreeMap::new(),
            ends: BTreeMap::new(),
            inputs: VecDeque::new(),
            accepted: 0,
        }
    }

    /// Adds nodes `1..=count` with this configuration and starts them.
    pub(super) fn of(count: u8, config: &Config) -> Self {
        let mut world = Self::new();
        (1..=count).for_each(|last| world.start(last, config));
        world
    }

    pub(super) fn start(&mut self, last: u8, config: &Config) {
        let own = Config { addr: ip(last), host_id: Some(host(10 + u32::from(last))), ..config.clone() };
        let node = Jitterbug::new(&own, Ledger::new(), [last; 32]).unwrap();
        self.nodes.insert(last, node);
        self.call(last, |node, now, out| node.handle_start(now, &Bound::default(), out));
    }

    /// The process of a node ends; its kernel resets its streams.
    pub(super) fn kill(&mut self, last: u8) {
        self.nodes.remove(&last);
        let ends: Vec<_> = self.ends.keys().filter(|(node, _)| *node == last).copied().collect();
        for (node, stream) in ends {
            self.abort(node, stream);
        }
        self.settle();
    }

    pub(super) fn cut(&mut self, one: &[u8], other: &[u8]) {
        for &a in one {
            for &b in other {
                self.cut.insert((a.min(b), a.max(b)));
            }
        }
    }

    pub(super) fn advance(&mut self, by: Duration) {
        let until = self.now.mono + by;
        loop {
            let next =
                self.nodes.iter().filter_map(|(last, node)| Some((node.poll_timeout()?.0, *last))).min();
            let Some((at, last)) = next.filter(|(at, _)| *at <= until) else { break };
            self.now.mono = self.now.mono.max(at);
            self.call(last, Machine::handle_timeout);
        }
        self.now.mono = until;
    }

    /// Lets time pass until `done`, at most for `most`.
    pub(super) fn until(&mut self, most: Duration, done: impl Fn(&Self) -> bool) -> Duration {
        let start = self.now.mono;
        while !done(self) {
            assert!(self.now.mono.since(start) < most, "not within {most:?}: {}", self.picture());
            self.advance(5 * MILLI);
        }
        self.now.mono.since(start)
    }

    pub(super) fn leaders(&self) -> Vec<u8> {
        let leads = |(last, node): (&u8, &Node)| (node.state_name() == StateName::Leader).then_some(*last);
        self.nodes.iter().filter_map(leads).collect()
    }

    pub(super) fn told(&self, last: u8, found: impl Fn(&Event) -> bool) -> usize {
        self.events.iter().filter(|(node, event)| *node == last && found(event)).count()
    }

    pub(super) fn picture(&self) -> String {
        let one = |(last, node): (&u8, &Node)| {
            format!("{last}: {:?} {} of {}", node.state_name(), node.token_id(), node.list().len())
        };
        self.nodes.iter().map(one).collect::<Vec<_>>().join(", ")
    }

    pub(super) fn call(&mut self, last: u8, call: impl FnOnce(&mut Node, Now, &mut crate::Outbox<'_, Node>)) {
        self.input(last, call);
        self.settle();
    }

    fn input(&mut self, last: u8, call: impl FnOnce(&mut Node, Now, &mut crate::Outbox<'_, Node>)) {
        let Some(node) = self.nodes.get_mut(&last) else { return };
        let mut queue = Queue::new();
        call(node, self.now, &mut queue.outbox());
        while let Some(action) = queue.next() {
            self.perform(last, action);
        }
    }

    fn settle(&mut self) {
        while let Some((last, input)) = self.inputs.pop_front() {
            self.input(last, |node, now, out| {
                let (stream, event) = match &input {
                    Input::Datagram(from, bytes) => {
                        let _ = node.handle_datagram(now, UDP, *from, bytes, out);
                        return;
                    }
                    Input::Stored(op, value) => {
                        let result = match value {
                            Some(value) => StoreResult::Value(value.as_deref()),
                            None => StoreResult::Written,
                        };
                        return node.handle_stored(now, StoreReply { op: *op, result }, out);
                    }
                    Input::Accepted(stream, from) => {
                        let local = SocketAddr::new(ip(last), PORT);
                        (stream, StreamEvent::Accepted { listener: TCP, from: *from, local })
                    }
                    Input::Connected(stream) => (stream, StreamEvent::Connected { local: udp(last) }),
                    Input::Data(stream, bytes) => (stream, StreamEvent::Data(bytes)),
                    Input::Sent(stream, bytes, fin) => {
                        (stream, StreamEvent::Sent { bytes: *bytes, fin: *fin })
                    }
                    Input::Finished(stream) => (stream, StreamEvent::Finished),
                    Input::Closed(stream, why) => (stream, StreamEvent::Closed(*why)),
                };
                let _ = node.handle_stream(now, *stream, event, out);
            });
        }
    }

    fn perform(&mut self, last: u8, action: Action<'_, Node>) {
        match action {
            Action::Send { to, bytes, .. } => {
                let target = self.nodes.keys().copied().find(|node| ip(*node) == to.ip());
                self.datagram(last, target, bytes);
            }
            Action::Broadcast { bytes, .. } => {
                let all: Vec<u8> = self.nodes.keys().copied().collect();
                all.into_iter().for_each(|target| self.datagram(last, Some(target), bytes));
            }
            Action::Open { stream, to, from } => {
                assert_eq!(from, Some(ip(last)), "dialled from the announced address");
                self.open(last, stream, to);
            }
            Action::Write { stream, bytes } => {
                let Some(peer) = self.peer(last, stream) else { return };
                self.ends.entry(peer).or_default().unread.extend_from_slice(&bytes);
                self.inputs.push_back((last, Input::Sent(stream, bytes.len(), false)));
                self.flow(peer);
            }
            Action::Read { stream, credit } => {
                self.ends.entry((last, stream)).or_default().credit += credit;
                self.flow((last, stream));
            }
            Action::Finish { stream } => {
                let Some(peer) = self.peer(last, stream) else { return };
                self.ends.entry(peer).or_default().fin = true;
                self.inputs.push_back((last, Input::Sent(stream, 0, true)));
                self.flow(peer);
            }
            Action::Watch { .. } => {}
            Action::Abort { stream } => self.abort(last, stream),
            Action::Store { op, request } => self.store(last, op, request),
            Action::Event(event) => self.events.push((last, event)),
            Action::Reply(..) => {}
        }
    }

    fn datagram(&mut self, from: u8, to: Option<u8>, bytes: &[u8]) {
        if let Some(to) = to.filter(|to| self.reaches(from, *to)) {
            self.inputs.push_back((to, Input::Datagram(udp(from), bytes.to_vec())));
        }
    }

    fn open(&mut self, last: u8, stream: StreamId, to: SocketAddr) {
        let target = self.nodes.keys().copied().find(|node| ip(*node) == to.ip() && to.port() == PORT);
        let Some(target) = target.filter(|target| self.reaches(last, *target)) else {
            return self.inputs.push_back((last, Input::Closed(stream, CloseReason::Refused)));
        };
        self.accepted += 1;
        let other = StreamId::accepted(self.accepted);
        self.ends.insert((last, stream), End { peer: Some((target, other)), ..End::default() });
        self.ends.insert((target, other), End { peer: Some((last, stream)), ..End::default() });
        self.inputs.push_back((target, Input::Accepted(other, SocketAddr::new(ip(last), 50_000))));
        self.inputs.push_back((last, Input::Connected(stream)));
    }

    fn abort(&mut self, last: u8, stream: StreamId) {
        let Some(peer) = self.ends.remove(&(last, stream)).and_then(|end| end.peer) else { return };
        if self.ends.remove(&peer).is_some() {
            self.inputs.push_back((peer.0, Input::Closed(peer.1, CloseReason::Reset)));
        }
    }

    fn store(&mut self, last: u8, op: crate::OpId, request: StoreOp<'_>) {
        let value = match request {
            StoreOp::Get { key, .. } => Some(self.disks.get(&(last, key.to_vec())).cloned()),
            StoreOp::Write { batch, .. } => {
                for change in batch.iter() {
                    let value = change.value.map_or_else(Vec::new, |value| value.to_vec());
                    self.disks.insert((last, change.key.to_vec()), value);
                }
                None
            }
            StoreOp::Page { .. } => panic!("the token ring reads no pages"),
        };
        self.inputs.push_back((last, Input::Stored(op, value)));
    }

    fn flow(&mut self, (last, stream): (u8, StreamId)) {
        let Some(end) = self.ends.get_mut(&(last, stream)) else { return };
        let take = end.unread.len().min(end.credit);
        if take > 0 {
            end.credit -= take;
            let bytes: Vec<u8> = end.unread.drain(..take).collect();
            self.inputs.push_back((last, Input::Data(stream, bytes)));
        }
        if end.fin && end.unread.is_empty() && !end.fin_told {
            end.fin_told = true;
            self.inputs.push_back((last, Input::Finished(stream)));
        }
        self.end_if_done((last, stream));
    }

    fn end_if_done(&mut self, end: (u8, StreamId)) {
        let Some(peer) = self.ends.get(&end).and_then(|end| end.peer) else { return };
        let done = |at| self.ends.get(at).is_some_and(|end: &End| end.fin_told);
        if done(&end) && done(&peer) {
            for (last, stream) in [end, peer] {
                self.ends.remove(&(last, stream));
                self.inputs.push_back((last, Input::Closed(stream, CloseReason::Done)));
            }
        }
    }

    fn peer(&self, last: u8, stream: StreamId) -> Option<(u8, StreamId)> {
        self.ends.get(&(last, stream)).and_then(|end| end.peer)
    }

    fn reaches(&self, from: u8, to: u8) -> bool {
        !self.cut.contains(&(from.min(to), from.max(to)))
    }
}
