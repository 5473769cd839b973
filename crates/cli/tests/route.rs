//! `route` as a user runs it: real agents that join a ring, own keys and pass messages to their owners.

mod common;

use std::io::Write as _;
use std::net::{IpAddr, TcpListener, TcpStream, UdpSocket};
use std::os::unix::ffi::OsStrExt as _;

use annulus::core::Id;
use base64::prelude::{BASE64_STANDARD, Engine as _};
use common::tables::{id, leaves};
use common::{Agent, annulus, own_ip, wait_until};
use serde_json::Value;

/// Timers short enough for a test.
const QUICK: [&str; 4] = ["--set", "route.leaf_interval=300ms", "--set", "route.network_timeout=1s"];

fn start(ip: IpAddr, seed: Option<IpAddr>) -> Agent {
    let seeds = seed.map(|seed| format!("route.seeds={seed}:22001"));
    let mut args = vec!["--services", "route"];
    args.extend(QUICK);
    args.extend(seeds.iter().flat_map(|seeds| ["--set", seeds]));
    Agent::start_on(ip, &args)
}

/// A ring of `size` agents that join through the first, once all of them know each other.
fn ring(size: usize) -> Vec<Agent> {
    let ips: Vec<IpAddr> = (0..size).map(|_| own_ip()).collect();
    let agents: Vec<Agent> =
        ips.iter().enumerate().map(|(index, ip)| start(*ip, (index > 0).then_some(ips[0]))).collect();
    for agent in &agents {
        wait_until("everybody has everybody as a leaf", || {
            let tables = agent.json(&["tables"]);
            (tables["active"] == true && leaves(&tables).len() == size - 1).then_some(())
        });
    }
    agents
}

/// The agent that is to own a key, by the definition.
fn owner_of<'a>(key: &str, agents: &[&'a Agent]) -> &'a Agent {
    let ids: Vec<Id> = agents.iter().map(|agent| id(agent)).collect();
    let owner = Id::from_text(key).closest(ids.iter().copied()).expect("there are agents");
    agents[ids.iter().position(|id| *id == owner).expect("it is one of them")]
}

/// How often a message with this payload was delivered at an agent.
fn delivered(agent: &Agent, payload_base64: &str) -> usize {
    let (status, text) = agent.request("GET", "/v1/messages", &[], "");
    assert_eq!(status, 200, "{text}");
    let messages: Value = serde_json::from_str(&text).expect("it answers JSON");
    let messages = messages.as_array().expect("it answers a list");
    messages.iter().filter(|message| message["payload_base64"] == payload_base64).count()
}

#[test]
fn every_agent_names_the_closest_as_the_owner() {
    let agents = ring(5);
    let all: Vec<&Agent> = agents.iter().collect();
    for key in ["red", "green", "blue/1", "ü and a space", ""] {
        let owner = id(owner_of(key, &all)).to_string();
        for agent in &all {
            let route = agent.json(&["route", key]);
            assert_eq!(
                (&route["owner"], &route["key"]),
                (&owner.as_str().into(), &Id::from_text(key).to_string().into())
            );
            let path = route["path"].as_array().unwrap();
            assert_eq!(path[0]["id"], id(agent).to_string(), "it begins here: {route}");
            assert_eq!(path[path.len() - 1]["id"], owner, "it ends at the owner: {route}");
        }
    }
    let own = id(all[2]).to_string();
    assert_eq!(all[0].json(&["route", &own])["owner"], own, "an id is a key");
}

#[test]
fn messages_and_questions_arrive_at_the_owner_once() {
    let agents = ring(4);
    let all: Vec<&Agent> = agents.iter().collect();
    let owner = owner_of("colour", &all);
    for (agent, letter) in all.iter().zip(["a", "b", "c", "d"]) {
        let answer = agent.json(&["send", "colour", letter]);
        assert_eq!(answer["delivered_to"], id(owner).to_string());
        assert!(answer["hops"].as_u64().unwrap() <= 3, "{answer}");
    }
    for payload in ["YQ==", "Yg==", "Yw==", "ZA=="] {
        for agent in &all {
            let expected = usize::from(id(agent) == id(owner));
            assert_eq!(delivered(agent, payload), expected);
        }
    }
    let http = owner.http().to_string();
    let listen = ["listen", "--answer", "blue", "--count", "5", "--after", "0-0", "--agent", &http];
    let listener = annulus(&listen).stdout(std::process::Stdio::piped()).spawn().unwrap();
    assert_eq!(all[1].stdout(&["ask", "colour", "which?"]).trim(), "blue");
    let output = listener.wait_with_output().unwrap();
    let heard = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && heard.lines().count() == 5, "{heard}");
    assert!(heard.contains("asks: which?"), "{heard}");
    assert_eq!(delivered(owner, "d2hpY2g/"), 1);
}

/// With the defaults, from a file; and any bytes from standard input and as an argument.
#[test]
fn a_message_of_sixteen_mebibytes_arrives_whole() {
    let agents = ring(2);
    let to = id(&agents[1]).to_string();
    let http = agents[0].http().to_string();
    let payload: Vec<u8> =
        (0..16u32 << 18).flat_map(|number| number.wrapping_mul(2_654_435_761).to_be_bytes()).collect();
    assert_eq!(payload.len(), 16 << 20);
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), &payload).unwrap();
    agents[0].stdout(&["send", &to, "--file", file.path().to_str().unwrap()]);
    let short = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(short.path(), b"\xff\xfd").unwrap();
    for args in [&["send", &to, "--agent", &http][..], &["send", &to, "-", "--agent", &http]] {
        let stdin = std::fs::File::open(short.path()).unwrap();
        let output = annulus(args).stdin(stdin).output().unwrap();
        assert!(output.status.success(), "{output:?}");
    }
    // An argument may be any bytes.
    let mut odd = annulus(&["send", &to, "--agent", &http]);
    let output = odd.arg(std::ffi::OsStr::from_bytes(b"\xff\xfe")).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(delivered(&agents[1], "//4="), 1);
    assert_eq!(delivered(&agents[1], &BASE64_STANDARD.encode(&payload)), 1);
    assert_eq!(delivered(&agents[1], "//0="), 2);
}

#[test]
fn the_next_closest_owns_the_keys_of_a_killed_agent() {
    let mut agents = ring(4);
    let owner = id(owner_of("treasure", &agents.iter().collect::<Vec<_>>()));
    let index = agents.iter().position(|agent| id(agent) == owner).unwrap();
    let mut killed = agents.remove(index);
    killed.signal("KILL");
    killed.wait();
    let left: Vec<&Agent> = agents.iter().collect();
    let heir = id(owner_of("treasure", &left)).to_string();
    for agent in &left {
        wait_until("the owner has moved", || {
            let (status, text) = agent.request("GET", "/v1/route/treasure", &[], "");
            let route: Value = serde_json::from_str(&text).ok()?;
            (status == 200 && route["owner"] == heir.as_str()).then_some(())
        });
        assert_eq!(agent.json(&["send", "treasure", "x"])["delivered_to"], heir);
    }
}

/// A node that is bound to every address is in the ring with the one that it advertises.
#[test]
fn a_node_on_all_addresses_is_reached_at_its_advertised_one() {
    let ip = own_ip();
    let port = TcpListener::bind(("0.0.0.0", 0)).unwrap().local_addr().unwrap().port();
    let (http, at) = (format!("{ip}:7373"), format!("{ip}:{port}"));
    let mut everywhere = annulus(&["agent", "--bind", "0.0.0.0", "--http", &http, "--services", "route"]);
    everywhere.args(QUICK).args(["--set", &format!("route.port={port}")]);
    everywhere.args(["--set", &format!("route.advertise={at}")]).stderr(std::process::Stdio::piped());
    let mut everywhere = Agent::adopt(ip, everywhere.spawn().unwrap());
    everywhere.wait_for_log("agent started");
    let seeds = format!("route.seeds={at}");
    let other = Agent::start(&[&["--services", "route", "--set", &seeds][..], &QUICK].concat());
    let route = other.json(&["route", &id(&everywhere).to_string()]);
    assert_eq!(route["path"][1]["addr"], at.as_str(), "{route}");
    assert_eq!(
        everywhere.json(&["send", &id(&other).to_string(), "x"])["delivered_to"],
        id(&other).to_string()
    );
}

#[test]
fn garbage_is_counted_and_the_ring_goes_on() {
    let agents = ring(2);
    let addr = format!("{}:22001", agents[0].ip);
    for garbage in [&b"GET / HTTP/1.1\r\n\r\n"[..], b"\xff\xff\xff\xff\xff\xff\xff\xff"] {
        TcpStream::connect(&addr).unwrap().write_all(garbage).unwrap();
    }
    let socket = UdpSocket::bind((own_ip(), 0)).unwrap();
    for garbage in [&b"\xff"[..], b"hello, is there anybody?"] {
        socket.send_to(garbage, &addr).unwrap();
    }
    wait_until("it is counted", || {
        let (_, text) = agents[0].request("GET", "/metrics", &[], "");
        let line = text.lines().find(|line| line.starts_with("annulus_route_malformed_total "))?;
        (line.split(' ').nth(1)?.parse::<u64>().ok()? >= 4).then_some(())
    });
    agents[1].stdout(&["send", &id(&agents[0]).to_string(), "still here"]);
}

#[test]
fn the_verbs_print_readable_text() {
    let agents = ring(3);
    let own = id(&agents[0]).to_string();
    let route = agents[0].stdout(&["route", "red"]);
    assert!(route.contains("owner") && route.contains("HOP"), "{route}");
    assert!(agents[0].stdout(&["send", "red", "hello"]).starts_with("kept by "));
    let tables = agents[0].stdout(&["tables"]);
    let short = format!("({})", &own[..8]);
    assert!(tables.contains(&short) && tables.contains("leaves") && tables.contains("routing"), "{tables}");
    let ring = agents[0].stdout(&["ring"]);
    assert!(ring.contains('@') && ring.contains("o leaves     2") && ring.contains(&own[..8]), "{ring}");
}

/// A message that was reported as kept is there once after kill -9; a read message is not shown again.
#[test]
fn unread_messages_survive_a_kill_and_a_full_mailbox_takes_no_more() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().to_str().unwrap();
    let args = ["--services", "route", "--data-dir", path, "--set", "route.messages_kept=3"];
    let short = ["--set", "route.message_timeout=1s"];
    let ip = own_ip();
    let mut agent = Agent::start_on(ip, &[&args[..], &short].concat());
    for text in ["a", "b", "c"] {
        assert_eq!(agent.json(&["send", "red", text])["state"], "kept");
    }
    let (status, text) = agent.request(
        "POST",
        "/v1/messages",
        &["Content-Type: application/json"],
        r#"{"key":"red","payload_base64":"ZA=="}"#,
    );
    assert_eq!(status, 502, "there is no room: {text}");
    agent.signal("KILL");
    agent.wait();
    let agent = Agent::start_on(ip, &[&args[..], &short].concat());
    assert_eq!([delivered(&agent, "YQ=="), delivered(&agent, "Yg=="), delivered(&agent, "ZA==")], [1, 1, 0]);
    let heard = agent.stdout(&["listen", "--count", "2"]);
    assert!(heard.contains(": a") && heard.contains(": b"), "{heard}");
    let info = agent.json(&["info"]);
    let from = format!("from {} ({})", info["name"].as_str().unwrap(), &info["id"].as_str().unwrap()[..8]);
    assert!(heard.contains(&from), "the sender of an unread message has its name: {heard}");
    let left = agent.stdout(&["listen", "--count", "1"]);
    assert!(left.contains(": c"), "the others were read: {left}");
    assert_eq!(agent.json(&["send", "red", "e"])["state"], "kept", "there is room again");
}
