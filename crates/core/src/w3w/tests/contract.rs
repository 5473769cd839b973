//! The promises of every machine, of a node of the mesh.

use core::time::Duration;
use std::net::SocketAddr;

use super::desk::{SECOND, addr, config, frame, here, here_bytes, ip, nid};
use crate::contract::{self, Rig, Subject};
use crate::stream::StreamEvent;
use crate::tag::{ListenerId, SocketId, StreamId};
use crate::w3w::{Command, Config, Mesh, Message, TCP, UDP, here_frame};

struct Meshing;

impl Subject for Meshing {
    type M = Mesh;

    fn machine(&self) -> Mesh {
        // Everything is over within the hour that the contract lets pass.
        let expiry = Duration::from_secs(600);
        let config = Config { seeds: vec![ip(2)], peers_max: 4, peers_min: 2, expiry, ..config() };
        Mesh::new(&config, [7; 32]).unwrap()
    }

    fn live(&self, rig: &mut Rig<Mesh>) {
        rig.start();
        rig.advance(3 * SECOND);
        for (number, first) in [0x10u8, 0x50, 0xc0].into_iter().enumerate() {
            let stream = StreamId::accepted(number as u64 + 1);
            let from = SocketAddr::from((ip(first), 50_000));
            rig.stream(stream, StreamEvent::Accepted { listener: TCP, from, local: from }).unwrap();
            rig.stream(stream, StreamEvent::Data(&here_frame(&here(first)))).unwrap();
            rig.stream(stream, StreamEvent::Sent { bytes: 100, fin: false }).unwrap();
        }
        let own = rig.machine.nid();
        for message in [Message::new(nid(0x77), nid(0x52), b"x"), Message::new(nid(9), own, b"y")] {
            rig.stream(StreamId::accepted(1), StreamEvent::Data(&frame(&message))).unwrap();
        }
        rig.command(Command::Send { to: nid(0xa0), data: b"z".to_vec(), receipt: true });
        rig.stream(StreamId::accepted(2), StreamEvent::Sent { bytes: 100, fin: false }).unwrap();
        rig.advance(SECOND);
    }

    fn datagrams(&self) -> Vec<(SocketId, SocketAddr, Vec<u8>)> {
        let heard = here(0x22);
        vec![(UDP, addr(0x22), here_bytes(&heard))]
    }

    /// A MESSAGE is left out here: it is saved first, and what follows depends on when the store answers.
    fn streams(&self) -> Vec<(ListenerId, Vec<u8>)> {
        vec![(TCP, here_frame(&here(0x33)))]
    }

    fn forget_counters(&self, machine: &mut Mesh) {
        machine.forget_counters();
    }
}

#[test]
fn mesh_keeps_the_contract() {
    contract::check(&Meshing);
}
