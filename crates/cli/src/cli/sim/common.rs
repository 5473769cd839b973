//! Flags that all scenarios share: the seed, the network, the faults and the output.

use core::time::Duration;
use std::hash::{BuildHasher, RandomState};
use std::path::PathBuf;

use annulus_sim::{Conditions, Config, FaultModel, FaultPlan, Latency};

/// A year: no run is longer.
pub(super) const SECONDS_MAX: u64 = 31_536_000;

/// Flags of every scenario.
#[derive(clap::Args)]
pub(crate) struct Common {
    /// The seed of the run [default: a random one, printed first]
    #[arg(long)]
    pub(super) seed: Option<u64>,

    /// The number of runs, with consecutive seeds, on all cores
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) runs: u64,

    /// Write a readable trace to this file, or to standard output with -; one run only
    #[arg(long, value_name = "FILE", conflicts_with = "runs")]
    pub(super) trace: Option<PathBuf>,

    /// Write a trace of JSON lines to this file, or to standard output with -; one run only
    #[arg(long, value_name = "FILE", conflicts_with = "runs")]
    pub(super) trace_json: Option<PathBuf>,

    /// Append the arguments of every failing run to this file
    #[arg(long, value_name = "FILE")]
    pub(super) keep: Option<PathBuf>,

    /// Derive sizes, network and faults from the seed; replaces the flags for them
    #[arg(long, help_heading = "Faults")]
    pub(super) swarm: bool,

    /// The version of the fault model: v2 has all faults, v1 fewer of them and repeats older runs
    #[arg(long, value_name = "VERSION", default_value = "v2", value_parser = parse_model, help_heading = "Faults")]
    fault_model: FaultModel,

    #[command(flatten)]
    network: Network,

    #[command(flatten)]
    faults: Faults,
}

#[derive(clap::Args)]
#[command(next_help_heading = "Network")]
struct Network {
    /// The latency of a datagram in microseconds: constant:1000, uniform:500:2000, lognormal:1000:0.5,
    /// plane:50 (per unit in a square of 1000), clusters:4:500:40000 (count, within, between) or sphere:100000
    /// (to the antipode)
    #[arg(long, value_name = "MODEL", default_value = "constant:1000")]
    latency: Latency,

    /// The largest random addition to the latency of a datagram, in microseconds
    #[arg(long, value_name = "MICROS", default_value_t = 0, value_parser = clap::value_parser!(u64).range(..=3_600_000_000))]
    jitter: u64,

    /// Probability that a datagram or a segment of a stream is lost
    #[arg(long, value_name = "P", default_value_t = 0.0, value_parser = parse_probability)]
    loss: f64,

    /// Probability that a datagram arrives twice
    #[arg(long, value_name = "P", default_value_t = 0.0, value_parser = parse_probability)]
    duplicate: f64,

    /// Probability that a datagram is delayed behind later ones
    #[arg(long, value_name = "P", default_value_t = 0.0, value_parser = parse_probability)]
    reorder: f64,

    /// Bytes per second that a node can send
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u64).range(1..))]
    bandwidth: Option<u64>,

    /// The largest datagram that is delivered
    #[arg(long, value_name = "BYTES", default_value_t = 65_507)]
    mtu: usize,

    /// Probability that a segment of a stream is split at a random place
    #[arg(long, value_name = "P", default_value_t = 0.0, value_parser = parse_probability)]
    odd_chunks: f64,
}

#[derive(clap::Args)]
#[command(next_help_heading = "Faults")]
struct Faults {
    /// Number of crashes with a restart; half of them lose power, and with it unsynced writes
    #[arg(long, value_name = "N", default_value_t = 0)]
    crash: u32,

    /// Number of crashes with a restart on an empty disk
    #[arg(long, value_name = "N", default_value_t = 0)]
    disk_lost: u32,

    /// Number of times that a disk is full or broken for a while
    #[arg(long, value_name = "N", default_value_t = 0)]
    disk_fault: u32,

    /// Probability that a write to disk fails
    #[arg(long, value_name = "P", default_value_t = 0.0, value_parser = parse_probability)]
    disk_failure: f64,

    /// Number of network partitions that heal
    #[arg(long, value_name = "N", default_value_t = 0)]
    partition: u32,

    /// Number of times that one direction between two nodes is cut for a while
    #[arg(long, value_name = "N", default_value_t = 0)]
    cut: u32,

    /// Number of times that a process is paused and resumed (SIGSTOP)
    #[arg(long, value_name = "N", default_value_t = 0)]
    suspend: u32,

    /// Number of times that a host is suspended and woken
    #[arg(long, value_name = "N", default_value_t = 0)]
    sleep: u32,

    /// Number of times that a node is slow for a while
    #[arg(long, value_name = "N", default_value_t = 0)]
    slow: u32,

    /// Number of jumps of a wall clock
    #[arg(long, value_name = "N", default_value_t = 0)]
    wall_jump: u32,

    /// The largest clock drift in parts per million
    #[arg(long, value_name = "PPM", default_value_t = 0)]
    drift: u32,
}

impl Common {
    /// The conditions that the flags for network and faults ask for.
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
        let mut faults = FaultPlan {
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
            ..FaultPlan::default()
        };
        if self.swarm || !faults.is_empty() {
            faults.model = self.fault_model;
        }
        Conditions { config, faults }
    }

    /// The seed that was given, or a random one of at most nine digits.
    pub(super) fn first_seed(&self) -> u64 {
        self.seed.unwrap_or_else(|| RandomState::new().hash_one("seed") % 1_000_000_000)
    }
}

fn parse_model(text: &str) -> Result<FaultModel, String> {
    match text {
        "v1" => Ok(FaultModel::V1),
        "v2" => Ok(FaultModel::V2),
        _ => Err(String::from("write v1 or v2")),
    }
}

pub(super) fn parse_probability(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(p) if (0.0..=1.0).contains(&p) => Ok(p),
        _ => Err(String::from("write a probability from 0 to 1")),
    }
}
