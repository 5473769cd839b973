//! One line of a trace, in the readable form or as JSON.

use serde_json::Value;

/// A line that the page needs, or that has the place of a host.
#[derive(Debug, PartialEq)]
pub(super) struct TraceLine {
    /// When, in microseconds since the start.
    pub(super) at: u64,
    /// The name of the host, such as h3; `None` for a line about all hosts.
    pub(super) host: Option<String>,
    pub(super) record: Record,
}

#[derive(Debug, PartialEq)]
pub(super) enum Record {
    Start,
    Stopped,
    Fault(String),
    Violation(String),
    Event(Value),
    /// A datagram left from this address.
    Sent(String),
}

/// Reads one line; `None` if the page does not need it, `Err` if it is no line of a trace.
pub(super) fn parse(text: &str) -> Result<Option<TraceLine>, ()> {
    if text.starts_with('{') { parse_json(text) } else { parse_text(text) }
}

fn parse_json(text: &str) -> Result<Option<TraceLine>, ()> {
    // Most lines are sends, receives and writes with long bytes: they are not read as JSON.
    let is_skipped = ["receive", "wake", "write", "data", "sent", "confirmed", "store", "stored"];
    if is_skipped.iter().any(|what| text.contains(&format!("\"what\":\"{what}\""))) {
        return Ok(None);
    }
    let mut line: Value = serde_json::from_str(text).map_err(drop)?;
    let at = line["at_micros"].as_u64().ok_or(())?;
    if let Some(node) = line["node"].as_str().map(str::to_owned) {
        return Ok(Some(TraceLine { at, host: Some(node), record: Record::Event(line) }));
    }
    let host = line["host"].as_u64().map(|host| format!("h{host}"));
    let take = |value: &mut Value| value.as_str().unwrap_or_default().to_owned();
    let record = match line["what"].as_str() {
        Some("start") => Record::Start,
        Some("stopped") => Record::Stopped,
        Some("fault") => Record::Fault(take(&mut line["fault"])),
        Some("violation") => Record::Violation(take(&mut line["text"])),
        Some("send") => Record::Sent(take(&mut line["from"])),
        Some(_) => return Ok(None),
        None => return Err(()),
    };
    Ok(Some(TraceLine { at, host, record }))
}

/// `SECONDS.MICROS HOST WHAT …`
fn parse_text(text: &str) -> Result<Option<TraceLine>, ()> {
    let (time, rest) = text.split_once(' ').ok_or(())?;
    let (seconds, micros) = time.split_once('.').ok_or(())?;
    let at = seconds.parse::<u64>().map_err(drop)? * 1_000_000 + micros.parse::<u64>().map_err(drop)?;
    let (host, rest) = rest.split_once(' ').ok_or(())?;
    let (what, rest) = rest.split_once(' ').unwrap_or((rest, ""));
    let record = match what {
        "start" => Record::Start,
        "stopped" => Record::Stopped,
        "fault" => Record::Fault(rest.to_owned()),
        "violation" => Record::Violation(rest.to_owned()),
        "event" => Record::Event(serde_json::from_str(rest).map_err(drop)?),
        "send" => Record::Sent(rest.split(' ').next().unwrap_or_default().to_owned()),
        _ => return Ok(None),
    };
    Ok(Some(TraceLine { at, host: (host != "-").then(|| host.to_owned()), record }))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn both_forms_say_the_same() {
        let event = json!({ "event": "refuted", "incarnation": 1 });
        for (text, json) in [
            ("5.514392 - fault Heal", r#"{"at_micros":5514392,"what":"fault","fault":"Heal"}"#),
            ("0.000000 h0 start 1", r#"{"at_micros":0,"host":0,"what":"start","life":1}"#),
            (
                "0.000010 h2 send 10.0.0.3:1 -> 10.0.0.1:1 2 B 0102",
                r#"{"at_micros":10,"host":2,"what":"send","from":"10.0.0.3:1","to":"10.0.0.1:1","bytes":"0102"}"#,
            ),
            (
                "1.000000 h1 wake swim.period",
                r#"{"at_micros":1000000,"host":1,"what":"wake","timer":"swim.period"}"#,
            ),
        ] {
            assert_eq!(parse(text), parse(json), "{text}");
            assert!(parse(text).is_ok());
        }
        let line = parse(&format!("6.515299 h6 event {event}")).unwrap().unwrap();
        assert_eq!((line.at, line.host.as_deref()), (6_515_299, Some("h6")));
        assert_eq!(line.record, Record::Event(event));
    }

    #[test]
    fn a_line_of_something_else_is_refused() {
        for text in ["hello", "", "{\"a\":1}", "1.0 h0 event {", "x.y h0 start 1"] {
            assert_eq!(parse(text), Err(()), "{text}");
        }
    }
}
