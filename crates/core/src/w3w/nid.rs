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
        let (high, low) = bytes.split_at(16);
        let half = |bytes: &[u8]| bytes.try_into().map_or(0, u128::from_be_bytes);
        Self { high: half(high), low: half(low) }
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
        let words = [self.high, self.low].into_iter().flat_map(|half| [96, 64, 32, 0].map(|by| half >> by));
        for (digits, word) in hex.as_chunks_mut::<8>().0.iter_mut().zip(words) {
            *digits = to_digits(word as u32);
        }
        hex
    }

    /// Reads 64 lower-case digits. Upper case is refused, since it would break the order of the ring.
    #[must_use]
    pub fn from_hex(hex: &[u8]) -> Option<Self> {
        let hex: &[u8; NID_HEX_BYTES] = hex.try_into().ok()?;
        let mut halves = [0; 2];
        for (index, digits) in hex.as_chunks::<8>().0.iter().enumerate() {
            let half = &mut halves[index / 4];
            *half = *half << 32 | u128::from(from_digits(*digits)?);
        }
        let [high, low] = halves;
        Some(Self { high, low })
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

/// The same byte, eight times.
const fn each(byte: u8) -> u64 {
    u64::from_ne_bytes([byte; 8])
}

/// Eight lower-case digits, most significant first. Each step handles all of them at once: every message has two NIDs.
const fn to_digits(number: u32) -> [u8; 8] {
    let mut digits = number as u64;
    digits = (digits | digits << 16) & 0x0000_ffff_0000_ffff;
    digits = (digits | digits << 8) & 0x00ff_00ff_00ff_00ff;
    digits = (digits | digits << 4) & each(0x0f);
    digits_of(digits).to_be_bytes()
}

/// Reads eight lower-case digits.
const fn from_digits(digits: [u8; 8]) -> Option<u32> {
    let digits = u64::from_be_bytes(digits);
    // The letters, and no decimal digit, have this bit.
    let is_letter = (digits >> 6) & each(1);
    let values = (digits & each(0x0f)) + is_letter * 9;
    if values & each(0xf0) != 0 || digits_of(values) != digits {
        return None;
    }
    let mut number = values;
    number = (number | number >> 4) & 0x00ff_00ff_00ff_00ff;
    number = (number | number >> 8) & 0x0000_ffff_0000_ffff;
    Some((number | number >> 16) as u32)
}

/// The digits of eight values below 16.
const fn digits_of(values: u64) -> u64 {
    let is_letter = ((values + each(6)) >> 4) & each(1);
    values + each(b'0') + is_letter * (b'a' - b'0' - 10) as u64
}

/// The key of DATA in the store (M-52): its BLAKE2b-256.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(Nid);

impl Key {
    /// The key of this DATA.
    #[must_use]
    pub fn of(data: &[u8]) -> Self {
        Self::from_bytes(hash(data))
    }

    /// The keys of several.
    pub(super) fn of_all<'a>(data: impl IntoIterator<Item = &'a [u8]>) -> Vec<Self> {
        hash_all(data).into_iter().map(Self::from_bytes).collect()
    }

    /// The key with these bytes.
    #[must_use]
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(Nid::from_bytes(bytes))
    }

    /// Its bytes.
    #[must_use]
    pub fn to_bytes(self) -> [u8; 32] {
        self.0.to_bytes()
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
        self.0.fmt(f)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}", self.0.short())
    }
}

impl FromStr for Key {
    type Err = ParseNidError;

    fn from_str(text: &str) -> Result<Self, ParseNidError> {
        text.parse().map(Self)
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
    fn only_lower_case_digits_are_an_address() {
        let nid = Nid::from_bytes(core::array::from_fn(|at| (at * 37 + 11) as u8));
        let hex = nid.to_hex();
        assert_eq!((Nid::from_hex(&hex), hex.as_slice()), (Some(nid), nid.to_string().as_bytes()));
        assert_eq!((Nid::from_hex(&hex[1..]), Nid::from_hex(&[&hex[..], b"0"].concat())), (None, None));
        for at in [0, 1, 31, 62, 63] {
            for byte in 0..=u8::MAX {
                let mut changed = hex;
                changed[at] = byte;
                let is_digit = matches!(byte, b'0'..=b'9' | b'a'..=b'f');
                let read = Nid::from_hex(&changed).map(Nid::to_hex);
                assert_eq!(read, is_digit.then_some(changed), "{byte} at {at}");
            }
        }
    }

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
