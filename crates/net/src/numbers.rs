//! A hasher for numbers that this process assigns: no peer can choose them to collide, so a multiplication is enough.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A map by such numbers.
pub(crate) type NumberMap<K, V> = HashMap<K, V, BuildHasherDefault<NumberHasher>>;

/// Odd, and its bits look like noise.
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

#[derive(Default)]
pub(crate) struct NumberHasher(u64);

impl Hasher for NumberHasher {
    fn finish(&self) -> u64 {
        // The upper half is mixed best, and a map looks at both ends.
        self.0 ^ self.0 >> 32
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    fn write_u8(&mut self, number: u8) {
        self.write_u64(u64::from(number));
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = (self.0.rotate_left(5) ^ number).wrapping_mul(FACTOR);
    }
}
