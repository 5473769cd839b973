//! The contract of every machine.

use std::net::SocketAddr;

use super::super::*;
use super::world::addr;
use crate::contract::{self, Rig, Subject};
use crate::tag::{ListenerId, SocketId};
use crate::wire::Writer;

pub(super) fn bytes(message: &Message) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode(message, &mut Writer::new(&mut bytes, MESSAGE_BYTES_MAX));
    bytes
}

struct One {
    /// One voter is a group of its own; one of three waits for the others.
    voters: usize,
}

impl One {
    fn ask(&self, rig: &Rig<Turns>, number: u64, session: u64, renew: bool) -> Message {
        let group = rig.machine.group().unwrap_or_default();
        let ask = Ask {
            key: Key::of("a"),
            number,
            holder: Id::new(9),
            session,
            length_ms: 2000,
            waited_ms: 5,
            renew,
            queue: true,
        };
        Message { group, epoch: 1, nonce: 5, body: Body::Ask(ask) }
    }

    fn lived(&self) -> Rig<Turns> {
        let mut rig = Rig::new(self.machine());
        self.live(&mut rig);
        rig
    }
}

impl Subject for One {
    type M = Turns;

    fn machine(&self) -> Turns {
        let voters = (0..self.voters).map(addr).collect();
        let config = Config { id: Id::new(1), bind: addr(0), own: addr(0), voters, ..Config::default() };
        Turns::new(&config, [7; 32]).unwrap()
    }

    fn live(&self, rig: &mut Rig<Turns>) {
        rig.start();
        rig.advance(Duration::from_secs(3));
        let lock = |name: &str, turn| Lock {
            name: name.to_owned(),
            turn: TurnId(turn),
            wait: Duration::from_secs(20),
            limit: Duration::from_secs(60),
            attended: true,
        };
        rig.command(Command::Lock(lock("a", 1)));
        rig.command(Command::Lock(lock("b", 2)));
        let number = rig.now.wall.as_micros() + 100;
        let _ = rig.datagram(UDP, addr(4), &bytes(&self.ask(rig, number, 77, false)));
        let _ = rig.datagram(UDP, addr(5), &bytes(&self.ask(rig, number + 1, 78, false)));
        rig.advance(Duration::from_millis(20));
    }

    fn datagrams(&self) -> Vec<(SocketId, SocketAddr, Vec<u8>)> {
        let rig = self.lived();
        let group = rig.machine.group().unwrap_or_default();
        let number = rig.now.wall.as_micros() + 200;
        let record = Record {
            group: Group([3; 16]),
            epoch: 1,
            founded: true,
            lease: Duration::from_secs(10),
            floor: 7,
            voters: (0..3)
                .map(|node| VoterEntry { id: Id::new(node as u128 + 1), addr: addr(node) })
                .collect(),
        };
        let state = State {
            id: Id::new(2),
            start: 4,
            standing: Standing::Voting,
            bound: 9,
            floor: 8,
            record: Some(record.clone()),
            lease: Some(LeaseSeen { holder: Some(Id::new(3)), number: 5, left_ms: 6, waiting: 7 }),
        };
        let ended = Ended { key: Key::of("a"), number, session: 77 };
        let answer = Answer { verdict: Verdict::Granted, top: 1, floor: 2 };
        let unfounded = Box::new(Record { founded: false, ..record });
        let bodies = [
            self.ask(&rig, number, 77, true).body,
            Body::Answer(answer),
            Body::Release(ended),
            Body::Released(ended),
            Body::Free { key: Key::of("b"), top: 6 },
            Body::Accepted { bound: 4 },
            Body::Read { key: Some(Key::of("a")) },
            Body::State(Box::new(state)),
            // The last: the effects of a write depend on when the disk answers.
            Body::Offer { record: unfounded, replaces: None },
        ];
        let message = |body| bytes(&Message { group, epoch: 1, nonce: 5, body });
        bodies.into_iter().map(|body| (UDP, addr(1), message(body))).collect()
    }

    fn streams(&self) -> Vec<(ListenerId, Vec<u8>)> {
        Vec::new()
    }

    fn forget_counters(&self, machine: &mut Turns) {
        machine.forget_counters();
    }
}

#[test]
fn turns_keep_the_contract() {
    contract::check(&One { voters: 1 });
    contract::check(&One { voters: 3 });
}
