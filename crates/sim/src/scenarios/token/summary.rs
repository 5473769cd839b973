//! The summary of many runs: the output of a campaign.

use serde_json::{Map, Value, json};

use super::measure::{mean, quantile};
use crate::hash::TraceHash;
use crate::scenario::Report;

/// The key under which a run hands its samples to a [`Summary`]; it is not printed.
const SAMPLES: &str = "samples";

/// The runs so far.
#[derive(Default)]
pub struct Summary {
    seeds: Vec<u64>,
    failed: Vec<u64>,
    nodes: usize,
    launches: Vec<f64>,
    recoveries: Vec<f64>,
    first_holders: Vec<f64>,
    availabilities: Vec<f64>,
    converged: Vec<f64>,
    lost_ms: f64,
    lived_ms: f64,
    passes: f64,
    measured_seconds: f64,
    merges: u64,
    random_drops: u64,
    tokens_final: u64,
    components_final: u64,
    lists_differ: u64,
    hash: TraceHash,
}

impl Summary {
    /// One that has seen nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes a run in.
    pub fn add(&mut self, report: &Report) {
        let measured = &report.measured;
        let number = |name: &str| measured.get(name).and_then(Value::as_f64);
        let count = |name: &str| measured.get(name).and_then(Value::as_u64).unwrap_or(0);
        let samples = measured.get(SAMPLES).cloned().unwrap_or_default();
        let list = |name: &str| samples[name].as_array().into_iter().flatten().filter_map(Value::as_f64);
        self.seeds.push(report.seed);
        self.failed.extend((!report.ok).then_some(report.seed));
        self.nodes = self.nodes.max(report.nodes);
        self.launches.extend(list("launches"));
        self.recoveries.extend(list("recovery_ms"));
        self.first_holders.extend(number("time_to_first_holder_ms"));
        self.availabilities.extend(number("availability"));
        self.converged.extend(report.converged_after_seconds);
        self.lost_ms += samples["lost_ms"].as_f64().unwrap_or(0.0);
        self.lived_ms += samples["lived_ms"].as_f64().unwrap_or(0.0);
        self.passes += samples["passes"].as_f64().unwrap_or(0.0);
        self.measured_seconds += samples["seconds"].as_f64().unwrap_or(0.0);
        self.merges += count("merges");
        self.random_drops += count("random_drops");
        self.tokens_final = self.tokens_final.max(count("tokens_final"));
        self.components_final = self.components_final.max(count("components_final"));
        self.lists_differ += u64::from(measured.get("lists_equal") != Some(&Value::Bool(true)));
        self.hash.bytes(report.trace_hash.as_bytes());
    }

    /// All of it as one object. `tokens_final` and `components_final` are the worst of all runs, `merges` and
    /// `random_drops` sums, `trace_hash` the hash of all hashes in the order of seeds.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let availability = 1.0 - self.lost_ms / self.lived_ms.max(f64::MIN_POSITIVE);
        json!({
            "scenario": "token",
            "seed": self.seeds.first(),
            "runs": self.seeds.len(),
            "nodes": self.nodes,
            "ok": self.failed.is_empty(),
            "failed": self.failed,
            "launches": figures(&self.launches),
            "time_to_first_holder_ms": mean(&self.first_holders),
            "first_holder_ms": figures(&self.first_holders),
            "recovery_ms": figures(&self.recoveries),
            "availability": availability.clamp(0.0, 1.0),
            "availability_min": self.availabilities.iter().copied().reduce(f64::min),
            "passes_per_second": self.passes / self.measured_seconds.max(f64::MIN_POSITIVE),
            "converged_after_seconds": figures(&self.converged),
            "tokens_final": self.tokens_final,
            "components_final": self.components_final,
            "merges": self.merges,
            "random_drops": self.random_drops,
            "lists_equal": self.lists_differ == 0,
            "trace_hash": self.hash.to_string(),
        })
    }
}

/// Removes the samples from the report, for the output of one run.
pub fn without_samples(report: &mut Report) {
    report.measured.remove(SAMPLES);
}

/// The samples of one run.
pub(super) fn samples(
    launches: &[f64],
    recoveries: &[f64],
    lost_ms: f64,
    lived_ms: f64,
    passes: u64,
    seconds: f64,
) -> Map<String, Value> {
    let samples = json!({
        "launches": launches, "recovery_ms": recoveries, "lost_ms": lost_ms, "lived_ms": lived_ms,
        "passes": passes, "seconds": seconds,
    });
    Map::from_iter([(SAMPLES.to_owned(), samples)])
}

fn figures(samples: &[f64]) -> Value {
    json!({
        "mean": mean(samples), "p99": quantile(samples, 0.99), "max": quantile(samples, 1.0),
        "count": samples.len(),
    })
}
