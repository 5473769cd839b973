//! The three states, and the data of a node in each of them.

use super::*;

#[test]
fn j_13_a_node_is_in_one_state_at_any_time() {
    let (orphan, leading, (passing, _)) = (started(&config()), leader(), passing());
    for (mut rig, name) in [
        (orphan, StateName::Orphan),
        (waiter(), StateName::Waiter),
        (leading, StateName::Leader),
        (passing, StateName::Leader),
    ] {
        assert_eq!(rig.machine.state_name(), name);
        // The sign of the answer, the status and the timers agree on the state.
        rig.take_log();
        hear(&mut rig, 3, &tr1(3, TokenId::MAX.magnitude())).unwrap();
        let sent =
            rig.log.iter().find_map(|line| line.strip_prefix("Send 0:0 to 127.0.0.3:30041 11")).unwrap();
        let held = u32::from_str_radix(sent, 16).unwrap() < 1 << 31;
        assert_eq!(held, name == StateName::Leader, "{name:?}: {:?}", rig.log);
        assert_eq!(rig.machine.status(crate::Instant::ZERO).state, name);
        let (_, timer) = crate::Machine::poll_timeout(&rig.machine).unwrap();
        let expected: &[&str] = match name {
            StateName::Orphan => &["token.restore"],
            StateName::Waiter => &["token.renew"],
            StateName::Leader => &["token.lead", "token.pause_check"],
        };
        assert!(expected.contains(&timer), "{name:?}: {timer}");
    }
}

#[test]
fn j_15_a_node_keeps_id_list_and_data_through_its_states() {
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
fn j_36_only_an_orphan_sends_tr1() {
    let mut orphan = started(&config());
    orphan.advance(100 * MILLI);
    assert!(has(&orphan, "Broadcast 0:0 01"));
    for mut rig in [waiter(), leader()] {
        rig.advance(5 * SECOND);
        assert!(!has(&rig, "Broadcast 0:0 01"), "{:?}", rig.log);
    }
}

/// J-107 … J-110 assume uniform ids: this many draws are needed until one is at most another.
#[test]
fn j_109_one_of_two_uniform_ids_is_lower_half_of_the_time() {
    let mut rng = crate::rng::Rng::from_number(109, 0);
    let ids: Vec<TokenId> = (0..20_000).map(|_| TokenId::draw(&mut rng)).collect();
    let lower = ids.windows(2).filter(|pair| pair[0] <= pair[1]).count();
    assert!((9_700..10_300).contains(&lower), "{lower}");
    let quarter = ids.iter().filter(|id| id.magnitude() < u32::MAX >> 3).count();
    assert!((4_800..5_200).contains(&quarter), "uniform over 31 bits: {quarter}");
}
