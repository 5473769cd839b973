//! The measurements of the paper, with few nodes.

use core::time::Duration;
use std::collections::BTreeSet;

use annulus_core::{Base, Id};

use super::*;

fn experiment(nodes: u32) -> RouteExperiment {
    RouteExperiment {
        nodes,
        lookups: 500,
        base: Base::B4,
        leaf_set_max: 16,
        neighbourhood_max: 32,
        latency: Latency::Plane { per_unit: Duration::from_micros(20) },
        keys: Keys::Nodes,
        fail: 0.0,
        repair: Duration::from_secs(1200),
    }
}

/// PF-1, PF-16: rings of every size that is special.
#[test]
fn every_message_arrives_in_a_quiet_ring_of_any_size() {
    for nodes in [1, 2, 3, 16, 17, 32, 33, 34, 100] {
        let keys = if nodes % 2 == 0 { Keys::Random } else { Keys::Nodes };
        let report =
            RouteExperiment { keys, lookups: 100, ..experiment(nodes) }.run(7, Lines::default()).unwrap();
        let quiet = &report.quiet;
        assert_eq!(
            (quiet.delivered, quiet.wrong, quiet.lost, quiet.twice),
            (100, 0, 0, 0),
            "{nodes}: {report:?}"
        );
        assert!(report.leaf_sets_exact, "{nodes}");
    }
}

#[test]
fn a_run_can_be_repeated() {
    let (one, two) =
        (experiment(30).run(3, Lines::default()).unwrap(), experiment(30).run(3, Lines::default()).unwrap());
    assert_eq!(one, two);
    assert_ne!(one.trace_hash, experiment(30).run(4, Lines::default()).unwrap().trace_hash);
}

/// PF-5, small: a tenth of the nodes fails silently at once.
#[test]
fn messages_arrive_while_a_tenth_has_failed() {
    let report =
        RouteExperiment { fail: 0.1, lookups: 300, ..experiment(150) }.run(5, Lines::default()).unwrap();
    let (during, after) = (report.during.as_ref().unwrap(), report.after.as_ref().unwrap());
    assert_eq!((during.wrong, during.lost, during.reported, during.twice), (0, 0, 0, 0), "{report:?}");
    assert_eq!((after.wrong, after.lost, after.reported), (0, 0, 0), "{report:?}");
    assert!(report.leaf_sets_exact);
    assert!(after.hops_mean <= report.quiet.hops_mean * 1.05, "{report:?}");
}

impl World {
    /// How many cells of all tables are empty though there is a node for them, and how many are filled.
    fn cells(&self) -> (usize, usize) {
        let ids: Vec<Id> = self.alive.iter().map(|&host| self.id(host)).collect();
        let (mut missing, mut filled) = (0, 0);
        for machine in self.alive.iter().filter_map(|&host| self.sim.machine(host)) {
            let table = machine.routing_table();
            let possible: BTreeSet<(u8, u8)> =
                ids.iter().filter_map(|&id| table.position(id)).map(|at| (at.row, at.column)).collect();
            filled += table.cells().len();
            missing += possible.len() - table.cells().len();
        }
        (missing, filled)
    }
}

/// PF-1: every cell for which there is a node is filled.
#[test]
fn every_cell_that_could_be_filled_is() {
    for nodes in [16, 64, 200] {
        let mut world = World::new(&experiment(nodes), 4);
        for _ in 0..nodes {
            world.join_one().unwrap();
        }
        world.settle(Duration::from_secs(60)).unwrap();
        world.sim.run_for(Duration::from_secs(30), &mut world.watch).unwrap();
        let (missing, filled) = world.cells();
        assert!(missing * 1000 <= filled, "{nodes} nodes: {missing} cells are empty, {filled} filled");
    }
}

/// PF-6, a slice: `annulus sim route --nodes 1000 --churn 5` is the large one.
#[test]
fn messages_arrive_while_nodes_come_and_go() {
    let ring = RouteExperiment { lookups: 150, keys: Keys::Random, ..experiment(40) };
    let (session_median, time) = (Duration::from_secs(5 * 60), Duration::from_secs(90));
    let report = RouteChurn { ring, session_median, time }.run(6).unwrap();
    assert!(report.ok && report.vanished > 2, "{report:?}");
    assert!(report.phase.delivered + report.orphaned >= 145, "{report:?}");
}

fn storm(nodes: u32, count: u32, kind: StormKind) -> StormReport {
    let storm = RouteStorm {
        nodes,
        count,
        kind,
        lookups: 100,
        leaf_set_max: 16,
        neighbourhood_max: 32,
        latency: Latency::Plane { per_unit: Duration::from_micros(20) },
    };
    storm.run(3).unwrap()
}

/// PF-2; `annulus sim route --nodes 200 --storm 200` is the large one.
#[test]
fn many_joins_at_once_settle_and_cost_little_more() {
    for (nodes, count) in [(1, 15), (40, 40)] {
        let report = storm(nodes, count, StormKind::Join);
        assert!(report.ok, "{report:?}");
    }
}

/// PF-8.
#[test]
fn two_thirds_restart_together_and_it_settles() {
    let report = storm(32, 21, StormKind::Restart);
    assert!(report.ok, "{report:?}");
}
