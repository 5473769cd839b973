//! `annulus mesh inbox`, `outbox` and `read`.

use serde_json::{Value, json};

use super::{short, text, time};
use crate::cli::client::Client;
use crate::cli::output::{BAD, DIM, GOOD, Output};

/// The headings of the inbox.
const INBOX: [&str; 5] = ["N", "FROM", "SIZE", "RECEIVED", "HASH"];

/// Show the messages that came.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  annulus mesh inbox
  annulus mesh inbox --watch --json")]
pub(super) struct Inbox {
    /// Go on and show every further message when it comes.
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
                output.line(if output.json { line.to_string() } else { row(line).join("  ") });
            }
            let came = |data: &str| {
                let event: Value = serde_json::from_str(data).unwrap_or_default();
                event["protocol"] == "mesh" && event["event"] == "message_received"
            };
            loop {
                match events.next()? {
                    Some(event) if event.kind == "missed" || came(&event.data) => break,
                    Some(_) => {}
                    None => anyhow::bail!(
                        "the agent has ended the stream: it is stopping; start it again and retry"
                    ),
                }
            }
        }
    }
}

/// Show the messages that were sent from here, and what is known of them.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  annulus mesh outbox")]
pub(super) struct Outbox {}

impl Outbox {
    pub(super) fn run(self, client: &Client, output: &Output) -> anyhow::Result<()> {
        let row = |line: &Value| {
            let state = text(line, "state");
            let style = match state.as_str() {
                "delivered" => GOOD,
                "expired" | "unknown" => BAD,
                _ => DIM,
            };
            let state = format!("{style}{}{style:#}", state.replace('_', " "));
            let number = line["number"].to_string();
            vec![number, short(line, "to"), line["size"].to_string(), time(&line["sent_at"]), state]
        };
        super::show(&all(client, "outbox", 0)?, &["N", "TO", "SIZE", "SENT", "STATE"], row, output);
        Ok(())
    }
}

/// Write a message to standard output, as its sender wrote it.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  annulus mesh read 0
  annulus mesh read 3 --remove > report.pdf")]
pub(super) struct Read {
    /// Its number in the inbox.
    number: u64,
    /// Take it out of the inbox afterwards.
    #[arg(long)]
    remove: bool,
}

impl Read {
    pub(super) fn run(self, client: &Client, output: &Output) -> anyhow::Result<()> {
        output.bytes(&client.bytes(&format!("/v1/mesh/inbox/{}", self.number))?)?;
        if self.remove {
            client.post("/v1/mesh/inbox/remove", &json!({ "number": self.number }))?;
        }
        Ok(())
    }
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
    vec![
        number,
        short(line, "from"),
        line["size"].to_string(),
        time(&line["received_at"]),
        short(line, "hash"),
    ]
}
