//! The life of one pinging node, alone and as two parts of a [`Node`]: see `world` for the checks.

use core::time::Duration;
use std::collections::BTreeSet;

use annulus_core::node::{self, Node, Part, PartCommand, PartEvent};
use annulus_core::ping::{self, Command, Config, Event, Message, Ping, Via};
use annulus_core::wire::{DecodeError, Reader, Writer};
use annulus_core::{Machine, Service};

use crate::world::{self, Subject, peer};

/// Small limits, so that a short input reaches them.
const PEERS_MAX: usize = 3;

/// Longer than a ping and a write of the count take, one after the other.
const SETTLED: Duration = Duration::from_secs(3);

pub(super) fn run(bytes: &[u8]) {
    world::live(Alone::default(), bytes);
}

pub(super) fn run_node(bytes: &[u8]) {
    world::live(TwoInOne::default(), bytes);
}

fn new_ping(input: &mut Reader<'_>, seed: u8) -> Result<Ping, DecodeError> {
    let choice = input.u8()?;
    let config = Config {
        bind: "127.0.0.1:7001".parse().expect("that is an address"),
        peers: (0..choice % 4).map(peer).collect(),
        stream_every: u32::from(choice >> 6),
        vanished_after: 1 + u32::from(choice >> 4 & 3),
        peers_max: PEERS_MAX,
        probes_max: 4,
        streams_max: 3,
        ..Config::default()
    };
    Ok(Ping::new(&config, [seed; 32]).expect("these settings go together"))
}

fn new_command(input: &mut Reader<'_>) -> Result<Command, DecodeError> {
    let (kind, to) = (input.u8()?, peer(input.u8()?));
    Ok(match kind % 6 {
        0 => Command::Ping { to, via: Via::Datagram },
        1 => Command::Ping { to, via: Via::Stream },
        2 => Command::AddPeer(to),
        3 => Command::RemovePeer(to),
        4 => Command::Peers,
        _ => Command::Count,
    })
}

fn pong_to(bytes: &[u8]) -> Option<Vec<u8>> {
    let Ok(Message::Ping { sequence }) = ping::decode(bytes) else { return None };
    let mut pong = Vec::new();
    ping::encode(Message::Pong { sequence }, &mut Writer::new(&mut pong, ping::MESSAGE_BYTES));
    Some(pong)
}

fn check_ping(machine: &Ping) {
    assert!(machine.peers().len() <= PEERS_MAX, "more peers than allowed");
    assert!(machine.count() <= machine.counted().pings_answered, "it counts more than it answered");
}

/// Which pings have ended: each does so once.
#[derive(Default)]
struct Ended(BTreeSet<u64>);

impl Ended {
    fn on_event(&mut self, event: &Event) {
        if let Event::PingAnswered { sequence, .. } | Event::PingMissed { sequence, .. } = event {
            assert!(self.0.insert(*sequence), "a ping ended twice: {event:?}");
        }
    }
}

#[derive(Default)]
struct Alone(Ended);

impl Subject for Alone {
    type M = Ping;
    const SETTLED: Duration = SETTLED;

    fn machine(&mut self, input: &mut Reader<'_>) -> Result<Ping, DecodeError> {
        new_ping(input, 1)
    }

    fn command(&mut self, input: &mut Reader<'_>) -> Result<Command, DecodeError> {
        new_command(input)
    }

    fn answer(&self, bytes: &[u8]) -> Option<Vec<u8>> {
        pong_to(bytes)
    }

    fn on_event(&mut self, event: &Event) {
        self.0.on_event(event);
    }

    fn check(&self, machine: &Ping) {
        check_ping(machine);
    }

    fn forget_counters(&self, machine: &mut Ping) {
        machine.forget_counters();
    }
}

const SERVICES: [Service; 2] = [Service(1), Service(200)];

#[derive(Default)]
struct TwoInOne([Ended; 2]);

impl Subject for TwoInOne {
    type M = Node;
    const SETTLED: Duration = SETTLED;

    fn machine(&mut self, input: &mut Reader<'_>) -> Result<Node, DecodeError> {
        let (one, two) = (new_ping(input, 1)?, new_ping(input, 2)?);
        let parts = vec![(SERVICES[0], Part::Ping(Box::new(one))), (SERVICES[1], Part::Ping(Box::new(two)))];
        Ok(Node::new(parts).expect("the tags differ"))
    }

    fn command(&mut self, input: &mut Reader<'_>) -> Result<node::Command, DecodeError> {
        let service = SERVICES.get(usize::from(input.u8()?)).copied().unwrap_or(Service(9));
        Ok(node::Command { service, command: PartCommand::Ping(new_command(input)?) })
    }

    fn answer(&self, bytes: &[u8]) -> Option<Vec<u8>> {
        pong_to(bytes)
    }

    fn on_event(&mut self, event: &<Node as Machine>::Event) {
        let PartEvent::Ping(inner) = &event.event else { panic!("both parts are pings") };
        let part = SERVICES.iter().position(|service| *service == event.service);
        self.0[part.expect("an event carries the tag of a part")].on_event(inner);
    }

    fn check(&self, machine: &Node) {
        for (_, part) in machine.parts() {
            let Part::Ping(ping) = part else { continue };
            check_ping(ping);
        }
    }

    fn forget_counters(&self, machine: &mut Node) {
        for service in SERVICES {
            let Some(Part::Ping(ping)) = machine.part_mut(service) else { continue };
            ping.forget_counters();
        }
    }
}
