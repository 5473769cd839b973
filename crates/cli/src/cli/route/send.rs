//! `annulus send` and `annulus ask`: a message to the owner of a key.

use std::ffi::OsString;
use std::fs::File;
use std::io::{IsTerminal as _, Read, Write as _, stdin, stdout};
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use base64::prelude::{BASE64_STANDARD, Engine as _};
use serde_json::{Value, json};

use super::{named, parse_app, text};
use crate::cli::client::Client;
use crate::cli::output::{Output, plain};

/// More than route.message_bytes_max can be.
const READ_BYTES_MAX: u64 = (1 << 30) + 1;

/// The arguments of both verbs.
#[derive(clap::Args)]
struct Letter {
    /// The key: 32 hexadecimal digits, or any text, which is hashed.
    key: String,
    /// The payload [default: standard input, also with `-`].
    message: Option<OsString>,
    /// Read the payload from this file.
    #[arg(long, value_name = "FILE", conflicts_with = "message")]
    file: Option<PathBuf>,
    /// The application that gets it.
    #[arg(long, value_name = "NAME", default_value = "", value_parser = parse_app)]
    app: String,
    /// Retry only after an attempt that reached no application: no duplicates, but more unknown outcomes.
    #[arg(long)]
    once: bool,
}

impl Letter {
    fn body(self) -> anyhow::Result<Value> {
        let payload = match (&self.file, self.message) {
            (Some(path), _) if path != Path::new("-") => {
                let unreadable =
                    || format!("cannot read the file {}; check its name and owner", path.display());
                all(&mut File::open(path).with_context(unreadable)?).with_context(unreadable)?
            }
            (None, Some(message)) if message != "-" => message.into_vec(),
            _ => all(&mut stdin().lock()).context("cannot read standard input; check where it comes from")?,
        };
        Ok(json!({
            "key": self.key,
            "payload_base64": BASE64_STANDARD.encode(payload),
            "app": self.app,
            "once": self.once,
        }))
    }
}

/// All bytes, up to more than any agent accepts: the agent then answers with its limit.
fn all(from: &mut impl Read) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    from.take(READ_BYTES_MAX).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Send a message to the owner of a key.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  annulus send photos/2026/cat.jpg 'keep this one'
  annulus send photos/2026/cat.jpg --file cat.jpg
  tar c notes | annulus send backup/notes")]
pub(crate) struct Send {
    #[command(flatten)]
    letter: Letter,
}

impl Send {
    pub(crate) fn run(self, client: &Client, output: &Output) -> anyhow::Result<()> {
        let answer = client.post("/v1/messages", &self.letter.body()?)?;
        let (to, addr) = (named(&answer, "delivered_to_name", "delivered_to"), text(&answer, "addr"));
        let hops = &answer["hops"];
        let sentence = match answer["state"].as_str() {
            Some("handled") => format!("handled by {to} at {addr}, hops: {hops}"),
            _ => format!("kept by {to} at {addr}, not read yet, hops: {hops}"),
        };
        output.done(&answer, &sentence);
        Ok(())
    }
}

/// Send a request to the owner of a key, and print the answer.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  annulus ask photos/2026/cat.jpg 'are you there?'
  annulus ask words/count --file letter.txt")]
pub(crate) struct Ask {
    #[command(flatten)]
    letter: Letter,
}

impl Ask {
    pub(crate) fn run(self, client: &Client, output: &Output) -> anyhow::Result<()> {
        let answer = client.post("/v1/ask", &self.letter.body()?)?;
        if output.json {
            output.json(&answer);
            return Ok(());
        }
        let mut payload = BASE64_STANDARD.decode(text(&answer, "payload_base64")).unwrap_or_default();
        if stdout().is_terminal() {
            output.line(shown(&String::from_utf8_lossy(&payload)));
            return Ok(());
        }
        // A program gets the bytes as they are.
        payload.push(b'\n');
        Ok(stdout().write_all(&payload)?)
    }
}

/// Foreign text, made safe for a terminal.
fn shown(text: &str) -> String {
    text.lines().map(plain).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_keeps_its_lines_and_does_nothing_to_the_terminal() {
        assert_eq!(shown("red\n\x1b[2Jblue\n"), "red\n\\u{1b}[2Jblue");
    }
}
