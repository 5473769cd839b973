//! The scenario of ping: under every fault, and with faults of its own.

use annulus_core::ping::{Fault, Ping};
use annulus_sim::scenarios::ping::{PingChecker, PingScenario};
use annulus_sim::{Conditions, FaultPlan, Lines, Report, Scenario, Setup, Step, Violation, run, run_many};

fn swarm() -> PingScenario {
    PingScenario { nodes: 12, seconds: 30, swarm: true, ..PingScenario::default() }
}

fn reports(scenario: &PingScenario, first: u64, count: u64, threads: usize) -> Vec<Report> {
    let mut reports = Vec::new();
    run_many(scenario, first, count, threads, |report| reports.push(report));
    reports
}

#[test]
fn a_swarm_violates_nothing_and_every_run_repeats() {
    let first = reports(&swarm(), 1, 50, 2);
    for report in &first {
        assert_eq!(report.violation, None, "seed {}: {}", report.seed, report.settings);
    }
    let again = reports(&swarm(), 1, 50, 1);
    assert_eq!(first, again, "in the order of seeds, whatever the threads");
    let seen = |count: fn(&Report) -> u64| first.iter().map(count).sum::<u64>();
    assert!(seen(|r| r.stats.crashes) > 50);
    assert!(seen(|r| r.stats.streams_reset) > 0);
    assert!(seen(|r| r.stats.datagrams_cut) > 0);
    assert!(seen(|r| r.stats.store_failures) > 0);
}

#[test]
fn a_count_kept_without_a_sync_is_caught() {
    let faults = FaultPlan { crashes: 20, ..FaultPlan::default() };
    let broken = PingScenario {
        conditions: Conditions { faults, ..Conditions::default() },
        broken: Some(Fault::KeepWithoutSync),
        ..PingScenario::default()
    };
    let report = run(&broken, 1, Lines::default());
    assert!(report.violation.as_ref().unwrap().contains("was reported as kept"), "{report:?}");
    assert_eq!(run(&broken, 1, Lines::default()), report, "and again");
    let sound = PingScenario { broken: None, ..broken };
    assert!(run(&sound, 1, Lines::default()).ok);
}

#[test]
fn an_answer_reported_twice_is_caught() {
    let mut conditions = Conditions::default();
    conditions.config.network.duplicate = 0.1;
    let broken = PingScenario { conditions, broken: Some(Fault::AnswerTwice), ..PingScenario::default() };
    let report = run(&broken, 1, Lines::default());
    assert!(report.violation.as_ref().unwrap().contains("second answer"), "{report:?}");
    assert!(run(&PingScenario { broken: None, ..broken }, 1, Lines::default()).ok);
}

#[test]
fn nodes_that_never_hear_each_other_have_not_converged() {
    // The noise that a calm does not end: a latency beyond ping's timeout.
    let mut conditions = Conditions::default();
    conditions.config.network.latency = annulus_sim::Latency::Constant(core::time::Duration::from_secs(1));
    let deaf = PingScenario { seconds: 5, conditions, ..PingScenario::default() };
    let report = run(&deaf, 1, Lines::default());
    assert!(report.violation.as_ref().unwrap().contains("has not heard from"), "{report:?}");
}

/// A scenario in which something goes wrong that no checker looks for.
struct Sabotaged(fn());

impl Scenario for Sabotaged {
    type Machine = Ping;
    type Checker = PingChecker;

    fn name(&self) -> &'static str {
        "sabotaged"
    }

    fn setup(&self, seed: u64) -> Result<Setup<Ping, PingChecker>, Violation> {
        let mut setup = PingScenario { seconds: 2, ..PingScenario::default() }.setup(seed)?;
        let act = self.0;
        setup.sim.after(core::time::Duration::from_secs(1), Step::Call(Box::new(move |_| act())));
        Ok(setup)
    }
}

#[test]
fn a_panic_and_an_error_log_are_violations() {
    let violation = |act| run(&Sabotaged(act), 1, Lines::default()).violation;
    assert_eq!(violation(|| {}), None);
    assert_eq!(violation(|| tracing::warn!("not an error")), None);
    let panicked = violation(|| panic!("as told"));
    assert_eq!(panicked.as_deref(), Some("a machine panicked: as told"));
    let logged = violation(|| tracing::error!(node = 3, "as told")).unwrap();
    assert!(logged.starts_with("an error was logged") && logged.contains("node=3"), "{logged}");
}

#[test]
fn the_hash_of_a_known_run_is_known() {
    // The same in debug and in release, today and next year, here and elsewhere. A change of it is a change of the
    // simulator or of ping, and belongs into the message of the commit that makes it.
    let report = run(&swarm(), 7, Lines::default());
    assert_eq!((report.trace_hash.as_str(), report.nodes), ("b215ff764eefed0f", 10));
}

#[test]
#[ignore = "takes a minute and a gigabyte: cargo test --release -p annulus-sim -- --ignored"]
fn a_hundred_thousand_nodes_run_in_one_process() {
    let many = PingScenario { nodes: 100_000, seconds: 10, ..PingScenario::default() };
    let report = run(&many, 1, Lines::default());
    assert!(report.ok, "{report:?}");
    assert!(report.stats.events > 3_000_000);
}
