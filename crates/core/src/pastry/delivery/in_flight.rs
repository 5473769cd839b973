//! Messages in flight: sent to the next hop and not acknowledged, or deferred until the next hop is known.

use core::time::Duration;
use std::net::SocketAddr;

use super::transit::Transit;
use crate::id::Id;
use crate::pastry::contact::Contact;
use crate::pool::Taken;
use crate::tag::StreamId;
use crate::time::Instant;

/// A message that was sent and not acknowledged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Unacked {
    pub(super) transit: Transit,
    pub(super) to: Id,
    addr: SocketAddr,
    pub(super) stream: StreamId,
    pub(super) sent: Instant,
    /// Whether the connection was established when it was sent.
    pub(super) connected: bool,
    timeout: Duration,
    /// Whether a late timer has extended its deadline.
    is_extended: bool,
    due: Instant,
}

/// A message was sent to the next hop.
#[derive(Clone, Copy)]
pub(super) struct Sent {
    pub(super) nonce: u32,
    pub(super) to: Contact,
    pub(super) taken: Taken,
    pub(super) at: Instant,
    /// How long its acknowledgement may take.
    pub(super) timeout: Duration,
}

/// Why a message is deferred.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Deferred {
    /// This node owns its key, but has not finished joining (PA-19).
    UntilActive,
    /// It is for this node, and a probe decides whether the node is alive.
    UntilVerdict(Id),
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Deferral {
    transit: Transit,
    why: Deferred,
    due: Instant,
}

/// All messages in flight. Unacknowledged ones are in slots. The number of a transmission names its slot and has 32
/// random bits. So an acknowledgement finds its message at once, and no node can guess a number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct InFlight {
    slots: Vec<Slot>,
    free: Vec<u32>,
    /// No message is due before this.
    due: Option<Instant>,
    deferred: Vec<Deferral>,
    messages_max: usize,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Slot {
    nonce: u32,
    unacked: Option<Unacked>,
}

impl InFlight {
    pub(super) fn new(messages_max: usize) -> Self {
        Self { slots: Vec::new(), free: Vec::new(), due: None, deferred: Vec::new(), messages_max }
    }

    /// Whether one more message may be taken.
    pub(super) fn has_room(&self) -> bool {
        self.slots.len() - self.free.len() < self.messages_max && self.deferred.len() < self.messages_max
    }

    /// The number that the next transmission has with this nonce.
    pub(super) fn next(&self, nonce: u32) -> u64 {
        let slot = self.free.last().map_or(self.slots.len(), |slot| *slot as usize);
        u64::from(nonce) << 32 | slot as u64
    }

    /// Inserts the transmission with the [next](InFlight::next) number of its nonce.
    pub(super) fn insert(&mut self, transit: Transit, sent: Sent) {
        let Sent { nonce, to: Contact { id: to, addr, .. }, taken, at, timeout } = sent;
        let (due, is_extended, Taken { stream, connected }) = (at + timeout, false, taken);
        let slot = self.free.pop().map_or(self.slots.len(), |slot| slot as usize);
        if slot == self.slots.len() {
            self.slots.push(Slot::default());
        }
        let slot = &mut self.slots[slot];
        slot.nonce = nonce;
        slot.unacked =
            Some(Unacked { transit, to, addr, stream, sent: at, connected, timeout, is_extended, due });
        self.due = Some(self.due.map_or(due, |first| first.min(due)));
    }

    /// The message of this transmission, if it was sent to that node.
    pub(super) fn get(&self, transmission: u64, from: &Contact) -> Option<&Unacked> {
        let slot = self.slots.get(transmission as u32 as usize)?;
        let unacked = slot.unacked.as_ref().filter(|_| u64::from(slot.nonce) == transmission >> 32)?;
        (unacked.to == from.id && unacked.addr == from.addr).then_some(unacked)
    }

    pub(super) fn take(&mut self, transmission: u64, from: &Contact) -> Option<Unacked> {
        self.get(transmission, from)?;
        self.vacate(transmission as u32)
    }

    /// Ends a transmission: another node is responsible for the message. It is dropped in place: it is large, and every
    /// message ends here.
    pub(super) fn end(&mut self, transmission: u64) {
        let slot = transmission as u32;
        if self.slots.get_mut(slot as usize).is_some_and(|slot| slot.unacked.take().is_some()) {
            self.vacated(slot);
        }
    }

    /// The messages that were not acknowledged in time. If the timer was late by more than half of the timeout, this
    /// process was paused. The acknowledgement may then wait in the kernel, so the deadline is extended once.
    pub(super) fn expired(&mut self, now: Instant) -> Vec<Unacked> {
        if self.due.is_none_or(|due| due > now) {
            return Vec::new();
        }
        let unacked = self.slots.iter_mut().filter_map(|slot| slot.unacked.as_mut());
        for unacked in unacked.filter(|unacked| unacked.due <= now && !unacked.is_extended) {
            if now.since(unacked.due) > unacked.timeout / 2 {
                (unacked.due, unacked.is_extended) = (now + unacked.timeout, true);
            }
        }
        let expired = self.drain(|unacked| unacked.due <= now);
        self.due = self.slots.iter().filter_map(|slot| slot.unacked.as_ref()).map(|at| at.due).min();
        expired
    }

    /// Takes some of the unacknowledged messages, in the order in which they were sent.
    pub(super) fn drain(&mut self, which: impl Fn(&Unacked) -> bool) -> Vec<Unacked> {
        let mut drained = Vec::new();
        for slot in 0..self.slots.len() {
            if self.slots[slot].unacked.as_ref().is_some_and(&which) {
                drained.extend(self.vacate(slot as u32));
            }
        }
        drained.sort_by_key(|unacked| unacked.sent);
        drained
    }

    /// Defers a message. Returns it if there is no room. A later attempt replaces an earlier one.
    pub(super) fn defer(&mut self, transit: Transit, why: Deferred, due: Instant) -> Option<Transit> {
        let id = transit.envelope.id;
        if let Some(same) = self.deferred.iter_mut().find(|at| at.transit.envelope.id == id) {
            if same.transit.envelope.attempt <= transit.envelope.attempt {
                *same = Deferral { transit, why, due };
            }
            return None;
        }
        if self.deferred.len() >= self.messages_max {
            return Some(transit);
        }
        self.deferred.push(Deferral { transit, why, due });
        None
    }

    /// Takes the messages deferred for this reason, in order of arrival.
    pub(super) fn resume(&mut self, why: Deferred) -> Vec<Transit> {
        self.deferred.extract_if(.., |deferral| deferral.why == why).map(|at| at.transit).collect()
    }

    /// Takes all deferred messages.
    pub(super) fn resume_all(&mut self) -> Vec<Transit> {
        self.deferred.drain(..).map(|deferral| deferral.transit).collect()
    }

    /// Takes the messages that were deferred too long.
    pub(super) fn resume_expired(&mut self, now: Instant) -> Vec<Transit> {
        self.deferred.extract_if(.., |deferral| deferral.due <= now).map(|at| at.transit).collect()
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        let deferred = self.deferred.iter().map(|deferral| deferral.due).min();
        [self.due, deferred].into_iter().flatten().min()
    }

    fn vacate(&mut self, slot: u32) -> Option<Unacked> {
        let unacked = self.slots.get_mut(slot as usize)?.unacked.take()?;
        self.vacated(slot);
        Some(unacked)
    }

    fn vacated(&mut self, slot: u32) {
        self.free.push(slot);
        if self.free.len() == self.slots.len() {
            self.due = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pastry::contact::Generation;
    use crate::pastry::message::{AppName, Body, Envelope, MessageId};
    use bytes::Bytes;

    const SECOND: Duration = Duration::from_secs(1);

    fn contact(id: u128) -> Contact {
        Contact { id: Id::new(id), addr: ([127, 0, 0, 1], 1).into(), generation: Generation(0) }
    }

    fn transit(attempt: u16) -> Transit {
        let body = Body::App { app: AppName::default(), wants_answer: false, payload: Bytes::new() };
        let (id, key, origin) = (MessageId(1), Id::MIN, contact(9));
        let (to_node, ttl, hops, lifetime_millis) = (false, 1, 0, 1000);
        Transit::new(Envelope { id, attempt, key, to_node, origin, ttl, hops, lifetime_millis, body })
    }

    fn insert(in_flight: &mut InFlight, nonce: u32) -> u64 {
        let number = in_flight.next(nonce);
        let taken = Taken { stream: StreamId::opened(1), connected: true };
        let sent = Sent { nonce, to: contact(5), taken, at: Instant::ZERO, timeout: SECOND };
        in_flight.insert(transit(0), sent);
        number
    }

    #[test]
    fn an_ack_finds_its_message_once_and_only_from_the_node_it_was_sent_to() {
        let mut in_flight = InFlight::new(2);
        let (first, second) = (insert(&mut in_flight, 77), insert(&mut in_flight, 78));
        assert!(first != second && !in_flight.has_room());
        assert!(in_flight.get(first, &contact(6)).is_none(), "another id");
        let elsewhere = Contact { addr: ([127, 0, 0, 2], 1).into(), ..contact(5) };
        assert!(in_flight.get(first, &elsewhere).is_none(), "another address");
        assert!(in_flight.get(first ^ 1 << 40, &contact(5)).is_none(), "another nonce");
        assert!(in_flight.take(first, &contact(5)).is_some() && in_flight.take(first, &contact(5)).is_none());
        let third = insert(&mut in_flight, 79);
        assert!(third != first && in_flight.get(first, &contact(5)).is_none(), "the slot is used anew");
        assert!(
            in_flight.take(third, &contact(5)).is_some() && in_flight.take(second, &contact(5)).is_some()
        );
        assert_eq!(in_flight.deadline(), None);
    }

    #[test]
    fn a_late_timer_extends_the_ack_deadline_once() {
        let mut in_flight = InFlight::new(9);
        insert(&mut in_flight, 1);
        let due = Instant::ZERO + SECOND;
        assert!(in_flight.expired(due - SECOND / 10).is_empty());
        assert_eq!(in_flight.clone().expired(due).len(), 1, "in time, it has expired");
        let late = due + 30 * SECOND;
        assert!(in_flight.expired(late).is_empty(), "this process was paused");
        assert_eq!(in_flight.deadline(), Some(late + SECOND));
        assert_eq!(in_flight.expired(late + SECOND).len(), 1, "once");
    }

    #[test]
    fn a_later_attempt_replaces_a_deferred_one() {
        let mut in_flight = InFlight::new(1);
        let (why, due) = (Deferred::UntilVerdict(Id::MIN), Instant::ZERO + SECOND);
        for attempt in [0, 2, 1] {
            assert_eq!(in_flight.defer(transit(attempt), why, due), None);
        }
        let resumed = in_flight.resume(why);
        assert_eq!(resumed.iter().map(|transit| transit.envelope.attempt).collect::<Vec<_>>(), [2]);
    }
}
