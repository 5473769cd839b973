//! The leader's own work: random drop, next data, list, rounds, stop.

use super::*;
use crate::machine::Machine;
use crate::store::{StoreFault, StoreResult};

#[test]
fn j_31_a_random_drop_makes_an_orphan_that_restores_at_once() {
    let mut rig = Rig::new(node(&Config { loose_prob_base: 1.000_001, ..config() }));
    rig.start();
    rig.advance(1200 * MILLI);
    assert!(has(&rig, "TokenDropped"));
    assert_eq!(rig.machine.state_name(), StateName::Orphan);
    assert_eq!(rig.machine.counted().random_drops, 1);
    assert_eq!(count_of(rig.machine.data(), OWN), 0, "the random drop comes first");
    rig.advance(1200 * MILLI);
    assert_eq!(rig.machine.counted().random_drops, 2, "JA-27: a lone leader throws it too");
}

#[test]
fn j_32_a_tenure_computes_the_next_data_once() {
    let mut rig = leader();
    assert_eq!(count_of(rig.machine.data(), OWN), 1);
    rig.advance(200 * MILLI);
    assert_eq!(count_of(rig.machine.data(), OWN), 1, "JA-39: once per tenure");
    rig.advance(100 * MILLI);
    assert_eq!(count_of(rig.machine.data(), OWN), 2, "no candidate took it: a new tenure");
}

#[test]
fn j_33_a_tenure_brings_the_data_up_to_date() {
    let mut rig = waiter();
    give(&mut rig, 1, 2, 77, &[entry(2), entry(1)], &counts(&[(11, 3), (12, 4)]));
    assert_eq!(rig.machine.token_id(), id(77));
    assert_eq!(
        (count_of(rig.machine.data(), 11), count_of(rig.machine.data(), 12)),
        (4, 4),
        "its own count is raised"
    );
    assert_eq!(rig.machine.penalties().of(host(12)), Penalty::default(), "and node 2 lives");
}

#[test]
fn j_33a_a_leader_turns_its_id_positive() {
    let mut rig = leader();
    hear(&mut rig, 3, &tr1(3, 1)).unwrap();
    let positive = bytes(&Message::Tr2 { token_id: rig.machine.token_id().held() });
    assert!(has(&rig, &crate::Hex(&positive).to_string()));
}

#[test]
fn j_34_a_leader_adds_nodes_in_the_order_of_their_tr1() {
    let mut rig = leader();
    for last in [5, 3, 4] {
        hear(&mut rig, last, &tr1(last, 1)).unwrap();
    }
    rig.advance(300 * MILLI);
    assert_eq!(rig.machine.list().nodes(), [entry(1), entry(5), entry(3), entry(4)]);
    assert_eq!(count_lines(&rig, "NodeAdded"), 4);
}

#[test]
fn j_35_a_leader_passes_the_token_after_its_pace() {
    let mut rig = waiter();
    give(&mut rig, 1, 2, 77, &[entry(2), entry(1)], &counts(&[(12, 4)]));
    rig.advance(49 * MILLI);
    assert!(!has(&rig, "Open"), "JA-28a: a tenure has a minimum length");
    rig.advance(MILLI);
    assert!(has(&rig, "Open 0:2 to 127.0.0.2:4001 from Some(127.0.0.1)"));
}

#[test]
fn j_5_only_a_leader_adds_to_the_list() {
    let mut rig = waiter();
    hear(&mut rig, 3, &tr1(3, 1)).unwrap();
    rig.advance(9 * SECOND);
    assert!(rig.machine.list().is_empty());
    give(&mut rig, 1, 2, 77, &[entry(2)], &counts(&[]));
    rig.advance(100 * MILLI);
    assert_eq!(rig.machine.list().nodes(), [entry(2), entry(1), entry(3)]);
}

#[test]
fn j_16_list_data_and_penalties_change_only_in_a_leaders_hands() {
    let mut rig = waiter();
    let before = (rig.machine.list().clone(), rig.machine.data().to_vec(), rig.machine.penalties().clone());
    hear(&mut rig, 3, &tr1(3, 1)).unwrap();
    let stream = offer(&mut rig, 1, 2, 77, 99);
    rig.stream(stream, StreamEvent::Data(&bytes(&Message::Tp4 { nodes: vec![entry(2)] }))).unwrap();
    rig.stream(stream, StreamEvent::Data(&bytes(&Message::Tp5 { data: counts(&[(12, 9)]) }))).unwrap();
    rig.stream(stream, StreamEvent::Closed(crate::CloseReason::Reset)).unwrap();
    rig.advance(5 * SECOND);
    let after = (rig.machine.list().clone(), rig.machine.data().to_vec(), rig.machine.penalties().clone());
    assert_eq!(before, after);
}

#[test]
fn j_85_a_leader_without_a_willing_candidate_stays_leader_and_tries_again() {
    let mut rig = leader();
    let tenures = rig.machine.counted().tenures;
    rig.advance(10 * SECOND);
    assert_eq!(rig.machine.state_name(), StateName::Leader, "JA-40");
    assert!((38..=41).contains(&(rig.machine.counted().tenures - tenures)), "every 50 + 200 ms");
    assert!(!has(&rig, "Open"), "it never passes to itself");
}

#[test]
fn ja_38_a_known_host_moves_if_its_address_is_the_same_or_it_was_dead() {
    let (mut rig, stream) = passing();
    rig.stream(stream, StreamEvent::Closed(crate::CloseReason::Refused)).unwrap();
    assert_eq!(rig.machine.penalties().of(host(12)).threshold, 1);
    // Another port at the same address.
    let moved = Message::Tr1 { token_id: id(1).free(), host_id: host(12), tcp_port: 999 };
    hear(&mut rig, 2, &moved).unwrap();
    assert_eq!(rig.machine.penalties().of(host(12)).threshold, 0, "JA-44a: its message arrived");
    rig.advance(300 * MILLI);
    assert_eq!(rig.machine.list().addr(host(12)), Some(SocketAddr::new(ip(2), 999)));
    assert!(has(&rig, "NodeMoved"));
}

#[test]
fn ja_38_a_host_at_another_address_moves_only_if_the_old_one_was_dead() {
    let (mut rig, stream) = passing();
    let elsewhere = Message::Tr1 { token_id: id(1).free(), host_id: host(12), tcp_port: PORT };
    hear(&mut rig, 5, &elsewhere).unwrap();
    rig.stream(stream, StreamEvent::Data(&[0x41])).unwrap();
    rig.stream(stream, StreamEvent::Sent { bytes: 500, fin: true }).unwrap();
    give(&mut rig, 1, 2, 77, &[entry(1), entry(2)], &counts(&[(12, 1)]));
    rig.advance(60 * MILLI);
    assert_eq!(rig.machine.list().addr(host(12)), Some(entry(2).addr), "it lives where it was");
    rig.stream(StreamId::opened(2), StreamEvent::Closed(crate::CloseReason::Refused)).unwrap();
    assert_eq!(rig.machine.penalties().of(host(12)).threshold, 1);
    hear(&mut rig, 5, &elsewhere).unwrap();
    assert_eq!(rig.machine.penalties().of(host(12)).threshold, 1, "JA-44a: not from the listed address");
    rig.advance(300 * MILLI);
    assert_eq!(rig.machine.list().addr(host(12)), Some(SocketAddr::new(ip(5), PORT)));
    assert_eq!(rig.machine.penalties().of(host(12)).threshold, 0, "a replaced entry begins anew");
}

#[test]
fn ja_28b_a_long_list_raises_the_time_a_waiter_waits() {
    let mut rig = waiter();
    let nodes: Vec<NodeEntry> =
        (0..1000).map(|n| NodeEntry::new(host(100 + n), ip((n % 250) as u8 + 3), 1000 + n as u16)).collect();
    give(&mut rig, 1, 2, 77, &nodes, &counts(&[]));
    rig.advance(100 * MILLI);
    assert!(
        has(&rig, "RenewRaised { renew_timeout_micros: 1043"),
        "2 · 1001 · 50 ms and the time of a restore"
    );
    assert_eq!(rig.machine.status(rig.now.mono).renew_timeout_micros / 1_000_000, 104);
}

#[test]
fn ja_47_a_slow_loop_is_reported() {
    let mut rig = waiter();
    let pass_on = |rig: &mut Rig<Jitterbug<Ledger>>, n: u64| {
        give(rig, n, 2, 77, &[entry(2), entry(1)], &counts(&[]));
        rig.advance(50 * MILLI);
        rig.stream(StreamId::opened(n), StreamEvent::Data(&[0x41])).unwrap();
        rig.stream(StreamId::opened(n), StreamEvent::Sent { bytes: 500, fin: true }).unwrap();
    };
    pass_on(&mut rig, 1);
    rig.advance(SECOND);
    pass_on(&mut rig, 2);
    assert!(!has(&rig, "LoopSlow"));
    rig.advance(6 * SECOND);
    pass_on(&mut rig, 3);
    assert!(has(&rig, "LoopSlow"));
}

#[test]
fn ja_47_a_hold_is_no_slow_loop() {
    let mut rig = waiter();
    let take = |rig: &mut Rig<Jitterbug<Ledger>>, n: u64| {
        give(rig, n, 2, 77, &[entry(2), entry(1)], &counts(&[]));
    };
    let pass_on = |rig: &mut Rig<Jitterbug<Ledger>>, n: u64| {
        rig.advance(50 * MILLI);
        rig.stream(StreamId::opened(n), StreamEvent::Data(&[0x41])).unwrap();
        rig.stream(StreamId::opened(n), StreamEvent::Sent { bytes: 500, fin: true }).unwrap();
    };
    take(&mut rig, 1);
    pass_on(&mut rig, 1);
    // This node holds the token for long.
    let hold = rig.command(Command::Hold { limit: 60 * SECOND });
    take(&mut rig, 2);
    rig.advance(20 * SECOND);
    rig.command(Command::Release { hold });
    pass_on(&mut rig, 2);
    assert!(has(&rig, "TokenReleased") && has(&rig, "TokenPassed"));
    take(&mut rig, 3);
    pass_on(&mut rig, 3);
    assert!(!has(&rig, "LoopSlow"), "{:#?}", rig.log);
    // Another node holds it, and answers our TR1.
    rig.advance(10 * SECOND + 100 * MILLI);
    hear(&mut rig, 2, &Message::Tr2 { token_id: id(77).held() }).unwrap();
    assert!(has(&rig, "RestoreDenied"), "{:#?}", rig.log);
    take(&mut rig, 4);
    pass_on(&mut rig, 4);
    assert!(!has(&rig, "LoopSlow"), "{:#?}", rig.log);
}

#[test]
fn ja_47_a_hold_of_a_lone_node_is_no_slow_loop_either() {
    let mut rig = leader();
    let hold = rig.command(Command::Hold { limit: 60 * SECOND });
    rig.advance(20 * SECOND);
    rig.command(Command::Release { hold });
    rig.advance(SECOND);
    assert!(has(&rig, "TokenReleased") && !has(&rig, "LoopSlow"), "{:#?}", rig.log);
    rig.sleep(6 * SECOND);
    rig.wake();
    assert!(has(&rig, "reason: Stalled"), "but a node that was paused is: {:#?}", rig.log);
}

#[test]
fn ja_52_a_stopped_node_starts_no_election() {
    let mut rig = leader();
    rig.stop();
    assert!(rig.machine.is_stopped(), "there is no candidate");
    rig.take_log();
    rig.advance(60 * SECOND);
    assert_eq!((rig.machine.is_stopped(), rig.take_log()), (true, Vec::new()));
}

#[test]
fn ja_52_a_leader_passes_the_token_before_it_stops_and_a_waiter_stops_at_once() {
    let (mut rig, stream) = passing();
    rig.stop();
    assert!(!rig.machine.is_stopped());
    rig.stream(stream, StreamEvent::Data(&[0x41])).unwrap();
    rig.stream(stream, StreamEvent::Sent { bytes: 500, fin: true }).unwrap();
    assert!(has(&rig, "TokenPassed") && !rig.machine.is_stopped(), "the candidate may still be reading");
    rig.stream(stream, StreamEvent::Closed(crate::CloseReason::Done)).unwrap();
    assert!(rig.machine.is_stopped());
    let mut rig = waiter();
    rig.stop();
    assert!(rig.machine.is_stopped());
    rig.command(Command::Status);
    assert!(has(&rig, "Stopping"));
    let mut rig = leader();
    rig.stop();
    assert!(rig.machine.is_stopped(), "there is no candidate");
    assert!(rig.disk.contains_key(&(SPACE, KEPT_KEY.to_vec())), "the last will");
}

#[test]
fn a_number_is_used_only_once_it_is_durable() {
    let mut rig = started(&config());
    rig.advance(1199 * MILLI);
    rig.hold();
    rig.advance(MILLI);
    rig.command(Command::Hold { limit: SECOND });
    assert_eq!(rig.machine.state_name(), StateName::Leader);
    assert_eq!(rig.machine.fence(), None, "the bound is being written");
    rig.drain();
    let fence = rig.machine.fence().unwrap();
    assert!(has(&rig, &format!("Held {{ fence: {fence}, ")));
}

#[test]
fn a_node_that_cannot_read_its_used_fences_stays_out_until_it_can() {
    let mut rig = Rig::new(node(&config()));
    rig.hold();
    rig.start();
    rig.stored(crate::OpId::new(1), StoreResult::Value(None));
    rig.stored(crate::OpId::new(2), StoreResult::Failed(StoreFault::Broken));
    assert!(rig.datagram(UDP, udp(3), &bytes(&tr1(3, 5))).is_err(), "it is not there yet");
    rig.advance(999 * MILLI);
    rig.drain();
    assert!(has(&rig, "StoreFailed") && !has(&rig, "Started"));
    rig.advance(MILLI);
    rig.drain();
    assert!(has(&rig, "Started"), "the second reading is answered by a good disk");
}

#[test]
fn a_number_that_cannot_be_made_durable_is_not_used_and_the_token_goes_on() {
    let mut rig = waiter();
    rig.hold();
    give(&mut rig, 1, 2, 77, &[entry(2)], &counts(&[(12, 4)]));
    rig.stored(crate::OpId::new(4), StoreResult::Failed(StoreFault::Full));
    assert_eq!((rig.machine.fence(), rig.machine.state_name()), (None, StateName::Leader));
    assert_eq!(count_of(rig.machine.data(), OWN), 0);
    rig.drain();
    assert!(has(&rig, "StoreFailed") && has(&rig, "ApplicationFailed"));
}

#[test]
fn tu_43_a_restored_token_whose_fence_is_not_durable_does_not_go_on() {
    let mut rig = started(&config());
    rig.advance(1199 * MILLI);
    rig.hold();
    rig.advance(MILLI);
    rig.stored(crate::OpId::new(4), StoreResult::Failed(StoreFault::Full));
    assert_eq!((rig.machine.fence(), rig.machine.state_name()), (None, StateName::Waiter));
    rig.drain();
    assert!(has(&rig, "TokenDropped") && has(&rig, "reason: Unsaved"));
}

#[test]
fn durations_and_nodes_are_flat_fields_in_events() {
    let told = |event: &Event| serde_json::to_value(event).unwrap();
    let slow = told(&Event::LoopSlow { took_micros: 7, renew_timeout_micros: 9 });
    assert_eq!(slow, serde_json::json!({"event": "loop_slow", "took_micros": 7, "renew_timeout_micros": 9}));
    let raised = told(&Event::RenewRaised { renew_timeout_micros: 9, nodes: 2 });
    assert_eq!(raised, serde_json::json!({"event": "renew_raised", "renew_timeout_micros": 9, "nodes": 2}));
    let added = told(&Event::NodeAdded { node: entry(2) });
    assert_eq!(added["host_id"], 12, "{added}");
    assert!(
        added["addr"].is_string() && added.get("node").is_none(),
        "that is the name of the agent: {added}"
    );
}
