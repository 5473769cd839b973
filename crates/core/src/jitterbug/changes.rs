//! Changes of the data whose users wait for a reply. Each is answered when it is in the data of a tenure of this node,
//! or withdrawn at its timeout.

use core::time::Duration;
use std::collections::VecDeque;

use crate::tag::RequestId;
use crate::time::Instant;

/// A change whose user waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Pending {
    request: RequestId,
    /// Its number in the application.
    number: u64,
    until: Instant,
}

/// All changes, in the order of the requests; the application bounds their number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Changes {
    pending: VecDeque<Pending>,
}

impl Changes {
    /// Adds a change with the number of the application, to be withdrawn at `until`.
    pub(super) fn insert(&mut self, request: RequestId, number: u64, until: Instant) {
        self.pending.push_back(Pending { request, number, until });
    }

    /// The next request whose change is in the data, given the number of the last change in it.
    pub(super) fn pop_done(&mut self, up_to: u64) -> Option<RequestId> {
        self.pending.front().filter(|change| change.number <= up_to)?;
        self.pending.pop_front().map(|change| change.request)
    }

    /// Takes the changes that timed out, with their numbers. While data is `in_work` they get `grace` instead: a write
    /// under way decides in a moment whether they are in the data.
    pub(super) fn expire(&mut self, now: Instant, in_work: bool, grace: Duration) -> Vec<(RequestId, u64)> {
        let mut over = Vec::new();
        if self.due().is_none_or(|due| due > now) {
            return over;
        }
        for mut change in core::mem::take(&mut self.pending) {
            if change.until <= now && !in_work {
                over.push((change.request, change.number));
                continue;
            }
            if change.until <= now {
                change.until = now + grace;
            }
            self.pending.push_back(change);
        }
        over
    }

    /// Takes all changes.
    pub(super) fn take_all(&mut self) -> Vec<(RequestId, u64)> {
        core::mem::take(&mut self.pending).into_iter().map(|change| (change.request, change.number)).collect()
    }

    /// When the next change is to be withdrawn.
    pub(super) fn due(&self) -> Option<Instant> {
        self.pending.iter().map(|change| change.until).min()
    }
}
