//! The indexes that people look at: what is for us (inbox), what we sent (outbox), what waits (queue); and the
//! bytes of their lines in the store.

use core::fmt;

use serde::Serialize;

use super::nid::{Key, Nid};
use crate::wire::{DecodeError, Reader};

/// A message for us.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Received {
    /// Its number in the inbox.
    pub number: u64,
    /// Who sent it, or claims to have.
    pub from: Nid,
    /// Where its DATA is: the key in the store. For a file, the key of its manifest.
    pub key: Key,
    /// How long it is; for a file, the whole file.
    pub size: u64,
    /// When it came, in seconds since 1970.
    pub received_at: u64,
    /// Whether it is a file, to be read block by block.
    pub is_file: bool,
}

/// A message from us.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Sent {
    /// Its number in the outbox.
    pub number: u64,
    /// Whom it is for.
    pub to: Nid,
    /// Where its DATA is.
    pub key: Key,
    /// How long DATA is; for a file, the whole file.
    pub size: u64,
    /// When it was sent, in seconds since 1970.
    pub sent_at: u64,
    /// Whether a receipt was asked for.
    pub wants_receipt: bool,
    /// Whether it is a file, sent block by block.
    pub is_file: bool,
    /// What is known of it.
    pub state: SentState,
}

/// What is known of a message from us.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SentState {
    /// It is safe here and waits for a peer.
    Waiting,
    /// At least one peer's connection has taken it; no more is known, and without a receipt no more will be.
    HandedOn,
    /// The recipient says that it has it.
    Delivered,
    /// No peer took it before it expired.
    Expired,
    /// A receipt was asked for and did not come before the message expired: it may or may not have arrived.
    Unknown,
}

impl fmt::Display for SentState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Waiting => "waiting",
            Self::HandedOn => "handed on",
            Self::Delivered => "delivered",
            Self::Expired => "expired",
            Self::Unknown => "unknown",
        })
    }
}

/// A message that waits, as it lies in the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Waiting {
    pub(super) sender: Nid,
    pub(super) recipient: Nid,
    pub(super) key: Key,
    pub(super) size: u64,
    /// Wall clock, in seconds.
    pub(super) until: u64,
    /// Its number in the outbox, if it is ours.
    pub(super) outbox: Option<u64>,
}

impl Received {
    pub(super) fn to_bytes(self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(81);
        bytes.extend_from_slice(&self.from.to_bytes());
        bytes.extend_from_slice(&self.key.to_bytes());
        bytes.extend_from_slice(&self.size.to_be_bytes());
        bytes.extend_from_slice(&self.received_at.to_be_bytes());
        bytes.push(self.is_file.into());
        bytes
    }

    pub(super) fn from_bytes(number: &[u8], bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        let line = Self {
            number: self::number(number)?,
            from: nid(&mut reader)?,
            key: key(&mut reader)?,
            size: reader.u64()?,
            received_at: reader.u64()?,
            is_file: reader.u8()? != 0,
        };
        reader.finish().map(|()| line)
    }
}

impl Sent {
    pub(super) fn to_bytes(self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(82);
        bytes.extend_from_slice(&self.to.to_bytes());
        bytes.extend_from_slice(&self.key.to_bytes());
        bytes.extend_from_slice(&self.size.to_be_bytes());
        bytes.extend_from_slice(&self.sent_at.to_be_bytes());
        bytes.push(u8::from(self.wants_receipt) | u8::from(self.is_file) << 1);
        bytes.push(self.state as u8);
        bytes
    }

    pub(super) fn from_bytes(number: &[u8], bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        let (to, key) = (nid(&mut reader)?, key(&mut reader)?);
        let (size, sent_at, flags) = (reader.u64()?, reader.u64()?, reader.u8()?);
        let line = Self {
            number: self::number(number)?,
            to,
            key,
            size,
            sent_at,
            wants_receipt: flags & 1 != 0,
            is_file: flags & 2 != 0,
            state: match reader.u8()? {
                0 => SentState::Waiting,
                1 => SentState::HandedOn,
                2 => SentState::Delivered,
                3 => SentState::Expired,
                4 => SentState::Unknown,
                _ => return Err(DecodeError::Field("state")),
            },
        };
        reader.finish().map(|()| line)
    }
}

impl Waiting {
    pub(super) fn to_bytes(self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(120);
        bytes.extend_from_slice(&self.sender.to_bytes());
        bytes.extend_from_slice(&self.recipient.to_bytes());
        bytes.extend_from_slice(&self.key.to_bytes());
        bytes.extend_from_slice(&self.size.to_be_bytes());
        bytes.extend_from_slice(&self.until.to_be_bytes());
        bytes.extend_from_slice(&self.outbox.unwrap_or(u64::MAX).to_be_bytes());
        bytes
    }

    pub(super) fn from_bytes(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        let line = Self {
            sender: nid(&mut reader)?,
            recipient: nid(&mut reader)?,
            key: key(&mut reader)?,
            size: reader.u64()?,
            until: reader.u64()?,
            outbox: Some(reader.u64()?).filter(|number| *number != u64::MAX),
        };
        reader.finish().map(|()| line)
    }
}

/// A key of the store that is a number.
pub(super) fn number(bytes: &[u8]) -> Result<u64, DecodeError> {
    bytes.try_into().map(u64::from_be_bytes).map_err(|_| DecodeError::Truncated)
}

fn nid(reader: &mut Reader<'_>) -> Result<Nid, DecodeError> {
    reader.array().map(Nid::from_bytes)
}

fn key(reader: &mut Reader<'_>) -> Result<Key, DecodeError> {
    reader.array().map(Key::from_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_back_from_the_store_as_they_went_in() {
        let (nid, key) = (Nid::from_uuid([1; 16]), Key::of(b"x"));
        let received = Received { number: 7, from: nid, key, size: 9, received_at: 3, is_file: true };
        assert_eq!(Received::from_bytes(&7u64.to_be_bytes(), &received.to_bytes()), Ok(received));
        for state in [SentState::Waiting, SentState::HandedOn, SentState::Delivered, SentState::Expired] {
            for (wants_receipt, is_file) in [(false, false), (true, false), (true, true), (false, true)] {
                let sent =
                    Sent { number: 8, to: nid, key, size: 9, sent_at: 3, wants_receipt, is_file, state };
                assert_eq!(Sent::from_bytes(&8u64.to_be_bytes(), &sent.to_bytes()), Ok(sent));
            }
        }
        for outbox in [None, Some(4)] {
            let waiting = Waiting { sender: nid, recipient: nid, key, size: 1, until: 2, outbox };
            assert_eq!(Waiting::from_bytes(&waiting.to_bytes()), Ok(waiting));
        }
        assert!(Waiting::from_bytes(b"short").is_err());
    }
}
