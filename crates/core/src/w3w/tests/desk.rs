//! One node at a desk; the test plays its peers.

use core::time::Duration;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};

use crate::contract::Rig;
use crate::machine::Refusal;
use crate::stream::{CloseReason, StreamEvent};
use crate::tag::StreamId;
use crate::w3w::{
    Command, Config, Described, Here, Mesh, Message, Nid, TCP, UDP, describe, encode_here, encode_message,
    here_frame,
};
use crate::wire::Writer;

pub(super) const SECOND: Duration = Duration::from_secs(1);

pub(super) struct Desk {
    pub(super) rig: Rig<Mesh>,
    accepted: u64,
}

/// The NID that begins with this byte; the rest is zero.
pub(super) fn nid(first: u8) -> Nid {
    let mut bytes = [0; 32];
    bytes[0] = first;
    Nid::from_bytes(bytes)
}

/// The IP address of the node with this first byte.
pub(super) fn ip(first: u8) -> Ipv4Addr {
    Ipv4Addr::new(127, 0, 7, first)
}

pub(super) fn here(first: u8) -> Here {
    Here { nid: nid(first), at: SocketAddrV4::new(ip(first), 22_000) }
}

pub(super) fn here_bytes(here: &Here) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode_here(here, &mut Writer::new(&mut bytes, 100));
    bytes
}

pub(super) fn frame(message: &Message) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode_message(message, &mut Writer::new(&mut bytes, 1 << 25));
    bytes
}

pub(super) fn addr(first: u8) -> SocketAddr {
    SocketAddr::from((ip(first), 22_000))
}

pub(super) fn config() -> Config {
    // Its NID begins with 94c1.
    let bind = SocketAddrV4::new(Ipv4Addr::new(127, 0, 0, 1), 22_000);
    Config { bind, expiry: 3600 * SECOND, ..Config::default() }
}

impl Desk {
    pub(super) fn new(config: &Config) -> Self {
        let mut rig = Rig::new(Mesh::new(config, [7; 32]).unwrap());
        rig.start();
        Self { rig, accepted: 0 }
    }

    /// A desk whose ring may have this many peers.
    pub(super) fn with_max(peers_max: usize) -> Self {
        Self::new(&Config { peers_max, peers_min: 1, ..config() })
    }

    pub(super) fn own(&self) -> Nid {
        self.rig.machine.nid()
    }

    /// Brings a HERE by datagram, from the node it is about.
    pub(super) fn hear(&mut self, here: &Here) -> Result<(), Refusal> {
        self.rig.datagram(UDP, SocketAddr::from((*here.at.ip(), 22_000)), &here_bytes(here))
    }

    /// A caller connects.
    pub(super) fn accept(&mut self, from: Ipv4Addr) -> StreamId {
        self.accepted += 1;
        let stream = StreamId::accepted(self.accepted);
        let (from, local) = (SocketAddr::from((from, 50_000)), SocketAddr::from(([127, 0, 0, 1], 22_000)));
        self.rig.stream(stream, StreamEvent::Accepted { listener: TCP, from, local }).unwrap();
        stream
    }

    /// A caller connects and sends its HERE.
    pub(super) fn call(&mut self, first: u8) -> StreamId {
        let stream = self.accept(ip(first));
        self.rig.stream(stream, StreamEvent::Data(&here_frame(&here(first)))).unwrap();
        self.take_all(stream);
        stream
    }

    /// A HERE arrives, the node is dialled, and answers.
    pub(super) fn dial(&mut self, first: u8) -> StreamId {
        self.hear(&here(first)).unwrap();
        let stream = self.dialled().expect("it dials");
        self.answer(stream, first);
        stream
    }

    pub(super) fn answer(&mut self, stream: StreamId, first: u8) {
        self.rig.stream(stream, StreamEvent::Connected { local: addr(1) }).unwrap();
        self.rig.stream(stream, StreamEvent::Data(&here_frame(&here(first)))).unwrap();
        self.take_all(stream);
    }

    pub(super) fn close(&mut self, stream: StreamId) {
        self.rig.stream(stream, StreamEvent::Closed(CloseReason::Reset)).unwrap();
    }

    /// The stream it opened last.
    pub(super) fn dialled(&self) -> Option<StreamId> {
        let line = self.rig.log.iter().rev().find(|line| line.starts_with("Open "))?;
        let number = line.split([' ', ':']).nth(2)?.parse::<u64>().ok()?;
        Some(StreamId::opened(number >> 1))
    }

    /// The kernel takes everything that was written so far.
    pub(super) fn take_all(&mut self, stream: StreamId) {
        let bytes = self.written(stream).len();
        let already: usize = 0;
        if bytes > already {
            let _ = self.rig.stream(stream, StreamEvent::Sent { bytes: 1 << 30, fin: false });
            let _ = self.rig.stream(stream, StreamEvent::Confirmed { bytes: 1 << 30 });
        }
    }

    pub(super) fn message(&mut self, stream: StreamId, message: &Message) {
        self.rig.stream(stream, StreamEvent::Data(&frame(message))).unwrap();
    }

    pub(super) fn send(&mut self, to: Nid, data: &[u8]) {
        self.rig.command(Command::Send { to, data: data.to_vec(), receipt: false });
    }

    /// All bytes written to a stream, as far as the log goes back.
    pub(super) fn written(&self, stream: StreamId) -> Vec<u8> {
        let start = format!("Write {stream} ");
        let hex: String = self.rig.log.iter().filter_map(|line| line.strip_prefix(&start)).collect();
        bytes_of(&hex)
    }

    /// The MESSAGEs written to a stream.
    pub(super) fn messages(&self, stream: StreamId) -> Vec<(Nid, Nid, String)> {
        let written = self.written(stream);
        let described = if written.is_empty() { Vec::new() } else { describe(&written).unwrap() };
        let message = |described| match described {
            Described::Message { sender, recipient, data_hex, .. } => {
                let data = String::from_utf8_lossy(&bytes_of(&data_hex)).into_owned();
                Some((sender, recipient, data))
            }
            Described::Here { .. } => None,
        };
        described.into_iter().filter_map(message).collect()
    }

    /// The HEREs sent by datagram: subject and receiver.
    pub(super) fn told(&self) -> Vec<(Nid, String)> {
        let told = |line: &String| {
            let mut words = line.strip_prefix("Send 0:0 to ")?.split(' ');
            let to = words.next()?.to_owned();
            let bytes = bytes_of(words.next()?);
            Some((crate::w3w::decode_here(&bytes).unwrap().nid, to))
        };
        self.rig.log.iter().filter_map(told).collect()
    }

    pub(super) fn has(&self, part: &str) -> bool {
        self.rig.log.iter().any(|line| line.contains(part))
    }

    pub(super) fn peers(&self) -> Vec<u8> {
        self.rig.machine.peers().iter().map(|peer| peer.nid.to_bytes()[0]).collect()
    }

    pub(super) fn restart(mut self, config: &Config) -> Self {
        let mut again = Self::new_with(config, core::mem::take(&mut self.rig.disk));
        again.accepted = self.accepted;
        again
    }

    pub(super) fn new_with(
        config: &Config,
        disk: std::collections::BTreeMap<(crate::tag::SpaceId, Vec<u8>), Vec<u8>>,
    ) -> Self {
        let mut rig = Rig::new(Mesh::new(config, [9; 32]).unwrap());
        rig.disk = disk;
        rig.start();
        Self { rig, accepted: 0 }
    }
}

pub(super) fn bytes_of(hex: &str) -> Vec<u8> {
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
}
