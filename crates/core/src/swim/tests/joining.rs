//! Joining, leaving and rejoining.

use super::*;
use crate::Machine;

#[test]
fn s_135_a_join_goes_to_every_address_but_our_own() {
    let mut rig = rig(Preset::GoSwim, &[]);
    rig.command(Command::Join { addrs: vec![addr(1), addr(2), addr(3), addr(2)] });
    assert!(has(&rig, "Reply 1 Joining { addrs: 2 }"));
    let joins: Vec<SocketAddr> = sent_kind(&mut rig, "Join").into_iter().map(|(to, _)| to).collect();
    assert_eq!(joins, [addr(2), addr(3)]);
    rig.command(Command::Join { addrs: vec![addr(1)] });
    assert!(has(&rig, "NoAddress"));
}

/// SF-11.
#[test]
fn s_135_a_join_is_sent_three_times_until_a_node_answers() {
    let mut rig = rig(Preset::GoSwim, &[]);
    rig.command(Command::Join { addrs: vec![addr(2), addr(3)] });
    let own = contents(3);
    say(&mut rig, 3, &[alive(&own, 3, 0)]);
    assert!(has(&rig, "Joined { addr: 10.0.0.3:7946 }"));
    rig.advance(10 * SECOND);
    assert!(has(&rig, "JoinFailed { addr: 10.0.0.2:7946 }"));
    let joins: Vec<SocketAddr> = sent_kind(&mut rig, "Join").into_iter().map(|(to, _)| to).collect();
    assert_eq!(joins, [addr(2), addr(3), addr(2), addr(2)]);
}

/// A packet of another ring.
fn strange(from: u8, message: &Message<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut writer = Writer::new(&mut bytes, 999);
    Head { ring: Ring::new("other"), from: id(from) }.write(&mut writer);
    encode(message, &mut writer);
    bytes
}

#[test]
fn a_join_of_another_ring_is_answered_and_adds_no_member() {
    let mut rig = rig(Preset::GoSwim, &[]);
    let own = contents(9);
    assert_eq!(rig.datagram(UDP, addr(9), &strange(9, &join(&own, 9, 0))), Ok(()));
    assert_eq!(status(&rig, 9), None);
    let told: Vec<SocketAddr> = sent(&mut rig).into_iter().map(|(to, _)| to).collect();
    assert_eq!(told, [addr(9)]);
    // The answer is no Join, so that two nodes do not answer each other for ever.
    assert!(rig.datagram(UDP, addr(9), &strange(9, &alive(&own, 9, 0))).is_err());
    assert!(sent(&mut rig).is_empty());
}

#[test]
fn a_node_of_another_ring_at_an_address_that_is_joined_is_reported_once() {
    let mut rig = rig(Preset::GoSwim, &[]);
    rig.command(Command::Join { addrs: vec![addr(2)] });
    let own = contents(2);
    assert_eq!(rig.datagram(UDP, addr(2), &strange(2, &alive(&own, 2, 0))), Ok(()));
    assert!(has(&rig, "WrongRing { addr: 10.0.0.2:7946 }"));
    rig.take_log();
    assert!(rig.datagram(UDP, addr(2), &strange(2, &alive(&own, 2, 0))).is_err());
    assert!(!has(&rig, "WrongRing"));
    assert_eq!(status(&rig, 2), None);
    rig.advance(10 * SECOND);
    assert!(has(&rig, "JoinFailed { addr: 10.0.0.2:7946 }"), "the join goes on, in vain");
}

#[test]
fn s_83_a_join_is_an_alive_and_is_answered_with_ours() {
    for preset in [Preset::GoSwim, Preset::Lan] {
        let mut rig = rig(preset, &[2]);
        let own = contents(9);
        say(&mut rig, 9, &[join(&own, 9, 0)]);
        assert_eq!(status(&rig, 9), Some((0, State::Alive)));
        let told = sent_kind(&mut rig, "Alive");
        assert!(told.iter().any(|(to, text)| *to == addr(9) && text.contains(&format!("id: {:?}", id(1)))));
    }
}

/// SF-10: and with the whole table.
#[test]
fn s_83_the_addressed_node_sends_a_joiner_its_whole_table() {
    let others: Vec<u8> = (2..202).collect();
    let mut rig = rig(Preset::Lan, &others);
    say(&mut rig, 3, &[dead(3, 4, 0), suspect(3, 5, 0)]);
    rig.take_log();
    let own = contents(250);
    say(&mut rig, 250, &[join(&own, 250, 0)]);
    let at_once = sent(&mut rig).len();
    assert!(at_once <= 5, "a few packets at a time: {at_once}");
    say(&mut rig, 250, &[join(&own, 250, 0)]);
    rig.advance(Duration::from_millis(400));
    let packets = sent(&mut rig);
    let told: Vec<String> = packets
        .iter()
        .filter(|(to, _)| *to == addr(250))
        .flat_map(|(_, messages)| messages.clone())
        .collect();
    for n in others.iter().filter(|n| **n != 4) {
        let name = format!("node: NodeView {{ id: {:?}", id(*n));
        assert!(told.iter().any(|text| text.contains(&name)), "node {n} is missing");
    }
    assert!(told.iter().any(|text| text.starts_with("Suspect")), "suspicions are included");
    assert!(!told.iter().any(|text| text.contains(&format!("{:?}", id(4)))), "dead members are not");
    assert!(rig.log.iter().all(|line| line.len() < 2 * 1400 + 100), "no packet over the limit");
}

#[test]
fn s_83_the_table_goes_only_to_an_address_that_the_joiner_claims() {
    let mut rig = rig(Preset::Lan, &[2, 3, 4, 5]);
    let own = contents(9);
    rig.datagram(UDP, addr(66), &packet(9, &[join(&own, 9, 0)])).unwrap();
    rig.advance(Duration::from_millis(100));
    let to_stranger: usize =
        sent(&mut rig).iter().filter(|(to, _)| *to == addr(66)).map(|(_, messages)| messages.len()).sum();
    assert_eq!(to_stranger, 1, "our Alive, no more");
}

#[test]
fn s_83_in_go_swim_every_member_answers_a_forwarded_join_after_a_delay() {
    let own = contents(9);
    for (preset, expected) in [(Preset::GoSwim, 1), (Preset::Lan, 0)] {
        let mut rig = rig(preset, &[2, 3]);
        say(&mut rig, 2, &[join(&own, 9, 0)]);
        let greeted = |rig: &mut Rig<Swim>| {
            let told = sent_kind(rig, "Alive");
            let name = format!("id: {:?}", id(1));
            told.iter().filter(|(to, text)| *to == addr(9) && text.contains(&name)).count()
        };
        assert_eq!(greeted(&mut rig), 0, "not at once");
        rig.advance(SECOND);
        assert_eq!(greeted(&mut rig), expected);
        say(&mut rig, 3, &[join(&own, 9, 0)]);
        rig.advance(SECOND);
        assert_eq!(greeted(&mut rig), 0, "it is no news any more");
    }
}

#[test]
fn s_72_go_swim_forwards_a_join_as_a_join() {
    let own = contents(9);
    for (preset, kind) in [(Preset::GoSwim, "Join"), (Preset::Lan, "Alive")] {
        let mut rig = rig(preset, &[2, 3]);
        say(&mut rig, 2, &[join(&own, 9, 0)]);
        rig.take_log();
        say(&mut rig, 3, &[ping(3, 1, 1)]);
        let told = sent_kind(&mut rig, kind);
        assert!(told[0].1.contains(&format!("{:?}", id(9))), "{preset}: {told:?}");
    }
}

/// SF-12.
#[test]
fn s_136_s_r8_a_leave_is_a_dead_of_the_node_itself_that_it_does_not_refute() {
    let mut rig = rig(Preset::GoSwim, &[2, 3]);
    rig.command(Command::Leave { timeout: None });
    assert!(!has(&rig, "Reply"), "no member was sent the update yet");
    next_ping(&mut rig);
    assert!(has(&rig, "Reply 1 Done"));
    let told = sent_kind(&mut rig, "Dead");
    assert!(
        told[0].1.contains(&format!("from: {:?}", id(1))) && told[0].1.contains(&format!("id: {:?}", id(1)))
    );
    say(&mut rig, 2, &[suspect(3, 1, 0), dead(3, 1, 0)]);
    assert_eq!(rig.machine.incarnation(), Incarnation(0));
    say(&mut rig, 2, &[ping(2, 1, 4)]);
    assert_eq!(sent_kind(&mut rig, "Ack").len(), 1, "it still answers");
}

#[test]
fn s_r8_a_left_member_is_not_suspected_and_old_updates_do_not_revive_it() {
    let mut rig = rig(Preset::GoSwim, &[2, 3]);
    say(&mut rig, 2, &[dead(2, 2, 0)]);
    assert_eq!(status(&rig, 2), Some((0, State::Left)));
    assert!(has(&rig, "MemberLeft"));
    let own = contents(2);
    say(&mut rig, 3, &[suspect(3, 2, 0), dead(3, 2, 0), alive(&own, 2, 0)]);
    assert_eq!(status(&rig, 2), Some((0, State::Left)));
    assert_eq!(rig.machine.counted().suspicions, 0);
}

#[test]
fn s_136_a_leave_that_no_member_receives_times_out() {
    let mut rig = rig(Preset::GoSwim, &[2]);
    next_ping(&mut rig);
    rig.take_log();
    rig.command(Command::Leave { timeout: Some(Duration::from_millis(50)) });
    rig.advance(Duration::from_millis(60));
    assert!(has(&rig, "Reply 1 TimedOut"));
    next_ping(&mut rig);
    assert_eq!(sent_kind(&mut rig, "Dead").len(), 1, "it is still on its way");
    assert!(!has(&rig, "Reply"), "answered once");
}

#[test]
fn s_r8_a_left_node_can_join_again() {
    let mut rig = rig(Preset::GoSwim, &[2]);
    rig.command(Command::Leave { timeout: None });
    next_ping(&mut rig);
    rig.command(Command::Join { addrs: vec![addr(2)] });
    assert_eq!(rig.machine.incarnation(), Incarnation(1));
    assert_eq!(status(&rig, 1), Some((1, State::Alive)));
}

#[test]
fn s_133_a_stop_leaves_if_configured_and_ends() {
    for leave in [true, false] {
        let settings = quiet(Preset::GoSwim);
        let config = Config { leave_on_stop: leave, settings, ..config(1, Preset::GoSwim) };
        let mut rig = rig_with(&config, &[2, 3]);
        rig.stop();
        rig.advance(2 * SECOND);
        assert!(rig.machine.is_stopped());
        assert_eq!(!sent_kind(&mut rig, "Dead").is_empty(), leave);
        rig.take_log();
        rig.advance(20 * SECOND);
        assert!(sent(&mut rig).is_empty(), "no more probes");
    }
}

#[test]
fn known_members_are_stored_and_joined_after_a_restart() {
    let trusting = Settings { verify: false, ..Preset::Lan.settings() };
    let mut rig = rig_with(&Config { settings: trusting, ..config(1, Preset::Lan) }, &[2, 3]);
    let own = contents(9);
    say(&mut rig, 9, &[alive(&own, 9, 0)]);
    let left = contents(8);
    say(&mut rig, 8, &[alive(&left, 8, 0)]);
    rig.advance(6 * SECOND);
    assert_eq!(rig.disk.len(), 2);
    say(&mut rig, 8, &[dead(8, 8, 0)]);
    rig.advance(6 * SECOND);
    assert_eq!(rig.disk.len(), 2, "also left members, for the history");
    let mut again = Rig::new(Swim::new(&config(1, Preset::Lan), [8; 32]).unwrap());
    again.disk = rig.disk;
    again.start();
    let joins: Vec<SocketAddr> = sent_kind(&mut again, "Join").into_iter().map(|(to, _)| to).collect();
    assert_eq!(joins, [addr(9)], "a left member is not probed again");
    again.take_log();
    again.command(Command::Members { all: true });
    assert!(has(&again, "state: Left") && has(&again, "since_micros: Some"), "but is shown: {:?}", again.log);
}

/// SA-33b.
#[test]
fn failed_members_are_listed_for_a_day_and_can_be_force_left_and_pruned() {
    let mut rig = rig(Preset::Lan, &[2, 3]);
    say(&mut rig, 3, &[dead(3, 2, 0)]);
    rig.advance(40 * SECOND);
    assert_eq!(status(&rig, 2), None, "no longer in the table");
    let shown = |rig: &mut Rig<Swim>| {
        rig.take_log();
        rig.command(Command::Members { all: true });
        rig.log.iter().find(|line| line.contains("Reply")).unwrap().clone()
    };
    let text = shown(&mut rig);
    assert!(text.contains(&format!("by: Some({:?})", id(3))) && text.contains("state: Dead"), "{text}");
    rig.command(Command::ForceLeave { id: id(2), prune: false });
    assert!(shown(&mut rig).contains("state: Left"), "and is not asked again");
    rig.now.wall = Wall::from_micros(rig.now.wall.as_micros() + 25 * 3600 * 1_000_000);
    assert!(!shown(&mut rig).contains("state: Left"), "for a day");
    rig.command(Command::ForceLeave { id: id(2), prune: true });
    assert!(has(&rig, "Done"));
    rig.command(Command::ForceLeave { id: id(2), prune: true });
    assert!(has(&rig, "NoSuchMember"));
}

#[test]
fn unreadable_stored_members_are_counted() {
    let mut rig = Rig::new(Swim::new(&config(1, Preset::Lan), [8; 32]).unwrap());
    rig.disk.insert((SPACE, b"short".to_vec()), b"x".to_vec());
    rig.start();
    assert_eq!(rig.machine.counted().stored_unreadable, 1);
    rig.advance(3 * SECOND);
    assert!(rig.machine.period() >= 2, "it runs all the same");
}

/// SF-9, SA-33c and the retry of #222: in a group of two a past member is probed every three periods.
#[test]
fn past_members_are_probed_for_ever() {
    let settings = Settings { retry_interval: 10 * SECOND, ..quiet(Preset::Lan) };
    let mut rig = rig_with(&Config { settings, ..config(1, Preset::Lan) }, &[2, 3]);
    say(&mut rig, 3, &[dead(3, 2, 4)]);
    rig.take_log();
    let ack_all = |rig: &mut Rig<Swim>, seconds: u32| {
        for _ in 0..seconds {
            let (target, sequence) = next_ping(rig);
            say(rig, target, &[ack(target, sequence)]);
        }
    };
    ack_all(&mut rig, 40);
    rig.take_log();
    ack_all(&mut rig, 600);
    let asked = sent(&mut rig);
    let to_lost: Vec<_> = asked.iter().filter(|(to, _)| *to == addr(2)).collect();
    assert!((198..=201).contains(&to_lost.len()), "{}", to_lost.len());
    assert!(to_lost[0].1[0].starts_with("Join") && to_lost[0].1[1].starts_with("Dead"), "{to_lost:?}");
    // An old Alive does not revive it, its own Alive does.
    let own = contents(2);
    say(&mut rig, 3, &[alive(&own, 2, 4)]);
    assert_eq!(status(&rig, 2), None);
    say(&mut rig, 2, &[alive(&own, 2, 5)]);
    assert_eq!(status(&rig, 2), Some((5, State::Alive)));
}

#[test]
fn the_list_of_past_members_is_bounded() {
    let mut past = tombstones::Tombstones::new(3);
    let member =
        |n: u8| tombstones::Tombstone { addr: addr(n).into(), status: None, ended: None, is_final: false };
    (1..10).for_each(|n| past.add(id(n), member(n)));
    assert_eq!(past.len(), 3);
    let round: Vec<Id> = (0..6).map(|_| past.next().unwrap().0).collect();
    assert_eq!(round[..3], round[3..], "one after the other, for ever");
}
