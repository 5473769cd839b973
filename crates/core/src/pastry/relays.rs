//! The relays: messages that were passed on and wait for their acknowledgement, and messages that are held until it is
//! known what becomes of the node they are for.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use super::contact::Incarnation;
use super::message::{Copies, Envelope};
use crate::id::Id;
use crate::pool::Taken;
use crate::tag::StreamId;
use crate::time::Instant;

/// A message and what was tried with it here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Passage {
    pub(super) envelope: Envelope,
    /// The nodes it was sent to in vain.
    pub(super) tried: Vec<Id>,
    /// How often it was sent from here in vain.
    pub(super) tries: usize,
    /// When it came here.
    pub(super) taken: Instant,
    /// The owner it was sent to without an answer, and which life of it: perhaps it was delivered there.
    pub(super) perhaps: Option<(Id, Incarnation)>,
}

impl Passage {
    pub(super) fn new(envelope: Envelope, taken: Instant) -> Self {
        Self { envelope, tried: Vec::new(), tries: 0, taken, perhaps: None }
    }

    /// A node that did not acknowledge it may have it all the same.
    pub(super) fn doubt(&mut self) {
        if self.envelope.copies == Copies::One {
            self.envelope.copies = Copies::Doubtful;
        }
    }
}

/// A message passed on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Relay {
    pub(super) passage: Passage,
    pub(super) to: Id,
    pub(super) stream: StreamId,
    pub(super) sent: Instant,
    /// Whether it went to the owner of its key.
    pub(super) last: bool,
    /// Whether the connection stood when it was sent.
    pub(super) connected: bool,
    /// When its acknowledgement was first due.
    pub(super) first_due: Instant,
    due: Instant,
}

/// Why a message is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Held {
    /// We are its owner, but have not finished joining (PA-19).
    UntilActive,
    /// It is for this node, and whether that lives is being found out.
    UntilVerdict(Id),
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Holding {
    passage: Passage,
    why: Held,
    due: Instant,
}

/// All of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Relays {
    list: BTreeMap<u64, Relay>,
    due: BTreeSet<(Instant, u64)>,
    held: Vec<Holding>,
    next: u64,
    relays_max: usize,
}

impl Relays {
    pub(super) fn new(relays_max: usize) -> Self {
        Self { list: BTreeMap::new(), due: BTreeSet::new(), held: Vec::new(), next: 0, relays_max }
    }

    /// Whether one more message may be taken.
    pub(super) fn has_room(&self) -> bool {
        self.list.len() < self.relays_max && self.held.len() < self.relays_max
    }

    /// The number of the next transmission.
    pub(super) fn allot(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    pub(super) fn insert(
        &mut self,
        transmission: u64,
        passage: Passage,
        (to, last): (Id, bool),
        taken: Taken,
        now: Instant,
        timeout: Duration,
    ) {
        let due = now + timeout;
        let Taken { stream, connected } = taken;
        self.list.insert(transmission, Relay { passage, to, stream, sent: now, last, connected, first_due: due, due });
        self.due.insert((due, transmission));
    }

    /// To whom a transmission went.
    pub(super) fn to(&self, transmission: u64) -> Option<Id> {
        self.list.get(&transmission).map(|relay| relay.to)
    }

    pub(super) fn take(&mut self, transmission: u64) -> Option<Relay> {
        let relay = self.list.remove(&transmission)?;
        self.due.remove(&(relay.due, transmission));
        Some(relay)
    }

    /// The next one that was not acknowledged in time. If we look later than `grace` after that, it is we who stood
    /// still, and the acknowledgement may wait in the kernel: it gets that much time more, once.
    pub(super) fn expired(&mut self, now: Instant, grace: Duration) -> Option<Relay> {
        loop {
            let &(due, transmission) = self.due.first()?;
            if due > now {
                return None;
            }
            match self.list.get_mut(&transmission) {
                Some(relay) if due == relay.first_due && now.since(due) >= grace => {
                    relay.due = now + grace;
                    self.due.pop_first();
                    self.due.insert((now + grace, transmission));
                }
                _ => return self.take(transmission),
            }
        }
    }

    /// All that is under way and all that is held, of a kind.
    pub(super) fn drain_all(&mut self, which: impl Fn(&Passage) -> bool) -> Vec<Passage> {
        let mut passages: Vec<Passage> =
            self.drain(|relay| which(&relay.passage)).into_iter().map(|relay| relay.passage).collect();
        passages.extend(
            self.held.extract_if(.., |holding| which(&holding.passage)).map(|holding| holding.passage),
        );
        passages
    }

    /// Those that went by a connection that is lost, or to a node that is.
    pub(super) fn drain(&mut self, which: impl Fn(&Relay) -> bool) -> Vec<Relay> {
        let numbers: Vec<u64> =
            self.list.iter().filter(|(_, relay)| which(relay)).map(|(number, _)| *number).collect();
        numbers.into_iter().filter_map(|number| self.take(number)).collect()
    }

    /// Holds a message; gives it back if there is no room.
    pub(super) fn hold(&mut self, passage: Passage, why: Held, due: Instant) -> Option<Passage> {
        if self.held.len() >= self.relays_max {
            return Some(passage);
        }
        self.held.push(Holding { passage, why, due });
        None
    }

    /// Lets go what is held for this reason, in the order it came.
    pub(super) fn release(&mut self, why: Held) -> Vec<Passage> {
        self.held.extract_if(.., |holding| holding.why == why).map(|holding| holding.passage).collect()
    }

    /// Lets go what was held too long.
    pub(super) fn release_expired(&mut self, now: Instant) -> Vec<(Passage, Held)> {
        let expired = self.held.extract_if(.., |holding| holding.due <= now);
        expired.map(|holding| (holding.passage, holding.why)).collect()
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        let held = self.held.iter().map(|holding| holding.due).min();
        [self.due.first().map(|(due, _)| *due), held].into_iter().flatten().min()
    }
}
