//! `annulus monitor`: prints events as they happen.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Map, Value};

use super::client::{Client, ServerEvent};
use super::output::{DIM, Output, plain};
use crate::agent::Position;

/// Print events as they happen.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  annulus monitor
  annulus monitor --event member_joined --event member_died
  annulus monitor --count 10 --json")]
pub(crate) struct Monitor {
    /// Only events of this service. Repeatable.
    #[arg(long, value_name = "NAME")]
    protocol: Vec<String>,
    /// Only events with this name. Repeatable.
    #[arg(long, value_name = "NAME")]
    event: Vec<String>,
    /// Exit after N events.
    #[arg(long, value_name = "N")]
    count: Option<u64>,
    /// Start after the event with this id, the field `id:` of /v1/events.
    #[arg(long, value_name = "ID", value_parser = parse_position)]
    after: Option<String>,
}

impl Monitor {
    /// All events of one service.
    pub(crate) fn of_protocol(protocol: &str, count: Option<u64>) -> Self {
        Self { protocol: vec![protocol.into()], event: Vec::new(), count, after: None }
    }

    pub(crate) fn run(self, client: &Client, output: &Output) -> anyhow::Result<()> {
        let mut left = self.count.unwrap_or(u64::MAX);
        let mut names = Names::default();
        let mut events = client.events(self.after.as_deref())?;
        while left > 0 {
            let Some(event) = events.next()? else {
                anyhow::bail!("the agent has ended the stream: it is stopping; start it again and retry");
            };
            if self.show(&event, &mut names, client, output) {
                left -= 1;
            }
        }
        Ok(())
    }

    fn show(&self, event: &ServerEvent, names: &mut Names, client: &Client, output: &Output) -> bool {
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
        if output.json {
            output.json_text(&event.data);
        } else {
            names.learn(&fields, client);
            output.line(readable(&fields, names));
        }
        true
    }
}

/// The names of members by their ids, and by their numbers in the ring of the token: events have ids, people want names.
#[derive(Default)]
struct Names {
    by_id: BTreeMap<String, String>,
    /// Empty for a number that has no name.
    by_host: BTreeMap<u64, String>,
}

impl Names {
    /// Asks the agent once more if an event has an id or a number of which no name is known.
    fn learn(&mut self, fields: &Map<String, Value>, client: &Client) {
        for (id, name) in fields.get("names").and_then(Value::as_object).into_iter().flatten() {
            self.by_id.insert(id.clone(), name.as_str().unwrap_or_default().to_owned());
        }
        let mut unknown = Vec::new();
        fields.values().for_each(|value| ids(value, &mut unknown));
        unknown.retain(|id| !self.by_id.contains_key(*id));
        if !unknown.is_empty() {
            self.ask_members(client);
            // An id without a name is not looked up again.
            for id in unknown {
                self.by_id.entry(id.to_owned()).or_default();
            }
        }
        let mut hosts = hosts(fields);
        hosts.retain(|host| !self.by_host.contains_key(host));
        if !hosts.is_empty() {
            self.ask_token(client);
            for host in hosts {
                self.by_host.entry(host).or_default();
            }
        }
    }

    fn ask_members(&mut self, client: &Client) {
        let Ok(Value::Array(members)) = client.get("/v1/members") else { return };
        for member in members {
            let ids = [&member["id"], &member["services"]["nid"]].map(Value::as_str);
            for (id, name) in ids.into_iter().flatten().zip(member["name"].as_str().into_iter().cycle()) {
                self.by_id.insert(id.to_owned(), name.to_owned());
            }
        }
    }

    fn ask_token(&mut self, client: &Client) {
        let Ok(token) = client.get("/v1/token") else { return };
        for node in token["nodes"].as_array().into_iter().flatten() {
            if let (Some(host), Some(name)) = (node["host_id"].as_u64(), node["name"].as_str()) {
                self.by_host.insert(host, name.to_owned());
            }
        }
    }

    /// A value of an event as people read it: names with the short id behind them.
    fn shown(&self, key: &str, value: &Value) -> String {
        match value {
            Value::String(text) => self.name(text),
            Value::Number(number) if HOST_KEYS.contains(&key) => {
                let name = number.as_u64().and_then(|host| self.by_host.get(&host));
                let name = name.filter(|name| !name.is_empty());
                name.map_or_else(|| number.to_string(), |name| format!("{name} ({number})"))
            }
            Value::Array(values) => {
                let values: Vec<_> = values.iter().map(|value| self.shown(key, value)).collect();
                format!("[{}]", values.join(", "))
            }
            // A contact is shown by its id.
            Value::Object(fields) if fields.contains_key("id") => self.shown("id", &fields["id"]),
            other => other.to_string(),
        }
    }

    /// The name with the short id behind it; the value as it is if no name is known.
    fn name(&self, value: &str) -> String {
        match self.by_id.get(value).filter(|name| !name.is_empty()) {
            Some(name) => format!("{name} ({})", &value[..8]),
            None => value.to_owned(),
        }
    }
}

/// The fields of events of `token` that have the number of a node in the ring.
const HOST_KEYS: [&str; 5] = ["to", "from", "by", "host_id", "next"];

/// The ids in a value, however deep.
fn ids<'a>(value: &'a Value, found: &mut Vec<&'a str>) {
    match value {
        Value::String(text) if is_id(text) => found.push(text),
        Value::Array(values) => values.iter().for_each(|value| ids(value, found)),
        Value::Object(fields) => fields.values().for_each(|value| ids(value, found)),
        _ => {}
    }
}

/// The numbers of nodes in an event of `token`.
fn hosts(fields: &Map<String, Value>) -> Vec<u64> {
    if fields.get("protocol").and_then(Value::as_str) != Some("token") {
        return Vec::new();
    }
    HOST_KEYS.iter().filter_map(|key| fields.get(*key).and_then(Value::as_u64)).collect()
}

/// Whether a text is an id of a member, or its address in the mesh: 32 or 64 hexadecimal digits.
fn is_id(text: &str) -> bool {
    matches!(text.len(), 32 | 64) && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// The id of an event, for clap.
pub(super) fn parse_position(text: &str) -> Result<String, String> {
    let position = Position::parse(text).map(|position| position.to_string());
    position.ok_or_else(|| String::from("give the id of an event as /v1/events has it, such as 18f3a-42"))
}

/// `12:00:00.123456 red members.member_died id=… by=…`
fn readable(fields: &Map<String, Value>, names: &Names) -> String {
    let text = |key: &str| fields.get(key).and_then(Value::as_str).unwrap_or_default();
    let at = UNIX_EPOCH
        + Duration::from_micros(fields.get("at_micros").and_then(Value::as_u64).unwrap_or_default());
    let mut line =
        format!("{DIM}{}{DIM:#} {} {}.{}", clock(at), plain(text("node")), text("protocol"), text("event"));
    let head = ["v", "seq", "at_micros", "node", "service", "protocol", "event", "names"];
    for (key, value) in fields.iter().filter(|(key, _)| !head.contains(&key.as_str())) {
        line.push_str(&format!(" {DIM}{key}={DIM:#}{}", plain(&names.shown(key, value))));
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
    fn the_fields_of_an_event_stay_on_one_line() {
        let json = r#"{"at_micros":0,"node":"red","protocol":"members","event":"event_received","payload":"a\nb\u001b[31m"}"#;
        let Value::Object(fields) = serde_json::from_str(json).unwrap() else { panic!("an object") };
        let line = anstream::adapter::strip_str(&readable(&fields, &Names::default())).to_string();
        assert!(line.ends_with(r"payload=a\nb\u{1b}[31m"), "{line}");
    }

    #[test]
    fn an_event_is_one_readable_line() {
        let json = r#"{"v":1,"seq":2,"at_micros":3723000004,"node":"red","service":2,"protocol":"members","event":"joined","addr":"127.0.0.2:7946"}"#;
        let Value::Object(fields) = serde_json::from_str(json).unwrap() else { panic!("an object") };
        let line = anstream::adapter::strip_str(&readable(&fields, &Names::default())).to_string();
        assert_eq!(line, "01:02:03.000004 red members.joined addr=127.0.0.2:7946");
    }

    #[test]
    fn members_are_shown_by_name() {
        let id = "0123456789abcdef0123456789abcdef";
        let json = format!(
            r#"{{"at_micros":0,"node":"red","protocol":"members","event":"member_died","id":"{id}"}}"#
        );
        let Value::Object(fields) = serde_json::from_str(&json).unwrap() else { panic!("an object") };
        let by_id = BTreeMap::from([(id.to_owned(), "blue".to_owned())]);
        let names = Names { by_id, by_host: BTreeMap::from([(7, "red".to_owned())]) };
        let line = anstream::adapter::strip_str(&readable(&fields, &names)).to_string();
        assert!(line.ends_with("id=blue (01234567)"), "{line}");
        let contact = serde_json::json!([{ "id": id, "addr": "127.0.0.2:22001" }]);
        assert_eq!(names.shown("added", &contact), "[blue (01234567)]");
        assert_eq!(names.shown("to", &7.into()), "red (7)");
        assert_eq!((names.shown("to", &8.into()), names.shown("fence", &7.into())), ("8".into(), "7".into()));
        let mut found = Vec::new();
        ids(&contact, &mut found);
        assert_eq!(found, [id]);
    }
}
