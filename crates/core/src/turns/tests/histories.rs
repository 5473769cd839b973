//! Histories that only a broken machine gets wrong, step by step.

use super::clauses::{MINUTE, ask, group};
use super::contract::bytes;
use super::world::{MS, SECOND, World};
use super::*;

/// A's renewal is delayed, and a voter that granted B restarts before it arrives. Returns the nodes with a valid turn.
fn renewal_at_a_resting_voter(fault: Option<Fault>) -> Vec<usize> {
    let mut world = World::cold(3, 2, 5, |_, config| config.fault = fault);
    world.set_rate(0, 1.1);
    [3, 4].into_iter().for_each(|asker| world.set_rate(asker, 0.9));
    (0..5).for_each(|node| world.start(node));
    world.run(12 * SECOND);
    // The third voter does not learn of A's turn.
    world.cut.extend([(3, 2), (2, 3)]);
    world.lock(3, "n", 1, MINUTE);
    world.run(SECOND);
    // B learns the number of A's turn.
    world.lock(4, "n", 9, Duration::ZERO);
    world.run(2 * SECOND);
    let renewals = |world: &World| world.machine(0).counted().renewals_received;
    let before = renewals(&world);
    while renewals(&world) == before {
        world.run(MS);
    }
    world.run(5 * MS);
    // From here on the first voter receives nothing from A, so its lease ends 9.09 s later.
    let begin = world.now;
    world.cut.insert((3, 0));
    world.run(7_600 * MS);
    world.cut.insert((4, 1));
    world.delays.insert((4, 0), vec![1_550 * MS; 8]);
    world.lock(4, "n", 2, MINUTE);
    world.run(100 * MS);
    world.crash(2);
    world.start(2);
    world.run(200 * MS);
    world.cut.remove(&(3, 2));
    world.cut.remove(&(2, 3));
    while world.now < begin + 9_250 * MS {
        world.run(10 * MS);
    }
    world.holders("n").into_iter().map(|(node, _)| node).collect()
}

#[test]
fn tuf_5_a_delayed_renewal_at_a_voter_that_rests_extends_nothing() {
    assert_eq!(renewal_at_a_resting_voter(None), [4]);
    assert_eq!(renewal_at_a_resting_voter(Some(Fault::GrantsWhileResting)), [3, 4], "the broken machine");
}

/// A voter grants a high number and loses its disk; another grants the same number while the first one recovers. Returns
/// that number. It also returns the fence of a turn from the recovered voter and a voter without that number.
fn a_disk_lost_between_two_grants(fault: Option<Fault>) -> (u64, u64) {
    let mut world = World::new(3, 1, 6, |_, config| config.fault = fault);
    let high = 1_800_000_000 * SECOND;
    let first = ask(&world, high, 5, false);
    let send = |world: &mut World, voter: usize| {
        let message = Message { group: group(world), epoch: 1, nonce: 9, body: Body::Ask(first) };
        world.probe(voter, &bytes(&message));
        world.run(10 * MS);
        let sent = world.probe(voter, &bytes(&message));
        assert!(sent.iter().any(|bytes| matches!(
            decode(bytes).unwrap().body,
            Body::Answer(Answer { verdict: Verdict::Granted, .. })
        )));
    };
    send(&mut world, 2);
    world.crash(2);
    world.lose_disk(2);
    world.start(2);
    world.run(SECOND);
    send(&mut world, 0);
    world.run(12 * SECOND);
    assert_eq!(world.standing(2), Standing::Voting);
    world.crash(0);
    // A node that does not know the high number.
    world.crash(3);
    world.start(3);
    world.run(3 * SECOND);
    let request = world.lock(3, "n", 1, MINUTE);
    world.run(5 * SECOND);
    (high, world.granted(request).fence)
}

#[test]
fn tuf_7_a_voter_reads_the_bounds_after_its_rest() {
    let (high, fence) = a_disk_lost_between_two_grants(None);
    assert!(fence > high);
    let (high, fence) = a_disk_lost_between_two_grants(Some(Fault::ReadsBeforeRest));
    assert!(fence < high, "the broken machine");
}

#[test]
fn tuf_4_a_turn_of_an_hour_survives_voters_that_crash_slower_than_two_leases() {
    let mut world = World::new(3, 1, 7, |_, _| ());
    let request = world.lock(3, "n", 1, MINUTE);
    world.run(SECOND);
    let fence = world.granted(request).fence;
    for round in 0..150 {
        world.crash(round % 3);
        world.run(SECOND);
        world.start(round % 3);
        world.run(22 * SECOND);
        assert_eq!(world.holders("n").len(), 1, "round {round}");
    }
    assert_eq!(world.holders("n")[0], (3, fence), "the same turn, for the hour of its limit");
}
