//! The relays: messages that were passed on and wait for their acknowledgement, and messages that are held until it is
//! known what becomes of the node they are for.

use core::time::Duration;

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
    /// How long it had been under way by then, at most.
    pub(super) before: Duration,
    /// The owner it was sent to without an answer, and which life of it: perhaps it was delivered there.
    pub(super) perhaps: Option<(Id, Incarnation)>,
}

impl Passage {
    pub(super) fn new(envelope: Envelope, taken: Instant) -> Self {
        Self { envelope, tried: Vec::new(), tries: 0, taken, before: Duration::ZERO, perhaps: None }
    }

    /// How long it has been under way, at most.
    pub(super) fn age(&self, now: Instant) -> Duration {
        self.before.saturating_add(now.since(self.taken))
    }

    /// There may be another of it.
    pub(super) fn doubt(&mut self) {
        if self.envelope.copies == Copies::One {
            self.envelope.copies = Copies::Doubtful;
        }
    }

    /// A node that did not acknowledge it may have it all the same. False if there are too many of them.
    pub(super) fn doubt_of(&mut self, node: Id) -> bool {
        self.doubt();
        let Envelope { copies, doubted, .. } = &mut self.envelope;
        if *copies == Copies::Many || doubted.contains(&node) {
            return true;
        }
        doubted.push(node);
        doubted.len() <= Envelope::DOUBTED_MAX
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
    /// Whether it said when it was sent (PA-36b).
    pub(super) stamped: bool,
    /// Whether the connection stood when it was sent.
    pub(super) connected: bool,
    /// When its acknowledgement was first due.
    pub(super) first_due: Instant,
    pub(super) due: Instant,
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

/// All of them. Those passed on lie in slots; the number of a transmission names its slot and how often that was used, so
/// an acknowledgement finds its message at once and an old one finds nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Relays {
    slots: Vec<Slot>,
    free: Vec<u32>,
    /// None is due before this.
    due: Option<Instant>,
    held: Vec<Holding>,
    relays_max: usize,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Slot {
    used: u32,
    relay: Option<Relay>,
}

/// The number of a transmission that nobody waits for.
pub(super) const UNTRACKED: u64 = u64::MAX;

impl Relays {
    pub(super) fn new(relays_max: usize) -> Self {
        Self { slots: Vec::new(), free: Vec::new(), due: None, held: Vec::new(), relays_max }
    }

    /// Whether one more message may be taken.
    pub(super) fn has_room(&self) -> bool {
        self.slots.len() - self.free.len() < self.relays_max && self.held.len() < self.relays_max
    }

    /// The number that the next transmission will have.
    pub(super) fn next(&self) -> u64 {
        let slot = self.free.last().map_or(self.slots.len(), |slot| *slot as usize);
        let used = self.slots.get(slot).map_or(0, |slot| slot.used);
        u64::from(used) << 32 | slot as u64
    }

    /// Takes in the transmission of the [next](Relays::next) number.
    pub(super) fn insert(
        &mut self,
        passage: Passage,
        (to, last, stamped): (Id, bool, bool),
        taken: Taken,
        now: Instant,
        timeout: Duration,
    ) {
        let due = now + timeout;
        let Taken { stream, connected } = taken;
        let relay = Relay { passage, to, stream, sent: now, last, stamped, connected, first_due: due, due };
        match self.free.pop() {
            Some(slot) => self.slots[slot as usize].relay = Some(relay),
            None => self.slots.push(Slot { used: 0, relay: Some(relay) }),
        }
        self.due = Some(self.due.map_or(due, |first| first.min(due)));
    }

    /// The message that waits for the acknowledgement of this transmission.
    pub(super) fn get(&self, transmission: u64) -> Option<&Relay> {
        let slot = self.slots.get(transmission as u32 as usize)?;
        slot.relay.as_ref().filter(|_| u64::from(slot.used) == transmission >> 32)
    }

    pub(super) fn take(&mut self, transmission: u64) -> Option<Relay> {
        self.get(transmission)?;
        self.vacate(transmission as u32)
    }

    /// Another node has it. Dropped where it lies: it is large, and this happens to every message.
    pub(super) fn end(&mut self, transmission: u64) {
        if self.get(transmission).is_some() {
            self.slots[transmission as u32 as usize].relay = None;
            self.vacated(transmission as u32);
        }
    }

    /// Those that were not acknowledged in time. If we look later than `grace` after that, it is we who stood still, and
    /// the acknowledgement may wait in the kernel: it gets that much time more, once. `more` may give them more time, too.
    pub(super) fn expired(
        &mut self,
        now: Instant,
        grace: Duration,
        mut more: impl FnMut(&Relay) -> Option<Instant>,
    ) -> Vec<Relay> {
        if self.due.is_none_or(|due| due > now) {
            return Vec::new();
        }
        let relays = self.slots.iter_mut().filter_map(|slot| slot.relay.as_mut());
        for relay in relays.filter(|relay| relay.due <= now) {
            if relay.due == relay.first_due && now.since(relay.due) >= grace {
                relay.due = now + grace;
            } else if let Some(due) = more(relay) {
                relay.due = due;
            }
        }
        let expired = self.drain(|relay| relay.due <= now);
        self.due = self.slots.iter().filter_map(|slot| slot.relay.as_ref()).map(|relay| relay.due).min();
        expired
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

    /// Those that went by a connection that is lost, or to a node that is, in the order they went.
    pub(super) fn drain(&mut self, which: impl Fn(&Relay) -> bool) -> Vec<Relay> {
        let mut drained = Vec::new();
        for slot in 0..self.slots.len() {
            if self.slots[slot].relay.as_ref().is_some_and(&which) {
                drained.extend(self.vacate(slot as u32));
            }
        }
        drained.sort_by_key(|relay| relay.sent);
        drained
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

    /// Lets go all that is held.
    pub(super) fn release_all(&mut self) -> Vec<Passage> {
        self.held.drain(..).map(|holding| holding.passage).collect()
    }

    /// Lets go what was held too long.
    pub(super) fn release_expired(&mut self, now: Instant) -> Vec<(Passage, Held)> {
        let expired = self.held.extract_if(.., |holding| holding.due <= now);
        expired.map(|holding| (holding.passage, holding.why)).collect()
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        let held = self.held.iter().map(|holding| holding.due).min();
        [self.due, held].into_iter().flatten().min()
    }

    fn vacate(&mut self, slot: u32) -> Option<Relay> {
        let relay = self.slots.get_mut(slot as usize)?.relay.take()?;
        self.vacated(slot);
        Some(relay)
    }

    fn vacated(&mut self, slot: u32) {
        let at = &mut self.slots[slot as usize];
        at.used = at.used.wrapping_add(1);
        self.free.push(slot);
        if self.free.len() == self.slots.len() {
            self.due = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pastry::{AppName, Body, Contact, MessageId};

    const SECOND: Duration = Duration::from_secs(1);

    fn insert(relays: &mut Relays, at: u64) -> u64 {
        let origin = Contact { id: Id::MIN, addr: ([127, 0, 0, 1], 1).into(), incarnation: Incarnation(0) };
        let body = Body::App { app: AppName::default(), ask: false, payload: Vec::new() };
        let (id, key, copies) = (MessageId(1), Id::MIN, Copies::One);
        let envelope = Envelope::new(id, key, origin, 1, copies, body);
        let number = relays.next();
        let now = Instant::from_micros(at);
        let taken = Taken { stream: StreamId::opened(1), connected: true };
        relays.insert(Passage::new(envelope, now), (Id::MIN, false, true), taken, now, SECOND);
        number
    }

    #[test]
    fn an_acknowledgement_finds_its_message_once_and_no_later_one() {
        let mut relays = Relays::new(2);
        let (first, second) = (insert(&mut relays, 0), insert(&mut relays, 0));
        assert!(first != second && !relays.has_room());
        assert!(relays.take(first).is_some() && relays.take(first).is_none());
        let third = insert(&mut relays, 0);
        assert!(third != first && relays.get(first).is_none(), "the slot is another's by now");
        assert!(relays.take(UNTRACKED).is_none());
        assert!(relays.take(third).is_some() && relays.take(second).is_some());
        assert_eq!(relays.deadline(), None);
    }

    #[test]
    fn who_looks_late_gives_the_acknowledgement_a_moment_more() {
        let mut relays = Relays::new(9);
        insert(&mut relays, 0);
        let (due, grace) = (Instant::from_micros(1_000_000), SECOND / 5);
        assert!(relays.expired(due - SECOND / 10, grace, |_| None).is_empty());
        assert_eq!(relays.clone().expired(due, grace, |_| None).len(), 1, "in time, it has run out");
        assert!(
            relays.clone().expired(due, grace, |relay| Some(relay.due + grace)).is_empty(),
            "but for more"
        );
        let late = due + 30 * SECOND;
        assert!(relays.expired(late, grace, |_| None).is_empty(), "we stood still: it may lie in the kernel");
        assert_eq!(relays.deadline(), Some(late + grace));
        assert_eq!(relays.expired(late + grace, grace, |_| None).len(), 1, "once");
    }
}
