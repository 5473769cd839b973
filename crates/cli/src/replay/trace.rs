//! A whole trace: hosts with their places on the ring, and the lines that the page plays.

use std::collections::{BTreeMap, HashMap};
use std::io::BufRead;

use serde::Serialize;
use serde_json::{Value, json};

use super::line::{Record, TraceLine, parse};

/// The most lines that the page plays; later ones are left out, and the page shows that.
const LINES_MAX: usize = 400_000;

/// Fields of events that the page does not show and that are long.
const LONG: [&str; 8] = ["v", "seq", "at_micros", "node", "data", "payload", "counter_clockwise", "service"];

/// A trace, ready for the page.
#[derive(Debug, Serialize)]
pub(crate) struct Trace {
    hosts: Vec<Host>,
    lines: Vec<Value>,
    end_micros: u64,
    /// Whether lines were left out.
    is_cut_off: bool,
}

#[derive(Debug, Serialize)]
struct Host {
    name: String,
    /// Its place on the ring; an even one if the scenario has no ids.
    id: String,
    addr: Option<String>,
}

impl Trace {
    /// Reads a trace; the number of the first line that is none, if there is one.
    pub(crate) fn read(reader: impl BufRead) -> Result<Self, TraceError> {
        let mut found = Found::default();
        for (index, text) in reader.lines().enumerate() {
            let text = text.map_err(TraceError::Unreadable)?;
            match parse(&text) {
                Ok(Some(line)) => found.take(line),
                Ok(None) => {}
                // A run that was ended writes half a line.
                Err(()) if index > 0 && !found.hosts.is_empty() => {}
                Err(()) => return Err(TraceError::NoTrace { line: index + 1 }),
            }
        }
        if found.hosts.is_empty() {
            return Err(TraceError::NoTrace { line: 1 });
        }
        Ok(found.finish())
    }

    /// How many hosts and how many lines it has.
    pub(crate) fn size(&self) -> (usize, usize) {
        (self.hosts.len(), self.lines.len())
    }
}

/// Why a trace cannot be played.
#[derive(Debug)]
pub(crate) enum TraceError {
    Unreadable(std::io::Error),
    NoTrace { line: usize },
}

#[derive(Default)]
struct Found {
    /// By name: the address of each host.
    hosts: BTreeMap<String, Option<String>>,
    /// Ring ids by IP address.
    ids: HashMap<String, String>,
    /// Ring ids of hosts that named themselves.
    own: HashMap<String, String>,
    lines: Vec<Value>,
    end: u64,
    is_cut_off: bool,
}

impl Found {
    fn take(&mut self, TraceLine { at, host, record }: TraceLine) {
        self.end = self.end.max(at);
        if let Some(host) = &host {
            self.hosts.entry(host.clone()).or_default();
        }
        let line = match record {
            Record::Sent(from) => {
                let known = host.and_then(|host| self.hosts.get_mut(&host));
                if let Some(addr @ None) = known {
                    *addr = ip_of(&from);
                }
                return;
            }
            Record::Start => json!({ "protocol": "host", "event": "start" }),
            Record::Stopped => json!({ "protocol": "host", "event": "stopped" }),
            Record::Fault(text) => json!({ "protocol": "demo", "event": "fault", "text": text }),
            Record::Violation(text) => {
                json!({ "protocol": "demo", "event": "fault", "text": format!("violation: {text}") })
            }
            Record::Event(event) => self.event(host.as_deref(), event),
        };
        if self.lines.len() >= LINES_MAX {
            self.is_cut_off = true;
            return;
        }
        let mut line = line;
        line["at_micros"] = at.into();
        line["node"] = host.into();
        self.lines.push(line);
    }

    /// Learns ids from an event, and drops long fields.
    fn event(&mut self, host: Option<&str>, mut event: Value) -> Value {
        if let (Some(id), Some(ip)) = (event["id"].as_str(), event["addr"].as_str().and_then(ip_of)) {
            self.ids.entry(ip).or_insert_with(|| id.to_owned());
        }
        let contacts = event["clockwise"].as_array().into_iter().chain(event["added"].as_array()).flatten();
        for contact in contacts.chain([&event["origin"], &event["contact"]]) {
            if let (Some(id), Some(ip)) = (contact["id"].as_str(), contact["addr"].as_str().and_then(ip_of)) {
                self.ids.entry(ip).or_insert_with(|| id.to_owned());
            }
        }
        if let (Some(nid), Some(ip)) =
            (event["nid"].as_str().and_then(|nid| nid.get(..32)), event["ip"].as_str())
        {
            self.ids.entry(ip.to_owned()).or_insert_with(|| nid.to_owned());
        }
        if let (Some("started"), Some(nid), Some(host)) =
            (event["event"].as_str(), event["nid"].as_str(), host)
        {
            self.own.insert(host.to_owned(), nid.chars().take(32).collect());
        }
        let protocol = event["protocol"].as_str().unwrap_or_else(|| protocol_of(&event)).to_owned();
        event["protocol"] = protocol.into();
        if let Some(fields) = event.as_object_mut() {
            fields.retain(|name, _| !LONG.contains(&name.as_str()));
        }
        event
    }

    fn finish(self) -> Trace {
        let mut names: Vec<(String, Option<String>)> = self.hosts.into_iter().collect();
        names.sort_by_key(|(name, _)| name.trim_start_matches('h').parse::<u64>().unwrap_or(u64::MAX));
        let count = names.len().max(1) as u128;
        let hosts = names.into_iter().enumerate().map(|(index, (name, addr))| {
            let even = format!("{:032x}", u128::MAX / count * index as u128);
            let by_addr = addr.as_ref().and_then(|addr| self.ids.get(addr));
            let id = self.own.get(&name).or(by_addr).cloned().unwrap_or(even);
            Host { name, id, addr }
        });
        Trace { hosts: hosts.collect(), lines: self.lines, end_micros: self.end, is_cut_off: self.is_cut_off }
    }
}

fn ip_of(addr: &str) -> Option<String> {
    Some(addr.rsplit_once(':')?.0.to_owned())
}

/// The service of an event in a scenario that runs one service alone.
fn protocol_of(event: &Value) -> &'static str {
    let name = event["event"].as_str().unwrap_or_default();
    let has = |field: &str| !event[field].is_null();
    match name {
        "joined" | "join_failed" if has("addr") => "members",
        "refuted" | "user_received" | "id_conflict" | "name_conflict" => "members",
        "started" if has("nid") => "mesh",
        "peer_connected" | "peer_disconnected" | "known_nodes_changed" | "recipient_lost_store" => "mesh",
        _ if name.starts_with("member_") => "members",
        _ if name.starts_with("message_") || name.starts_with("file_") || name.starts_with("block_") => {
            "mesh"
        }
        "joined" | "join_failed" | "delivered" | "leaf_set_changed" | "connection_broken" | "peer_failed"
        | "peer_left" | "id_taken" => "route",
        _ => "token",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_get_the_ids_that_events_tell() {
        let text = "0.000000 h0 start 1\n0.000000 h1 start 1\n\
                    0.000001 h0 send 10.0.0.1:7946 -> 10.0.0.2:7946 1 B 00\n\
                    0.000002 h1 event {\"event\":\"member_joined\",\"id\":\"aa\",\"addr\":\"10.0.0.1:7946\",\"data\":[1]}\n\
                    2.000000 - fault Heal\n";
        let trace = Trace::read(text.as_bytes()).unwrap();
        assert_eq!(trace.size(), (2, 4));
        assert_eq!((trace.hosts[0].id.as_str(), trace.end_micros), ("aa", 2_000_000));
        assert!(trace.hosts[1].id.starts_with("7fff"), "{:?}", trace.hosts[1]);
        let joined = &trace.lines[2];
        assert_eq!((joined["protocol"].as_str(), joined["node"].as_str()), (Some("members"), Some("h1")));
        assert!(joined["data"].is_null());
    }

    #[test]
    fn a_file_that_is_no_trace_is_refused() {
        assert!(matches!(Trace::read(&b"# README\n"[..]), Err(TraceError::NoTrace { line: 1 })));
        assert!(matches!(Trace::read(&b""[..]), Err(TraceError::NoTrace { line: 1 })));
    }
}
