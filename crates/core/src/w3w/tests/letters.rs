//! Letters: their recipients, numbers, receipts and lifetimes.

use core::time::Duration;

use super::desk::{Desk, SECOND, bytes_of, config, here, nid};
use crate::stream::StreamEvent;
use crate::tag::StreamId;
use crate::w3w::custody::hello_nid;
use crate::w3w::{
    Command, Config, Described, Form, Here, Letter, Message, Presence, Receipts, Verdict, describe,
    here_frame, read_form, write_form,
};

const DAY: Duration = Duration::from_secs(86_400);

/// A peer that speaks custody.
fn call(desk: &mut Desk, first: u8) -> StreamId {
    let stream = desk.call(first);
    let hello = Here { nid: hello_nid(nid(first), desk.own()), ..here(first) };
    desk.rig.stream(stream, StreamEvent::Data(&here_frame(&hello))).unwrap();
    stream
}

/// The DATA of all messages written to a stream.
fn written(desk: &Desk, stream: StreamId) -> Vec<Vec<u8>> {
    let data = |described| match described {
        Described::Message { data_hex, .. } => Some(bytes_of(&data_hex)),
        Described::Here { .. } => None,
    };
    describe(&desk.written(stream)).unwrap().into_iter().filter_map(data).collect()
}

/// Epoch, number and lifetime of all letters written to a stream.
fn letters(desk: &Desk, stream: StreamId) -> Vec<(u64, u64, u32)> {
    let letter = |data: Vec<u8>| match read_form(&data) {
        Form::Letter(letter) => Some((letter.epoch, letter.number, letter.lifetime)),
        _ => None,
    };
    written(desk, stream).into_iter().filter_map(letter).collect()
}

fn receipts(desk: &Desk, stream: StreamId) -> Vec<Receipts> {
    let receipts = |data: Vec<u8>| match read_form(&data) {
        Form::Receipts(receipts) => Some(receipts),
        _ => None,
    };
    written(desk, stream).into_iter().filter_map(receipts).collect()
}

fn send(to: u8, data: &[u8], lifetime: Option<Duration>, certain: bool) -> Command {
    Command::SendLetter { to: nid(to), data: data.to_vec(), lifetime, certain, receipt: false }
}

fn letter(desk: &Desk, from: u8, number: u64) -> Message {
    let letter = Letter { epoch: 7, number, least: 1, attempt: 0, lifetime: 3600, payload: b"hello" };
    Message::new(nid(from), desk.own(), &write_form(&Form::Letter(letter)))
}

#[test]
fn cu_6_a_node_gets_letters_once_it_is_known_to_understand_them() {
    let mut desk = Desk::new(&config());
    let foreign = desk.call(0x50);
    desk.rig.command(send(0x50, b"plain", None, false));
    assert_eq!(written(&desk, foreign), [b"plain".to_vec()], "byte for byte");
    desk.rig.command(send(0x50, b"letter", None, true));
    desk.rig.command(send(0x50, b"letter too", None, false));
    assert_eq!(letters(&desk, foreign).len(), 2, "the user has said so, and the book keeps it");
    let peer = call(&mut desk, 0x40);
    desk.rig.command(send(0x40, b"x", None, false));
    assert_eq!(letters(&desk, peer).len(), 1, "its hello says so");
    desk.rig.command(Command::Member {
        nid: nid(0x60),
        name: "blue".into(),
        ip: None,
        presence: Presence::Alive,
        knows_letters: true,
    });
    let member = desk.call(0x60);
    desk.rig.command(send(0x60, b"x", None, false));
    assert_eq!(letters(&desk, member).len(), 1, "`members` says so");
}

#[test]
fn cu_8_numbers_count_per_recipient_and_a_start_draws_a_new_epoch() {
    let mut desk = Desk::new(&config());
    let (a, b) = (call(&mut desk, 0x50), call(&mut desk, 0x40));
    for _ in 0..2 {
        desk.rig.command(send(0x50, b"the same text", None, true));
        desk.rig.command(send(0x40, b"the same text", None, true));
    }
    let numbers = |desk: &Desk, stream| letters(desk, stream).iter().map(|one| one.1).collect::<Vec<_>>();
    assert_eq!((numbers(&desk, a), numbers(&desk, b)), (vec![1, 2], vec![1, 2]));
    let epoch = letters(&desk, a)[0].0;
    let mut again = desk.restart(&config());
    let a = call(&mut again, 0x50);
    again.rig.command(send(0x50, b"the same text", None, true));
    let (old, new): (Vec<_>, Vec<_>) = letters(&again, a).into_iter().partition(|one| one.0 == epoch);
    // Those for the other recipient wait with this peer as well.
    let mut numbers: Vec<u64> = old.iter().map(|one| one.1).collect();
    numbers.dedup();
    assert_eq!(numbers, [1, 2], "open letters keep their epoch");
    assert_eq!(new.iter().map(|one| one.1).collect::<Vec<_>>(), [1], "new ones cannot use a number again");
}

#[test]
fn cu_10_receipts_are_cumulative_and_one_goes_in_200_milliseconds() {
    let mut desk = Desk::new(&config());
    let a = call(&mut desk, 0x50);
    for number in [1, 2, 4] {
        let message = letter(&desk, 0x50, number);
        desk.message(a, &message);
        desk.rig.advance(Duration::from_millis(20));
    }
    assert_eq!(receipts(&desk, a).len(), 1, "the first at once, the others wait");
    desk.rig.advance(Duration::from_millis(200));
    let got = receipts(&desk, a);
    let last = got.last().expect("there are two");
    assert_eq!((got.len(), last.up_to, last.ranges.clone()), (2, 2, vec![(4, 1)]));
    assert_ne!(got[0].nonce, last.nonce, "relays would drop the same bytes");
    // A letter that comes again is confirmed again.
    let message = letter(&desk, 0x50, 2);
    desk.message(a, &message);
    desk.rig.advance(SECOND);
    assert_eq!(receipts(&desk, a).len(), 3);
}

#[test]
fn cu_10_another_mailbox_shows_that_the_recipient_lost_its_store() {
    let mut desk = Desk::new(&config());
    let a = call(&mut desk, 0x50);
    let receipt = |nonce, mailbox| {
        let receipts = Receipts { nonce, epoch: 1, mailbox, up_to: 0, ranges: Vec::new() };
        write_form(&Form::Receipts(receipts))
    };
    for (nonce, mailbox, is_lost) in [(1, 5, false), (2, 5, false), (3, 6, true)] {
        let message = Message::new(nid(0x50), desk.own(), &receipt(nonce, mailbox));
        desk.message(a, &message);
        assert_eq!(desk.has("RecipientLostStore"), is_lost, "{nonce}");
    }
}

#[test]
fn cu_17_a_relay_holds_a_letter_for_its_lifetime_or_until_its_receipt_passes() {
    let transit = |number: u64| {
        let letter =
            Letter { epoch: 7, number, least: 1, attempt: 0, lifetime: 2 * 86_400, payload: b"hello" };
        Message::new(nid(0x77), nid(0x95), &write_form(&Form::Letter(letter)))
    };
    let mut desk = Desk::new(&config());
    let a = call(&mut desk, 0x50);
    desk.message(a, &transit(1));
    desk.message(a, &transit(2));
    desk.rig.advance(DAY);
    assert_eq!(desk.rig.machine.waiting(), 2, "plain DATA would be over after an hour");
    let receipts = Receipts { nonce: 1, epoch: 7, mailbox: 1, up_to: 1, ranges: Vec::new() };
    desk.message(a, &Message::new(nid(0x95), nid(0x77), &write_form(&Form::Receipts(receipts))));
    let held = desk.rig.machine.waiting();
    desk.rig.advance(DAY + SECOND);
    let left = desk.rig.machine.waiting();
    assert!(held >= 1 && left < held, "{held} {left}");
    assert_eq!(left, 0, "the other one's lifetime is over");
}

#[test]
fn cu_22_a_letter_waits_for_a_week_or_for_the_lifetime_that_its_sender_sets() {
    let mut desk = Desk::new(&Config { expiry: Config::default().expiry, ..config() });
    let a = call(&mut desk, 0x50);
    for lifetime in [None, Some(SECOND), Some(DAY), Some(1000 * DAY)] {
        desk.rig.command(send(0x50, b"x", lifetime, true));
    }
    let lifetimes: Vec<u32> = letters(&desk, a).iter().map(|one| one.2).collect();
    assert_eq!(lifetimes, [7 * 86_400, 60, 86_400, 365 * 86_400]);
}

#[test]
fn one_address_that_is_dialled_has_two_places_too() {
    let mut desk = Desk::new(&config());
    let mut at = here(0x20);
    let mut peers = Vec::new();
    for first in [0x20, 0x30, 0x40, 0x60] {
        (at.nid, at.at) = (nid(first), std::net::SocketAddrV4::new(*at.at.ip(), 22_000 + u16::from(first)));
        if desk.hear(&at).is_ok()
            && let Some(stream) = desk.dialled()
        {
            desk.rig.stream(stream, StreamEvent::Connected { local: super::desk::addr(1) }).unwrap();
            let _ = desk.rig.stream(stream, StreamEvent::Data(&here_frame(&at)));
        }
        peers.push(desk.peers().len());
        desk.rig.advance(60 * SECOND);
    }
    assert_eq!(peers, [1, 2, 2, 2], "invented NIDs take no more");
}

#[test]
fn a_verdict_of_another_peer_releases_nothing() {
    let mut desk = Desk::new(&config());
    let (a, b) = (call(&mut desk, 0x50), call(&mut desk, 0x40));
    desk.rig.command(send(0x50, b"x", None, true));
    desk.take_all(a);
    let data = written(&desk, a).pop().expect("it was written");
    let message = Message::new(desk.own(), nid(0x50), &data);
    let seen = crate::w3w::SeenKey::new(message.sender(), message.recipient(), crate::w3w::Key::of(&data));
    let custody = crate::w3w::Custody {
        flag: crate::w3w::Custody::VERDICTS,
        verdicts: vec![(seen, Verdict::Delivered)],
    };
    let frame = Message::new(nid(0x40), desk.own(), &write_form(&Form::Custody(custody)));
    desk.message(b, &frame);
    assert_eq!(desk.rig.machine.waiting(), 1, "b was not given it");
    assert!(!desk.has("state: Delivered") && !desk.has("state: UnderWay"));
}
