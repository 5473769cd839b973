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
//! X has two excuses, counted in the report: [`FROZEN_CLOCK`] and [`GUARD_STOPPED`].

mod checker;
mod plan;
mod runner;
#[cfg(test)]
mod tests;

use core::time::Duration;
use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;

use annulus_core::turns::{Config, Fault, PORT, Turns};
use annulus_core::{Id, Rng};
use serde_json::json;

pub use checker::TurnsChecker;
pub use plan::Trouble;
pub use runner::{FROZEN_CLOCK, GUARD_STOPPED, guard_alone};
use runner::{Runner, TICK};

use crate::conditions::Conditions;
use crate::fault::Step;
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
    /// Faults of the network.
    pub conditions: Conditions,
    /// Faults of hosts and processes; drawn by the seed if not given.
    pub trouble: Option<Trouble>,
    /// The greatest drift of a clock, in parts per million.
    pub drift_ppm: u32,
    /// Whether the seed also draws the noise of network, disks and hosts.
    pub swarm: bool,
    /// A fault to build into the machine, to see that it is caught.
    pub broken: Option<Fault>,
}

/// The stream of randomness of the noise.
const NOISE: u64 = 1 << 32;

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
        let trouble = self.trouble.unwrap_or_else(|| Trouble::draw(&mut rng));
        let is_crowd = trouble == Trouble::Crowd;
        let nodes = if is_crowd { self.nodes.max(CROWD) } else { self.nodes };
        let mut config = self.conditions.config.clone();
        if self.swarm {
            // Drawn apart, so that the faults of a seed stay as they are without it.
            config = Conditions::swarm(&mut Rng::from_number(seed, stream_of::SCENARIO + NOISE)).config;
        }
        if is_crowd {
            config.network.loss = config.network.loss.max(CROWD_LOSS);
        }
        let (voters, lease, broken) = (self.voters.min(nodes), self.lease, self.broken);
        let list: Vec<SocketAddr> =
            (0..voters).map(|voter| SocketAddr::from(([10, 0, 0, voter as u8 + 1], PORT))).collect();
        let mut sim = Sim::new(seed, config, move |birth| {
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
        for _ in 0..nodes {
            sim.add_host();
        }
        let longest = match trouble {
            Trouble::Crowd => Duration::from_millis(300),
            // Longer than a lease, so that a command can outlive its turn if no guard ends it.
            Trouble::Processes => self.longest * 5,
            _ => self.longest,
        };
        let runner = Rc::new(RefCell::new(Runner::new(nodes as usize, seed, lease, longest)));
        tick(&mut sim, Rc::clone(&runner));
        let faults_for = Duration::from_secs(self.seconds);
        trouble.schedule(self, &mut sim, &runner, &mut rng, faults_for);
        let settings = json!({
            "nodes": nodes, "voters": voters, "seconds": self.seconds, "trouble": trouble.name(),
            "lease_ms": lease.as_millis() as u64, "drift_ppm": self.drift_ppm, "swarm": self.swarm,
        });
        // An agent renews for a client that is gone until it has not kept the turn for 0.8 of a lease (TU-36).
        let unattended = if trouble.ends_clients() { lease * 4 / 5 } else { Duration::ZERO };
        // By clocks that run a tenth too slow.
        let granted_within = (lease + unattended) * 11 / 10 + CONVERGE_AFTER_LEASE;
        let checker = TurnsChecker::new(runner, voters, granted_within);
        // A command that runs when the faults stop may go on.
        let converge_within = granted_within + longest;
        Ok(Setup { sim, checker, faults_for, converge_within, settings })
    }
}

/// Calls the runners periodically.
fn tick(sim: &mut Sim<Turns>, runner: Rc<RefCell<Runner>>) {
    let step = move |sim: &mut Sim<Turns>| {
        runner.borrow_mut().tick(sim);
        tick(sim, runner);
    };
    sim.after(TICK, Step::Call(Box::new(step)));
}
