//! `annulus sim mesh`.

use std::process::ExitCode;

use annulus::core::w3w::{Fault, Forward};
use annulus_sim::scenarios::mesh::MeshScenario;

use super::common::{Common, SECONDS_MAX};
use super::verdict;

/// Simulate `mesh`: nodes send each other messages while some nodes are down.
///
/// Checked always: no node delivers a message twice, acknowledged messages are on disk, and rings are ascending and
/// bounded. Checked after the faults: every node is connected to both its neighbours, and the loss of any one node does
/// not split the mesh. Every message arrives, unless a fault destroyed it.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  annulus sim mesh --nodes 1000 --max 16 --messages 1000 --seed 7 --json
  annulus sim mesh --nodes 100 --away 0.3 --seed 3
  annulus sim mesh --swarm --runs 100")]
pub(crate) struct Mesh {
    /// The number of nodes; with --swarm, the largest number
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(2..=100_000))]
    nodes: u32,

    /// The largest number of peers of a node
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u16).range(4..=1024))]
    max: u16,

    /// The number of messages
    #[arg(long, default_value_t = 100)]
    messages: u32,

    /// The least length of a message in bytes
    #[arg(long, value_name = "BYTES", default_value_t = 0)]
    message_bytes: usize,

    /// The fraction of the nodes that is down while messages are sent, and restarts afterwards
    #[arg(long, value_name = "FRACTION", default_value_t = 0.0, value_parser = super::common::parse_probability)]
    away: f64,

    /// Nodes go down by a loss of power while messages are sent: their peers get no FIN
    #[arg(long)]
    silent: bool,

    /// The messages are plain: custody ends with the answer of the next node, and no receipt comes
    #[arg(long)]
    plain: bool,

    /// The number of nodes that fail permanently before messages are sent
    #[arg(long, value_name = "NODES", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=100_000))]
    deaths: u32,

    /// The next hops of a relay: the ring neighbour that is nearer to the recipient, or both
    #[arg(long, default_value = "nearest", value_parser = parse_forward)]
    forward: Forward,

    /// The number of random nodes that each node knows at first
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=64))]
    seeds: u32,

    /// Seconds of virtual time for the ring to form
    #[arg(long, value_name = "SECONDS", default_value_t = 1800, value_parser = clap::value_parser!(u64).range(..=SECONDS_MAX))]
    settle: u64,

    /// Builds a fault into the nodes, to see that it is caught
    #[arg(long = "break", hide = true, value_parser = parse_fault)]
    broken: Option<Fault>,

    #[command(flatten)]
    common: Common,
}

impl Mesh {
    pub(super) fn run(self, json: bool) -> anyhow::Result<ExitCode> {
        let scenario = MeshScenario {
            nodes: self.nodes,
            peers_max: self.max.into(),
            messages: self.messages,
            message_bytes: self.message_bytes,
            away: self.away,
            silent: self.silent,
            plain: self.plain,
            deaths: self.deaths,
            forward: self.forward,
            seeds: self.seeds,
            settle_seconds: self.settle,
            conditions: self.common.conditions(),
            swarm: self.common.swarm,
            broken: self.broken,
        };
        verdict::run(&self.common, &scenario, json)
    }
}

fn parse_forward(text: &str) -> Result<Forward, String> {
    match text {
        "nearest" => Ok(Forward::Nearest),
        "both" => Ok(Forward::Both),
        _ => Err(String::from("write nearest or both")),
    }
}

fn parse_fault(text: &str) -> Result<Fault, String> {
    match text {
        "forget-seen" => Ok(Fault::ForgetSeen),
        "reply-before-durable" => Ok(Fault::ReplyBeforeDurable),
        "no-introductions" => Ok(Fault::NoIntroductions),
        "drop-neighbours" => Ok(Fault::DropNeighbours),
        "held-from-memory" => Ok(Fault::HeldFromMemory),
        "forget-numbers" => Ok(Fault::ForgetNumbers),
        "trust-kernel" => Ok(Fault::TrustKernel),
        "confirm-before-durable" => Ok(Fault::ConfirmBeforeDurable),
        "foreign" => Ok(Fault::Foreign),
        _ => Err(String::from(
            "write forget-seen, reply-before-durable, no-introductions, drop-neighbours, held-from-memory, \
             forget-numbers, trust-kernel, confirm-before-durable or foreign",
        )),
    }
}
