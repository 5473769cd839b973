//! Randomness that a seed decides: ChaCha8 with our own uniform and shuffle.
//!
//! The generator is a named algorithm, and all values are derived from it here. So a seed written down today replays
//! the same run after any upgrade of a dependency. The vectors in the tests check that.

use core::time::Duration;

use crate::chacha::ChaCha8;
use crate::time::micros;

/// 32 bytes that decide all random choices of a machine.
pub type Seed = [u8; 32];

/// The random numbers of one machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rng(ChaCha8);

impl Rng {
    /// The sequence that `seed` names.
    #[must_use]
    pub fn new(seed: Seed) -> Self {
        Self(ChaCha8::new(seed))
    }

    /// The sequence number `stream` under a small seed, such as one typed on a command line.
    #[must_use]
    pub fn from_number(seed: u64, stream: u64) -> Self {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&seed.to_le_bytes());
        bytes[8..16].copy_from_slice(&stream.to_le_bytes());
        Self::new(bytes)
    }

    /// A seed for another generator; each call returns a different one.
    pub fn seed(&mut self) -> Seed {
        let mut seed = [0; 32];
        for word in seed.chunks_exact_mut(4) {
            word.copy_from_slice(&self.next_u32().to_le_bytes());
        }
        seed
    }

    /// 32 uniform bits.
    pub fn next_u32(&mut self) -> u32 {
        self.0.next_word()
    }

    /// 64 uniform bits.
    pub fn next_u64(&mut self) -> u64 {
        u64::from(self.next_u32()) | (u64::from(self.next_u32()) << 32)
    }

    /// 128 uniform bits.
    pub fn next_u128(&mut self) -> u128 {
        u128::from(self.next_u64()) | (u128::from(self.next_u64()) << 64)
    }

    /// Uniform in `0..bound`, without bias; 0 if `bound` is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        // Lemire's method: the high half of a product is uniform once the low halves that occur once too
        // often are drawn again.
        let mut product = u128::from(self.next_u64()) * u128::from(bound);
        if (product as u64) < bound {
            let surplus = bound.wrapping_neg() % bound.max(1);
            while (product as u64) < surplus {
                product = u128::from(self.next_u64()) * u128::from(bound);
            }
        }
        (product >> 64) as u64
    }

    /// Uniform in `0..len`, for an index; 0 if `len` is 0.
    pub fn index(&mut self, len: usize) -> usize {
        self.below(len as u64) as usize
    }

    /// Uniform in `low..=high`; `low` if the range is empty.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        match high.saturating_sub(low).checked_add(1) {
            Some(width) => low + self.below(width),
            None => self.next_u64(),
        }
    }

    /// Uniform in `[0, 1)`, a multiple of 2⁻⁵³.
    pub fn unit(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }

    /// True with probability `p`. It draws even if `p` is 0 or less, or 1 or more, so that a changed probability does
    /// not shift later draws.
    pub fn chance(&mut self, p: f64) -> bool {
        self.unit() < p
    }

    /// Uniform in `[0, most)`, to the microsecond.
    pub fn duration_below(&mut self, most: Duration) -> Duration {
        Duration::from_micros(self.below(micros(most)))
    }

    /// Puts `items` in a uniformly random order (Fisher–Yates).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.index(last + 1));
        }
    }

    /// A uniformly chosen item, `None` of an empty slice.
    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> Option<&'a T> {
        if items.is_empty() { None } else { Some(&items[self.index(items.len())]) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_numbers_after_an_upgrade() {
        let mut rng = Rng::from_number(7, 0);
        let drawn: Vec<u64> = (0..4).map(|_| rng.next_u64()).collect();
        let below: Vec<u64> = (0..8).map(|_| rng.below(10)).collect();
        let mut order = [0, 1, 2, 3, 4, 5, 6, 7];
        rng.shuffle(&mut order);
        assert_eq!(drawn, SEED_7);
        assert_eq!(below, SEED_7_BELOW_10);
        assert_eq!(order, SEED_7_SHUFFLED);
    }

    // Computed by an implementation of the same rules in another language.
    const SEED_7: [u64; 4] = [
        14_095_323_943_061_994_099,
        8_595_031_940_432_502_117,
        104_676_313_501_531_310,
        5_559_363_474_435_486_144,
    ];
    const SEED_7_BELOW_10: [u64; 8] = [3, 3, 3, 1, 6, 9, 6, 6];
    const SEED_7_SHUFFLED: [i32; 8] = [7, 4, 0, 6, 2, 5, 1, 3];

    #[test]
    fn chacha8_is_the_published_algorithm() {
        // The all-zero key's first block, as in the estream test vectors for ChaCha with eight rounds.
        let mut rng = Rng::new([0; 32]);
        let first = rng.next_u32().to_le_bytes();
        assert_eq!(first, [0x3e, 0x00, 0xef, 0x2f]);
    }

    #[test]
    fn below_is_uniform_and_never_reaches_its_bound() {
        let mut rng = Rng::from_number(1, 0);
        let mut seen = [0u32; 7];
        for _ in 0..70_000 {
            seen[rng.below(7) as usize] += 1;
        }
        assert!(seen.iter().all(|&n| (9_500..10_500).contains(&n)), "{seen:?}");
        assert_eq!(rng.below(0), 0);
        assert_eq!(rng.below(1), 0);
        assert_eq!(rng.between(5, 5), 5);
        assert_eq!(rng.between(9, 5), 9);
    }

    #[test]
    fn shuffle_reaches_every_order() {
        let mut rng = Rng::from_number(2, 0);
        let mut seen = std::collections::BTreeMap::new();
        for _ in 0..6_000 {
            let mut order = [1, 2, 3];
            rng.shuffle(&mut order);
            *seen.entry(order).or_insert(0) += 1;
        }
        assert_eq!(seen.len(), 6);
        assert!(seen.values().all(|&n| (800..1_200).contains(&n)), "{seen:?}");
    }

    #[test]
    fn unit_stays_below_one_and_chance_follows_it() {
        let mut rng = Rng::from_number(3, 0);
        assert!((0..10_000).all(|_| (0.0..1.0).contains(&rng.unit())));
        assert!((0..1_000).all(|_| !rng.chance(0.0)));
        assert!((0..1_000).all(|_| rng.chance(1.0)));
    }
}
