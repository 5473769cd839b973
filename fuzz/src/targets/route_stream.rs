//! The bytes of a peer on one connection of `route`: chunking does not change their meaning, and refused bytes change
//! nothing.

use annulus_core::contract::Rig;
use annulus_core::pastry::{Message, Pastry, RingTag, TCP};
use annulus_core::{StreamEvent, StreamId};

use super::route_life::{config, contact, frame};
use crate::world::{check_refused, peer};

/// With this bit in the first byte the peer begins with a hello that is right.
const GREETS: u8 = 0x80;
const STREAM: StreamId = StreamId::accepted(1);

pub(super) fn run(bytes: &[u8]) {
    let Some((&choice, said)) = bytes.split_first() else { return };
    let hello = Message::Hello { ring: RingTag::new("annulus"), from: contact(0) };
    let greeting = if choice & GREETS != 0 { frame(&hello) } else { Vec::new() };
    let said = [&greeting[..], said].concat();
    let chunks: Vec<&[u8]> = said.chunks(usize::from(choice & !GREETS) * 4 + 1).collect();
    let mut rig = listening();
    for (index, chunk) in chunks.iter().enumerate() {
        let before = rig.machine.counted();
        if rig.stream(STREAM, StreamEvent::Data(chunk)).is_err() {
            let after = rig.machine.counted();
            assert!(
                after.malformed + after.refused > before.malformed + before.refused,
                "a refusal is counted"
            );
            assert!(rig.log.iter().any(|line| *line == format!("Abort {STREAM}")), "{:?}", rig.log);
            return check_refused(rig, listening(), STREAM, &chunks[..index], Pastry::forget_counters);
        }
    }
    assert!(rig.machine.leaf_set().members().count() <= 1, "only a node that has answered gets an entry");
}

fn listening() -> Rig<Pastry> {
    let machine = Pastry::new(config(0), [7; 32]).expect("these settings go together");
    let mut rig = Rig::new(machine);
    rig.start();
    rig.take_log();
    let event = StreamEvent::Accepted { listener: TCP, from: peer(0), local: peer(1) };
    rig.stream(STREAM, event).expect("a stream itself is no offence");
    rig
}
