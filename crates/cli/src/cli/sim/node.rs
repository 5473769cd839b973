//! `annulus sim node`.

use std::process::ExitCode;

use annulus_sim::scenarios::node::NodeScenario;

use super::common::{Common, SECONDS_MAX};
use super::verdict;

/// Simulate whole nodes: members, route, token, mesh and locks in one process, under load and all faults at once.
///
/// Checked always: the fences of a node and of a lock grow, and a confirmed letter has arrived. Checked after the
/// faults: running nodes forget those that stopped for good, every leaf set is exact, and every node has peers in the
/// mesh.
#[derive(clap::Args)]
#[command(after_help = "Examples:
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
        let scenario = NodeScenario {
            nodes: self.nodes,
            seconds: self.seconds,
            conditions: self.common.conditions(),
            swarm: self.common.swarm,
            deaf: false,
            lone_voters: false,
        };
        verdict::run(&self.common, &scenario, json)
    }
}
