//! `annulus ping`: asks the agent to ping, or how its peers are doing.

use std::net::SocketAddr;

use serde_json::{Value, json};

use super::client::Client;
use super::output::{BAD, DIM, GOOD, Output};

/// Ping a node from the agent, or show how its peers are doing.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  annulus ping                            how the peers are doing
  annulus ping 127.0.0.2:7001 --count 3   three pings over UDP
  annulus ping 127.0.0.2:7001 --tcp       one over TCP")]
pub(crate) struct Ping {
    /// IP:PORT of the node to ping.
    to: Option<SocketAddr>,
    /// Over TCP instead of UDP.
    #[arg(long, requires = "to")]
    tcp: bool,
    /// How many times.
    #[arg(long, short = 'c', value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    count: u32,
}

impl Ping {
    pub(crate) fn run(self, client: &Client, output: &Output) -> anyhow::Result<()> {
        let Some(to) = self.to else { return peers(client, output) };
        let via = if self.tcp { "stream" } else { "datagram" };
        for _ in 0..self.count {
            let answer = client.post("/v1/ping", &json!({ "to": to, "via": via }))?;
            if output.json {
                output.json(&answer);
            } else {
                let rtt = answer["rtt_ms"].as_f64().unwrap_or_default();
                output.line(format!(
                    "{to} answered over {} in {rtt:.3} ms",
                    if self.tcp { "tcp" } else { "udp" }
                ));
            }
        }
        Ok(())
    }
}

fn peers(client: &Client, output: &Output) -> anyhow::Result<()> {
    let peers = client.get("/v1/ping/peers")?;
    if output.json {
        output.json(&peers);
        return Ok(());
    }
    let rows: Vec<Vec<String>> = peers.as_array().into_iter().flatten().map(row).collect();
    if rows.is_empty() {
        output.line("no peers: name some with --set ping.peers=IP:PORT when the agent starts");
    } else {
        output.table(&["PEER", "STATE", "RTT", "ANSWERED", "MISSED"], &rows);
    }
    Ok(())
}

fn row(peer: &Value) -> Vec<String> {
    let state = peer["state"].as_str().unwrap_or_default();
    let style = match state {
        "present" => GOOD,
        "vanished" => BAD,
        _ => DIM,
    };
    vec![
        peer["addr"].as_str().unwrap_or_default().into(),
        format!("{style}{state}{style:#}"),
        peer["rtt_ms"].as_f64().map_or_else(|| "-".into(), |rtt| format!("{rtt:.3} ms")),
        peer["answered"].to_string(),
        peer["missed"].to_string(),
    ]
}
