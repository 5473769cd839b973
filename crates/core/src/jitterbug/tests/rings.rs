//! Small rings on a perfect network: the clauses working together.

use super::world::World;
use super::*;

fn ring(count: u8) -> World {
    let mut world = World::of(count, &config());
    let whole = usize::from(count);
    world.until(20 * SECOND, |world| world.machines().all(|node| node.list().len() == whole));
    world
}

fn sum(world: &World, last: u8) -> u64 {
    Document::from_data(world.node(last).data()).unwrap().sum()
}

#[test]
fn j_2_two_live_nodes_keep_the_token_going() {
    let mut world = ring(3);
    world.kill(3);
    world.advance(15 * SECOND);
    let before = sum(&world, 1);
    world.advance(10 * SECOND);
    assert!(sum(&world, 1) > before + 50, "{}", world.picture());
}

#[test]
fn j_3_a_dead_leader_is_replaced() {
    let mut world = ring(4);
    world.until(SECOND, |world| world.leaders() == [2]);
    world.kill(2);
    let took = world.until(18 * SECOND, |world| world.leaders().len() == 1);
    assert!(took >= 15 * SECOND - SECOND, "{took:?}");
}

#[test]
fn j_4_all_nodes_come_to_the_same_list() {
    let world = ring(6);
    let lists: Vec<_> = world.machines().map(|node| node.list().clone()).collect();
    assert!(lists.iter().all(|list| *list == lists[0]));
}

#[test]
fn j_7_a_dead_node_slows_the_ring_less_and_less_and_j_76_returns() {
    let mut world = ring(3);
    world.until(SECOND, |world| world.leaders() == [1]);
    world.kill(3);
    world.advance(20 * SECOND);
    let failed = |world: &World| -> usize {
        [1, 2].map(|last| world.told(last, |event| matches!(event, Event::PassFailed { .. }))).iter().sum()
    };
    let early = failed(&world);
    world.advance(20 * SECOND);
    assert!(failed(&world) - early < early, "{} and then {}", early, failed(&world) - early);
    world.start(3);
    world.until(5 * SECOND, |world| world.node(3).state_name() == StateName::Leader);
}

#[test]
fn j_76_a_node_that_returns_is_in_the_round_again() {
    let mut world = ring(3);
    world.kill(3);
    world.advance(30 * SECOND);
    let thresholds = |world: &World| [1, 2].map(|last| world.node(last).penalties().of(host(13)).threshold);
    assert!(thresholds(&world).into_iter().any(|threshold| threshold > 2));
    world.start(3);
    world.advance(10 * SECOND);
    assert_eq!(thresholds(&world), [0, 0], "JA-44: its message arrived");
    assert!(count_of(world.node(1).data(), 13) > 10);
}

#[test]
fn j_9_a_split_and_its_merge_are_edges_of_the_graph() {
    let mut world = ring(4);
    world.cut(&[1, 2], &[3, 4]);
    world.advance(30 * SECOND);
    assert_eq!(world.leaders().len(), 2, "{}", world.picture());
    let passed_on = [sum(&world, 1), sum(&world, 3)];
    let ids = [1, 3].map(|last| world.node(last).token_id().magnitude());
    assert_ne!(ids[0], ids[1]);
    world.heal();
    world.until(400 * SECOND, |world| {
        world.machines().map(Jitterbug::token_id).collect::<std::collections::BTreeSet<_>>().len() == 1
            && world.leaders().len() == 1
    });
    world.advance(5 * SECOND);
    let document = Document::from_data(world.node(1).data()).unwrap();
    // The last merge joins the tokens of both halves, and its result is the token that is there.
    let merge = document.edges.iter().rfind(|edge| edge.kind == EdgeKind::Merge).expect("the halves merged");
    assert_eq!(merge.to, world.node(1).token_id().magnitude(), "{:?}", document.edges);
    assert!(
        ids.contains(&merge.from) && ids.contains(&merge.to) && merge.from != merge.to,
        "{ids:?} {merge:?}"
    );
    let made = document.edges.iter().filter(|edge| edge.kind == EdgeKind::Restore && ids.contains(&edge.to));
    assert!(made.count() > 0, "at least one half restored the token: {:?}", document.edges);
    assert!(document.sum() > passed_on[0].max(passed_on[1]), "both lines are in it");
    let (text, dot) = (to_text(&document.edges), to_dot(&document.edges));
    assert!(text.contains("restored as") && text.contains("merged into"), "{text}");
    assert!(dot.starts_with("digraph token {") && dot.ends_with("}\n"), "{dot}");
    world.command(1, Command::Log);
}

#[test]
fn j_108_the_orphan_with_the_greatest_id_leads() {
    let mut world = World::of(8, &config());
    let best = world.nodes().min_by_key(|(_, node)| node.token_id()).map(|(last, _)| last).unwrap();
    world.until(1300 * MILLI, |world| world.leaders() == [best]);
    let restores: u64 = world.machines().map(|node| node.counted().restores).sum();
    assert_eq!(restores, 8, "JA-24b: one launch each");
}

#[test]
fn jf_7_two_orphans_with_equal_ids_make_one_token() {
    let mut world = ring(3);
    world.until(SECOND, |world| world.leaders() == [3]);
    world.kill(3);
    world.until(20 * SECOND, |world| world.leaders().len() == 1);
    world.advance(5 * SECOND);
    assert_eq!(world.leaders().len(), 1);
}

#[test]
fn jf_18_a_newcomer_joins_a_lone_leader_whatever_the_ids() {
    for seed in 1..20 {
        let mut world = World::new();
        world.add(seed, &config());
        world.advance(2 * SECOND);
        world.add(100, &config());
        let took = world.until(2 * SECOND, |world| count_of(world.node(seed).data(), 110) > 0);
        assert!(took <= SECOND, "{took:?}");
    }
}

#[test]
fn jf_23_a_ring_works_with_a_drop_in_every_loop() {
    let mut world = World::of(3, &Config { loose_prob_base: 1.000_001, ..config() });
    world.advance(60 * SECOND);
    let drops: u64 = world.machines().map(|node| node.counted().random_drops).sum();
    assert!(drops > 30, "{drops}: no livelock");
    let mut often = World::of(3, &Config { loose_prob_base: 1.5, ..config() });
    often.advance(300 * SECOND);
    let counted: Vec<u64> = often.nodes().map(|(last, _)| sum(&often, last)).collect();
    assert!(counted.iter().all(|sum| *sum > 0), "data still goes forward: {counted:?}");
}

#[test]
fn jf_10_two_leaders_that_pass_to_each_other_become_one() {
    // Both halves know each other and have a token: partition, restore, heal just when both begin to pass.
    let mut world = ring(2);
    world.cut(&[1], &[2]);
    world.until(30 * SECOND, |world| world.leaders().len() == 2);
    world.advance(2 * SECOND);
    world.heal();
    world.until(600 * SECOND, |world| {
        world.leaders().len() <= 1 && world.node(1).token_id() == world.node(2).token_id()
    });
    world.advance(2 * SECOND);
    assert!(world.leaders().len() <= 1, "{}", world.picture());
}

#[test]
fn a_fence_grows_even_if_its_holder_died() {
    let mut world = ring(3);
    let mut highest = 0;
    for round in 0..3 {
        let holder = {
            world.until(SECOND, |world| !world.leaders().is_empty());
            world.leaders()[0]
        };
        highest = highest.max(world.node(holder).fence().unwrap());
        world.kill(holder);
        world.take_events();
        world.until(21 * SECOND, |world| !world.leaders().is_empty());
        let mut events = world.take_events();
        for _ in 0..100 {
            // No two nodes take the token within a millisecond, so the events are in order.
            world.advance(MILLI);
            events.extend(world.take_events());
        }
        let fences = events.into_iter().filter_map(|event| match event {
            Event::TokenTaken { fence, .. } => fence,
            _ => None,
        });
        let taken: Vec<u64> = fences.collect();
        assert!(taken[0] > highest, "round {round}: {taken:?} after {highest}");
        assert!(taken.windows(2).all(|pair| pair[0] < pair[1]));
        world.start(holder);
        world.advance(3 * SECOND);
        highest = world.machines().filter_map(Jitterbug::fence).max().unwrap();
    }
}

#[test]
fn a_user_value_reaches_every_node() {
    let mut world = ring(3);
    let set = Set { key: "door".into(), value: "open".into() };
    let change = Command::Change { change: set, wait: 30 * SECOND };
    world.command(2, change);
    world.advance(SECOND);
    for node in world.machines() {
        let value = &Document::from_data(node.data()).unwrap().values["door"];
        assert_eq!((value.host, value.value.text()), (12, "\"open\""));
    }
}

#[test]
fn ja_29_two_tokens_in_one_ring_merge_without_a_random_drop() {
    for size in [3, 4, 7] {
        let mut world = ring(size);
        let (one, other): (Vec<u8>, Vec<u8>) = (1..=size).partition(|last| last % 2 == 0);
        world.cut(&one, &other);
        world.until(40 * SECOND, |world| world.leaders().len() == 2);
        world.advance(3 * SECOND);
        world.heal();
        let loop_time = 60 * MILLI * u32::from(size);
        let took = world.until(60 * SECOND, |world| {
            let ids: std::collections::BTreeSet<_> = world.machines().map(Jitterbug::token_id).collect();
            ids.len() == 1 && world.leaders().len() <= 1
        });
        assert!(took < 12 * SECOND + 8 * loop_time, "{size} nodes: {took:?}");
    }
}
