//! A record of faults per host and time. The simulator keeps it, so no checker can claim a fault that was not.

use core::time::Duration;
use std::collections::BTreeSet;

use annulus_core::{Machine, micros};
use serde::Serialize;

use crate::disk::{DiskFate, DiskHealth};
use crate::fault::Fault;
use crate::host::{HostId, HostState};
use crate::sim::Sim;

/// A kind of trouble that a host was in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// Its process ended.
    Crashed,
    /// It was without power.
    PowerLost,
    /// Its process was paused.
    Stalled,
    /// The machine was suspended, and its clock went on.
    Asleep,
    /// The machine was paused, and its clock with it.
    ClockStopped,
    /// It took its time for inputs.
    Slow,
    /// Its clock ran too fast or too slow.
    Drifted,
    /// Its wall clock was set.
    WallSet,
    /// Packets from it or to it were stopped or delayed.
    Cut,
    /// Its disk was emptied.
    DiskLost,
    /// Its disk lost writes that it had called durable, or became an older one.
    DiskLied,
    /// Its disk failed operations.
    DiskFailed,
    /// It was started with a copy of another one's disk, or another one with a copy of its.
    Cloned,
    /// It got another address.
    Readdressed,
    /// Its system had no descriptors and no buffers.
    Starved,
    /// It went for good.
    Died,
    /// A process beside it, such as the guard of a command, was stopped.
    BesideStopped,
    /// The network lost datagrams at random.
    Lossy,
}

impl Cause {
    /// All causes, with their names as situations of a report.
    pub const ALL: [(Self, &'static str); 18] = [
        (Self::Crashed, "fault_crashed"),
        (Self::PowerLost, "fault_power_lost"),
        (Self::Stalled, "fault_stalled"),
        (Self::Asleep, "fault_asleep"),
        (Self::ClockStopped, "fault_clock_stopped"),
        (Self::Slow, "fault_slow"),
        (Self::Drifted, "fault_drifted"),
        (Self::WallSet, "fault_wall_set"),
        (Self::Cut, "fault_cut"),
        (Self::DiskLost, "fault_disk_lost"),
        (Self::DiskLied, "fault_disk_lied"),
        (Self::DiskFailed, "fault_disk_failed"),
        (Self::Cloned, "fault_cloned"),
        (Self::Readdressed, "fault_readdressed"),
        (Self::Starved, "fault_starved"),
        (Self::Died, "fault_died"),
        (Self::BesideStopped, "fault_beside_stopped"),
        (Self::Lossy, "fault_lossy"),
    ];
}

/// One trouble of one host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// The host.
    pub host: HostId,
    /// Which.
    pub cause: Cause,
    /// Since when.
    pub from: Duration,
    /// Until when; `None` if it lasts.
    pub until: Option<Duration>,
}

/// Where the fault lies that a trouble comes from: two faults of one kind end apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    Host,
    /// One direction between two hosts.
    Path(HostId, HostId),
    Partition,
}

/// All troubles of a simulation so far.
#[derive(Debug, Default)]
pub(crate) struct Causes {
    all: Vec<(Trouble, Origin)>,
}

impl Causes {
    fn begin(&mut self, host: HostId, cause: Cause, origin: Origin, now: u64) {
        let from = Duration::from_micros(now);
        self.all.push((Trouble { host, cause, from, until: None }, origin));
    }

    /// Something that has no length.
    fn strike(&mut self, host: HostId, cause: Cause, now: u64) {
        let at = Duration::from_micros(now);
        self.all.push((Trouble { host, cause, from: at, until: Some(at) }, Origin::Host));
    }

    fn end(&mut self, which: impl Fn(&Trouble, Origin) -> bool, now: u64) {
        for (trouble, origin) in self.all.iter_mut().filter(|(one, _)| one.until.is_none()) {
            if which(trouble, *origin) {
                trouble.until = Some(Duration::from_micros(now));
            }
        }
    }

    fn end_of(&mut self, host: HostId, causes: &[Cause], now: u64) {
        self.end(|one, _| one.host == host && causes.contains(&one.cause), now);
    }

    /// A lasting fault begins anew, or ends.
    fn lasting(&mut self, host: HostId, cause: Cause, on: bool, now: u64) {
        self.end_of(host, &[cause], now);
        if on {
            self.begin(host, cause, Origin::Host, now);
        }
    }
}

impl<M: Machine> Sim<M> {
    /// The troubles of a host that touch a span of time, in the order in which they began.
    pub fn causes(&self, host: HostId, since: Duration, until: Duration) -> impl Iterator<Item = Trouble> {
        let touches = move |one: &Trouble| {
            one.host == host && one.from <= until && one.until.is_none_or(|end| end >= since)
        };
        self.causes.all.iter().map(|(one, _)| *one).filter(touches)
    }

    /// When the last trouble of this kind ended that a host was in; `None` if there was none, or if it lasts.
    #[must_use]
    pub fn last_end(&self, host: HostId, causes: &[Cause]) -> Option<Duration> {
        let all = self.causes.all.iter().map(|(one, _)| one);
        let own = all.filter(|one| one.host == host && causes.contains(&one.cause));
        own.map(|one| one.until).max_by_key(|until| until.unwrap_or(Duration::MAX)).flatten()
    }

    /// When the last fault of any host ended; `None` while one lasts. A fault of a dead host counts as ended.
    #[must_use]
    pub fn quiet_since(&self) -> Option<Duration> {
        let all = self.causes.all.iter().map(|(one, _)| one);
        let ends = all.map(|one| if self.is_dead(one.host) { Some(one.from) } else { one.until });
        ends.max_by_key(|until| until.unwrap_or(Duration::MAX)).unwrap_or(Some(Duration::ZERO))
    }

    /// The kinds of trouble that any host was in so far.
    #[must_use]
    pub fn causes_met(&self) -> BTreeSet<Cause> {
        self.causes.all.iter().map(|(one, _)| one.cause).collect()
    }

    /// Notes that a process beside the machine of a host is stopped from now until a moment.
    pub fn note_beside_stopped(&mut self, host: HostId, until: Duration) {
        let (cause, from) = (Cause::BesideStopped, Duration::from_micros(self.now));
        self.causes.all.push((Trouble { host, cause, from, until: Some(until) }, Origin::Host));
    }

    /// Notes for all hosts that the network loses datagrams, if it does.
    pub fn note_loss(&mut self) {
        if self.config.network.loss > 0.0 {
            let now = self.now;
            self.hosts().for_each(|host| self.causes.strike(host, Cause::Lossy, now));
        }
    }

    /// Records the cause of a fault for each host concerned. It has not happened yet.
    pub(crate) fn note_causes(&mut self, fault: &Fault) {
        let now = self.now;
        match *fault {
            Fault::Crash { host, power, disk } => {
                self.causes.end_of(host, &[Cause::Stalled, Cause::Asleep, Cause::ClockStopped], now);
                self.causes.lasting(host, if power { Cause::PowerLost } else { Cause::Crashed }, true, now);
                match disk {
                    DiskFate::Lost => self.causes.strike(host, Cause::DiskLost, now),
                    DiskFate::Lied | DiskFate::Rollback => self.causes.strike(host, Cause::DiskLied, now),
                    DiskFate::Kept | DiskFate::UnsyncedLost => {}
                }
            }
            Fault::Start(host) if !self.is_dead(host) => {
                self.causes.end_of(host, &[Cause::PowerLost, Cause::Crashed], now);
            }
            Fault::Start(_) | Fault::Network(_) => {}
            Fault::Suspend(host) if self.runs(host) => {
                self.causes.lasting(host, Cause::Stalled, true, now);
            }
            Fault::Sleep { host, counts } if self.runs(host) => {
                let cause = if counts { Cause::Asleep } else { Cause::ClockStopped };
                self.causes.lasting(host, cause, true, now);
            }
            // A machine that sleeps already stops its clock, too.
            Fault::Sleep { host, counts: false } if self.state(host) == HostState::Asleep => {
                self.causes.lasting(host, Cause::ClockStopped, true, now);
            }
            Fault::Suspend(_) | Fault::Sleep { .. } => {}
            Fault::Resume(host) => {
                self.causes.end_of(host, &[Cause::Stalled, Cause::Asleep, Cause::ClockStopped], now);
            }
            Fault::Drift { host, ppm } => self.causes.lasting(host, Cause::Drifted, ppm != 0, now),
            Fault::JumpWall { host, .. } | Fault::WallAtStart { host, .. } => {
                self.causes.strike(host, Cause::WallSet, now);
            }
            Fault::Stutter { host, median } => {
                self.causes.lasting(host, Cause::Slow, micros(median) > 0, now);
            }
            Fault::Slow { host, delay } => self.causes.lasting(host, Cause::Slow, micros(delay) > 0, now),
            Fault::Starved { host, is_starved } => self.causes.lasting(host, Cause::Starved, is_starved, now),
            Fault::Die(host) => self.causes.lasting(host, Cause::Died, true, now),
            Fault::Readdress { host, .. } => self.causes.strike(host, Cause::Readdressed, now),
            Fault::Clone { from, to } => {
                self.causes.end_of(to, &[Cause::PowerLost, Cause::Crashed], now);
                [from, to].into_iter().for_each(|host| self.causes.strike(host, Cause::Cloned, now));
            }
            Fault::Disk { host, health } => {
                self.causes.lasting(host, Cause::DiskFailed, health != DiskHealth::Good, now);
            }
            _ => self.note_paths(fault),
        }
    }

    /// Records the cause of a network fault for each host concerned.
    fn note_paths(&mut self, fault: &Fault) {
        let (now, hosts) = (self.now, self.hosts());
        let causes = &mut self.causes;
        match *fault {
            Fault::Cut { from, to }
            | Fault::Filter { from, to, .. }
            | Fault::Delay { from, to, .. }
            | Fault::PathMtu { from, to, .. } => {
                causes.end(|_, origin| origin == Origin::Path(from, to), now);
                for host in [from, to] {
                    causes.begin(host, Cause::Cut, Origin::Path(from, to), now);
                }
            }
            Fault::Mend { from, to } => causes.end(|_, origin| origin == Origin::Path(from, to), now),
            Fault::Partition(_) => {
                causes.end(|_, origin| origin == Origin::Partition, now);
                hosts.for_each(|host| causes.begin(host, Cause::Cut, Origin::Partition, now));
            }
            Fault::Heal => {
                causes.end(|_, origin| matches!(origin, Origin::Path(..) | Origin::Partition), now);
            }
            Fault::Calm => causes.end(|one, _| one.cause != Cause::Died, now),
            _ => {}
        }
    }

    fn runs(&self, host: HostId) -> bool {
        matches!(self.state(host), HostState::Up | HostState::Loading)
    }
}
