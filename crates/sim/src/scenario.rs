//! Scenarios: a simulated world, its faults, and the checks.
//!
//! A run has two phases. In the first, faults happen and the checker checks safety. Then everything is mended
//! ([`Fault::Calm`]) and the system must converge within a stated bound.

use core::time::Duration;
use std::io::{self, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};

use annulus_core::Machine;
use serde::Serialize;

use crate::errors::watched;
use crate::fault::Fault;
use crate::ledger::{Entries, Ledger, Promise};
use crate::observer::{Observer, Verdict, Violation};
use crate::sim::Sim;
use crate::stats::Stats;

/// Checks all nodes from outside.
#[expect(unused_variables, reason = "the names are for who implements one")]
pub trait Checker<M: Machine>: Observer<M> {
    /// Called periodically in both phases, and at the end: checks that hold at any moment.
    ///
    /// # Errors
    /// If it does not hold.
    fn check(&mut self, sim: &Sim<M>) -> Verdict {
        Ok(())
    }

    /// The faults have stopped.
    fn on_calm(&mut self, sim: &Sim<M>) {}

    /// Whether the system has converged since.
    ///
    /// # Errors
    /// The nodes that have not converged, in a sentence for the report.
    fn converged(&mut self, sim: &Sim<M>) -> Result<(), String>;

    /// How soon the system converges when the faults have stopped, if that is promised in two bounds.
    fn promise(&self) -> Option<&'static Promise> {
        None
    }

    /// Its book of excuses, promises and situations, for the report.
    fn ledger(&self) -> Option<&Ledger> {
        None
    }

    /// The figures for the report: called once, at the end.
    fn measured(&mut self, sim: &Sim<M>) -> serde_json::Map<String, serde_json::Value> {
        serde_json::Map::new()
    }
}

/// A world that is ready to run.
pub struct Setup<M: Machine, C> {
    /// The world, with its faults scheduled.
    pub sim: Sim<M>,
    /// The checker.
    pub checker: C,
    /// The time with faults.
    pub faults_for: Duration,
    /// The bound of convergence after the faults.
    pub converge_within: Duration,
    /// The chosen settings, for the report.
    pub settings: serde_json::Value,
}

/// A kind of simulated world with its checks. One value of it makes a run for every seed.
pub trait Scenario: Sync {
    /// The machine on the hosts.
    type Machine: Machine;
    /// The checker.
    type Checker: Checker<Self::Machine>;

    /// The name on the command line.
    fn name(&self) -> &'static str;

    /// Makes the world for a seed.
    ///
    /// # Errors
    /// If the settings make no world.
    fn setup(&self, seed: u64) -> Result<Setup<Self::Machine, Self::Checker>, Violation>;

    /// Whether [`run`] runs each seed twice and compares the hashes of the traces.
    fn runs_twice(&self) -> bool {
        false
    }
}

/// Where the lines of a trace go, if anywhere.
#[derive(Default)]
pub struct Lines {
    /// Readable ones.
    pub readable: Option<Box<dyn Write>>,
    /// JSON ones.
    pub json: Option<Box<dyn Write>>,
}

impl Lines {
    /// Writes down everything that happens from now on.
    pub(crate) fn take_from<M: Machine>(self, sim: &mut Sim<M>) {
        for (writer, json) in [(self.readable, false), (self.json, true)] {
            if let Some(writer) = writer {
                sim.trace_to(writer, json);
            }
        }
    }
}

/// The result of a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// The scenario.
    pub scenario: &'static str,
    /// The seed.
    pub seed: u64,
    /// The number of hosts.
    pub nodes: usize,
    /// Whether nothing was violated.
    pub ok: bool,
    /// The violation, in a sentence.
    pub violation: Option<String>,
    /// The hash of everything that happened.
    pub trace_hash: String,
    /// Virtual time that has passed.
    pub virtual_seconds: f64,
    /// How long it took to converge after the faults; `None` if it never did.
    pub converged_after_seconds: Option<f64>,
    /// The counters.
    #[serde(flatten)]
    pub stats: Stats,
    /// Excuses, promises and situations.
    #[serde(flatten)]
    pub entries: Entries,
    /// The settings of the scenario.
    pub settings: serde_json::Value,
    /// The figures of its checker.
    #[serde(flatten)]
    pub measured: serde_json::Map<String, serde_json::Value>,
}

impl Report {
    fn failed(scenario: &'static str, seed: u64, violation: String) -> Self {
        Self {
            scenario,
            seed,
            nodes: 0,
            ok: false,
            violation: Some(violation),
            trace_hash: String::new(),
            virtual_seconds: 0.0,
            converged_after_seconds: None,
            stats: Stats::default(),
            entries: Entries::default(),
            settings: serde_json::Value::Null,
            measured: serde_json::Map::new(),
        }
    }
}

/// The interval between calls of [`Checker::check`].
const CHECK_EVERY: Duration = Duration::from_secs(1);

/// The interval between calls of [`Checker::converged`].
const CONVERGED_EVERY: Duration = Duration::from_millis(100);

/// Runs a scenario under one seed. A panic and a log of level ERROR are violations like any other.
pub fn run<S: Scenario>(scenario: &S, seed: u64, lines: Lines) -> Report {
    let (run, logged) = watched(|| catch_unwind(AssertUnwindSafe(|| run_unwatched(scenario, seed, lines))));
    let mut report = run.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("without a word");
        Report::failed(scenario.name(), seed, format!("a machine panicked: {text}"))
    });
    if let Some(text) = logged.filter(|_| report.ok) {
        report.ok = false;
        report.violation = Some(format!("an error was logged: {text}"));
    }
    if report.ok && scenario.runs_twice() {
        let again = run_unwatched(scenario, seed, Lines::default()).trace_hash;
        if again != report.trace_hash {
            report.ok = false;
            report.violation = Some(format!("the second run of the seed has the trace hash {again}"));
        }
    }
    report
}

/// Ends the trace of a run; that its reader has gone is no fault of the run.
///
/// # Errors
/// If it is not whole.
pub(crate) fn finish_trace<M: Machine>(sim: &mut Sim<M>) -> Verdict {
    match sim.finish_trace() {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Violation::new(format!("the trace is not whole: {error}")))
        }
        _ => Ok(()),
    }
}

fn run_unwatched<S: Scenario>(scenario: &S, seed: u64, lines: Lines) -> Report {
    let mut setup = match scenario.setup(seed) {
        Ok(setup) => setup,
        Err(violation) => return Report::failed(scenario.name(), seed, violation.text),
    };
    lines.take_from(&mut setup.sim);
    let outcome = both_phases(&mut setup);
    let sim = &mut setup.sim;
    let whole = finish_trace(sim);
    let mut book = setup.checker.ledger().cloned().unwrap_or_default();
    book.meet_causes(sim);
    let kept = match (setup.checker.promise(), &outcome) {
        (Some(promise), Ok(after)) => book.took(promise, *after),
        _ => Ok(()),
    };
    let violation = outcome.as_ref().err().or(whole.as_ref().err()).or(kept.as_ref().err());
    let violation = violation.map(|violation| violation.text.clone());
    Report {
        scenario: scenario.name(),
        seed,
        nodes: sim.len(),
        ok: violation.is_none(),
        violation,
        trace_hash: sim.trace_hash().to_string(),
        virtual_seconds: sim.elapsed().as_secs_f64(),
        converged_after_seconds: outcome.ok().map(|after| after.as_secs_f64()),
        stats: *sim.stats(),
        entries: book.entries(),
        settings: setup.settings,
        measured: setup.checker.measured(sim),
    }
}

/// Gives how long it took to converge.
fn both_phases<M: Machine, C: Checker<M>>(setup: &mut Setup<M, C>) -> Result<Duration, Violation> {
    let Setup { sim, checker, .. } = setup;
    let end = sim.elapsed() + setup.faults_for;
    while sim.elapsed() < end {
        sim.run_until((sim.elapsed() + CHECK_EVERY).min(end), checker)?;
        checker.check(sim)?;
    }
    sim.fault(Fault::Calm);
    sim.run_for(Duration::ZERO, checker)?;
    checker.on_calm(sim);
    let calm = sim.elapsed();
    loop {
        let took = sim.elapsed() - calm;
        let Err(missing) = checker.converged(sim) else {
            checker.check(sim)?;
            return Ok(took);
        };
        if took >= setup.converge_within {
            let within = setup.converge_within;
            return Err(Violation::new(format!("not converged {within:?} after the faults: {missing}")));
        }
        sim.run_for(CONVERGED_EVERY, checker)?;
    }
}
