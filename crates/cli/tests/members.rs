//! `members` as a user runs it: real agents that join, die, sleep, move and leave.

mod common;

use std::net::Ipv4Addr;

use annulus::core::swim::{Header, Incarnation, Message, NodeView, OwnContents, Sequence};
use annulus::core::{Id, Wall};
use common::members::{counter, group, packet, start, wait_for_all, wait_for_state};
use common::{Agent, own_ip, run, wait_until};
use serde_json::Value;

#[test]
fn all_nodes_learn_of_each_other_through_one_seed() {
    let agents = group(6);
    let agents: Vec<&Agent> = agents.iter().collect();
    wait_for_all(&agents);
    let members = agents[3].json(&["members"]);
    let own = members.as_array().unwrap().iter().find(|member| member["is_self"] == true).unwrap();
    assert_eq!((&own["name"], &own["id"]), (&"n3".into(), &agents[3].json(&["info"])["id"]));
    let table = agents[0].stdout(&["members"]);
    assert!(table.starts_with("NAME") && table.lines().count() == 7, "{table}");
}

/// SA-61: requests are long enough for the answers of agents with long tags.
#[test]
fn agents_with_tags_of_any_length_learn_of_each_other() {
    let seed = own_ip();
    let agent = |index: usize| {
        let tags = format!("node.tags=about={}", "x".repeat(index * 40));
        let first = (index > 0).then_some(seed);
        start(&format!("n{index}"), if index > 0 { own_ip() } else { seed }, first, &["--set", &tags])
    };
    let agents: Vec<Agent> = (0..5).map(agent).collect();
    wait_for_all(&agents.iter().collect::<Vec<_>>());
}

#[test]
fn a_killed_agent_is_dead_for_all_others_and_returns_with_a_higher_incarnation() {
    let dir = tempfile::tempdir().unwrap();
    let (seed, victim) = (own_ip(), own_ip());
    let data = ["--data-dir", dir.path().to_str().unwrap()];
    let red = start("red", seed, None, &[]);
    let blue = start("blue", own_ip(), Some(seed), &[]);
    let mut green = start("green", victim, Some(seed), &data);
    wait_for_all(&[&red, &blue, &green]);
    // One operation has read the store; a further one has stored a member.
    wait_until("it has kept whom it knows", || {
        (counter(&green, "annulus_driver_store_ops_total")? > 1).then_some(())
    });
    green.signal("KILL");
    green.wait();
    wait_for_state(&[&red, &blue], "green", "dead");
    // It restarts at another address with the same identity.
    let green = start("green", own_ip(), Some(seed), &data);
    wait_for_state(&[&red, &blue, &green], "green", "alive");
    wait_for_all(&[&red, &blue, &green]);
    let members = red.json(&["members", "--name", "green"]);
    assert!(members[0]["incarnation"].as_u64() > Some(0), "{members}");
    assert_eq!(members[0]["addrs"][0], format!("{}:7946", green.ip));
}

#[test]
fn a_restarted_agent_finds_its_group_without_a_seed() {
    let dir = tempfile::tempdir().unwrap();
    let seed = own_ip();
    let data = ["--data-dir", dir.path().to_str().unwrap(), "--set", "members.store_interval=50ms"];
    let red = start("red", seed, None, &[]);
    let mut blue = start("blue", own_ip(), Some(seed), &data);
    wait_for_all(&[&red, &blue]);
    // One operation has read the store; a further one has stored a member.
    wait_until("it has kept whom it knows", || {
        (counter(&blue, "annulus_driver_store_ops_total")? > 1).then_some(())
    });
    blue.json(&["tags", "role=db"]);
    blue.signal("TERM");
    assert_eq!(blue.wait(), Some(0));
    wait_for_state(&[&red], "blue", "left");
    let blue = start("blue", own_ip(), None, &data);
    wait_for_all(&[&red, &blue]);
    wait_until("it still has the tag that it was given", || {
        (red.json(&["members", "--name", "blue"])[0]["tags"]["role"] == "db").then_some(())
    });
}

#[test]
fn a_stopped_process_is_suspected_and_recovers() {
    let agents = group(3);
    let all: Vec<&Agent> = agents.iter().collect();
    wait_for_all(&all);
    agents[2].signal("STOP");
    wait_for_state(&all[..2], "n2", "dead");
    agents[2].signal("CONT");
    wait_for_all(&all);
}

#[test]
fn a_member_that_leaves_is_left_and_never_suspected() {
    let agents = group(3);
    let all: Vec<&Agent> = agents.iter().collect();
    wait_for_all(&all);
    let events = |agent: &Agent| {
        let start = agent.json(&["info"])["started_micros"].as_u64().unwrap();
        format!("{start:x}-0")
    };
    let after = events(all[0]);
    assert!(all[2].stdout(&["leave"]).contains("left the group"));
    wait_for_state(&all[..2], "n2", "left");
    let lines = all[0].stdout(&[
        "monitor",
        "--after",
        &after,
        "--event",
        "member_left",
        "--event",
        "member_suspected",
        "--count",
        "1",
        "--json",
    ]);
    assert!(lines.contains("member_left"), "{lines}");
}

#[test]
fn sigterm_leaves_the_group() {
    let mut agents = group(2);
    wait_for_all(&agents.iter().collect::<Vec<_>>());
    agents[1].signal("TERM");
    assert_eq!(agents[1].wait(), Some(0));
    wait_for_state(&[&agents[0]], "n1", "left");
}

#[test]
fn events_tags_and_round_trip_times_reach_all_members() {
    let agents = group(3);
    let all: Vec<&Agent> = agents.iter().collect();
    wait_for_all(&all);
    let start = all[1].json(&["info"])["started_micros"].as_u64().unwrap();
    all[2].stdout(&["event", "deploy", "version 7"]);
    let after = format!("{start:x}-0");
    let line =
        all[1].stdout(&["monitor", "--after", &after, "--event", "event_received", "--count", "1", "--json"]);
    let event: Value = serde_json::from_str(&line).unwrap();
    assert_eq!((&event["name"], &event["payload"]), (&"deploy".into(), &"version 7".into()));
    assert_eq!(event["from"], all[2].json(&["info"])["id"]);
    all[2].stdout(&["tags", "role=db", "zone=north"]);
    assert_eq!(all[2].json(&["tags", "--remove", "zone"]), serde_json::json!({ "role": "db" }));
    wait_until("the tag is known", || {
        let members = all[0].json(&["members", "--tag", "role=db"]);
        (members[0]["name"] == "n2").then_some(())
    });
    assert_eq!(all[0].json(&["rtt", "n0"])["rtt_ms"], 0.0, "to itself");
    wait_until("the round-trip time is known", || all[0].json(&["rtt", "n1"])["rtt_ms"].as_f64());
}

#[test]
fn groups_of_other_names_are_ignored() {
    let (red, blue) = (own_ip(), own_ip());
    let red = start("red", red, None, &["--set", "members.ring=one"]);
    let blue = start("blue", blue, None, &["--set", "members.ring=two"]);
    let addr = format!("{}:7946", blue.ip);
    let output = run(&["join", &addr, "--agent", &red.http().to_string()]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains("is of another ring") && stderr.contains("members.ring"), "{stderr}");
    assert_eq!(blue.json(&["members"]).as_array().unwrap().len(), 1);
}

/// Hostile packets, and the counter that each increments.
fn hostile(target: Id, other: Id) -> Vec<(&'static str, Vec<u8>)> {
    let header = Header { from: Id::from_uuid([0xee; 16]), sequence: Sequence(1) };
    let (malformed, leaps) = ("annulus_members_malformed_total", "annulus_members_leaps_refused_total");
    let ping = packet(&Message::Ping {
        header,
        to: target,
        local_time: Wall::from_micros(1),
        wants_coordinate: false,
        wants_alive: false,
    });
    // Garbage and oversize.
    let mut all: Vec<_> = [0, 1, 7, 100, 1400, 9000, 60_000].map(|size| (malformed, vec![0xa5; size])).into();
    // Truncated at every length.
    all.extend((0..ping.len()).map(|length| (malformed, ping[..length].to_vec())));
    // An id of another length: eight bytes where sixteen belong.
    let mut short_id = packet(&Message::Suspect { header, id: other, incarnation: Incarnation(0) });
    short_id.drain(30..38);
    short_id[21] -= 8;
    all.push((malformed, short_id));
    let unknown = packet(&Message::Other { header, kind: 200, body: b"from the future" });
    all.push(("annulus_members_unknown_kinds_total", unknown));
    // Numbers that leave no successor, about the agent itself and about another.
    let forged = Incarnation(u32::MAX);
    for id in [target, other] {
        all.push((leaps, packet(&Message::Suspect { header, id, incarnation: forged })));
        all.push((leaps, packet(&Message::Dead { header, id, incarnation: forged })));
        let contents =
            OwnContents::new(&["127.0.0.1:9".parse().expect("an address")], b"").expect("it is small");
        let node = NodeView { id, contents: contents.borrow() };
        all.push((leaps, packet(&Message::Alive { header, node, incarnation: forged })));
    }
    all
}

#[test]
fn hostile_packets_are_counted_and_nothing_else_happens() {
    let agents = group(2);
    let all: Vec<&Agent> = agents.iter().collect();
    wait_for_all(&all);
    let id = |agent: &Agent| agent.json(&["info"])["id"].as_str().unwrap().parse::<Id>().unwrap();
    let seen = || {
        let mut members = all[0].json(&["members"]);
        // A suspected member refutes, so its incarnation may rise; nothing else changes.
        for member in members.as_array_mut().unwrap() {
            (member["rtt_ms"], member["incarnation"]) = (Value::Null, Value::Null);
        }
        members
    };
    let before = seen();
    let socket = std::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    for (name, bytes) in hostile(id(all[0]), id(all[1])) {
        let count = counter(all[0], name).unwrap();
        socket.send_to(&bytes, (all[0].ip, 7946)).unwrap();
        wait_until("it is counted", || (counter(all[0], name)? == count + 1).then_some(()));
    }
    assert_eq!(seen(), before);
    wait_for_all(&all);
}
