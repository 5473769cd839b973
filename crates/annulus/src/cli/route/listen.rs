//! `annulus listen`: the messages that are delivered here, as they come.

use base64::prelude::{BASE64_STANDARD, Engine as _};
use serde_json::{Value, json};

use super::{parse_app, text};
use crate::cli::client::Client;
use crate::cli::monitor::parse_position;
use crate::cli::output::{BOLD, DIM, Output, plain};

/// Show messages as they are delivered here, and answer questions.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  annulus listen
  annulus listen --answer 'I am here' --count 1")]
pub(crate) struct Listen {
    /// Answer every question with this.
    #[arg(long, value_name = "TEXT")]
    answer: Option<String>,
    /// Only messages for the application of this name.
    #[arg(long, value_name = "NAME", value_parser = parse_app)]
    app: Option<String>,
    /// End after so many messages.
    #[arg(long, value_name = "N")]
    count: Option<u64>,
    /// Begin behind this event: the id that the agent's event stream gave it.
    #[arg(long, value_name = "ID", value_parser = parse_position)]
    after: Option<String>,
}

impl Listen {
    pub(crate) fn run(self, client: &Client, output: &Output) -> anyhow::Result<()> {
        // Without the service there would be nothing to hear, for ever.
        client.get("/v1/tables")?;
        let mut left = self.count.unwrap_or(u64::MAX);
        let mut events = client.events(self.after.as_deref())?;
        while left > 0 {
            let Some(event) = events.next()? else {
                anyhow::bail!("the agent has ended the stream: it is stopping; start it again and retry");
            };
            let Ok(message) = serde_json::from_str::<Value>(&event.data) else { continue };
            if !self.wants(&message) {
                continue;
            }
            output.line(if output.json { event.data } else { readable(&message) });
            if let (Some(answer), Some(true)) = (&self.answer, message["ask"].as_bool()) {
                reply(&message, answer, client, output);
            }
            left -= 1;
        }
        Ok(())
    }

    fn wants(&self, message: &Value) -> bool {
        message["protocol"] == "route"
            && message["event"] == "delivered"
            && self.app.as_ref().is_none_or(|app| message["app"] == app.as_str())
    }
}

/// An answer that nobody waits for any more is no reason to hear no other question.
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
    format!("{BOLD}{}{BOLD:#} {DIM}from {}{asks}:{DIM:#} {said}", short("key"), short("origin"))
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
        message["payload_base64"] = BASE64_STANDARD.encode("hello").into();
        assert_eq!(plain(&message), "01234567 from abcdef01 asks: hello");
        message["payload_base64"] = BASE64_STANDARD.encode("a\n01234567 from me:\x1b[2J lies").into();
        assert_eq!(plain(&message), r"01234567 from abcdef01 asks: a\n01234567 from me:\u{1b}[2J lies");
    }
}
