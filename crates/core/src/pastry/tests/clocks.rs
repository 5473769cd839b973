//! PA-36b: how old a message is when it is read decides what becomes of it.

use core::time::Duration;
use std::net::SocketAddr;

use super::joining::{Joiner, contact};
use super::*;
use crate::contract::Rig;
use crate::wire::Writer;
use crate::{Machine, StreamEvent, StreamId};

const SECOND: Duration = Duration::from_secs(1);
const STREAM: StreamId = StreamId::accepted(1);

fn addr(last: u8) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, last], PORT))
}

/// A node that is alone and has been for `settled`, with a connection from another one.
fn alone(settled: Duration) -> Rig<Pastry> {
    let config = Config { id: Id::new(1 << 120), bind: addr(1), ..small() };
    let mut rig = Rig::new(Pastry::new(config, [7; 32]).unwrap());
    rig.start();
    rig.advance(settled);
    rig.stream(STREAM, StreamEvent::Accepted { listener: TCP, from: addr(5), local: addr(1) }).unwrap();
    let from = Contact { id: Id::new(5 << 120), addr: addr(5), incarnation: Incarnation(1) };
    say(&mut rig, &Message::Hello { ring: RingTag::new("annulus"), from });
    rig
}

fn say(rig: &mut Rig<Pastry>, message: &Message) {
    let mut bytes = Vec::new();
    encode(message, &mut Writer::new(&mut bytes, 1 << 16));
    let frame = [&(bytes.len() as u32).to_be_bytes()[..], &bytes].concat();
    rig.stream(STREAM, StreamEvent::Data(&frame)).unwrap();
}

/// A message that was sent when our clock showed `sent` more than it does now, or less; how many were delivered and how
/// many ended otherwise.
fn route(rig: &mut Rig<Pastry>, number: u128, sent: Option<i64>) -> (u64, u64) {
    let origin = Contact { id: Id::new(5 << 120), addr: addr(5), incarnation: Incarnation(1) };
    let envelope = Envelope {
        id: MessageId(number),
        attempt: 0,
        key: Id::new(2 << 120),
        origin,
        ttl: 9,
        hops: 1,
        copies: Copies::One,
        doubted: Vec::new(),
        body: Body::App { app: AppName::default(), ask: false, payload: b"hi".to_vec() },
    };
    let now = rig.now.mono.as_micros();
    let sent = sent.map(|by| Sent {
        clock: Clock(now.saturating_add_signed(by)),
        patience_micros: 200_000,
        age_micros: 0,
    });
    let before = rig.machine.counted();
    say(rig, &Message::Route { transmission: 3, sent, envelope });
    let after = rig.machine.counted();
    (after.messages_delivered - before.messages_delivered, after.messages_failed - before.messages_failed)
}

const DELIVERED: (u64, u64) = (1, 0);
const ENDED: (u64, u64) = (0, 1);

#[test]
fn a_young_message_is_delivered_also_by_a_new_owner() {
    let mut rig = alone(Duration::ZERO);
    assert_eq!(route(&mut rig, 1, Some(-100_000)), DELIVERED);
    assert_eq!(route(&mut rig, 2, Some(-300_000)), ENDED, "its sender may have sent it to the former owner");
    assert_eq!(route(&mut rig, 3, None), (0, 0), "it is sent again");
    let clock = format!("000000{:04x}", 0x0104) + &format!("{:016x}0000", rig.now.mono.as_micros());
    let shows = |line: &String| line.starts_with("Write") && line.contains(&clock[6..]);
    assert!(rig.log.iter().any(shows), "with our clock, which its sender is shown: {:?}", rig.log);
}

#[test]
fn an_old_message_is_not_delivered_by_who_has_nobody_to_ask() {
    let mut rig = alone(60 * SECOND);
    assert_eq!(route(&mut rig, 1, Some(-300_000)), ENDED, "there is another node: it came from there");
    assert_eq!(route(&mut rig, 2, Some(-100_000)), DELIVERED);
    assert_eq!(route(&mut rig, 2, Some(-300_000)), (0, 0), "once");
}

#[test]
fn a_message_that_all_have_given_up_ends() {
    let mut rig = alone(60 * SECOND);
    assert_eq!(route(&mut rig, 1, Some(-11_000_000)), ENDED, "it waited in the kernel of who stood still");
    assert_eq!(route(&mut rig, 2, Some(60_000_000)), ENDED, "we slept, and our clock stood still");
}

#[test]
fn who_stood_still_is_a_new_owner() {
    let mut rig = alone(60 * SECOND);
    // A stream's data comes before the timers, of which one is long due.
    let (due, _) = rig.machine.poll_timeout().expect("it looks after its leaves");
    rig.now.mono = due + 10 * SECOND;
    assert_eq!(route(&mut rig, 1, Some(-5_000_000)), ENDED);
}

fn announcements(said: &[Message]) -> usize {
    said.iter().filter(|message| matches!(message, Message::Announce { .. })).count()
}

/// A node that two others know.
fn known_node() -> (Joiner, [Contact; 2]) {
    let own = 0x5000 << 112;
    let mut node = Joiner::new(Config { id: Id::new(own), ..small() });
    let leaves = [contact(own + 10, 1), contact(own - 10, 2)];
    for from in leaves {
        let (tables, versions) = (TablesSent::default(), Versions::default());
        node.hear(from, &[Message::Announce { seen: None, versions, tables }]);
        let said = node.said();
        node.answer_probes(&said, &leaves);
    }
    node.said();
    (node, leaves)
}

#[test]
fn who_stood_still_makes_itself_known_again_at_once() {
    let (mut node, _) = known_node();
    node.rig.sleep(35 * SECOND);
    node.rig.wake();
    let said = node.said();
    assert_eq!(announcements(&said), 2, "to each leaf: {said:?}");
    node.rig.advance(SECOND);
    assert_eq!(announcements(&node.said()), 0, "once");
}

#[test]
fn who_is_asked_over_a_stream_may_have_been_given_up_and_makes_itself_known() {
    let (mut node, [leaf, _]) = known_node();
    let ping = Message::Ping { ring: RingTag::new("annulus"), nonce: 5, from: leaf };
    node.hear(leaf, core::slice::from_ref(&ping));
    assert_eq!(announcements(&node.said()), 1);
    node.hear(contact(77, 9), &[ping]);
    assert_eq!(announcements(&node.said()), 0, "to a stranger it is no news");
}
