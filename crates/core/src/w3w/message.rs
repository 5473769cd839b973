//! The two messages.

use core::fmt;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};

use bytes::Bytes;

use super::form::Form;
use super::nid::{Key, Nid};
use super::wire::{HEADER_BYTES, LENGTH_BYTES};
use crate::id::hash;

/// `HERE`: the node `nid` accepts connections at `at` (M-13). A datagram requests the receiver to dial. As the first
/// frame of a connection it identifies the sender (MA-27).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Here {
    /// Its subject, which need not be its sender (M-43).
    pub nid: Nid,
    /// The address of that node's listener.
    pub at: SocketAddrV4,
}

impl Here {
    /// Whether the address can be that of one host: not unspecified, multicast or broadcast, and on loopback only if
    /// the own one is (MA-25).
    #[must_use]
    pub fn is_reachable_from(&self, own: Ipv4Addr) -> bool {
        let ip = *self.at.ip();
        let is_one_host = !ip.is_unspecified() && !ip.is_multicast() && !ip.is_broadcast();
        is_one_host && (!ip.is_loopback() || own.is_loopback())
    }

    /// The address to dial.
    #[must_use]
    pub const fn addr(&self) -> SocketAddr {
        SocketAddr::V4(self.at)
    }
}

/// The identity of a letter: the node at the other end, epoch and number.
pub(super) type LetterId = (Nid, u64, u64);

/// `MESSAGE`: DATA from one node to another (M-19). It is kept as its frame, because it is forwarded unchanged; copies
/// share the bytes.
#[derive(Clone, PartialEq, Eq)]
pub struct Message {
    pub(super) sender: Nid,
    pub(super) recipient: Nid,
    /// Its frame, length included.
    pub(super) frame: Bytes,
}

impl Message {
    /// A message of this node.
    #[must_use]
    pub fn new(sender: Nid, recipient: Nid, data: &[u8]) -> Self {
        Self { sender, recipient, frame: super::wire::message_frame(sender, recipient, data).into() }
    }

    /// A message of this node whose DATA is a form.
    pub(super) fn of_form(sender: Nid, recipient: Nid, form: &Form<'_>) -> Self {
        Self { sender, recipient, frame: super::wire::form_frame(sender, recipient, form).into() }
    }

    /// Its claimed sender (MA-52).
    #[must_use]
    pub const fn sender(&self) -> Nid {
        self.sender
    }

    /// Its recipient.
    #[must_use]
    pub const fn recipient(&self) -> Nid {
        self.recipient
    }

    /// The content.
    #[must_use]
    pub fn data(&self) -> &[u8] {
        &self.frame[LENGTH_BYTES + HEADER_BYTES..]
    }

    /// The content, shared with the message.
    pub(super) fn shared_data(&self) -> Bytes {
        self.frame.slice(LENGTH_BYTES + HEADER_BYTES..)
    }

    /// Its frame: the length, then the body.
    #[must_use]
    pub fn frame(&self) -> &[u8] {
        &self.frame
    }

    /// The body of its frame.
    #[must_use]
    pub fn body(&self) -> &[u8] {
        &self.frame[LENGTH_BYTES..]
    }
}

impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MESSAGE {:?} -> {:?} {} bytes", self.sender, self.recipient, self.data().len())
    }
}

/// The number of an entry of the queue, in the store too. Numbers only grow.
pub(super) type EntryId = u64;

/// The identity of a message (MA-40b): the hash of sender, recipient and DATA. Verdicts name messages by it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct SeenKey(Nid);

impl fmt::Debug for SeenKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SeenKey").field(&self.to_bytes()).finish()
    }
}

impl SeenKey {
    /// The key of a message between two nodes; `key` is that of its DATA.
    #[must_use]
    pub fn new(sender: Nid, recipient: Nid, key: Key) -> Self {
        let mut bytes = [0; 96];
        bytes[..32].copy_from_slice(&sender.to_bytes());
        bytes[32..64].copy_from_slice(&recipient.to_bytes());
        bytes[64..].copy_from_slice(&key.to_bytes());
        Self::from_bytes(hash(&bytes))
    }

    pub(super) fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(Nid::from_bytes(bytes))
    }

    pub(super) fn to_bytes(self) -> [u8; 32] {
        self.0.to_bytes()
    }

    /// The part of the key that memory and store keep of a seen message (CU-22).
    pub(super) fn fingerprint(self) -> Fingerprint {
        let half = self.0.id().number();
        Fingerprint((half >> 64) as u64, half as u64)
    }
}

/// The first half of a [`SeenKey`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Fingerprint(u64, u64);

impl Fingerprint {
    pub(super) fn to_bytes(self) -> [u8; 16] {
        (u128::from(self.0) << 64 | u128::from(self.1)).to_be_bytes()
    }

    pub(super) fn from_bytes(bytes: [u8; 16]) -> Self {
        let number = u128::from_be_bytes(bytes);
        Self((number >> 64) as u64, number as u64)
    }
}
