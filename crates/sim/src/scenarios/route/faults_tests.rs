//! Faults that a ring must survive: the scenarios PF-3 … PF-18, each with the bound within which all leaf sets are exact
//! again.

use core::time::Duration;

use annulus_core::Base;

use super::world::World;
use super::{Keys, Phase, RouteExperiment};
use crate::fault::Fault;
use crate::host::HostId;
use crate::latency::Latency;

const SECOND: Duration = Duration::from_secs(1);

fn world(nodes: u32, seed: u64) -> World {
    let experiment = RouteExperiment {
        nodes,
        lookups: 0,
        base: Base::B4,
        leaf_set_max: 16,
        neighbourhood_max: 32,
        latency: Latency::Plane { per_unit: Duration::from_micros(20) },
        keys: Keys::Random,
        fail: 0.0,
        repair: SECOND,
    };
    let mut world = World::new(&experiment, seed);
    for _ in 0..nodes {
        world.join_one().unwrap();
    }
    world.run(10 * SECOND);
    world
}

impl World {
    fn run(&mut self, time: Duration) {
        self.sim.run_for(time, &mut self.watch).unwrap();
    }

    fn settles_within(&mut self, bound: Duration) {
        self.settle(bound).unwrap();
    }

    /// The nodes clockwise of the first.
    fn ring(&self) -> Vec<HostId> {
        let own = self.id(self.alive[0]);
        let mut ring = self.alive.clone();
        ring.sort_by_key(|&host| own.clockwise_to(self.id(host)));
        ring
    }

    /// Messages to the ids of nodes.
    fn phase_to_nodes(&mut self, lookups: u32) -> Phase {
        let keys = core::mem::replace(&mut self.keys, Keys::Nodes);
        let phase = self.phase(lookups).unwrap();
        self.keys = keys;
        phase
    }

    fn assert_all_arrive(&mut self, lookups: u32) {
        let phase = self.phase(lookups).unwrap();
        assert_eq!((phase.delivered, phase.wrong, phase.twice), (u64::from(lookups), 0, 0), "{phase:?}");
    }
}

/// PF-4.
#[test]
fn a_side_heals_whatever_part_of_it_fails_at_once() {
    for lost in [1, 7, 8] {
        let mut world = world(80, 11);
        let ring = world.ring();
        ring[1..=lost].iter().for_each(|&host| world.crash(host, true));
        world.settles_within(300 * SECOND);
        world.assert_all_arrive(50);
    }
}

/// PF-10.
#[test]
fn halves_become_one_ring_again_when_the_cut_heals() {
    let mut world = world(40, 10);
    let half = world.alive[..20].to_vec();
    world.sim.fault(Fault::Partition(vec![half]));
    world.run(600 * SECOND);
    world.sim.fault(Fault::Heal);
    world.settles_within(600 * SECOND);
    world.assert_all_arrive(50);
}

/// PF-11.
#[test]
fn a_one_way_link_between_neighbours_does_no_lasting_harm() {
    let mut world = world(40, 12);
    let ring = world.ring();
    world.sim.fault(Fault::Cut { from: ring[0], to: ring[1] });
    world.run(300 * SECOND);
    world.sim.fault(Fault::Heal);
    world.settles_within(300 * SECOND);
    world.assert_all_arrive(50);
}

/// PF-13: it takes a sixteenth of a second for whatever comes, and the next waits. Messages go around it; no other node
/// takes its entry. Acknowledgements that take seconds are in the tests of the core.
#[test]
fn a_slow_node_is_routed_around_and_not_evicted() {
    let mut world = world(40, 13);
    let slow = world.ring()[3];
    world.sim.fault(Fault::Slow { host: slow, delay: SECOND / 16 });
    world.run(60 * SECOND);
    // A message to a key of others arrives, whether its way led through the slow one or not.
    let others: Vec<HostId> = world.alive.iter().copied().filter(|host| *host != slow).collect();
    let all = core::mem::replace(&mut world.alive, others);
    let phase = world.phase_to_nodes(20);
    assert_eq!((phase.delivered, phase.wrong, phase.twice), (20, 0, 0), "{phase:?}");
    world.alive = all;
    assert!(world.leaf_sets_are_exact(), "it is still in the tables");
    assert_eq!(world.watch.failed(world.id(slow)), 0, "nobody took it for dead");
    world.sim.fault(Fault::Slow { host: slow, delay: Duration::ZERO });
    world.run(60 * SECOND);
    world.assert_all_arrive(50);
}

/// PF-3: they join through different nodes.
#[test]
fn two_that_join_side_by_side_at_once_learn_of_each_other() {
    for seed in 21..25 {
        let mut world = world(30, seed);
        world.start_at_once(2);
        world.settles_within(60 * SECOND);
        world.assert_all_arrive(30);
    }
}

/// PF-9: crash and rejoin with the same id; the address is the same here, another in the tests of the core.
#[test]
fn a_restarted_node_owns_its_keys_again() {
    let mut world = world(40, 14);
    let host = world.ring()[5];
    for power in [false, true] {
        world.crash(host, power);
        world.run(2 * SECOND);
        world.restart(host);
        world.settles_within(120 * SECOND);
        world.assert_all_arrive(40);
    }
}

/// PF-18: a near node becomes far. A node that has it in a cell with other candidates replaces it by one of them
/// within two rounds of measuring, and then keeps that one.
#[test]
fn the_table_follows_distances_that_change() {
    let mut world = world(60, 18);
    let far = world.ring()[2];
    let id = world.id(far);
    let holders = |world: &World| {
        let has = |host: &&HostId| {
            world.sim.machine(**host).is_some_and(|machine| machine.routing_table().contains(id))
        };
        world.alive.iter().filter(has).count()
    };
    let before = holders(&world);
    for other in world.alive.clone().into_iter().filter(|host| *host != far) {
        world.sim.fault(Fault::Delay { from: far, to: other, by: 120 * SECOND / 1000 });
    }
    world.run(2 * 900 * SECOND);
    let after = holders(&world);
    assert!(after * 2 < before, "{before} had it when it was near, {after} when it is far");
    world.run(2 * 900 * SECOND);
    assert!(holders(&world) <= after, "it does not come back");
    assert_eq!(world.watch.failed(id), 0, "nobody took it for dead");
    world.assert_all_arrive(50);
}

/// PF-13: it takes an eighth of a second for whatever comes, also for the answers to its own probes. The periodic work of the
/// ring does not overload it: when all nodes are measured, and when connections that are idle end.
#[test]
fn a_slow_node_is_not_overloaded_by_periodic_work() {
    let mut world = world(60, 18);
    let slow = world.ring()[2];
    world.sim.fault(Fault::Slow { host: slow, delay: SECOND / 8 });
    world.run(2 * 900 * SECOND);
    assert_eq!(world.watch.failed(world.id(slow)), 0, "nobody took it for dead");
    assert!(world.leaf_sets_are_exact(), "it took nobody for dead");
    world.assert_all_arrive(50);
}
