//! `annulus lock` with real processes: agents, clients, guards and commands, stopped and killed with signals (TUF-15).

mod common;

use std::fs;
use std::net::IpAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use common::{Agent, annulus, own_ip, pause, wait_until};

/// A short lease, so that a test need not wait for a long one.
const LEASE: &str = "turns.lease=3s";

/// Agents without services but turns; the first three vote.
struct Group {
    agents: Vec<Agent>,
}

impl Group {
    fn start(nodes: usize) -> Self {
        let ips: Vec<IpAddr> = (0..nodes).map(|_| own_ip()).collect();
        let voters = ips.iter().take(3).map(ToString::to_string).collect::<Vec<_>>().join(",");
        let voters = format!("token.voters={voters}");
        let args = ["--services", "", "--set", &voters, "--set", LEASE];
        let agents: Vec<Agent> = ips.iter().map(|ip| Agent::start_on(*ip, &args)).collect();
        for agent in &agents {
            wait_until("the group is founded", || {
                let status = agent.json(&["voters"]);
                let voting =
                    status["voters"].as_array()?.iter().filter(|voter| voter["standing"] == "voting");
                (status["group"].is_string() && voting.count() == 3).then_some(())
            });
        }
        Self { agents }
    }

    fn lock(&self, node: usize, args: &[&str]) -> Command {
        let http = self.agents[node].http().to_string();
        annulus(&[&["lock", "--agent", &http], args].concat())
    }
}

fn signal(pid: u32, name: &str) {
    let status = Command::new("kill").args([&format!("-{name}"), &pid.to_string()]).status();
    assert!(status.expect("kill runs").success());
}

/// The pid that a command wrote down.
fn pid(file: &Path) -> u32 {
    wait_until("the command runs", || fs::read_to_string(file).ok()?.trim().parse().ok())
}

fn runs(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(')').next().and_then(|rest| rest.trim().chars().next()).is_some_and(|state| state != 'Z')
}

fn wait_until_gone(pid: u32) {
    wait_until("the command is gone", || (!runs(pid)).then_some(()));
}

fn code(command: &mut Command) -> Option<i32> {
    command.output().expect("the binary runs").status.code()
}

/// A command that writes its pid and would run for ever.
fn endless(file: &Path) -> String {
    format!("echo $$ > {0}.new; mv {0}.new {0}; exec sleep 600", file.display())
}

#[test]
fn a_lock_runs_its_command_and_returns_its_exit_code() {
    let group = Group::start(4);
    let output = group.lock(3, &["a", "--", "sh", "-c", "echo $ANNULUS_FENCE"]).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let first: u64 = String::from_utf8(output.stdout).unwrap().trim().parse().unwrap();
    let output = group.lock(0, &["a", "--", "sh", "-c", "echo $ANNULUS_FENCE; exit 7"]).output().unwrap();
    assert_eq!(output.status.code(), Some(7));
    let second: u64 = String::from_utf8(output.stdout).unwrap().trim().parse().unwrap();
    assert!(second > first, "{second} after {first}");
    assert_eq!(code(&mut group.lock(1, &["a", "--", "/no/such/program"])), Some(127));

    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("pid");
    let mut holder = group.lock(1, &["a", "--", "sh", "-c", &endless(&file)]).spawn().unwrap();
    let command = pid(&file);
    assert_eq!(code(&mut group.lock(2, &["a", "--try", "--", "true"])), Some(1));
    assert_eq!(code(&mut group.lock(2, &["a", "--try", "--conflict-exit-code", "9", "--", "true"])), Some(9));
    assert_eq!(code(&mut group.lock(2, &["a", "--wait", "200ms", "--", "true"])), Some(1));
    assert_eq!(code(&mut group.lock(2, &["another", "--try", "--", "true"])), Some(0));
    let shown = group.lock(2, &["a", "--print", "--json"]).output().unwrap();
    let shown: serde_json::Value = serde_json::from_slice(&shown.stdout).unwrap();
    assert!(shown["holder"].is_string() && shown["fence"].as_u64() > Some(second), "{shown}");
    signal(holder.id(), "TERM");
    assert_eq!(holder.wait().unwrap().code(), Some(143));
    assert!(!runs(command));
    assert_eq!(code(&mut group.lock(2, &["a", "--wait", "20s", "--", "true"])), Some(0));
}

#[test]
fn a_script_can_check_its_turn_and_without_voters_there_is_no_lock() {
    let group = Group::start(3);
    let script = format!("{} turn check", env!("CARGO_BIN_EXE_annulus"));
    let output = group.lock(0, &["a", "--", "sh", "-c", &script]).output().unwrap();
    let left: u64 = String::from_utf8(output.stdout).unwrap().trim().parse().unwrap();
    assert!((1..=2400).contains(&left), "{left}");
    let http = group.agents[0].http().to_string();
    let unknown = "0".repeat(32);
    assert_eq!(code(&mut annulus(&["turn", "check", &unknown, "--agent", &http])), Some(75));
    let alone = Agent::start(&["--services", ""]);
    let output =
        annulus(&["lock", "a", "--agent", &alone.http().to_string(), "--", "true"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("token.voters"));
}

#[test]
fn tuf_15_the_guard_ends_a_command_whose_agent_and_client_are_stopped() {
    let group = Group::start(4);
    let dir = tempfile::tempdir().unwrap();
    for (number, who) in ["agent", "client", "both"].into_iter().enumerate() {
        let file = dir.path().join(who);
        let mut holder = group.lock(3, &[who, "--", "sh", "-c", &endless(&file)]).spawn().unwrap();
        let command = pid(&file);
        let agent = group.agents[3].child.id();
        let stopped: &[u32] = match number {
            0 => &[agent],
            1 => &[holder.id()],
            _ => &[agent, holder.id()],
        };
        stopped.iter().for_each(|pid| signal(*pid, "STOP"));
        wait_until_gone(command);
        stopped.iter().for_each(|pid| signal(*pid, "CONT"));
        assert_eq!(holder.wait().unwrap().code(), Some(75), "{who}");
    }
}

#[test]
fn tuf_15_a_killed_client_or_guard_takes_its_command_along() {
    let group = Group::start(3);
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("client");
    let mut holder = group.lock(0, &["a", "--", "sh", "-c", &endless(&file)]).spawn().unwrap();
    let command = pid(&file);
    signal(holder.id(), "KILL");
    holder.wait().unwrap();
    wait_until_gone(command);
    let file = dir.path().join("guard");
    // A grandchild in a session of its own is found by descent.
    let script = format!("setsid sleep 600 & echo $! > {0}.deep; {1}", file.display(), endless(&file));
    let mut holder = group.lock(1, &["b", "--", "sh", "-c", &script]).spawn().unwrap();
    let command = pid(&file);
    let deep = pid(&file.with_extension("deep"));
    let children = fs::read_to_string(format!("/proc/{0}/task/{0}/children", holder.id())).unwrap();
    signal(children.trim().parse().expect("the guard is the one child"), "KILL");
    wait_until_gone(command);
    wait_until_gone(deep);
    assert_eq!(holder.wait().unwrap().code(), Some(75));
}

/// The children of a process, with their names.
fn children(pid: u32) -> Vec<(u32, String)> {
    let list = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    let pids = list.split_whitespace().filter_map(|pid| pid.parse().ok());
    let name =
        |pid: u32| fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default().trim().to_owned();
    pids.map(|pid| (pid, name(pid))).collect()
}

/// The guard and the process that becomes the command exist while their client waits. They keep nothing of its
/// connection, and end with it.
#[test]
fn tu_33_a_client_that_is_killed_while_it_waits_leaves_no_request_and_starts_no_command() {
    let group = Group::start(3);
    let dir = tempfile::tempdir().unwrap();
    let (held, never) = (dir.path().join("held"), dir.path().join("never"));
    let mut holder = group.lock(0, &["a", "--", "sh", "-c", &endless(&held)]).spawn().unwrap();
    pid(&held);
    for foreground in [&["--foreground"][..], &[]] {
        let script = format!("echo > {}", never.display());
        let args = [&["a"][..], foreground, &["--", "sh", "-c", &script]].concat();
        let mut waiting = group.lock(1, &args).spawn().unwrap();
        let requests = || group.agents[1].request("GET", "/v1/turns", &[], "").1.matches("waits_for").count();
        wait_until("the request is there", || (requests() == 1).then_some(()));
        // A fork has the name of its parent at first.
        let is_guard = |(_, name): &(u32, String)| name == "annulus-guard";
        let guards = || children(waiting.id()).into_iter().find(is_guard);
        let (guard, _) = wait_until("the guard is there", guards);
        let (command, _) = wait_until("the process is there", || children(guard).pop());
        let group_of =
            |pid: u32| rustix::process::getpgid(rustix::process::Pid::from_raw(pid as i32)).unwrap();
        assert_ne!(group_of(guard), group_of(waiting.id()), "the terminal's signals do not reach the guard");
        assert_ne!(group_of(command), group_of(waiting.id()), "nor a process that waits");
        signal(waiting.id(), "KILL");
        waiting.wait().unwrap();
        [guard, command].into_iter().for_each(wait_until_gone);
        wait_until("the request is withdrawn", || (requests() == 0).then_some(()));
    }
    signal(holder.id(), "TERM");
    holder.wait().unwrap();
    assert_eq!(code(&mut group.lock(2, &["a", "--wait", "20s", "--", "true"])), Some(0));
    assert!(!never.exists(), "a request of a killed client started its command");
}

#[test]
fn tu_35_a_command_outlives_a_restart_of_its_agent() {
    let mut group = Group::start(4);
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("pid");
    let done = dir.path().join("done");
    let script = format!("echo $$ > {}; until [ -e {} ]; do sleep 0.1; done", file.display(), done.display());
    let mut holder = group.lock(3, &["a", "--", "sh", "-c", &script]).spawn().unwrap();
    let command = pid(&file);
    let voters = group.agents[..3].iter().map(|agent| agent.ip.to_string()).collect::<Vec<_>>().join(",");
    let voters = format!("token.voters={voters}");
    let old = group.agents.pop().unwrap();
    let ip = old.ip;
    signal(old.child.id(), "KILL");
    drop(old);
    let again = Agent::start_on(ip, &["--services", "", "--set", &voters, "--set", LEASE]);
    // Longer than the lease of a turn that is not renewed.
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_secs(5) {
        assert!(runs(command), "the turn goes on");
        pause(Duration::from_millis(20));
    }
    fs::write(&done, "").unwrap();
    assert_eq!(holder.wait().unwrap().code(), Some(0));
    drop(again);
}

/// Loops of `lock` on five agents that write begin and end of every turn.
fn loops(group: &Group, log: &Path) -> Vec<Child> {
    let begin = "read now rest < /proc/uptime; echo b $ANNULUS_FENCE $now";
    let end = "read now rest < /proc/uptime; echo e $ANNULUS_FENCE $now";
    let script = format!("({begin}) >> {0}; sleep 0.3; ({end}) >> {0}", log.display());
    (0..group.agents.len())
        .map(|node| {
            let program = env!("CARGO_BIN_EXE_annulus");
            let http = group.agents[node].http();
            // If this test is killed, nobody ends its loops.
            let lives = format!("kill -0 {} 2>/dev/null", std::process::id());
            let line = format!(
                "while {lives}; do {program} lock shared --agent {http} --wait 60s -- sh -c '{script}'; done"
            );
            let mut child = Command::new("sh");
            child.args(["-c", &line]).stdin(Stdio::null()).stderr(Stdio::null());
            child.spawn().expect("a shell runs")
        })
        .collect()
}

/// The turns of a log: no two overlap, and fences rise. Returns how many there were.
fn check(log: &Path) -> usize {
    let text = fs::read_to_string(log).unwrap_or_default();
    let (mut last, mut open, mut turns) = (0, None, 0);
    for line in text.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let [kind, fence, at] = words[..] else { panic!("{line}") };
        let fence: u64 = fence.parse().expect("a fence is a number");
        if kind == "b" {
            assert!(fence > last, "fence {fence} after {last} at {at}");
            (last, turns) = (fence, turns + 1);
            open = Some(fence);
        } else {
            assert_eq!(open, Some(fence), "at {at} a turn ends that was overtaken");
        }
    }
    turns
}

fn disturb(length: Duration) {
    let group = Group::start(5);
    let dir = tempfile::tempdir().expect("there is a place for files");
    let log = dir.path().join("log");
    let mut loops = loops(&group, &log);
    let begin = Instant::now();
    let mut round: u64 = 0;
    while begin.elapsed() < length {
        round += 1;
        let agent = group.agents[(round % 5) as usize].child.id();
        signal(agent, "STOP");
        let stopped = Instant::now();
        while stopped.elapsed() < Duration::from_millis(500 + round * 700 % 5000) {
            pause(Duration::from_millis(20));
        }
        signal(agent, "CONT");
        let turns = check(&log);
        wait_until("turns go on", || (check(&log) > turns).then_some(()));
    }
    for child in &mut loops {
        let _ = child.kill();
        let _ = child.wait();
    }
    assert!(check(&log) > 3);
}

#[test]
fn tuf_15_turns_do_not_overlap_while_agents_are_stopped() {
    disturb(Duration::from_secs(8));
}

#[test]
#[ignore = "ten minutes: the long form of the test above"]
fn ten_minutes_of_stopped_agents() {
    disturb(Duration::from_secs(600));
}
