//! The node identifier: an address on a circle of 256 bits.

use core::fmt;
use core::str::FromStr;

use serde::{Serialize, Serializer};

use crate::id::{Id, hash, hash_all};
use crate::ring::Point;

/// The address of a node in the mesh (M-10): BLAKE2b-256 of its UUID's sixteen bytes (M-12, MA-10, MA-11).
///
/// It prints as 64 lower-case hexadecimal digits. So the alphabetical order of the document (M-6) is the numerical
/// order.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nid {
    high: u128,
    low: u128,
}

impl Nid {
    /// The address of the node with this UUID.
    #[must_use]
    pub fn from_uuid(uuid: [u8; 16]) -> Self {
        Self::from_bytes(hash(&uuid))
    }

    /// The address written in these bytes, most significant first.
    #[must_use]
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        let half =
            |at: usize| bytes[at..at + 16].iter().fold(0, |number, &byte| number << 8 | u128::from(byte));
        Self { high: half(0), low: half(16) }
    }

    /// Its bytes, most significant first.
    #[must_use]
    pub fn to_bytes(self) -> [u8; 32] {
        let mut bytes = [0; 32];
        bytes[..16].copy_from_slice(&self.high.to_be_bytes());
        bytes[16..].copy_from_slice(&self.low.to_be_bytes());
        bytes
    }

    /// The ring id of the same node in the other services: the first half.
    #[must_use]
    pub const fn id(self) -> Id {
        Id::new(self.high)
    }

    /// The 64 digits, without an allocation.
    #[must_use]
    pub fn to_hex(self) -> [u8; NID_HEX_BYTES] {
        let mut hex = [0; NID_HEX_BYTES];
        for (pair, byte) in hex.chunks_exact_mut(2).zip(self.to_bytes()) {
            pair[0] = DIGITS[usize::from(byte >> 4)];
            pair[1] = DIGITS[usize::from(byte & 15)];
        }
        hex
    }

    /// Reads 64 lower-case digits. Upper case is refused, since it would break the order of the ring.
    #[must_use]
    pub fn from_hex(hex: &[u8]) -> Option<Self> {
        if hex.len() != NID_HEX_BYTES {
            return None;
        }
        let (mut bytes, mut all) = ([0; 32], 0);
        for (byte, pair) in bytes.iter_mut().zip(hex.chunks_exact(2)) {
            let (high, low) = (VALUES[usize::from(pair[0])], VALUES[usize::from(pair[1])]);
            all |= high | low;
            *byte = high << 4 | low;
        }
        (all <= 0xf).then(|| Self::from_bytes(bytes))
    }

    /// The first eight digits, for people.
    #[must_use]
    pub fn short(self) -> String {
        format!("{:08x}", self.high >> 96)
    }
}

impl Point for Nid {
    const ZERO: Self = Self { high: 0, low: 0 };
    const HALF: Self = Self { high: 1 << 127, low: 0 };

    fn minus(self, other: Self) -> Self {
        let (low, borrow) = self.low.overflowing_sub(other.low);
        Self { high: self.high.wrapping_sub(other.high).wrapping_sub(u128::from(borrow)), low }
    }
}

impl fmt::Display for Nid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}{:032x}", self.high, self.low)
    }
}

impl fmt::Debug for Nid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.short())
    }
}

impl FromStr for Nid {
    type Err = ParseNidError;

    fn from_str(text: &str) -> Result<Self, ParseNidError> {
        // Users may write it in capitals; the wire may not, and reads with `from_hex`.
        Self::from_hex(text.to_ascii_lowercase().as_bytes()).ok_or(ParseNidError)
    }
}

impl Serialize for Nid {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// The text is no address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an address in the mesh has 64 hexadecimal digits")]
pub struct ParseNidError;

/// The length of an address on the wire.
pub const NID_HEX_BYTES: usize = 64;

/// The least number of digits that may abbreviate a key, if no other begins so.
pub const KEY_DIGITS_MIN: usize = 8;

const DIGITS: &[u8; 16] = b"0123456789abcdef";

/// The value of each digit, and more than any value for what is none.
const VALUES: [u8; 256] = {
    let mut values = [0xff; 256];
    let mut value = 0;
    while value < DIGITS.len() {
        values[DIGITS[value] as usize] = value as u8;
        value += 1;
    }
    values
};

/// The key of DATA in the store (M-52): its BLAKE2b-256.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key([u8; 32]);

impl Key {
    /// The key of this DATA.
    #[must_use]
    pub fn of(data: &[u8]) -> Self {
        Self(hash(data))
    }

    /// The keys of several.
    pub(super) fn of_all<'a>(data: impl IntoIterator<Item = &'a [u8]>) -> Vec<Self> {
        hash_all(data).into_iter().map(Self).collect()
    }

    /// The key with these bytes.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Its bytes.
    #[must_use]
    pub const fn to_bytes(self) -> [u8; 32] {
        self.0
    }

    /// The least and the greatest key that begin with these digits; `None` if they are no digits, too few, or too many.
    #[must_use]
    pub fn beginning_with(digits: &str) -> Option<(Self, Self)> {
        if !(KEY_DIGITS_MIN..=NID_HEX_BYTES).contains(&digits.len()) {
            return None;
        }
        let filled =
            |with: &str| format!("{digits}{}", with.repeat(NID_HEX_BYTES - digits.len())).parse().ok();
        Some((filled("0")?, filled("f")?))
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Nid::from_bytes(self.0).fmt(f)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}", Nid::from_bytes(self.0).short())
    }
}

impl FromStr for Key {
    type Err = ParseNidError;

    fn from_str(text: &str) -> Result<Self, ParseNidError> {
        text.parse::<Nid>().map(|number| Self(number.to_bytes()))
    }
}

impl Serialize for Key {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_may_be_abbreviated_to_enough_digits() {
        let key = Key::of(b"x");
        let text = key.to_string();
        for digits in [8, 9, 63, 64] {
            let (first, last) = Key::beginning_with(&text[..digits].to_uppercase()).unwrap();
            assert!(first <= key && key <= last && first.to_string()[..digits] == text[..digits]);
        }
        assert_eq!(Key::beginning_with(&text), Some((key, key)));
        for bad in ["", &text[..7], &format!("{text}0"), "0123456g", "../../../x", "äöüäöüäö"] {
            assert_eq!(Key::beginning_with(bad), None, "{bad}");
        }
    }
}
