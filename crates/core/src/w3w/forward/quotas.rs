//! The bytes of queued messages by those who answer for them (CU-26).

use std::collections::BTreeMap;

use super::queue::Entry;
use crate::w3w::nid::Nid;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Quotas {
    /// Bytes held for others: all, by the peer they came from, and by sender.
    held: u64,
    held_from: BTreeMap<Nid, u64>,
    held_of: BTreeMap<Nid, u64>,
    /// Bytes of messages of this node, by recipient.
    own_to: BTreeMap<Nid, u64>,
}

impl Quotas {
    pub(super) fn add(&mut self, entry: &Entry) {
        let size = entry.envelope.size as u64;
        if entry.outbox.is_some() {
            add(&mut self.own_to, entry.envelope.recipient, size);
        } else if let Some(from) = entry.upstream.from {
            self.held += size;
            add(&mut self.held_from, from, size);
            add(&mut self.held_of, entry.envelope.sender, size);
        }
    }

    pub(super) fn subtract(&mut self, entry: &Entry) {
        let size = entry.envelope.size as u64;
        if entry.outbox.is_some() {
            subtract(&mut self.own_to, entry.envelope.recipient, size);
        } else if let Some(from) = entry.upstream.from {
            self.held -= size;
            subtract(&mut self.held_from, from, size);
            subtract(&mut self.held_of, entry.envelope.sender, size);
        }
    }

    /// Whether there is room for a message of another node. All of them may use half of the store. One neighbour may use half
    /// of what the others leave, one sender a quarter.
    pub(super) fn has_held_room(&self, quota: u64, from: Nid, sender: Nid, size: usize) -> bool {
        let (limit, size) = (quota / 2, size as u64);
        let share = |of: Option<&u64>, part: u64| {
            let own = of.copied().unwrap_or_default();
            own + size <= limit.saturating_sub(self.held - own) / part
        };
        self.held + size <= limit
            && share(self.held_from.get(&from), 2)
            && share(self.held_of.get(&sender), 4)
    }

    /// Whether one recipient may have so much more: a quarter for its open messages, and one in any case.
    pub(super) fn has_own_room(&self, quota: u64, to: Nid, size: usize) -> bool {
        self.own_to.get(&to).is_none_or(|sum| sum + size as u64 <= quota / 4)
    }
}

fn add(sums: &mut BTreeMap<Nid, u64>, nid: Nid, size: u64) {
    *sums.entry(nid).or_default() += size;
}

fn subtract(sums: &mut BTreeMap<Nid, u64>, nid: Nid, size: u64) {
    if let Some(sum) = sums.get_mut(&nid) {
        *sum -= size;
        if *sum == 0 {
            sums.remove(&nid);
        }
    }
}
