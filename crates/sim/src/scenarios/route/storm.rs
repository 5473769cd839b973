//! Many joins at once, beside the same joins one after the other (PF-2, PF-8).

use core::time::Duration;

use annulus_core::Base;
use serde::Serialize;

use super::world::World;
use super::{Keys, RouteExperiment};
use crate::host::HostId;
use crate::latency::Latency;
use crate::observer::Violation;

/// The longest time for the ring to be whole.
const WHOLE_WITHIN: Duration = Duration::from_secs(300);
/// How long it is left alone before the silence is measured, and how long it is measured.
const REST: Duration = Duration::from_secs(30);
/// Messages of a node in a second that still count as silence: probes of the nearest leaves are 0.13.
const SILENCE: f64 = 0.5;
/// At most so many times the messages of the same joins one after the other.
const TIMES_MAX: f64 = 4.0;

/// The joins that happen at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum StormKind {
    /// New nodes join.
    Join,
    /// Nodes that are there are killed, and start again with their ids a second later.
    Restart,
}

/// The settings.
#[derive(Clone, Debug)]
pub struct RouteStorm {
    /// How many nodes are there.
    pub nodes: u32,
    /// How many come at once.
    pub count: u32,
    /// New ones, or restarting ones.
    pub kind: StormKind,
    /// The number of messages afterwards.
    pub lookups: u32,
    /// |L|, both sides together.
    pub leaf_set_max: usize,
    /// |M|.
    pub neighbourhood_max: usize,
    /// The latency of paths.
    pub latency: Latency,
}

/// The results.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StormReport {
    /// The seed.
    pub seed: u64,
    /// How many nodes were there.
    pub nodes: u32,
    /// How many came at once.
    pub count: u32,
    /// New ones, or restarting ones.
    pub kind: StormKind,
    /// Messages of the protocol until the ring was whole.
    pub messages_at_once: u64,
    /// The same, one after the other.
    pub messages_one_by_one: u64,
    /// One over the other.
    pub times: f64,
    /// Until all had joined and every leaf set was exact.
    pub whole_after_seconds: f64,
    /// Messages of a node in a second, half a minute after that.
    pub control_messages_per_node_per_second: f64,
    /// Messages delivered at the right node afterwards.
    pub delivered: u64,
    /// At a wrong one.
    pub wrong: u64,
    /// Neither delivered nor reported.
    pub lost: u64,
    /// Whether all of that is as it should be.
    pub ok: bool,
    /// The hash of everything that happened when they came at once.
    pub trace_hash: String,
}

impl RouteStorm {
    /// Runs it under one seed.
    ///
    /// # Errors
    /// If a node does not join, or the ring does not become whole.
    pub fn run(&self, seed: u64) -> Result<StormReport, Violation> {
        let messages_one_by_one = self.one_by_one(seed)?;
        let mut world = self.world(seed)?;
        let before = world.messages();
        match self.kind {
            StormKind::Join => world.start_at_once(self.count),
            StormKind::Restart => {
                let hosts = self.victims(&world);
                hosts.iter().for_each(|&host| world.crash(host, false));
                world.sim.run_for(Duration::from_secs(1), &mut world.watch)?;
                hosts.into_iter().for_each(|host| world.restart(host));
            }
        }
        let whole = world.settle(WHOLE_WITHIN)?;
        world.sim.run_for(REST, &mut world.watch)?;
        let messages_at_once = world.messages() - before;
        let rate = world.rate_over(REST)?;
        let phase = world.phase(self.lookups)?;
        let times = messages_at_once as f64 / messages_one_by_one.max(1) as f64;
        Ok(StormReport {
            seed,
            nodes: self.nodes,
            count: self.count,
            kind: self.kind,
            messages_at_once,
            messages_one_by_one,
            times,
            whole_after_seconds: whole.as_secs_f64(),
            control_messages_per_node_per_second: rate,
            delivered: phase.delivered,
            wrong: phase.wrong,
            lost: phase.lost + phase.reported,
            ok: times <= TIMES_MAX
                && rate <= SILENCE
                && phase.delivered == phase.lookups
                && phase.twice == 0
                && world.leaf_sets_are_exact(),
            trace_hash: world.sim.trace_hash().to_string(),
        })
    }

    /// The messages of the same joins, each once the one before has ended.
    fn one_by_one(&self, seed: u64) -> Result<u64, Violation> {
        let mut world = self.world(seed)?;
        let before = world.messages();
        match self.kind {
            StormKind::Join => {
                for _ in 0..self.count {
                    world.join_one()?;
                }
                world.settle(WHOLE_WITHIN)?;
            }
            StormKind::Restart => {
                for host in self.victims(&world) {
                    world.crash(host, false);
                    world.sim.run_for(Duration::from_secs(1), &mut world.watch)?;
                    world.restart(host);
                    world.settle(WHOLE_WITHIN)?;
                }
            }
        }
        world.sim.run_for(REST, &mut world.watch)?;
        Ok(world.messages() - before)
    }

    fn victims(&self, world: &World) -> Vec<HostId> {
        // The first node keeps running: all others rejoin through it.
        world.alive.iter().copied().skip(1).take(self.count as usize).collect()
    }

    fn world(&self, seed: u64) -> Result<World, Violation> {
        let experiment = RouteExperiment {
            nodes: self.nodes,
            lookups: self.lookups,
            base: Base::B4,
            leaf_set_max: self.leaf_set_max,
            neighbourhood_max: self.neighbourhood_max,
            latency: self.latency,
            keys: Keys::Random,
            fail: 0.0,
            repair: Duration::ZERO,
        };
        let mut world = World::new(&experiment, seed);
        for _ in 0..self.nodes {
            world.join_one()?;
        }
        world.settle(WHOLE_WITHIN)?;
        world.sim.run_for(REST, &mut world.watch)?;
        Ok(world)
    }
}
