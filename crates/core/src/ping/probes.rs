//! The probes: pings under way, in the order they were sent.
//!
//! Numbers are consecutive, so a probe is found by subtraction. All have the same timeout, so the oldest times out
//! first.

use core::time::Duration;
use std::collections::VecDeque;
use std::net::SocketAddr;

use super::Via;
use crate::tag::{RequestId, StreamId};
use crate::time::Instant;

/// A ping under way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Probe {
    pub(super) sequence: u64,
    pub(super) to: SocketAddr,
    pub(super) sent: Instant,
    /// Its stream; `None` is a datagram.
    pub(super) stream: Option<StreamId>,
    /// The command that requested it; `None` is the regular round.
    pub(super) request: Option<RequestId>,
}

impl Probe {
    pub(super) fn via(&self) -> Via {
        if self.stream.is_some() { Via::Stream } else { Via::Datagram }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Probes {
    /// `None` is a probe that ended before older ones.
    waiting: VecDeque<Option<Probe>>,
    /// The number of the first of `waiting`.
    first: u64,
    probes_max: usize,
    timeout: Duration,
}

impl Probes {
    /// The numbers begin at `first`, a random one: a pong to a ping from before a restart matches nothing.
    pub(super) fn new(first: u64, probes_max: usize, timeout: Duration) -> Self {
        Self { waiting: VecDeque::new(), first, probes_max, timeout }
    }

    /// Notes a ping that is about to be sent. Returns its number, or `None` if too many are under way.
    pub(super) fn add(
        &mut self,
        to: SocketAddr,
        sent: Instant,
        stream: Option<StreamId>,
        request: Option<RequestId>,
    ) -> Option<u64> {
        if self.waiting.len() >= self.probes_max {
            return None;
        }
        let sequence = self.first.wrapping_add(self.waiting.len() as u64);
        self.waiting.push_back(Some(Probe { sequence, to, sent, stream, request }));
        Some(sequence)
    }

    /// The probe that a pong with this number from this address over this stream answers.
    pub(super) fn find(&self, sequence: u64, from: SocketAddr, stream: Option<StreamId>) -> Option<&Probe> {
        let index = usize::try_from(sequence.wrapping_sub(self.first)).ok()?;
        let probe = self.waiting.get(index)?.as_ref()?;
        (probe.to == from && probe.stream == stream).then_some(probe)
    }

    /// Ends a probe.
    pub(super) fn take(&mut self, sequence: u64) -> Option<Probe> {
        let index = usize::try_from(sequence.wrapping_sub(self.first)).ok()?;
        let probe = self.waiting.get_mut(index)?.take();
        self.drop_ended();
        probe
    }

    /// Ends the oldest probe, if it has timed out.
    pub(super) fn take_expired(&mut self, now: Instant) -> Option<Probe> {
        if self.deadline()? > now {
            return None;
        }
        let probe = self.waiting.front_mut()?.take();
        self.drop_ended();
        probe
    }

    /// When the oldest probe times out.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.waiting.front()?.as_ref().map(|probe| probe.sent + self.timeout)
    }

    /// Keeps the invariant that the first of `waiting` waits.
    fn drop_ended(&mut self) {
        while let Some(None) = self.waiting.front() {
            self.waiting.pop_front();
            self.first = self.first.wrapping_add(1);
        }
    }
}
