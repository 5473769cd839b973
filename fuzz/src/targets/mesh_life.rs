//! The life of one node of the mesh: see `world` for the checks.

use core::time::Duration;
use std::net::{Ipv4Addr, SocketAddrV4};

use annulus_core::contract::Rig;
use annulus_core::w3w::{
    Body, Command, Config, Event, Forward, HEADER_BYTES, Here, Key, LENGTH_BYTES, Manifest, Mesh, Message,
    Nid, TCP, decode_body, decode_here, encode_here, encode_message, here_frame,
};
use annulus_core::wire::{DecodeError, Reader, Writer};
use annulus_core::{StreamEvent, StreamId};

use crate::world::{self, Subject, peer};

/// Small limits, so that a short input reaches them.
const PEERS_MAX: usize = 4;
const QUEUE_MAX: usize = 8;

/// Longer than the end of any connection.
const SETTLED: Duration = Duration::from_secs(11);

pub(super) type Started = Rig<Mesh>;

pub(super) fn run(bytes: &[u8]) {
    world::live(Life, bytes);
}

fn config(choice: u8) -> Config {
    Config {
        uuid: [7; 16],
        bind: SocketAddrV4::new(Ipv4Addr::LOCALHOST, 22_000),
        seeds: (0..choice & 3).map(|number| Ipv4Addr::new(127, 0, 0, 2 + number)).collect(),
        peers_max: PEERS_MAX,
        peers_min: 2,
        forward: if choice & 4 == 0 { Forward::Nearest } else { Forward::Both },
        expiry: Duration::from_secs(if choice & 8 == 0 { 3600 } else { 20 }),
        quota_bytes: if choice & 16 == 0 { 1 << 20 } else { 300 },
        blocks_max: 16,
        keep: Duration::from_secs(60),
        data_bytes_max: 1024,
        queue_max: QUEUE_MAX,
        queue_bytes_max: 4096,
        memory_bytes_max: if choice & 32 == 0 { 1 << 20 } else { 200 },
        unsent_bytes_max: 256,
        seen_max: 8,
        boxes_max: 4,
        known_max: 4,
        dials_max: 2,
        streams_max: 3,
        ..Config::default()
    }
}

pub(super) fn mesh(choice: u8) -> Mesh {
    Mesh::new(&config(choice), [choice; 32]).expect("these settings go together")
}

/// The node at the address of a peer.
pub(super) fn caller(number: u8) -> Here {
    let std::net::IpAddr::V4(ip) = peer(number).ip() else { unreachable!("peers have IPv4 addresses") };
    Here { nid: nid(number), at: SocketAddrV4::new(ip, 22_000) }
}

fn nid(number: u8) -> Nid {
    Nid::from_bytes([number % 4 * 64 + 9; 32])
}

pub(super) fn started(mesh: Mesh) -> Started {
    let mut rig = Rig::new(mesh);
    rig.start();
    rig
}

/// A node with one peer.
pub(super) fn connected(mesh: Mesh) -> Started {
    let mut rig = started(mesh);
    let stream = StreamId::accepted(1);
    let accepted = StreamEvent::Accepted { listener: TCP, from: peer(0), local: peer(1) };
    rig.stream(stream, accepted).expect("a stream itself is no offence");
    rig.stream(stream, StreamEvent::Data(&here_frame(&caller(0)))).expect("that is its HERE");
    assert_eq!(rig.machine.peers().len(), 1);
    rig.take_log();
    rig
}

fn manifest(choice: u8) -> Manifest {
    let block = [choice; 100];
    let blocks = vec![Key::of(&block), Key::of(&block[..50])];
    Manifest { name: "f".to_owned(), size: 150, block_bytes: 100, blocks }
}

fn new_command(input: &mut Reader<'_>) -> Result<Command, DecodeError> {
    let (kind, choice) = (input.u8()?, input.u8()?);
    let (to, file) = (nid(choice), manifest(choice & 3).file());
    let data = vec![choice; usize::from(choice) * 5];
    let number = u64::from(choice & 7);
    Ok(match kind % 14 {
        0 | 1 => Command::Send { to, data, receipt: kind & 64 != 0 },
        2 => Command::Get { key: Key::of(&data) },
        3 => Command::Inbox { from: number },
        4 => Command::Outbox { from: number },
        5 => Command::Remove { number },
        6 => Command::Peers,
        7 => Command::AddKnown { ip: *caller(choice).at.ip() },
        8 => Command::Collect,
        9 => Command::Status,
        10 => Command::OfferFile { to, manifest: manifest(choice & 3) },
        11 => {
            let bytes = vec![choice & 3; if kind & 64 == 0 { 100 } else { 50 }];
            Command::Supply { to, file, index: u32::from(kind & 64 != 0), bytes }
        }
        12 => Command::DropFile { file },
        _ => Command::ReadBlock { file, index: u32::from(choice >> 7) },
    })
}

/// A frame of a message.
fn framed(message: &Message) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode_message(message, &mut Writer::new(&mut bytes, LENGTH_BYTES + HEADER_BYTES + 4096));
    bytes
}

struct Life;

impl Subject for Life {
    type M = Mesh;
    const SETTLED: Duration = SETTLED;

    fn machine(&mut self, input: &mut Reader<'_>) -> Result<Mesh, DecodeError> {
        Ok(mesh(input.u8()?))
    }

    fn command(&mut self, input: &mut Reader<'_>) -> Result<Command, DecodeError> {
        new_command(input)
    }

    /// Answers a HERE by datagram with the HERE of a peer, so that it is dialled, and a HERE on a connection with
    /// that peer's. Answers a message with the same bytes.
    fn answer(&self, bytes: &[u8]) -> Option<Vec<u8>> {
        if decode_here(bytes).is_ok() {
            let mut here = Vec::new();
            encode_here(&caller(1), &mut Writer::new(&mut here, 128));
            return Some(here);
        }
        let length = u32::from_be_bytes(*bytes.first_chunk()?) as usize;
        let rest = &bytes[LENGTH_BYTES..];
        match decode_body(rest.get(..length)?).ok()? {
            Body::Here(_) if rest.len() > length => self.answer(&rest[length..]),
            Body::Here(_) => Some(here_frame(&caller(1))),
            Body::Message(message) => {
                Some(framed(&Message::new(message.recipient(), message.sender(), message.data())))
            }
        }
    }

    fn on_event(&mut self, event: &Event) {
        if let Event::MessageForwarded { to, from, .. } = event {
            assert!(
                from.is_none_or(|from| !to.contains(&from)),
                "never back to where it came from: {event:?}"
            );
        }
    }

    fn check(&self, machine: &Mesh) {
        assert!(machine.peers().len() <= PEERS_MAX + 1, "more peers than allowed");
        assert!(machine.peers().is_sorted_by_key(|peer| peer.nid), "the ring is ascending");
        assert!(machine.waiting() <= QUEUE_MAX, "more waits than allowed");
    }

    fn forget_counters(&self, machine: &mut Mesh) {
        machine.forget_counters();
    }
}
