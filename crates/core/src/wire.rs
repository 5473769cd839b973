//! Reading and writing of untrusted bytes, without a panic and without an allocation by a peer's declared length.
//!
//! [`Reader`] reads borrowed bytes and fails when they end. It compares a declared length with the bytes that are there
//! before it takes any. [`Writer`] appends to a vector up to a limit; an overflow is detected once, at the end. All
//! integers are big-endian.

/// Why bytes are not a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// They end too early.
    #[error("it ends too early")]
    Truncated,
    /// There are more of them than the message has.
    #[error("bytes follow its end")]
    Trailing,
    /// An unsupported version.
    #[error("its version is not spoken here")]
    Version,
    /// An unknown kind of message.
    #[error("its kind is unknown")]
    Kind,
    /// A field has an invalid value.
    #[error("its field {0} has a value it may not have")]
    Field(&'static str),
    /// A declared length is over the limit.
    #[error("its {0} is over the limit")]
    Limit(&'static str),
}

/// Writing went over the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it does not fit into {bytes_max} bytes")]
pub struct Overflow {
    /// The limit.
    pub bytes_max: usize,
}

/// Reads bytes from a peer.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Reads `bytes` from the start.
    #[must_use]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// The next byte.
    ///
    /// # Errors
    /// [`DecodeError::Truncated`] if there is none, as in every method here.
    pub fn u8(&mut self) -> Result<u8, DecodeError> {
        Ok(self.array::<1>()?[0])
    }

    /// The next two bytes as a number.
    ///
    /// # Errors
    /// If they are not there.
    pub fn u16(&mut self) -> Result<u16, DecodeError> {
        Ok(u16::from_be_bytes(self.array()?))
    }

    /// The next four bytes as a number.
    ///
    /// # Errors
    /// If they are not there.
    pub fn u32(&mut self) -> Result<u32, DecodeError> {
        Ok(u32::from_be_bytes(self.array()?))
    }

    /// The next four bytes as a number with a sign.
    ///
    /// # Errors
    /// If they are not there.
    pub fn i32(&mut self) -> Result<i32, DecodeError> {
        Ok(i32::from_be_bytes(self.array()?))
    }

    /// The next eight bytes as a number.
    ///
    /// # Errors
    /// If they are not there.
    pub fn u64(&mut self) -> Result<u64, DecodeError> {
        Ok(u64::from_be_bytes(self.array()?))
    }

    /// The next sixteen bytes as a number.
    ///
    /// # Errors
    /// If they are not there.
    pub fn u128(&mut self) -> Result<u128, DecodeError> {
        Ok(u128::from_be_bytes(self.array()?))
    }

    /// The next `N` bytes.
    ///
    /// # Errors
    /// If they are not there.
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let (head, rest) = self.rest.split_first_chunk().ok_or(DecodeError::Truncated)?;
        self.rest = rest;
        Ok(*head)
    }

    /// The next `len` bytes, borrowed.
    ///
    /// # Errors
    /// If they are not there.
    pub fn bytes(&mut self, len: usize) -> Result<&'a [u8], DecodeError> {
        let (head, rest) = self.rest.split_at_checked(len).ok_or(DecodeError::Truncated)?;
        self.rest = rest;
        Ok(head)
    }

    /// Everything that is left, borrowed.
    pub fn take_rest(&mut self) -> &'a [u8] {
        core::mem::take(&mut self.rest)
    }

    /// How many bytes are left.
    #[must_use]
    pub const fn remaining(&self) -> usize {
        self.rest.len()
    }

    /// Checks that nothing is left.
    ///
    /// # Errors
    /// [`DecodeError::Trailing`] if something is.
    pub const fn finish(&self) -> Result<(), DecodeError> {
        if self.rest.is_empty() { Ok(()) } else { Err(DecodeError::Trailing) }
    }
}

/// Appends to a vector, up to a limit.
#[derive(Debug)]
pub struct Writer<'a> {
    bytes: &'a mut Vec<u8>,
    start: usize,
    bytes_max: usize,
    overflowed: bool,
}

impl<'a> Writer<'a> {
    /// Appends at most `bytes_max` bytes to `bytes`.
    #[must_use]
    pub fn new(bytes: &'a mut Vec<u8>, bytes_max: usize) -> Self {
        let start = bytes.len();
        Self { bytes, start, bytes_max, overflowed: false }
    }

    /// Appends a byte.
    pub fn u8(&mut self, value: u8) {
        self.bytes(&[value]);
    }

    /// Appends a number in two bytes.
    pub fn u16(&mut self, value: u16) {
        self.bytes(&value.to_be_bytes());
    }

    /// Appends a number in four bytes.
    pub fn u32(&mut self, value: u32) {
        self.bytes(&value.to_be_bytes());
    }

    /// Appends a number with a sign in four bytes.
    pub fn i32(&mut self, value: i32) {
        self.bytes(&value.to_be_bytes());
    }

    /// Appends a number in eight bytes.
    pub fn u64(&mut self, value: u64) {
        self.bytes(&value.to_be_bytes());
    }

    /// Appends a number in sixteen bytes.
    pub fn u128(&mut self, value: u128) {
        self.bytes(&value.to_be_bytes());
    }

    /// Appends bytes; once something did not fit, nothing more is appended.
    pub fn bytes(&mut self, bytes: &[u8]) {
        if bytes.len() > self.room() {
            self.overflowed = true;
        }
        if !self.overflowed {
            self.bytes.extend_from_slice(bytes);
        }
    }

    /// How many bytes were written.
    #[must_use]
    pub const fn written(&self) -> usize {
        self.bytes.len() - self.start
    }

    /// How many bytes still fit.
    #[must_use]
    pub const fn room(&self) -> usize {
        if self.overflowed { 0 } else { self.bytes_max - self.written() }
    }

    /// Checks that everything fitted.
    ///
    /// # Errors
    /// If something did not; the written bytes are then invalid.
    pub const fn finish(self) -> Result<(), Overflow> {
        if self.overflowed { Err(Overflow { bytes_max: self.bytes_max }) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_returns_what_a_writer_wrote() {
        let mut bytes = vec![0xaa];
        let mut writer = Writer::new(&mut bytes, 64);
        writer.u8(1);
        writer.u16(2);
        writer.u32(3);
        writer.i32(-4);
        writer.u64(5);
        writer.u128(6);
        writer.bytes(b"end");
        assert_eq!((writer.written(), writer.room()), (38, 26));
        assert_eq!(writer.finish(), Ok(()));
        let mut reader = Reader::new(&bytes[1..]);
        assert_eq!((reader.u8(), reader.u16(), reader.u32()), (Ok(1), Ok(2), Ok(3)));
        assert_eq!((reader.i32(), reader.u64(), reader.u128()), (Ok(-4), Ok(5), Ok(6)));
        assert_eq!(reader.finish(), Err(DecodeError::Trailing));
        assert_eq!(reader.bytes(3), Ok(&b"end"[..]));
        assert_eq!(reader.finish(), Ok(()));
    }

    #[test]
    fn a_reader_never_reads_past_the_end_and_takes_nothing_when_it_fails() {
        let mut reader = Reader::new(&[1, 2, 3]);
        assert_eq!(reader.u32(), Err(DecodeError::Truncated));
        assert_eq!(reader.bytes(usize::MAX), Err(DecodeError::Truncated));
        assert_eq!(reader.remaining(), 3);
        assert_eq!(reader.take_rest(), [1, 2, 3]);
        assert_eq!(reader.u8(), Err(DecodeError::Truncated));
    }

    #[test]
    fn a_writer_stops_at_its_limit_with_an_error() {
        let mut bytes = Vec::new();
        let mut writer = Writer::new(&mut bytes, 4);
        writer.u16(1);
        writer.u32(2);
        writer.u8(3);
        assert_eq!(writer.room(), 0);
        assert_eq!(writer.finish(), Err(Overflow { bytes_max: 4 }));
        assert_eq!(bytes, [0, 1], "nothing follows an overflow");
    }
}
