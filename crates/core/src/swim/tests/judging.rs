//! Suspicions, last probes and refutations: how a member is judged (SA-31a, SA-31b, SA-32).

use super::*;
use crate::outbox::Queue;
use crate::time::Instant;

const SLOT: Slot = Slot::new(5);

fn at(seconds: u64) -> Instant {
    Instant::from_micros(seconds * 1_000_000)
}

fn term() -> suspicions::Term {
    suspicions::Term { least: 4 * SECOND, most: 24 * SECOND, enough: 2 }
}

/// A suspicion of incarnation 3 by node 2 since 0 s, whose last probe takes a second.
fn suspected() -> suspicions::Suspicions {
    let mut suspicions = suspicions::Suspicions::new(SECOND);
    suspicions.start(SLOT, Incarnation(3), id(2), term(), at(0));
    suspicions
}

#[test]
fn s_74_a_suspicion_is_confirmed_in_its_present_incarnation() {
    let mut suspicions = suspected();
    suspicions.renumber(SLOT, Incarnation(5));
    assert!(!suspicions.confirm(SLOT, Incarnation(3), id(3)));
    assert!(suspicions.confirm(SLOT, Incarnation(5), id(3)));
}

#[test]
fn s_r5_a_death_of_others_does_not_shorten_a_suspicion_that_was_refuted() {
    let mut suspicions = suspected();
    assert!(suspicions.refuted(SLOT, Incarnation(5)));
    let others = [5, 4].map(|number| suspicions.refuted(SLOT, Incarnation(number)));
    assert_eq!(others, [false, false], "not news");
    assert!(suspicions.refuted(SLOT, Incarnation(6)));
    suspicions.probe_now(SLOT, at(1));
    assert_eq!(suspicions.deadline(), Some(at(23)));
}

#[test]
fn s_r5_a_last_probe_under_way_is_neither_repeated_nor_confirmed() {
    let mut suspicions = suspected();
    suspicions.probe_now(SLOT, at(1));
    assert_eq!(suspicions.pop_due(at(1)), Some((SLOT, Incarnation(3))));
    suspicions.probe_now(SLOT, at(1));
    assert!(!suspicions.confirm(SLOT, Incarnation(3), id(3)));
    assert_eq!(suspicions.deadline(), None, "the judgement of the probe decides");
}

#[test]
fn s_r5_a_suspicion_that_starts_again_needs_its_confirmations_again() {
    let mut suspicions = suspected();
    assert!(
        suspicions.confirm(SLOT, Incarnation(3), id(3)) && suspicions.confirm(SLOT, Incarnation(3), id(4))
    );
    suspicions.restart(SLOT, term(), at(10));
    assert_eq!(suspicions.deadline(), Some(at(33)));
    assert!(
        suspicions.confirm(SLOT, Incarnation(3), id(3)) && suspicions.confirm(SLOT, Incarnation(3), id(4))
    );
    assert_eq!(suspicions.deadline(), Some(at(13)));
}

#[test]
fn s_119_a_pause_postpones_a_suspicion_from_its_start_on() {
    let mut suspicions = suspected();
    suspicions.postpone(10 * SECOND);
    assert_eq!(suspicions.deadline(), Some(at(33)));
    assert!(
        suspicions.confirm(SLOT, Incarnation(3), id(3)) && suspicions.confirm(SLOT, Incarnation(3), id(4))
    );
    assert_eq!(suspicions.deadline(), Some(at(13)));
}

/// The state of node 2 after a last probe with these reports of proxies was judged.
fn judged(proxies: &[(u8, bool)], answered: bool, late: Duration, refuted: bool) -> (u32, State) {
    let mut rig = wary(Preset::Lan, &[2, 3, 4, 5, 6]);
    say(&mut rig, 3, &[suspect(3, 2, 0)]);
    if refuted {
        let own = contents(2);
        say(&mut rig, 3, &[alive(&own, 2, 1)]);
    }
    let (now, target) = (rig.now, rig.machine.members().find(id(2)).unwrap());
    let probe = probes::Probe {
        sequence: Sequence(7),
        target,
        id: id(2),
        sent: now.mono,
        indirect_at: None,
        proxies: proxies.iter().map(|(n, said)| (id(*n), Some(*said))).collect(),
        answered,
        until: Some(now.mono),
    };
    rig.sleep(late);
    let (now, mut queue) = (rig.now, Queue::new());
    let Swim { lower, membership, .. } = &mut rig.machine;
    membership.judge(&mut lower.cx(now, &mut queue.outbox()), &probe);
    status(&rig, 2).unwrap()
}

#[test]
fn s_r5_the_last_probe_and_its_proxies_decide() {
    let soon = Duration::from_millis(10);
    assert_eq!(judged(&[], false, soon, false), (0, State::Dead));
    assert_eq!(judged(&[], true, soon, false), (0, State::Suspect), "it answers: the suspicion starts again");
    assert_eq!(judged(&[], true, soon, true), (1, State::Alive), "it answers, and is said to have refuted");
    assert_eq!(judged(&[(3, true), (4, false)], false, soon, false), (0, State::Suspect));
    assert_eq!(judged(&[(3, true), (4, false), (5, false)], false, soon, false), (0, State::Dead));
    // SA-32: the answer may wait in the socket of a node that was paused.
    assert_eq!(judged(&[], false, Duration::from_millis(300), false), (0, State::Suspect));
}

/// Node 2 is declared dead by others, and its last probe is under way. Returns the number of its ping.
fn last_probe(rig: &mut Rig<Swim>) -> Sequence {
    say(rig, 3, &[dead(3, 2, 0)]);
    rig.advance(Duration::from_millis(1));
    nonce_to(rig, addr(2)).expect("it is probed at once")
}

#[test]
fn s_71_one_proxy_of_three_does_not_answer_a_last_probe() {
    let mut rig = wary(Preset::Lan, &[2, 3, 4, 5, 6]);
    let sequence = last_probe(&mut rig);
    let own = contents(2);
    say(&mut rig, 3, &[alive(&own, 2, 1)]);
    rig.advance(Duration::from_millis(510));
    let asked: Vec<SocketAddr> = sent_kind(&mut rig, "IndirectPing")
        .into_iter()
        .filter(|(_, text)| text.contains(&format!("target: {:?}", id(2))))
        .filter(|(_, text)| text.contains(&format!("{sequence:?}")))
        .map(|(to, _)| to)
        .collect();
    assert_eq!(asked.len(), 3, "because a refutation was reported");
    for (place, n) in (2..=6).filter(|n| asked.contains(&addr(*n))).enumerate() {
        let header = Header { from: id(n), sequence };
        let said =
            if place == 0 { Message::IndirectAck { header } } else { Message::IndirectNack { header } };
        say(&mut rig, n, &[said]);
    }
    rig.advance(Duration::from_millis(600));
    assert_eq!(
        status(&rig, 2),
        Some((0, State::Suspect)),
        "neither acquitted nor dead: half of its time more"
    );
}

/// SA-32: a pause during the last probe ends it without a judgement. A member that stays silent dies later.
#[test]
fn s_119_a_last_probe_that_a_pause_interrupts_is_repeated() {
    let mut rig = wary(Preset::GoSwim, &[2, 3, 4]);
    last_probe(&mut rig);
    rig.sleep(10 * SECOND);
    rig.wake();
    assert_eq!(status(&rig, 2).unwrap().1, State::Suspect);
    rig.advance(30 * SECOND);
    assert_eq!(status(&rig, 2).unwrap().1, State::Dead);
}

/// SA-31a: the last probe tells what is held against its target, also where other pings do not.
#[test]
fn s_r5_a_last_probe_carries_the_accusation() {
    let settings = Settings { verify: true, buddy: false, ..quiet(Preset::GoSwim) };
    let mut rig = rig_with(&Config { settings, ..config(1, Preset::GoSwim) }, &[2, 3, 4]);
    say(&mut rig, 3, &[dead(3, 2, 0)]);
    rig.advance(Duration::from_millis(1));
    let (_, messages) = sent(&mut rig).into_iter().rfind(|(to, _)| *to == addr(2)).unwrap();
    assert!(messages[0].starts_with("Suspect") && messages[1].starts_with("Ping"), "{messages:?}");
}

#[test]
fn s_23_a_ping_to_a_suspect_requests_its_alive() {
    let mut rig = wary(Preset::Lan, &[2, 3]);
    say(&mut rig, 3, &[suspect(3, 2, 0)]);
    for wants_answer in [true, false] {
        let pings = loop {
            let (target, sequence) = next_ping(&mut rig);
            let pings = sent_kind(&mut rig, "Ping");
            say(&mut rig, target, &[ack(target, sequence)]);
            if target == 2 {
                break pings;
            }
        };
        let own = contents(2);
        let text = &pings.iter().rfind(|(to, _)| *to == addr(2)).unwrap().1;
        assert_eq!(text.contains("wants_alive: true"), wants_answer, "{text}");
        let nonce = text.split("Sequence(").nth(1).unwrap().split(')').next().unwrap().parse().unwrap();
        rig.datagram(UDP, addr(2), &packet(2, &[ack(2, Sequence(nonce)), alive(&own, 2, 1)])).unwrap();
        prove_if_asked(&mut rig, &own);
        assert_eq!(status(&rig, 2), Some((1, State::Alive)));
    }
}

/// Node 2 answers a pending question with its Alive.
fn prove_if_asked(rig: &mut Rig<Swim>, own: &OwnContents) {
    if let Some(nonce) = nonce_to(rig, addr(2)) {
        rig.datagram(UDP, addr(2), &packet(2, &[ack(2, nonce), alive(own, 2, 1)])).unwrap();
    }
}

/// SA-31b: an accusation between the proved and the claimed number makes a node probe the member itself.
#[test]
fn s_74_an_accusation_below_a_claimed_number_makes_a_node_probe() {
    for (number, pings) in [(0, 2), (6, 1)] {
        let others: Vec<u8> = (2..30).collect();
        let mut rig = wary(Preset::Lan, &others);
        let own = contents(2);
        say(&mut rig, 3, &[alive(&own, 2, 5)]);
        assert_eq!(status(&rig, 2), Some((5, State::Alive)));
        let before = rig.machine.counted().probes;
        say(&mut rig, 4, &[suspect(4, 2, number)]);
        let state = if number == 0 { State::Alive } else { State::Suspect };
        assert_eq!(status(&rig, 2).unwrap().1, state);
        next_ping(&mut rig);
        assert_eq!(rig.machine.counted().probes - before, pings, "{number}");
    }
}

/// Node 1, to which these members have proved incarnation 5.
fn proved(members: &[u8]) -> Rig<Swim> {
    let others: Vec<u8> = (2..30).collect();
    let mut rig = wary(Preset::Lan, &others);
    for n in members {
        let own = contents(*n);
        rig.datagram(UDP, addr(*n), &packet(*n, &[alive(&own, *n, 500)])).unwrap();
        prove(&mut rig, *n, addr(*n), alive(&own, *n, 5));
        assert_eq!(status(&rig, *n), Some((5, State::Alive)));
    }
    rig
}

/// SA-31b: a node alone got the last refutation of a member, which then crashed. All others declare it dead with an older
/// number, and so this node probes it at once.
#[test]
fn s_75_a_dead_with_an_older_number_makes_a_node_probe() {
    let mut rig = proved(&[2]);
    let before = rig.machine.counted().probes;
    say(&mut rig, 4, &[dead(4, 2, 4)]);
    assert_eq!(status(&rig, 2), Some((5, State::Alive)), "no word of others decides");
    next_ping(&mut rig);
    assert_eq!(rig.machine.counted().probes - before, 2);
    next_ping(&mut rig);
    assert_eq!(status(&rig, 2), Some((5, State::Suspect)));
    say(&mut rig, 4, &[dead(4, 2, 4)]);
    rig.advance(12 * SECOND);
    assert_eq!(status(&rig, 2), Some((5, State::Dead)));
}

/// SA-31b: forged Deads with older numbers cost four pings a period, and leave room for suspects.
#[test]
fn s_75_deads_with_older_numbers_cost_few_pings() {
    let all: Vec<u8> = (2..22).collect();
    let mut rig = proved(&all);
    let before = rig.machine.counted().probes;
    all.iter().for_each(|n| say(&mut rig, 29, &[dead(29, *n, 4)]));
    let own = contents(29);
    say(&mut rig, 3, &[alive(&own, 29, 6), suspect(3, 29, 0)]);
    all.iter().for_each(|n| say(&mut rig, 29, &[dead(29, *n, 4)]));
    next_ping(&mut rig);
    let probes = rig.machine.counted().probes - before;
    assert!((5..=6).contains(&probes), "the member of the period, four of these and one suspect: {probes}");
    let suspected = rig.machine.members().iter().filter(|(_, member)| member.state() != State::Alive).count();
    assert_eq!(suspected, 0);
}

/// A node that suspects a member by itself does not probe it once more to confirm that.
#[test]
fn a_node_does_not_confirm_its_own_suspicion() {
    let mut rig = rig(Preset::Lan, &[2, 3, 4]);
    let (target, _) = next_ping(&mut rig);
    while status(&rig, target).unwrap().1 == State::Alive {
        rig.advance(Duration::from_millis(10));
    }
    let before = rig.machine.counted().probes;
    next_ping(&mut rig);
    assert!(rig.machine.counted().probes - before <= 1);
}

#[test]
fn s_75_a_suspicion_of_a_dead_member_with_a_later_number_makes_a_node_ask() {
    let mut rig = wary(Preset::Lan, &[2, 3, 4, 5, 6]);
    last_probe(&mut rig);
    rig.advance(6 * SECOND);
    assert_eq!(status(&rig, 2), Some((0, State::Dead)));
    for (number, wants_answer) in [(0, false), (1, true)] {
        rig.take_log();
        say(&mut rig, 3, &[suspect(3, 2, number)]);
        let is_pinged = sent_kind(&mut rig, "Ping").iter().any(|(to, _)| *to == addr(2));
        assert_eq!((is_pinged, status(&rig, 2)), (wants_answer, Some((0, State::Dead))), "{number}");
    }
}

/// A goodbye stays open until its node itself contradicts: others cannot end it.
#[test]
fn s_r8_an_alive_of_others_does_not_end_a_goodbye() {
    let mut rig = wary(Preset::Lan, &[2, 3]);
    let (own, slot) = (contents(2), rig.machine.members().find(id(2)).unwrap());
    say(&mut rig, 2, &[dead(2, 2, 0)]);
    say(&mut rig, 3, &[alive(&own, 2, 0)]);
    assert!(rig.machine.lower.verifier.is_leaving(slot));
    rig.advance(Duration::from_millis(1_100));
    assert_eq!(status(&rig, 2).unwrap().1, State::Left);
    assert!(!rig.machine.lower.verifier.is_leaving(slot));
    say(&mut rig, 3, &[dead(3, 3, 0)]);
    let slot = rig.machine.members().find(id(3)).unwrap();
    assert!(rig.machine.lower.verifier.is_leaving(slot));
    rig.command(Command::ForceLeave { id: id(3), prune: true });
    assert!(!rig.machine.lower.verifier.is_leaving(slot), "the slot may get another member");
}

/// A dead member that answers at another address has moved: nobody is at the old one.
#[test]
fn s_6_a_dead_member_returns_at_another_address_at_once() {
    let mut rig = wary(Preset::Lan, &[2, 3]);
    last_probe(&mut rig);
    rig.advance(6 * SECOND);
    rig.take_log();
    let there = contents(66);
    rig.datagram(UDP, addr(66), &packet(2, &[alive(&there, 2, 1)])).unwrap();
    prove(&mut rig, 2, addr(66), alive(&there, 2, 1));
    assert_eq!(status(&rig, 2), Some((1, State::Alive)));
    assert_eq!(rig.machine.members().member(id(2)).unwrap().addr(), addr(66));
}

/// SA-58a: an answer proves the address that it came from, not another one that it names.
#[test]
fn s_6_an_answer_does_not_prove_the_address_of_another() {
    let mut rig = wary(Preset::Lan, &[2, 3]);
    let (here, there) = (contents(9), contents(66));
    rig.datagram(UDP, addr(9), &packet(9, &[join(&here, 9, 0)])).unwrap();
    let pings = sent_kind(&mut rig, "Ping");
    assert_eq!(pings.iter().filter(|(to, _)| *to == addr(9)).count(), 1, "asked once: {pings:?}");
    let number = pings[0].1.split("Sequence(").nth(1).unwrap().split(')').next().unwrap().parse().unwrap();
    rig.datagram(UDP, addr(9), &packet(9, &[ack(9, Sequence(number)), alive(&there, 9, 0)])).unwrap();
    assert_eq!(status(&rig, 9), None);
}

/// SA-58a: both nodes of one id hear of each other with a number that neither can ignore.
#[test]
fn s_13_two_nodes_of_one_id_hear_of_each_other_with_the_higher_number() {
    let mut rig = wary(Preset::Lan, &[2, 3]);
    let there = contents(66);
    rig.datagram(UDP, addr(66), &packet(2, &[alive(&there, 2, 5)])).unwrap();
    prove(&mut rig, 2, addr(66), alive(&there, 2, 5));
    let nonce = nonce_to(&mut rig, addr(2)).expect("the old address gets a ping");
    say(&mut rig, 2, &[ack(2, nonce)]);
    let mut alives = sent_kind(&mut rig, "Alive");
    alives.sort();
    let to: Vec<SocketAddr> = alives.iter().map(|(to, _)| *to).collect();
    assert_eq!(to, [addr(2), addr(66)]);
    assert!(alives.iter().all(|(_, text)| text.contains("Incarnation(5)")), "{alives:?}");
}

#[test]
fn s_23_a_reported_refutation_is_passed_on_and_a_past_member_that_returns_is_no_longer_past() {
    let mut rig = wary(Preset::Lan, &[2, 3]);
    let own = contents(2);
    say(&mut rig, 3, &[suspect(3, 2, 0), alive(&own, 2, 1)]);
    let said = |rig: &Rig<Swim>| {
        rig.machine
            .lower
            .packets
            .gossip()
            .updates()
            .any(|(who, news, _)| (who, news) == (id(2), Status::new(Incarnation(1), State::Alive)))
    };
    assert!(said(&rig));
    rig.advance(90 * SECOND);
    assert_eq!((status(&rig, 2), rig.machine.lower.history.len() > 0), (None, true));
    rig.take_log();
    rig.datagram(UDP, addr(2), &packet(2, &[alive(&own, 2, 7)])).unwrap();
    prove(&mut rig, 2, addr(2), alive(&own, 2, 7));
    assert_eq!(status(&rig, 2), Some((7, State::Alive)));
    assert_eq!(rig.machine.lower.history.status(id(2)), None);
}

/// SA-7c: a restarted node that lost a high number answers every probe, and can refute nothing. It is not suspected for
/// ever, but returns as a new member.
#[test]
fn s_22_a_suspect_that_lost_its_number_returns_with_its_first_answer() {
    for is_dead in [false, true] {
        let far = Incarnation::FORMER_MAX + 100;
        let mut rig = wary(Preset::Lan, &[2, 3, 4, 5, 6]);
        let own = contents(2);
        rig.datagram(UDP, addr(2), &packet(2, &[alive(&own, 2, far)])).unwrap();
        prove(&mut rig, 2, addr(2), alive(&own, 2, far));
        say(&mut rig, 3, &[dead(3, 2, far)]);
        rig.advance(Duration::from_millis(if is_dead { 1_200 } else { 1 }));
        let state = if is_dead { State::Dead } else { State::Suspect };
        assert_eq!(status(&rig, 2), Some((far, state)));
        let nonce = nonce_to(&mut rig, addr(2)).expect("it gets a ping");
        let strange = contents(66);
        rig.datagram(UDP, addr(66), &packet(2, &[alive(&strange, 2, 0)])).unwrap();
        assert_eq!(status(&rig, 2), Some((far, state)), "not without proof");
        rig.datagram(UDP, addr(2), &packet(2, &[ack(2, nonce), alive(&own, 2, 0)])).unwrap();
        assert_eq!(status(&rig, 2), Some((0, State::Alive)));
        rig.advance(20 * SECOND);
        assert!(!has(&rig, "MemberDied { id: 03"), "the others are not concerned");
    }
}

/// The timeout of a direct answer has a least value, and grows with the local health.
#[test]
fn s_120_the_time_for_a_direct_answer_is_bounded_and_follows_the_health() {
    for (accused, from, until) in [(false, 95, 110), (true, 190, 215)] {
        let mut rig = rig(Preset::Lan, &[2]);
        for _ in 0..5 {
            let (target, sequence) = next_ping(&mut rig);
            say(&mut rig, target, &[ack(target, sequence)]);
        }
        if accused {
            say(&mut rig, 2, &[suspect(2, 1, 0)]);
        }
        assert_eq!(rig.machine.prober.health().score(), u32::from(accused));
        next_ping(&mut rig);
        rig.advance(Duration::from_millis(from));
        assert_eq!(rig.machine.counted().indirect_probes, 0, "before {from} ms");
        rig.advance(Duration::from_millis(until - from));
        assert_eq!(rig.machine.counted().indirect_probes, 1, "after {until} ms");
    }
}

#[test]
fn s_69_a_second_ack_of_one_probe_does_not_count() {
    let mut rig = rig(Preset::Lan, &[2, 3]);
    say(&mut rig, 2, &[suspect(2, 1, 0)]);
    rig.advance(SECOND);
    say(&mut rig, 2, &[suspect(2, 1, 1)]);
    let (target, sequence) = next_ping(&mut rig);
    let before = rig.machine.prober.health().score();
    assert!(before >= 2, "each Ack could lower it");
    (0..3).for_each(|_| say(&mut rig, target, &[ack(target, sequence)]));
    assert_eq!(rig.machine.counted().acks_unmatched, 2);
    assert_eq!(rig.machine.prober.health().score(), before - 1);
}

/// After several addresses were tried, nobody knows which of them answered: no round trip is measured.
#[test]
fn s_80_a_round_trip_is_measured_only_on_a_known_path() {
    for (wait, is_measured) in [(10, true), (520, false)] {
        let mut swim = Swim::new(
            &Config { settings: quiet(Preset::Lan), stored_max: 0, ..config(1, Preset::Lan) },
            [7; 32],
        )
        .unwrap();
        swim.assume(&[Node { id: id(2), addrs: vec![addr(2), addr(3)], meta: Vec::new() }]);
        let mut rig = Rig::new(swim);
        rig.start();
        let (_, sequence) = next_ping(&mut rig);
        rig.advance(Duration::from_millis(wait));
        say(&mut rig, 2, &[ack(2, sequence)]);
        let rtt = rig.machine.members().member(id(2)).unwrap().rtt();
        assert_eq!(rtt.is_some(), is_measured, "after {wait} ms");
    }
}
