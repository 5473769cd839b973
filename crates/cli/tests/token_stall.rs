//! Agents that are paused while they hold the token, values that wait for it, and reports of clones.

mod common;

use std::process::Stdio;

use common::ring::{metric, ring, ring_with, token, wait_for_ring};
use common::{Agent, annulus, wait_until};

const JSON: &str = "Content-Type: application/json";

fn hold(agent: &Agent) -> (u64, u64) {
    let (status, text) = agent.request("POST", "/v1/token/hold", &[JSON], "{\"limit_ms\":3600000}");
    assert_eq!(status, 200, "{text}");
    let held: serde_json::Value = serde_json::from_str(&text).expect("it is JSON");
    let number = |key: &str| held[key].as_u64().expect("a number");
    (number("hold"), number("fence"))
}

fn release(agent: &Agent, hold: u64) -> u16 {
    agent.request("POST", "/v1/token/release", &[JSON], &format!("{{\"hold\":{hold}}}")).0
}

fn fence_of_a_turn(agent: &Agent) -> u64 {
    let http = agent.http().to_string();
    let text = common::stdout(&["token", "run", "--agent", &http, "--", "sh", "-c", "echo $ANNULUS_FENCE"]);
    text.trim().parse().expect("a number")
}

#[test]
fn a_paused_holder_gets_an_event_and_the_ring_has_gone_on() {
    let mut agents = ring(3);
    wait_for_ring(&agents.iter().collect::<Vec<_>>());
    let (stale, fence) = hold(&agents[0]);
    let http = agents[0].http().to_string();
    agents[0].signal("STOP");
    let after = fence_of_a_turn(&agents[1]);
    assert!(after > fence, "{after} is above {fence}");
    agents[0].signal("CONT");
    agents[0].wait_for_log("this agent was paused");
    assert_eq!(metric(&agents[0], "annulus_token_stalls_total"), 1);
    assert_eq!(release(&agents[0], stale), 409, "that hold is over");
    // It is one of the ring again, and its next turn has a number above all.
    let again = fence_of_a_turn(&agents[0]);
    assert!(again > after, "{again} is above {after}");
    // A command of a paused agent is stopped before the agent wakes.
    let run = annulus(&[
        "token",
        "run",
        "--limit",
        "1h",
        "--agent",
        &http,
        "--",
        "sh",
        "-c",
        "echo; exec sleep 600",
    ])
    .stdout(Stdio::piped())
    .stderr(Stdio::piped())
    .spawn()
    .unwrap();
    wait_until("the command runs", || {
        token(&agents[0])["state"].as_str().filter(|state| *state == "leader").map(drop)
    });
    let mut run = run;
    std::io::Read::read_exact(&mut run.stdout.take().unwrap(), &mut [0]).unwrap();
    agents[0].signal("STOP");
    let output = run.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(75) && said.contains("the agent has said nothing for"), "{said}");
    agents[0].signal("CONT");
}

#[test]
fn a_value_is_set_when_the_token_has_it_and_not_before() {
    let dir = tempfile::tempdir().unwrap();
    let mut agents = ring_with(1, &["--data-dir", dir.path().to_str().unwrap()]);
    let agent = &agents[0];
    wait_until("it leads", || (token(agent)["state"] == "leader").then_some(()));
    let (first, _) = hold(agent);
    let set = ["token", "set", "door", "open", "--wait", "100ms", "--agent", &agent.http().to_string()];
    assert_eq!(annulus(&set).output().unwrap().status.code(), Some(1));
    assert_eq!(release(agent, first), 200);
    agent.stdout(&["token", "set", "colour", "red"]);
    // As soon as it is answered the value is there; a value that was withdrawn is not.
    assert_eq!(agent.stdout(&["token", "get"]), "colour = \"red\"\n");
    agent.stdout(&["token", "set", "size", "123456789012345678901234567890"]);
    assert_eq!(agent.stdout(&["token", "get", "size"]), "123456789012345678901234567890\n");
    assert_eq!(agent.stdout(&["token", "set", "colour", "null"]), "colour is unset\n");
    agents[0].signal("TERM");
    agents[0].wait();
    let args =
        ["--services", "token", "--set", "token.preset=local", "--data-dir", dir.path().to_str().unwrap()];
    let port = format!("token.udp_port={}", common::own_udp_port());
    let agent = Agent::start(&[&args[..], &["--set", &port]].concat());
    assert_eq!(agent.stdout(&["token", "get"]), "size = 123456789012345678901234567890\n", "and it stays so");
    assert_eq!(agent.json(&["token", "get"])["size"]["value"].as_f64(), Some(1.234_567_890_123_456_8e29));
}

#[test]
fn the_holder_and_the_tenures_are_shown() {
    let agents = ring(2);
    wait_for_ring(&agents.iter().collect::<Vec<_>>());
    let (held, _) = hold(&agents[0]);
    let own = token(&agents[0])["host_id"].clone();
    let shown = token(&agents[0]);
    assert_eq!((&shown["state"], &shown["holder"]), (&"leader".into(), &own));
    // The other one passed it to the holder, and no other node has had it since.
    assert_eq!(token(&agents[1])["holder"], own);
    let text = agents[0].stdout(&["token"]);
    assert!(text.contains(&format!("holder        {own} (this)")) && !text.contains("null"), "{text}");
    let text = agents[1].stdout(&["token"]);
    assert!(text.contains(&format!("holder        {own} (when last heard of)")), "{text}");
    let tenures = |node: &serde_json::Value| node["tenures"].as_u64().is_some_and(|tenures| tenures > 0);
    assert!(shown["nodes"].as_array().unwrap().iter().all(tenures), "{shown}");
    assert_eq!(release(&agents[0], held), 200);
}

#[test]
fn a_clone_is_reported_in_the_log() {
    let mut agents = ring_with(2, &["--set", "token.host_id=77"]);
    for agent in &mut agents {
        let line = agent.wait_for_log("another node uses our token.host_id");
        assert!(line.contains("WARN") && line.contains("give each its own"), "{line}");
    }
}
