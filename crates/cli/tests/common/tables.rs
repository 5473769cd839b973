//! Agents that route.

use annulus::core::Id;
use serde_json::Value;

use super::Agent;

/// The leaves, each once: in a small ring a node is on both sides.
pub(crate) fn leaves(tables: &Value) -> Vec<String> {
    let sides = ["clockwise", "counter_clockwise"];
    let nodes = sides.iter().flat_map(|side| tables[*side].as_array().into_iter().flatten());
    let mut ids: Vec<String> = nodes.filter_map(|node| Some(node["id"].as_str()?.to_owned())).collect();
    ids.sort();
    ids.dedup();
    ids
}

/// The id of an agent.
pub(crate) fn id(agent: &Agent) -> Id {
    let info = agent.json(&["info"]);
    info["id"].as_str().and_then(|id| id.parse().ok()).expect("an agent tells its id")
}
