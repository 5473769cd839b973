//! Codecs: the forms in which messages travel (S-50 … S-56, S-114).
//!
//! | codec | version | body of a message |
//! |---|---|---|
//! | `compact` | 1 | its fields, one after the other: see `wire.rs` |
//! | `msgpack` | 2 | a map of MessagePack, from the name of each field to its value |
//!
//! Head and frames are the same in both. The map of a kind has the fields of the compact body, in the same order, and all
//! of them. A number has its whole width, so that the kind and the last field decide the size. A node sends one codec
//! and receives both.

use core::fmt;
use core::str::FromStr;
use std::borrow::Cow;

use super::message::Message;
use super::wire::{
    ACK, ALIVE, Coded, DEAD, DIGEST, Frames, HEAD_BYTES, Head, INDIRECT_ACK, INDIRECT_NACK, INDIRECT_PING,
    JOIN, PING, SUMMARY, SUSPECT, USER, VERSION, WANT, encode, frame_bytes, size, write_frame,
};
use crate::wire::{Reader, Writer};

/// The version of packets of the codec `msgpack`.
pub const MSGPACK_VERSION: u8 = 2;

/// How a node writes its messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Codec {
    /// Fields without names, in as few bytes as they need.
    #[default]
    Compact,
    /// Maps of MessagePack: any tool can read them, and they take more bytes.
    Msgpack,
}

impl Codec {
    /// All of them, by name.
    pub const ALL: [(&'static str, Self); 2] = [("compact", Self::Compact), ("msgpack", Self::Msgpack)];

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Compact => "compact",
            Self::Msgpack => "msgpack",
        }
    }

    /// Appends the start of a packet.
    pub fn write_head(self, head: &Head, writer: &mut Writer<'_>) {
        let version = if self == Self::Compact { VERSION } else { MSGPACK_VERSION };
        head.write_as(version, writer);
    }

    /// Appends a message with its frame.
    pub fn encode(self, message: &Message<'_>, writer: &mut Writer<'_>) {
        if self == Self::Compact {
            encode(message, writer);
            return;
        }
        let compact = Coded::new(message);
        let Some(Ok((kind, body))) = Frames::new(compact.bytes()).next() else { return };
        write_frame(1 + msgpack_bytes(kind, body.len()), kind, writer);
        match fields(kind) {
            Some(fields) => write_map(fields, body, writer),
            None => writer.bytes(body),
        }
    }

    /// How many bytes a message takes in a packet, its frame included (S-54).
    #[must_use]
    pub fn size(self, message: &Message<'_>) -> usize {
        let compact = size(message);
        match self {
            Self::Compact => compact,
            Self::Msgpack => self.bytes_of(super::wire::kind(message), compact - frame_bytes(compact) - 1),
        }
    }

    /// A packet in the compact form, whichever codec its sender has. Bytes that are no packet stay as they are.
    #[must_use]
    pub fn to_compact(bytes: &[u8]) -> Cow<'_, [u8]> {
        let Some((&MSGPACK_VERSION, rest)) = bytes.split_first() else { return Cow::Borrowed(bytes) };
        let mut packet = Vec::with_capacity(bytes.len());
        let mut writer = Writer::new(&mut packet, usize::MAX);
        writer.u8(VERSION);
        let Some((head, frames)) = rest.split_at_checked(HEAD_BYTES - 1) else {
            writer.bytes(rest);
            return Cow::Owned(packet);
        };
        writer.bytes(head);
        let mut frames = Frames::new(frames);
        loop {
            let left = frames.rest();
            let Some(frame) = frames.next() else { break };
            // A wrong length makes the rest unreadable, in this form as in the other.
            let Ok((kind, body)) = frame else {
                writer.bytes(left);
                break;
            };
            let compact = match fields(kind) {
                // SA-54: a map that cannot be read is a message that cannot be read.
                Some(fields) => read_map(fields, body).unwrap_or_default(),
                None => body.to_vec(),
            };
            write_frame(1 + compact.len(), kind, &mut writer);
            writer.bytes(&compact);
        }
        Cow::Owned(packet)
    }

    /// The bytes of an answer to a nonce: head, Ack, and an Alive whose contents have so many bytes.
    pub(super) fn answer_bytes(self, contents: usize) -> usize {
        HEAD_BYTES + self.bytes_of(ACK, 12) + self.bytes_of(ALIVE, 24 + contents)
    }

    /// The bytes of a long user message besides its data.
    pub(super) fn user_overhead(self) -> usize {
        const LONG: usize = 300;
        self.bytes_of(USER, 20 + LONG) - LONG
    }

    /// The bytes of a message of this kind, frame included, by the length of its compact body.
    fn bytes_of(self, kind: u8, body: usize) -> usize {
        let coded = 1 + if self == Self::Compact { body } else { msgpack_bytes(kind, body) };
        coded + if coded < 0x80 { 1 } else { 2 }
    }
}

impl fmt::Display for Codec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// No codec has this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no codec: use compact or msgpack")]
pub struct UnknownCodec(pub String);

impl FromStr for Codec {
    type Err = UnknownCodec;

    fn from_str(text: &str) -> Result<Self, UnknownCodec> {
        let named = Self::ALL.into_iter().find(|(name, _)| *name == text);
        named.map(|(_, codec)| codec).ok_or_else(|| UnknownCodec(text.to_owned()))
    }
}

/// The type of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// A number of 1, 4 or 8 bytes.
    Number(usize),
    /// Bytes of this length.
    Bytes(usize),
    /// All bytes up to the end of the body.
    Rest,
}

type Field = (&'static str, Kind);

const SEQUENCE: Field = ("seq", Kind::Number(4));
const INCARNATION: Field = ("inc", Kind::Number(4));
const FROM: Field = ("from", Kind::Bytes(16));
const ID: Field = ("id", Kind::Bytes(16));
const TO: Field = ("to", Kind::Bytes(16));
/// Flags and the time, as in the compact form.
const TIME: Field = ("time", Kind::Number(8));
const NODE: Field = ("node", Kind::Rest);
const RANGE: Field = ("range", Kind::Bytes(9));

/// The fields of a kind of message in the order of its compact body; `None` of a kind whose body has no fields.
const fn fields(kind: u8) -> Option<&'static [Field]> {
    Some(match kind {
        PING => &[SEQUENCE, TO, TIME],
        ACK => &[SEQUENCE, TIME, ("coordinate", Kind::Rest)],
        INDIRECT_PING => &[SEQUENCE, TO, ("target", Kind::Bytes(16)), ("nack", Kind::Number(1)), NODE],
        INDIRECT_ACK | INDIRECT_NACK => &[SEQUENCE],
        JOIN | ALIVE => &[SEQUENCE, ID, INCARNATION, NODE],
        SUSPECT | DEAD => &[FROM, SEQUENCE, ID, INCARNATION],
        USER => &[FROM, SEQUENCE, ("data", Kind::Rest)],
        DIGEST => &[SEQUENCE, RANGE, ("hashes", Kind::Rest)],
        SUMMARY => &[SEQUENCE, RANGE, ("entries", Kind::Rest)],
        WANT => &[SEQUENCE, ("ids", Kind::Rest)],
        _ => return None,
    })
}

/// The bytes of MessagePack: a map of up to 15, a short text, unsigned numbers, and bytes with a length of one or two bytes.
mod msgpack {
    pub(super) const MAP: u8 = 0x80;
    pub(super) const TEXT: u8 = 0xa0;
    pub(super) const BYTES_8: u8 = 0xc4;
    pub(super) const BYTES_16: u8 = 0xc5;
    pub(super) const NUMBER_8: u8 = 0xcc;
    pub(super) const NUMBER_32: u8 = 0xce;
    pub(super) const NUMBER_64: u8 = 0xcf;
}

/// The bytes of the map, by the length of the compact body.
fn msgpack_bytes(kind: u8, body: usize) -> usize {
    let Some(fields) = fields(kind) else { return body };
    let mut left = body;
    let values = fields.iter().map(|(name, kind)| {
        let bytes = width(*kind, left);
        left = left.saturating_sub(bytes);
        1 + name.len() + value_bytes(*kind, bytes)
    });
    1 + values.sum::<usize>()
}

/// The compact length of a field, if so many bytes of the body are left.
const fn width(kind: Kind, left: usize) -> usize {
    match kind {
        Kind::Number(bytes) | Kind::Bytes(bytes) => bytes,
        Kind::Rest => left,
    }
}

const fn value_bytes(kind: Kind, bytes: usize) -> usize {
    match kind {
        Kind::Number(_) => 1 + bytes,
        Kind::Bytes(_) | Kind::Rest => bytes + if bytes < 0x100 { 2 } else { 3 },
    }
}

fn write_map(fields: &[Field], body: &[u8], writer: &mut Writer<'_>) {
    let mut body = Reader::new(body);
    writer.u8(msgpack::MAP | fields.len() as u8);
    for (name, kind) in fields {
        writer.u8(msgpack::TEXT | name.len() as u8);
        writer.bytes(name.as_bytes());
        let value = body.bytes(width(*kind, body.remaining())).unwrap_or_default();
        match kind {
            Kind::Number(bytes) => writer.u8(number(*bytes)),
            Kind::Bytes(_) | Kind::Rest if value.len() < 0x100 => {
                writer.u8(msgpack::BYTES_8);
                writer.u8(value.len() as u8);
            }
            Kind::Bytes(_) | Kind::Rest => {
                writer.u8(msgpack::BYTES_16);
                writer.u16(value.len() as u16);
            }
        }
        writer.bytes(value);
    }
}

/// The compact body of a map that has exactly these fields in this order.
fn read_map(fields: &[Field], map: &[u8]) -> Option<Vec<u8>> {
    let (mut map, mut body) = (Reader::new(map), Vec::new());
    (map.u8().ok()? == msgpack::MAP | fields.len() as u8).then_some(())?;
    for (name, kind) in fields {
        (map.u8().ok()? == msgpack::TEXT | name.len() as u8).then_some(())?;
        (map.bytes(name.len()).ok()? == name.as_bytes()).then_some(())?;
        let (mark, len) = (map.u8().ok()?, width(*kind, 0));
        let bytes = match (*kind, mark) {
            (Kind::Number(bytes), _) => (mark == number(bytes)).then_some(bytes)?,
            (_, msgpack::BYTES_8) => usize::from(map.u8().ok()?),
            (_, msgpack::BYTES_16) => Some(usize::from(map.u16().ok()?)).filter(|len| *len >= 0x100)?,
            _ => return None,
        };
        (*kind == Kind::Rest || bytes == len).then_some(())?;
        body.extend_from_slice(map.bytes(bytes).ok()?);
    }
    map.finish().ok()?;
    Some(body)
}

/// The first byte of a number of this width.
const fn number(bytes: usize) -> u8 {
    match bytes {
        1 => msgpack::NUMBER_8,
        4 => msgpack::NUMBER_32,
        _ => msgpack::NUMBER_64,
    }
}
