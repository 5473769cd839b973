//! The bytes: HERE as text, frames on a connection.

use std::net::{Ipv4Addr, SocketAddrV4};

use bytes::Bytes;

use super::form::{Form, put_form};
use super::message::{Here, Message};
use super::nid::{NID_HEX_BYTES, Nid};
use crate::wire::{DecodeError, Writer};

/// The only version there is (M-15).
pub const VERSION: &[u8; 3] = b"w00";
/// The longest HERE, that of `255.255.255.255:65535`.
pub const HERE_BYTES_MAX: usize = 97;
/// The longest datagram that is decoded (MA-20).
pub(super) const DATAGRAM_BYTES_MAX: usize = 512;
/// The bytes before DATA in a MESSAGE: version, sender, recipient (M-19).
pub const HEADER_BYTES: usize = 3 + 2 * NID_HEX_BYTES;
/// The length before every frame.
pub const LENGTH_BYTES: usize = 4;
/// The longest first frame.
pub(super) const FIRST_BODY_BYTES_MAX: usize = 512;
/// The longest DATA unless configured otherwise (MA-28).
pub const DATA_BYTES_MAX: usize = 16 * 1024 * 1024;

/// The body of a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// The identity of the sender.
    Here(Here),
    /// A message to deliver or to forward.
    Message(Message),
}

/// Writes a HERE.
pub fn encode_here(here: &Here, writer: &mut Writer<'_>) {
    writer.bytes(VERSION);
    writer.bytes(b" HERE ");
    writer.bytes(&here.nid.to_hex());
    writer.bytes(b" @ ");
    writer.bytes(here.at.to_string().as_bytes());
}

/// Reads a HERE, from a datagram or from the body of a frame. One trailing line feed is tolerated (MA-20).
///
/// # Errors
/// If it is anything else.
pub fn decode_here(bytes: &[u8]) -> Result<Here, DecodeError> {
    if bytes.len() > DATAGRAM_BYTES_MAX {
        return Err(DecodeError::Limit("length"));
    }
    let version = bytes.first_chunk::<3>().ok_or(DecodeError::Truncated)?;
    if version != VERSION {
        return Err(DecodeError::Version);
    }
    let text = bytes[VERSION.len()..].strip_prefix(b" HERE ").ok_or(DecodeError::Kind)?;
    let text = text.strip_suffix(b"\n").unwrap_or(text);
    let (nid, text) = text.split_at_checked(NID_HEX_BYTES).ok_or(DecodeError::Truncated)?;
    let nid = Nid::from_hex(nid).ok_or(DecodeError::Field("nid"))?;
    let endpoint = text.strip_prefix(b" @ ").ok_or(DecodeError::Field("separator"))?;
    Ok(Here { nid, at: endpoint_of(endpoint).ok_or(DecodeError::Field("endpoint"))? })
}

/// `a.b.c.d:port`, without leading zeros, of a host that can exist (M-17, MA-20, MA-59).
fn endpoint_of(text: &[u8]) -> Option<SocketAddrV4> {
    let colon = text.iter().position(|&byte| byte == b':')?;
    let mut octets = [0; 4];
    let mut parts = text[..colon].split(|&byte| byte == b'.');
    for octet in &mut octets {
        *octet = u8::try_from(decimal(parts.next()?)?).ok()?;
    }
    let ip = Ipv4Addr::from(octets);
    let port = u16::try_from(decimal(&text[colon + 1..])?).ok()?;
    let is_host = parts.next().is_none() && port != 0 && !ip.is_unspecified() && !ip.is_multicast();
    is_host.then(|| SocketAddrV4::new(ip, port))
}

/// At most five digits, without a leading zero.
fn decimal(text: &[u8]) -> Option<u32> {
    // The length first: a datagram can hold more digits than a number can.
    if text.len() > 5 || !matches!(text, [b'0'] | [b'1'..=b'9', ..]) {
        return None;
    }
    text.iter()
        .try_fold(0, |number: u32, &byte| byte.is_ascii_digit().then(|| number * 10 + u32::from(byte - b'0')))
}

/// The frame of a HERE.
#[must_use]
pub fn here_frame(here: &Here) -> Vec<u8> {
    let mut body = Vec::with_capacity(HERE_BYTES_MAX);
    encode_here(here, &mut Writer::new(&mut body, HERE_BYTES_MAX));
    [&(body.len() as u32).to_be_bytes()[..], &body].concat()
}

/// The frame of a MESSAGE.
pub(super) fn message_frame(sender: Nid, recipient: Nid, data: &[u8]) -> Vec<u8> {
    frame_with(sender, recipient, data.len(), |frame| frame.extend_from_slice(data))
}

/// The frame of a MESSAGE whose DATA is a form. It is written once.
pub(super) fn form_frame(sender: Nid, recipient: Nid, form: &Form<'_>) -> Vec<u8> {
    frame_with(sender, recipient, form.bytes_max(), |frame| put_form(frame, form))
}

fn frame_with(sender: Nid, recipient: Nid, bytes_max: usize, put: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut frame = Vec::with_capacity(LENGTH_BYTES + HEADER_BYTES + bytes_max);
    frame.extend_from_slice(&[0; LENGTH_BYTES]);
    frame.extend_from_slice(VERSION);
    frame.extend_from_slice(&sender.to_hex());
    frame.extend_from_slice(&recipient.to_hex());
    put(&mut frame);
    let body_len = (frame.len() - LENGTH_BYTES) as u32;
    frame[..LENGTH_BYTES].copy_from_slice(&body_len.to_be_bytes());
    frame
}

/// Writes the frame of a MESSAGE.
pub fn encode_message(message: &Message, writer: &mut Writer<'_>) {
    writer.bytes(message.frame());
}

/// Reads the body of a frame: the fourth byte distinguishes the two kinds (MA-28).
///
/// # Errors
/// If it is neither.
pub fn decode_body(body: &[u8]) -> Result<Body, DecodeError> {
    decode_frame([&(body.len() as u32).to_be_bytes()[..], body].concat().into())
}

/// The DATA of a complete frame, if it is a MESSAGE.
pub(super) fn data_of(frame: &[u8]) -> &[u8] {
    frame.get(LENGTH_BYTES + HEADER_BYTES..).unwrap_or_default()
}

/// Reads a complete frame, length included, and keeps it if it is a MESSAGE.
pub(super) fn decode_frame(frame: Bytes) -> Result<Body, DecodeError> {
    match frame.get(LENGTH_BYTES + VERSION.len()) {
        Some(b' ') => decode_here(&frame[LENGTH_BYTES..]).map(Body::Here),
        _ => decode_message(frame).map(Body::Message),
    }
}

fn decode_message(frame: Bytes) -> Result<Message, DecodeError> {
    let body = frame.get(LENGTH_BYTES..).unwrap_or_default();
    if body.len() < HEADER_BYTES {
        return Err(DecodeError::Truncated);
    }
    if &body[..VERSION.len()] != VERSION {
        return Err(DecodeError::Version);
    }
    let (sender, recipient) = body[VERSION.len()..HEADER_BYTES].split_at(NID_HEX_BYTES);
    let sender = Nid::from_hex(sender).ok_or(DecodeError::Field("sender"))?;
    let recipient = Nid::from_hex(recipient).ok_or(DecodeError::Field("recipient"))?;
    Ok(Message { sender, recipient, frame })
}
