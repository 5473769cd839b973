//! What a peer says on one connection of `route`: however it is cut, it means the same, and what is refused changes
//! nothing.

use annulus_core::contract::Rig;
use annulus_core::pastry::{Message, Pastry, RingTag, TCP};
use annulus_core::{CloseReason, StreamEvent, StreamId};

use super::route_life::{config, contact, frame};
use crate::world::peer;

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
            return check_refused(rig.machine, &chunks[..index]);
        }
    }
    assert!(rig.machine.leaf_set().members().count() <= 1, "nobody gets a seat who has not answered");
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

/// The machine is as if the peer had reset the connection after `taken`.
fn check_refused(mut refused: Pastry, taken: &[&[u8]]) {
    let mut reset = listening();
    for chunk in taken {
        reset.stream(STREAM, StreamEvent::Data(chunk)).expect("it was taken the first time");
    }
    reset.stream(STREAM, StreamEvent::Closed(CloseReason::Reset)).expect("a reset is no offence");
    refused.forget_counters();
    reset.machine.forget_counters();
    assert_eq!(refused, reset.machine, "refused, yet something changed besides counters");
}
