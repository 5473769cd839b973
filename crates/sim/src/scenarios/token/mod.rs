//! Nodes that pass a token: the scenario of [`annulus_core::jitterbug`].
//!
//! All nodes start at once on one segment, or as several rings that do not reach each other. The holder may be killed a
//! number of times, and all faults of a [`FaultPlan`](crate::FaultPlan) may happen. The checker requires:
//!
//! - A node's list, at the end of each of its tenures, has everything it had at the end of the one before (J-6).
//! - The fences of one node strictly grow, also over restarts. A lost disk excuses it (`DISK_LOST`). Those of one token strictly grow
//!   from node to node. The first fence of a restored token is above all before it, as far as clocks agree.
//! - If only crashes and pauses happen, and no node starts during a pause, no two commands run at one true time. The
//!   fence of each command is above those of all before it (TUF-14). Clients request holds all the time. Other faults may
//!   split a ring without voters, which excuses two commands: [`WEAK_SPLIT`].
//! - When the faults have stopped, there is one token, one id, and one list with all nodes. If a node passed the token on
//!   and did not crash since, the data has every count of that pass (JF-5, JF-8).

mod checker;
mod commands;
mod measure;
mod stall;
mod summary;

#[cfg(test)]
mod foreign;
#[cfg(test)]
mod tests;

use core::time::Duration;

use annulus_core::Rng;
use annulus_core::jitterbug::{Config, Draw, HostId as TokenHost, Jitterbug, Ledger, StateName};
use serde_json::json;

pub use checker::TokenChecker;
use commands::Commands;
pub use summary::{Summary, without_samples};

use crate::aim::Aim;
use crate::causes::Cause;
use crate::conditions::{Conditions, MorePlan};
use crate::disk::DiskFate;
use crate::fault::{Fault, Step};
use crate::host::HostId;
use crate::ledger::Excuse;
use crate::observer::Violation;
use crate::scenario::{Scenario, Setup};
use crate::sim::{NETWORK_BROADCAST, Sim, stream_of};

/// A node of the scenario.
pub type Node = Jitterbug<Ledger>;

/// Timers that go together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preset {
    /// For machines on one network.
    Lan,
    /// For nodes on one machine.
    Local,
}

/// The settings of the scenario.
#[derive(Clone, Debug)]
pub struct TokenScenario {
    /// The number of nodes.
    pub nodes: u32,
    /// The time with faults.
    pub seconds: u64,
    /// The timers.
    pub preset: Preset,
    /// As how many rings with disjoint lists they start.
    pub rings: u32,
    /// The number of times that the holder is killed and restarted.
    pub crash_holder: u32,
    /// How many times a process is paused, for 1 ms to 100 s; every other time it is the one that has the token.
    pub stall_holder: u32,
    /// Whether nodes are patient and lose holds by pauses (TU-41, TU-42); false is the document's behaviour, to compare.
    pub patient: bool,
    /// Another base of the random drop than that of the preset.
    pub base: Option<f64>,
    /// Another least length of a tenure than that of the preset.
    pub pace: Option<Duration>,
    /// From where new ids are drawn.
    pub draw: Draw,
    /// Network and faults.
    pub conditions: Conditions,
    /// Whether the seed draws the number of nodes, up to `nodes`, the rings and the conditions.
    pub swarm: bool,
}

impl Default for TokenScenario {
    fn default() -> Self {
        Self {
            nodes: 5,
            seconds: 60,
            preset: Preset::Lan,
            rings: 1,
            crash_holder: 0,
            stall_holder: 0,
            patient: true,
            base: None,
            pace: None,
            draw: Draw::Better,
            conditions: Conditions::default(),
            swarm: false,
        }
    }
}

/// Two commands of a ring without voters run at once. A node that cannot reach the holder regenerates the token, and the
/// holder learns of that later.
pub const WEAK_SPLIT: Excuse = Excuse {
    name: "WEAK_SPLIT",
    because: "a ring without voters cannot tell a holder that is cut off or stopped from one that is gone",
    needs: &[
        Cause::Cut,
        Cause::Crashed,
        Cause::Stalled,
        Cause::Asleep,
        Cause::ClockStopped,
        Cause::Slow,
        Cause::Drifted,
        Cause::Starved,
        Cause::Readdressed,
        Cause::Lossy,
    ],
    // Two tokens may live until they meet; the use itself has no length.
    reach: Duration::from_secs(86_400),
    most_per_run: 4096,
    each_at_most: Duration::ZERO,
};

/// The situations that a run may meet.
const SITUATIONS: [&str; 4] = ["two_askers", "hold_lost", "token_regenerated", "tokens_merged"];

/// The time for which separate rings do not reach each other at first.
const APART: Duration = Duration::from_secs(15);

/// Streams of randomness of this scenario, beside its first.
const PAUSES: u64 = 1 << 32;
const LOAD: u64 = 2 << 32;

impl TokenScenario {
    /// The configuration of every node, without its address and host id.
    #[must_use]
    pub fn config(&self, nodes: u32) -> Config {
        let preset = match self.preset {
            Preset::Lan => Config::lan(),
            Preset::Local => Config::local(),
        };
        let mut config = Config {
            broadcast: vec![NETWORK_BROADCAST.into()],
            tcp_port: 4001,
            draw: self.draw,
            is_patient: self.patient,
            nodes_expected: nodes as usize,
            loose_prob_base: self.base.unwrap_or(preset.loose_prob_base),
            pace: self.pace.unwrap_or(preset.pace),
            ..preset
        };
        // Timers that fit: a larger ring waits longer.
        config.renew_timeout = config.renew_for(nodes as usize);
        config
    }

    /// Whether nothing happens but crashes and pauses, so that no two commands may run at once (TUF-14).
    fn is_strict(&self) -> bool {
        let (faults, network) = (&self.conditions.faults, &self.conditions.config.network);
        let others = [
            faults.partitions,
            faults.cuts,
            faults.sleeps,
            faults.slow_hosts,
            faults.disks_lost,
            faults.wall_jumps,
            faults.drift_ppm,
        ];
        // A start during a pause can make a second token.
        let starts_in_pause = faults.crashes > 0 && (faults.suspensions > 0 || self.stall_holder > 0);
        self.rings == 1
            && others == [0; 7]
            && faults.more == MorePlan::default()
            && network.loss == 0.0
            && network.duplicate == 0.0
            && !starts_in_pause
            && !(faults.suspensions > 0 && self.crash_holder > 0)
    }

    /// How long they may take to be one ring: disjoint lists need a random drop, which happens once in `base` loops.
    fn converge_within(config: &Config, nodes: u32) -> Duration {
        let tenure = config.pace + Duration::from_millis(250);
        let loops = tenure * nodes;
        4 * config.renew_timeout + loops.mul_f64(20.0 + 15.0 * config.loose_prob_base)
    }
}

impl Scenario for TokenScenario {
    type Machine = Node;
    type Checker = TokenChecker;

    fn name(&self) -> &'static str {
        "token"
    }

    fn setup(&self, seed: u64) -> Result<Setup<Node, TokenChecker>, Violation> {
        let mut rng = Rng::from_number(seed, stream_of::SCENARIO);
        let mut drawn = self.clone();
        if self.swarm {
            drawn.nodes = rng.between(2, u64::from(self.nodes.max(2))) as u32;
            drawn.rings = rng.between(1, u64::from(drawn.nodes)) as u32;
            drawn.crash_holder = if rng.chance(0.5) { rng.between(1, 4) as u32 } else { 0 };
            drawn.conditions = self.conditions.drawn(&mut rng);
            // Some runs have nothing but pauses and crashes of holders, drawn apart so that the others stay as they were.
            let mut apart = Rng::from_number(seed, stream_of::SCENARIO + PAUSES);
            if apart.chance(0.3) {
                drawn.rings = 1;
                drawn.conditions = Conditions::default();
                drawn.stall_holder = apart.between(1, 12) as u32;
            }
        }
        let config = drawn.config(drawn.nodes);
        let mut sim = world(seed, &drawn, &config);
        sim.note_loss();
        let faults_for = Duration::from_secs(self.seconds);
        drawn.conditions.faults.put_into(seed, &mut sim, faults_for, &AIMS);
        separate(&mut sim, drawn.rings);
        kill_holders(&mut sim, &mut rng, drawn.crash_holder, faults_for, &config);
        stall::stall_holders(&mut sim, &mut rng, drawn.stall_holder, faults_for);
        let commands = Commands::shared(&config, drawn.is_strict());
        if drawn.swarm || drawn.stall_holder > 0 {
            commands::load(&mut sim, &commands, Rng::from_number(seed, stream_of::SCENARIO + LOAD));
        }
        let settings = json!({
            "seconds": self.seconds, "preset": format!("{:?}", self.preset).to_lowercase(), "swarm": self.swarm,
            "rings": drawn.rings, "crash_holder": drawn.crash_holder, "stall_holder": drawn.stall_holder, "base": config.loose_prob_base,
            "pace_ms": config.pace.as_millis() as u64,
            "renew_timeout_ms": config.renew_timeout.as_millis() as u64,
            "loss": drawn.conditions.config.network.loss, "faults": drawn.conditions.faults,
        });
        let faults = &drawn.conditions.faults;
        let more = &faults.more;
        let clocks_agree = [faults.wall_jumps, faults.drift_ppm, faults.sleeps] == [0; 3]
            && [more.pauses, more.drift_changes, more.wrong_dates] == [0; 3];
        let checker = TokenChecker::new(drawn.nodes as usize, commands, clocks_agree);
        let converge_within = Self::converge_within(&config, drawn.nodes);
        Ok(Setup { sim, checker, faults_for, converge_within, settings })
    }
}

/// Hits the node that has the token.
static AIMS: [Aim<Node>; 1] = [Aim { name: "holder", find: |sim, _| holder(sim) }];

fn world(seed: u64, scenario: &TokenScenario, config: &Config) -> Sim<Node> {
    let config = config.clone();
    let mut sim = Sim::new(seed, scenario.conditions.config.clone(), move |birth| {
        let host_id = TokenHost::new(birth.host.index() as u32 + 1);
        let own = Config { addr: birth.address, host_id, ..config.clone() };
        Jitterbug::new(&own, Ledger::new(), birth.seed).expect("the presets go together")
    });
    for _ in 0..scenario.nodes {
        sim.add_host();
    }
    sim
}

/// Keeps the rings apart until each has a token of its own.
fn separate(sim: &mut Sim<Node>, rings: u32) {
    if rings < 2 {
        return;
    }
    let mut groups = vec![Vec::new(); rings as usize];
    for host in sim.hosts() {
        groups[host.index() % rings as usize].push(host);
    }
    groups.pop();
    sim.fault(Fault::Partition(groups));
    sim.at(APART, Fault::Heal);
}

/// Kills the holder of the token, a number of times, and restarts it after a while.
fn kill_holders(sim: &mut Sim<Node>, rng: &mut Rng, times: u32, during: Duration, config: &Config) {
    for time in 0..times {
        let at = during.mul_f64((f64::from(time) + rng.unit()) / f64::from(times));
        let (down, power) = (config.renew_timeout.mul_f64(0.2 + 2.0 * rng.unit()), rng.chance(0.5));
        sim.at(at, Step::Call(Box::new(move |sim: &mut Sim<Node>| kill_holder(sim, power, down))));
    }
}

fn kill_holder(sim: &mut Sim<Node>, power: bool, down: Duration) {
    let Some(host) = holder(sim) else {
        // Between two holders: a moment later there is one, or there is none to kill.
        return;
    };
    let disk = if power { DiskFate::UnsyncedLost } else { DiskFate::Kept };
    sim.fault(Fault::Crash { host, power, disk });
    let start = move |sim: &mut Sim<Node>| stall::start_when_none_is_paused(sim, host);
    sim.after(down, Step::Call(Box::new(start)));
}

/// The holder of the token, if there is one.
fn holder(sim: &Sim<Node>) -> Option<HostId> {
    sim.machines().find(|(_, node)| node.state_name() == StateName::Leader).map(|(host, _)| host)
}
