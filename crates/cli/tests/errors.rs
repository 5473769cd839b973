//! Every error of `docs/errors.md`, provoked with the real binary, and nothing in the list that is not provoked.

mod common;
#[path = "errors/mesh.rs"]
mod mesh;
#[path = "errors/route.rs"]
mod route;
#[path = "errors/token.rs"]
mod token;
#[path = "errors/turns.rs"]
mod turns;

use std::collections::BTreeSet;
use std::io::Write as _;
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

use common::{Agent, annulus, own_ip, own_udp_port, run};

const LIST: &str = include_str!("../../../docs/errors.md");

/// The texts of the command line that a test below provokes. The list and this must be the same.
const PROVOKED: &[&str] = &[
    "unexpected argument … found",
    "unknown key … in …: did you mean …",
    "… = … in …: give …",
    "… = … in …: use only …",
    "invalid value … for …",
    "write it as section.key=VALUE",
    "cannot read the configuration file …",
    "is no text in UTF-8",
    "stands outside a section",
    "is not a hexadecimal digit",
    "one is missing",
    "bytes are no message of …",
    "the page of the demo on … would be open to everybody",
    "cannot read the script …",
    "the page of the replay on … would be open to everybody",
    "cannot read the trace …; check the path",
    "is of no trace: record one with …",
    "cannot write …; choose another file",
    "cannot write …; choose another file, or add --force",
    "another process uses …: stop it or choose another port",
    "cannot listen for HTTP on …",
    "is not an address of this machine",
    "no permission to use …",
    "cannot make the data directory …",
    "cannot write to the data directory …",
    "another agent uses the data directory …",
    "holds no UUID",
    "cannot open the store …",
    "would be open to everybody: set http.token",
    "no agent answers at …",
    "is it one of annulus",
    "this agent wants a token",
    "does not answer: members reports it as …",
    "this agent does not run members",
    "none of the addresses answered",
    "is no address of a node: give IP:PORT or NAME:PORT",
    "no member is called …",
    "is no tag: give KEY=VALUE",
    "is no name of an event: give 1 to 255 bytes without control characters",
    "is this agent itself",
    "others cannot reach members at …",
    "members.interval: the probe interval is …: it must be at least 1ms",
    "has a control character in it",
    "is for members, which this agent does not run",
    "the agent has ended the stream",
];

/// The codes of the API that a test below provokes.
const CODES: &[&str] = &[
    "unauthorized",
    "wrong_host",
    "cross_site",
    "wrong_content_type",
    "body_too_large",
    "bad_body",
    "no_such_route",
    "wrong_method",
    "no_such_service",
    "bad_query",
    "nothing_to_join",
    "nobody_answered",
    "wrong_ring",
    "no_such_member",
    "bad_name",
    "event_too_large",
    "bad_tag",
    "has_left",
    "tags_not_kept",
    "tags_too_large",
    "own_member",
    "too_many_clients",
];

/// Codes that no test can provoke reliably: a full queue, a failing disk, a stopping agent, a bug.
const MOMENTS: &[&str] = &[
    "too_many_events",
    "broadcast_timeout",
    "body_too_slow",
    "delivery_unknown",
    "queue_full",
    "store_failed",
    "block_corrupt",
    "unexpected",
    "stopping",
    // Codes of the demo: tests/demo.rs provokes them.
    "no_such_node",
    "wrong_state",
    "bad_cut",
    "not_started",
    "not_sent",
];

#[test]
fn the_list_has_the_errors_that_the_tests_provoke() {
    let listed: BTreeSet<&str> = LIST
        .lines()
        .filter(|line| line.starts_with("| `"))
        .filter_map(|line| line.split('`').nth(1))
        .collect();
    let provoked: BTreeSet<&str> = [texts(), codes(), MOMENTS.to_vec()].concat().into_iter().collect();
    assert_eq!(listed, provoked);
}

/// All texts that are provoked.
fn texts() -> Vec<&'static str> {
    [PROVOKED, mesh::PROVOKED, route::PROVOKED, token::PROVOKED, turns::PROVOKED].concat()
}

/// All codes that are provoked.
fn codes() -> Vec<&'static str> {
    [CODES, mesh::CODES, route::CODES, token::CODES, turns::CODES].concat()
}

/// Holds that the output is one line with all parts of the text, and the exit code is right.
fn assert_error(output: &Output, text: &str, code: i32) {
    assert!(texts().contains(&text), "{text} is missing in the list of provoked texts");
    let stderr = String::from_utf8_lossy(&output.stderr);
    let line = stderr.lines().find(|line| text.split('…').all(|part| line.contains(part.trim())));
    assert!(line.is_some(), "no {text:?} in: {stderr}");
    assert_eq!(output.status.code(), Some(code), "{stderr}");
    assert!(!stderr.contains("panicked") && !stderr.contains("backtrace"), "{stderr}");
}

fn assert_fails(args: &[&str], text: &str, code: i32) {
    assert_error(&run(args), text, code);
}

fn agent_fails(args: &[&str], text: &str, code: i32) {
    let ip = own_ip().to_string();
    assert_fails(&[&["agent", "--bind", &ip], args].concat(), text, code);
}

#[test]
fn wrong_calls_give_a_hint() {
    assert_fails(&["info", "--frobnicate"], "unexpected argument … found", 2);
    assert_fails(&["agent", "--set", "members.prot=1"], "unknown key … in …: did you mean …", 2);
    assert_fails(&["agent", "--set", "members.interval=5"], "… = … in …: give …", 2);
    assert_fails(&["agent", "--set", "members.interval"], "write it as section.key=VALUE", 2);
    assert_fails(&["agent", "--config", "/nowhere/a.toml"], "cannot read the configuration file …", 2);
    assert_fails(&["agent", "--set", "http.token=a b"], "… = … in …: use only …", 2);
    assert_fails(&["info", "--token", "a b"], "invalid value … for …", 2);
    let mut agent = annulus(&["agent"]);
    agent.env("ANNULUS_NODE_NAME", std::ffi::OsStr::from_bytes(b"\xff"));
    assert_error(&agent.output().unwrap(), "is no text in UTF-8", 2);
    assert_fails(&["decode", "ping", "0x01"], "is not a hexadecimal digit", 2);
    assert_fails(&["decode", "ping", "010"], "one is missing", 2);
    assert_fails(&["decode", "ping", "0102"], "bytes are no message of …", 1);
    assert_fails(&["demo", "--http", "0.0.0.0:1"], "the page of the demo on … would be open to everybody", 2);
    assert_fails(&["demo", "--script", "/nowhere/story.txt"], "cannot read the script …", 2);
    let open = "the page of the replay on … would be open to everybody";
    assert_fails(&["replay", "run.trace", "--http", "0.0.0.0:1"], open, 2);
    assert_fails(&["replay", "/nowhere/run.trace"], "cannot read the trace …; check the path", 1);
    assert_fails(&["replay", "/etc/hosts"], "is of no trace: record one with …", 2);
}

#[test]
fn files_that_are_wrong_say_why() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("a.toml");
    std::fs::write(&file, "port = 1\n").unwrap();
    let path = file.to_str().unwrap();
    assert_fails(&["agent", "--config", path], "stands outside a section", 2);
    assert_fails(&["config", "init", path], "cannot write …; choose another file, or add --force", 1);
    let output = run(&["config", "init", dir.path().join("no/a.toml").to_str().unwrap()]);
    assert_error(&output, "cannot write …; choose another file", 1);
    assert!(!String::from_utf8_lossy(&output.stderr).contains("--force"), "there is nothing to replace");
}

#[test]
fn ports_that_are_taken_say_whose() {
    let in_use = "another process uses …: stop it or choose another port";
    let taken = UdpSocket::bind(SocketAddr::new(own_ip(), 7946)).unwrap();
    let ip = taken.local_addr().unwrap().ip().to_string();
    assert_fails(&["agent", "--bind", &ip], in_use, 1);
    let taken = TcpListener::bind(SocketAddr::new(own_ip(), 7373)).unwrap();
    let ip = taken.local_addr().unwrap().ip().to_string();
    assert_fails(&["agent", "--bind", &ip], "cannot listen for HTTP on …", 1);
    let foreign = ["agent", "--bind", "192.0.2.1", "--http", &format!("{}:0", own_ip())];
    assert_fails(&foreign, "is not an address of this machine", 1);
    let open = "would be open to everybody: set http.token";
    agent_fails(&["--http", "0.0.0.0:0"], open, 1);
}

/// The binary as a user without permissions. Root may do everything, so the test runs a copy of the binary as the
/// user `nobody`.
fn as_nobody(dir: &Path, args: &[&str]) -> Command {
    let id = Command::new("id").arg("-u").output().expect("id is everywhere");
    if String::from_utf8_lossy(&id.stdout).trim() != "0" {
        return annulus(args);
    }
    let copy = dir.join("annulus");
    if !copy.exists() {
        std::fs::set_permissions(dir, PermissionsExt::from_mode(0o755)).expect("it is ours");
        std::fs::copy(env!("CARGO_BIN_EXE_annulus"), &copy).expect("there is room");
    }
    let mut command = Command::new("setpriv");
    command.args([
        "--reuid=65534",
        "--regid=65534",
        "--clear-groups",
        "--bounding-set=-all",
        "--inh-caps=-all",
    ]);
    command.arg(copy).args(args);
    command
}

#[test]
fn missing_permissions_give_a_remedy() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    std::fs::create_dir(&data).unwrap();
    std::fs::set_permissions(&data, PermissionsExt::from_mode(0o555)).unwrap();
    let ip = own_ip().to_string();
    let agent = ["agent", "--bind", &ip, "--data-dir", data.to_str().unwrap()];
    let output = as_nobody(dir.path(), &agent).output().expect("setpriv (of util-linux) is there");
    assert_error(&output, "cannot write to the data directory …", 1);
    // A machine may allow every user every port: then port 1 is free for `nobody` as well.
    let ports_from =
        std::fs::read_to_string("/proc/sys/net/ipv4/ip_unprivileged_port_start").unwrap_or_default();
    if ports_from.trim() == "0" {
        println!("SKIPPED: every port is free for everybody here");
        return;
    }
    let output =
        as_nobody(dir.path(), &["agent", "--bind", &ip, "--set", "members.port=1"]).output().unwrap();
    assert_error(&output, "no permission to use …", 1);
}

#[test]
fn an_unusable_data_directory_gives_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    std::fs::write(&file, "").unwrap();
    let below = file.join("below");
    agent_fails(&["--data-dir", below.to_str().unwrap()], "cannot make the data directory …", 1);
    let spoilt = dir.path().join("spoilt");
    std::fs::create_dir(&spoilt).unwrap();
    std::fs::write(spoilt.join("identity"), "not a uuid").unwrap();
    agent_fails(&["--data-dir", spoilt.to_str().unwrap()], "holds no UUID", 1);
    let broken = dir.path().join("broken");
    std::fs::create_dir(&broken).unwrap();
    std::fs::write(broken.join("store.redb"), "this is no database, it is a text").unwrap();
    agent_fails(&["--data-dir", broken.to_str().unwrap()], "cannot open the store …", 1);
    let data = dir.path().join("data");
    let args = ["--data-dir", data.to_str().unwrap()];
    let _first = Agent::start(&args);
    agent_fails(&args, "another agent uses the data directory …", 1);
}

#[test]
fn a_request_that_fails_gives_the_reason() {
    let nobody = format!("{}:7373", own_ip());
    assert_fails(&["info", "--agent", &nobody], "no agent answers at …", 1);
    let listener = TcpListener::bind(SocketAddr::new(own_ip(), 0)).unwrap();
    let other = listener.local_addr().unwrap().to_string();
    let serve = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream
            .write_all(b"HTTP/1.1 418 I am a teapot\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            .unwrap();
    });
    assert_fails(&["info", "--agent", &other], "is it one of annulus", 1);
    serve.join().unwrap();
    let locked = Agent::start(&["--set", "http.token=secret"]);
    let http = locked.http().to_string();
    assert_fails(&["info", "--agent", &http], "this agent wants a token", 1);
    assert_fails(&["info", "--agent", &http, "--token", "wrong"], "this agent wants a token", 1);
    assert!(run(&["info", "--agent", &http, "--token", "secret"]).status.success());
}

#[test]
fn an_unanswered_ping_gives_the_reason() {
    let red = Agent::start(&["--set", "members.preset=local"]);
    let join = format!("{}:7946", red.ip);
    let blue = Agent::start(&["--set", "members.preset=local", "--name", "blue", "--join", &join]);
    let http = red.http().to_string();
    common::wait_until("blue is alive", || (red.json(&["members"]).as_array()?.len() == 2).then_some(()));
    drop(blue);
    common::wait_until("blue is dead", || {
        let members = red.json(&["members", "--state", "dead"]);
        (members.as_array()?.len() == 1).then_some(())
    });
    assert_fails(&["ping", "blue", "--agent", &http], "does not answer: members reports it as …", 1);
    assert_fails(&["ping", "green", "--agent", &http], "no member is called …", 1);
    let idle = Agent::start(&["--services", ""]);
    let http = idle.http().to_string();
    assert_fails(&["ping", "blue", "--agent", &http], "this agent does not run members", 1);
}

#[test]
fn members_that_cannot_be_reached_say_why() {
    let agent = Agent::start(&["--set", "members.preset=local"]);
    let http = agent.http().to_string();
    let nobody = format!("{}:7946", own_ip());
    assert_fails(&["join", &nobody, "--agent", &http], "none of the addresses answered", 1);
    let text = "is no address of a node: give IP:PORT or NAME:PORT";
    assert_fails(&["join", "10.0.0.7", "--agent", &http], text, 2);
    assert_fails(&["agent", "--join", "nobody.invalid:7946"], text, 2);
    assert_fails(&["force-leave", "nobody", "--agent", &http], "no member is called …", 1);
    assert_fails(&["tags", "role", "--agent", &http], "is no tag: give KEY=VALUE", 2);
    assert_fails(&["members", "--tag", "role", "--agent", &http], "is no tag: give KEY=VALUE", 2);
    assert_fails(&["monitor", "--after", "yesterday", "--agent", &http], "invalid value … for …", 2);
    let long = "x".repeat(256);
    for name in ["", "two\nlines", &long] {
        let text = "is no name of an event: give 1 to 255 bytes without control characters";
        assert_fails(&["event", name, "--agent", &http], text, 2);
    }
    assert_fails(&["tags", "role=\u{1b}[2J", "--agent", &http], "has a control character in it", 1);
    let own = agent.json(&["info"])["id"].as_str().unwrap().to_owned();
    assert_fails(&["force-leave", &own, "--agent", &http], "is this agent itself", 1);
    let idle = Agent::start(&["--services", ""]);
    assert_fails(&["members", "--agent", &idle.http().to_string()], "this agent does not run members", 1);
}

#[test]
fn members_that_cannot_work_are_refused_at_the_start() {
    for (args, text) in [
        (&["--set", "node.bind=0.0.0.0", "--services", "members"][..], "others cannot reach members at …"),
        (
            &["--set", "members.interval=0s"],
            "members.interval: the probe interval is …: it must be at least 1ms",
        ),
        (&["--name", "\u{1b}[2Jroot"], "has a control character in it"),
        (
            &["--services", "token", "--join", "127.0.0.1:7946"],
            "is for members, which this agent does not run",
        ),
    ] {
        assert_fails(&[&["agent"], args].concat(), text, 2);
    }
}

#[test]
fn the_members_api_refuses_with_a_code_and_a_hint() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().to_str().unwrap();
    let agent = Agent::start(&["--set", "members.preset=local", "--data-dir", data]);
    let itself = format!("{{\"member\":{}}}", agent.json(&["info"])["id"]);
    let own = format!("{{\"addrs\":[\"{}:7946\"]}}", agent.ip);
    let nobody = format!("{{\"addrs\":[\"{}:7946\"]}}", own_ip());
    let stranger = Agent::start(&["--set", "members.ring=others"]);
    let strange = format!("{{\"addrs\":[\"{}:7946\"]}}", stranger.ip);
    let large = format!("{{\"name\":\"x\",\"payload\":\"{}\"}}", "x".repeat(3000));
    let tags = format!("{{\"set\":{{\"x\":\"{}\"}}}}", "x".repeat(600));
    let cases: &[(&str, &str, &str, u16, &str)] = &[
        ("GET", "/v1/rtt", "", 400, "bad_query"),
        ("GET", "/v1/members?life=true", "", 400, "bad_query"),
        ("POST", "/v1/join", &own, 409, "nothing_to_join"),
        ("POST", "/v1/join", &nobody, 504, "nobody_answered"),
        ("POST", "/v1/join", &strange, 409, "wrong_ring"),
        ("POST", "/v1/force-leave", "{\"member\":\"nobody\"}", 404, "no_such_member"),
        ("POST", "/v1/events", "{\"name\":\"\"}", 400, "bad_name"),
        ("POST", "/v1/events", &large, 413, "event_too_large"),
        ("POST", "/v1/tags", "{\"set\":{\"\":\"x\"}}", 400, "bad_tag"),
        ("POST", "/v1/tags", "{\"set\":{\"a=b\":\"x\"}}", 400, "bad_tag"),
        ("POST", "/v1/tags", &tags, 413, "tags_too_large"),
        ("POST", "/v1/tags", "{\"set\":{\"x\":\"\\u001b[2J\"}}", 400, "bad_tag"),
        ("POST", "/v1/force-leave", &itself, 400, "own_member"),
    ];
    for (method, path, body, status, code) in cases {
        let (answered, text) = agent.request(method, path, &["Content-Type: application/json"], body);
        assert_api_error(answered, &text, *status, code);
    }
    let json = "Content-Type: application/json";
    // Where the file of the tags should be, something else is.
    std::fs::create_dir(dir.path().join("tags.json")).unwrap();
    let (answered, text) = agent.request("POST", "/v1/tags", &[json], "{\"set\":{\"a\":\"b\"}}");
    assert_api_error(answered, &text, 500, "tags_not_kept");
    agent.stdout(&["leave"]);
    for (path, body) in [("/v1/tags", "{\"set\":{\"a\":\"b\"}}"), ("/v1/events", "{\"name\":\"x\"}")] {
        let (answered, text) = agent.request("POST", path, &[json], body);
        assert_api_error(answered, &text, 409, "has_left");
    }
}

#[test]
fn one_client_too_many_gets_an_error_and_the_others_go_on() {
    let agent = Agent::start(&[]);
    let mut clients = Vec::new();
    while clients.len() < 256 {
        let mut client = std::net::TcpStream::connect(agent.http()).unwrap();
        client.write_all(b"GET /v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        clients.push(client);
    }
    // The agent may not have taken all of them yet.
    let text = common::wait_until("the agent is full", || {
        let (status, text) = agent.request("GET", "/v1/info", &[], "");
        (status == 503).then_some(text)
    });
    assert_api_error(503, &text, 503, "too_many_clients");
    drop(clients);
    common::wait_until("there is room again", || {
        (agent.request("GET", "/v1/info", &[], "").0 == 200).then_some(())
    });
}

#[test]
fn a_monitor_of_a_stopped_agent_gives_an_error() {
    let agent = Agent::start(&["--set", "members.preset=local", "--join", "127.0.0.1:1"]);
    let http = agent.http().to_string();
    let mut monitor = annulus(&["monitor", "--agent", &http, "--after", "0-0"]);
    let monitor = monitor.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    let mut monitor = monitor.spawn().unwrap();
    // Its first line shows that it listens.
    let mut first = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(monitor.stdout.take().unwrap()), &mut first)
        .unwrap();
    agent.signal("TERM");
    assert_error(&monitor.wait_with_output().unwrap(), "the agent has ended the stream", 1);
}

#[test]
fn the_api_refuses_with_a_code_and_a_hint() {
    let agent = Agent::start(&["--set", "http.body_bytes_max=2000"]);
    let json = "Content-Type: application/json";
    let (event, path) = ("{\"name\":\"deploy\"}", "/v1/events");
    let long = format!("{{\"name\":\"{}\"}}", "x".repeat(3000));
    let foreign = ["Origin: http://evil.example", json];
    type Case<'a> = (&'a str, &'a str, &'a [&'a str], &'a str, u16, &'a str);
    let cases: &[Case<'_>] = &[
        ("GET", "/v1/info", &["Host: evil.example"], "", 403, "wrong_host"),
        ("POST", path, &foreign, event, 403, "cross_site"),
        ("POST", path, &["Sec-Fetch-Site: cross-site", json], event, 403, "cross_site"),
        ("POST", path, &["Content-Type: text/plain"], event, 415, "wrong_content_type"),
        ("POST", path, &[json], &long, 413, "body_too_large"),
        ("POST", path, &[json], "{", 400, "bad_body"),
        ("POST", path, &[json], "{\"too\":1}", 422, "bad_body"),
        ("GET", "/v1/nothing", &[], "", 404, "no_such_route"),
        ("DELETE", "/v1/info", &[json], "", 405, "wrong_method"),
    ];
    for (method, path, headers, body, status, code) in cases {
        let (answered, text) = agent.request(method, path, headers, body);
        assert_api_error(answered, &text, *status, code);
    }
    let locked = Agent::start(&["--set", "http.token=secret", "--services", ""]);
    let (status, text) = locked.request("GET", "/v1/info", &[], "");
    assert_api_error(status, &text, 401, "unauthorized");
    let (status, text) = locked.request("GET", "/v1/members", &["Authorization: Bearer secret"], "");
    assert_api_error(status, &text, 404, "no_such_service");
    assert!(agent.stdout(&["info"]).contains("name"), "it still serves");
}

fn assert_api_error(status: u16, text: &str, expected: u16, code: &str) {
    assert!(codes().contains(&code), "{code} is missing in the list of provoked codes");
    let body: serde_json::Value = serde_json::from_str(text).unwrap_or_else(|_| panic!("{code}: {text}"));
    assert_eq!((status, body["error"]["code"].as_str()), (expected, Some(code)), "{text}");
    let says = |key: &str| body["error"][key].as_str().is_some_and(|text| !text.is_empty());
    assert!(says("message") && says("hint"), "{text}");
}
