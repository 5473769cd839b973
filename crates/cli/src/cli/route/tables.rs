//! `annulus tables`: the leaf set, the routing table and the neighbourhood set.

use serde_json::Value;

use super::{named, rtt_text, text};
use crate::cli::client::Client;
use crate::cli::output::{BAD, GOOD, Output};

/// Show the leaf set, the routing table and the neighbourhood set of this node.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  annulus tables")]
pub(crate) struct Tables {}

impl Tables {
    pub(crate) fn run(self, client: &Client, output: &Output) -> anyhow::Result<()> {
        let tables = client.get("/v1/tables")?;
        if output.json {
            output.json(&tables);
            return Ok(());
        }
        let active = if tables["active"] == true { "active" } else { "joining" };
        output.line(format!("{} at {}, {active}", named(&tables, "name", "id"), text(&tables, "addr")));
        output.line("");
        output.table(&["TABLE", "PLACE", "NODE", "ADDRESS", "RTT", "STATE"], &rows(&tables));
        Ok(())
    }
}

fn rows(tables: &Value) -> Vec<Vec<String>> {
    let nodes = |key: &str| tables[key].as_array().cloned().unwrap_or_default();
    let placed = |table: &'static str, sign: &'static str, key: &str| {
        let nodes = nodes(key).into_iter().enumerate();
        nodes.map(|(index, node)| row(table, format!("{sign}{}", index + 1), &node)).collect::<Vec<_>>()
    };
    let mut rows = placed("leaves", "-", "counter_clockwise");
    rows.reverse();
    rows.extend(placed("leaves", "+", "clockwise"));
    for cell in nodes("routing_table") {
        rows.push(row("routing", format!("row {} column {}", cell["row"], cell["column"]), &cell));
    }
    rows.extend(placed("neighbours", "", "neighbourhood"));
    rows
}

fn row(table: &str, place: String, node: &Value) -> Vec<String> {
    let state = if node["suspected"] == true {
        format!("{BAD}suspected{BAD:#}")
    } else {
        format!("{GOOD}ok{GOOD:#}")
    };
    vec![table.into(), place, named(node, "name", "id"), text(node, "addr"), rtt_text(node), state]
}
