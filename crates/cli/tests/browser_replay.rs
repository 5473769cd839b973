//! A recorded simulation in the page, and how fluid it is.

mod common;

use std::path::Path;
use std::time::Duration;

use common::browser::{Browser, get, serve};
use common::{own_ip, pause, run, tell};
use serde_json::Value;

/// Records a run of the simulator.
fn record(file: &Path, args: &[&str]) {
    let output = run(&[&["sim"], args, &["--trace", file.to_str().expect("a path is text")]].concat());
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Moves the slider to a part of its length.
fn seek(browser: &Browser, part: f64) {
    browser.eval(&format!(
        "(() => {{ const slider = document.getElementById('replay-time'); slider.value = Math.round(slider.max * {part}); slider.dispatchEvent(new Event('input')); return true; }})()"
    ));
}

#[test]
fn a_simulation_is_replayed_with_its_faults() {
    let Some(browser) = Browser::start() else { return };
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("run.trace");
    record(
        &file,
        &["members", "--nodes", "40", "--seconds", "30", "--preset", "local", "--swarm", "--seed", "5"],
    );
    let replay = serve(own_ip(), &["replay", file.to_str().unwrap()]);
    browser.goto(&replay);
    let trace = get(&replay, "/v1/replay");
    let hosts = trace["hosts"].as_array().map(Vec::len).unwrap();
    browser.until(
        "all hosts are on the ring",
        &format!("document.querySelectorAll('.node').length === {hosts}"),
    );
    let faults = trace["lines"].as_array().unwrap().iter().filter(|line| line["event"] == "fault").count();
    assert!(faults > 0);
    browser.until(
        "every fault is marked",
        &format!("document.querySelectorAll('.timeline .mark').length === {faults}"),
    );
    // While paused, the time does not advance; a click on a mark goes to its fault, which is described as text.
    browser.keys(" ");
    browser.until("it is paused", "document.getElementById('replay-play').textContent === 'Play'");
    browser.eval("document.querySelector('.timeline .mark').click()");
    browser.until(
        "the fault is shown",
        "((caption) => caption !== '' && [...document.querySelectorAll('.timeline .mark')].some((mark) => mark.title.endsWith(caption)))(document.getElementById('caption').textContent.split(' s: ').slice(1).join(' s: '))",
    );
    seek(&browser, 0.0);
    assert!(browser.text("document.getElementById('replay-now').textContent").starts_with("0.00 s"));
    browser.eval("(() => { const speed = document.getElementById('replay-speed'); speed.value = '10'; speed.dispatchEvent(new Event('change')); document.getElementById('replay-play').click(); return true; })()");
    browser.until("time goes on", "parseFloat(document.getElementById('replay-now').textContent) > 5");
    seek(&browser, 1.0);
    browser.until(
        "the end is shown",
        "(([now, end]) => now === end)(document.getElementById('replay-now').textContent.split(' of '))",
    );
    browser.until(
        "all are alive at the end",
        &format!("document.querySelectorAll('.node[data-state=alive]').length === {hosts}"),
    );
    assert_eq!(browser.complaints(), Vec::<String>::new());
}

#[test]
fn texts_of_a_trace_are_text() {
    let Some(browser) = Browser::start() else { return };
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("evil.trace");
    let evil = "<img src=x onerror=alert(1)>";
    let text = format!(
        "0.000000 h0 start 1\n0.000000 {} start 1\n1.000000 - fault {evil}\n1.000001 - violation {evil}\n",
        evil.replace(' ', "_")
    );
    std::fs::write(&file, text).unwrap();
    let replay = serve(own_ip(), &["replay", file.to_str().unwrap()]);
    browser.goto(&replay);
    browser.until("two hosts are on the ring", "document.querySelectorAll('.node').length === 2");
    seek(&browser, 1.0);
    let shown = format!("document.getElementById('lines').textContent.includes({})", serde_json::json!(evil));
    browser.until("the log shows the fault as text", &shown);
    assert_eq!(browser.eval("document.querySelectorAll('main img').length"), 0);
    assert_eq!(browser.complaints(), Vec::<String>::new());
}

#[test]
fn every_scenario_can_be_replayed() {
    let dir = tempfile::tempdir().unwrap();
    for args in [
        &["ping", "--nodes", "4", "--seconds", "5"][..],
        &["members", "--nodes", "8", "--seconds", "10"],
        &["route", "--nodes", "8", "--seconds", "10"],
        &["token", "--nodes", "5", "--seconds", "10"],
        &["mesh", "--nodes", "5"],
        &["turns", "--nodes", "3", "--seconds", "10"],
        &["node", "--nodes", "4", "--seconds", "10"],
    ] {
        let file = dir.path().join(args[0]);
        record(&file, &[args, &["--seed", "3"]].concat());
        let replay = serve(own_ip(), &["replay", file.to_str().unwrap()]);
        let trace = get(&replay, "/v1/replay");
        let events =
            trace["lines"].as_array().into_iter().flatten().filter(|line| line["protocol"] != "host");
        assert!(trace["hosts"].as_array().map(Vec::len) >= Some(3), "{args:?}");
        assert!(events.count() > 0, "{args:?} has events");
    }
}

/// Frames of a recorded trace of the browser.
struct Frames {
    /// The times between two, in milliseconds.
    gaps: Vec<f64>,
    /// The processor time that the dearest one took in the page, in milliseconds.
    dearest: f64,
}

/// The driver records the trace while the page runs, and hands it out once.
fn frames(log: &[Value]) -> Frames {
    let events = log.iter().filter_map(|line| serde_json::from_str::<Value>(line["message"].as_str()?).ok());
    let events: Vec<Value> = events.map(|mut event| event["message"]["params"].take()).collect();
    let is_frame = |event: &&Value| event["name"] == "FireAnimationFrame" && event["ph"] == "X";
    let mut times: Vec<f64> =
        events.iter().filter(is_frame).filter_map(|event| event["ts"].as_f64()).collect();
    times.sort_by(f64::total_cmp);
    let costs = events.iter().filter(is_frame).filter_map(|event| event["tdur"].as_f64());
    Frames {
        gaps: times.windows(2).map(|pair| (pair[1] - pair[0]) / 1000.0).collect(),
        dearest: costs.fold(0.0, f64::max) / 1000.0,
    }
}

#[test]
#[ignore = "measures time: .ci/frames runs it on an idle machine"]
fn two_hundred_nodes_at_ten_times_the_speed_are_fluid() {
    let Some(browser) = Browser::start() else { return };
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("large.trace");
    record(
        &file,
        &[
            "members",
            "--nodes",
            "200",
            "--seconds",
            "150",
            "--crash",
            "20",
            "--partition",
            "2",
            "--seed",
            "1",
        ],
    );
    let replay = serve(own_ip(), &["replay", file.to_str().unwrap()]);
    browser.goto(&replay);
    browser.until("all are on the ring", "document.querySelectorAll('.node').length === 200");
    browser.eval("(() => { const speed = document.getElementById('replay-speed'); speed.value = '10'; speed.dispatchEvent(new Event('change')); return true; })()");
    pause(Duration::from_secs(12));
    let Frames { gaps, dearest } = frames(&browser.log("performance"));
    let slow = gaps.iter().filter(|time| **time > 100.0).count();
    tell(format_args!(
        "{} frames, {slow} over 100 ms ({:.2} %), the longest {:.0} ms; the dearest took {dearest:.1} ms of processor time",
        gaps.len(),
        slow as f64 * 100.0 / gaps.len().max(1) as f64,
        gaps.iter().copied().fold(0.0, f64::max),
    ));
    assert!(gaps.len() > 200, "the trace has {} frames", gaps.len());
    assert!(slow * 100 < gaps.len(), "{slow} of {} frames took over 100 ms", gaps.len());
}
