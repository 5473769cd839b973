//! Cutting a stream of bytes into frames without believing their lengths.

use super::wire::{FIRST_BODY_BYTES_MAX, LENGTH_BYTES};
use crate::wire::DecodeError;

/// How much is allocated before the bytes that fill it have come.
const CHUNK_BYTES: usize = 16 * 1024;

/// The frames of one connection. What it holds is what has arrived, never what was announced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Frames {
    length: [u8; LENGTH_BYTES],
    length_len: usize,
    body: Vec<u8>,
    body_len: usize,
    body_bytes_max: usize,
    is_first: bool,
}

impl Frames {
    pub(super) fn new(body_bytes_max: usize) -> Self {
        let length = [0; LENGTH_BYTES];
        Self { length, length_len: 0, body: Vec::new(), body_len: 0, body_bytes_max, is_first: true }
    }

    /// The frames behind the first, which may be longer.
    pub(super) fn later(body_bytes_max: usize) -> Self {
        Self { is_first: false, ..Self::new(body_bytes_max) }
    }

    /// Takes from the front of `data` up to the end of a frame; its body, if that is complete.
    pub(super) fn take(&mut self, data: &mut &[u8]) -> Result<Option<Vec<u8>>, DecodeError> {
        while self.length_len < LENGTH_BYTES {
            let Some((&byte, rest)) = data.split_first() else { return Ok(None) };
            *data = rest;
            self.length[self.length_len] = byte;
            self.length_len += 1;
            if self.length_len == LENGTH_BYTES {
                self.begin()?;
            }
        }
        let (now, rest) = data.split_at(data.len().min(self.body_len - self.body.len()));
        *data = rest;
        self.make_room(now.len());
        self.body.extend_from_slice(now);
        if self.body.len() < self.body_len {
            return Ok(None);
        }
        self.length_len = 0;
        self.is_first = false;
        Ok(Some(core::mem::take(&mut self.body)))
    }

    /// How many bytes of an unfinished frame are held.
    pub(super) fn held_bytes(&self) -> usize {
        self.body.len()
    }

    fn begin(&mut self) -> Result<(), DecodeError> {
        let limit = if self.is_first { FIRST_BODY_BYTES_MAX } else { self.body_bytes_max };
        self.body_len = u32::from_be_bytes(self.length) as usize;
        if self.body_len > limit { Err(DecodeError::Limit("frame")) } else { Ok(()) }
    }

    /// Doubles what is there, but never past the end of the frame: a peer has to send half of what it costs us.
    fn make_room(&mut self, more: usize) {
        let needed = self.body.len() + more;
        if needed > self.body.capacity() {
            let target = needed.max(2 * self.body.len()).max(CHUNK_BYTES).min(self.body_len);
            self.body.reserve_exact(target - self.body.len());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(frames: &mut Frames, mut data: &[u8]) -> Result<Vec<Vec<u8>>, DecodeError> {
        let mut bodies = Vec::new();
        while !data.is_empty() {
            bodies.extend(frames.take(&mut data)?);
        }
        Ok(bodies)
    }

    #[test]
    fn frames_come_whole_however_they_are_cut() {
        let wire = b"\0\0\0\x03abc\0\0\0\0\0\0\0\x01z\0\0";
        for chunk in 1..=wire.len() {
            let mut frames = Frames::new(10);
            let bodies: Vec<_> =
                wire.chunks(chunk).flat_map(|data| all(&mut frames, data).unwrap()).collect();
            assert_eq!(bodies, [b"abc".to_vec(), b"".to_vec(), b"z".to_vec()], "in chunks of {chunk}");
        }
    }

    #[test]
    fn a_length_over_the_limit_is_refused_before_a_byte_of_the_body() {
        assert_eq!(all(&mut Frames::new(1000), b"\0\0\x02\x01"), Err(DecodeError::Limit("frame")), "first");
        let mut frames = Frames::new(1000);
        all(&mut frames, b"\0\0\0\0\0\0\x03\xe8").unwrap();
        assert_eq!(frames.body.capacity(), 0, "nothing is allocated by a declared length");
        let mut frames = Frames::new(1000);
        assert_eq!(all(&mut frames, b"\0\0\0\0\0\0\x03\xe9"), Err(DecodeError::Limit("frame")));
        assert_eq!(all(&mut Frames::new(1000), &[0xff; 4]), Err(DecodeError::Limit("frame")));
    }

    #[test]
    fn memory_follows_what_has_arrived() {
        let mut frames = Frames::new(1 << 24);
        all(&mut frames, &[0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 1]).unwrap();
        assert!(frames.body.capacity() <= CHUNK_BYTES);
        all(&mut frames, &[1; 100_000]).unwrap();
        assert!(frames.body.capacity() <= 2 * 100_001);
        assert_eq!(frames.held_bytes(), 100_001);
    }
}
