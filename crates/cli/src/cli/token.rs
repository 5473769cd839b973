//! `annulus token`: the state of the ring, and turns of it.

#[cfg(target_os = "linux")]
mod guarded;
#[cfg(target_os = "linux")]
mod hold;
#[cfg(target_os = "linux")]
mod lease;
mod run;
#[cfg(target_os = "linux")]
mod signals;
#[cfg(target_os = "linux")]
mod started;
#[cfg(target_os = "linux")]
mod waiting;

use std::collections::BTreeMap;
use std::time::Duration;

use annulus::core::jitterbug::{Document, Raw, Set, Stamped};
use serde_json::Value;

use super::UsageError;
use super::client::Client;
use super::output::{BAD, DIM, GOOD, Output, plain};
use crate::agent::HOLD_MAX;
#[cfg(target_os = "linux")]
pub(super) use guarded::Guarded;

/// Commands in turns need a guard that ends them in time.
#[cfg(not(target_os = "linux"))]
pub(super) struct Guarded<'a> {
    pub(super) name: &'a str,
    pub(super) command: &'a [String],
    pub(super) how: &'a super::lock::How,
    pub(super) wait: Duration,
    pub(super) limit: Duration,
    pub(super) weak: bool,
}

#[cfg(not(target_os = "linux"))]
impl Guarded<'_> {
    pub(super) fn run(&self, _: Option<Duration>, _: &Client, _: &Output) -> anyhow::Result<u8> {
        anyhow::bail!("the guard of commands needs Linux: use the library or the HTTP API here")
    }
}

/// Show the state of the token ring, or use it.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  annulus token
  annulus token run -- sh -c 'echo my turn: $ANNULUS_FENCE'
  annulus token set leader-note '\"hello\"'")]
pub(crate) struct Token {
    #[command(subcommand)]
    verb: Option<Verb>,
}

#[derive(clap::Subcommand)]
enum Verb {
    Run(run::Run),
    Set(SetArgs),
    /// Show the values in the token, or one of them.
    #[command(after_help = "Example:\n  annulus token get colour")]
    Get {
        /// The name of one value.
        key: Option<String>,
    },
    /// Show the history of the token: splits and merges.
    #[command(after_help = "Example:\n  annulus token graph --dot | dot -Tsvg > graph.svg")]
    Graph {
        /// Print the graph in the DOT language; `--json` has it in the field `dot`.
        #[arg(long)]
        dot: bool,
    },
    /// Print the events of the token as they happen.
    #[command(after_help = "Example:\n  annulus token watch")]
    Watch {
        /// Exit after N events.
        #[arg(long, value_name = "N")]
        count: Option<u64>,
    },
}

/// Set a value in the token.
///
/// The command returns when the token has the value and this node has it on disk. Every other node gets it within one
/// loop of the token. If no token comes in time, the value is not set. A name has 1 to 128 bytes, a value at most 4096
/// bytes as JSON. The token keeps the newest 256 values. If several nodes set a value, the one with the greatest fence
/// wins.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  annulus token set colour '\"red\"'
  annulus token set colour null     # unset it")]
struct SetArgs {
    /// The name of the value.
    key: String,
    /// JSON, or any other text; null unsets it.
    #[arg(allow_hyphen_values = true)]
    value: String,
    /// The longest wait for the token.
    #[arg(long, value_name = "DURATION", default_value = "30s")]
    wait: String,
}

impl Token {
    pub(crate) fn run(self, client: &Client, output: &Output) -> anyhow::Result<std::process::ExitCode> {
        match self.verb {
            None => show(client, output)?,
            Some(Verb::Run(run)) => return run.run(client, output),
            Some(Verb::Set(args)) => set(args, client, output)?,
            Some(Verb::Get { key }) => get(key.as_deref(), client, output)?,
            Some(Verb::Graph { dot }) => graph(dot, client, output)?,
            Some(Verb::Watch { count }) => {
                // Without the service the stream would have no events: this request fails then.
                client.read::<serde::de::IgnoredAny>("/v1/token")?;
                super::monitor::Monitor::of_protocol("token", count).run(client, output)?;
            }
        }
        Ok(std::process::ExitCode::SUCCESS)
    }
}

/// The token as the agent reports it, and its data apart: only the data may have values that are no ordinary JSON.
fn read(client: &Client) -> anyhow::Result<(String, Value, Document)> {
    let (text, mut fields): (String, BTreeMap<String, Raw>) = client.read("/v1/token")?;
    let data = fields.remove("data").filter(|data| !data.is_null());
    let data = data.map(|data| Document::from_json(data.text().as_bytes()));
    let document =
        data.transpose().map_err(|error| anyhow::anyhow!("{error}; check --agent"))?.unwrap_or_default();
    Ok((text, serde_json::to_value(&fields)?, document))
}

fn show(client: &Client, output: &Output) -> anyhow::Result<()> {
    let (text, token, _) = read(client)?;
    if output.json {
        output.line(text);
        return Ok(());
    }
    let state = token["state"].as_str().unwrap_or_default();
    let style = match state {
        "leader" => GOOD,
        "orphan" => BAD,
        _ => DIM,
    };
    let number = |key: &str| token[key].as_u64();
    let or_dash = |value: Option<String>| value.unwrap_or_else(|| "-".into());
    output.line(format!("state         {style}{state}{style:#}"));
    output.line(format!("token         {}", token["token_id"]));
    let generation = &token["generation"];
    let generation = generation["fence"].as_u64().map(|fence| {
        let what = if generation["kind"] == "merge" { "merged from" } else { "restored from" };
        format!("{what} {} by {} at fence {fence}", generation["from"], host(&token, &generation["host"]))
    });
    output.line(format!("generation    {}", or_dash(generation)));
    output.line(format!("host          {}", host(&token, &token["host_id"])));
    let holder = number("holder").map(|holder| {
        let name = named(&token["holder_name"]);
        match number("host_id") == Some(holder) {
            true => format!("{name}{holder} (this)"),
            false => format!("{name}{holder} (when last heard of)"),
        }
    });
    output.line(format!("holder        {}", or_dash(holder)));
    output.line(format!("fence         {}", or_dash(number("fence").map(|fence| fence.to_string()))));
    let loop_ms = number("loop_micros").map(|micros| format!("{:.1} ms", micros as f64 / 1000.0));
    output.line(format!("loop          {}", or_dash(loop_ms)));
    output.line(format!("availability  {:.3}", token["availability"].as_f64().unwrap_or_default()));
    output.line(format!("guarantee     {}", token["guarantee"].as_str().unwrap_or("weak")));
    for refused in token["refused_tokens"].as_array().into_iter().flatten() {
        let (count, from) = (&refused["count"], refused["from"].as_str().unwrap_or_default());
        output.line(format!("refused       {BAD}{count} tokens from {from}: its data cannot be read{BAD:#}"));
    }
    output.line("");
    let rows: Vec<Vec<String>> =
        token["nodes"].as_array().into_iter().flatten().map(|node| row(node, &token)).collect();
    output.table(&["HOST", "ADDRESS", "PENALTY", "TENURES"], &rows);
    Ok(())
}

/// A host id with the name of its node before it, if that is known.
fn host(token: &Value, id: &Value) -> String {
    let node = token["nodes"].as_array().into_iter().flatten().find(|node| node["host_id"] == *id);
    format!("{}{id}", node.map(|node| named(&node["name"])).unwrap_or_default())
}

/// A name with a space behind it; nothing if it is not known.
fn named(name: &Value) -> String {
    name.as_str().map_or_else(String::new, |name| format!("{} ", plain(name)))
}

fn row(node: &Value, token: &Value) -> Vec<String> {
    let own = if node["host_id"] == token["host_id"] { " (this)" } else { "" };
    let left_out = if node["left_out"] == true { " (left out)" } else { "" };
    vec![
        format!("{}{}{own}", named(&node["name"]), node["host_id"]),
        node["addr"].as_str().unwrap_or_default().into(),
        format!("{}{left_out}", node["threshold"]),
        node["tenures"].to_string(),
    ]
}

fn set(args: SetArgs, client: &Client, output: &Output) -> anyhow::Result<()> {
    // An argument that is no JSON is a text.
    let value = Raw::new(&args.value).unwrap_or_else(|_| args.value.as_str().into());
    let set = Set { key: args.key, value };
    set.check().map_err(|reason| UsageError(format!("this value cannot travel: {reason}")))?;
    let wait_ms = duration("--wait", &args.wait)?.as_millis();
    let key = Value::from(set.key.as_str());
    let body = format!("{{\"key\":{key},\"value\":{},\"wait_ms\":{wait_ms}}}", set.value);
    let answer = client.post("/v1/token/values", &body)?;
    let what = if set.value.is_null() { "unset" } else { "set" };
    // A node of another application must carry only the counts.
    let kept = match answer["kept"].as_bool() {
        Some(true) => "",
        Some(false) => ", but not kept: a node of this ring drops values, and this one was gone after a loop",
        None => "; the token has not been round the ring since",
    };
    output.done(&answer, &format!("{} is {what}{kept}", plain(&set.key)));
    Ok(())
}

fn get(key: Option<&str>, client: &Client, output: &Output) -> anyhow::Result<()> {
    let (_, _, document) = read(client)?;
    let values: BTreeMap<&str, &Stamped> = document.set_values().collect();
    let shown = |stamped: &Stamped| match output.json {
        true => stamped.value.text().to_owned(),
        false => plain(stamped.value.text()).into_owned(),
    };
    if let Some(key) = key {
        let Some(stamped) = values.get(key) else {
            anyhow::bail!("no value is called {key:?}: `annulus token get` shows all");
        };
        output.line(shown(stamped));
        return Ok(());
    }
    if output.json {
        output.line(serde_json::to_string(&values)?);
        return Ok(());
    }
    for (key, stamped) in &values {
        output.line(format!("{} = {}", plain(key), shown(stamped)));
    }
    Ok(())
}

/// A time that an agent waits: from a millisecond to a day.
pub(super) fn duration(flag: &str, text: &str) -> Result<Duration, UsageError> {
    let asked = humantime::parse_duration(text)
        .map_err(|_| UsageError(format!("{text:?} is no duration: give one with its unit, such as 10s")))?;
    if asked < Duration::from_millis(1) || asked > HOLD_MAX {
        return Err(UsageError(format!("{flag} {text} is out of range: give 1ms to 24h")));
    }
    Ok(asked)
}

fn graph(dot: bool, client: &Client, output: &Output) -> anyhow::Result<()> {
    if dot && output.json {
        let text = "--dot and --json are two forms of one graph: give one of them; the JSON has the other as its field dot";
        return Err(UsageError(text.to_owned()).into());
    }
    let graph = client.get("/v1/token/graph")?;
    if output.json {
        output.json(&graph);
        return Ok(());
    }
    let form = if dot { "dot" } else { "text" };
    let drawn = graph[form].as_str().unwrap_or_default().trim_end();
    if dot {
        output.line(drawn);
        return Ok(());
    }
    // The edges travel in the data, and a node of another application may drop them. The log is of this node alone.
    if drawn.is_empty() {
        output.line("no splits or merges travel with the token");
    }
    let (_, token, _) = read(client)?;
    for (line, edge) in drawn.lines().zip(graph["edges"].as_array().into_iter().flatten()) {
        let by = format!("(by {})", edge["host"]);
        output.line(line.replace(&by, &format!("(by {})", host(&token, &edge["host"]))));
    }
    for entry in graph["log"].as_array().into_iter().flatten() {
        output.line(logged(entry, &token));
    }
    Ok(())
}

/// One line of what this node saw happen to the token.
fn logged(entry: &Value, token: &Value) -> String {
    let when = entry["wall"].as_u64().map(|micros| std::time::UNIX_EPOCH + Duration::from_micros(micros));
    let when = when.map(|when| humantime::format_rfc3339_millis(when).to_string()).unwrap_or_default();
    let what = match entry["what"].as_str().unwrap_or_default() {
        "restored" => format!("{} restored as {}", entry["from"], entry["to"]),
        "merged" => format!("{} merged into {}", entry["own"], entry["received"]),
        "adopted" => format!("{} replaced by {}", entry["own"], entry["received"]),
        "dropped" => {
            format!("{} dropped ({})", entry["token_id"], entry["reason"].as_str().unwrap_or_default())
        }
        _ => format!("{} passed to {}", entry["token_id"], host(token, &entry["to"])),
    };
    format!("{when}  {what}  (seen here)")
}
