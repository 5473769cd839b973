//! The bytes of a message (TU-10). All integers are big-endian.
//!
//! | offset | length | content |
//! |---|---|---|
//! | 0 | 2 | `AT` |
//! | 2 | 1 | version, 1 |
//! | 3 | 1 | kind |
//! | 4 | 16 | group |
//! | 20 | 4 | epoch |
//! | 24 | 8 | nonce |
//! | 32 | | the fields of the kind |

use super::message::{Answer, Ask, Body, Ended, Group, Key, LeaseSeen, Message, Standing, State, Verdict};
use super::record::{Record, decode_bool};
use crate::id::Id;
use crate::wire::{DecodeError, Reader, Writer};

/// The longest datagram.
pub const MESSAGE_BYTES_MAX: usize = 1200;

const MAGIC: [u8; 2] = *b"AT";
const VERSION: u8 = 1;

mod kind {
    pub(super) const ASK: u8 = 0;
    pub(super) const ANSWER: u8 = 1;
    pub(super) const RELEASE: u8 = 2;
    pub(super) const RELEASED: u8 = 3;
    pub(super) const FREE: u8 = 4;
    pub(super) const OFFER: u8 = 5;
    pub(super) const ACCEPTED: u8 = 6;
    pub(super) const READ: u8 = 7;
    pub(super) const STATE: u8 = 8;
}

const RENEW: u8 = 1;
const QUEUE: u8 = 2;

/// Appends the bytes of a message.
pub fn encode(message: &Message, writer: &mut Writer<'_>) {
    writer.bytes(&MAGIC);
    writer.u8(VERSION);
    writer.u8(kind_of(&message.body));
    writer.bytes(&message.group.0);
    writer.u32(message.epoch);
    writer.u64(message.nonce);
    match &message.body {
        Body::Ask(ask) => encode_ask(ask, writer),
        Body::Answer(answer) => encode_answer(answer, writer),
        Body::Release(ended) | Body::Released(ended) => {
            writer.bytes(&ended.key.0);
            writer.u64(ended.number);
            writer.u64(ended.session);
        }
        Body::Free { key, top } => {
            writer.bytes(&key.0);
            writer.u64(*top);
        }
        Body::Offer { record, replaces } => {
            option(replaces.as_ref(), writer, |group, writer| writer.bytes(&group.0));
            record.encode(writer);
        }
        Body::Accepted { bound } => writer.u64(*bound),
        Body::Read { key } => option(key.as_ref(), writer, |key, writer| writer.bytes(&key.0)),
        Body::State(state) => encode_state(state, writer),
    }
}

fn kind_of(body: &Body) -> u8 {
    match body {
        Body::Ask(_) => kind::ASK,
        Body::Answer(_) => kind::ANSWER,
        Body::Release(_) => kind::RELEASE,
        Body::Released(_) => kind::RELEASED,
        Body::Free { .. } => kind::FREE,
        Body::Offer { .. } => kind::OFFER,
        Body::Accepted { .. } => kind::ACCEPTED,
        Body::Read { .. } => kind::READ,
        Body::State(_) => kind::STATE,
    }
}

fn option<T>(value: Option<&T>, writer: &mut Writer<'_>, write: impl FnOnce(&T, &mut Writer<'_>)) {
    writer.u8(u8::from(value.is_some()));
    if let Some(value) = value {
        write(value, writer);
    }
}

fn encode_ask(ask: &Ask, writer: &mut Writer<'_>) {
    writer.bytes(&ask.key.0);
    writer.u64(ask.number);
    writer.bytes(&ask.holder.to_bytes());
    writer.u64(ask.session);
    writer.u32(ask.length_ms);
    writer.u32(ask.waited_ms);
    writer.u8(if ask.renew { RENEW } else { 0 } | if ask.queue { QUEUE } else { 0 });
}

fn encode_answer(answer: &Answer, writer: &mut Writer<'_>) {
    match answer.verdict {
        Verdict::Granted => writer.u8(0),
        Verdict::Held { holder, number, left_ms } => {
            writer.u8(1);
            writer.bytes(&holder.to_bytes());
            writer.u64(number);
            writer.u32(left_ms);
        }
        Verdict::Behind => writer.u8(2),
        Verdict::Resting { left_ms } => {
            writer.u8(3);
            writer.u32(left_ms);
        }
        Verdict::NotVoter => writer.u8(4),
    }
    writer.u64(answer.top);
    writer.u64(answer.floor);
}

fn encode_state(state: &State, writer: &mut Writer<'_>) {
    writer.bytes(&state.id.to_bytes());
    writer.u64(state.start);
    writer.u8(state.standing as u8);
    writer.u64(state.bound);
    writer.u64(state.floor);
    option(state.record.as_ref(), writer, Record::encode);
    option(state.lease.as_ref(), writer, |lease, writer| {
        option(lease.holder.as_ref(), writer, |holder, writer| writer.bytes(&holder.to_bytes()));
        writer.u64(lease.number);
        writer.u32(lease.left_ms);
        writer.u16(lease.waiting);
    });
}

/// Reads a message that fills `bytes` exactly.
///
/// # Errors
/// If it does not, or if the bytes are no message of this version.
pub fn decode(bytes: &[u8]) -> Result<Message, DecodeError> {
    if bytes.len() > MESSAGE_BYTES_MAX {
        return Err(DecodeError::Limit("length"));
    }
    let mut reader = Reader::new(bytes);
    if reader.array()? != MAGIC {
        return Err(DecodeError::Kind);
    }
    if reader.u8()? != VERSION {
        return Err(DecodeError::Version);
    }
    let kind = reader.u8()?;
    let group = Group(reader.array()?);
    let (epoch, nonce) = (reader.u32()?, reader.u64()?);
    let body = decode_body(kind, &mut reader)?;
    reader.finish()?;
    Ok(Message { group, epoch, nonce, body })
}

fn decode_body(kind: u8, reader: &mut Reader<'_>) -> Result<Body, DecodeError> {
    Ok(match kind {
        kind::ASK => Body::Ask(decode_ask(reader)?),
        kind::ANSWER => Body::Answer(decode_answer(reader)?),
        kind::RELEASE => Body::Release(decode_ended(reader)?),
        kind::RELEASED => Body::Released(decode_ended(reader)?),
        kind::FREE => Body::Free { key: Key(reader.array()?), top: reader.u64()? },
        kind::OFFER => {
            let replaces = optional(reader, |reader| Ok(Group(reader.array()?)))?;
            Body::Offer { record: Box::new(Record::decode(reader)?), replaces }
        }
        kind::ACCEPTED => Body::Accepted { bound: reader.u64()? },
        kind::READ => Body::Read { key: optional(reader, |reader| Ok(Key(reader.array()?)))? },
        kind::STATE => Body::State(Box::new(decode_state(reader)?)),
        _ => return Err(DecodeError::Kind),
    })
}

fn optional<'a, T>(
    reader: &mut Reader<'a>,
    read: impl FnOnce(&mut Reader<'a>) -> Result<T, DecodeError>,
) -> Result<Option<T>, DecodeError> {
    if decode_bool(reader, "presence")? { read(reader).map(Some) } else { Ok(None) }
}

fn decode_ask(reader: &mut Reader<'_>) -> Result<Ask, DecodeError> {
    let key = Key(reader.array()?);
    let number = reader.u64()?;
    let holder = Id::from_bytes(reader.array()?);
    let session = reader.u64()?;
    let (length_ms, waited_ms, flags) = (reader.u32()?, reader.u32()?, reader.u8()?);
    if flags & !(RENEW | QUEUE) != 0 {
        return Err(DecodeError::Field("flags"));
    }
    let (renew, queue) = (flags & RENEW != 0, flags & QUEUE != 0);
    Ok(Ask { key, number, holder, session, length_ms, waited_ms, renew, queue })
}

fn decode_answer(reader: &mut Reader<'_>) -> Result<Answer, DecodeError> {
    let verdict = match reader.u8()? {
        0 => Verdict::Granted,
        1 => Verdict::Held {
            holder: Id::from_bytes(reader.array()?),
            number: reader.u64()?,
            left_ms: reader.u32()?,
        },
        2 => Verdict::Behind,
        3 => Verdict::Resting { left_ms: reader.u32()? },
        4 => Verdict::NotVoter,
        _ => return Err(DecodeError::Field("verdict")),
    };
    Ok(Answer { verdict, top: reader.u64()?, floor: reader.u64()? })
}

fn decode_ended(reader: &mut Reader<'_>) -> Result<Ended, DecodeError> {
    Ok(Ended { key: Key(reader.array()?), number: reader.u64()?, session: reader.u64()? })
}

fn decode_state(reader: &mut Reader<'_>) -> Result<State, DecodeError> {
    let id = Id::from_bytes(reader.array()?);
    let start = reader.u64()?;
    let standing = match reader.u8()? {
        0 => Standing::Outsider,
        1 => Standing::NoRecord,
        2 => Standing::Founding,
        3 => Standing::Recovering,
        4 => Standing::Resting,
        5 => Standing::Voting,
        6 => Standing::Halted,
        _ => return Err(DecodeError::Field("standing")),
    };
    let (bound, floor) = (reader.u64()?, reader.u64()?);
    let record = optional(reader, Record::decode)?;
    let lease = optional(reader, |reader| {
        let holder = optional(reader, |reader| Ok(Id::from_bytes(reader.array()?)))?;
        let (number, left_ms, waiting) = (reader.u64()?, reader.u32()?, reader.u16()?);
        Ok(LeaseSeen { holder, number, left_ms, waiting })
    })?;
    Ok(State { id, start, standing, bound, floor, record, lease })
}
