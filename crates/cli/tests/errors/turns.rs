//! The errors of exclusive turns.

use super::*;
use crate::common::wait_until;

/// The texts of the command line that a test here provokes.
pub(super) const PROVOKED: &[&str] = &[
    "this agent has no voters",
    "has the name with fence …",
    "voters granted or answered, … are needed",
    "a new group does not know the turns of the old one",
    "this agent is not one of token.voters",
    "this ring has voters of exclusive turns, so it grants no weak ones",
    "the turn was lost …: the command was stopped",
    "the guard was killed, and the command with it",
    "the limit of the turn is over: the command was stopped",
    "the guard is started by …",
    "token.voters names …",
];

/// The codes of the API.
pub(super) const CODES: &[&str] = &[
    "no_voters",
    "bad_turn",
    "not_free",
    "withdrawn",
    "too_many_turns",
    "turn_lost",
    "no_majority",
    "not_ended",
    "not_a_voter",
    "voters_exist",
];

const JSON: &str = "Content-Type: application/json";

/// An agent that is the one voter of its group.
fn voter(services: &str) -> Agent {
    let ip = own_ip();
    let (voters, port) = (format!("token.voters={ip}"), format!("token.udp_port={}", own_udp_port()));
    let args = ["--services", services, "--set", &voters, "--set", &port, "--set", "token.preset=local"];
    let agent = Agent::start_on(ip, &[&args[..], &["--set", "turns.lease=2s"]].concat());
    wait_until("it votes", || (agent.json(&["voters"])["standing"] == "voting").then_some(()));
    agent
}

fn wish(name: &str, turn: char, wait_ms: u64) -> String {
    let turn = turn.to_string().repeat(32);
    format!("{{\"name\":\"{name}\",\"turn\":\"{turn}\",\"wait_ms\":{wait_ms},\"limit_ms\":60000}}")
}

#[test]
fn an_unavailable_turn_gives_the_reason() {
    let agent = voter("");
    let ask = |body: &str| agent.request("POST", "/v1/turns", &[JSON], body);
    let (status, text) = ask("{\"name\":\"a\",\"turn\":\"7\",\"wait_ms\":0,\"limit_ms\":1}");
    assert_api_error(status, &text, 400, "bad_turn");
    assert_eq!(ask(&wish("a", '1', 0)).0, 200);
    let (status, text) = ask(&wish("a", '2', 0));
    assert_api_error(status, &text, 409, "not_free");
    let (status, text) = ask(&wish("b", '1', 0));
    assert_api_error(status, &text, 409, "too_many_turns");
    let http = agent.http().to_string();
    let lock = ["lock", "a", "--try", "--agent", &http, "--", "true"];
    assert_fails(&lock, "has the name with fence …", 1);
    std::thread::scope(|scope| {
        let first = scope.spawn(|| ask(&wish("a", '3', 60_000)));
        wait_until("the wish waits", || {
            let turns = agent.request("GET", "/v1/turns", &[], "").1;
            turns.contains(&"3".repeat(32)).then_some(())
        });
        let again = scope.spawn(|| ask(&wish("a", '3', 60_000)));
        let (status, text) = first.join().expect("it is answered");
        assert_api_error(status, &text, 409, "withdrawn");
        let path = format!("/v1/turns/{}", "1".repeat(32));
        assert_eq!(agent.request("DELETE", &path, &[JSON], "").0, 200);
        assert_eq!(again.join().expect("it is answered").0, 200, "the turn comes when it is free");
    });
    let limited = ["lock", "limited", "--limit", "100ms", "--agent", &http, "--", "sleep", "600"];
    assert_fails(&limited, "the limit of the turn is over: the command was stopped", 75);
    let (status, text) = agent.request("GET", &format!("/v1/turns/{}", "9".repeat(32)), &[], "");
    assert_api_error(status, &text, 410, "turn_lost");
    let (status, text) = agent.request("POST", "/v1/voters/refound", &[JSON], "{\"ended_everywhere\":false}");
    assert_api_error(status, &text, 409, "not_ended");
    let refound = ["voters", "refound", "--agent", &http];
    assert_fails(&refound, "a new group does not know the turns of the old one", 2);
}

#[test]
fn an_agent_without_voters_or_without_a_majority_gives_an_error() {
    let idle = Agent::start(&["--services", ""]);
    let (status, text) = idle.request("GET", "/v1/voters", &[], "");
    assert_api_error(status, &text, 404, "no_voters");
    let http = idle.http().to_string();
    assert_fails(&["lock", "a", "--agent", &http, "--", "true"], "this agent has no voters", 1);
    assert_fails(&["voters", "--agent", &http], "this agent has no voters", 1);
    let nobody = format!("token.voters={},{},{}", own_ip(), own_ip(), own_ip());
    let alone = Agent::start(&["--services", "", "--set", &nobody]);
    let (status, text) = alone.request("POST", "/v1/turns", &[JSON], &wish("a", '1', 0));
    assert_api_error(status, &text, 503, "no_majority");
    let (status, text) = alone.request("POST", "/v1/voters/renew", &[JSON], "{}");
    assert_api_error(status, &text, 409, "not_a_voter");
    let http = alone.http().to_string();
    let lock = ["lock", "a", "--try", "--agent", &http, "--", "true"];
    assert_fails(&lock, "voters granted or answered, … are needed", 69);
    assert_fails(&["voters", "renew", "--agent", &http], "this agent is not one of token.voters", 1);
    let eight = (0..8).map(|_| own_ip().to_string()).collect::<Vec<_>>().join(",");
    agent_fails(&["--set", &format!("token.voters={eight}")], "token.voters names …", 2);
    assert_fails(&["guard", "nobody", "--", "true"], "the guard is started by …", 1);
}

#[test]
fn a_ring_with_voters_grants_no_weak_turn() {
    let agent = voter("token");
    wait_until("the ring knows of the voters", || agent.json(&["token"])["voters"].is_string().then_some(()));
    assert_eq!(agent.json(&["token"])["guarantee"], "exclusive");
    for path in ["/v1/token/hold", "/v1/token/turn"] {
        let (status, text) = agent.request("POST", path, &[JSON], "{\"limit_ms\":1000}");
        assert_api_error(status, &text, 409, "voters_exist");
        assert!(
            text.contains("this ring has voters of exclusive turns, so it grants no weak ones"),
            "{text}"
        );
    }
    let http = agent.http().to_string();
    let fence = common::stdout(&["token", "run", "--agent", &http, "--", "sh", "-c", "echo $ANNULUS_FENCE"]);
    assert!(fence.trim().parse::<u64>().is_ok_and(|fence| fence > 1_700_000_000_000_000), "{fence}");
}

#[test]
fn a_command_that_loses_its_turn_gives_an_error() {
    let agent = voter("");
    let http = agent.http().to_string();
    let dir = tempfile::tempdir().unwrap();
    for (name, lost) in [
        ("stopped", "the turn was lost …: the command was stopped"),
        ("guard", "the guard was killed, and the command with it"),
    ] {
        let file = dir.path().join(name);
        let script = format!("echo $PPID > {0}.new; mv {0}.new {0}; exec sleep 600", file.display());
        let lock = annulus(&["lock", name, "--agent", &http, "--", "sh", "-c", &script])
            .stderr(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let guard = wait_until("the command runs", || std::fs::read_to_string(&file).ok());
        if name == "guard" {
            Command::new("kill").args(["-KILL", guard.trim()]).status().unwrap();
        } else {
            let turns: serde_json::Value =
                serde_json::from_str(&agent.request("GET", "/v1/turns", &[], "").1).unwrap();
            let path = format!("/v1/turns/{}", turns["turns"][0]["turn"].as_str().unwrap());
            assert_eq!(agent.request("DELETE", &path, &[JSON], "").0, 200);
        }
        assert_error(&lock.wait_with_output().unwrap(), lost, 75);
    }
}
