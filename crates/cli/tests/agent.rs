//! Agents as a user runs them: the real binary, real sockets, real signals.

mod common;

use std::path::Path;

use common::{Agent, json, stdout, wait_until};
use serde_json::Value;

fn members_addr(agent: &Agent) -> String {
    format!("{}:7946", agent.ip)
}

/// Two agents of one group.
fn pair(services: &str) -> (Agent, Agent) {
    let common = ["--services", services, "--set", "members.preset=local"];
    let red = Agent::start(&[&["--name", "red"], &common[..]].concat());
    let join = members_addr(&red);
    let blue = Agent::start(&[&["--name", "blue", "--join", &join], &common[..]].concat());
    for agent in [&red, &blue] {
        wait_until("both are alive", || {
            let members = agent.json(&["members", "--state", "alive"]);
            (members.as_array()?.len() == 2).then_some(())
        });
    }
    (red, blue)
}

/// Sends events from one agent to the group, and waits until another has the last of them.
fn send_events(from: &Agent, to: &Agent, count: usize) {
    for number in 0..count {
        from.stdout(&["event", "deploy", &number.to_string()]);
    }
    let received = ["monitor", "--event", "event_received", "--after", "0-0", "--json"];
    to.stdout(&[&received[..], &["--count", &count.to_string()]].concat());
}

#[test]
fn an_agent_pings_a_member_through_a_running_service() {
    let (red, blue) = pair("members");
    wait_until("members has measured", || red.json(&["ping", "blue"])["rtt_ms"].as_f64());
    let line = red.stdout(&["ping", "blue"]);
    assert!(line.starts_with("blue is alive; round trip measured by members: "), "{line}");
    assert!(!line.contains('\x1b'), "no colours where nobody sees them");
    assert_eq!(blue.json(&["ping", "blue"])["via"], "members", "a node does not route to itself");
    let (red, _blue) = pair("members,route");
    wait_until("route has joined", || {
        let line = red.stdout(&["ping", "blue", "--count", "2"]);
        (line.matches("blue answered over route: ").count() == 2).then_some(())
    });
    assert_eq!(red.json(&["ping", "blue"])["hops"], 1);
}

#[test]
fn info_shows_the_identity_of_the_agent() {
    let agent = Agent::start(&["--name", "red"]);
    let info = agent.json(&["info"]);
    assert_eq!(info["name"], "red");
    let (id, nid) = (info["id"].as_str().unwrap(), info["nid"].as_str().unwrap());
    assert_eq!((id.len(), nid.len(), &nid[..32]), (32, 64, id));
    assert_eq!(info["services"][0]["name"], "members");
    assert_eq!(info["services"][0]["addresses"][0]["addr"], members_addr(&agent));
    assert_eq!(info["version"], env!("CARGO_PKG_VERSION"));
    assert!(info["uptime_seconds"].as_f64().unwrap() >= 0.0);
    assert!(agent.stdout(&["info"]).contains(nid));
}

#[test]
fn monitor_shows_events_as_they_happen() {
    let (red, blue) = pair("members");
    send_events(&blue, &red, 2);
    let wanted = ["monitor", "--count", "2", "--event", "event_received", "--after", "0-0", "--json"];
    let lines = red.stdout(&wanted);
    let events: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(events.len(), 2);
    for event in &events {
        assert_eq!((&event["v"], &event["node"]), (&1.into(), &"red".into()));
        assert_eq!((&event["protocol"], &event["name"]), (&"members".into(), &"deploy".into()));
        assert_eq!(event["from"], blue.json(&["info"])["id"]);
    }
    assert!(events[0]["seq"].as_u64() < events[1]["seq"].as_u64());
}

#[test]
fn a_client_that_reconnects_misses_nothing() {
    let (red, blue) = pair("members");
    send_events(&blue, &red, 3);
    let start = red.json(&["info"])["started_micros"].as_u64().unwrap();
    let after = format!("{start:x}-0");
    let lines = red.stdout(&["monitor", "--count", "3", "--after", &after, "--json"]);
    let seqs: Vec<u64> = lines
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["seq"].as_u64().unwrap())
        .collect();
    assert_eq!(seqs, [1, 2, 3]);
}

#[test]
fn a_client_that_was_away_too_long_gets_a_gap_line() {
    let red = Agent::start(&["--set", "members.preset=local", "--set", "http.events_kept=2"]);
    let join = members_addr(&red);
    let blue = Agent::start(&["--set", "members.preset=local", "--join", &join]);
    wait_until("both are alive", || (red.json(&["members"]).as_array()?.len() == 2).then_some(()));
    let start = red.json(&["info"])["started_micros"].as_u64().unwrap();
    for number in 0..4 {
        blue.stdout(&["event", "deploy", &number.to_string()]);
    }
    let text = wait_until("the first events are gone", || {
        let text = red.stdout(&["monitor", "--count", "1", "--after", &format!("{start:x}-1")]);
        text.contains("events are gone").then_some(text)
    });
    assert!(text.contains("events are gone"), "{text}");
}

#[test]
fn metrics_are_prometheus_text() {
    let (red, blue) = pair("members");
    wait_until("a probe was answered", || {
        let (status, text) = red.request("GET", "/metrics", &[], "");
        assert_eq!(status, 200);
        let answered = text.lines().find(|line| line.starts_with("annulus_members_pings_answered_total "))?;
        (answered.split(' ').nth(1)? != "0").then_some(())
    });
    let (_, text) = blue.request("GET", "/metrics", &[], "");
    for line in text.lines().filter(|line| line.starts_with("annulus_") || line.starts_with("process_")) {
        let name = line.split(['{', ' ']).next().unwrap();
        assert!(text.contains(&format!("# HELP {name} ")), "{name}");
        assert!(text.contains(&format!("# TYPE {name} ")), "{name}");
    }
}

#[test]
fn the_description_of_the_api_is_true() {
    let (red, _blue) = pair("members");
    let (status, body) = red.request("GET", "/v1/openapi.json", &[], "");
    assert_eq!(status, 200);
    let description: Value = serde_json::from_str(&body).unwrap();
    let paths = description["paths"].as_object().unwrap();
    let routes: Vec<&str> = paths.keys().map(String::as_str).collect();
    for route in [
        "/v1/info",
        "/v1/events",
        "/metrics",
        "/v1/members",
        "/v1/join",
        "/v1/route/{key}",
        "/v1/messages",
        "/v1/tables",
        "/v1/mesh",
    ] {
        assert!(routes.contains(&route), "{routes:?}");
    }
    // Every GET it describes answers with a status and a content type that it describes.
    for (path, methods) in
        paths.iter().filter(|(path, methods)| methods["get"].is_object() && *path != "/v1/events")
    {
        let (status, body) = red.request("GET", path, &[], "");
        let described = &methods["get"]["responses"][status.to_string()];
        assert!(described.is_object(), "{path} answers {status}: {body}");
        if let Some(schema) = described["content"]["application/json"]["schema"].as_object() {
            assert_shape(&description, &Value::Object(schema.clone()), &serde_json::from_str(&body).unwrap());
        }
    }
    let json = ["Content-Type: application/json"];
    let (status, body) = red.request("POST", "/v1/events", &json, "{\"name\":\"deploy\"}");
    assert_eq!(status, 200, "{body}");
    let schema = &paths["/v1/events"]["post"]["responses"]["200"]["content"]["application/json"]["schema"];
    assert_shape(&description, schema, &serde_json::from_str(&body).unwrap());
}

/// Holds that a value has just the properties that its schema has.
fn assert_shape(description: &Value, schema: &Value, value: &Value) {
    if let Some(name) = schema["$ref"].as_str().and_then(|name| name.rsplit('/').next()) {
        return assert_shape(description, &description["components"]["schemas"][name], value);
    }
    match value {
        Value::Object(fields) if schema["additionalProperties"].is_object() => {
            fields
                .values()
                .for_each(|value| assert_shape(description, &schema["additionalProperties"], value));
        }
        Value::Object(fields) => {
            let properties = schema["properties"].as_object().expect("an object has described properties");
            for (name, value) in fields {
                assert_shape(
                    description,
                    properties.get(name).unwrap_or_else(|| panic!("{name} is not described")),
                    value,
                );
            }
            for name in schema["required"].as_array().into_iter().flatten() {
                assert!(
                    fields.contains_key(name.as_str().expect("a name is text")),
                    "{name} is required and missing"
                );
            }
        }
        Value::Array(items) => {
            items.iter().for_each(|item| assert_shape(description, &schema["items"], item));
        }
        _ => assert!(!schema["properties"].is_object(), "a described object is none: {value}"),
    }
}

fn files(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).expect("it is a directory");
    let mut names: Vec<String> =
        entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

#[test]
fn sigterm_leaves_cleanly_and_the_identity_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let args = ["--data-dir", data.to_str().unwrap()];
    let mut ids = Vec::new();
    for signal in ["TERM", "INT", "KILL", "TERM"] {
        let mut agent = Agent::start(&args);
        ids.push(agent.json(&["info"])["id"].clone());
        agent.signal(signal);
        let code = agent.wait();
        assert_eq!(code, if signal == "KILL" { None } else { Some(0) }, "{signal}");
    }
    assert!(ids.iter().all(|id| *id == ids[0]), "{ids:?}");
    assert_eq!(files(&data), ["identity", "lock", "messages.redb", "store.redb"]);
}

#[test]
fn config_show_tells_where_each_value_came_from() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("a.toml");
    let path = file.to_str().unwrap();
    stdout(&["config", "init", path]);
    std::fs::write(&file, "[members]\ninterval = \"3s\"\n").unwrap();
    let shown = json(&[
        "config",
        "show",
        "--json",
        "--config",
        path,
        "--name",
        "red",
        "--set",
        "members.probe_timeout=100ms",
    ]);
    let find = |name: &str| shown.as_array().unwrap().iter().find(|row| row["key"] == name).unwrap().clone();
    assert_eq!(find("members.interval")["source"], path);
    assert_eq!(find("members.probe_timeout")["source"], "--set members.probe_timeout");
    assert_eq!(find("node.name")["source"], "--name");
    assert_eq!(find("members.port")["source"], "default");
}

#[test]
fn a_fresh_config_file_starts_an_agent() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("a.toml");
    stdout(&["config", "init", file.to_str().unwrap()]);
    let agent = Agent::start(&["--config", file.to_str().unwrap()]);
    assert_eq!(agent.json(&["info"])["services"][0]["name"], "members");
}

#[test]
fn a_token_opens_an_agent_beyond_loopback() {
    let mut agent = Agent::start(&["--set", "http.token=secret", "--http", "0.0.0.0:0"]);
    agent.signal("TERM");
    agent.wait_for_log("agent stopped");
    assert_eq!(agent.wait(), Some(0));
}

#[test]
fn stand_alone_verbs_need_no_agent() {
    assert_eq!(json(&["decode", "ping", "01:01 0000000000000007", "--json"])["sequence"], 7);
    assert_eq!(json(&["version", "--json"])["version"], env!("CARGO_PKG_VERSION"));
    for shell in ["bash", "zsh", "fish"] {
        assert!(stdout(&["completions", shell]).contains("annulus"));
    }
    for verb in [
        "agent",
        "info",
        "monitor",
        "members",
        "join",
        "leave",
        "force-leave",
        "event",
        "tags",
        "rtt",
        "token",
        "token run",
        "token set",
        "token get",
        "token graph",
        "token watch",
        "route",
        "send",
        "ask",
        "listen",
        "ring",
        "tables",
        "mesh",
        "mesh send",
        "mesh inbox",
        "mesh outbox",
        "mesh read",
        "mesh get",
        "mesh files",
        "mesh peers",
        "mesh known",
        "mesh gc",
        "mesh status",
        "ping",
        "config show",
        "config init",
        "demo",
        "replay",
        "sim ping",
        "decode",
        "completions",
        "version",
    ] {
        let args: Vec<&str> = verb.split(' ').chain(["--help"]).collect();
        assert!(stdout(&args).contains("Example"), "{verb} --help shows an example");
    }
}
