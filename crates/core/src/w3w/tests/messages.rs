//! RECEIVE, SEND and SAVE at one desk.

use core::time::Duration;

use super::desk::{Desk, SECOND, config, frame, here, ip, nid};
use crate::store::{StoreFault, StoreResult};
use crate::stream::StreamEvent;
use crate::tag::OpId;
use crate::w3w::{
    BLOCKS, Command, Config, Form, Forward, Key, Mesh, Message, Nid, UDP, here_frame, write_form,
};

fn to_us(desk: &Desk, from: u8, data: &[u8]) -> Message {
    Message::new(nid(from), desk.own(), data)
}

fn transit(from: u8, to: u8, data: &[u8]) -> Message {
    Message::new(nid(from), nid(to), data)
}

/// The ops of the log that carry this text, as numbers.
fn ops(desk: &Desk, part: &str) -> Vec<OpId> {
    let number = |line: &String| line.strip_prefix("Store 0:")?.split(' ').next()?.parse().ok();
    desk.rig.log.iter().filter(|line| line.contains(part)).filter_map(number).map(OpId::new).collect()
}

#[test]
fn m_38_every_connection_is_read() {
    let mut desk = Desk::new(&config());
    let streams = [0x10, 0x20].map(|first| desk.call(first));
    for (index, stream) in streams.into_iter().enumerate() {
        let message = to_us(&desk, 0x50, &[index as u8]);
        desk.message(stream, &message);
    }
    assert_eq!(desk.rig.machine.counted().messages_delivered, 2);
}

#[test]
fn m_39_queued_messages_are_sent_when_there_is_a_peer() {
    let mut desk = Desk::new(&config());
    desk.send(nid(0x50), b"waits");
    assert_eq!(desk.rig.machine.waiting(), 1, "MA-47: an empty ring keeps it");
    let stream = desk.call(0x10);
    assert_eq!(desk.messages(stream), [(desk.own(), nid(0x50), "waits".to_owned())]);
}

#[test]
fn m_40_a_node_with_nothing_to_do_waits() {
    let mut desk = Desk::new(&config());
    desk.rig.take_log();
    desk.rig.advance(4 * SECOND);
    assert!(desk.rig.log.is_empty(), "{:?}", desk.rig.log);
    // A driver may call it at any time: nothing is due, so nothing happens.
    let before = desk.rig.machine.clone();
    desk.rig.wake();
    assert!(desk.rig.log.is_empty() && before == desk.rig.machine);
    desk.hear(&here(0x50)).unwrap();
    assert!(desk.has("Open "), "an event ends the waiting");
}

#[test]
fn m_47_messages_for_this_node_are_delivered_and_others_forwarded() {
    let mut desk = Desk::new(&config());
    let (a, b) = (desk.call(0x10), desk.call(0x50));
    desk.rig.take_log();
    let message = to_us(&desk, 0x77, b"for us");
    desk.message(a, &message);
    assert!(desk.has("MessageReceived") && desk.messages(b).is_empty());
    desk.message(a, &transit(0x77, 0x52, b"for them"));
    assert_eq!(desk.messages(b), [(nid(0x77), nid(0x52), "for them".to_owned())]);
    assert_eq!(desk.rig.machine.counted().messages_delivered, 1);
}

#[test]
fn m_49_the_sender_gives_it_to_both_neighbours_of_the_recipient() {
    let mut desk = Desk::new(&config());
    let streams = [0x10, 0x30, 0x50, 0x70].map(|first| desk.call(first));
    desk.send(nid(0x40), b"hello");
    let got = streams.map(|stream| desk.messages(stream).len());
    assert_eq!(got, [0, 1, 1, 0]);
    desk.send(nid(0x50), b"direct");
    let got = streams.map(|stream| desk.messages(stream).len());
    assert_eq!(got, [0, 1, 2, 0], "a recipient that is a peer gets it alone (MA-43)");
}

#[test]
fn ma_60_a_relay_forwards_to_the_nearer_and_taken_literally_to_both() {
    for (forward, wanted) in [(Forward::Nearest, [0, 1, 0]), (Forward::Both, [0, 1, 1])] {
        let mut desk = Desk::new(&Config { forward, ..config() });
        let streams = [0x10, 0x30, 0x50].map(|first| desk.call(first));
        let from = desk.call(0xf0);
        desk.message(from, &transit(0x77, 0x31, b"x"));
        assert_eq!(streams.map(|stream| desk.messages(stream).len()), wanted, "{forward:?}");
        assert!(desk.messages(from).is_empty());
    }
}

#[test]
fn ma_40_a_message_is_forwarded_once_and_never_back() {
    let mut desk = Desk::new(&config());
    let (a, b) = (desk.call(0x10), desk.call(0x50));
    let message = transit(0x77, 0x12, b"x");
    desk.message(a, &message);
    assert!(desk.messages(a).is_empty(), "never to the peer it came from");
    desk.message(b, &message);
    desk.message(a, &message);
    assert_eq!((desk.messages(a).len(), desk.messages(b).len()), (0, 1));
    assert_eq!(desk.rig.machine.counted().duplicates_dropped, 2);
    for other in [transit(0x78, 0x12, b"x"), transit(0x77, 0x12, b"y"), transit(0x77, 0x13, b"x")] {
        desk.message(b, &other);
    }
    assert_eq!(desk.messages(a).len(), 3, "another sender, DATA or recipient is another message (MA-42)");
}

#[test]
fn ma_40a_a_seen_message_is_remembered_as_long_as_a_copy_can_wait() {
    let mut desk = Desk::new(&config());
    let stream = desk.call(0x10);
    let message = to_us(&desk, 0x77, b"once");
    desk.message(stream, &message);
    desk.rig.advance(Duration::from_secs(3599));
    desk.message(stream, &message);
    assert_eq!(desk.rig.machine.counted().messages_delivered, 1);
    desk.rig.advance(Duration::from_secs(3601));
    desk.message(stream, &message);
    assert_eq!(
        desk.rig.machine.counted().messages_delivered,
        2,
        "beyond the window it is a new message (MA-41)"
    );
}

/// A copy that reached its custodian half a minute after another reached the recipient, and waits as long as it may.
#[test]
fn ma_40a_a_late_copy_does_not_outlive_the_memory_of_the_first() {
    let mut desk = Desk::new(&config());
    let from = desk.call(0x10);
    desk.rig.advance(30 * SECOND);
    desk.message(from, &transit(0x77, 0x95, b"once"));
    assert_eq!(desk.rig.machine.waiting(), 1, "we are next to it");
    desk.rig.advance(Duration::from_secs(3600 - 60 - 1));
    assert_eq!(desk.rig.machine.waiting(), 1);
    desk.rig.advance(2 * SECOND);
    assert_eq!(
        desk.rig.machine.waiting(),
        0,
        "29 s before the recipient, which had it 30 s earlier, forgets it"
    );
    desk.send(nid(0x95), b"our own");
    desk.rig.advance(Duration::from_secs(3599));
    assert_eq!(desk.rig.machine.waiting(), 1, "an own message waits as long as it is remembered");
    desk.rig.advance(2 * SECOND);
    assert_eq!(desk.rig.machine.waiting(), 0);
}

#[test]
fn ma_40b_a_restart_does_not_deliver_twice() {
    let mut desk = Desk::new(&config());
    let stream = desk.call(0x10);
    let message = to_us(&desk, 0x77, b"once");
    desk.message(stream, &message);
    let mut again = desk.restart(&config());
    let stream = again.call(0x10);
    again.message(stream, &message);
    assert!(!again.has("MessageReceived"));
    again.rig.command(Command::Inbox { from: 0 });
    assert!(again.has("Inbox([Received { number: 0"));
}

#[test]
fn ma_41_the_same_message_sent_again_is_a_duplicate() {
    let mut desk = Desk::new(&config());
    desk.send(nid(0x50), b"x");
    desk.send(nid(0x50), b"x");
    desk.send(nid(0x51), b"x");
    assert!(desk.has("Reply 1 Sent") && desk.has("Reply 2 Duplicate") && desk.has("Reply 3 Sent"), "MF-22");
    assert_eq!(desk.rig.disk.keys().filter(|(space, _)| *space == BLOCKS).count(), 1, "one block for both");
}

#[test]
fn mf_22_the_same_data_to_two_nodes_arrives_at_both_and_is_stored_once() {
    let mut desk = Desk::new(&config());
    let streams = [0x50, 0x60].map(|first| desk.call(first));
    desk.send(nid(0x50), b"same");
    desk.send(nid(0x60), b"same");
    assert_eq!(streams.map(|stream| desk.messages(stream).len()), [1, 1]);
    assert_eq!(desk.rig.disk.keys().filter(|(space, _)| *space == BLOCKS).count(), 1);
}

#[test]
fn ma_44_a_message_to_the_own_node_needs_no_network() {
    let mut desk = Desk::new(&config());
    let stream = desk.call(0x10);
    let own = desk.own();
    desk.send(own, b"note");
    assert!(desk.has("MessageReceived") && desk.has("Reply 1 Sent") && desk.messages(stream).is_empty());
    desk.rig.command(Command::Send { to: own, data: b"sign".to_vec(), receipt: true });
    let mut again = desk.restart(&config());
    again.rig.command(Command::Outbox { from: 0 });
    assert!(again.has("number: 1") && !again.has("number: 2"), "no number is skipped");
    assert!(again.has("wants_receipt: true, is_file: false, state: Delivered"), "{:#?}", again.rig.log);
}

#[test]
fn m_50_a_message_leaves_the_queue_a_minute_after_a_foreign_peer_has_it() {
    let mut desk = Desk::new(&config());
    // Not next to the recipient: no custody.
    let streams = [0x50, 0x40, 0x60].map(|first| desk.call(first));
    desk.message(streams[0], &transit(0x77, 0x41, b"x"));
    assert_eq!(desk.rig.machine.waiting(), 1);
    let bytes = frame(&transit(0x77, 0x41, b"x")).len();
    desk.rig.stream(streams[1], StreamEvent::Sent { bytes: bytes - 1, fin: false }).unwrap();
    assert_eq!(desk.rig.machine.waiting(), 1, "all but one byte is not all");
    desk.rig.stream(streams[1], StreamEvent::Sent { bytes: 1, fin: false }).unwrap();
    desk.take_all(streams[1]);
    desk.rig.advance(59 * SECOND);
    assert_eq!(desk.rig.machine.waiting(), 1, "the connection may still be reset (CU-16)");
    desk.rig.advance(2 * SECOND);
    assert_eq!(desk.rig.machine.waiting(), 0);
}

#[test]
fn m_51_a_message_in_transit_is_stored_before_it_is_forwarded() {
    let mut desk = Desk::new(&config());
    let (a, _) = (desk.call(0x10), desk.call(0x50));
    desk.rig.take_log();
    desk.message(a, &transit(0x77, 0x52, b"saved"));
    let at = |part: &str| desk.rig.log.iter().position(|line| line.contains(part)).unwrap();
    assert!(at("Store") < at("Write 0:"), "MA-49a");
    assert_eq!(desk.rig.disk[&(BLOCKS, Key::of(b"saved").to_bytes().to_vec())], b"saved");
}

#[test]
fn m_53_a_sent_message_is_stored_and_durable_before_the_reply() {
    let mut desk = Desk::new(&config());
    desk.rig.hold();
    desk.send(nid(0x50), b"mine");
    assert!(!desk.has("Reply"));
    desk.rig.drain();
    let line = desk.rig.log.iter().find(|line| line.starts_with("Store") && line.contains("Write")).unwrap();
    assert!(line.contains("durable: true"));
    assert!(desk.has("Reply 1 Sent"));
    assert_eq!(desk.rig.disk[&(BLOCKS, Key::of(b"mine").to_bytes().to_vec())], b"mine");
    desk.rig.command(Command::Get { key: Key::of(b"mine") });
    desk.rig.drain();
    assert!(desk.has("Reply 2 Block(4 bytes)"));
}

#[test]
fn a_corrupt_block_is_not_returned() {
    let mut desk = Desk::new(&config());
    desk.send(nid(0x50), b"mine");
    let at = (BLOCKS, Key::of(b"mine").to_bytes().to_vec());
    desk.rig.disk.insert(at.clone(), b"mime".to_vec());
    desk.rig.command(Command::Get { key: Key::of(b"mine") });
    assert!(desk.has("Corrupt") && desk.has("BlockCorrupted"));
    assert!(!desk.rig.disk.contains_key(&at));
    desk.rig.command(Command::Get { key: Key::of(b"never") });
    assert!(desk.has("Reply 3 NoSuchBlock"));
}

#[test]
fn mf_19_a_full_disk_stops_no_relay_and_acknowledges_nothing() {
    let mut desk = Desk::new(&config());
    let (a, b) = (desk.call(0x10), desk.call(0x50));
    desk.rig.take_log();
    desk.rig.hold();
    desk.send(nid(0x52), b"mine");
    desk.message(a, &transit(0x77, 0x53, b"theirs"));
    let ours = to_us(&desk, 0x77, b"for us");
    desk.message(a, &ours);
    // Each is one write; none of them succeeds.
    let begun = desk.rig.machine.ops_begun();
    for op in begun - 2..=begun {
        desk.rig.stored(OpId::new(op), StoreResult::Failed(StoreFault::Full));
    }
    desk.rig.drain();
    assert!(desk.has("Reply 1 StoreFailed { fault: Full }"));
    assert!(desk.has("StoreFailed { fault: Full }"));
    let messages = desk.messages(b);
    assert_eq!(
        messages,
        [(nid(0x77), nid(0x53), "theirs".to_owned())],
        "ours was not acknowledged, nor sent"
    );
    assert!(
        desk.has("MessageDeferred") && !desk.has("MessageReceived"),
        "a message for this node waits for the store"
    );
    desk.rig.advance(2 * SECOND);
    let retry = desk.rig.machine.ops_begun();
    desk.rig.stored(OpId::new(retry), StoreResult::Written);
    desk.rig.drain();
    assert!(desk.has("MessageReceived"), "it is tried again by itself");
    assert!(ops(&desk, "Page").is_empty());
}

#[test]
fn ma_45_a_full_queue_refuses_own_messages_and_drops_the_oldest_in_transit() {
    let mut desk = Desk::new(&Config { queue_max: 2, ..config() });
    let a = desk.call(0x10);
    for number in 0..3u8 {
        desk.message(a, &transit(0x77, 0x50, &[number]));
    }
    assert_eq!((desk.rig.machine.waiting(), desk.rig.machine.counted().queue_dropped), (2, 1));
    let mut lone = Desk::new(&Config { queue_max: 1, ..config() });
    lone.send(nid(0x50), b"1");
    lone.send(nid(0x50), b"2");
    assert!(lone.has("Reply 2 QueueFull"));
    lone.rig.command(Command::Send { to: nid(3), data: vec![0; (16 << 20) + 1], receipt: false });
    assert!(lone.has("Reply 3 TooLong"));
}

#[test]
fn ma_45_a_message_without_a_peer_expires_with_an_event() {
    let mut desk = Desk::new(&config());
    desk.send(nid(0x50), b"waits");
    desk.rig.advance(Duration::from_secs(3599));
    assert_eq!(desk.rig.machine.waiting(), 1);
    desk.rig.advance(2 * SECOND);
    assert_eq!(desk.rig.machine.waiting(), 0);
    assert!(desk.has("state: Expired"));
}

#[test]
fn ma_45_the_queue_survives_a_restart() {
    let mut desk = Desk::new(&config());
    desk.send(nid(0x50), b"waits");
    let mut again = desk.restart(&config());
    assert_eq!(again.rig.machine.waiting(), 1);
    let stream = again.call(0x50);
    assert_eq!(again.messages(stream), [(again.own(), nid(0x50), "waits".to_owned())]);
    again.take_all(stream);
    again.rig.advance(61 * SECOND);
    assert_eq!(again.rig.machine.waiting(), 0);
}

#[test]
fn ma_45b_a_neighbour_keeps_a_message_until_the_absent_recipient_returns() {
    let mut desk = Desk::new(&config());
    let streams = [0x10, 0x50].map(|first| desk.call(first));
    // Ours is 94: next to a0 on its younger side.
    desk.message(streams[0], &transit(0x77, 0xa0, b"kept"));
    desk.rig.stream(streams[1], StreamEvent::Sent { bytes: 1 << 20, fin: false }).unwrap();
    assert_eq!(desk.rig.machine.waiting(), 1);
    let late = desk.call(0xa0);
    assert_eq!(desk.messages(late), [(nid(0x77), nid(0xa0), "kept".to_owned())]);
    desk.take_all(late);
    desk.rig.advance(61 * SECOND);
    assert_eq!(desk.rig.machine.waiting(), 0);
}

#[test]
fn mf_9_unanswered_messages_of_a_dead_peer_take_another_path() {
    let mut desk = Desk::new(&config());
    let (a, b, c) = (desk.call(0x10), desk.call(0x50), desk.call(0x60));
    desk.message(a, &transit(0x77, 0x52, b"x"));
    assert_eq!((desk.messages(b).len(), desk.messages(c).len()), (1, 0));
    desk.close(b);
    assert_eq!(desk.messages(c).len(), 1);
}

#[test]
fn ma_48_a_peer_that_reads_nothing_is_disconnected_and_costs_little() {
    let config = Config { unsent_bytes_max: 100_000, memory_bytes_max: 200_000, ..config() };
    let mut desk = Desk::new(&config);
    let (a, slow) = (desk.call(0x10), desk.call(0x50));
    for number in 0..100u8 {
        desk.message(a, &transit(0x77, 0x52, &[number; 20_000]));
    }
    assert!(desk.written(slow).len() <= 100_200, "no more is written than fits, a frame in parts if need be");
    assert!(desk.rig.machine.memory_bytes() <= 220_000, "the rest is in the store");
    desk.rig.take_log();
    desk.rig.stream(slow, StreamEvent::Sent { bytes: 60_000, fin: false }).unwrap();
    assert_eq!(desk.written(slow).len(), 60_000, "when it reads, it goes on, from the store if need be");
    desk.rig.advance(29 * SECOND);
    assert!(!desk.has(&format!("Abort {slow}")));
    desk.rig.advance(2 * SECOND);
    assert!(desk.has(&format!("Abort {slow}")) && desk.has("why: Stalled"));
    assert_eq!(
        desk.rig.machine.waiting(),
        100,
        "nothing is lost from the queue: we are next to the recipient"
    );
}

#[test]
fn a_store_that_does_not_answer_makes_peers_wait() {
    let mut desk = Desk::new(&Config { memory_bytes_max: 100_000, ..config() });
    let a = desk.call(0x10);
    desk.call(0x50);
    desk.rig.take_log();
    desk.rig.hold();
    for number in 0..10u8 {
        desk.message(a, &transit(0x77, 0x52, &[number; 20_000]));
    }
    desk.rig.drain();
    let credit: usize = (desk.rig.log.iter())
        .take_while(|line| !line.starts_with("Write 0:"))
        .filter_map(|line| line.strip_prefix(&format!("Read {a} "))?.parse::<usize>().ok())
        .sum();
    assert!(credit <= 120_000, "no credit beyond the room: {credit}");
    let all: usize = (desk.rig.log.iter())
        .filter_map(|line| line.strip_prefix(&format!("Read {a} "))?.parse::<usize>().ok())
        .sum();
    assert_eq!(all, 10 * (4 + 131 + 20_000), "and all of it once the store has answered");
}

#[test]
fn ma_53_the_third_bad_frame_ends_the_connection() {
    let bad: [&[u8]; 4] = [b"\0\0\0\0", b"\0\0\0\x03w00", b"\0\0\0\x04w01x", b"\0\0\0\x05hello"];
    for frame in bad {
        let mut desk = Desk::new(&config());
        let stream = desk.call(0x10);
        for _ in 0..2 {
            desk.rig.stream(stream, StreamEvent::Data(frame)).unwrap();
        }
        let message = to_us(&desk, 0x77, b"still heard");
        desk.message(stream, &message);
        assert!(desk.has("MessageReceived") && desk.peers() == [0x10]);
        desk.rig.stream(stream, StreamEvent::Data(frame)).unwrap();
        assert!(desk.has(&format!("Abort {stream}")) && desk.peers().is_empty());
    }
    let mut desk = Desk::new(&config());
    let stream = desk.call(0x10);
    desk.rig.stream(stream, StreamEvent::Data(&[0xff; 4])).unwrap();
    assert!(desk.peers().is_empty(), "MF-16: a length over the limit ends it at once");
    let stream = desk.call(0x10);
    desk.rig.stream(stream, StreamEvent::Data(&here_frame(&here(0x33)))).unwrap();
    assert_eq!(desk.peers(), [0x10], "a later HERE says nothing");
}

#[test]
fn mf_16_corrupted_frames_harm_no_other_connection() {
    let mut desk = Desk::new(&config());
    let (bad, good) = (desk.call(0x10), desk.call(0x50));
    let mut upper = frame(&transit(0x77, 0x52, b"x"));
    upper[8] = b'G';
    for bytes in [&upper[..], b"\0\0\0\0", &[0xff; 9]] {
        let _ = desk.rig.stream(bad, StreamEvent::Data(bytes));
    }
    assert_eq!(desk.peers(), [0x50]);
    let message = to_us(&desk, 0x77, b"fine");
    desk.message(good, &message);
    assert!(desk.has("MessageReceived"));
}

#[test]
fn mf_21_a_foreign_protocol_is_closed_within_the_handshake() {
    let mut desk = Desk::new(&config());
    for hello in
        [&b"\x16\x03\x01\x02\x00\x01"[..], b"GET / HTTP/1.1\r\n\r\n", b"\x2e\xa7\xd9\x0b", b"\0\0\0\x10BEP"]
    {
        let stream = desk.accept(ip(0x10));
        let _ = desk.rig.stream(stream, StreamEvent::Data(hello));
        desk.rig.advance(6 * SECOND);
        assert!(desk.has(&format!("Abort {stream}")), "{hello:?}");
        assert!(desk.written(stream).is_empty(), "and learns nothing of us");
    }
}

#[test]
fn ma_46a_a_requested_receipt_is_sent_and_reported_to_the_sender() {
    let mut desk = Desk::new(&config());
    let stream = desk.call(0x10);
    let data = write_form(&Form::Ask { nonce: 5, payload: b"sign here" });
    let message = to_us(&desk, 0x10, &data);
    desk.message(stream, &message);
    let receipt = write_form(&Form::Receipt { key: Key::of(&data), received_at: 1_700_000_000 });
    let sent = desk.messages(stream);
    assert_eq!((sent[0].1, sent[0].2.len() > 20), (nid(0x10), true));
    let wire = desk.written(stream);
    assert!(wire.windows(receipt.len()).any(|part| part == receipt));
    // The other side.
    desk.rig.take_log();
    desk.rig.command(Command::Send { to: nid(0x10), data: b"ask".to_vec(), receipt: true });
    let wire = desk.written(stream);
    let key = Key::of(&wire[4 + 131..]);
    desk.take_all(stream);
    assert!(desk.has("state: Given"));
    let forged = Message::new(nid(0x66), desk.own(), &write_form(&Form::Receipt { key, received_at: 9 }));
    desk.message(stream, &forged);
    assert!(!desk.has("MessageConfirmed"), "only the recipient can confirm");
    let real = Message::new(nid(0x10), desk.own(), &write_form(&Form::Receipt { key, received_at: 9 }));
    desk.message(stream, &real);
    assert!(desk.has("MessageConfirmed") && desk.has("state: Delivered"));
}

#[test]
fn ma_46a_without_a_receipt_in_time_the_message_is_unconfirmed() {
    let mut desk = Desk::new(&config());
    let stream = desk.call(0x10);
    desk.rig.command(Command::Send { to: nid(0x10), data: b"ask".to_vec(), receipt: true });
    desk.take_all(stream);
    desk.rig.advance(Duration::from_secs(3601));
    assert!(desk.has("state: Unconfirmed"));
}

#[test]
fn ma_51_empty_data_is_a_message_too() {
    let mut desk = Desk::new(&config());
    let stream = desk.call(0x10);
    let message = to_us(&desk, 0x77, b"");
    desk.message(stream, &message);
    assert!(desk.has("MessageReceived"));
}

#[test]
fn a_stop_closes_connections_and_keeps_the_queue() {
    let mut desk = Desk::new(&config());
    let stream = desk.call(0x10);
    desk.message(stream, &transit(0x77, 0xa0, b"kept"));
    desk.rig.stop();
    assert!(desk.has(&format!("Finish {stream}")) && !desk.rig.machine.clone().is_stopped_now());
    desk.rig.stream(stream, StreamEvent::Closed(crate::stream::CloseReason::Done)).unwrap();
    assert!(desk.rig.machine.is_stopped_now());
    desk.send(nid(0x50), b"late");
    assert!(desk.has("Stopping"));
    assert_eq!(desk.restart(&config()).rig.machine.waiting(), 1);
}

impl Mesh {
    fn is_stopped_now(&self) -> bool {
        crate::Machine::is_stopped(self)
    }
}

proptest::proptest! {
    #[test]
    fn no_bytes_of_a_peer_make_a_node_panic(bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..400), is_up: bool) {
        let mut desk = Desk::new(&config());
        let _ = desk.rig.datagram(UDP, super::desk::addr(3), &bytes);
        let stream = if is_up { desk.call(0x10) } else { desk.accept(ip(0x10)) };
        let _ = desk.rig.stream(stream, StreamEvent::Data(&bytes));
        let _ = crate::w3w::describe(&bytes);
        desk.rig.advance(10 * SECOND);
    }

    #[test]
    fn messages_and_forms_survive_the_wire(data in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..300), nonce: u64, like_a_form: bool) {
        let data = if like_a_form { [crate::w3w::FORM_MAGIC.as_slice(), &data].concat() } else { data };
        let message = Message::new(Nid::from_uuid([1; 16]), nid(3), &data);
        let read = crate::w3w::decode_body(message.body()).unwrap();
        proptest::prop_assert_eq!(message.data(), &data[..]);
        proptest::prop_assert_eq!(read, crate::w3w::Body::Message(message));
        let plain = write_form(&Form::Plain(&data));
        proptest::prop_assert_eq!(crate::w3w::read_form(&plain), Form::Plain(&data));
        let ask = write_form(&Form::Ask { nonce, payload: &data });
        proptest::prop_assert_eq!(crate::w3w::read_form(&ask), Form::Ask { nonce, payload: &data });
    }
}
