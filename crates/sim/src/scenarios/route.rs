//! A ring of routing nodes, as the Pastry paper measured it: nodes join one after the other through the protocol, then
//! messages are sent between random pairs of them, and an oracle that knows all nodes says whether each arrived where it
//! should.

use core::time::Duration;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};

use annulus_core::pastry::{self, AppName, Application, Command, Event, Passing, Pastry, Reply};
use annulus_core::{Base, Id, RequestId, Rng};
use serde::Serialize;

use crate::config::Config;
use crate::disk::DiskFate;
use crate::fault::Fault;
use crate::host::{HostId, HostSpec};
use crate::latency::Latency;
use crate::observer::{Observer, Verdict, Violation};
use crate::sim::{Sim, stream_of};

/// How long a node may take to join.
const JOIN_WITHIN: Duration = Duration::from_secs(120);
/// How long the ring is left alone to measure what it costs at rest.
const REST: Duration = Duration::from_secs(60);

/// Whither messages go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keys {
    /// To the id of another node, as in the paper.
    Nodes,
    /// To any key.
    Random,
}

/// The settings of the experiment.
#[derive(Clone, Debug)]
pub struct RouteExperiment {
    /// How many nodes.
    pub nodes: u32,
    /// How many messages, in each phase.
    pub lookups: u32,
    /// Bits of a digit.
    pub base: Base,
    /// |L|, both sides together.
    pub leaf_set_max: usize,
    /// |M|.
    pub neighbourhood_max: usize,
    /// How long the ways are.
    pub latency: Latency,
    /// Whither messages go.
    pub keys: Keys,
    /// Which part of the nodes loses power after the first phase.
    pub fail: f64,
    /// How long after that the third phase begins.
    pub repair: Duration,
}

/// What came out of one phase.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Phase {
    /// Messages sent.
    pub lookups: u64,
    /// Mean number of steps of those delivered.
    pub hops_mean: f64,
    /// How many took 0, 1, 2 … steps.
    pub hops_histogram: Vec<u64>,
    /// Delivered at the right node.
    pub delivered: u64,
    /// Delivered at a wrong one.
    pub wrong: u64,
    /// Delivered more than once.
    pub twice: u64,
    /// Neither delivered nor reported.
    pub lost: u64,
    /// Reported to the sender as failed or unknown.
    pub reported: u64,
    /// Length of all ways taken over length of all direct ones.
    pub distance_ratio: f64,
}

/// What came out.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RouteReport {
    /// Which seed.
    pub seed: u64,
    /// How many nodes.
    pub nodes: u32,
    /// The quiet network.
    #[serde(flatten)]
    pub quiet: Phase,
    /// Messages of the protocol sent for one join, all nodes together.
    pub join_messages_mean: f64,
    /// Messages of the protocol that a node sends at rest.
    pub control_messages_per_node_per_second: f64,
    /// Right after nodes failed.
    pub during: Option<Phase>,
    /// After repair.
    pub after: Option<Phase>,
    /// Whether every leaf set was exact at the end.
    pub leaf_sets_exact: bool,
    /// Virtual time that has passed.
    pub virtual_seconds: f64,
    /// The hash of everything that happened.
    pub trace_hash: String,
}

impl RouteExperiment {
    /// Runs it under one seed.
    ///
    /// # Errors
    /// If a node does not join, or the simulation itself complains.
    pub fn run(&self, seed: u64) -> Result<RouteReport, Violation> {
        let mut world = World::new(self, seed);
        for _ in 0..self.nodes {
            world.join_one()?;
        }
        world.sim.run_for(Duration::from_secs(20), &mut world.watch)?;
        let join_messages = world.messages();
        let quiet = world.phase(self.lookups, 0)?;
        let before = world.messages();
        world.sim.run_for(REST, &mut world.watch)?;
        let at_rest = (world.messages() - before) as f64 / f64::from(self.nodes) / REST.as_secs_f64();
        let (mut during, mut after) = (None, None);
        if self.fail > 0.0 {
            world.fail(self.fail)?;
            during = Some(world.phase(self.lookups, 3)?);
            world.sim.run_for(self.repair, &mut world.watch)?;
            after = Some(world.phase(self.lookups, 0)?);
        }
        Ok(RouteReport {
            seed,
            nodes: self.nodes,
            quiet,
            join_messages_mean: join_messages as f64 / f64::from(self.nodes),
            control_messages_per_node_per_second: at_rest,
            during,
            after,
            leaf_sets_exact: world.leaf_sets_are_exact(),
            virtual_seconds: world.sim.elapsed().as_secs_f64(),
            trace_hash: world.sim.trace_hash().to_string(),
        })
    }
}

/// Where every message has been, by its number.
type Trails = Arc<Mutex<BTreeMap<u32, Vec<u32>>>>;

/// Notes at every node which messages pass.
struct Recorder {
    host: u32,
    trails: Trails,
}

impl Application for Recorder {
    fn forward(&self, passing: &Passing<'_>) -> pastry::Verdict {
        if let Ok(bytes) = passing.payload.try_into() {
            let mut trails = self.trails.lock().unwrap_or_else(PoisonError::into_inner);
            trails.entry(u32::from_be_bytes(bytes)).or_default().push(self.host);
        }
        pastry::Verdict::Forward
    }
}

/// Sees what is delivered and reported.
#[derive(Default)]
struct Watch {
    /// By message: who delivered it.
    delivered: BTreeMap<u32, Vec<HostId>>,
    reported: BTreeMap<RequestId, bool>,
}

impl Observer<Pastry> for Watch {
    fn on_event(&mut self, _: &Sim<Pastry>, host: HostId, event: &Event) -> Verdict {
        if let Event::Delivered { payload, .. } = event
            && let Ok(bytes) = payload.as_slice().try_into()
        {
            self.delivered.entry(u32::from_be_bytes(bytes)).or_default().push(host);
        }
        Ok(())
    }

    fn on_reply(&mut self, _: &Sim<Pastry>, _: HostId, request: RequestId, reply: &Reply) -> Verdict {
        self.reported.insert(request, matches!(reply, Reply::Delivered { .. }));
        Ok(())
    }
}

/// The ring and the oracle.
struct World {
    sim: Sim<Pastry>,
    watch: Watch,
    rng: Rng,
    keys: Keys,
    seeds: Rc<RefCell<Vec<Vec<SocketAddr>>>>,
    trails: Trails,
    alive: Vec<HostId>,
    lookups: u32,
}

fn id_of(seed: u64, host: u32) -> Id {
    // Far beyond the numbers of the other streams.
    Id::new(Rng::from_number(seed, (1 << 33) + u64::from(host)).next_u128())
}

impl World {
    fn new(experiment: &RouteExperiment, seed: u64) -> Self {
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
            seeds,
            trails,
            alive: Vec::new(),
            lookups: 0,
        }
    }

    /// One more node, through the one that is nearest in the network (P-27).
    fn join_one(&mut self) -> Verdict {
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

    /// A part of the nodes loses power.
    fn fail(&mut self, part: f64) -> Verdict {
        self.rng.shuffle(&mut self.alive);
        let count = (self.alive.len() as f64 * part) as usize;
        for host in self.alive.drain(..count) {
            self.sim.fault(Fault::Crash { host, power: true, disk: DiskFate::Kept });
        }
        self.sim.run_for(Duration::from_millis(1), &mut self.watch)
    }

    /// Sends messages and waits for the end of all of them.
    fn phase(&mut self, lookups: u32, retries: u8) -> Result<Phase, Violation> {
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
            let command = Command::Route { app: AppName::default(), key, payload, retries };
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

    fn id(&self, host: HostId) -> Id {
        self.sim.machine(host).map_or(Id::MIN, |machine| machine.own().id)
    }

    /// Messages of the protocol that all nodes have sent: frames over streams, and probes in datagrams.
    fn messages(&self) -> u64 {
        let frames: u64 = self.sim.machines().map(|(_, machine)| machine.counted().frames_sent).sum();
        frames + self.sim.stats().datagrams_sent
    }

    fn leaf_sets_are_exact(&self) -> bool {
        let mut ids: Vec<Id> = self.alive.iter().map(|&host| self.id(host)).collect();
        ids.sort_unstable();
        self.sim.machines().filter(|(host, _)| self.alive.contains(host)).all(|(_, machine)| {
            let at = ids.binary_search(&machine.own().id).unwrap_or(0);
            let side = |side| machine.leaf_set().side(side);
            let ahead = side(annulus_core::ring::Side::Clockwise);
            let behind = side(annulus_core::ring::Side::CounterClockwise);
            let count = ids.len();
            ahead.iter().enumerate().all(|(n, id)| ids[(at + 1 + n) % count] == *id)
                && behind.iter().enumerate().all(|(n, id)| ids[(at + count - 1 - n) % count] == *id)
        })
    }
}

/// The live node closest to a key: one of the two around it.
fn closest(owners: &BTreeMap<Id, HostId>, key: Id) -> Option<HostId> {
    let after = owners.range(key..).next().or_else(|| owners.iter().next());
    let before = owners.range(..=key).next_back().or_else(|| owners.iter().next_back());
    let around = [after, before].into_iter().flatten().map(|(id, _)| *id);
    key.closest(around).map(|id| owners[&id])
}

#[cfg(test)]
#[path = "route_tests.rs"]
mod faults;

#[cfg(test)]
mod tests {
    use super::*;

    fn experiment(nodes: u32) -> RouteExperiment {
        RouteExperiment {
            nodes,
            lookups: 500,
            base: Base::B4,
            leaf_set_max: 16,
            neighbourhood_max: 32,
            latency: Latency::Plane { per_unit: Duration::from_micros(20) },
            keys: Keys::Nodes,
            fail: 0.0,
            repair: Duration::from_secs(1200),
        }
    }

    /// PF-1, PF-16: rings of every size that is special.
    #[test]
    fn every_message_arrives_in_a_quiet_ring_of_any_size() {
        for nodes in [1, 2, 3, 16, 17, 32, 33, 34, 100] {
            let keys = if nodes % 2 == 0 { Keys::Random } else { Keys::Nodes };
            let report = RouteExperiment { keys, lookups: 100, ..experiment(nodes) }.run(7).unwrap();
            let quiet = &report.quiet;
            assert_eq!(
                (quiet.delivered, quiet.wrong, quiet.lost, quiet.twice),
                (100, 0, 0, 0),
                "{nodes}: {report:?}"
            );
            assert!(report.leaf_sets_exact, "{nodes}");
        }
    }

    #[test]
    fn a_run_can_be_repeated() {
        let (one, two) = (experiment(30).run(3).unwrap(), experiment(30).run(3).unwrap());
        assert_eq!(one, two);
        assert_ne!(one.trace_hash, experiment(30).run(4).unwrap().trace_hash);
    }

    /// PF-5, small: a tenth of the nodes fails silently at once.
    #[test]
    fn messages_arrive_while_a_tenth_has_failed() {
        let report = RouteExperiment { fail: 0.1, lookups: 300, ..experiment(150) }.run(5).unwrap();
        let (during, after) = (report.during.as_ref().unwrap(), report.after.as_ref().unwrap());
        assert_eq!((during.wrong, during.lost, during.reported, during.twice), (0, 0, 0, 0), "{report:?}");
        assert_eq!((after.wrong, after.lost, after.reported), (0, 0, 0), "{report:?}");
        assert!(report.leaf_sets_exact);
        assert!(after.hops_mean <= report.quiet.hops_mean * 1.05, "{report:?}");
    }
}
