//! Decoded bytes that can be printed: `annulus decode w3w`.

use serde::Serialize;

use super::form::{Form, read_form};
use super::links::first_frame;
use super::message::Message;
use super::nid::{Key, Nid};
use super::wire::{Body, DATA_BYTES_MAX, HEADER_BYTES, decode_frame, decode_here};
use crate::wire::DecodeError;

/// One decoded message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "message")]
pub enum Described {
    /// A HERE.
    #[serde(rename = "HERE")]
    Here {
        /// Its carrier: `datagram` or `frame`.
        carrier: &'static str,
        /// Its subject.
        nid: Nid,
        /// The IP address of that node.
        ip: std::net::Ipv4Addr,
        /// The port of its listener.
        port: u16,
    },
    /// A MESSAGE.
    #[serde(rename = "MESSAGE")]
    Message {
        /// The sender.
        sender: Nid,
        /// The recipient.
        recipient: Nid,
        /// The size of DATA.
        size: usize,
        /// The key of DATA.
        hash: Key,
        /// The form of DATA.
        form: &'static str,
        /// DATA, in hexadecimal digits.
        data_hex: String,
    },
}

/// Reads a HERE datagram, or frames as they follow each other on a connection.
///
/// # Errors
/// If it is neither; frames must be complete.
pub fn describe(bytes: &[u8]) -> Result<Vec<Described>, DecodeError> {
    if bytes.first() == Some(&b'w') {
        let here = decode_here(bytes)?;
        let (ip, port) = (*here.at.ip(), here.at.port());
        return Ok(vec![Described::Here { carrier: "datagram", nid: here.nid, ip, port }]);
    }
    let (mut rest, mut described) = (bytes, Vec::new());
    while !rest.is_empty() {
        let frame = first_frame(&mut rest, HEADER_BYTES + DATA_BYTES_MAX)?.ok_or(DecodeError::Truncated)?;
        described.push(match decode_frame(frame)? {
            Body::Here(here) => {
                Described::Here { carrier: "frame", nid: here.nid, ip: *here.at.ip(), port: here.at.port() }
            }
            Body::Message(message) => describe_message(&message),
        });
    }
    if described.is_empty() { Err(DecodeError::Truncated) } else { Ok(described) }
}

fn describe_message(message: &Message) -> Described {
    let data = message.data();
    Described::Message {
        sender: message.sender(),
        recipient: message.recipient(),
        size: data.len(),
        hash: Key::of(data),
        form: match read_form(data) {
            Form::Plain(_) => "plain",
            Form::Ask { .. } => "ask",
            Form::Receipt { .. } => "receipt",
            Form::Manifest { .. } => "manifest",
            Form::Block { .. } => "block",
            Form::Progress(_) => "progress",
            Form::ProgressRequest { .. } => "progress_request",
            Form::Custody(_) => "custody",
            Form::Letter(_) => "letter",
            Form::Receipts(_) => "receipts",
            Form::Refusal { .. } => "refusal",
        },
        data_hex: data.iter().map(|byte| format!("{byte:02x}")).collect(),
    }
}
