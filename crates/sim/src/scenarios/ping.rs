//! Nodes that ping each other: the scenario of [`annulus_core::ping`], and the template for another.
//!
//! Each node pings a few others that the seed chooses. The checker requires:
//!
//! - An answer is reported only for a ping that was sent in this run of the process, and once (PI-4, PI-5).
//! - A count that was reported as kept is never followed by a lower one, whatever crashes, unless the disk itself is
//!   lost (PI-14).
//! - When the faults have stopped, every node gets a pong from each of its peers within [`CONVERGE_WITHIN`].

use core::time::Duration;
use std::collections::VecDeque;
use std::net::SocketAddr;

use annulus_core::ping::{self, Message, Ping, decode};
use annulus_core::{Rng, StreamId};
use serde_json::json;

use crate::aim::Aim;
use crate::conditions::Conditions;
use crate::disk::DiskFate;
use crate::host::HostId;
use crate::observer::{Datagram, DatagramFate, Observer, Verdict, Violation};
use crate::scenario::{Checker, Scenario, Setup};
use crate::sim::{Sim, stream_of};

/// The longest time until a node has pongs from all its peers after the faults. It may be in a round over streams
/// that just failed. So this is two rounds, an answer and a start.
pub const CONVERGE_WITHIN: Duration = Duration::from_secs(5);

/// The port all nodes are bound to.
const PORT: u16 = 7001;

/// The settings of the scenario.
#[derive(Clone, Debug)]
pub struct PingScenario {
    /// The number of nodes.
    pub nodes: u32,
    /// The time with faults.
    pub seconds: u64,
    /// The number of peers that each node pings.
    pub peers: u32,
    /// The faults.
    pub conditions: Conditions,
    /// Whether the seed draws the number of nodes, up to `nodes`, and the conditions.
    pub swarm: bool,
    /// A fault to build into the machine, to see that it is caught.
    pub broken: Option<ping::Fault>,
}

impl Default for PingScenario {
    fn default() -> Self {
        Self {
            nodes: 10,
            seconds: 60,
            peers: 3,
            conditions: Conditions::default(),
            swarm: false,
            broken: None,
        }
    }
}

impl Scenario for PingScenario {
    type Machine = Ping;
    type Checker = PingChecker;

    fn name(&self) -> &'static str {
        "ping"
    }

    fn setup(&self, seed: u64) -> Result<Setup<Ping, PingChecker>, Violation> {
        let mut rng = Rng::from_number(seed, stream_of::SCENARIO);
        let (nodes, peers, conditions) = if self.swarm {
            let nodes = rng.between(2, u64::from(self.nodes.max(2))) as u32;
            (nodes, rng.between(1, 6) as u32, self.conditions.drawn(&mut rng))
        } else {
            (self.nodes, self.peers, self.conditions.clone())
        };
        let broken = self.broken;
        let mut sim = Sim::new(seed, conditions.config.clone(), move |birth| {
            let config = ping::Config {
                bind: SocketAddr::new(birth.address, PORT),
                peers: peers_of(seed, birth.host, nodes, peers),
                fault: broken,
                ..ping::Config::default()
            };
            Ping::new(&config, birth.seed).expect("the defaults of ping go together")
        });
        for _ in 0..nodes {
            sim.add_host();
        }
        let faults_for = Duration::from_secs(self.seconds);
        conditions.faults.put_into(seed, &mut sim, faults_for, &AIMS);
        let network = &conditions.config.network;
        let settings = json!({
            "peers": peers, "seconds": self.seconds, "swarm": self.swarm,
            "latency": network.latency.to_string(), "jitter_micros": network.jitter.as_micros() as u64,
            "loss": network.loss, "duplicate": network.duplicate, "reorder": network.reorder,
            "odd_chunks": conditions.config.stream.odd_chunks, "disk_failure": conditions.config.disk.failure,
            "faults": conditions.faults,
        });
        let checker = PingChecker::new(nodes as usize);
        Ok(Setup { sim, checker, faults_for, converge_within: CONVERGE_WITHIN, settings })
    }
}

/// Hits a host that another host pings.
static AIMS: [Aim<Ping>; 1] = [Aim { name: "neighbour", find: neighbour }];

fn neighbour(sim: &Sim<Ping>, rng: &mut Rng) -> Option<HostId> {
    let pinged: Vec<_> = sim.machines().flat_map(|(_, ping)| ping.peers()).map(|peer| peer.addr).collect();
    sim.host_at(rng.pick(&pinged)?.ip())
}

/// The peers of a node: the same at each of its starts.
fn peers_of(seed: u64, host: HostId, nodes: u32, peers: u32) -> Vec<SocketAddr> {
    let own = host.index() as u64;
    // Far beyond the numbers of the other streams.
    let mut rng = Rng::from_number(seed, (1 << 32) + own);
    let others = u64::from(nodes - 1);
    let mut chosen = Vec::new();
    while (chosen.len() as u64) < u64::from(peers).min(others) {
        let other = rng.below(others);
        let peer = HostId::new((other + u64::from(other >= own)) as u32);
        let addr = SocketAddr::new(crate::sim::address(peer), PORT);
        if !chosen.contains(&addr) {
            chosen.push(addr);
        }
    }
    chosen
}

/// Watches all nodes.
pub struct PingChecker {
    nodes: Vec<Watched>,
    calm: bool,
}

/// The state of one node.
#[derive(Default)]
struct Watched {
    /// The pings it has sent lately, numbered from `first`: whether each was answered.
    sent: VecDeque<bool>,
    first: u64,
    /// The highest count it has reported as kept.
    kept: u64,
    /// The peers with a pong since the faults stopped, a bit for each.
    heard: u64,
}

/// Pings remembered of one node: more than can be under way, so that a forgotten ping cannot be answered.
const REMEMBERED: usize = 256;

impl PingChecker {
    fn new(nodes: usize) -> Self {
        Self { nodes: (0..nodes).map(|_| Watched::default()).collect(), calm: false }
    }

    fn sent(&mut self, host: HostId, bytes: &[u8]) {
        let Ok(Message::Ping { sequence }) = decode(bytes) else { return };
        let node = &mut self.nodes[host.index()];
        if node.sent.is_empty() {
            node.first = sequence;
        }
        // Pings that a starved host could not send are as good as answered: no answer to them may come.
        let ahead = sequence.wrapping_sub(node.first) as usize;
        if ahead >= node.sent.len() && ahead - node.sent.len() < REMEMBERED {
            node.sent.resize(ahead, true);
            node.sent.push_back(false);
        }
        while node.sent.len() > REMEMBERED {
            node.sent.pop_front();
            node.first = node.first.wrapping_add(1);
        }
    }

    fn answered(&mut self, sim: &Sim<Ping>, host: HostId, peer: SocketAddr, sequence: u64) -> Verdict {
        let node = &mut self.nodes[host.index()];
        let index = sequence.wrapping_sub(node.first) as usize;
        match node.sent.get_mut(index) {
            None => {
                let text = format!("{host} reports an answer to ping {sequence}, which it never sent");
                return Err(Violation::new(text));
            }
            Some(true) => {
                return Err(Violation::new(format!("{host} reports a second answer to ping {sequence}")));
            }
            Some(answered) => *answered = true,
        }
        if self.calm
            && let Some(machine) = sim.machine(host)
            && let Some(index) = machine.peers().iter().position(|status| status.addr == peer)
        {
            node.heard |= 1 << (index % 64);
        }
        Ok(())
    }
}

impl Observer<Ping> for PingChecker {
    fn on_event(&mut self, sim: &Sim<Ping>, host: HostId, event: &ping::Event) -> Verdict {
        let node = &mut self.nodes[host.index()];
        match *event {
            ping::Event::PingAnswered { peer, sequence, .. } => self.answered(sim, host, peer, sequence),
            ping::Event::CountKept { count } | ping::Event::CountLoaded { count } => {
                if count < node.kept {
                    let kept = node.kept;
                    let text = format!("{host} has a count of {count} though {kept} was reported as kept");
                    return Err(Violation::new(text));
                }
                if matches!(event, ping::Event::CountKept { .. }) {
                    node.kept = count;
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn on_start(&mut self, _: &Sim<Ping>, host: HostId) {
        self.nodes[host.index()].sent.clear();
    }

    fn on_crash(&mut self, _: &Sim<Ping>, host: HostId, disk: DiskFate) {
        if disk == DiskFate::Lost {
            self.nodes[host.index()].kept = 0;
        }
    }

    fn on_datagram(&mut self, _: &Sim<Ping>, datagram: Datagram<'_>) -> DatagramFate {
        self.sent(datagram.host, datagram.bytes);
        DatagramFate::Pass
    }

    fn on_write(&mut self, _: &Sim<Ping>, host: HostId, stream: StreamId, bytes: &[u8]) {
        if !stream.is_accepted() {
            self.sent(host, bytes);
        }
    }
}

impl Checker<Ping> for PingChecker {
    fn on_calm(&mut self, _: &Sim<Ping>) {
        self.calm = true;
    }

    fn converged(&mut self, sim: &Sim<Ping>) -> Result<(), String> {
        let is_dead = |addr: &SocketAddr| sim.host_at(addr.ip()).is_some_and(|host| sim.is_dead(host));
        for host in sim.hosts().filter(|host| !sim.is_dead(*host)) {
            let Some(machine) = sim.machine(host) else { return Err(format!("{host} is down")) };
            let heard = self.nodes[host.index()].heard;
            for (index, peer) in machine.peers().iter().enumerate() {
                if heard & (1 << (index % 64)) == 0 && !is_dead(&peer.addr) {
                    return Err(format!("{host} has not heard from {}", peer.addr));
                }
            }
        }
        Ok(())
    }
}
