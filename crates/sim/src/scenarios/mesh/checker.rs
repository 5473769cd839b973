//! The checker of the mesh: messages ([`Letters`]), rings, and the figures of the report.
//!
//! It checks D (no letter is lost), O (none is delivered twice), T (every state is true) and P (letters arrive soon)
//! under every fault. The excuses are constants and counted: [`DISKS_LOST`](super::DISKS_LOST) and
//! [`BOX_LOST`](super::BOX_LOST).

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use annulus_core::w3w::{BLOCKS, Event, Form, Key, Mesh, Nid, Reply, read_form};
use annulus_core::{RequestId, StreamId};
use serde_json::{Map, Value, json};

use super::World;
use super::graph::cut_nodes;
use super::letters::{Letters, SITUATIONS};
use super::trails::Trails;
use crate::disk::DiskFate;
use crate::fault::Step;
use crate::host::{HostId, HostState};
use crate::ledger::Ledger;
use crate::observer::{Observer, Verdict, Violation};
use crate::scenario::Checker;
use crate::sim::Sim;

/// The requests of withdrawals begin here: far beyond those that the simulation numbers.
const CANCELS: u64 = 1 << 40;
/// The interval between comparisons of disks while the nodes converge.
const COMPARE_EVERY: Duration = Duration::from_secs(10);

/// Watches all nodes.
pub struct MeshChecker {
    pub(super) letters: Letters,
    /// Requests whose messages are withdrawn this long after their answer.
    pub(super) withdrawals: BTreeMap<RequestId, Duration>,
    /// Withdrawals under way: request, sender and number.
    cancels: BTreeMap<RequestId, u64>,
    ledger: Ledger,
    /// A violation that was seen where none can be reported.
    seen: Option<Violation>,
    trails: Trails,
    hops: Vec<u32>,
    /// Hosts that have died for good.
    pub(super) dead: BTreeSet<HostId>,
    peers_max: usize,
    quiet: (Duration, Duration),
    calm_at: Duration,
    compared_at: Duration,
    here: (Option<u64>, Option<u64>),
    /// HEREs sent by machines that are gone.
    here_gone: u64,
    neighbours_exact: bool,
    /// How many nodes each held the rest together, before and after.
    cut_nodes: usize,
}

impl MeshChecker {
    pub(super) fn new(world: &World, quiet_from: Duration, quiet_until: Duration) -> Self {
        Self {
            letters: Letters::default(),
            withdrawals: BTreeMap::new(),
            cancels: BTreeMap::new(),
            ledger: Ledger::new(&SITUATIONS),
            seen: None,
            trails: Trails::default(),
            hops: Vec::new(),
            dead: BTreeSet::new(),
            peers_max: world.peers_max,
            quiet: (quiet_from, quiet_until),
            calm_at: Duration::ZERO,
            compared_at: Duration::ZERO,
            here: (None, None),
            here_gone: 0,
            neighbours_exact: false,
            cut_nodes: 0,
        }
    }

    /// Every block matches its key.
    fn check_blocks(sim: &Sim<Mesh>) -> Verdict {
        for host in sim.hosts() {
            for (key, value) in sim.disk(host).into_iter().flat_map(|disk| disk.entries(BLOCKS)) {
                if Key::of(value).to_bytes() != key {
                    return Err(Violation::new(format!("{host} has a block that does not hash to its key")));
                }
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

    /// Withdraws a message some time after its answer.
    fn withdraw_later(&mut self, sim: &Sim<Mesh>, host: HostId, request: RequestId, number: u64) {
        let Some(delay) = self.withdrawals.remove(&request) else { return };
        let cancel = RequestId(CANCELS + self.cancels.len() as u64);
        self.cancels.insert(cancel, number);
        let command = annulus_core::w3w::Command::Cancel { number };
        let call = move |sim: &mut Sim<Mesh>| sim.after(delay, Step::Command(host, cancel, command));
        sim.inject(Step::Call(Box::new(call)));
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
    if hosts.is_empty() {
        return Some(Vec::new());
    }
    Some(cut_nodes(&peers)?.into_iter().map(|index| hosts[index]).collect())
}

/// A node that is not connected to its neighbour, or a mesh that is not connected.
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
            Event::MessageReceived { message, data } => {
                let nid = sim.machine(host).map(Mesh::nid).unwrap_or_default();
                let payload = match read_form(data) {
                    Form::Letter(letter) => Key::of(letter.payload),
                    Form::Plain(payload) | Form::Ask { payload, .. } => Key::of(payload),
                    _ => message.key,
                };
                self.hops.extend(self.trails.hops(message.key, nid));
                self.letters.reported(sim, &mut self.ledger, host, payload)
            }
            Event::MessageStateChanged { number, state, .. } => {
                self.letters.state_changed(sim, &mut self.ledger, host, *number, *state)
            }
            Event::MessageForwarded { key, sender, from, to, .. } => {
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
        match reply {
            Reply::Sent { number, .. } => {
                self.withdraw_later(sim, host, request, *number);
                self.letters.acknowledged(sim, host, request, *number)
            }
            Reply::Cancelled { is_certain } => match self.cancels.get(&request) {
                Some(number) => self.letters.cancelled(host, *number, *is_certain),
                None => Ok(()),
            },
            _ => Ok(()),
        }
    }

    fn on_write(&mut self, sim: &Sim<Mesh>, host: HostId, _: StreamId, bytes: &[u8]) {
        if let Err(violation) = self.letters.wrote(sim, &mut self.ledger, host, bytes) {
            self.seen.get_or_insert(violation);
        }
    }

    fn on_crash(&mut self, sim: &Sim<Mesh>, host: HostId, _: DiskFate) {
        self.here_gone += sim.machine(host).map_or(0, |mesh| mesh.counted().here_sent);
    }
}

impl Checker<Mesh> for MeshChecker {
    fn check(&mut self, sim: &Sim<Mesh>) -> Verdict {
        if let Some(violation) = self.seen.take() {
            return Err(violation);
        }
        let at = sim.elapsed();
        if at >= self.quiet.0 && self.here.0.is_none() {
            self.here.0 = Some(self.here_sent(sim));
        }
        if at >= self.quiet.1 && self.here.1.is_none() {
            self.here.1 = Some(self.here_sent(sim));
            self.neighbours_exact = ring_fault(sim).is_none();
            self.cut_nodes = cut_by(sim).map_or(sim.len(), |cut| cut.len());
        }
        self.letters.check(sim, &mut self.ledger)?;
        if at.as_secs().is_multiple_of(10) { self.check_rings(sim) } else { Ok(()) }
    }

    fn on_calm(&mut self, sim: &Sim<Mesh>) {
        self.calm_at = sim.elapsed();
    }

    fn converged(&mut self, sim: &Sim<Mesh>) -> Result<(), String> {
        if sim.elapsed() >= self.compared_at + COMPARE_EVERY {
            self.compared_at = sim.elapsed();
            if let Err(violation) = self.check(sim) {
                self.seen = Some(violation);
                // The next look of the run reports it.
                return Ok(());
            }
        }
        let is_gone = |host: &HostId| self.dead.contains(host) || sim.is_dead(*host);
        let is_missing = |host: &HostId| sim.state(*host) != HostState::Up && !is_gone(host);
        if let Some(host) = sim.hosts().find(is_missing) {
            return Err(format!("{host} is down"));
        }
        if let Some(text) = self.letters.missing(sim) {
            return Err(text);
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
        Self::check_blocks(sim)
            .and_then(|()| self.letters.take_times(&mut self.ledger, self.calm_at))
            .map_err(|violation| violation.text)
    }

    fn ledger(&self) -> Option<&Ledger> {
        Some(&self.ledger)
    }

    fn measured(&mut self, sim: &Sim<Mesh>) -> Map<String, Value> {
        let (planned, delivered, undelivered) = self.letters.counts();
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
            "messages": planned,
            "delivered": delivered,
            "duplicates": self.letters.duplicates,
            "slowest_seconds": self.letters.slowest.as_secs_f64(),
            "undelivered_present": undelivered,
            "hops": { "mean": of(hops, self.hops.len()), "max": self.hops.iter().max().copied().unwrap_or(0) },
            "sends_per_message": of(self.trails.sends(), planned),
            "here_per_node_per_minute": here,
            "ring_neighbours_exact": self.neighbours_exact,
            "cut_nodes": self.cut_nodes,
        });
        measured.as_object().cloned().unwrap_or_default()
    }
}
