//! The 128-bit identity of nodes and keys, and its digits.
//!
//! An [`Id`] is a point on the circle 0 … 2¹²⁸−1 (P-1, P-2). A node's comes from its UUID, a key's from its
//! text, both through BLAKE2b-256: one identity in every service (see `docs/identity.md`).

use core::fmt;
use core::ops::BitXor;
use core::str::FromStr;

use blake2b_simd::Params;
use blake2b_simd::many::{HashManyJob, hash_many};
use serde::{Serialize, Serializer};

use crate::ring::{self, Side};

/// A node or a key: 128 bits on a circle. Prints as 32 lower-case hexadecimal digits.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Id(u128);

impl Id {
    /// The least id.
    pub const MIN: Self = Self(0);
    /// The greatest id; clockwise of it comes [`Id::MIN`].
    pub const MAX: Self = Self(u128::MAX);

    /// The id with this number.
    #[must_use]
    pub const fn new(number: u128) -> Self {
        Self(number)
    }

    /// The id written in these bytes, most significant first.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(u128::from_be_bytes(bytes))
    }

    /// The ring id of the node with this UUID: the first half of its NID.
    #[must_use]
    pub fn from_uuid(uuid: [u8; 16]) -> Self {
        Self::first_half(&hash(&uuid))
    }

    /// The id of a key that is any text.
    #[must_use]
    pub fn from_text(text: &str) -> Self {
        Self::first_half(&hash(text.as_bytes()))
    }

    /// The number of this id.
    #[must_use]
    pub const fn number(self) -> u128 {
        self.0
    }

    /// The bytes of this id, most significant first.
    #[must_use]
    pub const fn to_bytes(self) -> [u8; 16] {
        self.0.to_be_bytes()
    }

    /// The first eight hexadecimal digits, for people.
    #[must_use]
    pub const fn short(self) -> Short {
        Short(self)
    }

    /// The digit at `position`, counted from the most significant.
    ///
    /// # Panics
    /// If `position` is not below [`Base::digits`].
    #[must_use]
    pub fn digit(self, base: Base, position: u32) -> u8 {
        assert!(position < base.digits(), "an id has {} digits of {base:?}", base.digits());
        let shift = 128 - base.bits() * (position + 1);
        ((self.0 >> shift) & u128::from(base.greatest())) as u8
    }

    /// How many leading digits the two share; [`Base::digits`] if they are equal.
    #[must_use]
    pub const fn common_prefix(self, other: Self, base: Base) -> u32 {
        (self.0 ^ other.0).leading_zeros() / base.bits()
    }

    /// The clockwise distance from here to `to`.
    #[must_use]
    pub fn clockwise_to(self, to: Self) -> u128 {
        ring::clockwise(self.0, to.0)
    }

    /// The shorter distance between the two (PA-1).
    #[must_use]
    pub fn distance(self, other: Self) -> u128 {
        ring::distance(self.0, other.0)
    }

    /// On which side of this id `other` lies (PA-3).
    #[must_use]
    pub fn side(self, other: Self) -> Option<Side> {
        ring::side(self.0, other.0)
    }

    /// Whether this id lies on the arc clockwise from `from` to `to`, ends included.
    #[must_use]
    pub fn is_between(self, from: Self, to: Self) -> bool {
        ring::between(from.0, self.0, to.0)
    }

    /// Whether `a` is closer to this key than `b`; ties go counter-clockwise (PA-2).
    #[must_use]
    pub fn is_closer(self, a: Self, b: Self) -> bool {
        ring::closer(self.0, a.0, b.0)
    }

    /// The one of `ids` that owns this key: the closest, ties going counter-clockwise (PA-2).
    #[must_use]
    pub fn closest(self, ids: impl IntoIterator<Item = Self>) -> Option<Self> {
        ring::closest(self.0, ids.into_iter().map(|id| id.0)).map(Self)
    }

    fn first_half(digest: &[u8; 32]) -> Self {
        let mut half = [0; 16];
        half.copy_from_slice(&digest[..16]);
        Self::from_bytes(half)
    }
}

/// BLAKE2b-256, the one hash of the project (MA-10, MA-15).
#[must_use]
pub fn hash(bytes: &[u8]) -> [u8; 32] {
    let mut digest = [0; 32];
    digest.copy_from_slice(Params::new().hash_length(32).hash(bytes).as_bytes());
    digest
}

/// The hashes of several texts: in less than half the time, where the processor supports it.
#[must_use]
pub(crate) fn hash_all<'a>(texts: impl IntoIterator<Item = &'a [u8]>) -> Vec<[u8; 32]> {
    let mut params = Params::new();
    params.hash_length(32);
    let mut jobs: Vec<HashManyJob<'_>> =
        texts.into_iter().map(|text| HashManyJob::new(&params, text)).collect();
    let count = jobs.len();
    // Four take as long as one and a half. So an empty lane costs nothing, but three single hashes cost much.
    if let (2 | 3, Some(last)) = (count % LANES, jobs.last().cloned()) {
        jobs.resize(count.next_multiple_of(LANES), last);
    }
    hash_many(jobs.iter_mut());
    let digest = |job: &HashManyJob<'_>| {
        let mut digest = [0; 32];
        digest.copy_from_slice(job.to_hash().as_bytes());
        digest
    };
    jobs[..count].iter().map(digest).collect()
}

/// How many texts are hashed at once.
const LANES: usize = 4;

/// The XOR distance of two ids (S-34).
impl BitXor for Id {
    type Output = u128;

    fn bitxor(self, other: Self) -> u128 {
        self.0 ^ other.0
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Debug for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.short(), f)
    }
}

impl Serialize for Id {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Why a text is not an [`Id`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ParseIdError {
    /// Another number of characters than 32.
    #[error("an id has 32 hexadecimal digits, this text has {0} characters: give the whole id")]
    Length(usize),
    /// A character that is no hexadecimal digit.
    #[error("{0:?} is not a hexadecimal digit: an id is written with 0-9 and a-f")]
    Digit(char),
}

impl FromStr for Id {
    type Err = ParseIdError;

    /// Reads 32 hexadecimal digits of either case.
    fn from_str(text: &str) -> Result<Self, ParseIdError> {
        if let Some(bad) = text.chars().find(|c| !c.is_ascii_hexdigit()) {
            return Err(ParseIdError::Digit(bad));
        }
        if text.len() != 32 {
            return Err(ParseIdError::Length(text.len()));
        }
        u128::from_str_radix(text, 16).map(Self).map_err(|_| ParseIdError::Length(text.len()))
    }
}

/// An id cut to eight digits, as logs and tables show it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Short(Id);

impl fmt::Display for Short {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{:08x}", (self.0.0 >> 96) as u32))
    }
}

/// How many bits make a digit of an id: Pastry's parameter `b` (N-2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Base {
    /// Binary digits.
    B1 = 1,
    /// Digits of four values.
    B2 = 2,
    /// Hexadecimal digits, the default.
    B4 = 4,
    /// Whole bytes.
    B8 = 8,
}

impl Base {
    /// The base with `bits` bits a digit, if ids can be cut so.
    #[must_use]
    pub const fn from_bits(bits: u32) -> Option<Self> {
        match bits {
            1 => Some(Self::B1),
            2 => Some(Self::B2),
            4 => Some(Self::B4),
            8 => Some(Self::B8),
            _ => None,
        }
    }

    /// Bits in a digit.
    #[must_use]
    pub const fn bits(self) -> u32 {
        self as u32
    }

    /// Digits in an id.
    #[must_use]
    pub const fn digits(self) -> u32 {
        128 / self.bits()
    }

    /// The greatest value of a digit.
    #[must_use]
    pub const fn greatest(self) -> u8 {
        u8::MAX >> (8 - self.bits())
    }
}

#[cfg(test)]
#[path = "id_tests.rs"]
mod tests;
