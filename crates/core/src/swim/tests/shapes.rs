//! The types of the document, for clauses that only name them: each is used once as intended.

use super::*;
use crate::Machine;
use crate::rng::Rng;

/// Settings with one of them changed.
fn rig_set(change: fn(&mut Settings), others: &[u8]) -> Rig<Swim> {
    let mut settings = quiet(Preset::GoSwim);
    change(&mut settings);
    rig_with(&Config { settings, stored_max: 0, ..config(1, Preset::GoSwim) }, others)
}

/// The nodes that node 1 pings in this many periods.
fn pinged(rig: &mut Rig<Swim>, periods: usize) -> Vec<u8> {
    let mut all = Vec::new();
    for _ in 0..periods {
        next_ping(rig);
        let pings = sent_kind(rig, "Ping");
        all.extend(pings.iter().map(|(to, _)| match to.ip() {
            std::net::IpAddr::V4(ip) => ip.octets()[3],
            std::net::IpAddr::V6(_) => 0,
        }));
    }
    all
}

#[test]
fn s_4_an_id_is_sixteen_bytes_and_all_of_them_count() {
    let bytes = *b"sixteen bytes ok";
    assert_eq!(Id::from_bytes(bytes).to_bytes(), bytes);
    assert_ne!(Id::from_bytes(bytes), Id::from_bytes(*b"sixteen bytes oK"));
}

#[test]
fn s_5_a_node_is_identified_by_its_id() {
    let mut rig = rig(Preset::GoSwim, &[2]);
    say(&mut rig, 9, &[join(&contents(9), 9, 0)]);
    assert_eq!(rig.machine.members().member(id(9)).map(Member::id), Some(id(9)));
    assert_eq!(rig.machine.members().member(id(8)), None);
}

#[test]
fn s_10_an_id_and_an_address_are_enough_to_be_a_member() {
    let mut rig = rig(Preset::GoSwim, &[]);
    say(&mut rig, 2, &[join(&contents(2), 2, 0)]);
    let member = rig.machine.members().member(id(2)).unwrap();
    assert_eq!((member.addr(), member.contents().meta()), (addr(2), &[][..]));
}

#[test]
fn s_14_the_states_have_their_numbers() {
    for (number, state) in [State::Alive, State::Suspect, State::Dead, State::Left].into_iter().enumerate() {
        assert_eq!((state as usize, State::from_number(number as u8)), (number, Some(state)));
    }
    assert_eq!(State::from_number(4), None);
}

#[test]
fn s_15_the_record_contains_the_node() {
    let own = OwnContents::new(&[addr(2), addr(3)], b"meta").unwrap();
    let status = Status::new(Incarnation(4), State::Alive);
    let member = Member::new(id(2), status, own.borrow());
    let addrs: Vec<SocketAddr> = member.contents().addrs().collect();
    assert_eq!((member.id(), addrs, member.contents().meta()), (id(2), vec![addr(2), addr(3)], &b"meta"[..]));
}

#[test]
fn s_17_the_period_of_the_last_received_message_is_kept() {
    let mut rig = rig(Preset::GoSwim, &[2]);
    next_ping(&mut rig);
    next_ping(&mut rig);
    say(&mut rig, 2, &[ping(2, 1, 5)]);
    assert_eq!(rig.machine.members().member(id(2)).map(Member::last_seen), Some(rig.machine.period()));
}

#[test]
fn s_18_the_period_of_the_last_ping_is_kept() {
    let mut rig = rig(Preset::GoSwim, &[2]);
    for _ in 0..3 {
        next_ping(&mut rig);
        assert_eq!(rig.machine.members().member(id(2)).map(Member::last_sent), Some(rig.machine.period()));
    }
}

#[test]
fn s_19_the_state_is_in_the_record() {
    let mut rig = rig(Preset::GoSwim, &[2, 3, 4]);
    say(&mut rig, 2, &[suspect(2, 3, 0), dead(2, 4, 0)]);
    let state = |n| rig.machine.members().member(id(n)).map(Member::state);
    assert_eq!([2, 3, 4].map(state), [State::Alive, State::Suspect, State::Dead].map(Some));
}

/// SA-43: a cached value that two sorters share would corrupt the second sort.
#[test]
fn s_20_one_sort_after_another_gives_what_each_gives_alone() {
    let ids: Vec<Vec<u8>> = [9u8, 1, 250, 77, 128, 3].into_iter().map(|n| vec![n]).collect();
    let alone = |sorter: NodeSorter| {
        let mut nodes = ids.clone();
        sorter.sort(&mut nodes, &[5], Clone::clone).unwrap();
        nodes
    };
    let mut nodes = ids.clone();
    for sorter in [NodeSorter::Xor, NodeSorter::Ring, NodeSorter::ChordFinger, NodeSorter::Xor] {
        sorter.sort(&mut nodes, &[5], Clone::clone).unwrap();
        assert_eq!(nodes, alone(sorter), "{sorter:?}");
    }
}

#[test]
fn s_26_the_state_decides_which_nodes_are_members() {
    let mut rig = rig(Preset::GoSwim, &[2, 3]);
    assert_eq!(rig.machine.members().live(), 3);
    say(&mut rig, 2, &[suspect(2, 3, 0)]);
    assert_eq!(rig.machine.members().live(), 3, "a suspect still is one");
    say(&mut rig, 2, &[dead(2, 3, 0)]);
    assert_eq!(rig.machine.members().live(), 2);
}

#[test]
fn s_28_a_sorter_puts_nodes_in_order_or_leaves_them_as_they_were() {
    let mut nodes = vec![vec![3u8], vec![1], vec![2]];
    NodeSorter::Ring.sort(&mut nodes, &[0], Clone::clone).unwrap();
    assert_eq!(nodes, [[1], [2], [3]]);
    let mut uneven = vec![vec![3u8], vec![1, 1], vec![2]];
    assert!(NodeSorter::Ring.sort(&mut uneven, &[0], Clone::clone).is_err());
    assert_eq!(uneven, [vec![3], vec![1, 1], vec![2]]);
}

#[test]
fn s_29_chord_points_one_two_four_and_eight_steps_ahead_first() {
    let mut nodes: Vec<Vec<u8>> = (1..=10).map(|n| vec![n]).collect();
    NodeSorter::ChordFinger.sort(&mut nodes, &[0], Clone::clone).unwrap();
    assert_eq!(nodes.concat(), [1, 2, 4, 8, 3, 5, 6, 7, 9, 10]);
}

#[test]
fn s_30_exclusive_or_orders_by_the_bits_that_differ() {
    let mut nodes: Vec<Vec<u8>> = [4, 5, 6, 7, 1].into_iter().map(|n| vec![n]).collect();
    NodeSorter::Xor.sort(&mut nodes, &[6], Clone::clone).unwrap();
    assert_eq!(nodes.concat(), [6, 7, 4, 5, 1]);
}

#[test]
fn s_41_the_place_reached_in_the_order_is_kept() {
    let mut rng = Rng::from_number(1, 0);
    let mut list = ShuffleList::new();
    (0..4).for_each(|n| list.add(Slot::new(n), &mut rng));
    let order = list.list().to_vec();
    let turns: Vec<Slot> = (0..3).filter_map(|_| list.next(&mut rng)).collect();
    assert_eq!(turns, order[..3]);
}

#[test]
fn s_47_the_priority_list_has_regions_a_neighbourhood_and_choices_of_both() {
    let mut rng = Rng::from_number(1, 0);
    let mut list = Selection::new(3, 2, 4, 1);
    list.update(&(0..20).map(Slot::new).collect::<Vec<_>>(), &mut rng);
    assert_eq!((list.region().buckets().len(), list.neighbors().len()), (3, 4));
    let targets = list.targets(&mut rng);
    assert_eq!(targets.iter().filter(|slot| slot.index() < 4).count(), 1);
    assert_eq!(targets.len(), 3);
}

#[test]
fn s_50_a_coded_message_has_the_bytes_of_its_message_and_their_number() {
    let own = contents(4);
    let data = [7; 300];
    let user = Message::User { header: header(4, 9), id: id(4), data: &data };
    for message in [alive(&own, 4, 3), join(&own, 4, 3), suspect(3, 2, 1), dead(3, 2, 1), user, ping(4, 2, 9)]
    {
        let (coded, alone) = (Coded::new(&message), packet(4, &[message]));
        assert_eq!(coded.bytes(), &alone[HEAD_BYTES..], "{message:?}");
        assert_eq!((coded.size(), size(&message)), (alone.len() - HEAD_BYTES, alone.len() - HEAD_BYTES));
    }
}

/// A broadcast is encoded once: all packets that carry it have the same bytes.
#[test]
fn s_55_the_bytes_of_a_coded_message_are_made_once() {
    let mut rig = rig(Preset::GoSwim, &[2, 3]);
    rig.command(Command::Broadcast { data: b"once".to_vec(), wait: false });
    let mut carried = Vec::new();
    for round in 0..3 {
        next_ping(&mut rig);
        rig.command(Command::SetMeta { meta: vec![round] });
        for (_, messages) in sent(&mut rig) {
            carried.extend(messages.into_iter().filter(|message| message.starts_with("User")));
        }
    }
    assert!(carried.len() >= 2, "it is sent more than once: {carried:?}");
    assert!(carried.iter().all(|message| *message == carried[0]), "{carried:?}");
}

#[test]
fn s_56_a_coded_message_in_a_packet_is_read_as_the_message() {
    let mut bytes = packet(1, &[]);
    bytes.extend_from_slice(Coded::new(&dead(3, 2, 1)).bytes());
    let (_, messages) = Head::read(&bytes).unwrap();
    assert_eq!(messages.map(Result::unwrap).collect::<Vec<_>>(), [dead(3, 2, 1)]);
}

#[test]
fn s_57_a_packet_has_a_receiver_and_messages() {
    let mut rig = rig(Preset::GoSwim, &[2]);
    next_ping(&mut rig);
    let packets = sent(&mut rig);
    assert_eq!((packets.len(), packets[0].0), (1, addr(2)));
    assert!(packets[0].1[0].starts_with("Ping"), "{packets:?}");
}

#[test]
fn s_58_an_incoming_packet_has_messages_and_a_sender() {
    let bytes = packet(4, &[suspect(3, 2, 1), dead(3, 2, 1)]);
    let (head, messages) = Head::read(&bytes).unwrap();
    assert_eq!((head.from, messages.count()), (id(4), 2));
}

#[test]
fn s_60_sent_packets_wait_in_the_outbox_until_the_driver_takes_them() {
    let mut rig = rig(Preset::GoSwim, &[2]);
    say(&mut rig, 2, &[ping(2, 1, 5)]);
    assert_eq!(sent(&mut rig).len(), 1);
    assert_eq!(sent(&mut rig), [], "and is taken once");
}

#[test]
fn s_61_a_packet_from_the_driver_is_handled_at_once() {
    let mut rig = rig(Preset::GoSwim, &[2, 3]);
    say(&mut rig, 2, &[suspect(2, 3, 0)]);
    assert_eq!(status(&rig, 3), Some((0, State::Suspect)));
}

#[test]
fn s_64_an_update_is_sent_as_its_own_message() {
    let mut rig = rig(Preset::GoSwim, &[2, 3]);
    say(&mut rig, 2, &[suspect(2, 3, 0)]);
    rig.take_log();
    next_ping(&mut rig);
    let told = sent_kind(&mut rig, "Suspect");
    let whole = format!("{:?}", suspect(2, 3, 0));
    assert!(told.iter().any(|(_, text)| *text == whole), "{told:?}");
}

#[test]
fn s_65_no_packet_is_larger_than_its_largest_size() {
    let mut rig = rig_set(|settings| settings.packet_bytes_max = 800, &[2, 3]);
    for _ in 0..20 {
        rig.command(Command::Broadcast { data: vec![7; 300], wait: false });
    }
    next_ping(&mut rig);
    let log = rig.take_log();
    let hex = log.iter().filter_map(|line| line.strip_prefix("Send 0:0 to ")?.split(' ').nth(1));
    let sizes: Vec<usize> = hex.map(|hex| hex.len() / 2).collect();
    assert!(sizes.iter().any(|size| *size > 600) && sizes.iter().all(|size| *size <= 800), "{sizes:?}");
}

/// A forwarded update keeps the header of its originator. A node's own message has its own header with a new number.
#[test]
fn s_77_the_header_names_the_originator_and_its_sequence() {
    let mut rig = rig(Preset::GoSwim, &[2, 3]);
    say(&mut rig, 2, &[Message::User { header: header(2, 77), id: id(2), data: b"x" }]);
    rig.command(Command::Broadcast { data: b"y".to_vec(), wait: false });
    rig.command(Command::Broadcast { data: b"z".to_vec(), wait: false });
    let (_, probe) = next_ping(&mut rig);
    let log = rig.take_log();
    let packets = log.iter().filter_map(|line| line.strip_prefix("Send 0:0 to ")?.split_once(' '));
    let bytes: Vec<Vec<u8>> = packets.map(|(_, hex)| unhex(hex)).collect();
    let messages = bytes.iter().flat_map(|bytes| Head::read(bytes).unwrap().1.map(Result::unwrap));
    let headers: Vec<(Header, bool)> = messages
        .filter(|message| matches!(message, Message::User { .. } | Message::Ping { .. }))
        .map(|message| (message.header(), matches!(message, Message::Ping { .. })))
        .collect();
    assert!(headers.contains(&(Header { from: id(1), sequence: probe }, true)), "{headers:?}");
    assert!(headers.contains(&(header(2, 77), false)), "the originator's, not ours: {headers:?}");
    let own: Vec<Sequence> = headers
        .iter()
        .filter(|(header, is_ping)| header.from == id(1) && !is_ping)
        .map(|(header, _)| header.sequence)
        .collect();
    assert!(own.len() == 2 && (own[0].next() == own[1] || own[1].next() == own[0]), "{own:?}");
}

#[test]
fn s_86_a_broadcast_arrives_with_its_content() {
    let mut rig = rig(Preset::GoSwim, &[2]);
    let data = b"word for word";
    say(&mut rig, 2, &[Message::User { header: header(2, 3), id: id(2), data }]);
    assert!(has(&rig, &format!("{:?}", data.to_vec())), "{:?}", rig.log);
}

#[test]
fn s_87_the_size_of_a_broadcast_decides_whether_it_fits() {
    let fits = |bytes: usize| {
        let mut rig = rig_set(|settings| settings.packet_bytes_max = 768, &[2]);
        rig.command(Command::Broadcast { data: vec![0; bytes], wait: false });
        has(&rig, "Reply 1 Done")
    };
    assert!(fits(700) && !fits(768));
}

#[test]
fn s_90_broadcasts_are_kept_in_order_of_priority() {
    let mut rig = rig(Preset::GoSwim, &[2, 3, 4]);
    say(&mut rig, 2, &[suspect(2, 3, 0)]);
    next_ping(&mut rig);
    say(&mut rig, 2, &[suspect(2, 4, 0)]);
    let told: Vec<(Id, u32)> =
        rig.machine.lower.packets.gossip().updates().map(|(about, _, sent)| (about, sent)).collect();
    assert_eq!(told, [(id(4), 0), (id(3), 1)], "the least sent comes first");
}

#[test]
fn s_91_the_queue_of_user_broadcasts_is_limited() {
    let config = Config { user_max: 2, settings: quiet(Preset::GoSwim), ..config(1, Preset::GoSwim) };
    let mut rig = rig_with(&config, &[2]);
    for _ in 0..3 {
        rig.command(Command::Broadcast { data: b"x".to_vec(), wait: false });
    }
    let full = rig.log.iter().filter(|line| line.contains("Full")).count();
    assert_eq!(full, 1, "{:?}", rig.log);
}

#[derive(Clone, Debug)]
struct Deaf;

impl Handler for Deaf {
    fn handle(&mut self, _: &Message<'_>, _: Option<&Member>, _: Next<'_>) -> Verdict {
        Verdict::Taken
    }

    fn boxed(&self) -> Box<dyn Handler> {
        Box::new(self.clone())
    }
}

#[test]
fn s_99_a_handler_that_does_not_call_the_next_ends_the_chain() {
    let mut handlers = Handlers::default();
    assert_eq!(handlers.handle(&ping(2, 1, 1), None), Verdict::Pass);
    handlers.push(Box::new(Deaf));
    assert_eq!(handlers.handle(&ping(2, 1, 1), None), Verdict::Taken);
}

/// A handler that refuses accusations and passes everything else on.
#[derive(Clone, Debug)]
struct Believing;

impl Handler for Believing {
    fn handle(&mut self, message: &Message<'_>, member: Option<&Member>, next: Next<'_>) -> Verdict {
        match message {
            Message::Suspect { .. } => Verdict::Refused,
            _ => next.handle(message, member),
        }
    }

    fn boxed(&self) -> Box<dyn Handler> {
        Box::new(self.clone())
    }
}

#[test]
fn s_100_handlers_are_a_list_that_grows_at_its_end() {
    let verdicts = |first: Box<dyn Handler>, second: Box<dyn Handler>| {
        let mut handlers = Handlers::default();
        assert!(handlers.is_empty());
        handlers.push(first);
        handlers.push(second);
        [ping(2, 1, 1), suspect(2, 3, 0)].map(|message| handlers.handle(&message, None))
    };
    assert_eq!(verdicts(Box::new(Believing), Box::new(Deaf)), [Verdict::Taken, Verdict::Refused]);
    assert_eq!(verdicts(Box::new(Deaf), Box::new(Believing)), [Verdict::Taken, Verdict::Taken]);
}

#[test]
fn s_102_one_packet_is_delivered_whole() {
    let mut rig = rig(Preset::GoSwim, &[2, 3, 4]);
    say(&mut rig, 2, &[suspect(2, 3, 0), suspect(2, 4, 0)]);
    assert_eq!([3, 4].map(|n| status(&rig, n)), [Some((0, State::Suspect)); 2]);
}

#[test]
fn s_103_a_stopped_node_takes_no_packets() {
    let mut rig = rig(Preset::GoSwim, &[2, 3]);
    rig.command(Command::Stop);
    rig.take_log();
    let taken = rig.datagram(UDP, addr(2), &packet(2, &[suspect(2, 3, 0), ping(2, 1, 5)]));
    assert_eq!((status(&rig, 3), sent(&mut rig)), (Some((0, State::Alive)), Vec::new()), "{taken:?}");
}

#[test]
fn s_105_a_node_has_a_sequence_an_incarnation_and_its_probes() {
    let mut rig = rig(Preset::GoSwim, &[2, 3]);
    let (_, first) = next_ping(&mut rig);
    let (_, second) = next_ping(&mut rig);
    assert_ne!(first, second, "each probe has a number of its own");
    assert_eq!((rig.machine.incarnation(), rig.machine.id()), (Incarnation(0), id(1)));
}

#[test]
fn s_106_an_answer_goes_to_its_requester() {
    let mut rig = rig(Preset::GoSwim, &[2, 3, 4]);
    say(&mut rig, 3, &[ping(3, 1, 5)]);
    let acks = sent_kind(&mut rig, "Ack");
    assert_eq!(acks.iter().map(|(to, _)| *to).collect::<Vec<_>>(), [addr(3)]);
}

#[test]
fn s_107_a_broadcast_goes_to_each_member_in_turn() {
    let mut rig = rig(Preset::GoSwim, &[2, 3, 4]);
    rig.command(Command::Broadcast { data: b"hi".to_vec(), wait: false });
    let mut told = Vec::new();
    for _ in 0..3 {
        next_ping(&mut rig);
        told.extend(sent_kind(&mut rig, "User").into_iter().map(|(to, _)| to));
    }
    told.sort();
    told.dedup();
    assert_eq!(told, [addr(2), addr(3), addr(4)]);
}

#[test]
fn s_108_a_handler_that_was_given_is_used() {
    let mut swim = Swim::new(&config(1, Preset::GoSwim), [7; 32]).unwrap();
    swim.assume(&[node(2), node(3)]);
    swim.use_handler(Box::new(Deaf));
    let mut rig = Rig::new(swim);
    rig.start();
    say(&mut rig, 2, &[suspect(2, 3, 0)]);
    assert_eq!(status(&rig, 3), Some((0, State::Alive)), "it took the message");
}

#[test]
fn s_112_the_id_is_the_one_of_the_options() {
    assert_eq!(Swim::new(&config(7, Preset::Lan), [0; 32]).unwrap().id(), id(7));
}

#[test]
fn s_113_the_sorter_of_the_options_orders_the_nodes() {
    let nearest = |sorter: NodeSorter| {
        let mut settings = quiet(Preset::GoSwim);
        (settings.sorter, settings.neighbor_count, settings.neighbor_probes) = (sorter, 1, 1);
        settings.region_probes = 0;
        let config = Config { settings, stored_max: 0, ..config(6, Preset::GoSwim) };
        let mut rig = rig_with(&config, &[5, 8]);
        pinged(&mut rig, 1)
    };
    assert_eq!(nearest(NodeSorter::Xor), [5], "6 and 5 differ in two bits");
    assert_eq!(nearest(NodeSorter::Ring), [8], "the next clockwise from 6");
}

#[test]
fn s_114_there_is_one_codec_and_it_writes_its_version() {
    assert_eq!(packet(1, &[ping(1, 2, 3)])[0], VERSION);
    let mut other = packet(2, &[ping(2, 1, 3)]);
    other[0] = VERSION + 1;
    let mut rig = rig(Preset::GoSwim, &[2]);
    assert!(rig.datagram(UDP, addr(2), &other).is_err());
}

#[test]
fn s_115_the_driver_of_the_machine_is_its_transport() {
    let mut rig = rig(Preset::GoSwim, &[2]);
    next_ping(&mut rig);
    assert!(has(&rig, "Send 0:0 to 10.0.0.2:7946"), "{:?}", rig.log);
    assert!(rig.machine.poll_timeout().is_some(), "and it tells when it wants to be called");
}

#[test]
fn s_121_the_options_set_the_number_of_regions() {
    let rig = rig_set(|settings| settings.region_count = 3, &[2, 3, 4, 5, 6]);
    assert_eq!(rig.machine.lower.selection.region().buckets().len(), 3);
}

#[test]
fn s_122_the_options_set_the_regional_probes_per_period() {
    let mut rig = rig_set(|settings| settings.region_probes = 3, &[2, 3, 4, 5, 6]);
    assert_eq!(pinged(&mut rig, 1).len(), 3);
}

#[test]
fn s_123_the_options_set_the_size_of_the_neighbourhood() {
    let mut rig = rig_set(|settings| settings.neighbor_count = 2, &[2, 3, 4, 5, 6]);
    next_ping(&mut rig);
    assert_eq!(rig.machine.lower.selection.neighbors().len(), 2);
}

#[test]
fn s_124_the_options_set_the_neighbour_probes_per_period() {
    let few = |settings: &mut Settings| {
        (settings.neighbor_count, settings.neighbor_probes, settings.region_probes) = (3, 2, 0);
    };
    let mut rig = rig_set(few, &[2, 3, 16, 17, 18]);
    let all = pinged(&mut rig, 6);
    assert_eq!(all.len(), 12);
    assert!(all.iter().all(|n| [2, 3, 17].contains(n)), "the three nearest by exclusive or: {all:?}");
}
