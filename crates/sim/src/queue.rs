//! The event queue: a heap of small entries ordered by time, then by the order of insertion.
//!
//! Payloads lie in slabs elsewhere and an entry names them by number, so that moving an entry through the heap
//! moves 32 bytes whatever is to happen.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use crate::host::HostId;
use crate::stream::EndKey;

/// One thing that is to happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// A host is to be started.
    Start(HostId),
    /// A host's machine may want to be woken.
    Wake(HostId),
    /// A host is free to take its queued inputs.
    Drain(HostId),
    /// The datagram in this slot arrives.
    Datagram(u32),
    /// The segment in this slot arrives.
    Segment(u32),
    /// A machine gets the pending events of its stream.
    Pump(EndKey),
    /// A stream's retransmission timer may have run out.
    Retransmit(EndKey),
    /// A watched stream's kernel is to be looked at.
    Look(EndKey),
    /// A stream's keep-alive timer may have run out.
    Probe(EndKey),
    /// The store answer in this slot is ready.
    Stored(u32),
    /// The step in this slot of the schedule is due.
    Step(u32),
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    /// Time above, order of arrival below: one comparison decides.
    key: u128,
    what: What,
}

impl Entry {
    fn at(&self) -> u64 {
        (self.key >> 64) as u64
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key
    }
}

impl Eq for Entry {}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }

    // The heap compares with `<=`, which through `partial_cmp` costs three times as much.
    fn le(&self, other: &Self) -> bool {
        other.key <= self.key
    }
}

impl Ord for Entry {
    /// The reverse of time: the heap gives its greatest entry first.
    fn cmp(&self, other: &Self) -> Ordering {
        other.key.cmp(&self.key)
    }
}

/// The agenda of a simulation.
#[derive(Debug, Default)]
pub(crate) struct EventQueue {
    heap: BinaryHeap<Entry>,
    order: u64,
}

impl EventQueue {
    /// Puts something in at a time, behind everything that is there for the same time.
    pub(crate) fn push(&mut self, at: u64, what: What) {
        let key = u128::from(at) << 64 | u128::from(self.order);
        self.order += 1;
        self.heap.push(Entry { key, what });
    }

    /// Takes the next event, unless it is later than `until`.
    pub(crate) fn pop(&mut self, until: u64) -> Option<(u64, What)> {
        let first = self.heap.peek()?;
        if first.at() > until {
            return None;
        }
        self.heap.pop().map(|entry| (entry.at(), entry.what))
    }

    /// When something comes next.
    pub(crate) fn next_at(&self) -> Option<u64> {
        self.heap.peek().map(Entry::at)
    }
}

/// A vector with holes that are filled again: names stay small and nothing moves.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    slots: Vec<T>,
    free: Vec<u32>,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self { slots: Vec::new(), free: Vec::new() }
    }
}

impl<T: Default> Slab<T> {
    /// A slot to fill; it keeps the content of its last user, so that a buffer keeps its memory.
    pub(crate) fn claim(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            self.slots.push(T::default());
            u32::try_from(self.slots.len() - 1).expect("fewer than 2^32 things are under way at once")
        })
    }
}

impl<T> Slab<T> {
    /// Gives a slot back.
    pub(crate) fn release(&mut self, slot: u32) {
        self.free.push(slot);
    }

    /// The content of a slot.
    pub(crate) fn at(&self, slot: u32) -> &T {
        &self.slots[slot as usize]
    }

    /// The content of a slot, to change it.
    pub(crate) fn at_mut(&mut self, slot: u32) -> &mut T {
        &mut self.slots[slot as usize]
    }

    /// The content of a slot, if there ever was one of that number.
    pub(crate) fn find(&self, slot: u32) -> Option<&T> {
        self.slots.get(slot as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_is_time_then_arrival() {
        let mut queue = EventQueue::default();
        let host = HostId::new;
        for (at, n) in [(5, 0), (3, 1), (5, 2), (3, 3), (9, 4)] {
            queue.push(at, What::Wake(host(n)));
        }
        let mut seen = Vec::new();
        while let Some((at, What::Wake(host))) = queue.pop(5) {
            seen.push((at, host.index()));
        }
        assert_eq!(seen, [(3, 1), (3, 3), (5, 0), (5, 2)]);
        assert_eq!(queue.next_at(), Some(9));
    }

    #[test]
    fn an_entry_stays_small() {
        assert_eq!(size_of::<Entry>(), 32);
    }

    #[test]
    fn a_slab_fills_its_holes() {
        let mut slab = Slab::<Vec<u8>>::default();
        let (first, second) = (slab.claim(), slab.claim());
        slab.at_mut(first).extend([1, 2, 3]);
        slab.release(first);
        assert_eq!((slab.claim(), second), (first, 1));
        assert_eq!(slab.at(first), &[1, 2, 3]);
    }
}
