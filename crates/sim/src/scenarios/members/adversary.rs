//! Members that lie: some nodes of a group send any well-formed packet in anyone's name.
//!
//! Each adversary is a member like all others, and forges besides: it draws kind, sender, subject, number and address of
//! every message. Among the honest nodes these hold, as long as nothing else goes wrong:
//!
//! - No honest node is dead, left or unknown to another for longer than [`BOUND`].
//! - No node that does not exist is ever shown, and no table has more than [`RECORDS_MAX`] records per node.
//! - [`HEAL_BOUND`] after a partition its sides list each other again, also if goodbyes were forged meanwhile.
//! - A crash is known to all, and when the forgeries have ended, everyone knows everyone as alive.

use core::time::Duration;
use std::collections::BTreeMap;

use annulus_core::swim::{Event, Member, Preset, State, Swim};
use annulus_core::{Id, Rng};
use serde_json::{Map, Value, json};

use super::forger::{Actor, Forger};
use super::{CONVERGE_PERIODS, Group, id_of, node_of};
use crate::config::Config;
use crate::disk::DiskFate;
use crate::fault::Fault;
use crate::host::{Birth, HostId};
use crate::observer::{Observer, Verdict, Violation};
use crate::scenario::{Checker, Scenario, Setup};
use crate::sim::Sim;

/// A table has at most so many records per node that there is.
pub const RECORDS_MAX: usize = 2;

/// The longest time in which a node may fail to list a running node.
pub const BOUND: Duration = Duration::from_secs(3);

/// The longest time after a partition until every node lists all others again.
pub const HEAL_BOUND: Duration = Duration::from_secs(10);

/// The packets of an adversary.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Lie {
    /// Any well-formed packet in anyone's name.
    #[default]
    Any,
    /// That a member lives somewhere else, one incarnation later.
    Move,
    /// That the crashed member lives, one incarnation later, where it was.
    Refute,
    /// To a member that it is suspected, 65 536 incarnations later.
    Leap,
    /// That a member exists that does not.
    Invent,
    /// In a member's name that it left.
    Leave,
}

impl Lie {
    /// All of them, with their names.
    pub const ALL: [(&'static str, Self); 6] = [
        ("any", Self::Any),
        ("move", Self::Move),
        ("refute", Self::Refute),
        ("leap", Self::Leap),
        ("invent", Self::Invent),
        ("leave", Self::Leave),
    ];

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, lie)| *lie == self).map_or("any", |(name, _)| name)
    }
}

/// The settings.
#[derive(Clone, Debug)]
pub struct Adversaries {
    /// The number of nodes, the liars included.
    pub nodes: u32,
    /// How many of them lie; the last ones.
    pub liars: u32,
    /// The number of forged packets per second of each.
    pub rate: u64,
    /// The time with forged packets.
    pub seconds: u64,
    /// The settings of the nodes.
    pub preset: Preset,
    /// Whether an honest node crashes in the middle of it.
    pub crash: bool,
    /// How long the hosts with even and with odd numbers are cut off from each other, in the middle of it; no node
    /// crashes then.
    pub cut: Option<Duration>,
    /// The packets that they send.
    pub lie: Lie,
    /// The network.
    pub config: Config,
}

impl Adversaries {
    /// 50 nodes with preset `lan`, some of which send 40 packets per second each for 40 s; one honest node crashes.
    #[must_use]
    pub fn new(liars: u32, lie: Lie) -> Self {
        Self {
            nodes: 50,
            liars,
            rate: 40,
            seconds: 40,
            preset: Preset::Lan,
            crash: true,
            cut: None,
            lie,
            config: Config::default(),
        }
    }

    fn world(&self, seed: u64) -> Sim<Actor> {
        let group = Group { known: true, ..Group::new(self.nodes, self.preset) };
        let all: Vec<_> = (0..self.nodes).map(HostId::new).map(node_of).collect();
        let (nodes, honest, rate, lie) = (self.nodes, self.nodes - self.liars, self.rate, self.lie);
        let lasts = Duration::from_secs(self.seconds);
        let factory = move |birth: Birth<'_>| {
            let mut swim = Swim::new(&group.config(birth.host, birth.address), birth.seed)
                .expect("a preset works, and a host has an address");
            swim.assume(&all);
            let number = birth.host.index() as u32;
            let rng = Rng::from_number(seed, 0xbad + u64::from(number));
            let forger = (number >= honest).then(|| Forger::new(rng, nodes, lie, rate, lasts));
            Actor::new(swim, forger)
        };
        let mut sim = Sim::new(seed, self.config.clone(), factory);
        for _ in 0..self.nodes {
            sim.add_host();
        }
        sim
    }
}

impl Scenario for Adversaries {
    type Machine = Actor;
    type Checker = AdversaryChecker;

    fn name(&self) -> &'static str {
        "members"
    }

    fn setup(&self, seed: u64) -> Result<Setup<Actor, AdversaryChecker>, Violation> {
        if self.liars + 2 > self.nodes {
            let text = format!("{} of {} nodes cannot be adversaries", self.liars, self.nodes);
            return Err(Violation::new(text));
        }
        let (mut sim, faults_for) = (self.world(seed), Duration::from_secs(self.seconds));
        let crash_at = (self.crash && self.cut.is_none()).then_some(faults_for / 3);
        if let Some(cut) = self.cut {
            if cut + HEAL_BOUND > faults_for * 3 / 4 {
                let text = format!("{faults_for:?} are too short for a partition of {cut:?} in the middle");
                return Err(Violation::new(text));
            }
            let even = (0..self.nodes).step_by(2).map(HostId::new).collect();
            sim.at(faults_for / 4, Fault::Partition(vec![even]));
            sim.at(faults_for / 4 + cut, Fault::Heal);
        }
        if let Some(at) = crash_at {
            let host = HostId::new(0);
            sim.at(at, Fault::Crash { host, power: true, disk: DiskFate::Kept });
        }
        let checker = AdversaryChecker::new(self, crash_at);
        let converge_within = CONVERGE_PERIODS * self.preset.settings().probe_interval;
        let settings = json!({
            "experiment": "adversary", "preset": self.preset, "seconds": self.seconds, "liars": self.liars,
            "lie": self.lie.name(), "rate": self.rate, "loss": self.config.network.loss, "cut": self.cut,
        });
        Ok(Setup { sim, checker, faults_for, converge_within, settings })
    }
}

/// Watches the honest nodes.
pub struct AdversaryChecker {
    honest: u32,
    nodes: usize,
    /// When host 0 crashes, if it does; it starts again when the forgeries have ended.
    crash_at: Option<Duration>,
    is_calm: bool,
    /// When a partition begins, and until when its sides may not list each other.
    excused: Option<(Duration, Duration)>,
    /// Since when one node is no member to another.
    absent: BTreeMap<(HostId, HostId), Duration>,
    absent_max: Duration,
    /// How many honest nodes know of the crash, and since when all do.
    know: u32,
    all_know: Option<Duration>,
    records_max: usize,
}

impl AdversaryChecker {
    fn new(adversaries: &Adversaries, crash_at: Option<Duration>) -> Self {
        Self {
            honest: adversaries.nodes - adversaries.liars,
            nodes: adversaries.nodes as usize,
            crash_at,
            is_calm: false,
            excused: adversaries.cut.map(|cut| {
                let begin = Duration::from_secs(adversaries.seconds) / 4;
                (begin, begin + cut + HEAL_BOUND)
            }),
            absent: BTreeMap::new(),
            absent_max: Duration::ZERO,
            know: 0,
            all_know: None,
            records_max: 0,
        }
    }

    fn is_honest(&self, host: HostId) -> bool {
        (host.index() as u32) < self.honest
    }

    /// The honest node with this id.
    fn honest_of(&self, id: Id) -> Option<HostId> {
        (0..self.honest).map(HostId::new).find(|host| id_of(*host) == id)
    }

    /// One honest node no longer takes another for a member.
    fn lost(&mut self, sim: &Sim<Actor>, at: HostId, of: HostId) {
        if of.index() == 0 && self.crash_at.is_some_and(|crash| sim.elapsed() >= crash) {
            self.know += 1;
            if self.know == self.honest - 1 {
                self.all_know = self.crash_at.map(|crash| sim.elapsed() - crash);
            }
        } else {
            self.absent.insert((at, of), sim.elapsed());
        }
    }

    /// The longest absence so far must not be over the bound.
    fn check_absence(&mut self, now: Duration) -> Verdict {
        for ((at, of), since) in &self.absent {
            let is_cut = at.index() % 2 != of.index() % 2
                && self.excused.is_some_and(|(begin, end)| begin <= now && now <= end);
            if is_cut {
                continue;
            }
            let absence = now - *since;
            self.absent_max = self.absent_max.max(absence);
            if absence > BOUND {
                let text = format!("{of} is no member to {at} for {absence:?}, though it speaks");
                return Err(Violation::new(text));
            }
        }
        Ok(())
    }
}

impl Observer<Actor> for AdversaryChecker {
    fn on_event(&mut self, sim: &Sim<Actor>, host: HostId, event: &Event) -> Verdict {
        if self.is_calm || !self.is_honest(host) {
            return Ok(());
        }
        match event {
            Event::MemberDied { id, .. } | Event::MemberLeft { id, .. } => {
                if let Some(of) = self.honest_of(*id) {
                    self.lost(sim, host, of);
                }
            }
            Event::MemberJoined { id, .. } => {
                let Some(of) = self.honest_of(*id) else { return Ok(()) };
                if let Some(since) = self.absent.remove(&(host, of)) {
                    if self.excused.is_none() {
                        self.absent_max = self.absent_max.max(sim.elapsed() - since);
                    }
                } else if of.index() == 0 {
                    return Err(Violation::new(format!("{host} takes {of} for alive, which crashed")));
                }
            }
            _ => {}
        }
        self.check_absence(sim.elapsed())
    }
}

impl Checker<Actor> for AdversaryChecker {
    fn check(&mut self, sim: &Sim<Actor>) -> Verdict {
        let honest = self.honest;
        for (host, actor) in sim.machines().filter(|(host, _)| (host.index() as u32) < honest) {
            let members = actor.swim().members();
            self.records_max = self.records_max.max(members.len());
            if members.live() > self.nodes {
                let text = format!("{host} shows {} members of {}", members.live(), self.nodes);
                return Err(Violation::new(text));
            }
        }
        if self.records_max > RECORDS_MAX * self.nodes {
            return Err(Violation::new(format!("a table has {} records", self.records_max)));
        }
        if self.is_calm { Ok(()) } else { self.check_absence(sim.elapsed()) }
    }

    fn on_calm(&mut self, _: &Sim<Actor>) {
        self.is_calm = true;
    }

    fn converged(&mut self, sim: &Sim<Actor>) -> Result<(), String> {
        if self.crash_at.is_some() && self.all_know.is_none() {
            return Err(format!("the crash was known to {} of {} nodes", self.know, self.honest - 1));
        }
        for host in sim.hosts().filter(|host| self.is_honest(*host)) {
            let Some(actor) = sim.machine(host) else { return Err(format!("{host} is down")) };
            for other in sim.hosts() {
                let state = actor.swim().members().member(id_of(other)).map(Member::state);
                if state != Some(State::Alive) {
                    return Err(format!("{host} has {other} as {state:?}"));
                }
            }
        }
        Ok(())
    }

    fn measured(&mut self, _: &Sim<Actor>) -> Map<String, Value> {
        let figures = [
            ("absent_seconds_max", json!(self.absent_max.as_secs_f64())),
            ("crash_known_seconds", json!(self.all_know.map(|all_know| all_know.as_secs_f64()))),
            ("records_max", json!(self.records_max)),
        ];
        figures.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }
}
