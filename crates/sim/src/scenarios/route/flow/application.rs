//! The applications of all nodes, outside of the machines: each works off its messages one after the other.
//!
//! An application works on the messages that it *took*, and has done those that it *finished*. The checkers use these two
//! lists and no event. A paused process works on nothing, and one that ends loses its open messages.

use core::cell::RefCell;
use core::time::Duration;
use std::collections::BTreeSet;
use std::rc::Rc;

use annulus_core::Rng;
use annulus_core::pastry::{Command, MessageId, Pastry, Verdict};

use crate::fault::Step;
use crate::host::{HostId, HostState};
use crate::sim::Sim;

/// The retry delay in `Busy`.
const BUSY_AFTER: Duration = Duration::from_millis(100);
/// The interval between checks of a paused process.
const STOPPED_FOR: Duration = Duration::from_millis(20);

/// How applications work.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Habits {
    /// How long one message takes.
    pub(super) service: Duration,
    /// How many messages wait at most; the sender of one more gets `Busy`.
    pub(super) waiting_max: usize,
    /// The share of messages that the handler refuses, or over which it panics.
    pub(super) refused: f64,
    /// Whether it accepts a message before it has finished it: a fault that a checker must notice.
    pub(super) is_hasty: bool,
}

/// How an application settled a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Done {
    Accepted,
    Refused,
}

#[derive(Clone, Debug, Default)]
struct Worker {
    /// Which service of the application this is: it ends with the process, or when it is unregistered.
    epoch: u64,
    is_stopped: bool,
    busy_until: Duration,
    /// Messages taken and not settled: their numbers.
    open: BTreeSet<usize>,
}

struct State {
    workers: Vec<Worker>,
    done: BTreeSet<(usize, HostId, Done)>,
    rng: Rng,
}

/// All of them.
#[derive(Clone)]
pub(super) struct Applications {
    habits: Habits,
    state: Rc<RefCell<State>>,
}

impl Applications {
    pub(super) fn new(nodes: usize, habits: Habits, rng: Rng) -> Self {
        let state = State { workers: vec![Worker::default(); nodes], done: BTreeSet::new(), rng };
        Self { habits, state: Rc::new(RefCell::new(state)) }
    }

    /// A message arrives; whether the application takes it. It settles the message later, or answers `Busy` at once.
    pub(super) fn arrived(&self, sim: &Sim<Pastry>, host: HostId, id: MessageId, number: usize) -> bool {
        let mut state = self.state.borrow_mut();
        let refuses = state.rng.chance(self.habits.refused);
        let worker = &mut state.workers[host.index()];
        if worker.is_stopped || worker.open.len() > self.habits.waiting_max {
            settle_after(sim, Duration::ZERO, host, id, Verdict::Busy(BUSY_AFTER));
            return false;
        }
        let now = sim.elapsed();
        worker.busy_until = worker.busy_until.max(now) + self.habits.service;
        worker.open.insert(number);
        if self.habits.is_hasty {
            settle_after(sim, Duration::ZERO, host, id, Verdict::Accept);
        }
        let work = Work { host, id, number, refuses, epoch: worker.epoch };
        let (after, applications) = (worker.busy_until - now, self.clone());
        sim.inject(Step::Call(Box::new(move |sim: &mut Sim<Pastry>| {
            sim.after(after, Step::Call(Box::new(move |sim| applications.finish(sim, work))));
        })));
        true
    }

    /// The application accepted a message in the call that delivered it.
    pub(super) fn accepted(&self, host: HostId, number: usize) {
        self.state.borrow_mut().done.insert((number, host, Done::Accepted));
    }

    /// The process of a node ended, or its application did: its open messages are lost.
    pub(super) fn ended(&self, host: HostId) {
        let mut state = self.state.borrow_mut();
        let worker = &mut state.workers[host.index()];
        *worker = Worker { epoch: worker.epoch + 1, is_stopped: worker.is_stopped, ..Worker::default() };
    }

    /// The application of a node stops for good, or starts again.
    pub(super) fn set_stopped(&self, host: HostId, is_stopped: bool) {
        self.ended(host);
        self.state.borrow_mut().workers[host.index()].is_stopped = is_stopped;
    }

    pub(super) fn has_done(&self, number: usize, host: HostId, done: Done) -> bool {
        self.state.borrow().done.contains(&(number, host, done))
    }

    /// The messages that a node's application took and has not settled.
    pub(super) fn open(&self, host: HostId) -> Vec<usize> {
        self.state.borrow().workers[host.index()].open.iter().copied().collect()
    }

    fn finish(self, sim: &mut Sim<Pastry>, work: Work) {
        let Work { host, id, number, refuses, epoch } = work;
        let mut state = self.state.borrow_mut();
        if state.workers[host.index()].epoch != epoch {
            return;
        }
        if sim.state(host) != HostState::Up {
            drop(state);
            let again = move |sim: &mut Sim<Pastry>| self.finish(sim, work);
            return sim.after(STOPPED_FOR, Step::Call(Box::new(again)));
        }
        let done = if refuses { Done::Refused } else { Done::Accepted };
        state.workers[host.index()].open.remove(&number);
        state.done.insert((number, host, done));
        if !self.habits.is_hasty {
            let verdict = if refuses { Verdict::Refuse(String::from("no")) } else { Verdict::Accept };
            sim.command(host, Command::Settle(vec![(id, verdict)]));
        }
    }
}

/// A message that an application works on.
#[derive(Clone, Copy)]
struct Work {
    host: HostId,
    id: MessageId,
    number: usize,
    refuses: bool,
    epoch: u64,
}

fn settle_after(sim: &Sim<Pastry>, after: Duration, host: HostId, id: MessageId, verdict: Verdict) {
    sim.inject(Step::Call(Box::new(move |sim: &mut Sim<Pastry>| {
        sim.command_after(after, host, Command::Settle(vec![(id, verdict)]));
    })));
}
