//! A recipient without room: no message is reported, confirmed, lost or delivered twice.

use core::time::Duration;

use super::desk::{Desk, SECOND, config, nid};
use crate::stream::StreamEvent;
use crate::w3w::{Command, Config, Form, Key, Message, write_form};

fn ask(desk: &Desk, nonce: u64, payload: &[u8]) -> Message {
    Message::new(nid(0x10), desk.own(), &write_form(&Form::Ask { nonce, payload }))
}

fn received(desk: &Desk) -> usize {
    desk.rig.log.iter().filter(|line| line.contains("MessageReceived")).count()
}

/// A desk whose quota takes one of these messages, and has it.
fn full() -> (Desk, crate::tag::StreamId) {
    let mut desk = Desk::new(&Config { quota_bytes: 50, ..config() });
    let stream = desk.call(0x10);
    let first = ask(&desk, 1, b"first");
    desk.message(stream, &first);
    assert_eq!((received(&desk), desk.messages(stream).len()), (1, 1), "it is there and confirmed");
    (desk, stream)
}

#[test]
fn a_quota_full_of_pins_refuses_and_transit_makes_room() {
    let mut desk = Desk::new(&Config { quota_bytes: 10, ..config() });
    let (a, b, _) = (desk.call(0x10), desk.call(0x50), desk.call(0x60));
    desk.message(a, &Message::new(nid(0x77), nid(0x52), b"12345678"));
    desk.take_all(b);
    desk.rig.advance(61 * SECOND);
    assert_eq!(desk.rig.machine.waiting(), 0);
    desk.send(nid(0x60), b"abcdefgh");
    assert!(desk.has("Reply 1 Sent"), "the relayed message made room");
    assert_eq!(desk.rig.machine.counted().blocks_evicted, 1);
    let mut lone = Desk::new(&Config { quota_bytes: 10, ..config() });
    lone.send(nid(0x60), b"abcdefgh");
    lone.send(nid(0x60), b"ijklmnop");
    assert!(lone.has("Reply 2 RecipientQuotaFull"), "CU-26: one recipient has a quarter, or one message");
    lone.send(nid(0x61), b"ijklmnop");
    assert!(lone.has("Reply 3 QuotaFull"));
}

#[test]
fn ma_46a_a_deferred_message_is_delivered_and_confirmed_once_when_there_is_room() {
    let (mut desk, stream) = full();
    let second = ask(&desk, 2, b"second");
    desk.message(stream, &second);
    desk.message(stream, &second);
    desk.rig.advance(10 * SECOND);
    assert_eq!((received(&desk), desk.messages(stream).len()), (1, 1), "neither reported nor confirmed");
    assert!(desk.has("MessageDeferred") && desk.has("is_waiting: true"));
    assert_eq!(desk.rig.machine.counted().messages_delivered, 1);
    desk.rig.command(Command::Remove { number: 0 });
    desk.rig.advance(Duration::ZERO);
    assert_eq!((received(&desk), desk.messages(stream).len()), (2, 2), "reported and confirmed");
    desk.message(stream, &second);
    desk.rig.advance(10 * SECOND);
    assert_eq!((received(&desk), desk.messages(stream).len()), (2, 2), "once");
    desk.message(stream, &second);
    assert_eq!((received(&desk), desk.messages(stream).len()), (2, 3), "the receipt was lost");
    let other = desk.call(0x50);
    desk.message(other, &second);
    assert!(desk.messages(other).is_empty(), "a copy over another path is no retransmission");
    desk.rig.command(Command::Inbox { from: 0 });
    assert!(desk.has("number: 1") && !desk.has("number: 2"), "no number is skipped");
}

#[test]
fn deferred_messages_are_bounded_and_a_refused_one_may_arrive_again() {
    let mut desk = Desk::new(&Config { quota_bytes: 50, memory_bytes_max: 800, ..config() });
    let stream = desk.call(0x10);
    for nonce in 0..4 {
        let message = ask(&desk, nonce, b"12345");
        desk.message(stream, &message);
    }
    // One is in the store; two of 161 bytes fit into half the memory.
    desk.rig.command(Command::Status);
    assert!(desk.has("deferred: 2") && desk.has("is_waiting: false"), "{:#?}", desk.rig.log);
    for number in 0..3 {
        desk.rig.command(Command::Remove { number });
        desk.rig.advance(SECOND);
    }
    assert_eq!(received(&desk), 3);
    let last = ask(&desk, 3, b"12345");
    desk.message(stream, &last);
    assert_eq!(received(&desk), 4, "it was not remembered as seen");
    let too_long = ask(&desk, 4, &[0; 60]);
    desk.message(stream, &too_long);
    desk.rig.command(Command::Status);
    assert!(
        desk.rig.log.last().is_some_and(|line| line.contains("deferred: 0")),
        "no quota will ever take it"
    );
}

#[test]
fn a_deferred_message_is_dropped_when_it_no_longer_counts_as_seen() {
    let (mut desk, stream) = full();
    let second = ask(&desk, 2, b"second");
    desk.message(stream, &second);
    desk.take_all(stream);
    desk.rig.advance(Duration::from_secs(3602));
    desk.rig.command(Command::Remove { number: 0 });
    desk.rig.advance(10 * SECOND);
    assert_eq!((received(&desk), desk.rig.machine.counted().expired), (1, 1));
}

#[test]
fn a_receipt_is_handled_without_room() {
    let mut desk = Desk::new(&Config { quota_bytes: 60, ..config() });
    let stream = desk.call(0x10);
    desk.rig.take_log();
    desk.rig.command(Command::Send { to: nid(0x10), data: b"from us".to_vec(), receipt: true });
    let key = Key::of(&desk.written(stream)[4 + 131..]);
    desk.take_all(stream);
    let inbox = ask(&desk, 1, b"the rest");
    desk.message(stream, &inbox);
    let receipt = Message::new(nid(0x10), desk.own(), &write_form(&Form::Receipt { key, received_at: 9 }));
    desk.message(stream, &receipt);
    assert!(desk.has("MessageConfirmed"), "{:#?}", desk.rig.log);
}

#[test]
fn a_sender_keeps_an_unconfirmed_message_and_retransmits_it() {
    let mut desk = Desk::new(&config());
    let stream = desk.call(0x10);
    desk.rig.take_log();
    desk.rig.command(Command::Send { to: nid(0x10), data: b"please".to_vec(), receipt: true });
    let key = Key::of(&desk.written(stream)[4 + 131..]);
    desk.take_all(stream);
    assert_eq!((desk.messages(stream).len(), desk.rig.machine.waiting()), (1, 1));
    desk.rig.advance(122 * SECOND);
    assert_eq!(desk.messages(stream).len(), 2, "a minute after the minute in which it may be reset");
    desk.take_all(stream);
    desk.rig.advance(122 * SECOND);
    assert_eq!(desk.messages(stream).len(), 2, "then after two");
    // The recipient leaves and returns: that is a reason of its own.
    desk.close(stream);
    let back = desk.call(0x10);
    assert_eq!(desk.messages(back).len(), 1);
    desk.take_all(back);
    let receipt = Message::new(nid(0x10), desk.own(), &write_form(&Form::Receipt { key, received_at: 9 }));
    desk.message(back, &receipt);
    assert_eq!(desk.rig.machine.waiting(), 0, "its receipt is no longer awaited");
    desk.rig.advance(Duration::from_secs(3700));
    assert_eq!(desk.messages(back).len(), 1);
}

#[test]
fn a_message_kept_for_its_receipt_goes_only_to_its_recipient() {
    let mut desk = Desk::new(&config());
    let (a, b) = (desk.call(0x10), desk.call(0x50));
    desk.rig.command(Command::Send { to: nid(0x30), data: b"please".to_vec(), receipt: true });
    desk.rig.stream(a, StreamEvent::Sent { bytes: 1 << 20, fin: false }).unwrap();
    desk.rig.stream(b, StreamEvent::Sent { bytes: 1 << 20, fin: false }).unwrap();
    let other = desk.call(0x32);
    desk.rig.advance(300 * SECOND);
    assert_eq!([a, b, other].map(|stream| desk.messages(stream).len()), [1, 1, 0]);
    let recipient = desk.call(0x30);
    assert_eq!(desk.messages(recipient).len(), 1);
}

#[test]
fn a_message_kept_only_for_its_receipt_makes_room() {
    let mut desk = Desk::new(&Config { quota_bytes: 60, ..config() });
    let stream = desk.call(0x10);
    desk.rig.command(Command::Send { to: nid(0x10), data: b"please".to_vec(), receipt: true });
    desk.take_all(stream);
    desk.rig.advance(61 * SECOND);
    assert_eq!(desk.rig.machine.waiting(), 0, "it takes more than half of the quota");
    desk.send(nid(0x10), &[7; 50]);
    assert!(desk.has("Reply 2 Sent"));
}
