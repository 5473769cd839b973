//! The ledger of a checker: the excuses it granted, the promises it timed, the situations that occurred (FA-25, FA-26,
//! FA-29).
//!
//! An [`Excuse`] is a constant of the scenario, and there is no other way to excuse. It needs a [`Cause`] that the
//! simulator itself has recorded for the host; without one, above its length or above its number it is a violation.
//! A [`Promise`] has two bounds: all cases must keep the later one, 99 of 100 the earlier. A situation that occurred in a
//! run is *exercised*: a check of a situation that never occurred proves nothing.

use core::time::Duration;
use std::collections::BTreeMap;

use annulus_core::Machine;
use serde::Serialize;

use crate::causes::Cause;
use crate::host::HostId;
use crate::observer::{Verdict, Violation};
use crate::scenario::Report;
use crate::sim::Sim;

/// A reason for which a checker lets something pass.
#[derive(Debug, PartialEq, Eq)]
pub struct Excuse {
    /// Its name in reports and in `excuses.txt`.
    pub name: &'static str,
    /// The reason why no node could do better, in a sentence.
    pub because: &'static str,
    /// One of these must have touched the host …
    pub needs: &'static [Cause],
    /// … in the excused span, or up to this time before it.
    pub reach: Duration,
    /// The most uses in one run.
    pub most_per_run: u32,
    /// The longest excused span.
    pub each_at_most: Duration,
}

/// The bounds of a promise, counted from the true end of the fault that mattered.
#[derive(Debug, PartialEq, Eq)]
pub struct Promise {
    /// Its name in reports and in `docs/promises.md`.
    pub name: &'static str,
    /// 99 of 100 cases keep this.
    pub prompt: Duration,
    /// All of them keep this.
    pub at_last: Duration,
}

/// The uses of an excuse in a run, or in many.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Used {
    /// Runs in which it was used.
    pub runs: u64,
    /// How often.
    pub times: u64,
    /// The longest that was excused, in seconds.
    pub longest: f64,
}

/// How a promise was kept in a run, or in many.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Kept {
    /// The number of cases.
    pub cases: u64,
    /// The number of them that were prompt.
    pub prompt: u64,
    /// The median, in seconds; of many runs the median of theirs.
    pub median: f64,
    /// The longest, in seconds.
    pub longest: f64,
}

/// The book of one run, kept by its checker.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    excuses: BTreeMap<&'static str, Used>,
    exercised: BTreeMap<&'static str, bool>,
    promises: BTreeMap<&'static str, (Duration, Vec<Duration>)>,
}

impl Ledger {
    /// A ledger for a run in which these situations may occur.
    #[must_use]
    pub fn new(situations: &[&'static str]) -> Self {
        Self { exercised: situations.iter().map(|name| (*name, false)).collect(), ..Self::default() }
    }

    /// Lets something pass that lasted until now.
    ///
    /// # Errors
    /// If no fault that it needs has touched the host, if it lasted too long, or if it was used too often.
    pub fn excuse<M: Machine>(
        &mut self,
        sim: &Sim<M>,
        excuse: &'static Excuse,
        host: HostId,
        lasted: Duration,
    ) -> Verdict {
        let Excuse { name, needs, reach, most_per_run, each_at_most, .. } = excuse;
        let now = sim.elapsed();
        let since = now.saturating_sub(lasted).saturating_sub(*reach);
        if !sim.causes(host, since, now).any(|one| needs.contains(&one.cause)) {
            return Err(Violation::new(format!("{name} for {host}, to which none of {needs:?} was done")));
        }
        if lasted > *each_at_most {
            return Err(Violation::new(format!(
                "{name} for {host} lasted {lasted:?}, above {each_at_most:?}"
            )));
        }
        let used = self.excuses.entry(name).or_default();
        (used.runs, used.times) = (1, used.times + 1);
        used.longest = used.longest.max(lasted.as_secs_f64());
        if used.times > u64::from(*most_per_run) {
            return Err(Violation::new(format!("{name} was used {} times in a run", used.times)));
        }
        Ok(())
    }

    /// A promise came true this long after the fault that mattered.
    ///
    /// # Errors
    /// If that was too late for any case.
    pub fn took(&mut self, promise: &'static Promise, took: Duration) -> Verdict {
        let (_, cases) = self.promises.entry(promise.name).or_insert((promise.prompt, Vec::new()));
        cases.push(took);
        if took > promise.at_last {
            let bound = promise.at_last;
            return Err(Violation::new(format!(
                "{}: {took:?} after the fault, above {bound:?}",
                promise.name
            )));
        }
        Ok(())
    }

    /// A situation occurred in the run.
    pub fn met(&mut self, situation: &'static str) {
        self.exercised.insert(situation, true);
    }

    /// Counts the kinds of faults that a run with faults has had, and those that it has not, as situations.
    pub(crate) fn meet_causes<M: Machine>(&mut self, sim: &Sim<M>) {
        let met = sim.causes_met();
        if !met.is_empty() {
            self.exercised.extend(Cause::ALL.map(|(cause, name)| (name, met.contains(&cause))));
        }
    }

    /// The entries for the report.
    #[must_use]
    pub fn entries(&self) -> Entries {
        let excuses = self.excuses.iter().map(|(name, used)| ((*name).into(), *used)).collect();
        let share = |met: &bool| f64::from(u8::from(*met));
        let exercised = self.exercised.iter().map(|(name, met)| ((*name).into(), share(met))).collect();
        let mut entries = Entries { excuses, exercised, ..Entries::default() };
        for (name, (prompt, cases)) in &self.promises {
            let mut sorted = cases.clone();
            sorted.sort_unstable();
            let seconds = |at: usize| sorted.get(at).map_or(0.0, Duration::as_secs_f64);
            let kept = Kept {
                cases: sorted.len() as u64,
                prompt: sorted.iter().filter(|took| *took <= prompt).count() as u64,
                median: seconds(sorted.len() / 2),
                longest: seconds(sorted.len().saturating_sub(1)),
            };
            entries.promises.insert((*name).into(), kept);
        }
        entries
    }
}

/// The sums of one run or of many.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Entries {
    /// Excuses by name.
    pub excuses: BTreeMap<String, Used>,
    /// The share of runs with each situation.
    pub exercised: BTreeMap<String, f64>,
    /// Promises by name.
    pub promises: BTreeMap<String, Kept>,
}

/// The share of cases that must be prompt.
const PROMPT_SHARE: f64 = 0.99;
/// With fewer cases a share means nothing.
const CASES_MIN: u64 = 100;

/// The books of many runs, summed.
#[derive(Clone, Debug, Default)]
pub struct Books {
    runs: u64,
    entries: Entries,
    medians: BTreeMap<String, Vec<f64>>,
}

impl Books {
    /// Adds a run.
    pub fn add(&mut self, report: &Report) {
        self.runs += 1;
        for (name, used) in &report.entries.excuses {
            let sum = self.entries.excuses.entry(name.clone()).or_default();
            sum.runs += used.runs;
            sum.times += used.times;
            sum.longest = sum.longest.max(used.longest);
        }
        for (name, met) in &report.entries.exercised {
            *self.entries.exercised.entry(name.clone()).or_default() += met;
        }
        for (name, kept) in &report.entries.promises {
            let sum = self.entries.promises.entry(name.clone()).or_default();
            sum.cases += kept.cases;
            sum.prompt += kept.prompt;
            sum.longest = sum.longest.max(kept.longest);
            self.medians.entry(name.clone()).or_default().push(kept.median);
        }
    }

    /// The sums, with shares of runs and medians of medians.
    #[must_use]
    pub fn entries(&self) -> Entries {
        let mut entries = self.entries.clone();
        for met in entries.exercised.values_mut() {
            *met /= self.runs.max(1) as f64;
        }
        for (name, kept) in &mut entries.promises {
            let mut medians = self.medians.get(name).cloned().unwrap_or_default();
            medians.sort_by(f64::total_cmp);
            kept.median = medians.get(medians.len() / 2).copied().unwrap_or_default();
        }
        entries
    }

    /// Faults of the sums, though no single run failed: an excuse used in more than its share of runs, or a promise
    /// that is kept at last and not promptly. `ceilings` has lines of scenario, excuse and greatest share.
    #[must_use]
    pub fn complaints(&self, scenario: &str, ceilings: &str) -> Vec<String> {
        let mut complaints = Vec::new();
        for (name, used) in &self.entries.excuses {
            let share = used.runs as f64 / self.runs.max(1) as f64;
            let ceiling = ceilings.lines().find_map(|line| {
                let mut words = line.split_whitespace();
                let is_it = words.next() == Some(scenario) && words.next() == Some(name);
                is_it.then(|| words.next()?.parse::<f64>().ok()).flatten()
            });
            match ceiling {
                None => complaints.push(format!("excuse {name} has no ceiling in excuses.txt")),
                // A single use does not prove a share.
                Some(most) if share > most && used.runs > 1 => {
                    complaints.push(format!("excuse {name} in {share:.3} of the runs, above {most}"));
                }
                Some(_) => {}
            }
        }
        for (name, kept) in self.entries.promises.iter().filter(|(_, kept)| kept.cases >= CASES_MIN) {
            let share = kept.prompt as f64 / kept.cases as f64;
            if share < PROMPT_SHARE {
                complaints.push(format!("promise {name}: {share:.3} of {} cases were prompt", kept.cases));
            }
        }
        complaints
    }
}
