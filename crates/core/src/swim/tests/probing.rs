//! Periods, probes, and members that do not answer.

use super::*;

#[test]
fn s_r2_every_period_pings_the_configured_number_of_targets() {
    for probes in [1, 3] {
        let settings = Settings { region_probes: probes, ..quiet(Preset::GoSwim) };
        let config = Config { settings, ..config(1, Preset::GoSwim) };
        let mut rig = rig_with(&config, &[2, 3, 4, 5, 6]);
        rig.advance(4 * SECOND);
        let pings = sent_kind(&mut rig, "Ping");
        assert_eq!(pings.len(), 4 * probes, "{probes} per period");
        assert_eq!(rig.machine.counted().probes, 4 * probes as u64);
    }
}

#[test]
fn s_68_a_ping_names_its_target_its_sender_and_its_time() {
    let mut rig = rig(Preset::GoSwim, &[2]);
    let (_, sequence) = next_ping(&mut rig);
    let now = rig.now.wall;
    let (to, text) = sent_kind(&mut rig, "Ping").remove(0);
    assert_eq!(to, addr(2));
    assert!(text.contains(&format!("from: {:?}", id(1))) && text.contains(&format!("to: {:?}", id(2))));
    assert!(text.contains(&format!("sequence: {sequence:?}")), "{text}");
    let near = (now.as_micros() / 1_000_000).to_string();
    assert!(text.contains(&format!("local_time: Wall({near}")), "{text}");
}

#[test]
fn s_69_s_79_a_ping_is_answered_with_an_ack_that_echoes_its_sequence() {
    let mut rig = rig(Preset::GoSwim, &[2]);
    say(&mut rig, 2, &[ping(2, 1, 77)]);
    let acks = sent_kind(&mut rig, "Ack");
    assert_eq!(acks.len(), 1);
    assert_eq!(acks[0].0, addr(2));
    assert!(acks[0].1.contains("sequence: Sequence(77)"), "{acks:?}");
}

/// S-71 for direct answers: the number of a probe counts only from its target.
#[test]
fn s_69_an_ack_of_another_member_answers_no_probe() {
    let mut rig = rig(Preset::GoSwim, &[2, 3]);
    let (target, sequence) = next_ping(&mut rig);
    let other = 5 - target;
    say(&mut rig, other, &[ack(other, sequence)]);
    assert_eq!(rig.machine.counted().acks_unmatched, 1);
    next_ping(&mut rig);
    assert_eq!([target, other].map(|n| status(&rig, n).unwrap().1), [State::Suspect, State::Alive]);
}

/// The same for a ping that was sent as a proxy: the requester learns nothing from another node's Ack.
#[test]
fn s_71_a_proxy_reports_only_the_ack_of_its_target() {
    let mut rig = rig(Preset::GoSwim, &[2, 3, 4]);
    let about = contents(3);
    let contents = about.borrow();
    let asked =
        Message::IndirectPing { header: header(2, 9), to: id(1), target: id(3), wants_nack: false, contents };
    say(&mut rig, 2, &[asked]);
    let ping = sent_kind(&mut rig, "Ping").remove(0).1;
    let number = ping.split("Sequence(").nth(1).unwrap().split(')').next().unwrap().parse().unwrap();
    say(&mut rig, 4, &[ack(4, Sequence(number))]);
    assert_eq!(sent_kind(&mut rig, "IndirectAck"), []);
    say(&mut rig, 3, &[ack(3, Sequence(number))]);
    let acks = sent_kind(&mut rig, "IndirectAck");
    assert!(acks.len() == 1 && acks[0].0 == addr(2) && acks[0].1.contains("Sequence(9)"), "{acks:?}");
}

#[test]
fn s_79_an_unknown_prober_is_answered_at_its_source_and_asked_for_its_alive() {
    let mut rig = rig(Preset::GoSwim, &[2]);
    say(&mut rig, 9, &[ping(9, 1, 5)]);
    let acks = sent_kind(&mut rig, "Ack");
    assert!(acks[0].0 == addr(9) && acks[0].1.contains("introduce: true"), "{acks:?}");
    let header = header(2, 0);
    let introduce =
        Message::Ack { header, local_time: Wall::from_micros(0), introduce: true, coordinate: None };
    say(&mut rig, 2, &[introduce]);
    assert_eq!(sent_kind(&mut rig, "Alive").len(), 1, "this node sends its Alive");
}

#[test]
fn s_67_a_ping_for_another_id_is_dropped_and_one_for_id_zero_is_answered() {
    let mut rig = rig(Preset::GoSwim, &[2]);
    say(&mut rig, 2, &[ping(2, 3, 77)]);
    assert_eq!(rig.machine.counted().misaddressed, 1);
    assert!(sent(&mut rig).is_empty());
    let to_nobody = Message::Ping {
        header: header(2, 1),
        to: Id::MIN,
        local_time: Wall::default(),
        wants_coordinate: false,
        wants_alive: false,
    };
    say(&mut rig, 2, &[to_nobody]);
    assert_eq!(sent_kind(&mut rig, "Ack").len(), 1);
}

#[test]
fn s_r3_a_target_that_does_not_answer_in_time_is_pinged_through_proxies() {
    let mut rig = rig(Preset::GoSwim, &[2, 3, 4, 5, 6]);
    let (target, sequence) = next_ping(&mut rig);
    rig.take_log();
    rig.advance(Duration::from_millis(480));
    assert!(sent(&mut rig).is_empty(), "not yet");
    rig.advance(Duration::from_millis(30));
    let asked = sent_kind(&mut rig, "IndirectPing");
    assert_eq!(asked.len(), 3);
    let mut to: Vec<SocketAddr> = asked.iter().map(|(to, _)| *to).collect();
    to.sort();
    to.dedup();
    assert!(to.len() == 3 && !to.contains(&addr(target)), "distinct, and not the target");
    assert!(asked.iter().all(|(_, text)| text.contains(&format!("target: {:?}", id(target)))));
    assert!(asked.iter().all(|(_, text)| text.contains(&format!("{sequence:?}"))));
}

#[test]
fn s_120_the_time_for_a_direct_answer_is_the_probe_timeout() {
    let settings = Settings { probe_timeout: Duration::from_millis(200), ..quiet(Preset::GoSwim) };
    let mut rig = rig_with(&Config { settings, ..config(1, Preset::GoSwim) }, &[2, 3]);
    next_ping(&mut rig);
    rig.take_log();
    rig.advance(Duration::from_millis(215));
    assert_eq!(sent_kind(&mut rig, "IndirectPing").len(), 1);
}

#[test]
fn s_118_as_many_proxies_are_asked_as_configured() {
    let settings = Settings { indirect_probes: 2, ..quiet(Preset::GoSwim) };
    let mut rig =
        rig_with(&Config { settings, ..config(1, Preset::GoSwim) }, &[2, 3, 4, 5, 6, 7, 8, 9, 10, 11]);
    next_ping(&mut rig);
    rig.take_log();
    rig.advance(Duration::from_millis(520));
    assert_eq!(sent_kind(&mut rig, "IndirectPing").len(), 2);
}

#[test]
fn s_r4_a_target_that_answers_neither_probe_is_suspected_at_the_next_period() {
    let mut rig = rig(Preset::GoSwim, &[2, 3, 4]);
    let (target, _) = next_ping(&mut rig);
    rig.advance(Duration::from_millis(900));
    assert_eq!(status(&rig, target), Some((0, State::Alive)));
    next_ping(&mut rig);
    assert_eq!(status(&rig, target), Some((0, State::Suspect)));
    assert!(has(&rig, "MemberSuspected"));
    let told = sent_kind(&mut rig, "Suspect");
    assert!(!told.is_empty(), "the suspicion is sent at once");
}

#[test]
fn s_79_a_late_answer_within_the_period_counts() {
    let mut rig = rig(Preset::GoSwim, &[2, 3, 4]);
    let (target, sequence) = next_ping(&mut rig);
    rig.advance(Duration::from_millis(900));
    say(&mut rig, target, &[ack(target, sequence)]);
    next_ping(&mut rig);
    assert_eq!(status(&rig, target), Some((0, State::Alive)));
}

#[test]
fn s_71_an_indirect_ack_counts_only_from_a_proxy() {
    for (helper_asked, expected) in [(true, State::Alive), (false, State::Suspect)] {
        let mut rig = rig(Preset::GoSwim, &[2, 3, 4, 5, 6, 7]);
        let (target, sequence) = next_ping(&mut rig);
        rig.take_log();
        rig.advance(Duration::from_millis(520));
        let asked: Vec<SocketAddr> = sent_kind(&mut rig, "IndirectPing").iter().map(|(to, _)| *to).collect();
        let n = (2..8).find(|n| asked.contains(&addr(*n)) == helper_asked && *n != target).unwrap();
        let header = Header { from: id(n), sequence };
        say(&mut rig, n, &[Message::IndirectAck { header }]);
        next_ping(&mut rig);
        assert_eq!(status(&rig, target).unwrap().1, expected);
    }
}

#[test]
fn s_70_s_71_a_proxy_pings_the_target_and_forwards_the_answer() {
    let mut rig = rig(Preset::GoSwim, &[2, 3]);
    rig.take_log();
    let elsewhere = contents(99);
    let request = Message::IndirectPing {
        header: header(2, 55),
        to: id(1),
        target: id(3),
        wants_nack: false,
        contents: elsewhere.borrow(),
    };
    say(&mut rig, 2, &[request]);
    let pings = sent_kind(&mut rig, "Ping");
    assert_eq!(pings[0].0, addr(3), "where we know it to be, not where the asker says");
    let own = pings[0].1.split("Sequence(").nth(1).unwrap().split(')').next().unwrap().parse().unwrap();
    say(&mut rig, 3, &[ack(3, Sequence(own))]);
    let passed = sent_kind(&mut rig, "IndirectAck");
    assert!(passed[0].0 == addr(2) && passed[0].1.contains("Sequence(55)"), "{passed:?}");
    say(&mut rig, 3, &[ack(3, Sequence(own))]);
    assert!(sent_kind(&mut rig, "IndirectAck").is_empty(), "once");
}

#[test]
fn s_70_relays_for_one_requester_are_limited() {
    let mut rig = rig(Preset::GoSwim, &[2, 3]);
    let target = contents(9);
    for sequence in 0..20 {
        let header = header(2, sequence);
        let (to, wants_nack, contents) = (id(1), false, target.borrow());
        say(&mut rig, 2, &[Message::IndirectPing { header, to, target: id(9), wants_nack, contents }]);
    }
    assert_eq!((rig.machine.counted().relays, rig.machine.counted().relays_refused), (8, 12));
    rig.advance(2 * SECOND);
    let header = header(2, 99);
    say(
        &mut rig,
        2,
        &[Message::IndirectPing {
            header,
            to: id(1),
            target: id(9),
            wants_nack: false,
            contents: target.borrow(),
        }],
    );
    assert_eq!(rig.machine.counted().relays, 9, "a period later there is room again");
}

#[test]
fn s_r5_a_suspect_that_does_not_refute_in_time_is_dead() {
    let mut rig = rig(Preset::GoSwim, &[2, 3, 4]);
    say(&mut rig, 3, &[suspect(3, 2, 0)]);
    // Four members, one digit: 5 × 1 × 1 s.
    rig.advance(Duration::from_millis(4_900));
    assert_eq!(status(&rig, 2), Some((0, State::Suspect)));
    rig.advance(Duration::from_millis(200));
    assert_eq!(status(&rig, 2), Some((0, State::Dead)));
    assert!(has(&rig, "MemberDied"));
    rig.advance(SECOND);
    assert!(!sent_kind(&mut rig, "Dead").is_empty());
}

#[test]
fn s_r5_a_suspect_that_refutes_is_alive() {
    let mut rig = rig(Preset::GoSwim, &[2, 3, 4]);
    say(&mut rig, 3, &[suspect(3, 2, 0)]);
    let own = contents(2);
    say(&mut rig, 3, &[alive(&own, 2, 1)]);
    rig.advance(4 * SECOND);
    assert!(has(&rig, "MemberRecovered"));
    assert_eq!(status(&rig, 2).unwrap().0, 1);
    assert!(!has(&rig, &format!("MemberDied {{ id: {:?}", id(2))));
}

#[test]
fn s_79_an_ack_does_not_clear_a_suspicion_but_the_ping_carries_it() {
    let mut rig = rig(Preset::GoSwim, &[2]);
    say(&mut rig, 3, &[suspect(3, 2, 0)]);
    rig.take_log();
    let (_, sequence) = next_ping(&mut rig);
    let messages = sent(&mut rig).remove(0).1;
    assert!(messages[0].starts_with("Suspect"), "first of all: {messages:?}");
    assert!(messages[1].starts_with("Ping"));
    say(&mut rig, 2, &[ack(2, sequence)]);
    assert_eq!(status(&rig, 2), Some((0, State::Suspect)));
}

#[test]
fn s_24_any_message_sent_to_us_is_seen_with_our_period() {
    let mut rig = rig(Preset::GoSwim, &[2, 3]);
    next_ping(&mut rig);
    next_ping(&mut rig);
    say(&mut rig, 2, &[suspect(3, 3, 0)]);
    let member = |rig: &Rig<Swim>, n| rig.machine.members().member(id(n)).unwrap().clone();
    assert_eq!(member(&rig, 2).last_seen(), 2);
    assert_eq!(member(&rig, 3).last_seen(), 0, "a update about it is not a word from it");
}

#[test]
fn s_25_a_node_is_pinged_at_most_once_in_a_period() {
    let settings = Settings { region_probes: 5, ..quiet(Preset::GoSwim) };
    let mut rig = rig_with(&Config { settings, ..config(1, Preset::GoSwim) }, &[2, 3]);
    for period in 1..6 {
        rig.take_log();
        next_ping(&mut rig);
        let mut pings: Vec<SocketAddr> = sent_kind(&mut rig, "Ping").into_iter().map(|(to, _)| to).collect();
        pings.sort();
        assert_eq!(pings, [addr(2), addr(3)]);
        assert_eq!(rig.machine.members().member(id(2)).unwrap().last_sent(), period);
    }
}

#[test]
fn s_12_the_other_addresses_are_tried_when_the_first_does_not_answer() {
    let mut rig = rig(Preset::GoSwim, &[]);
    let two = OwnContents::new(&[addr(2), addr(22)], &[]).unwrap();
    say(&mut rig, 2, &[alive(&two, 2, 0)]);
    let (_, sequence) = next_ping(&mut rig);
    assert_eq!(sent_kind(&mut rig, "Ping").into_iter().map(|(to, _)| to).collect::<Vec<_>>(), [addr(2)]);
    rig.advance(Duration::from_millis(520));
    assert_eq!(sent_kind(&mut rig, "Ping").into_iter().map(|(to, _)| to).collect::<Vec<_>>(), [addr(22)]);
    rig.datagram(UDP, addr(22), &packet(2, &[ack(2, sequence)])).unwrap();
    next_ping(&mut rig);
    assert_eq!(status(&rig, 2), Some((0, State::Alive)));
}

/// SF-18 and SA-32.
#[test]
fn s_119_a_late_tick_suspects_no_member() {
    for (preset, expected) in [(Preset::GoSwim, State::Alive), (Preset::OriginalSwim, State::Suspect)] {
        let mut rig = rig(preset, &[2, 3, 4]);
        let (target, _) = next_ping(&mut rig);
        rig.sleep(60 * SECOND);
        rig.wake();
        assert_eq!(status(&rig, target).unwrap().1, expected);
        assert_eq!(rig.machine.counted().late_ticks, 1);
    }
}

#[test]
fn s_119_a_suspicion_does_not_expire_during_a_pause() {
    let mut rig = rig(Preset::GoSwim, &[2, 3, 4]);
    say(&mut rig, 3, &[suspect(3, 2, 0)]);
    rig.sleep(60 * SECOND);
    rig.wake();
    assert_eq!(status(&rig, 2), Some((0, State::Suspect)));
}

#[test]
fn s_119_periods_follow_each_other_at_the_interval() {
    let mut rig = rig(Preset::GoSwim, &[2]);
    next_ping(&mut rig);
    let from = rig.machine.period();
    rig.advance(20 * SECOND);
    assert_eq!(rig.machine.period(), from + 20);
}

/// SF-21: if two targets fail in one period, the proxy's answer is for one of them.
#[test]
fn s_67_an_answer_belongs_to_its_probe() {
    let settings = Settings { region_probes: 2, ..quiet(Preset::GoSwim) };
    let mut rig = rig_with(&Config { settings, ..config(1, Preset::GoSwim) }, &[2, 3, 4, 5, 6]);
    next_ping(&mut rig);
    let probes = rig.machine.prober.probes().clone().take();
    assert_ne!(probes[0].sequence, probes[1].sequence);
    rig.advance(Duration::from_millis(520));
    let proxy = rig.machine.prober.probes().clone().find(probes[0].sequence).unwrap().proxies[0].0;
    let n = (proxy.number() & 0xff) as u8;
    say(
        &mut rig,
        n,
        &[Message::IndirectAck { header: Header { from: proxy, sequence: probes[0].sequence } }],
    );
    next_ping(&mut rig);
    let state = |id: Id| rig.machine.members().member(id).unwrap().state();
    assert_eq!((state(probes[0].id), state(probes[1].id)), (State::Alive, State::Suspect));
}

/// SF-24: a node that did not get a ping cannot answer it.
#[test]
fn s_67_the_number_of_a_probe_does_not_predict_the_next() {
    let mut rig = rig(Preset::GoSwim, &[2, 3]);
    let mut last = next_ping(&mut rig).1;
    let mut steps = std::collections::BTreeSet::new();
    for _ in 0..40 {
        let (target, sequence) = next_ping(&mut rig);
        steps.insert(sequence.0.wrapping_sub(last.0));
        last = sequence;
        let guessed = Sequence(sequence.0.wrapping_add(1));
        say(&mut rig, target, &[ack(target, guessed)]);
        assert!(!rig.machine.prober.probes().clone().find(sequence).unwrap().answered);
        say(&mut rig, target, &[ack(target, sequence)]);
    }
    assert_eq!(steps.len(), 40);
}

/// SF-19: the round-trip time is measured by the monotonic clock, whatever the wall clocks say.
#[test]
fn s_80_the_round_trip_time_is_measured_and_reported() {
    let mut rig = rig(Preset::GoSwim, &[2]);
    let (_, sequence) = next_ping(&mut rig);
    let probe = rig.machine.prober.probes().clone().take().remove(0);
    rig.sleep((probe.sent + Duration::from_millis(100)).since(rig.now.mono));
    rig.now.wall = Wall::from_micros(3);
    say(&mut rig, 2, &[ack(2, sequence)]);
    let rtt = rig.machine.members().member(id(2)).unwrap().rtt().unwrap();
    assert_eq!(rtt.estimate(), Duration::from_millis(450), "500 ms assumed, a sample of 100 ms");
}
