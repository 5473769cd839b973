//! Agents that route, in network namespaces on two bridges with a cable between them. It needs root and `ip`; without
//! them it prints that and passes, except under CI, where that is a failure.

mod common;

use std::net::{IpAddr, Ipv4Addr};
use std::process::{Command, Output, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use common::netns::Netns;
use common::tables::leaves;
use common::{Agent, annulus, wait_until};
use serde_json::Value;

const NODES: usize = 4;
/// The nodes on the first of the two bridges.
const LEFT: usize = 2;

/// Agents in namespaces.
struct Lab(Netns);

impl Lab {
    fn within(&self, node: usize, args: &[&str]) -> Command {
        self.0.within(node, &annulus(args))
    }

    fn start(&self, node: usize, services: &str) -> Agent {
        let (bind, join) = (addr(node).to_string(), format!("{}:7946", addr(0)));
        let seeds = format!("route.seeds={}:22001", addr(0));
        let mut args = vec!["agent", "--bind", &bind, "--services", services];
        match services {
            _ if node == 0 => {}
            "route" => args.extend(["--set", &seeds]),
            _ => args.extend(["--join", &join]),
        }
        let child = self.within(node, &args).stderr(Stdio::piped()).spawn().expect("`ip` runs");
        let mut agent = Agent::adopt(IpAddr::V4(addr(node)), child);
        agent.wait_for_log("agent started");
        agent
    }

    fn json(&self, node: usize, args: &[&str]) -> Option<Value> {
        let output = self.within(node, &[args, &["--json"]].concat()).output().expect("`ip` runs");
        serde_json::from_slice(&output.stdout).ok().filter(|_| output.status.success())
    }

    /// Waits until each of these nodes has so many leaves.
    fn wait_for_leaves(&self, nodes: &[usize], count: usize) {
        for &node in nodes {
            wait_until(&format!("node {node} has {count} leaves"), || {
                let tables = self.json(node, &["tables"])?;
                (tables["active"] == true && leaves(&tables).len() == count).then_some(())
            });
        }
    }
}

fn addr(node: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 93, 8, 10 + u8::try_from(node).expect("there are few"))
}

/// The agent's words for a message that was not delivered, or that may have been.
const NOT_DELIVERED: [&str; 3] = [
    "it is not known whether the message was delivered",
    "every way that was tried failed",
    "a node on the way had no room",
];

/// Sends that are under way, each in a thread that waits for its end. `annulus send` has no limit of its own: it ends
/// when the agent answers.
#[derive(Default)]
struct Sends {
    threads: Vec<JoinHandle<(Output, Duration)>>,
}

impl Sends {
    fn start(&mut self, mut send: Command) {
        self.threads.push(std::thread::spawn(move || {
            let begun = Instant::now();
            (send.output().expect("`ip` runs"), begun.elapsed())
        }));
    }

    /// Waits for the answer of the agent to each. Returns how many there were, and how long the slowest took.
    fn wait(self) -> (usize, Duration) {
        wait_until("every send has an answer", || {
            self.threads.iter().all(JoinHandle::is_finished).then_some(())
        });
        let count = self.threads.len();
        let ended = self.threads.into_iter().map(|thread| {
            let (output, took) = thread.join().expect("the send has ended");
            let is_delivered = serde_json::from_slice::<Value>(&output.stdout)
                .is_ok_and(|answer| answer["delivered_to"].is_string());
            let error = String::from_utf8_lossy(&output.stderr);
            let is_told = NOT_DELIVERED.iter().any(|text| error.contains(text));
            assert!(is_delivered || is_told, "the agent says what became of it: {output:?}");
            took
        });
        (count, ended.max().unwrap_or_default())
    }
}

/// Messages sent while the cable is out all get an answer, and soon after it is back every pair reaches each other.
fn partition_heals(services: &str) {
    if !Netns::are_possible() {
        return;
    }
    let addrs: Vec<Ipv4Addr> = (0..NODES).map(addr).collect();
    let lab = Lab(Netns::new("r", &addrs, LEFT));
    let _agents: Vec<Agent> = (0..NODES).map(|node| lab.start(node, services)).collect();
    let all: Vec<usize> = (0..NODES).collect();
    lab.wait_for_leaves(&all, NODES - 1);
    let ids: Vec<String> = all
        .iter()
        .map(|&node| lab.json(node, &["tables"]).and_then(|tables| Some(tables["id"].as_str()?.to_owned())))
        .collect::<Option<_>>()
        .expect("everybody has joined");

    lab.0.cable("down");
    let mut sends = Sends::default();
    // Until the nodes of the other side are gone; messages go on meanwhile.
    wait_until("the nodes are apart", || {
        ids[LEFT..NODES].iter().for_each(|to| sends.start(lab.within(0, &["send", to, "x", "--json"])));
        (leaves(&lab.json(0, &["tables"])?).len() == LEFT - 1).then_some(())
    });
    let (answered, slowest) = sends.wait();
    common::tell(format_args!(
        "{services}: {answered} sends in the cut have an answer, the slowest after {slowest:?}"
    ));

    lab.0.cable("up");
    let healed = Instant::now();
    // The first message of every pair that is delivered at the very node it is for.
    let mut slowest = Duration::ZERO;
    for &from in &all {
        for &to in all.iter().filter(|to| **to != from) {
            wait_until(&format!("a message from {from} reaches {to}"), || {
                let sent = lab.json(from, &["send", &ids[to], "x"])?;
                (sent["delivered_to"].as_str() == Some(ids[to].as_str())).then_some(())
            });
            slowest = healed.elapsed();
        }
    }
    common::tell(format_args!("{services}: all pairs reach each other {slowest:?} after the heal"));
    lab.wait_for_leaves(&all, NODES - 1);
    for &from in &all {
        for &to in all.iter().filter(|to| **to != from) {
            let sent = lab.json(from, &["send", &ids[to], "x"]);
            let by = sent.as_ref().and_then(|sent| sent["delivered_to"].as_str());
            assert_eq!(by, Some(ids[to].as_str()), "from {from} to {to}: {sent:?}");
        }
    }
}

/// CUF-16.
#[test]
fn a_partition_leaves_no_sender_without_an_answer_and_no_pair_apart() {
    partition_heals("members,route");
    // Without `members` the ring finds itself again by its lost peers.
    partition_heals("route");
}
