//! Who watches the mesh.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use annulus_core::RequestId;
use annulus_core::w3w::{BLOCKS, Event, Key, Mesh, Nid, Reply};
use serde_json::{Map, Value, json};

use super::graph::cut_nodes;
use super::trails::Trails;
use super::{MeshScenario, World};
use crate::disk::DiskFate;
use crate::host::{HostId, HostState};
use crate::observer::{Observer, Verdict, Violation};
use crate::scenario::Checker;
use crate::sim::Sim;

/// A message of the scenario.
struct Expected {
    from: HostId,
    to: HostId,
    key: Key,
    is_acknowledged: bool,
    delivered: u32,
}

/// Watches all nodes.
pub struct MeshChecker {
    expected: Vec<Expected>,
    by_request: BTreeMap<RequestId, usize>,
    by_key: BTreeMap<Key, usize>,
    trails: Trails,
    hops: Vec<u32>,
    duplicates: u64,
    /// Hosts that may deliver again: what they remembered is lost.
    forgetful: BTreeSet<HostId>,
    /// Hosts that have died for good.
    pub(super) dead: BTreeSet<HostId>,
    peers_max: usize,
    quiet: (Duration, Duration),
    here: (Option<u64>, Option<u64>),
    is_gentle: bool,
    /// HEREs sent by machines that are gone.
    here_gone: u64,
    neighbours_exact: bool,
    /// How many nodes each held the rest together, before and after.
    cut_nodes: usize,
}

impl MeshChecker {
    pub(super) fn new(
        _: &MeshScenario,
        world: &World,
        quiet_from: Duration,
        quiet_until: Duration,
        is_gentle: bool,
    ) -> Self {
        Self {
            expected: Vec::new(),
            by_request: BTreeMap::new(),
            by_key: BTreeMap::new(),
            trails: Trails::default(),
            hops: Vec::new(),
            duplicates: 0,
            forgetful: BTreeSet::new(),
            dead: BTreeSet::new(),
            peers_max: world.peers_max,
            quiet: (quiet_from, quiet_until),
            here: (None, None),
            is_gentle,
            here_gone: 0,
            neighbours_exact: false,
            cut_nodes: 0,
        }
    }

    /// A message will be sent.
    pub(super) fn expects(&mut self, request: RequestId, from: HostId, to: HostId, data: &[u8]) {
        let key = Key::of(data);
        self.by_request.insert(request, self.expected.len());
        self.by_key.insert(key, self.expected.len());
        self.expected.push(Expected { from, to, key, is_acknowledged: false, delivered: 0 });
    }

    fn received(&mut self, host: HostId, nid: Nid, key: Key) -> Verdict {
        let Some(message) = self.by_key.get(&key).and_then(|index| self.expected.get_mut(*index)) else {
            return Err(Violation::new(format!("{host} was given {key}, which nobody sent")));
        };
        if message.to != host {
            return Err(Violation::new(format!("{host} was given {key}, which is for {}", message.to)));
        }
        message.delivered += 1;
        if message.delivered == 1 {
            self.hops.extend(self.trails.hops(key, nid));
        } else {
            self.duplicates += 1;
            if !self.forgetful.contains(&host) {
                return Err(Violation::new(format!("{host} was given {key} twice")));
            }
        }
        Ok(())
    }

    /// Whatever was acknowledged is there, and everything there is what it says.
    fn check_disk(&self, sim: &Sim<Mesh>, host: HostId) -> Verdict {
        let disk = sim.disk(host);
        for message in self.expected.iter().filter(|message| message.from == host && message.is_acknowledged)
        {
            let is_there = disk.and_then(|disk| disk.value(BLOCKS, &message.key.to_bytes())).is_some();
            if !is_there && !self.forgetful.contains(&host) {
                let key = message.key;
                return Err(Violation::new(format!("{host} has lost {key}, which it had acknowledged")));
            }
        }
        for (key, value) in disk.into_iter().flat_map(|disk| disk.entries(BLOCKS)) {
            if Key::of(value).to_bytes() != key {
                return Err(Violation::new(format!("{host} has a block that does not hash to its key")));
            }
        }
        Ok(())
    }

    fn check_rings(&self, sim: &Sim<Mesh>) -> Verdict {
        for (host, mesh) in sim.machines() {
            let peers = mesh.peers();
            if peers.len() > self.peers_max + 1 {
                return Err(Violation::new(format!("{host} has {} peers", peers.len())));
            }
            if !peers.windows(2).all(|pair| pair[0].nid < pair[1].nid) {
                return Err(Violation::new(format!("the ring of {host} is not ascending")));
            }
        }
        Ok(())
    }

    fn here_sent(&self, sim: &Sim<Mesh>) -> u64 {
        self.here_gone + sim.machines().map(|(_, mesh)| mesh.counted().here_sent).sum::<u64>()
    }
}

/// Each node without which the others would not all be connected; `None` if they are not.
fn cut_by(sim: &Sim<Mesh>) -> Option<Vec<HostId>> {
    let hosts: Vec<HostId> = sim.machines().map(|(host, _)| host).collect();
    let index: BTreeMap<Nid, usize> =
        sim.machines().enumerate().map(|(index, (_, mesh))| (mesh.nid(), index)).collect();
    let mut peers = vec![Vec::new(); hosts.len()];
    for (one, (_, mesh)) in sim.machines().enumerate() {
        for other in mesh.peers().iter().filter_map(|peer| index.get(&peer.nid).copied()) {
            peers[one].push(other);
            peers[other].push(one);
        }
    }
    Some(cut_nodes(&peers)?.into_iter().map(|index| hosts[index]).collect())
}

/// Who is not connected to its neighbour, or that all are not connected to each other.
fn ring_fault(sim: &Sim<Mesh>) -> Option<String> {
    let order: BTreeMap<Nid, (HostId, &Mesh)> =
        sim.machines().map(|(host, mesh)| (mesh.nid(), (host, mesh))).collect();
    let nids: Vec<Nid> = order.keys().copied().collect();
    for (index, nid) in nids.iter().enumerate() {
        let (host, mesh) = order[nid];
        let older = nids[(index + 1) % nids.len()];
        let younger = nids[(index + nids.len() - 1) % nids.len()];
        let peers = mesh.peers();
        let has = |other: Nid| other == *nid || peers.iter().any(|peer| peer.nid == other);
        if !has(older) || !has(younger) {
            let missing = if has(older) { younger } else { older };
            let (other, its) = order[&missing];
            let (ours, its) = (peers.len(), its.peers().len());
            return Some(format!(
                "{host} ({ours} peers) is not connected to its neighbour {other} ({its} peers)"
            ));
        }
    }
    None
}

impl Observer<Mesh> for MeshChecker {
    fn on_event(&mut self, sim: &Sim<Mesh>, host: HostId, event: &Event) -> Verdict {
        match event {
            Event::MessageReceived { message, .. } => {
                let nid = sim.machine(host).map(Mesh::nid).unwrap_or_default();
                self.received(host, nid, message.key)
            }
            Event::MessagePassedOn { key, sender, from, to, .. } => {
                let at = sim.machine(host).map(Mesh::nid).unwrap_or_default();
                if from.is_none() && *sender == at {
                    self.trails.watch(*key, at);
                }
                self.trails.passed_on(*key, at, to);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn on_reply(&mut self, sim: &Sim<Mesh>, host: HostId, request: RequestId, reply: &Reply) -> Verdict {
        if let (Some(index), Reply::Sent { .. }) = (self.by_request.get(&request), reply) {
            self.expected[*index].is_acknowledged = true;
            return self.check_disk(sim, host);
        }
        Ok(())
    }

    fn on_crash(&mut self, sim: &Sim<Mesh>, host: HostId, disk: DiskFate) {
        self.here_gone += sim.machine(host).map_or(0, |mesh| mesh.counted().here_sent);
        if disk == DiskFate::Lost {
            self.forgetful.insert(host);
        }
    }
}

impl Checker<Mesh> for MeshChecker {
    fn check(&mut self, sim: &Sim<Mesh>) -> Verdict {
        let at = sim.elapsed();
        if at >= self.quiet.0 && self.here.0.is_none() {
            self.here.0 = Some(self.here_sent(sim));
        }
        if at >= self.quiet.1 && self.here.1.is_none() {
            self.here.1 = Some(self.here_sent(sim));
            self.neighbours_exact = ring_fault(sim).is_none();
            self.cut_nodes = cut_by(sim).map_or(sim.len(), |cut| cut.len());
        }
        if at.as_secs().is_multiple_of(10) { self.check_rings(sim) } else { Ok(()) }
    }

    fn on_calm(&mut self, _: &Sim<Mesh>) {}

    fn converged(&mut self, sim: &Sim<Mesh>) -> Result<(), String> {
        let is_missing = |host: &HostId| sim.state(*host) != HostState::Up && !self.dead.contains(host);
        if let Some(host) = sim.hosts().find(is_missing) {
            return Err(format!("{host} is down"));
        }
        if self.is_gentle
            && let Some(message) = self.expected.iter().find(|message| message.delivered == 0)
        {
            let Expected { from, to, key, .. } = message;
            return Err(format!("{key} from {from} has not reached {to}"));
        }
        if let Some(fault) = ring_fault(sim) {
            return Err(fault);
        }
        self.neighbours_exact = true;
        match cut_by(sim) {
            None => return Err(String::from("the nodes are not all connected")),
            Some(cut) => {
                self.cut_nodes = cut.len();
                if let Some(host) = cut.first() {
                    return Err(format!("without {host} the others would not all be connected"));
                }
            }
        }
        let hosts: Vec<HostId> = sim.hosts().collect();
        hosts.into_iter().try_for_each(|host| self.check_disk(sim, host)).map_err(|violation| violation.text)
    }

    fn measured(&mut self, sim: &Sim<Mesh>) -> Map<String, Value> {
        let delivered = self.expected.iter().filter(|message| message.delivered > 0).count();
        let is_lost = |message: &&Expected| message.delivered == 0 && message.is_acknowledged;
        let undelivered = self.expected.iter().filter(is_lost).count();
        let hops: u64 = self.hops.iter().map(|hops| u64::from(*hops)).sum();
        let of = |sum: u64, count: usize| if count == 0 { 0.0 } else { sum as f64 / count as f64 };
        let minutes = (self.quiet.1 - self.quiet.0).as_secs_f64() / 60.0;
        let here = match self.here {
            (Some(before), Some(after)) if minutes > 0.0 => {
                (after - before) as f64 / minutes / sim.len() as f64
            }
            _ => 0.0,
        };
        let measured = json!({
            "messages": self.expected.len(),
            "delivered": delivered,
            "duplicates": self.duplicates,
            "undelivered_present": undelivered,
            "hops": { "mean": of(hops, self.hops.len()), "max": self.hops.iter().max().copied().unwrap_or(0) },
            "sends_per_message": of(self.trails.sends(), self.expected.len()),
            "here_per_node_per_minute": here,
            "ring_neighbours_exact": self.neighbours_exact,
            "cut_nodes": self.cut_nodes,
        });
        measured.as_object().cloned().unwrap_or_default()
    }
}
