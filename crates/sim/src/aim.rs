//! Faults of random lengths that hit the hosts a scenario names (FA-30, FA-31).
//!
//! A fault is decided when it happens, not before: the machines then say which durations they know, and the
//! scenario which host plays which part. A third of the faults are aimed, and a third of those come in pairs.

use core::time::Duration;
use std::net::IpAddr;

use annulus_core::{Machine, Rng, micros};

use crate::conditions::FaultPlan;
use crate::disk::{DiskFate, DiskHealth};
use crate::fault::{Block, Fault, Step, Traffic};
use crate::host::HostId;
use crate::sim::{Sim, address, stream_of};

/// The part that a host plays and for which it may be hit.
pub struct Aim<M: Machine> {
    /// The name of the part: `holder`, `owner`, `custodian`, `voter`, `neighbour`.
    pub name: &'static str,
    /// Finds the host that plays it at the moment.
    pub find: fn(&Sim<M>, &mut Rng) -> Option<HostId>,
}

impl<M: Machine> Clone for Aim<M> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<M: Machine> Copy for Aim<M> {}

/// The shortest fault.
const SHORTEST: Duration = Duration::from_millis(1);
/// The longest is so many times the longest timer of the machine.
const LONGEST_TIMES: u32 = 100;
/// The longest timer of a machine that names none.
const TIMER: Duration = Duration::from_secs(5);
/// Faults of a pair begin within this.
const PAIR_WITHIN: Duration = Duration::from_secs(2);
/// The share of faults that are aimed, and the share of those that come in pairs.
const A_THIRD: f64 = 1.0 / 3.0;

#[derive(Clone, Copy, Debug)]
enum Kind {
    Crash,
    Disk(DiskFate),
    Partition,
    Cut,
    PairCut,
    Filter,
    Delay,
    PathMtu,
    Suspend,
    Sleep,
    Pause,
    WallJump,
    WrongDate,
    Slow,
    Stutter,
    DiskFault,
    SyncFails,
    Starve,
    Drift(u32),
    Death,
    Clone,
    Readdress,
    Move,
    AppStop,
}

impl FaultPlan {
    /// Puts all faults of the plan into a simulation, each somewhere within the next `during`. Their lengths are
    /// log-uniform; half of them are near a duration that the machine names. A third hit hosts that play a part.
    pub fn schedule_all<M: Machine + 'static>(
        &self,
        seed: u64,
        sim: &mut Sim<M>,
        during: Duration,
        aims: &'static [Aim<M>],
    ) {
        if sim.is_empty() {
            return;
        }
        let more = &self.more;
        if more.disk_lies + more.rollbacks > 0 {
            sim.config_mut().disk.history = 256;
        }
        let kinds = [
            (self.crashes, Kind::Crash),
            (self.disks_lost, Kind::Disk(DiskFate::Lost)),
            (self.partitions, Kind::Partition),
            (self.cuts, Kind::Cut),
            (self.suspensions, Kind::Suspend),
            (self.sleeps, Kind::Sleep),
            (self.wall_jumps, Kind::WallJump),
            (self.slow_hosts, Kind::Slow),
            (self.disk_faults, Kind::DiskFault),
            (more.pauses, Kind::Pause),
            (more.pair_cuts, Kind::PairCut),
            (more.filters, Kind::Filter),
            (more.delays, Kind::Delay),
            (more.path_mtus, Kind::PathMtu),
            (more.stutters, Kind::Stutter),
            (more.drift_changes, Kind::Drift(self.drift_ppm)),
            (more.wrong_dates, Kind::WrongDate),
            (more.disk_lies, Kind::Disk(DiskFate::Lied)),
            (more.rollbacks, Kind::Disk(DiskFate::Rollback)),
            (more.sync_failures, Kind::SyncFails),
            (more.starvations, Kind::Starve),
            (more.deaths, Kind::Death),
            (more.clones, Kind::Clone),
            (more.readdresses, Kind::Readdress),
            (more.app_stops, Kind::AppStop),
        ];
        let mut rng = Rng::from_number(seed, stream_of::FAULTS);
        let ends = sim.elapsed() + during;
        for (count, kind) in kinds {
            for _ in 0..count {
                let (at, seed) = (rng.duration_below(during), rng.next_u64());
                strike_after(sim, at, kind, seed, ends, aims);
            }
        }
        if self.drift_ppm > 0 {
            for host in sim.hosts() {
                sim.after(Duration::ZERO, Fault::Drift { host, ppm: ppm(self.drift_ppm, &mut rng) });
            }
        }
        let mut rng = Rng::from_number(seed, stream_of::MOVES);
        for _ in 0..more.moves {
            let (at, seed) = (rng.duration_below(during), rng.next_u64());
            strike_after(sim, at, Kind::Move, seed, ends, aims);
        }
    }
}

fn strike_after<M: Machine + 'static>(
    sim: &mut Sim<M>,
    after: Duration,
    kind: Kind,
    seed: u64,
    ends: Duration,
    aims: &'static [Aim<M>],
) {
    let call = move |sim: &mut Sim<M>| {
        // The second of a pair may come too late: nothing would end it.
        if sim.elapsed() >= ends {
            return;
        }
        let mut rng = Rng::from_number(seed, stream_of::FAULTS);
        let aimed = rng.chance(A_THIRD).then(|| rng.pick(aims).copied()).flatten();
        let found = aimed.and_then(|aim| (aim.find)(sim, &mut rng));
        let host = found.unwrap_or_else(|| HostId::new(rng.below(sim.len() as u64) as u32));
        if found.is_some() && rng.chance(A_THIRD) {
            let (later, seed) = (rng.duration_below(PAIR_WITHIN), rng.next_u64());
            strike_after(sim, later, kind, seed, ends, aims);
        }
        let span = Span { lasts: length(sim, host, &mut rng), ends };
        strike(sim, kind, host, span, &mut rng);
    };
    sim.after(after, Step::Call(Box::new(call)));
}

/// How long a fault of a host lasts, and when all of them end.
#[derive(Clone, Copy)]
struct Span {
    lasts: Duration,
    ends: Duration,
}

impl Span {
    fn of<M: Machine>(self, sim: &mut Sim<M>, begin: Fault, end: Fault) {
        sim.fault(begin);
        if sim.elapsed() + self.lasts < self.ends {
            sim.after(self.lasts, end);
        }
    }
}

/// FA-30: every gap between two timers is hit.
fn length<M: Machine>(sim: &Sim<M>, host: HostId, rng: &mut Rng) -> Duration {
    let mut scales = sim.machine(host).map(Machine::timescales).unwrap_or_default();
    // A timer that is switched off.
    scales.retain(|(_, scale)| !scale.is_zero());
    if rng.chance(0.5)
        && let Some((_, scale)) = rng.pick(&scales)
    {
        return scale.mul_f64(0.5 + 1.5 * rng.unit()).max(SHORTEST);
    }
    let longest = scales.iter().map(|(_, scale)| *scale).max().unwrap_or(TIMER).max(SHORTEST) * LONGEST_TIMES;
    let (low, high) = (micros(SHORTEST) as f64, micros(longest) as f64);
    Duration::from_micros((low * libm::exp(rng.unit() * libm::log(high / low))) as u64)
}

fn ppm(most: u32, rng: &mut Rng) -> i32 {
    rng.between(0, 2 * u64::from(most)) as i32 - most as i32
}

/// A date that is wrong by up to a day.
fn date(rng: &mut Rng) -> i64 {
    const DAY_MICROS: u64 = 86_400_000_000;
    rng.below(2 * DAY_MICROS) as i64 - DAY_MICROS as i64
}

/// Applies a fault of the network between hosts.
fn strike_path<M: Machine>(
    sim: &mut Sim<M>,
    kind: Kind,
    (from, to): (HostId, HostId),
    span: Span,
    rng: &mut Rng,
) {
    match kind {
        Kind::Partition => {
            let group = sim.hosts().filter(|_| rng.chance(0.5)).collect();
            span.of(sim, Fault::Partition(vec![group]), Fault::Heal);
        }
        Kind::Cut => span.of(sim, Fault::Cut { from, to }, Fault::Mend { from, to }),
        Kind::PairCut => {
            span.of(sim, Fault::Cut { from, to }, Fault::Mend { from, to });
            span.of(sim, Fault::Cut { from: to, to: from }, Fault::Mend { from: to, to: from });
        }
        Kind::Filter => {
            let what =
                *rng.pick(&[Traffic::All, Traffic::Datagrams, Traffic::Streams]).unwrap_or(&Traffic::All);
            let how = if rng.chance(0.5) { Block::Drop } else { Block::Reject };
            span.of(sim, Fault::Filter { from, to, what, how }, Fault::Mend { from, to });
        }
        Kind::Delay => {
            let by = Duration::from_millis(60_000 >> rng.below(12));
            span.of(sim, Fault::Delay { from, to, by }, Fault::Mend { from, to });
        }
        Kind::PathMtu => {
            let bytes = rng.between(500, 1_400) as usize;
            span.of(sim, Fault::PathMtu { from, to, bytes }, Fault::Mend { from, to });
        }
        _ => {}
    }
}

fn strike<M: Machine>(sim: &mut Sim<M>, kind: Kind, host: HostId, span: Span, rng: &mut Rng) {
    let other = HostId::new(rng.below(sim.len() as u64) as u32);
    let (from, to) = if rng.chance(0.5) { (host, other) } else { (other, host) };
    match kind {
        Kind::Crash => {
            let power = rng.chance(0.5);
            let disk = if power { DiskFate::UnsyncedLost } else { DiskFate::Kept };
            span.of(sim, Fault::Crash { host, power, disk }, Fault::Start(host));
        }
        Kind::Disk(disk) => span.of(sim, Fault::Crash { host, power: true, disk }, Fault::Start(host)),
        Kind::Partition | Kind::Cut | Kind::PairCut | Kind::Filter | Kind::Delay | Kind::PathMtu => {
            strike_path(sim, kind, (from, to), span, rng);
        }
        Kind::Suspend => span.of(sim, Fault::Suspend(host), Fault::Resume(host)),
        Kind::Sleep => span.of(sim, Fault::Sleep { host, counts: true }, Fault::Resume(host)),
        Kind::Pause => span.of(sim, Fault::Sleep { host, counts: false }, Fault::Resume(host)),
        Kind::WallJump => sim.fault(Fault::JumpWall { host, micros: date(rng) }),
        Kind::WrongDate => sim.fault(Fault::WallAtStart { host, micros: date(rng) }),
        Kind::Slow => {
            let delay = Duration::from_micros(rng.between(100, 50_000));
            span.of(sim, Fault::Slow { host, delay }, Fault::Slow { host, delay: Duration::ZERO });
        }
        Kind::Stutter => {
            let median = Duration::from_micros(rng.between(50, 5_000));
            span.of(sim, Fault::Stutter { host, median }, Fault::Stutter { host, median: Duration::ZERO });
        }
        Kind::DiskFault => {
            let health = if rng.chance(0.5) { DiskHealth::Full } else { DiskHealth::Broken };
            span.of(sim, Fault::Disk { host, health }, Fault::Disk { host, health: DiskHealth::Good });
        }
        Kind::SyncFails => {
            let good = Fault::Disk { host, health: DiskHealth::Good };
            span.of(sim, Fault::Disk { host, health: DiskHealth::SyncFails }, good);
        }
        Kind::Starve => {
            let is_starved = true;
            span.of(sim, Fault::Starved { host, is_starved }, Fault::Starved { host, is_starved: false });
        }
        Kind::Drift(most) => sim.fault(Fault::Drift { host, ppm: ppm(most, rng) }),
        Kind::Death => {
            if enough_stay(sim, host, false) {
                sim.fault(Fault::Die(host));
            }
        }
        Kind::Move => strike_move(sim, host, span, rng),
        Kind::Readdress => {
            // Beyond the addresses that hosts have by their numbers.
            let to = IpAddr::from([10, 250, rng.below(256) as u8, rng.between(1, 254) as u8]);
            if sim.host_at(to).is_none() {
                sim.fault(Fault::Readdress { host, to });
            }
        }
        Kind::AppStop => {
            let until = (sim.elapsed() + span.lasts).min(span.ends);
            sim.note_beside_stopped(host, until);
        }
        Kind::Clone => {
            sim.fault(Fault::Crash { host, power: false, disk: DiskFate::Kept });
            sim.after(SHORTEST, Fault::Clone { from: other, to: host });
        }
    }
}

/// The hosts by which the others find a group.
const SEEDS: usize = 3;

/// Whether a host may die or move. A majority stays: a group that has died has nothing to promise. If hosts have moved, a
/// seed stays where it was: nobody finds a group of which every known address is wrong.
fn enough_stay<M: Machine>(sim: &Sim<M>, host: HostId, moves: bool) -> bool {
    let is_gone = |other: HostId| sim.is_dead(other) || sim.has_moved(other);
    let gone = sim.hosts().filter(|other| is_gone(*other)).count();
    let has_seed = sim.hosts().take(SEEDS).any(|seed| seed != host && !is_gone(seed));
    let moves = moves || sim.hosts().any(|other| sim.has_moved(other));
    2 * (gone + 1) < sim.len() && (has_seed || !moves)
}

/// A host gets another address: while its process runs, which is then deaf until it is started again, or between two
/// runs. A quarter of the addresses were another host's before.
fn strike_move<M: Machine>(sim: &mut Sim<M>, host: HostId, span: Span, rng: &mut Rng) {
    let left: Vec<IpAddr> = sim.hosts().filter(|other| sim.has_moved(*other)).map(address).collect();
    let fresh = IpAddr::from([10, 250, rng.below(256) as u8, rng.between(1, 254) as u8]);
    let used = rng.pick(&left).copied().filter(|_| rng.chance(0.25));
    let to = used.unwrap_or(fresh);
    if sim.is_dead(host) || sim.host_at(to).is_some() || !enough_stay(sim, host, true) {
        return;
    }
    let power = rng.chance(0.5);
    let disk = if power { DiskFate::UnsyncedLost } else { DiskFate::Kept };
    let crash = Fault::Crash { host, power, disk };
    let readdress = Fault::Readdress { host, to };
    // The end of all faults starts what is down, and leaves a deaf process alone.
    let lasts = span.lasts.min((span.ends - sim.elapsed()) / 2);
    if rng.chance(0.5) {
        sim.fault(readdress);
        sim.after(lasts, crash);
    } else {
        sim.fault(crash);
        sim.fault(readdress);
    }
    sim.after(lasts, Fault::Start(host));
}
