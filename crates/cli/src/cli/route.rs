//! `annulus route` and the verbs around it: one file each.

mod listen;
mod picture;
mod ring;
mod send;
mod svg;
mod tables;

use annulus::core::pastry::AppName;
use serde_json::Value;

pub(crate) use listen::Listen;
pub(crate) use ring::Ring;
pub(crate) use send::{Ask, Send};
pub(crate) use tables::Tables;

use super::client::{Client, escaped};
use super::output::{BOLD, Output, plain};

/// Show the owner of a key and the path to it.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  annulus route photos/2026/cat.jpg
  annulus route 0123456789abcdef0123456789abcdef")]
pub(crate) struct Route {
    /// The key: 32 hexadecimal digits, or any text, which is hashed.
    key: String,
}

impl Route {
    pub(crate) fn run(self, client: &Client, output: &Output) -> anyhow::Result<()> {
        let route = client.get(&format!("/v1/route/{}", escaped(&self.key)))?;
        if output.json {
            output.json(&route);
            return Ok(());
        }
        output.line(format!("key    {}", text(&route, "key")));
        output.line(format!("owner  {BOLD}{}{BOLD:#}", named(&route, "owner_name", "owner")));
        output.line("");
        let path = route["path"].as_array().into_iter().flatten();
        let rows: Vec<Vec<String>> = path
            .enumerate()
            .map(|(hop, node)| {
                vec![hop.to_string(), named(node, "name", "id"), text(node, "addr"), rtt_text(node)]
            })
            .collect();
        output.table(&["HOP", "NODE", "ADDRESS", "RTT"], &rows);
        Ok(())
    }
}

/// The name of an application, for clap.
fn parse_app(text: &str) -> Result<String, String> {
    AppName::new(text).map(|name| name.as_str().to_owned()).map_err(|error| error.to_string())
}

fn text(value: &Value, key: &str) -> String {
    value[key].as_str().unwrap_or_default().to_owned()
}

/// A node by its name with the short id behind it, or by its id.
fn named(value: &Value, name: &str, id: &str) -> String {
    let id = text(value, id);
    match value[name].as_str() {
        Some(name) => format!("{} ({})", plain(name), &id[..id.len().min(8)]),
        None => id,
    }
}

fn rtt_text(node: &Value) -> String {
    node["rtt_ms"].as_f64().map_or_else(|| "-".into(), |rtt| format!("{rtt:.3} ms"))
}
