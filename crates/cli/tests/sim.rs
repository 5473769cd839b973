//! `annulus sim` through the real program: its output, its exit codes, and that a failure repeats.

#![expect(clippy::unwrap_used, reason = "a helper of a test fails like a test")]

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

fn annulus(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_annulus")).args(arguments).output().unwrap()
}

fn words(line: &str) -> Vec<&str> {
    line.split_whitespace().collect()
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("one JSON object: {output:?}"))
}

fn last_line(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).lines().last().unwrap_or_default().to_owned()
}

#[test]
fn json_is_one_object_that_the_seed_decides() {
    let run = |seed| annulus(&["sim", "ping", "--nodes", "50", "--seconds", "10", "--seed", seed, "--json"]);
    let (first, again, other) = (run("7"), run("7"), run("8"));
    assert!(first.status.success() && first.stderr.is_empty());
    assert_eq!(first.stdout, again.stdout);
    let (first, other) = (json(&first), json(&other));
    assert_eq!((first["seed"].as_u64(), first["nodes"].as_u64()), (Some(7), Some(50)));
    for count in ["events", "datagrams_sent", "datagrams_delivered", "streams_opened"] {
        assert!(first[count].as_u64().unwrap() > 50, "{count}");
    }
    assert_ne!(first["trace_hash"], other["trace_hash"]);
    assert_eq!(first["trace_hash"].as_str().unwrap().len(), 16);
}

#[test]
fn without_a_seed_one_is_chosen_and_printed_first() {
    let output = annulus(&["sim", "ping", "--nodes", "2", "--seconds", "1"]);
    let text = String::from_utf8(output.stdout).unwrap();
    let seed = text.lines().next().unwrap().strip_prefix("seed ").unwrap();
    let again = annulus(&["sim", "ping", "--nodes", "2", "--seconds", "1", "--seed", seed]);
    assert!(text.ends_with(&String::from_utf8(again.stdout).unwrap()));
}

/// Runs a broken ping, and again by the command that the failure ends with.
fn is_caught_and_repeats(arguments: &str, violation: &str) {
    let output = annulus(&words(arguments));
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let command = last_line(&output.stderr);
    let repeat = command.strip_prefix("annulus ").unwrap();
    assert!(repeat.contains("--break"), "{repeat}");
    let again = annulus(&[words(repeat), vec!["--json"]].concat());
    assert_eq!(again.status.code(), Some(1));
    assert_eq!(last_line(&again.stderr), command);
    let report = json(&again);
    assert!(report["violation"].as_str().unwrap().contains(violation), "{report}");
    let hash = report["trace_hash"].as_str().unwrap();
    let first = json(&annulus(&[words(repeat), vec!["--json"]].concat()));
    assert_eq!(first["trace_hash"], hash);
}

#[test]
fn a_broken_ping_is_caught_and_replayed_from_the_printed_seed() {
    is_caught_and_repeats("sim ping --break keep-without-sync --crash 20 --seed 3", "though");
    is_caught_and_repeats("sim ping --break answer-twice --duplicate 0.05 --seed 3", "second answer");
}

#[test]
fn many_runs_print_the_first_failure_and_keep_all() {
    let folder = tempfile::tempdir().unwrap();
    let kept = folder.path().join("kept.txt");
    let arguments = ["sim", "ping", "--break=keep-without-sync", "--crash", "3", "--runs=10", "--seed=1"];
    let output = annulus(&[&arguments[..], &["--json", "--keep", kept.to_str().unwrap()]].concat());
    assert_eq!(output.status.code(), Some(1));
    let mut reports: Vec<Value> = String::from_utf8(output.stdout.clone())
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let sums = reports.pop().unwrap();
    assert!(sums["sums"]["exercised"]["fault_crashed"].as_f64().unwrap() > 0.0, "{sums}");
    let seeds: Vec<u64> = reports.iter().map(|report| report["seed"].as_u64().unwrap()).collect();
    assert_eq!(seeds, (1..=10).collect::<Vec<_>>(), "in the order of seeds");
    let failed: Vec<&Value> = reports.iter().filter(|report| report["ok"] == false).collect();
    assert!(!failed.is_empty());
    let repeat = last_line(&output.stderr);
    assert!(repeat.ends_with(&format!("--seed {}", failed[0]["seed"])), "{repeat}");
    let again = annulus(&[words(repeat.strip_prefix("annulus ").unwrap()), vec!["--json"]].concat());
    assert_eq!(json(&again)["trace_hash"], failed[0]["trace_hash"]);
    let kept = std::fs::read_to_string(kept).unwrap();
    assert_eq!(kept.lines().count(), failed.len());
    let (line, comment) = kept.lines().next().unwrap().split_once(" # ").unwrap();
    assert_eq!(comment, failed[0]["violation"].as_str().unwrap());
    let again = annulus(&[vec!["sim", "ping"], Kept::parse(line).arguments, vec!["--json"]].concat());
    assert_eq!(json(&again)["trace_hash"], failed[0]["trace_hash"]);
}

/// A line of a file in `regressions/`.
struct Kept<'a> {
    /// The issue without which it is known to fail.
    waits_for: Option<&'a str>,
    arguments: Vec<&'a str>,
}

impl<'a> Kept<'a> {
    fn parse(line: &'a str) -> Self {
        let mut arguments = words(line.split('#').next().unwrap());
        let waits_for = (arguments[0] == "waits").then(|| arguments.drain(..2).nth(1).unwrap());
        match arguments.remove(0) {
            "v1" => arguments.extend(["--fault-model", "v1"]),
            "v2" => {}
            // A line of a time that knew one fault model only.
            argument if argument.starts_with("--") => {
                arguments.insert(0, argument);
                arguments.extend(["--fault-model", "v1"]);
            }
            other => panic!("{other} is no version of the fault model: {line}"),
        }
        Self { waits_for, arguments }
    }

    /// The complaint about a run, given whether it is good.
    fn complaint(&self, is_good: bool) -> Option<String> {
        match (self.waits_for, is_good) {
            (None, true) | (Some(_), false) => None,
            (None, false) => Some("fails again".to_owned()),
            (Some(issue), true) => Some(format!("is good now: take `waits {issue}` out of its line")),
        }
    }
}

#[test]
fn an_expected_failure_that_passes_is_noticed() {
    let waiting = Kept::parse("waits 15 v1 --swarm --seed 7 # stalls");
    assert_eq!(waiting.arguments, ["--swarm", "--seed", "7", "--fault-model", "v1"]);
    assert_eq!((waiting.complaint(false), waiting.complaint(true).is_some()), (None, true));
    let mended = Kept::parse("v2 --seed 7");
    assert_eq!((mended.complaint(true), mended.complaint(false).is_some()), (None, true));
}

#[test]
fn seeds_that_once_failed_pass() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../sim/regressions");
    let mut runs = 0;
    for file in std::fs::read_dir(folder).unwrap() {
        let path = file.unwrap().path();
        let scenario = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let text = std::fs::read_to_string(&path).unwrap();
        for line in text.lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
            let kept = Kept::parse(line);
            let output = annulus(&[vec!["sim", &scenario], kept.arguments.clone()].concat());
            let complaint = kept.complaint(output.status.success());
            assert_eq!(complaint, None, "annulus sim {scenario}: {line}: {output:?}");
            runs += 1;
        }
    }
    assert!(runs > 0);
}

/// The page names a command for each defect: it fails with the switch, and passes without it.
#[test]
fn each_of_the_four_defects_of_the_older_world_can_be_seen_again() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/simulator.md");
    let page = std::fs::read_to_string(page).unwrap();
    let section = page.split("## Four defects").nth(1).unwrap();
    let commands: Vec<&str> = section.split("```").nth(1).unwrap().trim().lines().collect();
    assert_eq!(commands.len(), 4, "{commands:?}");
    for command in commands {
        let broken = words(command.strip_prefix("annulus ").unwrap());
        let switch = broken.iter().position(|word| ["--break", "--impatient"].contains(word)).unwrap();
        let values = usize::from(broken[switch] == "--break");
        let mut sound = broken.clone();
        sound.drain(switch..=switch + values);
        let output = annulus(&broken);
        assert_eq!(output.status.code(), Some(1), "{command}: {output:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains("violation"), "{command}: {output:?}");
        let output = annulus(&sound);
        assert!(output.status.success(), "without its switch: {command}: {output:?}");
    }
}

#[test]
fn traces_go_to_files_or_to_standard_output() {
    let folder = tempfile::tempdir().unwrap();
    let json_lines = folder.path().join("trace.jsonl");
    let base = ["sim", "ping", "--nodes", "2", "--seconds", "2", "--seed", "1"];
    let plain = annulus(&base);
    let traced =
        annulus(&[&base[..], &["--trace", "-", "--trace-json", json_lines.to_str().unwrap()]].concat());
    let text = String::from_utf8(traced.stdout).unwrap();
    assert!(text.contains("h0 send 10.0.0.1:7001 -> 10.0.0.2:7001 10 B 0100"), "{text}");
    assert!(text.ends_with(&String::from_utf8(plain.stdout).unwrap()), "the same run");
    let lines = std::fs::read_to_string(json_lines).unwrap();
    assert!(lines.lines().count() > 20);
    assert!(lines.lines().all(|line| serde_json::from_str::<Value>(line).unwrap()["at_micros"].is_u64()));
}

#[test]
fn a_wrong_call_exits_with_two_and_a_hint() {
    for (arguments, says) in [
        ("sim ping --nodes 1", "2..=1000000"),
        ("sim ping --loss 2", "a probability from 0 to 1"),
        ("sim ping --latency moon:1", "no latency model `moon:1`"),
        ("sim ping --break everything", "keep-without-sync"),
        ("sim ping --trace - --runs 2", "cannot be used with"),
        ("sim", "Usage"),
    ] {
        let output = annulus(&words(arguments));
        assert_eq!(output.status.code(), Some(2), "{arguments}");
        assert!(String::from_utf8_lossy(&output.stderr).contains(says), "{arguments}: {output:?}");
    }
    let help = annulus(&["sim", "ping", "--help"]);
    let help = String::from_utf8(help.stdout).unwrap();
    assert!(help.contains("annulus sim ping --nodes 1000 --seconds 60 --seed 7 --json"));
    assert!(!help.contains("--break"), "not for users");
}

/// A measurement of members: readable, traced, and failing if no node reaches another.
#[test]
fn members_are_measured_in_text_too() {
    let run = |more: &str| annulus(&words(&format!("sim members --nodes 10 --seed 3 {more}")));
    let text = String::from_utf8(run("--crash 1").stdout).unwrap();
    assert!(text.contains("known to all   1 of 1 crashes") && text.contains("converged      yes"), "{text}");
    let traced = String::from_utf8(run("--trace -").stdout).unwrap();
    assert!(traced.lines().count() > 100 && traced.contains("trace hash"), "{traced}");
    let deaf = run("--loss 1 --seconds 60 --json");
    assert_eq!((deaf.status.code(), &json(&deaf)["converged"]), (Some(1), &Value::Bool(false)));
}

#[test]
fn wrong_settings_of_the_modified_swim_get_one_sentence() {
    let wrong: [(&[&str], &str); 12] = [
        (&["--sorter", "moon"], "\"moon\" is no sorter: use xor, ring or chord_finger"),
        (&["--selection", "heap"], "possible values: shuffle, bucket, priority"),
        (&["--codec", "json"], "\"json\" is no codec: use compact or msgpack"),
        (&["--region-count", "0"], "region_count is 0: members have to be in some region"),
        (&["--region-probes", "0"], "region_probes or neighbor_probes must be at least 1"),
        (&["--nodes", "10", "--neighbor-count", "10"], "--neighbor-count 10 is not below --nodes 10"),
        (&["--neighbor-probes", "3"], "raise neighbor_count or probe fewer"),
        (&["--swarm", "--sorter", "ring"], "has the settings of the preset: leave out --sorter"),
        (&["--experiment", "adversary", "--codec", "msgpack"], "has the settings of the preset"),
        (&["--cut-for", "20"], "--cut-for is for --experiment partition and adversary"),
        (&["--places", "by-id"], "--places by-id needs a latency with places"),
        (&["--latency", "clusters:1:5:9"], "write at least 2 clusters"),
    ];
    for (flags, text) in wrong {
        let output = annulus(&[&["sim", "members"], flags].concat());
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), stderr.lines().count()), (Some(2), 1), "{flags:?}: {stderr}");
        assert!(stderr.contains(text), "{flags:?}: {stderr}");
    }
}

#[test]
fn variations_are_compared_in_one_table_and_one_plot() {
    let dir = tempfile::tempdir().unwrap();
    let plot = dir.path().join("plot.svg");
    let flags = ["--nodes", "40", "--crash", "1", "--seconds", "40", "--preset", "go_swim", "--seed", "1"];
    let place = ["--latency", "clusters:4:500:20000", "--places", "by-id", "--far-loss", "0.1"];
    let start = ["sim", "members", "--experiment", "variations", "--plot", plot.to_str().unwrap()];
    let output = annulus(&[&start[..], &flags, &place].concat());
    let table = String::from_utf8_lossy(&output.stdout);
    let rows: Vec<&str> = table.lines().filter(|line| line.starts_with("| ")).collect();
    assert!(output.status.success() && rows.len() == 9, "{output:?}");
    // All nodes learnt of the crash, near and far, and some packets took the slow paths.
    let cells = |row: &str| -> Vec<f64> {
        row.split('|').skip(2).filter_map(|cell| cell.trim().parse().ok()).collect()
    };
    assert!(rows[1..].iter().all(|row| cells(row)[2] > 0.0 && cells(row)[3] > 0.0 && cells(row)[9] > 0.0));
    let svg = std::fs::read_to_string(plot).unwrap();
    assert!(svg.starts_with("<svg") && svg.ends_with("</svg>\n"));
}
