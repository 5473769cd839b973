//! `annulus sim route`.

use core::time::Duration;
use std::io::{Write, stdout};
use std::process::ExitCode;

use annulus::core::Base;
use annulus::core::pastry::Fault;
use annulus_sim::scenarios::route::{
    ChurnReport, Drill, FlowBroken, Keys, Phase, RouteChurn, RouteExperiment, RouteFlow, RouteReport,
    RouteScenario, RouteStorm, StormKind, StormReport,
};
use annulus_sim::{Conditions, Latency};

use super::common::{Common, SECONDS_MAX};
use super::verdict;
use crate::cli::UsageError;

/// The most nodes of a leaf set or a neighbourhood set, as in the configuration of an agent.
const TABLE_MAX: usize = 1024;

/// Simulate `route`: nodes join a ring through the protocol, then send messages to random other nodes.
///
/// An oracle that knows all nodes decides where each message should have arrived. With --fail a fraction of the nodes
/// loses power; the scenario sends messages right after that, and again after the repair. With --storm or --restart
/// many nodes join at once; the scenario compares the cost with the same joins one after the other. With --churn nodes
/// join and fail.
///
/// With --swarm, or with faults, the scenario checks instead of measuring. No node delivers a message twice, and every
/// sender learns the outcome of its message. After the faults all leaf sets become exact, and every message arrives.
///
/// With --flow every node sends a message to every other twice a second, under a fault that the seed draws. It is a
/// partition, a failed owner, a slow or missing application, scheduling noise, or any faults. The scenario checks that
/// every reply is true, and in a local network that messages flow again within their bounds.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  annulus sim route --nodes 1000 --lookups 10000 --leaf 16 --topology plane --seed 7 --json
  annulus sim route --nodes 5000 --fail 0.1 --seed 7
  annulus sim route --nodes 200 --storm 200 --seed 7
  annulus sim route --nodes 32 --restart 21 --seed 7
  annulus sim route --nodes 1000 --churn 5 --seconds 300 --keys random --seed 7
  annulus sim route --swarm --nodes 24 --runs 100
  annulus sim route --flow --nodes 8 --seed 1 --runs 1000")]
pub(crate) struct Route {
    /// The number of nodes
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    nodes: u32,

    /// The number of messages
    #[arg(long, default_value_t = 1000)]
    lookups: u32,

    /// Bits of a digit: 1, 2, 4 or 8
    #[arg(long = "b", value_name = "BITS", default_value = "4", value_parser = parse_base)]
    base: Base,

    /// Nodes of a leaf set, both sides together: an even number
    #[arg(long, default_value_t = 32, value_parser = parse_leaf)]
    leaf: usize,

    /// Nodes of a neighbourhood set
    #[arg(long, default_value_t = 32, value_parser = parse_neighbourhood)]
    neighbourhood: usize,

    /// The topology: plane (points in a square, as in the paper), or a latency model such as constant:1000
    #[arg(long, default_value = "plane", value_parser = parse_topology)]
    topology: Latency,

    /// The destinations of messages: nodes (the ids of other nodes) or random (random keys)
    #[arg(long, default_value = "nodes", value_parser = parse_keys)]
    keys: Keys,

    /// The fraction of the nodes that loses power, from 0 to below 1
    #[arg(long, value_name = "PART", default_value_t = 0.0, value_parser = parse_part)]
    fail: f64,

    /// Seconds of virtual time for repair
    #[arg(long, default_value_t = 1200, value_parser = clap::value_parser!(u64).range(..=SECONDS_MAX))]
    repair: u64,

    /// The number of nodes that join at once
    #[arg(long, value_name = "N", conflicts_with_all = ["fail", "restart"])]
    storm: Option<u32>,

    /// The number of nodes that are killed and restarted at once
    #[arg(long, value_name = "N", conflicts_with = "fail")]
    restart: Option<u32>,

    /// The median session time in minutes: nodes vanish and others join while messages are sent
    #[arg(long, value_name = "MINUTES", conflicts_with_all = ["fail", "storm", "restart", "swarm"], value_parser = parse_minutes)]
    churn: Option<f64>,

    /// Check continuous traffic under a fault that the seed draws; --nodes is the largest number of nodes
    #[arg(long, conflicts_with_all = ["fail", "storm", "restart", "swarm", "churn"])]
    flow: bool,

    /// The fault of --flow, instead of the one that the seed draws: partition, owner_killed, owner_without_power,
    /// owner_stopped, owner_mute, owner_deaf, owner_without_datagrams, owner_without_streams, flood, no_application, noise
    /// or anything
    #[arg(long, requires = "flow", value_parser = parse_drill)]
    drill: Option<Drill>,

    /// Build a fault of an earlier version into the nodes of --flow, to see that it is caught
    #[arg(long = "break", requires = "flow", hide = true, value_parser = parse_fault)]
    broken: Option<FlowBroken>,

    /// Seconds of virtual time in which faults or churn happen
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=SECONDS_MAX))]
    seconds: u64,

    #[command(flatten)]
    common: Common,
}

impl Route {
    pub(super) fn run(self, json: bool) -> anyhow::Result<ExitCode> {
        let conditions = self.common.conditions();
        if self.flow {
            if conditions != Conditions::default() {
                let text = "--flow draws network and faults from the seed: leave out the flags for them";
                return Err(UsageError(text.into()).into());
            }
            if !(3..=16).contains(&self.nodes) {
                let text =
                    "--flow needs --nodes from 3 to 16: every node must fit into the leaf sets of the others";
                return Err(UsageError(text.into()).into());
            }
            let scenario = RouteFlow { nodes: self.nodes, drill: self.drill, broken: self.broken };
            return verdict::run(&self.common, &scenario, json);
        }
        // Loss and delay are faults like any other: measurements use a quiet network.
        if self.common.swarm || !conditions.is_quiet() {
            self.measures_nothing()?;
            let scenario = RouteScenario {
                nodes: self.nodes,
                seconds: self.seconds,
                leaf_set_max: self.leaf,
                neighbourhood_max: self.neighbourhood,
                conditions,
                swarm: self.common.swarm,
                broken: None,
            };
            return verdict::run(&self.common, &scenario, json);
        }
        if let Some(minutes) = self.churn {
            return self.churn(Duration::from_secs_f64(minutes * 60.0), json);
        }
        let at_once = self.storm.map(|count| (count, StormKind::Join));
        match at_once.or(self.restart.map(|count| (count, StormKind::Restart))) {
            Some((count, kind)) => self.storm(count, kind, json),
            None => self.measure(json),
        }
    }

    /// Refuses flags that a check under faults would ignore.
    fn measures_nothing(&self) -> Result<(), UsageError> {
        let measured = [
            ("--fail", self.fail > 0.0),
            ("--storm", self.storm.is_some()),
            ("--restart", self.restart.is_some()),
            ("--churn", self.churn.is_some()),
        ];
        match measured.into_iter().find(|(_, given)| *given) {
            Some((flag, _)) => Err(UsageError(format!(
                "{flag} is measured in a quiet network, and --swarm and the flags for network and faults are for checks: \
                 leave out the one or the other"
            ))),
            None => Ok(()),
        }
    }

    fn storm(&self, count: u32, kind: StormKind, json: bool) -> anyhow::Result<ExitCode> {
        if kind == StormKind::Restart && count >= self.nodes {
            let text = format!(
                "--restart {count} of --nodes {}: one has to stay; give a smaller --restart",
                self.nodes
            );
            return Err(UsageError(text).into());
        }
        let storm = RouteStorm {
            nodes: self.nodes,
            count,
            kind,
            lookups: self.lookups,
            leaf_set_max: self.leaf,
            neighbourhood_max: self.neighbourhood,
            latency: self.topology,
        };
        if self.common.trace.is_some() || self.common.trace_json.is_some() {
            let text = "a storm is two runs, at once and one by one: --trace is for measurements and checks";
            return Err(UsageError(text.into()).into());
        }
        verdict::measure(
            &self.common,
            json,
            |seed, _| storm.run(seed),
            |report| {
                if json { verdict::tell_json(&report) } else { tell_storm(&report, &mut stdout().lock()) }?;
                Ok(report.ok)
            },
        )
    }

    fn churn(&self, session_median: Duration, json: bool) -> anyhow::Result<ExitCode> {
        let time = Duration::from_secs(self.seconds);
        let churn = RouteChurn { ring: self.experiment(), session_median, time };
        if self.common.trace.is_some() || self.common.trace_json.is_some() {
            let text = "--churn writes no trace: --trace is for measurements and checks";
            return Err(UsageError(text.into()).into());
        }
        verdict::measure(
            &self.common,
            json,
            |seed, _| churn.run(seed),
            |report| {
                let mut out = stdout().lock();
                if json {
                    serde_json::to_writer(&mut out, &report)?;
                    writeln!(out)?;
                } else {
                    tell_churn(&report, &mut out)?;
                }
                Ok(report.ok)
            },
        )
    }

    fn experiment(&self) -> RouteExperiment {
        RouteExperiment {
            nodes: self.nodes,
            lookups: self.lookups,
            base: self.base,
            leaf_set_max: self.leaf,
            neighbourhood_max: self.neighbourhood,
            latency: self.topology,
            keys: self.keys,
            fail: self.fail,
            repair: Duration::from_secs(self.repair),
        }
    }

    fn measure(&self, json: bool) -> anyhow::Result<ExitCode> {
        let experiment = self.experiment();
        verdict::measure(
            &self.common,
            json,
            |seed, lines| experiment.run(seed, lines),
            |report| {
                if json { verdict::tell_json(&report) } else { tell(&report, &mut stdout().lock()) }?;
                let phases = [Some(&report.quiet), report.during.as_ref(), report.after.as_ref()];
                Ok(phases.into_iter().flatten().all(|phase| phase.wrong + phase.lost + phase.twice == 0))
            },
        )
    }
}

fn tell(report: &RouteReport, out: &mut impl Write) -> anyhow::Result<()> {
    writeln!(out, "{} nodes, seed {}: {:.1} s", report.nodes, report.seed, report.virtual_seconds)?;
    let phases = [
        ("quiet", Some(&report.quiet)),
        ("failed", report.during.as_ref()),
        ("repaired", report.after.as_ref()),
    ];
    for (name, phase) in phases {
        if let Some(Phase { hops_mean, delivered, wrong, lost, reported, distance_ratio, .. }) = phase {
            writeln!(
                out,
                "  {name:<9} {hops_mean:.3} hops, {delivered} delivered, {wrong} wrong, {lost} lost, {reported} \
                 reported, distance {distance_ratio:.3}"
            )?;
        }
    }
    writeln!(
        out,
        "  messages  {:.1} for a join, {:.1} with periodic probes; {:.3} per node and second at rest",
        report.join_messages_mean,
        report.join_messages_with_periodic_mean,
        report.control_messages_per_node_per_second
    )?;
    writeln!(out, "  trace hash  {}", report.trace_hash)?;
    Ok(())
}

fn tell_storm(report: &StormReport, out: &mut impl Write) -> anyhow::Result<()> {
    let StormReport { seed, nodes, count, times, wrong, lost, delivered, .. } = report;
    let what = if report.kind == StormKind::Join { "join" } else { "restart" };
    writeln!(out, "{count} {what} at once among {nodes} nodes, seed {seed}")?;
    writeln!(
        out,
        "  messages  {} at once, {} one by one: {times:.2} times",
        report.messages_at_once, report.messages_one_by_one
    )?;
    writeln!(
        out,
        "  whole     after {:.1} s; then {:.3} messages per node and second",
        report.whole_after_seconds, report.control_messages_per_node_per_second
    )?;
    writeln!(out, "  lookups   {delivered} delivered, {wrong} wrong, {lost} lost")?;
    writeln!(out, "  trace hash  {}", report.trace_hash)?;
    Ok(())
}

fn tell_churn(report: &ChurnReport, out: &mut impl Write) -> anyhow::Result<()> {
    let ChurnReport { seed, nodes, session_minutes, vanished, orphaned, .. } = report;
    let Phase { hops_mean, delivered, wrong, lost, reported, twice, distance_ratio, .. } = &report.phase;
    writeln!(out, "{nodes} nodes, sessions of {session_minutes} minutes, seed {seed}: {vanished} vanished")?;
    writeln!(
        out,
        "  lookups   {delivered} delivered, {wrong} wrong, {lost} lost, {reported} reported, {twice} twice, \
         {orphaned} whose sender vanished"
    )?;
    writeln!(out, "  way       {hops_mean:.3} hops, distance {distance_ratio:.3}")?;
    let rate = report.control_messages_per_node_per_second;
    writeln!(out, "  messages  {rate:.3} per node and second")?;
    writeln!(out, "  whole     {:.1} s after the churn", report.whole_after_seconds)?;
    writeln!(out, "  trace hash  {}", report.trace_hash)?;
    Ok(())
}

fn parse_minutes(text: &str) -> Result<f64, String> {
    let minutes = text.parse().ok().filter(|minutes: &f64| (0.01..=1_000_000.0).contains(minutes));
    minutes.ok_or_else(|| String::from("write minutes, from 0.01 on"))
}

/// Parses a fraction below 1, so that at least one node remains.
fn parse_part(text: &str) -> Result<f64, String> {
    let part = text.parse().ok().filter(|part: &f64| (0.0..1.0).contains(part));
    part.ok_or_else(|| String::from("write a part from 0 to below 1, such as 0.1"))
}

fn parse_leaf(text: &str) -> Result<usize, String> {
    let sides =
        text.parse().ok().filter(|leaf: &usize| (2..=TABLE_MAX).contains(leaf) && leaf.is_multiple_of(2));
    sides.ok_or_else(|| format!("write an even number from 2 to {TABLE_MAX}: half of them are for each side"))
}

fn parse_neighbourhood(text: &str) -> Result<usize, String> {
    let count = text.parse().ok().filter(|count| (0..=TABLE_MAX).contains(count));
    count.ok_or_else(|| format!("write a number from 0 to {TABLE_MAX}"))
}

fn parse_base(text: &str) -> Result<Base, String> {
    let base = text.parse().ok().and_then(Base::from_bits);
    base.ok_or_else(|| String::from("write 1, 2, 4 or 8"))
}

fn parse_topology(text: &str) -> Result<Latency, String> {
    if text == "plane" { Ok(Latency::Plane { per_unit: Duration::from_micros(20) }) } else { text.parse() }
}

fn parse_drill(text: &str) -> Result<Drill, String> {
    Drill::named(text).ok_or_else(|| String::from("write the name of a drill, such as partition or flood"))
}

fn parse_fault(text: &str) -> Result<FlowBroken, String> {
    match text {
        "keep-connections" => Ok(FlowBroken::Machine(Fault::KeepConnections)),
        "report-before-settled" => Ok(FlowBroken::Machine(Fault::ReportBeforeSettled)),
        _ => Err(String::from("write keep-connections or report-before-settled")),
    }
}

fn parse_keys(text: &str) -> Result<Keys, String> {
    match text {
        "nodes" => Ok(Keys::Nodes),
        "random" => Ok(Keys::Random),
        _ => Err(String::from("write nodes or random")),
    }
}
