//! Cuts a stream of bytes into frames without trusting their lengths.

use bytes::Bytes;

use super::buffer_pool::BufferPool;
use crate::w3w::wire::{FIRST_BODY_BYTES_MAX, LENGTH_BYTES};
use crate::wire::DecodeError;

/// How many bytes may be allocated ahead of those that arrived: fewer than a peer may send ahead in any case.
const AHEAD_BYTES: usize = 128 * 1024;
/// The most that a frame grows at once.
const GROWTH_BYTES_MAX: usize = 1024 * 1024;

/// The frames of one connection. Its memory follows the bytes that arrived, never the announced length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Frames {
    /// The incomplete frame, with its length.
    frame: Vec<u8>,
    /// Its full length, once that is known.
    frame_len: usize,
    body_bytes_max: usize,
    is_first: bool,
}

impl Frames {
    pub(super) fn new(body_bytes_max: usize) -> Self {
        Self { frame: Vec::new(), frame_len: LENGTH_BYTES, body_bytes_max, is_first: true }
    }

    /// The frames after the first, which may be longer.
    fn later(body_bytes_max: usize) -> Self {
        Self { is_first: false, ..Self::new(body_bytes_max) }
    }

    /// Takes bytes from the front of `data` up to the end of a frame. Returns the frame if it is complete.
    pub(super) fn take(
        &mut self,
        data: &mut &[u8],
        pool: &mut BufferPool,
    ) -> Result<Option<Bytes>, DecodeError> {
        if self.frame.len() < LENGTH_BYTES {
            // The length is mostly there as a whole: then the frame is allocated once.
            let has_body = self.frame.is_empty() && data.len() > LENGTH_BYTES;
            let whole = if has_body { data.first_chunk().copied() } else { None };
            if whole.is_none() {
                self.fill(data);
            }
            let Some(length) = whole.or_else(|| self.frame.first_chunk().copied()) else { return Ok(None) };
            let body_len = u32::from_be_bytes(length) as usize;
            let limit = if self.is_first { FIRST_BODY_BYTES_MAX } else { self.body_bytes_max };
            if body_len > limit {
                return Err(DecodeError::Limit("frame"));
            }
            self.frame_len = LENGTH_BYTES + body_len;
            if let Some(mut buffer) = pool.take(self.frame_len).filter(|_| !data.is_empty()) {
                buffer.extend_from_slice(&self.frame);
                self.frame = buffer;
            }
        }
        self.fill(data);
        if self.frame.len() < self.frame_len {
            return Ok(None);
        }
        self.frame_len = LENGTH_BYTES;
        self.is_first = false;
        Ok(Some(core::mem::take(&mut self.frame).into()))
    }

    /// The memory of the incomplete frame.
    pub(super) fn held_bytes(&self) -> usize {
        self.frame.capacity()
    }

    /// Takes the bytes that the frame lacks.
    fn fill(&mut self, data: &mut &[u8]) {
        let (now, rest) = data.split_at(data.len().min(self.frame_len - self.frame.len()));
        *data = rest;
        if !now.is_empty() {
            self.make_room(now.len());
            self.frame.extend_from_slice(now);
        }
    }

    /// Doubles small buffers, but never past the end of the frame. So a peer must send most of the bytes that it costs.
    fn make_room(&mut self, more: usize) {
        let len = self.frame.len();
        let needed = len + more;
        if needed > self.frame.capacity() {
            let target = needed.max(AHEAD_BYTES).max(len + len.min(GROWTH_BYTES_MAX)).min(self.frame_len);
            self.frame.reserve_exact(target - len);
        }
    }
}

/// Takes the first frame of `data`, of any allowed length.
pub(in crate::w3w) fn first_frame(
    data: &mut &[u8],
    body_bytes_max: usize,
) -> Result<Option<Bytes>, DecodeError> {
    Frames::later(body_bytes_max).take(data, &mut BufferPool::default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(frames: &mut Frames, mut data: &[u8]) -> Result<Vec<Bytes>, DecodeError> {
        let mut bodies = Vec::new();
        while !data.is_empty() {
            bodies.extend(frames.take(&mut data, &mut BufferPool::default())?);
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
            let whole = [&b"\0\0\0\x03abc"[..], b"\0\0\0\0", b"\0\0\0\x01z"];
            assert_eq!(bodies, whole, "in chunks of {chunk}");
        }
    }

    #[test]
    fn a_length_over_the_limit_is_refused_before_a_byte_of_the_body() {
        assert_eq!(all(&mut Frames::new(1000), b"\0\0\x02\x01"), Err(DecodeError::Limit("frame")), "first");
        let mut frames = Frames::new(1000);
        all(&mut frames, b"\0\0\0\0\0\0\x03\xe8").unwrap();
        assert!(frames.held_bytes() <= LENGTH_BYTES, "nothing is allocated by a declared length");
        let mut frames = Frames::new(1000);
        assert_eq!(all(&mut frames, b"\0\0\0\0\0\0\x03\xe9"), Err(DecodeError::Limit("frame")));
        assert_eq!(all(&mut Frames::new(1000), &[0xff; 4]), Err(DecodeError::Limit("frame")));
    }

    #[test]
    fn memory_follows_the_bytes_that_arrived() {
        let mut frames = Frames::new(1 << 24);
        all(&mut frames, &[0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 1]).unwrap();
        assert!(frames.held_bytes() <= AHEAD_BYTES);
        all(&mut frames, &[1; 500_000]).unwrap();
        assert!((500_000..=1_000_010).contains(&frames.held_bytes()));
    }
}
