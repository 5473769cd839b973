//! Nodes of a mesh that send each other messages: the scenario of [`annulus_core::w3w`].
//!
//! Nodes start one after the other, each knowing a few random others. They have time to form the ring. Then some stop,
//! the running ones send messages to any nodes, and the stopped ones restart. In a swarm ([`swarm`]) messages flow
//! from the tenth second on, through all faults and after them. The checker requires:
//!
//! - O: a letter is delivered to its application at most once, unless the recipient's disk is lost (CU-9).
//! - D: a message is on its sender's disk, synced, when it is acknowledged; a letter stays there until it is over (CU-11).
//! - T: every state of an outbox is true (CU-23); a node answers `held`, and confirms letters, when its disk has them.
//! - P: after the last fault letters arrive soon.
//! - Rings are ascending and no larger than their limit and one (MF-12).
//! - When the faults have stopped, the rings become exact: every node is connected to both its neighbours, and the loss
//!   of one node does not split the mesh. Every letter arrives whose sender did not lose its disk, whatever the faults.

mod checker;
mod graph;
mod letters;
mod swarm;
mod trails;

use core::time::Duration;
use std::net::{IpAddr, Ipv4Addr, SocketAddrV4};

use annulus_core::Rng;
use annulus_core::w3w::{self, Command, Fault as Broken, Forward, Mesh, Nid};
use serde_json::json;

pub use checker::MeshChecker;
pub use letters::{ARRIVES, BOX_LOST, DISKS_LOST};

use crate::conditions::Conditions;
use crate::disk::DiskFate;
use crate::fault::Fault;
use crate::host::{HostId, HostSpec};
use crate::observer::Violation;
use crate::scenario::{Scenario, Setup};
use crate::sim::{Sim, stream_of};

use letters::Plan;

/// The bound of convergence after the faults: letters whose custodians lost their disks are sent again after ten minutes,
/// twenty, and so on (CU-18).
pub const CONVERGE_WITHIN: Duration = Duration::from_secs(3600);

/// The port of the network.
const PORT: u16 = 22_000;
/// The pause between two starts.
const START_EVERY: Duration = Duration::from_millis(50);
/// The part of the time to settle in which HEREs are counted as those of the quiet state.
const QUIET: Duration = Duration::from_secs(600);
/// How long messages are sent.
const SENDING: Duration = Duration::from_secs(60);
/// The downtime of stopped nodes after the last message.
const AWAY: Duration = Duration::from_secs(300);

/// The settings of the scenario.
#[derive(Clone, Debug)]
pub struct MeshScenario {
    /// The number of nodes.
    pub nodes: u32,
    /// The most peers of each.
    pub peers_max: usize,
    /// The number of messages.
    pub messages: u32,
    /// The least length of each.
    pub message_bytes: usize,
    /// Which part of the nodes is away when the messages are sent.
    pub away: f64,
    /// Whether the stopped nodes lose power while messages are sent, so that their peers get no FIN.
    pub silent: bool,
    /// Whether the messages are plain: custody ends with the answer of the next node, and no receipt comes.
    pub plain: bool,
    /// The number of nodes that fail permanently after the ring has formed.
    pub deaths: u32,
    /// The next hops of a relay.
    pub forward: Forward,
    /// The number of random others that each node knows at first.
    pub seeds: u32,
    /// The seconds for the ring to form.
    pub settle_seconds: u64,
    /// Network and faults.
    pub conditions: Conditions,
    /// Whether the seed draws sizes and conditions.
    pub swarm: bool,
    /// A fault to build into the machine, to see that it is caught.
    pub broken: Option<Broken>,
}

impl Default for MeshScenario {
    fn default() -> Self {
        Self {
            nodes: 20,
            peers_max: 8,
            messages: 100,
            message_bytes: 0,
            away: 0.0,
            silent: false,
            plain: false,
            deaths: 0,
            forward: Forward::Nearest,
            seeds: 3,
            settle_seconds: 1800,
            conditions: Conditions::default(),
            swarm: false,
            broken: None,
        }
    }
}

/// The settings after the draws of the seed.
#[derive(Clone, Debug)]
struct World {
    nodes: u32,
    peers_max: usize,
    away: f64,
    conditions: Conditions,
}

impl Scenario for MeshScenario {
    type Machine = Mesh;
    type Checker = MeshChecker;

    fn name(&self) -> &'static str {
        "mesh"
    }

    fn setup(&self, seed: u64) -> Result<Setup<Mesh, MeshChecker>, Violation> {
        let mut rng = Rng::from_number(seed, stream_of::SCENARIO);
        let world = self.world(seed, &mut rng);
        if self.swarm {
            return Ok(self.setup_swarm(seed, &mut rng, &world));
        }
        let (nodes, peers_max) = (world.nodes, world.peers_max);
        let mut sim = self.nodes(seed, &world);
        let settled = START_EVERY * nodes + Duration::from_secs(self.settle_seconds);
        let faults_for = settled + SENDING + if world.away > 0.0 { AWAY } else { Duration::ZERO };
        let mut checker = MeshChecker::new(&world, settled.saturating_sub(QUIET), settled);
        let away = self.send_away(&mut sim, &mut rng, &world, settled);
        let dead = self.let_die(&mut sim, &mut rng, &away, settled);
        checker.dead = dead.iter().copied().collect();
        self.send(&mut sim, &mut rng, settled, (&away, &dead), &mut checker, seed);
        world.conditions.faults.schedule(seed, &mut sim, faults_for);
        let settings = json!({
            "max": peers_max, "messages": self.messages, "away": world.away, "seeds": self.seeds,
            "deaths": self.deaths,
            "forward": if self.forward == Forward::Both { "both" } else { "nearest" },
            "settle_seconds": self.settle_seconds, "swarm": self.swarm, "silent": self.silent,
            "plain": self.plain,
            "loss": world.conditions.config.network.loss, "faults": world.conditions.faults,
        });
        Ok(Setup { sim, checker, faults_for, converge_within: CONVERGE_WITHIN, settings })
    }
}

impl MeshScenario {
    /// A world of nodes that start one after the other.
    fn nodes(&self, seed: u64, world: &World) -> Sim<Mesh> {
        let (nodes, peers_max) = (world.nodes, world.peers_max);
        let (forward, seeds, fault, swarm) = (self.forward, self.seeds, self.broken, self.swarm);
        let mut sim = Sim::new(seed, world.conditions.config.clone(), move |birth| {
            let config = w3w::Config {
                uuid: uuid(seed, birth.host),
                bind: SocketAddrV4::new(v4(birth.address), PORT),
                seeds: seeds_of(seed, birth.host, nodes, seeds, swarm),
                peers_max,
                peers_min: 4,
                forward,
                fault,
                ..w3w::Config::default()
            };
            Mesh::new(&config, birth.seed).expect("the defaults of the mesh go together")
        });
        for index in 0..nodes {
            let host = sim.add_host_with(HostSpec { off: true, ..HostSpec::default() });
            sim.at(START_EVERY * index, Fault::Start(host));
        }
        sim
    }

    fn world(&self, seed: u64, rng: &mut Rng) -> World {
        if !self.swarm {
            let (nodes, peers_max, away) = (self.nodes, self.peers_max, self.away);
            return World { nodes, peers_max, away, conditions: self.conditions.clone() };
        }
        World {
            nodes: rng.between(2, u64::from(self.nodes.max(2))) as u32,
            peers_max: rng.between(4, 12) as usize,
            away: 0.0,
            conditions: swarm::conditions(seed, rng),
        }
    }

    /// Stops some nodes and restarts them later; returns them.
    fn send_away(&self, sim: &mut Sim<Mesh>, rng: &mut Rng, world: &World, settled: Duration) -> Vec<HostId> {
        let mut hosts: Vec<HostId> = sim.hosts().collect();
        rng.shuffle(&mut hosts);
        // At least one node must run to send.
        let count = ((f64::from(world.nodes) * world.away) as usize).min(hosts.len() - 1);
        hosts.truncate(count);
        for &host in &hosts {
            let at = if self.silent { settled + SENDING / 3 } else { settled };
            sim.at(at, Fault::Crash { host, power: self.silent, disk: DiskFate::UnsyncedLost });
            let back = rng.duration_below(AWAY / 2);
            sim.at(settled + SENDING + AWAY / 2 + back, Fault::Start(host));
        }
        hosts
    }

    /// Stops some of the other nodes for good; returns them.
    fn let_die(&self, sim: &mut Sim<Mesh>, rng: &mut Rng, away: &[HostId], settled: Duration) -> Vec<HostId> {
        let mut hosts: Vec<HostId> = sim.hosts().filter(|host| !away.contains(host)).collect();
        rng.shuffle(&mut hosts);
        // Two have to be left to send to each other.
        hosts.truncate((self.deaths as usize).min(hosts.len().saturating_sub(2)));
        for &host in &hosts {
            sim.at(settled, Fault::Crash { host, power: false, disk: DiskFate::UnsyncedLost });
        }
        hosts
    }

    fn send(
        &self,
        sim: &mut Sim<Mesh>,
        rng: &mut Rng,
        settled: Duration,
        (away, dead): (&[HostId], &[HostId]),
        checker: &mut MeshChecker,
        seed: u64,
    ) {
        let all: Vec<HostId> = sim.hosts().filter(|host| !dead.contains(host)).collect();
        let present: Vec<HostId> = all.iter().copied().filter(|host| !away.contains(host)).collect();
        for number in 0..self.messages {
            let (Some(&from), Some(&to)) = (rng.pick(&present), rng.pick(&all)) else { return };
            let mut data = format!("message {number} ").into_bytes();
            data.resize(data.len().max(self.message_bytes), b'.');
            // The stopped nodes are down by then, and their peers know it.
            let pause = SENDING / 6 + rng.duration_below(SENDING * 4 / 6);
            let (to_nid, data_sent) = (nid(seed, to), data.clone());
            let command = if self.plain {
                Command::Send { to: to_nid, data: data_sent, receipt: false }
            } else {
                let (lifetime, certain, receipt) = (None, true, false);
                Command::SendLetter { to: to_nid, data: data_sent, lifetime, certain, receipt }
            };
            let request = sim.command_after(settled + pause - sim.elapsed(), from, command);
            let prompt_from = (!away.contains(&to)).then_some(settled + pause);
            let plan = Plan { from, to, is_letter: !self.plain, is_long: true, prompt_from };
            checker.letters.expect(request, &data, plan);
        }
    }
}

/// The identity of a host, the same at each start.
fn uuid(seed: u64, host: HostId) -> [u8; 16] {
    // Far beyond the numbers of the other streams.
    let bytes = Rng::from_number(seed, (1 << 32) + host.index() as u64).seed();
    bytes.first_chunk().copied().unwrap_or_default()
}

fn nid(seed: u64, host: HostId) -> Nid {
    Nid::from_uuid(uuid(seed, host))
}

/// The seeds of a host: any hosts, started already or not. In a swarm the next one is among them, so that no node
/// knows itself alone.
fn seeds_of(seed: u64, host: HostId, nodes: u32, seeds: u32, swarm: bool) -> Vec<Ipv4Addr> {
    let mut rng = Rng::from_number(seed, (1 << 33) + host.index() as u64);
    let next = HostId::new((host.index() as u32 + 1) % nodes);
    let next = swarm.then(|| v4(crate::sim::address(next)));
    let drawn = (0..seeds).map(|_| v4(crate::sim::address(HostId::new(rng.below(nodes.into()) as u32))));
    drawn.chain(next).collect()
}

fn v4(address: IpAddr) -> Ipv4Addr {
    match address {
        IpAddr::V4(address) => address,
        IpAddr::V6(_) => Ipv4Addr::UNSPECIFIED,
    }
}
