//! `annulus ping`: pings a member through a service that runs.

use std::time::Instant;

use anyhow::bail;
use serde_json::{Value, json};

use super::client::{Client, escaped};
use super::output::{Output, plain};

/// Ping a member of the group.
///
/// The ping travels as a message of `route` if the agent and the member run it. Otherwise the command prints the round
/// trip that `members` measured with its last probe.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  annulus ping blue
  annulus ping blue --count 3")]
pub(crate) struct Ping {
    /// The member, by name or id.
    member: String,
    /// The number of pings.
    #[arg(long, short = 'c', value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    count: u32,
}

impl Ping {
    pub(crate) fn run(self, client: &Client, output: &Output) -> anyhow::Result<()> {
        let info = client.get("/v1/info")?;
        let has_route =
            info["services"].as_array().into_iter().flatten().any(|service| service["name"] == "route");
        for _ in 0..self.count {
            let rtt = client.get(&format!("/v1/rtt?to={}", escaped(&self.member)))?;
            let member = self.find(&client.get("/v1/members")?)?;
            let (name, state) = (self.name(&member), member["state"].as_str().unwrap_or_default());
            if state != "alive" {
                bail!(
                    "{name} does not answer: members reports it as {state}; `annulus members` shows the group"
                );
            }
            let answer = if has_route && member["services"]["route"].is_number() && member["is_self"] == false
            {
                over_route(client, &name, &member)?
            } else {
                json!({ "member": name, "via": "members", "rtt_ms": rtt["rtt_ms"] })
            };
            show(&answer, output);
        }
        Ok(())
    }

    /// The member that the user means: by name, by id, or by the beginning of an id.
    fn find(&self, members: &Value) -> anyhow::Result<Value> {
        let is_it = |member: &&Value| {
            let is_id = member["id"].as_str().is_some_and(|id| id.starts_with(&self.member));
            member["name"] == self.member.as_str() || is_id
        };
        let found = members.as_array().into_iter().flatten().find(is_it).cloned();
        found.ok_or_else(|| anyhow::anyhow!("no member is called {:?}", self.member))
    }

    fn name(&self, member: &Value) -> String {
        let name = member["name"].as_str().filter(|name| !name.is_empty()).unwrap_or(&self.member);
        plain(name).into()
    }
}

/// Traces the route to the id of the member, and waits for the answer.
fn over_route(client: &Client, name: &str, member: &Value) -> anyhow::Result<Value> {
    let id = member["id"].as_str().unwrap_or_default();
    let begin = Instant::now();
    let route = client.get(&format!("/v1/route/{id}"))?;
    let rtt_ms = begin.elapsed().as_secs_f64() * 1000.0;
    if route["owner"] != id {
        bail!(
            "{name} does not answer: its messages of route go to another node; `annulus route {id}` shows the path"
        );
    }
    let hops = route["path"].as_array().map_or(0, |path| path.len().saturating_sub(1));
    Ok(json!({ "member": name, "via": "route", "rtt_ms": rtt_ms, "hops": hops }))
}

fn show(answer: &Value, output: &Output) {
    if output.json {
        return output.json(answer);
    }
    let name = plain(answer["member"].as_str().unwrap_or_default());
    let rtt =
        answer["rtt_ms"].as_f64().map_or_else(|| "not measured yet".into(), |rtt| format!("{rtt:.3} ms"));
    match answer["hops"].as_u64() {
        Some(hops) => output.line(format!("{name} answered over route: {rtt}, hops {hops}")),
        None => output.line(format!("{name} is alive; round trip measured by members: {rtt}")),
    }
}
