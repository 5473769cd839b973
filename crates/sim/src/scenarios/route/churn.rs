//! Continuous churn (PF-6): nodes vanish without a word after sessions of random length, others come in their place, and
//! messages are sent all the while. `annulus sim route --churn MINUTES` measures it.

use core::time::Duration;
use std::collections::BTreeMap;

use annulus_core::pastry::{AppName, Command, Event, Pastry, Reply};
use annulus_core::{Id, RequestId};
use serde::Serialize;

use super::world::{World, closest};
use super::{Phase, RouteExperiment};
use crate::disk::DiskFate;
use crate::host::HostId;
use crate::observer::{Observer, Verdict, Violation};
use crate::scenario::finish_trace;
use crate::sim::Sim;

/// How often nodes vanish and messages are sent.
const STEP: Duration = Duration::from_millis(500);
/// The longest time of the last messages.
const ARRIVED_WITHIN: Duration = Duration::from_secs(45);
/// The longest time until the ring has converged after the churn. A node that failed together with both its neighbours is
/// detected by the probes of all known nodes, every 15 minutes.
const WHOLE_WITHIN: Duration = Duration::from_secs(1500);

/// The settings: those of the experiment, and how long nodes stay.
#[derive(Clone, Debug)]
pub struct RouteChurn {
    /// The ring before the churn, and how many messages are sent during it.
    pub ring: RouteExperiment,
    /// Half of the nodes vanish within this time.
    pub session_median: Duration,
    /// The length of the churn.
    pub time: Duration,
}

/// The results.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ChurnReport {
    /// The seed.
    pub seed: u64,
    /// The number of nodes at any time.
    pub nodes: u32,
    /// The median of a session, in minutes.
    pub session_minutes: f64,
    /// How many nodes vanished, and as many came.
    pub vanished: u64,
    /// The outcomes of the messages. `wrong`: delivered though a node that had joined and lived was closer. `lost`:
    /// neither delivered nor reported to a sender that lived on.
    #[serde(flatten)]
    pub phase: Phase,
    /// Messages whose sender failed before it learnt their outcome. They are in none of the other counts.
    pub orphaned: u64,
    /// Messages of the protocol that a node sends, those that carry the lookups included.
    pub control_messages_per_node_per_second: f64,
    /// How long after the churn all leaf sets were exact.
    pub whole_after_seconds: f64,
    /// Whether nothing was delivered at a wrong node and nothing was lost.
    pub ok: bool,
    /// The hash of everything that happened.
    pub trace_hash: String,
}

/// A message and its outcome so far.
struct Lookup {
    from: HostId,
    key: Id,
    at: Vec<HostId>,
    wrong: bool,
    reported: bool,
    orphaned: bool,
}

/// Observes the outcome of every message when it occurs.
#[derive(Default)]
struct ChurnWatch {
    lookups: Vec<Lookup>,
    by_request: BTreeMap<RequestId, usize>,
    /// Messages of the protocol that nodes sent which have vanished since.
    sent_before: u64,
}

impl Observer<Pastry> for ChurnWatch {
    fn on_event(&mut self, sim: &Sim<Pastry>, host: HostId, event: &Event) -> Verdict {
        if let Event::Delivered { payload, .. } = event
            && let Some(number) = payload.as_slice().try_into().ok().map(u32::from_be_bytes)
            && let Some(lookup) = self.lookups.get_mut(number as usize)
        {
            let joined = sim.machines().filter(|(_, machine)| machine.is_active());
            let owners = joined.map(|(host, machine)| (machine.own().id, host)).collect();
            lookup.wrong |= closest(&owners, lookup.key) != Some(host);
            lookup.at.push(host);
        }
        Ok(())
    }

    fn on_reply(&mut self, _: &Sim<Pastry>, _: HostId, request: RequestId, _: &Reply) -> Verdict {
        if let Some(&number) = self.by_request.get(&request) {
            self.lookups[number].reported = true;
        }
        Ok(())
    }

    fn on_crash(&mut self, sim: &Sim<Pastry>, host: HostId, _: DiskFate) {
        self.sent_before += sim.machine(host).map_or(0, |machine| machine.counted().frames_sent);
        for lookup in self.lookups.iter_mut().filter(|lookup| lookup.from == host && !lookup.reported) {
            lookup.orphaned = true;
        }
    }
}

impl ChurnWatch {
    fn messages(&self, sim: &Sim<Pastry>) -> u64 {
        let frames: u64 = sim.machines().map(|(_, machine)| machine.counted().frames_sent).sum();
        frames + self.sent_before + sim.stats().datagrams_sent
    }
}

impl RouteChurn {
    /// Runs it under one seed.
    ///
    /// # Errors
    /// If a node does not join, or the ring does not become whole when the churn has stopped.
    pub fn run(&self, seed: u64) -> Result<ChurnReport, Violation> {
        let mut world = World::new(&self.ring, seed);
        for _ in 0..self.ring.nodes {
            world.join_one()?;
        }
        world.sim.run_for(Duration::from_secs(20), &mut world.watch)?;
        let mut watch = ChurnWatch::default();
        let before = watch.messages(&world.sim);
        let vanished = self.churn(&mut world, &mut watch)?;
        let seconds = self.time.as_secs_f64().max(STEP.as_secs_f64());
        let sent = (watch.messages(&world.sim) - before) as f64;
        let stopped = world.sim.elapsed();
        world.sim.run_for(ARRIVED_WITHIN, &mut watch)?;
        while !world.is_whole() {
            if world.sim.elapsed() - stopped >= WHOLE_WITHIN {
                return Err(Violation::new(format!(
                    "the ring is not whole {WHOLE_WITHIN:?} after the churn"
                )));
            }
            world.sim.run_for(STEP, &mut watch)?;
        }
        finish_trace(&mut world.sim)?;
        let (phase, orphaned) = judge(&world, &watch);
        Ok(ChurnReport {
            seed,
            nodes: self.ring.nodes,
            session_minutes: self.session_median.as_secs_f64() / 60.0,
            vanished,
            ok: phase.wrong + phase.lost == 0,
            phase,
            orphaned,
            control_messages_per_node_per_second: sent / f64::from(self.ring.nodes) / seconds,
            whole_after_seconds: (world.sim.elapsed() - stopped).as_secs_f64(),
            trace_hash: world.sim.trace_hash().to_string(),
        })
    }

    /// Lets nodes vanish and come, and sends the messages; how many vanished. Sessions are without memory: in a short time
    /// every node vanishes with the same probability.
    fn churn(&self, world: &mut World, watch: &mut ChurnWatch) -> Result<u64, Violation> {
        let half_lives = STEP.as_secs_f64() / self.session_median.as_secs_f64();
        let vanishes = 1.0 - 0.5_f64.powf(half_lives);
        let steps = (self.time.as_micros() / STEP.as_micros()).max(1) as u32;
        let (mut vanished, mut lookups) = (0, 0);
        for step in 1..=steps {
            let gone: Vec<HostId> =
                world.alive.clone().into_iter().filter(|_| world.rng.chance(vanishes)).collect();
            for host in gone {
                world.crash(host, true);
                world.start_at_once(1);
                vanished += 1;
            }
            let due = (u64::from(self.ring.lookups) * u64::from(step) / u64::from(steps)) as u32;
            for _ in lookups..due {
                send(world, watch);
            }
            lookups = due;
            world.sim.run_for(STEP, watch)?;
        }
        Ok(vanished)
    }
}

/// Sends a message from a random node that has joined to a random key.
fn send(world: &mut World, watch: &mut ChurnWatch) {
    let active = |host: &HostId| world.sim.machine(*host).is_some_and(Pastry::is_active);
    let joined: Vec<HostId> = world.alive.iter().copied().filter(active).collect();
    let Some(&from) = world.rng.pick(&joined) else { return };
    let key = Id::new(world.rng.next_u128());
    let payload = (watch.lookups.len() as u32).to_be_bytes().to_vec();
    let command = Command::route(AppName::default(), key, payload);
    let request = world.sim.command(from, command);
    watch.by_request.insert(request, watch.lookups.len());
    let (at, wrong, reported, orphaned) = (Vec::new(), false, false, false);
    watch.lookups.push(Lookup { from, key, at, wrong, reported, orphaned });
}

fn judge(world: &World, watch: &ChurnWatch) -> (Phase, u64) {
    let mut phase = Phase { lookups: watch.lookups.len() as u64, ..Phase::default() };
    let (mut hops, mut route, mut direct, mut orphaned) = (0, 0.0, 0.0, 0);
    for (number, lookup) in watch.lookups.iter().enumerate() {
        let Some(&owner) = lookup.at.first() else {
            match lookup {
                Lookup { orphaned: true, .. } => orphaned += 1,
                Lookup { reported: true, .. } => phase.reported += 1,
                _ => phase.lost += 1,
            }
            continue;
        };
        phase.twice += u64::from(lookup.at.len() > 1);
        phase.wrong += u64::from(lookup.wrong);
        phase.delivered += u64::from(!lookup.wrong);
        let trail = world.trail(number as u32);
        if lookup.at.len() > 1 || lookup.wrong || trail.last() != Some(&owner) {
            // It took several paths: the length of the one that arrived is unknown.
            continue;
        }
        hops += trail.len() - 1;
        phase.hops_histogram.resize(phase.hops_histogram.len().max(trail.len()), 0);
        phase.hops_histogram[trail.len() - 1] += 1;
        let distance = |a: HostId, b: HostId| world.sim.distance(a, b).as_secs_f64();
        route += trail.windows(2).map(|step| distance(step[0], step[1])).sum::<f64>();
        direct += distance(lookup.from, owner);
    }
    phase.hops_mean = hops as f64 / phase.hops_histogram.iter().sum::<u64>().max(1) as f64;
    phase.distance_ratio = if direct > 0.0 { route / direct } else { 1.0 };
    (phase, orphaned)
}
