//! The time until all nodes know the true state of a node that was killed, one that is paused and resumed, and one
//! that restarts at another address. Real agents are compared with it in `crates/cli/tests/members_twelve.rs`.

use core::time::Duration;

use annulus_core::Id;
use annulus_core::swim::{self, Preset, State, Swim};

use super::{Group, addr_of, id_of, node_of};
use crate::config::Config;
use crate::disk::DiskFate;
use crate::fault::Fault;
use crate::host::{HostId, HostSpec};
use crate::observer::Violation;
use crate::sim::Sim;

/// The settings.
#[derive(Clone, Debug)]
pub struct Truth {
    /// The number of nodes; the last three have the faults.
    pub nodes: u32,
    /// Their settings.
    pub settings: swim::Settings,
    /// The least length of the pause; it lasts until all others know of it, if that takes longer.
    pub still: Duration,
}

/// The seconds until all other nodes knew.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Told {
    /// That the killed one is dead.
    pub killed: f64,
    /// That the paused one does not live.
    pub still: f64,
    /// That it lives again, from when it went on.
    pub back: f64,
    /// That the one that moved lives at its new address, from when it started there.
    pub moved: f64,
}

impl Told {
    /// The times, once all four are known.
    fn done(times: &[Option<Duration>; 4]) -> Option<Self> {
        let [killed, still, back, moved] = times.map(|time| time.map(|time| time.as_secs_f64()));
        Some(Self { killed: killed?, still: still?, back: back?, moved: moved? })
    }
}

/// The interval between checks.
const EVERY: Duration = Duration::from_millis(20);
/// How long the one that moves is away.
const AWAY: Duration = Duration::from_secs(1);
/// How long a run may take.
const LIMIT: Duration = Duration::from_secs(600);

impl Truth {
    /// Runs it under one seed.
    ///
    /// # Errors
    /// If a node never learnt it.
    pub fn run(&self, seed: u64) -> Result<Told, Violation> {
        let [moves, stands, dies] = [3, 2, 1].map(|from_end| HostId::new(self.nodes - from_end));
        let (mut sim, new_home) = self.world(seed, moves);
        sim.run_for(10 * self.settings.probe_interval, &mut ())?;
        let crash = |host| Fault::Crash { host, power: false, disk: DiskFate::Kept };
        sim.fault(crash(dies));
        sim.fault(crash(moves));
        sim.fault(Fault::Suspend(stands));
        sim.after(AWAY, Fault::Start(new_home));
        let begin = sim.elapsed();
        let (mut times, mut resumed) = ([None; 4], None);
        while Told::done(&times).is_none() {
            sim.run_for(EVERY, &mut ())?;
            let passed = sim.elapsed() - begin;
            if passed > LIMIT {
                return Err(Violation::new(format!("not known after {LIMIT:?}: {times:?}")));
            }
            let mut note = |at: usize, known: bool, since: Duration| {
                if known && times[at].is_none() {
                    times[at] = Some(passed.saturating_sub(since));
                }
            };
            note(0, self.all_know(&sim, dies, is_dead), Duration::ZERO);
            note(3, self.all_know(&sim, moves, |member| lives_at(member, new_home)), AWAY);
            let still = self.all_know(&sim, stands, is_dead);
            note(1, still, Duration::ZERO);
            match resumed {
                Some(since) => note(2, self.all_know(&sim, stands, |member| lives_at(member, stands)), since),
                None if still && passed >= self.still => {
                    sim.fault(Fault::Resume(stands));
                    resumed = Some(passed);
                }
                None => {}
            }
        }
        Ok(Told::done(&times).unwrap_or_default())
    }

    /// All nodes, and one more host that is off and where one of them will live later.
    fn world(&self, seed: u64, moves: HostId) -> (Sim<Swim>, HostId) {
        let mut group = Group::new(self.nodes, Preset::Lan);
        (group.settings, group.seeds) = (self.settings.clone(), 1);
        let all: Vec<_> = (0..self.nodes).map(HostId::new).map(node_of).collect();
        let nodes = self.nodes;
        let factory = move |birth: crate::host::Birth<'_>| {
            let at_home = birth.host.index() < nodes as usize;
            let base = group.config(birth.host, birth.address);
            let id = if at_home { base.id } else { id_of(moves) };
            let mut swim = Swim::new(&swim::Config { id, ..base }, birth.seed).expect("the settings work");
            if at_home && birth.starts == 0 {
                swim.assume(&all);
            }
            swim
        };
        let mut sim = Sim::new(seed, Config::default(), factory);
        for _ in 0..self.nodes {
            sim.add_host();
        }
        let new_home = sim.add_host_with(HostSpec { off: true, ..HostSpec::default() });
        (sim, new_home)
    }

    /// Whether all nodes without faults see a node so.
    fn all_know(&self, sim: &Sim<Swim>, of: HostId, sees: impl Fn(Option<&swim::Member>) -> bool) -> bool {
        let id: Id = id_of(of);
        let others = (0..self.nodes - 3).map(HostId::new).filter_map(|host| sim.machine(host));
        others.into_iter().all(|machine| sees(machine.members().member(id)))
    }
}

fn is_dead(member: Option<&swim::Member>) -> bool {
    member.is_none_or(|member| member.state() == State::Dead)
}

fn lives_at(member: Option<&swim::Member>, host: HostId) -> bool {
    member.is_some_and(|member| member.state() == State::Alive && member.addr() == addr_of(host))
}
