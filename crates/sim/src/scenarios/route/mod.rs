//! A ring of routing nodes, as the Pastry paper measured it. Nodes join one after the other through the protocol, then
//! random pairs exchange messages. An oracle that knows all nodes checks where each arrived.
//!
//! `world.rs` is the ring and the oracle, `storm.rs` many joins at once, `churn.rs` nodes that join and fail. `swarm.rs`
//! has any faults with a checker, `flow/` continuous messages under one fault.

mod churn;
mod flow;
mod storm;
mod swarm;
mod world;

#[cfg(test)]
mod experiment_tests;
#[cfg(test)]
mod faults_tests;
#[cfg(test)]
mod swarm_tests;

use core::time::Duration;

use annulus_core::Base;
use serde::Serialize;

pub use churn::{ChurnReport, RouteChurn};
pub use flow::{Drill, FlowBroken, FlowChecker, Gone, RouteFlow};
pub use storm::{RouteStorm, StormKind, StormReport};
pub use swarm::{Broken, RouteChecker, RouteScenario};
use world::World;

use crate::latency::Latency;
use crate::observer::Violation;
use crate::scenario::{Lines, finish_trace};

/// The time without messages in which the idle cost is measured.
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
    /// The number of nodes.
    pub nodes: u32,
    /// The number of messages, in each phase.
    pub lookups: u32,
    /// Bits of a digit.
    pub base: Base,
    /// |L|, both sides together.
    pub leaf_set_max: usize,
    /// |M|.
    pub neighbourhood_max: usize,
    /// The latency of paths.
    pub latency: Latency,
    /// Whither messages go.
    pub keys: Keys,
    /// Which part of the nodes loses power after the first phase.
    pub fail: f64,
    /// How long after that the third phase begins.
    pub repair: Duration,
}

/// The results of one phase.
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
    /// The length of all paths taken over the length of all direct ones.
    pub distance_ratio: f64,
}

/// The results.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RouteReport {
    /// The seed.
    pub seed: u64,
    /// The number of nodes.
    pub nodes: u32,
    /// The quiet network.
    #[serde(flatten)]
    pub quiet: Phase,
    /// Messages of the protocol sent for one join, all nodes together. Probes that are due by time, and their answers, are
    /// not counted: the more joins, the longer they take.
    pub join_messages_mean: f64,
    /// The same with those probes.
    pub join_messages_with_periodic_mean: f64,
    /// How long the joins took.
    pub join_seconds: f64,
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
    pub fn run(&self, seed: u64, lines: Lines) -> Result<RouteReport, Violation> {
        let mut world = World::new(self, seed);
        lines.take_from(&mut world.sim);
        for _ in 0..self.nodes {
            world.join_one()?;
        }
        world.sim.run_for(Duration::from_secs(20), &mut world.watch)?;
        let (all_messages, join_seconds) = (world.messages(), world.sim.elapsed().as_secs_f64());
        let join_messages = all_messages - 2 * world.periodic_probes();
        let quiet = world.phase(self.lookups)?;
        let before = world.messages();
        world.sim.run_for(REST, &mut world.watch)?;
        let at_rest = (world.messages() - before) as f64 / f64::from(self.nodes) / REST.as_secs_f64();
        let (mut during, mut after) = (None, None);
        if self.fail > 0.0 {
            world.fail(self.fail)?;
            during = Some(world.phase(self.lookups)?);
            world.sim.run_for(self.repair, &mut world.watch)?;
            after = Some(world.phase(self.lookups)?);
        }
        finish_trace(&mut world.sim)?;
        Ok(RouteReport {
            seed,
            nodes: self.nodes,
            quiet,
            join_messages_mean: join_messages as f64 / f64::from(self.nodes),
            join_messages_with_periodic_mean: all_messages as f64 / f64::from(self.nodes),
            join_seconds,
            control_messages_per_node_per_second: at_rest,
            during,
            after,
            leaf_sets_exact: world.leaf_sets_are_exact(),
            virtual_seconds: world.sim.elapsed().as_secs_f64(),
            trace_hash: world.sim.trace_hash().to_string(),
        })
    }
}
