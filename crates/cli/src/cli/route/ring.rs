//! `annulus ring`: the circle as this node sees it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use annulus::core::Id;
use anyhow::Context as _;
use serde_json::Value;

use super::picture::{Dot, picture};
use super::svg::{Place, svg};
use super::text;
use crate::cli::client::Client;
use crate::cli::output::{Output, plain};

/// The most names below the picture.
const NAMES_MAX: usize = 8;

/// Draw the ring: this node, its leaf set, and the other nodes it knows.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  annulus ring\n  annulus ring --svg ring.svg")]
pub(crate) struct Ring {
    /// Write the ring as an SVG picture to this file, or to standard output with -.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

impl Ring {
    pub(crate) fn run(self, client: &Client, output: &Output) -> anyhow::Result<()> {
        let tables = client.get("/v1/tables")?;
        if output.json {
            output.json(&tables);
            return Ok(());
        }
        if let Some(file) = &self.svg {
            return write_svg(file, &svg(&places(client, &tables)), output);
        }
        let leaves = ids(&tables, &["clockwise", "counter_clockwise"]);
        let known = ids(&tables, &["routing_table", "neighbourhood"]);
        let others: Vec<Id> = known.difference(&leaves).copied().collect();
        // A later mark covers an earlier one: the own place comes last and is always visible.
        let own = text(&tables, "id").parse::<Id>().ok();
        let mut dots: Vec<(Id, Dot)> = others.iter().map(|id| (*id, Dot::Known)).collect();
        dots.extend(leaves.iter().map(|id| (*id, Dot::Leaf)));
        dots.extend(own.map(|id| (id, Dot::Own)));
        for line in picture(&dots) {
            output.line(line);
        }
        output.line("");
        output.line(format!("@ this node  {}", text(&tables, "id")));
        output.line(format!("o leaves     {}", who(&tables, &leaves)));
        output.line(format!("+ others     {}", who(&tables, &others.into_iter().collect())));
        Ok(())
    }
}

/// The number of these nodes, and the names of those whose names are known.
fn who(tables: &Value, nodes: &BTreeSet<Id>) -> String {
    let tables = ["clockwise", "counter_clockwise", "routing_table", "neighbourhood"].map(|key| &tables[key]);
    let named = tables.into_iter().filter_map(Value::as_array).flatten().filter_map(|node| {
        let id = node["id"].as_str()?.parse().ok()?;
        Some((id, node["name"].as_str()?)).filter(|(id, _)| nodes.contains(id))
    });
    let names: BTreeSet<(Id, &str)> = named.collect();
    let names: Vec<String> = names.iter().take(NAMES_MAX).map(|(_, name)| plain(name).into_owned()).collect();
    let list = if names.is_empty() { String::new() } else { format!("  {}", names.join(", ")) };
    format!("{}{list}", nodes.len())
}

/// Every node that this one knows, with the names that members has.
fn places(client: &Client, tables: &Value) -> Vec<Place> {
    let leaves = ids(tables, &["clockwise", "counter_clockwise"]);
    let own = text(tables, "id").parse::<Id>().ok();
    let known = ids(tables, &["routing_table", "neighbourhood"]);
    // An agent may run route without members.
    let members = client.get("/v1/members").unwrap_or_default();
    let members = members.as_array().map_or(&[][..], Vec::as_slice);
    let all: BTreeSet<Id> = leaves.iter().chain(&known).copied().chain(own).collect();
    let place = |id: Id| {
        let member = members.iter().find(|member| member["id"].as_str() == Some(&id.to_string()));
        let name = member.and_then(|member| member["name"].as_str()).map(str::to_owned);
        Place {
            id,
            name: name.unwrap_or_else(|| id.to_string()[..8].to_owned()),
            is_own: own == Some(id),
            is_leaf: leaves.contains(&id),
            is_dead: member.is_some_and(|member| member["state"] == "dead"),
        }
    };
    all.into_iter().map(place).collect()
}

fn write_svg(file: &Path, picture: &str, output: &Output) -> anyhow::Result<()> {
    if file == Path::new("-") {
        output.line(picture.trim_end());
        return Ok(());
    }
    let path = file.display();
    std::fs::write(file, picture).with_context(|| format!("cannot write {path}; choose another file"))?;
    output.note(&format!("the ring is in {path}"));
    Ok(())
}

fn ids(tables: &Value, keys: &[&str]) -> BTreeSet<Id> {
    let nodes = keys.iter().flat_map(|key| tables[*key].as_array().into_iter().flatten());
    nodes.filter_map(|node| node["id"].as_str()?.parse().ok()).collect()
}
