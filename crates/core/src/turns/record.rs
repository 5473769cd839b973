//! The record of a group (TU-7), and its bytes on the wire and on disk.

use core::time::Duration;
use std::net::{IpAddr, SocketAddr};

use serde::Serialize;

use super::config::VOTERS_MAX;
use super::message::{Group, VoterEntry};
use crate::id::Id;
use crate::wire::{DecodeError, Reader, Writer};

/// The record that all voters of a group agreed on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Record {
    /// The group.
    pub group: Group,
    /// The epoch; 1 after the founding.
    pub epoch: u32,
    /// Whether all voters have written it. No voter votes before that.
    pub founded: bool,
    /// The length L of a lease.
    #[serde(skip)]
    pub lease: Duration,
    /// The number above which the group starts.
    pub floor: u64,
    /// The voters in ascending order of their addresses.
    pub voters: Vec<VoterEntry>,
}

impl Record {
    /// How many grants make a majority.
    #[must_use]
    pub fn majority(&self) -> usize {
        self.voters.len() / 2 + 1
    }

    /// How many voters must be intact so that they include one of every majority (TU-21).
    #[must_use]
    pub fn intact_needed(&self) -> usize {
        self.voters.len() - self.majority() + 1
    }

    /// The place of the voter with this address.
    #[must_use]
    pub fn place_of(&self, addr: SocketAddr) -> Option<usize> {
        self.voters.iter().position(|voter| voter.addr == addr)
    }

    pub(super) fn has_voters(&self, sorted: &[SocketAddr]) -> bool {
        self.voters.iter().map(|voter| voter.addr).eq(sorted.iter().copied())
    }

    pub(super) fn encode(&self, writer: &mut Writer<'_>) {
        writer.bytes(&self.group.0);
        writer.u32(self.epoch);
        writer.u8(u8::from(self.founded));
        writer.u32(milliseconds(self.lease));
        writer.u64(self.floor);
        writer.u8(self.voters.len() as u8);
        for voter in &self.voters {
            writer.bytes(&voter.id.to_bytes());
            encode_addr(voter.addr, writer);
        }
    }

    pub(super) fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let group = Group(reader.array()?);
        let epoch = reader.u32()?;
        let founded = decode_bool(reader, "founded")?;
        let lease = Duration::from_millis(u64::from(reader.u32()?));
        let floor = reader.u64()?;
        let count = usize::from(reader.u8()?);
        if count == 0 || count > VOTERS_MAX {
            return Err(DecodeError::Limit("voters"));
        }
        let mut voters: Vec<VoterEntry> = Vec::with_capacity(count);
        for _ in 0..count {
            let voter = VoterEntry { id: Id::from_bytes(reader.array()?), addr: decode_addr(reader)? };
            if voters.last().is_some_and(|last| last.addr >= voter.addr) {
                return Err(DecodeError::Field("voters"));
            }
            voters.push(voter);
        }
        Ok(Self { group, epoch, founded, lease, floor, voters })
    }
}

/// A duration in whole milliseconds, for the wire.
pub(super) fn milliseconds(duration: Duration) -> u32 {
    u32::try_from(duration.as_millis()).unwrap_or(u32::MAX)
}

pub(super) fn decode_bool(reader: &mut Reader<'_>, field: &'static str) -> Result<bool, DecodeError> {
    match reader.u8()? {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(DecodeError::Field(field)),
    }
}

pub(super) fn encode_addr(addr: SocketAddr, writer: &mut Writer<'_>) {
    match addr.ip() {
        IpAddr::V4(ip) => {
            writer.u8(4);
            writer.bytes(&ip.octets());
        }
        IpAddr::V6(ip) => {
            writer.u8(6);
            writer.bytes(&ip.octets());
        }
    }
    writer.u16(addr.port());
}

pub(super) fn decode_addr(reader: &mut Reader<'_>) -> Result<SocketAddr, DecodeError> {
    let ip = match reader.u8()? {
        4 => IpAddr::from(reader.array::<4>()?),
        6 => IpAddr::from(reader.array::<16>()?),
        _ => return Err(DecodeError::Field("address")),
    };
    Ok(SocketAddr::new(ip, reader.u16()?))
}
