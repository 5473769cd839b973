//! The life of one node of a ring: see `world` for the checks.

use core::time::Duration;
use std::collections::BTreeSet;
use std::net::SocketAddr;

use annulus_core::Id;
use annulus_core::pastry::{
    self, About, AppName, Body, Command, Config, Contact, Event, Generation, Liveness, Message, MessageId,
    Pastry, Report, TablesSent, Verdict, Versions,
};
use annulus_core::wire::{DecodeError, Reader, Writer};

use crate::world::{self, Subject, peer};

pub(super) fn run(bytes: &[u8]) {
    world::live(Life::default(), bytes);
}

/// Short timers and small limits, so that a short input reaches them.
pub(super) fn config(choice: u8) -> Config {
    Config {
        id: Id::new(7 << 120),
        bind: SocketAddr::from(([127, 0, 0, 1], 7001)),
        seeds: if choice & 1 == 0 { Vec::new() } else { vec![peer(0), peer(1)] },
        leaf_set_max: 4,
        neighbourhood_max: 4,
        liveness: if choice & 2 == 0 { Liveness::Own } else { Liveness::Members },
        await_members: choice & 4 != 0,
        network_timeout: Duration::from_millis(300),
        ack_timeout_min: Duration::from_millis(50),
        message_timeout: Duration::from_millis(500),
        leaf_interval: Duration::from_secs(2),
        table_interval: Duration::from_secs(10),
        merge_interval: Duration::from_secs(5),
        idle_timeout: Duration::from_secs(3),
        connections_max: 3,
        accepted_max: 3,
        proximities_max: 4,
        relays_max: 4,
        outstanding_max: 4,
        open_max: 2,
        candidates_max: 4,
        probes_max: 2,
        past_max: 2,
        ..Config::default()
    }
}

pub(super) fn contact(number: u8) -> Contact {
    let id = Id::new(u128::from(number % 4 + 1) << 122);
    Contact { id, addr: peer(number), generation: Generation(1) }
}

fn bytes(message: &Message) -> Vec<u8> {
    let mut bytes = Vec::new();
    pastry::encode(message, &mut Writer::new(&mut bytes, 1 << 16));
    bytes
}

pub(super) fn frame(message: &Message) -> Vec<u8> {
    let bytes = bytes(message);
    [&(bytes.len() as u32).to_be_bytes()[..], &bytes].concat()
}

#[derive(Default)]
struct Life {
    delivered: BTreeSet<MessageId>,
}

impl Life {
    /// The answer of a correct peer to a message.
    fn reply(&self, message: Message) -> Vec<Message> {
        let from = contact(0);
        let tables = || TablesSent { leaf_set: vec![contact(1), contact(2)], ..TablesSent::default() };
        let versions = Versions { leaf_set: 3, routing_table: 2, neighbourhood: 1 };
        match message {
            Message::Hello { ring, .. } => vec![Message::Hello { ring, from }],
            Message::Ping { ring, nonce, .. } => {
                vec![Message::Pong { ring, nonce, from, leaf_set_digest: 3 }]
            }
            Message::Route { transmission, envelope, .. } => {
                let ack = Message::Ack { transmissions: vec![transmission], delivered: vec![] };
                let end = match envelope.body {
                    Body::Join => {
                        let about = About::Join { id: envelope.id, hop: envelope.hops, last: true };
                        Message::State { about, versions, tables: tables() }
                    }
                    Body::App { payload, .. } => {
                        let report = Report::Delivered { answer: Some(payload) };
                        Message::Receipt { id: envelope.id, attempt: envelope.attempt, hops: 1, report }
                    }
                    Body::Trace { path } => {
                        let report = Report::Traced { path };
                        Message::Receipt { id: envelope.id, attempt: envelope.attempt, hops: 1, report }
                    }
                };
                vec![ack, end]
            }
            Message::Announce { .. } => vec![Message::Welcome { versions }],
            Message::StateRequest { token, .. } => {
                vec![Message::State { about: About::Request { token }, versions, tables: tables() }]
            }
            _ => Vec::new(),
        }
    }
}

impl Subject for Life {
    type M = Pastry;
    const SETTLED: Duration = Duration::from_secs(20);

    fn machine(&mut self, input: &mut Reader<'_>) -> Result<Pastry, DecodeError> {
        let choice = input.u8()?;
        Ok(Pastry::new(config(choice), [choice; 32]).expect("these settings go together"))
    }

    fn command(&mut self, input: &mut Reader<'_>) -> Result<Command, DecodeError> {
        let (kind, byte) = (input.u8()?, input.u8()?);
        let (app, key) = (AppName::default(), Id::new(u128::from(byte) << 120));
        let (payload, once) = (vec![byte; 3], byte & 1 == 1);
        let Contact { id, addr, .. } = contact(byte);
        Ok(match kind % 16 {
            0 => Command::Route { app, key, payload, once, wants_answer: true, deadline: None },
            1 => Command::Trace { key },
            2 => Command::Tables,
            3 => Command::Join(peer(byte)),
            4 => Command::MemberAlive { id, addr },
            5 => Command::MemberSuspected(id),
            6 => Command::MemberRecovered(id),
            7 => Command::MemberFailed(id),
            8 => Command::MemberRtt { id, addr, rtt: Duration::from_micros(byte.into()) },
            9 => {
                let id = *self.delivered.last().unwrap_or(&MessageId(0));
                Command::Settle(vec![
                    (id, Verdict::Answer(payload)),
                    (MessageId(byte.into()), Verdict::Accept),
                ])
            }
            11 => Command::SendTo { app, node: id, payload, once, wants_answer: false, deadline: None },
            12 => Command::Replicas { key, count: usize::from(byte) },
            13 => Command::NextHop { key },
            14 => Command::Register(app),
            10 => Command::Unregister(app),
            _ => Command::Route { app, key, payload, once, wants_answer: false, deadline: None },
        })
    }

    /// The last frame of a stream is answered, and the hello that began it; a datagram is one message.
    fn answer(&self, bytes: &[u8]) -> Option<Vec<u8>> {
        if bytes.first() == Some(&1) {
            let said = self.reply(pastry::decode(bytes).ok()?);
            return said.first().map(self::bytes);
        }
        let mut rest = bytes;
        let mut answers = Vec::new();
        while let Some((head, behind)) = rest.split_first_chunk::<4>() {
            let (message, behind) = behind.split_at_checked(u32::from_be_bytes(*head) as usize)?;
            rest = behind;
            answers.extend(self.reply(pastry::decode(message).ok()?));
        }
        let said: Vec<Vec<u8>> = answers.iter().map(frame).collect();
        (!said.is_empty()).then(|| said.concat())
    }

    fn on_event(&mut self, event: &Event) {
        if let Event::Delivered { id, .. } = event {
            self.delivered.insert(*id);
        }
    }

    fn check(&self, machine: &Pastry) {
        let own = machine.own().id;
        assert!(machine.leaf_set().members().count() <= 4, "the leaf set is bounded");
        assert!(machine.leaf_set().members().all(|id| id != own), "nobody is its own leaf");
        assert!(machine.neighbourhood().members().count() <= 4, "the neighbourhood set is bounded");
        // Those that are closing come on top.
        assert!(machine.connections() <= 3 * 3, "connections are bounded");
    }

    fn forget_counters(&self, machine: &mut Pastry) {
        machine.forget_counters();
    }
}
