//! The three states, and what a node has in each of them.

use super::*;

#[test]
fn j_13_a_node_is_in_one_state_at_any_time() {
    let mut rig = started(&config());
    let mut seen = vec![rig.machine.state_name()];
    for _ in 0..40 {
        rig.advance(100 * MILLI);
        seen.push(rig.machine.state_name());
    }
    seen.dedup();
    assert_eq!(seen, [StateName::Orphan, StateName::Leader], "alone: restored once, and never in between");
}

#[test]
fn j_15_id_list_and_data_go_with_a_node_through_its_states() {
    let mut rig = waiter();
    give(&mut rig, 1, 2, 77, &[entry(2)], &counts(&[(12, 4)]));
    assert_eq!((rig.machine.state_name(), rig.machine.token_id()), (StateName::Leader, id(77)));
    rig.advance(50 * MILLI);
    assert_eq!(rig.machine.list().nodes(), [entry(2), entry(1)]);
    assert_eq!(count_of(rig.machine.data(), 12), 4);
}

#[test]
fn j_20_the_next_node_is_found_by_host_id() {
    let list = NodeList::of([entry(1), entry(2), entry(3)]);
    assert_eq!(list.candidate(host(11), 0), Some(entry(2)));
    assert_eq!(list.candidate(host(13), 0), Some(entry(1)), "behind the last comes the first");
    assert_eq!(list.addr(host(13)), Some(entry(3).addr));
}

#[test]
fn j_22_an_orphan_belongs_to_no_ring() {
    let rig = started(&config());
    assert_eq!(rig.machine.state_name(), StateName::Orphan);
    assert!(rig.machine.list().is_empty());
}

#[test]
fn j_27_a_waiter_does_nothing_by_itself() {
    let mut rig = waiter();
    rig.advance(9 * SECOND);
    let done = |part: &str| count_lines(&rig, part);
    assert_eq!((done("Broadcast"), done("Send"), done("Open")), (0, 0, 0), "{:?}", rig.log);
}

#[test]
fn j_36_only_an_orphan_asks_what_the_token_is_doing() {
    let mut orphan = started(&config());
    orphan.advance(100 * MILLI);
    assert!(has(&orphan, "Broadcast 0:0 01"));
    for mut rig in [waiter(), leader()] {
        rig.advance(5 * SECOND);
        assert!(!has(&rig, "Broadcast 0:0 01"), "{:?}", rig.log);
    }
}

/// J-107 … J-110 take ids for uniform: so many are needed until one is at most another.
#[test]
fn j_109_of_two_uniform_ids_one_is_lower_half_of_the_time() {
    let mut rng = crate::rng::Rng::from_number(109, 0);
    let mut draw = || rng.between(1, u64::from(u32::MAX >> 1));
    let lower = (0..20_000).filter(|_| draw() <= draw()).count();
    assert!((9_700..10_300).contains(&lower), "{lower}");
}
