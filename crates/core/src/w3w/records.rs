//! The records of inbox, outbox and queue, and their bytes in the store.

use core::fmt;

use serde::Serialize;

use super::Event;
use super::form::RefusalReason;
use super::nid::{Key, Nid};
use crate::wire::{DecodeError, Reader};

/// A message for this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Received {
    /// Its number in the inbox.
    pub number: u64,
    /// Its claimed sender.
    pub from: Nid,
    /// The key of its DATA in the store. For a file, the key of its manifest.
    pub key: Key,
    /// Its size; for a file, that of the whole file.
    pub size: u64,
    /// When it arrived, in seconds since 1970.
    pub received_at: u64,
    /// Whether it is a file, to be read block by block.
    pub is_file: bool,
}

/// A message from this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Sent {
    /// Its number in the outbox.
    pub number: u64,
    /// The recipient.
    pub to: Nid,
    /// The key of its DATA in the store.
    pub key: Key,
    /// The size of DATA; for a file, that of the whole file.
    pub size: u64,
    /// When it was sent, in seconds since 1970.
    pub sent_at: u64,
    /// Whether it requests a receipt.
    pub wants_receipt: bool,
    /// Whether it is a file, sent block by block.
    pub is_file: bool,
    /// Its state.
    pub state: SentState,
    /// When its lifetime ends, in seconds since 1970; 0 if the record is from before lifetimes.
    pub until: u64,
    /// Epoch and number, if it is a letter (CU-8).
    pub letter: Option<(u64, u64)>,
    /// When the recipient's receipt came, in seconds since 1970.
    pub delivered_at: Option<u64>,
    /// Peers that answered `held`.
    pub custodians: [Option<Nid>; 2],
    /// Why the recipient refused it.
    pub refusal: Option<RefusalReason>,
    /// Why it waits. Only in the reply to a command.
    pub why: Option<Why>,
}

/// Why a message of this node waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Why {
    /// This node has no peer.
    NoPeer,
    /// The recipient is no peer, and no other node has taken the message yet.
    RecipientAway,
    /// The peers have no room for it.
    PeersFull,
    /// It is being written to a peer, or the peer has not answered.
    BeingSent,
}

/// The state of a message from this node (CU-23).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum SentState {
    /// Only this node has it.
    Waiting,
    /// A plain message that a peer took: its final state.
    Given,
    /// The recipient has confirmed that it is in its inbox.
    Delivered,
    /// Its lifetime ended and it never left this node: it was certainly not delivered.
    Expired,
    /// Its lifetime ended after it had left this node: it may have arrived.
    Unconfirmed,
    /// A letter that left this node; this node keeps its copy until the receipt comes.
    UnderWay,
    /// The recipient refused it.
    Refused,
    /// The sender withdrew it.
    Cancelled,
}

impl SentState {
    /// Whether the state can still change.
    #[must_use]
    pub const fn is_open(self) -> bool {
        matches!(self, Self::Waiting | Self::UnderWay)
    }
}

impl fmt::Display for SentState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Waiting => "waiting",
            Self::Given => "given",
            Self::Delivered => "delivered",
            Self::Expired => "expired",
            Self::Unconfirmed => "unconfirmed",
            Self::UnderWay => "under way",
            Self::Refused => "refused",
            Self::Cancelled => "cancelled",
        })
    }
}

/// The record of a queued message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Waiting {
    pub(super) sender: Nid,
    pub(super) recipient: Nid,
    pub(super) key: Key,
    pub(super) size: u64,
    /// Wall clock, in seconds.
    pub(super) until: u64,
    /// Its number in the outbox, if this node sent it.
    pub(super) outbox: Option<u64>,
    /// Epoch and number, if it is a letter.
    pub(super) letter: Option<(u64, u64)>,
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
    pub(super) fn state_changed(self) -> Event {
        let Self { number, key, state, .. } = self;
        Event::MessageStateChanged { number, key, state }
    }

    pub(super) fn to_bytes(self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(190);
        bytes.extend_from_slice(&self.to.to_bytes());
        bytes.extend_from_slice(&self.key.to_bytes());
        bytes.extend_from_slice(&self.size.to_be_bytes());
        bytes.extend_from_slice(&self.sent_at.to_be_bytes());
        bytes.push(u8::from(self.wants_receipt) | u8::from(self.is_file) << 1);
        bytes.push(self.state as u8);
        bytes.extend_from_slice(&self.until.to_be_bytes());
        put_letter(self.letter, &mut bytes);
        bytes.extend_from_slice(&self.delivered_at.unwrap_or_default().to_be_bytes());
        bytes.push(self.refusal.map_or(u8::MAX, |reason| reason as u8));
        for nid in self.custodians.into_iter().flatten() {
            bytes.extend_from_slice(&nid.to_bytes());
        }
        bytes
    }

    pub(super) fn from_bytes(number: &[u8], bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        let (to, key) = (nid(&mut reader)?, key(&mut reader)?);
        let (size, sent_at, flags) = (reader.u64()?, reader.u64()?, reader.u8()?);
        let mut line = Self {
            number: self::number(number)?,
            to,
            key,
            size,
            sent_at,
            wants_receipt: flags & 1 != 0,
            is_file: flags & 2 != 0,
            state: match reader.u8()? {
                0 => SentState::Waiting,
                1 => SentState::Given,
                2 => SentState::Delivered,
                3 => SentState::Expired,
                4 => SentState::Unconfirmed,
                5 => SentState::UnderWay,
                6 => SentState::Refused,
                7 => SentState::Cancelled,
                _ => return Err(DecodeError::Field("state")),
            },
            until: 0,
            letter: None,
            delivered_at: None,
            custodians: [None; 2],
            refusal: None,
            why: None,
        };
        // A record of an earlier version ends here.
        if reader.remaining() > 0 {
            line.until = reader.u64()?;
            line.letter = letter(&mut reader)?;
            line.delivered_at = Some(reader.u64()?).filter(|at| *at > 0);
            line.refusal = match reader.u8()? {
                0 => Some(RefusalReason::Blocked),
                1 => Some(RefusalReason::TooLong),
                2 => Some(RefusalReason::NoApplication),
                _ => None,
            };
            for place in &mut line.custodians {
                if reader.remaining() > 0 {
                    *place = Some(nid(&mut reader)?);
                }
            }
        }
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
        if self.letter.is_some() {
            put_letter(self.letter, &mut bytes);
        }
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
            letter: if reader.remaining() > 0 { letter(&mut reader)? } else { None },
        };
        reader.finish().map(|()| line)
    }
}

/// The key of the DATA that a record of [`QUEUE`](crate::w3w::QUEUE) refers to, for tools that read a store.
#[must_use]
pub fn queued_key(record: &[u8]) -> Option<Key> {
    Waiting::from_bytes(record).ok().map(|waiting| waiting.key)
}

/// The key of the DATA that a record of [`INBOX`](crate::w3w::INBOX) refers to.
#[must_use]
pub fn listed_key(record: &[u8]) -> Option<Key> {
    Received::from_bytes(&[0; 8], record).ok().map(|line| line.key)
}

/// A key of the store that is a number.
pub(super) fn number(bytes: &[u8]) -> Result<u64, DecodeError> {
    bytes.try_into().map(u64::from_be_bytes).map_err(|_| DecodeError::Truncated)
}

/// Epoch and number of a letter; number 0 is none.
fn put_letter(letter: Option<(u64, u64)>, bytes: &mut Vec<u8>) {
    let (epoch, number) = letter.unwrap_or_default();
    bytes.extend_from_slice(&epoch.to_be_bytes());
    bytes.extend_from_slice(&number.to_be_bytes());
}

fn letter(reader: &mut Reader<'_>) -> Result<Option<(u64, u64)>, DecodeError> {
    let letter = (reader.u64()?, reader.u64()?);
    Ok(Some(letter).filter(|(_, number)| *number > 0))
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
    fn records_survive_the_store() {
        let (nid, key) = (Nid::from_uuid([1; 16]), Key::of(b"x"));
        let received = Received { number: 7, from: nid, key, size: 9, received_at: 3, is_file: true };
        assert_eq!(Received::from_bytes(&7u64.to_be_bytes(), &received.to_bytes()), Ok(received));
        for state in [SentState::Waiting, SentState::UnderWay, SentState::Refused, SentState::Cancelled] {
            for (wants_receipt, is_file) in [(false, false), (true, false), (true, true), (false, true)] {
                let sent = Sent {
                    number: 8,
                    to: nid,
                    key,
                    size: 9,
                    sent_at: 3,
                    wants_receipt,
                    is_file,
                    state,
                    until: 7,
                    letter: is_file.then_some((5, 6)),
                    delivered_at: wants_receipt.then_some(4),
                    custodians: [is_file.then_some(nid), None],
                    refusal: is_file.then_some(RefusalReason::TooLong),
                    why: None,
                };
                assert_eq!(Sent::from_bytes(&8u64.to_be_bytes(), &sent.to_bytes()), Ok(sent));
            }
        }
        for outbox in [None, Some(4)] {
            let letter = outbox.map(|_| (1, 2));
            let waiting = Waiting { sender: nid, recipient: nid, key, size: 1, until: 2, outbox, letter };
            assert_eq!(Waiting::from_bytes(&waiting.to_bytes()), Ok(waiting));
        }
        assert!(Waiting::from_bytes(b"short").is_err());
    }
}
