//! `annulus sim token`.

use core::time::Duration;
use std::process::ExitCode;

use annulus::core::jitterbug::Draw;
use annulus_sim::Latency;
use annulus_sim::scenarios::token::{Preset, Summary, TokenScenario, without_samples};

use super::common::{Common, SECONDS_MAX};
use super::verdict;
use crate::cli::UsageError;

/// Simulate `token`: nodes pass a token round a ring, as the Jitterbug document specifies.
///
/// Checked always: node lists only grow, and the fences of a node and of a token strictly grow. No two commands run at
/// once under holds, as long as the only faults are crashes of holders and pauses of processes. Checked after the
/// faults: one token is left, all nodes have the same list, and no count that was passed on is lost.
///
/// The figures cover the time from the first holder to the end of the faults. `availability` is the share of time in
/// which a node holds or passes the token. `recovery_ms` is the length of each loss. `launches` is the number of
/// restores that the winner needed. With --runs the figures are those of all runs together: one object with --json,
/// else a line for each run and the figures.
///
/// The scenario chooses `renew_timeout` by the number of nodes; the report has it among the settings.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  annulus sim token --nodes 10 --seconds 600 --seed 7 --json
  annulus sim token --crash-holder 5 --partition 2 --loss 0.1 --seed 3 --trace -
  annulus sim token --nodes 5 --stall-holder 5 --preset local --seconds 120 --runs 20 --json
  annulus sim token --nodes 10 --rings 2 --seconds 20 --runs 50 --json
  annulus sim token --nodes 12 --preset local --seconds 5 --runs 1000 --seed 1 --json
  annulus sim token --nodes 6 --preset local --swarm --seconds 30 --runs 10000 --seed 0 --json")]
pub(crate) struct Token {
    /// The number of nodes; with --swarm, the largest number
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(2..=60_000))]
    nodes: u32,

    /// Seconds of virtual time with faults; the nodes must converge afterwards
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(..=SECONDS_MAX))]
    seconds: u64,

    /// The timers: lan or local
    #[arg(long, default_value = "lan", value_parser = parse_preset)]
    preset: Preset,

    /// Start with this many separate rings; the network connects them after 15 seconds
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    rings: u32,

    /// The mean number of loops between two random drops of the token; the preset has the default
    #[arg(long, value_name = "LOOPS", value_parser = parse_base)]
    base: Option<f64>,

    /// The least length of a tenure in milliseconds; the preset has the default
    #[arg(long, value_name = "MILLIS")]
    pace: Option<u64>,

    /// Draw new token ids from all ids instead of those that can win, for comparison
    #[arg(long)]
    draw_any: bool,

    /// Number of times that the holder is killed and restarted
    #[arg(long, value_name = "N", default_value_t = 0, help_heading = "Faults")]
    crash_holder: u32,

    /// Number of pauses of a process, 1 ms to 100 s long; every second one hits the holder
    #[arg(long, value_name = "N", default_value_t = 0, help_heading = "Faults")]
    stall_holder: u32,

    /// Regenerate the token after two tries and keep holds through pauses, as the document does, for comparison
    #[arg(long)]
    impatient: bool,

    #[command(flatten)]
    common: Common,
}

impl Token {
    pub(super) fn run(self, json: bool) -> anyhow::Result<ExitCode> {
        let scenario = TokenScenario {
            nodes: self.nodes,
            seconds: self.seconds,
            preset: self.preset,
            rings: self.rings.min(self.nodes),
            crash_holder: self.crash_holder,
            stall_holder: self.stall_holder,
            patient: !self.impatient,
            base: self.base,
            pace: self.pace.map(Duration::from_millis),
            draw: if self.draw_any { Draw::Any } else { Draw::Better },
            conditions: self.common.conditions(),
            swarm: self.common.swarm,
        };
        self.check(&scenario)?;
        let (many, mut summary) = (self.common.runs > 1, Summary::new());
        let code = verdict::run_telling(&self.common, &scenario, json, |report| {
            summary.add(report);
            let mut report = report.clone();
            without_samples(&mut report);
            match (json, many) {
                (true, true) => Ok(()),
                (true, false) => verdict::tell_json(&report),
                (false, _) => verdict::tell(&report, many),
            }
        })?;
        if many {
            verdict::tell_summary(&summary.to_json(), json)?;
        }
        Ok(code)
    }
}

impl Token {
    /// Checks that the messages of the ring can pass at all: without that a run proves nothing.
    fn check(&self, scenario: &TokenScenario) -> Result<(), UsageError> {
        // With --swarm the seed chooses the network.
        if self.common.swarm {
            return Ok(());
        }
        let network = &scenario.conditions.config.network;
        if network.mtu_bytes < DATAGRAM_BYTES {
            return Err(UsageError(format!(
                "--mtu {}: a question for the token has {DATAGRAM_BYTES} bytes; give at least that",
                network.mtu_bytes
            )));
        }
        let pass = scenario.config(self.nodes).pass_timeout;
        let way = longest(network.latency) + network.jitter;
        if WAYS * way >= pass {
            return Err(UsageError(format!(
                "--latency and --jitter make up to {way:?}: a pass goes to and fro {} times within {pass:?}; give at most {:?}",
                WAYS / 2,
                pass / WAYS
            )));
        }
        let pass = pass.as_secs_f64();
        let bytes = TOKEN_BYTES + NODE_BYTES * u64::from(self.nodes);
        let least = (2.0 * bytes as f64 / pass).ceil() as u64;
        if let Some(bandwidth) = network.bandwidth.filter(|bandwidth| *bandwidth < least) {
            return Err(UsageError(format!(
                "--bandwidth {bandwidth}: a token of {} nodes does not pass within {pass} s; give at least {least}",
                self.nodes
            )));
        }
        Ok(())
    }
}

/// How often the words of a pass cross the network: connection, offer, token.
const WAYS: u32 = 6;

/// How long a datagram may take, nearly always.
fn longest(latency: Latency) -> Duration {
    match latency {
        Latency::Constant(way) | Latency::Uniform(_, way) => way,
        Latency::LogNormal { median, sigma } => median.mul_f64((2.0 * sigma).exp().min(1e6)),
        // The diagonal of its square.
        Latency::Plane { per_unit } => per_unit * 1415,
        Latency::Clusters { far, .. } => far,
        Latency::Sphere { antipode } => antipode,
    }
}

/// The longest datagram of the ring.
const DATAGRAM_BYTES: usize = 11;
/// The longest token, without the part that grows with the nodes: mostly the edges of its graph.
const TOKEN_BYTES: u64 = 8000;
/// The bytes that each node adds to it: an entry of the list and a count.
const NODE_BYTES: u64 = 48;

fn parse_preset(text: &str) -> Result<Preset, String> {
    match text {
        "lan" => Ok(Preset::Lan),
        "local" => Ok(Preset::Local),
        _ => Err(String::from("write lan or local")),
    }
}

fn parse_base(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(base) if base > 1.0 => Ok(base),
        _ => Err(String::from("write a number above 1")),
    }
}
