//! Faults: one kind of trouble per run, aimed at the holder or at the voters (TUF-1 … TUF-13).

use core::time::Duration;
use std::cell::RefCell;
use std::rc::Rc;

use annulus_core::Rng;
use annulus_core::turns::{Standing, Turns};

use super::TurnsScenario;
use super::group::Group;
use super::runner::{Runner, Who};
use crate::disk::DiskFate;
use crate::fault::{Fault, Step};
use crate::host::HostId;
use crate::sim::Sim;

/// A kind of trouble.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// Nothing.
    None,
    /// TUF-1: the agent of the holder is stopped for 1 ms to 100 s.
    Stalls,
    /// TUF-2: the holder is cut off from voters, one way and both ways.
    Cuts,
    /// TUF-3: client, agent and guard are stopped or killed in all combinations.
    Processes,
    /// TUF-4: voters crash one after another.
    VoterCrashes,
    /// TUF-6: voters lose unsynced data.
    Unsynced,
    /// TUF-7: a voter's disk is lost, then another's after it voted again.
    LostDisks,
    /// TUF-8: clocks drift, changing in the run.
    Drift,
    /// TUF-9: two of three voters are cut off for long.
    NoMajority,
    /// TUF-10: many askers, some die.
    Crowd,
    /// TUF-12: machines sleep, or are paused with their clocks.
    Sleeps,
    /// TUF-13: the network splits in two.
    Splits,
    /// All of them.
    Everything,
}

/// A run with more time than this for its faults cuts a majority of voters off for an hour (TUF-9).
const HOUR: Duration = Duration::from_secs(3600);

const ALL: [(Trouble, &str); 13] = [
    (Trouble::None, "none"),
    (Trouble::Stalls, "stalls"),
    (Trouble::Cuts, "cuts"),
    (Trouble::Processes, "processes"),
    (Trouble::VoterCrashes, "voter-crashes"),
    (Trouble::Unsynced, "unsynced"),
    (Trouble::LostDisks, "lost-disks"),
    (Trouble::Drift, "drift"),
    (Trouble::NoMajority, "no-majority"),
    (Trouble::Crowd, "crowd"),
    (Trouble::Sleeps, "sleeps"),
    (Trouble::Splits, "splits"),
    (Trouble::Everything, "everything"),
];

impl Trouble {
    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        ALL.iter().find(|(trouble, _)| *trouble == self).map_or("none", |(_, name)| name)
    }

    /// The trouble with this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        ALL.iter().find(|(_, known)| *known == name).map(|(trouble, _)| *trouble)
    }

    /// All names.
    pub fn names() -> impl Iterator<Item = &'static str> {
        ALL.iter().map(|(_, name)| *name)
    }

    pub(super) fn draw(rng: &mut Rng) -> Self {
        ALL[1 + rng.index(ALL.len() - 1)].0
    }

    /// Whether a grant may find that its client is gone: it was killed, or its agent was stopped for longer than it waits.
    pub(super) fn ends_clients(self) -> bool {
        matches!(self, Self::Stalls | Self::Processes | Self::Sleeps | Self::Everything)
    }

    /// Schedules the faults of a run.
    pub(super) fn schedule(
        self,
        scenario: &TurnsScenario,
        sim: &mut Sim<Turns>,
        (runner, group): (&Rc<RefCell<Runner>>, &Rc<RefCell<Group>>),
        rng: &mut Rng,
        faults_for: Duration,
    ) {
        let mut at = Duration::from_secs(6);
        if matches!(self, Self::Cuts | Self::Drift | Self::Everything | Self::VoterCrashes | Self::Sleeps) {
            self.drift(scenario, sim, rng, Duration::ZERO);
        }
        if self == Self::NoMajority && faults_for > HOUR {
            sim.at(at, Fault::Partition(apart()));
            sim.at(at + HOUR, Fault::Heal);
            return;
        }
        while at < faults_for {
            let what = if self == Self::Everything { Self::draw(rng) } else { self };
            what.strike(scenario, sim, (runner, group), rng, at);
            let least =
                if matches!(what, Self::LostDisks | Self::NoMajority | Self::Unsynced) { 25.0 } else { 1.0 };
            at += Duration::from_secs_f64(least + rng.unit() * 8.0);
        }
    }

    fn drift(self, scenario: &TurnsScenario, sim: &mut Sim<Turns>, rng: &mut Rng, at: Duration) {
        for host in sim.hosts() {
            let most = i64::from(scenario.drift_ppm);
            let ppm = if rng.chance(0.5) {
                [-most, most][rng.index(2)]
            } else {
                rng.between(0, 2 * most as u64) as i64 - most
            };
            sim.at(at, Fault::Drift { host, ppm: ppm as i32 });
        }
    }

    fn strike(
        self,
        scenario: &TurnsScenario,
        sim: &mut Sim<Turns>,
        (runner, group): (&Rc<RefCell<Runner>>, &Rc<RefCell<Group>>),
        rng: &mut Rng,
        at: Duration,
    ) {
        let span = span(rng);
        let voter = HostId::new(rng.index(scenario.voters as usize) as u32);
        let any = HostId::new(rng.index(scenario.nodes as usize) as u32);
        match self {
            Self::None | Self::Everything => {}
            Self::Stalls => at_holder(sim, runner, at, any, move |sim, host| {
                sim.fault(Fault::Suspend(host));
                sim.after(span, Fault::Resume(host));
            }),
            Self::Cuts => {
                let (ways, voters) = (rng.index(3), scenario.voters);
                at_holder(sim, runner, at, any, move |sim, host| cut(sim, host, voters, ways, span));
            }
            Self::Processes => self.processes(sim, runner, rng, at, any, span),
            Self::VoterCrashes => crash(sim, voter, DiskFate::Kept, at, rng),
            Self::Unsynced => {
                let runner = Rc::clone(runner);
                let call = move |_: &mut Sim<Turns>| runner.borrow_mut().seen.is_crash_due = true;
                sim.at(at, Step::Call(Box::new(call)));
            }
            Self::LostDisks => lose_disk(sim, group, voter, at, rng),
            Self::Drift => self.drift(scenario, sim, rng, at),
            Self::NoMajority => {
                sim.at(at, Fault::Partition(apart()));
                sim.at(at + span.min(Duration::from_secs(60)), Fault::Heal);
            }
            Self::Crowd => {
                let last = sim.len() as u64 - 1;
                let asker = rng.between(u64::from(scenario.voters).min(last), last) as u32;
                crash(sim, HostId::new(asker), DiskFate::Kept, at, rng);
            }
            Self::Sleeps => {
                let counts = rng.chance(0.5);
                at_holder(sim, runner, at, any, move |sim, host| {
                    sim.fault(Fault::Sleep { host, counts });
                    sim.after(span, Fault::Resume(host));
                });
            }
            Self::Splits => {
                let mut hosts: Vec<HostId> = sim.hosts().collect();
                rng.shuffle(&mut hosts);
                let half = hosts[..hosts.len() / 2].to_vec();
                sim.at(at, Fault::Partition(vec![half]));
                sim.at(at + span.min(Duration::from_secs(30)), Fault::Heal);
            }
        }
    }

    fn processes(
        self,
        sim: &mut Sim<Turns>,
        runner: &Rc<RefCell<Runner>>,
        rng: &mut Rng,
        at: Duration,
        any: HostId,
        span: Duration,
    ) {
        let (agent, client, guard) = (rng.chance(0.6), rng.chance(0.6), rng.chance(0.15));
        let (kill_client, kill_guard) = (rng.chance(0.15), rng.chance(0.1));
        let inner = Rc::clone(runner);
        at_holder(sim, runner, at, any, move |sim, host| {
            let now = sim.elapsed();
            if agent {
                sim.fault(Fault::Suspend(host));
                sim.after(span, Fault::Resume(host));
            }
            let mut runner = inner.borrow_mut();
            if client {
                runner.stop(sim, host, Who::Client, now + span);
            }
            if guard {
                runner.stop(sim, host, Who::Guard, now + span);
            }
            if kill_client {
                runner.kill(now, host, Who::Client);
            }
            if kill_guard {
                runner.kill(now, host, Who::Guard);
            }
        });
    }
}

/// Two voters, each alone: no majority is left anywhere.
fn apart() -> Vec<Vec<HostId>> {
    (0..2).map(|voter| vec![HostId::new(voter)]).collect()
}

/// Log-uniform from 1 ms to 100 s, half of them near a timer of the machine (FA-30).
pub(super) fn span(rng: &mut Rng) -> Duration {
    if rng.chance(0.5) {
        let near = [1.67, 2.0, 5.0, 7.0, 8.0, 10.0][rng.index(6)];
        return Duration::from_secs_f64(near * (0.5 + 1.5 * rng.unit()));
    }
    let decades = rng.unit() * 5.0;
    Duration::from_micros((1000.0 * libm_pow10(decades)) as u64)
}

/// 10 to the power of `x`, by squares: the same everywhere.
fn libm_pow10(x: f64) -> f64 {
    let (whole, part) = (x as u32, x - f64::from(x as u32));
    // 10^part = e^(part ln 10), as a series that has converged long before twenty terms.
    let exponent = part * core::f64::consts::LN_10;
    let (mut term, mut sum) = (1.0, 1.0);
    for n in 1..20 {
        term *= exponent / f64::from(n);
        sum += term;
    }
    sum * f64::from(10u32.pow(whole.min(6)))
}

/// Hits the host that runs a command at that moment, or another host if none does.
pub(super) fn at_holder(
    sim: &mut Sim<Turns>,
    runner: &Rc<RefCell<Runner>>,
    at: Duration,
    any: HostId,
    strike: impl FnOnce(&mut Sim<Turns>, HostId) + 'static,
) {
    let runner = Rc::clone(runner);
    let call = move |sim: &mut Sim<Turns>| {
        let holder = runner.borrow().holder().map_or(any, |host| HostId::new(host as u32));
        strike(sim, holder);
    };
    sim.at(at, Step::Call(Box::new(call)));
}

fn cut(sim: &mut Sim<Turns>, host: HostId, voters: u32, ways: usize, span: Duration) {
    for voter in (0..voters).map(HostId::new).filter(|voter| *voter != host) {
        let pairs = [(host, voter), (voter, host)];
        for (from, to) in
            pairs.into_iter().enumerate().filter(|(way, _)| ways == 2 || *way == ways).map(|(_, pair)| pair)
        {
            sim.fault(Fault::Cut { from, to });
            sim.after(span, Fault::Mend { from, to });
        }
    }
}

/// All voters lose power at this moment, with unsynced writes; their wall clocks restart an hour late.
pub(super) fn crash_all_voters(sim: &Sim<Turns>, group: &Group) {
    for host in group.voters() {
        sim.inject(Fault::Crash { host, power: false, disk: DiskFate::UnsyncedLost });
        sim.inject(Fault::WallAtStart { host, micros: -3_600_000_000 });
        let start = move |sim: &mut Sim<Turns>| sim.after(Duration::from_millis(20), Fault::Start(host));
        sim.inject(Step::Call(Box::new(start)));
    }
}

/// A voter loses its disk, if all others vote: with too few intact voters the group waits for an operator (TU-21).
fn lose_disk(sim: &mut Sim<Turns>, group: &Rc<RefCell<Group>>, host: HostId, at: Duration, rng: &mut Rng) {
    let down = Duration::from_millis(rng.between(10, 4000));
    let group = Rc::clone(group);
    let call = move |sim: &mut Sim<Turns>| {
        let votes = |voter: HostId| {
            let standing = sim.machine(voter).map(|machine| machine.standing(sim.clock(voter).mono));
            standing == Some(Standing::Voting)
        };
        let group = group.borrow();
        if group.voters().all(votes) && group.may_lose(sim, host) {
            sim.fault(Fault::Crash { host, power: false, disk: DiskFate::Lost });
            sim.after(down, Fault::Start(host));
        }
    };
    sim.at(at, Step::Call(Box::new(call)));
}

fn crash(sim: &mut Sim<Turns>, host: HostId, disk: DiskFate, at: Duration, rng: &mut Rng) {
    sim.at(at, Fault::Crash { host, power: false, disk });
    sim.at(at + Duration::from_millis(rng.between(10, 4000)), Fault::Start(host));
}
