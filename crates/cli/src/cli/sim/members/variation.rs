//! The modified SWIM of go-swim: its settings as flags, and all of them compared.

use std::fmt::Write as _;

use annulus::core::swim::{Codec, NodeSorter, Preset, Scale, Settings};
use annulus_sim::scenarios::members::Summary;

use super::plot::{Bars, Panel};
use crate::cli::UsageError;

/// The modified SWIM of go-swim: which nodes are probed, and how often.
#[derive(Clone, Copy, Default, PartialEq, Eq, clap::Args)]
pub(super) struct Variation {
    /// The selection list of the nodes to probe: shuffle, bucket or priority
    #[arg(long, value_enum)]
    selection: Option<Choice>,

    /// The distance between nodes: xor, ring or chord_finger
    #[arg(long)]
    sorter: Option<NodeSorter>,

    /// Regional buckets
    #[arg(long, value_name = "N")]
    region_count: Option<usize>,

    /// Regional probes per period
    #[arg(long, value_name = "N")]
    region_probes: Option<usize>,

    /// Nodes in the neighbourhood
    #[arg(long, value_name = "N")]
    neighbor_count: Option<usize>,

    /// Probes of neighbours per period
    #[arg(long, value_name = "N")]
    neighbor_probes: Option<usize>,

    /// The form of the messages: compact or msgpack
    #[arg(long)]
    codec: Option<Codec>,

    /// The growth of the suspicion timeout with the group: digits or smooth
    #[arg(long, value_enum)]
    suspicion_scale: Option<Growth>,

    /// The factor of the suspicion timeout while no other member suspects
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    suspicion_max_mult: Option<u32>,
}

/// The growth of the suspicion timeout with the group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Growth {
    /// With the number of decimal digits
    Digits,
    /// With the logarithm
    Smooth,
}

/// A selection list of the document.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Choice {
    /// All others, one after the other in random order
    Shuffle,
    /// Three buckets by distance
    Bucket,
    /// The eight nearest, one of them per period, and three buckets of the others
    Priority,
}

impl Variation {
    /// The settings of a preset with these changes.
    ///
    /// # Errors
    /// If they cannot work in a group of so many nodes.
    pub(super) fn apply(self, preset: Preset, nodes: u32) -> Result<Settings, UsageError> {
        let mut settings = preset.settings();
        settings.suspicion_max_mult = self.suspicion_max_mult.unwrap_or(settings.suspicion_max_mult);
        settings.suspicion_scale = match self.suspicion_scale {
            None => settings.suspicion_scale,
            Some(Growth::Digits) => Scale::Digits,
            Some(Growth::Smooth) => Scale::Smooth,
        };
        let (regions, neighbors) = match self.selection {
            None => (settings.region_count, (settings.neighbor_count, settings.neighbor_probes)),
            Some(Choice::Shuffle) => (1, (0, 0)),
            Some(Choice::Bucket) => (3, (0, 0)),
            Some(Choice::Priority) => (3, (8, 1)),
        };
        settings.region_count = self.region_count.unwrap_or(regions);
        settings.region_probes = self.region_probes.unwrap_or(settings.region_probes);
        settings.neighbor_count = self.neighbor_count.unwrap_or(neighbors.0);
        settings.neighbor_probes = self.neighbor_probes.unwrap_or(neighbors.1);
        settings.codec = self.codec.unwrap_or(settings.codec);
        settings.sorter = self.sorter.unwrap_or(settings.sorter);
        settings.check().map_err(|error| UsageError(error.to_string()))?;
        if settings.neighbor_count >= nodes as usize {
            let text = format!(
                "--neighbor-count {} is not below --nodes {nodes}: a neighbourhood is a part of the others",
                settings.neighbor_count
            );
            return Err(UsageError(text));
        }
        Ok(settings)
    }
}

/// The variants that `--experiment variations` compares: each name with its changes.
pub(super) fn compared() -> Vec<(&'static str, Variation)> {
    let with = |selection, sorter, probes| Variation {
        selection: Some(selection),
        sorter: Some(sorter),
        region_probes: Some(probes),
        ..Variation::default()
    };
    vec![
        ("shuffle, 1 probe (original)", with(Choice::Shuffle, NodeSorter::Xor, 1)),
        ("bucket xor, 1 probe", with(Choice::Bucket, NodeSorter::Xor, 1)),
        ("bucket ring, 1 probe", with(Choice::Bucket, NodeSorter::Ring, 1)),
        ("bucket chord_finger, 1 probe", with(Choice::Bucket, NodeSorter::ChordFinger, 1)),
        ("shuffle, 2 probes", with(Choice::Shuffle, NodeSorter::Xor, 2)),
        ("priority xor, 1 + 1 probes", with(Choice::Priority, NodeSorter::Xor, 1)),
        ("priority ring, 1 + 1 probes", with(Choice::Priority, NodeSorter::Ring, 1)),
        ("priority chord_finger, 1 + 1", with(Choice::Priority, NodeSorter::ChordFinger, 1)),
    ]
}

/// All of them as a table in Markdown.
pub(super) fn table(rows: &[(&'static str, Summary)]) -> String {
    let mut text = String::from(
        "| variation | first suspect, periods | first dead s | near know s | far know s | all know s | all know p99 s | \
         false suspects | false deaths | near bytes | far bytes |\n|---|---|---|---|---|---|---|---|---|---|---|\n",
    );
    for (name, summary) in rows {
        let know = |near: bool| match &summary.distance {
            Some(distance) if near => format!("{:.2}", distance.near_know_seconds.mean),
            Some(distance) => format!("{:.2}", distance.far_know_seconds.mean),
            None => "-".into(),
        };
        let bytes = summary.distance.as_ref().map_or((summary.bytes_per_node_per_second, 0.0), |distance| {
            (distance.near_bytes, distance.far_bytes)
        });
        let _ = writeln!(
            text,
            "| {name} | {:.2} | {:.2} | {} | {} | {:.2} | {:.2} | {} | {} | {:.0} | {:.0} |",
            summary.first_suspect_periods.mean,
            summary.first_dead_seconds.mean,
            know(true),
            know(false),
            summary.all_know_dead_seconds.mean,
            summary.all_know_dead_seconds.p99,
            summary.false_suspects,
            summary.false_dead,
            bytes.0,
            bytes.1,
        );
    }
    text
}

/// The same as bars.
pub(super) fn plot(title: &str, rows: &[(&'static str, Summary)]) -> String {
    let panel = |title: &str, take: &dyn Fn(&Summary) -> f64| Panel {
        title: title.into(),
        values: rows.iter().map(|(_, summary)| take(summary)).collect(),
    };
    let far = |summary: &Summary| summary.distance.as_ref().map_or(0.0, |distance| distance.far_bytes);
    let near = |summary: &Summary| summary.distance.as_ref().map_or(0.0, |distance| distance.near_bytes);
    Bars {
        title: title.into(),
        names: rows.iter().map(|(name, _)| (*name).to_owned()).collect(),
        panels: vec![
            panel("first suspect, periods", &|summary| summary.first_suspect_periods.mean),
            panel("all know, s", &|summary| summary.all_know_dead_seconds.mean),
            panel("false suspects", &|summary| summary.false_suspects as f64),
            panel("near bytes/node/s", &near),
            panel("far bytes/node/s", &far),
        ],
    }
    .svg()
}
