//! Queries for a name: which answers count (TU-39).

use super::world::{SECOND, World, addr};
use super::*;

/// This many voters, and two nodes that only send Asks.
fn voting(voters: usize) -> World {
    World::new(voters, 2, 1, |_, _| {})
}

/// The voters that answered a query of a node.
fn answered(world: &mut World, node: usize) -> Vec<std::net::SocketAddr> {
    world.told.clear();
    world.command(node, Command::Query("n".to_owned()));
    world.run(SECOND);
    let from = world.told.iter().filter_map(|told| match &told.event {
        Event::LeaseSeen { from, .. } => Some(*from),
        _ => None,
    });
    from.collect()
}

#[test]
fn tu_39_a_voter_that_queries_a_name_counts_its_own_answer() {
    let mut world = voting(1);
    assert_eq!(answered(&mut world, 0), [addr(0)], "the only voter");
    assert_eq!(answered(&mut world, 2), [addr(0)], "another node asks it");
    let mut world = voting(3);
    world.crash(2);
    assert_eq!(answered(&mut world, 1).len(), 2, "the majority includes the voter that asks");
}

#[test]
fn tu_39_a_resting_voter_does_not_report_a_name_as_free() {
    let mut world = voting(1);
    world.crash(0);
    world.start(0);
    world.run(SECOND);
    assert_eq!(world.standing(0), Standing::Resting);
    assert_eq!(answered(&mut world, 0), []);
    assert_eq!(answered(&mut world, 2), []);
    world.run(10 * SECOND);
    assert_eq!(answered(&mut world, 0), [addr(0)]);
}

#[test]
fn tu_39_a_request_behind_a_turn_of_the_same_node_names_that_node() {
    let mut world = voting(3);
    let minute = Duration::from_secs(60);
    let first = world.lock(3, "n", 1, minute);
    world.run(SECOND);
    let fence = world.granted(first).fence;
    let second = world.lock(3, "n", 2, minute / 30);
    world.run(SECOND);
    let turns = world.machine(3).status(world.local(3)).turns;
    let waiting = turns.iter().find(|turn| turn.turn == TurnId(2)).expect("it waits");
    assert_eq!(waiting.waits_for.map(|blocker| (blocker.by, blocker.fence)), Some((Id::new(4), fence)));
    world.run(2 * SECOND);
    let Some(Reply::NotFree(Some(blocker))) = world.replies.get(&second) else {
        panic!("{:?}", world.replies.get(&second))
    };
    assert_eq!((blocker.by, blocker.fence), (Id::new(4), fence));
}
