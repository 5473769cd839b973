//! The errors of route.

use super::*;

/// The texts of the command line that a test here provokes.
pub(super) const PROVOKED: &[&str] = &[
    "route.leaf_set_max is …: it must be even",
    "others cannot reach route at …",
    "this agent does not run route",
    "this node has not joined the ring",
    "the message is too long",
    "the owner runs no application of that name",
    "the owner of the key gave no answer in time",
    "one has to stay; give a smaller --restart",
    "is measured in a quiet network",
];

/// The codes of the API.
pub(super) const CODES: &[&str] = &[
    "bad_path",
    "not_joined",
    "too_many_readers",
    "too_many_messages",
    "not_delivered",
    "not_answered",
    "message_too_long",
    "no_such_question",
];

#[test]
fn an_impossible_ring_configuration_gives_an_error() {
    let odd = ["--services", "route", "--set", "route.leaf_set_max=3"];
    agent_fails(&odd, "route.leaf_set_max is …: it must be even", 2);
    let anywhere = ["agent", "--services", "route", "--set", "node.bind=0.0.0.0"];
    assert_fails(&anywhere, "others cannot reach route at …", 2);
    let nowhere = ["--services", "route", "--set", "route.advertise=127.0.0.1:0"];
    agent_fails(&nowhere, "others cannot reach route at …", 2);
}

#[test]
fn a_node_that_has_not_joined_names_the_seeds_it_tried() {
    let seed = format!("{}:22001", own_ip());
    let seeds = format!("route.seeds={seed}");
    let mut agent =
        Agent::start(&["--services", "route", "--set", &seeds, "--set", "route.network_timeout=500ms"]);
    let line = agent.wait_for_log("route has not joined the ring");
    assert!(line.contains("WARN") && line.contains(&seed) && line.contains("route.ring"), "{line}");
    let http = agent.http().to_string();
    for verb in [&["route", "red"][..], &["send", "red", "x"], &["ask", "red", "x"]] {
        let output = run(&[verb, &["--agent", &http]].concat());
        assert_error(&output, "this node has not joined the ring", 1);
        assert!(String::from_utf8_lossy(&output.stderr).contains(&seed), "{output:?}");
    }
    let json = ["Content-Type: application/json"];
    let (status, text) = agent.request("POST", "/v1/messages", &json, r#"{"key":"red","payload_base64":""}"#);
    assert_api_error(status, &text, 503, "not_joined");
    // The seed starts at last: now the agent joins, and reports that.
    let _seed = Agent::start_on(seed.parse::<SocketAddr>().unwrap().ip(), &["--services", "route"]);
    agent.wait_for_log("route has joined the ring");
    assert!(run(&["send", "red", "x", "--agent", &http]).status.success());
}

#[test]
fn a_simulation_of_an_impossible_ring_gives_an_error() {
    let sim = |more: &str| {
        let args: Vec<&str> = ["sim", "route", "--seed", "1"].into_iter().chain(more.split(' ')).collect();
        run(&args)
    };
    for wrong in ["--leaf 0", "--leaf 1", "--leaf 7", "--fail 1.0", "--fail 1.1", "--fail=-0.1", "--fail NaN"]
    {
        assert_error(&sim(wrong), "invalid value … for …", 2);
    }
    assert_error(&sim("--nodes 5 --restart 5"), "one has to stay; give a smaller --restart", 2);
    for both in ["--fail 0.3 --crash 3", "--storm 3 --loss 0.1", "--restart 3 --swarm", "--churn 5 --crash 3"]
    {
        assert_error(&sim(both), "is measured in a quiet network", 2);
    }
    // The greatest fraction still leaves a node to send messages to.
    let output = sim("--nodes 20 --lookups 20 --fail 0.99 --repair 60");
    assert!(!String::from_utf8_lossy(&output.stderr).contains("panicked"), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("repaired"), "{output:?}");
}

#[test]
fn an_undelivered_message_gives_the_reason() {
    let short = ["--set", "route.message_timeout=200ms", "--set", "route.message_bytes_max=65536"];
    let agent = Agent::start(&[&["--services", "route"], &short[..]].concat());
    let http = agent.http().to_string();
    let send = ["send", "red", "x", "--app", "nothing", "--agent", &http];
    assert_fails(&send, "the owner runs no application of that name", 1);
    // Longer than a body may be: the agent refuses it before it has come.
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), vec![0; 1 << 20]).unwrap();
    let path = file.path().to_str().unwrap();
    for long in [&["send", "red", "--file", path][..], &["ask", "red", "--file", path]] {
        assert_fails(&[long, &["--agent", &http]].concat(), "the message is too long", 1);
    }
    assert_fails(&["send", "red", "--file", "/nowhere", "--agent", &http], "cannot read the file …", 1);
    let name = "x".repeat(300);
    for wrong in [
        &["send", "red", "x", "--app", &name][..],
        &["ask", "red", "x", "--app", &name],
        &["listen", "--app", &name],
        &["listen", "--after", "xx"],
    ] {
        assert_fails(&[wrong, &["--agent", &http]].concat(), "invalid value … for …", 2);
    }
    let ask = ["ask", "red", "x", "--agent", &http];
    assert_fails(&ask, "the owner of the key gave no answer in time", 1);
    let idle = Agent::start(&["--services", ""]);
    for verb in [&["route", "red"][..], &["send", "red", "x"], &["listen"], &["ring"], &["tables"]] {
        let http = idle.http().to_string();
        let args = [verb, &["--agent", &http]].concat();
        assert_fails(&args, "this agent does not run route", 1);
    }
    let long = format!("{{\"key\":\"red\",\"payload_base64\":\"{}\"}}", "AAAA".repeat(30_000));
    let name = format!("{{\"key\":\"red\",\"payload_base64\":\"\",\"app\":\"{}\"}}", "x".repeat(65));
    let nothing = r#"{"key":"red","payload_base64":"","app":"nothing"}"#;
    let ask = r#"{"key":"red","payload_base64":"","once":true}"#;
    let cases: &[(&str, &str, &str, u16, &str)] = &[
        ("GET", "/v1/route/%ff", "", 400, "bad_path"),
        ("POST", "/v1/messages", r#"{"key":"red","payload_base64":"?"}"#, 400, "bad_body"),
        ("POST", "/v1/messages", &name, 400, "bad_name"),
        ("POST", "/v1/messages", &long, 413, "message_too_long"),
        ("POST", "/v1/messages", nothing, 404, "not_delivered"),
        ("POST", "/v1/ask", ask, 504, "not_answered"),
        ("POST", "/v1/answers", r#"{"id":"7","payload_base64":""}"#, 409, "no_such_question"),
        ("POST", "/v1/answers", r#"{"id":"x","payload_base64":""}"#, 409, "no_such_question"),
    ];
    for (method, path, body, status, code) in cases {
        let (answered, text) = agent.request(method, path, &["Content-Type: application/json"], body);
        assert_api_error(answered, &text, *status, code);
    }
}

/// Clients request a full mailbox and read nothing. They use little memory, the next client gets an error, and the
/// node goes on.
#[test]
fn one_reader_too_many_gets_an_error_and_the_node_goes_on() {
    let agent = Agent::start(&["--services", "route"]);
    let http = agent.http().to_string();
    let file = tempfile::NamedTempFile::new().unwrap();
    // More than the system takes for a client that does not read.
    std::fs::write(file.path(), vec![7; 8 << 20]).unwrap();
    for _ in 0..2 {
        let send = ["send", "red", "--file", file.path().to_str().unwrap(), "--agent", &http];
        assert!(run(&send).status.success());
    }
    let before = resident_kib(&agent);
    let readers: Vec<_> = (0..8)
        .map(|_| {
            let mut client = std::net::TcpStream::connect(agent.http()).unwrap();
            client.write_all(b"GET /v1/messages HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
            // Its answer has begun when the first bytes are there.
            assert_eq!(client.peek(&mut [0; 16]).unwrap(), 16);
            client
        })
        .collect();
    let (status, text) = agent.request("GET", "/v1/messages", &[], "");
    assert_api_error(status, &text, 503, "too_many_readers");
    assert!(run(&["send", "red", "x", "--agent", &http]).status.success(), "it still routes");
    let held = resident_kib(&agent).saturating_sub(before);
    assert!(held < 16 << 10, "eight readers of 16 MiB hold {held} KiB");
    drop(readers);
    common::wait_until("there is room again", || {
        (agent.request("GET", "/v1/messages", &[], "").0 == 200).then_some(())
    });
}

/// Clients begin long messages and stop. The next long message gets an error, and short ones pass.
#[test]
fn one_long_message_too_many_gets_an_error_and_short_ones_pass() {
    let agent = Agent::start(&["--services", "route"]);
    let http = agent.http().to_string();
    let json = "Content-Type: application/json";
    let head =
        format!("POST /v1/messages HTTP/1.1\r\nHost: localhost\r\n{json}\r\nContent-Length: 4000000\r\n");
    let begin = || {
        let mut client = std::net::TcpStream::connect(agent.http()).unwrap();
        client.write_all(format!("{head}Expect: 100-continue\r\n\r\n").as_bytes()).unwrap();
        let mut answer = [0; 12];
        std::io::Read::read_exact(&mut client, &mut answer).unwrap();
        (client, String::from_utf8_lossy(&answer).into_owned())
    };
    let begun: Vec<_> = (0..8).map(|_| begin()).collect();
    assert!(begun.iter().all(|(_, answer)| answer == "HTTP/1.1 100"), "{begun:?}");
    assert!(run(&["send", "red", "x", "--agent", &http]).status.success());
    let (mut client, answer) = begin();
    let mut rest = String::new();
    // A reset after the answer is as good as an end.
    let _ = std::io::Read::read_to_string(&mut client, &mut rest);
    assert_eq!(answer, "HTTP/1.1 503");
    let (_, text) = rest.split_once("\r\n\r\n").expect("a body follows");
    assert_api_error(503, text, 503, "too_many_messages");
    drop(begun);
    let long = format!("{{\"key\":\"red\",\"payload_base64\":\"{}\"}}", "AAAA".repeat(500_000));
    common::wait_until("there is room again", || {
        (agent.request("POST", "/v1/messages", &[json], &long).0 == 200).then_some(())
    });
}

fn resident_kib(agent: &Agent) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", agent.child.id())).expect("it runs");
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("Linux tells it");
    line.split_whitespace().nth(1).and_then(|kib| kib.parse().ok()).expect("it is a number")
}
