//! Frames: the layout of messages in a byte stream.
//!
//! | offset | length | content |
//! |---|---|---|
//! | 0 | 4 | kind in the upper two bits, length of the payload in the others |
//! | 4 | length | payload, 1 to [`CHUNK_BYTES`] bytes |
//!
//! A message of at most one chunk is one `Whole` frame. A larger one is `Part` frames and a `Last`. Whole frames may be
//! between them: so a small message overtakes a large one. There is one large message at a time in each direction.
//!
//! The fourth kind is `Probe`: its payload is one byte, 0 for a ping and 1 for a pong, and a nonce of four bytes. The pool
//! answers a ping with a pong of the same nonce. No probe reaches the machine.

use crate::wire::DecodeError;

/// The most payload of one frame.
pub const CHUNK_BYTES: usize = 16 * 1024;
/// The bytes before the payload.
pub const HEADER_BYTES: usize = 4;

const LENGTH_BITS: u32 = 30;

/// The content of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A message.
    Whole,
    /// The next part of the large message.
    Part,
    /// The end of the large message.
    Last,
    /// A ping or a pong.
    Probe,
}

/// Bytes of a probe: its type and its nonce.
pub(super) const PROBE_BYTES: usize = 5;
const PING: u8 = 0;
const PONG: u8 = 1;

/// A frame by which the pool measures a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Probe {
    Ping(u32),
    Pong(u32),
}

impl Probe {
    pub(super) fn encode(self) -> [u8; PROBE_BYTES] {
        let (which, nonce) = match self {
            Self::Ping(nonce) => (PING, nonce),
            Self::Pong(nonce) => (PONG, nonce),
        };
        let [a, b, c, d] = nonce.to_be_bytes();
        [which, a, b, c, d]
    }

    fn decode(payload: &[u8]) -> Result<Self, DecodeError> {
        let Ok([which, nonce @ ..]) = <[u8; PROBE_BYTES]>::try_from(payload) else {
            return Err(DecodeError::Field("probe length"));
        };
        match which {
            PING => Ok(Self::Ping(u32::from_be_bytes(nonce))),
            PONG => Ok(Self::Pong(u32::from_be_bytes(nonce))),
            _ => Err(DecodeError::Field("probe")),
        }
    }
}

/// The probes that received bytes completed: the last ping and the last pong. Earlier ones of the same read add nothing.
#[derive(Debug, Default)]
pub(super) struct Probes {
    pub(super) ping: Option<u32>,
    pub(super) pong: Option<u32>,
}

/// Takes the messages that received bytes complete. Its error ends the reading.
pub(super) type Take<'a> = &'a mut dyn FnMut(&[u8]) -> Result<(), DecodeError>;

/// The header of a frame.
pub(super) fn header(kind: Kind, payload_bytes: usize) -> [u8; HEADER_BYTES] {
    debug_assert!((1..=CHUNK_BYTES).contains(&payload_bytes), "a frame holds one chunk");
    ((kind as u32) << LENGTH_BITS | payload_bytes as u32).to_be_bytes()
}

fn parse_header(header: [u8; HEADER_BYTES]) -> Result<(Kind, usize), DecodeError> {
    let word = u32::from_be_bytes(header);
    let kind = match word >> LENGTH_BITS {
        0 => Kind::Whole,
        1 => Kind::Part,
        2 => Kind::Last,
        _ => Kind::Probe,
    };
    match (word & ((1 << LENGTH_BITS) - 1)) as usize {
        0 => Err(DecodeError::Field("frame length")),
        length if length > CHUNK_BYTES => Err(DecodeError::Limit("frame length")),
        length if kind == Kind::Probe && length != PROBE_BYTES => Err(DecodeError::Field("probe length")),
        length => Ok((kind, length)),
    }
}

/// Assembles messages from the bytes of a stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Reader {
    /// The beginning of an incomplete frame.
    partial: Vec<u8>,
    /// The large message so far. It grows with the received bytes, never by a declared length.
    large: Vec<u8>,
}

impl Reader {
    /// Reads the next bytes, and gives every message they complete to `take`. A message that is complete in `data` is not
    /// copied.
    pub(super) fn push(
        &mut self,
        mut data: &[u8],
        message_bytes_max: usize,
        take: Take<'_>,
    ) -> Result<Probes, DecodeError> {
        let mut probes = Probes::default();
        while !data.is_empty() {
            if self.partial.is_empty()
                && let Some((&head, rest)) = data.split_first_chunk()
            {
                let (kind, length) = parse_header(head)?;
                if let Some((payload, rest)) = rest.split_at_checked(length) {
                    data = rest;
                    self.frame(kind, payload, message_bytes_max, &mut probes, take)?;
                    continue;
                }
            }
            data = self.push_partial(data, message_bytes_max, &mut probes, take)?;
        }
        Ok(probes)
    }

    /// The memory of the large message so far.
    pub(super) fn unfinished_bytes(&self) -> usize {
        self.large.capacity()
    }

    /// Whether the stream may end here.
    pub(super) fn is_between_messages(&self) -> bool {
        self.partial.is_empty() && self.large.is_empty()
    }

    /// Completes the current frame as far as `data` goes. Returns the rest of `data`.
    fn push_partial<'a>(
        &mut self,
        data: &'a [u8],
        message_bytes_max: usize,
        probes: &mut Probes,
        take: Take<'_>,
    ) -> Result<&'a [u8], DecodeError> {
        let missing = HEADER_BYTES.saturating_sub(self.partial.len());
        let (head, data) = data.split_at(missing.min(data.len()));
        self.partial.extend_from_slice(head);
        let Some(&head) = self.partial.first_chunk() else { return Ok(data) };
        let (kind, length) = parse_header(head)?;
        let missing = HEADER_BYTES + length - self.partial.len();
        let (body, data) = data.split_at(missing.min(data.len()));
        self.partial.extend_from_slice(body);
        if self.partial.len() == HEADER_BYTES + length {
            let frame = core::mem::take(&mut self.partial);
            self.frame(kind, &frame[HEADER_BYTES..], message_bytes_max, probes, take)?;
        }
        Ok(data)
    }

    fn frame(
        &mut self,
        kind: Kind,
        payload: &[u8],
        message_bytes_max: usize,
        probes: &mut Probes,
        take: Take<'_>,
    ) -> Result<(), DecodeError> {
        match kind {
            Kind::Whole => return take(payload),
            Kind::Probe => {
                match Probe::decode(payload)? {
                    Probe::Ping(nonce) => probes.ping = Some(nonce),
                    Probe::Pong(nonce) => probes.pong = Some(nonce),
                }
                return Ok(());
            }
            Kind::Part | Kind::Last => {}
        }
        if self.large.len() + payload.len() > message_bytes_max {
            return Err(DecodeError::Limit("message length"));
        }
        if self.large.len() + payload.len() > self.large.capacity() {
            // It doubles, but not beyond the limit.
            let room = (2 * self.large.capacity()).max(self.large.len() + payload.len());
            self.large.reserve_exact(room.min(message_bytes_max) - self.large.len());
        }
        self.large.extend_from_slice(payload);
        if kind == Kind::Last { take(&core::mem::take(&mut self.large)) } else { Ok(()) }
    }
}
