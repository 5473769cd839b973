//! Verification of claims: forged updates change nothing (SA-7c, SA-31a, SA-58a, SA-61).

use super::*;

#[test]
fn s_73_an_invented_member_is_never_listed_before_it_answered() {
    let mut rig = wary(Preset::Lan, &[2, 3]);
    let own = contents(9);
    say(&mut rig, 2, &[alive(&own, 9, 0)]);
    assert_eq!(status(&rig, 9), None);
    assert!(!has(&rig, "MemberJoined"));
    // Another node answers, or the right one with another nonce.
    say(&mut rig, 9, &[ack(9, Sequence(5)), alive(&own, 9, 0)]);
    assert_eq!(status(&rig, 9), None);
    prove(&mut rig, 9, addr(9), alive(&own, 9, 0));
    assert_eq!(status(&rig, 9), Some((0, State::Alive)));
    assert!(has(&rig, "MemberJoined"));
}

/// SA-61: whatever contents a node has, a question to it is long enough for its whole answer.
#[test]
fn s_73_an_unknown_node_with_any_metadata_answers_a_question_in_full() {
    for length in 0..=META_BYTES_MAX {
        let described = OwnContents::new(&[addr(9)], &vec![7; length]).unwrap();
        let mut rig = wary(Preset::Lan, &[2, 3]);
        say(&mut rig, 2, &[alive(&described, 9, 0)]);
        let log = rig.take_log();
        let to_nine = format!("Send 0:0 to {} ", addr(9));
        let question =
            log.iter().find_map(|line| line.strip_prefix(&to_nine)).expect("a question goes there");
        let stranger = Config { meta: vec![7; length], stored_max: 0, ..config(9, Preset::Lan) };
        let mut nine = rig_with(&stranger, &[]);
        nine.datagram(UDP, addr(1), &unhex(question)).unwrap();
        let answers = sent_kind(&mut nine, "Alive");
        assert!(answers.iter().any(|(to, _)| *to == addr(1)), "{length} bytes of metadata");
    }
}

#[test]
fn s_73_a_flood_of_invented_members_is_verified_at_a_bounded_rate() {
    let mut rig = wary(Preset::Lan, &[2, 3]);
    for n in 0..1_000u16 {
        let own = OwnContents::new(&[SocketAddr::from(([10, 9, (n >> 8) as u8, n as u8], 1))], &[]).unwrap();
        let node = NodeView { id: Id::from_text(&n.to_string()), contents: own.borrow() };
        let header = Header { from: node.id, sequence: Sequence(0) };
        say(&mut rig, 2, &[Message::Alive { header, node, incarnation: Incarnation(0) }]);
    }
    assert_eq!(rig.machine.members().len(), 3);
    assert_eq!(sent_kind(&mut rig, "Ping").len(), 32, "the first burst");
    rig.advance(SECOND);
    let pings = sent_kind(&mut rig, "Ping").len();
    assert!((250..=360).contains(&pings), "{pings}");
    rig.advance(10 * SECOND);
    assert_eq!(rig.machine.members().len(), 3);
}

#[test]
fn s_6_a_forged_move_changes_nothing() {
    let mut rig = wary(Preset::Lan, &[2, 3]);
    let elsewhere = contents(66);
    say(&mut rig, 66, &[alive(&elsewhere, 2, 1)]);
    say(&mut rig, 3, &[alive(&elsewhere, 2, 1)]);
    rig.advance(3 * SECOND);
    assert_eq!(rig.machine.members().member(id(2)).unwrap().addr(), addr(2));
    assert!(!has(&rig, "MemberUpdated"));
}

#[test]
fn s_6_a_member_moves_once_its_old_address_is_silent() {
    for old_answers in [false, true] {
        let mut rig = wary(Preset::Lan, &[2, 3]);
        let moved = contents(42);
        rig.datagram(UDP, addr(42), &packet(2, &[alive(&moved, 2, 1)])).unwrap();
        prove(&mut rig, 2, addr(42), alive(&moved, 2, 1));
        assert_eq!(rig.machine.members().member(id(2)).unwrap().addr(), addr(2), "not at once");
        if old_answers {
            let nonce = nonce_to(&mut rig, addr(2)).expect("the old address is asked");
            say(&mut rig, 2, &[ack(2, nonce)]);
            assert!(has(&rig, "MemberConflict"), "two nodes with one id");
        }
        rig.advance(SECOND);
        let expected = if old_answers { addr(2) } else { addr(42) };
        assert_eq!(rig.machine.members().member(id(2)).unwrap().addr(), expected);
        let told: Vec<SocketAddr> = sent_kind(&mut rig, "Alive").into_iter().map(|(to, _)| to).collect();
        assert_eq!(told.contains(&addr(2)) && told.contains(&addr(42)), old_answers, "both get an Alive");
    }
}

/// SA-58a: after a restart at another address, others still know the old one.
#[test]
fn s_13_another_address_under_our_id_is_a_conflict_only_if_a_node_answers_there() {
    for is_answered in [false, true] {
        let mut rig = wary(Preset::Lan, &[2, 3]);
        let other = contents(77);
        say(&mut rig, 3, &[alive(&other, 1, 4)]);
        assert_eq!(rig.machine.incarnation(), Incarnation(5), "it is refuted");
        let log = rig.take_log();
        let to_other = format!("Send 0:0 to {} ", addr(77));
        let question =
            log.iter().find_map(|line| line.strip_prefix(&to_other)).expect("a question goes there");
        if is_answered {
            let mut twin = rig_with(&Config { bind: addr(77), stored_max: 0, ..config(1, Preset::Lan) }, &[]);
            twin.datagram(UDP, addr(1), &unhex(question)).unwrap();
            assert!(has(&twin, "IdConflict { addr: 10.0.0.1:7946 }"), "{:?}", twin.log);
            let answers = twin.take_log();
            let to_us = format!("Send 0:0 to {} ", addr(1));
            let answer = answers.iter().find_map(|line| line.strip_prefix(&to_us)).expect("it answers");
            rig.datagram(UDP, addr(77), &unhex(answer)).unwrap();
        }
        assert_eq!(has(&rig, "IdConflict { addr: 10.0.0.77:7946 }"), is_answered);
        assert!(!log.iter().any(|line| line.contains("IdConflict")), "{log:?}");
    }
}

#[test]
fn s_13_two_nodes_with_one_name_are_reported() {
    let meta = |tags: &str| Tags { name: tags.into(), ..Tags::default() }.encode().unwrap();
    let settings = Settings { verify: true, ..quiet(Preset::Lan) };
    let config = Config { settings, meta: meta("red"), stored_max: 0, ..config(1, Preset::Lan) };
    let mut rig = rig_with(&config, &[2]);
    for (n, name) in [(8, "redder"), (9, "red")] {
        let own = OwnContents::new(&[addr(n)], &meta(name)).unwrap();
        say(&mut rig, n, &[alive(&own, n, 0)]);
        prove(&mut rig, n, addr(n), alive(&own, n, 0));
    }
    assert!(status(&rig, 9).is_some() && status(&rig, 8).is_some());
    let told: Vec<&String> = rig.log.iter().filter(|line| line.contains("NameConflict")).collect();
    assert!(told.len() == 1 && told[0].contains("10.0.0.9"), "{told:?}");
}

/// Claims of others raise an incarnation at most eight above the proved one; accusations never raise it.
#[test]
fn s_78_claims_of_others_do_not_drive_an_incarnation() {
    let mut rig = wary(Preset::Lan, &[2, 3]);
    let own = contents(2);
    for number in 1..200 {
        say(&mut rig, 3, &[alive(&own, 2, number)]);
    }
    assert_eq!(status(&rig, 2), Some((8, State::Alive)));
    say(&mut rig, 3, &[suspect(3, 2, 1 << 16)]);
    assert_eq!(status(&rig, 2), Some((8, State::Suspect)));
    prove(&mut rig, 2, addr(2), alive(&own, 2, 300));
    assert_eq!(status(&rig, 2), Some((300, State::Alive)), "its own word, if it answered");
}

/// A crashed node that a forger keeps alive gets half of its timeout more, however much is forged.
#[test]
fn s_r5_a_forged_refutation_does_not_prolong_a_suspicion() {
    for forged in [false, true] {
        let mut rig = wary(Preset::GoSwim, &[2, 3, 4]);
        say(&mut rig, 3, &[suspect(3, 2, 0)]);
        let own = contents(2);
        let millis = if forged { 7_400 } else { 4_900 };
        for step in 1..=millis / 100 {
            if forged {
                say(&mut rig, 3, &[alive(&own, 2, step), suspect(4, 2, step)]);
            }
            rig.advance(Duration::from_millis(100));
        }
        assert_eq!(status(&rig, 2).unwrap().1, State::Suspect, "{forged}");
        rig.advance(Duration::from_millis(1_300));
        assert_eq!(status(&rig, 2).unwrap().1, State::Dead, "{forged}: 5 × 1 digit × 1 s");
    }
}

/// A member that answers does not die, whatever is claimed.
#[test]
fn s_r5_a_node_that_answers_its_last_probe_does_not_die() {
    let mut rig = wary(Preset::GoSwim, &[2, 3, 4]);
    let own = contents(2);
    for number in 0..20 {
        say(&mut rig, 3, &[dead(4, 2, number), dead(3, 2, number)]);
        rig.advance(Duration::from_millis(1));
        let messages = sent(&mut rig);
        let to_it = messages.iter().rfind(|(to, _)| *to == addr(2)).expect("it is probed at once");
        assert!(to_it.1[0].starts_with("Suspect"), "and hears what is said: {to_it:?}");
        let text = to_it.1.iter().find(|text| text.starts_with("Ping")).unwrap();
        let nonce = text.split("Sequence(").nth(1).unwrap().split(')').next().unwrap().parse().unwrap();
        say(&mut rig, 2, &[ack(2, Sequence(nonce)), alive(&own, 2, number + 1)]);
        assert_eq!(status(&rig, 2), Some((number + 1, State::Alive)));
    }
    assert_eq!(rig.machine.counted().deaths, 0);
}

/// SA-31d: the answers to the last probe may have been lost, so a member that died is asked six times more.
#[test]
fn s_r5_a_member_that_died_is_asked_again_and_returns_with_its_first_answer() {
    let own = contents(2);
    for answered in [None, Some(0), Some(2), Some(5)] {
        let mut rig = wary(Preset::Lan, &[2, 3, 4, 5, 6]);
        say(&mut rig, 3, &[dead(3, 2, 0)]);
        while status(&rig, 2).unwrap().1 != State::Dead {
            rig.take_log();
            rig.advance(Duration::from_millis(1));
        }
        let mut asked = 0;
        for _ in 0..6_000 {
            let questions = sent(&mut rig).into_iter().filter(|(to, _)| *to == addr(2));
            for (_, messages) in
                questions.filter(|_| status(&rig, 2).unwrap().1 == State::Dead).collect::<Vec<_>>()
            {
                let is_told = messages[0].starts_with("Dead") && messages[1].starts_with("Ping");
                assert!(is_told, "it hears what is held against it: {messages:?}");
                if answered == Some(asked) {
                    let nonce = messages[1].split("Sequence(").nth(1).unwrap().split(')').next().unwrap();
                    say(&mut rig, 2, &[ack(2, Sequence(nonce.parse().unwrap())), alive(&own, 2, 1)]);
                    assert_eq!(status(&rig, 2), Some((1, State::Alive)));
                } else {
                    asked += 1;
                }
            }
            rig.advance(Duration::from_millis(1));
        }
        assert_eq!(asked, answered.unwrap_or(6), "at once, then every 500 ms; not once it is back");
    }
}

/// SA-31d: a flood of invented members fills the queue of questions, and delays none to a member that died.
#[test]
fn s_r5_a_flood_of_invented_members_does_not_delay_the_questions_to_the_dead() {
    let mut rig = wary(Preset::Lan, &[2, 3, 4, 5, 6]);
    say(&mut rig, 3, &[dead(3, 2, 0)]);
    let mut invented = 0_u32;
    while status(&rig, 2).unwrap().1 != State::Dead {
        for _ in 0..4 {
            invented += 1;
            let at = SocketAddr::from(([10, 9, (invented >> 8) as u8, invented as u8], 1));
            let own = OwnContents::new(&[at], &[]).unwrap();
            let node = NodeView { id: Id::from_text(&invented.to_string()), contents: own.borrow() };
            let header = Header { from: node.id, sequence: Sequence(0) };
            say(&mut rig, 3, &[Message::Alive { header, node, incarnation: Incarnation(0) }]);
        }
        rig.take_log();
        rig.advance(Duration::from_millis(1));
    }
    assert!(sent_kind(&mut rig, "Ping").iter().any(|(to, _)| *to == addr(2)));
}

/// SA-6: whoever holds this node for dead with a number of the past hears how it is.
#[test]
fn s_23_a_death_of_the_past_is_answered_to_the_one_who_holds_it() {
    let mut rig = wary(Preset::Lan, &[2, 3]);
    say(&mut rig, 2, &[suspect(2, 1, 40)]);
    rig.advance(SECOND);
    rig.take_log();
    say(&mut rig, 3, &[dead(2, 1, 7)]);
    assert!(sent_kind(&mut rig, "Alive").is_empty(), "the sender passes on what another one said");
    say(&mut rig, 3, &[dead(3, 1, 7)]);
    let told = sent_kind(&mut rig, "Alive");
    assert!(told.len() == 1 && told[0].0 == addr(3) && told[0].1.contains("Incarnation(41)"), "{told:?}");
    assert_eq!(rig.machine.incarnation(), Incarnation(41), "nothing new has to be refuted");
}

#[test]
fn s_75_a_death_declared_by_others_is_accepted_when_the_own_probe_fails() {
    let mut rig = wary(Preset::Lan, &[2, 3, 4, 5, 6]);
    say(&mut rig, 3, &[dead(3, 2, 0)]);
    assert_eq!(status(&rig, 2).unwrap().1, State::Suspect);
    rig.advance(Duration::from_millis(1_100));
    assert_eq!(status(&rig, 2).unwrap().1, State::Dead);
}

#[test]
fn s_r8_a_forged_leave_is_refuted() {
    let mut rig = wary(Preset::Lan, &[2, 3]);
    let own = contents(2);
    say(&mut rig, 3, &[dead(2, 2, 0)]);
    assert_eq!(status(&rig, 2), Some((0, State::Alive)), "it is asked first");
    prove(&mut rig, 2, addr(2), alive(&own, 2, 1));
    rig.advance(2 * SECOND);
    assert_eq!(rig.machine.members().member(id(2)).unwrap().incarnation(), Incarnation(1));
    assert!(!has(&rig, "MemberLeft"));
    // A node's own Dead counts at once; for one that does not answer, its Dead counts after an interval.
    say(&mut rig, 3, &[dead(2, 2, 1)]);
    prove(&mut rig, 2, addr(2), dead(2, 2, 1));
    assert_eq!(status(&rig, 2), Some((1, State::Left)));
    let settings = Settings { verify: true, probe_interval: 60 * SECOND, ..quiet(Preset::Lan) };
    let mut rig = rig_with(&Config { settings, stored_max: 0, ..config(1, Preset::Lan) }, &[2, 3]);
    say(&mut rig, 3, &[dead(3, 3, 0)]);
    rig.advance(61 * SECOND);
    assert!(has(&rig, "MemberLeft"));
}

/// SA-61: one Join makes no node send more than three times its bytes before the address is proved.
#[test]
fn s_83_a_join_gets_three_times_its_bytes_until_it_shows_a_cookie() {
    for preset in [Preset::Lan, Preset::GoSwim] {
        let others: Vec<u8> = (2..200).collect();
        let mut rig = wary(preset, &others);
        let own = contents(250);
        let join_packet = packet(250, &[join(&own, 250, 0)]);
        rig.datagram(UDP, addr(250), &join_packet).unwrap();
        let bytes: usize = rig
            .log
            .iter()
            .filter_map(|line| line.strip_prefix("Send 0:0 to 10.0.0.250:7946 "))
            .map(|hex| hex.len() / 2)
            .sum();
        assert!(bytes > 0 && bytes <= 3 * join_packet.len(), "{preset}: {bytes} of {}", join_packet.len());
        assert_eq!(status(&rig, 250), None, "nor does anybody hear of it");
        let log = rig.log.clone();
        let own_alive = sent_kind(&mut rig, "Alive");
        assert!(own_alive.iter().any(|(to, _)| *to == addr(250)), "S-83");
        rig.log = log;
        prove(&mut rig, 250, addr(250), join(&own, 250, 0));
        assert_eq!(status(&rig, 250), Some((0, State::Alive)));
        rig.advance(SECOND);
        assert!(sent_kind(&mut rig, "Alive").len() > 150, "the table");
    }
}

/// SA-61: an answer of three times the bytes is sent, one of a byte more is not. All answers to a packet count together.
#[test]
fn s_23_refutations_to_an_unknown_sender_have_at_most_three_times_its_bytes() {
    for (meta, said, answers) in [(133, 1, 1), (134, 1, 0), (133, 2, 1), (80, 2, 2)] {
        let settings = Settings { verify: true, ..quiet(Preset::Lan) };
        let own = Config { settings, stored_max: 0, meta: vec![7; meta], ..config(1, Preset::Lan) };
        let mut rig = rig_with(&own, &[2, 3]);
        let accusations: Vec<_> = (0..said).map(|number| suspect(66, 1, number)).collect();
        let question = packet(66, &accusations);
        rig.datagram(UDP, addr(66), &question).unwrap();
        assert_eq!(rig.machine.incarnation(), Incarnation(said), "it refutes all of them");
        let to = format!("Send 0:0 to {} ", addr(66));
        let lines = rig.log.iter().filter_map(|line| line.strip_prefix(&to));
        let bytes: Vec<usize> = lines.map(|hex| hex.len() / 2).collect();
        assert_eq!(bytes.len(), answers, "{meta} bytes of metadata, {said} accusations: {bytes:?}");
        assert!(bytes.iter().sum::<usize>() <= 3 * question.len(), "{bytes:?} for {}", question.len());
        if (meta, said) == (133, 1) {
            assert_eq!(bytes, [3 * question.len()], "exactly three times");
        }
    }
}

#[test]
fn s_83_a_cookie_is_for_one_address_and_one_node() {
    let mut rig = wary(Preset::Lan, &[2, 3, 4]);
    let own = contents(9);
    rig.datagram(UDP, addr(9), &packet(9, &[join(&own, 9, 0)])).unwrap();
    let nonce = nonce_to(&mut rig, addr(9)).unwrap();
    let elsewhere = contents(66);
    rig.datagram(UDP, addr(66), &packet(9, &[ack(9, nonce), join(&elsewhere, 9, 0)])).unwrap();
    rig.datagram(UDP, addr(9), &packet(8, &[ack(8, nonce), join(&own, 8, 0)])).unwrap();
    assert_eq!((status(&rig, 9), status(&rig, 8)), (None, None));
}

#[test]
fn s_79_an_answer_goes_to_the_source_of_the_question() {
    let mut rig = wary(Preset::Lan, &[2, 3]);
    say(&mut rig, 3, &[suspect(3, 2, 0)]);
    rig.take_log();
    rig.datagram(UDP, addr(66), &packet(3, &[ping(3, 1, 5)])).unwrap();
    let answers = sent(&mut rig);
    assert!(
        answers.len() == 1 && answers[0].0 == addr(66) && answers[0].1.len() == 1,
        "no updates: {answers:?}"
    );
}

/// SA-22a, SA-61: updates are queued, and a sender that is not known at its source gets none of them.
#[test]
fn s_70_unknown_senders_get_bare_answers_to_indirect_pings_and_accusations() {
    let mut rig = wary(Preset::Lan, &[2, 3, 4]);
    for _ in 0..8 {
        rig.command(Command::Broadcast { data: vec![7; 120], wait: false });
    }
    rig.take_log();
    let own = contents(77);
    let indirect = |target: u8| Message::IndirectPing {
        header: header(66, 5),
        to: id(1),
        target: id(target),
        wants_nack: true,
        contents: own.borrow(),
    };
    for said in [indirect(1), indirect(99), suspect(66, 1, 0), dead(66, 1, 1)] {
        let bytes = packet(66, &[said]);
        rig.datagram(UDP, addr(66), &bytes).unwrap();
        rig.advance(Duration::from_millis(600));
        let log = rig.take_log();
        let sent = |to: u8| {
            let to = format!("Send 0:0 to {} ", addr(to));
            log.iter().filter_map(|line| line.strip_prefix(&to)).map(|hex| hex.len() / 2).sum::<usize>()
        };
        let answer = sent(66) + sent(77);
        assert!(answer > 0 && answer <= 3 * bytes.len(), "{answer} bytes for {} of {said:?}", bytes.len());
    }
    // A member gets updates with its answer.
    say(&mut rig, 2, &[indirect(1)]);
    assert!(has(&rig, "07070707"), "{:?}", rig.log);
}

/// SA-7c: a node whose incarnation was driven high, and which lost it with its disk, is a member again once it is
/// forgotten.
#[test]
fn s_22_a_node_that_lost_an_incarnation_it_cannot_follow_returns_as_a_new_one() {
    let far = Incarnation::FORMER_MAX + 100;
    let mut rig = wary(Preset::Lan, &[2, 3]);
    let own = contents(2);
    rig.datagram(UDP, addr(2), &packet(2, &[alive(&own, 2, far)])).unwrap();
    prove(&mut rig, 2, addr(2), alive(&own, 2, far));
    assert_eq!(status(&rig, 2), Some((far, State::Alive)));
    rig.command(Command::ForceLeave { id: id(2), prune: false });
    rig.advance(40 * SECOND);
    assert_eq!(status(&rig, 2), None, "forgotten");
    rig.take_log();
    rig.datagram(UDP, addr(2), &packet(2, &[alive(&own, 2, 0)])).unwrap();
    assert_eq!(status(&rig, 2), None, "not without proof");
    prove(&mut rig, 2, addr(2), alive(&own, 2, 0));
    assert_eq!(status(&rig, 2), Some((0, State::Alive)));
    // A node that can follow gets its accusation, and refutes.
    rig.command(Command::ForceLeave { id: id(2), prune: false });
    rig.advance(40 * SECOND);
    rig.take_log();
    rig.datagram(UDP, addr(2), &packet(2, &[alive(&own, 2, 0)])).unwrap();
    assert_eq!(sent_kind(&mut rig, "Dead").len(), 1);
}

/// SA-31b: forged Alives make nodes hold different incarnations of a crashed node. Its accusers still count together.
#[test]
fn s_74_accusers_of_slightly_lower_incarnations_confirm_a_suspicion() {
    for (lower, is_shared) in [(1, true), (8, true), (9, false)] {
        let mut rig = wary(Preset::Lan, &[2, 3, 4, 5, 6]);
        let own = contents(2);
        rig.datagram(UDP, addr(2), &packet(2, &[alive(&own, 2, 20)])).unwrap();
        prove(&mut rig, 2, addr(2), alive(&own, 2, 20));
        say(&mut rig, 3, &[suspect(3, 2, 20)]);
        rig.take_log();
        for by in [4, 5] {
            say(&mut rig, by, &[suspect(by, 2, 20 - lower)]);
        }
        let started = rig.now.mono;
        while status(&rig, 2).unwrap().1 == State::Suspect {
            rig.advance(Duration::from_millis(50));
        }
        let lasted = rig.now.mono.since(started);
        assert_eq!(lasted < 16 * SECOND, is_shared, "{lower} below: {lasted:?}");
    }
}
