//! `annulus monitor`: what happens, as it happens.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Map, Value};

use super::client::{Client, ServerEvent};
use super::output::{DIM, Output, plain};
use crate::agent::Position;

/// Show events as they happen.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  annulus monitor
  annulus monitor --event peer_appeared --event peer_vanished
  annulus monitor --count 10 --json")]
pub(crate) struct Monitor {
    /// Only events of this protocol; may be given several times.
    #[arg(long, value_name = "NAME")]
    protocol: Vec<String>,
    /// Only events with this name; may be given several times.
    #[arg(long, value_name = "NAME")]
    event: Vec<String>,
    /// End after so many events.
    #[arg(long, value_name = "N")]
    count: Option<u64>,
    /// Begin behind this event: the id that the agent's event stream gave it.
    #[arg(long, value_name = "ID", value_parser = parse_position)]
    after: Option<String>,
}

impl Monitor {
    /// Everything that one protocol tells.
    pub(crate) fn of_protocol(protocol: &str, count: Option<u64>) -> Self {
        Self { protocol: vec![protocol.into()], event: Vec::new(), count, after: None }
    }

    pub(crate) fn run(self, client: &Client, output: &Output) -> anyhow::Result<()> {
        let mut left = self.count.unwrap_or(u64::MAX);
        let mut events = client.events(self.after.as_deref())?;
        while left > 0 {
            let Some(event) = events.next()? else {
                anyhow::bail!("the agent has ended the stream: it is stopping; start it again and retry");
            };
            if self.show(&event, output) {
                left -= 1;
            }
        }
        Ok(())
    }

    fn show(&self, event: &ServerEvent, output: &Output) -> bool {
        let Ok(Value::Object(fields)) = serde_json::from_str(&event.data) else { return false };
        if event.kind == "missed" {
            if !output.json {
                output.line(format!("{DIM}{} events are gone{DIM:#}", fields["missed"]));
            }
            return false;
        }
        let named = |wanted: &[String], key: &str| {
            let value = fields.get(key).and_then(Value::as_str).unwrap_or_default();
            wanted.is_empty() || wanted.iter().any(|wanted| wanted == value)
        };
        if !named(&self.protocol, "protocol") || !named(&self.event, "event") {
            return false;
        }
        output.line(if output.json { event.data.clone() } else { readable(&fields) });
        true
    }
}

/// The id of an event, for clap.
pub(super) fn parse_position(text: &str) -> Result<String, String> {
    let position = Position::parse(text).map(|position| position.to_string());
    position.ok_or_else(|| String::from("give the id of an event as /v1/events has it, such as 18f3a-42"))
}

/// `12:00:00.123456 red ping.ping_answered peer=… rtt_micros=…`
fn readable(fields: &Map<String, Value>) -> String {
    let text = |key: &str| fields.get(key).and_then(Value::as_str).unwrap_or_default();
    let at = UNIX_EPOCH
        + Duration::from_micros(fields.get("at_micros").and_then(Value::as_u64).unwrap_or_default());
    let mut line =
        format!("{DIM}{}{DIM:#} {} {}.{}", clock(at), text("node"), text("protocol"), text("event"));
    let head = ["v", "seq", "at_micros", "node", "service", "protocol", "event"];
    for (key, value) in fields.iter().filter(|(key, _)| !head.contains(&key.as_str())) {
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        line.push_str(&format!(" {DIM}{key}={DIM:#}{}", plain(&value)));
    }
    line
}

/// The time of day, UTC.
fn clock(at: SystemTime) -> String {
    let micros = at.duration_since(UNIX_EPOCH).unwrap_or_default().as_micros() % 86_400_000_000;
    let seconds = micros / 1_000_000;
    format!("{:02}:{:02}:{:02}.{:06}", seconds / 3600, seconds / 60 % 60, seconds % 60, micros % 1_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_event_carries_stays_on_its_line() {
        let json = r#"{"at_micros":0,"node":"red","protocol":"members","event":"event_received","payload":"a\nb\u001b[31m"}"#;
        let Value::Object(fields) = serde_json::from_str(json).unwrap() else { panic!("an object") };
        let line = anstream::adapter::strip_str(&readable(&fields)).to_string();
        assert!(line.ends_with(r"payload=a\nb\u{1b}[31m"), "{line}");
    }

    #[test]
    fn an_event_is_one_readable_line() {
        let json = r#"{"v":1,"seq":2,"at_micros":3723000004,"node":"red","service":1,"protocol":"ping","event":"peer_appeared","peer":"127.0.0.2:7001"}"#;
        let Value::Object(fields) = serde_json::from_str(json).unwrap() else { panic!("an object") };
        let line = anstream::adapter::strip_str(&readable(&fields)).to_string();
        assert_eq!(line, "01:02:03.000004 red ping.peer_appeared peer=127.0.0.2:7001");
    }
}
