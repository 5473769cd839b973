//! Members that failed or left: listed, stored, marked, forgotten.

mod common;

use std::net::IpAddr;

use common::members::{start, wait_for_all, wait_for_state};
use common::{Agent, own_ip, run, wait_until};
use serde_json::Value;

/// The failed and left members that an agent lists, by name.
fn failed(agent: &Agent, name: &str) -> Option<Value> {
    let failed = agent.json(&["members", "--failed"]);
    failed.as_array()?.iter().find(|member| member["name"] == name).cloned()
}

/// Ends an agent and starts it again on the same data.
fn restart(agent: &mut Agent, ip: IpAddr, args: &[&str]) {
    agent.signal("TERM");
    agent.wait();
    *agent = start("red", ip, None, args);
}

/// SA-33b: with when and by whom, also after a restart; marked as left, then forgotten.
#[test]
fn a_failed_member_is_listed_after_a_restart_until_it_is_pruned() {
    let dir = tempfile::tempdir().expect("there is room");
    let data =
        ["--data-dir", dir.path().to_str().expect("a path in UTF-8"), "--set", "members.interval=200ms"];
    let args = [&data[..], &["--set", "members.probe_timeout=50ms", "--set", "members.store_interval=50ms"]]
        .concat();
    let seed = own_ip();
    let mut red = start("red", seed, None, &args);
    let blue = start("blue", own_ip(), Some(seed), &args[2..]);
    let mut green = start("green", own_ip(), Some(seed), &args[2..]);
    wait_for_all(&[&red, &blue, &green]);
    green.signal("KILL");
    green.wait();
    wait_for_state(&[&red, &blue], "green", "dead");
    let before = failed(&red, "green").expect("it is listed");
    let since = before["since_micros"].as_u64().expect("it says since when");
    assert!(since > 1_700_000_000_000_000 && before["by"].is_string(), "{before}");
    let table = red.stdout(&["members", "--failed"]);
    assert!(table.contains("green") && table.contains(" ago") && !table.contains("blue"), "{table}");
    assert!(table.trim_end().ends_with(" red"), "the reporter has a name: {table}");
    restart(&mut red, seed, &args);
    let after = failed(&red, "green").expect("it is listed after a restart");
    assert_eq!([&after["since_micros"], &after["by"]], [&before["since_micros"], &before["by"]]);
    // Long gone from the table of members, it can still be marked and forgotten.
    red.stdout(&["force-leave", "green"]);
    assert_eq!(failed(&red, "green").expect("it is listed")["state"], "left");
    restart(&mut red, seed, &args);
    assert_eq!(failed(&red, "green").expect("it is listed")["state"], "left");
    red.stdout(&["force-leave", "green", "--prune"]);
    assert_eq!(failed(&red, "green"), None);
    restart(&mut red, seed, &args);
    wait_for_all(&[&red, &blue]);
    assert_eq!(failed(&red, "green"), None, "it is forgotten for good");
    let output = run(&["force-leave", "green", "--agent", &red.http().to_string()]);
    assert!(!output.status.success());
    wait_until("the other one still lists it", || failed(&blue, "green"));
}
