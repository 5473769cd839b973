//! The document in the shipped application's data: counts, values, edges, and what others put there.
//!
//! ```json
//! {"counts": {"17": 4, "99": 3}, "values": {"door": {"fence": 7, "host": 17, "value": "open"}}, "edges": []}
//! ```

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::frame::{frame, unframe};
use super::graph::{Edge, unite};
use crate::wire::DecodeError;

/// The greatest count: what every reader of JSON can hold exactly.
const COUNT_MAX: u64 = (1 << 53) - 1;
/// The most values; of more, the newest stay.
pub const VALUES_MAX: usize = 256;

/// A value that a user set, and when: the last writer wins, by fence and then host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stamped {
    /// The fence of the tenure in which it was set.
    pub fence: u64,
    /// The node that set it.
    pub host: u32,
    /// The value; `null` once it was unset.
    pub value: Value,
}

impl Stamped {
    /// What decides between two writers.
    fn stamp(&self) -> (u64, u32, String) {
        (self.fence, self.host, self.value.to_string())
    }
}

/// The data of the shipped application.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Document {
    /// Per host, how often it has led.
    pub counts: BTreeMap<String, u64>,
    /// What users set.
    pub values: BTreeMap<String, Stamped>,
    /// Where lines of the token split and met.
    pub edges: Vec<Edge>,
    /// Fields of others, kept as they are.
    pub rest: Map<String, Value>,
}

impl Document {
    /// Reads framed data.
    ///
    /// # Errors
    /// If the frame is not whole, its payload no JSON object, or a count no count.
    pub fn from_data(data: &[u8]) -> Result<Self, DecodeError> {
        Self::from_json(unframe(data)?)
    }

    /// Reads JSON without a frame.
    ///
    /// # Errors
    /// If it is no object, or a count no count.
    pub fn from_json(json: &[u8]) -> Result<Self, DecodeError> {
        let mut rest: Map<String, Value> =
            serde_json::from_slice(json).map_err(|_| DecodeError::Field("json"))?;
        let counts = rest.remove("counts").unwrap_or_else(|| Value::Object(Map::new()));
        let counts: BTreeMap<String, u64> =
            serde_json::from_value(counts).map_err(|_| DecodeError::Field("counts"))?;
        if counts.values().any(|&count| count > COUNT_MAX) {
            return Err(DecodeError::Limit("count"));
        }
        // Somebody else may use our names for something else; then it is theirs.
        let values = take(&mut rest, "values").unwrap_or_default();
        let edges: Vec<Edge> = take(&mut rest, "edges").unwrap_or_default();
        let mut document = Self { counts, values, edges: unite(&edges, &[]), rest };
        document.bound_values();
        Ok(document)
    }

    /// As JSON, fields and keys in alphabetical order.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let mut json = self.rest.clone();
        json.insert("counts".into(), self.counts.iter().map(|(k, v)| (k.clone(), Value::from(*v))).collect());
        if !self.values.is_empty() {
            json.insert("values".into(), serde_json::to_value(&self.values).unwrap_or_default());
        }
        if !self.edges.is_empty() {
            json.insert("edges".into(), serde_json::to_value(&self.edges).unwrap_or_default());
        }
        Value::Object(json)
    }

    /// As framed data.
    #[must_use]
    pub fn to_data(&self) -> Vec<u8> {
        frame(self.to_json().to_string().as_bytes())
    }

    /// The sum of all counts: every tenure raises it, no merge lowers it.
    #[must_use]
    pub fn sum(&self) -> u64 {
        self.counts.values().fold(0, |sum, &count| sum.saturating_add(count))
    }

    /// Raises a count.
    pub fn raise(&mut self, host: u32, by: u64) {
        let count = self.counts.entry(host.to_string()).or_default();
        *count = count.saturating_add(by).min(COUNT_MAX);
    }

    /// Sets or unsets a value, unless it was set later than that.
    pub fn set(&mut self, key: String, value: Stamped) {
        self.put(key, value);
        self.bound_values();
    }

    /// Both as one: the greater of each count, the newer of each value, all edges.
    #[must_use]
    pub fn merge(&self, other: &Self) -> Self {
        let mut merged = self.clone();
        for (host, &count) in &other.counts {
            let own = merged.counts.entry(host.clone()).or_default();
            *own = (*own).max(count);
        }
        for (key, value) in &other.values {
            merged.put(key.clone(), value.clone());
        }
        merged.bound_values();
        merged.edges = unite(&self.edges, &other.edges);
        merged.rest = self.merge_rest(other);
        merged
    }

    /// Whether every count here is at least what it is there: then this may descend from that.
    #[must_use]
    pub fn covers(&self, other: &Self) -> bool {
        other.counts.iter().all(|(host, count)| self.counts.get(host).is_some_and(|own| own >= count))
    }

    /// Fields of others: those of the descendant, where there is one; else, of each, the one whose text is greater, so
    /// that both sides choose the same.
    fn merge_rest(&self, other: &Self) -> Map<String, Value> {
        let (mut weak, mut strong) = (self.rest.clone(), other.rest.clone());
        match (self.covers(other), other.covers(self)) {
            (true, false) => core::mem::swap(&mut weak, &mut strong),
            (false, true) => {}
            _ => {
                for (field, value) in &weak {
                    let theirs = strong.entry(field.clone()).or_insert_with(|| value.clone());
                    let (own_text, their_text) = (value.to_string(), theirs.to_string());
                    if own_text > their_text {
                        *theirs = value.clone();
                    }
                }
            }
        }
        weak.append(&mut strong);
        weak
    }

    fn put(&mut self, key: String, value: Stamped) {
        if self.values.get(&key).is_none_or(|old| old.stamp() <= value.stamp()) {
            self.values.insert(key, value);
        }
    }

    fn bound_values(&mut self) {
        if self.values.len() <= VALUES_MAX {
            return;
        }
        let mut values: Vec<(String, Stamped)> = core::mem::take(&mut self.values).into_iter().collect();
        values.sort_by_cached_key(|(key, value)| (value.stamp(), key.clone()));
        self.values = values.split_off(values.len() - VALUES_MAX).into_iter().collect();
    }
}

fn take<T: serde::de::DeserializeOwned>(rest: &mut Map<String, Value>, field: &str) -> Option<T> {
    let value = serde_json::from_value(rest.get(field)?.clone()).ok()?;
    rest.remove(field);
    Some(value)
}
