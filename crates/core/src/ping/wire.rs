//! The bytes of a message: version, kind, sequence.
//!
//! | offset | length | content |
//! |---|---|---|
//! | 0 | 1 | version, 1 |
//! | 1 | 1 | kind: 0 ping, 1 pong |
//! | 2 | 8 | sequence |

use super::message::Message;
use crate::wire::{DecodeError, Reader, Writer};

/// The length of every message.
pub const MESSAGE_BYTES: usize = 10;

const VERSION: u8 = 1;
const PING: u8 = 0;
const PONG: u8 = 1;

/// Appends the bytes of a message.
pub fn encode(message: Message, writer: &mut Writer<'_>) {
    let (kind, sequence) = match message {
        Message::Ping { sequence } => (PING, sequence),
        Message::Pong { sequence } => (PONG, sequence),
    };
    writer.u8(VERSION);
    writer.u8(kind);
    writer.u64(sequence);
}

/// Reads a message that fills `bytes` exactly.
///
/// # Errors
/// If it doesn't, or if the bytes are no message of this version.
pub fn decode(bytes: &[u8]) -> Result<Message, DecodeError> {
    let mut reader = Reader::new(bytes);
    if reader.u8()? != VERSION {
        return Err(DecodeError::Version);
    }
    let kind = reader.u8()?;
    let sequence = reader.u64()?;
    reader.finish()?;
    match kind {
        PING => Ok(Message::Ping { sequence }),
        PONG => Ok(Message::Pong { sequence }),
        _ => Err(DecodeError::Kind),
    }
}
