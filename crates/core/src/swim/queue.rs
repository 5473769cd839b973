//! The broadcast queue: broadcasts by priority, each with a transmit limit (S-85 … S-98).

use std::collections::{BTreeMap, BTreeSet};

/// A message for all members.
pub trait Broadcast {
    /// The subject. The queue has at most one broadcast per subject.
    type Subject: Clone + Ord;

    /// The subject; `None` if it has none, as a user message.
    fn subject(&self) -> Option<Self::Subject>;

    /// Whether this new broadcast replaces the queued `old` one of the same subject (SA-46).
    fn invalidates(&self, old: &Self) -> bool;

    /// Its bytes in a packet, frame included (SA-48).
    fn size(&self) -> usize;
}

/// Why a broadcast has ended (S-88). Each ends exactly once (SA-49).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Done {
    /// It was sent as often as its limit allows.
    Limit,
    /// A newer one of the same subject replaced it, or was queued already.
    Invalidated,
    /// The queue was emptied.
    Stopped,
}

/// The result of a push.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pushed {
    /// It is queued.
    Queued,
    /// A newer one of the same subject is queued already.
    Stale,
}

/// A broadcast and how often it went out.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Limited<B> {
    broadcast: B,
    transmits: u32,
}

/// Fewest transmissions first, then the smallest, then the oldest (S-95, S-96, SA-47).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    transmits: u32,
    size: u32,
    number: u64,
}

/// The queued broadcasts.
///
/// Selecting for a packet costs the selected ones and one step per number of transmissions, however many are queued.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BroadcastQueue<B: Broadcast> {
    ranked: BTreeSet<Rank>,
    waiting: BTreeMap<u64, Limited<B>>,
    subjects: BTreeMap<B::Subject, u64>,
    pushes: u64,
    finished: Vec<(B, Done)>,
}

impl<B: Broadcast> Default for BroadcastQueue<B> {
    fn default() -> Self {
        Self {
            ranked: BTreeSet::new(),
            waiting: BTreeMap::new(),
            subjects: BTreeMap::new(),
            pushes: 0,
            finished: Vec::new(),
        }
    }
}

impl<B: Broadcast> BroadcastQueue<B> {
    /// An empty queue.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Queues a broadcast. It replaces one that it invalidates. If the queued one is newer, the new one ends at once.
    /// The caller limits the length ([`BroadcastQueue::len`]): user broadcasts are limited, those of the protocol are
    /// one per subject (SA-45).
    pub fn push(&mut self, broadcast: B) -> Pushed {
        if let Some(old) = broadcast.subject().and_then(|subject| self.subjects.get(&subject).copied()) {
            if !self.waiting.get(&old).is_some_and(|waiting| broadcast.invalidates(&waiting.broadcast)) {
                self.finished.push((broadcast, Done::Invalidated));
                return Pushed::Stale;
            }
            self.finish(old, Done::Invalidated);
        }
        self.pushes += 1;
        if let Some(subject) = broadcast.subject() {
            self.subjects.insert(subject, self.pushes);
        }
        let limited = Limited { broadcast, transmits: 0 };
        self.ranked.insert(rank(self.pushes, &limited));
        self.waiting.insert(self.pushes, limited);
        Pushed::Queued
    }

    /// Selects broadcasts for a packet with `size` bytes left, each at most once, and passes them to `take` in order of
    /// priority. It skips those that do not fit. A broadcast ends once it was sent `limit` times, also if the limit
    /// fell because the group shrank.
    pub fn select(&mut self, size: usize, limit: u32, mut take: impl FnMut(&B)) {
        let limit = limit.max(1);
        let mut left = size;
        let mut chosen = Vec::new();
        let mut from = Rank { transmits: 0, size: 0, number: 0 };
        while left > 0 {
            let Some(&rank) = self.ranked.range(from..).next() else { break };
            if rank.transmits >= limit {
                break;
            }
            if rank.size as usize > left {
                // The rest of those sent equally often is no smaller: continue with those sent more often.
                from = Rank { transmits: rank.transmits + 1, size: 0, number: 0 };
                continue;
            }
            left -= rank.size as usize;
            chosen.push(rank);
            from = Rank { number: rank.number + 1, ..rank };
        }
        for old in chosen {
            self.sent(old, &mut take);
        }
        while let Some(last) = self.ranked.last().copied().filter(|last| last.transmits >= limit) {
            self.finish(last.number, Done::Limit);
        }
    }

    /// Removes the broadcast of this subject, if one is queued.
    pub fn withdraw(&mut self, subject: &B::Subject) {
        if let Some(number) = self.subjects.get(subject).copied() {
            self.finish(number, Done::Invalidated);
        }
    }

    /// Ends all broadcasts.
    pub fn clear(&mut self) {
        let numbers: Vec<u64> = self.waiting.keys().copied().collect();
        for number in numbers {
            self.finish(number, Done::Stopped);
        }
    }

    /// Takes the broadcasts that ended since the last call, in the order in which they ended.
    pub fn take_finished(&mut self) -> Vec<(B, Done)> {
        core::mem::take(&mut self.finished)
    }

    /// How many wait (S-94).
    #[must_use]
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Whether none waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// The queued broadcasts in order of priority, and how often each was sent.
    pub fn iter(&self) -> impl Iterator<Item = (&B, u32)> {
        self.ranked
            .iter()
            .filter_map(|rank| self.waiting.get(&rank.number))
            .map(|limited| (&limited.broadcast, limited.transmits))
    }

    fn sent(&mut self, old: Rank, take: &mut impl FnMut(&B)) {
        self.ranked.remove(&old);
        if let Some(limited) = self.waiting.get_mut(&old.number) {
            take(&limited.broadcast);
            limited.transmits += 1;
            self.ranked.insert(rank(old.number, limited));
        }
    }

    fn finish(&mut self, number: u64, why: Done) {
        let Some(limited) = self.waiting.remove(&number) else { return };
        self.ranked.remove(&rank(number, &limited));
        if let Some(subject) = limited.broadcast.subject() {
            self.subjects.remove(&subject);
        }
        self.finished.push((limited.broadcast, why));
    }

    /// Queues a broadcast as if it had been sent this many times, for tests that start in the middle.
    #[cfg(test)]
    pub(super) fn push_sent(&mut self, broadcast: B, transmits: u32) {
        self.push(broadcast);
        let number = self.pushes;
        let limited = self.waiting.get_mut(&number).unwrap();
        self.ranked.remove(&rank(number, limited));
        limited.transmits = transmits;
        self.ranked.insert(rank(number, limited));
    }
}

fn rank<B: Broadcast>(number: u64, limited: &Limited<B>) -> Rank {
    let size = u32::try_from(limited.broadcast.size()).unwrap_or(u32::MAX);
    Rank { transmits: limited.transmits, size, number }
}
