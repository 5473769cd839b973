//! A driver of one machine for tests: no network, a store in memory that answers at once, and a log.

use core::time::Duration;
use std::net::SocketAddr;

use super::disk::{Entries, perform};
use crate::endpoint::Bound;
use crate::machine::{Machine, Refusal};
use crate::outbox::{Action, Queue};
use crate::store::{StoreReply, StoreResult};
use crate::stream::StreamEvent;
use crate::tag::{OpId, RequestId, SocketId, StreamId};
use crate::time::{Instant, Now, Wall};

/// Runs one machine in a test and logs its actions.
///
/// A clone of a rig is independent: what is done to one copy does not affect the other.
pub struct Rig<M: Machine> {
    /// The machine itself.
    pub machine: M,
    /// The machine's clocks; only the test moves them.
    pub now: Now,
    /// The actions of the machine, one line each.
    pub log: Vec<String>,
    /// The content of the store.
    pub disk: Entries,
    queue: Queue<M>,
    holding: bool,
    requests: u64,
}

impl<M: Machine + Clone> Clone for Rig<M> {
    /// # Panics
    /// If actions wait: [`Rig::drain`] first.
    fn clone(&self) -> Self {
        assert!(self.queue.is_empty(), "a rig is forked only when its actions are taken");
        Self {
            machine: self.machine.clone(),
            now: self.now,
            log: self.log.clone(),
            disk: self.disk.clone(),
            queue: Queue::new(),
            holding: self.holding,
            requests: self.requests,
        }
    }
}

impl<M: Machine> Rig<M> {
    /// A machine that has not started yet, with an empty store.
    #[must_use]
    pub fn new(machine: M) -> Self {
        Self {
            machine,
            now: Now::new(Instant::from_micros(1_000_000), Wall::from_micros(1_700_000_000_000_000)),
            log: Vec::new(),
            disk: Entries::new(),
            queue: Queue::new(),
            holding: false,
            requests: 0,
        }
    }

    /// Starts it on the addresses it declared, and answers its reads.
    pub fn start(&mut self) {
        let endpoints = self.machine.endpoints();
        let bound = Bound {
            sockets: endpoints.sockets.iter().map(|socket| (socket.id, socket.bind)).collect(),
            listeners: endpoints.listeners.iter().map(|listener| (listener.id, listener.bind)).collect(),
            ..Bound::default()
        };
        self.machine.handle_start(self.now, &bound, &mut self.queue.outbox());
        self.settle();
    }

    /// Makes actions wait until [`Rig::drain`].
    pub fn hold(&mut self) {
        self.holding = true;
    }

    /// Lets time pass, and runs the machine's timers.
    pub fn advance(&mut self, by: Duration) {
        let until = self.now.mono + by;
        while let Some((at, _)) = self.machine.poll_timeout().filter(|(at, _)| *at <= until) {
            self.set_time(at.max(self.now.mono));
            self.wake();
        }
        self.set_time(until);
    }

    /// Lets time pass without running the machine's timers.
    pub fn sleep(&mut self, by: Duration) {
        self.set_time(self.now.mono + by);
    }

    /// Calls `handle_timeout`, whether or not a timer is due.
    pub fn wake(&mut self) {
        self.machine.handle_timeout(self.now, &mut self.queue.outbox());
        self.settle();
    }

    /// Gives the machine a datagram.
    ///
    /// # Errors
    /// The refusal of the machine.
    pub fn datagram(&mut self, socket: SocketId, from: SocketAddr, bytes: &[u8]) -> Result<(), Refusal> {
        let outcome = self.machine.handle_datagram(self.now, socket, from, bytes, &mut self.queue.outbox());
        self.settle();
        outcome
    }

    /// Gives the machine an event of a stream.
    ///
    /// # Errors
    /// The refusal of the machine.
    pub fn stream(&mut self, stream: StreamId, event: StreamEvent<'_>) -> Result<(), Refusal> {
        let outcome = self.machine.handle_stream(self.now, stream, event, &mut self.queue.outbox());
        self.settle();
        outcome
    }

    /// Gives a command; its reply appears in the log under the number returned.
    pub fn command(&mut self, command: M::Command) -> RequestId {
        self.requests += 1;
        let request = RequestId(self.requests);
        self.machine.handle_command(self.now, request, command, &mut self.queue.outbox());
        self.settle();
        request
    }

    /// Answers a store operation.
    pub fn stored(&mut self, op: OpId, result: StoreResult<'_>) {
        self.machine.handle_stored(self.now, StoreReply { op, result }, &mut self.queue.outbox());
        self.settle();
    }

    /// Stops the machine.
    pub fn stop(&mut self) {
        self.machine.handle_stop(self.now, &mut self.queue.outbox());
        self.settle();
    }

    /// Performs all waiting actions; store operations are answered at once.
    pub fn drain(&mut self) {
        loop {
            let mut answers = Vec::new();
            while let Some(action) = self.queue.next() {
                self.log.push(format!("{action:?}"));
                if let Action::Store { op, request } = action {
                    answers.push((op, perform(&mut self.disk, request)));
                }
            }
            if answers.is_empty() {
                return;
            }
            for (op, answer) in answers {
                let reply = StoreReply { op, result: answer.result() };
                self.machine.handle_stored(self.now, reply, &mut self.queue.outbox());
            }
        }
    }

    /// Takes the log so far.
    pub fn take_log(&mut self) -> Vec<String> {
        core::mem::take(&mut self.log)
    }

    /// The sum of all counters.
    #[must_use]
    pub fn counted(&self) -> u64 {
        let mut sum = 0;
        self.machine.counters(&mut |counter| sum += counter.value);
        sum
    }

    fn settle(&mut self) {
        if !self.holding {
            self.drain();
        }
    }

    fn set_time(&mut self, to: Instant) {
        let passed = crate::time::micros(to.since(self.now.mono));
        self.now = Now::new(to, Wall::from_micros(self.now.wall.as_micros().saturating_add(passed)));
    }
}
