//! Lost peers: nodes that were removed because they did not answer. If one of them answers again, a partition may have
//! healed (PA-42).
//!
//! If many peers were lost, the ring was probably partitioned. For two minutes up to eight of them are probed every half
//! second, so that the ring merges within two seconds after the partition ends. If few were lost, one is probed after ten
//! seconds, and then after twice as long each time, so that probes do not keep an overloaded node busy. After that one is
//! probed every `merge_interval`.

use core::time::Duration;
use std::collections::VecDeque;

use crate::id::Id;
use crate::pastry::contact::Contact;
use crate::time::Instant;

/// How long after a loss the peers are probed more often.
const FAST_FOR: Duration = Duration::from_secs(120);
const FAST_INTERVAL: Duration = Duration::from_millis(500);
/// How many are probed each time.
const FAST_BATCH: usize = 8;
const SLOW_INTERVAL: Duration = Duration::from_secs(10);
/// The ring was probably partitioned if more than one peer was lost for this many that are left.
const LEFT_PER_LOST_MAX: usize = 3;

/// Lost peers, the next to probe first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LostPeers {
    peers: VecDeque<Contact>,
    peers_max: usize,
    last_loss: Option<Instant>,
    /// How long after the next probe another follows, if few peers are lost.
    backoff: Duration,
    due: Option<Instant>,
}

/// The peers to probe at one time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Batch {
    pub(super) lost: Vec<Contact>,
    /// Whether the next batch follows sooner than after the interval.
    pub(super) is_fast: bool,
}

impl LostPeers {
    pub(super) fn new(peers_max: usize) -> Self {
        Self { peers: VecDeque::new(), peers_max, last_loss: None, backoff: SLOW_INTERVAL, due: None }
    }

    /// Begins to look for lost parts of the ring, first at `at`.
    pub(super) fn start(&mut self, at: Instant) {
        self.due = Some(at);
    }

    /// Remembers a lost peer. At the limit the oldest is forgotten.
    pub(super) fn insert(&mut self, contact: Contact, now: Instant) {
        self.remove(contact.id);
        if self.peers.len() >= self.peers_max {
            self.peers.pop_front();
        }
        if self.peers_max > 0 {
            self.peers.push_back(contact);
            (self.last_loss, self.backoff) = (Some(now), SLOW_INTERVAL);
            self.due = self.due.map(|due| due.min(now + FAST_INTERVAL));
        }
    }

    /// Forgets a peer. Returns whether it was lost.
    pub(super) fn remove(&mut self, id: Id) -> bool {
        let before = self.peers.len();
        self.peers.retain(|contact| contact.id != id);
        self.peers.len() < before
    }

    /// The peers to probe now, if it is time; none if no peer is lost. `left` is how many peers are not lost.
    pub(super) fn due(&mut self, now: Instant, interval: Duration, left: usize) -> Option<Batch> {
        self.due.filter(|due| *due <= now)?;
        let is_recent = self.last_loss.is_some_and(|at| now.since(at) < FAST_FOR) && !self.peers.is_empty();
        let is_cut = self.peers.len() * LEFT_PER_LOST_MAX >= left;
        let (batch, pause) = match (is_recent, is_cut) {
            (true, true) => (FAST_BATCH, FAST_INTERVAL),
            (true, false) => (1, self.backoff),
            (false, _) => (1, interval),
        };
        if is_recent && !is_cut {
            self.backoff *= 2;
        }
        self.due = Some(now + pause.min(interval));
        let batch = batch.min(self.peers.len());
        let lost: Vec<Contact> = self.peers.iter().take(batch).copied().collect();
        self.peers.rotate_left(batch);
        Some(Batch { lost, is_fast: is_recent })
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        self.due
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pastry::contact::Generation;

    #[test]
    fn pa_42_lost_peers_are_probed_every_second_at_least_at_first() {
        let contact = |id: u128| Contact {
            id: Id::new(id),
            addr: ([127, 0, 0, 1], 1).into(),
            generation: Generation(1),
        };
        let (minute, mut now) = (Duration::from_secs(60), Instant::from_micros(1_000_000));
        let mut lost = LostPeers::new(12);
        lost.start(now + minute);
        (1..=13).for_each(|id| lost.insert(contact(id), now));
        let mut probed = vec![0; 14];
        while now < Instant::from_micros(1_000_000) + FAST_FOR {
            let batch = lost.due(now, minute, 18).map(|batch| batch.lost).unwrap_or_default();
            batch.iter().for_each(|contact| probed[contact.id.number() as usize] += 1);
            now = lost.deadline().expect("it goes on");
        }
        assert_eq!(probed[1], 0, "the oldest was forgotten");
        assert!(probed[2..].iter().all(|times| (155..=165).contains(times)), "{probed:?}");
        assert_eq!(
            lost.due(now, minute, 18).map(|batch| (batch.lost.len(), batch.is_fast)),
            Some((1, false))
        );
        assert_eq!(lost.deadline(), Some(now + minute));
        let mut few = LostPeers::new(6);
        few.start(now + minute);
        few.insert(contact(1), now);
        assert_eq!(few.due(now + FAST_INTERVAL, minute, 18).map(|batch| batch.lost.len()), Some(1));
        assert_eq!(few.deadline(), Some(now + FAST_INTERVAL + SLOW_INTERVAL), "an overloaded node gets time");
        now = now + FAST_INTERVAL + SLOW_INTERVAL;
        assert!(few.due(now, minute, 18).is_some());
        assert_eq!(few.deadline(), Some(now + SLOW_INTERVAL * 2), "twice as long each time");
        assert!(lost.remove(Id::new(3)) && !lost.remove(Id::new(3)));
    }
}
