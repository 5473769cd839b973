//! The swarm: every fault, and messages that flow all the time (FA-32, FA-42).
//!
//! The seed draws the nodes, the conditions of [`Conditions::all_faults`] with lying disks, backups and new addresses,
//! and the messages: letters of short and long lifetimes, some of them withdrawn, and plain messages. Faults are aimed
//! at senders, custodians and recipients of open letters. Messages go on for a while after the last fault.

use core::time::Duration;

use annulus_core::Rng;
use annulus_core::w3w::{Command, Mesh, OUTBOX, QUEUE, listed_key, queued_key};
use serde_json::json;

use super::letters::Plan;
use super::{CONVERGE_WITHIN, MeshChecker, MeshScenario, World, nid};
use crate::aim::Aim;
use crate::conditions::Conditions;
use crate::host::HostId;
use crate::scenario::Setup;
use crate::sim::Sim;

/// The first message.
const FIRST: Duration = Duration::from_secs(10);
/// The longest time of faults, and the shortest.
const FAULTS_MAX: u64 = 900;
const FAULTS_MIN: u64 = 60;
/// The time with messages after the faults.
const AFTER: Duration = Duration::from_secs(60);
/// The lifetime of a letter that must arrive. Wall clocks jump by days, so it is longer than the default.
const LONG: Duration = Duration::from_secs(30 * 86_400);
/// The longest of the short ones.
const SHORT_MAX_SECONDS: u64 = 600;

/// The network and the faults that the seed draws.
pub(super) fn conditions(seed: u64, rng: &mut Rng) -> Conditions {
    let mut conditions = Conditions::all_faults(rng);
    conditions.faults.draw_moves(seed);
    let mut some = |most| if rng.chance(0.3) { rng.between(1, most) as u32 } else { 0 };
    let more = &mut conditions.faults.more;
    (more.disk_lies, more.rollbacks) = (some(2), some(2));
    conditions
}

/// A node that holds messages of others.
fn custodian(sim: &Sim<Mesh>, rng: &mut Rng) -> Option<HostId> {
    let holds = |host: &HostId| {
        let queue = sim.disk(*host).into_iter().flat_map(|disk| disk.entries(QUEUE));
        queue.filter(|(_, value)| queued_key(value).is_some()).count() > 0
    };
    let hosts: Vec<HostId> = sim.hosts().filter(holds).collect();
    rng.pick(&hosts).copied()
}

/// A node that has sent something.
fn sender(sim: &Sim<Mesh>, rng: &mut Rng) -> Option<HostId> {
    let has_sent = |host: &HostId| sim.disk(*host).is_some_and(|disk| disk.entries(OUTBOX).next().is_some());
    let hosts: Vec<HostId> = sim.hosts().filter(has_sent).collect();
    rng.pick(&hosts).copied()
}

/// A node that has received something.
fn recipient(sim: &Sim<Mesh>, rng: &mut Rng) -> Option<HostId> {
    let has_received = |host: &HostId| {
        let inbox = |disk: &crate::disk::Disk| {
            disk.entries(annulus_core::w3w::INBOX).any(|(_, value)| listed_key(value).is_some())
        };
        sim.disk(*host).is_some_and(inbox)
    };
    let hosts: Vec<HostId> = sim.hosts().filter(has_received).collect();
    rng.pick(&hosts).copied()
}

static AIMS: [Aim<Mesh>; 3] = [
    Aim { name: "custodian", find: custodian },
    Aim { name: "sender", find: sender },
    Aim { name: "recipient", find: recipient },
];

impl MeshScenario {
    pub(super) fn setup_swarm(&self, seed: u64, rng: &mut Rng, world: &World) -> Setup<Mesh, MeshChecker> {
        let mut sim = self.nodes(seed, world);
        let faults_for = Duration::from_secs(rng.between(FAULTS_MIN, FAULTS_MAX));
        let mut checker = MeshChecker::new(world, faults_for, faults_for);
        let hosts: Vec<HostId> = sim.hosts().collect();
        for number in 0..self.messages {
            let (Some(&from), Some(&to)) = (rng.pick(&hosts), rng.pick(&hosts)) else { break };
            let at = FIRST + rng.duration_below(faults_for + AFTER - FIRST);
            let mut data = format!("message {number} ").into_bytes();
            let padding = if rng.chance(0.1) { rng.below(8192) as usize } else { rng.below(200) as usize };
            data.resize(data.len() + padding, b'.');
            let is_letter = !self.plain && rng.chance(0.8);
            let is_long = rng.chance(0.7);
            let short = Duration::from_secs(rng.between(60, SHORT_MAX_SECONDS));
            let lifetime = Some(if is_long { LONG } else { short });
            let withdrawal = rng.chance(0.1).then(|| rng.duration_below(Duration::from_secs(30)));
            let command = if is_letter {
                let (certain, receipt) = (true, false);
                Command::SendLetter { to: nid(seed, to), data: data.clone(), lifetime, certain, receipt }
            } else {
                Command::Send { to: nid(seed, to), data: data.clone(), receipt: rng.chance(0.5) }
            };
            let request = sim.command_after(at, from, command);
            if let Some(delay) = withdrawal {
                checker.withdrawals.insert(request, delay);
            }
            checker.letters.expect(request, &data, Plan { from, to, is_letter, is_long, prompt_from: None });
        }
        world.conditions.faults.schedule_all(seed, &mut sim, faults_for, &AIMS);
        let settings = json!({
            "max": world.peers_max, "messages": self.messages, "seeds": self.seeds, "swarm": true,
            "faults_seconds": faults_for.as_secs(), "plain": self.plain,
            "loss": world.conditions.config.network.loss, "faults": world.conditions.faults,
        });
        Setup { sim, checker, faults_for, converge_within: CONVERGE_WITHIN, settings }
    }
}
