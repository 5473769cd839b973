//! `annulus sim turns`.

use std::process::ExitCode;
use std::time::Duration;

use annulus::core::turns::Fault;
use annulus_sim::scenarios::turns::{Trouble, TurnsScenario};

use super::common::{Common, SECONDS_MAX};
use super::verdict;

/// Simulate exclusive turns: nodes request one name from voters, and processes act on their turns.
///
/// Checked always: no two commands run at the same time (X), and fences rise (F). A resource that checks fences accepts
/// no lower one after a higher one (R). No node is granted a turn while another has one (E). Checked after the faults: a
/// waiting request is granted within a lease and some seconds (V). A disk is lost only while enough voters have theirs.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  annulus sim turns --seed 7 --json
  annulus sim turns --trouble stalls --runs 100
  annulus sim turns --crash 5 --sleep 3 --drift 50000 --seed 7     # the faults of all scenarios
  annulus sim turns --swarm --runs 10000 --seed 0                  # every fault, any noise
  annulus sim turns --trouble drift --drift-ppm 300000 --runs 20   # beyond what is promised: caught")]
pub(crate) struct Turns {
    /// The number of nodes; with --swarm the largest number
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=64))]
    nodes: u32,

    /// The number of voters among them; --swarm draws it
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=7))]
    voters: u32,

    /// Seconds of virtual time with faults
    #[arg(long, default_value_t = 120, value_parser = clap::value_parser!(u64).range(..=SECONDS_MAX))]
    seconds: u64,

    /// The length of a lease in seconds
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(2..=600))]
    lease: u64,

    /// Faults aimed at the holder or at voters, such as stalls, cuts, lost-disks or everything; drawn by the seed if
    /// neither it nor another fault is given
    #[arg(long, value_parser = parse_trouble)]
    trouble: Option<Trouble>,

    /// The greatest clock drift that --trouble injects, in parts per million
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(..=500_000))]
    drift_ppm: u32,

    /// Build a fault into the nodes, to see that it is caught
    #[arg(long = "break", hide = true, value_parser = parse_fault)]
    broken: Option<Fault>,

    #[command(flatten)]
    common: Common,
}

impl Turns {
    pub(super) fn run(self, json: bool) -> anyhow::Result<ExitCode> {
        let scenario = TurnsScenario {
            nodes: self.nodes,
            voters: self.voters,
            seconds: self.seconds,
            lease: Duration::from_secs(self.lease),
            conditions: self.common.conditions(),
            trouble: self.trouble,
            drift_ppm: self.drift_ppm,
            swarm: self.common.swarm,
            broken: self.broken,
            ..TurnsScenario::default()
        };
        verdict::run(&self.common, &scenario, json)
    }
}

fn parse_trouble(text: &str) -> Result<Trouble, String> {
    Trouble::named(text)
        .ok_or_else(|| format!("write one of {}", Trouble::names().collect::<Vec<_>>().join(", ")))
}

fn parse_fault(text: &str) -> Result<Fault, String> {
    match text {
        "grants-while-resting" => Ok(Fault::GrantsWhileResting),
        "bound-after-grant" => Ok(Fault::BoundAfterGrant),
        "reads-before-rest" => Ok(Fault::ReadsBeforeRest),
        _ => Err(String::from("write grants-while-resting, bound-after-grant or reads-before-rest")),
    }
}
