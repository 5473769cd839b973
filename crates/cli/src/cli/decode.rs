//! `annulus decode`: a packet as JSON. Each protocol adds its decoder to [`decode`].

mod members;

use annulus::core::wire::DecodeError;
use annulus::core::{jitterbug, pastry, ping, w3w};
use serde_json::Value;

use super::UsageError;
use super::output::Output;

/// Decode a packet and print it as JSON.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  annulus decode ping 01000000000000000007
  annulus decode w3w \"$(xxd -p packet.bin)\"")]
pub(crate) struct Decode {
    /// The protocol of the packet.
    protocol: Protocol,
    /// The bytes in hexadecimal digits; spaces and colons are ignored.
    #[arg(required = true)]
    hex: Vec<String>,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Protocol {
    /// ping (the tutorial): a datagram, or one direction of a stream.
    Ping,
    /// members: a packet with all its messages.
    Members,
    /// Jitterbug, the token ring: a TR datagram, or one TP message of a stream.
    Jitterbug,
    /// Pastry, the ring of route: a datagram, or one frame of a stream without its length.
    #[value(alias = "route")]
    Pastry,
    /// w3w, a HERE datagram or the frames of a connection.
    W3w,
}

impl Decode {
    pub(crate) fn run(self, output: &Output) -> anyhow::Result<()> {
        let bytes = unhex(&self.hex.concat())?;
        let message = decode(self.protocol, &bytes)?;
        output.json_text(&if output.json { message.to_string() } else { format!("{message:#}") });
        Ok(())
    }
}

fn decode(protocol: Protocol, bytes: &[u8]) -> anyhow::Result<Value> {
    match protocol {
        Protocol::Ping => {
            let message = ping::decode(bytes).map_err(|error| no_message("ping", bytes, error))?;
            Ok(serde_json::to_value(message)?)
        }
        Protocol::Members => members::packet(bytes).map_err(|error| no_message("members", bytes, error)),
        Protocol::Jitterbug => jitterbug_message(bytes),
        Protocol::Pastry => {
            let message = pastry::decode(bytes).map_err(|error| no_message("pastry", bytes, error))?;
            Ok(serde_json::to_value(message)?)
        }
        Protocol::W3w => {
            let messages = w3w::describe(bytes).map_err(|error| no_message("w3w", bytes, error))?;
            Ok(match &messages[..] {
                [one] => serde_json::to_value(one)?,
                several => serde_json::to_value(several)?,
            })
        }
    }
}

/// A message of any version: one of another version is shown as if it were of ours, and marked as dropped.
fn jitterbug_message(bytes: &[u8]) -> anyhow::Result<Value> {
    let mut ours = bytes.to_vec();
    let mut version = jitterbug::VERSION;
    if let Some(first) = ours.first_mut() {
        version = *first & 0x0f;
        *first = (*first & 0xf0) | jitterbug::VERSION;
    }
    let message = jitterbug::decode(&ours).map_err(|error| no_message("jitterbug", bytes, error))?;
    let mut message = serde_json::to_value(message)?;
    message["version"] = version.into();
    if version != jitterbug::VERSION {
        message["dropped"] = "its version is not spoken here".into();
    }
    Ok(message)
}

fn no_message(protocol: &str, bytes: &[u8], error: DecodeError) -> anyhow::Error {
    anyhow::anyhow!(
        "these {} bytes are no message of {protocol} ({error}): check that they are whole",
        bytes.len()
    )
}

/// The bytes of a text of hexadecimal digits.
fn unhex(text: &str) -> Result<Vec<u8>, UsageError> {
    let digits: Vec<char> = text.chars().filter(|c| !c.is_whitespace() && *c != ':').collect();
    if let Some(bad) = digits.iter().find(|c| !c.is_ascii_hexdigit()) {
        return Err(UsageError(format!(
            "{bad:?} is not a hexadecimal digit: write the packet with 0-9 and a-f"
        )));
    }
    if !digits.len().is_multiple_of(2) {
        return Err(UsageError(format!(
            "{} hexadecimal digits are no whole bytes: one is missing",
            digits.len()
        )));
    }
    let nibble = |c: char| c.to_digit(16).unwrap_or_default() as u8;
    Ok(digits.chunks(2).map(|pair| nibble(pair[0]) << 4 | nibble(pair[1])).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hex_may_have_spaces_and_colons() {
        assert_eq!(unhex("01:0a Ff").unwrap(), [1, 10, 255]);
        assert!(unhex("0g").unwrap_err().to_string().contains("'g' is not a hexadecimal digit"));
        assert!(unhex("012").unwrap_err().to_string().contains("one is missing"));
    }

    #[test]
    fn a_message_of_another_version_is_shown_as_dropped() {
        let shown = |hex: &str| jitterbug_message(&unhex(hex).unwrap()).unwrap();
        let (ours, other) = (shown("1112345678"), shown("1012345678"));
        assert_eq!((&ours["version"], &ours["dropped"]), (&1.into(), &Value::Null));
        assert_eq!((&other["version"], &other["token_id"]), (&0.into(), &ours["token_id"]));
        assert!(other["dropped"].is_string());
    }
}
