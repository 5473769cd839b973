//! `annulus token run` as a user runs it: turns of commands, and every way in which they end.

mod common;

use std::fs::{self, OpenOptions};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use common::ring::{counts, ring, token, wait_for_ring};
use common::{Agent, annulus, wait_until};

fn run(agent: &Agent, args: &[&str]) -> Command {
    let http = agent.http().to_string();
    annulus(&[&["token", "run", "--agent", &http], args].concat())
}

fn signal(child: &Child, name: &str) {
    let status = Command::new("kill").args([&format!("-{name}"), &child.id().to_string()]).status();
    assert!(status.expect("kill runs").success());
}

/// A command that writes its process id, starts another, and would run for ever.
fn endless(dir: &Path) -> (String, PathBuf) {
    let file = dir.join("pids");
    (format!("sleep 600 & echo $$ $! > {0}.new; mv {0}.new {0}; wait", file.display()), file)
}

/// The processes that wrote themselves down, once they did.
fn pids(file: &Path) -> Vec<String> {
    let text = wait_until("the command runs", || fs::read_to_string(file).ok());
    text.split_whitespace().map(str::to_owned).collect()
}

/// Whether a process still runs; a zombie does not.
fn runs(pid: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(')').next().and_then(|rest| rest.trim().chars().next()).is_some_and(|state| state != 'Z')
}

fn wait_until_gone(pids: &[String]) {
    wait_until("the command and what it started are gone", || {
        (!pids.iter().any(|pid| runs(pid))).then_some(())
    });
}

/// Waits until the token has gone round twice more: no node holds it.
fn wait_until_it_turns(agents: &[Agent]) {
    let sum = || counts(&agents[1]).iter().map(|(_, count)| count).sum::<u64>();
    let before = sum();
    wait_until("the token goes on", || (sum() > before + 4).then_some(()));
}

#[test]
fn a_signal_stops_the_command_and_releases_the_token() {
    let agents = ring(2);
    wait_for_ring(&agents.iter().collect::<Vec<_>>());
    for (name, code) in [("INT", 130), ("TERM", 143), ("HUP", 129)] {
        let dir = tempfile::tempdir().unwrap();
        let (script, file) = endless(dir.path());
        let mut child = run(&agents[0], &["--limit", "1h", "--", "sh", "-c", &script]).spawn().unwrap();
        let pids = pids(&file);
        signal(&child, name);
        assert_eq!(child.wait().unwrap().code(), Some(code), "{name}");
        wait_until_gone(&pids);
        wait_until_it_turns(&agents);
    }
}

#[test]
fn a_turn_that_is_killed_takes_its_command_along_and_the_token_goes_on() {
    let agents = ring(2);
    wait_for_ring(&agents.iter().collect::<Vec<_>>());
    let dir = tempfile::tempdir().unwrap();
    let (script, file) = endless(dir.path());
    let mut child = run(&agents[0], &["--limit", "1h", "--", "sh", "-c", &script]).spawn().unwrap();
    let pids = pids(&file);
    assert_eq!(token(&agents[0])["state"], "leader");
    signal(&child, "KILL");
    assert_eq!(child.wait().unwrap().signal(), Some(9));
    // Its guard ends everything, and only then does the token go on.
    wait_until("the token is elsewhere", || (token(&agents[0])["state"] != "leader").then_some(()));
    assert!(!pids.iter().any(|pid| runs(pid)), "the command and what it started had ended before");
    wait_until_it_turns(&agents);
}

#[test]
fn tu_42_a_weak_turn_ends_in_time_though_agent_and_client_are_stopped() {
    let agents = ring(3);
    wait_for_ring(&agents.iter().collect::<Vec<_>>());
    let dir = tempfile::tempdir().unwrap();
    let (lock, there) = (dir.path().join("lock"), dir.path().join("there"));
    let (lock, file) = (lock.to_str().unwrap(), there.display());
    // It ignores TERM, and has the lock as long as any process of it lives.
    let script = format!("trap '' TERM; touch {file}; while :; do sleep 600; done");
    let turn = ["--limit", "1h", "--", "flock", "-n", lock, "sh", "-c", &script];
    let mut first = run(&agents[0], &turn).spawn().unwrap();
    wait_until("the command runs", || there.exists().then_some(()));
    signal(&first, "STOP");
    agents[0].signal("STOP");
    let next = run(&agents[1], &["--", "flock", "-n", lock, "true"]).status().unwrap();
    assert_eq!(next.code(), Some(0), "nobody else had the lock when the next turn began");
    agents[0].signal("CONT");
    signal(&first, "CONT");
    assert_eq!(first.wait().unwrap().code(), Some(75));
}

#[test]
fn the_wait_for_a_weak_turn_has_its_limit() {
    let agents = ring(2);
    wait_for_ring(&agents.iter().collect::<Vec<_>>());
    assert_eq!(run(&agents[1], &["--try", "--", "true"]).status().unwrap().code(), Some(0), "it is free");
    let dir = tempfile::tempdir().unwrap();
    let (script, file) = endless(dir.path());
    let mut holder = run(&agents[0], &["--limit", "1h", "--", "sh", "-c", &script]).spawn().unwrap();
    pids(&file);
    let tried = run(&agents[1], &["--try", "--", "true"]).output().unwrap();
    let said = String::from_utf8_lossy(&tried.stderr).into_owned();
    let at = agents[0].ip.to_string();
    assert!(tried.status.code() == Some(1) && said.contains(&format!("{at} has it")), "{said}");
    let waited = ["--wait", "300ms", "--conflict-exit-code", "9", "--", "true"];
    assert_eq!(run(&agents[1], &waited).status().unwrap().code(), Some(9));
    signal(&holder, "TERM");
    assert_eq!(holder.wait().unwrap().code(), Some(143));
    assert_eq!(run(&agents[1], &["--wait", "1m", "--", "true"]).status().unwrap().code(), Some(0));
}

#[test]
fn a_script_can_check_its_weak_turn() {
    let agents = ring(1);
    wait_until("it leads", || (token(&agents[0])["state"] == "leader").then_some(()));
    let script = format!("{} turn check", env!("CARGO_BIN_EXE_annulus"));
    let output = run(&agents[0], &["--", "sh", "-c", &script]).output().unwrap();
    let left: u64 = String::from_utf8(output.stdout).unwrap().trim().parse().unwrap();
    assert!(left > 0);
    let stale = annulus(&["turn", "check", "--agent", &agents[0].http().to_string()])
        .env("ANNULUS_HOLD", "999999")
        .status()
        .unwrap();
    assert_eq!(stale.code(), Some(75));
}

#[test]
fn a_second_signal_ends_a_command_that_does_not_listen() {
    let agents = ring(2);
    wait_for_ring(&agents.iter().collect::<Vec<_>>());
    let dir = tempfile::tempdir().unwrap();
    let (script, file) = endless(dir.path());
    let script = format!("trap '' TERM; {script}; wait; sleep 600");
    let mut child = run(&agents[0], &["--limit", "1h", "--", "sh", "-c", &script]).spawn().unwrap();
    let pids = pids(&file);
    signal(&child, "TERM");
    // It has taken the first one when the command has it; the command ignores it, so only ours can be seen.
    wait_until("it is told again", || {
        signal(&child, "INT");
        child.try_wait().unwrap()
    });
    assert!(!runs(&pids[0]));
    wait_until_it_turns(&agents);
}

#[test]
fn a_command_that_does_not_listen_has_ended_when_the_next_turn_begins() {
    let agents = ring(2);
    wait_for_ring(&agents.iter().collect::<Vec<_>>());
    let dir = tempfile::tempdir().unwrap();
    let (lock, there) = (dir.path().join("lock"), dir.path().join("there"));
    let (lock, file) = (lock.to_str().unwrap(), there.display());
    // It has the lock as long as any process of it lives.
    let script = format!("trap '' TERM; touch {file}; sleep 600; sleep 600");
    let turn = ["--limit", "2s", "--", "flock", "-n", lock, "sh", "-c", &script];
    let mut first = run(&agents[0], &turn).spawn().unwrap();
    wait_until("the command runs", || there.exists().then_some(()));
    let next = run(&agents[1], &["--", "flock", "-n", lock, "true"]).status().unwrap();
    assert_eq!(next.code(), Some(0), "nobody else had the lock");
    assert_eq!(first.wait().unwrap().code(), Some(75), "and it is told that its time was over");
}

#[test]
fn the_exit_code_tells_how_the_command_ended() {
    let agents = ring(2);
    wait_for_ring(&agents.iter().collect::<Vec<_>>());
    for (script, code) in [("exit 7", 7), ("kill -KILL $$", 137), ("kill -SEGV $$", 139)] {
        let status = run(&agents[0], &["--", "sh", "-c", script]).status().unwrap();
        assert_eq!(status.code(), Some(code), "{script}");
    }
    let output = run(&agents[0], &["--", "/no/such/command"]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(127) && text.contains("check its name and PATH"), "{text}");
    wait_until_it_turns(&agents);
}

#[test]
fn turn_after_turn_leaves_nothing_behind() {
    let agents = ring(1);
    wait_until("it leads", || (token(&agents[0])["state"] == "leader").then_some(()));
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("log");
    let script = format!("echo $ANNULUS_FENCE >> {}", log.display());
    let mut child = run(&agents[0], &["--every", "0s", "--", "sh", "-c", &script]).spawn().unwrap();
    let turns = || fs::read_to_string(&log).unwrap_or_default().lines().count();
    let has = |pid: u32, what: &str| fs::read_dir(format!("/proc/{pid}/{what}")).unwrap().count();
    let (own, its) = (child.id(), agents[0].child.id());
    wait_until("it has had some turns", || (turns() >= 5).then_some(()));
    let before = [has(own, "task"), has(own, "fd"), has(its, "fd")];
    wait_until("it has had many", || (turns() >= 30).then_some(()));
    let after = [has(own, "task"), has(own, "fd"), has(its, "fd")];
    // A turn that is under way has a few of each; twenty-five that are not over would have many.
    assert!(before.iter().zip(after).all(|(before, after)| after < before + 8), "{before:?} {after:?}");
    signal(&child, "TERM");
    assert_eq!(child.wait().unwrap().code(), Some(143));
}

#[test]
fn three_agents_at_once_and_one_killed_print_growing_numbers() {
    let mut agents = ring(3);
    wait_for_ring(&agents.iter().collect::<Vec<_>>());
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("log");
    let mut children: Vec<Child> = agents
        .iter()
        .map(|agent| {
            let file = OpenOptions::new().create(true).append(true).open(&log).unwrap();
            let mut command = run(agent, &["--every", "0s", "--", "sh", "-c", "echo $ANNULUS_FENCE"]);
            command.stdout(file).spawn().unwrap()
        })
        .collect();
    let turns = || fs::read_to_string(&log).unwrap_or_default().lines().count();
    wait_until("they take turns", || (turns() >= 12).then_some(()));
    agents[0].signal("KILL");
    agents[0].wait();
    let at_the_kill = turns();
    // Its turns end with it.
    assert!(!children.remove(0).wait().unwrap().success());
    wait_until("the others go on", || (turns() >= at_the_kill + 12).then_some(()));
    for child in &mut children {
        signal(child, "TERM");
        assert_eq!(child.wait().unwrap().code(), Some(143));
    }
    let text = fs::read_to_string(&log).unwrap();
    let fences: Vec<u64> = text.lines().map(|line| line.parse().unwrap()).collect();
    assert!(fences.is_sorted_by(|a, b| a < b), "{fences:?}");
}
