//! Holds: who keeps the token for its application, and what must be true of them.

use std::collections::BTreeMap;

use annulus_core::RequestId;

use super::Node;
use crate::host::{HostId, HostState};
use crate::observer::{Verdict, Violation};
use crate::sim::Sim;

/// The holds that were granted and whose end was not told yet.
#[derive(Default)]
pub(super) struct Holds {
    live: BTreeMap<HostId, (RequestId, u64)>,
    /// The highest number of any hold so far.
    highest: u64,
    /// Two that were live at once when it was looked last.
    suspected: Option<(HostId, HostId)>,
    pub(super) granted: u64,
    pub(super) lost: u64,
}

impl Holds {
    /// A hold was granted. Where there can be but one line of the token, its number is the highest of all.
    pub(super) fn held(&mut self, host: HostId, hold: RequestId, fence: u64, one_line: bool) -> Verdict {
        self.granted += 1;
        if one_line && fence <= self.highest {
            return Err(Violation::new(format!(
                "{host} holds with {fence}, after a hold with {}",
                self.highest
            )));
        }
        self.highest = self.highest.max(fence);
        self.live.insert(host, (hold, fence));
        Ok(())
    }

    /// Its end was told.
    pub(super) fn ended(&mut self, host: HostId, hold: RequestId, lost: bool) {
        self.lost += u64::from(lost);
        if self.live.get(&host).is_some_and(|(live, _)| *live == hold) {
            self.live.remove(&host);
        }
    }

    pub(super) fn crashed(&mut self, host: HostId) {
        self.live.remove(&host);
    }

    /// Of all hosts that are awake, only one holds. Who has just woken may take a moment to learn it: until the next look.
    pub(super) fn check(&mut self, sim: &Sim<Node>) -> Verdict {
        let mut awake = self.live.keys().filter(|host| sim.state(**host) == HostState::Up);
        let two = awake.next().copied().zip(awake.next().copied());
        match (core::mem::replace(&mut self.suspected, two), two) {
            (Some(before), Some(now)) if before == now => {
                let fence = |host| self.live.get(&host).map(|(_, fence)| *fence);
                Err(Violation::new(format!(
                    "{} holds with {:?} and {} with {:?}, both awake",
                    now.0,
                    fence(now.0),
                    now.1,
                    fence(now.1)
                )))
            }
            _ => Ok(()),
        }
    }
}
