//! The bytes of a packet.
//!
//! | offset | length | content |
//! |---|---|---|
//! | 0 | 1 | version, 1; `codec.rs` has another form of the bodies, with version 2 |
//! | 1 | 4 | the ring: the first bytes of the hash of its name |
//! | 5 | 16 | id of the sender |
//! | 21 | | messages up to the end, at least one |
//!
//! A message is a length, a kind, and a body of the length less one byte. A length below 128 takes one byte; others
//! take two, with the high bit of the first set. So an unknown kind can be skipped, and one broken message does not
//! affect the rest (SA-54). All integers are big-endian. An id has 16 bytes; a sequence and an incarnation have 4.
//!
//! | kind | message | body |
//! |---|---|---|
//! | 0 | Ping | sequence, to, flags 1 (bit 0: wants coordinate, bit 1: wants Alive), time 7 |
//! | 1 | Ack | sequence, flags 1 (bit 0: introduce, bit 1: coordinate), time 7, coordinate 40 if so |
//! | 2 | IndirectPing | sequence, to, target, flags 1 (bit 0: wants nack), contents |
//! | 3 | IndirectAck | sequence |
//! | 4 | IndirectNack | sequence |
//! | 5 | Join | sequence, id, incarnation, contents |
//! | 6 | Alive | sequence, id, incarnation, contents |
//! | 7 | Suspect | from, sequence, id, incarnation |
//! | 8 | Dead | from, sequence, id, incarnation |
//! | 9 | User | from, sequence, data |
//! | 10 | Digest | sequence, range 9, hashes 8 each: 1 or 16 |
//! | 11 | Summary | sequence, range 9, entries: id, incarnation, state 1, fingerprint of the contents 4 |
//! | 12 | Want | sequence, ids |
//! | 13 | Padding | zeros |
//!
//! Contents are an address (kind 4 or 6, ip, port). If there is more, the number of further addresses follows, then
//! these, then metadata up to the end. Time is microseconds since the Unix epoch. A range is its bits and, in 8 bytes,
//! its prefix. The sender of the packet is the originator of kinds 0 to 4 and 10 to 12. The originator of Join and
//! Alive is the node itself, since only a node describes itself (SA-58). Suspect, Dead and User name their originator.

use super::codec::Codec;
use super::contents::Contents;
use super::message::{Header, Message, NodeView};
use super::sequence::Sequence;
use super::status::{Incarnation, State, Status};
use super::tree::Range;
use super::vivaldi::Coordinate;
use crate::id::{Id, hash};
use crate::time::Wall;
use crate::wire::{DecodeError, Reader, Writer};

/// The version of these bytes.
pub const VERSION: u8 = 1;
/// The bytes of a packet before its messages.
pub const HEAD_BYTES: usize = 21;

pub(super) const PING: u8 = 0;
pub(super) const ACK: u8 = 1;
pub(super) const INDIRECT_PING: u8 = 2;
pub(super) const INDIRECT_ACK: u8 = 3;
pub(super) const INDIRECT_NACK: u8 = 4;
pub(super) const JOIN: u8 = 5;
pub(super) const ALIVE: u8 = 6;
pub(super) const SUSPECT: u8 = 7;
pub(super) const DEAD: u8 = 8;
pub(super) const USER: u8 = 9;
pub(super) const DIGEST: u8 = 10;
pub(super) const SUMMARY: u8 = 11;
pub(super) const WANT: u8 = 12;
const PADDING: u8 = 13;

/// The bytes of an entry of a summary.
pub(super) const ENTRY_BYTES: usize = 25;

/// The short hash that keeps rings apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ring([u8; 4]);

impl Ring {
    /// The ring with this name.
    #[must_use]
    pub fn new(name: &str) -> Self {
        let digest = hash(name.as_bytes());
        Self([digest[0], digest[1], digest[2], digest[3]])
    }
}

/// The start of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// The ring.
    pub ring: Ring,
    /// The sender.
    pub from: Id,
}

impl Head {
    /// Appends the start of a packet.
    pub fn write(&self, writer: &mut Writer<'_>) {
        self.write_as(VERSION, writer);
    }

    /// Appends the start of a packet of this version.
    pub(super) fn write_as(&self, version: u8, writer: &mut Writer<'_>) {
        writer.u8(version);
        writer.bytes(&self.ring.0);
        writer.u128(self.from.number());
    }

    /// Reads the start of a packet and checks that its messages add up.
    ///
    /// # Errors
    /// If it has another version, is too short, or its messages do not end where it ends.
    pub fn read<'a>(bytes: &'a [u8]) -> Result<(Self, Messages<'a>), DecodeError> {
        let mut reader = Reader::new(bytes);
        if reader.u8()? != VERSION {
            return Err(DecodeError::Version);
        }
        let ring = Ring(reader.array()?);
        let from = Id::new(reader.u128()?);
        let frames = Frames { reader };
        let messages = Messages { from, frames: frames.clone() };
        let mut count = 0;
        for frame in frames {
            frame?;
            count += 1;
        }
        if count == 0 { Err(DecodeError::Truncated) } else { Ok((Self { ring, from }, messages)) }
    }
}

/// The frames of a packet: the kind and the body of each message. None follows one with a wrong length.
#[derive(Clone, Debug)]
pub(super) struct Frames<'a> {
    reader: Reader<'a>,
}

impl<'a> Frames<'a> {
    /// The frames in these bytes.
    pub(super) const fn new(bytes: &'a [u8]) -> Self {
        Self { reader: Reader::new(bytes) }
    }

    /// The bytes that were not read.
    pub(super) fn rest(&self) -> &'a [u8] {
        self.reader.clone().take_rest()
    }

    fn frame(&mut self) -> Result<(u8, &'a [u8]), DecodeError> {
        let first = self.reader.u8()?;
        let len = if first < 0x80 {
            usize::from(first)
        } else {
            usize::from(first & 0x7f) << 8 | usize::from(self.reader.u8()?)
        };
        if first >= 0x80 && len < 0x80 {
            return Err(DecodeError::Field("length"));
        }
        let bytes = self.reader.bytes(len)?;
        let (kind, body) = bytes.split_first().ok_or(DecodeError::Truncated)?;
        Ok((*kind, body))
    }
}

impl<'a> Iterator for Frames<'a> {
    type Item = Result<(u8, &'a [u8]), DecodeError>;

    fn next(&mut self) -> Option<Self::Item> {
        let frame = (self.reader.remaining() > 0).then(|| self.frame())?;
        if frame.is_err() {
            self.reader.take_rest();
        }
        Some(frame)
    }
}

/// The messages of a packet, one after the other; a broken one does not affect the next.
#[derive(Clone, Debug)]
pub struct Messages<'a> {
    from: Id,
    frames: Frames<'a>,
}

impl<'a> Iterator for Messages<'a> {
    type Item = Result<Message<'a>, DecodeError>;

    fn next(&mut self) -> Option<Self::Item> {
        let frame = self.frames.next()?;
        Some(frame.and_then(|(kind, body)| decode(self.from, kind, body)))
    }
}

/// Reads the body of a message that came in a packet from `sender`.
fn decode(sender: Id, kind: u8, body: &[u8]) -> Result<Message<'_>, DecodeError> {
    if kind == PADDING {
        let header = Header { from: sender, sequence: Sequence::default() };
        let bytes = u16::try_from(body.len()).map_err(|_| DecodeError::Limit("padding"))?;
        return if body.iter().all(|byte| *byte == 0) {
            Ok(Message::Padding { header, bytes })
        } else {
            Err(DecodeError::Field("padding"))
        };
    }
    if kind > PADDING {
        let header = Header { from: sender, sequence: Sequence::default() };
        return Ok(Message::Other { header, kind, body });
    }
    let mut reader = Reader::new(body);
    let said = match kind {
        SUSPECT | DEAD | USER => Some(read_id(&mut reader)?),
        _ => None,
    };
    let sequence = Sequence(reader.u32()?);
    let header = Header { from: said.unwrap_or(sender), sequence };
    let message = match kind {
        PING => read_ping(header, &mut reader)?,
        ACK => read_ack(header, &mut reader)?,
        INDIRECT_PING => Message::IndirectPing {
            header,
            to: read_id(&mut reader)?,
            target: read_id(&mut reader)?,
            wants_nack: flags(&mut reader, 1)? != 0,
            contents: Contents::read(&mut reader)?,
        },
        INDIRECT_ACK => Message::IndirectAck { header },
        INDIRECT_NACK => Message::IndirectNack { header },
        JOIN | ALIVE => read_node(kind, sequence, &mut reader)?,
        SUSPECT => {
            Message::Suspect { header, id: read_id(&mut reader)?, incarnation: Incarnation(reader.u32()?) }
        }
        DEAD => Message::Dead { header, id: read_id(&mut reader)?, incarnation: Incarnation(reader.u32()?) },
        USER => Message::User { header, id: header.from, data: reader.take_rest() },
        DIGEST => Message::Digest {
            header,
            range: Range::read(&mut reader)?,
            hashes: Hashes::read(reader.take_rest())?,
        },
        SUMMARY => Message::Summary {
            header,
            range: Range::read(&mut reader)?,
            entries: Summaries::read(reader.take_rest())?,
        },
        _ => Message::Want { header, ids: Ids::read(reader.take_rest())? },
    };
    reader.finish()?;
    Ok(message)
}

fn read_ping<'a>(header: Header, reader: &mut Reader<'a>) -> Result<Message<'a>, DecodeError> {
    let to = read_id(reader)?;
    let (flags, local_time) = read_time(reader, 3)?;
    let (wants_coordinate, wants_alive) = (flags & 1 != 0, flags & 2 != 0);
    Ok(Message::Ping { header, to, local_time, wants_coordinate, wants_alive })
}

fn read_ack<'a>(header: Header, reader: &mut Reader<'a>) -> Result<Message<'a>, DecodeError> {
    let (flags, local_time) = read_time(reader, 3)?;
    let coordinate = if flags & 2 == 0 { None } else { Some(Coordinate::read(reader)?) };
    Ok(Message::Ack { header, local_time, introduce: flags & 1 != 0, coordinate })
}

fn read_node<'a>(kind: u8, sequence: Sequence, reader: &mut Reader<'a>) -> Result<Message<'a>, DecodeError> {
    let id = read_id(reader)?;
    let incarnation = Incarnation(reader.u32()?);
    let node = NodeView { id, contents: Contents::read(reader)? };
    let header = Header { from: id, sequence };
    Ok(if kind == JOIN {
        Message::Join { header, node, incarnation }
    } else {
        Message::Alive { header, node, incarnation }
    })
}

fn read_id(reader: &mut Reader<'_>) -> Result<Id, DecodeError> {
    Ok(Id::new(reader.u128()?))
}

/// Flags in the first of eight bytes, and a time in the others.
fn read_time(reader: &mut Reader<'_>, known: u8) -> Result<(u8, Wall), DecodeError> {
    let both = reader.u64()?;
    let flags = (both >> TIME_BITS) as u8;
    if flags & !known == 0 {
        Ok((flags, Wall::from_micros(both & TIME_MAX)))
    } else {
        Err(DecodeError::Field("flags"))
    }
}

fn write_time(flags: u8, time: Wall, writer: &mut Writer<'_>) {
    writer.u64(u64::from(flags) << TIME_BITS | time.as_micros().min(TIME_MAX));
}

const TIME_BITS: u32 = 56;
const TIME_MAX: u64 = (1 << TIME_BITS) - 1;

fn flags(reader: &mut Reader<'_>, known: u8) -> Result<u8, DecodeError> {
    let flags = reader.u8()?;
    if flags & !known == 0 { Ok(flags) } else { Err(DecodeError::Field("flags")) }
}

/// Appends a message with its frame.
pub fn encode(message: &Message<'_>, writer: &mut Writer<'_>) {
    write_frame(size(message) - frame_bytes(size(message)), kind(message), writer);
    let header = message.header();
    if matches!(message, Message::Suspect { .. } | Message::Dead { .. } | Message::User { .. }) {
        writer.u128(header.from.number());
    }
    if !matches!(message, Message::Other { .. } | Message::Padding { .. }) {
        writer.u32(header.sequence.0);
    }
    encode_body(message, writer);
}

/// Appends the length and the kind of a message; the length counts the kind and the body.
pub(super) fn write_frame(len: usize, kind: u8, writer: &mut Writer<'_>) {
    if len < 0x80 {
        writer.u8(len as u8);
    } else {
        writer.u16(0x8000 | len as u16);
    }
    writer.u8(kind);
}

fn encode_body(message: &Message<'_>, writer: &mut Writer<'_>) {
    match message {
        Message::Ping { to, local_time, wants_coordinate, wants_alive, .. } => {
            writer.u128(to.number());
            write_time(u8::from(*wants_coordinate) | u8::from(*wants_alive) << 1, *local_time, writer);
        }
        Message::Ack { local_time, introduce, coordinate, .. } => {
            let flags = u8::from(*introduce) | u8::from(coordinate.is_some()) << 1;
            write_time(flags, *local_time, writer);
            if let Some(coordinate) = coordinate {
                coordinate.write(writer);
            }
        }
        Message::IndirectPing { to, target, wants_nack, contents, .. } => {
            writer.u128(to.number());
            writer.u128(target.number());
            writer.u8(u8::from(*wants_nack));
            contents.write(writer);
        }
        Message::IndirectAck { .. } | Message::IndirectNack { .. } => {}
        Message::Join { node, incarnation, .. } | Message::Alive { node, incarnation, .. } => {
            writer.u128(node.id.number());
            writer.u32(incarnation.0);
            node.contents.write(writer);
        }
        Message::Suspect { id, incarnation, .. } | Message::Dead { id, incarnation, .. } => {
            writer.u128(id.number());
            writer.u32(incarnation.0);
        }
        Message::User { data, .. } => writer.bytes(data),
        Message::Digest { range, hashes, .. } => {
            range.write(writer);
            writer.bytes(hashes.0);
        }
        Message::Summary { range, entries, .. } => {
            range.write(writer);
            writer.bytes(entries.0);
        }
        Message::Want { ids, .. } => writer.bytes(ids.0),
        Message::Other { body, .. } => writer.bytes(body),
        Message::Padding { bytes, .. } => (0..*bytes).for_each(|_| writer.u8(0)),
    }
}

/// How many bytes a message takes in a packet, its frame included (S-54, SA-48).
#[must_use]
pub fn size(message: &Message<'_>) -> usize {
    let body = match message {
        Message::Ping { .. } => 28,
        Message::Ack { coordinate, .. } => 12 + if coordinate.is_some() { Coordinate::BYTES } else { 0 },
        Message::IndirectPing { contents, .. } => 37 + contents.bytes(),
        Message::IndirectAck { .. } | Message::IndirectNack { .. } => 4,
        Message::Join { node, .. } | Message::Alive { node, .. } => 24 + node.contents.bytes(),
        Message::Suspect { .. } | Message::Dead { .. } => 40,
        Message::User { data, .. } => 20 + data.len(),
        Message::Digest { hashes, .. } => 13 + hashes.0.len(),
        Message::Summary { entries, .. } => 13 + entries.0.len(),
        Message::Want { ids, .. } => 4 + ids.0.len(),
        Message::Other { body, .. } => body.len(),
        Message::Padding { bytes, .. } => usize::from(*bytes),
    };
    body + 1 + if body + 1 < 0x80 { 1 } else { 2 }
}

/// How many bytes the length field of a message of this size takes.
pub(super) const fn frame_bytes(size: usize) -> usize {
    if size <= 0x80 { 1 } else { 2 }
}

pub(super) const fn kind(message: &Message<'_>) -> u8 {
    match message {
        Message::Ping { .. } => PING,
        Message::Ack { .. } => ACK,
        Message::IndirectPing { .. } => INDIRECT_PING,
        Message::IndirectAck { .. } => INDIRECT_ACK,
        Message::IndirectNack { .. } => INDIRECT_NACK,
        Message::Join { .. } => JOIN,
        Message::Alive { .. } => ALIVE,
        Message::Suspect { .. } => SUSPECT,
        Message::Dead { .. } => DEAD,
        Message::User { .. } => USER,
        Message::Digest { .. } => DIGEST,
        Message::Summary { .. } => SUMMARY,
        Message::Want { .. } => WANT,
        Message::Other { kind, .. } => *kind,
        Message::Padding { .. } => PADDING,
    }
}

/// An encoded message: encoded once, however often it is sent (S-50, S-54, S-55).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Coded {
    bytes: Box<[u8]>,
}

impl Coded {
    /// Encodes a message. A `Coded` is never put into another (SA-52).
    #[must_use]
    pub fn new(message: &Message<'_>) -> Self {
        Self::with(Codec::Compact, message)
    }

    /// Encodes a message with this codec.
    #[must_use]
    pub fn with(codec: Codec, message: &Message<'_>) -> Self {
        let mut bytes = Vec::with_capacity(codec.size(message));
        codec.encode(message, &mut Writer::new(&mut bytes, usize::MAX));
        Self { bytes: bytes.into() }
    }

    /// The bytes, frame included.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The number of bytes.
    #[must_use]
    pub fn size(&self) -> usize {
        self.bytes.len()
    }
}

/// The hashes of a digest: one, or one for each child of the range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hashes<'a>(pub(super) &'a [u8]);

impl<'a> Hashes<'a> {
    fn read(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        if [8, 8 * Range::FAN].contains(&bytes.len()) {
            Ok(Self(bytes))
        } else {
            Err(DecodeError::Field("hashes"))
        }
    }

    /// One after the other.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = u64> + use<'a> {
        self.0.as_chunks().0.iter().map(|chunk| u64::from_be_bytes(*chunk))
    }
}

/// The entries of a summary.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summaries<'a>(pub(super) &'a [u8]);

impl<'a> Summaries<'a> {
    fn read(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let (entries, rest) = bytes.as_chunks::<ENTRY_BYTES>();
        let states = entries.iter().all(|entry| entry[20] <= State::Suspect as u8);
        if rest.is_empty() && states { Ok(Self(bytes)) } else { Err(DecodeError::Field("entries")) }
    }

    /// One after the other.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (Id, Status, u32)> + use<'a> {
        self.0.as_chunks::<ENTRY_BYTES>().0.iter().map(|entry| {
            let mut reader = Reader::new(entry);
            let id = Id::new(reader.u128().unwrap_or_default());
            let incarnation = Incarnation(reader.u32().unwrap_or_default());
            let state = reader.u8().ok().and_then(State::from_number).unwrap_or_default();
            (id, Status::new(incarnation, state), reader.u32().unwrap_or_default())
        })
    }
}

/// A list of ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ids<'a>(pub(super) &'a [u8]);

impl<'a> Ids<'a> {
    fn read(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        if bytes.len().is_multiple_of(16) { Ok(Self(bytes)) } else { Err(DecodeError::Field("ids")) }
    }

    /// One after the other.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Id> + use<'a> {
        self.0.as_chunks().0.iter().map(|chunk| Id::from_bytes(*chunk))
    }
}
