//! `annulus sim ping`.

use std::process::ExitCode;

use annulus::core::ping::Fault;
use annulus_sim::scenarios::ping::PingScenario;

use super::common::{Common, SECONDS_MAX};
use super::verdict;

/// Simulate the tutorial machine: nodes ping each other over UDP and TCP, and store a count on disk.
///
/// Checked always: a pong is reported once, and only for a ping that was sent; a stored count never decreases.
/// Checked after the faults: within five seconds every node gets pongs from all its peers.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  annulus sim ping --nodes 1000 --seconds 60 --seed 7 --json
  annulus sim ping --loss 0.1 --crash 5 --partition 2 --seed 3 --trace -
  annulus sim ping --swarm --runs 100")]
pub(crate) struct Ping {
    /// The number of nodes; with --swarm, the largest number
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(2..=1_000_000))]
    nodes: u32,

    /// Seconds of virtual time with faults; the nodes must converge afterwards
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(..=SECONDS_MAX))]
    seconds: u64,

    /// The number of peers that each node pings
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=64))]
    peers: u32,

    /// Builds a fault into the nodes, to see that it is caught
    #[arg(long = "break", hide = true, value_parser = parse_fault)]
    broken: Option<Fault>,

    #[command(flatten)]
    common: Common,
}

impl Ping {
    pub(super) fn run(self, json: bool) -> anyhow::Result<ExitCode> {
        let scenario = PingScenario {
            nodes: self.nodes,
            seconds: self.seconds,
            peers: self.peers,
            conditions: self.common.conditions(),
            swarm: self.common.swarm,
            broken: self.broken,
        };
        verdict::run(&self.common, &scenario, json)
    }
}

fn parse_fault(text: &str) -> Result<Fault, String> {
    match text {
        "keep-without-sync" => Ok(Fault::KeepWithoutSync),
        "answer-twice" => Ok(Fault::AnswerTwice),
        _ => Err(String::from("write keep-without-sync or answer-twice")),
    }
}
