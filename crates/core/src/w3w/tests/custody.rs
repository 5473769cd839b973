//! Custody: letters, verdicts, and messages when nodes fail.

use core::time::Duration;

use super::desk::{Desk, SECOND, bytes_of, config, here, nid};
use super::group::Group;
use crate::store::{StoreFault, StoreResult};
use crate::stream::StreamEvent;
use crate::tag::{OpId, StreamId};
use crate::w3w::custody::hello_nid;
use crate::w3w::{
    BLOCKS, Command, Config, Custody, Described, Event, Fault, Form, Here, INDEX, Key, Letter, Message,
    Presence, Receipts, Reply, SeenKey, SentState, Verdict, describe, here_frame, read_form, write_form,
};

const TICK: Duration = Duration::from_millis(10);

/// A peer that speaks custody.
fn call(desk: &mut Desk, first: u8) -> StreamId {
    let stream = desk.call(first);
    let hello = Here { nid: hello_nid(nid(first), desk.own()), ..here(first) };
    desk.rig.stream(stream, StreamEvent::Data(&here_frame(&hello))).unwrap();
    stream
}

fn transit(from: u8, to: u8, data: &[u8]) -> Message {
    Message::new(nid(from), nid(to), data)
}

fn seen(message: &Message) -> SeenKey {
    SeenKey::new(message.sender(), message.recipient(), Key::of(message.data()))
}

/// A peer answers about a message.
fn answer(desk: &mut Desk, (stream, first): (StreamId, u8), message: &Message, verdict: Verdict) {
    let custody = Custody { flag: Custody::VERDICTS, verdicts: vec![(seen(message), verdict)] };
    let frame = Message::new(nid(first), desk.own(), &write_form(&Form::Custody(custody)));
    desk.message(stream, &frame);
}

/// The verdicts written to a stream, and how many pings and pongs.
fn verdicts(desk: &Desk, stream: StreamId) -> (Vec<Verdict>, usize, usize) {
    let (mut verdicts, mut pings, mut pongs) = (Vec::new(), 0, 0);
    for described in describe(&desk.written(stream)).unwrap() {
        let Described::Message { data_hex, .. } = described else { continue };
        if let Form::Custody(custody) = read_form(&bytes_of(&data_hex)) {
            verdicts.extend(custody.verdicts.iter().map(|(_, verdict)| *verdict));
            pings += usize::from(custody.flag == Custody::PING);
            pongs += usize::from(custody.flag == Custody::PONG);
        }
    }
    (verdicts, pings, pongs)
}

/// How often a message with this DATA was written to a stream.
fn given(desk: &Desk, stream: StreamId, data: &[u8]) -> usize {
    let is_it = |described: &Described| match described {
        Described::Message { data_hex, .. } => bytes_of(data_hex) == data,
        Described::Here { .. } => false,
    };
    describe(&desk.written(stream)).unwrap().iter().filter(|one| is_it(one)).count()
}

#[test]
fn cu_7_a_hello_makes_a_link_speak_custody_and_others_get_no_frame_of_it() {
    let mut desk = Desk::new(&config());
    let (a, b) = (call(&mut desk, 0x50), desk.call(0x40));
    desk.message(a, &transit(0x77, 0x41, b"one"));
    desk.message(b, &transit(0x77, 0x51, b"two"));
    desk.rig.advance(TICK);
    assert_eq!(verdicts(&desk, a), (vec![Verdict::Held], 0, 0));
    assert_eq!(verdicts(&desk, b), (vec![], 0, 0), "a foreign peer gets DATA and nothing else");
    let ping = Form::Custody(Custody { flag: Custody::PING, verdicts: vec![] });
    let ping = Message::new(nid(0x50), desk.own(), &write_form(&ping));
    desk.message(a, &ping);
    assert_eq!(verdicts(&desk, a).2, 1);
    assert!(!desk.has("MessageReceived"), "a frame of custody ends at the link");
}

#[test]
fn cu_11_a_relay_keeps_a_message_until_the_next_peer_holds_it() {
    let mut desk = Desk::new(&config());
    let (a, b) = (call(&mut desk, 0x50), call(&mut desk, 0x40));
    call(&mut desk, 0x60);
    let message = transit(0x77, 0x41, b"x");
    desk.message(a, &message);
    desk.rig.advance(TICK);
    assert_eq!(verdicts(&desk, a).0, [Verdict::Held], "it is on this disk");
    desk.take_all(b);
    assert_eq!(desk.rig.machine.waiting(), 1, "a kernel is no program");
    answer(&mut desk, (b, 0x40), &message, Verdict::Held);
    assert_eq!(desk.rig.machine.waiting(), 0);
}

#[test]
fn cu_12_an_answer_to_an_older_copy_releases_nothing() {
    let mut desk = Desk::new(&config());
    let (a, b, c) = (call(&mut desk, 0x50), call(&mut desk, 0x40), call(&mut desk, 0x60));
    let message = transit(0x77, 0x41, b"x");
    desk.message(a, &message);
    desk.take_all(b);
    // The copy has gone round the circle and comes from another peer, which drops it after the answer.
    desk.message(c, &message);
    desk.rig.advance(TICK);
    assert_eq!(verdicts(&desk, c).0, [Verdict::Held]);
    answer(&mut desk, (b, 0x40), &message, Verdict::Held);
    assert_eq!(desk.rig.machine.waiting(), 1, "b may have given it to c");
    desk.take_all(b);
    answer(&mut desk, (b, 0x40), &message, Verdict::Held);
    assert_eq!(desk.rig.machine.waiting(), 0, "this answer is about the newer copy");
}

#[test]
fn cu_12_a_message_that_is_no_longer_held_is_accepted_again_once() {
    let mut desk = Desk::new(&config());
    let (a, b) = (call(&mut desk, 0x50), call(&mut desk, 0x40));
    call(&mut desk, 0x60);
    let message = transit(0x77, 0x41, b"x");
    for round in 0..3 {
        desk.message(a, &message);
        desk.rig.advance(TICK);
        desk.take_all(b);
        answer(&mut desk, (b, 0x40), &message, Verdict::Held);
        assert_eq!(desk.rig.machine.waiting(), 0, "round {round}");
    }
    assert_eq!(verdicts(&desk, a).0, [Verdict::Held, Verdict::Held, Verdict::Unable]);
}

/// CUF-6: in a circle of nodes that answer so, every one drops the message.
#[test]
fn cu_12_a_node_that_answers_held_from_memory_holds_nothing() {
    for (fault, holds) in [(None, 1), (Some(Fault::HeldFromMemory), 0)] {
        let mut desk = Desk::new(&Config { fault, ..config() });
        let (a, b) = (call(&mut desk, 0x50), call(&mut desk, 0x40));
        call(&mut desk, 0x60);
        let message = transit(0x77, 0x41, b"x");
        desk.message(a, &message);
        desk.rig.advance(TICK);
        desk.take_all(b);
        answer(&mut desk, (b, 0x40), &message, Verdict::Held);
        desk.message(a, &message);
        desk.rig.advance(TICK);
        assert_eq!(verdicts(&desk, a).0, [Verdict::Held, Verdict::Held]);
        assert_eq!(desk.rig.machine.waiting(), holds, "{fault:?}");
    }
}

#[test]
fn cu_12_a_peer_without_room_keeps_a_message_and_another_one_gets_it() {
    let mut desk = Desk::new(&config());
    let (a, b, c) = (call(&mut desk, 0x50), call(&mut desk, 0x40), call(&mut desk, 0x60));
    let message = transit(0x77, 0x41, b"x");
    desk.message(a, &message);
    desk.take_all(b);
    answer(&mut desk, (b, 0x40), &message, Verdict::Full);
    assert_eq!((given(&desk, b, b"x"), given(&desk, c, b"x")), (1, 1));
    desk.take_all(c);
    answer(&mut desk, (c, 0x60), &message, Verdict::Full);
    assert_eq!(desk.rig.machine.waiting(), 1);
    desk.rig.advance(5 * SECOND + TICK);
    assert_eq!((given(&desk, b, b"x"), given(&desk, c, b"x")), (2, 1), "the nearer one is tried first");
}

#[test]
fn cu_14_a_silent_peer_is_pinged_and_then_disconnected_within_two_seconds() {
    let mut desk = Desk::new(&config());
    let (a, b, c) = (call(&mut desk, 0x50), call(&mut desk, 0x40), call(&mut desk, 0x60));
    desk.message(a, &transit(0x77, 0x41, b"x"));
    desk.take_all(b);
    desk.rig.advance(Duration::from_millis(600));
    assert_eq!(verdicts(&desk, b).1, 1, "a ping");
    assert_eq!(given(&desk, c, b"x"), 0);
    // New messages take another path while a verdict is overdue.
    desk.message(a, &transit(0x77, 0x41, b"y"));
    assert_eq!((given(&desk, b, b"y"), given(&desk, c, b"y")), (0, 1));
    answer(&mut desk, (c, 0x60), &transit(0x77, 0x41, b"y"), Verdict::Held);
    desk.rig.advance(Duration::from_millis(1200));
    assert_eq!(given(&desk, c, b"x"), 1, "{:#?}", desk.rig.log);
    assert_eq!(desk.peers(), [0x50, 0x60]);
}

#[test]
fn cu_14_a_peer_that_answers_pings_stays_connected() {
    let mut desk = Desk::new(&config());
    let (a, b) = (call(&mut desk, 0x50), call(&mut desk, 0x40));
    call(&mut desk, 0x60);
    let message = transit(0x77, 0x41, b"x");
    desk.message(a, &message);
    desk.take_all(b);
    for _ in 0..20 {
        desk.rig.advance(Duration::from_millis(500));
        let pong = Form::Custody(Custody { flag: Custody::PONG, verdicts: vec![] });
        let pong = Message::new(nid(0x40), desk.own(), &write_form(&pong));
        desk.message(b, &pong);
    }
    assert_eq!(desk.peers(), [0x40, 0x50, 0x60], "its disk may be slow");
    answer(&mut desk, (b, 0x40), &message, Verdict::Held);
    assert_eq!(desk.rig.machine.waiting(), 0);
}

/// How many messages of a sender were written to a stream.
fn count(desk: &Desk, stream: StreamId) -> usize {
    desk.messages(stream).iter().filter(|(from, ..)| *from == nid(0x77)).count()
}

#[test]
fn cu_14_at_most_64_messages_are_unanswered_until_answers_are_fast_and_then_256() {
    for (pause, allowed) in [(50, 256), (150, 64)] {
        let mut desk = Desk::new(&config());
        let (a, b) = (call(&mut desk, 0x50), call(&mut desk, 0x40));
        call(&mut desk, 0x60);
        for number in 0..400u16 {
            desk.message(a, &transit(0x77, 0x41, &number.to_be_bytes()));
        }
        assert_eq!(count(&desk, b), 64, "nothing is known about the peer");
        desk.take_all(b);
        desk.rig.advance(Duration::from_millis(pause));
        answer(&mut desk, (b, 0x40), &transit(0x77, 0x41, &[0, 0]), Verdict::Held);
        assert_eq!(count(&desk, b), 1 + allowed, "answers take {pause} ms");
    }
}

#[test]
fn cu_14_the_bytes_of_unanswered_messages_are_bounded_too() {
    let message = |number: u8| transit(0x77, 0x41, &[number; 300 << 10]);
    for (pause, allowed) in [(50, 27), (150, 3)] {
        let mut desk = Desk::new(&Config { unsent_bytes_max: 1 << 30, ..config() });
        let (a, b) = (call(&mut desk, 0x50), call(&mut desk, 0x40));
        call(&mut desk, 0x60);
        (0..40).for_each(|number| desk.message(a, &message(number)));
        assert_eq!(count(&desk, b), 3, "1 MiB");
        desk.take_all(b);
        desk.rig.advance(Duration::from_millis(pause));
        answer(&mut desk, (b, 0x40), &message(0), Verdict::Held);
        assert_eq!(count(&desk, b), 1 + allowed, "8 MiB if answers are fast; they take {pause} ms");
    }
}

#[test]
fn cu_14_a_letter_is_read_again_only_when_it_may_be_given() {
    let mut desk = Desk::new(&Config { memory_bytes_max: 1, ..config() });
    let (a, b) = (call(&mut desk, 0x50), call(&mut desk, 0x40));
    call(&mut desk, 0x60);
    for number in 0..100 {
        desk.message(a, &letter_to(0x41, number, b"x"));
    }
    desk.take_all(b);
    let reads = |desk: &Desk| desk.rig.log.iter().filter(|line| line.contains("Get")).count();
    let before = reads(&desk);
    desk.take_all(b);
    assert!(before <= 64, "{before}");
    assert_eq!(reads(&desk), before, "64 are unanswered");
    answer(&mut desk, (b, 0x40), &letter_to(0x41, 0, b"x"), Verdict::Held);
    assert!(reads(&desk) > before);
}

#[test]
fn cu_13_sixteen_verdicts_are_written_at_once_and_fewer_after_two_milliseconds() {
    let mut desk = Desk::new(&config());
    let a = call(&mut desk, 0x50);
    call(&mut desk, 0x40);
    for number in 0..20 {
        desk.message(a, &transit(0x77, 0x41, &[number]));
        desk.rig.advance(Duration::ZERO);
    }
    assert_eq!(verdicts(&desk, a).0.len(), 16);
    desk.rig.advance(Duration::from_millis(1));
    assert_eq!(verdicts(&desk, a).0.len(), 16);
    desk.rig.advance(Duration::from_millis(1));
    assert_eq!(verdicts(&desk, a).0.len(), 20);
}

/// A letter in transit.
fn letter_to(to: u8, number: u64, payload: &[u8]) -> Message {
    let letter = Letter { epoch: 7, number, least: 1, attempt: 0, lifetime: 3600, payload };
    transit(0x77, to, &write_form(&Form::Letter(letter)))
}

#[test]
fn cu_11_a_relay_deletes_a_letter_when_the_last_of_its_recipients_no_longer_needs_it() {
    let mut desk = Desk::new(&config());
    let (a, b) = (call(&mut desk, 0x50), call(&mut desk, 0x40));
    call(&mut desk, 0x60);
    let (one, other, plain) = (letter_to(0x41, 1, b"x"), letter_to(0x42, 1, b"x"), transit(0x77, 0x41, b"y"));
    for message in [&one, &other, &plain] {
        desk.message(a, message);
    }
    desk.take_all(b);
    let is_stored = |desk: &Desk, message: &Message| {
        let key = Key::of(message.data()).to_bytes().to_vec();
        [BLOCKS, INDEX].map(|space| desk.rig.disk.contains_key(&(space, key.clone())))
    };
    assert_eq!(Key::of(one.data()), Key::of(other.data()), "one block for both");
    answer(&mut desk, (b, 0x40), &one, Verdict::Held);
    assert_eq!(is_stored(&desk, &other), [true; 2], "the other one is still here");
    answer(&mut desk, (b, 0x40), &other, Verdict::Held);
    assert_eq!(is_stored(&desk, &other), [false; 2]);
    answer(&mut desk, (b, 0x40), &plain, Verdict::Held);
    assert_eq!(is_stored(&desk, &plain), [true; 2], "M-53: plain DATA stays in the store");
    assert_eq!(desk.rig.machine.waiting(), 0);
}

#[test]
fn a_letter_that_was_deleted_after_custody_is_stored_again_when_it_comes_again() {
    let mut desk = Desk::new(&config());
    let (a, b) = (call(&mut desk, 0x50), call(&mut desk, 0x40));
    call(&mut desk, 0x60);
    let message = letter_to(0x41, 1, b"x");
    for _ in 0..2 {
        desk.message(a, &message);
        desk.rig.advance(TICK);
        let key = Key::of(message.data()).to_bytes().to_vec();
        assert!(desk.rig.disk.contains_key(&(BLOCKS, key.clone())), "it is held");
        desk.take_all(b);
        answer(&mut desk, (b, 0x40), &message, Verdict::Held);
        assert!(!desk.rig.disk.contains_key(&(BLOCKS, key)));
    }
    assert_eq!(verdicts(&desk, a).0, [Verdict::Held; 2]);
}

/// Messages that left memory are read in groups: a read waits for the sync of the writes before it.
#[test]
fn messages_that_left_memory_are_read_many_at_once() {
    for (count, size, at_once) in [(30, 100, 16), (8, 300 << 10, 3), (5, 2 << 20, 1)] {
        read_again(count, size, at_once);
    }
}

fn read_again(count: u8, size: usize, at_once: usize) {
    let config = Config { memory_bytes_max: 1, unsent_bytes_max: size + 200, ..config() };
    let mut desk = Desk::new(&config);
    let (a, b) = (call(&mut desk, 0x50), desk.call(0x40));
    call(&mut desk, 0x60);
    for number in 0..count {
        desk.message(a, &transit(0x77, 0x41, &vec![number; size]));
    }
    desk.rig.take_log();
    desk.rig.hold();
    desk.rig.stream(b, StreamEvent::Sent { bytes: 1 << 30, fin: false }).unwrap();
    desk.rig.drain();
    let log = desk.rig.take_log();
    let is_read = |line: &&String| line.contains("Get");
    let reads = log.iter().skip_while(|line| !is_read(line)).take_while(is_read);
    assert_eq!(reads.count(), at_once, "of messages of {size} bytes");
}

#[test]
fn cu_15_a_dead_member_is_disconnected_at_once() {
    let mut desk = Desk::new(&config());
    let (a, b, c) = (call(&mut desk, 0x50), call(&mut desk, 0x40), call(&mut desk, 0x60));
    desk.message(a, &transit(0x77, 0x41, b"x"));
    desk.take_all(b);
    desk.rig.command(Command::MemberPresence { id: nid(0x40).id(), presence: Presence::Dead });
    assert_eq!((given(&desk, c, b"x"), desk.peers()), (1, vec![0x50, 0x60]));
}

#[test]
fn cu_16_a_reset_of_a_foreign_peer_within_a_minute_loses_nothing() {
    let mut desk = Desk::new(&config());
    let (a, b, c) = (call(&mut desk, 0x50), desk.call(0x40), call(&mut desk, 0x60));
    desk.message(a, &transit(0x77, 0x41, b"x"));
    desk.take_all(b);
    desk.rig.advance(50 * SECOND);
    desk.close(b);
    assert_eq!(given(&desk, c, b"x"), 1, "its kernel had it; whether it was read is not known");
}

#[test]
fn cu_26_messages_of_others_use_half_of_the_quota() {
    let mut desk = Desk::new(&Config { quota_bytes: 800, ..config() });
    let a = call(&mut desk, 0x50);
    for number in 0..5 {
        desk.message(a, &transit(0x70 + number, 0xa0, &[number; 60]));
    }
    desk.rig.advance(TICK);
    let (given, ..) = verdicts(&desk, a);
    assert_eq!(given.iter().filter(|verdict| **verdict == Verdict::Held).count(), 3, "{given:?}");
    assert_eq!(given.iter().filter(|verdict| **verdict == Verdict::Full).count(), 2);
    desk.send(nid(0xb0), &[9; 400]);
    assert!(desk.has("Reply 1 Sent"), "its own messages have the rest");
}

#[test]
fn one_address_has_two_places_in_the_ring() {
    let mut desk = Desk::new(&config());
    for first in [0x20, 0x30, 0x40] {
        let stream = desk.accept(std::net::Ipv4Addr::new(10, 9, 9, 9));
        let _ = desk.rig.stream(stream, StreamEvent::Data(&here_frame(&here(first))));
    }
    assert_eq!(desk.peers(), [0x20, 0x30]);
}

fn letter(desk: &Desk, from: u8, number: u64, attempt: u16, payload: &[u8]) -> Message {
    let letter = Letter { epoch: 7, number, least: 1, attempt, lifetime: 3600, payload };
    Message::new(nid(from), desk.own(), &write_form(&Form::Letter(letter)))
}

#[test]
fn cu_9_a_letter_is_in_the_inbox_once_whatever_its_bytes() {
    let mut desk = Desk::new(&config());
    let a = call(&mut desk, 0x50);
    for message in [
        letter(&desk, 0x77, 1, 0, b"hello"),
        letter(&desk, 0x77, 1, 1, b"hello"),
        letter(&desk, 0x77, 2, 0, b"hello"),
        letter(&desk, 0x77, 1, 0, b"hello"),
    ] {
        desk.message(a, &message);
    }
    desk.rig.advance(SECOND);
    let received = |desk: &Desk| desk.rig.log.iter().filter(|line| line.contains("MessageReceived")).count();
    assert_eq!(received(&desk), 2, "the same text twice is two letters");
    assert!(verdicts(&desk, a).0.iter().all(|verdict| *verdict == Verdict::Delivered));
    let mut again = desk.restart(&config());
    let a = call(&mut again, 0x50);
    let repeated = letter(&again, 0x77, 2, 3, b"hello");
    again.message(a, &repeated);
    again.rig.advance(SECOND);
    assert_eq!(received(&again), 0, "a restart forgets no number");
    let receipts = describe(&again.written(a)).unwrap().into_iter().filter_map(|described| match described {
        Described::Message { data_hex, .. } => match read_form(&bytes_of(&data_hex)) {
            Form::Receipts(receipts) => Some(receipts),
            _ => None,
        },
        Described::Here { .. } => None,
    });
    let receipts: Vec<Receipts> = receipts.collect();
    let last = receipts.last().expect("a repeated letter is answered again");
    assert_eq!((last.epoch, last.up_to), (7, 2));
}

#[test]
fn an_inbox_that_is_full_evicts_nothing() {
    let mut desk = Desk::new(&Config { boxes_max: 1, ..config() });
    let a = call(&mut desk, 0x50);
    for number in 1..=2 {
        let message = letter(&desk, 0x77, number, 0, b"hello");
        desk.message(a, &message);
    }
    desk.rig.advance(TICK);
    let (given, ..) = verdicts(&desk, a);
    assert!(given.contains(&Verdict::Full) && given.contains(&Verdict::Delivered) && given.len() == 2);
    desk.rig.command(Command::Remove { number: 0 });
    let message = letter(&desk, 0x77, 2, 0, b"hello");
    desk.message(a, &message);
    desk.rig.advance(TICK);
    assert_eq!(verdicts(&desk, a).0.last(), Some(&Verdict::Delivered));
}

/// The state of the first message in the outbox of a node.
fn state(group: &mut Group, number: usize) -> Option<SentState> {
    let request = group.ask(number, Command::Outbox { from: 0 });
    match group.members[number].replies.get(&request) {
        Some(Reply::Outbox(lines)) => lines.first().map(|line| line.state),
        _ => None,
    }
}

fn send_letter(group: &mut Group, from: usize, to: usize, data: &[u8]) {
    let to = group.nid(to);
    let command =
        Command::SendLetter { to, data: data.to_vec(), lifetime: None, certain: true, receipt: false };
    group.ask(from, command);
}

#[test]
fn cu_1_a_letter_waits_for_its_recipient_and_its_receipt_comes_back() {
    let mut group = Group::new(3);
    for number in 0..4 {
        group.add(if number == 0 { &[] } else { &[0] }, |_| {});
        group.run(SECOND);
    }
    group.run(60 * SECOND);
    group.kill(3, true);
    send_letter(&mut group, 0, 3, b"are you there?");
    group.run(5 * SECOND);
    assert_eq!(state(&mut group, 0), Some(SentState::UnderWay), "others hold it");
    assert!(
        !group.members[0].mesh.peers().iter().any(|peer| peer.nid == group.nid(3)),
        "a dead peer is left"
    );
    group.start(3);
    group.run(60 * SECOND);
    assert_eq!(group.got(3, b"are you there?"), 1);
    assert_eq!(state(&mut group, 0), Some(SentState::Delivered));
    group.run(SECOND);
    let held: usize = group.members.iter().map(|member| member.mesh.waiting()).sum();
    assert_eq!(held, 0, "cu_17: a receipt that passes lets the relays go");
    let confirmed = |event: &Event| matches!(event, Event::MessageConfirmed { .. });
    assert_eq!(group.members[0].events.iter().filter(|event| confirmed(event)).count(), 1);
}

#[test]
fn cu_23_a_letter_that_never_left_can_be_withdrawn_for_certain() {
    let mut desk = Desk::new(&config());
    let send = |to: u8| Command::SendLetter {
        to: nid(to),
        data: b"x".to_vec(),
        lifetime: None,
        certain: true,
        receipt: false,
    };
    desk.rig.command(send(0x50));
    desk.rig.command(Command::Cancel { number: 0 });
    assert!(desk.has("Cancelled { is_certain: true }"));
    let a = call(&mut desk, 0x50);
    desk.rig.command(send(0x50));
    desk.take_all(a);
    desk.rig.command(Command::Cancel { number: 1 });
    assert!(desk.has("Cancelled { is_certain: false }"));
    assert_eq!(desk.rig.machine.waiting(), 0);
    desk.rig.command(Command::Cancel { number: 1 });
    assert!(desk.has("NotOpen { state: Cancelled }"));
}

#[test]
fn cu_23_a_withdrawal_that_fails_while_the_lifetime_ends_leaves_no_letter_open() {
    let mut desk = Desk::new(&config());
    let (data, lifetime) = (b"x".to_vec(), Some(60 * SECOND));
    desk.rig.command(Command::SendLetter { to: nid(0x50), data, lifetime, certain: true, receipt: false });
    desk.rig.hold();
    desk.rig.command(Command::Cancel { number: 0 });
    let cancel = OpId::new(desk.rig.machine.ops_begun());
    desk.rig.advance(61 * SECOND);
    assert_eq!(desk.rig.machine.waiting(), 0, "its lifetime is over");
    desk.rig.stored(cancel, StoreResult::Failed(StoreFault::Broken));
    desk.rig.drain();
    let state = desk.rig.machine.outbox_line(0).map(|line| line.state);
    assert_eq!(state, Some(SentState::Unconfirmed), "nobody has it, so it is not open");
}

#[test]
fn cu_23_only_a_letter_that_never_left_is_expired() {
    for has_peer in [false, true] {
        let mut desk = Desk::new(&config());
        if has_peer {
            call(&mut desk, 0x50);
        }
        desk.rig.command(Command::SendLetter {
            to: nid(0x50),
            data: b"x".to_vec(),
            lifetime: Some(60 * SECOND),
            certain: true,
            receipt: false,
        });
        desk.rig.advance(61 * SECOND);
        assert_eq!(desk.has("state: Expired"), !has_peer);
        assert_eq!(desk.has("state: Unconfirmed"), has_peer);
    }
}

#[test]
fn cu_18_a_letter_without_a_receipt_is_sent_again_with_other_bytes() {
    let mut desk = Desk::new(&config());
    let a = call(&mut desk, 0x50);
    desk.rig.command(Command::SendLetter {
        to: nid(0x30),
        data: b"x".to_vec(),
        lifetime: Some(7200 * SECOND),
        certain: true,
        receipt: false,
    });
    let attempts = |desk: &Desk| -> Vec<u16> {
        let attempt = |described: Described| match described {
            Described::Message { data_hex, .. } => match read_form(&bytes_of(&data_hex)) {
                Form::Letter(letter) => Some(letter.attempt),
                _ => None,
            },
            Described::Here { .. } => None,
        };
        describe(&desk.written(a)).unwrap().into_iter().filter_map(attempt).collect()
    };
    assert_eq!(attempts(&desk), [0]);
    desk.take_all(a);
    let written = desk.messages(a).len();
    let last = describe(&desk.written(a)).unwrap().pop();
    if let Some(Described::Message { data_hex, sender, recipient, .. }) = last {
        let message = Message::new(sender, recipient, &bytes_of(&data_hex));
        answer(&mut desk, (a, 0x50), &message, Verdict::Held);
    }
    desk.rig.advance(601 * SECOND);
    assert_eq!((attempts(&desk), written), (vec![0, 1], 1));
}

#[test]
fn ma_40_a_relay_never_gives_a_message_to_its_sender_and_holds_it_instead() {
    let mut desk = Desk::new(&config());
    // The sender is next to the absent recipient; the message came another way, round a circle.
    let (from, sender) = (call(&mut desk, 0x50), call(&mut desk, 0x9f));
    let message = transit(0x9f, 0xa0, b"round");
    desk.message(from, &message);
    desk.rig.advance(TICK);
    assert_eq!(verdicts(&desk, from).0, [Verdict::Held]);
    assert_eq!((given(&desk, sender, b"round"), given(&desk, from, b"round")), (0, 0));
    desk.rig.advance(600 * SECOND);
    assert_eq!(desk.rig.machine.waiting(), 1, "a copy at the sender is not one more");
    let recipient = call(&mut desk, 0xa0);
    desk.rig.advance(TICK);
    assert_eq!(given(&desk, recipient, b"round"), 1);
}
