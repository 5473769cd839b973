//! ChaCha with eight rounds as a stream of words: the generator behind [`Rng`](crate::Rng).
//!
//! It is written here and not taken from a crate, because it is forty lines and a seed must give the same run for ever. The
//! tests compare it with the published vectors and with another implementation.

/// Blocks that are computed together: as many as a vector register of every 64-bit processor has lanes.
const LANES: usize = 4;
/// Words of a block.
const WORDS: usize = 16;
/// “expand 32-byte k”.
const CONSTANTS: [u32; 4] = [0x6170_7865, 0x3320_646e, 0x7962_2d32, 0x6b20_6574];

/// One word of each block.
type Lanes = [u32; LANES];

/// The words that a key names, in order.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct ChaCha8 {
    key: [u32; 8],
    /// The number of the block behind the buffer.
    counter: u64,
    buffer: [u32; LANES * WORDS],
    /// The first word of the buffer that was not given out.
    next: usize,
}

impl ChaCha8 {
    /// The words of this key, with a nonce of zero.
    pub(crate) fn new(key: [u8; 32]) -> Self {
        let mut words = [0; 8];
        for (word, bytes) in words.iter_mut().zip(key.chunks_exact(4)) {
            *word = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        }
        Self { key: words, counter: 0, buffer: [0; LANES * WORDS], next: LANES * WORDS }
    }

    /// The next word.
    pub(crate) fn next_word(&mut self) -> u32 {
        if self.next == self.buffer.len() {
            self.refill();
        }
        let word = self.buffer[self.next];
        self.next += 1;
        word
    }

    fn refill(&mut self) {
        let mut state = [[0; LANES]; WORDS];
        for (lanes, word) in state.iter_mut().zip(CONSTANTS.iter().chain(&self.key)) {
            *lanes = [*word; LANES];
        }
        state[12] = core::array::from_fn(|lane| self.counter.wrapping_add(lane as u64) as u32);
        state[13] = core::array::from_fn(|lane| (self.counter.wrapping_add(lane as u64) >> 32) as u32);
        let begin = state;
        for _ in 0..4 {
            for column in 0..4 {
                quarter_round(&mut state, column, 4 + column, 8 + column, 12 + column);
            }
            for row in 0..4 {
                quarter_round(&mut state, row, 4 + (row + 1) % 4, 8 + (row + 2) % 4, 12 + (row + 3) % 4);
            }
        }
        for (word, (mixed, first)) in state.iter().zip(&begin).enumerate() {
            for lane in 0..LANES {
                self.buffer[lane * WORDS + word] = mixed[lane].wrapping_add(first[lane]);
            }
        }
        self.counter = self.counter.wrapping_add(LANES as u64);
        self.next = 0;
    }
}

impl core::fmt::Debug for ChaCha8 {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("ChaCha8")
            .field("counter", &self.counter)
            .field("next", &self.next)
            .finish_non_exhaustive()
    }
}

#[expect(clippy::needless_range_loop, reason = "each step reads one row and writes another")]
fn quarter_round(state: &mut [Lanes; WORDS], a: usize, b: usize, c: usize, d: usize) {
    for (sum, added, turned, bits) in [(a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)] {
        for lane in 0..LANES {
            state[sum][lane] = state[sum][lane].wrapping_add(state[added][lane]);
            state[turned][lane] = (state[turned][lane] ^ state[sum][lane]).rotate_left(bits);
        }
    }
}

#[cfg(test)]
mod tests {
    use rand_chacha::ChaCha8Rng;
    use rand_chacha::rand_core::{Rng as _, SeedableRng as _};

    use super::*;

    #[test]
    fn the_first_block_is_the_published_one() {
        let mut words = ChaCha8::new([0; 32]);
        let block: Vec<u8> = (0..4).flat_map(|_| words.next_word().to_le_bytes()).collect();
        let published =
            [0x3e, 0x00, 0xef, 0x2f, 0x89, 0x5f, 0x40, 0xd6, 0x7f, 0x5b, 0xb8, 0xe8, 0x1f, 0x09, 0xa5, 0xa1];
        assert_eq!(block, published);
    }

    #[test]
    fn another_implementation_gives_the_same_words() {
        for number in 0..20_u8 {
            let key = core::array::from_fn(|index| number.wrapping_mul(37).wrapping_add(index as u8));
            let (mut ours, mut theirs) = (ChaCha8::new(key), ChaCha8Rng::from_seed(key));
            for word in 0..1_000 {
                assert_eq!(ours.next_word(), theirs.next_u32(), "word {word} of key {number}");
            }
        }
    }
}
