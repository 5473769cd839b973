//! The addresses that this node joins, and table transfers to nodes that join through it.

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

/// The next step of a join whose timer fired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum JoinTurn {
    /// Send the Join again.
    Again(SocketAddr),
    /// All attempts are used up.
    Failed(SocketAddr),
}

impl JoinTargets {
    pub(super) const fn new(joins_max: usize) -> Self {
        Self { tries: Vec::new(), joins_max }
    }

    /// Starts to join an address. Returns false if it is being joined already, or if there is no room.
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

    /// Ends the join of an address that answered. Returns whether it was being joined.
    pub(super) fn answered(&mut self, from: SocketAddr) -> bool {
        let before = self.tries.len();
        self.tries.retain(|at| at.addr != from);
        self.tries.len() < before
    }

    /// Notes that a node of another ring sent from this address. Returns true the first time, if the address is being
    /// joined.
    pub(super) fn is_elsewhere(&mut self, from: SocketAddr) -> bool {
        let target = self.tries.iter_mut().find(|at| at.addr == from);
        target.is_some_and(|at| !core::mem::replace(&mut at.is_elsewhere, true))
    }

    /// Takes a join whose timer fired.
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

/// A table transfer to a node that joined through this one, a few packets at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Transfer {
    pub(super) to: SocketAddr,
    /// The id to continue with.
    pub(super) from: u128,
}

/// All table transfers. One more than `transfers_max` is not begun; the joiner sends its Join again.
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

    /// Begins a transfer, or restarts one that is under way.
    pub(super) fn add(&mut self, to: SocketAddr, now: Instant) {
        if let Some(known) = self.under_way.iter_mut().find(|transfer| transfer.to == to) {
            known.from = 0;
        } else if self.under_way.len() < self.transfers_max {
            self.under_way.push(Transfer { to, from: 0 });
            self.next.get_or_insert(now);
        }
    }

    /// Takes all transfers that are due; [`Transfers::put_back`] those that are not finished.
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
