//! token_pass, the leader's side.

use super::*;
use crate::stream::CloseReason;

fn accept(rig: &mut Rig<Jitterbug<Ledger>>, stream: StreamId, answer: u8) {
    rig.stream(stream, StreamEvent::Data(&[answer])).unwrap();
}

#[test]
fn j_54_a_leader_passes_to_the_next_node_of_the_list() {
    let (rig, _) = passing();
    assert!(has(&rig, "Open 0:2 to 127.0.0.2:4001"));
    assert!(rig.machine.is_passing());
}

#[test]
fn j_56_all_of_it_goes_over_one_stream_dialled_from_the_announced_address() {
    let (mut rig, stream) = passing();
    assert!(has(&rig, "from Some(127.0.0.1)"), "JA-44b");
    rig.take_log();
    accept(&mut rig, stream, 0x31);
    assert!(rig.log.iter().all(|line| !line.starts_with("Send") && !line.starts_with("Broadcast")));
}

#[test]
fn j_58_the_offer_is_token_and_hash_of_the_list() {
    let (rig, stream) = passing();
    let offer = Message::Tp1 {
        token_id: rig.machine.token_id().held(),
        node_list_hash: NodeList::of([entry(1), entry(2)]).hash(),
    };
    assert!(has(&rig, &format!("Write {stream} {}", crate::Hex(&bytes(&offer)))));
    assert!(has(&rig, &format!("Read {stream} 1")));
}

#[test]
fn j_55_the_list_goes_before_the_token_and_j_61_only_after_tp2() {
    let (mut rig, stream) = passing();
    rig.take_log();
    accept(&mut rig, stream, 0x31);
    let list = bytes(&Message::Tp4 { nodes: vec![entry(1), entry(2)] });
    // One write: a small token is one segment.
    let rest = [&list[..], &[0x61], rig.machine.data()].concat();
    assert_eq!(rig.log, [format!("Write {stream} {}", crate::Hex(&rest)), format!("Finish {stream}")]);
}

#[test]
fn j_61_after_tp2_the_list_is_sent() {
    let (mut rig, stream) = passing();
    accept(&mut rig, stream, 0x31);
    assert!(has(&rig, " 5100000002"));
}

#[test]
fn j_64_after_tp3_only_the_data_is_sent() {
    let (mut rig, stream) = passing();
    rig.take_log();
    accept(&mut rig, stream, 0x41);
    assert!(!has(&rig, " 51") && has(&rig, &format!("Write {stream} 61")));
    assert!(has(&rig, &format!("Finish {stream}")));
}

#[test]
fn j_65_the_token_is_passed_when_the_kernel_has_the_last_byte_and_the_fin() {
    let (mut rig, stream) = passing();
    accept(&mut rig, stream, 0x41);
    let len = rig.machine.data().len() + 10;
    rig.stream(stream, StreamEvent::Sent { bytes: len, fin: false }).unwrap();
    assert_eq!(rig.machine.state_name(), StateName::Leader, "all bytes, but not the FIN");
    rig.stream(stream, StreamEvent::Sent { bytes: 0, fin: true }).unwrap();
    assert_eq!(rig.machine.state_name(), StateName::Waiter);
    rig.stream(stream, StreamEvent::Closed(CloseReason::Reset)).unwrap();
    assert_eq!(rig.machine.state_name(), StateName::Waiter, "passed, whatever happens then");
    assert_eq!(rig.machine.penalties().of(host(12)), Penalty::default());
}

#[test]
fn j_71_a_passed_token_makes_a_waiter_whose_wait_begins_now() {
    let (mut rig, stream) = passing();
    rig.advance(900 * MILLI);
    accept(&mut rig, stream, 0x41);
    rig.stream(stream, StreamEvent::Sent { bytes: 500, fin: true }).unwrap();
    assert!(has(&rig, "TokenPassed"));
    rig.advance(10 * SECOND - MILLI);
    assert_eq!(rig.machine.state_name(), StateName::Waiter);
}

#[test]
fn j_72_an_attempt_that_takes_too_long_is_reset_and_has_failed() {
    for answer in [None, Some(0x41)] {
        let (mut rig, stream) = passing();
        answer.iter().for_each(|answer| accept(&mut rig, stream, *answer));
        rig.advance(999 * MILLI);
        assert!(rig.machine.is_passing());
        rig.advance(MILLI);
        assert!(has(&rig, &format!("Abort {stream}")), "the candidate must see a reset");
        assert!(has(&rig, "PassFailed { to: HostId(12), reason: TimedOut }"));
        assert_eq!(rig.machine.state_name(), StateName::Leader);
    }
}

#[test]
fn j_57_the_deadline_is_one_for_the_whole_exchange() {
    let (mut rig, stream) = passing();
    rig.advance(600 * MILLI);
    rig.stream(stream, StreamEvent::Connected { local: udp(1) }).unwrap();
    accept(&mut rig, stream, 0x31);
    rig.advance(400 * MILLI);
    assert!(has(&rig, "reason: TimedOut"), "JA-45");
}

#[test]
fn j_83_any_error_before_the_fin_fails_the_attempt() {
    type Break = fn(&mut Rig<Jitterbug<Ledger>>, StreamId);
    let cases: [(&str, Break); 5] = [
        ("Refused", |rig, stream| rig.stream(stream, StreamEvent::Finished).unwrap()),
        ("Broken", |rig, stream| rig.stream(stream, StreamEvent::Closed(CloseReason::Refused)).unwrap()),
        ("Malformed", |rig, stream| assert!(rig.stream(stream, StreamEvent::Data(&[0x61])).is_err())),
        ("Malformed", |rig, stream| assert!(rig.stream(stream, StreamEvent::Data(&[0x42])).is_err())),
        ("Broken", |rig, stream| {
            rig.stream(stream, StreamEvent::Data(&[0x41])).unwrap();
            rig.stream(stream, StreamEvent::Closed(CloseReason::Reset)).unwrap();
        }),
    ];
    for (reason, break_it) in cases {
        let (mut rig, stream) = passing();
        break_it(&mut rig, stream);
        assert!(has(&rig, &format!("PassFailed {{ to: HostId(12), reason: {reason} }}")), "{reason}");
        assert_eq!(rig.machine.penalties().of(host(12)).threshold, 1);
        assert_eq!(rig.machine.state_name(), StateName::Leader);
    }
}

#[test]
fn j_70_a_candidate_that_ends_its_side_early_has_still_taken_it() {
    let (mut rig, stream) = passing();
    accept(&mut rig, stream, 0x41);
    rig.stream(stream, StreamEvent::Finished).unwrap();
    rig.stream(stream, StreamEvent::Sent { bytes: 500, fin: true }).unwrap();
    assert_eq!(rig.machine.state_name(), StateName::Waiter);
}

#[test]
fn j_78_a_failed_candidate_is_followed_by_the_next() {
    let mut rig = leader();
    for last in [2, 3] {
        hear(&mut rig, last, &tr1(last, 1)).unwrap();
    }
    rig.advance(300 * MILLI);
    rig.stream(StreamId::opened(1), StreamEvent::Closed(CloseReason::Refused)).unwrap();
    assert!(has(&rig, "Open 0:4 to 127.0.0.3:4001"));
}

#[test]
fn j_81_j_84_a_failed_candidate_is_skipped_and_tried_again_later() {
    let mut rig = leader();
    hear(&mut rig, 2, &tr1(2, 1)).unwrap();
    let mut tried = Vec::new();
    while rig.machine.counted().tenures < 32 {
        rig.take_log();
        rig.advance(MILLI);
        if has(&rig, "Open") {
            tried.push(rig.machine.counted().tenures);
            let stream = StreamId::opened(tried.len() as u64);
            rig.stream(stream, StreamEvent::Closed(CloseReason::Refused)).unwrap();
        }
    }
    assert_eq!(tried, [1, 3, 7, 15, 31]);
}

#[test]
fn j_80_j_84_each_skipped_round_is_counted() {
    let mut penalties = Penalties::default();
    (0..2).for_each(|_| penalties.failed(host(5)));
    assert_eq!(penalties.of(host(5)), Penalty { threshold: 2, count: 0 });
    let allowed: Vec<bool> = (0..5).map(|_| penalties.allow(host(5))).collect();
    assert_eq!(allowed, [false, false, false, true, false]);
}

#[test]
fn j_84_a_skipped_candidate_has_its_count_raised() {
    let mut penalties = Penalties::default();
    penalties.failed(host(5));
    assert!(!penalties.allow(host(5)));
    assert_eq!(penalties.of(host(5)).count, 1);
    assert!(penalties.allow(host(5)));
    assert_eq!(penalties.of(host(5)).count, 0, "J-79");
}

#[test]
fn j_74_penalties_are_kept_per_node_and_j_75_begin_at_zero() {
    let mut penalties = Penalties::default();
    penalties.failed(host(5));
    assert_eq!(penalties.of(host(5)).threshold, 1);
    assert_eq!(penalties.of(host(6)), Penalty { threshold: 0, count: 0 });
    assert!(penalties.allow(host(6)));
}

#[test]
fn j_75_a_new_node_is_tried_at_once() {
    let (rig, _) = passing();
    assert_eq!(rig.machine.penalties().of(host(12)), Penalty::default());
}

#[test]
fn j_77_the_new_data_is_passed() {
    let (mut rig, stream) = passing();
    accept(&mut rig, stream, 0x41);
    let own = count_of(rig.machine.data(), OWN);
    assert!(own >= 1);
    assert!(has(&rig, &format!("Write {stream} 61{}", crate::Hex(rig.machine.data()))));
}

#[test]
fn large_data_is_written_as_the_kernel_takes_it() {
    let mut rig = waiter();
    let mut document = Document::default();
    document.rest.insert("big".into(), "x".repeat(1 << 20).as_str().into());
    give(&mut rig, 1, 2, 77, &[entry(2), entry(1)], &document.to_data());
    rig.advance(50 * MILLI);
    rig.take_log();
    let stream = StreamId::opened(1);
    accept(&mut rig, stream, 0x41);
    let written = |rig: &Rig<Jitterbug<Ledger>>| -> usize {
        let hex = rig.log.iter().filter_map(|line| line.strip_prefix("Write 0:2 "));
        hex.map(|hex| hex.len() / 2).sum()
    };
    let first = written(&rig);
    assert!(first <= 5 * 64 * 1024 && !has(&rig, "Finish"), "it waits for the kernel");
    rig.stream(stream, StreamEvent::Sent { bytes: 9 + first, fin: false }).unwrap();
    assert!(written(&rig) > first);
    while !has(&rig, "Finish") {
        let before = written(&rig);
        rig.stream(stream, StreamEvent::Sent { bytes: 128 * 1024, fin: false }).unwrap();
        assert!(written(&rig) >= before);
    }
    assert_eq!(written(&rig), 1 + rig.machine.data().len());
}

#[test]
fn the_stream_of_a_passed_token_is_kept_until_the_candidate_ends_it_or_the_deadline() {
    let (mut rig, stream) = passing();
    accept(&mut rig, stream, 0x41);
    rig.stream(stream, StreamEvent::Sent { bytes: 500, fin: true }).unwrap();
    rig.take_log();
    let mut ended = rig.clone();
    ended.stream(stream, StreamEvent::Finished).unwrap();
    ended.stream(stream, StreamEvent::Closed(CloseReason::Done)).unwrap();
    for rig in [&mut rig, &mut ended] {
        rig.advance(SECOND);
    }
    assert!(has(&rig, &format!("Abort {stream}")) && !has(&ended, "Abort"));
}
