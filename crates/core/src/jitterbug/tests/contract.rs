//! The contract of every machine.

use super::*;
use crate::contract::{self, Subject};
use crate::tag::{ListenerId, SocketId};

struct Token {
    leads: bool,
}

impl Subject for Token {
    type M = Jitterbug<Ledger>;

    fn machine(&self) -> Jitterbug<Ledger> {
        node(&Config { tr1_per_second_max: 1000, ..config() })
    }

    fn live(&self, rig: &mut Rig<Jitterbug<Ledger>>) {
        rig.start();
        hear(rig, 3, &tr1(3, 5)).unwrap();
        let change = Set { key: "door".into(), value: "open".into() };
        rig.command(Command::Change { change, wait: 30 * SECOND });
        rig.advance(1300 * MILLI);
        give(rig, 1, 2, 77, &[entry(2), entry(1)], &counts(&[(12, 4)]));
        rig.advance(100 * MILLI);
        rig.stream(StreamId::opened(1), StreamEvent::Data(&[0x31])).unwrap();
        rig.stream(StreamId::opened(1), StreamEvent::Sent { bytes: 10, fin: false }).unwrap();
        if !self.leads {
            rig.stream(StreamId::opened(1), StreamEvent::Sent { bytes: 500, fin: true }).unwrap();
        }
        rig.command(Command::Hold { limit: SECOND });
        rig.advance(10 * MILLI);
    }

    fn datagrams(&self) -> Vec<(SocketId, SocketAddr, Vec<u8>)> {
        let tr2 = Message::Tr2 { token_id: id(9).free() };
        vec![(UDP, udp(4), bytes(&tr1(4, 9))), (UDP, udp(4), bytes(&tr2))]
    }

    fn streams(&self) -> Vec<(ListenerId, Vec<u8>)> {
        let token_id = TokenId::MAX.held();
        let list = Message::Tp4 {
            nodes: vec![entry(9), NodeEntry::new(host(77), "2001:db8::1".parse().unwrap(), 9)],
        };
        let pass = [
            bytes(&Message::Tp1 { token_id, node_list_hash: 99 }),
            bytes(&list),
            bytes(&Message::Tp5 { data: counts(&[(19, 3)]) }),
        ];
        vec![(TCP, pass.concat())]
    }

    fn forget_counters(&self, machine: &mut Jitterbug<Ledger>) {
        machine.forget_counters();
    }
}

#[test]
fn the_token_ring_keeps_the_contract() {
    contract::check(&Token { leads: true });
    contract::check(&Token { leads: false });
}
