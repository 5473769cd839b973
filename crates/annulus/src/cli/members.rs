//! `annulus members` and the verbs around it: one file each.

mod event;
mod join;
mod leave;
mod rtt;
mod tags;

use std::time::Duration;

use serde_json::Value;

pub(crate) use event::Event;
pub(crate) use join::Join;
pub(crate) use leave::{ForceLeave, Leave};
pub(crate) use rtt::Rtt;
pub(crate) use tags::Tags;

use super::client::Client;
use super::output::{BAD, DIM, GOOD, Output, plain};

/// Show who is alive.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  annulus members
  annulus members --state alive --tag role=db
  annulus members --watch")]
pub(crate) struct Members {
    /// Only members in this state; may be given several times.
    #[arg(long, value_name = "STATE", value_parser = ["alive", "suspect", "dead", "left"])]
    state: Vec<String>,
    /// Only members with this tag, as KEY=VALUE; may be given several times.
    #[arg(long, value_name = "KEY=VALUE", value_parser = tags::pair)]
    tag: Vec<(String, Value)>,
    /// Only members with this name.
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Show the table anew whenever something changes.
    #[arg(long, short = 'w')]
    watch: bool,
}

impl Members {
    pub(crate) fn run(self, client: &Client, output: &Output) -> anyhow::Result<()> {
        let mut last = None;
        loop {
            let members = self.wanted(client.get("/v1/members")?);
            if last.as_ref() != Some(&without_rtt(&members)) {
                self.show(&members, output);
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
            && self.tag.iter().all(has_tag)
            && self.name.as_ref().is_none_or(|name| member["name"] == name.as_str())
    }

    fn show(&self, members: &[Value], output: &Output) {
        if output.json {
            output.json(&Value::Array(members.to_vec()));
            return;
        }
        let rows: Vec<Vec<String>> = members.iter().map(row).collect();
        output.table(&["NAME", "ID", "ADDRESS", "STATE", "INC", "RTT", "TAGS"], &rows);
        if self.watch {
            output.line("");
        }
    }
}

/// What counts as a change: a round-trip time is never twice the same.
fn without_rtt(members: &[Value]) -> Vec<Value> {
    let mut members = members.to_vec();
    members.iter_mut().for_each(|member| member["rtt_ms"] = Value::Null);
    members
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
    // Names and tags are what others say of themselves.
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

fn rtt_text(rtt: &Value) -> String {
    rtt.as_f64().map_or_else(|| "-".into(), |rtt| format!("{rtt:.3} ms"))
}
