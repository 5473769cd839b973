//! The scenario of the mesh: rings, messages, offline nodes, and built-in faults.

use annulus_core::w3w::{Fault, Forward};
use annulus_sim::scenarios::mesh::MeshScenario;
use annulus_sim::{Books, Conditions, Lines, Report, run, run_many};

fn number(report: &Report, name: &str) -> f64 {
    report.measured[name].as_f64().unwrap_or_else(|| panic!("{name} is a number: {report:?}"))
}

#[test]
fn running_nodes_get_every_message_once_over_few_hops() {
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
    assert_eq!((nearest.violation.as_deref(), both.violation.as_deref()), (None, None), "{both:?}");
    assert!(number(&both, "sends_per_message") > 2.0 * number(&nearest, "sends_per_message"));
}

#[test]
fn a_node_that_was_down_gets_its_messages_after_its_restart() {
    for seed in 1..4 {
        let scenario = MeshScenario { nodes: 60, away: 0.3, ..MeshScenario::default() };
        let report = run(&scenario, seed, Lines::default());
        assert_eq!(report.violation, None, "seed {seed}");
        assert_eq!((number(&report, "delivered"), number(&report, "duplicates")), (100.0, 0.0));
    }
}

#[test]
fn cuf_1_peers_that_lose_power_delay_messages_to_others_only_briefly() {
    for seed in 1..6 {
        let scenario = MeshScenario {
            nodes: 16,
            peers_max: 6,
            messages: 200,
            away: 0.2,
            silent: true,
            settle_seconds: 600,
            ..MeshScenario::default()
        };
        let report = run(&scenario, seed, Lines::default());
        assert_eq!(report.violation, None, "seed {seed}");
        let (delivered, duplicates) = (number(&report, "delivered"), number(&report, "duplicates"));
        assert_eq!((delivered, duplicates), (200.0, 0.0), "seed {seed}");
        assert!(number(&report, "slowest_seconds") <= 2.0, "seed {seed}: {report:?}");
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
    let swarm = swarm();
    let mut first = Vec::new();
    run_many(&swarm, 1, 12, 2, |report| first.push(report));
    for report in &first {
        assert_eq!(report.violation, None, "seed {}: {}", report.seed, report.settings);
    }
    let mut again = Vec::new();
    run_many(&swarm, 1, 12, 1, |report| again.push(report));
    assert_eq!(first, again);
}

/// The campaign: `MESH_SEEDS=1..10001 cargo test --release -p annulus-sim --test mesh campaign -- --ignored --nocapture`.
#[test]
#[ignore = "takes an hour for ten thousand seeds"]
fn a_campaign_of_the_swarm_keeps_every_promise_with_the_named_excuses_only() {
    let range = std::env::var("MESH_SEEDS").unwrap_or_else(|_| String::from("1..101"));
    let (first, end) = range.split_once("..").expect("MESH_SEEDS is FIRST..END");
    let (first, end): (u64, u64) = (first.parse().expect("a number"), end.parse().expect("a number"));
    if let Ok(path) = std::env::var("MESH_TRACE") {
        let file = std::fs::File::create(path).expect("there is room");
        let lines = Lines { readable: Some(Box::new(std::io::BufWriter::new(file))), json: None };
        println!("{:?}", run(&swarm(), first, lines).violation);
        return;
    }
    let (mut books, mut failed) = (Books::default(), Vec::new());
    run_many(&swarm(), first, end - first, 1, |report| {
        books.add(&report);
        if let Some(violation) = &report.violation {
            println!("seed {}: {violation}", report.seed);
            failed.push(report.seed);
        }
        if report.seed % 100 == 0 {
            println!("seed {}, {} failed, {:?}", report.seed, failed.len(), books.entries());
        }
    });
    println!("{:?}", books.entries());
    assert_eq!(failed, [0; 0]);
    assert_eq!(books.complaints("mesh", include_str!("../excuses.txt")), [""; 0]);
}

/// The swarm of these tests.
fn swarm() -> MeshScenario {
    MeshScenario { nodes: 16, messages: 60, swarm: true, ..MeshScenario::default() }
}

#[test]
fn faults_that_are_built_in_are_caught_in_the_swarm() {
    let cases = [
        (Fault::ReplyBeforeDurable, ""),
        (Fault::ForgetNumbers, "O: "),
        (Fault::TrustKernel, "T: "),
        (Fault::ConfirmBeforeDurable, "T: "),
        (Fault::DropWhenHeld, "T: "),
    ];
    for (fault, complaint) in cases {
        let scenario = MeshScenario { broken: Some(fault), ..swarm() };
        let found: Vec<String> =
            (1..21).filter_map(|seed| run(&scenario, seed, Lines::default()).violation).collect();
        println!("{fault:?}: {} of 20 seeds, first {:?}", found.len(), found.first());
        assert!(found.iter().any(|violation| violation.contains(complaint)), "{fault:?}: {found:?}");
    }
}

#[test]
fn faults_that_are_built_in_are_caught() {
    let cases = [
        (Fault::ReplyBeforeDurable, Conditions::default(), "before it was on its disk"),
        (Fault::ForgetNumbers, Conditions::default(), "twice"),
        (Fault::NoIntroductions, Conditions::default(), "not converged"),
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
