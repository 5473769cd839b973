//! An incoming packet: its sender, its source address, and the proof of both.

use core::cell::Cell;
use std::net::SocketAddr;

use super::members::{Members, Slot};
use super::sequence::Sequence;
use crate::id::Id;

/// An answer may be this many times as long as the question, until the requester's address is proved (SA-61).
pub(super) const ANSWER_FACTOR: usize = 3;

/// The origin of a message: the node that sent the packet, and its address (SA-22).
#[derive(Clone, Debug)]
pub(super) struct Packet {
    pub(super) addr: SocketAddr,
    pub(super) sender: Id,
    /// The sender, if it was a member when the packet came. No member is forgotten while a packet is handled.
    slot: Option<Slot>,
    /// The number of an Ack in it.
    pub(super) acked: Option<Sequence>,
    /// The address to which a nonce was sent that this packet answers.
    pub(super) proved: Option<SocketAddr>,
    /// How many bytes may still be sent in answer, without proof of the address (SA-61).
    credit: Cell<usize>,
}

impl Packet {
    pub(super) const fn new(addr: SocketAddr, sender: Id, bytes: usize) -> Self {
        let credit = Cell::new(ANSWER_FACTOR * bytes);
        Self { addr, sender, slot: None, acked: None, proved: None, credit }
    }

    /// Finds the sender among the members, and returns it.
    pub(super) fn resolve(&mut self, members: &Members) -> Option<Slot> {
        self.slot = members.find(self.sender);
        self.slot
    }

    /// Whether an answer of this many bytes may be sent; if so, they are counted.
    pub(super) fn affords(&self, bytes: usize) -> bool {
        let left = self.credit.get().checked_sub(bytes);
        self.credit.set(left.unwrap_or(self.credit.get()));
        left.is_some() || self.proved.is_some()
    }

    /// The sender among the members; a message of its own may have made it one.
    pub(super) fn slot(&self, members: &Members) -> Option<Slot> {
        self.slot.or_else(|| members.find(self.sender))
    }
}
