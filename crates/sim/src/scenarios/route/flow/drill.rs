//! Drills: the fault of a run, its target, its begin and its end.

use core::time::Duration;

use annulus_core::pastry::Pastry;
use annulus_core::{Machine, Rng, micros};

use crate::aim::Aim;
use crate::conditions::Conditions;
use crate::config::StreamConfig;
use crate::disk::DiskFate;
use crate::fault::{Block, Fault, Traffic};
use crate::host::HostId;
use crate::latency::Latency;
use crate::sim::Sim;

const SECOND: Duration = Duration::from_secs(1);
/// The longest fault of a drill.
const LONGEST: Duration = Duration::from_secs(60);
/// The most that the scheduler is late by in [`Drill::Noise`].
const NOISE_MAX: Duration = Duration::from_millis(20);

/// The fault of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drill {
    /// A partition of 1 to 60 s heals (CUF-11).
    Heal,
    /// One owner is gone for a while (CUF-12).
    Owner(Gone),
    /// The application of one owner gets ten times more than it can take (CUF-13).
    Flood,
    /// The application of one owner ends, and starts again later (CUF-14).
    NoApplication,
    /// Every process is late by up to 20 ms, all the time (CU-44).
    Noise,
    /// All faults that there are (CUF-15).
    Anything,
}

/// How an owner is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gone {
    /// Its process is killed, and starts again.
    Killed,
    /// It has no power, and starts again.
    PowerLost,
    /// Its process is paused (SIGSTOP).
    Stopped,
    /// Its packets reach no other node.
    Mute,
    /// No packets reach it.
    Deaf,
    /// No datagram reaches it or leaves it.
    NoDatagrams,
    /// No stream reaches it or leaves it.
    NoStreams,
}

impl Gone {
    const ALL: [Self; 7] = [
        Self::Killed,
        Self::PowerLost,
        Self::Stopped,
        Self::Mute,
        Self::Deaf,
        Self::NoDatagrams,
        Self::NoStreams,
    ];

    /// Whether it restarts as another process.
    pub(super) const fn restarts(self) -> bool {
        matches!(self, Self::Killed | Self::PowerLost)
    }
}

impl Drill {
    /// A drill that the seed draws.
    pub(super) fn draw(rng: &mut Rng) -> Self {
        match rng.below(6) {
            0 => Self::Heal,
            1 => Self::Owner(*rng.pick(&Gone::ALL).unwrap_or(&Gone::Killed)),
            2 => Self::Flood,
            3 => Self::NoApplication,
            4 => Self::Noise,
            _ => Self::Anything,
        }
    }

    /// Whether the drill is the only fault, so that messages must also be prompt.
    pub(super) const fn is_quiet(self) -> bool {
        !matches!(self, Self::Anything)
    }

    /// The drill of a name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        let others = [Self::Heal, Self::Flood, Self::NoApplication, Self::Noise, Self::Anything];
        let mut all = Gone::ALL.into_iter().map(Self::Owner).chain(others);
        all.find(|drill| drill.name() == name)
    }

    /// The name of the drill, for the report.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Heal => "partition",
            Self::Owner(Gone::Killed) => "owner_killed",
            Self::Owner(Gone::PowerLost) => "owner_without_power",
            Self::Owner(Gone::Stopped) => "owner_stopped",
            Self::Owner(Gone::Mute) => "owner_mute",
            Self::Owner(Gone::Deaf) => "owner_deaf",
            Self::Owner(Gone::NoDatagrams) => "owner_without_datagrams",
            Self::Owner(Gone::NoStreams) => "owner_without_streams",
            Self::Flood => "flood",
            Self::NoApplication => "no_application",
            Self::Noise => "noise",
            Self::Anything => "anything",
        }
    }

    /// The world of the drill: a local network, or anything.
    pub(super) fn conditions(self, rng: &mut Rng) -> Conditions {
        if !self.is_quiet() {
            return Conditions::all_faults(rng);
        }
        let mut conditions = Conditions::default();
        let micros = Duration::from_micros(rng.between(50, 1000));
        conditions.config.network.latency = match rng.below(2) {
            0 => Latency::Constant(micros),
            _ => Latency::Uniform(Duration::from_micros(50), micros.max(Duration::from_micros(51))),
        };
        let is_bounded = rng.chance(0.5);
        conditions.config.stream =
            if is_bounded { StreamConfig::linux_rto_max() } else { StreamConfig::linux() };
        conditions
    }

    /// The length of the drill.
    pub(super) fn length(self, rng: &mut Rng) -> Duration {
        match self {
            Self::Heal => log_uniform(SECOND, LONGEST, rng),
            Self::Owner(Gone::Stopped) => log_uniform(SECOND / 10, LONGEST, rng),
            Self::Owner(_) => log_uniform(SECOND, LONGEST, rng),
            Self::Flood => 4 * SECOND,
            Self::NoApplication => 8 * SECOND,
            Self::Noise | Self::Anything => 30 * SECOND,
        }
    }
}

/// A span of log-uniform length.
fn log_uniform(least: Duration, most: Duration, rng: &mut Rng) -> Duration {
    let (low, high) = (micros(least) as f64, micros(most) as f64);
    Duration::from_micros((low * libm::exp(rng.unit() * libm::log(high / low))) as u64)
}

/// When a drill happens, and to whom.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    pub(super) drill: Drill,
    pub(super) begin: Duration,
    pub(super) end: Duration,
    /// The owner that the drill hits.
    pub(super) victim: HostId,
}

impl Plan {
    /// Puts the faults of the drill into the run. Those about applications are the scenario's.
    pub(super) fn schedule(
        &self,
        seed: u64,
        conditions: &Conditions,
        sim: &mut Sim<Pastry>,
        rng: &mut Rng,
        is_forever: bool,
    ) {
        let (begin, end, host) = (self.begin, self.end, self.victim);
        match self.drill {
            Drill::Heal => {
                let mut group: Vec<HostId> = sim.hosts().filter(|_| rng.chance(0.5)).collect();
                group.retain(|at| *at != host);
                group.push(host);
                if group.len() == sim.len() {
                    group.remove(0);
                }
                sim.at(begin, Fault::Partition(vec![group]));
                if !is_forever {
                    sim.at(end, Fault::Heal);
                }
            }
            Drill::Owner(gone) => self.take_away(gone, sim),
            Drill::Noise => noise(begin, end, sim, rng),
            Drill::Anything => conditions.faults.schedule_all(seed, sim, end, &AIMS),
            Drill::Flood | Drill::NoApplication => {}
        }
    }

    fn take_away(&self, gone: Gone, sim: &mut Sim<Pastry>) {
        let (begin, end, host) = (self.begin, self.end, self.victim);
        let others: Vec<HostId> = sim.hosts().filter(|other| *other != host).collect();
        let filter = |from, to, what| Fault::Filter { from, to, what, how: Block::Drop };
        match gone {
            Gone::Killed | Gone::PowerLost => {
                let power = gone == Gone::PowerLost;
                sim.at(begin, Fault::Crash { host, power, disk: DiskFate::Kept });
                return sim.at(end, Fault::Start(host));
            }
            Gone::Stopped => {
                sim.at(begin, Fault::Suspend(host));
                return sim.at(end, Fault::Resume(host));
            }
            Gone::Mute => others.iter().for_each(|&to| sim.at(begin, Fault::Cut { from: host, to })),
            Gone::Deaf => others.iter().for_each(|&from| sim.at(begin, Fault::Cut { from, to: host })),
            Gone::NoDatagrams | Gone::NoStreams => {
                let what = if gone == Gone::NoStreams { Traffic::Streams } else { Traffic::Datagrams };
                for &other in &others {
                    sim.at(begin, filter(host, other, what));
                    sim.at(begin, filter(other, host, what));
                }
            }
        }
        for other in others {
            sim.at(end, Fault::Mend { from: host, to: other });
            sim.at(end, Fault::Mend { from: other, to: host });
        }
    }
}

/// Every process is paused for up to 20 ms, again and again.
fn noise(begin: Duration, end: Duration, sim: &mut Sim<Pastry>, rng: &mut Rng) {
    for host in sim.hosts() {
        let mut at = begin + rng.duration_below(SECOND);
        while at < end {
            let pause = rng.duration_below(NOISE_MAX);
            sim.at(at, Fault::Suspend(host));
            sim.at(at + pause, Fault::Resume(host));
            at += pause + rng.duration_below(10 * NOISE_MAX);
        }
    }
}

/// A node with messages under way.
fn busy(sim: &Sim<Pastry>, rng: &mut Rng) -> Option<HostId> {
    let waits = |machine: &Pastry| {
        machine
            .poll_timeout()
            .is_some_and(|(_, timer)| matches!(timer, "route.in_flight" | "route.outstanding"))
    };
    let hosts: Vec<HostId> =
        sim.machines().filter(|(_, machine)| waits(machine)).map(|(host, _)| host).collect();
    rng.pick(&hosts).copied()
}

/// A node that another node treats as absent.
fn away(sim: &Sim<Pastry>, rng: &mut Rng) -> Option<HostId> {
    let ids: Vec<_> = sim.machines().flat_map(|(_, machine)| machine.away().to_vec()).collect();
    let id = *rng.pick(&ids)?;
    sim.machines().find(|(_, machine)| machine.own().id == id).map(|(host, _)| host)
}

static AIMS: [Aim<Pastry>; 2] = [Aim { name: "owner", find: busy }, Aim { name: "away", find: away }];
