//! Founding and refounding beside lost disks, restarts and offers that come late (TU-8, TU-28).

use super::clauses::{MINUTE, group};
use super::contract::bytes;
use super::world::{SECOND, World};
use super::*;
use crate::wire::Reader;

fn lease(seconds: u64) -> impl Fn(usize, &mut Config) {
    move |_, config| config.lease = Duration::from_secs(seconds)
}

fn lose(world: &mut World, node: usize) {
    world.crash(node);
    world.lose_disk(node);
    world.start(node);
}

/// A majority of the disks is lost, so the two voters cannot recover; an operator founds a new group.
#[test]
fn tu_28_refound_takes_voters_that_cannot_recover_and_they_rest() {
    let mut world = World::new(3, 2, 1, lease(10));
    let old = group(&world);
    lose(&mut world, 1);
    lose(&mut world, 2);
    world.run(30 * SECOND);
    assert_eq!((world.standing(1), world.standing(2)), (Standing::Recovering, Standing::Recovering));
    world.command(0, Command::Refound);
    world.run(3 * SECOND);
    assert_ne!(group(&world), old);
    let all = |world: &World| [0, 1, 2].map(|node| world.standing(node));
    assert_eq!(all(&world), [Standing::Resting; 3]);
    world.run(20 * SECOND);
    assert_eq!(all(&world), [Standing::Voting; 3]);
}

/// A voter with an empty disk has forgotten its leases, whatever it has heard of its group so far.
#[test]
fn tu_28_a_voter_that_has_just_lost_its_disk_rests_in_a_new_group() {
    let mut world = World::new(3, 2, 1, lease(10));
    world.command(0, Command::Refound);
    lose(&mut world, 1);
    lose(&mut world, 2);
    world.run(4 * SECOND);
    assert_eq!([0, 1, 2].map(|node| world.standing(node)), [Standing::Resting; 3]);
}

/// The old group had leases of 30 s, the new one has some of 2 s.
#[test]
fn tu_28_a_voter_rests_for_the_leases_of_the_group_that_it_leaves() {
    let mut world = World::new(3, 2, 1, lease(30));
    let held = world.lock(3, "n", 1, MINUTE);
    world.run(SECOND);
    world.granted(held);
    for node in 0..3 {
        world.crash(node);
        world.change(node, lease(2));
        world.start(node);
    }
    world.run(SECOND);
    world.command(0, Command::Refound);
    world.run(20 * SECOND);
    assert_eq!([0, 1, 2].map(|node| world.standing(node)), [Standing::Resting; 3]);
    world.run(15 * SECOND);
    assert_eq!([0, 1, 2].map(|node| world.standing(node)), [Standing::Voting; 3]);
}

/// The voters have written the new record, crash before the group is founded, and have forgotten the leases of the old one.
#[test]
fn tu_28_a_voter_that_restarts_while_a_group_is_refounded_rests() {
    let mut world = World::new(3, 2, 1, lease(10));
    let old = group(&world);
    world.command(0, Command::Refound);
    // The acceptances are lost until the voters have restarted.
    world.cut.extend([(1, 0), (2, 0)]);
    world.run(3 * SECOND);
    for node in [1, 2] {
        assert_eq!(world.standing(node), Standing::Founding);
        world.crash(node);
        world.start(node);
    }
    world.cut.clear();
    world.run(3 * SECOND);
    assert_ne!(group(&world), old);
    assert_eq!([0, 1, 2].map(|node| world.standing(node)), [Standing::Resting; 3]);
}

/// The offer of the founding was delayed by the network until the voter had lost its disk, with a lease that it granted.
#[test]
fn tu_8_a_late_offer_is_no_founding_to_a_voter_that_lost_its_disk() {
    let mut world = World::new(3, 2, 1, lease(10));
    world.cut.extend([(3, 1), (1, 3)]);
    let first = world.lock(3, "n", 1, MINUTE);
    world.run(SECOND);
    world.granted(first);
    let bytes_of_record = world.disk(0)[RECORD_KEY].clone();
    let founded = Record::decode(&mut Reader::new(&bytes_of_record)).unwrap();
    let (group, record) = (founded.group, Box::new(Record { founded: false, ..founded }));
    let body = Body::Offer { record, replaces: None };
    // The offer is here before any state of the others.
    world.cut.extend([(0, 2), (1, 2)]);
    lose(&mut world, 2);
    world.run(SECOND / 10);
    world.deliver(0, 2, bytes(&Message { group, epoch: 1, nonce: 7, body }));
    world.run(SECOND / 10);
    world.cut.remove(&(0, 2));
    world.cut.remove(&(1, 2));
    world.cut.extend([(4, 0), (0, 4)]);
    world.lock(4, "n", 2, MINUTE);
    world.run(3 * SECOND);
    assert_eq!(world.holders("n").len(), 1, "{:?}", world.holders("n"));
    assert_eq!(world.standing(2), Standing::Recovering);
    world.run(20 * SECOND);
    assert_eq!(world.standing(2), Standing::Voting);
}
