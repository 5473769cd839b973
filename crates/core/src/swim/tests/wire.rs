//! The bytes.

use proptest::prelude::*;

use super::*;
use crate::wire::{DecodeError, Reader};

fn decode(bytes: &[u8]) -> Result<Vec<String>, DecodeError> {
    let (_, messages) = Head::read(bytes)?;
    messages.map(|message| message.map(|message| format!("{message:?}"))).collect()
}

/// One of each kind.
fn each<'a>(plain: &'a OwnContents, full: &'a OwnContents) -> Vec<Message<'a>> {
    let coordinate = Coordinate { point: [0.5; DIMENSIONS], height: 0.25, error: 1.0 };
    let local_time = Wall::from_micros(1_700_000_000_000_000);
    vec![
        ping(1, 2, 3),
        Message::Ping {
            header: header(1, 4),
            to: id(2),
            local_time,
            wants_coordinate: true,
            wants_alive: true,
        },
        ack(1, Sequence(3)),
        Message::Ack { header: header(1, 3), local_time, introduce: true, coordinate: Some(coordinate) },
        Message::IndirectPing {
            header: header(1, 5),
            to: id(2),
            target: id(3),
            wants_nack: true,
            contents: full.borrow(),
        },
        Message::IndirectAck { header: header(1, 6) },
        Message::IndirectNack { header: header(1, 7) },
        join(plain, 1, 0),
        alive(full, 2, 9),
        suspect(3, 2, 9),
        dead(3, 2, 9),
        dead(2, 2, 9),
        Message::User { header: header(4, 8), id: id(4), data: b"hello" },
        Message::Digest { header: header(1, 0), range: Range::ALL, hashes: Hashes(&[7; 8]) },
        Message::Digest {
            header: header(1, 0),
            range: Range::ALL.child(3).unwrap(),
            hashes: Hashes(&[7; 128]),
        },
        Message::Summary { header: header(1, 0), range: Range::ALL, entries: Summaries(&ENTRY) },
        Message::Want { header: header(1, 0), ids: Ids(&[9; 32]) },
        Message::Other { header: header(1, 0), kind: 200, body: b"from the future" },
        Message::Padding { header: header(1, 0), bytes: 3 },
    ]
}

const ENTRY: [u8; 25] = [1; 25];

fn full() -> OwnContents {
    let addrs = [addr(2), "[2001:db8::7]:7000".parse().unwrap()];
    OwnContents::new(
        &addrs,
        &Tags { name: "node-2".into(), tags: [("dc".into(), "east".into())].into(), ..Tags::default() }
            .encode()
            .unwrap(),
    )
    .unwrap()
}

#[test]
fn s_51_the_bytes_are_those_of_the_vectors() {
    let (plain, full) = (contents(1), full());
    let mut lines = vec![
        "# name | hex | printed form, of the message or of the error. A changed vector is a changed protocol.".to_owned(),
        "# Each is one packet of the ring \"annulus\" from node 1 with one message.".to_owned(),
    ];
    for message in each(&plain, &full) {
        let bytes = packet(1, &[message]);
        assert_eq!(decode(&bytes), Ok(vec![format!("{message:?}")]));
        let name = format!("{message:?}").split(' ').next().unwrap().to_owned();
        lines.push(format!("{name} | {} | {message:?}", crate::outbox::Hex(&bytes)));
    }
    let head = crate::outbox::Hex(&packet(1, &[])).to_string();
    for (name, tail, error) in [
        ("no message", "", DecodeError::Truncated),
        ("an empty message", "00", DecodeError::Truncated),
        ("a length beyond the end", "0503000000", DecodeError::Truncated),
        ("a short length in long form", "80050300000006", DecodeError::Field("length")),
        ("a ping cut short", "050000000003", DecodeError::Truncated),
        ("an ack too long", "06030000000600", DecodeError::Trailing),
        ("a flag that does not exist", "0d01000000030400000000000005", DecodeError::Field("flags")),
        (
            "an address of no kind",
            "1a06000000000100000000000000000000000000000100000000 05".trim(),
            DecodeError::Field("addr"),
        ),
    ] {
        let tail = tail.replace(' ', "");
        assert_eq!(decode(&unhex(&format!("{head}{tail}"))), Err(error), "{name}");
        lines.push(format!("{name} | {head}{tail} | {error:?}"));
    }
    let version = format!("02{}", &head[2..]);
    assert_eq!(decode(&unhex(&version)), Err(DecodeError::Version));
    lines.push(format!("another version | {version} | Version"));
    let text = lines.join("\n") + "\n";
    assert_eq!(include_str!("../../../tests/vectors/swim.txt"), text, "vectors now:\n{text}");
}

#[test]
fn s_54_the_size_is_the_size_in_the_packet() {
    let (plain, full) = (contents(1), full());
    let large = [0; 300];
    let user = Message::User { header: header(1, 1), id: id(1), data: &large };
    for message in each(&plain, &full).into_iter().chain([user]) {
        assert_eq!(packet(1, &[message]).len(), HEAD_BYTES + size(&message), "{message:?}");
        assert_eq!(Coded::new(&message).size(), size(&message));
    }
}

#[test]
fn s_52_s_56_a_coded_message_is_the_message() {
    let coded = Coded::new(&suspect(3, 2, 1));
    assert!(packet(1, &[suspect(3, 2, 1)]).ends_with(coded.bytes()));
}

#[test]
fn s_84_several_messages_travel_in_one_packet_in_order() {
    let bytes = packet(1, &[suspect(3, 2, 1), ping(1, 2, 3), dead(3, 4, 0)]);
    let kinds: Vec<String> =
        decode(&bytes).unwrap().iter().map(|text| text.split(' ').next().unwrap().to_owned()).collect();
    assert_eq!(kinds, ["Suspect", "Ping", "Dead"]);
}

#[test]
fn contents_have_one_form() {
    let mut bytes = Vec::new();
    contents(1).borrow().write(&mut Writer::new(&mut bytes, 99));
    bytes.push(0);
    let mut reader = Reader::new(&bytes);
    assert_eq!(
        Contents::read(&mut reader),
        Err(DecodeError::Field("contents")),
        "nothing more, told at length"
    );
    let too_many = vec![addr(1); ADDRS_MAX + 1];
    assert_eq!(OwnContents::new(&too_many, &[]), None);
    assert_eq!(OwnContents::new(&[addr(1)], &[0; META_BYTES_MAX + 1]), None);
    assert!(OwnContents::new(&[addr(1)], &[0; META_BYTES_MAX]).is_some());
    assert_eq!(OwnContents::new(&[], &[]), None);
}

#[test]
fn s_7_name_and_tags_are_metadata() {
    let services = Services {
        route: Some(22_001),
        mesh: Some(22_000),
        nid: Some("0f".repeat(32)),
        letters: true,
        ..Services::default()
    };
    for services in [Services::default(), services] {
        let tags = [("a".into(), "1".into()), ("b".into(), "2".into())].into();
        let tags = Tags { name: "n".into(), services, tags };
        assert_eq!(Tags::decode(&tags.encode().unwrap()), Ok(tags));
    }
    let later = b"\x01\x01n\x00\x12route=9 dance=high\x01a\x011";
    let later = Tags::decode(later).unwrap();
    assert_eq!(later.services, Services { route: Some(9), ..Services::default() }, "dance is left out");
    assert_eq!(later.tags, [("a".into(), "1".into())].into());
    assert_eq!(Tags::decode(&[]), Ok(Tags::default()));
    assert_eq!(Tags::decode(b"\x01\x00\x01b\x00\x01a\x00"), Err(DecodeError::Field("tags")), "out of order");
    assert_eq!(Tags::decode(b"other"), Err(DecodeError::Version));
    let large = Tags {
        name: "n".repeat(200),
        tags: [("k".into(), "v".repeat(255)), ("l".into(), "v".repeat(99))].into(),
        ..Tags::default()
    };
    assert_eq!(large.encode(), Err(TagsError::TooLarge));
    let rude = Tags { name: "\u{1b}[2Jroot".into(), ..Tags::default() };
    assert_eq!(rude.encode(), Err(TagsError::Control(rude.name)));
}

#[test]
fn s_6_addresses_survive_the_wire() {
    let own = full();
    let seen: Vec<SocketAddr> = own.borrow().addrs().collect();
    assert_eq!(seen, [addr(2), "[2001:db8::7]:7000".parse().unwrap()]);
    assert_eq!(Addr::from(addr(2)).socket(), addr(2));
    assert_eq!(size_of::<Addr>(), 18);
}

proptest! {
    #[test]
    fn decoding_any_bytes_does_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = decode(&bytes);
        let mut framed = packet(1, &[]);
        framed.extend_from_slice(&bytes);
        let _ = decode(&framed);
    }

    #[test]
    fn decoding_returns_what_was_encoded(kind in 0u8..13, body in prop::collection::vec(any::<u8>(), 0..80)) {
        let mut bytes = packet(1, &[]);
        bytes.push(body.len() as u8 + 1);
        bytes.push(kind);
        bytes.extend_from_slice(&body);
        let (_, messages) = Head::read(&bytes).unwrap();
        for message in messages.flatten() {
            prop_assert_eq!(packet(1, &[message]), bytes.clone());
        }
    }
}
