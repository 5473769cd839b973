//! Agents that take turns.

use serde_json::Value;

use super::{Agent, own_ip, own_udp_port, wait_until};

/// A ring of `size` agents on a port of its own.
pub(crate) fn ring(size: usize) -> Vec<Agent> {
    ring_with(size, &[])
}

/// A ring with more flags for each agent.
pub(crate) fn ring_with(size: usize, more: &[&str]) -> Vec<Agent> {
    let port = format!("token.udp_port={}", own_udp_port());
    let args = [&["--services", "token", "--set", "token.preset=local", "--set", &port], more].concat();
    (0..size).map(|_| Agent::start_on(own_ip(), &args)).collect()
}

pub(crate) fn token(agent: &Agent) -> Value {
    agent.json(&["token"])
}

/// The tenures that an agent knows of, by host.
pub(crate) fn counts(agent: &Agent) -> Vec<(String, u64)> {
    let data = token(agent)["data"].clone();
    let counts = data["counts"].as_object().cloned().unwrap_or_default();
    // Host 0 is the floor of fences after a restore (TU-43), no node.
    let counts = counts.into_iter().filter(|(host, _)| host != "0");
    counts.map(|(host, count)| (host, count.as_u64().unwrap_or_default())).collect()
}

/// Waits until every agent knows the whole ring and has had the token.
pub(crate) fn wait_for_ring(agents: &[&Agent]) {
    for agent in agents {
        wait_until("everybody takes turns", || {
            let token = token(agent);
            let own = token["host_id"].to_string();
            let had = token["data"]["counts"][&own].as_u64()? > 0;
            (token["nodes"].as_array()?.len() >= agents.len() && had).then_some(())
        });
    }
}

/// A counter of `/metrics`.
pub(crate) fn metric(agent: &Agent, name: &str) -> u64 {
    let (_, text) = agent.request("GET", "/metrics", &[], "");
    let start = format!("{name} ");
    let line = text.lines().find(|line| line.starts_with(&start)).expect("it is counted");
    line[start.len()..].parse().expect("a counter is a number")
}
