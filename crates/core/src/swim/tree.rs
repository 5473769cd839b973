//! Hashes over ranges of ids, updated with every change. Two nodes use them to find where their tables differ, without
//! sending the tables.
//!
//! The hash of a range is the exclusive or of the hashes of the live members in it. It is stored for every range down
//! to a certain depth. Below that depth it is computed from the few members when needed.

use crate::id::Id;
use crate::wire::{DecodeError, Reader, Writer};

use super::contents::Contents;
use super::status::Incarnation;

/// All ids with a common prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Range {
    bits: u8,
    prefix: u64,
}

impl Range {
    /// All ids.
    pub const ALL: Self = Self { bits: 0, prefix: 0 };
    /// How many more prefix bits the children of a range have.
    pub const STEP: u8 = 4;
    /// How many children a range has.
    pub const FAN: usize = 1 << Self::STEP;
    /// The longest prefix: such a range is not divided further.
    pub const BITS_MAX: u8 = 60;

    /// The least id in the range.
    #[must_use]
    pub const fn first(self) -> u128 {
        (self.prefix as u128) << 64
    }

    /// The greatest id in the range.
    #[must_use]
    pub const fn last(self) -> u128 {
        self.first() | (u128::MAX >> self.bits)
    }

    /// Its child with this number, or `None` if it is not divided further.
    #[must_use]
    pub const fn child(self, child: usize) -> Option<Self> {
        let bits = self.bits + Self::STEP;
        if bits > Self::BITS_MAX {
            return None;
        }
        Some(Self { bits, prefix: self.prefix | ((child as u64) << (64 - bits)) })
    }

    /// The number of the child that has this id.
    pub(super) const fn child_of(self, id: u128) -> usize {
        ((id << self.bits) >> (128 - Self::STEP)) as usize
    }

    pub(super) fn write(self, writer: &mut Writer<'_>) {
        writer.u8(self.bits);
        writer.u64(self.prefix);
    }

    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let (bits, prefix) = (reader.u8()?, reader.u64()?);
        let beyond = u64::MAX.checked_shr(u32::from(bits)).unwrap_or(0);
        if bits > Self::BITS_MAX || !bits.is_multiple_of(Self::STEP) || prefix & beyond != 0 {
            return Err(DecodeError::Field("range"));
        }
        Ok(Self { bits, prefix })
    }
}

/// The hash of one member: its id, incarnation and contents. It has no seed, so it is the same on every node.
#[must_use]
pub fn member_hash(id: Id, incarnation: Incarnation, contents: Contents<'_>) -> u64 {
    let number = id.number();
    let content = u64::from(incarnation.0) << 32 | u64::from(fingerprint(contents));
    mix(mix(mix(number as u64) ^ (number >> 64) as u64) ^ content)
}

/// The contents of a node, hashed to 32 bits.
#[must_use]
pub fn fingerprint(contents: Contents<'_>) -> u32 {
    let (addr, rest) = (contents.addr().bits(), contents.rest());
    let mut sum = mix(addr.0 as u64) ^ mix((addr.0 >> 64) as u64 ^ u64::from(addr.1));
    for chunk in rest.chunks(8) {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        sum = mix(sum ^ u64::from_be_bytes(word));
    }
    mix(sum ^ rest.len() as u64) as u32
}

/// The finaliser of SplitMix64: every bit of the input affects every bit of the output.
const fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

/// The hashes of all ranges of up to `bits` bits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Tree {
    bits: u32,
    /// As a heap is laid out: the root at 1, the children of `n` at `2n` and `2n + 1`.
    nodes: Vec<u64>,
}

impl Default for Tree {
    fn default() -> Self {
        Self { bits: 0, nodes: vec![0; 2] }
    }
}

impl Tree {
    /// The most members per range of the last level, on average. The tree is rebuilt above this and below an eighth of it.
    const LOAD: usize = 16;

    /// Adds a hash, or removes it again.
    pub(super) fn toggle(&mut self, id: Id, hash: u64) {
        let mut node = (1usize << self.bits) | self.leaf(id);
        while node > 0 {
            self.nodes[node] ^= hash;
            node >>= 1;
        }
    }

    /// Whether the depth no longer suits this many members: [`Tree::rebuild`] it.
    pub(super) fn is_unsuitable(&self, members: usize) -> bool {
        members > Self::LOAD << self.bits || (self.bits > 0 && members < (Self::LOAD / 8) << self.bits)
    }

    /// Rebuilds the tree for this many members.
    pub(super) fn rebuild(&mut self, members: usize, hashes: impl Iterator<Item = (Id, u64)>) {
        self.bits = (members / (Self::LOAD / 2)).max(1).ilog2();
        self.nodes = vec![0; 2 << self.bits];
        for (id, hash) in hashes {
            self.toggle(id, hash);
        }
    }

    /// The hash of a range, unless it is below the last level.
    pub(super) fn hash(&self, range: Range) -> Option<u64> {
        let bits = u32::from(range.bits);
        if bits > self.bits {
            return None;
        }
        let place = range.prefix.checked_shr(64 - bits).unwrap_or(0) as usize;
        Some(self.nodes[(1 << bits) | place])
    }

    fn leaf(&self, id: Id) -> usize {
        id.number().checked_shr(128 - self.bits).unwrap_or(0) as usize
    }
}
