//! `annulus token`: whose turn it is, and taking it.

mod group;
mod run;

use serde_json::{Value, json};

use super::client::Client;
use super::output::{BAD, DIM, GOOD, Output};

/// Show the token, or use it: take turns, carry small values, see how it came about.
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
    /// Become a command that is killed when its parent ends; `run` starts it.
    #[cfg(target_os = "linux")]
    #[command(hide = true)]
    DieWith {
        /// The parent.
        parent: u32,
        /// The command and its arguments.
        #[arg(last = true, required = true)]
        command: Vec<String>,
    },
    /// Set a small value that travels with the token.
    #[command(after_help = "Example:\n  annulus token set colour '\"red\"'")]
    Set {
        /// Its name.
        key: String,
        /// JSON, or any other text; null unsets it.
        value: String,
    },
    /// Show the values that travel with the token, or one of them.
    #[command(after_help = "Example:\n  annulus token get colour")]
    Get {
        /// Which.
        key: Option<String>,
    },
    /// Show how the token came about: splits and merges.
    #[command(after_help = "Example:\n  annulus token graph --dot | dot -Tsvg > graph.svg")]
    Graph {
        /// For graphviz.
        #[arg(long)]
        dot: bool,
    },
    /// Show the events of the token as they happen.
    #[command(after_help = "Example:\n  annulus token watch")]
    Watch {
        /// End after so many events.
        #[arg(long, value_name = "N")]
        count: Option<u64>,
    },
}

impl Token {
    pub(crate) fn run(self, client: &Client, output: &Output) -> anyhow::Result<std::process::ExitCode> {
        match self.verb {
            None => show(client, output)?,
            Some(Verb::Run(run)) => return run.run(client),
            #[cfg(target_os = "linux")]
            Some(Verb::DieWith { parent, command }) => return Err(group::become_guarded(parent, &command)),
            Some(Verb::Set { key, value }) => set(&key, &value, client, output)?,
            Some(Verb::Get { key }) => get(key.as_deref(), client, output)?,
            Some(Verb::Graph { dot }) => graph(dot, client, output)?,
            Some(Verb::Watch { count }) => {
                super::monitor::Monitor::of_protocol("token", count).run(client, output)?;
            }
        }
        Ok(std::process::ExitCode::SUCCESS)
    }
}

fn show(client: &Client, output: &Output) -> anyhow::Result<()> {
    let token = client.get("/v1/token")?;
    if output.json {
        output.json(&token);
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
    output.line(format!("host          {}", token["host_id"]));
    output.line(format!("fence         {}", or_dash(number("fence").map(|fence| fence.to_string()))));
    let loop_ms = number("loop_micros").map(|micros| format!("{:.1} ms", micros as f64 / 1000.0));
    output.line(format!("loop          {}", or_dash(loop_ms)));
    output.line(format!("availability  {:.3}", token["availability"].as_f64().unwrap_or_default()));
    output.line("");
    let rows: Vec<Vec<String>> =
        token["nodes"].as_array().into_iter().flatten().map(|node| row(node, &token)).collect();
    output.table(&["HOST", "ADDRESS", "PENALTY", "TENURES"], &rows);
    Ok(())
}

fn row(node: &Value, token: &Value) -> Vec<String> {
    let host = node["host_id"].to_string();
    let own = if node["host_id"] == token["host_id"] { " (this)" } else { "" };
    vec![
        format!("{host}{own}"),
        node["addr"].as_str().unwrap_or_default().into(),
        node["threshold"].to_string(),
        token["data"]["counts"][&host].to_string(),
    ]
}

fn set(key: &str, value: &str, client: &Client, output: &Output) -> anyhow::Result<()> {
    let value: Value = serde_json::from_str(value).unwrap_or_else(|_| value.into());
    let answer = client.post("/v1/token/values", &json!({ "key": key, "value": value }))?;
    output.done(&answer, &format!("{key} is set"));
    Ok(())
}

fn get(key: Option<&str>, client: &Client, output: &Output) -> anyhow::Result<()> {
    let token = client.get("/v1/token")?;
    let values = token["data"]["values"].as_object().cloned().unwrap_or_default();
    if let Some(key) = key {
        let Some(stamped) = values.get(key) else {
            anyhow::bail!("no value is called {key:?}: `annulus token get` shows all");
        };
        output.line(stamped["value"].to_string());
        return Ok(());
    }
    if output.json {
        output.json(&Value::Object(values));
        return Ok(());
    }
    for (key, stamped) in &values {
        output.line(format!("{key} = {}", stamped["value"]));
    }
    Ok(())
}

fn graph(dot: bool, client: &Client, output: &Output) -> anyhow::Result<()> {
    let graph = client.get("/v1/token/graph")?;
    if output.json {
        output.json(&graph);
        return Ok(());
    }
    let form = if dot { "dot" } else { "text" };
    output.line(graph[form].as_str().unwrap_or_default().trim_end());
    Ok(())
}
