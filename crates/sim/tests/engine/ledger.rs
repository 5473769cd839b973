//! Excuses, promises and situations of a checker.

use core::time::Duration;

use annulus_sim::{Books, Cause, Config, DiskFate, Excuse, Fault, Ledger, Promise};

use super::puppet::{World, host, ms};

const STOOD_STILL: Excuse = Excuse {
    name: "STOOD_STILL",
    because: "a paused host cannot act",
    needs: &[Cause::Stalled],
    reach: Duration::from_millis(100),
    most_per_run: 2,
    each_at_most: Duration::from_secs(1),
};

const SOON: Promise =
    Promise { name: "soon", prompt: Duration::from_secs(1), at_last: Duration::from_secs(5) };

/// A world in which host 1 was paused from 1 s to 2 s.
fn stalled() -> World {
    let mut world = World::new(3, Config::default());
    world.sim.at(ms(1_000), Fault::Suspend(host(1)));
    world.sim.at(ms(2_000), Fault::Resume(host(1)));
    world.run(2_000);
    world
}

#[test]
fn fa_25_an_excuse_needs_a_fault_of_that_host_at_that_time() {
    let mut world = stalled();
    let mut ledger = Ledger::default();
    ledger.excuse(&world.sim, &STOOD_STILL, host(1), ms(10)).unwrap();
    let other = ledger.excuse(&world.sim, &STOOD_STILL, host(2), ms(10)).unwrap_err();
    assert!(other.text.contains("none of [Stalled]"), "{other}");
    world.run(200);
    assert!(ledger.excuse(&world.sim, &STOOD_STILL, host(1), ms(10)).is_err(), "that was long ago");
    ledger.excuse(&world.sim, &STOOD_STILL, host(1), ms(210)).unwrap();
}

#[test]
fn fa_25_an_excuse_has_a_length_and_a_number() {
    let world = stalled();
    let mut ledger = Ledger::default();
    assert!(ledger.excuse(&world.sim, &STOOD_STILL, host(1), ms(1_001)).is_err(), "too long");
    for _ in 0..2 {
        ledger.excuse(&world.sim, &STOOD_STILL, host(1), ms(500)).unwrap();
    }
    let third = ledger.excuse(&world.sim, &STOOD_STILL, host(1), ms(1)).unwrap_err();
    assert!(third.text.contains("3 times"), "{third}");
    let used = ledger.entries().excuses["STOOD_STILL"];
    assert_eq!((used.runs, used.times, used.longest), (1, 3, 0.5));
}

#[test]
fn fa_26_a_promise_has_two_bounds() {
    let mut ledger = Ledger::default();
    for took in [100, 200, 3_000] {
        ledger.took(&SOON, ms(took)).unwrap();
    }
    let kept = ledger.entries().promises["soon"];
    assert_eq!((kept.cases, kept.prompt, kept.median, kept.longest), (3, 2, 0.2, 3.0));
    assert!(ledger.took(&SOON, ms(5_001)).unwrap_err().text.contains("soon"));
}

#[test]
fn fa_29_situations_that_were_not_met_are_reported() {
    let mut ledger = Ledger::new(&["two_askers", "owner_died"]);
    ledger.met("two_askers");
    let exercised = ledger.entries().exercised;
    assert_eq!((exercised["two_askers"], exercised["owner_died"]), (1.0, 0.0));
    assert!(Books::default().complaints("ping", "").is_empty());
}

#[test]
fn fa_25_the_simulator_knows_when_the_last_fault_ended() {
    let mut world = stalled();
    let causes: Vec<Cause> =
        world.sim.causes(host(1), Duration::ZERO, ms(9_999)).map(|one| one.cause).collect();
    assert_eq!(causes, [Cause::Stalled]);
    assert_eq!(world.sim.last_end(host(1), &[Cause::Stalled]), Some(ms(2_000)));
    assert_eq!(world.sim.quiet_since(), Some(ms(2_000)));
    world.fault(Fault::Crash { host: host(2), power: true, disk: DiskFate::Lost });
    world.run(10);
    assert_eq!((world.sim.quiet_since(), world.sim.last_end(host(2), &[Cause::PowerLost])), (None, None));
    let lost = world.sim.causes(host(2), ms(2_000), ms(9_999)).any(|one| one.cause == Cause::DiskLost);
    assert!(lost);
    world.fault(Fault::Calm);
    world.run(10);
    assert!(world.sim.quiet_since().is_some());
}
