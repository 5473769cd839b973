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
