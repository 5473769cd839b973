//! Agents in network namespaces on real bridges with real broadcast. It needs root and `ip`; without them it prints that
//! and passes, except under CI, where that is a failure.

mod common;

use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr};
use std::process::{Command, Stdio};

use common::netns::Netns;
use common::{Agent, annulus, wait_until};
use serde_json::Value;

const NODES: usize = 5;
/// The nodes on the first of the two bridges.
const LEFT: usize = 2;

/// Agents in namespaces.
struct Lab(Netns);

impl Lab {
    fn within(&self, node: usize, args: &[&str]) -> Command {
        self.0.within(node, &annulus(args))
    }

    fn start(&self, node: usize, data: &std::path::Path) -> Agent {
        let (bind, dir) = (addr(node).to_string(), data.join(node.to_string()));
        let args = [
            "agent",
            "--bind",
            &bind,
            "--services",
            "token",
            "--set",
            "token.preset=local",
            "--data-dir",
            dir.to_str().expect("paths of tests are text"),
        ];
        let child = self.within(node, &args).stderr(Stdio::piped()).spawn().expect("`ip` runs");
        let mut agent = Agent::adopt(IpAddr::V4(addr(node)), child);
        agent.wait_for_log("agent started");
        agent
    }

    /// The output of `annulus token` there; `None` without an answer.
    fn token(&self, node: usize) -> Option<Value> {
        let output = self.within(node, &["token", "--json"]).output().expect("`ip` runs");
        serde_json::from_slice(&output.stdout).ok()
    }

    fn print(&self, node: usize, args: &[&str]) -> String {
        let output = self.within(node, args).output().expect("`ip` runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("it prints text")
    }
}

fn addr(node: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 93, 7, 10 + u8::try_from(node).expect("there are few"))
}

fn counts(token: &Value) -> Vec<(String, u64)> {
    let counts = token["data"]["counts"].as_object().cloned().unwrap_or_default();
    // Host 0 is the floor of fences after a restore (TU-43), no node.
    let counts = counts.into_iter().filter(|(host, _)| host != "0");
    counts.map(|(host, count)| (host, count.as_u64().unwrap_or_default())).collect()
}

/// Waits until these nodes have one token and one list with `listed` hosts, and every count grows.
fn wait_for_one(lab: &Lab, nodes: &[usize], listed: usize, what: &str) {
    let all = || -> Option<Vec<Value>> { nodes.iter().map(|node| lab.token(*node)).collect() };
    let before = wait_until(what, all);
    wait_until(what, || {
        let tokens = all()?;
        let one = tokens.iter().all(|token| token["token_id"] == tokens[0]["token_id"]);
        let whole =
            tokens.iter().all(|token| token["nodes"].as_array().is_some_and(|list| list.len() == listed));
        let leaders = tokens.iter().filter(|token| token["state"] == "leader").count();
        let grown = tokens.iter().zip(&before).all(|(token, before)| {
            let own = token["host_id"].to_string();
            let count = |of: &Value| of["data"]["counts"][&own].as_u64().unwrap_or_default();
            count(token) > count(before) + 3
        });
        (one && whole && leaders <= 1 && grown).then_some(())
    });
}

/// Checks that no count that was passed on is lost.
fn assert_preserved(before: &[(String, u64)], now: &Value, when: &str) {
    let now = counts(now);
    for (host, count) in before {
        let have = now.iter().find(|(other, _)| other == host).map_or(0, |(_, count)| *count);
        assert!(have >= *count, "{when}: host {host} had {count} tenures and has {have}");
    }
}

/// The counts that a node other than the holder knows: they have been passed on.
fn passed_on(lab: &Lab, nodes: &[usize]) -> Vec<(String, u64)> {
    let tokens: Vec<Value> = nodes.iter().filter_map(|node| lab.token(*node)).collect();
    let waiters = tokens.iter().filter(|token| token["state"] != "leader");
    waiters
        .map(counts)
        .max_by_key(|counts| counts.iter().map(|(_, count)| *count).sum::<u64>())
        .unwrap_or_default()
}

/// Kills the current holder of the token; returns its index.
fn kill_holder(lab: &Lab, agents: &mut [Option<Agent>]) -> usize {
    let holder = wait_until("somebody holds the token", || {
        (0..NODES).find(|node| lab.token(*node).is_some_and(|token| token["state"] == "leader"))
    });
    let mut agent = agents[holder].take().expect("it runs");
    // `ip netns exec` becomes the program, so this is its process.
    agent.signal("KILL");
    agent.wait();
    holder
}

#[test]
fn five_agents_on_a_bridge_survive_kills_and_a_cut() {
    if !Netns::are_possible() {
        return;
    }
    let addrs: Vec<Ipv4Addr> = (0..NODES).map(addr).collect();
    let (lab, data) = (Lab(Netns::new("t", &addrs, LEFT)), tempfile::tempdir().unwrap());
    let mut agents: Vec<Option<Agent>> = (0..NODES).map(|node| Some(lab.start(node, data.path()))).collect();
    let everybody: Vec<usize> = (0..NODES).collect();
    wait_for_one(&lab, &everybody, NODES, "five agents are one ring");

    // kill -9 of the holder, at random moments: computing, offering, in the middle of TP5.
    for round in 0..4 {
        let before = passed_on(&lab, &everybody);
        let holder = kill_holder(&lab, &mut agents);
        let rest: Vec<usize> = (0..NODES).filter(|node| *node != holder).collect();
        wait_for_one(&lab, &rest, NODES, "the others go on");
        let now = lab.token(rest[0]).unwrap();
        assert_preserved(&before, &now, &format!("kill {round}"));
        agents[holder] = Some(lab.start(holder, data.path()));
        wait_for_one(&lab, &everybody, NODES, "the killed one is back");
    }

    // The cable is pulled: two rings, each with a token, both at work for longer than renew_timeout.
    // The graph keeps the newest steps only, so this looks for a new restore and does not count them.
    let restores = |node: usize| -> HashSet<String> {
        lab.print(node, &["token", "graph"])
            .lines()
            .filter(|line| line.contains("restored as"))
            .map(String::from)
            .collect()
    };
    let before: HashSet<String> = everybody.iter().flat_map(|node| restores(*node)).collect();
    lab.0.cable("down");
    let (left, right): (Vec<usize>, Vec<usize>) = everybody.iter().partition(|node| **node < LEFT);
    wait_for_one(&lab, &left, NODES, "the left half goes on");
    wait_for_one(&lab, &right, NODES, "the right half goes on");
    let (of_left, of_right) = (lab.token(left[0]).unwrap(), lab.token(right[0]).unwrap());
    assert_ne!(of_left["token_id"], of_right["token_id"], "two lines");
    lab.print(left[0], &["token", "set", "left", "was here"]);
    lab.print(right[0], &["token", "set", "right", "was here too"]);
    wait_for_one(&lab, &left, NODES, "the left half knows its value");
    wait_for_one(&lab, &right, NODES, "the right half knows its value");
    let both = [passed_on(&lab, &left), passed_on(&lab, &right)];
    lab.0.cable("up");
    // A node with both values has the data of both branches, and with it every count of both.
    for node in &everybody {
        let now = wait_until("the lines have met", || {
            lab.token(*node)
                .filter(|token| ["left", "right"].iter().all(|key| token["data"]["values"][key].is_object()))
        });
        both.iter().for_each(|before| assert_preserved(before, &now, "after the cut"));
    }
    wait_for_one(&lab, &everybody, NODES, "the halves are one ring again");
    let graph = lab.print(0, &["token", "graph"]);
    assert!(restores(0).difference(&before).next().is_some(), "the split is in the graph:\n{graph}");
    assert!(graph.contains("merged into"), "the merge is in the graph:\n{graph}");
    let dot = lab.print(NODES - 1, &["token", "graph", "--dot"]);
    assert!(dot.starts_with("digraph") && dot.contains("merged into"), "{dot}");
}
