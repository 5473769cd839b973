//! The document in the shipped application's data: counts, values, edges, and fields of other applications.
//!
//! ```json
//! {"counts": {"17": 4, "99": 3}, "values": {"door": {"fence": 7, "host": 17, "value": "open"}}, "edges": []}
//! ```
//!
//! Where voters grant exclusive turns there is also `"turns": {"group": "…"}`, the 32 hexadecimal digits of their group.

use core::fmt;
use std::collections::BTreeMap;

use serde::de::{DeserializeOwned, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

use super::canonical::{self, Canonical, Decimal, GROUP_DIGITS, TURNS};
use super::checksum::{framed, unframe};
use super::graph::{Edge, newest, unite};
use super::raw::Raw;
use crate::wire::DecodeError;

/// The greatest count: every reader of JSON holds it exactly.
const COUNT_MAX: u64 = (1 << 53) - 1;
/// The most values, unset ones included; beyond that the newest stay.
pub const VALUES_MAX: usize = 256;

/// A value that a user set, with its stamp: the last writer wins, by fence and then host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stamped {
    /// The fence of the tenure in which it was set.
    pub fence: u64,
    /// The node that set it.
    pub host: u32,
    /// The value; `null` once it was unset: the unset must be stored to win over earlier values.
    pub value: Raw,
}

impl Stamped {
    /// The stamp that decides between two writers.
    fn stamp(&self) -> (u64, u32, &str) {
        (self.fence, self.host, self.value.text())
    }
}

/// The data of the shipped application.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Document {
    /// The number of tenures of each host.
    pub counts: BTreeMap<String, u64>,
    /// Values that users set and unset.
    pub values: BTreeMap<String, Stamped>,
    /// The edges where branches of the token split and merged.
    pub edges: Vec<Edge>,
    /// The group of the voters of exclusive turns, if a node of the ring has voters (TU-31).
    pub turns: Option<String>,
    /// Fields of other applications, kept unchanged.
    pub rest: BTreeMap<String, Raw>,
}

/// One field as it is written.
#[derive(Serialize)]
#[serde(untagged)]
enum Field<'a> {
    Counts(&'a BTreeMap<String, u64>),
    Values(&'a BTreeMap<String, Stamped>),
    Edges(&'a [Edge]),
    /// The content of `turns`, without an escape: written by hand, as every tenure of a ring with voters does it.
    #[serde(skip)]
    Turns(&'a str),
    Other(&'a Raw),
}

/// The voters as another program may write them.
#[derive(Deserialize)]
struct Turns {
    group: String,
}

impl Document {
    /// Reads framed data.
    ///
    /// # Errors
    /// If the frame is incomplete, its payload is no JSON object, or a count is invalid.
    pub fn from_data(data: &[u8]) -> Result<Self, DecodeError> {
        Self::from_json(unframe(data)?)
    }

    /// Reads JSON without a frame.
    ///
    /// # Errors
    /// If it is no object, or a count is invalid.
    pub fn from_json(json: &[u8]) -> Result<Self, DecodeError> {
        let mut document = match canonical::read(json) {
            Some(read) => Self::from(read),
            None => serde_json::from_slice(json).map_err(|_| DecodeError::Field("json"))?,
        };
        if document.counts.values().any(|&count| count > COUNT_MAX) {
            return Err(DecodeError::Limit("count"));
        }
        document.bound_values();
        Ok(document)
    }

    /// As JSON, fields and keys in alphabetical order.
    #[must_use]
    pub fn to_json(&self) -> Raw {
        let mut json = Vec::new();
        self.write(&mut json);
        let text = String::from_utf8(json).expect("JSON is UTF-8");
        Raw::from(RawValue::from_string(text).expect("it is written as JSON"))
    }

    /// As framed data.
    #[must_use]
    pub fn to_data(&self) -> Vec<u8> {
        // An estimate that is seldom too small: growing would copy the bytes.
        let bytes = 64 + 24 * self.counts.len() + 96 * self.edges.len() + 128 * self.values.len();
        framed(bytes, |json| self.write(json))
    }

    fn write(&self, json: &mut Vec<u8>) {
        let turns = self.turns.as_deref().filter(|group| is_group(group));
        let own = [
            Some(("counts", Field::Counts(&self.counts))),
            (!self.edges.is_empty()).then_some(("edges", Field::Edges(&self.edges))),
            turns.map(|group| ("turns", Field::Turns(group))),
            (!self.values.is_empty()).then_some(("values", Field::Values(&self.values))),
        ];
        let own = own.into_iter().flatten();
        if self.rest.is_empty() {
            return write(json, own);
        }
        // If one of our fields also came with a foreign content, ours is written.
        let rest = self.rest.iter().map(|(name, raw)| (name.as_str(), Field::Other(raw)));
        let all: BTreeMap<&str, Field<'_>> = rest.chain(own).collect();
        write(json, all.into_iter());
    }

    /// The sum of all counts: every tenure raises it, no merge lowers it.
    #[must_use]
    pub fn sum(&self) -> u64 {
        self.counts.values().fold(0, |sum, &count| sum.saturating_add(count))
    }

    /// A count; zero without one.
    pub(super) fn count(&self, host: u32) -> u64 {
        self.counts.get(Decimal::of(host.into()).text()).copied().unwrap_or(0)
    }

    /// Raises a count.
    pub fn raise(&mut self, host: u32, by: u64) {
        let name = Decimal::of(host.into());
        let count = match self.counts.get_mut(name.text()) {
            Some(count) => count,
            None => self.counts.entry(name.text().to_owned()).or_default(),
        };
        *count = count.saturating_add(by).min(COUNT_MAX);
    }

    /// Sets or unsets a value in a tenure, as the last writer.
    pub fn set(&mut self, key: String, fence: u64, host: u32, value: Raw) {
        // Only a forged number is above that of the current tenure.
        let above = self.values.get(&key).map_or(0, |old| old.fence.saturating_add(1));
        self.values.remove(&key);
        self.put(key, Stamped { fence: fence.max(above), host, value });
        self.bound_values();
    }

    /// The values that are set now, without unset ones.
    pub fn set_values(&self) -> impl Iterator<Item = (&str, &Stamped)> {
        self.values
            .iter()
            .filter(|(_, stamped)| !stamped.value.is_null())
            .map(|(key, stamped)| (key.as_str(), stamped))
    }

    /// The merge of both: the greater of each count, the newer of each value, all edges.
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
        // Two groups at once are an operator's mistake; either of them rules out weak turns.
        merged.turns = self.turns.clone().max(other.turns.clone());
        merged.rest = self.merge_rest(other);
        merged
    }

    /// Whether every count here is at least that of the other: then this may descend from it.
    #[must_use]
    pub fn covers(&self, other: &Self) -> bool {
        other.counts.iter().all(|(host, count)| self.counts.get(host).is_some_and(|own| own >= count))
    }

    /// Merges fields of other applications as one unit, since they may depend on each other: those of one side are
    /// kept. If one side descends from the other, its fields win; otherwise those whose text is greater. So both sides
    /// choose the same. An empty side never wins.
    fn merge_rest(&self, other: &Self) -> BTreeMap<String, Raw> {
        let text = |rest: &BTreeMap<String, Raw>| -> Vec<(String, String)> {
            rest.iter().map(|(name, raw)| (name.clone(), raw.text().to_owned())).collect()
        };
        let is_own = match (self.rest.is_empty(), other.rest.is_empty()) {
            (false, false) => match (self.covers(other), other.covers(self)) {
                (true, false) => true,
                (false, true) => false,
                _ => text(&self.rest) > text(&other.rest),
            },
            (own_is_empty, _) => !own_is_empty,
        };
        if is_own { self.rest.clone() } else { other.rest.clone() }
    }

    /// Whether a value of an earlier document is here neither as it was nor replaced by a newer one.
    pub(super) fn drops_values(&self, earlier: &Self) -> bool {
        let lost =
            |(key, was): (&String, &Stamped)| self.values.get(key).is_none_or(|is| is.stamp() < was.stamp());
        self.values.len() < VALUES_MAX && earlier.values.iter().any(lost)
    }

    /// Keeps a field with one of our names but foreign content. If a name is there twice, the last field counts.
    fn keep_unless(&mut self, ours: bool, name: &str, raw: &RawValue) {
        if ours {
            self.rest.remove(name);
        } else {
            self.rest.insert(name.to_owned(), raw.into());
        }
    }

    fn put(&mut self, key: String, value: Stamped) {
        if self.values.get(&key).is_none_or(|old| old.stamp() <= value.stamp()) {
            self.values.insert(key, value);
        }
    }

    /// Unset values count towards the limit. With a limit of their own, a dropped one would let an older value of
    /// another branch return at the next merge.
    fn bound_values(&mut self) {
        if self.values.len() <= VALUES_MAX {
            return;
        }
        let mut values: Vec<(String, Stamped)> = core::mem::take(&mut self.values).into_iter().collect();
        values.sort_by(|(a, one), (b, other)| (one.stamp(), a).cmp(&(other.stamp(), b)));
        self.values = values.split_off(values.len() - VALUES_MAX).into_iter().collect();
    }
}

impl From<Canonical> for Document {
    fn from(Canonical { counts, edges, group }: Canonical) -> Self {
        Self { counts, edges: newest(edges), turns: group, ..Self::default() }
    }
}

/// The name of a field.
enum Name {
    Counts,
    Values,
    Edges,
    Turns,
    Other(String),
}

impl Name {
    fn of(name: &str) -> Self {
        match name {
            "counts" => Self::Counts,
            "values" => Self::Values,
            "edges" => Self::Edges,
            "turns" => Self::Turns,
            other => Self::Other(other.to_owned()),
        }
    }
}

impl<'de> Deserialize<'de> for Name {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Names;
        impl Visitor<'_> for Names {
            type Value = Name;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the name of a field")
            }

            fn visit_str<E>(self, name: &str) -> Result<Name, E> {
                Ok(Name::of(name))
            }
        }
        deserializer.deserialize_str(Names)
    }
}

/// In one pass: it runs in every tenure.
impl<'de> Deserialize<'de> for Document {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Fields;
        impl<'de> Visitor<'de> for Fields {
            type Value = Document;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Document, A::Error> {
                let mut document = Document::default();
                while let Some(name) = map.next_key()? {
                    match name {
                        Name::Counts => document.counts = map.next_value()?,
                        // Another application may use our names for its own fields; they are kept unchanged.
                        Name::Values => {
                            let raw: &RawValue = map.next_value()?;
                            let values: Option<BTreeMap<String, Stamped>> = read(raw);
                            document.keep_unless(values.is_some(), "values", raw);
                            document.values = values.unwrap_or_default();
                        }
                        Name::Edges => {
                            let raw: &RawValue = map.next_value()?;
                            let edges: Option<Vec<Edge>> = read(raw);
                            document.keep_unless(edges.is_some(), "edges", raw);
                            document.edges = newest(edges.unwrap_or_default());
                        }
                        Name::Turns => {
                            let raw: &RawValue = map.next_value()?;
                            document.turns = group(raw);
                            document.keep_unless(document.turns.is_some(), "turns", raw);
                        }
                        Name::Other(name) => {
                            let raw: &RawValue = map.next_value()?;
                            document.rest.insert(name, raw.into());
                        }
                    }
                }
                Ok(document)
            }
        }
        deserializer.deserialize_map(Fields)
    }
}

/// The group of voters in the content of `turns`.
fn group(raw: &RawValue) -> Option<String> {
    let ours = raw.get().strip_prefix(TURNS[0]).and_then(|text| text.strip_suffix(TURNS[1]));
    match ours.filter(|group| is_group(group)) {
        Some(group) => Some(group.to_owned()),
        None => read::<Turns>(raw).map(|turns| turns.group).filter(|group| is_group(group)),
    }
}

/// Whether a text is the group of voters: 128 bits in hexadecimal digits.
fn is_group(text: &str) -> bool {
    text.len() == GROUP_DIGITS && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn read<T: DeserializeOwned>(raw: &RawValue) -> Option<T> {
    serde_json::from_str(raw.get()).ok()
}

fn write<'a>(json: &mut Vec<u8>, fields: impl Iterator<Item = (&'a str, Field<'a>)>) {
    for (index, (name, field)) in fields.enumerate() {
        json.push(if index == 0 { b'{' } else { b',' });
        serde_json::to_writer(&mut *json, name).expect("a text is JSON");
        json.push(b':');
        match field {
            Field::Counts(counts) if canonical::write_counts(json, counts) => {}
            Field::Edges(edges) => canonical::write_edges(json, edges),
            Field::Turns(group) => {
                [TURNS[0], group, TURNS[1]].iter().for_each(|text| json.extend_from_slice(text.as_bytes()));
            }
            field => serde_json::to_writer(&mut *json, &field).expect("its keys are texts"),
        }
    }
    // Counts are always written, so the object was opened.
    json.push(b'}');
}
