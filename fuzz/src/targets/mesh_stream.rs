//! The bytes of a caller on one connection of the mesh, in chunks as the first byte chooses.

use annulus_core::w3w::{Body, Mesh, TCP, decode_body, here_frame, read_form, write_form};
use annulus_core::{StreamEvent, StreamId};

use super::mesh_life::{Started, caller, mesh, started};
use crate::world::{check_refused, peer};

/// With this bit in the first byte the caller begins with a HERE that is right.
const GREETS: u8 = 0x80;
const STREAM: StreamId = StreamId::accepted(1);

pub(super) fn run(bytes: &[u8]) {
    let Some((&choice, said)) = bytes.split_first() else { return };
    if let Ok(Body::Message(message)) = decode_body(said) {
        assert_eq!(message.body(), said, "a message is kept as it came");
        assert_eq!(read_form(&write_form(&read_form(message.data()))), read_form(message.data()));
    }
    let greeting = if choice & GREETS != 0 { here_frame(&caller(0)) } else { Vec::new() };
    let said = [&greeting[..], said].concat();
    let chunks: Vec<&[u8]> = said.chunks(usize::from(choice & !GREETS) * 4 + 1).collect();
    let mut rig = listening();
    for (index, chunk) in chunks.iter().enumerate() {
        let before = rig.counted();
        if rig.stream(STREAM, StreamEvent::Data(chunk)).is_err() {
            assert!(rig.counted() > before, "a refusal is counted");
            assert!(rig.log.iter().any(|line| *line == format!("Abort {STREAM}")), "{:?}", rig.log);
            return check_refused(rig, listening(), STREAM, &chunks[..index], Mesh::forget_counters);
        }
        if rig.log.iter().any(|line| *line == format!("Abort {STREAM}")) {
            return;
        }
    }
    assert!(rig.machine.peers().len() <= 1, "one caller is one peer");
}

fn listening() -> Started {
    let mut rig = started(mesh(7));
    rig.take_log();
    let event = StreamEvent::Accepted { listener: TCP, from: peer(0), local: peer(1) };
    rig.stream(STREAM, event).expect("a stream itself is no offence");
    rig
}
