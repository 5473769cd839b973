//! A group with failure detection: the scenario of [`annulus_core::swim`].
//!
//! Nodes join through three of them, faults happen, applications broadcast. The checker requires:
//!
//! - The knowledge of a node only grows: no event has a lower incarnation than an earlier one (S-21).
//! - An application gets a user message at most once per run of its process (S-76).
//! - No node reports its own death, or more members than there are.
//! - A member that failed or left is listed with when and by whom, for as long as its node lives (SA-33b).
//! - When the faults have stopped, every node lists every other as alive, at its present address, within
//!   [`CONVERGE_PERIODS`].

mod adversary;
mod forger;
mod intruders;
mod measure;
mod summary;
mod topology;
mod truth;
mod watch;

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;

use annulus_core::swim::{self, Incarnation, Node, Preset, Swim};
use annulus_core::{Id, RequestId, Rng};
use serde_json::json;

pub use adversary::{Adversaries, AdversaryChecker, BOUND, HEAL_BOUND, Lie, RECORDS_MAX};
pub use forger::Actor;
pub use intruders::{ANSWER_FACTOR, Intruders, IntrudersChecker};
pub use measure::{Experiment, Measure, Measured};
pub use summary::{Distance, Spread, Summary};
pub use topology::Places;
pub use truth::{Told, Truth};

use crate::aim::Aim;
use crate::conditions::Conditions;
use crate::disk::DiskFate;
use crate::fault::Step;
use crate::host::{Birth, HostId};
use crate::observer::{Observer, Verdict, Violation};
use crate::scenario::{Checker, Scenario, Setup};
use crate::sim::{Sim, address, stream_of};

/// The most periods until a group has converged: the last suspicion, one retry of lost members, and the spread of
/// updates. A node that is still suspected when the faults stop learns that with the next ping to or from a
/// suspecting node.
pub const CONVERGE_PERIODS: u32 = 240;

/// The port all nodes are bound to.
pub const PORT: u16 = 7946;

/// The id of a host: the same after every restart.
#[must_use]
pub fn id_of(host: HostId) -> Id {
    let mut uuid = [0x5a; 16];
    uuid[..8].copy_from_slice(&(host.index() as u64).to_be_bytes());
    Id::from_uuid(uuid)
}

/// Where its node is.
pub(super) fn addr_of(host: HostId) -> SocketAddr {
    SocketAddr::new(address(host), PORT)
}

/// How the machines of a group are made.
#[derive(Clone, Debug)]
pub struct Group {
    /// The number of nodes.
    pub nodes: u32,
    /// Their settings.
    pub settings: swim::Settings,
    /// Whether members outlive their membership, as in the larger presets.
    pub remembers: bool,
    /// Whether all know each other when they start for the first time.
    pub known: bool,
    /// Whether periods begin together.
    pub aligned: bool,
    /// How many nodes the others join through.
    pub seeds: u32,
}

impl Group {
    /// A group with a preset that joins through its first three nodes.
    #[must_use]
    pub fn new(nodes: u32, preset: Preset) -> Self {
        let remembers = matches!(preset, Preset::Lan | Preset::Wan | Preset::Local);
        Self { nodes, settings: preset.settings(), remembers, known: false, aligned: false, seeds: 3 }
    }

    /// Makes machines, one for each start of a host.
    pub fn factory(&self) -> impl FnMut(Birth<'_>) -> Swim + 'static {
        let group = self.clone();
        let mut all: Vec<Node> = (0..self.nodes).map(HostId::new).map(node_of).collect();
        all.sort_by_key(|node| node.id);
        let all = Rc::new(all);
        move |birth| {
            let mut swim = Swim::new(&group.config(birth.host, birth.address), birth.seed)
                .expect("a preset works, and a host has an address");
            if group.known && birth.starts == 0 {
                swim.assume(&all);
            }
            swim
        }
    }

    pub(super) fn config(&self, host: HostId, own: IpAddr) -> swim::Config {
        let base = swim::Config::new(id_of(host), Preset::Lan);
        let seeds = (0..self.seeds.min(self.nodes)).map(HostId::new).map(addr_of);
        swim::Config {
            bind: SocketAddr::new(own, PORT),
            seeds: seeds.filter(|seed| seed.ip() != own).collect(),
            settings: self.settings.clone(),
            aligned: self.aligned,
            tombstones_max: if self.remembers { base.tombstones_max } else { 0 },
            stored_max: if self.remembers && !self.known { 64 } else { 0 },
            ..base
        }
    }
}

pub(super) fn node_of(host: HostId) -> Node {
    Node { id: id_of(host), addrs: vec![addr_of(host)], meta: Vec::new() }
}

/// The settings of the scenario.
#[derive(Clone, Debug)]
pub struct MembersScenario {
    /// The number of nodes; with `swarm`, the largest number.
    pub nodes: u32,
    /// The time with faults.
    pub seconds: u64,
    /// The settings of the nodes.
    pub preset: Preset,
    /// The faults and the network.
    pub conditions: Conditions,
    /// Whether the seed draws the number of nodes and the conditions.
    pub swarm: bool,
    /// A fault that is built into all machines: the checker must notice it.
    pub broken: Option<Broken>,
}

/// A fault that is built into machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broken {
    /// A node probes another once an hour.
    NoProbes,
    /// A node keeps no failed and left members.
    ForgetsFailed,
}

impl Scenario for MembersScenario {
    type Machine = Swim;
    type Checker = MembersChecker;

    fn name(&self) -> &'static str {
        "members"
    }

    fn setup(&self, seed: u64) -> Result<Setup<Swim, MembersChecker>, Violation> {
        let mut rng = Rng::from_number(seed, stream_of::SCENARIO);
        let (nodes, mut conditions) = if self.swarm {
            (rng.between(3, u64::from(self.nodes.max(3))) as u32, self.conditions.drawn(&mut rng))
        } else {
            (self.nodes, self.conditions.clone())
        };
        if self.swarm {
            conditions.faults.draw_moves(seed);
        }
        let mut group = Group::new(nodes, self.preset);
        let remembers = group.remembers;
        match self.broken {
            Some(Broken::NoProbes) => group.settings.probe_interval = Duration::from_secs(3600),
            Some(Broken::ForgetsFailed) => group.remembers = false,
            None => {}
        }
        let mut sim = Sim::new(seed, conditions.config.clone(), group.factory());
        for _ in 0..nodes {
            sim.add_host();
        }
        let faults_for = Duration::from_secs(self.seconds);
        conditions.faults.put_into(seed, &mut sim, faults_for, &AIMS);
        for word in 0..self.seconds / 2 {
            let host = HostId::new(rng.below(u64::from(nodes)) as u32);
            let data = word.to_be_bytes().to_vec();
            let command = swim::Command::Broadcast { data, wait: rng.chance(0.5) };
            sim.command_after(rng.duration_below(faults_for), host, command);
        }
        let network = &conditions.config.network;
        let settings = json!({
            "preset": self.preset, "seconds": self.seconds, "swarm": self.swarm,
            "latency": network.latency.to_string(), "loss": network.loss, "duplicate": network.duplicate,
            "reorder": network.reorder, "faults": conditions.faults,
        });
        let operator = if remembers { None } else { Some(0) };
        let watched = vec![Watched::default(); nodes as usize];
        let checker = MembersChecker { nodes: watched, operator, remembers };
        let converge_within = CONVERGE_PERIODS * self.preset.settings().probe_interval;
        Ok(Setup { sim, checker, faults_for, converge_within, settings })
    }
}

/// Hits a member that the others join through, or one that is suspected.
static AIMS: [Aim<Swim>; 2] = [
    Aim { name: "seed", find: |sim, rng| sim.hosts().nth(rng.index(3)) },
    Aim { name: "suspect", find: suspect },
];

fn suspect(sim: &Sim<Swim>, rng: &mut Rng) -> Option<HostId> {
    let is_suspected = |host: &HostId| {
        let state = |swim: &Swim| swim.members().member(id_of(*host)).map(swim::Member::state);
        sim.machines().any(|(_, swim)| state(swim) == Some(swim::State::Suspect))
    };
    let all: Vec<HostId> = sim.hosts().filter(is_suspected).collect();
    rng.pick(&all).copied()
}

/// Watches all nodes.
pub struct MembersChecker {
    nodes: Vec<Watched>,
    /// A group without stored members does not heal a partition by itself. After the faults an operator joins the
    /// parts (SF-7); this is the number of joins so far.
    operator: Option<u64>,
    /// Whether failed and left members are listed.
    remembers: bool,
}

/// How long the checker looks for a member that failed or left: an hour less than the default of `keep_failed`.
const KEPT_MICROS: u64 = 23 * 3600 * 1_000_000;

/// The reports of one node in its present life.
#[derive(Clone, Default)]
struct Watched {
    incarnations: BTreeMap<Id, Incarnation>,
    users: BTreeSet<(Id, u32)>,
    /// Members that failed or left and are not back, and when, in microseconds of this node's wall clock.
    ended: BTreeMap<Id, u64>,
}

impl MembersChecker {
    fn on_status(&mut self, host: HostId, id: Id, incarnation: Incarnation) -> Verdict {
        if id == id_of(host) {
            return Err(Violation::new(format!("{host} reported itself as another member")));
        }
        let known = self.nodes[host.index()].incarnations.entry(id).or_default();
        if incarnation < *known {
            let text = format!("{host} reported {id:?} in incarnation {incarnation} after {known}");
            return Err(Violation::new(text));
        }
        *known = incarnation;
        Ok(())
    }
}

impl Observer<Swim> for MembersChecker {
    fn on_event(&mut self, sim: &Sim<Swim>, host: HostId, event: &swim::Event) -> Verdict {
        let ended = &mut self.nodes[host.index()].ended;
        match event {
            swim::Event::MemberDied { id, .. } | swim::Event::MemberLeft { id, .. } => {
                ended.insert(*id, sim.clock(host).wall.as_micros());
            }
            swim::Event::MemberJoined { id, .. } => {
                ended.remove(id);
            }
            _ => {}
        }
        match event {
            swim::Event::MemberJoined { id, incarnation, .. }
            | swim::Event::MemberUpdated { id, incarnation, .. }
            | swim::Event::MemberSuspected { id, incarnation, .. }
            | swim::Event::MemberRecovered { id, incarnation, .. }
            | swim::Event::MemberDied { id, incarnation, .. }
            | swim::Event::MemberLeft { id, incarnation, .. } => self.on_status(host, *id, *incarnation),
            // A forgotten member may rejoin as a new one.
            swim::Event::MemberForgotten { id } => {
                self.nodes[host.index()].incarnations.remove(id);
                Ok(())
            }
            swim::Event::UserReceived { from, sequence, .. } => {
                if self.nodes[host.index()].users.insert((*from, sequence.0)) {
                    return Ok(());
                }
                Err(Violation::new(format!("{host} was given message {sequence} of {from:?} twice")))
            }
            swim::Event::IdConflict { addr } if sim.host_at(addr.ip()) != Some(host) => {
                Err(Violation::new(format!("{host} sees its id at {addr}, but no two have one")))
            }
            _ => Ok(()),
        }
    }

    fn on_start(&mut self, _: &Sim<Swim>, host: HostId) {
        self.nodes[host.index()] = Watched::default();
    }

    fn on_crash(&mut self, _: &Sim<Swim>, _: HostId, _: DiskFate) {}
}

impl Checker<Swim> for MembersChecker {
    fn check(&mut self, sim: &Sim<Swim>) -> Verdict {
        for (host, machine) in sim.machines() {
            if machine.members().live() > sim.len() {
                return Err(Violation::new(format!("{host} knows more members than there are")));
            }
            // The history is kept for a time of the wall clock, so a clock that is set forward may end it.
            let wall = sim.clock(host).wall.as_micros();
            let ended = &mut self.nodes[host.index()].ended;
            ended.retain(|_, since| since.checked_add(KEPT_MICROS).is_some_and(|end| wall < end));
            if !self.remembers || ended.is_empty() {
                continue;
            }
            let listed = machine.all_members(sim.clock(host));
            let is_described =
                |status: &swim::MemberStatus| status.state.is_live() || status.since_micros.is_some();
            let is_listed =
                |id: &Id| listed.iter().any(|status| status.node.id == *id && is_described(status));
            if let Some(id) = ended.keys().find(|id| !is_listed(id)) {
                let text = format!("{host} does not list {id:?}, which failed or left");
                return Err(Violation::new(text));
            }
        }
        Ok(())
    }

    fn on_calm(&mut self, sim: &Sim<Swim>) {
        let Some(joins) = &mut self.operator else { return };
        let addrs = vec![SocketAddr::new(sim.address(HostId::new(0)), PORT)];
        for host in sim.hosts().skip(1) {
            // Numbers that no other command has.
            let request = RequestId(u64::MAX - *joins);
            *joins += 1;
            sim.inject(Step::Command(host, request, swim::Command::Join { addrs: addrs.clone() }));
        }
    }

    fn converged(&mut self, sim: &Sim<Swim>) -> Result<(), String> {
        for host in sim.hosts().filter(|host| !sim.is_dead(*host)) {
            let Some(machine) = sim.machine(host) else { return Err(format!("{host} is down")) };
            for other in sim.hosts() {
                let state = machine.members().member(id_of(other)).map(swim::Member::state);
                let is_listed = matches!(state, Some(swim::State::Alive | swim::State::Suspect));
                let is_right =
                    if sim.is_dead(other) { !is_listed } else { state == Some(swim::State::Alive) };
                if !is_right {
                    return Err(format!("{host} has {other} as {state:?}"));
                }
                let addr = machine.members().member(id_of(other)).map(swim::Member::addr);
                let own = SocketAddr::new(sim.address(other), PORT);
                if !sim.is_dead(other) && addr != Some(own) {
                    return Err(format!("{host} has {other} at {addr:?}, and it is at {own}"));
                }
            }
        }
        Ok(())
    }
}
