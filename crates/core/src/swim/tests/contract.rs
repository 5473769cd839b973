//! The contract of every machine.

use super::*;
use crate::contract::{self, Subject};
use crate::tag::{ListenerId, SocketId};

struct Member1 {
    preset: Preset,
}

impl Subject for Member1 {
    type M = Swim;

    fn machine(&self) -> Swim {
        let config = Config { seeds: vec![addr(9)], ..config(1, self.preset) };
        let mut swim = Swim::new(&config, [7; 32]).unwrap();
        swim.assume(&[node(2), node(3), node(4), node(5)]);
        swim
    }

    fn live(&self, rig: &mut Rig<Swim>) {
        rig.start();
        rig.advance(3 * SECOND);
        let own = contents(6);
        say(rig, 6, &[join(&own, 6, 0)]);
        say(rig, 3, &[suspect(4, 5, 0), suspect(4, 1, 0), dead(3, 2, 0)]);
        say(rig, 3, &[Message::User { header: header(3, 8), id: id(3), data: b"hello" }]);
        let target = OwnContents::new(&[addr(8)], &[]).unwrap();
        let (to, target_id, wants_nack) = (id(1), id(8), true);
        say(
            rig,
            4,
            &[Message::IndirectPing {
                header: header(4, 2),
                to,
                target: target_id,
                wants_nack,
                contents: target.borrow(),
            }],
        );
        rig.command(Command::Broadcast { data: b"news".to_vec(), wait: true });
        rig.command(Command::Update { timeout: Some(SECOND) });
        rig.command(Command::SetMeta { meta: b"me".to_vec() });
        rig.advance(Duration::from_millis(700));
    }

    fn datagrams(&self) -> Vec<(SocketId, SocketAddr, Vec<u8>)> {
        let own = contents(7);
        let full = OwnContents::new(&[addr(3), addr(13)], b"meta").unwrap();
        let all = [
            vec![ping(3, 1, 9)],
            vec![ack(3, Sequence(9)), suspect(3, 4, 0)],
            vec![join(&own, 7, 0)],
            vec![alive(&full, 3, 1), dead(3, 4, 0)],
            vec![Message::Digest { header: header(3, 0), range: Range::ALL, hashes: Hashes(&[7; 8]) }],
            vec![Message::Summary { header: header(3, 0), range: Range::ALL, entries: Summaries(&[]) }],
            vec![Message::User { header: header(3, 1), id: id(3), data: b"x" }],
        ];
        all.iter().map(|messages| (UDP, addr(3), packet(3, messages))).collect()
    }

    fn streams(&self) -> Vec<(ListenerId, Vec<u8>)> {
        Vec::new()
    }

    fn forget_counters(&self, machine: &mut Swim) {
        machine.forget_counters();
    }
}

#[test]
fn swim_keeps_the_contract() {
    contract::check(&Member1 { preset: Preset::Lan });
    contract::check(&Member1 { preset: Preset::GoSwim });
}
