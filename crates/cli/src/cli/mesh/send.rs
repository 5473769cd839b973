//! `annulus mesh send`.

use std::fs::File;
use std::io::{Read, Seek as _};
use std::ops::RangeInclusive;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use annulus::core::w3w::DATA_BYTES_MAX;
use anyhow::{Context as _, bail};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::{text, time, upload};
use crate::cli::client::{Client, Events};
use crate::cli::output::{Output, plain};

/// The longest content that goes as one message: the form around it must fit in too.
const MESSAGE_BYTES_MAX: usize = DATA_BYTES_MAX - 64;

/// The exit code of `--wait` if the message is still on its way (sysexits: try again later).
const STILL_UNDER_WAY: u8 = 75;
/// The lifetimes that a message may have (CU-22).
const LIFETIMES: RangeInclusive<Duration> = Duration::from_secs(60)..=Duration::from_secs(365 * 86_400);
/// The interval between two queries of the outbox.
const LOOK: Duration = Duration::from_millis(100);

/// Send a message or a file. The command returns when the agent has it on disk.
///
/// A recipient that understands letters gets a letter: it confirms the letter, and this node keeps it until then. Any
/// other recipient gets a plain message. Equal bytes to the same node within mesh.expiry count as one plain message.
/// The outbox shows only that a peer accepted it. Content of more than 16777152 bytes is sent as a file,
/// in blocks. The command then waits until the recipient has all blocks; after an interruption the same command
/// resumes.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  annulus mesh send blue report.pdf --wait 10s
  echo hello | annulus mesh send 84a5b2397ee07585706b045f25583e1502f1ce5517efddb03edc65e4845531b7")]
pub(super) struct Send {
    /// The address of a node (`annulus mesh status` shows it there), or a name of the address book.
    #[arg(value_name = "NID|NAME")]
    to: String,
    /// The file to send; `-` is standard input.
    #[arg(default_value = "-")]
    file: String,
    /// Ask the recipient to confirm it, and wait until it does.
    #[arg(long)]
    receipt: bool,
    /// With --receipt: do not wait; `annulus mesh outbox` shows the state.
    #[arg(long, requires = "receipt")]
    no_wait: bool,
    /// How long to wait for the receipt: exit code 0 if the message is delivered, 75 if it is not yet.
    #[arg(long, value_name = "DURATION", value_parser = humantime::parse_duration, conflicts_with = "receipt")]
    wait: Option<Duration>,
    /// Send a letter, even if this node does not know yet that the recipient understands letters.
    #[arg(long)]
    letter: bool,
    /// The lifetime of the message, from 1m to 365d; mesh.expiry if not given.
    #[arg(long, value_name = "DURATION", value_parser = parse_lifetime)]
    expire: Option<Duration>,
}

/// Reads a lifetime. The agent would cut one outside of the range; the user learns that before the message leaves.
fn parse_lifetime(text: &str) -> Result<Duration, String> {
    let lifetime = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    let is_allowed = LIFETIMES.contains(&lifetime);
    if is_allowed { Ok(lifetime) } else { Err(String::from("write a duration from 1m to 365d")) }
}

impl Send {
    pub(super) fn run(self, client: &Client, output: &Output) -> anyhow::Result<ExitCode> {
        match content(&self.file)? {
            Content::Message(data) => self.message(&data, client, output),
            Content::File(file, name) => {
                upload::send(&self.to, file, &name, client, output)?;
                Ok(ExitCode::SUCCESS)
            }
        }
    }

    fn message(&self, data: &[u8], client: &Client, output: &Output) -> anyhow::Result<ExitCode> {
        // Listening begins first, so that no receipt can come unseen.
        let events = if self.receipt && !self.no_wait { Some(client.events(None)?) } else { None };
        let mut body =
            json!({ "to": self.to, "data_base64": STANDARD.encode(data), "receipt": self.receipt });
        if self.letter {
            body["letter"] = true.into();
        }
        if let Some(lifetime) = self.expire {
            body["lifetime_seconds"] = lifetime.as_secs().into();
        }
        let mut answer = client.post("/v1/mesh/messages", &body)?;
        let number = answer["number"].as_u64().unwrap_or_default();
        if let Some(wait) = self.wait {
            return wait_for(client, &mut answer, number, wait, output);
        }
        let Some(mut events) = events else {
            output.done(&answer, &self.what_will_be_known(&answer));
            return Ok(ExitCode::SUCCESS);
        };
        let state = wait_for_receipt(client, &mut events, number)?;
        if state != "delivered" {
            bail!(
                "message {number} was not received, as far as is known ({state}): no receipt came within \
                 its lifetime; send it again, it is confirmed once at most"
            );
        }
        answer["state"] = state.into();
        output.done(&answer, &format!("message {number} was received: {}", text(&answer, "hash")));
        Ok(ExitCode::SUCCESS)
    }

    fn what_will_be_known(&self, answer: &Value) -> String {
        let (number, hash) = (&answer["number"], text(answer, "hash"));
        let (to, until) = (plain(&self.to), time(&answer["until"]));
        if answer["is_letter"] == true {
            format!("letter {number} to {to}, kept until {until}: {hash}")
        } else {
            format!(
                "message {number} to {to} is on its way: {hash}; plain, so no receipt is possible \
                 (--letter if {to} is an annulus node)"
            )
        }
    }
}

/// Waits until the message is delivered, nothing more can become known of it, or the time is over.
fn wait_for(
    client: &Client,
    answer: &mut Value,
    number: u64,
    wait: Duration,
    output: &Output,
) -> anyhow::Result<ExitCode> {
    let until = Instant::now() + wait;
    let state = loop {
        let state = state_of(client, number)?;
        if !is_open(&state) || Instant::now() >= until {
            break state;
        }
        std::thread::sleep(LOOK.min(until.saturating_duration_since(Instant::now())));
    };
    answer["state"] = state.as_str().into();
    output.done(answer, &format!("message {number} is {}", state.replace('_', " ")));
    Ok(match state.as_str() {
        "delivered" => ExitCode::SUCCESS,
        "waiting" | "under_way" | "given" => ExitCode::from(STILL_UNDER_WAY),
        _ => ExitCode::FAILURE,
    })
}

fn is_open(state: &str) -> bool {
    matches!(state, "waiting" | "under_way" | "given")
}

/// The content to send.
enum Content {
    Message(Vec<u8>),
    /// Longer than a message may be: an open file, at its beginning, and its name.
    File(File, String),
}

/// Reads as much as fits into a message; longer content stays in its file, or goes into a temporary one.
fn content(path: &str) -> anyhow::Result<Content> {
    let unreadable = || format!("cannot read the file {path}; check its name and owner, or pipe text in");
    if path == "-" {
        let mut stdin = std::io::stdin().lock();
        let data = head(&mut stdin).with_context(unreadable)?;
        if data.len() <= MESSAGE_BYTES_MAX {
            return Ok(Content::Message(data));
        }
        let spool = spool(&data, &mut stdin).context("cannot write a temporary file; check TMPDIR")?;
        return Ok(Content::File(spool, "stdin".into()));
    }
    let mut file = File::open(path).with_context(unreadable)?;
    let data = head(&mut file).with_context(unreadable)?;
    if data.len() <= MESSAGE_BYTES_MAX {
        return Ok(Content::Message(data));
    }
    let name = Path::new(path).file_name().unwrap_or_default().to_string_lossy().into_owned();
    if file.rewind().is_ok() && file.metadata().is_ok_and(|about| about.is_file()) {
        return Ok(Content::File(file, name));
    }
    // A pipe by name: it can be read once only.
    let spool = spool(&data, &mut file).context("cannot write a temporary file; check TMPDIR")?;
    Ok(Content::File(spool, name))
}

/// A byte more than a message may have, at most.
fn head(from: &mut impl Read) -> std::io::Result<Vec<u8>> {
    let mut data = Vec::new();
    from.take(MESSAGE_BYTES_MAX as u64 + 1).read_to_end(&mut data)?;
    Ok(data)
}

fn spool(begin: &[u8], rest: &mut impl Read) -> std::io::Result<File> {
    let mut file = tempfile::tempfile()?;
    std::io::Write::write_all(&mut file, begin)?;
    std::io::copy(rest, &mut file)?;
    file.rewind()?;
    Ok(file)
}

/// Waits until the outbox has the final state.
pub(super) fn wait_for_receipt(client: &Client, events: &mut Events, number: u64) -> anyhow::Result<String> {
    loop {
        let state = state_of(client, number)?;
        if !is_open(&state) {
            return Ok(state);
        }
        events.wait(|event| event["event"] == "message_state_changed" && event["number"] == number)?;
    }
}

/// The state of a message; `forgotten` if it is no longer in the outbox.
pub(super) fn state_of(client: &Client, number: u64) -> anyhow::Result<String> {
    let lines = client.get(&format!("/v1/mesh/outbox?from={number}"))?;
    let line = lines.as_array().and_then(|lines| lines.first()).filter(|line| line["number"] == number);
    let state = line.and_then(|line| line["state"].as_str().map(str::to_owned));
    Ok(state.unwrap_or_else(|| "forgotten".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lifetime_is_from_a_minute_to_a_year() {
        let day = Duration::from_secs(86_400);
        assert_eq!(parse_lifetime("1m"), Ok(day / 1440));
        assert_eq!(parse_lifetime("365d"), Ok(day * 365));
        for wrong in ["59s", "366d", "0s", "soon", ""] {
            assert!(parse_lifetime(wrong).is_err(), "{wrong:?}");
        }
    }
}
