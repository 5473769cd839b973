//! The faults of kernels, networks and hosts beside crashes and cuts: one test each for its effect on a machine.

use core::time::Duration;
use std::net::SocketAddr;

use annulus_core::Rng;
use annulus_sim::{
    Aim, Block, Cause, Conditions, Config, DiskFate, DiskHealth, Fault, FaultPlan, HostId, HostState,
    MorePlan, Sim, StreamConfig, Traffic,
};

use super::puppet::{Do, Puppet, Strings, World, host, ms, out};

fn world() -> World {
    World::new(3, Config::default())
}

fn open(world: &mut World, n: u64) {
    let to = world.addr(1);
    world.tell(0, Do::OpenAs(out(n), to, None));
    world.run(100);
}

fn filter(world: &mut World, what: Traffic, how: Block) {
    world.fault(Fault::Filter { from: host(0), to: host(1), what, how });
    world.run(1);
}

#[test]
fn fa_3_a_middlebox_forgets_idle_flows_silently_or_with_a_reset() {
    for (flow_end, seen) in
        [(Block::Drop, vec!["0:0 sent 1"]), (Block::Reject, vec!["0:0 sent 1", "0:0 closed Reset"])]
    {
        let mut config =
            Config { stream: StreamConfig { keepalive: None, ..StreamConfig::linux() }, ..Config::default() };
        (config.network.flow_idle_max, config.network.flow_end) = (Some(ms(30_000)), flow_end);
        let mut world = World::new(2, config);
        open(&mut world, 0);
        world.run(29_000);
        world.tell(0, Do::Write(out(0), b"a".to_vec()));
        world.run(40_000);
        assert_eq!(world.heard(1).last().unwrap(), "0:1 data a", "it was not idle for too long");
        world.heard(0);
        world.tell(0, Do::Write(out(0), b"b".to_vec()));
        world.run(20_000);
        assert_eq!(world.heard(0), seen);
        assert_eq!(world.heard(1), [""; 0]);
    }
}

#[test]
fn fa_4_a_full_accept_queue_is_silent_and_the_syn_comes_again() {
    let mut config = Config::default();
    config.host.backlog = 2;
    let mut world = World::new(2, config);
    world.fault(Fault::Suspend(host(1)));
    world.run(1);
    for n in 0..3 {
        open(&mut world, n);
    }
    assert_eq!(
        world.heard(0),
        ["0:0 connected 10.0.0.1", "0:2 connected 10.0.0.1"],
        "the kernel accepts for the process"
    );
    assert_eq!(world.sim.stats().syns_dropped, 1);
    world.run(5_000);
    assert_eq!(world.heard(0), [""; 0]);
    world.fault(Fault::Resume(host(1)));
    world.run(3_000);
    assert_eq!(world.heard(0), ["0:4 connected 10.0.0.1"]);
    assert_eq!(world.heard(1).len(), 3);
}

#[test]
fn fa_6_after_a_stop_either_timers_or_inputs_come_first() {
    let mut first = std::collections::BTreeSet::new();
    for n in 0..40 {
        let mut world = world();
        world.tell(1, Do::Wake(ms(10)));
        world.run(1);
        world.fault(Fault::Suspend(host(1)));
        world.run(1);
        world.send(0, 1, "x");
        world.run(1_000 + n);
        world.fault(Fault::Resume(host(1)));
        world.run(10);
        first.insert(world.heard(1)[0].clone());
    }
    assert_eq!(first.len(), 2, "{first:?}");
}

#[test]
fn fa_6_a_host_that_stutters_is_late_by_drawn_times() {
    let mut world = world();
    world.fault(Fault::Stutter { host: host(1), median: ms(2) });
    world.run(1);
    for _ in 0..3_000 {
        world.send(0, 1, "x");
        world.run(20);
    }
    world.run(600_000);
    let mut gaps: Vec<Duration> = world.log.heard.windows(2).map(|two| two[1].0 - two[0].0).collect();
    gaps.sort_unstable();
    assert!(gaps[gaps.len() / 2] < ms(40), "mostly on time");
    assert!(*gaps.last().unwrap() > ms(500), "and rarely not at all: {:?}", gaps.last());
    world.fault(Fault::Stutter { host: host(1), median: Duration::ZERO });
    world.run(100_000);
    world.log.heard.clear();
    world.send(0, 1, "y");
    world.run(2);
    assert_eq!(world.heard(1), ["y from 10.0.0.1"]);
}

#[test]
fn fa_7_a_suspended_machine_counts_its_sleep_and_a_paused_one_does_not() {
    for (counts, passed) in [(true, 3_600), (false, 0)] {
        let mut world = world();
        let before = world.clock(1).mono;
        world.fault(Fault::Sleep { host: host(1), counts });
        world.run(3_600_000);
        world.send(0, 1, "lost");
        world.run(10);
        world.fault(Fault::Resume(host(1)));
        world.run(1);
        assert_eq!(world.clock(1).mono.since(before).as_secs(), passed);
        assert_eq!(world.heard(1), [""; 0]);
        let cause = if counts { Cause::Asleep } else { Cause::ClockStopped };
        assert!(world.sim.causes(host(1), Duration::ZERO, world.sim.elapsed()).any(|one| one.cause == cause));
    }
}

#[test]
fn fa_8_a_start_may_have_a_wrong_date() {
    let mut world = world();
    let before = world.clock(1).wall.as_seconds();
    world.fault(Fault::WallAtStart { host: host(1), micros: -1_000_000_000 });
    world.run(1);
    assert!(world.clock(1).wall.as_seconds() - before < 10, "not yet");
    world.fault(Fault::Crash { host: host(1), power: true, disk: DiskFate::Kept });
    world.fault(Fault::Start(host(1)));
    world.run(1);
    assert!(before - world.clock(1).wall.as_seconds() > 900);
}

#[test]
fn fa_9_a_filter_stops_only_its_traffic() {
    let mut world = world();
    filter(&mut world, Traffic::Datagrams, Block::Drop);
    world.send(0, 1, "x");
    open(&mut world, 0);
    assert_eq!(world.heard(1), ["0:1 accepted 10.0.0.1"], "streams pass");
    world.fault(Fault::Mend { from: host(0), to: host(1) });
    filter(&mut world, Traffic::Streams, Block::Drop);
    world.send(0, 1, "y");
    world.tell(0, Do::Write(out(0), b"z".to_vec()));
    world.run(100);
    assert_eq!(world.heard(1), ["y from 10.0.0.1"], "datagrams pass");
    world.fault(Fault::Mend { from: host(0), to: host(1) });
    world.run(1_000);
    assert_eq!(world.heard(1), ["0:1 data z"]);
}

#[test]
fn fa_9_a_filter_that_rejects_refuses_and_resets_at_once() {
    let mut world = world();
    open(&mut world, 0);
    world.heard(0);
    filter(&mut world, Traffic::All, Block::Reject);
    open(&mut world, 1);
    world.tell(0, Do::Write(out(0), b"z".to_vec()));
    world.run(10);
    assert_eq!(world.heard(0), ["0:2 closed Refused", "0:0 sent 1", "0:0 closed Reset"]);
    assert!(!world.heard(1).iter().any(|line| line.contains("closed")), "the other end hears nothing of it");
}

#[test]
fn fa_9_a_delay_loses_nothing() {
    let mut world = world();
    world.fault(Fault::Delay { from: host(0), to: host(1), by: ms(20_000) });
    world.run(1);
    world.send(0, 1, "x");
    world.run(19_000);
    assert_eq!(world.heard(1), [""; 0]);
    world.run(2_000);
    assert_eq!(world.heard(1), ["x from 10.0.0.1"]);
}

#[test]
fn fa_10_a_path_loses_large_packets_and_passes_small_ones() {
    let mut world = world();
    open(&mut world, 0);
    world.heard(1);
    world.fault(Fault::PathMtu { from: host(0), to: host(1), bytes: 1_000 });
    world.run(1);
    world.send(0, 1, "x");
    let to = world.addr(1);
    world.tell(0, Do::Send(to, vec![7; 1_200]));
    world.tell(0, Do::Write(out(0), vec![7; 5_000]));
    world.run(10_000);
    assert_eq!(world.heard(1), ["x from 10.0.0.1"]);
    world.fault(Fault::Mend { from: host(0), to: host(1) });
    world.run(60_000);
    assert!(world.heard(1).iter().any(|line| line.starts_with("0:1 data")));
}

#[test]
fn fa_11_a_lying_or_restored_disk_loses_durable_writes() {
    for (fate, at_least) in [(DiskFate::Lied, 92), (DiskFate::Rollback, 0)] {
        let mut shortest = 100;
        for seed in 0..30 {
            let mut config = Config::default();
            config.disk.history = 256;
            let mut world = World::with(seed, 1, config, Strings::default());
            for n in 0..100_u8 {
                world.tell(0, Do::Put(KEYS[usize::from(n) % KEYS.len()], vec![n], true));
                world.run(20);
            }
            world.fault(Fault::Crash { host: host(0), power: true, disk: fate });
            world.run(1);
            let disk = world.sim.disk(host(0)).unwrap();
            let last = disk.entries(super::puppet::SPACE).map(|(_, value)| value[0]).max().unwrap_or(0);
            shortest = shortest.min(last);
        }
        assert!(shortest < 99 && shortest + 1 >= at_least, "{fate:?} kept {shortest}");
    }
}

const KEYS: [&str; 4] = ["a", "b", "c", "d"];

#[test]
fn fa_11_a_sync_may_fail_once_or_take_its_time() {
    let mut world = world();
    world.fault(Fault::Disk { host: host(0), health: DiskHealth::SyncFails });
    world.run(1);
    for value in [b"x", b"y"] {
        world.tell(0, Do::Put("a", value.to_vec(), true));
        world.run(100);
    }
    assert_eq!(world.heard(0), ["failed Broken", "written"]);
    world.sim.config_mut().disk.sync_tail = 1.0;
    let mut longest = Duration::ZERO;
    for _ in 0..20 {
        let asked = world.sim.elapsed();
        world.tell(0, Do::Put("a", b"z".to_vec(), true));
        world.run(40_000);
        longest = longest.max(world.log.heard.last().unwrap().0 - asked);
    }
    assert!(longest > ms(10_000), "{longest:?}");
}

#[test]
fn fa_12_a_host_with_another_address_is_silent_on_old_connections_and_reached_on_new_ones() {
    let mut world = world();
    let old = world.addr(1);
    open(&mut world, 0);
    world.run(100);
    (0..2).for_each(|n| drop(world.heard(n)));
    world.fault(Fault::Readdress { host: host(1), to: [10, 250, 0, 7].into() });
    world.run(1);
    world.tell(0, Do::Write(out(0), b"x".to_vec()));
    world.send(0, 1, "to the old address");
    world.run(5_000);
    assert_eq!(world.heard(1), [""; 0]);
    assert_eq!(world.heard(0), ["0:0 sent 1"], "the kernel tries again and nobody answers");
    assert_eq!(world.sim.host_at(old.ip()), None);

    // A restarted process has the new address; the opener learns that the old one is unused.
    world.fault(Fault::Crash { host: host(1), power: false, disk: DiskFate::Kept });
    world.fault(Fault::Start(host(1)));
    world.run(100);
    world.heard(1);
    let new = world.sim.address(host(1));
    world.tell(0, Do::OpenAs(out(1), SocketAddr::new(new, old.port()), None));
    world.tell(0, Do::OpenAs(out(2), old, None));
    world.run(100);
    assert_eq!(world.heard(0), ["0:4 closed Unreachable", "0:2 connected 10.0.0.1"]);
    assert_eq!(world.heard(1).len(), 1);
}

#[test]
fn fa_13_a_copied_disk_makes_a_twin() {
    let mut world = world();
    world.tell(0, Do::Put("id", b"me".to_vec(), true));
    world.run(100);
    world.fault(Fault::Crash { host: host(1), power: false, disk: DiskFate::Kept });
    world.fault(Fault::Clone { from: host(0), to: host(1) });
    world.run(10);
    assert_eq!(world.sim.state(host(1)), HostState::Up);
    world.heard(1);
    world.tell(1, Do::Get("id"));
    world.run(10);
    assert_eq!(world.heard(1), ["value Some(\"me\")"]);
}

#[test]
fn fa_14_a_starved_host_opens_nothing_and_sends_nothing() {
    let mut world = world();
    world.fault(Fault::Starved { host: host(0), is_starved: true });
    world.run(1);
    open(&mut world, 0);
    world.send(0, 1, "x");
    world.run(10);
    assert_eq!((world.heard(0), world.heard(1)), (vec!["0:0 closed Failed".into()], vec![]));
    world.fault(Fault::Starved { host: host(0), is_starved: false });
    world.send(0, 1, "y");
    world.run(10);
    assert_eq!(world.heard(1), ["y from 10.0.0.1"]);
}

#[test]
fn fa_15_datagrams_stray_for_up_to_a_minute() {
    let mut config = Config::default();
    config.network.stray = 0.5;
    let mut world = World::new(2, config);
    for _ in 0..100 {
        world.send(0, 1, "x");
    }
    world.run(10);
    let soon = world.heard(1).len();
    world.run(61_000);
    assert!((20..80).contains(&soon) && soon + world.heard(1).len() == 100, "{soon} of 100 in time");
}

#[test]
fn fa_17_the_dead_stay_dead() {
    let mut world = world();
    world.fault(Fault::Die(host(1)));
    world.fault(Fault::Start(host(1)));
    world.fault(Fault::Calm);
    world.run(10);
    assert!(world.sim.is_dead(host(1)) && world.sim.machine(host(1)).is_none());
    assert!(world.sim.quiet_since().is_some(), "a death is no fault that ends");
}

/// The target is always host 2.
static AIMS: [Aim<Puppet>; 1] = [Aim { name: "second", find: |_, _| Some(HostId::new(2)) }];

#[test]
fn fa_30_lengths_are_of_all_magnitudes() {
    let faults = FaultPlan { suspensions: 400, ..FaultPlan::default() };
    let mut world = World::new(3, Config::default());
    faults.schedule_all(5, &mut world.sim, Duration::from_secs(1_000_000), &AIMS);
    world.run(1_000_000_000);
    let troubles = world.sim.hosts().flat_map(|host| world.sim.causes(host, Duration::ZERO, Duration::MAX));
    let lengths: Vec<f64> = troubles.filter_map(|one| Some((one.until? - one.from).as_secs_f64())).collect();
    for (low, high) in [(0.001, 0.01), (0.01, 0.1), (0.1, 1.0), (1.0, 10.0), (10.0, 100.0), (100.0, 500.0)] {
        let within = lengths.iter().filter(|length| (low..high).contains(*length)).count();
        assert!(within * 20 > lengths.len(), "{within} of {} between {low} s and {high} s", lengths.len());
    }
}

#[test]
fn fa_31_a_third_of_the_faults_hit_named_hosts_and_some_come_in_pairs() {
    let faults = FaultPlan { crashes: 300, ..FaultPlan::default() };
    let mut world = World::new(100, Config::default());
    faults.schedule_all(5, &mut world.sim, Duration::from_secs(1_000_000), &AIMS);
    world.run(1_000_000_000);
    let hits = |host: HostId| world.sim.causes(host, Duration::ZERO, Duration::MAX).count();
    let (aimed, all) = (hits(host(2)), world.sim.hosts().map(hits).sum::<usize>());
    assert!(all > 310, "{all} of 300 were planned");
    assert!((80..200).contains(&aimed), "{aimed} of {all} were aimed");
}

#[test]
fn all_faults_at_once_repeat() {
    let run = |seed: u64| {
        let mut rng = Rng::from_number(seed, 3);
        let mut conditions = Conditions::all_faults(&mut rng);
        let lies = MorePlan { disk_lies: 2, rollbacks: 1, clones: 1, ..conditions.faults.more.clone() };
        conditions.faults.more = lies;
        let mut world = World::with(seed, 6, conditions.config.clone(), Strings::default());
        conditions.faults.schedule_all(seed, &mut world.sim, Duration::from_secs(50), &AIMS);
        for n in 0..50_u64 {
            let (from, to) = (n as u32 % 6, (n as u32 * 5 + 1) % 6);
            world.send(from, to, "x");
            let addr = world.addr(to);
            world.tell(from, Do::OpenAs(out(n), addr, None));
            world.tell(from, Do::Write(out(n), vec![7; 3_000]));
            world.tell(from, Do::Put("k", vec![1], n % 2 == 0));
            world.run(1_000);
        }
        world.fault(Fault::Calm);
        world.run(20_000);
        let alive = |sim: &Sim<Puppet>| sim.hosts().filter(|host| sim.machine(*host).is_some()).count();
        assert_eq!(alive(&world.sim), world.sim.hosts().filter(|host| !world.sim.is_dead(*host)).count());
        world.sim.trace_hash().to_string()
    };
    for seed in 0..10 {
        assert_eq!(run(seed), run(seed), "seed {seed}");
    }
}
