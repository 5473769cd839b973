//! A packet of `members`: its head and every message in it.

use annulus::core::swim::{Codec, Contents, Coordinate, Head, Incarnation, Message, State, Tags};
use annulus::core::wire::DecodeError;
use annulus::core::{Hex, Id};
use serde_json::{Map, Value, json};

/// The packet as JSON. A message that cannot be decoded is printed as such; the others are still decoded.
pub(super) fn packet(bytes: &[u8]) -> Result<Value, DecodeError> {
    let compact = Codec::to_compact(bytes);
    let (head, messages) = Head::read(&compact)?;
    let messages: Vec<Value> = messages
        .map(|message| match message {
            Ok(message) => described(&message),
            Err(error) => json!({ "message": "unreadable", "why": error.to_string() }),
        })
        .collect();
    Ok(
        json!({ "version": bytes[0], "ring": Hex(&bytes[1..5]).to_string(), "from": head.from, "messages": messages }),
    )
}

fn described(message: &Message<'_>) -> Value {
    let header = message.header();
    let (name, fields) = fields(message);
    let mut all = Map::new();
    all.insert("message".into(), name.into());
    if !matches!(message, Message::Other { .. }) {
        all.insert("from".into(), json!(header.from));
        all.insert("sequence".into(), json!(header.sequence.0));
    }
    if let Value::Object(fields) = fields {
        all.extend(fields);
    }
    all.into()
}

fn fields(message: &Message<'_>) -> (&'static str, Value) {
    match message {
        Message::Ping { to, local_time, wants_coordinate, wants_alive, .. } => {
            let time = local_time.as_micros();
            (
                "ping",
                json!({ "to": to, "local_time_micros": time, "wants_coordinate": wants_coordinate, "wants_alive": wants_alive }),
            )
        }
        Message::Ack { local_time, introduce, coordinate, .. } => {
            let (time, place) = (local_time.as_micros(), coordinate.as_ref().map(place));
            ("ack", json!({ "local_time_micros": time, "introduce": introduce, "coordinate": place }))
        }
        Message::IndirectPing { to, target, wants_nack, contents, .. } => {
            let told = json!({ "to": to, "target": target, "wants_nack": wants_nack });
            ("indirect_ping", with_contents(told, *contents))
        }
        Message::IndirectAck { .. } => ("indirect_ack", json!({})),
        Message::IndirectNack { .. } => ("indirect_nack", json!({})),
        Message::Join { node, incarnation, .. } => {
            ("join", with_contents(status(node.id, *incarnation), node.contents))
        }
        Message::Alive { node, incarnation, .. } => {
            ("alive", with_contents(status(node.id, *incarnation), node.contents))
        }
        Message::Suspect { id, incarnation, .. } => ("suspect", status(*id, *incarnation)),
        Message::Dead { id, incarnation, .. } => {
            let name = if message.state() == Some(State::Left) { "left" } else { "dead" };
            (name, status(*id, *incarnation))
        }
        Message::User { data, .. } => {
            ("user", json!({ "data": Hex(data).to_string(), "text": String::from_utf8_lossy(data) }))
        }
        Message::Digest { range, hashes, .. } => {
            let hashes: Vec<String> = hashes.iter().map(|hash| format!("{hash:016x}")).collect();
            (
                "digest",
                json!({ "first": Id::new(range.first()), "last": Id::new(range.last()), "hashes": hashes }),
            )
        }
        Message::Summary { range, entries, .. } => {
            let entry = |(id, status, told): (Id, annulus::core::swim::Status, u32)| {
                let (incarnation, state) = (status.incarnation, status.state);
                json!({ "id": id, "incarnation": incarnation, "state": state, "fingerprint": format!("{told:08x}") })
            };
            let entries: Vec<Value> = entries.iter().map(entry).collect();
            (
                "summary",
                json!({ "first": Id::new(range.first()), "last": Id::new(range.last()), "entries": entries }),
            )
        }
        Message::Want { ids, .. } => ("want", json!({ "ids": ids.iter().collect::<Vec<Id>>() })),
        Message::Padding { bytes, .. } => ("padding", json!({ "bytes": bytes })),
        Message::Other { kind, body, .. } => {
            ("unknown", json!({ "kind": kind, "body": Hex(body).to_string() }))
        }
    }
}

fn status(id: Id, incarnation: Incarnation) -> Value {
    json!({ "id": id, "incarnation": incarnation })
}

fn place(coordinate: &Coordinate) -> Value {
    json!({ "point": coordinate.point, "height": coordinate.height, "error": coordinate.error })
}

/// Adds the contents of a node: its addresses, and its name and tags if the metadata has them.
fn with_contents(mut told: Value, contents: Contents<'_>) -> Value {
    told["addrs"] = contents.addrs().map(|addr| addr.to_string()).collect();
    match Tags::decode(contents.meta()) {
        Ok(tags) => {
            told["name"] = tags.name.into();
            told["tags"] = json!(tags.tags);
        }
        Err(_) => told["meta"] = Hex(contents.meta()).to_string().into(),
    }
    told
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every vector of the native codec, as the file has it.
    fn vectors() -> Vec<(String, Vec<u8>)> {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../core/tests/vectors/swim.txt");
        let text = std::fs::read_to_string(path).unwrap();
        let lines = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
        lines
            .map(|line| {
                let mut parts = line.split(" | ");
                let name = parts.next().unwrap().to_owned();
                (name, super::super::unhex(parts.next().unwrap()).unwrap())
            })
            .collect()
    }

    #[test]
    fn every_message_is_printed_with_its_name() {
        let mut seen = std::collections::BTreeSet::new();
        for (name, bytes) in vectors() {
            let Ok(told) = packet(&bytes) else { continue };
            let message = told["messages"][0]["message"].as_str().unwrap().replace('_', "");
            let expected = name.to_lowercase();
            let others = [("left", "dead"), ("unknown", "other")];
            if message != "unreadable" {
                assert!(message == expected || others.contains(&(&message, &expected)), "{name}: {told}");
                seen.insert(message);
            }
        }
        assert_eq!(seen.len(), 16, "{seen:?}");
    }

    #[test]
    fn one_unreadable_message_does_not_hide_the_next() {
        let (_, ack) = vectors().into_iter().find(|(name, _)| name == "IndirectAck").unwrap();
        let mut bytes = ack[..21].to_vec();
        bytes.extend([2, 3, 0]);
        bytes.extend(&ack[21..]);
        let told = packet(&bytes).unwrap();
        let names: Vec<_> =
            told["messages"].as_array().unwrap().iter().map(|told| &told["message"]).collect();
        assert_eq!(names, ["unreadable", "indirect_ack"]);
    }
}
