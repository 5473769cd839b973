//! One datagram to a node that has pings under way: decoding, and the reaction of the machine.

use core::time::Duration;
use std::net::SocketAddr;

use annulus_core::contract::Rig;
use annulus_core::ping::{self, Config, Message, Ping};
use annulus_core::wire::Writer;

use crate::world::peer;

/// With this bit in the first byte, the sequence is counted from that of the first ping under way.
const RELATIVE: u8 = 0x80;

pub(super) fn run(bytes: &[u8]) {
    let Some((&choice, bytes)) = bytes.split_first() else { return };
    thread_local! {
        static PINGING: (Rig<Ping>, u64) = pinging();
    }
    let (mut rig, first) = PINGING.with(Clone::clone);
    let mut datagram = bytes.to_vec();
    if let (true, Some(field)) = (choice & RELATIVE != 0, datagram.get_mut(2..10)) {
        let sequence = u64::from_be_bytes(field.try_into().expect("it has eight bytes")).wrapping_add(first);
        field.copy_from_slice(&sequence.to_be_bytes());
    }
    let decoded = ping::decode(&datagram);
    if let Ok(message) = decoded {
        assert_eq!(encoded(message), datagram, "what is decoded encodes to the same bytes");
    }
    let before = rig.clone();
    match rig.datagram(ping::UDP, peer(choice), &datagram) {
        Ok(()) => check_taken(&rig.log, decoded.expect("only a message is taken"), peer(choice)),
        Err(_) => {
            assert!(rig.log.is_empty(), "refused, yet it did {:?}", rig.log);
            assert_eq!(rig.counted(), before.counted() + 1, "a refusal is counted once");
            let mut machines = [rig.machine, before.machine];
            machines.iter_mut().for_each(Ping::forget_counters);
            assert_eq!(machines[0], machines[1], "refused, yet something changed besides counters");
        }
    }
}

/// A node with pings under way to two peers, and the number of the first of them.
fn pinging() -> (Rig<Ping>, u64) {
    let config = Config { peers: vec![peer(0), peer(1)], stream_every: 0, ..Config::default() };
    let mut rig = Rig::new(Ping::new(&config, [7; 32]).expect("these settings go together"));
    rig.start();
    while rig.machine.counted().pings_sent == 0 {
        rig.advance(Duration::from_millis(10));
    }
    let log = rig.take_log();
    let hex = log.iter().find_map(|line| line.split(" 0100").nth(1)).expect("a ping was sent");
    (rig, u64::from_str_radix(hex, 16).expect("a sequence is hexadecimal"))
}

fn check_taken(log: &[String], message: Message, from: SocketAddr) {
    match message {
        Message::Ping { sequence } => {
            assert_eq!(log, [format!("Send 0:0 to {from} 0101{sequence:016x}")]);
        }
        Message::Pong { sequence } => {
            let answered = format!("Event PingAnswered {{ peer: {from}, sequence: {sequence},");
            assert!(log.first().is_some_and(|line| line.starts_with(&answered)), "{log:?}");
        }
    }
}

fn encoded(message: Message) -> Vec<u8> {
    let mut bytes = Vec::new();
    ping::encode(message, &mut Writer::new(&mut bytes, ping::MESSAGE_BYTES));
    bytes
}
