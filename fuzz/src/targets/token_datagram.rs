//! One datagram to a node of the token ring, in each of its states, and every message that can be decoded.

use core::time::Duration;

use annulus_core::contract::Rig;
use annulus_core::jitterbug::{self, Jitterbug, Ledger, Message};
use annulus_core::wire::Writer;

use super::token_life::{PORT, config};
use crate::world::peer;

pub(super) fn run(bytes: &[u8]) {
    let Some((&choice, bytes)) = bytes.split_first() else { return };
    if let Ok(message) = jitterbug::decode(bytes) {
        let whole = encoded(&message);
        // JA-50: bytes behind a TR1 or a TR2 are ignored.
        let behind = matches!(message, Message::Tr1 { .. } | Message::Tr2 { .. });
        assert_eq!(whole, bytes[..whole.len()], "what is decoded encodes to the same bytes");
        assert!(behind || whole.len() == bytes.len(), "nothing of a message is ignored");
    }
    let decoded = jitterbug::decode_datagram(bytes);
    if let Ok(message) = &decoded {
        let whole = encoded(message);
        assert_eq!(whole, bytes[..whole.len()], "only what is behind a message is ignored");
        assert!(matches!(message, Message::Tr1 { .. } | Message::Tr2 { .. }));
    }
    thread_local! {
        static STATES: [Rig<Jitterbug<Ledger>>; 3] = states();
    }
    let mut rig = STATES.with(|states| states[usize::from(choice) % 3].clone());
    let before = rig.clone();
    if rig.datagram(jitterbug::UDP, peer(choice), bytes).is_err() {
        assert!(rig.log.is_empty(), "refused, yet it did {:?}", rig.log);
        assert_eq!(rig.counted(), before.counted() + 1, "a refusal is counted once");
        let mut machines = [rig.machine, before.machine];
        machines.iter_mut().for_each(Jitterbug::forget_counters);
        assert_eq!(machines[0], machines[1], "refused, yet something changed besides counters");
        return;
    }
    decoded.expect("only a message is taken");
    let answers: Vec<&String> = rig.log.iter().filter(|line| line.starts_with("Send")).collect();
    assert!(answers.len() <= 1, "one answer to one datagram: {answers:?}");
    let to = format!("to {}:{PORT} 11", peer(choice).ip());
    assert!(answers.iter().all(|line| line.contains(&to)), "to the ring's port at the asker: {answers:?}");
}

/// An orphan, a waiter and a leader.
fn states() -> [Rig<Jitterbug<Ledger>>; 3] {
    let machine = Jitterbug::new(&config(0), Ledger::new(), [7; 32]).expect("these settings go together");
    let mut orphan = Rig::new(machine);
    orphan.start();
    let mut waiter = orphan.clone();
    waiter.datagram(jitterbug::UDP, peer(0), &[0x11, 0, 0, 0, 5]).expect("an orphan hears answers");
    let mut leader = orphan.clone();
    leader.advance(Duration::from_secs(2));
    let mut states = [orphan, waiter, leader];
    states.iter_mut().for_each(|rig| drop(rig.take_log()));
    let names: Vec<_> = states.iter().map(|rig| format!("{:?}", rig.machine.state_name())).collect();
    assert_eq!(names, ["Orphan", "Waiter", "Leader"]);
    states
}

fn encoded(message: &Message) -> Vec<u8> {
    let mut bytes = Vec::new();
    jitterbug::encode(message, &mut Writer::new(&mut bytes, 1 << 22));
    bytes
}
