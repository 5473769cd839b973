//! Bytes that an action carries: copied into the outbox's arena, or shared by reference.
//!
//! A datagram of a hundred bytes is cheapest copied. A message of a megabyte that goes to two connections and to the store is
//! shared instead. A component that keeps it for a while keeps a reference, not a copy.

use core::ops::Deref;

use bytes::Bytes;

/// The bytes of an action; it reads as a slice.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Payload<'a> {
    /// In the arena: invalid once the next action is taken.
    Copied(&'a [u8]),
    /// Shared: a part that needs them longer clones the handle.
    Shared(&'a Bytes),
}

impl Payload<'_> {
    /// The bytes for keeping: not copied if they are shared.
    #[must_use]
    pub fn to_bytes(&self) -> Bytes {
        match *self {
            Self::Copied(bytes) => Bytes::copy_from_slice(bytes),
            Self::Shared(bytes) => bytes.clone(),
        }
    }
}

impl Deref for Payload<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match *self {
            Self::Copied(bytes) => bytes,
            Self::Shared(bytes) => bytes,
        }
    }
}

impl core::fmt::Debug for Payload<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        core::fmt::Debug::fmt(&**self, f)
    }
}
