//! A line of the known-nodes list, and the document's file of it (M-5).

use core::fmt::Write as _;
use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use serde::Serialize;

/// One line of the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct KnownNode {
    /// Its IP address; the whole network has the same port (MA-19).
    pub ip: Ipv4Addr,
    /// The last contact, in seconds since 1970 by the wall clock.
    pub seen_at: u64,
}

/// Writes the list as the document's file (M-5): one object, addresses and seconds as strings, latest first.
#[must_use]
pub fn known_nodes_to_json(nodes: &[KnownNode]) -> String {
    let mut sorted = nodes.to_vec();
    sorted.sort_by_key(|node| core::cmp::Reverse(node.seen_at));
    let mut text = String::from("{");
    for (index, node) in sorted.iter().enumerate() {
        let comma = if index == 0 { "" } else { ", " };
        let _ = write!(text, r#"{comma}"{}": "{}""#, node.ip, node.seen_at);
    }
    text.push('}');
    text
}

/// Reads the document's file. Times may also be numbers or RFC 3339 (MA-55). The order in the file has no meaning
/// (MA-54). An address that is not IPv4 is skipped (MA-59).
///
/// # Errors
/// If the text is no such object: put the file aside and start without it (MA-56).
pub fn known_nodes_from_json(text: &str) -> Result<Vec<KnownNode>, KnownNodesError> {
    let entries: BTreeMap<String, serde_json::Value> =
        serde_json::from_str(text).map_err(|error| KnownNodesError::Json { line: error.line() })?;
    let mut nodes = Vec::new();
    for (address, value) in entries {
        let seen_at = seconds_of(&value).ok_or_else(|| KnownNodesError::Time { address: address.clone() })?;
        nodes.extend(address.parse().ok().map(|ip| KnownNode { ip, seen_at }));
    }
    nodes.sort_by_key(|node| (core::cmp::Reverse(node.seen_at), node.ip));
    Ok(nodes)
}

/// Why a text is no known-nodes list.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KnownNodesError {
    /// It is not a JSON object.
    #[error("line {line} is not part of a JSON object of addresses: set the file aside")]
    Json {
        /// The line of the error.
        line: usize,
    },
    /// A time is invalid.
    #[error("the time of {address} is neither seconds nor RFC 3339: set the file aside")]
    Time {
        /// The address of that entry.
        address: String,
    },
}

fn seconds_of(value: &serde_json::Value) -> Option<u64> {
    match value {
        serde_json::Value::Number(number) => number.as_u64().or_else(|| number.as_f64().map(|at| at as u64)),
        serde_json::Value::String(text) => text.parse().ok().or_else(|| rfc_3339_seconds(text)),
        _ => None,
    }
}

/// Seconds since 1970 of `YYYY-MM-DDThh:mm:ss[.f](Z|±hh:mm)`.
fn rfc_3339_seconds(text: &str) -> Option<u64> {
    let bytes = text.as_bytes();
    let number = |from: usize, to: usize| -> Option<i64> {
        let digits = bytes.get(from..to)?;
        digits
            .iter()
            .try_fold(0, |number, byte| byte.is_ascii_digit().then(|| number * 10 + i64::from(byte - b'0')))
    };
    let has_marks = [(4, b"-"), (7, b"-"), (13, b":"), (16, b":")]
        .iter()
        .all(|(at, mark)| bytes.get(*at..at + 1) == Some(&mark[..]));
    if !has_marks || !matches!(bytes.get(10), Some(b'T' | b't' | b' ')) {
        return None;
    }
    let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
    let (hour, minute, second) = (number(11, 13)?, number(14, 16)?, number(17, 19)?);
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let zone = bytes.get(19..)?;
    let fraction = if zone.first() == Some(&b'.') {
        1 + zone[1..].iter().take_while(|byte| byte.is_ascii_digit()).count()
    } else {
        0
    };
    let at = 19 + fraction;
    let offset = match bytes.get(at..)? {
        b"Z" | b"z" => 0,
        [sign @ (b'+' | b'-'), _, _, b':', _, _] => {
            let ahead = number(at + 1, at + 3)? * 3600 + number(at + 4, at + 6)? * 60;
            if *sign == b'-' { -ahead } else { ahead }
        }
        _ => return None,
    };
    // Days since 1970 of a date, counting years from March so that the leap day comes last.
    let (year, month) = if month <= 2 { (year - 1, month + 9) } else { (year, month - 3) };
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let of_year = (153 * month + 2) / 5 + day - 1;
    let days = era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468;
    u64::try_from(days * 86_400 + hour * 3600 + minute * 60 + second - offset).ok()
}
