//! Addresses we try to join, and tables on their way to those who join through us.

use core::time::Duration;
use std::net::SocketAddr;

use crate::time::Instant;

/// An address that was sent a Join.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Try {
    addr: SocketAddr,
    left: u32,
    next: Instant,
    /// Whether a node of another ring answered.
    is_elsewhere: bool,
}

/// All joins under way; one more than `joins_max` is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct JoinTargets {
    tries: Vec<Try>,
    joins_max: usize,
}

/// What became of a join whose time had come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum JoinTurn {
    /// It is to be sent again.
    Again(SocketAddr),
    /// It was sent often enough.
    Failed(SocketAddr),
}

impl JoinTargets {
    pub(super) const fn new(joins_max: usize) -> Self {
        Self { tries: Vec::new(), joins_max }
    }

    /// Starts to join an address: false if it is being joined already, or if there is no room.
    pub(super) fn add(&mut self, addr: SocketAddr, times: u32, next: Instant) -> bool {
        let new = self.tries.len() < self.joins_max && !self.tries.iter().any(|at| at.addr == addr);
        if new {
            self.tries.push(Try { addr, left: times, next, is_elsewhere: false });
        }
        new
    }

    /// Whether this address is being joined.
    pub(super) fn contains(&self, addr: SocketAddr) -> bool {
        self.tries.iter().any(|at| at.addr == addr)
    }

    /// Somebody spoke from this address: whether it was being joined.
    pub(super) fn answered(&mut self, from: SocketAddr) -> bool {
        let before = self.tries.len();
        self.tries.retain(|at| at.addr != from);
        self.tries.len() < before
    }

    /// A node of another ring spoke from this address: true the first time, if the address is being joined.
    pub(super) fn is_elsewhere(&mut self, from: SocketAddr) -> bool {
        let target = self.tries.iter_mut().find(|at| at.addr == from);
        target.is_some_and(|at| !core::mem::replace(&mut at.is_elsewhere, true))
    }

    /// Takes one whose time has come.
    pub(super) fn pop_due(&mut self, now: Instant, interval: Duration) -> Option<JoinTurn> {
        let place = self.tries.iter().position(|at| at.next <= now)?;
        let due = &mut self.tries[place];
        if due.left == 0 {
            return Some(JoinTurn::Failed(self.tries.swap_remove(place).addr));
        }
        due.left -= 1;
        due.next = now + interval;
        Some(JoinTurn::Again(due.addr))
    }

    pub(super) fn clear(&mut self) {
        self.tries.clear();
    }

    pub(super) fn is_empty(&self) -> bool {
        self.tries.is_empty()
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        self.tries.iter().map(|at| at.next).min()
    }
}

/// A table on its way to somebody who joined through us, a few packets at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Transfer {
    pub(super) to: SocketAddr,
    /// The id to go on with.
    pub(super) from: u128,
}

/// All tables on their way; one more than `transfers_max` is not begun, the joiner asks again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Transfers {
    under_way: Vec<Transfer>,
    next: Option<Instant>,
    transfers_max: usize,
}

/// The time between two bursts.
pub(super) const TRANSFER_INTERVAL: Duration = Duration::from_millis(20);
/// Packets in a burst to one joiner.
pub(super) const TRANSFER_PACKETS: usize = 4;

impl Transfers {
    pub(super) const fn new(transfers_max: usize) -> Self {
        Self { under_way: Vec::new(), next: None, transfers_max }
    }

    /// Begins a transfer, or begins one that is under way again.
    pub(super) fn add(&mut self, to: SocketAddr, now: Instant) {
        if let Some(known) = self.under_way.iter_mut().find(|transfer| transfer.to == to) {
            known.from = 0;
        } else if self.under_way.len() < self.transfers_max {
            self.under_way.push(Transfer { to, from: 0 });
            self.next.get_or_insert(now);
        }
    }

    /// Takes all that are to go on now; [`Transfers::put_back`] those that are not finished.
    pub(super) fn take_due(&mut self, now: Instant) -> Vec<Transfer> {
        if self.next.is_none_or(|at| at > now) {
            return Vec::new();
        }
        self.next = None;
        core::mem::take(&mut self.under_way)
    }

    pub(super) fn put_back(&mut self, transfer: Transfer, now: Instant) {
        self.under_way.push(transfer);
        self.next = Some(now + TRANSFER_INTERVAL);
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        self.next
    }
}
