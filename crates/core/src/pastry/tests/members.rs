//! Reports of the service `members`: joins without a seed, failures, suspicions, round-trip times.

use core::time::Duration;

use super::group::{Group, addr};
use super::*;
use crate::{Instant, Rng};

const SECOND: Duration = Duration::from_secs(1);

fn fed() -> Config {
    Config { liveness: Liveness::Members, ..small() }
}

fn id(group: &Group, at: usize) -> Id {
    group.nodes[at].machine.own().id
}

/// Reports to each node in `of` that the others there are alive.
fn introduce_all(group: &mut Group, of: core::ops::Range<usize>) {
    for at in of.clone() {
        for other in of.clone().filter(|&other| other != at) {
            let alive = Command::MemberAlive { id: id(group, other), addr: addr(other) };
            group.command(at, alive);
        }
    }
}

#[test]
fn a_node_that_awaits_members_joins_through_the_one_they_name() {
    let mut group = Group::ring(10, 31, &fed());
    let joiner = group.start(Config { id: Id::new(77), await_members: true, ..fed() });
    group.run(30 * SECOND);
    assert!(!group.nodes[joiner].machine.is_active(), "it founds no ring of its own");
    let alive = Command::MemberAlive { id: id(&group, 3), addr: addr(3) };
    group.command(joiner, alive);
    group.run(5 * SECOND);
    assert!(group.nodes[joiner].machine.is_active());
    group.assert_leaf_sets_are_exact();
}

#[test]
fn nodes_that_all_await_members_become_one_ring() {
    let mut group = Group::new(32);
    let mut rng = Rng::from_number(32, 1);
    for _ in 0..8 {
        let id = Id::new(rng.next_u128());
        group.start(Config { id, await_members: true, ..fed() });
    }
    introduce_all(&mut group, 0..8);
    group.run(120 * SECOND);
    assert!(group.nodes.iter().all(|node| node.machine.is_active()));
    group.assert_leaf_sets_are_exact();
}

#[test]
fn two_rings_become_one_when_members_names_each_to_the_other() {
    let mut group = Group::new(33);
    let mut rng = Rng::from_number(33, 1);
    for at in 0..12 {
        let seeds = if at % 6 == 0 { Vec::new() } else { vec![addr(at / 6 * 6)] };
        group.start(Config { id: Id::new(rng.next_u128()), seeds, ..fed() });
        group.run(2 * SECOND);
    }
    assert!((0..6).all(|at| !group.nodes[at].machine.leaf_set().contains(id(&group, 7))));
    introduce_all(&mut group, 0..12);
    group.run(10 * SECOND);
    group.assert_leaf_sets_are_exact();
}

#[test]
fn a_failed_member_loses_its_entries_and_they_are_filled_anew() {
    let mut group = Group::ring(30, 34, &fed());
    let lost = id(&group, 5);
    group.crash(5, true);
    for at in (0..30).filter(|&at| at != 5) {
        group.command(at, Command::MemberFailed(lost));
    }
    assert!(group.alive().all(|node| node.machine.contact(lost).is_none()), "at once");
    group.run(10 * SECOND);
    group.assert_leaf_sets_are_exact();
}

/// `members` may not know the node, and would not report its death.
#[test]
fn route_probes_a_peer_that_members_has_not_named() {
    let mut group = Group::ring(6, 41, &fed());
    introduce_all(&mut group, 0..5);
    group.run(10 * SECOND);
    let unnamed = id(&group, 5);
    group.crash(5, true);
    group.run(60 * SECOND);
    assert!(group.alive().all(|node| node.machine.contact(unnamed).is_none()));
}

#[test]
fn a_member_that_left_is_reported_as_left() {
    let mut group = Group::ring(5, 35, &fed());
    let left = id(&group, 2);
    group.command(0, Command::MemberLeft(left));
    let events = &group.nodes[0].events;
    assert!(events.iter().any(|event| matches!(event, Event::PeerLeft { contact } if contact.id == left)));
    // It returns while claims of others about it are still ignored.
    group.command(0, Command::MemberAlive { id: left, addr: addr(2) });
    group.run(SECOND);
    assert!(group.nodes[0].machine.leaf_set().contains(left));
}

#[test]
fn messages_avoid_a_suspected_member_until_it_recovers() {
    let mut group = Group::ring(40, 36, &fed());
    let mut rng = Rng::from_number(36, 2);
    let (key, next) = loop {
        let key = Id::new(rng.next_u128());
        if let Step::Forward { to, last: false } = group.nodes[0].machine.decide(key) {
            break (key, to);
        }
    };
    group.command(0, Command::MemberSuspected(next));
    let around = group.nodes[0].machine.decide(key);
    assert!(!matches!(around, Step::Forward { to, .. } if to == next), "{around:?}");
    group.command(0, Command::MemberRecovered(next));
    assert_eq!(group.nodes[0].machine.decide(key), Step::Forward { to: next, last: false });
}

#[test]
fn a_message_to_a_suspected_owner_is_delivered_once_it_answers() {
    let mut group = Group::ring(10, 37, &fed());
    let owner = id(&group, 4);
    group.command(0, Command::MemberSuspected(owner));
    let command = Command::route(AppName::default(), owner, vec![1]);
    let request = group.command(0, command);
    group.run(SECOND);
    assert!(
        matches!(group.reply(0, request), Some(Reply::Outcome(Outcome::Delivered { by, .. })) if by.id == owner)
    );
}

#[test]
fn a_round_trip_that_members_measured_decides_the_cell() {
    let mut group = Group::ring(60, 38, &fed());
    group.run(70 * SECOND);
    let pastry = &group.nodes[0].machine;
    let known = |at: usize| pastry.contact(group.nodes[at].machine.own().id).is_some();
    let stranger = (1..60).find(|&at| !known(at)).expect("a node without an entry");
    let id = id(&group, stranger);
    let cell = pastry.routing_table().position(id).unwrap();
    group.latency(move |a, b| {
        let near = (a == stranger && b == 0) || (a == 0 && b == stranger);
        if near { SECOND / 10_000 } else { SECOND / 200 }
    });
    group.command(0, Command::MemberRtt { id, addr: addr(stranger), rtt: SECOND / 5_000 });
    group.run(SECOND);
    let holder = group.nodes[0].machine.routing_table().cell(cell).map(|cell| cell.id);
    assert_eq!(holder, Some(id), "it is nearer than whoever was there");
    // A node that is further away is not probed.
    let pastry = &group.nodes[0].machine;
    let known = |at: usize| pastry.contact(group.nodes[at].machine.own().id).is_some();
    let other = (1..60).find(|&at| !known(at)).expect("another node without an entry");
    let before = pastry.counted().probes_sent;
    let id = self::id(&group, other);
    group.command(0, Command::MemberRtt { id, addr: addr(other), rtt: SECOND });
    assert_eq!(group.nodes[0].machine.counted().probes_sent, before);
}

#[test]
fn a_member_that_moved_is_found_at_its_new_address() {
    let mut group = Group::ring(10, 39, &fed());
    let moved = id(&group, 4);
    group.crash(4, true);
    let again = group.start(Config { id: moved, await_members: true, ..fed() });
    for at in (0..10).filter(|&at| at != 4) {
        group.command(at, Command::MemberAlive { id: moved, addr: addr(again) });
    }
    group.run(SECOND);
    let contact = group.nodes[0].machine.contact(moved).expect("it has an entry");
    assert_eq!(contact.addr, addr(again));
}

#[test]
fn with_members_it_sends_no_probes_of_its_own() {
    let mut alone = Group::ring(20, 40, &small());
    let mut fed = Group::ring(20, 40, &fed());
    introduce_all(&mut fed, 0..20);
    let sent = |group: &mut Group| {
        group.run(60 * SECOND);
        let count =
            |group: &Group| -> u64 { group.alive().map(|node| node.machine.counted().probes_sent).sum() };
        let before = count(group);
        group.run(2_000 * SECOND);
        count(group) - before
    };
    assert!(sent(&mut alone) > 1_000);
    assert_eq!(sent(&mut fed), 0);
    assert!(fed.time().mono > Instant::ZERO + 2_000 * SECOND);
}

/// Every node has the same list, and gets the reports about the others one by one, at different times.
#[test]
fn nodes_that_start_together_are_soon_one_ring() {
    for seed in 50..62 {
        let mut group = Group::new(seed);
        let mut rng = Rng::from_number(seed, 1);
        for _ in 0..8 {
            group.start(Config { id: Id::new(rng.next_u128()), await_members: true, ..fed() });
        }
        let mut told: Vec<(usize, usize)> = (0..8)
            .flat_map(|at| (0..8).filter(move |&other| other != at).map(move |other| (at, other)))
            .collect();
        rng.shuffle(&mut told);
        for (at, other) in told {
            let alive = Command::MemberAlive { id: id(&group, other), addr: addr(other) };
            group.command(at, alive);
            group.run(SECOND / 20);
        }
        group.run(7 * SECOND);
        let waiting = group.nodes.iter().filter(|node| !node.machine.is_active()).count();
        assert_eq!(waiting, 0, "seed {seed}");
        group.assert_leaf_sets_are_exact();
    }
}
