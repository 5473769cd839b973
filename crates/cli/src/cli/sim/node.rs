//! `annulus sim node`.

use std::process::ExitCode;

use annulus_sim::scenarios::node::NodeScenario;

use super::common::{Common, SECONDS_MAX};
use super::verdict;

/// Simulate whole nodes: members, route, token, mesh and locks in one process, under load and all faults at once.
///
/// The seed draws every kind of fault, unless options for faults or the network are given. Each run is done twice, and both
/// must have one trace hash.
///
/// The checkers run all the time. Fences grow, per node and per lock. No two nodes have a lock at once. A confirmed letter
/// has arrived. A delivered message was handled. When the faults have stopped, nodes forget those that are gone for good.
/// Every leaf set is exact, every node has peers in the mesh, and all are in the ring of one token.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  annulus sim node --nodes 12 --seconds 600 --runs 20
  annulus sim node --nodes 8 --crash 5 --partition 2 --seed 3
  annulus sim node --swarm --runs 20")]
pub(crate) struct Node {
    /// The number of nodes; with --swarm, the largest number
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(3..=64))]
    nodes: u32,

    /// Seconds of virtual time with faults; the nodes must converge afterwards
    #[arg(long, default_value_t = 120, value_parser = clap::value_parser!(u64).range(..=SECONDS_MAX))]
    seconds: u64,

    #[command(flatten)]
    common: Common,
}

impl Node {
    pub(super) fn run(self, json: bool) -> anyhow::Result<ExitCode> {
        let conditions = self.common.conditions();
        let scenario = NodeScenario {
            nodes: self.nodes,
            seconds: self.seconds,
            every_fault: conditions.is_quiet(),
            conditions,
            swarm: self.common.swarm,
            deaf: false,
            lone_voters: false,
        };
        verdict::run(&self.common, &scenario, json)
    }
}
