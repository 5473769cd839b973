//! The queue of one name at one voter: the nodes that wait, the longest waiter first (TU-17).
//!
//! Order is best effort. Safety does not depend on it.

use core::time::Duration;
use std::net::SocketAddr;

use crate::id::Id;
use crate::time::Instant;

/// The most waiters of one name; further nodes are not remembered, and repeat their Ask.
const WAITERS_MAX: usize = 64;

/// A waiter that did not repeat its Ask for this long is dropped.
const STALE_AFTER: Duration = Duration::from_secs(5);

/// How long a free name is reserved for the first waiter.
pub(super) const RESERVED: Duration = Duration::from_millis(250);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Waiter {
    pub(super) node: Id,
    pub(super) at: SocketAddr,
    /// Since when it waits, as it claims.
    since: Instant,
    seen: Instant,
}

/// The waiters of one name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Queue {
    waiters: Vec<Waiter>,
    reserved: Option<(SocketAddr, Instant)>,
}

impl Queue {
    /// Adds or refreshes a waiter.
    pub(super) fn refresh(&mut self, now: Instant, node: Id, at: SocketAddr, waited: Duration) {
        self.drop_stale(now);
        let waiter = Waiter { node, at, since: now - waited, seen: now };
        if let Some(known) = self.waiters.iter_mut().find(|known| known.at == at) {
            // The last claim counts: the node may have a new request. A voter that dropped the node meanwhile does not know
            // the old time, so the orders of two voters would differ for long.
            *known = waiter;
        } else if self.waiters.len() < WAITERS_MAX {
            self.waiters.push(waiter);
        }
    }

    /// Removes a node: it has the name now, or no longer wants it.
    pub(super) fn remove(&mut self, at: SocketAddr) {
        self.waiters.retain(|waiter| waiter.at != at);
        self.reserved.take_if(|(first, _)| *first == at);
    }

    /// Reserves a free name for the longest waiter, and returns that waiter.
    pub(super) fn call(&mut self, now: Instant) -> Option<Waiter> {
        self.drop_stale(now);
        let first = *self.waiters.iter().min_by_key(|waiter| (waiter.since, waiter.at))?;
        self.reserved = Some((first.at, now + RESERVED));
        Some(first)
    }

    /// Drops a first waiter that did not send its Ask in time; its next Ask puts it back into its place.
    pub(super) fn drop_absent(&mut self, now: Instant) {
        if let Some((at, _)) = self.reserved.take_if(|(_, until)| *until <= now) {
            self.waiters.retain(|waiter| waiter.at != at);
        }
    }

    /// The waiter for whom the name is reserved, if that is not `asker`, and until when.
    pub(super) fn reserved_for_other(&self, now: Instant, asker: SocketAddr) -> Option<(Waiter, Instant)> {
        let (at, until) = self.reserved.filter(|(at, until)| *at != asker && now < *until)?;
        self.waiters.iter().find(|waiter| waiter.at == at).map(|waiter| (*waiter, until))
    }

    /// When the reservation ends.
    pub(super) fn reserved_until(&self) -> Option<Instant> {
        self.reserved.map(|(_, until)| until)
    }

    pub(super) fn len(&self) -> usize {
        self.waiters.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiters.is_empty()
    }

    fn drop_stale(&mut self, now: Instant) {
        self.waiters.retain(|waiter| now.since(waiter.seen) < STALE_AFTER);
    }
}
