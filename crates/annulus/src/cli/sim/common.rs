//! What all scenarios share on the command line: the seed, the faults and the output.

use core::time::Duration;
use std::hash::{BuildHasher, RandomState};
use std::path::PathBuf;

use annulus_sim::{Conditions, Config, FaultPlan, Latency};

/// A year: no run is longer.
pub(super) const SECONDS_MAX: u64 = 31_536_000;

/// Flags of every scenario.
#[derive(clap::Args)]
pub(crate) struct Common {
    /// Decides everything; a random one is chosen and printed first if there is none
    #[arg(long)]
    pub(super) seed: Option<u64>,

    /// Run this many seeds, from the first one upwards, on all cores
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) runs: u64,

    /// Write a readable line for everything that happens to this file, - for standard output; one run only
    #[arg(long, value_name = "FILE", conflicts_with = "runs")]
    pub(super) trace: Option<PathBuf>,

    /// Write a JSON line for everything that happens to this file, - for standard output; one run only
    #[arg(long, value_name = "FILE", conflicts_with = "runs")]
    pub(super) trace_json: Option<PathBuf>,

    /// Append the arguments of a failing run to this file
    #[arg(long, value_name = "FILE")]
    pub(super) keep: Option<PathBuf>,

    /// Let the seed also choose sizes, the network and the faults; replaces the flags for them
    #[arg(long, help_heading = "Faults")]
    pub(super) swarm: bool,

    #[command(flatten)]
    network: Network,

    #[command(flatten)]
    faults: Faults,
}

#[derive(clap::Args)]
#[command(next_help_heading = "Network")]
struct Network {
    /// How long a datagram takes, in microseconds: constant:1000, uniform:500:2000, lognormal:1000:0.5,
    /// plane:50 (for each unit in a square of 1000) or sphere:100000 (to the other side)
    #[arg(long, value_name = "MODEL", default_value = "constant:1000")]
    latency: Latency,

    /// Up to this many microseconds more, for each datagram
    #[arg(long, value_name = "MICROS", default_value_t = 0, value_parser = clap::value_parser!(u64).range(..=3_600_000_000))]
    jitter: u64,

    /// Probability that a datagram or a segment of a stream is lost
    #[arg(long, value_name = "P", default_value_t = 0.0, value_parser = parse_probability)]
    loss: f64,

    /// Probability that a datagram arrives twice
    #[arg(long, value_name = "P", default_value_t = 0.0, value_parser = parse_probability)]
    duplicate: f64,

    /// Probability that a datagram is held up so that others overtake it
    #[arg(long, value_name = "P", default_value_t = 0.0, value_parser = parse_probability)]
    reorder: f64,

    /// Bytes a second that a node can send
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u64).range(1..))]
    bandwidth: Option<u64>,

    /// The largest datagram that passes
    #[arg(long, value_name = "BYTES", default_value_t = 65_507)]
    mtu: usize,

    /// Probability that a piece of a stream is cut at a random place
    #[arg(long, value_name = "P", default_value_t = 0.0, value_parser = parse_probability)]
    odd_chunks: f64,
}

#[derive(clap::Args)]
#[command(next_help_heading = "Faults")]
struct Faults {
    /// How many times a node crashes and comes back; half of them lose power and what was not synced
    #[arg(long, value_name = "N", default_value_t = 0)]
    crash: u32,

    /// How many times a node crashes and comes back with an empty disk
    #[arg(long, value_name = "N", default_value_t = 0)]
    disk_lost: u32,

    /// How many times a disk is full or broken for a while
    #[arg(long, value_name = "N", default_value_t = 0)]
    disk_fault: u32,

    /// Probability that a write to disk fails
    #[arg(long, value_name = "P", default_value_t = 0.0, value_parser = parse_probability)]
    disk_failure: f64,

    /// How many times the network falls apart and heals
    #[arg(long, value_name = "N", default_value_t = 0)]
    partition: u32,

    /// How many times one direction between two nodes is cut and mended
    #[arg(long, value_name = "N", default_value_t = 0)]
    cut: u32,

    /// How many times a process stands still and goes on
    #[arg(long, value_name = "N", default_value_t = 0)]
    suspend: u32,

    /// How many times a machine sleeps and wakes
    #[arg(long, value_name = "N", default_value_t = 0)]
    sleep: u32,

    /// How many times a node becomes slow and recovers
    #[arg(long, value_name = "N", default_value_t = 0)]
    slow: u32,

    /// How many times a wall clock jumps
    #[arg(long, value_name = "N", default_value_t = 0)]
    wall_jump: u32,

    /// Clocks run too fast or too slow by up to this many parts per million
    #[arg(long, value_name = "PPM", default_value_t = 0)]
    drift: u32,
}

impl Common {
    /// What the flags for network and faults say.
    pub(super) fn conditions(&self) -> Conditions {
        let (network, faults) = (&self.network, &self.faults);
        let mut config = Config::default();
        config.network.latency = network.latency;
        config.network.jitter = Duration::from_micros(network.jitter);
        config.network.loss = network.loss;
        config.network.duplicate = network.duplicate;
        config.network.reorder = network.reorder;
        config.network.bandwidth = network.bandwidth;
        config.network.mtu_bytes = network.mtu;
        config.stream.odd_chunks = network.odd_chunks;
        config.disk.failure = faults.disk_failure;
        let faults = FaultPlan {
            crashes: faults.crash,
            disks_lost: faults.disk_lost,
            partitions: faults.partition,
            cuts: faults.cut,
            suspensions: faults.suspend,
            sleeps: faults.sleep,
            wall_jumps: faults.wall_jump,
            slow_hosts: faults.slow,
            disk_faults: faults.disk_fault,
            drift_ppm: faults.drift,
        };
        Conditions { config, faults }
    }

    /// The seed that was given, or one that nobody has chosen: short enough to be told by word of mouth.
    pub(super) fn first_seed(&self) -> u64 {
        self.seed.unwrap_or_else(|| RandomState::new().hash_one("seed") % 1_000_000_000)
    }
}

pub(super) fn parse_probability(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(p) if (0.0..=1.0).contains(&p) => Ok(p),
        _ => Err(String::from("write a probability from 0 to 1")),
    }
}
