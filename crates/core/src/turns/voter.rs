//! The voter: leases, numbers and the durable bound (TU-11, TU-12). It decides; the machine sends and stores.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;

use super::message::{Ask, Ended, Key, LeaseSeen, Verdict};
use super::queue::Queue;
use super::record::milliseconds;
use crate::id::Id;
use crate::time::Instant;
use crate::wire::{DecodeError, Reader, Writer};

/// How far a bound is written ahead of the number that needs it.
pub(super) const RESERVE: u64 = 65_536;

/// A name without an Ask for this long is forgotten.
const FORGET_AFTER: Duration = Duration::from_secs(3600);

/// The interval of the search for such names.
const SWEEP: Duration = Duration::from_secs(600);

/// The most released sessions remembered. A late renewal of a forgotten one blocks its name for one lease at most.
const RELEASED_MAX: usize = 4096;

/// A lease in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Lease {
    holder: Id,
    session: u64,
    number: u64,
    until: Instant,
}

/// One name.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Slot {
    lease: Option<Lease>,
    top: u64,
    queue: Queue,
    used: Instant,
    /// When this slot is to be checked.
    wake: Option<Instant>,
}

/// The decision of a voter about an Ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Decision {
    /// It answers.
    Answer(Verdict),
    /// It must first make a bound durable that covers the number.
    NeedsBound,
    /// It does not answer: the Ask breaks a rule, or there is no room.
    Refuse(&'static str),
}

/// The waiter for which a name became free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Call {
    pub(super) to: SocketAddr,
    pub(super) key: Key,
    pub(super) top: u64,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Voter {
    names_max: usize,
    slots: BTreeMap<Key, Slot>,
    wakes: BTreeSet<(Instant, Key)>,
    /// The number above which every name starts.
    floor: u64,
    /// Durable: every number ever granted is at most this.
    bound: u64,
    /// The greatest fence of this node's token ledger: a group starts above it (TU-8).
    ledger_fence: u64,
    released: BTreeMap<u64, Instant>,
    released_order: VecDeque<u64>,
    sweep_at: Option<Instant>,
}

impl Voter {
    pub(super) fn new(names_max: usize) -> Self {
        Self {
            names_max,
            slots: BTreeMap::new(),
            wakes: BTreeSet::new(),
            floor: 0,
            bound: 0,
            ledger_fence: 0,
            released: BTreeMap::new(),
            released_order: VecDeque::new(),
            sweep_at: None,
        }
    }

    /// Raises the floor: every name without a lease starts above it.
    pub(super) fn raise_floor(&mut self, floor: u64) {
        self.floor = self.floor.max(floor);
    }

    /// Notes that a bound is durable.
    pub(super) fn bound_written(&mut self, bound: u64) {
        self.bound = self.bound.max(bound);
    }

    pub(super) fn saw_ledger_fence(&mut self, fence: u64) {
        self.ledger_fence = self.ledger_fence.max(fence);
    }

    /// The bound for other nodes: a group that is founded starts above it.
    pub(super) fn told_bound(&self) -> u64 {
        self.bound.max(self.ledger_fence)
    }

    pub(super) fn bound(&self) -> u64 {
        self.bound
    }

    pub(super) fn floor(&self) -> u64 {
        self.floor
    }

    /// The bound to write so that this number may be granted.
    pub(super) fn bound_for(&self, number: u64) -> u64 {
        number.max(self.floor).saturating_add(RESERVE)
    }

    /// The greatest number of a name here.
    pub(super) fn top(&self, key: Key) -> u64 {
        self.slots.get(&key).map_or(self.floor, |slot| slot.top.max(self.floor))
    }

    /// Decides on an Ask; a grant takes effect at once.
    pub(super) fn ask(
        &mut self,
        now: Instant,
        from: SocketAddr,
        ask: &Ask,
        lease_max: Duration,
        needs_bound: bool,
    ) -> Decision {
        let length = Duration::from_millis(u64::from(ask.length_ms));
        if length > lease_max || ask.session == 0 {
            return Decision::Refuse("an Ask that no asker sends");
        }
        if self.released.get(&ask.session).is_some_and(|until| now < *until) {
            return Decision::Refuse("a session that was released");
        }
        if !self.slots.contains_key(&ask.key) && !self.make_room(now) {
            return Decision::Refuse("too many names");
        }
        let (floor, bound) = (self.floor, self.bound);
        let slot = self.slots.entry(ask.key).or_insert_with(|| Slot {
            lease: None,
            top: floor,
            queue: Queue::default(),
            used: now,
            wake: None,
        });
        self.sweep_at.get_or_insert(now + SWEEP);
        slot.used = now;
        let top = slot.top.max(floor);
        let live = slot.lease.filter(|lease| now < lease.until);
        let own = live.filter(|lease| lease.session == ask.session);
        let held = match (live, own) {
            (Some(lease), None) => Some((lease.holder, lease.number, lease.until)),
            (None, _) if !ask.renew => {
                let reserved = slot.queue.reserved_for_other(now, from);
                reserved.map(|(first, until)| (first.node, 0, until))
            }
            _ => None,
        };
        if let Some((holder, number, until)) = held {
            if ask.queue {
                slot.queue.refresh(now, ask.holder, from, Duration::from_millis(u64::from(ask.waited_ms)));
            }
            self.schedule(ask.key);
            let left_ms = milliseconds(until.since(now));
            return Decision::Answer(Verdict::Held { holder, number, left_ms });
        }
        let repeated = own.is_some_and(|lease| lease.number == ask.number);
        if !ask.renew && !repeated && ask.number <= top {
            return Decision::Answer(Verdict::Behind);
        }
        if ask.number > bound && needs_bound {
            return Decision::NeedsBound;
        }
        slot.top = top.max(ask.number);
        let until = own.map_or(now + length, |lease| lease.until.max(now + length));
        let number = own.map_or(ask.number, |lease| lease.number.max(ask.number));
        slot.lease = Some(Lease { holder: ask.holder, session: ask.session, number, until });
        if ask.renew {
            slot.queue.remove(from);
        } else if ask.queue {
            // An asker without a majority waits on. If it left the queue with a grant, two askers that each have one of two
            // votes would each be called by the other's voter, again and again.
            slot.queue.refresh(now, ask.holder, from, Duration::from_millis(u64::from(ask.waited_ms)));
        }
        self.schedule(ask.key);
        Decision::Answer(Verdict::Granted)
    }

    /// Ends the lease of a session, and calls the first waiter.
    pub(super) fn release(
        &mut self,
        now: Instant,
        from: SocketAddr,
        ended: &Ended,
        lease_max: Duration,
    ) -> Option<Call> {
        if ended.session != 0 {
            self.remember_released(ended.session, now + lease_max * 2);
        }
        let floor = self.floor;
        let slot = self.slots.get_mut(&ended.key)?;
        slot.used = now;
        if ended.session == 0 {
            slot.queue.remove(from);
        } else {
            // A number above the bound was not granted here. It only raises the top, so the bound needs no sync for it.
            slot.top = slot.top.max(ended.number).max(floor);
        }
        if slot.lease.take_if(|lease| lease.session == ended.session).is_some() {
            // The next call is for another waiter. Else an attempt that outlasts this one would wait behind it for ever.
            slot.queue.remove(from);
        }
        self.look(now, ended.key)
    }

    /// Handles what is due: expired leases with waiters, unused reservations, and forgotten names.
    pub(super) fn poll(&mut self, now: Instant) -> Vec<Call> {
        let mut calls = Vec::new();
        while let Some((at, key)) = self.wakes.first().copied().filter(|(at, _)| *at <= now) {
            self.wakes.remove(&(at, key));
            if let Some(slot) = self.slots.get_mut(&key) {
                slot.wake = None;
            }
            calls.extend(self.look(now, key));
        }
        if self.sweep_at.is_some_and(|at| at <= now) {
            self.sweep(now);
        }
        calls
    }

    pub(super) fn next(&self) -> Option<Instant> {
        self.wakes.first().map(|(at, _)| *at).into_iter().chain(self.sweep_at).min()
    }

    /// The lease of a name, for display.
    pub(super) fn seen(&self, now: Instant, key: Key) -> LeaseSeen {
        let slot = self.slots.get(&key);
        let lease = slot.and_then(|slot| slot.lease).filter(|lease| now < lease.until);
        LeaseSeen {
            holder: lease.map(|lease| lease.holder),
            number: self.top(key),
            left_ms: lease.map_or(0, |lease| milliseconds(lease.until.since(now))),
            waiting: slot.map_or(0, |slot| slot.queue.len() as u16),
        }
    }

    /// All leases in force, for a voter that stops in good order (TU-19).
    pub(super) fn encode_leases(&self, now: Instant, writer: &mut Writer<'_>) {
        for (key, slot) in &self.slots {
            let Some(lease) = slot.lease.filter(|lease| now < lease.until) else { continue };
            writer.bytes(&key.0);
            writer.bytes(&lease.holder.to_bytes());
            writer.u64(lease.session);
            writer.u64(lease.number);
            writer.u64(lease.until.as_micros());
        }
    }

    /// Restores leases from before a stop in good order.
    pub(super) fn restore_leases(
        &mut self,
        now: Instant,
        reader: &mut Reader<'_>,
    ) -> Result<(), DecodeError> {
        while reader.remaining() > 0 {
            let key = Key(reader.array()?);
            let holder = Id::from_bytes(reader.array()?);
            let (session, number) = (reader.u64()?, reader.u64()?);
            let until = Instant::from_micros(reader.u64()?);
            let lease = Some(Lease { holder, session, number, until });
            let slot = Slot { lease, top: number, queue: Queue::default(), used: now, wake: None };
            self.slots.insert(key, slot);
            self.sweep_at.get_or_insert(now + SWEEP);
        }
        Ok(())
    }

    /// Forgets everything but bound and floor.
    pub(super) fn forget_leases(&mut self) {
        let top = self.slots.values().map(|slot| slot.top).max().unwrap_or(0);
        self.raise_floor(top);
        self.slots.clear();
        self.wakes.clear();
        self.sweep_at = None;
    }

    /// Calls the first waiter of a name that is free, and schedules the next check of the slot.
    fn look(&mut self, now: Instant, key: Key) -> Option<Call> {
        let floor = self.floor;
        let slot = self.slots.get_mut(&key)?;
        slot.lease.take_if(|lease| lease.until <= now);
        slot.queue.drop_absent(now);
        let is_free = slot.lease.is_none() && slot.queue.reserved_until().is_none();
        let first = if is_free { slot.queue.call(now) } else { None };
        let top = slot.top.max(floor);
        self.schedule(key);
        first.map(|waiter| Call { to: waiter.at, key, top })
    }

    /// Schedules the check of a slot at the end of its lease or reservation, if a node waits.
    fn schedule(&mut self, key: Key) {
        let Some(slot) = self.slots.get_mut(&key) else { return };
        let ends = slot.lease.map(|lease| lease.until).or(slot.queue.reserved_until());
        let wake = ends.filter(|_| !slot.queue.is_empty());
        if slot.wake != wake {
            if let Some(at) = core::mem::replace(&mut slot.wake, wake) {
                self.wakes.remove(&(at, key));
            }
            self.wakes.extend(wake.map(|at| (at, key)));
        }
    }

    fn sweep(&mut self, now: Instant) {
        let forgotten = |slot: &Slot| {
            now.since(slot.used) >= FORGET_AFTER && slot.lease.is_none_or(|lease| lease.until <= now)
        };
        let gone: Vec<Key> =
            self.slots.iter().filter(|(_, slot)| forgotten(slot)).map(|(key, _)| *key).collect();
        gone.into_iter().for_each(|key| self.forget(key));
        self.sweep_at = (!self.slots.is_empty()).then(|| now + SWEEP);
    }

    /// Forgets a name; its top becomes the floor of all unknown names (TU-11).
    fn forget(&mut self, key: Key) {
        if let Some(slot) = self.slots.remove(&key) {
            self.raise_floor(slot.top);
            if let Some(at) = slot.wake {
                self.wakes.remove(&(at, key));
            }
        }
    }

    /// Makes room for one more name. Returns false if all are in use.
    fn make_room(&mut self, now: Instant) -> bool {
        if self.slots.len() < self.names_max {
            return true;
        }
        let idle = self
            .slots
            .iter()
            .filter(|(_, slot)| slot.lease.is_none_or(|lease| lease.until <= now) && slot.queue.is_empty());
        let oldest = idle.min_by_key(|(_, slot)| slot.used).map(|(key, _)| *key);
        oldest.map(|key| self.forget(key)).is_some()
    }

    fn remember_released(&mut self, session: u64, until: Instant) {
        if self.released.insert(session, until).is_none() {
            self.released_order.push_back(session);
        }
        if self.released_order.len() > RELEASED_MAX {
            let oldest = self.released_order.pop_front();
            oldest.and_then(|session| self.released.remove(&session));
        }
    }
}
