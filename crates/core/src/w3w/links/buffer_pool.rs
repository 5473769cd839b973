//! Buffers of finished messages, reused for new ones. Without them a relay would allocate fresh memory for every
//! message, which is its largest cost.

use bytes::{Buf, Bytes};

/// The most bytes that are kept.
const BYTES_MAX: usize = 4 << 20;
/// Smaller buffers are not worth keeping; a larger one would take most of the pool.
const BUFFER_BYTES: core::ops::RangeInclusive<usize> = 16 * 1024..=256 * 1024;

/// Empty buffers. They are no part of a node's state: two nodes are equal whatever their pools have.
#[derive(Debug, Default)]
pub(super) struct BufferPool {
    buffers: Vec<Vec<u8>>,
    bytes: usize,
}

impl BufferPool {
    /// A buffer for a frame of this length, if there is one.
    pub(super) fn take(&mut self, len: usize) -> Option<Vec<u8>> {
        let fits = |buffer: &Vec<u8>| buffer.capacity() >= len && buffer.capacity() / 4 <= len;
        if !self.buffers.last().is_some_and(fits) {
            return None;
        }
        let buffer = self.buffers.pop()?;
        self.bytes -= buffer.capacity();
        Some(buffer)
    }

    /// Returns bytes to the pool. If no other part shares them, their buffer is kept.
    pub(super) fn give(&mut self, mut frame: Bytes) {
        if !BUFFER_BYTES.contains(&frame.len()) || !frame.is_unique() {
            return;
        }
        // Advanced to its end, it has no bytes to copy when the buffer is taken out.
        frame.advance(frame.len());
        let buffer = Vec::from(frame);
        if self.bytes + buffer.capacity() <= BYTES_MAX {
            self.bytes += buffer.capacity();
            self.buffers.push(buffer);
        }
    }

    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Clone for BufferPool {
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl PartialEq for BufferPool {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for BufferPool {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_reused_once_no_part_shares_it() {
        let mut pool = BufferPool::default();
        let frame = Bytes::from(vec![1; 70_000]);
        let (at, held) = (frame.as_ptr(), frame.clone());
        pool.give(frame);
        assert!(pool.take(60_000).is_none(), "somebody holds it");
        pool.give(held);
        assert!(pool.take(70_001).is_none() && pool.take(10_000).is_none(), "too short, and far too long");
        let again = pool.take(60_000).unwrap();
        assert_eq!((again.as_ptr(), again.len(), pool.bytes), (at, 0, 0));
    }

    #[test]
    fn no_more_is_kept_than_allowed() {
        let mut pool = BufferPool::default();
        (0..100).for_each(|_| pool.give(Bytes::from(vec![1; 100_000])));
        assert!(pool.bytes <= BYTES_MAX && pool.bytes > BYTES_MAX / 2, "{}", pool.bytes);
    }
}
