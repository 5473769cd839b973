//! A driver whose every choice comes from the input: arrivals, times, order and faults.
//!
//! It keeps the promises of a driver (see `annulus_core::Machine`) and checks those of a machine, after every step. A
//! protocol takes part with a [`Subject`].

mod disk;
mod streams;

use core::time::Duration;
use std::collections::BTreeSet;
use std::fmt::Debug;
use std::net::SocketAddr;

use annulus_core::contract::Rig;
use annulus_core::wire::{DecodeError, Reader};
use annulus_core::{
    Action, Bound, CloseReason, Endpoints, Instant, Machine, Now, OpId, Queue, RequestId, SocketId,
    StoreReply, StreamEvent, StreamId, Wall,
};

use disk::{Answer, Disk};
use streams::Streams;

/// A machine to live in the world.
pub(crate) trait Subject {
    type M: Machine + Clone + PartialEq + Debug;

    /// The machine is settled after so long without input from the network. It is lived through twice per input, so
    /// it decides how many inputs can be tried.
    const SETTLED: Duration;

    /// A new one; it may depend on the input.
    fn machine(&mut self, input: &mut Reader<'_>) -> Result<Self::M, DecodeError>;

    /// A command, as the input chooses.
    fn command(&mut self, input: &mut Reader<'_>) -> Result<<Self::M as Machine>::Command, DecodeError>;

    /// The answer of a peer to these bytes: without it, random input would never match a number of the machine.
    fn answer(&self, bytes: &[u8]) -> Option<Vec<u8>>;

    /// Checks an event.
    fn on_event(&mut self, event: &<Self::M as Machine>::Event);

    /// Checks the state.
    fn check(&self, machine: &Self::M);

    /// Sets the counters to zero.
    fn forget_counters(&self, machine: &mut Self::M);
}

/// The number of peers of the machine.
const PEERS: u8 = 4;

/// Lives the life that `bytes` describe.
pub(crate) fn live<S: Subject>(subject: S, bytes: &[u8]) {
    let mut input = Reader::new(bytes);
    if let Some(mut world) = World::start(subject, &mut input) {
        while world.step(&mut input).is_ok() {}
        world.end();
    }
}

pub(crate) fn peer(number: u8) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 2 + number % PEERS], 7001))
}

/// Checks that a machine that refused bytes of `stream` is as if that had been reset after `taken`.
pub(crate) fn check_refused<M>(
    mut refused: Rig<M>,
    mut reset: Rig<M>,
    stream: StreamId,
    taken: &[&[u8]],
    forget_counters: fn(&mut M),
) where
    M: Machine + Clone + PartialEq + Debug,
{
    for chunk in taken {
        reset.stream(stream, StreamEvent::Data(chunk)).expect("it was taken the first time");
    }
    reset.stream(stream, StreamEvent::Closed(CloseReason::Reset)).expect("a reset is no offence");
    forget_counters(&mut refused.machine);
    forget_counters(&mut reset.machine);
    assert_eq!(refused.machine, reset.machine, "refused, yet something changed besides counters");
}

struct World<S: Subject> {
    subject: S,
    machine: S::M,
    endpoints: Endpoints,
    queue: Queue<S::M>,
    now: Now,
    disk: Disk,
    answers: Vec<(OpId, Answer)>,
    streams: Streams,
    /// The last datagram it sent, if it was not answered.
    sent: Option<(SocketId, SocketAddr, Vec<u8>)>,
    requests: u64,
    unanswered: BTreeSet<RequestId>,
}

impl<S: Subject> World<S> {
    fn start(mut subject: S, input: &mut Reader<'_>) -> Option<Self> {
        let machine = subject.machine(input).ok()?;
        let endpoints = machine.endpoints();
        let bound = Bound {
            sockets: endpoints.sockets.iter().map(|socket| (socket.id, socket.bind)).collect(),
            listeners: endpoints.listeners.iter().map(|listener| (listener.id, listener.bind)).collect(),
            ..Bound::default()
        };
        let mut world = Self {
            subject,
            machine,
            endpoints,
            queue: Queue::new(),
            now: Now::new(Instant::from_micros(1), Wall::from_micros(1_700_000_000_000_000)),
            disk: Disk::default(),
            answers: Vec::new(),
            streams: Streams::default(),
            sent: None,
            requests: 0,
            unanswered: BTreeSet::new(),
        };
        world.machine.handle_start(world.now, &bound, &mut world.queue.outbox());
        world.carry_out();
        world.answer_store_fully();
        Some(world)
    }

    /// One step; an error when the input has ended.
    fn step(&mut self, input: &mut Reader<'_>) -> Result<(), DecodeError> {
        match input.u8()? % 11 {
            0 => self.noise(input)?,
            1 => self.answer_datagram(),
            2 => self.advance(Duration::from_millis(10 * u64::from(input.u8()?))),
            3 => self.sleep(Duration::from_secs(u64::from(input.u16()?))),
            4 => self.command(input)?,
            5 => self.accept(input)?,
            6 => self.stream_noise(input)?,
            7 => self.stream_answer(input)?,
            8 => self.stream_news(input)?,
            9 => self.answer_store(),
            _ => match input.u8()? {
                0 => self.stop(),
                byte => self.disk.fails = byte & 1 == 1,
            },
        }
        self.carry_out();
        self.subject.check(&self.machine);
        Ok(())
    }

    /// Lets everything settle: every command has its reply then.
    fn end(mut self) {
        self.disk.fails = false;
        self.advance(S::SETTLED);
        self.answer_store_fully();
        assert!(self.unanswered.is_empty(), "no reply to {:?}", self.unanswered);
        self.stop();
        self.advance(S::SETTLED);
        self.answer_store_fully();
        let waits_for = self.machine.poll_timeout();
        assert!(self.machine.is_stopped(), "told to stop, it never does; it waits for {waits_for:?}");
    }

    fn noise(&mut self, input: &mut Reader<'_>) -> Result<(), DecodeError> {
        let (socket, from, length) = (usize::from(input.u8()?), peer(input.u8()?), usize::from(input.u8()?));
        let bytes = input.bytes(length.min(input.remaining()))?;
        if !self.endpoints.sockets.is_empty() {
            let id = self.endpoints.sockets[socket % self.endpoints.sockets.len()].id;
            self.datagram(id, from, bytes);
        }
        Ok(())
    }

    fn answer_datagram(&mut self) {
        let Some((socket, to, bytes)) = self.sent.clone() else { return };
        if let Some(answer) = self.subject.answer(&bytes) {
            self.datagram(socket, to, &answer);
        }
    }

    /// Promise 4: refused bytes change nothing but counters.
    fn datagram(&mut self, socket: SocketId, from: SocketAddr, bytes: &[u8]) {
        let before = self.machine.clone();
        let outcome = self.machine.handle_datagram(self.now, socket, from, bytes, &mut self.queue.outbox());
        if outcome.is_err() {
            assert!(self.queue.is_empty(), "refused, yet it did something");
            assert!(counted(&self.machine) > counted(&before), "refused without counting");
            self.assert_same(before);
        }
    }

    fn accept(&mut self, input: &mut Reader<'_>) -> Result<(), DecodeError> {
        let (listener, from) = (usize::from(input.u8()?), peer(input.u8()?));
        if self.endpoints.listeners.is_empty() {
            return Ok(());
        }
        let listener = self.endpoints.listeners[listener % self.endpoints.listeners.len()].clone();
        if let Some(stream) = self.streams.accept(listener.id.service(), listener.streams_max) {
            let event = StreamEvent::Accepted { listener: listener.id, from, local: listener.bind };
            self.stream_event(stream, event);
        }
        Ok(())
    }

    fn stream_noise(&mut self, input: &mut Reader<'_>) -> Result<(), DecodeError> {
        let (choice, length) = (input.u8()?, usize::from(input.u8()?));
        let bytes = input.bytes(length.min(input.remaining()))?.to_vec();
        self.stream_data(choice, &bytes);
        Ok(())
    }

    /// The peer answers the bytes of the machine, in two pieces.
    fn stream_answer(&mut self, input: &mut Reader<'_>) -> Result<(), DecodeError> {
        let (choice, cut) = (input.u8()?, usize::from(input.u8()?));
        let written = self.streams.written(choice).map(<[u8]>::to_vec);
        if let Some(answer) = written.and_then(|written| self.subject.answer(&written)) {
            let (head, tail) = answer.split_at(cut.min(answer.len()));
            self.stream_data(choice, head);
            self.carry_out();
            self.stream_data(choice, tail);
        }
        Ok(())
    }

    fn stream_data(&mut self, choice: u8, bytes: &[u8]) {
        if let Some((stream, allowed)) = self.streams.data(choice, bytes.len()) {
            self.stream_event(stream, StreamEvent::Data(&bytes[..allowed]));
        }
    }

    fn stream_news(&mut self, input: &mut Reader<'_>) -> Result<(), DecodeError> {
        let (choice, news) = (input.u8()?, input.u8()?);
        if let Some((stream, event)) = self.streams.news(choice, news) {
            self.stream_event(stream, event);
        }
        Ok(())
    }

    /// Promise 4: a stream whose bytes are refused is as good as reset before them.
    fn stream_event(&mut self, stream: StreamId, event: StreamEvent<'_>) {
        let before = self.machine.clone();
        let outcome = self.machine.handle_stream(self.now, stream, event, &mut self.queue.outbox());
        if outcome.is_err() {
            assert!(counted(&self.machine) > counted(&before), "refused without counting");
            let mut reset = before;
            let closed = StreamEvent::Closed(CloseReason::Reset);
            let mut ignored = Queue::new();
            assert_eq!(reset.handle_stream(self.now, stream, closed, &mut ignored.outbox()), Ok(()));
            self.assert_same(reset);
            self.carry_out();
            assert!(!self.streams.is_open(stream), "refused without resetting the stream");
        }
    }

    fn command(&mut self, input: &mut Reader<'_>) -> Result<(), DecodeError> {
        let command = self.subject.command(input)?;
        self.requests += 1;
        let request = RequestId(self.requests);
        self.unanswered.insert(request);
        self.machine.handle_command(self.now, request, command, &mut self.queue.outbox());
        Ok(())
    }

    fn stop(&mut self) {
        self.machine.handle_stop(self.now, &mut self.queue.outbox());
        self.carry_out();
    }

    /// Lets time pass, waking the machine whenever it asked for it, the store answering as it goes.
    fn advance(&mut self, by: Duration) {
        let until = self.now.mono + by;
        self.carry_out();
        self.answer_store();
        while let Some((at, _)) = self.machine.poll_timeout().filter(|(at, _)| *at <= until) {
            self.now.mono = self.now.mono.max(at);
            self.wake();
            self.answer_store();
        }
        self.now.mono = until;
    }

    /// Lets time pass without waking the machine, then wakes it twice.
    fn sleep(&mut self, by: Duration) {
        self.now.mono += by;
        self.wake();
        self.wake();
    }

    fn wake(&mut self) {
        self.machine.handle_timeout(self.now, &mut self.queue.outbox());
        self.carry_out();
        let due = self.machine.poll_timeout().filter(|(at, _)| *at <= self.now.mono);
        assert_eq!(due, None, "woken, it wants to be woken again at once: a driver would spin");
    }

    fn answer_store(&mut self) {
        for (op, answer) in std::mem::take(&mut self.answers) {
            let reply = StoreReply { op, result: answer.result() };
            self.machine.handle_stored(self.now, reply, &mut self.queue.outbox());
            self.carry_out();
        }
    }

    /// Answers until the machine asks nothing more.
    fn answer_store_fully(&mut self) {
        while !self.answers.is_empty() {
            self.answer_store();
        }
    }

    fn carry_out(&mut self) {
        while let Some(action) = self.queue.next() {
            match action {
                Action::Send { socket, to, bytes } => self.sent = Some((socket, to, bytes.to_vec())),
                Action::Store { op, request } => self.answers.push((op, self.disk.perform(request))),
                Action::Event(event) => self.subject.on_event(&event),
                Action::Reply(request, reply) => {
                    assert!(self.unanswered.remove(&request), "a second reply to {request:?}: {reply:?}");
                }
                Action::Broadcast { .. } => {}
                stream => self.streams.carry_out(&stream),
            }
        }
    }

    fn assert_same(&self, mut other: S::M) {
        let mut machine = self.machine.clone();
        self.subject.forget_counters(&mut machine);
        self.subject.forget_counters(&mut other);
        assert_eq!(machine, other, "refused, yet something changed besides counters");
    }
}

fn counted(machine: &impl Machine) -> u64 {
    let mut sum = 0;
    machine.counters(&mut |counter| sum += counter.value);
    sum
}
