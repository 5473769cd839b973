//! The machine of `members`, without a driver.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use annulus_core::swim::{
    self, Config, Coordinate, Head, Header, Message, Node, Preset, Sequence, Swim, Tags,
};
use annulus_core::wire::Writer;
use annulus_core::{Action, Bound, Id, Instant, Machine, Now, OpId, Queue, StoreReply, StoreResult, Wall};
use annulus_sim::Config as World;
use annulus_sim::scenarios::members::{Experiment, Measure, Places};

/// The node that is measured is number 0.
const OWN: u32 = 0;

pub(super) fn id(number: u32) -> Id {
    let mut uuid = [0x5a; 16];
    uuid[..4].copy_from_slice(&number.to_be_bytes());
    Id::from_uuid(uuid)
}

pub(super) fn addr(number: u32) -> SocketAddr {
    let [a, b, c, d] = (0x0a00_0001 + number).to_be_bytes();
    SocketAddr::from(([a, b, c, d], 7946))
}

/// The metadata of an agent: its name and a tag.
pub(super) fn agent_meta() -> Vec<u8> {
    let tags = BTreeMap::from([("role".to_owned(), "web".to_owned())]);
    Tags { name: "node-1234".into(), tags, ..Tags::default() }.encode().expect("two short texts fit")
}

/// Answers pings of members in turn.
pub(super) fn answer(members: u32, pings: u32) {
    let mut node = Measured::new(members, &[]);
    // All that is sent is made before, and in both runs: callgrind sees the difference of the two.
    let packets: Vec<_> = (0..6_000).map(|n| node.ping_from(sender(n, members), n)).collect();
    let mut answered = 0;
    for (from, bytes) in packets.iter().take(pings as usize) {
        let outcome = node.swim.handle_datagram(node.now, swim::UDP, *from, bytes, &mut node.queue.outbox());
        assert!(outcome.is_ok(), "a member pings");
        while let Some(action) = node.queue.next() {
            answered += u32::from(matches!(action, Action::Send { .. }));
        }
    }
    assert_eq!(answered, pings, "every ping is answered");
}

/// Which member sends this ping: all over the table, the same in every run.
pub(super) fn sender(n: u32, members: u32) -> u32 {
    1 + (n.wrapping_mul(2_654_435_761) >> 7) % (members - 1)
}

/// Lets a node probe all of its members and get the answers; returns `held` then.
pub(super) fn lived(members: u32, meta: &[u8], held: impl Fn() -> usize) -> usize {
    let before = held();
    let mut node = Measured::new(members, meta);
    for _ in 0..4 * members {
        node.live();
    }
    let unheard = node.swim.members().iter().filter(|(_, member)| member.rtt().is_none()).count();
    assert_eq!(unheard, 1, "every member but the node itself was probed and answered");
    let now = held();
    drop(node);
    now - before
}

/// Bytes per node and second of a quiet cluster in the simulator.
pub(super) fn bytes_rate(nodes: u32, seconds: u64, extras: bool) -> anyhow::Result<f64> {
    let preset = if extras { Preset::Lan } else { Preset::OriginalSwim };
    let measure = Measure {
        experiment: Experiment::Crash,
        nodes,
        crash: 0,
        seconds,
        preset,
        settings: preset.settings(),
        suspicion_mult: None,
        aligned: false,
        stalling: 0,
        stall_millis: (0, 0),
        run_millis: (0, 0),
        flood: false,
        places: Places::Random,
        far_loss: 0.0,
        cut_seconds: 600,
        config: World::default(),
    };
    let measured =
        measure.run(1, annulus_sim::Lines::default()).map_err(|violation| anyhow::anyhow!(violation.text))?;
    Ok(measured.bytes_rate)
}

/// A node, its actions, and its clock.
struct Measured {
    swim: Swim,
    queue: Queue<Swim>,
    now: Now,
}

impl Measured {
    fn new(members: u32, meta: &[u8]) -> Self {
        let config = Config { bind: addr(OWN), meta: meta.to_vec(), ..Config::new(id(OWN), Preset::Lan) };
        let mut swim = Swim::new(&config, [7; 32]).expect("a preset works");
        let mut nodes: Vec<Node> =
            (1..members).map(|n| Node { id: id(n), addrs: vec![addr(n)], meta: meta.to_vec() }).collect();
        nodes.sort_by_key(|node| node.id);
        swim.assume(&nodes);
        let now = Now::new(Instant::ZERO, Wall::from_micros(1_700_000_000_000_000));
        let mut node = Self { swim, queue: Queue::new(), now };
        node.swim.handle_start(now, &Bound::default(), &mut node.queue.outbox());
        node.act();
        node
    }

    /// Advances the clock to the next timeout of the node, and answers its pings.
    fn live(&mut self) {
        let Some((at, _)) = self.swim.poll_timeout() else { return };
        self.now = Now::new(at, self.now.wall);
        self.swim.handle_timeout(self.now, &mut self.queue.outbox());
        for (from, bytes) in self.act() {
            let now = Now::new(at + Duration::from_millis(1), self.now.wall);
            let outcome = self.swim.handle_datagram(now, swim::UDP, from, &bytes, &mut self.queue.outbox());
            assert!(outcome.is_ok(), "a member answers");
        }
        self.act();
    }

    /// Performs the actions of the node; returns the answers to its pings.
    fn act(&mut self) -> Vec<(SocketAddr, Vec<u8>)> {
        let mut answers = Vec::new();
        loop {
            let mut asked: Vec<(OpId, bool)> = Vec::new();
            while let Some(action) = self.queue.next() {
                match action {
                    Action::Send { to, bytes, .. } => answers.extend(acks(bytes).map(|ack| (to, ack))),
                    Action::Store { op, request } => {
                        asked.push((op, matches!(request, annulus_core::StoreOp::Write { .. })));
                    }
                    _ => {}
                }
            }
            if asked.is_empty() {
                return answers;
            }
            for (op, write) in asked {
                let page = StoreResult::Page { entries: &[], more: false };
                let result = if write { StoreResult::Written } else { page };
                self.swim.handle_stored(self.now, StoreReply { op, result }, &mut self.queue.outbox());
            }
        }
    }

    fn ping_from(&self, number: u32, sequence: u32) -> (SocketAddr, Vec<u8>) {
        let header = Header { from: id(number), sequence: Sequence(sequence) };
        let ping = Message::Ping {
            header,
            to: id(OWN),
            local_time: self.now.wall,
            wants_coordinate: false,
            wants_alive: false,
        };
        (addr(number), packet(&ping))
    }
}

/// The answers to the pings in a packet.
fn acks(bytes: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    let messages = Head::read(bytes).map(|(_, messages)| messages).into_iter().flatten();
    messages.flatten().filter_map(|message| match message {
        Message::Ping { header, to, local_time, wants_coordinate, .. } => {
            let header = Header { from: to, sequence: header.sequence };
            let coordinate = wants_coordinate.then(Coordinate::default);
            Some(packet(&Message::Ack { header, local_time, introduce: false, coordinate }))
        }
        _ => None,
    })
}

fn packet(message: &Message<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut writer = Writer::new(&mut bytes, usize::MAX);
    Head { ring: swim::Ring::new("annulus"), from: message.header().from }.write(&mut writer);
    swim::encode(message, &mut writer);
    bytes
}
