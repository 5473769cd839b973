//! Presets: settings that go together, by name.

use core::fmt;
use core::str::FromStr;
use core::time::Duration;

use serde::Serialize;

use super::codec::Codec;
use super::config::Settings;
use super::scaling::Scale;
use super::sorter::NodeSorter;

/// A named set of [`Settings`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Preset {
    /// The failure detector of the SWIM paper with its suspicion, and nothing else.
    OriginalSwim,
    /// The document, with the decisions of `docs/spec/swim.md`.
    GoSwim,
    /// One site, all extras on: the default.
    #[default]
    Lan,
    /// Many sites: longer intervals and timeouts.
    Wan,
    /// One machine: shorter intervals.
    Local,
}

impl Preset {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::OriginalSwim, Self::GoSwim, Self::Lan, Self::Wan, Self::Local];

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::OriginalSwim => "original_swim",
            Self::GoSwim => "go_swim",
            Self::Lan => "lan",
            Self::Wan => "wan",
            Self::Local => "local",
        }
    }

    /// Its settings.
    #[must_use]
    pub const fn settings(self) -> Settings {
        match self {
            Self::OriginalSwim => Settings {
                verify: false,
                late_tick_guard: false,
                all_addrs: false,
                buddy: false,
                ..go_swim()
            },
            Self::GoSwim => go_swim(),
            Self::Lan => lan(),
            Self::Wan => Settings {
                probe_interval: Duration::from_secs(5),
                probe_timeout: Duration::from_secs(3),
                suspicion_mult: 6,
                gossip_interval: Duration::from_millis(500),
                gossip_nodes: 4,
                retry_interval: Duration::from_secs(60),
                sync_interval: Duration::from_secs(60),
                coordinate_interval: Duration::from_secs(15),
                dead_retention: Duration::from_secs(60),
                ..lan()
            },
            Self::Local => Settings {
                probe_timeout: Duration::from_millis(200),
                indirect_probes: 1,
                retransmit_mult: 2,
                suspicion_mult: 3,
                gossip_interval: Duration::from_millis(100),
                retry_interval: Duration::from_secs(15),
                sync_interval: Duration::from_secs(15),
                dead_retention: Duration::from_secs(15),
                ..lan()
            },
        }
    }

    /// Whether past members are remembered: stored on disk, and probed again.
    pub(super) const fn remembers(self) -> bool {
        matches!(self, Self::Lan | Self::Wan | Self::Local)
    }
}

/// The defaults of SA-34, and no extras.
const fn go_swim() -> Settings {
    Settings {
        probe_interval: Duration::from_secs(1),
        probe_timeout: Duration::from_millis(500),
        indirect_probes: 3,
        retransmit_mult: 4,
        suspicion_mult: 5,
        suspicion_scale: Scale::Digits,
        region_count: 1,
        region_probes: 1,
        neighbor_count: 0,
        neighbor_probes: 0,
        sorter: NodeSorter::Xor,
        codec: Codec::Compact,
        packet_bytes_max: 1400,
        verify: true,
        late_tick_guard: true,
        all_addrs: true,
        everyone_answers: true,
        buddy: true,
        health_max: 0,
        suspicion_max_mult: 1,
        adaptive_timeout: false,
        user_share: None,
        gossip_interval: Duration::ZERO,
        gossip_nodes: 3,
        retry_interval: Duration::ZERO,
        sync_interval: Duration::ZERO,
        coordinate_interval: Duration::ZERO,
        dead_retention: Duration::from_secs(30),
    }
}

const fn lan() -> Settings {
    Settings {
        suspicion_mult: 4,
        suspicion_scale: Scale::Smooth,
        everyone_answers: false,
        health_max: 8,
        suspicion_max_mult: 6,
        adaptive_timeout: true,
        user_share: Some(25),
        gossip_interval: Duration::from_millis(200),
        retry_interval: Duration::from_secs(30),
        sync_interval: Duration::from_secs(30),
        coordinate_interval: Duration::from_secs(5),
        ..go_swim()
    }
}

impl fmt::Display for Preset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// No preset has this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no preset: use original_swim, go_swim, lan, wan or local")]
pub struct UnknownPreset(pub String);

impl FromStr for Preset {
    type Err = UnknownPreset;

    fn from_str(text: &str) -> Result<Self, UnknownPreset> {
        let named = Self::ALL.into_iter().find(|preset| preset.name() == text.replace('-', "_"));
        named.ok_or_else(|| UnknownPreset(text.to_owned()))
    }
}
