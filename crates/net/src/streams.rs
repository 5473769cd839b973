//! All streams of a driver, by slot and by name, and which of them have something to report.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use annulus_core::{Instant, ListenerId, StreamId};
use slab::Slab;
use tokio::net::TcpStream;

use crate::gate::Gate;
use crate::numbers::NumberMap;
use crate::ready::{Ready, Signal, Token};
use crate::stream::Stream;

/// All streams of a driver.
#[derive(Default)]
pub(crate) struct Streams {
    slots: Slab<Stream>,
    names: NumberMap<StreamId, usize>,
    reports: VecDeque<(usize, StreamId)>,
    /// Those to which something was written in this turn.
    written: Vec<(usize, StreamId)>,
    /// The times of the next `TCP_INFO` reads of watched streams, the earliest first; each stream is there once at
    /// most.
    looks: BinaryHeap<Reverse<(Instant, usize, StreamId)>>,
    accepted: u64,
}

impl Streams {
    /// Takes in a stream that a peer opened.
    pub(crate) fn accept(
        &mut self,
        index: usize,
        listener: ListenerId,
        (socket, peer): (TcpStream, IpAddr),
        ready: &Arc<Ready>,
    ) -> (usize, StreamId) {
        let id = StreamId::accepted(self.accepted).in_service(listener.service());
        self.accepted += 1;
        let signal = Signal::new(ready, Token::Stream(self.slots.vacant_key()));
        (self.insert(Stream::accepted(id, index, (socket, peer), signal)), id)
    }

    /// Opens a stream for the machine. A number in use is a bug of the machine and opens nothing.
    pub(crate) fn open(&mut self, id: StreamId, to: SocketAddr, from: Option<IpAddr>, ready: &Arc<Ready>) {
        if self.names.contains_key(&id) {
            tracing::error!(stream = %id, "the machine opened a stream under a number in use");
            return;
        }
        let signal = Signal::new(ready, Token::Stream(self.slots.vacant_key()));
        let stream = Stream::connecting(id, to, from, signal);
        stream.signal.raise();
        let slot = self.insert(stream);
        self.note(slot);
    }

    /// Acts on the stream of this id, if it is open, and notes its pending reports.
    pub(crate) fn with(&mut self, id: StreamId, act: impl FnOnce(&mut Stream)) {
        if let Some(&slot) = self.names.get(&id) {
            let stream = &mut self.slots[slot];
            act(stream);
            if !stream.gathering && stream.is_waiting() {
                stream.gathering = true;
                self.written.push((slot, id));
            }
            self.note(slot);
        }
    }

    /// Whether something was written in this turn.
    pub(crate) fn is_written(&self) -> bool {
        !self.written.is_empty()
    }

    /// Writes the bytes of this turn to the kernel.
    pub(crate) fn flush(&mut self) {
        let mut written = std::mem::take(&mut self.written);
        for (slot, id) in written.drain(..) {
            if let Some(stream) = self.at(slot, id) {
                stream.gathering = false;
                stream.flush();
                self.note(slot);
            }
        }
        self.written = written;
    }

    /// The stream in this slot, if it is still the one of this name.
    pub(crate) fn at(&mut self, slot: usize, id: StreamId) -> Option<&mut Stream> {
        self.slots.get_mut(slot).filter(|stream| stream.id == id)
    }

    /// The name of the stream in this slot.
    pub(crate) fn name(&self, slot: usize) -> Option<StreamId> {
        self.slots.get(slot).map(|stream| stream.id)
    }

    /// Removes the stream of this id and returns it.
    pub(crate) fn remove(&mut self, id: StreamId) -> Option<Stream> {
        let slot = self.names.remove(&id)?;
        Some(self.slots.remove(slot))
    }

    /// Puts the stream on the lists it belongs to: if it has something to report, or if its kernel is to be looked at.
    pub(crate) fn note(&mut self, slot: usize) {
        let Some(stream) = self.slots.get_mut(slot) else { return };
        if let Some(at) = stream.look_at().filter(|_| !stream.looking) {
            stream.looking = true;
            self.looks.push(Reverse((at, slot, stream.id)));
        }
        if !stream.reporting && stream.has_report() {
            stream.reporting = true;
            self.reports.push_back((slot, stream.id));
        }
    }

    /// Holds the streams to peers that are cut off, and lets the others go on.
    pub(crate) fn hold(&mut self, gate: &Gate, now: Instant) {
        let slots: Vec<usize> = self.slots.iter().map(|(slot, _)| slot).collect();
        for slot in slots {
            self.slots[slot].hold(gate, now);
            self.note(slot);
        }
    }

    /// Reads `TCP_INFO` of all watched streams that are due.
    pub(crate) fn look(&mut self, now: Instant) {
        while let Some(&Reverse((at, slot, id))) = self.looks.peek().filter(|Reverse((at, ..))| *at <= now) {
            self.looks.pop();
            let Some(stream) = self.at(slot, id) else { continue };
            stream.looking = false;
            if stream.look_at().is_some_and(|due| due <= now.max(at)) {
                stream.look(now);
            }
            self.note(slot);
        }
    }

    /// When the next look is due.
    pub(crate) fn next_look(&self) -> Option<Instant> {
        self.looks.peek().map(|Reverse((at, ..))| *at)
    }

    /// The number of pending reports.
    pub(crate) fn reports(&self) -> usize {
        self.reports.len()
    }

    /// The oldest entry of the list; the stream may be gone.
    pub(crate) fn next_report(&mut self) -> Option<(usize, StreamId)> {
        let (slot, id) = self.reports.pop_front()?;
        if let Some(stream) = self.at(slot, id) {
            stream.reporting = false;
        }
        Some((slot, id))
    }

    /// Whether everything written was handed to the system.
    pub(crate) fn are_flushed(&self) -> bool {
        self.slots.iter().all(|(_, stream)| stream.is_flushed())
    }

    fn insert(&mut self, stream: Stream) -> usize {
        let id = stream.id;
        let slot = self.slots.insert(stream);
        self.names.insert(id, slot);
        slot
    }
}
