//! Disks in the simulator.

use std::collections::BTreeSet;

use annulus_sim::{Config, DiskFate, DiskHealth, Fault, HostState};

use super::puppet::{Do, SPACE, Strings, World, host, ms};

fn world(seed: u64) -> World {
    World::with(seed, 1, Config::default(), Strings::default())
}

fn crash(world: &mut World, disk: DiskFate) {
    world.fault(Fault::Crash { host: host(0), power: true, disk });
    world.run(1);
}

fn value(world: &World, key: &str) -> Option<String> {
    let value = world.sim.disk(host(0))?.value(SPACE, key.as_bytes())?;
    Some(String::from_utf8(value.to_vec()).unwrap())
}

#[test]
fn written_values_are_read() {
    let mut world = world(1);
    world.tell(0, Do::Put("b", "2".into(), false));
    world.tell(0, Do::Put("a", "1".into(), true));
    world.tell(0, Do::Put("c", "3".into(), false));
    world.tell(0, Do::Get("b"));
    world.tell(0, Do::Get("z"));
    world.tell(0, Do::Page("a", "", 2));
    world.tell(0, Do::Page("b", "c", 9));
    world.run(100);
    let mut heard = world.heard(0);
    heard.sort();
    let expected = [
        "page a,b more true",
        "page b more false",
        "value None",
        "value Some(\"2\")",
        "written",
        "written",
        "written",
    ];
    assert_eq!(heard, expected);
    assert_eq!(world.sim.disk(host(0)).unwrap().entries(SPACE).count(), 3);
}

#[test]
fn a_durable_write_that_was_answered_survives_every_crash_but_the_loss_of_the_disk() {
    for seed in 0..20 {
        let mut world = world(seed);
        world.tell(0, Do::Put("before", "x".into(), false));
        world.tell(0, Do::Put("safe", "y".into(), true));
        world.run(100);
        world.tell(0, Do::Put("after", "z".into(), false));
        world.run(100);
        crash(&mut world, DiskFate::UnsyncedLost);
        assert_eq!(value(&world, "safe").as_deref(), Some("y"));
        assert_eq!(value(&world, "before").as_deref(), Some("x"), "what came before a durable write");
        world.fault(Fault::Start(host(0)));
        world.run(1);
        crash(&mut world, DiskFate::Lost);
        assert_eq!(value(&world, "safe"), None);
    }
}

#[test]
fn a_prefix_of_unsynced_writes_survives_that_the_seed_chooses() {
    let mut lengths = BTreeSet::new();
    for seed in 0..60 {
        let mut world = world(seed);
        for key in ["1", "2", "3", "4"] {
            world.tell(0, Do::Put(key, key.into(), false));
        }
        world.run(100);
        assert_eq!(world.sim.disk(host(0)).unwrap().unsynced(), 4);
        crash(&mut world, DiskFate::UnsyncedLost);
        let there: Vec<bool> = ["1", "2", "3", "4"].iter().map(|key| value(&world, key).is_some()).collect();
        assert!(there.is_sorted_by(|a, b| a >= b), "no write survives an earlier one: {there:?}");
        lengths.insert(there.iter().filter(|there| **there).count());
    }
    assert_eq!(lengths.len(), 5, "from none to all");
}

#[test]
fn a_lost_write_restores_the_old_value() {
    let mut seen = BTreeSet::new();
    for seed in 0..30 {
        let mut world = world(seed);
        world.tell(0, Do::Put("key", "old".into(), true));
        world.run(100);
        world.tell(0, Do::Put("key", "new".into(), false));
        world.run(100);
        crash(&mut world, DiskFate::UnsyncedLost);
        seen.insert(value(&world, "key").unwrap());
    }
    assert_eq!(seen.into_iter().collect::<Vec<_>>(), ["new", "old"]);
}

#[test]
fn a_durable_write_under_way_survives_or_does_not() {
    for fate in [DiskFate::Kept, DiskFate::UnsyncedLost] {
        let mut seen = BTreeSet::new();
        for seed in 0..30 {
            let mut world = world(seed);
            world.tell(0, Do::Put("key", "value".into(), true));
            world.sim.run_for(core::time::Duration::from_micros(500), &mut world.log).unwrap();
            assert!(world.heard(0).is_empty(), "not answered yet");
            crash(&mut world, fate);
            seen.insert(value(&world, "key"));
            world.run(100);
            assert!(world.heard(0).is_empty(), "and never will be");
        }
        assert_eq!(seen.len(), 2, "{fate:?}");
    }
}

#[test]
fn a_kept_disk_keeps_answered_writes() {
    for seed in 0..20 {
        let mut world = world(seed);
        world.tell(0, Do::Put("key", "value".into(), false));
        world.run(10);
        crash(&mut world, DiskFate::Kept);
        assert_eq!(value(&world, "key").as_deref(), Some("value"));
    }
}

#[test]
fn a_full_disk_takes_no_writes_and_a_broken_one_gives_nothing() {
    let mut world = world(1);
    let health = |health| Fault::Disk { host: host(0), health };
    world.tell(0, Do::Put("a", "1".into(), true));
    world.run(100);
    world.fault(health(DiskHealth::Full));
    world.run(1);
    world.tell(0, Do::Put("b", "2".into(), true));
    world.run(100);
    world.tell(0, Do::Get("a"));
    world.run(100);
    world.fault(health(DiskHealth::Broken));
    world.run(1);
    world.tell(0, Do::Get("a"));
    world.run(100);
    world.fault(health(DiskHealth::Good));
    world.run(1);
    world.tell(0, Do::Put("b", "2".into(), true));
    world.run(100);
    let expected = ["written", "failed Full", "value Some(\"1\")", "failed Broken", "written"];
    assert_eq!(world.heard(0), expected);
}

#[test]
fn a_disk_has_a_size_and_a_queue() {
    let mut config = Config::default();
    config.disk.bytes_max = Some(20);
    config.disk.ops_max = 2;
    let mut world = World::new(1, config);
    world.tell(0, Do::Put("k", "0123456789".into(), false));
    world.run(10);
    world.tell(0, Do::Put("l", "0123456789".into(), false));
    world.run(10);
    assert_eq!(world.heard(0), ["written", "failed Full"]);
    assert_eq!(world.sim.disk(host(0)).unwrap().bytes(), 11);
    for _ in 0..3 {
        world.tell(0, Do::Get("k"));
    }
    world.run(10);
    assert_eq!(world.heard(0).iter().filter(|line| line.contains("failed Busy")).count(), 1);
}

#[test]
fn writes_fail_with_their_probability_and_leave_nothing() {
    let mut config = Config::default();
    config.disk.failure = 0.5;
    let mut world = World::new(1, config);
    for key in ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"] {
        world.tell(0, Do::Put(key, "x".into(), false));
    }
    world.run(100);
    let written = world.heard(0).iter().filter(|line| line.contains("written")).count();
    assert!((1..10).contains(&written));
    assert_eq!(world.sim.disk(host(0)).unwrap().entries(SPACE).count(), written);
}

#[test]
fn a_machine_that_loads_gets_nothing_but_its_store() {
    let mut config = Config::default();
    config.disk.read = ms(500)..=ms(500);
    let strings = Strings { load: &["state"], ..Strings::default() };
    let mut world = World::with(1, 2, config, strings);
    world.send(0, 1, "early");
    world.run(100);
    assert!(world.heard(1).is_empty());
    world.run(1_000);
    // Host 0 was loading too, so its command waited as well.
    assert_eq!(world.heard(1), ["value None", "early from 10.0.0.1"]);
}

#[test]
fn a_machine_that_was_suspended_while_it_loaded_goes_on_loading() {
    let mut config = Config::default();
    config.disk.read = ms(100)..=ms(1_000);
    let strings = Strings { load: &["first", "second"], ..Strings::default() };
    let mut world = World::with(1, 2, config, strings);
    while world.sim.state(host(0)) != HostState::Up {
        world.run(1);
    }
    // Host 1 starts anew, and is paused until one of its two answers is there and a datagram waits.
    world.fault(Fault::Crash { host: host(1), power: false, disk: DiskFate::Kept });
    world.fault(Fault::Start(host(1)));
    world.fault(Fault::Suspend(host(1)));
    world.run(1);
    world.log.heard.clear();
    world.send(0, 1, "early");
    world.run(99);
    for _ in 0..100 {
        world.fault(Fault::Resume(host(1)));
        world.run(1);
        world.fault(Fault::Suspend(host(1)));
        world.run(9);
    }
    world.fault(Fault::Resume(host(1)));
    world.run(10);
    let heard = world.heard(1);
    assert_eq!(heard.len(), 3);
    assert_eq!(heard[2], "early from 10.0.0.1", "{heard:?}");
}
