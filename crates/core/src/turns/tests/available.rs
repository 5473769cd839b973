//! A majority is enough: turns with a voter that is gone, and disks that recover (TU-3, TU-17, TU-19).

use super::super::voter::{Decision, Voter};
use super::clauses::{MINUTE, ask, group};
use super::contract::bytes;
use super::world::{MS, SECOND, World, addr};
use super::*;

fn plain(_: usize, _: &mut Config) {}

/// Three voters, the last of them gone, and two nodes that only send Asks.
fn two_of_three() -> World {
    let mut world = World::new(3, 2, 1, plain);
    world.crash(2);
    world
}

/// Each of two askers has one of two votes, and a third voter is silent.
#[test]
fn tu_17_an_attempt_that_a_voter_refused_does_not_wait_for_a_silent_one() {
    let mut world = two_of_three();
    world.delays.insert((3, 1), vec![20 * MS]);
    world.delays.insert((4, 0), vec![20 * MS]);
    world.lock(3, "n", 1, MINUTE);
    world.lock(4, "n", 2, MINUTE);
    world.run(30 * MS);
    assert!(world.holders("n").is_empty(), "both are refused by one voter");
    world.run(SECOND);
    assert_eq!(world.holders("n").len(), 1, "one of them gave its vote back");
}

/// Each of two askers has one of two votes. Their numbers are equal, so the lower id comes first.
#[test]
fn tu_17_of_two_attempts_with_a_vote_each_the_first_keeps_it_and_wins() {
    for seed in 1..=12 {
        let mut world = World::new(2, 2, seed, plain);
        world.delays.insert((2, 1), vec![20 * MS]);
        world.delays.insert((3, 0), vec![20 * MS]);
        world.lock(3, "n", 2, MINUTE);
        world.lock(2, "n", 1, MINUTE);
        world.run(15 * MS);
        assert!(world.holders("n").is_empty(), "each has one vote");
        world.run(SECOND);
        let holders: Vec<usize> = world.holders("n").iter().map(|(node, _)| *node).collect();
        assert_eq!(holders, [2], "seed {seed}: the other gave its vote back");
    }
}

#[test]
fn tu_17_a_voter_calls_the_node_that_waits_longest_by_its_last_ask() {
    let (now, lease) = (Instant::from_micros(10 * SECOND), Duration::from_secs(10));
    let mut voter = Voter::new(4);
    let world = two_of_three();
    let waits = |session, waited_ms| Ask { queue: true, waited_ms, ..ask(&world, 5, session, false) };
    let held = ask(&world, 5, 9, false);
    assert!(matches!(voter.ask(now, addr(2), &held, lease, false), Decision::Answer(Verdict::Granted)));
    for (from, ask) in [(3, waits(1, 900)), (4, waits(2, 100)), (3, waits(3, 0))] {
        assert!(matches!(
            voter.ask(now, addr(from), &ask, lease, false),
            Decision::Answer(Verdict::Held { .. })
        ));
    }
    let ended = Ended { key: held.key, number: 5, session: 9 };
    let call = voter.release(now, addr(2), &ended, lease).expect("two nodes wait");
    assert_eq!(call.to, addr(4), "the other has a new request");
}

#[test]
fn tu_17_an_asker_keeps_its_place_in_the_queue_until_it_renews_or_releases() {
    let (now, lease) = (Instant::from_micros(SECOND), Duration::from_secs(10));
    let mut voter = Voter::new(4);
    let world = two_of_three();
    let first = Ask { queue: true, waited_ms: 900, ..ask(&world, 5, 1, false) };
    let second = Ask { queue: true, waited_ms: 100, ..ask(&world, 6, 2, false) };
    let mut ask = |from: usize, ask: &Ask| voter.ask(now, addr(from), ask, lease, false);
    assert!(matches!(ask(3, &first), Decision::Answer(Verdict::Granted)));
    assert!(matches!(ask(4, &second), Decision::Answer(Verdict::Held { .. })));
    let mut released = voter.clone();
    let ended = Ended { key: first.key, number: 5, session: 1 };
    let call = released.release(now, addr(3), &ended, lease).expect("a node waits");
    assert_eq!(call.to, addr(4), "the other gave its vote back for an attempt before its own");
    let after = now + Duration::from_millis(u64::from(first.length_ms));
    let calls: Vec<SocketAddr> = voter.poll(after).iter().map(|call| call.to).collect();
    assert_eq!(calls, [addr(3)], "its Release was lost, and it has waited longest");
}

#[test]
fn tu_17_an_asker_under_way_asks_a_voter_again_that_calls_it() {
    let mut world = two_of_three();
    let number = 1_700_000_000 * SECOND + 2_000 * SECOND;
    let foreign = Ask { length_ms: 2000, ..ask(&world, number, 7, false) };
    let message = |world: &World, body| bytes(&Message { group: group(world), epoch: 1, nonce: 99, body });
    let held = message(&world, Body::Ask(foreign));
    world.probe(0, &held);
    // The voter writes its bound first.
    world.run(10 * MS);
    let request = world.lock(3, "n", 1, MINUTE);
    world.run(20 * MS);
    assert!(world.holders("n").is_empty());
    let ended = Ended { key: foreign.key, number, session: 7 };
    let release = message(&world, Body::Release(ended));
    world.probe(0, &release);
    world.run(100 * MS);
    world.granted(request);
}

#[test]
fn tu_19_a_voter_whose_disk_refuses_to_read_votes_when_it_recovers() {
    let mut world = World::new(3, 0, 1, plain);
    world.crash(0);
    world.unreadable.insert(0);
    world.start(0);
    world.run(5 * SECOND);
    assert_eq!(world.standing(0), Standing::NoRecord, "it cannot know whether it has a record");
    world.unreadable.clear();
    world.run(SECOND);
    assert_eq!(world.standing(0), Standing::Resting);
    world.run(10 * SECOND);
    assert_eq!(world.standing(0), Standing::Voting);
}

#[test]
fn tu_19_a_snapshot_that_the_disk_keeps_is_erased_later() {
    let mut world = World::new(3, 0, 1, plain);
    world.stop(0);
    world.unwritable.insert(0);
    world.start(0);
    world.run(5 * SECOND);
    assert_eq!(world.standing(0), Standing::NoRecord, "it answers nothing before");
    world.unwritable.clear();
    world.run(SECOND);
    assert_eq!(world.standing(0), Standing::Voting, "it stopped in good order, in the same boot");
}
