//! Bytes that were written to a stream and that the kernel has not taken. Small writes are copied into one piece; large
//! ones are shared, not copied.

use std::collections::VecDeque;
use std::io::IoSlice;

use annulus_core::Payload;
use bytes::{Buf, Bytes, BytesMut};

/// Pieces shorter than this are copied into the last one: a piece of its own costs more than the copy.
const COPIED_BYTES_MAX: usize = 4096;
/// A tail that a slow reader made larger than this is given back once it is empty.
const KEPT_BYTES_MAX: usize = 16 * 1024;
/// The most pieces that are handed to the kernel at once.
pub(crate) const SLICES_MAX: usize = 32;

/// Bytes in order.
#[derive(Debug, Default)]
pub(crate) struct Chunks {
    whole: VecDeque<Bytes>,
    /// The last piece, still growing.
    tail: BytesMut,
    len: usize,
}

impl Chunks {
    /// Adds to the end.
    pub(crate) fn push(&mut self, bytes: Payload<'_>) {
        self.len += bytes.len();
        match bytes {
            Payload::Shared(bytes) if bytes.len() >= COPIED_BYTES_MAX => {
                self.end_tail();
                self.whole.push_back(bytes.clone());
            }
            bytes => self.tail.extend_from_slice(&bytes),
        }
    }

    /// Takes so many from the front.
    pub(crate) fn advance(&mut self, mut bytes: usize) {
        self.len -= bytes;
        while let Some(first) = self.whole.front_mut() {
            if first.len() > bytes {
                first.advance(bytes);
                return;
            }
            bytes -= first.len();
            self.whole.pop_front();
        }
        self.tail.advance(bytes);
        if self.tail.is_empty() && bytes + self.tail.capacity() > KEPT_BYTES_MAX {
            self.tail = BytesMut::new();
        }
    }

    /// The first pieces, as many as fit; how many they are.
    pub(crate) fn slices<'a>(&'a self, into: &mut [IoSlice<'a>; SLICES_MAX]) -> usize {
        let pieces = self.whole.iter().map(|piece| &piece[..]).chain([&self.tail[..]]);
        let mut count = 0;
        for (slot, piece) in into.iter_mut().zip(pieces.filter(|piece| !piece.is_empty())) {
            *slot = IoSlice::new(piece);
            count += 1;
        }
        count
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    fn end_tail(&mut self) {
        if !self.tail.is_empty() {
            self.whole.push_back(self.tail.split().freeze());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(chunks: &Chunks) -> Vec<u8> {
        let mut slices = [IoSlice::new(&[]); SLICES_MAX];
        let count = chunks.slices(&mut slices);
        slices[..count].iter().flat_map(|slice| slice.to_vec()).collect()
    }

    #[test]
    fn bytes_come_out_as_they_went_in_however_they_are_taken() {
        let large = Bytes::from((0..10_000).map(|n| n as u8).collect::<Vec<u8>>());
        for step in [1, 3, 4096, 9_999] {
            let (mut chunks, mut expected) = (Chunks::default(), Vec::new());
            for small in [&b"ab"[..], b"", b"cde"] {
                chunks.push(Payload::Copied(small));
                chunks.push(Payload::Shared(&large));
                chunks.push(Payload::Shared(&large.slice(5..9)));
                expected.extend([small, &large, &large[5..9]].concat());
            }
            while !chunks.is_empty() {
                assert_eq!((all(&chunks), chunks.len()), (expected.clone(), expected.len()));
                let taken = step.min(chunks.len());
                chunks.advance(taken);
                expected.drain(..taken);
            }
            assert_eq!(expected, b"", "steps of {step}");
        }
    }

    #[test]
    fn large_shared_bytes_are_not_copied() {
        let large = Bytes::from(vec![7; COPIED_BYTES_MAX]);
        let mut chunks = Chunks::default();
        chunks.push(Payload::Copied(b"x"));
        chunks.push(Payload::Shared(&large));
        assert_eq!(chunks.whole[1].as_ptr(), large.as_ptr());
    }
}
