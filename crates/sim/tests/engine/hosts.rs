//! Hosts in the simulator.

use core::time::Duration;

use annulus_sim::{Config, DiskFate, Fault, HostId, HostState, Observer, Sim, Step};

use super::puppet::{Do, Puppet, Saw, Strings, World, host, inn, ms, out};

fn world(hosts: u32) -> World {
    World::new(hosts, Config::default())
}

#[test]
fn a_crash_ends_a_machine_and_a_start_makes_another() {
    let mut world = world(2);
    world.tell(1, Do::Wake(ms(50)));
    world.run(1);
    world.fault(Fault::Crash { host: host(1), power: true, disk: DiskFate::Kept });
    world.run(1);
    assert_eq!(world.sim.state(host(1)), HostState::Off);
    assert!(world.sim.machine(host(1)).is_none());
    assert_eq!(world.sim.machines().count(), 1);
    world.send(0, 1, "lost");
    world.run(100);
    world.fault(Fault::Start(host(1)));
    world.run(1);
    assert_eq!((world.sim.state(host(1)), world.sim.life(host(1))), (HostState::Up, 2));
    world.send(0, 1, "found");
    world.run(100);
    assert_eq!(world.heard(1), ["found from 10.0.0.1"], "no timer of a former life");
}

#[test]
fn every_life_gets_another_seed() {
    let seeds = std::rc::Rc::new(std::cell::RefCell::new(Vec::new()));
    let kept = std::rc::Rc::clone(&seeds);
    let mut sim = Sim::new(1, Config::default(), move |birth| {
        kept.borrow_mut().push((birth.host, birth.starts, birth.seed));
        annulus_core::ping::Ping::new(
            &annulus_core::ping::Config {
                bind: (birth.address, 7001).into(),
                ..annulus_core::ping::Config::default()
            },
            birth.seed,
        )
        .unwrap()
    });
    let id = sim.add_host();
    sim.run_for(ms(10), &mut ()).unwrap();
    sim.fault(Fault::Crash { host: id, power: false, disk: DiskFate::Kept });
    sim.fault(Fault::Start(id));
    sim.run_for(ms(10), &mut ()).unwrap();
    let seeds = seeds.borrow();
    assert_eq!(seeds.len(), 2);
    assert_eq!((seeds[0].1, seeds[1].1), (0, 1));
    assert_ne!(seeds[0].2, seeds[1].2);
}

#[test]
fn a_suspended_process_gets_everything_later() {
    let mut world = world(2);
    world.tell(1, Do::Wake(ms(50)));
    world.run(1);
    world.fault(Fault::Suspend(host(1)));
    world.run(1);
    world.send(0, 1, "while you were out");
    world.run(1_000);
    assert!(world.heard(1).is_empty());
    let before = world.sim.clock(host(1)).mono;
    world.run(1_000);
    assert_eq!(world.sim.clock(host(1)).mono.since(before), ms(1_000), "its clock runs on");
    world.fault(Fault::Resume(host(1)));
    world.run(1);
    let mut heard = world.heard(1);
    heard.sort();
    assert_eq!(heard, ["18 B from 10.0.0.1", "woken"]);
}

#[test]
fn a_suspended_process_keeps_only_so_many_datagrams() {
    let mut config = Config::default();
    config.host.waiting_max = 3;
    let mut world = World::new(2, config);
    world.fault(Fault::Suspend(host(1)));
    world.run(1);
    for _ in 0..5 {
        world.send(0, 1, "x");
    }
    world.run(10);
    world.fault(Fault::Resume(host(1)));
    world.run(10);
    assert_eq!(world.heard(1).len(), 3);
    assert_eq!(world.sim.stats().datagrams_shed, 2);
}

#[test]
fn a_suspended_machine_loses_packets_and_its_monotonic_time() {
    let mut world = world(2);
    let before = world.clock(1);
    world.tell(1, Do::Wake(ms(500)));
    world.run(1);
    world.fault(Fault::Sleep { host: host(1), counts: false });
    world.run(1);
    world.send(0, 1, "x");
    world.run(10_000);
    world.fault(Fault::Resume(host(1)));
    world.run(100);
    assert!(world.heard(1).is_empty());
    let after = world.clock(1);
    assert!(after.mono.since(before.mono) < ms(200));
    assert!(after.wall.as_micros() - before.wall.as_micros() > 10_000_000, "the date is right");
    world.run(500);
    assert_eq!(world.heard(1), ["woken"]);
}

#[test]
fn clocks_drift_and_timers_with_them() {
    let mut world = world(2);
    world.fault(Fault::Drift { host: host(1), ppm: 100_000 });
    world.run(1);
    for number in [0, 1] {
        world.tell(number, Do::Wake(ms(1_100)));
    }
    let before = world.sim.elapsed();
    world.run(2_000);
    let at = |number: u32| {
        let (at, ..) = *world.log.heard.iter().find(|(_, id, _)| *id == host(number)).unwrap();
        at - before
    };
    assert_eq!(at(0), ms(1_100));
    assert_eq!(at(1), ms(1_000), "a clock that is a tenth too fast");
}

#[test]
fn a_changed_drift_moves_a_timer_that_runs() {
    let mut world = world(1);
    world.tell(0, Do::Wake(ms(1_000)));
    world.run(1);
    world.fault(Fault::Drift { host: host(0), ppm: -500_000 });
    world.run(1_500);
    assert!(world.heard(0).is_empty());
    world.run(600);
    assert_eq!(world.heard(0), ["woken"]);
}

#[test]
fn monotonic_clocks_start_anywhere() {
    let world = world(2);
    let [first, second] = [0, 1].map(|number| world.sim.clock(host(number)));
    assert_ne!(first.mono, second.mono);
    assert_eq!(first.wall, second.wall, "but people agree on the date");
}

#[test]
fn a_wall_clock_jumps_alone() {
    let mut world = world(1);
    let before = world.clock(0);
    world.fault(Fault::JumpWall { host: host(0), micros: -3_600_000_000 });
    world.run(1);
    let after = world.clock(0);
    assert!(after.wall < before.wall);
    assert!(after.mono > before.mono);
}

#[test]
fn a_slow_host_takes_one_thing_at_a_time() {
    let mut world = world(2);
    world.fault(Fault::Slow { host: host(1), delay: ms(100) });
    world.run(1);
    for _ in 0..4 {
        world.send(0, 1, "x");
    }
    world.tell(1, Do::Wake(ms(1)));
    let before = world.sim.elapsed();
    world.run(1_000);
    let at: Vec<Duration> = world.log.heard.iter().map(|(at, ..)| *at - before).collect();
    assert_eq!(at.len(), 5);
    assert!(at.windows(2).all(|pair| pair[1] - pair[0] >= ms(100)), "{at:?}");
}

#[test]
fn a_wake_up_may_be_late_but_never_early() {
    let mut config = Config::default();
    config.host.wake_late_max = ms(20);
    let mut world = World::new(30, config);
    for number in 0..30 {
        world.tell(number, Do::Wake(ms(100)));
    }
    let before = world.sim.elapsed();
    world.run(200);
    let late: Vec<Duration> = world.log.heard.iter().map(|(at, ..)| *at - before).collect();
    assert_eq!(late.len(), 30);
    assert!(late.iter().all(|late| (ms(100)..ms(120)).contains(late)));
    assert!(late.iter().any(|late| *late > ms(110)));
}

#[test]
fn a_machine_stops_in_good_order_or_is_ended() {
    for (stops, millis) in [(true, 1), (false, 11_000)] {
        let strings = Strings { stops, ..Strings::default() };
        let mut world = World::with(1, 2, Config::default(), strings);
        let to = world.addr(1);
        world.tell(0, Do::OpenAs(out(0), to, None));
        world.run(10);
        world.log.heard.clear();
        world.sim.stop(host(0));
        world.run(millis);
        assert_eq!(world.heard(0), ["asked to stop"]);
        assert_eq!(world.sim.state(host(0)), HostState::Down);
        world.run(10);
        assert_eq!(world.heard(1), [format!("{} finished", inn(0))], "its kernel ends its streams");
        assert_eq!(world.sim.stats().crashes, u64::from(!stops));
    }
}

#[test]
fn a_machine_that_spins_is_caught() {
    let mut world = world(1);
    world.tell(0, Do::Spin);
    let violation = world.sim.run_for(ms(10), &mut world.log).unwrap_err();
    assert!(violation.text.contains("spins: its timer puppet"), "{violation}");
}

#[test]
fn a_command_is_answered_or_not() {
    let mut world = world(1);
    let now = world.clock(0);
    assert_eq!(now, world.sim.clock(host(0)));
    world.fault(Fault::Crash { host: host(0), power: true, disk: DiskFate::Kept });
    world.run(1);
    let before = world.sim.elapsed();
    let answer = world.sim.ask(host(0), Vec::new(), ms(50), &mut world.log).unwrap();
    assert_eq!((answer, world.sim.elapsed() - before), (None, ms(50)));
}

#[test]
fn a_scenario_runs_until_a_condition_holds() {
    let mut world = world(2);
    let to = world.addr(1);
    world.sim.command_after(ms(500), host(0), vec![Do::Send(to, b"x".to_vec())]);
    let World { sim, log } = &mut world;
    let heard = sim.run_until_that(ms(2_000), ms(10), log, |_, log| !log.heard.is_empty()).unwrap();
    assert!(heard);
    assert!((ms(500)..ms(520)).contains(&sim.elapsed()), "{:?}", sim.elapsed());
    assert!(!sim.run_until_that(ms(100), ms(10), log, |_, log| log.heard.len() > 1).unwrap());
}

#[test]
fn a_step_does_anything_at_its_moment() {
    let mut world = world(1);
    world.sim.at(
        ms(100),
        Step::Call(Box::new(|sim: &mut Sim<Puppet>| {
            sim.add_host();
        })),
    );
    world.run(50);
    assert_eq!(world.sim.len(), 1);
    world.run(60);
    assert_eq!((world.sim.len(), world.sim.machines().count()), (2, 2));
}

#[test]
fn a_calm_mends_everything() {
    let mut world = world(6);
    let crash = |n| Fault::Crash { host: host(n), power: true, disk: DiskFate::Kept };
    for fault in [
        crash(1),
        Fault::Suspend(host(2)),
        Fault::Sleep { host: host(3), counts: false },
        Fault::Slow { host: host(4), delay: ms(10_000) },
        Fault::Cut { from: host(0), to: host(5) },
        Fault::Partition(vec![vec![host(0)]]),
    ] {
        world.fault(fault);
    }
    world.sim.config_mut().network.loss = 1.0;
    world.run(10);
    world.fault(Fault::Calm);
    world.run(10);
    for to in 1..6 {
        world.send(0, to, "x");
    }
    world.run(10);
    for to in 1..6 {
        assert_eq!(world.heard(to).last().map(String::as_str), Some("x from 10.0.0.1"), "{to}");
    }
}

/// An observer that crashes a host between two actions.
struct Saboteur;

impl Observer<Puppet> for Saboteur {
    fn on_event(&mut self, sim: &Sim<Puppet>, host: HostId, event: &Saw) -> annulus_sim::Verdict {
        if matches!(event, Saw::Datagram(..)) {
            sim.inject(Fault::Crash { host, power: false, disk: DiskFate::Kept });
        }
        Ok(())
    }
}

#[test]
fn a_crash_that_is_injected_happens_at_once() {
    let mut world = world(2);
    world.send(0, 1, "x");
    world.send(0, 1, "y");
    world.sim.run_for(ms(10), &mut Saboteur).unwrap();
    assert_eq!(world.sim.state(host(1)), HostState::Down);
    assert_eq!(world.sim.stats().datagrams_delivered, 1);
}
