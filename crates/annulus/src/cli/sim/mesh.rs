//! `annulus sim mesh`.

use std::process::ExitCode;

use annulus_core::w3w::{Fault, Forward};
use annulus_sim::scenarios::mesh::MeshScenario;

use super::common::{Common, SECONDS_MAX};
use super::verdict;

/// Nodes of a mesh that send each other messages, some of which are away and come back.
///
/// Checked all the time: a message is delivered at most once; what was acknowledged is on disk; rings are ascending and
/// bounded. Checked when the faults have stopped: everybody is connected to both its neighbours, no single node holds the
/// others together, and unless something was destroyed on the way, every message arrives.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  annulus sim mesh --nodes 1000 --max 16 --messages 1000 --seed 7 --json
  annulus sim mesh --nodes 100 --away 0.3 --seed 3
  annulus sim mesh --swarm --runs 100")]
pub(crate) struct Mesh {
    /// How many nodes; with --swarm, how many at most
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(2..=100_000))]
    nodes: u32,

    /// The most peers of each node
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u16).range(4..=1024))]
    max: u16,

    /// How many messages are sent
    #[arg(long, default_value_t = 100)]
    messages: u32,

    /// How many bytes a message has at least
    #[arg(long, value_name = "BYTES", default_value_t = 0)]
    message_bytes: usize,

    /// Which part of the nodes is away while messages are sent, and comes back after it
    #[arg(long, value_name = "FRACTION", default_value_t = 0.0, value_parser = super::common::parse_probability)]
    away: f64,

    /// How many nodes die before messages are sent, and never come back
    #[arg(long, value_name = "NODES", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=100_000))]
    deaths: u32,

    /// To whom a relay passes a message on: the nearer neighbour of its recipient, or both
    #[arg(long, default_value = "nearest", value_parser = parse_forward)]
    forward: Forward,

    /// How many random others each node knows at first
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=64))]
    seeds: u32,

    /// How many seconds of virtual time the nodes have to find their places
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
        _ => {
            Err(String::from("write forget-seen, reply-before-durable, no-introductions or drop-neighbours"))
        }
    }
}
