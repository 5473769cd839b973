//! token_pass, the candidate's side, and tokens that meet.

use super::*;
use crate::stream::CloseReason;

#[test]
fn j_59_j_60_a_different_list_is_requested() {
    let mut rig = waiter();
    let stream = offer(&mut rig, 1, 2, 77, 99);
    assert!(has(&rig, &format!("Write {stream} 31")));
}

#[test]
fn j_60_a_hash_that_differs_is_answered_with_tp2() {
    let mut rig = waiter();
    let stream = offer(&mut rig, 1, 2, 77, 1);
    assert_eq!(rig.log.last().unwrap(), &format!("Read {stream} 65536"));
    assert!(has(&rig, &format!("Write {stream} 31")));
}

#[test]
fn j_63_the_same_hash_is_answered_with_tp3_and_the_own_list_stays() {
    let mut rig = waiter();
    give(&mut rig, 1, 2, 77, &[entry(2), entry(1)], &counts(&[]));
    assert!(has(&rig, "Write 0:3 31"));
    rig.advance(50 * MILLI);
    rig.stream(StreamId::opened(1), StreamEvent::Data(&[0x41])).unwrap();
    rig.stream(StreamId::opened(1), StreamEvent::Sent { bytes: 500, fin: true }).unwrap();
    rig.take_log();
    give(&mut rig, 2, 2, 77, &[entry(2), entry(1)], &counts(&[]));
    assert!(has(&rig, "Write 0:5 41"));
    assert_eq!(rig.machine.list().nodes(), [entry(2), entry(1)]);
}

#[test]
fn j_62_a_list_is_buffered_for_its_stream_only() {
    let mut rig = waiter();
    let stream = offer(&mut rig, 1, 2, 77, 99);
    rig.stream(stream, StreamEvent::Data(&bytes(&Message::Tp4 { nodes: vec![entry(2)] }))).unwrap();
    assert!(rig.machine.list().is_empty());
    rig.stream(stream, StreamEvent::Closed(CloseReason::Reset)).unwrap();
    assert!(rig.machine.list().is_empty());
}

#[test]
fn j_66_ids_are_compared_without_their_sign() {
    let mut rig = waiter();
    give(&mut rig, 1, 2, 77, &[entry(2), entry(1)], &counts(&[(12, 4)]));
    rig.advance(50 * MILLI);
    rig.stream(StreamId::opened(1), StreamEvent::Data(&[0x41])).unwrap();
    rig.stream(StreamId::opened(1), StreamEvent::Sent { bytes: 500, fin: true }).unwrap();
    let merges = rig.machine.counted().merges;
    give(&mut rig, 2, 2, 77, &[entry(2), entry(1)], &counts(&[(12, 5), (OWN, 1)]));
    assert_eq!(rig.machine.counted().merges, merges, "the waiter's −77 and the token's 77 are one id");
}

#[test]
fn j_67_equal_ids_take_the_data() {
    let mut rig = waiter();
    give(&mut rig, 1, 2, 77, &[entry(2), entry(1)], &counts(&[(12, 4)]));
    rig.advance(50 * MILLI);
    rig.stream(StreamId::opened(1), StreamEvent::Data(&[0x41])).unwrap();
    rig.stream(StreamId::opened(1), StreamEvent::Sent { bytes: 500, fin: true }).unwrap();
    // It has less data than this node, and is still taken as it is.
    give(&mut rig, 2, 2, 77, &[entry(2), entry(1)], &counts(&[(12, 2)]));
    assert_eq!(rig.machine.data(), counts(&[(12, 2), (OWN, 1)]));
}

#[test]
fn j_68_another_id_becomes_ours() {
    let mut rig = waiter();
    assert_ne!(rig.machine.token_id(), id(77));
    give(&mut rig, 1, 2, 77, &[entry(2)], &counts(&[]));
    assert_eq!(rig.machine.token_id(), id(77));
}

#[test]
fn j_69_data_of_another_id_is_merged() {
    let mut rig = leader();
    let own = count_of(rig.machine.data(), OWN);
    give(&mut rig, 1, 2, 77, &[entry(2)], &counts(&[(12, 4)]));
    assert_eq!(count_of(rig.machine.data(), OWN), own + 1, "it leads with a new token");
    assert_eq!(count_of(rig.machine.data(), 12), 4);
}

#[test]
fn j_10_merge_is_called_when_branches_meet_and_j_11_only_then() {
    let mut rig = waiter();
    give(&mut rig, 1, 2, 77, &[entry(2), entry(1)], &counts(&[]));
    assert_eq!(rig.machine.counted().merges, 1, "another id");
    rig.advance(50 * MILLI);
    rig.stream(StreamId::opened(1), StreamEvent::Data(&[0x41])).unwrap();
    rig.stream(StreamId::opened(1), StreamEvent::Sent { bytes: 500, fin: true }).unwrap();
    give(&mut rig, 2, 2, 77, &[entry(2), entry(1)], &counts(&[(12, 1)]));
    assert_eq!(rig.machine.counted().merges, 1, "J-11: the same id, no merge");
}

#[test]
fn j_11_a_working_ring_does_not_merge() {
    let mut world = world::World::of(3, &config());
    world.advance(5 * SECOND);
    let merges = |world: &world::World| world.machines().map(|node| node.counted().merges).sum::<u64>();
    let before = merges(&world);
    world.advance(20 * SECOND);
    assert_eq!(merges(&world), before);
}

#[test]
fn j_70_a_candidate_leads_from_the_fin_on_and_not_before() {
    let mut rig = waiter();
    let stream = offer(&mut rig, 1, 2, 77, 99);
    rig.stream(stream, StreamEvent::Data(&bytes(&Message::Tp4 { nodes: vec![entry(2)] }))).unwrap();
    rig.stream(stream, StreamEvent::Data(&bytes(&Message::Tp5 { data: counts(&[]) }))).unwrap();
    assert_eq!(rig.machine.state_name(), StateName::Waiter, "JA-33a");
    rig.stream(stream, StreamEvent::Finished).unwrap();
    assert_eq!(rig.machine.state_name(), StateName::Leader);
    assert!(has(&rig, &format!("Finish {stream}")), "then closes");
}

#[test]
fn j_29_a_waiter_that_gets_the_token_leads() {
    let mut rig = waiter();
    give(&mut rig, 1, 2, 77, &[entry(2)], &counts(&[]));
    assert!(has(&rig, "StateEntered { state: Leader, token_id: TokenId(77) }"));
}

#[test]
fn j_105_data_that_the_application_does_not_accept_is_no_token() {
    let good = counts(&[(12, 4)]);
    let mut flipped = good.clone();
    flipped[6] ^= 1;
    let longer = [&good[..], &[0]].concat();
    for (name, data) in [
        ("cut by a killed leader's FIN", good[..good.len() - 1].to_vec()),
        ("spoilt", flipped),
        ("not filled exactly", longer),
        ("empty", Vec::new()),
        ("no JSON", frame(b"{")),
        ("a count that is none", frame(br#"{"counts":{"1":-1}}"#)),
    ] {
        let mut rig = waiter();
        let before = rig.machine.clone();
        let stream = offer(&mut rig, 1, 2, 77, 99);
        rig.stream(stream, StreamEvent::Data(&bytes(&Message::Tp4 { nodes: vec![entry(2)] }))).unwrap();
        rig.stream(stream, StreamEvent::Data(&bytes(&Message::Tp5 { data }))).unwrap();
        assert!(rig.stream(stream, StreamEvent::Finished).is_err(), "{name}");
        assert!(has(&rig, &format!("Abort {stream}")));
        assert_eq!(rig.machine.list(), before.list(), "{name}");
        assert_eq!(
            (rig.machine.token_id(), rig.machine.data()),
            (before.token_id(), before.data()),
            "{name}"
        );
        assert_eq!(rig.machine.state_name(), StateName::Waiter, "{name}");
    }
}

#[test]
fn j_6_nodes_of_the_old_list_come_back_into_the_new() {
    let mut rig = waiter();
    give(&mut rig, 1, 2, 77, &[entry(2), entry(3), entry(1)], &counts(&[]));
    give(&mut rig, 2, 4, 78, &[entry(4), entry(1)], &counts(&[]));
    assert_eq!(rig.machine.list().nodes(), [entry(4), entry(1)], "JA-34: the list that came");
    rig.advance(60 * MILLI);
    assert_eq!(rig.machine.list().nodes(), [entry(4), entry(1), entry(2), entry(3)], "and all of the old");
}

#[test]
fn j_8_the_list_travels_with_the_token() {
    let mut rig = waiter();
    give(&mut rig, 1, 2, 77, &[entry(2), entry(3)], &counts(&[]));
    assert_eq!(rig.machine.list().nodes(), [entry(2), entry(3)]);
    rig.advance(60 * MILLI);
    assert_eq!(rig.machine.list().nodes(), [entry(2), entry(3), entry(1)], "JA-35: we add ourselves");
}

#[test]
fn ja_35_of_two_entries_with_one_host_id_the_first_counts() {
    let mut rig = waiter();
    let twice = NodeEntry::new(host(12), ip(9), 9);
    give(&mut rig, 1, 2, 77, &[entry(2), twice, entry(1)], &counts(&[]));
    assert_eq!(rig.machine.list().nodes(), [entry(2), entry(1)]);
}

#[test]
fn ja_36_a_list_that_has_our_host_id_elsewhere_is_reported() {
    let mut rig = waiter();
    give(&mut rig, 1, 2, 77, &[entry(2), NodeEntry::new(host(OWN), ip(9), 9)], &counts(&[]));
    assert!(has(&rig, "DuplicateHostId { at: 127.0.0.9:9 }"));
}

#[test]
fn ja_44_a_node_that_brings_a_token_has_no_penalty() {
    let (mut rig, stream) = passing();
    rig.stream(stream, StreamEvent::Closed(CloseReason::Refused)).unwrap();
    assert_eq!(rig.machine.penalties().of(host(12)).threshold, 1);
    give(&mut rig, 1, 2, 77, &[entry(1), entry(2)], &counts(&[]));
    assert_eq!(rig.machine.penalties().of(host(12)).threshold, 0);
}

#[test]
fn ja_46_a_valid_tp1_restarts_the_wait_and_garbage_does_not() {
    let mut rig = waiter();
    rig.advance(9 * SECOND);
    let mut garbage = rig.clone();
    offer(&mut rig, 1, 2, 77, 99);
    let stream = StreamId::accepted(1);
    let from = udp(2);
    garbage.stream(stream, StreamEvent::Accepted { listener: TCP, from, local: udp(1) }).unwrap();
    assert!(garbage.stream(stream, StreamEvent::Data(b"hello")).is_err());
    for rig in [&mut rig, &mut garbage] {
        rig.advance(2 * SECOND);
    }
    assert_eq!(rig.machine.state_name(), StateName::Waiter);
    assert_eq!(garbage.machine.state_name(), StateName::Orphan);
}

#[test]
fn j_57_jf_20_a_candidate_resets_at_the_deadline_after_accept() {
    let mut rig = waiter();
    let stream = offer(&mut rig, 1, 2, 77, 99);
    let list = bytes(&Message::Tp4 { nodes: vec![entry(2)] });
    for byte in &list[..3] {
        // One byte at a time: a slow loris.
        rig.stream(stream, StreamEvent::Data(&[*byte])).unwrap();
        rig.advance(300 * MILLI);
    }
    assert!(!has(&rig, "Abort"));
    rig.advance(100 * MILLI);
    assert!(has(&rig, &format!("Abort {stream}")));
    assert_eq!(rig.machine.counted().streams_expired, 1);
}

#[test]
fn ja_30_a_leader_that_is_not_passing_takes_any_token_and_one_is_left() {
    for magnitude in [1, TokenId::MAX.magnitude()] {
        let mut rig = leader();
        let tenures = rig.machine.counted().tenures;
        give(&mut rig, 1, 2, magnitude, &[entry(2)], &counts(&[(12, 4)]));
        assert_eq!(rig.machine.token_id(), id(magnitude));
        assert_eq!(rig.machine.counted().tokens_coalesced, 1);
        assert_eq!(rig.machine.counted().tenures, tenures, "the tenure goes on");
        assert!(has(&rig, "branches_merged: true"));
    }
}

#[test]
fn ja_30_a_passing_leader_refuses_a_lower_token_without_an_answer() {
    let (mut rig, _) = passing();
    rig.take_log();
    let stream = offer(&mut rig, 1, 3, 1, 99);
    assert_eq!(rig.log, [format!("Read {stream} 9"), format!("Finish {stream}")]);
    assert_eq!(rig.machine.counted().offers_refused, 1);
    rig.stream(stream, StreamEvent::Finished).unwrap();
    assert!(rig.machine.is_passing());
}

#[test]
fn ja_30_a_leader_that_is_passing_takes_a_greater_token_and_resets_its_own_pass() {
    let (mut rig, stream) = passing();
    give(&mut rig, 1, 3, TokenId::MAX.magnitude(), &[entry(3)], &counts(&[(13, 4)]));
    assert!(has(&rig, &format!("Abort {stream}")));
    assert_eq!(rig.machine.token_id(), TokenId::MAX);
    assert_eq!(count_of(rig.machine.data(), 13), 4);
    assert_eq!(rig.machine.penalties().of(host(12)).threshold, 0, "the candidate did nothing wrong");
}

#[test]
fn ja_30a_a_lower_token_that_completes_during_a_pass_is_discarded() {
    let mut rig = leader();
    hear(&mut rig, 2, &tr1(2, 1)).unwrap();
    let hash = rig.machine.list().hash();
    let stream = offer(&mut rig, 1, 3, 1, hash);
    rig.stream(stream, StreamEvent::Data(&bytes(&Message::Tp5 { data: counts(&[(13, 4)]) }))).unwrap();
    while !rig.machine.is_passing() {
        rig.advance(MILLI);
    }
    let own = rig.machine.token_id();
    rig.stream(stream, StreamEvent::Finished).unwrap();
    assert!(has(&rig, "TokenDiscarded { token_id: TokenId(1) }"));
    assert!(rig.machine.is_passing() && rig.machine.token_id() == own);
}

#[test]
fn ja_30a_of_two_equal_tokens_that_cross_the_lower_address_takes() {
    let (rig, stream) = passing();
    let own = rig.machine.token_id().magnitude();
    let mut lower = rig.clone();
    let mut higher = Rig::new(node(&Config { addr: ip(200), ..config() }));
    higher.start();
    higher.advance(1200 * MILLI);
    hear(&mut higher, 2, &tr1(2, 2_000_000_000)).unwrap();
    while !higher.machine.is_passing() {
        higher.advance(MILLI);
    }
    give(&mut lower, 1, 3, own, &[entry(3)], &counts(&[(13, 4)]));
    assert!(has(&lower, &format!("Abort {stream}")) && count_of(lower.machine.data(), 13) == 4);
    let own = higher.machine.token_id().magnitude();
    offer(&mut higher, 1, 3, own, 99);
    assert_eq!(higher.machine.counted().offers_refused, 1);
}

#[test]
fn ja_31_a_leader_merges_its_own_id() {
    let mut rig = leader();
    let own = rig.machine.token_id().magnitude();
    let (count, fence) = (count_of(rig.machine.data(), OWN), rig.machine.fence());
    give(&mut rig, 1, 2, own, &[entry(2)], &counts(&[(12, 4)]));
    // Our count is there, plus one: the fence of the remaining token is above those of both.
    assert_eq!((count_of(rig.machine.data(), OWN), count_of(rig.machine.data(), 12)), (count + 1, 4));
    assert_eq!(rig.machine.fence(), fence.map(|fence| fence + 5));
}

#[test]
fn ja_48_two_passes_at_once_are_committed_one_after_the_other() {
    let mut rig = waiter();
    let one = offer(&mut rig, 1, 2, 77, 0);
    let two = offer(&mut rig, 2, 3, 78, 0);
    for (stream, counted) in [(one, counts(&[(12, 4)])), (two, counts(&[(13, 5)]))] {
        rig.stream(stream, StreamEvent::Data(&bytes(&Message::Tp5 { data: counted }))).unwrap();
    }
    rig.stream(one, StreamEvent::Finished).unwrap();
    rig.stream(two, StreamEvent::Finished).unwrap();
    assert_eq!(rig.machine.token_id(), id(78));
    assert_eq!((count_of(rig.machine.data(), 12), count_of(rig.machine.data(), 13)), (4, 5));
    assert_eq!(rig.machine.counted().tenures, 1);
}

#[test]
fn streams_of_others_and_their_data_are_bounded() {
    let mut rig = Rig::new(node(&Config { streams_max: 2, data_bytes_max: 1000, ..config() }));
    rig.start();
    let from = udp(2);
    for n in 1..=3 {
        let outcome =
            rig.stream(StreamId::accepted(n), StreamEvent::Accepted { listener: TCP, from, local: from });
        assert_eq!(outcome.is_ok(), n <= 2);
    }
    rig.stream(StreamId::accepted(1), StreamEvent::Closed(CloseReason::Reset)).unwrap();
    rig.stream(StreamId::accepted(2), StreamEvent::Closed(CloseReason::Reset)).unwrap();
    let stream = offer(&mut rig, 4, 2, 77, 0);
    let outcome = rig.stream(stream, StreamEvent::Data(&[0x61; 1002]));
    assert_eq!(outcome, Err(crate::wire::DecodeError::Limit("data").into()));
}

#[test]
fn ja_53_a_flood_of_streams_from_one_address_leaves_room_for_others() {
    let mut rig = waiter();
    let accept = |rig: &mut Rig<Jitterbug<Ledger>>, n: u64, last: u8| {
        let (from, local) = (SocketAddr::new(ip(last), 50_000), SocketAddr::new(ip(1), PORT));
        rig.stream(StreamId::accepted(n), StreamEvent::Accepted { listener: TCP, from, local }).is_ok()
    };
    assert_eq!((1..=100).filter(|&n| accept(&mut rig, n, 9)).count(), 4);
    assert_eq!(rig.machine.counted().refused, 96);
    give(&mut rig, 101, 2, 77, &[entry(2)], &counts(&[(12, 4)]));
    assert_eq!(rig.machine.state_name(), StateName::Leader, "another address is accepted");
}

#[test]
fn j_6_no_limit_loses_a_node_that_was_in_the_list() {
    let mut rig = Rig::new(node(&Config { add_set_max: 1, ..config() }));
    rig.start();
    let many: Vec<NodeEntry> = (2..20).map(entry).collect();
    give(&mut rig, 1, 2, 77, &many, &counts(&[(12, 4)]));
    give(&mut rig, 2, 3, 78, &[entry(50)], &counts(&[(13, 4)]));
    rig.advance(SECOND);
    assert_eq!(rig.machine.list().len(), 18 + 2, "everybody, the newcomer, and ourselves");
}
