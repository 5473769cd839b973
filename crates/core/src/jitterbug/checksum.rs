//! The codec inside TP5: length, payload, CRC-32. A FIN alone does not prove that data is complete, since the kernel of
//! a killed leader sends one too (JA-32).
//!
//! | offset | length | content |
//! |---|---|---|
//! | 0 | 4 | n, the length of the payload |
//! | 4 | n | payload |
//! | 4 + n | 4 | CRC-32 (IEEE) of the payload |

use crate::wire::{DecodeError, Reader};

/// How much longer a frame is than its payload.
pub const FRAME_BYTES: usize = 8;
/// A longer payload is nobody's: four bytes that say so are no length.
const PAYLOAD_BYTES_MAX: u32 = 1 << 28;

/// The frame around a payload.
///
/// # Panics
/// If the payload has 4 GiB or more.
#[must_use]
pub fn frame(payload: &[u8]) -> Vec<u8> {
    framed(payload.len(), |data| data.extend_from_slice(payload))
}

/// The frame around a payload of about this many bytes, written in place.
pub(super) fn framed(bytes: usize, write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut data = Vec::with_capacity(bytes + FRAME_BYTES);
    data.extend_from_slice(&[0; 4]);
    write(&mut data);
    let len = u32::try_from(data.len() - 4).expect("data is bounded far below 4 GiB");
    data[..4].copy_from_slice(&len.to_be_bytes());
    let crc = crc32fast::hash(&data[4..]);
    data.extend_from_slice(&crc.to_be_bytes());
    data
}

/// The payload of a frame that fills `data` exactly (JA-32a).
///
/// # Errors
/// If it does not, or if the payload differs from what was framed.
pub fn unframe(data: &[u8]) -> Result<&[u8], DecodeError> {
    let mut reader = Reader::new(data);
    let len = reader.u32()?;
    let payload = reader.bytes(len as usize)?;
    let crc = reader.u32()?;
    reader.finish()?;
    if crc == crc32fast::hash(payload) { Ok(payload) } else { Err(DecodeError::Field("crc")) }
}

/// Whether this is not even the beginning of a frame.
pub(super) fn is_no_frame(data: &[u8]) -> bool {
    Reader::new(data).u32().is_ok_and(|len| len > PAYLOAD_BYTES_MAX)
}
