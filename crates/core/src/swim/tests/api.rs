//! The MemberList API.

use super::*;
use crate::Machine;

#[test]
fn s_126_invalid_options_are_refused_with_a_reason() {
    let base = || config(1, Preset::Lan);
    let set = |change: fn(&mut Settings)| {
        let mut config = base();
        change(&mut config.settings);
        config
    };
    let cases = [
        (Config { id: Id::MIN, ..base() }, "the id is zero"),
        (Config { addrs: vec![addr(1); 9], ..base() }, "9 addresses"),
        (Config { bind: "0.0.0.0:7946".parse().unwrap(), ..base() }, "give one that is in `addrs`"),
        (Config { meta: vec![0; 513], ..base() }, "513 bytes of metadata"),
        (set(|s| s.probe_interval = Duration::from_micros(999)), "it must be at least 1ms"),
        (set(|s| s.probe_timeout = s.probe_interval), "below the probe interval (1s)"),
        (set(|s| s.suspicion_mult = 0), "at least 1"),
        (set(|s| s.region_count = 0), "region_count is 0"),
        (set(|s| s.region_probes = 0), "nobody would be probed"),
        (set(|s| s.packet_bytes_max = 100), "between 768 and 32767"),
        (set(|s| s.user_share = Some(91)), "over 90 percent"),
    ];
    for (config, part) in cases {
        let error = Swim::new(&config, [0; 32]).unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    }
    assert!(Swim::new(&Config { meta: vec![0; 512], ..base() }, [0; 32]).is_ok());
}

#[test]
fn s_129_the_member_list_includes_the_local_node_and_suspects() {
    let mut rig = rig(Preset::GoSwim, &[2, 3, 4]);
    say(&mut rig, 2, &[suspect(2, 3, 0), dead(2, 4, 0)]);
    rig.take_log();
    rig.command(Command::MemberCount);
    rig.command(Command::Members { all: false });
    rig.command(Command::Members { all: true });
    rig.command(Command::LocalNode);
    assert_eq!(rig.log[0], "Reply 1 Count(3)");
    let count = |line: &str, part: &str| line.matches(part).count();
    assert_eq!(count(&rig.log[1], "state:"), 3);
    assert!(rig.log[1].contains("state: Suspect") && !rig.log[1].contains("Dead"));
    assert_eq!((count(&rig.log[1], "is_self: true"), count(&rig.log[2], "state: Dead")), (1, 1));
    assert!(rig.log[3].starts_with("Reply 4 LocalNode(Node { id: 01000000, addrs: [10.0.0.1:7946]"));
}

#[test]
fn s_131_new_metadata_is_broadcast_with_a_new_incarnation() {
    let mut rig = rig(Preset::GoSwim, &[2]);
    rig.command(Command::SetMeta { meta: b"blue".to_vec() });
    assert!(has(&rig, "Reply 1 Done"));
    next_ping(&mut rig);
    let told = sent_kind(&mut rig, "Alive");
    assert!(told[0].1.contains("Incarnation(1)"), "{told:?}");
    let member = rig.machine.members().member(id(1)).unwrap();
    assert_eq!(member.contents().meta(), b"blue");
    rig.command(Command::SetMeta { meta: vec![0; 513] });
    assert!(has(&rig, "Reply 2 TooLarge { bytes: 513, bytes_max: 512 }"));
    assert_eq!(rig.machine.incarnation(), Incarnation(1), "nothing changed");
}

#[test]
fn s_134_an_update_is_answered_when_a_first_member_was_sent_it() {
    let mut rig = rig(Preset::GoSwim, &[2]);
    rig.command(Command::Update { timeout: None });
    assert!(!has(&rig, "Reply"));
    next_ping(&mut rig);
    assert!(has(&rig, "Reply 1 Done"));
    assert!(sent_kind(&mut rig, "Alive")[0].1.contains("Incarnation(1)"));
}

/// SF-16.
#[test]
fn s_134_a_lone_node_answers_an_update_at_once() {
    let mut rig = rig(Preset::GoSwim, &[]);
    rig.command(Command::Update { timeout: None });
    rig.command(Command::Broadcast { data: b"hello?".to_vec(), wait: true });
    rig.command(Command::Leave { timeout: None });
    let replies: Vec<&String> = rig.log.iter().filter(|line| line.starts_with("Reply")).collect();
    assert_eq!(replies, ["Reply 1 Done", "Reply 2 Done", "Reply 3 Done"]);
    rig.advance(60 * SECOND);
    assert!(sent(&mut rig).is_empty());
}

#[test]
fn s_127_a_broadcast_reaches_the_pinged_members() {
    let mut rig = rig(Preset::GoSwim, &[2]);
    rig.command(Command::Broadcast { data: b"hello".to_vec(), wait: false });
    assert!(has(&rig, "Reply 1 Done"));
    next_ping(&mut rig);
    let told = sent_kind(&mut rig, "User");
    assert!(told[0].1.contains("[104, 101, 108, 108, 111]"), "{told:?}");
}

/// SF-22.
#[test]
fn s_59_s_65_a_broadcast_that_fits_no_packet_is_refused_and_one_that_just_fits_goes() {
    for preset in [Preset::GoSwim, Preset::Lan] {
        let mut rig = rig(preset, &[2, 3]);
        rig.command(Command::Broadcast { data: vec![7; 1357], wait: false });
        assert!(has(&rig, "TooLarge { bytes: 1357, bytes_max: 1356 }"));
        rig.command(Command::Broadcast { data: vec![7; 1300], wait: false });
        next_ping(&mut rig);
        assert_eq!(sent_kind(&mut rig, "User").len(), 1, "{preset}");
    }
}

/// SF-15.
#[test]
fn s_92_s_98_a_full_queue_blocks_only_the_pusher() {
    let settings = quiet(Preset::GoSwim);
    let config = Config { user_max: 2, blocked_max: 2, settings, ..config(1, Preset::GoSwim) };
    let mut rig = rig_with(&config, &[2, 3]);
    for wait in [true, true, true, true, true, false] {
        rig.command(Command::Broadcast { data: vec![1; 600], wait });
    }
    let replies = |rig: &Rig<Swim>| -> Vec<String> {
        rig.log.iter().filter(|line| line.starts_with("Reply")).cloned().collect()
    };
    assert_eq!(replies(&rig), ["Reply 1 Done", "Reply 2 Done", "Reply 5 Full", "Reply 6 Full"]);
    say(&mut rig, 3, &[suspect(3, 2, 0)]);
    assert_eq!(status(&rig, 2).unwrap().1, State::Suspect, "updates need no room");
    rig.take_log();
    for sequence in 0..8 {
        say(&mut rig, 3, &[ping(3, 1, sequence)]);
    }
    assert_eq!(replies(&rig)[..], ["Reply 3 Done", "Reply 4 Done"], "first come, first in");
}

#[test]
fn s_110_s_111_a_stop_answers_waiting_commands_and_a_start_resumes() {
    let settings = quiet(Preset::GoSwim);
    let config = Config { user_max: 1, settings, ..config(1, Preset::GoSwim) };
    for close in [true, false] {
        let mut rig = rig_with(&config, &[2, 3]);
        rig.command(Command::Start);
        rig.command(Command::Broadcast { data: vec![1; 600], wait: true });
        rig.command(Command::Broadcast { data: vec![2; 600], wait: true });
        rig.command(Command::Update { timeout: None });
        rig.command(if close { Command::Close } else { Command::Stop });
        assert!(has(&rig, "Reply 1 AlreadyStarted"));
        assert!(has(&rig, "Reply 3 Stopped") && has(&rig, "Reply 5 Done"));
        assert_eq!(has(&rig, "Reply 4 Stopped"), close, "a stop sends what waits once");
        let flushed = !sent_kind(&mut rig, "User").is_empty();
        assert_eq!(flushed, !close);
        rig.advance(20 * SECOND);
        assert!(sent(&mut rig).is_empty());
        rig.command(Command::Join { addrs: vec![addr(2)] });
        assert!(has(&rig, "NotStarted"));
        assert!(rig.datagram(UDP, addr(2), &packet(2, &[ping(2, 1, 1)])).is_err());
        rig.command(Command::Start);
        rig.advance(3 * SECOND);
        assert!(!sent_kind(&mut rig, "Ping").is_empty());
        assert_eq!(rig.machine.incarnation(), Incarnation(1), "it is who it was");
    }
}

/// SA-14: a node that leaves at its stop has an interval for its goodbye, so that more than one round of gossip has it.
#[test]
fn s_110_a_stop_leaves_time_for_the_goodbye() {
    let config = Config { leave_on_stop: true, stored_max: 0, ..config(1, Preset::Lan) };
    let others: Vec<u8> = (2..12).collect();
    let mut rig = rig_with(&config, &others);
    rig.stop();
    let at_once = sent_kind(&mut rig, "Dead").len();
    rig.advance(Duration::from_millis(450));
    let later = sent_kind(&mut rig, "Dead").len();
    assert!(at_once > 0 && later > 0, "{at_once} at once, {later} later");
    rig.advance(90 * SECOND);
    assert_eq!(sent_kind(&mut rig, "Summary"), [], "tables are not compared any more");
}

#[test]
fn s_109_a_machine_starts_by_itself_and_not_before() {
    let mut rig = Rig::new(Swim::new(&config(1, Preset::Lan), [7; 32]).unwrap());
    assert!(rig.datagram(UDP, addr(2), &packet(2, &[ping(2, 1, 1)])).is_err());
    assert_eq!(rig.machine.poll_timeout(), None);
    rig.start();
    assert!(rig.machine.poll_timeout().is_some());
}

#[test]
fn force_leave_marks_a_dead_node_as_left_and_a_live_one_refutes() {
    let mut rig = rig(Preset::Lan, &[2, 3]);
    say(&mut rig, 3, &[dead(3, 2, 0)]);
    rig.command(Command::ForceLeave { id: id(2), prune: false });
    assert_eq!(status(&rig, 2), Some((0, State::Left)));
    rig.command(Command::ForceLeave { id: id(9), prune: false });
    assert!(has(&rig, "Reply 1 Done") && has(&rig, "Reply 2 NoSuchMember"));
    let mut other = Rig::new(Swim::new(&config(2, Preset::Lan), [7; 32]).unwrap());
    other.start();
    say(&mut other, 3, &[dead(2, 2, 0)]);
    assert_eq!(other.machine.incarnation(), Incarnation(1));
}

#[test]
fn s_128_the_local_node_is_as_it_was_configured() {
    let meta = b"blue".to_vec();
    let mut rig = rig_with(&Config { addrs: vec![addr(1), addr(11)], meta, ..config(1, Preset::Lan) }, &[2]);
    rig.command(Command::LocalNode);
    let expected = Node { id: id(1), addrs: vec![addr(1), addr(11)], meta: b"blue".to_vec() };
    assert!(has(&rig, &format!("LocalNode({expected:?})")));
}

#[test]
fn s_130_the_count_follows_joins_and_failures() {
    let mut rig = rig(Preset::GoSwim, &[2, 3]);
    let own = contents(9);
    say(&mut rig, 2, &[dead(2, 3, 0), alive(&own, 9, 0)]);
    say(&mut rig, 2, &[dead(9, 9, 0)]);
    rig.command(Command::MemberCount);
    assert!(has(&rig, "Reply 1 Count(2)"));
}

#[test]
fn s_98_updates_never_wait_for_room() {
    let settings = quiet(Preset::GoSwim);
    let config = Config { user_max: 1, settings, ..config(1, Preset::GoSwim) };
    let mut rig = rig_with(&config, &[2, 3, 4]);
    rig.command(Command::Broadcast { data: vec![1; 1300], wait: true });
    rig.command(Command::Broadcast { data: vec![1; 1300], wait: true });
    say(&mut rig, 2, &[suspect(2, 3, 0), suspect(2, 4, 0)]);
    assert_eq!(rig.machine.lower.packets.gossip().updates().count(), 2);
}

#[test]
fn s_111_a_close_drops_queued_messages() {
    let mut rig = rig(Preset::GoSwim, &[2]);
    say(&mut rig, 2, &[suspect(2, 2, 0)]);
    rig.take_log();
    rig.command(Command::Close);
    rig.command(Command::Start);
    assert_eq!(rig.machine.lower.packets.gossip().updates().count(), 0);
    assert!(sent(&mut rig).is_empty());
}

#[test]
fn s_132_a_detector_is_started_once() {
    let mut rig = rig(Preset::GoSwim, &[2]);
    rig.command(Command::Start);
    rig.command(Command::Stop);
    rig.command(Command::Start);
    let replies: Vec<&String> = rig.log.iter().filter(|line| line.starts_with("Reply")).collect();
    assert_eq!(replies, ["Reply 1 AlreadyStarted", "Reply 2 Done", "Reply 3 Done"]);
}

/// A handler that takes what it wants and sees the record.
#[derive(Clone, Debug, Default)]
struct Listener {
    heard: Vec<String>,
    refuse: bool,
}

impl Handler for Listener {
    fn handle(&mut self, message: &Message<'_>, member: Option<&Member>, next: Next<'_>) -> Verdict {
        let state = member.map(|member| (member.incarnation().0, member.state()));
        self.heard.push(format!("{state:?}"));
        match message {
            Message::Other { .. } => Verdict::Taken,
            Message::Suspect { .. } if self.refuse => Verdict::Refused,
            _ => next.handle(message, member),
        }
    }

    fn boxed(&self) -> Box<dyn Handler> {
        Box::new(self.clone())
    }
}

#[test]
fn s_9_s_99_s_104_handlers_see_the_record_and_pass_other_messages_on() {
    let mut swim =
        Swim::new(&Config { settings: quiet(Preset::GoSwim), ..config(1, Preset::GoSwim) }, [7; 32]).unwrap();
    swim.assume(&[node(2), node(3)]);
    swim.use_handler(Box::new(Listener { refuse: true, ..Listener::default() }));
    swim.use_handler(Box::new(Listener::default()));
    let mut rig = Rig::new(swim);
    rig.start();
    let other = Message::Other { header: header(2, 0), kind: 99, body: b"?" };
    say(&mut rig, 2, &[other, suspect(2, 3, 0), ping(2, 1, 1)]);
    let counted = rig.machine.counted();
    assert_eq!((counted.unknown_kinds, counted.handlers_refused, counted.pings_answered), (0, 1, 1));
    assert_eq!(status(&rig, 3), Some((0, State::Alive)), "the suspicion was refused");
    let chain = format!("{:?}", rig.machine.handlers);
    assert_eq!(
        chain.matches("Some((0, Alive))").count(),
        4,
        "three at the first, one at the second: {chain}"
    );
}

#[test]
fn s_104_the_end_of_the_chain_is_the_protocol() {
    let mut handlers = Handlers::default();
    assert_eq!(handlers.handle(&ping(2, 1, 1), None), Verdict::Pass);
    handlers.push(Box::new(Listener::default()));
    handlers.push(Box::new(Listener::default()));
    assert_eq!(handlers.handle(&ping(2, 1, 1), None), Verdict::Pass);
    assert_eq!(format!("{handlers:?}").matches("\"None\"").count(), 2, "both were asked, in order");
    assert_eq!(handlers.clone(), handlers);
}
