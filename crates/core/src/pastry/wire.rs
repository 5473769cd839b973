//! The bytes of a message.
//!
//! Every message begins with the version, 1, and its kind; [`encode`] shows the fields in order. Flags and options are
//! one byte, 0 or 1. Lists begin with a `u16` of how many entries follow.
//!
//! | type | bytes |
//! |---|---|
//! | contact | id 16, generation 8, address |
//! | address | family 4 or 6 as one byte, 4 or 16 bytes, port 2 |
//! | versions | leaf set 4, routing table 4, neighbourhood set 4 |

use std::net::{IpAddr, SocketAddr};

use super::contact::{Contact, Generation, Versions};
use super::message::{
    About, AppName, Body, Envelope, Failure, Message, MessageId, PathStep, Report, RingTag, TablesSent,
    Wanted,
};
use crate::id::Id;
use crate::wire::{DecodeError, Reader, Writer};

const VERSION: u8 = 1;

mod kind {
    pub(super) const HELLO: u8 = 0;
    pub(super) const PING: u8 = 1;
    pub(super) const PONG: u8 = 2;
    pub(super) const ROUTE: u8 = 3;
    pub(super) const ACK: u8 = 4;
    pub(super) const NACK: u8 = 5;
    pub(super) const RECEIPT: u8 = 6;
    pub(super) const STATE_REQUEST: u8 = 7;
    pub(super) const STATE: u8 = 8;
    pub(super) const ANNOUNCE: u8 = 9;
    pub(super) const WELCOME: u8 = 10;
    pub(super) const EXIT: u8 = 11;
    pub(super) const SUSPECT: u8 = 12;
    pub(super) const REFUSE: u8 = 13;
}

/// Appends the bytes of a message.
pub fn encode(message: &Message, w: &mut Writer<'_>) {
    w.u8(VERSION);
    match message {
        Message::Hello { ring, from } => {
            w.u8(kind::HELLO);
            w.u64(ring.0);
            put_contact(w, from);
        }
        Message::Ping { ring, nonce, from } => {
            w.u8(kind::PING);
            w.u64(ring.0);
            w.u64(*nonce);
            put_contact(w, from);
        }
        Message::Pong { ring, nonce, from, leaf_set_digest } => {
            w.u8(kind::PONG);
            w.u64(ring.0);
            w.u64(*nonce);
            put_contact(w, from);
            w.u32(*leaf_set_digest);
        }
        Message::Route { transmission, envelope } => put_route(w, *transmission, envelope),
        Message::Ack { transmissions, delivered } => {
            w.u8(kind::ACK);
            w.u16(transmissions.len() as u16);
            transmissions.iter().for_each(|transmission| w.u64(*transmission));
            w.u16(delivered.len() as u16);
            delivered.iter().for_each(|id| w.u128(id.0));
        }
        Message::Nack { transmission } => {
            w.u8(kind::NACK);
            w.u64(*transmission);
        }
        Message::Receipt { id, attempt, hops, report } => {
            w.u8(kind::RECEIPT);
            w.u128(id.0);
            w.u16(*attempt);
            w.u8(*hops);
            put_report(w, report);
        }
        other => put_upkeep(w, other),
    }
}

/// Appends the bytes of a [`Message::Route`], without one.
pub(super) fn encode_route(transmission: u64, envelope: &Envelope, w: &mut Writer<'_>) {
    w.u8(VERSION);
    put_route(w, transmission, envelope);
}

/// Encodes the messages that maintain the tables.
fn put_upkeep(w: &mut Writer<'_>, message: &Message) {
    match message {
        Message::StateRequest { token, wanted } => {
            w.u8(kind::STATE_REQUEST);
            w.u32(*token);
            put_wanted(w, wanted);
        }
        Message::State { about, versions, tables } => {
            w.u8(kind::STATE);
            put_about(w, about);
            put_versions(w, versions);
            put_tables(w, tables);
        }
        Message::Announce { seen, wants_welcome, versions, tables } => {
            w.u8(kind::ANNOUNCE);
            w.u8(u8::from(seen.is_some()));
            if let Some(seen) = seen {
                put_versions(w, seen);
            }
            w.u8(u8::from(*wants_welcome));
            put_versions(w, versions);
            put_tables(w, tables);
        }
        Message::Welcome { versions } => {
            w.u8(kind::WELCOME);
            put_versions(w, versions);
        }
        Message::Suspect { id } => {
            w.u8(kind::SUSPECT);
            w.u128(id.number());
        }
        Message::Refuse => w.u8(kind::REFUSE),
        _ => w.u8(kind::EXIT),
    }
}

fn put_route(w: &mut Writer<'_>, transmission: u64, envelope: &Envelope) {
    let mut bytes = [0; 43];
    bytes[0] = kind::ROUTE;
    bytes[1..9].copy_from_slice(&transmission.to_be_bytes());
    bytes[9..25].copy_from_slice(&envelope.id.0.to_be_bytes());
    bytes[25..27].copy_from_slice(&envelope.attempt.to_be_bytes());
    bytes[27..].copy_from_slice(&envelope.key.number().to_be_bytes());
    w.bytes(&bytes);
    put_contact(w, &envelope.origin);
    w.bytes(&[u8::from(envelope.to_node), envelope.ttl, envelope.hops]);
    w.u32(envelope.lifetime_millis);
    match &envelope.body {
        Body::Join => w.u8(0),
        Body::App { app, wants_answer, payload } => {
            w.u8(if *wants_answer { 2 } else { 1 });
            w.u8(app.as_str().len() as u8);
            w.bytes(app.as_str().as_bytes());
            w.bytes(payload);
        }
        Body::Trace { path } => {
            w.u8(3);
            put_path(w, path);
        }
    }
}

fn put_report(w: &mut Writer<'_>, report: &Report) {
    match report {
        Report::Delivered { answer: None } => w.u8(0),
        Report::Delivered { answer: Some(answer) } => {
            w.u8(1);
            w.bytes(answer);
        }
        Report::Traced { path } => {
            w.u8(2);
            put_path(w, path);
        }
        Report::Refused { reason } => {
            w.u8(3);
            let reason = &reason[..cut(reason, Report::REASON_BYTES_MAX)];
            w.u8(reason.len() as u8);
            w.bytes(reason.as_bytes());
        }
        Report::Failed { why } => {
            w.u8(4);
            w.u8(*why as u8);
        }
        Report::Busy { after_millis } => {
            w.u8(5);
            w.u32(*after_millis);
        }
        Report::Lost => w.u8(6),
        Report::Kept => w.u8(7),
    }
}

/// Where to cut a text so that at most `bytes_max` bytes of whole characters are left.
fn cut(text: &str, bytes_max: usize) -> usize {
    (0..=bytes_max.min(text.len())).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0)
}

fn put_about(w: &mut Writer<'_>, about: &About) {
    match about {
        About::Request { token } => {
            w.u8(0);
            w.u32(*token);
        }
        About::Join { id, hop, last } => {
            w.u8(1);
            w.u128(id.0);
            w.u8(*hop);
            w.u8(u8::from(*last));
        }
        About::Race => w.u8(2),
    }
}

fn put_wanted(w: &mut Writer<'_>, wanted: &Wanted) {
    w.u8(u8::from(wanted.leaf_set));
    w.u8(u8::from(wanted.neighbourhood));
    w.u128(wanted.rows);
    w.u8(u8::from(wanted.cell.is_some()));
    if let Some((row, column)) = wanted.cell {
        w.u8(row);
        w.u8(column);
    }
}

fn put_tables(w: &mut Writer<'_>, tables: &TablesSent) {
    for list in [&tables.leaf_set, &tables.routing_table, &tables.neighbourhood] {
        w.u16(list.len() as u16);
        list.iter().for_each(|contact| put_contact(w, contact));
    }
    w.u16(tables.rtts_micros.len() as u16);
    tables.rtts_micros.iter().for_each(|rtt| w.u32(*rtt));
}

fn put_path(w: &mut Writer<'_>, path: &[PathStep]) {
    w.u16(path.len() as u16);
    for step in path {
        put_contact(w, &step.contact);
        w.u32(step.rtt_micros.unwrap_or(u32::MAX));
    }
}

fn put_versions(w: &mut Writer<'_>, versions: &Versions) {
    w.u32(versions.leaf_set);
    w.u32(versions.routing_table);
    w.u32(versions.neighbourhood);
}

fn put_contact(w: &mut Writer<'_>, contact: &Contact) {
    // Put together first: contacts are in most messages, and one long piece costs less than six short ones.
    let mut bytes = [0; 43];
    bytes[..16].copy_from_slice(&contact.id.number().to_be_bytes());
    bytes[16..24].copy_from_slice(&contact.generation.0.to_be_bytes());
    let port = contact.addr.port().to_be_bytes();
    match contact.addr.ip() {
        IpAddr::V4(ip) => {
            bytes[24] = 4;
            bytes[25..29].copy_from_slice(&ip.octets());
            bytes[29..31].copy_from_slice(&port);
            w.bytes(&bytes[..31]);
        }
        IpAddr::V6(ip) => {
            bytes[24] = 6;
            bytes[25..41].copy_from_slice(&ip.octets());
            bytes[41..].copy_from_slice(&port);
            w.bytes(&bytes);
        }
    }
}

/// Reads a message that fills `bytes` exactly.
///
/// # Errors
/// If it does not, or if the bytes are no message of this version.
pub fn decode(bytes: &[u8]) -> Result<Message, DecodeError> {
    let mut reader = Reader::new(bytes);
    let r = &mut reader;
    if r.u8()? != VERSION {
        return Err(DecodeError::Version);
    }
    let message = match r.u8()? {
        kind::HELLO => Message::Hello { ring: RingTag(r.u64()?), from: contact(r)? },
        kind::PING => Message::Ping { ring: RingTag(r.u64()?), nonce: r.u64()?, from: contact(r)? },
        kind::PONG => Message::Pong {
            ring: RingTag(r.u64()?),
            nonce: r.u64()?,
            from: contact(r)?,
            leaf_set_digest: r.u32()?,
        },
        kind::ROUTE => Message::Route { transmission: r.u64()?, envelope: envelope(r)? },
        kind::ACK => Message::Ack {
            transmissions: numbers(r, u64::from_be_bytes)?,
            delivered: numbers(r, |bytes| MessageId(u128::from_be_bytes(bytes)))?,
        },
        kind::NACK => Message::Nack { transmission: r.u64()? },
        kind::RECEIPT => Message::Receipt {
            id: MessageId(r.u128()?),
            attempt: r.u16()?,
            hops: r.u8()?,
            report: report(r)?,
        },
        kind::STATE_REQUEST => Message::StateRequest { token: r.u32()?, wanted: wanted(r)? },
        kind::STATE => Message::State { about: about(r)?, versions: versions(r)?, tables: tables(r)? },
        kind::ANNOUNCE => {
            let seen = if flag(r, "seen")? { Some(versions(r)?) } else { None };
            let wants_welcome = flag(r, "wants_welcome")?;
            Message::Announce { seen, wants_welcome, versions: versions(r)?, tables: tables(r)? }
        }
        kind::WELCOME => Message::Welcome { versions: versions(r)? },
        kind::EXIT => Message::Exit,
        kind::SUSPECT => Message::Suspect { id: Id::new(r.u128()?) },
        kind::REFUSE => Message::Refuse,
        _ => return Err(DecodeError::Kind),
    };
    reader.finish()?;
    Ok(message)
}

/// Reads a list of numbers of `N` bytes each.
fn numbers<const N: usize, T>(
    r: &mut Reader<'_>,
    number: impl Fn([u8; N]) -> T,
) -> Result<Vec<T>, DecodeError> {
    let count = usize::from(r.u16()?);
    let (numbers, _) = r.bytes(count * N)?.as_chunks();
    Ok(numbers.iter().map(|bytes| number(*bytes)).collect())
}

fn envelope(r: &mut Reader<'_>) -> Result<Envelope, DecodeError> {
    Ok(Envelope {
        id: MessageId(r.u128()?),
        attempt: r.u16()?,
        key: Id::new(r.u128()?),
        origin: contact(r)?,
        to_node: flag(r, "to node")?,
        ttl: r.u8()?,
        hops: r.u8()?,
        lifetime_millis: r.u32()?,
        body: body(r)?,
    })
}

fn body(r: &mut Reader<'_>) -> Result<Body, DecodeError> {
    match r.u8()? {
        0 => Ok(Body::Join),
        kind @ (1 | 2) => {
            let length = usize::from(r.u8()?);
            let name =
                core::str::from_utf8(r.bytes(length)?).map_err(|_| DecodeError::Field("application"))?;
            let app = AppName::new(name).map_err(|_| DecodeError::Limit("application"))?;
            Ok(Body::App { app, wants_answer: kind == 2, payload: r.take_rest().to_vec().into() })
        }
        3 => Ok(Body::Trace { path: path(r)? }),
        _ => Err(DecodeError::Field("body")),
    }
}

fn report(r: &mut Reader<'_>) -> Result<Report, DecodeError> {
    Ok(match r.u8()? {
        0 => Report::Delivered { answer: None },
        1 => Report::Delivered { answer: Some(r.take_rest().to_vec().into()) },
        2 => Report::Traced { path: path(r)? },
        3 => {
            let length = usize::from(r.u8()?);
            let reason = core::str::from_utf8(r.bytes(length)?).map_err(|_| DecodeError::Field("reason"))?;
            Report::Refused { reason: reason.to_owned() }
        }
        4 => {
            let why = Failure::ALL.get(usize::from(r.u8()?)).ok_or(DecodeError::Field("failure"))?;
            Report::Failed { why: *why }
        }
        5 => Report::Busy { after_millis: r.u32()? },
        6 => Report::Lost,
        7 => Report::Kept,
        _ => return Err(DecodeError::Field("report")),
    })
}

fn about(r: &mut Reader<'_>) -> Result<About, DecodeError> {
    match r.u8()? {
        0 => Ok(About::Request { token: r.u32()? }),
        1 => Ok(About::Join { id: MessageId(r.u128()?), hop: r.u8()?, last: flag(r, "last")? }),
        2 => Ok(About::Race),
        _ => Err(DecodeError::Field("about")),
    }
}

fn wanted(r: &mut Reader<'_>) -> Result<Wanted, DecodeError> {
    Ok(Wanted {
        leaf_set: flag(r, "leaf set")?,
        neighbourhood: flag(r, "neighbourhood")?,
        rows: r.u128()?,
        cell: if flag(r, "cell")? { Some((r.u8()?, r.u8()?)) } else { None },
    })
}

fn tables(r: &mut Reader<'_>) -> Result<TablesSent, DecodeError> {
    let (leaf_set, routing_table, neighbourhood) = (contacts(r)?, contacts(r)?, contacts(r)?);
    let rtts_micros = (0..r.u16()?).map(|_| r.u32()).collect::<Result<_, _>>()?;
    Ok(TablesSent { leaf_set, routing_table, neighbourhood, rtts_micros })
}

fn contacts(r: &mut Reader<'_>) -> Result<Vec<Contact>, DecodeError> {
    // The list grows with the entries that are there; the number only says when to stop.
    (0..r.u16()?).map(|_| contact(r)).collect()
}

fn path(r: &mut Reader<'_>) -> Result<Vec<PathStep>, DecodeError> {
    (0..r.u16()?)
        .map(|_| {
            let contact = contact(r)?;
            let rtt = r.u32()?;
            Ok(PathStep { contact, rtt_micros: (rtt != u32::MAX).then_some(rtt) })
        })
        .collect()
}

fn versions(r: &mut Reader<'_>) -> Result<Versions, DecodeError> {
    Ok(Versions { leaf_set: r.u32()?, routing_table: r.u32()?, neighbourhood: r.u32()? })
}

fn contact(r: &mut Reader<'_>) -> Result<Contact, DecodeError> {
    let (id, generation) = (Id::new(r.u128()?), Generation(r.u64()?));
    let ip = match r.u8()? {
        4 => IpAddr::from(r.array::<4>()?),
        6 => IpAddr::from(r.array::<16>()?),
        _ => return Err(DecodeError::Field("family")),
    };
    let port = r.u16()?;
    if port == 0 || ip.is_unspecified() || ip.is_multicast() {
        return Err(DecodeError::Field("address"));
    }
    Ok(Contact { id, addr: SocketAddr::new(ip, port), generation })
}

fn flag(r: &mut Reader<'_>, name: &'static str) -> Result<bool, DecodeError> {
    match r.u8()? {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(DecodeError::Field(name)),
    }
}

#[cfg(test)]
#[path = "wire_tests.rs"]
mod tests;
