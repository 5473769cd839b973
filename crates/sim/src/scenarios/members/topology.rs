//! The places of nodes, their distances, and losses by distance.

use core::time::Duration;

use annulus_core::swim::Swim;
use annulus_core::{Id, Rng};
use serde::Serialize;

use crate::host::HostId;
use crate::latency::Latency;
use crate::observer::{Datagram, DatagramFate};
use crate::sim::Sim;

/// How the places of nodes follow from their ids.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Places {
    /// Not at all: nearness of ids and nearness in the network are independent.
    #[default]
    Random,
    /// Ids that begin alike are near each other: by the first bits in clusters, by a space-filling curve in the plane.
    ById,
}

impl Places {
    /// The place of a node, unless it is drawn.
    pub(super) fn of(self, id: Id, latency: Latency) -> Option<[f64; 3]> {
        let first = (id.number() >> 96) as u32;
        match (self, latency) {
            (Self::ById, Latency::Clusters { count, .. }) => {
                Some([((u64::from(first) * u64::from(count)) >> 32) as f64, 0.0, 0.0])
            }
            (Self::ById, Latency::Plane { .. }) => {
                // Every second bit of the id is of x, the others are of y (Morton's order).
                let every_second =
                    |from: u32| (0..16).fold(0, |sum, bit| sum << 1 | (first >> (31 - from - 2 * bit)) & 1);
                let scaled = |bits: u32| f64::from(bits) / 65.536;
                Some([scaled(every_second(0)), scaled(every_second(1)), 0.0])
            }
            _ => None,
        }
    }
}

/// The traffic and the losses of long paths.
pub(super) struct Ways {
    /// Longer paths are far.
    far_above: Duration,
    longest: Duration,
    /// Probability that a datagram is lost on the longest way; less, the shorter it is.
    loss: f64,
    rng: Rng,
    pub(super) near_bytes: u64,
    pub(super) far_bytes: u64,
}

impl Ways {
    /// `None` if nodes have no places.
    pub(super) fn new(latency: Latency, loss: f64, rng: Rng) -> Option<Self> {
        let (far_above, longest) = match latency {
            Latency::Clusters { near, far, .. } => (near, far),
            // Half of all pairs are nearer than the mean, 0.52 of a side; the diagonal is the longest way.
            Latency::Plane { per_unit } => (per_unit * 521, per_unit * 1414),
            Latency::Sphere { antipode } => (antipode / 2, antipode),
            _ => return None,
        };
        Some(Self { far_above, longest, loss, rng, near_bytes: 0, far_bytes: 0 })
    }

    pub(super) fn is_far(&self, sim: &Sim<Swim>, a: HostId, b: HostId) -> bool {
        sim.distance(a, b) > self.far_above
    }

    /// Counts a datagram, and may lose it.
    pub(super) fn see(&mut self, sim: &Sim<Swim>, datagram: &Datagram<'_>) -> DatagramFate {
        let Some(to) = sim.host_at(datagram.to.ip()) else { return DatagramFate::Pass };
        let bytes = datagram.bytes.len() as u64;
        if self.is_far(sim, datagram.host, to) {
            self.far_bytes += bytes;
        } else {
            self.near_bytes += bytes;
        }
        let share = sim.distance(datagram.host, to).as_secs_f64() / self.longest.as_secs_f64();
        if self.loss > 0.0 && self.rng.chance(self.loss * share.min(1.0)) {
            DatagramFate::Drop
        } else {
            DatagramFate::Pass
        }
    }
}
