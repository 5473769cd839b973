//! One seed decides everything, and the hash shows it.

use std::io::{self, Write};
use std::sync::{Arc, Mutex};

use annulus_sim::{Conditions, Config, DatagramFate, FaultPlan, TraceHash};

use super::puppet::{Do, Strings, World, out};

/// A world in which much happens.
fn busy(seed: u64, lines: Option<(Shared, bool)>) -> TraceHash {
    let mut rng = annulus_core::Rng::from_number(seed, 9);
    let conditions = Conditions::swarm(&mut rng);
    let mut world = World::with(seed, 5, conditions.config.clone(), Strings::default());
    if let Some((writer, json)) = lines {
        world.sim.trace_to(Box::new(writer), json);
    }
    conditions.faults.schedule(seed, &mut world.sim, core::time::Duration::from_secs(10));
    for n in 0..100u32 {
        world.send(n % 5, (n + 1) % 5, "text");
        let to = world.addr((n + 2) % 5);
        world.tell(n % 5, Do::OpenAs(out(u64::from(n)), to, None));
        world.tell(n % 5, Do::Write(out(u64::from(n)), vec![1; 3_000]));
        world.tell(n % 5, Do::Put("key", "value".into(), n % 3 == 0));
        world.run(100);
    }
    world.sim.finish_trace().unwrap();
    world.sim.trace_hash()
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    for seed in 0..10 {
        assert_eq!(busy(seed, None), busy(seed, None), "seed {seed}");
    }
}

#[test]
fn another_seed_gives_another_trace() {
    assert_ne!(busy(1, None), busy(2, None));
}

#[test]
fn one_flipped_bit_of_a_payload_changes_the_hash() {
    // A quiet network, so that the bit is all that differs.
    let quiet = |byte: u8| {
        let mut world = World::new(2, Config::default());
        let to = world.addr(1);
        world.tell(0, Do::OpenAs(out(0), to, None));
        world.run(10);
        let before = world.sim.trace_hash();
        world.log.hook = Some(Box::new(move |datagram| {
            datagram.bytes[3] = byte;
            DatagramFate::Pass
        }));
        // So long that the receiver reports only its length: no event shows the bytes.
        world.tell(0, Do::Send(to, vec![0; 100]));
        world.run(10);
        assert_ne!(before, world.sim.trace_hash());
        world.sim.trace_hash()
    };
    assert_eq!(quiet(0), quiet(0));
    assert_ne!(quiet(0), quiet(4));
}

#[test]
fn one_flipped_bit_of_a_stream_changes_the_hash() {
    let write = |byte: u8| {
        let mut world = World::new(2, Config::default());
        let to = world.addr(1);
        world.tell(0, Do::OpenAs(out(0), to, None));
        world.run(10);
        world.tell(0, Do::Write(out(0), vec![byte; 100]));
        world.run(10);
        world.sim.trace_hash()
    };
    assert_eq!(write(0), write(0));
    assert_ne!(write(0), write(1));
}

#[test]
fn a_fault_in_one_part_of_the_world_leaves_the_dice_of_another_alone() {
    // The draws of machines and disks do not depend on those of the network: the clocks are the same.
    let clocks = |loss: f64| {
        let mut config = Config::default();
        config.network.loss = loss;
        let mut world = World::new(5, config);
        world.send(0, 1, "x");
        world.run(100);
        world.sim.hosts().map(|host| world.sim.clock(host)).collect::<Vec<_>>()
    };
    assert_eq!(clocks(0.0), clocks(0.9));
}

#[test]
fn lines_change_nothing_and_are_readable_or_json() {
    let plain = busy(4, None);
    for json in [false, true] {
        let shared = Shared::default();
        assert_eq!(busy(4, Some((shared.clone(), json))), plain);
        let bytes = shared.0.lock().unwrap().clone();
        let text = String::from_utf8(bytes).unwrap();
        assert!(text.lines().count() > 500);
        if json {
            for line in text.lines() {
                let value: serde_json::Value = serde_json::from_str(line).unwrap();
                assert!(value["at_micros"].is_u64(), "{line}");
                assert!(
                    value["what"].is_string() || (value["v"] == 1 && value["node"].is_string()),
                    "{line}"
                );
            }
        } else {
            assert!(text.contains("h0 send 10.0.0.1:4000 -> 10.0.0.2:4000 4 B 74657874"), "{text}");
            assert!(text.lines().all(|line| line.split(' ').count() >= 3));
        }
    }
}

#[test]
fn swarms_differ_in_kind() {
    let plans: Vec<FaultPlan> =
        (0..50).map(|seed| FaultPlan::swarm(&mut annulus_core::Rng::from_number(seed, 0))).collect();
    let without = |count: fn(&FaultPlan) -> u32| plans.iter().filter(|plan| count(plan) == 0).count();
    for count in [|p: &FaultPlan| p.crashes, |p: &FaultPlan| p.partitions, |p: &FaultPlan| p.sleeps] {
        assert!((10..40).contains(&without(count)));
    }
}

#[derive(Clone, Default)]
struct Shared(Arc<Mutex<Vec<u8>>>);

impl Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
