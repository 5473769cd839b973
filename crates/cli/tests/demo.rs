//! The demo: real nodes in one process that can be killed, suspended and cut off, over HTTP and by a script.

mod common;

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};

use common::{Agent, annulus, json, own_ip, run, wait_until_seen};
use serde_json::Value;

/// A running demo; it is ended with the test.
struct Demo {
    agent: Agent,
}

impl Demo {
    fn start(args: &[&str]) -> Self {
        let ip = own_ip();
        let http = format!("{ip}:7373");
        let mut command = annulus(&["demo", "--http", &http]);
        command.args(args).stdout(Stdio::null()).stderr(Stdio::piped());
        let demo = Self { agent: Agent::adopt(ip, command.spawn().expect("the binary runs")) };
        wait_until_seen("the demo is ready", || {
            if std::net::TcpStream::connect(demo.agent.http()).is_err() {
                return Err("nobody listens".to_owned());
            }
            let page = demo.sections();
            let nodes = page["nodes"].as_array().map_or(0, Vec::len) as u64;
            let is_known = |node: &Value| node["seen"]["alive"].as_u64() == Some(nodes - 1);
            let is_ready =
                nodes > 0 && page["nodes"].as_array().is_some_and(|nodes| nodes.iter().all(is_known));
            is_ready.then_some(()).ok_or_else(|| page["nodes"].to_string())
        });
        demo
    }

    fn sections(&self) -> Value {
        let (status, body) = self.agent.request("GET", "/v1/page", &[], "");
        assert_eq!(status, 200, "{body}");
        serde_json::from_str::<Value>(&body).expect("it is JSON")["sections"].take()
    }

    fn node(&self, name: &str) -> Value {
        let sections = self.sections();
        let nodes = sections["nodes"].as_array().expect("it is a list");
        nodes.iter().find(|node| node["name"] == name).expect("the demo has this node").clone()
    }

    fn post(&self, path: &str, body: &str) -> (u16, Value) {
        let (status, body) = self.agent.request("POST", path, &["Content-Type: application/json"], body);
        (status, serde_json::from_str(&body).unwrap_or_default())
    }

    fn wait_for_state(&self, name: &str, state: &str) {
        wait_until_seen(&format!("{name} is {state}"), || {
            let node = self.node(name);
            (node["state"] == state).then_some(()).ok_or_else(|| node.to_string())
        });
    }
}

#[test]
fn a_killed_node_is_found_dead_and_its_mail_arrives_when_it_is_revived() {
    let demo = Demo::start(&["--nodes", "5"]);
    assert_eq!(demo.post("/v1/demo/nodes/lime/kill", "{}").0, 200);
    let (status, again) = demo.post("/v1/demo/nodes/lime/kill", "{}");
    assert_eq!((status, &again["error"]["code"]), (409, &"wrong_state".into()));
    let mail = r#"{"from": "red", "to": "lime", "text": "see you"}"#;
    assert_eq!(demo.post("/v1/demo/send", mail).0, 200);
    demo.wait_for_state("lime", "dead");
    let lime = demo.node("lime")["id"].as_str().unwrap().to_owned();
    let message = format!(r#"{{"from": "red", "key": "{lime}", "text": "hello"}}"#);
    let (status, sent) = demo.post("/v1/demo/send", &message);
    assert!(status == 200 && sent["owner"] != *lime, "another node owns its key: {sent}");
    assert_eq!(demo.post("/v1/demo/nodes/lime/revive", "{}").0, 200);
    demo.wait_for_state("lime", "alive");
    wait_until_seen("the mail has arrived", || {
        let mesh = demo.sections()["mesh"].take();
        let lines = mesh["mail"].as_array().cloned().unwrap_or_default();
        let is_there = lines.iter().any(|line| line["to"] == *lime && line["state"] == "delivered");
        is_there.then_some(()).ok_or_else(|| mesh["mail"].to_string())
    });
}

#[test]
fn a_cut_makes_two_owners_of_a_key_and_healing_makes_one() {
    let demo = Demo::start(&["--nodes", "6"]);
    assert_eq!(demo.post("/v1/demo/cut", "{}").0, 200);
    let owners = |count: usize| {
        wait_until_seen(&format!("a key has {count} owners"), || {
            let probe = demo.sections()["route"]["probe"].take();
            let mut owners: Vec<&str> = probe["owners"]
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(|owner| owner["owner"].as_str())
                .collect();
            owners.dedup();
            (owners.len() == count).then_some(()).ok_or_else(|| probe.to_string())
        });
    };
    owners(2);
    assert_eq!(demo.post("/v1/demo/heal", "{}").0, 200);
    owners(1);
    let (status, answer) = demo.post("/v1/demo/cut", r#"{"nodes": ["mauve"]}"#);
    assert_eq!((status, &answer["error"]["code"]), (404, &"no_such_node".into()));
    let all = r#"{"nodes": ["red", "orange", "amber", "lime", "green", "teal"]}"#;
    assert_eq!(demo.post("/v1/demo/cut", all).1["error"]["code"], "bad_cut");
}

#[test]
fn a_suspended_node_is_suspected_and_contradicts_when_it_goes_on() {
    let demo = Demo::start(&["--nodes", "4"]);
    assert_eq!(demo.post("/v1/demo/nodes/amber/suspend", "{}").0, 200);
    assert!(demo.node("amber")["suspended"] == true);
    demo.wait_for_state("amber", "suspect");
    assert_eq!(demo.post("/v1/demo/nodes/amber/resume", "{}").0, 200);
    demo.wait_for_state("amber", "alive");
    // The API is that of the first node; while it is suspended, the demo answers an error.
    assert_eq!(demo.agent.request("GET", "/v1/members", &[], "").0, 200);
    assert_eq!(demo.post("/v1/demo/nodes/red/suspend", "{}").0, 200);
    assert_eq!(demo.agent.request("GET", "/v1/members", &[], "").0, 503);
}

#[test]
fn a_page_of_another_site_can_do_nothing() {
    let demo = Demo::start(&["--nodes", "3"]);
    let own = format!("Origin: http://{}", demo.agent.http());
    for (method, path, header, status) in [
        ("GET", "/", "Host: rebound.example:7373", 403),
        ("GET", "/v1/page", "Host: rebound.example:7373", 403),
        ("GET", "/v1/page", "Origin: http://rebound.example", 403),
        ("POST", "/v1/demo/heal", "Origin: http://rebound.example", 403),
        ("POST", "/v1/demo/heal", "Host: rebound.example:7373", 403),
        ("POST", "/v1/demo/heal", "Sec-Fetch-Site: cross-site", 403),
        ("POST", "/v1/demo/heal", &own, 200),
        ("GET", "/", "Sec-Fetch-Site: cross-site", 200),
    ] {
        let headers = [header, "Content-Type: application/json"];
        let (got, body) = demo.agent.request(method, path, &headers, "{}");
        assert_eq!(got, status, "{method} {path} with {header}: {body}");
    }
    let form = ["Content-Type: application/x-www-form-urlencoded"];
    assert_eq!(demo.agent.request("POST", "/v1/demo/heal", &form, "").0, 415);
    let page = demo
        .agent
        .raw(&format!("GET / HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", demo.agent.http()));
    let policy =
        page.lines().find(|line| line.starts_with("content-security-policy: ")).expect("it has a policy");
    assert!(policy.contains("default-src 'none'") && !policy.contains("unsafe"), "{policy}");
}

#[test]
fn an_agent_has_the_page_and_none_of_the_controls() {
    let agent = Agent::start(&["--set", "http.token=secret"]);
    assert_eq!(agent.request("GET", "/", &[], "").0, 200, "the page asks for the token");
    assert_eq!(agent.request("GET", "/v1/page", &[], "").0, 401);
    let token = ["Authorization: Bearer secret", "Content-Type: application/json"];
    let (status, body) = agent.request("GET", "/v1/page", &token, "");
    assert!(status == 200 && body.contains(r#""controls":false"#), "{body}");
    for path in [
        "/v1/demo",
        "/v1/demo/turn/kill",
        "/v1/demo/cut",
        "/v1/demo/heal",
        "/v1/demo/send",
        "/v1/demo/nodes/red/kill",
    ] {
        for method in ["GET", "POST"] {
            assert_eq!(agent.request(method, path, &token, "{}").0, 404, "{method} {path}");
        }
    }
}

#[test]
fn a_node_that_was_killed_for_a_while_restarts() {
    let demo = Demo::start(&["--nodes", "3"]);
    let state = || demo.agent.request("GET", "/v1/demo", &[], "").1;
    let for_a_while = r#"{"revive_after_ms": 1500}"#;
    assert_eq!(demo.post("/v1/demo/nodes/orange/kill", for_a_while).0, 200);
    assert!(state().contains(r#""state":"down""#));
    wait_until_seen("it is up again", || {
        let state = state();
        (!state.contains("down")).then_some(()).ok_or(state)
    });
    assert_eq!(demo.post("/v1/demo/nodes/orange/kill", r#"{"revive_after": 1}"#).0, 422);
}

#[test]
fn browsers_that_vanish_harm_nothing() {
    let demo = Demo::start(&["--nodes", "3"]);
    let request = format!("GET /v1/page/events HTTP/1.1\r\nHost: {}\r\n\r\n", demo.agent.http());
    for _ in 0..50 {
        let mut stream = TcpStream::connect(demo.agent.http()).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut begin = [0; 200];
        assert!(stream.read(&mut begin).unwrap() > 0);
        // Unread bytes make this a reset.
        drop(stream);
    }
    assert_eq!(demo.sections()["nodes"].as_array().map(Vec::len), Some(3));
    assert_eq!(demo.post("/v1/demo/heal", "{}").0, 200);
}

/// A demo in a terminal of its own, which `script` makes.
#[test]
fn in_a_terminal_the_keys_work_as_in_the_page() {
    let ip = own_ip();
    let program = env!("CARGO_BIN_EXE_annulus");
    let program = format!("stty rows 40 cols 120; exec {program} demo --nodes 4 --http {ip}:7373");
    let mut command = Command::new("script");
    command.args(["-qfec", &program, "/dev/null"]).env("TERM", "xterm-256color");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("script is part of every Debian");
    let (mut keys, mut screen) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    let drawn = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = screen.read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    });
    let mut demo = Agent::adopt(ip, child);
    let get = |demo: &Agent, path: &str| -> Value {
        if TcpStream::connect(demo.http()).is_err() {
            return Value::Null;
        }
        serde_json::from_str(&demo.request("GET", path, &[], "").1).unwrap_or_default()
    };
    let ready = |news: &Value| news.as_array().into_iter().flatten().any(|line| line["event"] == "ready");
    wait_until_seen("the nodes are ready", || {
        let page = get(&demo, "/v1/page");
        ready(&page["news"]).then_some(()).ok_or(page)
    });
    for (key, node, state, is_cut) in [
        ("k", 0, "down", false),
        ("r", 0, "up", false),
        ("s", 0, "suspended", false),
        ("s", 0, "up", false),
        ("c", 0, "up", true),
        ("h", 0, "up", false),
        ("\u{1b}[Ck", 1, "down", false),
    ] {
        keys.write_all(key.as_bytes()).unwrap();
        wait_until_seen(&format!("{key:?} did it"), || {
            let now = get(&demo, "/v1/demo");
            let is_so = now["nodes"][node]["state"] == state && now["is_cut"] == is_cut;
            is_so.then_some(()).ok_or(now)
        });
    }
    // Mail to the node that is down, and a message from one that is up.
    keys.write_all(b"l\x1b[Dm").unwrap();
    wait_until_seen("both were sent", || {
        let news = get(&demo, "/v1/page")["news"].to_string();
        let is_sent = news.contains("mail from the terminal") && news.contains("terminal/1");
        is_sent.then_some(()).ok_or(news)
    });
    keys.write_all(b"?q").unwrap();
    assert_eq!(demo.wait(), Some(0));
    let drawn = drawn.join().unwrap();
    // Blanks are not written, so that only words are whole.
    let (_, view) = drawn.split_once("\u{1b}[?1049h").expect("the view has the terminal");
    let (view, end) = view.split_once("\u{1b}[?1049l").expect("the terminal is as before");
    assert!(view.contains("annulus") && view.contains("orange") && view.contains("suspend"), "{view}");
    assert!(end.contains("3 of 4 nodes were up"), "{end}");
}

#[test]
fn a_script_is_done_and_the_end_tells_how_the_nodes_are() {
    let dir = tempfile::tempdir().unwrap();
    let script = dir.path().join("story.txt");
    std::fs::write(&script, "at 10 ms kill orange\nat 100 ms suspend amber\n").unwrap();
    let http = format!("{}:7373", own_ip());
    let path = script.to_str().unwrap();
    let output =
        json(&["demo", "--json", "--nodes", "3", "--seconds", "3", "--http", &http, "--script", path]);
    let states: Vec<&str> =
        output["nodes"].as_array().unwrap().iter().filter_map(|node| node["state"].as_str()).collect();
    assert_eq!(states, ["up", "down", "suspended"], "{output}");
    assert_eq!(output["page"], format!("http://{http}"));
    let output = run(&["demo", "--nodes", "3", "--seconds", "2", "--http", &http]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        text.contains(&format!("the page: http://{http}")) && text.contains("3 of 3 nodes were up"),
        "{text}"
    );
    // A name that no node has is found before anything is done, a step that cannot be done when its time comes.
    for (line, exit, parts) in [
        ("at 1 h", 2, ["line 1", "write it as"]),
        (
            "at 9000 s kill mauve",
            2,
            ["line 1 of the script: the demo has no node \"mauve\"", "name one of red"],
        ),
        ("at 10 ms revive red", 1, ["line 1 of the script: red runs already", "kill it first"]),
    ] {
        std::fs::write(&script, line).unwrap();
        let output = run(&["demo", "--nodes", "3", "--seconds", "2", "--http", &http, "--script", path]);
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(exit), "{text}");
        assert!(parts.iter().all(|part| text.contains(part)), "{text}");
    }
}

#[test]
fn a_port_in_use_is_named_and_nothing_is_left_behind() {
    let ip = own_ip();
    let taken = TcpListener::bind((ip, 7373)).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let mut demo = annulus(&["demo", "--http", &taken.local_addr().unwrap().to_string()]);
    let output = demo.env("TMPDIR", dir.path()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("cannot listen for HTTP on") && text.contains("--http"), "{text}");
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}
