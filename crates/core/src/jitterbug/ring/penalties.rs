//! Penalties: failed nodes are skipped in the round, but stay in the list.
//!
//! They are local, keyed by host, never sent and never stored (JA-43). A node that failed k times in a row is skipped
//! for 2^k − 1 rounds before it is tried again.

use std::collections::BTreeMap;

use serde::Serialize;

use super::super::message::HostId;

/// The highest threshold: 1023 skipped rounds (JA-43).
pub const THRESHOLD_MAX: u32 = 10;

/// The penalty of one node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Penalty {
    /// Its failures, less its successes since.
    pub threshold: u32,
    /// How many rounds it was skipped since it was last tried.
    pub count: u32,
}

/// The penalties of all nodes; nodes without one are absent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Penalties {
    hosts: BTreeMap<HostId, Penalty>,
}

impl Penalties {
    /// Whether a node may be tried this round. If so, its count is reset; if not, it is raised.
    pub fn allow(&mut self, host_id: HostId) -> bool {
        let Some(penalty) = self.hosts.get_mut(&host_id) else { return true };
        let allowed = penalty.count >= (1 << penalty.threshold) - 1;
        penalty.count = if allowed { 0 } else { penalty.count + 1 };
        allowed
    }

    /// Notes that the node took the token.
    pub fn succeeded(&mut self, host_id: HostId) {
        if let Some(penalty) = self.hosts.get_mut(&host_id) {
            penalty.threshold = penalty.threshold.saturating_sub(1);
            if *penalty == Penalty::default() {
                self.hosts.remove(&host_id);
            }
        }
    }

    /// Notes that the node did not take the token.
    pub fn failed(&mut self, host_id: HostId) {
        let penalty = self.hosts.entry(host_id).or_default();
        penalty.threshold = (penalty.threshold + 1).min(THRESHOLD_MAX);
    }

    /// Clears the penalty of a node whose message arrived (JA-44).
    pub fn clear(&mut self, host_id: HostId) {
        self.hosts.remove(&host_id);
    }

    /// The penalty of a node.
    #[must_use]
    pub fn of(&self, host_id: HostId) -> Penalty {
        self.hosts.get(&host_id).copied().unwrap_or_default()
    }

    pub(super) fn threshold(&self, host_id: HostId) -> u32 {
        self.of(host_id).threshold
    }
}
