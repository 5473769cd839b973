//! The scenario of the mesh: rings, messages, people who are away, and faults of its own.

use annulus_core::w3w::{Fault, Forward};
use annulus_sim::scenarios::mesh::MeshScenario;
use annulus_sim::{Conditions, FaultPlan, Lines, Report, run, run_many};

fn number(report: &Report, name: &str) -> f64 {
    report.measured[name].as_f64().unwrap_or_else(|| panic!("{name} is a number: {report:?}"))
}

#[test]
fn everybody_present_gets_everything_once_and_over_few_hops() {
    let scenario = MeshScenario { nodes: 150, messages: 300, ..MeshScenario::default() };
    let report = run(&scenario, 1, Lines::default());
    assert_eq!(report.violation, None);
    let log2 = 150f64.log2();
    assert_eq!((number(&report, "delivered"), number(&report, "duplicates")), (300.0, 0.0));
    assert!(report.measured["hops"]["mean"].as_f64().is_some_and(|hops| hops <= log2), "{report:?}");
    assert!(number(&report, "sends_per_message") <= 4.0 * log2, "{report:?}");
    assert!(number(&report, "here_per_node_per_minute") < 2.0, "{report:?}");
    assert_eq!(report.measured["ring_neighbours_exact"], true);
    assert_eq!(run(&scenario, 1, Lines::default()), report, "and again");
}

#[test]
fn the_letter_of_the_document_delivers_too_and_sends_more() {
    let nearest = MeshScenario { nodes: 60, ..MeshScenario::default() };
    let both = MeshScenario { forward: Forward::Both, ..nearest.clone() };
    let (nearest, both) = (run(&nearest, 2, Lines::default()), run(&both, 2, Lines::default()));
    assert_eq!((nearest.violation.as_deref(), both.violation.as_deref()), (None, None));
    assert!(number(&both, "sends_per_message") > 2.0 * number(&nearest, "sends_per_message"));
}

#[test]
fn whoever_was_away_gets_its_messages_on_return() {
    for seed in 1..4 {
        let scenario = MeshScenario { nodes: 60, away: 0.3, ..MeshScenario::default() };
        let report = run(&scenario, seed, Lines::default());
        assert_eq!(report.violation, None, "seed {seed}");
        assert_eq!((number(&report, "delivered"), number(&report, "duplicates")), (100.0, 0.0));
    }
}

#[test]
fn any_single_node_may_die_and_the_rest_stays_one_network() {
    for (seed, deaths) in [(1, 1), (2, 1), (3, 6)] {
        let scenario = MeshScenario { nodes: 60, peers_max: 6, deaths, ..MeshScenario::default() };
        let report = run(&scenario, seed, Lines::default());
        assert_eq!(report.violation, None, "seed {seed}");
        assert_eq!((number(&report, "delivered"), number(&report, "cut_nodes")), (100.0, 0.0), "{report:?}");
    }
}

#[test]
fn a_swarm_violates_nothing_and_every_run_repeats() {
    let swarm =
        MeshScenario { nodes: 16, messages: 60, settle_seconds: 900, swarm: true, ..MeshScenario::default() };
    let mut first = Vec::new();
    run_many(&swarm, 1, 12, 2, |report| first.push(report));
    for report in &first {
        assert_eq!(report.violation, None, "seed {}: {}", report.seed, report.settings);
    }
    let mut again = Vec::new();
    run_many(&swarm, 1, 12, 1, |report| again.push(report));
    assert_eq!(first, again);
}

#[test]
fn faults_that_are_built_in_are_caught() {
    let crashes =
        Conditions { faults: FaultPlan { crashes: 60, ..FaultPlan::default() }, ..Conditions::default() };
    let cases = [
        (Fault::ForgetSeen, Conditions::default(), "twice"),
        (Fault::NoIntroductions, Conditions::default(), "not converged"),
        (Fault::ReplyBeforeDurable, crashes, "which it had acknowledged"),
    ];
    for (fault, conditions, complaint) in cases {
        let scenario = MeshScenario {
            nodes: 30,
            peers_max: 4,
            messages: 2000,
            settle_seconds: 60,
            conditions,
            broken: Some(fault),
            ..MeshScenario::default()
        };
        let caught = (1..6).any(|seed| {
            run(&scenario, seed, Lines::default())
                .violation
                .is_some_and(|violation| violation.contains(complaint))
        });
        assert!(caught, "{fault:?} goes unnoticed");
    }
}

/// The promise of the service at its size. It takes a minute or more: `cargo test -p annulus-sim --test mesh -- --ignored`.
#[test]
#[ignore = "takes minutes without optimisation"]
fn a_thousand_nodes_keep_every_promise() {
    let present = MeshScenario { nodes: 1000, peers_max: 16, messages: 1000, ..MeshScenario::default() };
    for (scenario, seed) in [(present.clone(), 1), (MeshScenario { away: 0.3, ..present }, 2)] {
        let report = run(&scenario, seed, Lines::default());
        println!("{}", serde_json::to_string(&report.measured).unwrap());
        assert_eq!(report.violation, None, "seed {seed}");
        let log2 = 1000f64.log2();
        assert_eq!((number(&report, "delivered"), number(&report, "duplicates")), (1000.0, 0.0));
        assert!(report.measured["hops"]["mean"].as_f64().is_some_and(|hops| hops <= log2), "{report:?}");
        assert!(number(&report, "sends_per_message") <= 4.0 * log2, "{report:?}");
        assert!(number(&report, "here_per_node_per_minute") < 2.0, "{report:?}");
    }
}
