//! The contract, and PF-17: any bytes from the wire are a message, or are counted and change nothing.

use core::time::Duration;
use std::net::SocketAddr;

use super::*;
use crate::contract::{self, Rig, Subject};
use crate::wire::{DecodeError, Writer};
use crate::{ListenerId, Refusal, SocketId, StreamEvent, StreamId};

const SECOND: Duration = Duration::from_secs(1);

fn addr(last: u8) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, last], PORT))
}

fn contact(last: u8) -> Contact {
    Contact { id: Id::new(u128::from(last) << 120), addr: addr(last), generation: Generation(1) }
}

fn bytes(message: &Message) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode(message, &mut Writer::new(&mut bytes, 1 << 16));
    bytes
}

fn frame(message: &Message) -> Vec<u8> {
    let bytes = bytes(message);
    [&(bytes.len() as u32).to_be_bytes()[..], &bytes].concat()
}

fn ring() -> RingTag {
    RingTag::new("annulus")
}

fn hello(last: u8) -> Message {
    Message::Hello { ring: ring(), from: contact(last) }
}

fn announce() -> Message {
    let tables = TablesSent { leaf_set: vec![contact(8)], ..TablesSent::default() };
    Message::Announce { seen: None, wants_welcome: true, versions: Versions::default(), tables }
}

fn message_to(key: u128) -> Message {
    let body = Body::App { app: AppName::default(), wants_answer: false, payload: b"hi".to_vec().into() };
    let envelope = Envelope {
        id: MessageId(9),
        attempt: 0,
        key: Id::new(key),
        origin: contact(5),
        ttl: 4,
        hops: 1,
        to_node: false,
        lifetime_millis: 1000,
        body,
    };
    Message::Route { transmission: 3, envelope }
}

struct Routing;

impl Subject for Routing {
    type M = Pastry;

    fn machine(&self) -> Pastry {
        Pastry::new(
            Config {
                id: Id::new(0x10 << 120),
                bind: addr(1),
                applications: vec![AppName::default()],
                ..small()
            },
            [7; 32],
        )
        .unwrap()
    }

    fn live(&self, rig: &mut Rig<Pastry>) {
        rig.start();
        for (number, last) in [(1, 5), (2, 6)] {
            let stream = StreamId::accepted(number);
            rig.stream(stream, StreamEvent::Accepted { listener: TCP, from: addr(last), local: addr(1) })
                .unwrap();
            rig.stream(stream, StreamEvent::Data(&frame(&hello(last)))).unwrap();
            rig.stream(stream, StreamEvent::Data(&frame(&announce()))).unwrap();
        }
        rig.advance(SECOND / 10);
        let key = contact(5).id;
        rig.command(Command::route(AppName::default(), key, vec![1]));
        rig.command(Command::Route {
            app: AppName::default(),
            key: Id::new(0x10 << 120),
            payload: vec![1],
            once: true,
            wants_answer: true,
            deadline: None,
        });
        rig.command(Command::Tables);
    }

    fn datagrams(&self) -> Vec<(SocketId, SocketAddr, Vec<u8>)> {
        let ping = Message::Ping { ring: ring(), nonce: 5, from: contact(5) };
        let pong = Message::Pong { ring: ring(), nonce: 5, from: contact(5), leaf_set_digest: 1 };
        [ping, pong].map(|message| (UDP, addr(5), bytes(&message))).to_vec()
    }

    fn streams(&self) -> Vec<(ListenerId, Vec<u8>)> {
        let wanted = Wanted { leaf_set: true, rows: 3, ..Wanted::default() };
        let said = [
            announce(),
            message_to(0x10 << 120),
            message_to(5 << 120),
            Message::StateRequest { token: 1, wanted },
            Message::Suspect { id: contact(6).id },
            Message::Exit,
        ];
        said.map(|message| (TCP, [frame(&hello(7)), frame(&message)].concat())).to_vec()
    }

    fn forget_counters(&self, machine: &mut Pastry) {
        machine.forget_counters();
    }
}

#[test]
fn pastry_keeps_the_contract() {
    contract::check(&Routing);
}

fn started() -> Rig<Pastry> {
    let mut rig = Rig::new(Routing.machine());
    rig.start();
    rig
}

fn accept(rig: &mut Rig<Pastry>, number: u64) -> StreamId {
    let stream = StreamId::accepted(number);
    rig.stream(stream, StreamEvent::Accepted { listener: TCP, from: addr(5), local: addr(1) }).unwrap();
    stream
}

#[test]
fn another_ring_is_refused_on_streams_and_in_datagrams() {
    let mut rig = started();
    let stream = accept(&mut rig, 1);
    let other = Message::Hello { ring: RingTag::new("other"), from: contact(5) };
    let refusal = rig.stream(stream, StreamEvent::Data(&frame(&other)));
    assert_eq!(refusal, Err(Refusal::Reject("a hello of another ring")));
    let ping = Message::Ping { ring: RingTag::new("other"), nonce: 1, from: contact(5) };
    assert!(rig.datagram(UDP, addr(5), &bytes(&ping)).is_err());
    assert_eq!(rig.machine.counted().refused, 2);
}

#[test]
fn a_connection_without_a_greeting_is_refused() {
    let mut rig = started();
    let stream = accept(&mut rig, 1);
    assert!(rig.stream(stream, StreamEvent::Data(&frame(&Message::Exit))).is_err());
    assert!(rig.log.contains(&format!("Abort {stream}")));
}

#[test]
fn impossible_rows_cells_and_versions_do_no_harm() {
    let mut rig = started();
    let stream = accept(&mut rig, 1);
    rig.stream(stream, StreamEvent::Data(&frame(&hello(5)))).unwrap();
    let absurd = Versions { leaf_set: u32::MAX, routing_table: u32::MAX, neighbourhood: u32::MAX };
    let tables = TablesSent { leaf_set: vec![rig.machine.own(); 300], ..TablesSent::default() };
    let said = [
        Message::StateRequest {
            token: 1,
            wanted: Wanted { rows: u128::MAX, cell: Some((99, 200)), ..Wanted::default() },
        },
        Message::Announce { seen: Some(absurd), wants_welcome: true, versions: absurd, tables },
        Message::Welcome { versions: absurd },
        Message::Ack { transmissions: vec![0, u64::MAX], delivered: vec![MessageId(0)] },
        Message::Receipt { id: MessageId(1), attempt: u16::MAX, hops: 255, report: Report::Lost },
    ];
    for message in said {
        rig.stream(stream, StreamEvent::Data(&frame(&message))).unwrap();
    }
    rig.advance(SECOND);
    assert!(rig.machine.is_active());
}

#[test]
fn a_frame_that_ends_early_is_refused() {
    let mut rig = started();
    let stream = accept(&mut rig, 1);
    rig.stream(stream, StreamEvent::Data(&frame(&hello(5))[..9])).unwrap();
    assert_eq!(rig.stream(stream, StreamEvent::Finished), Err(DecodeError::Truncated.into()));
    assert_eq!(rig.machine.counted().malformed, 1);
}

#[test]
fn a_peer_that_names_a_thousand_nodes_does_not_fill_the_tables() {
    let mut rig = started();
    let stream = accept(&mut rig, 1);
    rig.stream(stream, StreamEvent::Data(&frame(&hello(5)))).unwrap();
    let invented = |n: u16| Contact {
        id: Id::new(u128::from(n) << 112 | 7),
        addr: SocketAddr::from(([10, 9, (n >> 8) as u8, n as u8], PORT)),
        generation: Generation(1),
    };
    for start in (0..60_000u16).step_by(200) {
        let leaf_set = (start..start + 200).map(invented).collect();
        let tables = TablesSent { leaf_set, ..TablesSent::default() };
        let message =
            Message::Announce { seen: None, wants_welcome: true, versions: Versions::default(), tables };
        rig.stream(stream, StreamEvent::Data(&frame(&message))).unwrap();
    }
    assert!(rig.machine.counted().probes_dropped > 0, "more waited than may");
    rig.advance(600 * SECOND);
    let members: Vec<Id> = rig.machine.leaf_set().members().collect();
    assert!(members.iter().all(|id| *id == contact(5).id), "none of them ever answered: {members:?}");
}

#[test]
fn an_invalid_configuration_is_refused_with_a_reason() {
    let cases = [
        (Config { leaf_set_max: 7, ..small() }, "route.leaf_set_max is 7"),
        (Config { network_timeout: Duration::ZERO, ..small() }, "route.network_timeout is zero"),
        (Config { ttl: 0, ..small() }, "route.ttl is zero"),
        (Config { bind: SocketAddr::from(([0; 4], PORT)), ..small() }, "cannot reach route at 0.0.0.0:22001"),
        (Config { message_bytes_max: 100, ..small() }, "route.message_bytes_max is 100"),
    ];
    for (config, part) in cases {
        let error = Pastry::new(config, [0; 32]).unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    }
}
