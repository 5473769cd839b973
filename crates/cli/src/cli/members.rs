//! `annulus members` and the verbs around it: one file each.

mod event;
mod join;
mod leave;
mod rtt;
mod tags;

use std::collections::BTreeMap;
use std::time::{Duration, UNIX_EPOCH};

use serde_json::Value;

pub(crate) use event::Event;
pub(crate) use join::Join;
pub(crate) use leave::{ForceLeave, Leave};
pub(crate) use rtt::Rtt;
pub(crate) use tags::Tags;

use super::client::Client;
use super::output::{BAD, DIM, GOOD, Output, plain};

/// List the members of the group.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  annulus members
  annulus members --state alive --tag role=db
  annulus members --failed
  annulus members --watch")]
pub(crate) struct Members {
    /// Only members in this state. Repeatable.
    #[arg(long, value_name = "STATE", value_parser = ["alive", "suspect", "dead", "left"])]
    state: Vec<String>,
    /// Only members with this tag, as KEY=VALUE. Repeatable.
    #[arg(long, value_name = "KEY=VALUE", value_parser = tags::pair)]
    tag: Vec<(String, Value)>,
    /// Only members with this name.
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Only failed and left members, with the time and the reporter.
    #[arg(long, conflicts_with = "state")]
    failed: bool,
    /// Print the table again after every change.
    #[arg(long, short = 'w')]
    watch: bool,
}

impl Members {
    pub(crate) fn run(self, client: &Client, output: &Output) -> anyhow::Result<()> {
        let mut last = None;
        loop {
            let all = client.get("/v1/members")?;
            let names = names(&all);
            let members = self.wanted(all);
            if last.as_ref() != Some(&without_rtt(&members)) {
                self.show(&members, &names, output);
                last = Some(without_rtt(&members));
            }
            if !self.watch {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(500));
        }
    }

    fn wanted(&self, members: Value) -> Vec<Value> {
        let Value::Array(members) = members else { return Vec::new() };
        members.into_iter().filter(|member| self.wants(member)).collect()
    }

    fn wants(&self, member: &Value) -> bool {
        let state = member["state"].as_str().unwrap_or_default();
        let has_tag = |tag: &(String, Value)| member["tags"][&tag.0] == tag.1;
        (self.state.is_empty() || self.state.iter().any(|wanted| wanted == state))
            && (!self.failed || matches!(state, "dead" | "left"))
            && self.tag.iter().all(has_tag)
            && self.name.as_ref().is_none_or(|name| member["name"] == name.as_str())
    }

    fn show(&self, members: &[Value], names: &BTreeMap<String, String>, output: &Output) {
        if output.json {
            output.json(&Value::Array(members.to_vec()));
            return;
        }
        if self.failed {
            let rows: Vec<Vec<String>> = members.iter().map(|member| failed_row(member, names)).collect();
            output.table(&["NAME", "ID", "ADDRESS", "STATE", "SINCE", "BY"], &rows);
        } else {
            let rows: Vec<Vec<String>> = members.iter().map(row).collect();
            output.table(&["NAME", "ID", "ADDRESS", "STATE", "INC", "RTT", "TAGS"], &rows);
        }
        if self.watch {
            output.line("");
        }
    }
}

/// The members without their round-trip times, which are never twice the same.
fn without_rtt(members: &[Value]) -> Vec<Value> {
    let mut members = members.to_vec();
    members.iter_mut().for_each(|member| member["rtt_ms"] = Value::Null);
    members
}

/// The names of all members, by id.
fn names(members: &Value) -> BTreeMap<String, String> {
    let text = |value: &Value| value.as_str().filter(|text| !text.is_empty()).map(str::to_owned);
    let members = members.as_array().into_iter().flatten();
    members.filter_map(|member| Some((text(&member["id"])?, text(&member["name"])?))).collect()
}

fn row(member: &Value) -> Vec<String> {
    let text = |key: &str| member[key].as_str().unwrap_or_default().to_owned();
    let state = text("state");
    let style = match state.as_str() {
        "alive" => GOOD,
        "left" => DIM,
        _ => BAD,
    };
    let tags = member["tags"].as_object().into_iter().flatten();
    let tags: Vec<String> =
        tags.map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default())).collect();
    // Names and tags are foreign text.
    vec![
        plain(&text("name")).into(),
        text("id").chars().take(8).collect(),
        member["addrs"][0].as_str().unwrap_or("-").into(),
        format!("{style}{state}{style:#}"),
        member["incarnation"].to_string(),
        rtt_text(&member["rtt_ms"]),
        plain(&tags.join(" ")).into(),
    ]
}

/// A member that failed or left: the first columns of all members, then since when and by whom.
fn failed_row(member: &Value, names: &BTreeMap<String, String>) -> Vec<String> {
    let mut row = row(member);
    row.truncate(4);
    let since = member["since_micros"].as_u64().map(Duration::from_micros);
    let age = since.and_then(|since| (UNIX_EPOCH + since).elapsed().ok());
    row.push(age.map_or_else(|| "-".into(), |age| format!("{} ago", age_text(age))));
    let by = member["by"].as_str().unwrap_or("-");
    row.push(names.get(by).map_or_else(|| by.chars().take(8).collect(), |name| plain(name).into()));
    row
}

fn age_text(age: Duration) -> String {
    match age.as_secs() {
        seconds @ 0..120 => format!("{seconds} s"),
        seconds @ 120..7200 => format!("{} min", seconds / 60),
        seconds => format!("{} h", seconds / 3600),
    }
}

fn rtt_text(rtt: &Value) -> String {
    rtt.as_f64().map_or_else(|| "-".into(), |rtt| format!("{rtt:.3} ms"))
}
