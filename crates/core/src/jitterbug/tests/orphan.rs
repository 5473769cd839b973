//! token_restore, from both sides.

use super::*;
use crate::machine::{Machine, Refusal};
use crate::rng::Rng;

/// The ids of all TR1 broadcast so far.
fn tried(rig: &Rig<Jitterbug<Ledger>>) -> Vec<i32> {
    let asked = rig.log.iter().filter_map(|line| line.strip_prefix("Broadcast 0:0 01"));
    asked
        .map(|hex| {
            i32::from_str_radix(&hex[..8], 16)
                .unwrap_or_else(|_| u32::from_str_radix(&hex[..8], 16).unwrap() as i32)
        })
        .collect()
}

#[test]
fn j_23_a_new_node_is_an_orphan_and_so_is_one_that_waited_too_long() {
    let mut rig = started(&config());
    assert_eq!(rig.machine.state_name(), StateName::Orphan);
    hear(&mut rig, 9, &Message::Tr2 { token_id: id(5).held() }).unwrap();
    rig.advance(10 * SECOND - MILLI);
    assert_eq!(rig.machine.state_name(), StateName::Waiter);
    rig.advance(MILLI);
    assert_eq!(rig.machine.state_name(), StateName::Orphan);
}

#[test]
fn j_24_an_orphan_alone_makes_a_ring_of_its_own() {
    let mut rig = started(&config());
    rig.advance(1200 * MILLI);
    assert_eq!(rig.machine.state_name(), StateName::Leader);
    rig.advance(SECOND);
    assert_eq!(rig.machine.list().nodes(), [entry(1)]);
}

#[test]
fn j_25_after_a_restore_the_node_is_waiter_or_leader() {
    let mut granted = started(&config());
    let mut denied = started(&config());
    hear(&mut denied, 9, &Message::Tr2 { token_id: id(1).free() }).unwrap();
    for rig in [&mut granted, &mut denied] {
        rig.advance(1200 * MILLI);
    }
    assert_eq!(granted.machine.state_name(), StateName::Leader);
    assert_eq!(denied.machine.state_name(), StateName::Waiter);
}

#[test]
fn j_26_jf_15_a_token_may_arrive_in_either_try_of_a_restore() {
    for wait in [100, 700] {
        let mut rig = started(&config());
        rig.advance(wait * MILLI);
        give(&mut rig, 1, 2, 77, &[entry(2)], &counts(&[(12, 4)]));
        assert_eq!(rig.machine.state_name(), StateName::Leader, "after {wait} ms");
        assert_eq!(rig.machine.token_id(), id(77));
    }
}

#[test]
fn j_28_a_waiter_without_messages_becomes_an_orphan() {
    let mut rig = waiter();
    hear(&mut rig, 3, &tr1(3, 9)).unwrap();
    rig.advance(10 * SECOND);
    assert_eq!(rig.machine.state_name(), StateName::Orphan, "a TR1 is no reason to wait longer");
}

#[test]
fn j_37_a_try_sends_tr1_tr_count_times_at_its_interval() {
    let mut rig = started(&config());
    let own = rig.machine.token_id().free().number();
    let sent: Vec<usize> = (0..6)
        .map(|_| {
            let sent = tried(&rig).len();
            rig.advance(100 * MILLI);
            sent
        })
        .collect();
    assert_eq!(sent, [1, 1, 2, 2, 3, 3]);
    assert_eq!(tried(&rig)[..3], [own; 3]);
    let first = rig.log.iter().find(|line| line.starts_with("Broadcast")).unwrap().clone();
    let expected = Message::Tr1 { token_id: SignedId::new(own).unwrap(), host_id: host(OWN), tcp_port: PORT };
    assert_eq!(first, format!("Broadcast 0:0 {}", crate::Hex(&bytes(&expected))));
}

#[test]
fn j_38_a_try_waits_for_answers_until_one_interval_after_its_last_tr1() {
    let mut rig = started(&config());
    rig.advance(599 * MILLI);
    let own = rig.machine.token_id();
    assert_eq!(tried(&rig).len(), 3);
    rig.advance(MILLI);
    assert_ne!(rig.machine.token_id(), own, "granted: a new id");
    assert_eq!(tried(&rig).len(), 4, "and the second try begins");
}

#[test]
fn j_39_a_restore_is_aborted_by_a_token_even_if_it_is_passed_on_at_once() {
    let mut rig = started(&config());
    rig.advance(700 * MILLI);
    let asked = tried(&rig).len();
    give(&mut rig, 1, 2, 77, &[entry(2), entry(1)], &counts(&[(12, 4)]));
    rig.advance(60 * MILLI);
    let stream = StreamId::opened(1);
    rig.stream(stream, StreamEvent::Data(&[0x41])).unwrap();
    rig.stream(stream, StreamEvent::Sent { bytes: 9, fin: true }).unwrap();
    assert_eq!(rig.machine.state_name(), StateName::Waiter);
    rig.advance(5 * SECOND);
    assert_eq!(rig.machine.state_name(), StateName::Waiter, "no leadership from a stale timer");
    assert_eq!(tried(&rig).len(), asked, "and no more questions");
}

#[test]
fn j_40_the_answer_of_a_leader_denies_at_once() {
    let mut rig = started(&config());
    hear(&mut rig, 9, &Message::Tr2 { token_id: TokenId::MAX.held() }).unwrap();
    assert_eq!(rig.machine.state_name(), StateName::Waiter);
    assert_eq!(rig.machine.counted().restores_denied, 1);
}

#[test]
fn j_41_a_greater_id_without_a_token_denies_at_the_end() {
    let mut rig = started(&config());
    let own = rig.machine.token_id().magnitude();
    hear(&mut rig, 9, &Message::Tr2 { token_id: id(own - 1).free() }).unwrap();
    assert_eq!(rig.machine.state_name(), StateName::Orphan, "the try goes on");
    rig.advance(600 * MILLI);
    assert_eq!(rig.machine.state_name(), StateName::Waiter);
}

#[test]
fn j_42_equal_and_lower_ids_do_not_deny() {
    let mut rig = started(&config());
    let own = rig.machine.token_id().magnitude();
    for other in [own, own + 1] {
        hear(&mut rig, 9, &Message::Tr2 { token_id: id(other).free() }).unwrap();
    }
    rig.advance(600 * MILLI);
    assert_eq!(tried(&rig).len(), 4, "the second try is under way");
}

#[test]
fn j_43_the_first_try_is_made_with_the_own_id() {
    let mut rig = waiter();
    let own = rig.machine.token_id().free().number();
    rig.advance(10 * SECOND);
    assert_eq!(tried(&rig), [own]);
}

#[test]
fn j_44_a_granted_first_try_draws_a_new_id_that_beats_the_old() {
    let mut rng = Rng::from_number(1, 0);
    for magnitude in [u32::MAX >> 1, 1 << 25, (1 << 16) + 1] {
        for _ in 0..1000 {
            let drawn = Draw::Better.draw(&mut rng, id(magnitude));
            assert!(drawn.free() > id(magnitude).free(), "{drawn} beats {magnitude}");
        }
    }
    let drawn: Vec<TokenId> = (0..100).map(|_| Draw::Better.draw(&mut rng, id(1000))).collect();
    assert!(drawn.iter().any(|id| id.magnitude() > 1 << 20), "too few are left: drawn from all");
    assert!((0..100).any(|_| Draw::Any.draw(&mut rng, id(1 << 30)).magnitude() > 1 << 30));
}

#[test]
fn j_44_the_better_ids_last_for_hundreds_of_restores() {
    let mut rng = Rng::from_number(2, 0);
    let (mut current, mut restores) = (id(1 << 30), 0);
    loop {
        let next = Draw::Better.draw(&mut rng, current);
        if next.free() < current.free() {
            break;
        }
        (current, restores) = (next, restores + 1);
    }
    assert!(restores > 300, "{restores}");
}

#[test]
fn j_45_the_second_try_is_made_with_the_new_id() {
    let mut rig = started(&config());
    rig.advance(1199 * MILLI);
    let tried = tried(&rig);
    assert_eq!(tried.len(), 6);
    assert_eq!(tried[3..], [rig.machine.token_id().free().number(); 3]);
    assert_ne!(tried[0], tried[3]);
}

#[test]
fn j_46_two_granted_tries_make_a_leader() {
    let mut rig = started(&config());
    rig.advance(1199 * MILLI);
    assert_eq!(rig.machine.state_name(), StateName::Orphan);
    rig.advance(MILLI);
    assert_eq!(rig.machine.state_name(), StateName::Leader);
    assert!(has(&rig, "TokenRestored"));
}

#[test]
fn j_47_a_denied_second_try_makes_a_waiter() {
    let mut rig = started(&config());
    rig.advance(700 * MILLI);
    hear(&mut rig, 9, &Message::Tr2 { token_id: id(1).free() }).unwrap();
    rig.advance(500 * MILLI);
    assert_eq!(rig.machine.state_name(), StateName::Waiter);
}

#[test]
fn j_48_a_denied_first_try_makes_a_waiter_and_keeps_the_id() {
    let mut rig = started(&config());
    let own = rig.machine.token_id();
    hear(&mut rig, 9, &Message::Tr2 { token_id: id(1).free() }).unwrap();
    rig.advance(600 * MILLI);
    assert_eq!((rig.machine.state_name(), rig.machine.token_id()), (StateName::Waiter, own));
    // JA-24 (ii): the wait begins with the denial.
    rig.advance(10 * SECOND - MILLI);
    assert_eq!(rig.machine.state_name(), StateName::Waiter);
}

#[test]
fn j_49_every_tr1_is_acted_on_but_the_own_echo_is_not() {
    let mut rig = waiter();
    for _ in 0..2 {
        hear(&mut rig, 3, &tr1(3, TokenId::MAX.magnitude())).unwrap();
    }
    assert_eq!(count_lines(&rig, "Send"), 2);
    rig.take_log();
    hear(&mut rig, 1, &tr1(1, TokenId::MAX.magnitude())).unwrap();
    assert_eq!(rig.log, Vec::<String>::new(), "host, address and port are ours");
    assert_eq!(rig.machine.counted().echoes, 1);
}

#[test]
fn j_50_a_leader_answers_with_its_positive_id() {
    let mut rig = leader();
    let answer = bytes(&Message::Tr2 { token_id: rig.machine.token_id().held() });
    hear(&mut rig, 3, &tr1(3, 1)).unwrap();
    assert_eq!(rig.log, [format!("Send 0:0 to 127.0.0.3:30041 {}", crate::Hex(&answer))]);
}

#[test]
fn j_51_a_greater_id_is_not_answered() {
    let mut rig = waiter();
    let own = rig.machine.token_id().magnitude();
    hear(&mut rig, 3, &tr1(3, own - 1)).unwrap();
    assert_eq!(count_lines(&rig, "Send"), 0);
}

#[test]
fn j_52_equal_and_lower_ids_are_answered_to_the_rings_port() {
    let mut rig = waiter();
    let own = rig.machine.token_id().magnitude();
    let answer = bytes(&Message::Tr2 { token_id: id(own).free() });
    for other in [own, own + 1] {
        rig.take_log();
        let from = SocketAddr::new(ip(3), 40_404);
        rig.datagram(UDP, from, &bytes(&tr1(3, other))).unwrap();
        assert_eq!(rig.log, [format!("Send 0:0 to 127.0.0.3:30041 {}", crate::Hex(&answer))], "JA-22");
    }
}

#[test]
fn j_53_the_sender_of_a_tr1_is_remembered_in_every_state() {
    let orphan = started(&config());
    let leading = leader();
    for (name, mut rig) in [("orphan", orphan), ("waiter", waiter()), ("leader", leading)] {
        // JA-20: also if its id is so good that it is not answered.
        hear(&mut rig, 3, &tr1(3, 1)).unwrap();
        let before = rig.machine.list().clone();
        assert!(!before.contains(host(13)), "J-5: only a leader's round adds it");
        rig.command(Command::Status);
        assert!(has(&rig, "waiting: 2"), "{name}: itself and the asker");
    }
}

#[test]
fn j_19_a_foreign_node_with_our_host_id_is_reported_and_answered() {
    let mut rig = waiter();
    let clone = Message::Tr1 { token_id: TokenId::MAX.free(), host_id: host(OWN), tcp_port: PORT };
    hear(&mut rig, 3, &clone).unwrap();
    hear(&mut rig, 3, &clone).unwrap();
    assert_eq!(count_lines(&rig, "DuplicateHostId { at: 127.0.0.3:4001 }"), 1, "reported once");
    assert_eq!(count_lines(&rig, "Send"), 2);
    rig.command(Command::Status);
    assert!(has(&rig, "waiting: 1"), "only ourselves");
}

#[test]
fn j_19_a_host_id_is_drawn_stored_and_read_again() {
    let config = Config { host_id: None, ..config() };
    let rig = started(&config);
    let drawn = rig.machine.host_id();
    assert!(drawn.number() >= 1);
    let mut again = Rig::new(Jitterbug::new(&config, Ledger::new(), [8; 32]).unwrap());
    again.disk = rig.disk.clone();
    again.start();
    assert_eq!(again.machine.host_id(), drawn);
    let kept = Identity::from_bytes(&rig.disk[&(SPACE, IDENTITY_KEY.to_vec())]);
    assert_eq!(kept, Some(Identity { host_id: drawn, tcp_port: PORT }));
    let mut broken = Rig::new(Jitterbug::new(&config, Ledger::new(), [8; 32]).unwrap());
    broken.disk.insert((SPACE, IDENTITY_KEY.to_vec()), b"?".to_vec());
    broken.start();
    assert!(has(&broken, "StoreFailed") && has(&broken, "Started"));
    assert_eq!(broken.disk[&(SPACE, IDENTITY_KEY.to_vec())], b"?", "it is not overwritten");
}

#[test]
fn j_17_one_udp_port_for_all_and_j_18_any_tcp_port() {
    let endpoints = node(&config()).endpoints();
    assert_eq!(endpoints.sockets[0].bind, udp(1));
    assert_eq!(endpoints.sockets[0].broadcast, [udp(255)]);
    let any = node(&Config { tcp_port: 0, ..config() });
    assert_eq!(any.endpoints().listeners[0].bind.port(), 0);
}

#[test]
fn j_18_the_announced_port_is_the_bound_one() {
    let mut machine = node(&Config { tcp_port: 0, ..config() });
    let bound = crate::Bound {
        sockets: vec![],
        listeners: vec![(TCP, SocketAddr::new(ip(1), 777))],
        ..crate::Bound::default()
    };
    let mut queue = crate::Queue::new();
    machine.handle_start(crate::Now::default(), &bound, &mut queue.outbox());
    assert_eq!(machine.status(crate::Instant::ZERO).addr, SocketAddr::new(ip(1), 777));
}

#[test]
fn j_21_a_node_has_one_entry_and_its_first_address_stays() {
    let mut rig = leader();
    hear(&mut rig, 3, &tr1(3, 1)).unwrap();
    rig.advance(300 * MILLI);
    assert_eq!(rig.machine.list().addr(host(13)), Some(entry(3).addr));
    let v6: SocketAddr = "[2001:db8::3]:30041".parse().unwrap();
    rig.datagram(UDP, v6, &bytes(&tr1(3, 1))).unwrap();
    // It still answers at the first address, so there is no reason to move it.
    let listed = rig.machine.list().nodes().iter().filter(|node| node.host_id == host(13)).count();
    assert_eq!((listed, rig.machine.list().addr(host(13))), (1, Some(entry(3).addr)));
}

#[test]
fn ja_10_host_0_is_taken_over_ipv4_only() {
    let mut rig = waiter();
    let zero = bytes(&Message::Tr1 { token_id: TokenId::MAX.free(), host_id: host(0), tcp_port: 1 });
    assert_eq!(rig.datagram(UDP, udp(3), &zero), Ok(()));
    let v6 = "[2001:db8::3]:30041".parse().unwrap();
    assert!(matches!(rig.datagram(UDP, v6, &zero), Err(Refusal::Decode(_))));
}

#[test]
fn ja_17_an_answer_outside_a_try_is_ignored() {
    let mut rig = waiter();
    assert!(hear(&mut rig, 9, &Message::Tr2 { token_id: id(5).held() }).is_err());
    assert_eq!(rig.machine.counted().answers_unasked, 1);
}

#[test]
fn ja_24_restores_may_be_made_to_overlap() {
    let mut rig = Rig::new(node(&Config { restore_together: true, ..config() }));
    rig.start();
    hear(&mut rig, 9, &Message::Tr2 { token_id: id(5).held() }).unwrap();
    let own = rig.machine.token_id().magnitude();
    rig.advance(4 * SECOND);
    hear(&mut rig, 3, &tr1(3, own)).unwrap();
    assert_eq!(rig.machine.state_name(), StateName::Waiter, "too early");
    rig.advance(2 * SECOND);
    hear(&mut rig, 3, &tr1(3, own)).unwrap();
    assert_eq!(rig.machine.state_name(), StateName::Orphan);
}

#[test]
fn ja_53_tr1_of_a_source_are_limited_and_only_accepted_if_allowed() {
    let mut rig = Rig::new(node(&Config { allow: vec![(ip(0), 30)], ..config() }));
    rig.start();
    let outcomes: Vec<bool> = (0..40).map(|_| hear(&mut rig, 3, &tr1(3, 5)).is_ok()).collect();
    assert_eq!(outcomes.iter().filter(|ok| **ok).count(), 32);
    assert_eq!(hear(&mut rig, 4, &tr1(4, 5)), Err(Refusal::Reject("its network is not allowed")));
    // One more per 1/32 s, not a whole second's worth at the next second.
    rig.advance(SECOND / 32);
    let later: Vec<bool> = (0..2).map(|_| hear(&mut rig, 3, &tr1(3, 5)).is_ok()).collect();
    assert_eq!(later, [true, false]);
}

#[test]
fn addresses_beyond_the_broadcast_domain_get_tr1_as_well() {
    let mut rig = waiter();
    rig.command(Command::Ask(vec![ip(77)]));
    rig.advance(10 * SECOND);
    assert!(rig.log.iter().any(|line| line.starts_with("Send 0:0 to 127.0.0.77:30041 01")));
}

#[test]
fn many_addresses_get_tr1_in_turn_and_unreachable_ones_are_left_out() {
    let mut rig = waiter();
    let mut known: Vec<_> = (0..150_u8).map(|last| IpAddr::from([10, 0, 0, last])).collect();
    known.extend([ip(1), "::1".parse().unwrap(), "0.0.0.0".parse().unwrap(), "224.0.0.1".parse().unwrap()]);
    known.extend(known.clone());
    rig.command(Command::Ask(known));
    rig.advance(10 * SECOND);
    rig.take_log();
    let mut asked = std::collections::BTreeMap::new();
    // The rest of both tries: five more TR1.
    for _ in 0..5 {
        rig.advance(200 * MILLI);
        let sent: Vec<String> = rig.take_log().into_iter().filter(|line| line.starts_with("Send")).collect();
        assert_eq!(sent.len(), 64);
        for line in sent {
            *asked.entry(line.split(' ').nth(3).unwrap().to_owned()).or_insert(0) += 1;
        }
    }
    assert_eq!(asked.len(), 150, "every address got a TR1");
    assert!(asked.values().all(|&times| (2..=3).contains(&times)), "{asked:?}");
}
