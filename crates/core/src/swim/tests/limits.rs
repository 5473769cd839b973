//! Limits and budgets: what a part refuses once it holds as much as it may.

use super::*;
use crate::time::Instant;

fn at(millis: u64) -> Instant {
    Instant::from_micros(millis * 1000)
}

fn question(n: u16) -> verifier::Question {
    let addr = SocketAddr::from(([10, 1, (n >> 8) as u8, n as u8], 7946));
    verifier::Question { id: id(9), addr: addr.into(), answer_bytes: 0 }
}

/// SA-61: three times the bytes, all answers together; an address that is proved has no limit.
#[test]
fn an_unproved_packet_affords_three_times_its_bytes() {
    let mut packet = packet::Packet::new(addr(9), id(9), 10);
    assert!(!packet.affords(31) && packet.affords(20) && packet.affords(10));
    assert!(!packet.affords(1), "all is spent");
    packet.proved = Some(addr(9));
    assert!(packet.affords(1000));
}

#[test]
fn the_queue_of_questions_is_bounded_and_an_address_is_asked_once_at_a_time() {
    let mut verifier = verifier::Verifier::new([7; 32]);
    let again = Duration::from_millis(250);
    for n in 0..1024 {
        assert!(verifier.ask(question(n), at(0), again), "{n}");
    }
    assert!(!verifier.ask(question(1024), at(0), again), "1024 wait");
    let burst = core::iter::from_fn(|| verifier.pop_due(at(0))).count();
    assert_eq!(burst, 32);
    assert!(!verifier.ask(question(1), at(249), again), "it was asked a moment ago");
    assert!(verifier.ask(question(1), at(250), again));
}

/// A nonce is for one node, address and port, and is valid in its epoch of 64 s and in the next one.
#[test]
fn s_83_a_nonce_ends_after_the_next_epoch() {
    let verifier = verifier::Verifier::new([7; 32]);
    let nonce = verifier.nonce(id(2), addr(2), at(63_000));
    for (millis, is_valid) in [(63_000, true), (64_000, true), (127_999, true), (128_000, false)] {
        assert_eq!(verifier.is_nonce(nonce, id(2), addr(2), at(millis)), is_valid, "{millis} ms");
    }
    let port = SocketAddr::new(addr(2).ip(), 7947);
    for (n, other) in [(3, addr(2)), (2, addr(3)), (2, port)] {
        assert!(!verifier.is_nonce(nonce, id(n), other, at(63_000)), "{n} at {other}");
    }
    let another = verifier::Verifier::new([8; 32]);
    assert_ne!(another.nonce(id(2), addr(2), at(63_000)), nonce, "another node, another secret");
}

#[test]
fn a_move_is_judged_before_the_next_one_begins() {
    let mut verifier = verifier::Verifier::new([7; 32]);
    let to = |nonce: u32| verifier::Move {
        contents: contents(66),
        incarnation: Incarnation(1),
        nonce: Sequence(nonce),
        until: at(500),
    };
    assert!(verifier.begin_move(id(2), to(1)));
    assert!(!verifier.begin_move(id(2), to(2)));
    assert_eq!(verifier.stays(id(2), Sequence(2)), None);
    assert!(verifier.stays(id(2), Sequence(1)).is_some());
}

/// SA-31d: at most 32 members are asked again at a time.
#[test]
fn few_of_many_dead_are_asked_again() {
    let mut verifier = verifier::Verifier::new([7; 32]);
    (0..40).for_each(|n| verifier.begin_rechecks(Slot::new(n), at(0)));
    let mut asked: Vec<Slot> = Vec::new();
    while let Some(slot) = verifier.pop_recheck(at(0), SECOND) {
        asked.push(slot);
    }
    assert_eq!(asked, (0..32).map(Slot::new).collect::<Vec<_>>());
}

#[test]
fn hurried_gossip_keeps_half_an_interval_apart() {
    let mut timer = dissemination::Dissemination::new(1);
    let every = Duration::from_millis(200);
    let hurries = [1000, 1050, 1099, 1100, 1150, 1200].map(|millis| timer.may_hurry(at(millis), every));
    assert_eq!(hurries, [true, false, false, true, false, true]);
}

#[test]
fn s_70_proxies_refuse_more_than_their_limit() {
    let settings = quiet(Preset::GoSwim);
    let mut rig = rig_with(&Config { settings, relays_max: 2, ..config(1, Preset::GoSwim) }, &[2, 3, 4, 5]);
    let about = contents(5);
    for by in [2, 3, 4] {
        let header = header(by, 9);
        let contents = about.borrow();
        let asked = Message::IndirectPing { header, to: id(1), target: id(5), wants_nack: false, contents };
        say(&mut rig, by, &[asked]);
    }
    assert_eq!(sent_kind(&mut rig, "Ping").len(), 2);
    assert_eq!(rig.machine.counted().relays_refused, 1);
}

/// SA-31b: at most eight suspects of others are probed in a period, each once.
#[test]
fn a_period_has_room_for_eight_suspects_of_others() {
    let others: Vec<u8> = (2..40).collect();
    let mut rig = rig(Preset::GoSwim, &others);
    for n in 2..20 {
        let slot = rig.machine.members().find(id(n)).unwrap();
        rig.machine.prober.confirm(slot);
        rig.machine.prober.confirm(slot);
    }
    let before = rig.machine.counted().probes;
    next_ping(&mut rig);
    assert!((8..=9).contains(&(rig.machine.counted().probes - before)));
}

/// SA-6: sixteen nodes per period are sent their own death.
#[test]
fn few_of_many_dead_that_speak_are_sent_their_death_in_one_period() {
    let others: Vec<u8> = (2..60).collect();
    let mut rig = rig(Preset::GoSwim, &others);
    (10..40).for_each(|n| say(&mut rig, 3, &[dead(3, n, 0)]));
    rig.take_log();
    for n in 10..40 {
        let own = contents(n);
        say(&mut rig, n, &[alive(&own, n, 0)]);
    }
    assert_eq!(sent_kind(&mut rig, "Dead").len(), 16);
    assert_eq!(rig.machine.counted().notifications_dropped, 14);
}

/// SA-7c: an accusation of a number that no honest node holds says nothing about the health of this node.
#[test]
fn s_23_only_credible_accusations_count_for_the_health() {
    for (number, score) in [(0, 1), (8, 1), (9, 0), (65_536, 0)] {
        let mut rig = wary(Preset::Lan, &[2, 3]);
        say(&mut rig, 2, &[suspect(2, 1, number)]);
        assert_eq!(rig.machine.prober.health().score(), score, "{number}");
        assert_eq!(rig.machine.incarnation(), Incarnation(number + 1), "it refutes all the same");
    }
}

/// SA-33c: a node without other members joins its seeds again at the retry interval, not at every retry.
#[test]
fn a_lone_node_joins_its_seeds_every_retry_interval() {
    let settings = Settings { retry_interval: 30 * SECOND, ..quiet(Preset::Lan) };
    let alone = Config { settings, seeds: vec![addr(7)], stored_max: 0, ..config(1, Preset::Lan) };
    let mut rig = rig_with(&alone, &[]);
    rig.advance(125 * SECOND);
    let failed = rig.log.iter().filter(|line| line.contains("JoinFailed")).count();
    assert!((3..=5).contains(&failed), "{failed} in 125 s");
}

/// SA-33c: a member that said goodbye itself, and one that an operator marked as left here, are not asked again.
#[test]
fn members_that_left_for_good_are_not_asked_again() {
    let settings = Settings { retry_interval: 10 * SECOND, ..quiet(Preset::Lan) };
    let mut rig = rig_with(&Config { settings, ..config(1, Preset::Lan) }, &[2, 3, 4, 5]);
    say(&mut rig, 3, &[dead(3, 5, 0)]);
    say(&mut rig, 2, &[dead(2, 2, 0)]);
    rig.command(Command::ForceLeave { id: id(4), prune: false });
    rig.take_log();
    let mut asked = std::collections::BTreeSet::new();
    for _ in 0..120 {
        let (target, sequence) = next_ping(&mut rig);
        say(&mut rig, target, &[ack(target, sequence)]);
        asked.extend(sent_kind(&mut rig, "Join").into_iter().map(|(to, _)| to));
    }
    assert_eq!(asked.into_iter().collect::<Vec<_>>(), [addr(5)], "only the one that died");
}
