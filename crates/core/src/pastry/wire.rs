//! The bytes of a message.
//!
//! Every message begins with the version, 1, and its kind; [`encode`] shows the fields in order. Flags and options are
//! one byte, 0 or 1. Lists begin with a `u16` of how many entries follow.
//!
//! | type | bytes |
//! |---|---|
//! | contact | id 16, incarnation 8, address |
//! | address | family 4 or 6 as one byte, 4 or 16 bytes, port 2 |
//! | versions | leaf set 4, routing table 4, neighbourhood set 4 |

use std::net::{IpAddr, SocketAddr};

use super::clocks::{Clock, Sent};
use super::contact::{Contact, Incarnation, Versions};
use super::message::{
    About, AppName, Body, Copies, Envelope, Failure, Message, MessageId, Outcome, PathStep, RingTag,
    TablesSent, Testimony, Wanted,
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
    pub(super) const ANSWER: u8 = 7;
    pub(super) const STATE_REQUEST: u8 = 8;
    pub(super) const STATE: u8 = 9;
    pub(super) const ANNOUNCE: u8 = 10;
    pub(super) const WELCOME: u8 = 11;
    pub(super) const EXIT: u8 = 12;
    pub(super) const SUSPECT: u8 = 13;
    pub(super) const REFUSE: u8 = 14;
    pub(super) const INQUIRE: u8 = 15;
    pub(super) const TESTIFY: u8 = 16;
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
        Message::Pong { ring, nonce, from, leaf_set_version, clock } => {
            w.u8(kind::PONG);
            w.u64(ring.0);
            w.u64(*nonce);
            put_contact(w, from);
            w.u32(*leaf_set_version);
            w.u64(clock.0);
        }
        Message::Route { transmission, sent, envelope } => put_route(w, *transmission, *sent, envelope),
        Message::Ack { clock, transmissions, delivered } => {
            w.u8(kind::ACK);
            w.u64(clock.0);
            w.u16(transmissions.len() as u16);
            transmissions.iter().for_each(|transmission| w.u64(*transmission));
            w.u16(delivered.len() as u16);
            delivered.iter().for_each(|id| w.u128(id.0));
        }
        Message::Nack { transmission } => {
            w.u8(kind::NACK);
            w.u64(*transmission);
        }
        Message::Receipt { id, outcome, hops, path } => {
            w.u8(kind::RECEIPT);
            w.u128(id.0);
            put_outcome(w, outcome);
            w.u8(*hops);
            put_path(w, path);
        }
        Message::Answer { id, hops, from, payload } => {
            w.u8(kind::ANSWER);
            w.u128(id.0);
            w.u8(*hops);
            put_contact(w, from);
            w.bytes(payload);
        }
        other => put_upkeep(w, other),
    }
}

/// Appends the bytes of a [`Message::Route`], without one.
pub(super) fn encode_route(transmission: u64, sent: Option<Sent>, envelope: &Envelope, w: &mut Writer<'_>) {
    w.u8(VERSION);
    put_route(w, transmission, sent, envelope);
}

/// The messages that keep the tables.
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
        Message::Announce { seen, versions, tables } => {
            w.u8(kind::ANNOUNCE);
            w.u8(u8::from(seen.is_some()));
            if let Some(seen) = seen {
                put_versions(w, seen);
            }
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
        Message::Inquire { id, key, age_micros } => {
            w.u8(kind::INQUIRE);
            w.u128(id.0);
            w.u128(key.number());
            w.u32(*age_micros);
        }
        Message::Testify { id, testimony } => {
            w.u8(kind::TESTIFY);
            w.u128(id.0);
            w.u8(*testimony as u8);
        }
        _ => w.u8(kind::EXIT),
    }
}

fn put_route(w: &mut Writer<'_>, transmission: u64, sent: Option<Sent>, envelope: &Envelope) {
    let mut bytes = [0; 58];
    bytes[0] = kind::ROUTE;
    bytes[1..9].copy_from_slice(&transmission.to_be_bytes());
    bytes[9..17].copy_from_slice(&sent.map_or(0, |sent| sent.clock.0).to_be_bytes());
    bytes[17..21].copy_from_slice(&sent.map_or(0, |sent| sent.patience_micros).to_be_bytes());
    bytes[21..25].copy_from_slice(&sent.map_or(0, |sent| sent.age_micros).to_be_bytes());
    bytes[25..41].copy_from_slice(&envelope.id.0.to_be_bytes());
    bytes[41] = envelope.attempt;
    bytes[42..].copy_from_slice(&envelope.key.number().to_be_bytes());
    w.bytes(&bytes);
    put_contact(w, &envelope.origin);
    w.bytes(&[envelope.ttl, envelope.hops, envelope.copies as u8, envelope.doubted.len() as u8]);
    envelope.doubted.iter().for_each(|id| w.u128(id.number()));
    match &envelope.body {
        Body::Join => w.u8(0),
        Body::App { app, ask, payload } => {
            w.u8(if *ask { 2 } else { 1 });
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

fn put_outcome(w: &mut Writer<'_>, outcome: &Outcome) {
    match outcome {
        Outcome::Delivered { by } => {
            w.u8(0);
            put_contact(w, by);
        }
        Outcome::Failed { reason } => {
            w.u8(1);
            w.u8(*reason as u8);
        }
        Outcome::Unknown => w.u8(2),
    }
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
    bytes[16..24].copy_from_slice(&contact.incarnation.0.to_be_bytes());
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
/// If it doesn't, or if the bytes are no message of this version.
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
            leaf_set_version: r.u32()?,
            clock: Clock(r.u64()?),
        },
        kind::ROUTE => Message::Route { transmission: r.u64()?, sent: sent(r)?, envelope: envelope(r)? },
        kind::ACK => {
            let (clock, transmissions) = (Clock(r.u64()?), numbers(r, Reader::u64)?);
            Message::Ack { clock, transmissions, delivered: numbers(r, |r| r.u128().map(MessageId))? }
        }
        kind::NACK => Message::Nack { transmission: r.u64()? },
        kind::RECEIPT => {
            Message::Receipt { id: MessageId(r.u128()?), outcome: outcome(r)?, hops: r.u8()?, path: path(r)? }
        }
        kind::ANSWER => Message::Answer {
            id: MessageId(r.u128()?),
            hops: r.u8()?,
            from: contact(r)?,
            payload: r.take_rest().to_vec(),
        },
        kind::STATE_REQUEST => Message::StateRequest { token: r.u32()?, wanted: wanted(r)? },
        kind::STATE => Message::State { about: about(r)?, versions: versions(r)?, tables: tables(r)? },
        kind::ANNOUNCE => {
            let seen = if flag(r, "seen")? { Some(versions(r)?) } else { None };
            Message::Announce { seen, versions: versions(r)?, tables: tables(r)? }
        }
        kind::WELCOME => Message::Welcome { versions: versions(r)? },
        kind::EXIT => Message::Exit,
        kind::SUSPECT => Message::Suspect { id: Id::new(r.u128()?) },
        kind::REFUSE => Message::Refuse,
        kind::INQUIRE => {
            let (id, key) = (MessageId(r.u128()?), Id::new(r.u128()?));
            Message::Inquire { id, key, age_micros: r.u32()? }
        }
        kind::TESTIFY => {
            let (id, byte) = (MessageId(r.u128()?), usize::from(r.u8()?));
            let testimony = *Testimony::ALL.get(byte).ok_or(DecodeError::Field("testimony"))?;
            Message::Testify { id, testimony }
        }
        _ => return Err(DecodeError::Kind),
    };
    reader.finish()?;
    Ok(message)
}

/// Zeros say that the sender cannot tell.
fn sent(r: &mut Reader<'_>) -> Result<Option<Sent>, DecodeError> {
    match (r.u64()?, r.u32()?, r.u32()?) {
        (0, 0, 0) => Ok(None),
        (0, ..) => Err(DecodeError::Field("sent")),
        (clock, patience_micros, age_micros) => {
            Ok(Some(Sent { clock: Clock(clock), patience_micros, age_micros }))
        }
    }
}

fn numbers<'a, T>(
    r: &mut Reader<'a>,
    number: impl Fn(&mut Reader<'a>) -> Result<T, DecodeError>,
) -> Result<Vec<T>, DecodeError> {
    (0..r.u16()?).map(|_| number(r)).collect()
}

fn envelope(r: &mut Reader<'_>) -> Result<Envelope, DecodeError> {
    Ok(Envelope {
        id: MessageId(r.u128()?),
        attempt: r.u8()?,
        key: Id::new(r.u128()?),
        origin: contact(r)?,
        ttl: r.u8()?,
        hops: r.u8()?,
        copies: *Copies::ALL.get(usize::from(r.u8()?)).ok_or(DecodeError::Field("copies"))?,
        doubted: doubted(r)?,
        body: body(r)?,
    })
}

fn doubted(r: &mut Reader<'_>) -> Result<Vec<Id>, DecodeError> {
    match usize::from(r.u8()?) {
        count if count > Envelope::DOUBTED_MAX => Err(DecodeError::Limit("doubted")),
        count => (0..count).map(|_| r.u128().map(Id::new)).collect(),
    }
}

fn body(r: &mut Reader<'_>) -> Result<Body, DecodeError> {
    match r.u8()? {
        0 => Ok(Body::Join),
        kind @ (1 | 2) => {
            let length = usize::from(r.u8()?);
            let name =
                core::str::from_utf8(r.bytes(length)?).map_err(|_| DecodeError::Field("application"))?;
            let app = AppName::new(name).map_err(|_| DecodeError::Limit("application"))?;
            Ok(Body::App { app, ask: kind == 2, payload: r.take_rest().to_vec() })
        }
        3 => Ok(Body::Trace { path: path(r)? }),
        _ => Err(DecodeError::Field("body")),
    }
}

fn outcome(r: &mut Reader<'_>) -> Result<Outcome, DecodeError> {
    match r.u8()? {
        0 => Ok(Outcome::Delivered { by: contact(r)? }),
        1 => {
            let reason = Failure::ALL.get(usize::from(r.u8()?)).ok_or(DecodeError::Field("failure"))?;
            Ok(Outcome::Failed { reason: *reason })
        }
        2 => Ok(Outcome::Unknown),
        _ => Err(DecodeError::Field("outcome")),
    }
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
    Ok(TablesSent { leaf_set: contacts(r)?, routing_table: contacts(r)?, neighbourhood: contacts(r)? })
}

fn contacts(r: &mut Reader<'_>) -> Result<Vec<Contact>, DecodeError> {
    // The list grows with what is really there; the number only says when to stop.
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
    let (id, incarnation) = (Id::new(r.u128()?), Incarnation(r.u64()?));
    let ip = match r.u8()? {
        4 => IpAddr::from(r.array::<4>()?),
        6 => IpAddr::from(r.array::<16>()?),
        _ => return Err(DecodeError::Field("family")),
    };
    let port = r.u16()?;
    if port == 0 || ip.is_unspecified() || ip.is_multicast() {
        return Err(DecodeError::Field("address"));
    }
    Ok(Contact { id, addr: SocketAddr::new(ip, port), incarnation })
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
