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
