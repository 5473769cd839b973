//! The summary of many runs: the output of a campaign.

use core::fmt;

use annulus_core::Id;
use annulus_core::swim::Preset;
use serde::Serialize;

use super::{Experiment, Measure, Measured};

/// All runs together.
#[derive(Debug, Serialize)]
pub struct Summary {
    /// The scenario.
    pub scenario: &'static str,
    /// The experiment.
    pub experiment: Experiment,
    /// The settings of the nodes.
    pub preset: Preset,
    /// The number of nodes.
    pub nodes: u32,
    /// The number of them that crashed.
    pub crash: u32,
    /// How long it was watched.
    pub seconds: u64,
    /// The first seed.
    pub seed: u64,
    /// The number of runs.
    pub runs: usize,
    /// From each crash to the first failed probe, in periods.
    pub first_suspect_periods: Spread,
    /// From each crash to the first declaration of death.
    pub first_dead_seconds: Spread,
    /// From each crash until all survivors knew.
    pub all_know_dead_seconds: Spread,
    /// How many crashes all survivors know of.
    pub deaths_known_to_all: usize,
    /// Suspicions of nodes that had not crashed, by their own probers.
    pub false_suspects: u64,
    /// False deaths: death events at all applications for nodes that had not crashed.
    pub false_dead: u64,
    /// Datagrams sent.
    pub messages_per_node_per_second: f64,
    /// Bytes in them.
    pub bytes_per_node_per_second: f64,
    /// The longest that a node let pass from one probe of a living member to the next; 0 of large groups.
    pub unprobed_periods_max: u32,
    /// The number of broadcasts that a full queue refused.
    pub broadcasts_refused: u64,
    /// Whether everyone knew the truth at the end of every run.
    pub converged: bool,
    /// From the end of the event until all nodes knew the truth.
    pub converged_seconds: Spread,
    /// The effects of distance, if nodes have places.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub distance: Option<Distance>,
    /// The hash of everything that happened.
    pub trace_hash: String,
}

/// The effects of distance.
#[derive(Debug, Serialize)]
pub struct Distance {
    /// From each crash until each survivor near it knew.
    pub near_know_seconds: Spread,
    /// The same of those far from it.
    pub far_know_seconds: Spread,
    /// Bytes per node and second on short paths.
    pub near_bytes: f64,
    /// The same on long paths.
    pub far_bytes: f64,
}

impl Summary {
    /// The summary of all runs, in the order of their seeds.
    #[must_use]
    pub fn new(measure: &Measure, seed: u64, runs: &[Measured]) -> Self {
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
            distance: runs.iter().all(|run| run.ways_rate.is_some()).then(|| Distance {
                near_know_seconds: all(|run| &run.near_know_seconds),
                far_know_seconds: all(|run| &run.far_know_seconds),
                near_bytes: mean(|run| run.ways_rate.map_or(0.0, |(near, _)| near)),
                far_bytes: mean(|run| run.ways_rate.map_or(0.0, |(_, far)| far)),
            }),
            // One run: its hash. Many: the hash of their hashes.
            trace_hash: match hashes[..] {
                [only] => only.to_owned(),
                _ => Id::from_text(&hashes.concat()).to_string(),
            },
        }
    }
}

/// Some numbers, in a few.
#[derive(Debug, Serialize)]
pub struct Spread {
    /// The number of cases.
    pub count: usize,
    /// Their mean.
    pub mean: f64,
    /// Half of them are at most this.
    pub p50: f64,
    /// 99 of 100 are at most this.
    pub p99: f64,
    /// The greatest.
    pub max: f64,
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

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { nodes, preset, seed, runs, .. } = self;
        let times = if *runs == 1 { String::new() } else { format!(" and {} more", runs - 1) };
        writeln!(f, "{nodes} nodes with preset {preset}, seed {seed}{times}")?;
        if self.crash > 0 {
            let crashes = self.crash as usize * runs;
            writeln!(f, "  first suspect  {} periods after the crash", self.first_suspect_periods)?;
            writeln!(f, "  first dead     {} s", self.first_dead_seconds)?;
            writeln!(f, "  all know       {} s", self.all_know_dead_seconds)?;
            writeln!(f, "  known to all   {} of {crashes} crashes", self.deaths_known_to_all)?;
        }
        writeln!(f, "  false          {} suspicions, {} deaths", self.false_suspects, self.false_dead)?;
        let (messages, bytes) = (self.messages_per_node_per_second, self.bytes_per_node_per_second);
        writeln!(f, "  sent           {messages:.2} datagrams, {bytes:.1} bytes per node and second")?;
        if let Some(distance) = &self.distance {
            writeln!(
                f,
                "  near           know {} s, {:.1} bytes",
                distance.near_know_seconds, distance.near_bytes
            )?;
            writeln!(
                f,
                "  far            know {} s, {:.1} bytes",
                distance.far_know_seconds, distance.far_bytes
            )?;
        }
        if self.unprobed_periods_max > 0 {
            writeln!(f, "  unprobed       at most {} periods", self.unprobed_periods_max)?;
        }
        if self.broadcasts_refused > 0 {
            writeln!(f, "  refused        {} broadcasts, the queue was full", self.broadcasts_refused)?;
        }
        match (self.converged, self.converged_seconds.count) {
            (true, 0) => writeln!(f, "  converged      yes")?,
            (true, _) => writeln!(f, "  converged      {} s after the faults", self.converged_seconds)?,
            (false, _) => writeln!(f, "  converged      no")?,
        }
        writeln!(f, "  trace hash     {}", self.trace_hash)
    }
}

impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { count, mean, p50, p99, max } = self;
        match count {
            0 => f.write_str("never"),
            1 => write!(f, "{mean:.2}"),
            _ => write!(f, "mean {mean:.2}, half within {p50:.2}, 99 % within {p99:.2}, at most {max:.2}"),
        }
    }
}
