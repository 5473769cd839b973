//! Several nodes in one test: a network with delays, clocks with drift, disks with latency, crashes and stalls.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use super::super::*;
use crate::endpoint::Bound;
use crate::machine::Machine;
use crate::outbox::{Action, Queue};
use crate::rng::Rng;
use crate::store::{StoreFault, StoreOp, StoreReply, StoreResult};
use crate::tag::{OpId, RequestId};
use crate::time::{Instant, Now, Wall};

pub(super) const MS: u64 = 1000;
pub(super) const SECOND: u64 = 1_000_000;

pub(super) fn addr(node: usize) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, node as u8 + 1], PORT))
}

type Disk = BTreeMap<Vec<u8>, Vec<u8>>;

enum What {
    Datagram { from: SocketAddr, bytes: Vec<u8> },
    Stored { op: OpId, changes: Vec<(Vec<u8>, Option<Vec<u8>>)>, value: Option<Option<Vec<u8>>> },
    Timer,
}

struct Host {
    config: Config,
    machine: Option<Turns>,
    queue: Queue<Turns>,
    disk: Disk,
    /// Local microseconds per true million.
    rate: u64,
    life: u64,
    stalled_until: u64,
    boot: u8,
    timer: Option<u64>,
    /// How long its clock was stopped.
    behind: u64,
}

/// An event, with its true time in microseconds.
#[derive(Clone, Debug)]
pub(super) struct Told {
    pub(super) at: u64,
    pub(super) event: Event,
}

pub(super) struct World {
    pub(super) now: u64,
    hosts: Vec<Host>,
    due: BTreeMap<(u64, u64), (usize, u64, What)>,
    sequence: u64,
    pub(super) rng: Rng,
    pub(super) loss: f64,
    pub(super) duplicates: f64,
    pub(super) wild: bool,
    /// The delay of every datagram, if it is not drawn.
    pub(super) delay: Option<u64>,
    pub(super) cut: BTreeSet<(usize, usize)>,
    pub(super) store_delay: u64,
    /// Nodes whose disks refuse to read, or to write.
    pub(super) unreadable: BTreeSet<usize>,
    pub(super) unwritable: BTreeSet<usize>,
    pub(super) told: Vec<Told>,
    pub(super) replies: BTreeMap<u64, Reply>,
    requests: u64,
    /// Datagrams to addresses outside of this world, while a probe is under way.
    probed: Option<Vec<Vec<u8>>>,
    /// Delays of the next datagrams from one node to another, before the drawn ones.
    pub(super) delays: BTreeMap<(usize, usize), Vec<u64>>,
}

impl World {
    /// `voters` voters and `others` nodes that only send Asks; all have started and the group is founded.
    pub(super) fn new(voters: usize, others: usize, seed: u64, change: impl Fn(usize, &mut Config)) -> Self {
        let mut world = Self::cold(voters, others, seed, change);
        for node in 0..voters + others {
            world.start(node);
        }
        world.run(3 * SECOND);
        world
    }

    pub(super) fn cold(voters: usize, others: usize, seed: u64, change: impl Fn(usize, &mut Config)) -> Self {
        let hosts = (0..voters + others).map(|node| {
            let mut config = Config {
                id: Id::new(node as u128 + 1),
                bind: addr(node),
                own: addr(node),
                voters: (0..voters).map(addr).collect(),
                ..Config::default()
            };
            change(node, &mut config);
            let (queue, disk) = (Queue::new(), Disk::new());
            Host {
                config,
                machine: None,
                queue,
                disk,
                rate: SECOND,
                life: 0,
                stalled_until: 0,
                boot: 1,
                timer: None,
                behind: 0,
            }
        });
        Self {
            now: 1_000 * SECOND,
            hosts: hosts.collect(),
            due: BTreeMap::new(),
            sequence: 0,
            rng: Rng::from_number(seed, 1),
            loss: 0.0,
            duplicates: 0.0,
            wild: false,
            delay: None,
            cut: BTreeSet::new(),
            store_delay: MS,
            unreadable: BTreeSet::new(),
            unwritable: BTreeSet::new(),
            told: Vec::new(),
            replies: BTreeMap::new(),
            requests: 0,
            delays: BTreeMap::new(),
            probed: None,
        }
    }

    /// Changes the configuration of a node for its next start.
    pub(super) fn change(&mut self, node: usize, change: impl Fn(usize, &mut Config)) {
        change(node, &mut self.hosts[node].config);
    }

    pub(super) fn set_rate(&mut self, node: usize, rate: f64) {
        self.hosts[node].rate = (rate * 1e6) as u64;
    }

    pub(super) fn local(&self, node: usize) -> Instant {
        let host = &self.hosts[node];
        Instant::from_micros((u128::from(self.now - host.behind) * u128::from(host.rate) / 1_000_000) as u64)
    }

    fn now_of(&self, node: usize) -> Now {
        Now::new(self.local(node), Wall::from_micros(1_700_000_000 * SECOND + self.now))
    }

    pub(super) fn start(&mut self, node: usize) {
        let now = self.now_of(node);
        let seed = self.rng.seed();
        let host = &mut self.hosts[node];
        assert!(host.machine.is_none(), "it runs already");
        host.life += 1;
        let mut machine = Turns::new(&host.config, seed).unwrap();
        let bound = Bound { boot_id: Some([host.boot; 16]), ..Bound::default() };
        machine.handle_start(now, &bound, &mut host.queue.outbox());
        host.machine = Some(machine);
        self.drain(node);
    }

    /// Kills the process; data that was not stored is lost.
    pub(super) fn crash(&mut self, node: usize) {
        self.hosts[node].machine = None;
        self.hosts[node].timer = None;
        self.hosts[node].life += 1;
        self.hosts[node].stalled_until = 0;
    }

    /// Stops it in good order.
    pub(super) fn stop(&mut self, node: usize) {
        let now = self.now_of(node);
        let host = &mut self.hosts[node];
        let Some(machine) = &mut host.machine else { return };
        machine.handle_stop(now, &mut host.queue.outbox());
        self.drain(node);
        for _ in 0..20 {
            if self.machine(node).is_stopped() {
                break;
            }
            self.run(MS);
        }
        assert!(self.machine(node).is_stopped());
        self.crash(node);
    }

    pub(super) fn reboot(&mut self, node: usize) {
        self.hosts[node].boot += 1;
    }

    pub(super) fn lose_disk(&mut self, node: usize) {
        self.hosts[node].disk.clear();
    }

    pub(super) fn disk(&mut self, node: usize) -> &mut Disk {
        &mut self.hosts[node].disk
    }

    /// Pauses a process: everything that arrives waits.
    pub(super) fn stall(&mut self, node: usize, by: u64) {
        self.hosts[node].stalled_until = self.now + by;
    }

    pub(super) fn is_up(&self, node: usize) -> bool {
        self.hosts[node].machine.is_some()
    }

    pub(super) fn machine_mut(&mut self, node: usize) -> &mut Turns {
        self.hosts[node].machine.as_mut().expect("the node runs")
    }

    pub(super) fn machine(&self, node: usize) -> &Turns {
        self.hosts[node].machine.as_ref().expect("the node runs")
    }

    pub(super) fn standing(&self, node: usize) -> Standing {
        self.machine(node).standing(self.local(node))
    }

    pub(super) fn command(&mut self, node: usize, command: Command) -> u64 {
        self.requests += 1;
        let (request, now) = (self.requests, self.now_of(node));
        let host = &mut self.hosts[node];
        let machine = host.machine.as_mut().expect("the node runs");
        machine.handle_command(now, RequestId(request), command, &mut host.queue.outbox());
        self.drain(node);
        request
    }

    pub(super) fn lock(&mut self, node: usize, name: &str, turn: u128, wait: Duration) -> u64 {
        let limit = Duration::from_secs(3600);
        let (name, turn) = (name.to_owned(), TurnId(turn));
        self.command(node, Command::Lock(Lock { name, turn, wait, limit, attended: false }))
    }

    pub(super) fn granted(&self, request: u64) -> Grant {
        match self.replies.get(&request) {
            Some(Reply::Granted(grant)) => grant.clone(),
            other => panic!("{request} was answered with {other:?}"),
        }
    }

    /// The nodes that have a valid turn of this name now, with their fences.
    pub(super) fn holders(&self, name: &str) -> Vec<(usize, u64)> {
        let mut holders = Vec::new();
        for (node, host) in self.hosts.iter().enumerate() {
            let Some(machine) = &host.machine else { continue };
            for turn in machine.status(self.local(node)).turns {
                if let Some(fence) = turn.fence.filter(|_| turn.name == name && turn.left_micros > 0) {
                    holders.push((node, fence));
                }
            }
        }
        holders
    }

    pub(super) fn run(&mut self, by: u64) {
        let until = self.now + by;
        while self.step(until) {}
        self.now = until;
    }

    /// Runs the next event, if it is before `until`.
    pub(super) fn step(&mut self, until: u64) -> bool {
        let Some((&(at, sequence), _)) = self.due.first_key_value() else { return false };
        if at > until {
            return false;
        }
        let (node, life, what) = self.due.remove(&(at, sequence)).expect("it is there");
        self.now = self.now.max(at);
        if self.hosts[node].life != life && !matches!(what, What::Datagram { .. }) {
            return true;
        }
        if self.hosts[node].stalled_until > self.now && !matches!(what, What::Stored { .. }) {
            let later = self.hosts[node].stalled_until;
            self.push_for(later, node, life, what);
            return true;
        }
        let now = self.now_of(node);
        let host = &mut self.hosts[node];
        let refuses = match &what {
            What::Stored { value: Some(_), .. } => self.unreadable.contains(&node),
            _ => self.unwritable.contains(&node),
        };
        if let What::Stored { changes, .. } = &what
            && !refuses
        {
            for (key, value) in changes {
                match value {
                    Some(value) => host.disk.insert(key.clone(), value.clone()),
                    None => host.disk.remove(key),
                };
            }
        }
        let Some(machine) = &mut host.machine else { return true };
        match what {
            What::Datagram { from, bytes } => {
                let _ = machine.handle_datagram(now, UDP, from, &bytes, &mut host.queue.outbox());
            }
            What::Stored { op, value, .. } => {
                let result = match &value {
                    _ if refuses => StoreResult::Failed(StoreFault::Broken),
                    Some(value) => StoreResult::Value(value.as_deref()),
                    None => StoreResult::Written,
                };
                machine.handle_stored(now, StoreReply { op, result }, &mut host.queue.outbox());
            }
            What::Timer => {
                host.timer = None;
                if machine.poll_timeout().is_some_and(|(at, _)| at <= now.mono) {
                    machine.handle_timeout(now, &mut host.queue.outbox());
                }
            }
        }
        self.drain(node);
        true
    }

    fn push(&mut self, at: u64, node: usize, what: What) {
        let life = self.hosts[node].life;
        self.push_for(at, node, life, what);
    }

    fn push_for(&mut self, at: u64, node: usize, life: u64, what: What) {
        self.sequence += 1;
        self.due.insert((at, self.sequence), (node, life, what));
    }

    fn drain(&mut self, node: usize) {
        let mut sends = Vec::new();
        let mut stores = Vec::new();
        let host = &mut self.hosts[node];
        while let Some(action) = host.queue.next() {
            match action {
                Action::Send { to, bytes, .. } => sends.push((to, bytes.to_vec())),
                Action::Store { op, request: StoreOp::Get { key, .. } } => {
                    stores.push(What::Stored {
                        op,
                        changes: Vec::new(),
                        value: Some(host.disk.get(key).cloned()),
                    });
                }
                Action::Store { op, request: StoreOp::Write { batch, .. } } => {
                    let change = |change: crate::store::Change<'_>| {
                        (change.key.to_vec(), change.value.map(|value| value.to_vec()))
                    };
                    stores.push(What::Stored {
                        op,
                        changes: batch.iter().map(change).collect(),
                        value: None,
                    });
                }
                Action::Event(event) => self.told.push(Told { at: self.now, event }),
                Action::Reply(request, reply) => {
                    assert!(
                        self.replies.insert(request.0, reply).is_none(),
                        "{request:?} was answered twice"
                    );
                }
                other => panic!("turns does not {other:?}"),
            }
        }
        for what in stores {
            self.push(self.now + self.store_delay, node, what);
        }
        for (to, bytes) in sends {
            self.send(node, to, &bytes);
        }
        let timer = self.hosts[node].machine.as_ref().and_then(Machine::poll_timeout);
        if let Some((at, _)) = timer {
            let rate = u128::from(self.hosts[node].rate);
            let at = (u128::from(at.as_micros()) * 1_000_000).div_ceil(rate) as u64;
            let at = (at + self.hosts[node].behind).max(self.now);
            if self.hosts[node].timer.is_none_or(|timer| at < timer) {
                self.hosts[node].timer = Some(at);
                self.push(at, node, What::Timer);
            }
        }
    }

    fn send(&mut self, from: usize, to: SocketAddr, bytes: &[u8]) {
        let Some(to) = (0..self.hosts.len()).find(|node| addr(*node) == to) else {
            self.probed.iter_mut().for_each(|probed| probed.push(bytes.to_vec()));
            return;
        };
        if self.cut.contains(&(from, to)) {
            return;
        }
        let copies =
            if self.rng.chance(self.loss) { 0 } else { 1 + usize::from(self.rng.chance(self.duplicates)) };
        for _ in 0..copies {
            let scripted =
                self.delays.get_mut(&(from, to)).and_then(|list| (!list.is_empty()).then(|| list.remove(0)));
            let delay = scripted.unwrap_or_else(|| self.delay());
            let bytes = bytes.to_vec();
            self.push(self.now + delay, to, What::Datagram { from: addr(from), bytes });
        }
    }

    fn delay(&mut self) -> u64 {
        if let Some(delay) = self.delay {
            return delay;
        }
        let part = if self.wild { self.rng.unit() } else { 0.0 };
        if part < 0.6 {
            self.rng.between(MS / 2, if self.wild { 50 * MS } else { MS })
        } else if part < 0.9 {
            self.rng.between(50 * MS, 3 * SECOND)
        } else {
            self.rng.between(SECOND, 25 * SECOND)
        }
    }
}

impl World {
    /// The datagrams that a node sends at once, if these bytes reach it from an unknown node.
    pub(super) fn probe(&mut self, node: usize, bytes: &[u8]) -> Vec<Vec<u8>> {
        let now = self.now_of(node);
        let host = &mut self.hosts[node];
        let machine = host.machine.as_mut().expect("the node runs");
        let _ = machine.handle_datagram(now, UDP, addr(99), bytes, &mut host.queue.outbox());
        self.probed = Some(Vec::new());
        self.drain(node);
        self.probed.take().unwrap_or_default()
    }

    /// Lets a datagram arrive at once, as if a node had sent it long ago.
    pub(super) fn deliver(&mut self, from: usize, to: usize, bytes: Vec<u8>) {
        self.push(self.now, to, What::Datagram { from: addr(from), bytes });
    }

    /// Pauses the machine of a node and stops its clock.
    pub(super) fn stall_with_clock(&mut self, node: usize, by: u64) {
        self.stall(node, by);
        self.hosts[node].behind += by;
    }
}
