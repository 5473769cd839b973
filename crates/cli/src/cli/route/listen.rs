//! `annulus listen`: the messages that are delivered here, as they come.

use std::collections::HashSet;

use base64::prelude::{BASE64_STANDARD, Engine as _};
use serde_json::{Value, json};

use super::{parse_app, text};
use crate::cli::client::Client;
use crate::cli::monitor::parse_position;
use crate::cli::output::{BOLD, DIM, Output, plain};

/// Print unread and new messages, mark them as read, and answer requests.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  annulus listen
  annulus listen --answer 'I am here' --count 1")]
pub(crate) struct Listen {
    /// Answer every request with this text.
    #[arg(long, value_name = "TEXT")]
    answer: Option<String>,
    /// Only messages for this application.
    #[arg(long, value_name = "NAME", value_parser = parse_app)]
    app: Option<String>,
    /// Exit after N messages.
    #[arg(long, value_name = "N")]
    count: Option<u64>,
    /// Start after the event with this id, the field `id:` of /v1/events.
    #[arg(long, value_name = "ID", value_parser = parse_position)]
    after: Option<String>,
}

impl Listen {
    pub(crate) fn run(self, client: &Client, output: &Output) -> anyhow::Result<()> {
        // Without the service the stream would have no messages: this request fails then.
        client.get("/v1/tables")?;
        let mut left = self.count.unwrap_or(u64::MAX);
        // The subscription begins before the unread messages are read: a message in between is in both.
        let mut events = client.events(self.after.as_deref())?;
        let mut shown = HashSet::new();
        let unread = if self.after.is_none() { client.get("/v1/messages")? } else { Value::Null };
        for message in unread.as_array().into_iter().flatten() {
            if left > 0 && message["read"] == false && self.is_for_app(message) {
                self.show(message, &message.to_string(), client, output);
                shown.insert(text(message, "id"));
                left -= 1;
            }
        }
        while left > 0 {
            let Some(event) = events.next()? else {
                anyhow::bail!("the agent has ended the stream: it is stopping; start it again and retry");
            };
            let Ok(message) = serde_json::from_str::<Value>(&event.data) else { continue };
            if !self.wants(&message) || shown.contains(&text(&message, "id")) {
                continue;
            }
            self.show(&message, &event.data, client, output);
            left -= 1;
        }
        Ok(())
    }

    /// Prints a message, answers it if it is a question, and marks it as read.
    fn show(&self, message: &Value, json: &str, client: &Client, output: &Output) {
        if output.json {
            output.json_text(json);
        } else {
            output.line(readable(message));
        }
        let asks = message["ask"] == true;
        match &self.answer {
            Some(answer) if asks => reply(message, answer, client, output),
            // Another client may answer it.
            None if asks => {}
            _ => {
                if let Err(error) = client.post("/v1/messages/read", &json!({ "ids": [message["id"]] })) {
                    output.error(&error);
                }
            }
        }
    }

    fn wants(&self, message: &Value) -> bool {
        message["protocol"] == "route" && message["event"] == "delivered" && self.is_for_app(message)
    }

    fn is_for_app(&self, message: &Value) -> bool {
        self.app.as_ref().is_none_or(|app| message["app"] == app.as_str())
    }
}

/// A late answer is an error of one request only; the command goes on.
fn reply(message: &Value, answer: &str, client: &Client, output: &Output) {
    let body = json!({ "id": message["id"], "payload_base64": BASE64_STANDARD.encode(answer) });
    if let Err(error) = client.post("/v1/answers", &body) {
        output.error(&error);
    }
}

/// `0123abcd from 89ef0123: the message`, with short ids.
fn readable(message: &Value) -> String {
    let short = |key: &str| text(message, key).chars().take(8).collect::<String>();
    let bytes = message["payload_base64"].as_str().and_then(|text| BASE64_STANDARD.decode(text).ok());
    let said = bytes.map_or_else(
        || format!("{DIM}{} bytes, see GET /v1/messages{DIM:#}", message["payload_bytes"]),
        // On one line, whatever the sender wrote: a second one would look like another message.
        |bytes| plain(&String::from_utf8_lossy(&bytes)).into_owned(),
    );
    let asks = if message["ask"] == true { " asks" } else { "" };
    let from = match message["origin_name"].as_str() {
        Some(name) => format!("{} ({})", plain(name), short("origin")),
        None => short("origin"),
    };
    format!("{BOLD}{}{BOLD:#} {DIM}from {from}{asks}:{DIM:#} {said}", short("key"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_one_readable_line() {
        let mut message =
            json!({ "key": "0123456789", "origin": "abcdef0123", "ask": true, "payload_bytes": 5 });
        let plain = |message: &Value| anstream::adapter::strip_str(&readable(message)).to_string();
        assert_eq!(plain(&message), "01234567 from abcdef01 asks: 5 bytes, see GET /v1/messages");
        message["origin_name"] = "blue".into();
        assert_eq!(plain(&message), "01234567 from blue (abcdef01) asks: 5 bytes, see GET /v1/messages");
        message["origin_name"] = Value::Null;
        message["payload_base64"] = BASE64_STANDARD.encode("hello").into();
        assert_eq!(plain(&message), "01234567 from abcdef01 asks: hello");
        message["payload_base64"] = BASE64_STANDARD.encode("a\n01234567 from me:\x1b[2J lies").into();
        assert_eq!(plain(&message), r"01234567 from abcdef01 asks: a\n01234567 from me:\u{1b}[2J lies");
    }
}
