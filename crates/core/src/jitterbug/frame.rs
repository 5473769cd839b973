//! The codec inside TP5: length, payload, CRC-32. A FIN alone does not prove that data is whole, for the kernel of a
//! killed leader sends one too (JA-32).
//!
//! | offset | length | content |
//! |---|---|---|
//! | 0 | 4 | n, the length of the payload |
//! | 4 | n | payload |
//! | 4 + n | 4 | CRC-32 (IEEE) of the payload |

use crate::wire::{DecodeError, Reader};

/// How much longer a frame is than its payload.
pub const FRAME_BYTES: usize = 8;

/// The frame around a payload.
///
/// # Panics
/// If the payload has 4 GiB or more.
#[must_use]
pub fn frame(payload: &[u8]) -> Vec<u8> {
    let len = u32::try_from(payload.len()).expect("data is bounded far below 4 GiB");
    let mut data = Vec::with_capacity(payload.len() + FRAME_BYTES);
    data.extend_from_slice(&len.to_be_bytes());
    data.extend_from_slice(payload);
    data.extend_from_slice(&crc32fast::hash(payload).to_be_bytes());
    data
}

/// The payload of a frame that fills `data` exactly (JA-32a).
///
/// # Errors
/// If it doesn't, or if the payload is not what was framed.
pub fn unframe(data: &[u8]) -> Result<&[u8], DecodeError> {
    let mut reader = Reader::new(data);
    let len = reader.u32()?;
    let payload = reader.bytes(len as usize)?;
    let crc = reader.u32()?;
    reader.finish()?;
    if crc == crc32fast::hash(payload) { Ok(payload) } else { Err(DecodeError::Field("crc")) }
}
