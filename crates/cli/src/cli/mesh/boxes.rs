//! `annulus mesh inbox`, `outbox` and `read`.

use std::io::{IsTerminal as _, Write};
use std::path::{Path, PathBuf};

use annulus::core::w3w::Key;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::shown::Shown;
use super::{short, text, time};
use crate::cli::client::{Client, escaped};
use crate::cli::output::{BAD, DIM, GOOD, Output, plain};

/// The headings of the inbox.
const INBOX: [&str; 6] = ["N", "FROM", "SIZE", "RECEIVED", "HASH", "CONTENT"];

/// Show the received messages.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  annulus mesh inbox
  annulus mesh inbox --watch --json")]
pub(super) struct Inbox {
    /// Keep running and print every new message.
    #[arg(long, short = 'w')]
    watch: bool,
}

impl Inbox {
    pub(super) fn run(self, client: &Client, output: &Output) -> anyhow::Result<()> {
        if !self.watch {
            super::show(&all(client, "inbox", 0)?, &INBOX, row, output);
            return Ok(());
        }
        // Listening begins first, so that nothing can come unseen in between.
        let mut events = client.events(None)?;
        let mut next = 0;
        if !output.json {
            output.table(&INBOX, &[]);
        }
        loop {
            for line in all(client, "inbox", next)?.as_array().into_iter().flatten() {
                next = line["number"].as_u64().unwrap_or_default() + 1;
                if output.json {
                    output.json(line);
                } else {
                    output.line(row(line).join("  "));
                }
            }
            events.wait(|event| {
                let is_news = event["event"] == "message_received" || event["event"] == "file_received";
                event["protocol"] == "mesh" && is_news
            })?;
        }
    }
}

/// Show the messages that this node sent, and the state of each.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  annulus mesh outbox")]
pub(super) struct Outbox {}

impl Outbox {
    pub(super) fn run(self, client: &Client, output: &Output) -> anyhow::Result<()> {
        let row = |line: &Value| {
            let state = text(line, "state");
            let style = match state.as_str() {
                "delivered" => GOOD,
                "expired" | "unconfirmed" | "refused" => BAD,
                _ => DIM,
            };
            let state = format!("{style}{}{style:#}{}", state.replace('_', " "), details(line));
            let number = line["number"].to_string();
            let (to, hash, size) = (named(line, "to"), short(line, "hash"), line["size"].to_string());
            vec![number, to, size, time(&line["sent_at"]), hash, state]
        };
        super::show(&all(client, "outbox", 0)?, &["N", "TO", "SIZE", "SENT", "HASH", "STATE"], row, output);
        Ok(())
    }
}

/// Write the content of a message or file to standard output, escaped on a terminal; `--json` prints its inbox entry and
/// `data_base64`.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  annulus mesh read 0
  annulus mesh read 3 --output report.pdf --remove")]
pub(super) struct Read {
    /// Its number in the inbox.
    number: u64,
    /// Write to this new file instead. The file appears only when the content is complete.
    #[arg(long, short = 'o', value_name = "FILE")]
    output: Option<PathBuf>,
    /// Remove the message from the inbox afterwards.
    #[arg(long)]
    remove: bool,
}

impl Read {
    pub(super) fn run(self, client: &Client, output: &Output) -> anyhow::Result<()> {
        let path = format!("/v1/mesh/inbox/{}", self.number);
        match &self.output {
            Some(file) => download(client, &path, file, output)?,
            None if output.json => output.json(&self.line(client, &path)?),
            None => copy(client, &path)?,
        }
        if self.remove {
            client.post("/v1/mesh/inbox/remove", &json!({ "number": self.number }))?;
        }
        Ok(())
    }
}

impl Read {
    /// The line of the inbox, and its content.
    fn line(&self, client: &Client, path: &str) -> anyhow::Result<Value> {
        let lines = client.get(&format!("/v1/mesh/inbox?from={}", self.number))?;
        let line =
            lines.as_array().and_then(|lines| lines.first()).filter(|line| line["number"] == self.number);
        let data = content(client, path, line.and_then(|line| line["size"].as_u64()).unwrap_or_default())?;
        let mut line = line.cloned().unwrap_or_else(|| json!({ "number": self.number }));
        line["data_base64"] = STANDARD.encode(data).into();
        Ok(line)
    }
}

/// Write the block or file with this hash to standard output; `--json` prints `data_base64`.
///
/// The block of a letter begins with the header of the letter; `annulus mesh read` writes its content alone.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  annulus mesh get 84a5b2397ee07585706b045f25583e1502f1ce5517efddb03edc65e4845531b7
  annulus mesh get 84a5b2397ee07585 --output copy")]
pub(super) struct Get {
    /// The hash, as inbox and outbox show it; a unique prefix of at least 8 digits is enough.
    hash: String,
    /// Write to this new file instead. The file appears only when the content is complete.
    #[arg(long, short = 'o', value_name = "FILE")]
    output: Option<PathBuf>,
}

impl Get {
    pub(super) fn run(self, client: &Client, output: &Output) -> anyhow::Result<()> {
        let path = format!("/v1/mesh/blocks/{}", escaped(&self.hash));
        match &self.output {
            Some(file) => download(client, &path, file, output),
            None if output.json => {
                let data = content(client, &path, 0)?;
                // For a message the whole hash can be computed from its bytes; for a file that would need its
                // manifest.
                let (given, whole) = (self.hash.to_lowercase(), Key::of(&data).to_string());
                let hash = if whole.starts_with(&given) { whole } else { given };
                output.json(&json!({ "hash": hash, "data_base64": STANDARD.encode(data) }));
                Ok(())
            }
            None => copy(client, &path),
        }
    }
}

/// The longest content that is shown as JSON: that of a message. It has to be held in memory.
const JSON_BYTES_MAX: u64 = 16 << 20;

/// All bytes at once.
fn content(client: &Client, path: &str, size: u64) -> anyhow::Result<Vec<u8>> {
    let mut data = Bounded(Vec::new());
    let is_too_long = size > JSON_BYTES_MAX;
    let copied = if is_too_long { Ok(size) } else { client.copy(path, &mut data) };
    if is_too_long || copied.as_ref().is_err_and(|_| data.is_full()) {
        anyhow::bail!(
            "this file is too long for JSON ({JSON_BYTES_MAX} bytes at most): write it with --output FILE"
        );
    }
    copied?;
    Ok(data.0)
}

/// Takes as much as is shown as JSON, and a part more.
struct Bounded(Vec<u8>);

impl Bounded {
    fn is_full(&self) -> bool {
        self.0.len() as u64 > JSON_BYTES_MAX
    }
}

impl std::io::Write for Bounded {
    fn write(&mut self, part: &[u8]) -> std::io::Result<usize> {
        if self.is_full() {
            return Err(std::io::ErrorKind::FileTooLarge.into());
        }
        self.0.extend_from_slice(part);
        Ok(part.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Copies to standard output, part by part: as it is to a file or a pipe, as text to a terminal.
fn copy(client: &Client, path: &str) -> anyhow::Result<()> {
    let stdout = std::io::stdout();
    let is_terminal = stdout.is_terminal();
    let mut out: Box<dyn Write> =
        if is_terminal { Box::new(Shown::new(stdout.lock())) } else { Box::new(stdout.lock()) };
    let copied = client.copy(path, &mut out).map(drop).and_then(|()| Ok(out.flush()?));
    copied.or_else(|error| match error.downcast_ref::<std::io::Error>() {
        // A closed pipe is no error.
        Some(cause) if cause.kind() == std::io::ErrorKind::BrokenPipe => std::process::exit(0),
        _ => Err(error),
    })
}

/// Copies to a new file that appears only when it is whole.
fn download(client: &Client, path: &str, file: &Path, output: &Output) -> anyhow::Result<()> {
    // The error names only the reason, not the temporary file.
    let cannot = |why: &dyn std::fmt::Display| {
        anyhow::anyhow!("cannot write {}; choose another file: {why}", file.display())
    };
    if file.exists() {
        anyhow::bail!("cannot write {}; choose another file: it is there already", file.display());
    }
    let dir = file.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut part = tempfile::NamedTempFile::new_in(dir).map_err(|error| cannot(&error.kind()))?;
    let copied = client.copy(path, part.as_file_mut()).map_err(|error| {
        // An error of the agent is printed as it is; an error of the disk names this file.
        match error.downcast_ref::<std::io::Error>() {
            Some(why) if !error.is::<&str>() => cannot(why),
            _ => error,
        }
    })?;
    part.persist_noclobber(file).map_err(|error| cannot(&error.error.kind()))?;
    let answer = json!({ "file": file, "bytes": copied });
    output.done(&answer, &format!("wrote {copied} bytes to {}", plain(&file.to_string_lossy())));
    Ok(())
}

/// A whole list from a number on: the agent gives it in parts.
fn all(client: &Client, name: &str, from: u64) -> anyhow::Result<Value> {
    let (mut lines, mut from) = (Vec::new(), from);
    loop {
        let part = client.get(&format!("/v1/mesh/{name}?from={from}"))?;
        let Some(last) = part.as_array().and_then(|part| part.last()) else { return Ok(lines.into()) };
        from = last["number"].as_u64().unwrap_or(u64::MAX - 1).saturating_add(1);
        lines.extend(part.as_array().into_iter().flatten().cloned());
    }
}

fn row(line: &Value) -> Vec<String> {
    let number = line["number"].to_string();
    let content = if line["is_file"] == true { text(line, "name") } else { text(line, "first_line") };
    vec![
        number,
        named(line, "from"),
        line["size"].to_string(),
        time(&line["received_at"]),
        short(line, "hash"),
        plain(&content).into_owned(),
    ]
}

/// The name of a node, or the first digits of its address.
fn named(line: &Value, key: &str) -> String {
    match line[format!("{key}_name")].as_str() {
        Some(name) => plain(name).into_owned(),
        None => short(line, key),
    }
}

/// Why a message waits, and where it is.
fn details(line: &Value) -> String {
    let custodians = line["custodians"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let custodians: Vec<String> =
        custodians.map(|name| plain(&name.chars().take(16).collect::<String>()).into_owned()).collect();
    match text(line, "state").as_str() {
        "waiting" => match text(line, "why").as_str() {
            "no_peer" => ": no peer".to_owned(),
            "recipient_away" if line["away_since"].is_u64() => {
                format!(": {} is away since {}", named(line, "to"), time(&line["away_since"]))
            }
            "recipient_away" => format!(": {} is away", named(line, "to")),
            "peers_full" => ": peers are full".to_owned(),
            _ => String::new(),
        },
        "under_way" if !custodians.is_empty() => format!(": held by {}", custodians.join(" and ")),
        "refused" => format!(": {}", text(line, "refusal").replace('_', " ")),
        "delivered" if line["delivered_at"].is_u64() => format!(" at {}", time(&line["delivered_at"])),
        _ => String::new(),
    }
}
