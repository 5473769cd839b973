//! The conditions of a scenario: network, hosts, disks and faults.
//!
//! A [`FaultPlan`] has the number of faults of each kind; the seed decides their times and hosts. In swarm
//! mode the seed also draws the plan and the noise. Each kind of fault is left out half of the time: some bugs show only
//! when one thing goes wrong and the others do not.

use core::time::Duration;

use annulus_core::{Machine, Rng, micros};
use serde::Serialize;

use crate::aim::Aim;
use crate::config::{Config, StreamConfig};
use crate::disk::{DiskFate, DiskHealth};
use crate::fault::{Block, Fault};
use crate::host::HostId;
use crate::latency::Latency;
use crate::sim::{Sim, stream_of};

/// The version of the fault model: which faults a seed draws, and how long they last (FA-51).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FaultModel {
    /// The first: fewer kinds of faults, of uniform lengths, at any host. Lines in `regressions/` name it.
    #[default]
    V1,
    /// All faults of `docs/simulator.md`: log-uniform lengths, and a third of them aimed ([`FaultPlan::schedule_all`]).
    V2,
}

/// The conditions of a scenario.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Conditions {
    /// The settings of the world.
    pub config: Config,
    /// The faults.
    pub faults: FaultPlan,
}

impl Conditions {
    /// Whether nothing goes wrong: a network without noise, and no fault.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        self.config == Config::default() && self.faults.is_empty()
    }

    /// Conditions that are drawn by the fault model that these name.
    #[must_use]
    pub fn drawn(&self, rng: &mut Rng) -> Self {
        match self.faults.model {
            FaultModel::V1 => Self::swarm(rng),
            FaultModel::V2 => Self::all_faults(rng),
        }
    }

    /// Conditions that are drawn: the noise of the network, and which faults there are and how many.
    #[must_use]
    pub fn swarm(rng: &mut Rng) -> Self {
        let mut config = Config::default();
        let micros = Duration::from_micros;
        config.network.latency = match rng.below(5) {
            0 => Latency::Constant(micros(rng.between(50, 40_000))),
            1 => Latency::Uniform(micros(50), micros(rng.between(100, 40_000))),
            2 => Latency::LogNormal { median: micros(rng.between(200, 10_000)), sigma: rng.unit() },
            3 => Latency::Plane { per_unit: micros(rng.between(1, 40)) },
            _ => Latency::Sphere { antipode: micros(rng.between(1_000, 60_000)) },
        };
        config.network.loss = sometimes(rng, 0.3);
        config.network.duplicate = sometimes(rng, 0.3);
        config.network.reorder = sometimes(rng, 0.3);
        config.network.jitter = micros((sometimes(rng, 1.0) * 20_000.0) as u64);
        config.stream.odd_chunks = sometimes(rng, 1.0);
        config.disk.failure = sometimes(rng, 0.2);
        config.host.wake_late_max = micros((sometimes(rng, 1.0) * 10_000.0) as u64);
        Self { config, faults: FaultPlan::swarm(rng) }
    }
}

impl Conditions {
    /// Draws the streams of Linux, the noise of [`Conditions::swarm`], and faults of all kinds. Clones, lying disks and
    /// rollbacks are left out, because they break the promises of disks. New addresses are a stream of their own
    /// ([`FaultPlan::draw_moves`]).
    #[must_use]
    pub fn all_faults(rng: &mut Rng) -> Self {
        let mut conditions = Self::swarm(rng);
        let config = &mut conditions.config;
        let odd_chunks = config.stream.odd_chunks;
        config.stream = if rng.chance(0.5) { StreamConfig::linux() } else { StreamConfig::linux_rto_max() };
        config.stream.odd_chunks = odd_chunks;
        config.network.stray = if rng.chance(0.5) { 0.0001 } else { 0.0 };
        config.network.flow_idle_max = rng.chance(0.2).then(|| Duration::from_secs(rng.between(30, 600)));
        config.network.flow_end = if rng.chance(0.5) { Block::Drop } else { Block::Reject };
        config.disk.sync_tail = if rng.chance(0.3) { 0.01 } else { 0.0 };
        conditions.faults.more = MorePlan::swarm(rng);
        conditions.faults.model = FaultModel::V2;
        conditions
    }
}

impl MorePlan {
    fn swarm(rng: &mut Rng) -> Self {
        let mut some = |most| if rng.chance(0.5) { rng.between(1, most) as u32 } else { 0 };
        Self {
            pauses: some(3),
            pair_cuts: some(6),
            filters: some(6),
            delays: some(4),
            path_mtus: some(2),
            stutters: some(3),
            drift_changes: some(6),
            wrong_dates: some(2),
            disk_lies: 0,
            rollbacks: 0,
            sync_failures: some(3),
            starvations: some(2),
            deaths: some(2),
            clones: 0,
            readdresses: 0,
            moves: 0,
            app_stops: 0,
        }
    }
}

/// The number of faults of each kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct FaultPlan {
    /// Hosts crash and restart; half of them lose power, and with it unsynced writes.
    pub crashes: u32,
    /// Disks are lost with a crash.
    pub disks_lost: u32,
    /// The network falls apart into two or three parts and heals.
    pub partitions: u32,
    /// One direction between two hosts is cut and mended.
    pub cuts: u32,
    /// Processes are paused and go on.
    pub suspensions: u32,
    /// Machines sleep and wake; in [`FaultPlan::schedule`] their clocks stop.
    pub sleeps: u32,
    /// Wall clocks jump by up to a day.
    pub wall_jumps: u32,
    /// Hosts become slow and recover.
    pub slow_hosts: u32,
    /// Disks become full or broken and recover.
    pub disk_faults: u32,
    /// All clocks drift by up to so many parts per million, in both directions.
    pub drift_ppm: u32,
    /// Faults that only [`FaultPlan::schedule_all`] knows.
    pub more: MorePlan,
    /// How they are put into a run.
    pub model: FaultModel,
}

/// Faults that [`FaultPlan::schedule`] does not know: old regression lines keep their meaning.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct MorePlan {
    /// Machines are paused: their clocks stop.
    pub pauses: u32,
    /// Pairs of hosts are cut in both directions.
    pub pair_cuts: u32,
    /// Firewalls drop or reject UDP, TCP or both.
    pub filters: u32,
    /// One direction is slower by up to a minute.
    pub delays: u32,
    /// One direction loses large packets.
    pub path_mtus: u32,
    /// Hosts take drawn times for inputs.
    pub stutters: u32,
    /// Clocks change their rate, within `drift_ppm`.
    pub drift_changes: u32,
    /// Hosts are started with a wrong date.
    pub wrong_dates: u32,
    /// Disks lose writes that they had called durable, with a crash.
    pub disk_lies: u32,
    /// Disks become older ones, with a crash.
    pub rollbacks: u32,
    /// Syncs fail once.
    pub sync_failures: u32,
    /// Hosts have no descriptors.
    pub starvations: u32,
    /// Hosts go for good.
    pub deaths: u32,
    /// Hosts restart with the disk of another.
    pub clones: u32,
    /// Hosts get other addresses while their processes run.
    pub readdresses: u32,
    /// Hosts get other addresses, and their processes are started again with them: a machine is bound to one address.
    pub moves: u32,
    /// Applications beside the machine are stopped and go on ([`crate::App`], [`crate::Cause::BesideStopped`]).
    pub app_stops: u32,
}

impl FaultPlan {
    /// Adds new addresses for a few seeds. They have a random stream of their own, so no other draw changes. The fault
    /// model v1 has none.
    pub(crate) fn draw_moves(&mut self, seed: u64) {
        let mut rng = Rng::from_number(seed, stream_of::MOVES);
        if self.model == FaultModel::V2 && rng.chance(MOVE_SHARE) {
            self.more.moves = rng.between(1, 2) as u32;
        }
    }

    /// A plan that is drawn.
    #[must_use]
    pub fn swarm(rng: &mut Rng) -> Self {
        let mut some = |most| if rng.chance(0.5) { rng.between(1, most) as u32 } else { 0 };
        Self {
            crashes: some(10),
            disks_lost: some(2),
            partitions: some(4),
            cuts: some(8),
            suspensions: some(6),
            sleeps: some(4),
            wall_jumps: some(6),
            slow_hosts: some(4),
            disk_faults: some(3),
            drift_ppm: some(50_000),
            more: MorePlan::default(),
            model: FaultModel::V1,
        }
    }

    /// Whether it has no fault.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self { model: self.model, ..Self::default() }
    }

    /// Puts the faults of the plan into a simulation, as its fault model has them. Aims are for [`FaultModel::V2`].
    pub fn put_into<M: Machine + 'static>(
        &self,
        seed: u64,
        sim: &mut Sim<M>,
        during: Duration,
        aims: &'static [Aim<M>],
    ) {
        match self.model {
            FaultModel::V1 => self.schedule(seed, sim, during),
            FaultModel::V2 => self.schedule_all(seed, sim, during, aims),
        }
    }

    /// Puts the faults of the plan into a simulation, each somewhere within the next `during`. [`Fault::Calm`] then
    /// ends all remaining faults.
    pub fn schedule<M: Machine>(&self, seed: u64, sim: &mut Sim<M>, during: Duration) {
        let mut dice =
            Dice { rng: Rng::from_number(seed, stream_of::FAULTS), during, hosts: sim.len() as u64 };
        if dice.hosts == 0 {
            return;
        }
        for _ in 0..self.crashes {
            let (host, power) = (dice.host(), dice.rng.chance(0.5));
            let disk = if power { DiskFate::UnsyncedLost } else { DiskFate::Kept };
            dice.span(sim, Fault::Crash { host, power, disk }, Fault::Start(host));
        }
        for _ in 0..self.disks_lost {
            let host = dice.host();
            dice.span(sim, Fault::Crash { host, power: true, disk: DiskFate::Lost }, Fault::Start(host));
        }
        for _ in 0..self.partitions {
            let groups = dice.groups(sim);
            dice.span(sim, Fault::Partition(groups), Fault::Heal);
        }
        for _ in 0..self.cuts {
            let (from, to) = (dice.host(), dice.host());
            dice.span(sim, Fault::Cut { from, to }, Fault::Mend { from, to });
        }
        for _ in 0..self.suspensions {
            let host = dice.host();
            dice.span(sim, Fault::Suspend(host), Fault::Resume(host));
        }
        for _ in 0..self.sleeps {
            let host = dice.host();
            dice.span(sim, Fault::Sleep { host, counts: false }, Fault::Resume(host));
        }
        self.schedule_slowness(sim, &mut dice);
    }

    fn schedule_slowness<M: Machine>(&self, sim: &mut Sim<M>, dice: &mut Dice) {
        for _ in 0..self.wall_jumps {
            const DAY_MICROS: u64 = 86_400_000_000;
            let (host, at) = (dice.host(), dice.moment());
            let micros = dice.rng.below(2 * DAY_MICROS) as i64 - DAY_MICROS as i64;
            sim.after(at, Fault::JumpWall { host, micros });
        }
        for _ in 0..self.slow_hosts {
            let (host, delay) = (dice.host(), Duration::from_micros(dice.rng.between(100, 50_000)));
            dice.span(sim, Fault::Slow { host, delay }, Fault::Slow { host, delay: Duration::ZERO });
        }
        for _ in 0..self.disk_faults {
            let host = dice.host();
            let health = if dice.rng.chance(0.5) { DiskHealth::Full } else { DiskHealth::Broken };
            dice.span(sim, Fault::Disk { host, health }, Fault::Disk { host, health: DiskHealth::Good });
        }
        if self.drift_ppm > 0 {
            for host in sim.hosts() {
                let ppm = dice.rng.between(0, 2 * u64::from(self.drift_ppm)) as i32 - self.drift_ppm as i32;
                sim.after(Duration::ZERO, Fault::Drift { host, ppm });
            }
        }
    }
}

/// Draws when faults happen and to whom.
struct Dice {
    rng: Rng,
    during: Duration,
    hosts: u64,
}

impl Dice {
    fn host(&mut self) -> HostId {
        HostId::new(self.rng.below(self.hosts) as u32)
    }

    fn moment(&mut self) -> Duration {
        self.rng.duration_below(self.during)
    }

    /// A fault and its end. Most are short, so that several fit into a run; some last.
    fn span<M: Machine>(&mut self, sim: &mut Sim<M>, begin: Fault, end: Fault) {
        let at = self.moment();
        let most = if self.rng.chance(0.7) { micros(self.during) / 20 } else { micros(self.during) / 2 };
        let lasts = Duration::from_micros(self.rng.below(most));
        sim.after(at, begin);
        if at + lasts < self.during {
            sim.after(at + lasts, end);
        }
    }

    fn groups<M: Machine>(&mut self, sim: &Sim<M>) -> Vec<Vec<HostId>> {
        let parts = self.rng.between(2, 3);
        let mut groups = vec![Vec::new(); parts as usize - 1];
        for host in sim.hosts() {
            let part = self.rng.below(parts) as usize;
            if let Some(group) = groups.get_mut(part) {
                group.push(host);
            }
        }
        groups
    }
}

/// The share of runs in which hosts get other addresses.
const MOVE_SHARE: f64 = 0.2;

/// Zero half of the time, else uniform up to `most`.
fn sometimes(rng: &mut Rng, most: f64) -> f64 {
    let (on, much) = (rng.chance(0.5), rng.unit());
    if on { much * most } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::{FaultModel, FaultPlan};

    #[test]
    fn new_addresses_are_drawn_rarely_and_only_by_the_second_fault_model() {
        let moves = |model| {
            let draw = move |seed| {
                let mut plan = FaultPlan { model, crashes: 3, ..FaultPlan::default() };
                plan.draw_moves(seed);
                let moves = core::mem::take(&mut plan.more.moves);
                assert_eq!(plan, FaultPlan { model, crashes: 3, ..FaultPlan::default() });
                moves
            };
            (1..201).filter(|seed| draw(*seed) > 0).count()
        };
        assert_eq!(moves(FaultModel::V1), 0);
        assert!((20..60).contains(&moves(FaultModel::V2)), "{}", moves(FaultModel::V2));
    }
}
