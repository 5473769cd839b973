//! `annulus sim members`.

mod plot;
mod variation;

use std::io::{Write, stdout};
use std::process::ExitCode;
use std::thread::available_parallelism;
use std::time::Duration;

use annulus::core::swim::Preset;
use annulus_sim::scenarios::members::{
    Adversaries, Experiment, Intruders, Lie, Measure, MembersScenario, Places, Summary,
};
use annulus_sim::{Config, Latency, Lines, Report, run_seeds};

use self::variation::Variation;
use super::common::{Common, SECONDS_MAX, parse_probability};
use super::verdict;
use crate::cli::UsageError;

/// Simulate `members`: measures detection time, false positives and message load.
///
/// With --swarm, or with faults other than --crash, the scenario checks instead of measuring. The known status of a
/// node never goes back. No application gets a user message twice. After the faults every node knows every other
/// node.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  annulus sim members --nodes 100 --crash 1 --preset original_swim --aligned --runs 2000 --seed 1 --json
  annulus sim members --nodes 5000 --crash 50 --seconds 120 --seed 1 --json
  annulus sim members --experiment join --nodes 1000 --seed 1
  annulus sim members --experiment lifeguard --runs 4 --seed 1
  annulus sim members --experiment variations --latency clusters:4:500:40000 --places by-id --crash 3 --runs 5
  annulus sim members --experiment adversary --nodes 50 --seconds 40 --runs 20
  annulus sim members --experiment adversary --nodes 20 --lie move --runs 20
  annulus sim members --experiment intruders --nodes 20 --seconds 20 --runs 20
  annulus sim members --swarm --runs 100")]
pub(crate) struct Members {
    /// The number of nodes; with --swarm, the largest number
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(2..=1_000_000))]
    nodes: u32,

    /// Seconds of virtual time to measure
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(..=SECONDS_MAX))]
    seconds: u64,

    /// original_swim, go_swim, lan, wan or local
    #[arg(long, default_value = "lan")]
    preset: Preset,

    /// The experiment
    #[arg(long, value_enum, default_value = "crash")]
    experiment: Kind,

    /// All protocol periods begin together, and the crash is just before one
    #[arg(long)]
    aligned: bool,

    /// Overrides the SuspicionMult of the preset
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    suspicion_mult: Option<u32>,

    /// The number of processes that are paused repeatedly (experiments stall and lifeguard)
    #[arg(long, value_name = "N", default_value_t = 20)]
    stalling: u32,

    /// The length of a pause in milliseconds, uniformly distributed
    #[arg(long, value_name = "FROM..TO", default_value = "5000..8000", value_parser = parse_span)]
    stall: (u64, u64),

    /// The time between two pauses in milliseconds, uniformly distributed
    #[arg(long, value_name = "FROM..TO", default_value = "1000..20000", value_parser = parse_span)]
    awake: (u64, u64),

    /// The length of the partition in seconds (experiments partition and adversary) [default: 600, and none]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=SECONDS_MAX))]
    cut_for: Option<u64>,

    /// Every application broadcasts more than the queue holds
    #[arg(long)]
    flood: bool,

    /// The places of nodes, for --latency plane and clusters: random, or by id, so that adjacent ids are near
    #[arg(long, value_enum, default_value = "random")]
    places: Where,

    /// Probability that a datagram is lost on the longest path; it is lower on shorter paths
    #[arg(long, value_name = "P", default_value_t = 0.0, value_parser = parse_probability)]
    far_loss: f64,

    /// Adversaries of --experiment adversary [default: 1 to 5, by the seed]
    #[arg(long, value_name = "N")]
    liars: Option<u32>,

    /// The forged packets: any, move (address), refute, leap (incarnation), invent (member) or leave
    #[arg(long, default_value = "any", value_parser = parse_lie)]
    lie: Lie,

    /// Write the table of --experiment variations as a plot to this file, in SVG
    #[arg(long, value_name = "FILE")]
    plot: Option<std::path::PathBuf>,

    #[command(flatten)]
    variation: Variation,

    #[command(flatten)]
    common: Common,
}

/// The event that the experiment measures.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Kind {
    /// Some nodes crash for good
    Crash,
    /// All nodes join through one node
    Join,
    /// A partition separates half of the nodes for ten minutes, or for --cut-for
    Partition,
    /// All are restarted, at incarnation 0
    Restart,
    /// Some processes are paused repeatedly
    Stall,
    /// The stall experiment with original_swim and with the preset, as a table
    Lifeguard,
    /// Some crash for good, under every variation of the modified SWIM, as a table
    Variations,
    /// Some nodes forge packets, and one honest node crashes
    Adversary,
    /// One intruder floods the group with Joins that name another host; a second one has the id of a member
    Intruders,
}

/// How places follow from ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Where {
    Random,
    ById,
}

impl Members {
    pub(super) fn run(self, json: bool) -> anyhow::Result<ExitCode> {
        let conditions = self.common.conditions();
        let mut others = conditions.faults.clone();
        others.crashes = 0;
        let disks_fail = conditions.config.disk.failure > 0.0;
        let is_checked = self.common.swarm || disks_fail || !others.is_empty();
        self.check_flags(is_checked)?;
        if is_checked {
            let scenario = MembersScenario {
                nodes: self.nodes,
                seconds: self.seconds,
                preset: self.preset,
                conditions,
                swarm: self.common.swarm,
                broken: None,
            };
            return verdict::run(&self.common, &scenario, json);
        }
        let crash = conditions.faults.crashes;
        if crash > self.nodes {
            let text = format!("{crash} of {} nodes cannot crash: give a smaller --crash", self.nodes);
            return Err(UsageError(text).into());
        }
        let settings = self.variation.apply(self.preset, self.nodes)?;
        let latency = conditions.config.network.latency;
        if self.places == Where::ById && !matches!(latency, Latency::Plane { .. } | Latency::Clusters { .. })
        {
            let text =
                "--places by-id needs a latency with places: --latency plane:50 or clusters:4:500:40000";
            return Err(UsageError(text.into()).into());
        }
        let measure = Measure {
            experiment: self.experiment.done(),
            nodes: self.nodes,
            crash,
            seconds: self.seconds,
            preset: self.preset,
            settings,
            suspicion_mult: self.suspicion_mult,
            aligned: self.aligned,
            stalling: self.stalling,
            stall_millis: self.stall,
            run_millis: self.awake,
            cut_seconds: self.cut_for.unwrap_or(600),
            flood: self.flood,
            places: if self.places == Where::ById { Places::ById } else { Places::Random },
            far_loss: self.far_loss,
            config: conditions.config,
        };
        match self.experiment {
            Kind::Lifeguard => self.lifeguard(&measure, json),
            Kind::Variations => self.variations(&measure, json),
            Kind::Adversary => self.adversary(&measure.config, json),
            Kind::Intruders => self.intruders(json),
            _ => self.one(&measure, json),
        }
    }

    /// Refuses flags that the run would ignore.
    fn check_flags(&self, is_checked: bool) -> Result<(), UsageError> {
        let is_fixed =
            matches!(self.experiment, Kind::Lifeguard | Kind::Variations | Kind::Adversary | Kind::Intruders);
        if (is_checked || is_fixed) && self.variation != Variation::default() {
            let run = if is_checked { "a run with faults" } else { "this experiment" };
            let text = format!(
                "{run} has the settings of the preset: leave out --sorter, --codec and the like, or measure a --crash"
            );
            return Err(UsageError(text));
        }
        if self.cut_for.is_some() && !matches!(self.experiment, Kind::Partition | Kind::Adversary) {
            return Err(UsageError("--cut-for is for --experiment partition and adversary".into()));
        }
        Ok(())
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
        let with = |preset: Preset| {
            let settings = preset.settings();
            Measure { preset, settings, suspicion_mult: Some(mult), ..measure.clone() }
        };
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

    /// Every variation of the modified SWIM under the same seeds.
    fn variations(&self, measure: &Measure, json: bool) -> anyhow::Result<ExitCode> {
        let first = verdict::announce_seed(&self.common, json)?;
        let mut rows = Vec::new();
        for (name, variation) in variation::compared() {
            let settings = variation.apply(self.preset, self.nodes)?;
            let summary = self.summarise(&Measure { settings, ..measure.clone() }, first)?;
            if json {
                verdict::tell_json(&serde_json::json!({ "variation": name, "summary": summary }))?;
            }
            rows.push((name, summary));
        }
        if !json {
            write!(stdout().lock(), "{}", variation::table(&rows))?;
        }
        if let Some(file) = &self.plot {
            let latency = measure.config.network.latency;
            let title =
                format!("{} nodes, {latency}, {} runs from seed {first}", self.nodes, self.common.runs);
            std::fs::write(file, variation::plot(&title, &rows))?;
        }
        Ok(ExitCode::SUCCESS)
    }

    /// Members that lie, a run per seed; without liars for comparison.
    fn adversary(&self, config: &Config, json: bool) -> anyhow::Result<ExitCode> {
        if self.liars.unwrap_or(5) + 2 > self.nodes {
            let text = format!("{} nodes are too few for so many adversaries: give more --nodes", self.nodes);
            return Err(UsageError(text).into());
        }
        let with = |liars: u32| Adversaries {
            nodes: self.nodes,
            seconds: self.seconds,
            preset: self.preset,
            config: config.clone(),
            cut: self.cut_for.map(Duration::from_secs),
            ..Adversaries::new(liars, self.lie)
        };
        let loud = |seed: u64| with(self.liars.unwrap_or(1 + (seed % 5) as u32));
        let first = verdict::announce_seed(&self.common, json)?;
        let mut found = Found::default();
        let run = |seed: u64| {
            let quiet = annulus_sim::run(&with(0), seed, Lines::default());
            (annulus_sim::run(&loud(seed), seed, Lines::default()), quiet)
        };
        self.each(first, run, |(loud, quiet)| {
            found.note(&loud);
            found.quiet.extend(quiet.measured["crash_known_seconds"].as_f64());
        });
        found.tell(self, "adversary", first, json)
    }

    /// Intruders, a run per seed.
    fn intruders(&self, json: bool) -> anyhow::Result<ExitCode> {
        let (nodes, seconds, preset) = (self.nodes, self.seconds, self.preset);
        let intruders = Intruders { nodes, rate: 100, seconds, preset };
        let first = verdict::announce_seed(&self.common, json)?;
        let mut found = Found::default();
        let run = |seed: u64| annulus_sim::run(&intruders, seed, Lines::default());
        self.each(first, run, |report| found.note(&report));
        found.tell(self, "intruders", first, json)
    }

    fn each<T: Send>(&self, first: u64, run: impl Fn(u64) -> T + Sync, take: impl FnMut(T)) {
        let threads = available_parallelism().map_or(1, usize::from);
        run_seeds(first, self.common.runs, threads, run, take);
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
            Self::Crash | Self::Variations | Self::Adversary | Self::Intruders => Experiment::Crash,
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

fn parse_lie(text: &str) -> Result<Lie, String> {
    let named = Lie::ALL.into_iter().find(|(name, _)| *name == text);
    let names = Lie::ALL.map(|(name, _)| name).join(", ");
    named.map(|(_, lie)| lie).ok_or_else(|| format!("no such lie: use one of {names}"))
}

/// The results of an experiment with forged packets.
#[derive(Default)]
struct Found {
    failed: Vec<(u64, String)>,
    absent: f64,
    records: u64,
    answer_factor: f64,
    loud: Vec<f64>,
    quiet: Vec<f64>,
}

impl Found {
    fn note(&mut self, report: &Report) {
        if let Some(violation) = &report.violation {
            self.failed.push((report.seed, violation.clone()));
        }
        let figure = |name: &str| report.measured.get(name).and_then(serde_json::Value::as_f64);
        self.absent = self.absent.max(figure("absent_seconds_max").unwrap_or(0.0));
        self.records = self.records.max(figure("records_max").unwrap_or(0.0) as u64);
        self.answer_factor = self.answer_factor.max(figure("answer_factor").unwrap_or(0.0));
        self.loud.extend(figure("crash_known_seconds"));
    }

    fn tell(&self, of: &Members, experiment: &str, first: u64, json: bool) -> anyhow::Result<ExitCode> {
        let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len().max(1) as f64;
        let most = |values: &[f64]| values.iter().copied().fold(0.0, f64::max);
        let (nodes, runs, seconds, lie) = (of.nodes, of.common.runs, of.seconds, of.lie.name());
        let repeat = |seed: u64| {
            format!(
                "annulus sim members --experiment {experiment} --nodes {nodes} --seconds {seconds} --preset {} --lie {lie} --seed {seed}",
                of.preset
            )
        };
        if json {
            let failed = self.failed.iter().map(|(seed, text)| format!("{text}: {}", repeat(*seed)));
            verdict::tell_json(&serde_json::json!({
                "scenario": "members", "experiment": experiment, "nodes": nodes, "seed": first, "runs": runs,
                "lie": lie, "absent_seconds_max": self.absent, "records_max": self.records,
                "answer_factor_max": self.answer_factor, "crash_known_seconds": mean(&self.loud),
                "crash_known_seconds_max": most(&self.loud), "crash_known_without_liars_seconds": mean(&self.quiet),
                "crash_known_without_liars_seconds_max": most(&self.quiet), "failed": failed.collect::<Vec<_>>(),
            }))?;
            return Ok(self.code());
        }
        let mut out = stdout().lock();
        writeln!(out, "{runs} runs, {} failed", self.failed.len())?;
        for (seed, text) in &self.failed {
            writeln!(out, "  {text}\n    {}", repeat(*seed))?;
        }
        if experiment == "intruders" {
            writeln!(out, "  answers        at most {:.2} times the bytes of the Joins", self.answer_factor)?;
            return Ok(self.code());
        }
        let (loud, quiet) = (&self.loud, &self.quiet);
        writeln!(out, "  absent         at most {:.1} s, though it speaks", self.absent)?;
        writeln!(out, "  crash known    after {:.2} s, {:.2} s without liars", mean(loud), mean(quiet))?;
        writeln!(out, "                 at most {:.2} s, {:.2} s without liars", most(loud), most(quiet))?;
        writeln!(out, "  records        at most {} on any node", self.records)?;
        Ok(self.code())
    }

    fn code(&self) -> ExitCode {
        if self.failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}
