//! `mesh` as a user runs it: real agents that carry messages for each other, also for offline ones.

mod common;

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{IpAddr, TcpStream, UdpSocket};
use std::path::Path;
use std::process::Stdio;

use common::mesh::{Network, bytes, counter, inbox, nid, send, sent, wait_for_message, wait_for_peers};
use common::{Agent, annulus, own_ip, own_udp_port, wait_until};
use serde_json::Value;

#[test]
fn agents_exchange_messages_through_one_seed() {
    let agents = Network::new().agents(3);
    let nids: Vec<String> = agents.iter().map(nid).collect();
    for (agent, own) in agents.iter().zip(&nids) {
        assert_eq!(agent.json(&["info"])["nid"], own.as_str());
        for to in nids.iter().filter(|to| *to != own) {
            sent(agent, to, format!("from {own} to {to}").as_bytes(), &[]);
        }
    }
    for (agent, own) in agents.iter().zip(&nids) {
        for from in nids.iter().filter(|from| *from != own) {
            let line = wait_for_message(agent, from);
            let text = format!("from {from} to {own}");
            assert_eq!((&line["to"], &line["size"]), (&own.as_str().into(), &text.len().into()), "{line}");
            assert_eq!(bytes(agent, &["mesh", "read", &line["number"].to_string()]), text.as_bytes());
            let hash = line["hash"].as_str().unwrap();
            assert!(agent.stdout(&["mesh", "inbox"]).contains(&hash[..16]));
            for digits in [hash, &hash[..16], &hash[..8].to_uppercase()] {
                // The block of a letter has its envelope, too.
                assert!(bytes(agent, &["mesh", "get", digits]).ends_with(text.as_bytes()));
            }
        }
        assert_eq!(inbox(agent).len(), 2);
    }
}

#[test]
fn a_receipt_is_shown_in_the_outbox() {
    let agents = Network::new().agents(2);
    let (red, blue) = (&agents[0], &agents[1]);
    let answer = sent(red, &nid(blue).to_uppercase(), b"please confirm", &["--receipt"]);
    assert_eq!(answer["to"], nid(blue), "whatever case it is written in");
    let line = wait_for_message(blue, &nid(red));
    assert_eq!(line["hash"], answer["hash"]);
    // The form around it, which requests the receipt, is in the block, and not in the message.
    assert_eq!(bytes(blue, &["mesh", "read", &line["number"].to_string()]), b"please confirm");
    let read = blue.json(&["mesh", "read", &line["number"].to_string()]);
    assert_eq!(
        (&read["data_base64"], &read["hash"]),
        (&"cGxlYXNlIGNvbmZpcm0=".into(), &line["hash"]),
        "{read}"
    );
    let got = blue.json(&["mesh", "get", &line["hash"].as_str().unwrap()[..8]]);
    assert_eq!(got["hash"], line["hash"]);
    assert!(
        got["data_base64"].as_str().unwrap().starts_with("YW5udWx1cy9mb3JtLzEN"),
        "with what is around it: {got}"
    );
    assert_eq!(answer["state"], "delivered", "it has waited for that");
    assert!(red.stdout(&["mesh", "outbox"]).contains("delivered"));
}

#[test]
fn a_message_waits_for_a_recipient_that_is_away() {
    let network = Network::new();
    let dir = tempfile::tempdir().unwrap();
    let data = ["--data-dir", dir.path().to_str().unwrap()];
    let red = network.start(network.seed, &[]);
    let away = own_ip();
    let mut blue = network.start(away, &data);
    wait_for_peers(&red, 1);
    let to = nid(&blue);
    blue.signal("TERM");
    assert_eq!(blue.wait(), Some(0));
    wait_until("it is gone", || red.json(&["mesh", "peers"]).as_array()?.is_empty().then_some(()));
    sent(&red, &to, b"welcome back", &[]);
    assert_eq!(red.json(&["mesh", "outbox"])[0]["state"], "waiting");
    let blue = network.start(away, &data);
    let line = wait_for_message(&blue, &nid(&red));
    assert_eq!(bytes(&blue, &["mesh", "read", &line["number"].to_string()]), b"welcome back");
    assert_eq!(inbox(&blue).len(), 1);
}

#[test]
fn acknowledged_messages_survive_a_kill() {
    let network = Network::new();
    let dir = tempfile::tempdir().unwrap();
    let data = ["--data-dir", dir.path().to_str().unwrap()];
    let mut red = network.start(network.seed, &data);
    let own = nid(&red);
    let nobody = "0".repeat(64);
    let text = |number: usize| format!("message {number}").into_bytes();
    let hashes: Vec<Value> =
        (0..5).map(|number| sent(&red, &nobody, &text(number), &[])["hash"].clone()).collect();
    red.signal("KILL");
    red.wait();
    let red = network.start(network.seed, &data);
    assert_eq!(nid(&red), own);
    for (number, hash) in hashes.iter().enumerate() {
        assert_eq!(bytes(&red, &["mesh", "get", hash.as_str().unwrap()]), text(number));
    }
    assert_eq!(red.json(&["mesh", "status"])["waiting"], 5);
    assert_eq!(red.json(&["mesh", "outbox"]).as_array().unwrap().len(), 5);
}

#[test]
fn garbage_is_counted_and_messages_go_on() {
    let network = Network::new();
    let agents = network.agents(2);
    let at = (agents[0].ip, network.port);
    let socket = UdpSocket::bind((own_ip(), 0)).unwrap();
    for garbage in [&b"\x01"[..], b"w00 HERE", b"w00 HERE zz 1.2.3.4 5", &[0xff; 1400]] {
        socket.send_to(garbage, at).unwrap();
    }
    for garbage in [&b"GET / HTTP/1.1\r\n\r\n"[..], b"\xff\xff\xff\xff", b"\x00\x00\x00\x04nono"] {
        TcpStream::connect(at).unwrap().write_all(garbage).unwrap();
    }
    wait_until("it is counted", || {
        let datagrams = counter(&agents[0], "annulus_mesh_malformed_datagrams_total")?;
        let connections = counter(&agents[0], "annulus_mesh_connections_refused_total")?;
        (datagrams >= 4 && connections >= 3).then_some(())
    });
    sent(&agents[1], &nid(&agents[0]), b"still there", &[]);
    wait_for_message(&agents[0], &nid(&agents[1]));
}

#[test]
fn a_long_message_arrives_whole() {
    let agents = Network::new().agents(2);
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("long");
    let data: Vec<u8> = (0..3_000_000u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    std::fs::write(&file, &data).unwrap();
    agents[0].stdout(&["mesh", "send", &nid(&agents[1]), file.to_str().unwrap()]);
    let line = wait_for_message(&agents[1], &nid(&agents[0]));
    assert!(bytes(&agents[1], &["mesh", "read", &line["number"].to_string(), "--remove"]) == data);
    assert_eq!(inbox(&agents[1]).len(), 0);
    // The letter, and the receipt for it once it was given.
    assert!(agents[1].json(&["mesh", "gc"])["blocks"].as_u64().unwrap() >= 1);
}

#[test]
fn the_known_nodes_are_a_file_of_the_documents_form() {
    let network = Network::new();
    let dir = tempfile::tempdir().unwrap();
    let red = network.start(network.seed, &["--data-dir", dir.path().to_str().unwrap()]);
    let blue = network.start(own_ip(), &[]);
    wait_for_peers(&red, 1);
    let seen = wait_until("it is written", || seconds_of(dir.path(), blue.ip));
    assert!(seen.parse::<u64>().is_ok(), "{seen}");
    assert_eq!(red.json(&["mesh", "known"])[0]["ip"], blue.ip.to_string());
}

/// The entry of a node in the file.
fn seconds_of(dir: &Path, ip: IpAddr) -> Option<String> {
    let text = std::fs::read_to_string(dir.join("known_nodes.json")).ok()?;
    let nodes: Value = serde_json::from_str(&text).expect("a file that is replaced is never half there");
    Some(nodes[ip.to_string()].as_str()?.to_owned())
}

#[test]
fn a_member_is_reached_by_its_name() {
    let port = format!("mesh.port={}", own_udp_port());
    let args = ["--services", "members,mesh", "--set", "members.preset=local", "--set", &port];
    let red = Agent::start(&[&args[..], &["--name", "red"]].concat());
    let join = format!("{}:7946", red.ip);
    // Without a seed: members become known nodes.
    let blue = Agent::start(&[&args[..], &["--name", "blue", "--join", &join]].concat());
    wait_until("the name is known", || send(&red, "blue", b"hello blue", &[]).status.success().then_some(()));
    let line = wait_for_message(&blue, &nid(&red));
    assert_eq!(bytes(&blue, &["mesh", "read", &line["number"].to_string()]), b"hello blue");
}

#[test]
fn people_see_tables_and_an_inbox_that_fills() {
    let agents = Network::new().agents(2);
    let (red, blue) = (&agents[0], &agents[1]);
    sent(blue, &nid(red), b"first", &[]);
    wait_for_message(red, &nid(blue));
    let http = red.http().to_string();
    let mut watch = annulus(&["mesh", "inbox", "--watch", "--agent", &http]);
    let mut watch = watch.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(watch.stdout.take().unwrap()).lines().map_while(Result::ok);
    assert!(lines.next().unwrap().starts_with("N"));
    assert!(lines.next().unwrap().contains(&nid(blue)[..16]));
    sent(blue, &nid(red), b"second", &[]);
    assert!(lines.next().unwrap().contains(&nid(blue)[..16]));
    watch.kill().unwrap();
    watch.wait().unwrap();
    // Its text turns the direction of writing: programs read it, and a terminal does not see it.
    sent(blue, &nid(red), "third \u{202e}".as_bytes(), &[]);
    let mut watch = annulus(&["mesh", "inbox", "--watch", "--json", "--agent", &http]);
    let mut watch = watch.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(watch.stdout.take().unwrap()).lines().map_while(Result::ok);
    let third = lines.find(|line| line.contains("third")).unwrap();
    assert!(third.contains(r"third \u202e") && !third.contains('\u{202e}'), "{third}");
    watch.kill().unwrap();
    watch.wait().unwrap();
    assert!(red.stdout(&["mesh"]).contains(&nid(red)));
    assert!(red.stdout(&["mesh", "peers"]).contains(&nid(blue)));
    assert!(red.stdout(&["mesh", "known"]).contains(&blue.ip.to_string()));
    assert!(red.stdout(&["mesh", "inbox"]).starts_with("N"));
    assert!(blue.stdout(&["mesh", "outbox"]).starts_with("N"));
    assert!(red.stdout(&["mesh", "gc"]).contains("threw away"));
}

#[test]
fn cu_24_send_prints_what_the_sender_will_learn_and_wait_sets_the_exit_code() {
    let agents = Network::new().agents(2);
    let (red, blue) = (&agents[0], nid(&agents[1]));
    let http = red.http().to_string();
    let send = |to: &str, more: &[&str]| {
        let args = [&["mesh", "send", to, "--agent", &http], more].concat();
        let output = annulus(&args).output().unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap())
    };
    let (code, text) = send(&"7".repeat(64), &[]);
    assert!(code == Some(0) && text.contains("plain, so no receipt is possible"), "{code:?} {text}");
    wait_until("its hello says that it knows letters", || {
        let book = red.json(&["mesh", "book"]);
        let knows = |line: &serde_json::Value| line["nid"] == *blue && line["knows_letters"] == true;
        book.as_array()?.iter().any(knows).then_some(())
    });
    let (code, text) = send(&blue, &["--wait", "30s"]);
    assert!(code == Some(0) && text.contains("is delivered"), "{code:?} {text}");
    let nobody = "6".repeat(64);
    let (code, text) = send(&nobody, &["--letter", "--expire", "2h"]);
    assert!(code == Some(0) && text.starts_with("letter ") && text.contains("kept until"), "{code:?} {text}");
    let (code, text) = send(&nobody, &["--letter", "--wait", "50ms"]);
    assert_eq!(code, Some(75), "{text}");
    let outbox = red.json(&["mesh", "outbox"]);
    let last = outbox.as_array().unwrap().last().unwrap()["number"].to_string();
    let text = red.stdout(&["mesh", "cancel", &last]);
    assert!(text.contains("is withdrawn"), "{text}");
}

/// Bytes that no two places of have in common.
fn noise(bytes: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    (0..bytes.div_ceil(8)).flat_map(|_| next()).take(bytes).collect()
}

/// A field of `/proc/PID/status`, in KiB.
fn memory_kib(agent: &Agent, field: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", agent.child.id())).expect("it runs");
    let line = status.lines().find(|line| line.starts_with(field)).expect("there is such a field");
    line.split_whitespace().nth(1).and_then(|kib| kib.parse().ok()).expect("it is a number")
}

#[test]
fn a_file_goes_on_after_a_break_of_every_part_and_ends_in_a_receipt() {
    let network = Network::new();
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let (red_data, blue_data) = (path("red"), path("blue"));
    let blue_ip = own_ip();
    let mut red = network.start(network.seed, &["--data-dir", &red_data]);
    let mut blue = network.start(blue_ip, &["--data-dir", &blue_data]);
    wait_for_peers(&red, 1);
    let to = nid(&blue);
    let data = noise(40 << 20);
    std::fs::write(path("long"), &data).unwrap();
    let file = path("long");
    let send = |agent: &Agent| {
        let http = agent.http().to_string();
        let mut command = annulus(&["mesh", "send", &to, &file, "--json", "--agent", &http]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the binary runs")
    };
    let mut broken = send(&red);
    let done = |agent: &Agent| agent.json(&["mesh", "files"])[0]["done"].as_u64();
    wait_until("some of it is there", || (done(&blue)? >= 8).then_some(()));
    // Everything breaks: the command, the sender and the recipient.
    broken.kill().unwrap();
    broken.wait().unwrap();
    red.signal("KILL");
    blue.signal("KILL");
    red.wait();
    blue.wait();
    let red = network.start(network.seed, &["--data-dir", &red_data]);
    let blue = network.start(blue_ip, &["--data-dir", &blue_data]);
    let answer = send(&red).wait_with_output().unwrap();
    assert!(answer.status.success(), "{answer:?}");
    let answer: Value = serde_json::from_slice(&answer.stdout).unwrap();
    assert_eq!((&answer["state"], &answer["size"]), (&"delivered".into(), &data.len().into()), "{answer}");
    let line = wait_for_message(&blue, &nid(&red));
    assert_eq!((&line["is_file"], &line["hash"]), (&true.into(), &answer["file"]), "{line}");
    assert_eq!(inbox(&blue).len(), 1);
    let number = line["number"].to_string();
    for verb in [["mesh", "read", &number], ["mesh", "get", line["hash"].as_str().unwrap()]] {
        let refused = annulus(&[&verb[..], &["--json", "--agent", &blue.http().to_string()]].concat())
            .output()
            .unwrap();
        assert!(String::from_utf8_lossy(&refused.stderr).contains("write it with --output"), "{refused:?}");
    }
    assert!(bytes(&blue, &["mesh", "read", &number]) == data, "from standard output");
    blue.stdout(&["mesh", "get", line["hash"].as_str().unwrap(), "--output", &path("copy")]);
    assert!(std::fs::read(path("copy")).unwrap() == data, "from a file");
    let sent = &red.json(&["mesh", "outbox"])[0];
    assert_eq!((&sent["state"], &sent["is_file"]), (&"delivered".into(), &true.into()), "{sent}");
    assert_eq!(sent["size"], data.len(), "that of the file, not of what announces it");
    assert_eq!(red.json(&["mesh", "files"]).as_array().unwrap().len(), 0, "nothing is under way any more");
    assert!(blue.stdout(&["mesh", "files"]).contains("long"));
    // The same file again costs one question.
    let again = send(&red).wait_with_output().unwrap();
    assert!(again.status.success(), "{again:?}");
    blue.stdout(&["mesh", "read", &number, "--output", &path("last"), "--remove"]);
    assert_eq!((inbox(&blue).len(), blue.json(&["mesh", "files"]).as_array().unwrap().len()), (0, 0));
}

#[test]
fn a_file_to_an_offline_recipient_can_be_dropped() {
    let network = Network::new();
    let red = network.start(network.seed, &[]);
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("long");
    std::fs::File::create(&file).unwrap().set_len(17 << 20).unwrap();
    let (nobody, http) = ("7".repeat(64), red.http().to_string());
    let mut sending = annulus(&["mesh", "send", &nobody, file.to_str().unwrap(), "--agent", &http]);
    let sending = sending.stderr(Stdio::piped()).spawn().unwrap();
    let hash =
        wait_until("it is offered", || Some(red.json(&["mesh", "files"])[0]["file"].as_str()?.to_owned()));
    assert!(red.stdout(&["mesh", "files"]).contains(&hash[..16]));
    assert_eq!(red.json(&["mesh", "drop", &hash[..16]])["file"], hash.as_str());
    let ended = sending.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(1), "{ended:?}");
    assert_eq!(red.json(&["mesh", "files"]).as_array().unwrap().len(), 0);
    assert_eq!(red.json(&["mesh", "outbox"])[0]["state"], "unconfirmed");
}

/// A gibibyte through three agents, of which none may need memory for it. It takes a minute or more, 5 GB of disk, and:
/// `cargo test --release -p annulus-cli --test mesh a_gibibyte -- --ignored --nocapture`
#[test]
#[ignore = "needs 5 GB of disk and a minute"]
fn a_gibibyte_needs_no_memory() {
    let network = Network::new();
    // Here, not in /tmp, which may be memory.
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let start = |ip, name: &str| network.start(ip, &["--data-dir", &path(name), "--set", "mesh.max=4"]);
    let agents = [start(network.seed, "a"), start(own_ip(), "b"), start(own_ip(), "c")];
    agents.iter().for_each(|agent| wait_for_peers(agent, 2));
    let part = noise(64 << 20);
    let mut file = std::fs::File::create(path("long")).unwrap();
    for number in 0..16u8 {
        file.write_all(&[number; 7]).unwrap();
        file.write_all(&part[7..]).unwrap();
    }
    drop(file);
    let begin = std::time::Instant::now();
    let to = nid(&agents[2]);
    let answer = agents[0].json(&["mesh", "send", &to, &path("long")]);
    let sent = begin.elapsed();
    assert_eq!((&answer["state"], &answer["size"]), (&"delivered".into(), &(1u64 << 30).into()));
    agents[2].stdout(&["mesh", "get", answer["file"].as_str().unwrap(), "--output", &path("copy")]);
    let same = std::process::Command::new("cmp").args([path("long"), path("copy")]).status().unwrap();
    assert!(same.success());
    for agent in &agents {
        let (peak, now) = (memory_kib(agent, "VmHWM"), memory_kib(agent, "VmRSS"));
        println!("resident {} MiB, at most {} MiB", now >> 10, peak >> 10);
        assert!(peak < 256 << 10, "{peak} KiB");
    }
    println!("1 GiB in {:.1} s, {:.1} MiB/s", sent.as_secs_f64(), 1024.0 / sent.as_secs_f64());
}
