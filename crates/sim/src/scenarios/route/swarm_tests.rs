//! The swarm, a slice of it, and a ring that is broken on purpose.

use super::{Broken, RouteScenario};
use crate::conditions::Conditions;
use crate::scenario::{Lines, run};

fn scenario() -> RouteScenario {
    RouteScenario {
        nodes: 16,
        seconds: 60,
        leaf_set_max: 8,
        neighbourhood_max: 8,
        conditions: Conditions::default(),
        swarm: true,
        broken: None,
    }
}

#[test]
fn a_slice_of_the_swarm_holds_and_can_be_repeated() {
    for seed in 1..=3 {
        let report = run(&scenario(), seed, Lines::default());
        assert!(report.ok, "{report:?}");
    }
    assert_eq!(run(&scenario(), 2, Lines::default()), run(&scenario(), 2, Lines::default()));
}

#[test]
fn nodes_that_swallow_messages_are_noticed() {
    let broken = RouteScenario { broken: Some(Broken::Swallows), swarm: false, ..scenario() };
    let report = run(&broken, 1, Lines::default());
    assert!(!report.ok && report.violation.is_some_and(|text| text.contains("Stopped")));
}

#[test]
#[ignore = "temporary"]
fn many() {
    let (from, to) = (std::env::var("FROM").unwrap().parse().unwrap(), std::env::var("TO").unwrap().parse().unwrap());
    let mut failed = 0;
    let mut unknown = 0;
    for seed in from..=to {
        let readable = std::env::var("TRACE").ok().map(|path| Box::new(std::fs::File::create(path).unwrap()) as Box<dyn std::io::Write>);
        let report = run(&scenario(), seed, Lines { readable, json: None });
        unknown += report.measured.get("unknown").and_then(|v| v.as_u64()).unwrap_or(0);
        if !report.ok {
            failed += 1;
            println!("{seed}: {:?}", report.violation);
        }
    }
    println!("failed {failed}, unknown {unknown}");
}
