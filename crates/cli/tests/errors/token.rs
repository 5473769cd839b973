//! The errors of token.

use std::io::Read as _;

use super::*;

/// The texts of the command line that a test here provokes.
pub(super) const PROVOKED: &[&str] = &[
    "this agent does not run token",
    "--dot and --json are two forms of one graph",
    "64 turns wait for the token at this agent already",
    "no value is called …",
    "is no duration: give one with its unit",
    "cannot run …; check its name and PATH",
    "this value cannot travel: …",
    "is out of range: give 1ms to 24h",
    "no token came by within …; the value is not set",
    "the limit of … is over: the command was stopped",
    "the token was lost: … the ring went on",
    "the agent reaches less than half of the ring: the command was stopped",
    "the token did not come within …",
    "the agent went away: the command was stopped",
    "the agent has said nothing for …: the command was stopped",
    "token.broadcast names …",
    "token.renew_timeout is …: give it at most 24h",
    "are both …: give each its own",
    "a question for the token has … bytes",
    "does not pass within … s; give at least …",
    "--latency and --jitter make up to …; give at most …",
];

/// The codes of the API.
pub(super) const CODES: &[&str] = &["token_refused", "bad_limit", "no_token"];

const JSON: &str = "Content-Type: application/json";

fn agent() -> Agent {
    let port = format!("token.udp_port={}", own_udp_port());
    Agent::start(&["--services", "token", "--set", "token.preset=local", "--set", &port])
}

#[test]
fn an_agent_without_a_token_gives_an_error() {
    let idle = Agent::start(&["--services", ""]);
    let http = idle.http().to_string();
    for verb in [
        &["token"][..],
        &["token", "watch"],
        &["token", "get"],
        &["token", "graph"],
        &["token", "set", "k", "v"],
    ] {
        assert_fails(&[verb, &["--agent", &http]].concat(), "this agent does not run token", 1);
    }
    assert_fails(&["token", "run", "--agent", &http, "--", "true"], "this agent does not run token", 1);
}

#[test]
fn an_unusable_token_gives_an_error() {
    let agent = agent();
    let http = agent.http().to_string();
    assert_fails(&["token", "get", "nothing", "--agent", &http], "no value is called …", 1);
    let both = ["token", "graph", "--dot", "--json", "--agent", &http];
    assert_fails(&both, "--dot and --json are two forms of one graph", 2);
    let run = ["token", "run", "--limit", "5", "--agent", &http, "--", "true"];
    assert_fails(&run, "is no duration: give one with its unit", 2);
    let run = ["token", "run", "--agent", &http, "--", "/nowhere/command"];
    assert_fails(&run, "cannot run …; check its name and PATH", 127);
    let (status, text) = agent.request("POST", "/v1/token/release", &[JSON], "{\"hold\":999999}");
    assert_api_error(status, &text, 409, "token_refused");
    for bad in ["0", "86400001"] {
        for path in ["/v1/token/hold", "/v1/token/turn"] {
            let (status, text) = agent.request("POST", path, &[JSON], &format!("{{\"limit_ms\":{bad}}}"));
            assert_api_error(status, &text, 400, "bad_limit");
        }
        let body = format!("{{\"key\":\"k\",\"value\":1,\"wait_ms\":{bad}}}");
        let (status, text) = agent.request("POST", "/v1/token/values", &[JSON], &body);
        assert_api_error(status, &text, 400, "bad_limit");
    }
    for limit in ["0s", "25h"] {
        let run = ["token", "run", "--limit", limit, "--agent", &http, "--", "true"];
        assert_fails(&run, "is out of range: give 1ms to 24h", 2);
    }
    let deep = format!("{}{}", "[".repeat(65), "]".repeat(65));
    let half = ["token", "set", "k", r#""\ud800""#, "--agent", &http];
    assert_fails(&half, "this value cannot travel: …", 2);
    let (status, text) =
        agent.request("POST", "/v1/token/values", &[JSON], r#"{"key":"k","value":["\ud800"]}"#);
    assert_api_error(status, &text, 409, "token_refused");
    let (long_key, long) = ("k".repeat(129), "x".repeat(4097));
    for (key, value) in
        [("", "1"), (&*long_key, "1"), ("a\nb", "1"), ("\u{1b}[2J", "1"), ("k", &*long), ("k", &*deep)]
    {
        let set = ["token", "set", key, value, "--agent", &http];
        assert_fails(&set, "this value cannot travel: …", 2);
        let value = if value == "1" { value.into() } else { serde_json::Value::from(value).to_string() };
        let value = if key == "k" && value.contains('[') { deep.clone() } else { value };
        let body = format!("{{\"key\":{},\"value\":{value}}}", serde_json::Value::from(key));
        let (status, text) = agent.request("POST", "/v1/token/values", &[JSON], &body);
        assert_api_error(status, &text, 409, "token_refused");
    }
}

#[test]
fn one_waiter_too_many_gets_an_error_with_the_limit() {
    let agent = agent();
    let http = agent.http().to_string();
    let (status, text) = agent.request("POST", "/v1/token/hold", &[JSON], "{\"limit_ms\":3600000}");
    assert_eq!(status, 200, "{text}");
    let turn = || {
        let mut stream = std::net::TcpStream::connect(agent.http()).expect("it listens");
        let body = "{\"limit_ms\":1000}";
        let head = format!(
            "POST /v1/token/turn HTTP/1.1\r\nHost: {http}\r\n{JSON}\r\nContent-Length: {}",
            body.len()
        );
        stream.write_all(format!("{head}\r\n\r\n{body}").as_bytes()).expect("it reads");
        stream
    };
    // One of them is one too many, and the only one that is answered.
    let mut waiting: Vec<_> = (0..65).map(|_| turn()).collect();
    common::wait_until("one of them is refused", || {
        waiting.iter_mut().find_map(|stream| {
            stream.set_nonblocking(true).ok()?;
            let mut answer = [0; 12];
            (stream.read(&mut answer).is_ok() && answer.ends_with(b" 409")).then_some(())
        })
    });
    let run = ["token", "run", "--agent", &http, "--", "true"];
    assert_fails(&run, "64 turns wait for the token at this agent already", 1);
    drop(waiting);
}

#[test]
fn a_value_for_which_no_token_comes_is_not_set() {
    let agent = agent();
    let http = agent.http().to_string();
    let (status, text) = agent.request("POST", "/v1/token/hold", &[JSON], "{\"limit_ms\":3600000}");
    assert_eq!(status, 200, "{text}");
    // The token is here, but in a tenure that has begun without the value.
    let set = ["token", "set", "door", "open", "--wait", "50ms", "--agent", &http];
    assert_fails(&set, "no token came by within …; the value is not set", 1);
    let body = "{\"key\":\"door\",\"value\":1,\"wait_ms\":50}";
    let (status, text) = agent.request("POST", "/v1/token/values", &[JSON], body);
    assert_api_error(status, &text, 504, "no_token");
}

/// A fake agent that answers `token run` with these events of the turn, and then ends or stays silent. It
/// confirms the hold once.
fn pretend(events: String, end: bool) -> String {
    let listener = TcpListener::bind((own_ip(), 0)).expect("there is a port");
    let addr = listener.local_addr().expect("it is bound").to_string();
    std::thread::spawn(move || {
        let (mut confirmed, mut open) = (false, Vec::new());
        while let Ok((mut stream, _)) = listener.accept() {
            let mut request = [0; 4096];
            let length = stream.read(&mut request).unwrap_or(0);
            let request = String::from_utf8_lossy(&request[..length]).into_owned();
            let answer = |status: &str, body: &str| {
                let length = body.len();
                format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}")
            };
            let text = if request.contains("/v1/voters") {
                answer("404 Not Found", r#"{"error":{"code":"no_voters","message":"none","hint":"none"}}"#)
            } else if request.contains("/v1/token/turn") {
                let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n";
                format!("{head}{events}")
            } else if request.contains("/v1/token/keep") && !std::mem::replace(&mut confirmed, true) {
                answer("200 OK", r#"{"left_ms":2000,"limit_ms":60000,"guarantee":"weak"}"#)
            } else if request.contains("/v1/token/release") {
                answer("200 OK", r#"{"done":true}"#)
            } else {
                String::new()
            };
            // A client that is gone needs no answer.
            let _ = stream.write_all(text.as_bytes());
            if text.is_empty() || (request.contains("/v1/token/turn") && !end) {
                open.push(stream);
            }
        }
    });
    addr
}

#[test]
fn a_command_that_lost_the_token_gives_the_reason() {
    let held = "event: held\ndata: {\"hold\":1,\"fence\":7,\"silence_ms\":1000}\n\n";
    let ended = |reason: &str| format!("event: ended\ndata: {{\"reason\":\"{reason}\"}}\n\n");
    for (rest, end, text) in [
        (ended("limit"), false, "the limit of … is over: the command was stopped"),
        (ended("stalled"), false, "the token was lost: … the ring went on"),
        (ended("merged"), false, "the token was lost: … the ring went on"),
        (ended("cut_off"), false, "the agent reaches less than half of the ring: the command was stopped"),
        (ended("stopping"), false, "the agent went away: the command was stopped"),
        (String::new(), true, "the agent went away: the command was stopped"),
        (String::new(), false, "the agent has said nothing for …: the command was stopped"),
    ] {
        let agent = pretend(format!("{held}{rest}"), end);
        assert_fails(&["token", "run", "--agent", &agent, "--", "sleep", "600"], text, 75);
    }
}

#[test]
fn a_token_that_is_held_elsewhere_gives_an_error() {
    let agent = agent();
    let http = agent.http().to_string();
    let (status, text) = agent.request("POST", "/v1/token/hold", &[JSON], "{\"limit_ms\":3600000}");
    assert_eq!(status, 200, "{text}");
    let run = ["token", "run", "--wait", "50ms", "--agent", &http, "--", "true"];
    assert_fails(&run, "the token did not come within …", 1);
    let (status, text) =
        agent.request("POST", "/v1/token/turn", &[JSON], "{\"limit_ms\":1000,\"wait_ms\":50}");
    assert_api_error(status, &text, 409, "not_free");
    let (status, text) = agent.request("POST", "/v1/token/keep", &[JSON], "{\"hold\":999999}");
    assert_api_error(status, &text, 410, "turn_lost");
}

#[test]
fn a_ring_that_cannot_work_is_refused_at_the_start() {
    let set = |pair: &'static str| ["--services", "token,members", "--set", pair];
    agent_fails(&set("token.broadcast=0.0.0.0"), "token.broadcast names …", 2);
    agent_fails(&set("token.broadcast=ff02::1"), "token.broadcast names …", 2);
    agent_fails(&set("token.renew_timeout=25h"), "token.renew_timeout is …: give it at most 24h", 2);
    agent_fails(&set("token.udp_port=7946"), "are both …: give each its own", 2);
    agent_fails(&set("token.tcp_port=7946"), "are both …: give each its own", 2);
    let sim = |flag, value| ["sim", "token", "--seconds", "5", "--seed", "1", flag, value];
    assert_fails(&sim("--mtu", "5"), "a question for the token has … bytes", 2);
    let slow = "--latency and --jitter make up to …; give at most …";
    assert_fails(&sim("--latency", "constant:2000000"), slow, 2);
    assert_fails(&sim("--jitter", "2000000"), slow, 2);
    assert_fails(&sim("--bandwidth", "1"), "does not pass within … s; give at least …", 2);
}
