//! What a ring must survive: the scenarios PF-3 … PF-18, each with the bound within which all leaf sets are exact again.

use core::time::Duration;

use annulus_core::Base;

use super::world::World;
use super::{Keys, RouteExperiment};
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

    fn assert_all_arrive(&mut self, lookups: u32) {
        let phase = self.phase(lookups, 2).unwrap();
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

/// PF-13.
#[test]
fn a_slow_node_is_not_evicted() {
    let mut world = world(40, 13);
    let slow = world.ring()[3];
    world.sim.fault(Fault::Slow { host: slow, delay: SECOND });
    world.run(120 * SECOND);
    world.sim.fault(Fault::Slow { host: slow, delay: Duration::ZERO });
    world.settles_within(300 * SECOND);
    world.assert_all_arrive(50);
}
