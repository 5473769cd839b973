//! The ring and the oracle.

use core::time::Duration;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};

use annulus_core::pastry::{
    self, AppName, Application, Command, Event, Forward, Outcome, Passing, Pastry, Reply,
};
use annulus_core::ring::Side;
use annulus_core::{Id, RequestId, Rng};

use super::{Keys, Phase, RouteExperiment};
use crate::config::Config;
use crate::disk::DiskFate;
use crate::fault::Fault;
use crate::host::{HostId, HostSpec};
use crate::observer::{Observer, Verdict, Violation};
use crate::sim::{Sim, stream_of};

/// The timeout of a join.
const JOIN_WITHIN: Duration = Duration::from_secs(120);

/// Where every message has been, by its number.
type Trails = Arc<Mutex<BTreeMap<u32, Vec<u32>>>>;

/// Notes at every node which messages pass.
struct Recorder {
    host: u32,
    trails: Trails,
}

impl Application for Recorder {
    fn forward(&self, passing: &Passing<'_>) -> Forward {
        if let Ok(bytes) = passing.payload.try_into() {
            let mut trails = self.trails.lock().unwrap_or_else(PoisonError::into_inner);
            trails.entry(u32::from_be_bytes(bytes)).or_default().push(self.host);
        }
        Forward::Continue
    }

    fn deliver(&self, _: &Passing<'_>) -> Option<pastry::Verdict> {
        Some(pastry::Verdict::Accept)
    }
}

/// Observes deliveries and reports.
#[derive(Default)]
pub(super) struct Watch {
    /// By message: the nodes that delivered it.
    delivered: BTreeMap<u32, Vec<HostId>>,
    reported: BTreeMap<RequestId, bool>,
    /// How often a node was taken for dead by another.
    failed: BTreeMap<Id, u64>,
    /// Messages of the protocol that nodes sent which have crashed since.
    sent_before: u64,
}

#[cfg(test)]
impl Watch {
    /// How often this node was taken for dead.
    pub(super) fn failed(&self, id: Id) -> u64 {
        self.failed.get(&id).copied().unwrap_or(0)
    }
}

impl Observer<Pastry> for Watch {
    fn on_event(&mut self, _: &Sim<Pastry>, host: HostId, event: &Event) -> Verdict {
        if let Event::Delivered { payload, .. } = event
            && let Ok(bytes) = payload.as_slice().try_into()
        {
            self.delivered.entry(u32::from_be_bytes(bytes)).or_default().push(host);
        }
        if let Event::PeerFailed { contact } = event {
            *self.failed.entry(contact.id).or_default() += 1;
        }
        Ok(())
    }

    fn on_reply(&mut self, _: &Sim<Pastry>, _: HostId, request: RequestId, reply: &Reply) -> Verdict {
        self.reported.insert(request, matches!(reply, Reply::Outcome(Outcome::Delivered { .. })));
        Ok(())
    }

    fn on_crash(&mut self, sim: &Sim<Pastry>, host: HostId, _: DiskFate) {
        self.sent_before += sim.machine(host).map_or(0, |machine| machine.counted().frames_sent);
    }
}

/// The ring and the oracle.
pub(super) struct World {
    pub(super) sim: Sim<Pastry>,
    pub(super) watch: Watch,
    pub(super) rng: Rng,
    pub(super) keys: Keys,
    side_max: usize,
    pub(super) seeds: Rc<RefCell<Vec<Vec<SocketAddr>>>>,
    trails: Trails,
    pub(super) alive: Vec<HostId>,
    lookups: u32,
}

pub(super) fn id_of(seed: u64, host: u32) -> Id {
    // Far beyond the numbers of the other streams.
    Id::new(Rng::from_number(seed, (1 << 33) + u64::from(host)).next_u128())
}

impl World {
    pub(super) fn new(experiment: &RouteExperiment, seed: u64) -> Self {
        let seeds: Rc<RefCell<Vec<Vec<SocketAddr>>>> = Rc::default();
        let trails: Trails = Arc::default();
        let mut config = Config::default();
        config.network.latency = experiment.latency;
        let (shared_seeds, shared_trails, settings) = (seeds.clone(), trails.clone(), experiment.clone());
        let sim = Sim::new(seed, config, move |birth| {
            let host = birth.host.index() as u32;
            let config = pastry::Config {
                id: id_of(seed, host),
                bind: SocketAddr::new(birth.address, pastry::PORT),
                seeds: shared_seeds.borrow()[birth.host.index()].clone(),
                base: settings.base,
                leaf_set_max: settings.leaf_set_max,
                neighbourhood_max: settings.neighbourhood_max,
                ..pastry::Config::default()
            };
            let recorder = Recorder { host, trails: shared_trails.clone() };
            let pastry = Pastry::new(config, birth.seed).expect("the settings go together");
            pastry.with_application(AppName::default(), Arc::new(recorder))
        });
        Self {
            sim,
            watch: Watch::default(),
            rng: Rng::from_number(seed, stream_of::SCENARIO),
            keys: experiment.keys,
            side_max: experiment.leaf_set_max / 2,
            seeds,
            trails,
            alive: Vec::new(),
            lookups: 0,
        }
    }

    /// One more node, through the one that is nearest in the network (P-27).
    pub(super) fn join_one(&mut self) -> Verdict {
        let host = self.sim.add_host_with(HostSpec { off: true, ..HostSpec::default() });
        let nearest = self.alive.iter().copied().min_by_key(|&other| self.sim.distance(host, other));
        let seed = nearest.map(|other| SocketAddr::new(self.sim.address(other), pastry::PORT));
        self.seeds.borrow_mut().push(seed.into_iter().collect());
        self.sim.fault(Fault::Start(host));
        let until = self.sim.elapsed() + JOIN_WITHIN;
        while !self.sim.machine(host).is_some_and(Pastry::is_active) {
            if self.sim.elapsed() > until {
                return Err(Violation::new(format!("{host} did not join within {JOIN_WITHIN:?}")));
            }
            self.sim.run_for(Duration::from_millis(20), &mut self.watch)?;
        }
        self.alive.push(host);
        Ok(())
    }

    /// Starts nodes all at once, each through a random one that is there.
    pub(super) fn start_at_once(&mut self, count: u32) {
        let there = self.alive.clone();
        for _ in 0..count {
            let host = self.sim.add_host_with(HostSpec { off: true, ..HostSpec::default() });
            let seed = there[self.rng.index(there.len())];
            self.seeds.borrow_mut().push(vec![SocketAddr::new(self.sim.address(seed), pastry::PORT)]);
            self.sim.fault(Fault::Start(host));
            self.alive.push(host);
        }
    }

    /// A node vanishes: its process is killed, or its machine loses power.
    pub(super) fn crash(&mut self, host: HostId, power: bool) {
        self.sim.fault(Fault::Crash { host, power, disk: DiskFate::Kept });
        self.alive.retain(|at| *at != host);
    }

    /// Restarts a node.
    pub(super) fn restart(&mut self, host: HostId) {
        self.sim.fault(Fault::Start(host));
        self.alive.push(host);
    }

    /// Waits until the ring is whole; how long that took.
    pub(super) fn settle(&mut self, within: Duration) -> Result<Duration, Violation> {
        let start = self.sim.elapsed();
        while !self.is_whole() {
            if self.sim.elapsed() - start >= within {
                return Err(Violation::new(format!("the ring is not whole after {within:?}")));
            }
            self.sim.run_for(Duration::from_millis(500), &mut self.watch)?;
        }
        Ok(self.sim.elapsed() - start)
    }

    /// A part of the nodes loses power.
    pub(super) fn fail(&mut self, part: f64) -> Verdict {
        self.rng.shuffle(&mut self.alive);
        // At least one node remains, whatever the fraction.
        let count = ((self.alive.len() as f64 * part) as usize).min(self.alive.len().saturating_sub(1));
        for host in self.alive.drain(..count) {
            self.sim.fault(Fault::Crash { host, power: true, disk: DiskFate::Kept });
        }
        self.sim.run_for(Duration::from_millis(1), &mut self.watch)
    }

    /// Sends messages and waits for the end of all of them.
    pub(super) fn phase(&mut self, lookups: u32) -> Result<Phase, Violation> {
        let mut sent = Vec::new();
        for _ in 0..lookups {
            let from = self.alive[self.rng.index(self.alive.len())];
            let other = self.alive[self.rng.index(self.alive.len())];
            let key = match self.keys {
                Keys::Nodes => self.id(other),
                Keys::Random => Id::new(self.rng.next_u128()),
            };
            self.lookups += 1;
            let payload = self.lookups.to_be_bytes().to_vec();
            let command = Command::route(AppName::default(), key, payload);
            sent.push((self.lookups, self.sim.command(from, command), from, key));
            self.sim.run_for(Duration::from_millis(2), &mut self.watch)?;
        }
        self.sim.run_for(Duration::from_secs(45), &mut self.watch)?;
        Ok(self.judge(&sent))
    }

    fn judge(&mut self, sent: &[(u32, RequestId, HostId, Id)]) -> Phase {
        let mut phase = Phase { lookups: sent.len() as u64, ..Phase::default() };
        let owners: BTreeMap<Id, HostId> = self.alive.iter().map(|&host| (self.id(host), host)).collect();
        let trails = core::mem::take(&mut *self.trails.lock().unwrap_or_else(PoisonError::into_inner));
        let (mut hops_sum, mut route, mut direct) = (0, 0.0, 0.0);
        for (number, request, from, key) in sent {
            let at = self.watch.delivered.remove(number).unwrap_or_default();
            let reported = self.watch.reported.remove(request);
            let Some(&owner) = at.first() else {
                if reported == Some(false) {
                    phase.reported += 1;
                } else {
                    phase.lost += 1;
                }
                continue;
            };
            phase.twice += u64::from(at.len() > 1);
            if Some(owner) != closest(&owners, *key) {
                phase.wrong += 1;
                continue;
            }
            phase.delivered += 1;
            let trail = trails.get(number).map_or(&[][..], Vec::as_slice);
            // A message that was sent again went several paths; the last one arrived.
            let start = trail.iter().rposition(|host| *host == from.index() as u32).unwrap_or(0);
            let trail = &trail[start..];
            let hops = trail.len().saturating_sub(1);
            hops_sum += hops;
            phase.hops_histogram.resize(phase.hops_histogram.len().max(hops + 1), 0);
            phase.hops_histogram[hops] += 1;
            let distance = |a: u32, b: u32| self.sim.distance(HostId::new(a), HostId::new(b)).as_secs_f64();
            route += trail.windows(2).map(|step| distance(step[0], step[1])).sum::<f64>();
            direct += self.sim.distance(*from, owner).as_secs_f64();
        }
        phase.hops_mean = hops_sum as f64 / phase.delivered.max(1) as f64;
        phase.distance_ratio = if direct > 0.0 { route / direct } else { 1.0 };
        phase
    }

    pub(super) fn id(&self, host: HostId) -> Id {
        self.sim.machine(host).map_or(Id::MIN, |machine| machine.own().id)
    }

    /// Messages of the protocol that all nodes have sent: frames over streams, and probes in datagrams.
    pub(super) fn messages(&self) -> u64 {
        let frames: u64 = self.sim.machines().map(|(_, machine)| machine.counted().frames_sent).sum();
        frames + self.watch.sent_before + self.sim.stats().datagrams_sent
    }

    /// Probes that all nodes have sent because it was time.
    pub(super) fn periodic_probes(&self) -> u64 {
        self.sim.machines().map(|(_, machine)| machine.counted().probes_periodic).sum()
    }

    /// Whether every node has exactly the leaf set it should have, no node less.
    pub(super) fn leaf_sets_are_exact(&self) -> bool {
        let mut ids: Vec<Id> = self.alive.iter().map(|&host| self.id(host)).collect();
        ids.sort_unstable();
        let count = ids.len();
        let side_max = self.side_max.min(count - 1);
        self.alive.iter().filter_map(|&host| self.sim.machine(host)).all(|machine| {
            let Ok(at) = ids.binary_search(&machine.own().id) else { return false };
            let side = |side| machine.leaf_set().side(side).iter().copied();
            side(Side::Clockwise).eq((1..=side_max).map(|n| ids[(at + n) % count]))
                && side(Side::CounterClockwise).eq((1..=side_max).map(|n| ids[(at + count - n) % count]))
        })
    }

    /// The nodes that a message has been at, in order.
    pub(super) fn trail(&self, number: u32) -> Vec<HostId> {
        let trails = self.trails.lock().unwrap_or_else(PoisonError::into_inner);
        trails.get(&number).into_iter().flatten().map(|host| HostId::new(*host)).collect()
    }

    /// Whether every live node has joined and has its exact leaf set.
    pub(super) fn is_whole(&self) -> bool {
        let active = |host: &HostId| self.sim.machine(*host).is_some_and(Pastry::is_active);
        self.alive.iter().all(active) && self.leaf_sets_are_exact()
    }

    /// Messages of the protocol that a node sends in a second, measured over `time`.
    pub(super) fn rate_over(&mut self, time: Duration) -> Result<f64, Violation> {
        let before = self.messages();
        self.sim.run_for(time, &mut self.watch)?;
        Ok((self.messages() - before) as f64 / self.alive.len() as f64 / time.as_secs_f64())
    }
}

/// The live node closest to a key: one of the two around it.
pub(super) fn closest(owners: &BTreeMap<Id, HostId>, key: Id) -> Option<HostId> {
    let after = owners.range(key..).next().or_else(|| owners.iter().next());
    let before = owners.range(..=key).next_back().or_else(|| owners.iter().next_back());
    let around = [after, before].into_iter().flatten().map(|(id, _)| *id);
    key.closest(around).map(|id| owners[&id])
}
