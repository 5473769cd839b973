//! `annulus sim members`.

use std::io::{Write, stdout};
use std::process::ExitCode;
use std::thread::available_parallelism;

use annulus_core::swim::Preset;
use annulus_sim::scenarios::members::{Experiment, Measure, MembersScenario, Summary};
use annulus_sim::{Lines, run_seeds};

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
        let disks_fail = conditions.config.disk.failure > 0.0;
        if self.common.swarm || disks_fail || others != annulus_sim::FaultPlan::default() {
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
        let summary = self.summarise(measure, verdict::announce_seed(&self.common, json)?)?;
        if json {
            verdict::tell_json(&summary)?;
        } else {
            write!(stdout().lock(), "{summary}")?;
        }
        Ok(if summary.converged { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    /// Lifeguard's experiment: the same stalls for both, and the same SuspicionMult.
    fn lifeguard(&self, measure: &Measure, json: bool) -> anyhow::Result<ExitCode> {
        if self.common.trace.is_some() || self.common.trace_json.is_some() {
            let text = "--experiment lifeguard is three runs: trace one of them with --experiment stall and a --preset";
            return Err(UsageError(text.into()).into());
        }
        let mult = self.suspicion_mult.unwrap_or(self.preset.settings().suspicion_mult);
        let with = |preset| Measure { preset, suspicion_mult: Some(mult), ..measure.clone() };
        let first = verdict::announce_seed(&self.common, json)?;
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
                verdict::tell_json(&summary)?;
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
        let mut runs = Vec::new();
        if self.common.runs == 1 {
            runs.push(measure.run(first, verdict::lines(&self.common)?));
        } else {
            let threads = available_parallelism().map_or(1, usize::from);
            let run = |seed| measure.run(seed, Lines::default());
            run_seeds(first, self.common.runs, threads, run, |measured| runs.push(measured));
        }
        let runs: Result<Vec<_>, _> = runs.into_iter().collect();
        let runs = runs.map_err(|violation| anyhow::anyhow!(violation.text))?;
        Ok(Summary::new(measure, first, &runs))
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

fn parse_span(text: &str) -> Result<(u64, u64), String> {
    let parts = text.split_once("..").and_then(|(from, to)| Some((from.parse().ok()?, to.parse().ok()?)));
    parts.filter(|(from, to)| from <= to).ok_or_else(|| String::from("write FROM..TO in milliseconds"))
}
