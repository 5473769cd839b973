//! The life of one member of a group: see `world` for the checks.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use annulus_core::Id;
use annulus_core::swim::{
    self, Command, Config, Event, Head, Header, Incarnation, Message, Node, Preset, Ring, Swim,
};
use annulus_core::wire::{DecodeError, Reader, Writer};

use crate::world::{self, Subject, peer};

/// Small limits, so that a short input reaches them.
const MEMBERS_MAX: usize = 6;

/// Longer than any wait of a command below.
const SETTLED: Duration = Duration::from_secs(12);

pub(super) fn run(bytes: &[u8]) {
    world::live(Life::default(), bytes);
}

fn id(number: u8) -> Id {
    Id::from_uuid([1 + number % 4; 16])
}

/// The events that its application got.
#[derive(Default)]
struct Life {
    incarnations: BTreeMap<Id, Incarnation>,
    users: BTreeSet<(Id, u32)>,
}

impl Subject for Life {
    type M = Swim;
    const SETTLED: Duration = SETTLED;

    fn machine(&mut self, input: &mut Reader<'_>) -> Result<Swim, DecodeError> {
        let (choice, known) = (input.u8()?, input.u8()?);
        let preset = Preset::ALL[usize::from(choice) % Preset::ALL.len()];
        let base = Config::new(id(3), preset);
        let config = Config {
            bind: peer(3),
            seeds: (0..known >> 2 & 3).map(peer).collect(),
            members_max: MEMBERS_MAX,
            tombstones_max: base.tombstones_max.min(2),
            stored_max: base.stored_max.min(2),
            user_max: 2,
            blocked_max: 2,
            origins_max: 2,
            relays_max: 2,
            joins_max: 2,
            transfers_max: 1,
            waiting_max: 2,
            ..base
        };
        let mut swim = Swim::new(&config, [choice; 32]).expect("these settings go together");
        let others = (0..known & 3).map(|n| Node { id: id(n), addrs: vec![peer(n)], meta: Vec::new() });
        swim.assume(&others.collect::<Vec<_>>());
        Ok(swim)
    }

    fn command(&mut self, input: &mut Reader<'_>) -> Result<Command, DecodeError> {
        let (kind, number) = (input.u8()?, input.u8()?);
        let timeout = Some(Duration::from_secs(2));
        Ok(match kind % 13 {
            0 => Command::Join { addrs: vec![peer(number), peer(number >> 4)] },
            1 => Command::Leave { timeout },
            2 => Command::Update { timeout },
            3 => Command::SetMeta { meta: vec![number; usize::from(number) * 3] },
            4 => Command::Broadcast { data: vec![number; usize::from(number) * 8], wait: false },
            5 => Command::Broadcast { data: vec![number; 8], wait: true },
            6 => Command::ForceLeave { id: id(number), prune: number % 2 == 0 },
            7 => Command::Members { all: number & 1 == 1 },
            8 => Command::Rtt { from: (number & 1 == 1).then(|| id(number >> 1)), to: id(number >> 4) },
            9 => Command::Start,
            10 => Command::Stop,
            11 => Command::Close,
            _ => Command::Info,
        })
    }

    fn answer(&self, bytes: &[u8]) -> Option<Vec<u8>> {
        let (_, messages) = Head::read(bytes).ok()?;
        let answer = messages.flatten().find_map(|message| match message {
            Message::Ping { header, to, local_time, .. } => {
                let header = Header { from: to, sequence: header.sequence };
                Some(Message::Ack { header, local_time, introduce: true, coordinate: None })
            }
            Message::IndirectPing { header, to, .. } => {
                Some(Message::IndirectAck { header: Header { from: to, sequence: header.sequence } })
            }
            _ => None,
        })?;
        let mut packet = Vec::new();
        let mut writer = Writer::new(&mut packet, usize::MAX);
        Head { ring: Ring::new("annulus"), from: answer.header().from }.write(&mut writer);
        swim::encode(&answer, &mut writer);
        Some(packet)
    }

    fn on_event(&mut self, event: &Event) {
        match event {
            Event::MemberJoined { id, incarnation, .. }
            | Event::MemberUpdated { id, incarnation, .. }
            | Event::MemberSuspected { id, incarnation, .. }
            | Event::MemberRecovered { id, incarnation, .. }
            | Event::MemberDied { id, incarnation, .. }
            | Event::MemberLeft { id, incarnation, .. } => {
                let known = self.incarnations.entry(*id).or_default();
                assert!(*known <= *incarnation, "an incarnation falls: {event:?}");
                *known = *incarnation;
            }
            Event::MemberForgotten { id } => {
                self.incarnations.remove(id);
            }
            // A sender beyond the window may be reported again: two are remembered here.
            Event::UserReceived { from, sequence, .. } if self.users.len() < 2 => {
                assert!(self.users.insert((*from, sequence.0)), "told twice: {event:?}");
            }
            _ => {}
        }
    }

    fn check(&self, machine: &Swim) {
        let members = machine.members();
        assert!(members.len() <= MEMBERS_MAX, "more members than allowed");
        assert!(members.member(machine.id()).is_some(), "a node knows itself");
        let live = members.iter().filter(|(_, member)| member.state().is_live()).count();
        assert_eq!(live, members.live(), "who lives is counted");
    }

    fn forget_counters(&self, machine: &mut Swim) {
        machine.forget_counters();
    }
}
