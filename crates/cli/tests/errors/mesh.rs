//! The errors of mesh.

use super::*;

/// The texts of the command line that a test here provokes.
pub(super) const PROVOKED: &[&str] = &[
    "mesh.min is …: it must be at most mesh.max",
    "mesh.expiry is zero",
    "mesh.announce asks for … ports above …",
    "mesh speaks IPv4 only",
    "is no address that others can dial",
    "this agent does not run mesh",
    "the member … does not run mesh",
    "is no address in the mesh, and no node of that name is known",
    "was not received, as far as is known",
    "nothing was heard from the recipient for as long as mesh.expiry",
    "choose another file: it is there already",
    "this file is too long for JSON",
    "cannot read the file …",
    "the same bytes were sent to the same node a short time ago",
    "the agent's answer broke off",
    "there is no such message",
    "there is no such block",
    "is no hash",
    "there is no such file under way",
    "several hashes begin with …",
];

/// The codes of the API.
pub(super) const CODES: &[&str] = &[
    "bad_address",
    "bad_base64",
    "duplicate_message",
    "quota_full",
    "no_such_block",
    "bad_hash",
    "ambiguous_hash",
    "no_such_message",
    "bad_file",
    "no_such_file",
    "wrong_block",
];

#[test]
fn an_impossible_mesh_configuration_gives_an_error() {
    let set = |key: &'static str| ["--services", "mesh", "--set", key];
    agent_fails(&set("mesh.min=33"), "mesh.min is …: it must be at most mesh.max", 2);
    agent_fails(&set("mesh.expiry=0s"), "mesh.expiry is zero", 2);
    let ports = ["--set", "mesh.announce=incrementing"];
    let text = "mesh.announce asks for … ports above …";
    agent_fails(&[&set("mesh.port=65535")[..], &ports].concat(), text, 2);
    let bind = |ip| ["agent", "--services", "mesh", "--bind", ip];
    assert_fails(&bind("::1"), "mesh speaks IPv4 only", 2);
    assert_fails(&bind("0.0.0.0"), "is no address that others can dial", 2);
}

#[test]
fn an_agent_without_mesh_answers_an_error() {
    let idle = Agent::start(&["--services", ""]);
    let http = idle.http().to_string();
    let nid = "7".repeat(64);
    for verb in [&["mesh"][..], &["mesh", "send", "db3", "/dev/null"], &["mesh", "send", &nid, "/dev/null"]] {
        assert_fails(&[verb, &["--agent", &http]].concat(), "this agent does not run mesh", 1);
    }
    let alone = Agent::start(&["--services", "members,mesh", "--name", "blue"]);
    let red = Agent::start(&["--services", "members", "--name", "red"]);
    red.stdout(&["join", &format!("{}:7946", alone.ip)]);
    let without = ["mesh", "send", "red", "/dev/null", "--agent", &alone.http().to_string()];
    assert_fails(&without, "the member … does not run mesh", 1);
}

#[test]
fn a_message_that_cannot_be_sent_or_read_gives_an_error() {
    let agent = Agent::start(&["--services", "mesh", "--set", "mesh.quota=1048576"]);
    let http = agent.http().to_string();
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    std::fs::write(path("short"), "hello").unwrap();
    let nid = "7".repeat(64);
    let send = |to: &str, name: &str| run(&["mesh", "send", to, &path(name), "--agent", &http]);
    let no_address = "is no address in the mesh, and no node of that name is known";
    assert_error(&send("nobody", "short"), no_address, 1);
    assert_error(&send(&nid, "missing"), "cannot read the file …", 1);
    assert!(send(&nid, "short").status.success());
    assert_error(&send(&nid, "short"), "the same bytes were sent to the same node a short time ago", 1);
    assert_fails(&["mesh", "read", "99", "--agent", &http], "there is no such message", 1);
    assert_fails(&["mesh", "get", &nid, "--agent", &http], "there is no such block", 1);
    assert_fails(&["mesh", "drop", &nid, "--agent", &http], "there is no such file under way", 1);
    assert_fails(&["mesh", "get", "7777777", "--agent", &http], "is no hash", 1);
    let there = ["mesh", "get", &nid, "--output", &path("short"), "--agent", &http];
    assert_fails(&there, "choose another file: it is there already", 1);
    let nowhere = path("no/such/place");
    let output = run(&["mesh", "get", "7777777", "--output", &nowhere, "--agent", &http]);
    assert_error(&output, "cannot write …; choose another file", 1);
    let told = String::from_utf8(output.stderr).unwrap();
    assert!(told.contains(&nowhere) && !told.replace(&nowhere, "").contains(".tmp"), "{told}");
    // Two texts whose hashes begin with the same eight digits.
    for text in ["57740", "86756"] {
        std::fs::write(path(text), text).unwrap();
        assert!(send(&nid, text).status.success());
    }
    assert_fails(&["mesh", "get", "d991bc58", "--agent", &http], "several hashes begin with …", 1);
    let message = |to: &str, data: &str| format!("{{\"to\":\"{to}\",\"data_base64\":\"{data}\"}}");
    let long = |bytes: usize| message(&nid, &"A".repeat(bytes.div_ceil(3) * 4));
    let no_block = format!("/v1/mesh/blocks/{nid}");
    let file = |blocks: &[&str]| {
        let blocks = serde_json::to_string(blocks).unwrap();
        format!("{{\"to\":\"{nid}\",\"name\":\"f\",\"size\":5,\"block_bytes\":5,\"blocks\":{blocks}}}")
    };
    let messages = "/v1/mesh/messages";
    let cases: &[(&str, &str, &str, u16, &str)] = &[
        ("POST", messages, &message("nobody", "aGVsbG8="), 404, "bad_address"),
        ("POST", messages, &message(&nid, "!"), 400, "bad_base64"),
        ("POST", messages, &message(&nid, "aGVsbG8="), 409, "duplicate_message"),
        ("POST", messages, &long(2 << 20), 507, "quota_full"),
        ("POST", messages, &long((16 << 20) + 3), 413, "message_too_long"),
        ("POST", messages, &long(17 << 20), 413, "body_too_large"),
        ("GET", "/v1/mesh/inbox/99", "", 404, "no_such_message"),
        ("GET", "/v1/mesh/inbox/first", "", 404, "no_such_message"),
        ("GET", &no_block, "", 404, "no_such_block"),
        ("GET", &no_block[..30], "", 404, "no_such_block"),
        ("GET", "/v1/mesh/blocks/short", "", 400, "bad_hash"),
        ("GET", "/v1/mesh/blocks/d991bc58", "", 409, "ambiguous_hash"),
        ("POST", "/v1/mesh/files", &file(&[]), 400, "bad_file"),
        ("GET", &format!("/v1/mesh/files/{nid}"), "", 404, "no_such_file"),
        ("POST", "/v1/mesh/files/drop", &format!("{{\"file\":\"{nid}\"}}"), 404, "no_such_file"),
        ("POST", "/v1/mesh/files/drop", "{\"file\":\"report.pdf\"}", 400, "bad_hash"),
    ];
    for (method, path, body, status, code) in cases {
        let (answered, text) = agent.request(method, path, &["Content-Type: application/json"], body);
        assert_api_error(answered, &text, *status, code);
    }
}

#[test]
fn an_undelivered_message_is_shown_as_not_received() {
    let agent = Agent::start(&["--services", "mesh", "--set", "mesh.expiry=1s"]);
    let http = agent.http().to_string();
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    std::fs::File::create(path("long")).unwrap().set_len(16 << 20).unwrap();
    std::fs::write(path("short"), "hello").unwrap();
    let nid = "7".repeat(64);
    let short = ["mesh", "send", &nid, &path("short"), "--receipt", "--agent", &http];
    assert_fails(&short, "was not received, as far as is known", 1);
    let long = ["mesh", "send", &nid, &path("long"), "--agent", &http];
    assert_fails(&long, "nothing was heard from the recipient for as long as mesh.expiry", 1);
    let offer =
        format!("{{\"to\":\"{nid}\",\"name\":\"f\",\"size\":5,\"block_bytes\":5,\"blocks\":[\"{nid}\"]}}");
    let (status, answer) =
        agent.request("POST", "/v1/mesh/files", &["Content-Type: application/json"], &offer);
    assert_eq!(status, 200, "{answer}");
    let answer: serde_json::Value = serde_json::from_str(&answer).unwrap();
    let block = format!("/v1/mesh/files/{}/blocks/0?to={nid}", answer["file"].as_str().unwrap());
    let (status, text) = agent.request("PUT", &block, &["Content-Type: application/octet-stream"], "other");
    assert_api_error(status, &text, 409, "wrong_block");
}

#[test]
fn a_watch_of_a_killed_agent_gives_an_error() {
    let mut agent = Agent::start(&["--services", "mesh"]);
    let http = agent.http().to_string();
    let mut watch = annulus(&["mesh", "inbox", "--watch", "--agent", &http]);
    let watch = watch.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    let mut watch = watch.spawn().unwrap();
    let own = agent.json(&["mesh"])["nid"].as_str().unwrap().to_owned();
    agent.stdout(&["mesh", "send", &own, "/dev/null"]);
    // The line behind the headings shows that it has begun to wait.
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(watch.stdout.take().unwrap()));
    assert!(lines.nth(1).unwrap().unwrap().contains(&own[..16]));
    agent.signal("KILL");
    agent.wait();
    assert_error(&watch.wait_with_output().unwrap(), "the agent's answer broke off", 1);
}
