//! Round trips of an acquire and of a transfer, without the time of processors (TU-46).

use super::clauses::MINUTE;
use super::world::{MS, SECOND, World};
use super::*;

/// Three voters and two nodes that only send Asks; node 4 had the name last.
fn world(delay: Option<u64>) -> World {
    let mut world = World::new(3, 2, 1, |_, _| {});
    world.delay = delay;
    for (node, turn) in [(3, 1), (4, 2)] {
        acquire(&mut world, node, turn);
        release(&mut world, node, turn);
    }
    world
}

/// Waits for a turn, and returns how long it took.
fn acquire(world: &mut World, node: usize, turn: u128) -> u64 {
    let request = world.lock(node, "n", turn, MINUTE);
    wait(world, request)
}

fn wait(world: &mut World, request: u64) -> u64 {
    let begin = world.now;
    while !world.replies.contains_key(&request) {
        assert!(world.now < begin + 60 * SECOND, "it is granted within a minute");
        world.step(world.now + SECOND);
    }
    world.granted(request);
    world.now - begin
}

fn release(world: &mut World, node: usize, turn: u128) {
    world.command(node, Command::Release(TurnId(turn)));
    world.run(SECOND);
}

/// How long the next holder waits after a release.
fn transfer(world: &mut World, turn: u128) -> u64 {
    let (holder, next) = if turn.is_multiple_of(2) { (3, 4) } else { (4, 3) };
    let waiting = world.lock(next, "n", turn + 1, MINUTE);
    world.run(SECOND);
    world.command(holder, Command::Release(TurnId(turn)));
    wait(world, waiting)
}

#[test]
fn tu_46_a_free_name_takes_one_round_trip_and_two_if_another_node_had_it() {
    let mut world = world(Some(5 * MS));
    assert_eq!(acquire(&mut world, 3, 10), 20 * MS, "the first answer has the number of node 4");
    release(&mut world, 3, 10);
    assert_eq!(acquire(&mut world, 3, 11), 10 * MS);
}

#[test]
fn tu_46_a_transfer_takes_two_round_trips_and_fewer_than_three_if_delays_differ() {
    let mut equal = world(Some(5 * MS));
    acquire(&mut equal, 3, 10);
    assert_eq!(transfer(&mut equal, 10), 20 * MS);

    // A round trip takes 1 ms to 2 ms.
    let mut drawn = world(None);
    acquire(&mut drawn, 3, 10);
    let mut taken: Vec<u64> = (10..111).map(|turn| transfer(&mut drawn, turn)).collect();
    taken.sort_unstable();
    assert!(taken[50] <= 3 * 3 * MS / 2, "the median of {taken:?}");
}
