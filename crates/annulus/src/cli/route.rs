//! `annulus route` and the verbs around it: one file each.

mod listen;
mod picture;
mod ring;
mod send;
mod tables;

use annulus_core::pastry::AppName;
use serde_json::Value;

pub(crate) use listen::Listen;
pub(crate) use ring::Ring;
pub(crate) use send::{Ask, Send};
pub(crate) use tables::Tables;

use super::client::{Client, escaped};
use super::output::{BOLD, Output};

/// Show who owns a key, and the way there.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  annulus route photos/2026/cat.jpg
  annulus route 0123456789abcdef0123456789abcdef")]
pub(crate) struct Route {
    /// 32 hexadecimal digits, or any text: then its hash.
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
        output.line(format!("owner  {BOLD}{}{BOLD:#}", text(&route, "owner")));
        output.line("");
        let path = route["path"].as_array().into_iter().flatten();
        let rows: Vec<Vec<String>> = path
            .enumerate()
            .map(|(hop, node)| vec![hop.to_string(), text(node, "id"), text(node, "addr"), rtt_text(node)])
            .collect();
        output.table(&["HOP", "ID", "ADDRESS", "RTT"], &rows);
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

fn rtt_text(node: &Value) -> String {
    node["rtt_ms"].as_f64().map_or_else(|| "-".into(), |rtt| format!("{rtt:.3} ms"))
}
