//! `annulus ring`: the circle as this node sees it.

use std::collections::BTreeSet;

use annulus_core::Id;
use serde_json::Value;

use super::picture::{Dot, picture};
use super::text;
use crate::cli::client::Client;
use crate::cli::output::Output;

/// Draw the circle: this node, its leaves, and the other nodes it knows.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  annulus ring")]
pub(crate) struct Ring {}

impl Ring {
    pub(crate) fn run(self, client: &Client, output: &Output) -> anyhow::Result<()> {
        let tables = client.get("/v1/tables")?;
        if output.json {
            output.json(&tables);
            return Ok(());
        }
        let leaves = ids(&tables, &["clockwise", "counter_clockwise"]);
        let known = ids(&tables, &["routing_table", "neighbourhood"]);
        let others: Vec<Id> = known.difference(&leaves).copied().collect();
        // What is drawn later covers what was drawn before: the own place is always seen.
        let own = text(&tables, "id").parse::<Id>().ok();
        let mut dots: Vec<(Id, Dot)> = others.iter().map(|id| (*id, Dot::Known)).collect();
        dots.extend(leaves.iter().map(|id| (*id, Dot::Leaf)));
        dots.extend(own.map(|id| (id, Dot::Own)));
        for line in picture(&dots) {
            output.line(line);
        }
        output.line("");
        output.line(format!("@ this node  {}", text(&tables, "id")));
        output.line(format!("o leaves     {}", leaves.len()));
        output.line(format!("+ others     {}", others.len()));
        Ok(())
    }
}

fn ids(tables: &Value, keys: &[&str]) -> BTreeSet<Id> {
    let nodes = keys.iter().flat_map(|key| tables[*key].as_array().into_iter().flatten());
    nodes.filter_map(|node| node["id"].as_str()?.parse().ok()).collect()
}
