//! Probes, repairs, departures: P-4, P-7, P-10 … P-12, P-15, P-16, P-19, N-5, N-11 … N-14.

use core::time::Duration;

use super::group::{Group, addr};
use super::*;
use crate::Rng;
use crate::ring::Side;

const SECOND: Duration = Duration::from_secs(1);

/// The nodes in the order of the ring, beginning at `from`.
fn clockwise(group: &Group, from: usize) -> Vec<usize> {
    let own = group.nodes[from].machine.own().id;
    let mut order: Vec<usize> = (0..group.nodes.len()).filter(|&at| group.is_up(at)).collect();
    order.sort_by_key(|&at| own.clockwise_to(group.nodes[at].machine.own().id));
    order
}

fn assert_all_arrive(group: &mut Group, seed: u64, count: usize) {
    let mut rng = Rng::from_number(seed, 77);
    for _ in 0..count {
        let from = loop {
            let from = rng.index(group.nodes.len());
            if group.is_up(from) {
                break from;
            }
        };
        let key = Id::new(rng.next_u128());
        let (app, payload, deadline) = (AppName::default(), vec![1], Some(30 * SECOND));
        let command = Command::Route { app, key, payload, once: false, wants_answer: false, deadline };
        let request = group.command(from, command);
        group.run(SECOND / 4);
        for _ in 0..60 {
            if group.reply(from, request).is_some() {
                break;
            }
            group.run(SECOND);
        }
        let owner = group.owner(key);
        let reply = group.reply(from, request);
        assert!(
            matches!(reply, Some(Reply::Outcome(Outcome::Delivered { by, .. })) if by.id == owner),
            "{reply:?}"
        );
    }
}

#[test]
fn p_4_every_node_with_an_entry_has_been_measured() {
    let group = Group::ring(30, 3, &small());
    for node in group.alive() {
        for peer in node.machine.lower.tables.peers() {
            assert_eq!(peer.rtt.score(), Score(10_000), "twice five milliseconds");
        }
    }
}

#[test]
fn p_5_every_acknowledged_message_is_a_round_trip_sample() {
    let mut group = Group::ring(2, 3, &small());
    group.run(5 * SECOND);
    let other = group.nodes[1].machine.own().id;
    let score = |group: &Group| group.nodes[0].machine.lower.tables.peer(other).unwrap().rtt.score();
    assert_eq!(score(&group), Score(10_000));
    group.latency(|_, _| Duration::from_millis(20));
    let probes = group.nodes[0].machine.counted().probes_sent;
    for _ in 0..8 {
        group.command(0, Command::route(AppName::default(), other, vec![1]));
        group.run(SECOND / 4);
    }
    assert_eq!(group.nodes[0].machine.counted().probes_sent, probes, "no probe was sent for that");
    assert!(score(&group) > Score(35_000), "{:?}", score(&group));
}

#[test]
fn p_7_proximity_decides_the_entries_and_not_the_route() {
    // Two networks with other distances: other tables, the same owners.
    let far = |a: usize, b: usize| Duration::from_micros(1000 + 7919 * ((a * b + a + b) % 13) as u64);
    let mut plain = Group::ring(40, 5, &small());
    let mut rough = Group::new(5);
    rough.latency(far);
    for node in &plain.nodes {
        let id = node.machine.own().id;
        let index = rough.start_joining(id, &small());
        rough.run_until_active(index);
    }
    rough.run(5 * SECOND);
    let tables = |group: &Group| -> Vec<Vec<Id>> {
        group
            .alive()
            .map(|m| m.machine.routing_table().cells().iter().map(|cell| cell.id).collect())
            .collect()
    };
    assert_ne!(tables(&plain), tables(&rough));
    assert_all_arrive(&mut plain, 1, 40);
    assert_all_arrive(&mut rough, 1, 40);
}

#[test]
fn p_12_the_nearer_of_two_nodes_has_the_cell() {
    let mut group = Group::new(1);
    group.latency(|a, b| Duration::from_millis(if a.max(b) == 2 { 1 } else { 20 }));
    // Nodes 1, 2 and 3 all suit the same cell of node 0.
    for (index, id) in [0x1, 0x91, 0x92, 0x93].into_iter().enumerate() {
        let id = Id::new(if index == 0 { id << 124 } else { id << 120 });
        let index = group.start_joining(id, &small());
        group.run_until_active(index);
        group.run(SECOND);
    }
    let table = group.nodes[0].machine.routing_table();
    assert_eq!(table.cell(Position { row: 0, column: 9 }).map(|cell| cell.id), Some(Id::new(0x92 << 120)));
}

#[test]
fn p_12_an_entry_does_not_flap() {
    let mut group = Group::new(1);
    let millis = |at: usize| [0, 20, 10, 9, 8][at];
    group.latency(move |a, b| Duration::from_millis(millis(a.max(b))));
    let holder = |group: &Group| {
        let table = group.nodes[0].machine.routing_table();
        table.cell(Position { row: 0, column: 9 }).map(|cell| cell.id.digit(crate::Base::B4, 1))
    };
    let mut holders = Vec::new();
    for id in [0x10, 0x91, 0x92, 0x93, 0x94] {
        let index = group.start_joining(Id::new(id << 120), &small());
        group.run_until_active(index);
        group.run(5 * SECOND);
        holders.push(holder(&group));
    }
    // A node twice as near is taken at once, one a tenth nearer only when the entry is a minute old.
    assert_eq!(holders, [None, Some(1), Some(2), Some(2), Some(2)]);
    group.run(150 * SECOND);
    assert_eq!(holder(&group), Some(4));
}

#[test]
fn n_11_the_neighbours_of_a_vanished_node_detect_it() {
    let mut group = Group::ring(20, 6, &small());
    let order = clockwise(&group, 0);
    let victim = group.nodes[order[1]].machine.own();
    group.crash(order[1], true);
    group.run(45 * SECOND);
    let noticed = |at: usize| {
        let events = &group.nodes[at].events;
        events.iter().any(|event| matches!(event, Event::PeerFailed { contact } if contact.id == victim.id))
    };
    assert!(noticed(order[0]) && noticed(order[2]));
    group.assert_leaf_sets_are_exact();
}

#[test]
fn p_15_the_furthest_leaf_of_the_side_gets_the_request() {
    let mut group = Group::ring(40, 7, &small());
    let order = clockwise(&group, 0);
    let furthest = group.nodes[0].machine.leaf_set().furthest(Side::Clockwise).unwrap();
    assert_eq!(furthest, group.nodes[order[4]].machine.own().id);
    let before = group.nodes[order[4]].machine.counted().requests_answered;
    let lost = group.nodes[order[2]].machine.own().id;
    group.crash(order[2], true);
    let others = (0..40).filter(|&at| at != 0);
    for at in others {
        // Only node 0 learns of it for now.
        assert!(group.nodes[at].machine.is_active());
    }
    group.command(0, Command::MemberFailed(lost));
    group.run(SECOND / 10);
    assert!(group.nodes[order[4]].machine.counted().requests_answered > before);
    let side: Vec<Id> = [1, 3, 4, 5].map(|at| group.nodes[order[at]].machine.own().id).to_vec();
    assert_eq!(group.nodes[0].machine.leaf_set().side(Side::Clockwise), side);
}

#[test]
fn p_16_a_side_that_lost_all_but_one_is_repaired() {
    for survivor in 1..=4 {
        let mut group = Group::ring(40, 11, &small());
        let order = clockwise(&group, 0);
        for at in (1..=4).filter(|&at| at != survivor) {
            group.crash(order[at], true);
        }
        group.run(150 * SECOND);
        group.assert_leaf_sets_are_exact();
    }
}

#[test]
fn p_16_a_side_that_was_lost_whole_is_repaired_from_the_other_tables() {
    let mut group = Group::ring(40, 12, &small());
    let order = clockwise(&group, 0);
    order[1..=4].iter().for_each(|&at| group.crash(at, true));
    group.run(240 * SECOND);
    group.assert_leaf_sets_are_exact();
}

#[test]
fn n_12_a_named_node_gets_the_entry_only_after_answering() {
    // Two neighbours die together. Each is named by others as a replacement for the other, and gets no entry.
    let mut group = Group::ring(40, 13, &small());
    let order = clockwise(&group, 0);
    let dead: Vec<Id> = [1, 5].map(|at| group.nodes[order[at]].machine.own().id).to_vec();
    group.crash(order[1], true);
    group.crash(order[5], true);
    group.command(0, Command::MemberFailed(dead[0]));
    for _ in 0..100 {
        group.run(SECOND / 20);
        let leaf_set = group.nodes[0].machine.leaf_set();
        assert!(!leaf_set.contains(dead[1]), "node 5 was named by the others, but it is dead");
    }
}

/// A ring in which node 0 lost the node of a cell of row 0 for which there are others.
fn lose_a_cell(seed: u64) -> (Group, Position, Id) {
    let mut group = Group::ring(60, seed, &small());
    let own = group.nodes[0].machine.own().id;
    let ids: Vec<Id> = group.alive().map(|node| node.machine.own().id).collect();
    let pastry = &group.nodes[0].machine;
    let cell = *pastry
        .routing_table()
        .row(0)
        .iter()
        .find(|cell| {
            let fits = ids.iter().filter(|id| id.common_prefix(own, crate::Base::B4) == 0);
            let others = fits.filter(|id| id.digit(crate::Base::B4, 0) == cell.at.column && **id != cell.id);
            let known = |id: &&Id| pastry.lower.tables.peer(**id).is_some();
            others.clone().count() > 1 && others.filter(known).count() == 0
        })
        .expect("such a cell");
    let victim = (0..60).find(|&at| group.nodes[at].machine.own().id == cell.id).unwrap();
    group.crash(victim, true);
    (group, cell.at, cell.id)
}

#[test]
fn p_10_the_other_nodes_of_the_row_get_a_request_for_the_cell() {
    let (mut group, at, lost) = lose_a_cell(21);
    group.command(0, Command::MemberFailed(lost));
    assert_eq!(group.nodes[0].machine.routing_table().cell(at), None);
    group.run(10 * SECOND);
    let found = group.nodes[0].machine.routing_table().cell(at).map(|cell| cell.id);
    assert!(found.is_some_and(|id| id != lost), "{found:?}");
}

#[test]
fn n_13_a_failed_node_of_the_table_is_replaced_by_a_live_one() {
    let (mut group, at, lost) = lose_a_cell(22);
    group.run(20 * 60 * SECOND);
    let cell = group.nodes[0].machine.routing_table().cell(at).copied().expect("it was filled again");
    assert!(cell.id != lost && group.alive().any(|node| node.machine.own().id == cell.id));
}

#[test]
fn p_19_the_whole_neighbourhood_set_gets_a_request_when_one_is_lost() {
    let mut group = Group::ring(30, 9, &small());
    let neighbours: Vec<Id> = group.nodes[0].machine.neighbourhood().members().collect();
    let before: Vec<u64> = group.nodes.iter().map(|m| m.machine.counted().requests_answered).collect();
    let lost = (0..30).find(|&at| group.nodes[at].machine.own().id == neighbours[0]).unwrap();
    group.crash(lost, true);
    group.command(0, Command::MemberFailed(neighbours[0]));
    assert_eq!(group.nodes[0].machine.neighbourhood().members().count(), 7);
    group.run(12 * SECOND);
    for (at, node) in group.nodes.iter().enumerate() {
        let asked = node.machine.counted().requests_answered > before[at];
        let is_neighbour = neighbours[1..].contains(&node.machine.own().id);
        assert!(asked || !is_neighbour, "neighbour {at} got no request");
    }
    assert_eq!(group.nodes[0].machine.neighbourhood().members().count(), 8, "filled again");
}

#[test]
fn n_14_every_known_node_is_probed_periodically() {
    let mut group = Group::ring(20, 9, &small());
    let before = group.nodes[0].machine.counted().probes_answered;
    let known = group.nodes[0].machine.lower.tables.len() as u64;
    group.run(901 * SECOND);
    let answered = group.nodes[0].machine.counted().probes_answered - before;
    assert!(answered >= known, "{answered} probes, {known} nodes");
}

#[test]
fn n_5_with_many_failures_at_once_messages_still_arrive() {
    let mut group = Group::ring(60, 14, &small());
    let mut rng = Rng::from_number(3, 3);
    for _ in 0..12 {
        let at = rng.index(60);
        group.crash(at, true);
    }
    assert_all_arrive(&mut group, 5, 40);
}

#[test]
fn a_node_that_leaves_sends_exit_and_is_removed_at_once() {
    let mut group = Group::ring(20, 6, &small());
    group.call(7, crate::Machine::handle_stop);
    group.run(SECOND / 5);
    assert!(crate::Machine::is_stopped(&group.nodes[7].machine), "it said goodbye and ended its connections");
    group.crash(7, true);
    group.run(3 * SECOND);
    group.assert_leaf_sets_are_exact();
    let left = group.nodes[7].machine.own().id;
    let failed = group.alive().flat_map(|node| &node.events);
    let failed = failed.filter(|event| matches!(event, Event::PeerFailed { contact } if contact.id == left));
    assert_eq!(failed.count(), 0, "no node detected a failure");
}

#[test]
fn two_halves_of_a_healed_partition_become_one_ring() {
    let mut group = Group::ring(20, 15, &small());
    let halves: Vec<usize> = (0..20).collect();
    group.cut(&halves[..10], &halves[10..]);
    group.run(300 * SECOND);
    for node in &group.nodes[..10] {
        assert!(
            node.machine
                .leaf_set()
                .members()
                .all(|id| { group.nodes[..10].iter().any(|other| other.machine.own().id == id) })
        );
    }
    group.heal();
    group.run(600 * SECOND);
    group.assert_leaf_sets_are_exact();
    assert_all_arrive(&mut group, 2, 30);
}

#[test]
fn a_node_that_restarts_at_another_address_is_found_there() {
    let mut group = Group::ring(20, 16, &small());
    let id = group.nodes[5].machine.own().id;
    group.crash(5, true);
    group.run(SECOND);
    let again = group.start(Config { id, seeds: vec![addr(2)], ..small() });
    group.run(60 * SECOND);
    assert!(group.nodes[again].machine.is_active());
    let reply = group.command(2, Command::route(AppName::default(), id, vec![1]));
    group.run(5 * SECOND);
    let at = Some(addr(again));
    assert!(
        matches!(group.reply(2, reply), Some(Reply::Outcome(Outcome::Delivered { by, .. })) if Some(by.addr) == at)
    );
}
