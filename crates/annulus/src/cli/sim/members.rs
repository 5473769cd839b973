//! `annulus sim members`.

use std::io::{Write, stdout};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{available_parallelism, scope};

use annulus_core::swim::Preset;
use annulus_sim::scenarios::members::MembersScenario;
use annulus_sim::scenarios::members_measure::{Experiment, Measure, Measured};
use serde::Serialize;

use super::common::{Common, SECONDS_MAX};
use super::verdict;
use crate::cli::UsageError;

/// Nodes that know who is alive: measures how fast the dead are found, how often the living are buried, what it costs.
///
/// With --swarm, or with faults other than --crash, it does not measure but checks: nothing that is known of a node
/// ever goes back, no message is given to an application twice, and when the faults have stopped everyone knows
/// everyone.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  annulus sim members --nodes 100 --crash 1 --preset original_swim --aligned --runs 2000 --seed 1 --json
  annulus sim members --nodes 5000 --crash 50 --seconds 120 --seed 1 --json
  annulus sim members --experiment join --nodes 1000 --seed 1
  annulus sim members --experiment lifeguard --runs 4 --seed 1
  annulus sim members --swarm --runs 100")]
pub(crate) struct Members {
    /// How many nodes; with --swarm, how many at most
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(2..=1_000_000))]
    nodes: u32,

    /// How many seconds of virtual time are watched
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(..=SECONDS_MAX))]
    seconds: u64,

    /// original_swim, go_swim, lan, wan or local
    #[arg(long, default_value = "lan")]
    preset: Preset,

    /// What is done to the group
    #[arg(long, value_enum, default_value = "crash")]
    experiment: Kind,

    /// Periods begin together, and the crash comes just before one
    #[arg(long)]
    aligned: bool,

    /// Instead of the preset's own
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    suspicion_mult: Option<u32>,

    /// How many nodes stand still now and then (experiments stall and lifeguard)
    #[arg(long, value_name = "N", default_value_t = 20)]
    stalling: u32,

    /// How long they stand still, uniformly, in milliseconds
    #[arg(long, value_name = "FROM..TO", default_value = "5000..8000", value_parser = parse_span)]
    stall: (u64, u64),

    /// How long they run in between, uniformly, in milliseconds
    #[arg(long, value_name = "FROM..TO", default_value = "1000..20000", value_parser = parse_span)]
    awake: (u64, u64),

    /// Every application broadcasts more than the queue holds
    #[arg(long)]
    flood: bool,

    #[command(flatten)]
    common: Common,
}

/// What is done to the group.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Kind {
    /// Some crash for good
    Crash,
    /// All join through one
    Join,
    /// Half of them are cut off for ten minutes
    Partition,
    /// All are restarted, at incarnation 0
    Restart,
    /// Some stand still again and again
    Stall,
    /// The same for original_swim and the preset, as a table
    Lifeguard,
}

impl Members {
    pub(super) fn run(self, json: bool) -> anyhow::Result<ExitCode> {
        let conditions = self.common.conditions();
        let mut others = conditions.faults.clone();
        others.crashes = 0;
        if self.common.swarm || others != annulus_sim::FaultPlan::default() {
            let scenario = MembersScenario {
                nodes: self.nodes,
                seconds: self.seconds,
                preset: self.preset,
                conditions,
                swarm: self.common.swarm,
            };
            return verdict::run(&self.common, &scenario, json);
        }
        let crash = conditions.faults.crashes;
        if crash > self.nodes {
            let text = format!("{crash} of {} nodes cannot crash: give a smaller --crash", self.nodes);
            return Err(UsageError(text).into());
        }
        let measure = Measure {
            experiment: self.experiment.done(),
            nodes: self.nodes,
            crash,
            seconds: self.seconds,
            preset: self.preset,
            suspicion_mult: self.suspicion_mult,
            aligned: self.aligned,
            stalling: self.stalling,
            stall_millis: self.stall,
            run_millis: self.awake,
            flood: self.flood,
            config: conditions.config,
        };
        match self.experiment {
            Kind::Lifeguard => self.lifeguard(&measure, json),
            _ => self.one(&measure, json),
        }
    }

    fn one(&self, measure: &Measure, json: bool) -> anyhow::Result<ExitCode> {
        let summary = self.summarise(measure, self.common.first_seed())?;
        let mut out = stdout().lock();
        if json {
            serde_json::to_writer(&mut out, &summary)?;
            writeln!(out)?;
        } else {
            writeln!(out, "{summary:#?}")?;
        }
        Ok(if summary.converged { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    /// Lifeguard's experiment: the same stalls for both, and the same SuspicionMult.
    fn lifeguard(&self, measure: &Measure, json: bool) -> anyhow::Result<ExitCode> {
        let mult = self.suspicion_mult.unwrap_or(self.preset.settings().suspicion_mult);
        let with = |preset| Measure { preset, suspicion_mult: Some(mult), ..measure.clone() };
        let first = self.common.first_seed();
        let rows = [Preset::OriginalSwim, Preset::GoSwim, self.preset]
            .map(|preset| self.summarise(&with(preset), first).map(|summary| (preset, summary)));
        let mut out = stdout().lock();
        if !json {
            writeln!(
                out,
                "| preset | false deaths | false suspects | first dead s | all know s | bytes/node/s |"
            )?;
            writeln!(out, "|---|---|---|---|---|---|")?;
        }
        for row in rows {
            let (preset, summary) = row?;
            if json {
                serde_json::to_writer(&mut out, &summary)?;
                writeln!(out)?;
                continue;
            }
            writeln!(
                out,
                "| {preset} | {} | {} | {:.2} | {:.2} | {:.0} |",
                summary.false_dead,
                summary.false_suspects,
                summary.first_dead_seconds.mean,
                summary.all_know_dead_seconds.mean,
                summary.bytes_per_node_per_second
            )?;
        }
        Ok(ExitCode::SUCCESS)
    }

    fn summarise(&self, measure: &Measure, first: u64) -> anyhow::Result<Summary> {
        let runs = self.common.runs;
        let next = AtomicU64::new(0);
        let done = Mutex::new(Vec::new());
        let threads = available_parallelism().map_or(1, usize::from).min(runs as usize);
        scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    loop {
                        let index = next.fetch_add(1, Ordering::Relaxed);
                        if index >= runs {
                            break;
                        }
                        let run = measure.run(first + index);
                        done.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push((index, run));
                    }
                });
            }
        });
        let mut done = done.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        done.sort_by_key(|(index, _)| *index);
        let runs = done.into_iter().map(|(_, run)| run.map_err(|violation| anyhow::anyhow!(violation.text)));
        Ok(Summary::new(measure, first, &runs.collect::<anyhow::Result<Vec<_>>>()?))
    }
}

impl Kind {
    const fn done(self) -> Experiment {
        match self {
            Self::Crash => Experiment::Crash,
            Self::Join => Experiment::Join,
            Self::Partition => Experiment::Partition,
            Self::Restart => Experiment::Restart,
            Self::Stall | Self::Lifeguard => Experiment::Stall,
        }
    }
}

/// All runs together.
#[derive(Debug, Serialize)]
struct Summary {
    scenario: &'static str,
    experiment: Experiment,
    preset: Preset,
    nodes: u32,
    crash: u32,
    seconds: u64,
    seed: u64,
    runs: usize,
    first_suspect_periods: Spread,
    first_dead_seconds: Spread,
    all_know_dead_seconds: Spread,
    deaths_known_to_all: usize,
    false_suspects: u64,
    false_dead: u64,
    messages_per_node_per_second: f64,
    bytes_per_node_per_second: f64,
    unprobed_periods_max: u32,
    broadcasts_refused: u64,
    converged: bool,
    converged_seconds: Spread,
    trace_hash: String,
}

impl Summary {
    fn new(measure: &Measure, seed: u64, runs: &[Measured]) -> Self {
        let all = |take: fn(&Measured) -> &Vec<f64>| Spread::new(runs.iter().flat_map(take).copied());
        let mean = |take: fn(&Measured) -> f64| runs.iter().map(take).sum::<f64>() / runs.len().max(1) as f64;
        let hashes: Vec<&str> = runs.iter().map(|run| run.trace_hash.as_str()).collect();
        let known = all(|run| &run.all_know_dead_seconds);
        Self {
            scenario: "members",
            experiment: measure.experiment,
            preset: measure.preset,
            nodes: measure.nodes,
            crash: measure.crash,
            seconds: measure.seconds,
            seed,
            runs: runs.len(),
            first_suspect_periods: all(|run| &run.first_suspect_periods),
            first_dead_seconds: all(|run| &run.first_dead_seconds),
            deaths_known_to_all: known.count,
            all_know_dead_seconds: known,
            false_suspects: runs.iter().map(|run| run.false_suspects).sum(),
            false_dead: runs.iter().map(|run| run.false_dead).sum(),
            messages_per_node_per_second: mean(|run| run.messages_rate),
            bytes_per_node_per_second: mean(|run| run.bytes_rate),
            unprobed_periods_max: runs.iter().map(|run| run.unprobed_periods_max).max().unwrap_or(0),
            broadcasts_refused: runs.iter().map(|run| run.broadcasts_refused).sum(),
            converged: runs.iter().all(|run| run.converged),
            converged_seconds: Spread::new(runs.iter().filter_map(|run| run.converged_seconds)),
            // One run: its hash. Many: the hash of their hashes.
            trace_hash: match hashes[..] {
                [only] => only.to_owned(),
                _ => annulus_core::Id::from_text(&hashes.concat()).to_string(),
            },
        }
    }
}

/// Some numbers, in a few.
#[derive(Debug, Serialize)]
struct Spread {
    count: usize,
    mean: f64,
    p50: f64,
    p99: f64,
    max: f64,
}

impl Spread {
    fn new(values: impl Iterator<Item = f64>) -> Self {
        let mut values: Vec<f64> = values.collect();
        values.sort_by(f64::total_cmp);
        let at = |share: f64| {
            let place = ((values.len() as f64 * share).ceil() as usize).max(1) - 1;
            values.get(place).copied().unwrap_or(0.0)
        };
        Self {
            count: values.len(),
            // The sum of nothing is -0.0, which looks as if it meant something.
            mean: (values.iter().sum::<f64>() + 0.0) / values.len().max(1) as f64,
            p50: at(0.5),
            p99: at(0.99),
            max: at(1.0),
        }
    }
}

fn parse_span(text: &str) -> Result<(u64, u64), String> {
    let parts = text.split_once("..").and_then(|(from, to)| Some((from.parse().ok()?, to.parse().ok()?)));
    parts.filter(|(from, to)| from <= to).ok_or_else(|| String::from("write FROM..TO in milliseconds"))
}
