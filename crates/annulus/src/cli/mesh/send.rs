//! `annulus mesh send`.

use std::fs::File;
use std::io::{Read, Seek as _};
use std::path::Path;

use annulus_core::w3w::DATA_BYTES_MAX;
use anyhow::{Context as _, bail};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;

use super::upload;
use crate::cli::client::{Client, Events};
use crate::cli::output::Output;

/// The longest content that goes as one message: what is put around it to ask for a receipt must fit in too.
const MESSAGE_BYTES_MAX: usize = DATA_BYTES_MAX - 64;

/// Send a message or a file. It is safe in the agent's store when this ends, and travels on from there.
///
/// The same bytes to the same node within mesh.expiry count as one message, unless a receipt is asked for. What is longer
/// than 16777152 bytes goes as a file, in blocks: this then lasts until the recipient has all of it, and the same
/// command goes on where a broken one stopped.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  annulus mesh send db3 report.pdf --receipt
  echo hello | annulus mesh send 84a5b2397ee07585706b045f25583e1502f1ce5517efddb03edc65e4845531b7")]
pub(super) struct Send {
    /// The address of a node (`annulus mesh status` shows it there), or its name if both run members and mesh.
    #[arg(value_name = "NID|NAME")]
    to: String,
    /// What to send; standard input if it is `-` or left out.
    #[arg(default_value = "-")]
    file: String,
    /// Ask the recipient to confirm it, and wait until it does.
    #[arg(long)]
    receipt: bool,
    /// With --receipt: do not wait; `annulus mesh outbox` shows whether it was confirmed.
    #[arg(long, requires = "receipt")]
    no_wait: bool,
}

impl Send {
    pub(super) fn run(self, client: &Client, output: &Output) -> anyhow::Result<()> {
        match content(&self.file)? {
            Content::Message(data) => self.message(&data, client, output),
            Content::File(file, name) => upload::send(&self.to, file, &name, client, output),
        }
    }

    fn message(&self, data: &[u8], client: &Client, output: &Output) -> anyhow::Result<()> {
        // Listening begins first, so that no receipt can come unseen.
        let events = if self.receipt && !self.no_wait { Some(client.events(None)?) } else { None };
        let body = json!({ "to": self.to, "data_base64": STANDARD.encode(data), "receipt": self.receipt });
        let mut answer = client.post("/v1/mesh/messages", &body)?;
        let hash = answer["hash"].as_str().unwrap_or_default().to_owned();
        let number = answer["number"].as_u64().unwrap_or_default();
        let Some(mut events) = events else {
            output.done(&answer, &format!("message {number} is on its way: {hash}"));
            return Ok(());
        };
        let state = wait_for_receipt(client, &mut events, number)?;
        if state != "delivered" {
            bail!(
                "message {number} was not received, as far as is known ({state}): no receipt came within \
                 mesh.expiry; send it again, it is confirmed once at most"
            );
        }
        answer["state"] = state.into();
        output.done(&answer, &format!("message {number} was received: {hash}"));
        Ok(())
    }
}

/// What there is to send.
enum Content {
    Message(Vec<u8>),
    /// Longer than a message may be: an open file, at its beginning, and what it is called.
    File(File, String),
}

/// Reads as much as fits into a message; what is longer stays in its file, or goes into a temporary one.
fn content(path: &str) -> anyhow::Result<Content> {
    let unreadable = || format!("cannot read the file {path}; check its name and owner");
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

/// Waits until the outbox says how it ended.
pub(super) fn wait_for_receipt(client: &Client, events: &mut Events, number: u64) -> anyhow::Result<String> {
    loop {
        let state = state_of(client, number)?;
        if state != "waiting" && state != "handed_on" {
            return Ok(state);
        }
        events.wait(|event| event["event"] == "message_state_changed" && event["number"] == number)?;
    }
}

/// What is known of a message; nothing any more if it has left the outbox.
pub(super) fn state_of(client: &Client, number: u64) -> anyhow::Result<String> {
    let lines = client.get(&format!("/v1/mesh/outbox?from={number}"))?;
    let line = lines.as_array().and_then(|lines| lines.first()).filter(|line| line["number"] == number);
    let state = line.and_then(|line| line["state"].as_str().map(str::to_owned));
    Ok(state.unwrap_or_else(|| "unknown".to_owned()))
}
