//! The bytes: one byte for version and kind, then the fields, big-endian.
//!
//! | message | length | bytes |
//! |---|---|---|
//! | TR1 | 11 | `01`, token_id i32 (< 0), host_id i32 (≥ 0), tcp_port u16 (> 0) |
//! | TR2 | 5 | `11`, token_id i32 |
//! | TP1 | 9 | `21`, token_id i32 (> 0), node_list_hash i32 |
//! | TP2, TP3 | 1 | `31`, `41` |
//! | TP4 | 5 + entries | `51`, number of entries i32 (0 … 65 535), entries |
//! | TP5 | 1 + data | `61`, data up to the FIN |
//! | IPv4 entry | 10 | host_id i32 (≥ 0), address, port u16 (> 0) |
//! | IPv6 entry | 22 | −host_id i32 (< 0), address, port u16 (> 0) |

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::message::{HostId, Message, NodeEntry, SignedId};
use crate::wire::{DecodeError, Reader, Writer};

/// The version spoken here (JA-1).
pub const VERSION: u8 = 1;
/// The most entries of a list (JA-35).
pub const LIST_MAX: usize = 65_535;
/// The length of a TR1.
pub(super) const TR1_BYTES: usize = 11;
/// The length of a TR2.
pub(super) const TR2_BYTES: usize = 5;
/// The length of a TP1.
pub(super) const TP1_BYTES: usize = 9;
/// The length of a TP4 without its entries.
pub(super) const TP4_BYTES: usize = 5;
/// The longest entry of a list.
pub(super) const ENTRY_BYTES_MAX: usize = 22;

/// The kinds of message, in the upper four bits of the first byte (JA-2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "they are explained at `Message`")]
pub enum Kind {
    Tr1 = 0,
    Tr2 = 1,
    Tp1 = 2,
    Tp2 = 3,
    Tp3 = 4,
    Tp4 = 5,
    Tp5 = 6,
}

impl Kind {
    const ALL: [Self; 7] = [Self::Tr1, Self::Tr2, Self::Tp1, Self::Tp2, Self::Tp3, Self::Tp4, Self::Tp5];

    /// The first byte of such a message.
    #[must_use]
    pub const fn byte(self) -> u8 {
        ((self as u8) << 4) | VERSION
    }

    /// The kind that a first byte names.
    ///
    /// # Errors
    /// If it has another version or names no kind.
    pub fn of(byte: u8) -> Result<Self, DecodeError> {
        if byte & 0x0f != VERSION {
            return Err(DecodeError::Version);
        }
        Self::ALL.get(usize::from(byte >> 4)).copied().ok_or(DecodeError::Kind)
    }
}

/// Appends the bytes of a message.
pub fn encode(message: &Message, writer: &mut Writer<'_>) {
    match message {
        Message::Tr1 { token_id, host_id, tcp_port } => {
            writer.u8(Kind::Tr1.byte());
            writer.i32(token_id.number());
            writer.u32(host_id.number());
            writer.u16(*tcp_port);
        }
        Message::Tr2 { token_id } => {
            writer.u8(Kind::Tr2.byte());
            writer.i32(token_id.number());
        }
        Message::Tp1 { token_id, node_list_hash } => {
            writer.u8(Kind::Tp1.byte());
            writer.i32(token_id.number());
            writer.i32(*node_list_hash);
        }
        Message::Tp2 => writer.u8(Kind::Tp2.byte()),
        Message::Tp3 => writer.u8(Kind::Tp3.byte()),
        Message::Tp4 { nodes } => {
            writer.u8(Kind::Tp4.byte());
            writer.u32(nodes.len() as u32);
            nodes.iter().for_each(|node| encode_entry(node, writer));
        }
        Message::Tp5 { data } => {
            writer.u8(Kind::Tp5.byte());
            writer.bytes(data);
        }
    }
}

/// Appends one entry of a list.
pub(super) fn encode_entry(node: &NodeEntry, writer: &mut Writer<'_>) {
    let host_id = node.host_id.number() as i32;
    match node.addr.ip() {
        IpAddr::V4(ip) => {
            writer.i32(host_id);
            writer.bytes(&ip.octets());
        }
        IpAddr::V6(ip) => {
            writer.i32(-host_id);
            writer.bytes(&ip.octets());
        }
    }
    writer.u16(node.addr.port());
}

/// Reads any message, as a tool does that does not know the conversation. TR1 and TR2 may have bytes after them; all
/// others fill `bytes` exactly.
///
/// # Errors
/// If the bytes are no message of this version.
pub fn decode(bytes: &[u8]) -> Result<Message, DecodeError> {
    let mut reader = Reader::new(bytes);
    let message = match Kind::of(reader.u8()?)? {
        Kind::Tr1 => return tr1(&mut reader),
        Kind::Tr2 => return Ok(Message::Tr2 { token_id: signed(reader.i32()?)? }),
        Kind::Tp1 => tp1(&mut reader)?,
        Kind::Tp2 => Message::Tp2,
        Kind::Tp3 => Message::Tp3,
        Kind::Tp4 => tp4(&mut reader)?,
        Kind::Tp5 => Message::Tp5 { data: reader.take_rest().to_vec() },
    };
    reader.finish()?;
    Ok(message)
}

/// Reads a datagram: a TR1 or a TR2, whatever follows it (JA-50).
///
/// # Errors
/// If it is neither.
pub fn decode_datagram(bytes: &[u8]) -> Result<Message, DecodeError> {
    match Kind::of(*bytes.first().ok_or(DecodeError::Truncated)?)? {
        Kind::Tr1 | Kind::Tr2 => decode(bytes),
        _ => Err(DecodeError::Kind),
    }
}

/// Reads one entry of a list.
///
/// # Errors
/// [`DecodeError::Truncated`] if it is incomplete, another error if it is invalid.
pub(super) fn decode_entry(reader: &mut Reader<'_>) -> Result<NodeEntry, DecodeError> {
    let number = reader.i32()?;
    let host_id = HostId::new(number.unsigned_abs()).ok_or(DecodeError::Field("host_id"))?;
    let ip = if number < 0 {
        IpAddr::V6(Ipv6Addr::from(reader.array::<16>()?))
    } else {
        IpAddr::V4(Ipv4Addr::from(reader.array::<4>()?))
    };
    Ok(NodeEntry::new(host_id, ip, port(reader)?))
}

/// The number of entries at the head of a TP4.
///
/// # Errors
/// If it is missing, or is no valid size of a list.
pub(super) fn decode_size(reader: &mut Reader<'_>) -> Result<usize, DecodeError> {
    let size = usize::try_from(reader.i32()?).map_err(|_| DecodeError::Field("size"))?;
    if size > LIST_MAX { Err(DecodeError::Limit("list")) } else { Ok(size) }
}

/// The polynomial hash of base 577 over signed bytes, in the arithmetic of 32 bits.
#[must_use]
pub fn hash577(bytes: &[u8]) -> i32 {
    hash577_on(0, bytes)
}

/// The same, continued from the hash of the bytes before.
#[must_use]
pub(super) fn hash577_on(hash: i32, bytes: &[u8]) -> i32 {
    bytes.iter().fold(hash, |hash, &byte| hash.wrapping_mul(577).wrapping_add(i32::from(byte as i8)))
}

fn tr1(reader: &mut Reader<'_>) -> Result<Message, DecodeError> {
    let token_id = signed(reader.i32()?)?;
    // JA-9: an orphan holds no token.
    if token_id.is_held() {
        return Err(DecodeError::Field("token_id"));
    }
    let host_id = u32::try_from(reader.i32()?).map_err(|_| DecodeError::Field("host_id"))?;
    let host_id = HostId::new(host_id).ok_or(DecodeError::Field("host_id"))?;
    Ok(Message::Tr1 { token_id, host_id, tcp_port: port(reader)? })
}

pub(super) fn tp1(reader: &mut Reader<'_>) -> Result<Message, DecodeError> {
    let token_id = signed(reader.i32()?)?;
    // JA-9: the sender of a token holds it.
    if !token_id.is_held() {
        return Err(DecodeError::Field("token_id"));
    }
    Ok(Message::Tp1 { token_id, node_list_hash: reader.i32()? })
}

fn tp4(reader: &mut Reader<'_>) -> Result<Message, DecodeError> {
    let size = decode_size(reader)?;
    // Allocates by the bytes that are there, not by the declared size.
    let mut nodes = Vec::new();
    for _ in 0..size {
        nodes.push(decode_entry(reader)?);
    }
    Ok(Message::Tp4 { nodes })
}

fn signed(number: i32) -> Result<SignedId, DecodeError> {
    SignedId::new(number).ok_or(DecodeError::Field("token_id"))
}

fn port(reader: &mut Reader<'_>) -> Result<u16, DecodeError> {
    match reader.u16()? {
        0 => Err(DecodeError::Field("port")),
        port => Ok(port),
    }
}
