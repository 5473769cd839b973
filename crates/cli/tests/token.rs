//! `token` as a user runs it: real agents on one broadcast domain that take turns.

mod common;

use std::net::{TcpStream, UdpSocket};
use std::process::Command;

use common::ring::{counts, metric, ring, token, wait_for_ring};
use common::{Agent, annulus, own_ip, own_udp_port, wait_until};
use serde_json::Value;

#[test]
fn three_agents_take_turns() {
    let agents = ring(3);
    let all: Vec<&Agent> = agents.iter().collect();
    wait_for_ring(&all);
    let ids: Vec<Value> = all.iter().map(|agent| token(agent)["host_id"].clone()).collect();
    assert!(ids.iter().all(|id| ids.iter().filter(|other| *other == id).count() == 1), "{ids:?}");
    all[0].stdout(&["token", "set", "colour", "red"]);
    for agent in &all {
        wait_until("the value has gone round", || {
            let value = agent.json(&["token"])["data"]["values"]["colour"]["value"].clone();
            (value == "red").then_some(())
        });
    }
    assert_eq!(all[2].stdout(&["token", "get", "colour"]).trim(), "\"red\"");
    assert!(all[1].stdout(&["token", "graph"]).contains("restored as"));
    assert!(all[1].stdout(&["token", "graph", "--dot"]).starts_with("digraph"));
}

#[test]
fn commands_run_one_at_a_time_with_growing_fences() {
    let mut agents = ring(3);
    wait_for_ring(&agents.iter().collect::<Vec<_>>());
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("log");
    // If two ran at once, the lines of begin and end would be mixed.
    let script = format!("echo begin $ANNULUS_FENCE >> {0}; echo end $ANNULUS_FENCE >> {0}", log.display());
    let run = |agent: &Agent| {
        annulus(&["token", "run", "--agent", &agent.http().to_string(), "--", "sh", "-c", &script])
            .spawn()
            .unwrap()
    };
    let mut children: Vec<_> = (0..4).flat_map(|_| agents.iter().map(run).collect::<Vec<_>>()).collect();
    for child in &mut children {
        assert!(child.wait().unwrap().success());
    }
    agents[0].signal("KILL");
    agents[0].wait();
    let mut children: Vec<_> = (0..3).flat_map(|_| agents[1..].iter().map(run).collect::<Vec<_>>()).collect();
    for child in &mut children {
        assert!(child.wait().unwrap().success());
    }
    let text = std::fs::read_to_string(&log).unwrap();
    let lines: Vec<(&str, u64)> = text
        .lines()
        .filter_map(|line| line.split_once(' '))
        .map(|(what, fence)| (what, fence.parse().unwrap()))
        .collect();
    assert_eq!(lines.len(), 2 * 18);
    for pair in lines.chunks(2) {
        assert_eq!((pair[0].0, pair[1].0, pair[0].1), ("begin", "end", pair[1].1), "{text}");
    }
    assert!(lines.chunks(2).map(|pair| pair[0].1).is_sorted_by(|a, b| a < b), "{text}");
}

#[test]
fn the_ring_goes_on_without_a_killed_holder_and_keeps_its_counts() {
    let mut agents = ring(3);
    wait_for_ring(&agents.iter().collect::<Vec<_>>());
    let before = counts(&agents[1]);
    agents[0].signal("KILL");
    agents[0].wait();
    let all = &agents[1..];
    let own = token(&all[1])["host_id"].to_string();
    // A node without a count of that host knows of no tenure of it.
    let count = |counts: &[(String, u64)]| {
        counts.iter().find(|(host, _)| *host == own).map_or(0, |(_, count)| *count)
    };
    wait_until("the others go on", || (count(&counts(&all[0])) > count(&before) + 3).then_some(()));
    for (host, count) in before {
        let now = counts(&all[0]).into_iter().find(|(other, _)| *other == host);
        assert!(now.is_some_and(|(_, now)| now >= count), "{host} lost tenures");
    }
}

#[test]
fn a_command_that_keeps_the_token_too_long_is_stopped() {
    let agents = ring(2);
    wait_for_ring(&agents.iter().collect::<Vec<_>>());
    let http = agents[0].http().to_string();
    let output = annulus(&["token", "run", "--limit", "200ms", "--agent", &http, "--", "sleep", "600"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(75));
    wait_until("the token goes on", || (counts(&agents[1]).len() == 2).then_some(()));
}

#[test]
fn a_command_ends_with_its_agent() {
    let agents = ring(1);
    wait_until("it leads", || (token(&agents[0])["state"] == "leader").then_some(()));
    let http = agents[0].http().to_string();
    let dir = tempfile::tempdir().unwrap();
    let started = dir.path().join("started");
    let script = format!("touch {}; exec sleep 600", started.display());
    let mut child = annulus(&["token", "run", "--agent", &http, "--", "sh", "-c", &script]).spawn().unwrap();
    wait_until("the command runs", || started.exists().then_some(()));
    agents[0].signal("KILL");
    assert_eq!(child.wait().unwrap().code(), Some(75));
}

#[test]
fn garbage_is_counted_and_the_ring_keeps_turning() {
    let agents = ring(2);
    let all: Vec<&Agent> = agents.iter().collect();
    wait_for_ring(&all);
    let info = all[0].json(&["info"]);
    let addr = |transport: &str| {
        let addresses = info["services"][0]["addresses"].as_array().unwrap();
        let found = addresses.iter().find(|at| at["transport"] == transport).unwrap();
        found["addr"].as_str().unwrap().to_owned()
    };
    let socket = UdpSocket::bind((own_ip(), 0)).unwrap();
    for garbage in
        [&b""[..], b"\x01", b"\x02\xff\xff\xff\xff", b"\x01\x00\x00\x00\x00\x00\x00\x00\x01\x75\x59"]
    {
        socket.send_to(garbage, addr("udp")).unwrap();
    }
    for garbage in
        [&b"GET / HTTP/1.1\r\n\r\n"[..], b"\x51\x7f\xff\xff\xff", b"\x21\xff\xff\xff\xff\x00\x00\x00\x00"]
    {
        let mut stream = TcpStream::connect(addr("tcp")).unwrap();
        std::io::Write::write_all(&mut stream, garbage).unwrap();
    }
    wait_until("it is counted", || (metric(all[0], "annulus_token_malformed_total") >= 6).then_some(()));
    let before = counts(all[1]).iter().map(|(_, count)| count).sum::<u64>();
    wait_until("it turns", || {
        (counts(all[1]).iter().map(|(_, count)| count).sum::<u64>() > before + 4).then_some(())
    });
}

#[test]
fn decode_shows_a_packet_of_the_document() {
    let message = common::json(&["decode", "jitterbug", "01edcba9880a0b0c0d7559", "--json"]);
    assert_eq!((&message["message"], &message["tcp_port"]), (&"tr1".into(), &30041.into()), "{message}");
    let output =
        Command::new(env!("CARGO_BIN_EXE_annulus")).args(["decode", "jitterbug", "00"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn a_node_keeps_its_port_and_its_identity_across_restarts() {
    let (ip, dir) = (own_ip(), tempfile::tempdir().unwrap());
    let port = format!("token.udp_port={}", own_udp_port());
    let path = dir.path().to_str().unwrap();
    let args = ["--services", "token", "--data-dir", path, "--set", "token.preset=local", "--set", &port];
    let identity = |agent: &Agent| {
        wait_until("it has started", || {
            let token = token(agent);
            (token["host_id"].as_u64()? > 0).then(|| (token["host_id"].clone(), token["addr"].clone()))
        })
    };
    let mut agent = Agent::start_on(ip, &args);
    let first = identity(&agent);
    for signal in ["TERM", "KILL"] {
        agent.signal(signal);
        agent.wait();
        agent = Agent::start_on(ip, &args);
        assert_eq!(identity(&agent), first, "after {signal}");
    }
    agent.signal("TERM");
    agent.wait();
    // Another process takes the port meanwhile: the node binds another, logs that, and keeps its host id.
    let taken = std::net::TcpListener::bind(first.1.as_str().unwrap()).unwrap();
    let started = annulus(&[&["agent", "--bind", &ip.to_string()], &args[..]].concat())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut agent = Agent::adopt(ip, started);
    agent.wait_for_log("another process uses the port that token had");
    agent.wait_for_log("agent started");
    let second = identity(&agent);
    assert_eq!(second.0, first.0);
    assert_ne!(second.1, first.1);
    drop(taken);
}
