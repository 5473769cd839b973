//! Measurements of `members`: detection time, false deaths, message load.

use core::time::Duration;

use annulus_core::swim::{self, Preset, State, Swim};
use annulus_core::{Id, Rng};
use serde::Serialize;

use super::topology::{Places, Ways};
use super::watch::Watch;
use super::{Group, id_of};
use crate::config::Config;
use crate::disk::DiskFate;
use crate::fault::Fault;
use crate::host::HostId;
use crate::observer::Violation;
use crate::scenario::{Lines, finish_trace};
use crate::sim::{Sim, stream_of};

/// The event that an experiment measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Experiment {
    /// All know each other; some crash for good.
    Crash,
    /// All join through one of them at once.
    Join,
    /// Half of them are cut off for a while.
    Partition,
    /// All are restarted within a few seconds, at incarnation 0.
    Restart,
    /// Some are paused again and again (Lifeguard's experiment); some others crash for good.
    Stall,
}

/// The settings of a measurement.
#[derive(Clone, Debug)]
pub struct Measure {
    /// The experiment.
    pub experiment: Experiment,
    /// The number of nodes.
    pub nodes: u32,
    /// The number of them that crash.
    pub crash: u32,
    /// How long it is watched.
    pub seconds: u64,
    /// The settings of the nodes.
    pub preset: Preset,
    /// The settings of the preset, or a variation of them.
    pub settings: swim::Settings,
    /// Instead of the preset's own, to compare presets.
    pub suspicion_mult: Option<u32>,
    /// Whether periods begin together, and the crash just before one.
    pub aligned: bool,
    /// The number of nodes that are paused repeatedly.
    pub stalling: u32,
    /// How long they are paused: uniform, in milliseconds.
    pub stall_millis: (u64, u64),
    /// How long they run in between: uniform, in milliseconds.
    pub run_millis: (u64, u64),
    /// How long half of them are cut off.
    pub cut_seconds: u64,
    /// Whether every node broadcasts more than fits (the user queue stays full).
    pub flood: bool,
    /// Where nodes are, in models of latency with places.
    pub places: Places,
    /// Probability that a datagram is lost on the longest path; it is lower on shorter paths.
    pub far_loss: f64,
    /// The network.
    pub config: Config,
}

/// The results of one run.
#[derive(Clone, Debug, Default)]
pub struct Measured {
    /// From each crash to the first failed probe, in periods.
    pub first_suspect_periods: Vec<f64>,
    /// From each crash to the first declaration of death, in seconds.
    pub first_dead_seconds: Vec<f64>,
    /// From each crash until all survivors know, in seconds.
    pub all_know_dead_seconds: Vec<f64>,
    /// Suspicions of nodes that had not crashed, by their own probers.
    pub false_suspects: u64,
    /// False deaths: death events at all applications for nodes that had not crashed.
    pub false_dead: u64,
    /// Datagrams per node and second.
    pub messages_rate: f64,
    /// Bytes in them.
    pub bytes_rate: f64,
    /// Whether everyone knew the truth in the end.
    pub converged: bool,
    /// Seconds from the end of the event until all nodes knew the truth; crashes have the times above.
    pub converged_seconds: Option<f64>,
    /// The longest time a node let pass from one probe of a living member to the next, in periods; 0 of groups too
    /// large to be watched that closely.
    pub unprobed_periods_max: u32,
    /// The number of broadcasts that a full queue refused.
    pub broadcasts_refused: u64,
    /// From each crash until each survivor near it knew, in seconds; empty where nodes have no places.
    pub near_know_seconds: Vec<f64>,
    /// The same of those far from it.
    pub far_know_seconds: Vec<f64>,
    /// Bytes per node and second on short and on long paths.
    pub ways_rate: Option<(f64, f64)>,
    /// The hash of everything that happened.
    pub trace_hash: String,
}

/// The random stream for losses by distance.
const LOSS_STREAM: u64 = 0x1055;
/// The warm-up uses the period of all presets but `wan`.
const WARM_PERIODS: u32 = 10;

impl Measure {
    /// Runs it under one seed.
    ///
    /// # Errors
    /// If the simulation itself found something wrong.
    pub fn run(&self, seed: u64, lines: Lines) -> Result<Measured, Violation> {
        let mut group = Group { settings: self.settings.clone(), ..Group::new(self.nodes, self.preset) };
        group.known = !matches!(self.experiment, Experiment::Join);
        group.aligned = self.aligned;
        group.seeds = if self.experiment == Experiment::Join { 1 } else { 3 };
        if let Some(mult) = self.suspicion_mult {
            group.settings.suspicion_mult = mult;
        }
        let interval = group.settings.probe_interval;
        let mut config = self.config.clone();
        if self.aligned {
            config.host.clock_start_max = Duration::from_micros(1);
        }
        let mut sim = Sim::new(seed, config, group.factory());
        lines.take_from(&mut sim);
        for _ in 0..self.nodes {
            sim.add_host();
        }
        let latency = self.config.network.latency;
        for host in sim.hosts() {
            if let Some(place) = self.places.of(id_of(host), latency) {
                sim.set_place(host, place);
            }
        }
        let ways = Ways::new(latency, self.far_loss, Rng::from_number(seed, LOSS_STREAM));
        let mut world =
            World { rng: Rng::from_number(seed, stream_of::SCENARIO), watch: Watch::new(self.nodes, ways) };
        // Just before a period begins.
        let warm = interval * WARM_PERIODS - Duration::from_millis(1);
        self.prepare(&mut sim, &mut world, warm);
        sim.run_until(warm, &mut world.watch)?;
        let (before, ways_before) = (*sim.stats(), world.watch.ways_bytes());
        let from = sim.elapsed();
        self.act(&mut sim, &mut world)?;
        let end = from + Duration::from_secs(self.seconds);
        let settled = self.watch_until(&mut sim, &mut world, end)?;
        finish_trace(&mut sim)?;
        let seconds = (sim.elapsed() - from).as_secs_f64();
        let per = f64::from(self.nodes) * seconds.max(1e-9);
        let stats = sim.stats();
        let watch = world.watch;
        let ways = watch.ways_bytes().zip(ways_before);
        Ok(Measured {
            near_know_seconds: watch.deaths.values().flat_map(|death| &death.near).copied().collect(),
            far_know_seconds: watch.deaths.values().flat_map(|death| &death.far).copied().collect(),
            ways_rate: ways.map(|(now, then)| ((now.0 - then.0) as f64 / per, (now.1 - then.1) as f64 / per)),
            first_suspect_periods: watch.suspected(interval, self.aligned),
            first_dead_seconds: watch.deaths.values().filter_map(|death| death.first_dead).collect(),
            all_know_dead_seconds: watch.all_know(),
            false_suspects: watch.false_suspects,
            false_dead: watch.false_dead,
            messages_rate: (stats.datagrams_sent - before.datagrams_sent) as f64 / per,
            bytes_rate: (stats.datagram_bytes_sent - before.datagram_bytes_sent) as f64 / per,
            converged: is_true(&sim).is_ok(),
            converged_seconds: settled,
            unprobed_periods_max: watch.unprobed_periods_max(sim.elapsed(), interval),
            broadcasts_refused: watch.broadcasts_refused,
            trace_hash: sim.trace_hash().to_string(),
        })
    }

    fn prepare(&self, sim: &mut Sim<Swim>, world: &mut World, warm: Duration) {
        if self.experiment == Experiment::Stall {
            let all = Duration::from_secs(self.seconds);
            for n in 0..self.stalling.min(self.nodes) {
                let (host, mut at) = (HostId::new(n), warm + world.draw(self.run_millis));
                while at < warm + all {
                    sim.at(at, Fault::Suspend(host));
                    at += world.draw(self.stall_millis);
                    sim.at(at, Fault::Resume(host));
                    at += world.draw(self.run_millis);
                }
            }
        }
        if self.flood {
            for host in sim.hosts() {
                for burst in 0..self.seconds * 4 {
                    let data = vec![7; 900];
                    let at = Duration::from_millis(250 * burst);
                    sim.command_after(at, host, swim::Command::Broadcast { data, wait: false });
                }
            }
        }
    }

    fn act(&self, sim: &mut Sim<Swim>, world: &mut World) -> Result<(), Violation> {
        // Those that are paused are the first; those that crash are chosen from the others.
        let first = if self.experiment == Experiment::Stall { self.stalling } else { 0 };
        let mut others: Vec<u32> = (first..self.nodes).collect();
        world.rng.shuffle(&mut others);
        for n in others.into_iter().take(self.crash as usize) {
            let host = HostId::new(n);
            let survivors = self.nodes as usize - self.crash as usize;
            world.watch.crashed(host, sim.elapsed(), survivors);
            sim.fault(Fault::Crash { host, power: true, disk: DiskFate::Kept });
        }
        match self.experiment {
            Experiment::Crash | Experiment::Join | Experiment::Stall => {}
            Experiment::Partition => {
                let half = (0..self.nodes / 2).map(HostId::new).collect();
                sim.fault(Fault::Partition(vec![half]));
                sim.run_for(Duration::from_secs(self.cut_seconds), &mut world.watch)?;
                sim.fault(Fault::Heal);
                world.watch.forget_counts();
            }
            Experiment::Restart => {
                for n in 0..self.nodes {
                    let (host, at) = (HostId::new(n), world.draw((0, 5_000)));
                    sim.after(at, Fault::Crash { host, power: true, disk: DiskFate::UnsyncedLost });
                    sim.after(at + world.draw((100, 3_000)), Fault::Start(host));
                }
                sim.run_for(Duration::from_secs(9), &mut world.watch)?;
                world.watch.forget_counts();
            }
        }
        Ok(())
    }

    /// Runs the simulation; returns the time at which all nodes knew the truth, if that is measured.
    fn watch_until(
        &self,
        sim: &mut Sim<Swim>,
        world: &mut World,
        end: Duration,
    ) -> Result<Option<f64>, Violation> {
        let from = sim.elapsed();
        if matches!(self.experiment, Experiment::Crash | Experiment::Stall) {
            sim.run_until(end, &mut world.watch)?;
            return Ok(None);
        }
        let (limit, every) = (Duration::from_secs(self.seconds), Duration::from_millis(500));
        let converged = sim.run_until_that(limit, every, &mut world.watch, |sim, _| is_true(sim).is_ok())?;
        Ok(converged.then(|| (sim.elapsed() - from).as_secs_f64()))
    }
}

struct World {
    rng: Rng,
    watch: Watch,
}

impl World {
    fn draw(&mut self, (low, high): (u64, u64)) -> Duration {
        Duration::from_millis(self.rng.between(low, high))
    }
}

/// Whether every running node knows which nodes run. Loss may make a node suspect some others. A node that
/// suspects most of them has lost contact.
fn is_true(sim: &Sim<Swim>) -> Result<(), String> {
    let mut up: Vec<Id> = sim.machines().map(|(_, machine)| machine.id()).collect();
    up.sort_unstable();
    for (host, machine) in sim.machines() {
        let members = machine.members();
        if members.live() != up.len() {
            return Err(format!("{host} knows {} of {}", members.live(), up.len()));
        }
        let suspects = members.iter().filter(|(_, member)| member.state() == State::Suspect).count();
        if 2 * suspects > up.len() {
            return Err(format!("{host} suspects {suspects} of {}", up.len()));
        }
        // Both in order of ids: one walk compares them, however many there are.
        let live = members.iter().filter(|(_, member)| member.state().is_live());
        let wrong = live.zip(&up).find(|((_, member), id)| member.id() != **id);
        if let Some((_, id)) = wrong {
            return Err(format!("{host} does not know {id}"));
        }
    }
    Ok(())
}
