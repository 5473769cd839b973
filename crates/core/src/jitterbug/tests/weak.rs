//! Weak turns: grace period, pauses, fences that only rise, and clients that go away (TU-40 … TU-45).

use super::*;
use crate::machine::Refusal;
use crate::tag::RequestId;
use crate::time::Wall;

/// A waiter of a ring of nodes 1 and 2, which had token 77 and passed it to node 2.
fn of_a_ring() -> Rig<Jitterbug<Ledger>> {
    let mut rig = waiter();
    give(&mut rig, 1, 2, 77, &[entry(2), entry(1)], &counts(&[(12, 4)]));
    pass_on(&mut rig);
    rig
}

fn pass_on(rig: &mut Rig<Jitterbug<Ledger>>) {
    let stream = pass_unread(rig);
    rig.stream(stream, StreamEvent::Finished).unwrap();
    rig.stream(stream, StreamEvent::Closed(crate::CloseReason::Done)).unwrap();
    rig.take_log();
}

/// Passes the token on a stream that the candidate has not ended yet.
fn pass_unread(rig: &mut Rig<Jitterbug<Ledger>>) -> StreamId {
    rig.advance(50 * MILLI);
    let stream = opened(rig);
    rig.stream(stream, StreamEvent::Data(&[0x41])).unwrap();
    rig.stream(stream, StreamEvent::Sent { bytes: 9, fin: true }).unwrap();
    assert_eq!(rig.machine.state_name(), StateName::Waiter);
    stream
}

/// The stream that was opened last.
fn opened(rig: &Rig<Jitterbug<Ledger>>) -> StreamId {
    let passes = rig.machine.counted().passes + rig.machine.counted().passes_failed;
    StreamId::opened(passes + 1)
}

#[test]
fn tu_41_a_node_of_a_ring_sends_tr1_for_half_of_renew_timeout_before_it_makes_a_token() {
    let mut rig = of_a_ring();
    rig.advance(10 * SECOND);
    assert_eq!(rig.machine.state_name(), StateName::Orphan);
    // Nine tries of 600 ms with the old id fill 5 s; then comes the second try.
    rig.advance(5400 * MILLI - MILLI);
    let first: Vec<_> = rig.log.iter().filter(|line| line.starts_with("Broadcast")).collect();
    assert_eq!(first.len(), 27);
    assert!(first.iter().all(|line| *line == first[0]), "the same bytes each time");
    rig.advance(600 * MILLI);
    assert_eq!(rig.machine.state_name(), StateName::Orphan);
    rig.advance(MILLI);
    assert_eq!(rig.machine.state_name(), StateName::Leader);
}

#[test]
fn tu_41_a_holder_that_answers_late_in_the_grace_denies() {
    let mut rig = of_a_ring();
    rig.advance(14 * SECOND);
    hear(&mut rig, 2, &Message::Tr2 { token_id: id(77).held() }).unwrap();
    assert_eq!(rig.machine.state_name(), StateName::Waiter);
}

#[test]
fn tu_41_a_node_that_is_paused_in_its_election_starts_it_again() {
    let mut rig = of_a_ring();
    // In the second try, after all its TR1.
    rig.advance(10 * SECOND + 5400 * MILLI + 500 * MILLI);
    rig.sleep(30 * SECOND);
    rig.wake();
    assert_eq!(rig.machine.state_name(), StateName::Orphan, "the answers of 30 s ago say nothing");
    rig.advance(5 * SECOND);
    assert_eq!(rig.machine.state_name(), StateName::Orphan, "and it is patient again");
    rig.advance(2 * SECOND);
    assert_eq!(rig.machine.state_name(), StateName::Leader);
}

#[test]
fn tu_42_a_hold_is_lost_when_the_process_was_paused_for_half_of_the_grace() {
    for (pause, lost) in [(2000, false), (2600, true)] {
        let mut rig = leader();
        rig.command(Command::Hold { limit: 60 * SECOND });
        rig.sleep(pause * MILLI);
        rig.wake();
        assert_eq!(has(&rig, "reason: Stalled"), lost, "{pause} ms");
    }
    assert_eq!((Config::lan().grace(), Config::lan().pause_max()), (5 * SECOND, 2500 * MILLI));
}

#[test]
fn tu_42_a_hold_is_safe_for_the_grace_and_says_so() {
    let mut rig = leader();
    let keep = Command::Keep { hold: RequestId(1) };
    rig.command(Command::Hold { limit: 60 * SECOND });
    rig.advance(SECOND);
    rig.command(keep.clone());
    assert!(has(&rig, "Reply 2 Kept { left_micros: 5000000, limit_micros: 59000000 }"), "{:?}", rig.log);
    rig.sleep(3 * SECOND);
    rig.command(keep);
    assert!(has(&rig, "Reply 3 NotHeld"), "an agent that was paused says no before anything else");
}

#[test]
fn tu_42_a_holder_that_reaches_less_than_half_of_the_ring_loses_its_hold() {
    let ring = [entry(2), entry(3), entry(4), entry(5), entry(1)];
    let mut rig = waiter();
    give(&mut rig, 1, 2, 77, &ring, &counts(&[(12, 4)]));
    rig.command(Command::Hold { limit: 60 * SECOND });
    assert!(rig.machine.held().is_some());
    for node in [2, 3] {
        rig.command(Command::MemberUnreachable(ip(node)));
    }
    rig.advance(3 * SECOND);
    assert!(rig.machine.held().is_some(), "three of five are reached");
    rig.command(Command::MemberUnreachable(ip(4)));
    rig.advance(SECOND);
    assert!(has(&rig, "reason: CutOff") && rig.machine.held().is_none());
    rig.command(Command::Hold { limit: 60 * SECOND });
    rig.advance(SECOND);
    assert!(rig.machine.held().is_none(), "nor does it give another turn");
}

#[test]
fn tu_42_a_token_that_waited_in_the_kernel_of_a_paused_node_is_not_taken() {
    let mut rig = of_a_ring();
    let hash = rig.machine.list().hash();
    let stream = offer(&mut rig, 2, 2, 77, hash);
    rig.sleep(30 * SECOND);
    let data = bytes(&Message::Tp5 { data: counts(&[(12, 9)]) });
    assert_eq!(
        rig.stream(stream, StreamEvent::Data(&data)),
        Err(Refusal::Reject("the pass took too long")),
        "it may have been restored meanwhile"
    );
    assert_ne!(rig.machine.state_name(), StateName::Leader);
}

#[test]
fn tu_42_a_leader_that_was_paused_in_a_pass_first_reads_the_events_of_the_kernel() {
    let (mut rig, stream) = passing();
    rig.stream(stream, StreamEvent::Data(&[0x41])).unwrap();
    rig.sleep(1800 * MILLI);
    rig.wake();
    assert!(
        !has(&rig, "PassFailed"),
        "the deadline is over, but the news of the FIN may wait behind the timer"
    );
    rig.stream(stream, StreamEvent::Sent { bytes: 9, fin: true }).unwrap();
    assert_eq!(rig.machine.state_name(), StateName::Waiter);
}

#[test]
fn tu_43_a_restore_raises_the_fence_to_the_wall_clock() {
    let mut rig = of_a_ring();
    rig.now.wall = Wall::from_micros(1_790_000_000_000_000);
    rig.advance(17 * SECOND);
    assert_eq!(rig.machine.state_name(), StateName::Leader);
    assert!(rig.machine.fence() > Some(1_790_000_000_000_000), "{:?}", rig.machine.fence());
    assert!(rig.machine.fence() < Some(1 << 53), "every reader of JSON holds it");
}

#[test]
fn tu_43_no_hold_at_or_below_a_fence_that_the_node_has_seen() {
    let mut ledger = Ledger::new();
    let tenure = TenureInfo {
        host_id: host(OWN),
        token_id: id(5),
        restored: None,
        merged: Vec::new(),
        wall: Wall::default(),
    };
    let fence = |ledger: &mut Ledger, sum: u64| match ledger.next(&tenure, &counts(&[(12, sum)])) {
        Answer::Now(next) => {
            ledger.used();
            next.fence
        }
        _ => None,
    };
    assert_eq!(fence(&mut ledger, 10), Some(11));
    // A token with higher numbers came and was discarded.
    assert!(ledger.accepts(&counts(&[(12, 500)])));
    assert_eq!(fence(&mut ledger, 11), None, "12 is below 500");
    assert_eq!(fence(&mut ledger, 500), Some(501));
}

#[test]
fn a_client_that_disconnects_loses_its_place_at_once() {
    let mut rig = leader();
    rig.command(Command::HoldAs { key: 1, limit: 60 * SECOND });
    rig.command(Command::HoldAs { key: 2, limit: 60 * SECOND });
    rig.command(Command::HoldAs { key: 3, limit: 60 * SECOND });
    rig.command(Command::Withdraw { key: 2 });
    assert!(has(&rig, "Reply 2 NotHeld"), "it waited");
    rig.command(Command::Withdraw { key: 1 });
    assert!(has(&rig, "TokenReleased { hold: RequestId(1)"), "it held");
    rig.advance(300 * MILLI);
    let fence = rig.machine.held().unwrap();
    assert!(has(&rig, &format!("Reply 3 Held {{ fence: {fence}, hold: RequestId(3) }}")));
    rig.command(Command::Withdraw { key: 2 });
    assert!(has(&rig, "Reply 6 NotHeld"), "there is none any more");
    rig.command(Command::Release { hold: RequestId(3) });
}

#[test]
fn tu_40_the_death_of_the_holder_starts_the_election_at_once() {
    let mut rig = of_a_ring();
    rig.command(Command::MemberUnreachable(ip(9)));
    assert_eq!(rig.machine.state_name(), StateName::Waiter, "another node");
    rig.command(Command::MemberUnreachable(ip(2)));
    assert_eq!(rig.machine.state_name(), StateName::Orphan, "the node that this one passed the token to");
    rig.advance(5 * SECOND);
    assert_eq!(
        rig.machine.state_name(),
        StateName::Orphan,
        "but it may be cut off only: the grace period stays"
    );
}

#[test]
fn ja_53_a_node_on_another_port_is_remembered_after_two_tr1() {
    let mut rig = leader();
    let stray: SocketAddr = "127.0.0.9:50505".parse().unwrap();
    for number in 100..140 {
        let tr1 = Message::Tr1 { token_id: id(5).free(), host_id: host(number), tcp_port: 9 };
        rig.datagram(UDP, stray, &bytes(&tr1)).unwrap();
        rig.advance(100 * MILLI);
    }
    assert_eq!(rig.machine.list().nodes(), [entry(1)], "random bytes make no nodes");
    let foreign: SocketAddr = "127.0.0.3:50505".parse().unwrap();
    for _ in 0..2 {
        rig.datagram(UDP, foreign, &bytes(&tr1(3, 5))).unwrap();
    }
    rig.advance(500 * MILLI);
    assert_eq!(rig.machine.list().nodes(), [entry(1), entry(3)]);
}

#[test]
fn a_token_that_cannot_be_read_is_reported_with_its_sender() {
    let mut rig = of_a_ring();
    let hash = rig.machine.list().hash();
    let stream = offer(&mut rig, 2, 2, 77, hash);
    rig.stream(stream, StreamEvent::Data(&bytes(&Message::Tp5 { data: b"\xac\xed\x00\x05t".to_vec() })))
        .unwrap();
    rig.stream(stream, StreamEvent::Finished).unwrap();
    assert!(has(&rig, "TokenRefused { from: 127.0.0.2, host_id: Some(HostId(12)) }"), "{:?}", rig.log);
    let status = rig.machine.status(rig.now.mono);
    assert_eq!(status.refused_tokens, [RefusedTokens { from: ip(2), count: 1 }]);
}

#[test]
fn a_node_after_which_the_token_is_lost_again_and_again_is_named_and_left_out() {
    // Node 2 has led never, or once, and not since.
    for (led, losses) in [(0, 2), (1, 3)] {
        let mut rig = waiter();
        let nodes = [entry(1), entry(2), entry(3)];
        give(&mut rig, 1, 3, 77, &nodes, &counts(&[(12, led), (13, 4)]));
        for n in 1..=losses {
            assert!(!has(&rig, "NodeLeftOut"));
            pass_on(&mut rig);
            // Node 3 restores the token.
            give(&mut rig, 1 + n, 3, 77 - 10 * n as u32, &nodes, &counts(&[(12, led), (13, 4 + n)]));
        }
        let named = format!("NodeLeftOut {{ host_id: HostId(12), losses: {losses} }}");
        assert!(has(&rig, &named), "{:?}", rig.log);
        rig.advance(50 * MILLI);
        assert!(has(&rig, "to 127.0.0.3:4001"), "the round goes on without it: {:?}", rig.log);
        let status = rig.machine.status(rig.now.mono);
        assert_eq!(status.nodes.iter().map(|node| node.left_out).collect::<Vec<_>>(), [false, true, false]);
    }
}

#[test]
fn ja_32b_a_node_that_restores_the_token_itself_blames_only_a_node_that_never_led() {
    for (led, blamed_at) in [(0, Some(3)), (1, None)] {
        let mut rig = waiter();
        let nodes = [entry(1), entry(2), entry(3)];
        give(&mut rig, 1, 3, 77, &nodes, &counts(&[(12, led), (13, 4)]));
        for lost in 1..=3 {
            pass_on(&mut rig);
            // Node 2 may have led since: this node's own data does not say.
            let since = rig.now.mono;
            while rig.machine.state_name() != StateName::Leader {
                rig.advance(10 * MILLI);
                assert!(rig.now.mono.since(since) < 20 * SECOND, "it restores the token");
            }
            assert_eq!(has(&rig, "NodeLeftOut"), blamed_at == Some(lost), "{lost}: {:?}", rig.log);
        }
    }
}

#[test]
fn ja_32c_a_node_of_another_application_denies_no_restore_and_gets_no_token() {
    for (data, is_foreign) in [(&b"\xac\xed\x00\x05t"[..], true), (b"\0\0\0\x09{", false)] {
        let mut rig = of_a_ring();
        let hash = rig.machine.list().hash();
        let stream = offer(&mut rig, 2, 2, 77, hash);
        rig.stream(stream, StreamEvent::Data(&bytes(&Message::Tp5 { data: data.to_vec() }))).unwrap();
        assert_eq!(rig.stream(stream, StreamEvent::Finished).is_ok(), is_foreign);
        let state = if is_foreign { StateName::Orphan } else { StateName::Waiter };
        assert_eq!(rig.machine.status(rig.now.mono).state, state, "the token may be lost behind it");
        rig.advance(if is_foreign { 100 * MILLI } else { 10 * SECOND + 100 * MILLI });
        let denies = rig.datagram(UDP, udp(2), &bytes(&Message::Tr2 { token_id: id(1).held() })).is_ok();
        assert_eq!(denies, !is_foreign, "data that was cut short says nothing about its sender");
        if is_foreign {
            rig.advance(10 * SECOND);
            let status = rig.machine.status(rig.now.mono);
            assert_eq!(status.state, StateName::Leader);
            let left_out = |host| status.nodes.iter().any(|node| node.host_id == host && node.left_out);
            assert!(left_out(super::host(12)), "{:?}", status.nodes);
        }
    }
}

#[test]
fn a_node_that_has_never_led_is_not_left_out_after_one_loss() {
    let mut rig = waiter();
    let nodes = [entry(1), entry(2), entry(3)];
    give(&mut rig, 1, 3, 77, &nodes, &counts(&[(13, 4)]));
    pass_on(&mut rig);
    give(&mut rig, 2, 3, 60, &nodes, &counts(&[(13, 5)]));
    assert!(!has(&rig, "NodeLeftOut"), "a crash looks the same");
}

#[test]
fn ja_32b_a_tr1_with_another_id_after_the_wait_leaves_a_node_out_after_one_loss() {
    for (wait, asked, is_out) in [(10, 5, true), (10, 77, false), (3, 5, false)] {
        let mut rig = waiter();
        let nodes = [entry(1), entry(2), entry(3)];
        give(&mut rig, 1, 3, 77, &nodes, &counts(&[(13, 4)]));
        pass_on(&mut rig);
        rig.advance(wait * SECOND);
        let _ = rig.datagram(UDP, udp(2), &bytes(&tr1(2, asked)));
        // Its second try has another id, whatever it had before.
        let _ = rig.datagram(UDP, udp(2), &bytes(&tr1(2, 6)));
        give(&mut rig, 2, 3, 60, &nodes, &counts(&[(13, 5)]));
        assert_eq!(has(&rig, "NodeLeftOut { host_id: HostId(12), losses: 1 }"), is_out, "{wait} {asked}");
    }
}

/// A slow network: this node resets the stream at its deadline, and so loses the token itself.
#[test]
fn ja_32b_a_token_that_was_lost_by_our_own_reset_is_hardly_evidence() {
    for (led, blamed_at) in [(0, Some(3)), (1, None)] {
        let mut rig = waiter();
        let nodes = [entry(1), entry(2), entry(3)];
        give(&mut rig, 1, 3, 77, &nodes, &counts(&[(12, led), (13, 4)]));
        for lost in 1..=4 {
            let stream = pass_unread(&mut rig);
            rig.take_log();
            rig.advance(10 * SECOND);
            assert!(has(&rig, &format!("Abort {stream}")), "{:?}", rig.log);
            let _ = rig.datagram(UDP, udp(2), &bytes(&tr1(2, 5)));
            let token = 77 - 10 * lost as u32;
            give(&mut rig, 1 + lost, 3, token, &nodes, &counts(&[(12, led), (13, 4 + lost)]));
            assert_eq!(has(&rig, "NodeLeftOut"), blamed_at == Some(lost), "{led} {lost}: {:?}", rig.log);
            if blamed_at == Some(lost) {
                break;
            }
        }
    }
}

#[test]
fn ja_32b_a_candidate_that_asks_with_the_id_of_the_token_has_taken_it() {
    for (asks, blamed_at) in [(true, None), (false, Some(3))] {
        let mut rig = waiter();
        let nodes = [entry(1), entry(2), entry(3)];
        give(&mut rig, 1, 3, 77, &nodes, &counts(&[(12, 1), (13, 4)]));
        for lost in 1..=3 {
            let token = 77 - 10 * (lost - 1) as u32;
            pass_on(&mut rig);
            if asks {
                let _ = rig.datagram(UDP, udp(2), &bytes(&tr1(2, token)));
            }
            give(&mut rig, 1 + lost, 3, token - 10, &nodes, &counts(&[(12, 1), (13, 4 + lost)]));
            assert_eq!(has(&rig, "NodeLeftOut"), blamed_at == Some(lost), "{asks} {lost}: {:?}", rig.log);
        }
    }
}

#[test]
fn ja_32b_a_node_is_left_out_for_thirty_times_renew_timeout() {
    let mut rig = waiter();
    let nodes = [entry(1), entry(2), entry(3)];
    give(&mut rig, 1, 3, 77, &nodes, &counts(&[(13, 4)]));
    for n in 1..=2 {
        pass_on(&mut rig);
        give(&mut rig, 1 + n, 3, 77 - 10 * n as u32, &nodes, &counts(&[(13, 4 + n)]));
    }
    let is_out = |rig: &Rig<Jitterbug<Ledger>>| rig.machine.status(rig.now.mono).nodes[1].left_out;
    rig.sleep(299 * SECOND);
    assert!(is_out(&rig));
    rig.sleep(SECOND);
    assert!(!is_out(&rig), "renew_timeout is 10 s");
}

#[test]
fn a_node_that_brings_a_token_is_not_blamed_for_a_loss() {
    let mut rig = waiter();
    let nodes = [entry(1), entry(2), entry(3)];
    give(&mut rig, 1, 3, 77, &nodes, &counts(&[(13, 4)]));
    for (n, token) in [(2, 60), (3, 50), (4, 40)] {
        pass_on(&mut rig);
        give(&mut rig, n, 2, token, &nodes, &counts(&[(13, 4 + n)]));
        assert!(!has(&rig, "NodeLeftOut"), "{:?}", rig.log);
    }
}

#[test]
fn a_node_that_counts_its_tenures_is_not_blamed_for_a_loss() {
    let mut rig = waiter();
    let nodes = [entry(1), entry(2), entry(3)];
    give(&mut rig, 1, 3, 77, &nodes, &counts(&[(13, 4)]));
    for n in 2..6 {
        pass_on(&mut rig);
        // It was lost behind node 2, whose count is in the data by now.
        give(&mut rig, n, 3, 70 - n as u32, &nodes, &counts(&[(12, n), (13, 4)]));
        assert!(!has(&rig, "NodeLeftOut"));
    }
}

#[test]
fn fields_of_others_are_merged_as_one_unit() {
    let document = |json: &str| Document::from_json(json.as_bytes()).unwrap();
    let a = document(r#"{"counts":{"1":2},"numerator":9,"denominator":1}"#);
    let b = document(r#"{"counts":{"2":2},"numerator":1,"denominator":7}"#);
    for merged in [a.merge(&b), b.merge(&a)] {
        assert!(merged.rest == a.rest || merged.rest == b.rest, "{:?}", merged.rest);
    }
    assert_eq!(a.merge(&b), b.merge(&a));
    let later = document(r#"{"counts":{"1":3},"numerator":0,"denominator":1}"#);
    assert_eq!(a.merge(&later).rest, later.rest, "the descendant's");
    let bare = document(r#"{"counts":{"1":4}}"#);
    assert_eq!(bare.merge(&a).rest, a.rest, "a node that drops them does not end them");
}

#[test]
fn availability_counts_no_hold_of_another_node_as_a_loss() {
    let mut rig = waiter();
    let nodes = [entry(2), entry(1)];
    for n in 1..20 {
        give(&mut rig, n, 2, 77, &nodes, &counts(&[(12, 4 * n)]));
        pass_on(&mut rig);
        rig.advance(50 * MILLI);
    }
    // Node 2 holds for a minute; this node sends TR1 now and then, and gets its answer.
    for _ in 0..60 {
        rig.advance(SECOND);
        if rig.machine.state_name() == StateName::Orphan {
            hear(&mut rig, 2, &Message::Tr2 { token_id: id(77).held() }).unwrap();
        }
        let availability = rig.machine.status(rig.now.mono).availability;
        assert!(availability > 0.9, "{availability}");
    }
    give(&mut rig, 30, 2, 77, &nodes, &counts(&[(12, 400)]));
    assert!(rig.machine.status(rig.now.mono).availability > 0.98);
    pass_on(&mut rig);
    rig.advance(20 * SECOND);
    give(&mut rig, 31, 2, 55, &nodes, &counts(&[(12, 401)]));
    assert!(rig.machine.status(rig.now.mono).availability < 0.9, "that one was lost");
}

#[test]
fn opaque_data_goes_round_unchanged_and_takes_turns() {
    let mut rig = Rig::new(Jitterbug::new(&config(), Opaque::new(), [7; 32]).unwrap());
    rig.now.wall = Wall::from_micros(5_000_000);
    rig.start();
    hear(&mut rig, 9, &Message::Tr2 { token_id: id(5).held() }).unwrap();
    let object = b"\xac\xed\x00\x05ur\x00\x02[I".to_vec();
    rig.command(Command::Hold { limit: SECOND });
    give(&mut rig, 1, 2, 77, &[entry(2), entry(1)], &object);
    assert_eq!(rig.machine.data(), object);
    let fence = rig.machine.held().unwrap();
    assert!(fence >= 5_000_000);
    rig.advance(2 * SECOND);
    assert_eq!(rig.machine.data(), object, "to the last byte");
    let set = Set { key: "a".into(), value: 1_u64.into() };
    rig.command(Command::Change { change: set, wait: SECOND });
    assert!(has(&rig, "Refused"), "it has no values");
    // A restart continues above it, even if the wall clock went back.
    let mut again = Rig::new(Jitterbug::new(&config(), Opaque::new(), [8; 32]).unwrap());
    again.disk = rig.disk.clone();
    again.start();
    again.advance(1300 * MILLI);
    assert!(again.machine.fence() > Some(fence));
    let mut merging = Opaque::new();
    assert_eq!(merging.merge(b"own", b"received"), Answer::Now(b"received".to_vec()));
    assert_eq!(merging.merge(b"own", b""), Answer::Now(b"own".to_vec()));
}

#[test]
fn tu_31_data_names_the_group_of_voters_and_a_node_that_receives_it_reports_it() {
    let document = |json: &str| Document::from_json(json.as_bytes()).unwrap();
    let group = "0123456789abcdef0123456789abcdef";
    let named = document(&format!(r#"{{"counts":{{"12":1}},"turns":{{"group":"{group}"}}}}"#));
    assert_eq!(named.turns.as_deref(), Some(group));
    assert_eq!(document(named.to_json().text()), named);
    let bare = document(r#"{"counts":{"12":2}}"#);
    assert_eq!(
        (bare.merge(&named).turns, named.merge(&bare).turns),
        (named.turns.clone(), named.turns.clone())
    );
    let theirs = document(r#"{"counts":{},"turns":{"group":"ours"},"other":1}"#);
    assert_eq!(
        (theirs.turns.as_ref(), theirs.rest.len()),
        (None, 2),
        "a field of others with that name is theirs"
    );

    let mut rig = waiter();
    let nodes = [entry(1), entry(2)];
    give(&mut rig, 1, 2, 77, &nodes, &bare.to_data());
    assert_eq!(rig.machine.status(rig.now.mono).voters, None);
    pass_on(&mut rig);
    give(&mut rig, 2, 2, 77, &nodes, &named.to_data());
    assert_eq!(rig.machine.status(rig.now.mono).voters.as_deref(), Some(group));
    // A node with voters of its own declares them in its next tenure.
    pass_on(&mut rig);
    rig.command(Command::DeclareVoters("f".repeat(32)));
    give(&mut rig, 3, 2, 77, &nodes, &bare.to_data());
    assert_eq!(Document::from_data(rig.machine.data()).unwrap().turns, Some("f".repeat(32)));
}
