//! Runs scenarios and prints their results.

use std::fs::{File, OpenOptions};
use std::io::{BufWriter, Write, stderr, stdout};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread::available_parallelism;

use annulus_sim::{Books, Entries, Lines, Report, Scenario, Violation};
use anyhow::Context;
use serde::Serialize;
use serde_json::Value;

use super::common::Common;
use crate::cli::UsageError;

/// Runs a scenario under one seed or many. The last line of a failure is the command that repeats it.
pub(super) fn run<S: Scenario>(common: &Common, scenario: &S, json: bool) -> anyhow::Result<ExitCode> {
    let briefly = common.runs > 1;
    run_telling(common, scenario, json, |report| if json { tell_json(report) } else { tell(report, briefly) })
}

/// The same for a scenario that prints its own reports.
pub(super) fn run_telling<S: Scenario>(
    common: &Common,
    scenario: &S,
    json: bool,
    mut tell: impl FnMut(&Report) -> anyhow::Result<()>,
) -> anyhow::Result<ExitCode> {
    let first = announce_seed(common, json)?;
    let mut failures = Vec::new();
    let mut trouble = Ok(());
    let mut books = Books::default();
    let mut take = |report: Report| {
        books.add(&report);
        if let Err(error) = tell(&report) {
            trouble = Err(error);
        }
        if !report.ok {
            failures.push(report);
        }
    };
    if common.runs == 1 {
        take(annulus_sim::run(scenario, first, lines(common)?));
    } else {
        let threads = available_parallelism().map_or(1, usize::from);
        annulus_sim::run_many(scenario, first, common.runs, threads, take);
    }
    trouble?;
    if common.runs > 1 {
        tell_books(&books.entries(), json)?;
    }
    let Some(worst) = failures.first() else {
        return complain(&books.complaints(scenario.name(), annulus_sim::EXCUSES));
    };
    let kept = common.keep.as_ref().map_or(Ok(()), |file| keep(file, &failures));
    let mut out = stderr().lock();
    if let Err(error) = kept {
        // The failure itself matters more than the file: its command stays the last line.
        writeln!(out, "annulus: {error:#}")?;
    }
    if common.runs > 1 {
        writeln!(out, "{} of {} runs failed; the first of them again:", failures.len(), common.runs)?;
    } else {
        writeln!(out, "violation: {}", worst.violation.as_deref().unwrap_or_default())?;
    }
    writeln!(out, "annulus {}", arguments(worst.seed).join(" "))?;
    Ok(ExitCode::FAILURE)
}

/// Prints the violations of all runs together, such as an excuse that too many of them used.
fn complain(complaints: &[String]) -> anyhow::Result<ExitCode> {
    let mut out = stderr().lock();
    for complaint in complaints {
        writeln!(out, "violation: {complaint}")?;
    }
    Ok(if complaints.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Prints the excuses that were used, the times of promises, and the share of runs that met each situation.
fn tell_books(entries: &Entries, json: bool) -> anyhow::Result<()> {
    if *entries == Entries::default() {
        return Ok(());
    }
    let mut out = stdout().lock();
    if json {
        return Ok(writeln!(out, "{}", serde_json::json!({ "sums": entries }))?);
    }
    for (name, used) in &entries.excuses {
        writeln!(
            out,
            "excuse {name}: {} times in {} runs, longest {:.3} s",
            used.times, used.runs, used.longest
        )?;
    }
    for (name, kept) in &entries.promises {
        let share = kept.prompt as f64 / kept.cases.max(1) as f64;
        let (cases, median, longest) = (kept.cases, kept.median, kept.longest);
        writeln!(
            out,
            "promise {name}: {share:.4} of {cases} prompt, median {median:.3} s, longest {longest:.3} s"
        )?;
    }
    for (name, met) in &entries.exercised {
        let note = if *met < 0.05 { ", too rare to count as a test of it" } else { "" };
        writeln!(out, "exercised {name}: {met:.2} of the runs{note}")?;
    }
    Ok(())
}

/// Measures under one seed or many. Each run prints its report, in the order of seeds, and returns whether it passed.
pub(super) fn measure<T: Send>(
    common: &Common,
    json: bool,
    run: impl Fn(u64, Lines) -> Result<T, Violation> + Sync,
    mut tell: impl FnMut(T) -> anyhow::Result<bool>,
) -> anyhow::Result<ExitCode> {
    let first = announce_seed(common, json)?;
    let mut good = Ok(true);
    let mut take = |measured: Result<T, Violation>| {
        let told = measured.map_err(|violation| anyhow::anyhow!(violation.text)).and_then(&mut tell);
        good = match (std::mem::replace(&mut good, Ok(true)), told) {
            (Ok(before), Ok(now)) => Ok(before && now),
            (Err(error), _) | (_, Err(error)) => Err(error),
        };
    };
    if common.runs == 1 {
        take(run(first, lines(common)?));
    } else {
        let threads = available_parallelism().map_or(1, usize::from);
        annulus_sim::run_seeds(first, common.runs, threads, |seed| run(seed, Lines::default()), take);
    }
    Ok(if good? { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The first seed. A drawn seed is printed first, so that a run that hangs can be repeated too.
pub(super) fn announce_seed(common: &Common, json: bool) -> anyhow::Result<u64> {
    let first = common.first_seed();
    if common.seed.is_none() {
        let line = format!("seed {first}\n");
        if json {
            stderr().write_all(line.as_bytes())?;
        } else {
            stdout().write_all(line.as_bytes())?;
        }
    }
    Ok(first)
}

/// Where the trace of one run goes.
pub(super) fn lines(common: &Common) -> anyhow::Result<Lines> {
    let is_stdout = |path: &Option<PathBuf>| path.as_deref() == Some(Path::new("-"));
    if is_stdout(&common.trace) && is_stdout(&common.trace_json) {
        let text = "only one trace can go to standard output: write the other to a file";
        return Err(UsageError(text.into()).into());
    }
    Ok(Lines {
        readable: common.trace.as_deref().map(create).transpose()?,
        json: common.trace_json.as_deref().map(create).transpose()?,
    })
}

/// As one line of JSON.
pub(super) fn tell_json(report: &impl Serialize) -> anyhow::Result<()> {
    let mut out = stdout().lock();
    serde_json::to_writer(&mut out, report)?;
    Ok(writeln!(out)?)
}

pub(super) fn tell(report: &Report, briefly: bool) -> anyhow::Result<()> {
    let mut out = stdout().lock();
    let Report { seed, nodes, trace_hash, virtual_seconds, stats, .. } = report;
    if briefly {
        let verdict = report.violation.as_deref().unwrap_or("ok");
        writeln!(out, "seed {seed}: {nodes} nodes, {} events, hash {trace_hash}: {verdict}", stats.events)?;
        return Ok(());
    }
    writeln!(out, "{} with {nodes} nodes, seed {seed}: {virtual_seconds:.1} s", report.scenario)?;
    writeln!(out, "  events      {}", stats.events)?;
    writeln!(
        out,
        "  datagrams   {} sent, {} delivered, {} lost, {} cut",
        stats.datagrams_sent, stats.datagrams_delivered, stats.datagrams_lost, stats.datagrams_cut
    )?;
    writeln!(
        out,
        "  streams     {} opened, {} reset, {} timed out",
        stats.streams_opened, stats.streams_reset, stats.streams_timed_out
    )?;
    writeln!(out, "  crashes     {}", stats.crashes)?;
    match report.converged_after_seconds {
        Some(after) => writeln!(out, "  converged   {after:.1} s after the faults")?,
        None => writeln!(out, "  converged   never")?,
    }
    writeln!(out, "  trace hash  {trace_hash}")?;
    drop(out);
    tell_books(&report.entries, false)?;
    let mut out = stdout().lock();
    for (name, value) in &report.measured {
        writeln!(out, "  {name:<24} {value}")?;
    }
    Ok(())
}

/// The figures of many runs.
pub(super) fn tell_summary(summary: &Value, json: bool) -> anyhow::Result<()> {
    let mut out = stdout().lock();
    if json {
        return Ok(writeln!(out, "{summary}")?);
    }
    for (name, value) in summary.as_object().into_iter().flatten() {
        writeln!(out, "{name:<24} {value}")?;
    }
    Ok(())
}

fn create(path: &Path) -> anyhow::Result<Box<dyn Write>> {
    if path == Path::new("-") {
        return Ok(Box::new(BufWriter::new(stdout())));
    }
    let file = File::create(path).with_context(|| format!("cannot write the trace to {}", path.display()))?;
    Ok(Box::new(BufWriter::new(file)))
}

/// Appends the fault model and the arguments of each failure, with the violation as a comment.
fn keep(path: &Path, failures: &[Report]) -> anyhow::Result<()> {
    let mut file = OpenOptions::new()
        .create(true)
        .append(true)
        .open(path)
        .with_context(|| format!("cannot keep the failing seeds in {}", path.display()))?;
    for report in failures {
        let violation = report.violation.as_deref().unwrap_or_default().replace('\n', " ");
        let mut kept = arguments(report.seed).split_off(2);
        let is_old = kept.iter().any(|argument| argument == "v1" || argument == "--fault-model=v1");
        while let Some(at) = kept.iter().position(|argument| argument.starts_with("--fault-model")) {
            let count = if kept[at].contains('=') { 1 } else { 2 };
            kept.drain(at..at + count);
        }
        writeln!(file, "{} {} # {violation}", if is_old { "v1" } else { "v2" }, kept.join(" "))?;
    }
    Ok(())
}

/// The arguments of this process for one run under a seed, without those that only say where output goes.
fn arguments(seed: u64) -> Vec<String> {
    let mut kept = Vec::new();
    let mut given = std::env::args().skip(1);
    while let Some(argument) = given.next() {
        let (name, attached) =
            argument.split_once('=').map_or((argument.as_str(), false), |(name, _)| (name, true));
        match name {
            "--json" => {}
            "--seed" | "--runs" | "--keep" | "--trace" | "--trace-json" => {
                if !attached {
                    given.next();
                }
            }
            _ => kept.push(argument),
        }
    }
    kept.push(String::from("--seed"));
    kept.push(seed.to_string());
    kept
}
