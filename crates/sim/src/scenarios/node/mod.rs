//! Whole nodes: all services in one process, under all faults at once (FA-44).
//!
//! A paused process pauses all services together, and each service learns from the others. Beside every node runs an
//! application that takes routed messages at its own speed (FA-21). Load goes on through all phases (FA-32). The checker
//! requires under all faults:
//!
//! - The fences that a node takes grow, also over restarts. A lost disk excuses it: [`DISK_LOST`].
//! - No two nodes hold one turn at one moment (X). A clock that stopped excuses it: `FROZEN_CLOCK`.
//! - The fences of exclusive turns of one name grow from turn to turn, whichever node has it. A lost disk of a voter excuses it.
//! - A letter that its sender sees confirmed is on the disk of its recipient.
//! - An application has finished every message that its sender sees delivered, and none that its sender sees failed.
//!
//! When the faults have stopped:
//!
//! - A node that has gone for good leaves the tables of the living in time: [`DEAD_FORGOTTEN`].
//! - The living know each other as alive, their leaf sets are exact, and each has peers in the mesh: [`WHOLE`].
//! - All of them are in the ring of one token: [`ONE_TOKEN`].

mod checker;
mod exclusive;

use core::time::Duration;
use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;

use annulus_core::node::services::{MESH, ROUTE, TURNS};
use annulus_core::node::{Assembly, Command, MEMBERS_PORT, Node, Part, PartCommand};
use annulus_core::pastry::{AppName, Liveness, Pastry};
use annulus_core::turns::{self, Lock, TurnId};
use annulus_core::w3w::{self, Mesh};
use annulus_core::{Id, Rng, Service};
use serde_json::json;

use crate::aim::Aim;
use crate::causes::Cause;
use crate::conditions::Conditions;
use crate::fault::Step;
use crate::host::{Birth, HostId};
use crate::ledger::{Excuse, Promise};
use crate::observer::Violation;
use crate::scenario::{Scenario, Setup};
use crate::sim::{NETWORK_BROADCAST, Sim, stream_of};

pub use checker::NodeChecker;
use checker::Outside;

/// The number of the first nodes that vote.
const VOTERS: u8 = 3;
/// The turns that all nodes request: a lock, and the turn of the ring, for which a node waits for the token first
/// (TU-29).
const NAMES: [&str; 2] = ["billing", ""];
/// The second in which the load begins.
const FIRST_SECOND: u64 = 5;
/// The interval between steps of the applications.
const TICK: Duration = Duration::from_millis(10);

/// A node that lost its disk knows of no fence it took.
pub const DISK_LOST: Excuse = Excuse {
    name: "DISK_LOST",
    because: "a node without its disk cannot know which fences it took",
    needs: &[Cause::DiskLost],
    // A disk that was lost at any time of the run; the use itself has no length.
    reach: Duration::from_secs(86_400),
    most_per_run: 8,
    each_at_most: Duration::ZERO,
};

/// The time until running nodes forget a node that stopped for good, after the other faults.
pub const DEAD_FORGOTTEN: Promise =
    Promise { name: "dead_forgotten", prompt: Duration::from_secs(60), at_last: Duration::from_secs(300) };

/// The time until the running nodes converge after the faults.
pub const WHOLE: Promise =
    Promise { name: "whole", prompt: Duration::from_secs(120), at_last: Duration::from_secs(600) };

/// How soon the living are in the ring of one token. Two rings that lost each other meet again when a node of one seeks those
/// that its list does not have.
pub const ONE_TOKEN: Promise =
    Promise { name: "one_token", prompt: Duration::from_secs(360), at_last: Duration::from_secs(600) };

/// The settings of the scenario.
#[derive(Clone, Debug)]
pub struct NodeScenario {
    /// The number of nodes; with `swarm`, the largest number.
    pub nodes: u32,
    /// The time with faults.
    pub seconds: u64,
    /// Network and faults.
    pub conditions: Conditions,
    /// Whether the seed draws all faults, instead.
    pub every_fault: bool,
    /// Whether the seed draws the number of nodes and all faults.
    pub swarm: bool,
    /// Nodes without `members`, so that no service gets its events: to see that the checker notices.
    pub deaf: bool,
    /// Nodes that each vote alone on their own turns: to see that the checker notices.
    pub lone_voters: bool,
}

impl Default for NodeScenario {
    fn default() -> Self {
        let conditions = Conditions::default();
        let (every_fault, swarm, deaf, lone_voters) = (false, false, false, false);
        Self { nodes: 8, seconds: 120, conditions, every_fault, swarm, deaf, lone_voters }
    }
}

/// A node of all services, as the builder of the library assembles it. With `deaf` the services get no events of
/// members, and `route` sends its own probes.
fn node(birth: &Birth<'_>, deaf: bool, lone_voters: bool) -> Node {
    let is_first = birth.host.index() == 0;
    let own = SocketAddr::new(birth.address, MEMBERS_PORT);
    let first_three = (1..=3).map(|n| SocketAddr::from(([10, 0, 0, n], MEMBERS_PORT)));
    let mut voters: Vec<SocketAddr> =
        (1..=VOTERS).map(|n| SocketAddr::from(([10, 0, 0, n], turns::PORT))).collect();
    if lone_voters {
        voters = vec![SocketAddr::new(birth.address, turns::PORT)];
    }
    let mut node = Assembly::new(uuid_of(birth.host));
    node.name = birth.host.to_string();
    node.bind = birth.address;
    node.seeds = first_three.filter(|seed| *seed != own).collect();
    node.has_seeds = !is_first;
    node.broadcast = vec![NETWORK_BROADCAST.into()];
    node.members = if deaf { None } else { Some(Box::new(|_| {})) };
    node.route = Some(Box::new(|route| {
        route.liveness = Liveness::Members;
        route.applications = vec![AppName::default()];
    }));
    node.token = Some(Box::new(|_| {}));
    node.mesh = Some(Box::new(|_| {}));
    node.turns = Some(Box::new(|turns| turns.voters = voters));
    let seed = |service: Service| {
        let mut seed = birth.seed;
        seed[31] ^= service.0;
        seed
    };
    node.build(seed).expect("the configuration is valid")
}

/// The identity of a host.
fn uuid_of(host: HostId) -> [u8; 16] {
    (host.index() as u128 + 1).to_be_bytes()
}

/// A letter and a wish for the lock in every second until the end, at hosts that the seed draws.
fn load(sim: &mut Sim<Node>, nodes: u64, seconds: u64, rng: &mut Rng) {
    for second in FIRST_SECOND..seconds {
        let delay = Duration::from_secs(second) + rng.duration_below(Duration::from_secs(1));
        let mut any = || HostId::new(rng.below(nodes) as u32);
        let (from, to, wishes) = (any(), any(), any());
        if from != to {
            let data = format!("letter {second}").into_bytes();
            let (to, lifetime, certain, receipt) = (w3w::Nid::from_uuid(uuid_of(to)), None, true, true);
            let letter = w3w::Command::SendLetter { to, data, lifetime, certain, receipt };
            sim.command_after(delay, from, Command { service: MESH, command: PartCommand::Mesh(letter) });
        }
        let lock = Lock {
            name: NAMES[second as usize % NAMES.len()].into(),
            turn: TurnId(u128::from(second)),
            wait: Duration::from_secs(10),
            limit: Duration::from_secs(2),
            attended: false,
        };
        let command = PartCommand::Turns(turns::Command::Lock(lock));
        sim.command_after(delay, wishes, Command { service: TURNS, command });
    }
}

/// Lets the applications beside the nodes work, again and again.
fn tick(sim: &mut Sim<Node>, outside: Rc<RefCell<Outside>>) {
    let step = move |sim: &mut Sim<Node>| {
        outside.borrow_mut().tick(sim);
        tick(sim, outside);
    };
    sim.after(TICK, Step::Call(Box::new(step)));
}

fn route(node: &Node) -> Option<&Pastry> {
    node.parts().iter().find_map(|(_, part)| match part {
        Part::Route(pastry) => Some(&**pastry),
        _ => None,
    })
}

fn mesh(node: &Node) -> Option<&Mesh> {
    node.parts().iter().find_map(|(_, part)| match part {
        Part::Mesh(mesh) => Some(&**mesh),
        _ => None,
    })
}

/// A leaf of the first running node that has one.
fn neighbour(sim: &Sim<Node>, rng: &mut Rng) -> Option<HostId> {
    let hosts: Vec<HostId> = sim
        .machines()
        .filter(|(_, node)| route(node).is_some_and(Pastry::is_active))
        .map(|(host, _)| host)
        .collect();
    rng.pick(&hosts).copied()
}

static AIMS: [Aim<Node>; 1] = [Aim { name: "neighbour", find: neighbour }];

impl Scenario for NodeScenario {
    type Machine = Node;
    type Checker = NodeChecker;

    fn name(&self) -> &'static str {
        "node"
    }

    fn setup(&self, seed: u64) -> Result<Setup<Node, NodeChecker>, Violation> {
        let mut rng = Rng::from_number(seed, stream_of::SCENARIO);
        let nodes = if self.swarm { rng.between(3, self.nodes.max(3).into()) as u32 } else { self.nodes };
        let is_drawn = self.swarm || self.every_fault;
        let conditions = if is_drawn { Conditions::all_faults(&mut rng) } else { self.conditions.clone() };
        let (deaf, lone) = (self.deaf, self.lone_voters);
        let mut sim = Sim::new(seed, conditions.config.clone(), move |birth| node(&birth, deaf, lone));
        for _ in 0..nodes {
            sim.add_host();
        }
        let faults_for = Duration::from_secs(self.seconds);
        let outside = Rc::new(RefCell::new(Outside::new(nodes, seed, !deaf)));
        tick(&mut sim, Rc::clone(&outside));
        if !deaf {
            load(&mut sim, nodes.into(), self.seconds + WHOLE.prompt.as_secs(), &mut rng);
        }
        conditions.faults.schedule_all(seed, &mut sim, faults_for, &AIMS);
        let settings = json!({
            "seconds": self.seconds, "swarm": self.swarm, "every_fault": self.every_fault, "loss": conditions.config.network.loss,
            "rto_max_seconds": conditions.config.stream.rto_max.as_secs_f64(), "faults": conditions.faults,
        });
        let checker = NodeChecker::new(nodes as usize, outside);
        Ok(Setup { sim, checker, faults_for, converge_within: WHOLE.at_last, settings })
    }

    fn runs_twice(&self) -> bool {
        true
    }
}

fn id_of(host: HostId) -> Id {
    Id::from_uuid(uuid_of(host))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::{Lines, run};

    #[test]
    fn fa_44_whole_nodes_keep_their_promises_under_all_faults() {
        let scenario = NodeScenario { nodes: 6, seconds: 40, swarm: true, ..NodeScenario::default() };
        let mut delivered = 0.0;
        for seed in 1..=20 {
            let report = run(&scenario, seed, Lines::default());
            assert!(report.ok, "seed {seed}: {:?}", report.violation);
            assert!(report.entries.promises.contains_key("whole"));
            delivered += report.entries.exercised["message_delivered"];
        }
        assert!(delivered > 10.0, "messages were delivered in {delivered} of 20 runs");
    }

    #[test]
    fn fa_44_nodes_that_have_one_turn_at_once_are_caught() {
        let scenario = NodeScenario { nodes: 4, seconds: 20, lone_voters: true, ..NodeScenario::default() };
        let mut found = (1..=20).filter_map(|seed| run(&scenario, seed, Lines::default()).violation);
        assert!(found.any(|violation| violation.contains("X: ")), "one of twenty seeds finds it");
    }

    /// The ring splits and merges while turns of it are held, with the voters on one side or on both (TU-30, TU-31).
    #[test]
    fn tuf_13_a_ring_splits_and_merges_under_its_turns() {
        let mut conditions = Conditions::default();
        (conditions.faults.partitions, conditions.faults.cuts) = (6, 6);
        let scenario = NodeScenario { nodes: 5, seconds: 90, conditions, ..NodeScenario::default() };
        for seed in 1..=10 {
            let report = run(&scenario, seed, Lines::default());
            assert!(report.ok, "seed {seed}: {:?}", report.violation);
            assert_eq!(report.entries.exercised["took_ring_turn"], 1.0, "seed {seed}");
        }
    }

    #[test]
    fn fa_44_nodes_without_events_of_members_are_caught() {
        let scenario = NodeScenario { nodes: 4, seconds: 5, deaf: true, ..NodeScenario::default() };
        let report = run(&scenario, 1, Lines::default());
        let violation = report.violation.unwrap_or_default();
        assert!(violation.contains("not converged") || violation.contains("joined"), "{violation}");
    }
}
