//! `members` against Serf: real agents of both on loopback addresses, in turns. How soon a killed agent is suspected,
//! dead, and known as dead to all; how soon an event is everywhere.
//!
//! Both sides are watched the same way: a thread per agent reads its reports, line by line, and records the time.
//! Serf reports in its log, `annulus` in its stream of events.

mod cluster;

use std::time::Duration;

use anyhow::{Context, ensure};

use self::cluster::{Cluster, Kind, Side};
use crate::table::Table;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The number of agents of each.
    #[arg(long, default_value_t = 12)]
    agents: usize,
    /// The number of clusters of each, in turns.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// How many agents are killed in each cluster, one after the other.
    #[arg(long, default_value_t = 3)]
    kills: usize,
    /// How many events are sent in each cluster.
    #[arg(long, default_value_t = 10)]
    events: usize,
    /// The program to measure [default: `annulus` beside this one].
    #[arg(long, value_name = "FILE")]
    program: Option<std::path::PathBuf>,
    /// The preset of `annulus`, and the profile of Serf: lan, wan or local.
    #[arg(long, default_value = "lan")]
    preset: String,
    /// A setting of the agents of `annulus`, such as members.suspicion_mult=5. Repeatable.
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
}

/// The times of one side, in seconds.
#[derive(Default)]
struct Took {
    suspect: Vec<f64>,
    dead: Vec<f64>,
    all_know: Vec<f64>,
    event_mean: Vec<f64>,
    event_last: Vec<f64>,
    /// Deaths of agents that were not killed.
    false_deaths: usize,
    /// Events that an agent never reported.
    events_lost: usize,
}

/// How long anything may take.
const TIMEOUT: Duration = Duration::from_secs(120);

pub(crate) fn run(args: &Args) -> anyhow::Result<Table> {
    ensure!(args.kills + 2 <= args.agents, "{} of {} agents cannot be killed", args.kills, args.agents);
    let own = match &args.program {
        Some(program) => program.clone(),
        None => std::env::current_exe()?.with_file_name("annulus"),
    };
    ensure!(own.exists(), "{} is not there: build it with `cargo build --release`", own.display());
    let (mut ours, mut theirs) = (Took::default(), Took::default());
    for round in 0..args.rounds {
        for (side, took) in [(Side::Annulus(own.clone()), &mut ours), (Side::Serf, &mut theirs)] {
            one(args, &side, round, took).with_context(|| format!("{side:?}, round {round}"))?;
        }
    }
    Ok(Table {
        bench: "serf",
        setup: format!(
            "{} agents each on loopback, preset {}, {} clusters of each in turns, {} kills and {} events in each; \
             seconds; {} false deaths of ours, {} of Serf's; {} events lost of ours, {} of Serf's",
            args.agents,
            args.preset,
            args.rounds,
            args.kills,
            args.events,
            ours.false_deaths,
            theirs.false_deaths,
            ours.events_lost,
            theirs.events_lost
        ),
        columns: vec!["figure", "annulus", "serf", "ratio", "annulus max", "serf max"],
        rows: vec![
            row("kill -9 to first suspect", &ours.suspect, &theirs.suspect),
            row("kill -9 to first dead", &ours.dead, &theirs.dead),
            row("kill -9 until all know", &ours.all_know, &theirs.all_know),
            row("event to an agent, mean", &ours.event_mean, &theirs.event_mean),
            row("event to the last agent", &ours.event_last, &theirs.event_last),
        ],
    })
}

/// Starts a cluster, sends events, kills agents.
fn one(args: &Args, side: &Side, round: usize, took: &mut Took) -> anyhow::Result<()> {
    let mut cluster = Cluster::start(side, args.agents, round, (&args.preset, &args.set), TIMEOUT)?;
    for number in 0..args.events {
        let (from, name) = (1 + number % (args.agents - 1), format!("e{round}x{number}"));
        let sent = cluster.send_event(from, &name)?;
        let kind = Kind::Event(name);
        let seen = cluster.wait_for(&kind, args.agents - 1, from, Duration::from_secs(20));
        let times: Vec<f64> =
            seen.iter().map(|at| at.saturating_duration_since(sent).as_secs_f64()).collect();
        took.events_lost += args.agents - 1 - times.len();
        took.event_mean.push(mean(&times));
        took.event_last.push(times.iter().copied().fold(0.0, f64::max));
        std::thread::sleep(Duration::from_millis(300));
    }
    for kill in 0..args.kills {
        // Not the first, which the others joined through.
        let victim = args.agents - 1 - kill;
        std::thread::sleep(Duration::from_millis(1500 + 370 * (kill as u64 + round as u64)));
        let at = cluster.kill(victim)?;
        let after = |seen: &[std::time::Instant], last: bool| {
            let times = seen.iter().map(|seen| seen.saturating_duration_since(at).as_secs_f64());
            if last { times.fold(0.0, f64::max) } else { times.fold(f64::INFINITY, f64::min) }
        };
        let survivors = args.agents - 1 - kill;
        let dead = cluster.wait_for(&Kind::Dead(victim), survivors, victim, TIMEOUT);
        ensure!(dead.len() == survivors, "only {} of {survivors} know of the death", dead.len());
        let suspect = cluster.seen(&Kind::Suspect(victim), victim);
        took.suspect.push(after(&suspect, false));
        took.dead.push(after(&dead, false));
        took.all_know.push(after(&dead, true));
    }
    took.false_deaths += cluster.false_deaths();
    Ok(())
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

fn row(name: &str, ours: &[f64], theirs: &[f64]) -> Vec<String> {
    let (a, b) = (mean(ours), mean(theirs));
    let max = |values: &[f64]| format!("{:.3}", values.iter().copied().fold(0.0, f64::max));
    vec![name.into(), format!("{a:.3}"), format!("{b:.3}"), format!("{:.2}", a / b), max(ours), max(theirs)]
}
