//! Exclusive turns: nodes request one name from voters, and runners act on their turns (TUF-1 … TUF-13).
//!
//! Checked all the time, under all faults:
//!
//! - **X** no two commands of the name run at one moment of true time;
//! - **F** fences rise in the order of grants;
//! - **R** a resource that checks fences accepts none after a higher one;
//! - **E** no node is granted a turn while another has one.
//!
//! After the last fault **V** holds: a waiting request is granted within a lease and four seconds, by the slowest clock.
//! X has two excuses, counted in the report: [`FROZEN_CLOCK`] and [`GUARD_STOPPED`]. E has the first of them. V has one:
//! [`VOTERS_LOST`].
//!
//! With the fault model v2 a seed draws all faults of [`Conditions::all_faults`] beside one [`Trouble`]. A third of them
//! hit the holder or a voter. Processes beside the agents are stopped and killed all the time. With v1 it draws the trouble
//! and the noise of the network only.

mod checker;
mod group;
mod plan;
mod processes;
mod resource;
mod runner;
#[cfg(test)]
mod tests;

use core::time::Duration;
use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;

use annulus_core::turns::{Config, Fault, PORT, Standing, Turns};
use annulus_core::{Id, Rng};
use serde_json::json;

pub use checker::TurnsChecker;
use group::Group;
pub use group::VOTERS_LOST;
pub use plan::Trouble;
pub use runner::{FROZEN_CLOCK, GUARD_STOPPED, guard_alone};
use runner::{Runner, TICK};

use crate::aim::Aim;
use crate::conditions::{Conditions, FaultModel, FaultPlan};
use crate::fault::Step;
use crate::host::HostId;
use crate::observer::Violation;
use crate::scenario::{Scenario, Setup};
use crate::sim::{Sim, stream_of};

/// The one name that all nodes request.
pub(crate) const NAME: &str = "billing";

/// The number of nodes of a crowd, and its loss rate (TUF-10).
const CROWD: u32 = 64;
const CROWD_LOSS: f64 = 0.05;

/// A second more than a lease and three seconds: the clients ask anew within one.
const CONVERGE_AFTER_LEASE: Duration = Duration::from_secs(4);

/// The settings of the scenario.
#[derive(Clone, Debug)]
pub struct TurnsScenario {
    /// The number of nodes.
    pub nodes: u32,
    /// The number of them that vote.
    pub voters: u32,
    /// The time with faults.
    pub seconds: u64,
    /// The length of a lease.
    pub lease: Duration,
    /// The longest run of a command.
    pub longest: Duration,
    /// Network and faults.
    pub conditions: Conditions,
    /// Aimed faults beside them; drawn by the seed if not given, and if no other fault is.
    pub trouble: Option<Trouble>,
    /// The greatest drift of a clock by the trouble, in parts per million.
    pub drift_ppm: u32,
    /// Whether the seed also draws the conditions, and with the fault model v2 the number of nodes, up to `nodes`, and of
    /// voters.
    pub swarm: bool,
    /// A fault to build into the machine, to see that it is caught.
    pub broken: Option<Fault>,
}

/// The longest sync that a disk draws (FA-11), and some of its usual time.
const SYNC_MAX: Duration = Duration::from_secs(31);

/// Streams of randomness of the conditions, and of processes and disks.
const NOISE: u64 = 1 << 32;
const PROCESSES: u64 = 2 << 32;

/// The most voters that a seed draws.
const VOTERS_MAX: u32 = 5;

impl Default for TurnsScenario {
    fn default() -> Self {
        Self {
            nodes: 5,
            voters: 3,
            seconds: 120,
            lease: Duration::from_secs(10),
            longest: Duration::from_secs(12),
            conditions: Conditions::default(),
            trouble: None,
            drift_ppm: 100_000,
            swarm: false,
            broken: None,
        }
    }
}

impl Scenario for TurnsScenario {
    type Machine = Turns;
    type Checker = TurnsChecker;

    fn name(&self) -> &'static str {
        "turns"
    }

    fn setup(&self, seed: u64) -> Result<Setup<Turns, TurnsChecker>, Violation> {
        let mut rng = Rng::from_number(seed, stream_of::SCENARIO);
        let drawn = self.drawn(seed, &mut rng);
        let (trouble, conditions) = (drawn.trouble.unwrap_or(Trouble::None), &drawn.conditions);
        let mut sim = drawn.world(seed, &conditions.config);
        sim.note_loss();
        let longest = match trouble {
            Trouble::Crowd => Duration::from_millis(300),
            // Longer than a lease, so that a command can outlive its turn if no guard ends it.
            Trouble::Processes => self.longest * 5,
            _ => self.longest,
        };
        let runner = Rc::new(RefCell::new(Runner::new(drawn.nodes as usize, seed, self.lease, longest)));
        let group = Rc::new(RefCell::new(Group::new(drawn.voters)));
        tick(&mut sim, Rc::clone(&runner));
        let faults_for = Duration::from_secs(self.seconds);
        trouble.schedule(&drawn, &mut sim, (&runner, &group), &mut rng, faults_for);
        let mut plan = conditions.faults.clone();
        let mut apart = Rng::from_number(seed, stream_of::SCENARIO + PROCESSES);
        processes::schedule(plan.more.app_stops, &mut sim, &runner, &mut apart, faults_for);
        group::lose_disks(plan.disks_lost, &mut sim, &group, &mut apart, faults_for);
        // Both are done by the scenario.
        (plan.more.app_stops, plan.disks_lost) = (0, 0);
        plan.put_into(seed, &mut sim, faults_for, &AIMS);
        let settings = json!({
            "nodes": drawn.nodes, "voters": drawn.voters, "seconds": self.seconds, "trouble": trouble.name(),
            "lease_ms": self.lease.as_millis() as u64, "drift_ppm": self.drift_ppm, "swarm": self.swarm,
            "loss": conditions.config.network.loss, "faults": conditions.faults,
        });
        // An agent renews for a client that is gone until it has not kept the turn for 0.8 of a lease (TU-36).
        let ends_clients = trouble.ends_clients() || !conditions.faults.is_empty();
        let unattended = if ends_clients { self.lease * 4 / 5 } else { Duration::ZERO };
        // By clocks that run a tenth too slow.
        let granted_within = (self.lease + unattended) * 11 / 10 + CONVERGE_AFTER_LEASE;
        let checker = TurnsChecker::new(runner, group, granted_within);
        // A command that runs when the faults stop may go on, and so may a sync.
        let converge_within = granted_within + longest.max(SYNC_MAX);
        Ok(Setup { sim, checker, faults_for, converge_within, settings })
    }
}

impl TurnsScenario {
    /// The same with everything that the seed draws.
    fn drawn(&self, seed: u64, rng: &mut Rng) -> Self {
        let mut drawn = self.clone();
        let draws = self.swarm || self.conditions.faults.is_empty();
        if draws && drawn.trouble.is_none() {
            drawn.trouble = Some(Trouble::draw(rng));
        }
        if self.swarm {
            // Drawn apart, so that the trouble of a seed stays as it is without it.
            let mut apart = Rng::from_number(seed, stream_of::SCENARIO + NOISE);
            drawn.conditions = self.conditions.drawn(&mut apart);
            match self.conditions.faults.model {
                FaultModel::V1 => drawn.conditions.faults = FaultPlan::default(),
                FaultModel::V2 => {
                    drawn.nodes = apart.between(3, u64::from(self.nodes.max(3))) as u32;
                    drawn.voters = 1 + apart.below(u64::from(drawn.nodes.min(VOTERS_MAX))) as u32;
                    // Half of the groups have three voters.
                    drawn.voters = if apart.chance(0.5) { 3 } else { drawn.voters };
                    let stops = if apart.chance(0.7) { apart.between(1, 12) as u32 } else { 0 };
                    drawn.conditions.faults.more.app_stops = stops;
                }
            }
        }
        if drawn.trouble == Some(Trouble::Crowd) {
            drawn.nodes = drawn.nodes.max(CROWD);
            let network = &mut drawn.conditions.config.network;
            network.loss = network.loss.max(CROWD_LOSS);
        }
        drawn.voters = drawn.voters.min(drawn.nodes);
        drawn
    }

    /// The nodes of a run. All have the same list of voters.
    fn world(&self, seed: u64, config: &crate::config::Config) -> Sim<Turns> {
        let (lease, broken) = (self.lease, self.broken);
        let list: Vec<SocketAddr> =
            (0..self.voters).map(|voter| SocketAddr::from(([10, 0, 0, voter as u8 + 1], PORT))).collect();
        let mut sim = Sim::new(seed, config.clone(), move |birth| {
            let own = SocketAddr::new(birth.address, PORT);
            let config = Config {
                id: Id::new(birth.host.index() as u128 + 1),
                bind: own,
                own,
                voters: list.clone(),
                lease,
                fault: broken,
                ..Config::default()
            };
            Turns::new(&config, birth.seed).expect("these settings go together")
        });
        for _ in 0..self.nodes {
            sim.add_host();
        }
        sim
    }
}

/// Hits the node that has a turn by its own clock, or a node that votes.
static AIMS: [Aim<Turns>; 2] = [Aim { name: "holder", find: holder }, Aim { name: "voter", find: voter }];

fn holder(sim: &Sim<Turns>, _: &mut Rng) -> Option<HostId> {
    let holds = |host: HostId, machine: &Turns| {
        let turns = machine.status(sim.clock(host).mono).turns;
        turns.iter().any(|turn| turn.fence.is_some() && turn.left_micros > 0)
    };
    sim.machines().find(|(host, machine)| holds(*host, machine)).map(|(host, _)| host)
}

fn voter(sim: &Sim<Turns>, rng: &mut Rng) -> Option<HostId> {
    let votes =
        |(host, machine): &(HostId, &Turns)| machine.standing(sim.clock(*host).mono) == Standing::Voting;
    let voters: Vec<HostId> = sim.machines().filter(votes).map(|(host, _)| host).collect();
    rng.pick(&voters).copied()
}

/// Calls the runners periodically.
fn tick(sim: &mut Sim<Turns>, runner: Rc<RefCell<Runner>>) {
    let step = move |sim: &mut Sim<Turns>| {
        runner.borrow_mut().tick(sim);
        tick(sim, runner);
    };
    sim.after(TICK, Step::Call(Box::new(step)));
}
