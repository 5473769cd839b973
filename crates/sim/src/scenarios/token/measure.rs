//! Measurements: availability of the token, recovery time, number of restores.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use super::summary::samples;
use crate::host::HostId;

/// The history of the token, from the events of all nodes.
#[derive(Default)]
pub(super) struct Measure {
    holders: BTreeSet<HostId>,
    /// The time since which no node holds it, and whether a pass was under way then.
    gap: Option<(Duration, bool)>,
    /// Restores begun by each node since the token was lost.
    launches: BTreeMap<HostId, u64>,
    first: Option<Duration>,
    lost: Duration,
    recoveries: Vec<f64>,
    won_after: Vec<f64>,
    until: Option<Duration>,
    pub(super) passes: u64,
    pub(super) merges: u64,
    pub(super) drops: u64,
}

impl Measure {
    /// A node holds a token; `made` if a restore made it.
    pub(super) fn holds(&mut self, now: Duration, host: HostId, made: bool) {
        if made {
            self.won_after.push(self.launches.get(&host).copied().unwrap_or(1) as f64);
        }
        self.holders.insert(host);
        self.launches.clear();
        self.first.get_or_insert(now);
        let Some((since, under_way)) = self.gap.take() else { return };
        if made || !under_way {
            self.lost += now - since;
            self.recoveries.push((now - since).as_secs_f64() * 1000.0);
        }
    }

    /// A node holds it no longer; `passed` if it is on its way to another.
    pub(super) fn gives_up(&mut self, now: Duration, host: HostId, passed: bool) {
        if self.holders.remove(&host) && self.holders.is_empty() {
            self.gap = Some((now, passed));
        }
    }

    pub(super) fn launches(&mut self, host: HostId) {
        *self.launches.entry(host).or_default() += 1;
    }

    /// The phase that is measured is over.
    pub(super) fn close(&mut self, now: Duration) {
        if let Some((since, false)) = self.gap {
            self.lost += now - since;
        }
        self.until = Some(now);
    }

    pub(super) fn is_open(&self) -> bool {
        self.until.is_none()
    }

    pub(super) fn holders(&self) -> usize {
        self.holders.len()
    }

    pub(super) fn to_json(&self, now: Duration) -> Map<String, Value> {
        let until = self.until.unwrap_or(now);
        let lived = self.first.map_or(Duration::ZERO, |first| until.saturating_sub(first));
        let availability = 1.0 - self.lost.as_secs_f64() / lived.as_secs_f64().max(f64::MIN_POSITIVE);
        let json = json!({
            "time_to_first_holder_ms": self.first.map(|first| first.as_secs_f64() * 1000.0),
            "availability": availability.clamp(0.0, 1.0),
            "passes_per_second": self.passes as f64 / until.as_secs_f64().max(f64::MIN_POSITIVE),
            "launches": {"mean": mean(&self.won_after), "p99": quantile(&self.won_after, 0.99)},
            "recovery_ms": {
                "mean": mean(&self.recoveries), "p99": quantile(&self.recoveries, 0.99),
                "max": quantile(&self.recoveries, 1.0), "count": self.recoveries.len(),
            },
            "merges": self.merges,
            "random_drops": self.drops,
        });
        let Value::Object(mut json) = json else { unreachable!("it is written as an object") };
        json.append(&mut samples(
            &self.won_after,
            &self.recoveries,
            self.lost.as_secs_f64() * 1000.0,
            lived.as_secs_f64() * 1000.0,
            self.passes,
            until.as_secs_f64(),
        ));
        json
    }
}

pub(super) fn mean(samples: &[f64]) -> f64 {
    // The sum of nothing is -0.0, which looks as if it meant something.
    (samples.iter().sum::<f64>() + 0.0) / samples.len().max(1) as f64
}

/// The smallest sample that so many are not above.
pub(super) fn quantile(samples: &[f64], part: f64) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let place = (sorted.len() as f64 * part).ceil() as usize;
    sorted.get(place.saturating_sub(1)).copied().unwrap_or(0.0)
}
