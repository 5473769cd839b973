//! Intruders at the port of a group: one floods it with Joins that name the address of another host, and one has the id
//! of a member (a copied data directory). These hold:
//!
//! - All members together send at most [`ANSWER_FACTOR`] times the bytes of the Joins to where these came from and to the
//!   address that they name (SA-61).
//! - The member stays a member, where it was, to every other. It and the intruder both get a conflict event (SA-58a).
//! - No intruder is ever shown that has not answered.

use core::time::Duration;
use std::net::SocketAddr;

use annulus_core::swim::{
    Config, Event, Head, Header, Incarnation, Message, NodeView, OwnContents, Preset, Ring, Sequence, Swim,
    encode,
};
use annulus_core::wire::Writer;
use annulus_core::{Id, Rng};
use serde_json::{Map, Value, json};

use super::forger::Actor;
use super::{Group, PORT, addr_of, id_of, node_of};
use crate::host::{Birth, HostId};
use crate::observer::{Observer, Verdict, Violation};
use crate::scenario::{Checker, Scenario, Setup};
use crate::sim::Sim;

/// The limit of an answer to an intruder, as a multiple of the bytes that it sent.
pub const ANSWER_FACTOR: u64 = 3;

/// The settings.
#[derive(Clone, Debug)]
pub struct Intruders {
    /// How many members there are; three more hosts are intruders.
    pub nodes: u32,
    /// The number of Joins per second of the first intruder.
    pub rate: u64,
    /// How long.
    pub seconds: u64,
    /// The settings of the members.
    pub preset: Preset,
}

impl Intruders {
    /// The host that sends the Joins. It is otherwise mute.
    const fn source(&self) -> HostId {
        HostId::new(self.nodes)
    }

    /// The host whose address the Joins name. It is mute.
    const fn named(&self) -> HostId {
        HostId::new(self.nodes + 1)
    }

    /// The host with the id of member 1.
    const fn twin(&self) -> HostId {
        HostId::new(self.nodes + 2)
    }
}

impl Scenario for Intruders {
    type Machine = Actor;
    type Checker = IntrudersChecker;

    fn name(&self) -> &'static str {
        "members"
    }

    fn setup(&self, seed: u64) -> Result<Setup<Actor, IntrudersChecker>, Violation> {
        if self.nodes < 3 {
            return Err(Violation::new("intruders need a group of at least three"));
        }
        let group = Group { known: true, ..Group::new(self.nodes, self.preset) };
        let all: Vec<_> = (0..self.nodes).map(HostId::new).map(node_of).collect();
        let (settings, faults_for) = (self.clone(), Duration::from_secs(self.seconds));
        let factory = move |birth: Birth<'_>| {
            let is_member = (birth.host.index() as u32) < settings.nodes;
            let config = group.config(birth.host, birth.address);
            let id = if birth.host == settings.twin() { id_of(HostId::new(1)) } else { config.id };
            let seeds = if birth.host == settings.twin() { config.seeds } else { Vec::new() };
            let config = Config { id, seeds, ..config };
            let mut swim = Swim::new(&config, birth.seed).expect("a preset works, and a host has an address");
            if is_member {
                swim.assume(&all);
            }
            let flood = settings.flood(seed, faults_for);
            match birth.host {
                host if host == settings.source() => Actor::mute(swim, Some(flood)),
                host if host == settings.named() => Actor::mute(swim, None),
                _ => Actor::new(swim, None),
            }
        };
        let mut sim = Sim::new(seed, crate::config::Config::default(), factory);
        for _ in 0..self.nodes + 3 {
            sim.add_host();
        }
        let checker = IntrudersChecker::new(self);
        let converge_within = 30 * self.preset.settings().probe_interval;
        let settings = json!({
            "experiment": "intruders", "preset": self.preset, "seconds": self.seconds, "rate": self.rate,
        });
        Ok(Setup { sim, checker, faults_for, converge_within, settings })
    }
}

impl Intruders {
    /// Joins of nodes that do not exist, at the address of another host.
    fn flood(&self, seed: u64, lasts: Duration) -> Flood {
        Flood {
            rng: Rng::from_number(seed, 0x10b),
            to: (0..self.nodes).map(HostId::new).map(addr_of).collect(),
            named: addr_of(self.named()),
            every: Duration::from_micros(1_000_000 / self.rate.max(1)),
            lasts,
        }
    }
}

/// The Joins of a mute intruder.
#[derive(Clone, Debug)]
pub(super) struct Flood {
    rng: Rng,
    to: Vec<SocketAddr>,
    named: SocketAddr,
    pub(super) every: Duration,
    pub(super) lasts: Duration,
}

impl Flood {
    /// The next Join, and the member that gets it.
    pub(super) fn next(&mut self) -> (SocketAddr, Vec<u8>) {
        let id = Id::new(u128::from(self.rng.next_u64()) << 64 | u128::from(self.rng.next_u64() | 1));
        let contents = OwnContents::new(&[self.named], b"").expect("one address");
        let header = Header { from: id, sequence: Sequence(self.rng.next_u32()) };
        let node = NodeView { id, contents: contents.borrow() };
        let mut bytes = Vec::new();
        let mut writer = Writer::new(&mut bytes, 1400);
        Head { ring: Ring::new("annulus"), from: id }.write(&mut writer);
        encode(&Message::Join { header, node, incarnation: Incarnation(0) }, &mut writer);
        (self.to[self.rng.index(self.to.len())], bytes)
    }
}

/// Watches the members.
pub struct IntrudersChecker {
    settings: Intruders,
    joins: u64,
    join_bytes: u64,
    /// Bytes that reached the intruder that sends Joins, and the address that these name.
    answer_bytes: u64,
    /// Whether the member, the intruder with its id, and another member reported the conflict.
    reported: [bool; 3],
}

impl IntrudersChecker {
    fn new(settings: &Intruders) -> Self {
        let settings = settings.clone();
        Self { settings, joins: 0, join_bytes: 0, answer_bytes: 0, reported: [false; 3] }
    }

    fn is_member(&self, host: HostId) -> bool {
        (host.index() as u32) < self.settings.nodes
    }
}

impl Observer<Actor> for IntrudersChecker {
    fn on_event(&mut self, sim: &Sim<Actor>, host: HostId, event: &Event) -> Verdict {
        let victim = HostId::new(1);
        match event {
            Event::IdConflict { .. } if host == victim => self.reported[0] = true,
            Event::IdConflict { .. } if host == self.settings.twin() => self.reported[1] = true,
            Event::MemberConflict { .. } if self.is_member(host) => self.reported[2] = true,
            Event::MemberDied { id, .. } | Event::MemberLeft { id, .. } if self.is_member(host) => {
                return Err(Violation::new(format!("{host} lost {id:?}, and no member is gone")));
            }
            Event::MemberJoined { id, .. } if self.is_member(host) => {
                let text = format!("{host} shows {id:?} after {:?}, which is no member", sim.elapsed());
                return Err(Violation::new(text));
            }
            _ => {}
        }
        Ok(())
    }
}

impl Checker<Actor> for IntrudersChecker {
    fn check(&mut self, sim: &Sim<Actor>) -> Verdict {
        let traffic = |host| sim.machine(host).map(Actor::traffic).unwrap_or_default();
        let (source, named) = (traffic(self.settings.source()), traffic(self.settings.named()));
        (self.joins, self.join_bytes) = (source.sent, source.sent_bytes);
        self.answer_bytes = source.received_bytes + named.received_bytes;
        if self.answer_bytes > ANSWER_FACTOR * self.join_bytes {
            let text = format!("{} bytes for {} bytes of Joins", self.answer_bytes, self.join_bytes);
            return Err(Violation::new(text));
        }
        let (victim, place) = (id_of(HostId::new(1)), addr_of(HostId::new(1)));
        for (host, actor) in sim.machines().filter(|(host, _)| self.is_member(*host)) {
            let members = actor.swim().members();
            let addr = members.member(victim).map(|member| SocketAddr::new(member.addr().ip(), PORT));
            if addr != Some(place) || members.live() != self.settings.nodes as usize {
                let text = format!("{host} has the member at {addr:?}, and {} members", members.live());
                return Err(Violation::new(text));
            }
        }
        Ok(())
    }

    fn converged(&mut self, _: &Sim<Actor>) -> Result<(), String> {
        match self.reported {
            [true, true, true] => Ok(()),
            reported => {
                Err(format!("the conflict was reported by (member, intruder, another): {reported:?}"))
            }
        }
    }

    fn measured(&mut self, _: &Sim<Actor>) -> Map<String, Value> {
        let factor = self.answer_bytes as f64 / (self.join_bytes as f64).max(1.0);
        let figures = [("joins", json!(self.joins)), ("answer_factor", json!(factor))];
        figures.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }
}
