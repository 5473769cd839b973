//! Random mutations with a fixed seed, for the slice of fuzzing in every test run.

use annulus_core::Rng;

/// Edge values of lengths, counts and kinds.
const EDGES: [u8; 8] = [0x00, 0x01, 0x02, 0x7f, 0x80, 0xfe, 0xff, 0x10];

/// No input grows beyond this: long inputs are slow, and rarely find more than short ones.
const BYTES_MAX: usize = 2048;

/// Makes inputs out of a corpus: the same seed and corpus give the same inputs.
#[derive(Debug)]
pub struct Mutator<'a> {
    corpus: &'a [Vec<u8>],
    rng: Rng,
}

impl<'a> Mutator<'a> {
    /// Mutates `corpus` as `seed` decides.
    #[must_use]
    pub fn new(corpus: &'a [Vec<u8>], seed: u64) -> Self {
        Self { corpus, rng: Rng::from_number(seed, 0) }
    }

    /// The next input: one of the corpus with one to eight changes.
    pub fn input(&mut self) -> Vec<u8> {
        let mut bytes = self.rng.pick(self.corpus).cloned().unwrap_or_default();
        for _ in 0..=self.rng.below(8) {
            self.change(&mut bytes);
        }
        bytes.truncate(BYTES_MAX);
        bytes
    }

    fn change(&mut self, bytes: &mut Vec<u8>) {
        let at = self.rng.index(bytes.len());
        match self.rng.below(7) {
            0 => bytes.truncate(at),
            1 => bytes.insert(at, self.rng.next_u32() as u8),
            2 => {
                let other = self.rng.pick(self.corpus).map_or(&[][..], Vec::as_slice);
                let from = self.rng.index(other.len());
                bytes.truncate(at);
                bytes.extend_from_slice(&other[from..]);
            }
            3 => {
                let again = bytes[at..].to_vec();
                bytes.extend_from_slice(&again);
            }
            kind => {
                let Some(byte) = bytes.get_mut(at) else { return };
                *byte = match kind {
                    4 => *byte ^ (1 << self.rng.below(8)),
                    5 => *self.rng.pick(&EDGES).unwrap_or(&0),
                    _ => self.rng.next_u32() as u8,
                };
            }
        }
    }
}
