//! What a ring must survive: the scenarios PF-2 … PF-13, each with the bound within which all leaf sets are exact again.

use super::*;

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

    /// Starts nodes all at once, each through a random one that is there.
    fn start_at_once(&mut self, count: u32) {
        let there = self.alive.clone();
        for _ in 0..count {
            let host = self.sim.add_host_with(HostSpec { off: true, ..HostSpec::default() });
            let seed = there[self.rng.index(there.len())];
            self.seeds.borrow_mut().push(vec![SocketAddr::new(self.sim.address(seed), pastry::PORT)]);
            self.sim.fault(Fault::Start(host));
            self.alive.push(host);
        }
    }

    fn crash(&mut self, host: HostId, power: bool) {
        self.sim.fault(Fault::Crash { host, power, disk: DiskFate::Kept });
        self.alive.retain(|at| *at != host);
    }

    fn settles_within(&mut self, bound: Duration) {
        let until = self.sim.elapsed() + bound;
        while self.sim.elapsed() < until {
            self.run(SECOND);
            let active = |host: &HostId| self.sim.machine(*host).is_some_and(Pastry::is_active);
            if self.alive.iter().all(active) && self.leaf_sets_are_full() && self.leaf_sets_are_exact() {
                return;
            }
        }
        let inactive: Vec<_> = self
            .alive
            .iter()
            .filter(|host| !self.sim.machine(**host).is_some_and(Pastry::is_active))
            .collect();
        let members = |host| self.sim.machine(host).map_or(0, |machine| machine.leaf_set().members().count());
        let sizes: Vec<_> = self.alive.iter().map(|&host| (host, members(host))).collect();
        panic!(
            "not exact after {bound:?}; inactive: {inactive:?}; sizes: {sizes:?}; full: {}, exact: {}",
            self.leaf_sets_are_full(),
            self.leaf_sets_are_exact()
        );
    }

    fn leaf_sets_are_full(&self) -> bool {
        let side = 8.min(self.alive.len() - 1);
        let sides = [annulus_core::ring::Side::Clockwise, annulus_core::ring::Side::CounterClockwise];
        self.alive
            .iter()
            .filter_map(|&host| self.sim.machine(host))
            .all(|machine| sides.iter().all(|&at| machine.leaf_set().side(at).len() == side))
    }

    /// The nodes clockwise of the first.
    fn ring(&self) -> Vec<HostId> {
        let own = self.id(self.alive[0]);
        let mut ring = self.alive.clone();
        ring.sort_by_key(|&host| own.clockwise_to(self.id(host)));
        ring
    }

    fn assert_quiet(&mut self, seconds: u32) {
        let before = self.messages();
        self.run(SECOND * seconds);
        let rate = (self.messages() - before) as f64 / self.alive.len() as f64 / f64::from(seconds);
        assert!(rate < 1.0, "{rate} messages per node and second: no silence");
    }

    fn assert_all_arrive(&mut self, lookups: u32) {
        let phase = self.phase(lookups, 2).unwrap();
        assert_eq!((phase.delivered, phase.wrong, phase.twice), (u64::from(lookups), 0, 0), "{phase:?}");
    }
}

/// PF-2.
#[test]
fn many_joins_at_once_settle_and_cost_little_more() {
    for (there, more) in [(1, 15), (200, 200)] {
        let mut apart = world(there, 3);
        let before = apart.messages();
        for _ in 0..more {
            apart.join_one().unwrap();
        }
        apart.run(30 * SECOND);
        let one_by_one = apart.messages() - before;
        let mut together = world(there, 3);
        let before = together.messages();
        together.start_at_once(more);
        together.settles_within(60 * SECOND);
        let at_once = together.messages() - before;
        assert!(
            at_once <= 4 * one_by_one,
            "{more} into {there}: {at_once} messages, {one_by_one} one by one"
        );
        together.run(30 * SECOND);
        together.assert_quiet(20);
        together.assert_all_arrive(50);
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

/// PF-8.
#[test]
fn two_thirds_restart_together_and_it_settles() {
    let mut world = world(32, 8);
    let restarting: Vec<HostId> = world.alive[11..].to_vec();
    for &host in &restarting {
        world.crash(host, false);
    }
    world.run(SECOND);
    for host in restarting {
        world.sim.fault(Fault::Start(host));
        world.alive.push(host);
    }
    world.settles_within(180 * SECOND);
    world.run(60 * SECOND);
    world.assert_quiet(30);
    world.assert_all_arrive(50);
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
