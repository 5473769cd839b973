//! Every fault of `docs/simulator.md` (FA-1 … FA-17) catches a machine that is careless about it, in 20 seeds; the sound
//! machine passes them all (FA-19, FA-28).

#![expect(clippy::unwrap_used, reason = "a helper of a test fails like a test")]

mod courier;

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use annulus_core::StreamId;
use annulus_sim::{
    Aim, App, Block, Cause, Config, Excuse, Fault, FaultModel, FaultPlan, HostId, HostState, Ledger,
    MorePlan, Observer, Promise, Sim, StreamConfig, Verdict, Violation,
};
use courier::{Courier, Event, Flaw, LEASE, SPACE, Settle};

const HOSTS: usize = 4;
/// The time with faults, and the interval of checks.
const FAULTS: Duration = Duration::from_secs(150);
const LOOK: Duration = Duration::from_millis(250);
/// The time until a done note is on the other disk if the own kernel is trusted; sound couriers need none.
const DURABLE_WITHIN: Duration = Duration::from_millis(400);
/// The places of an application, and how long it takes for a note (FA-16).
const APP: (usize, Duration) = (2, Duration::from_millis(50));
/// How long others may take to see that a courier is gone, or that it is there.
const NOTICED: Duration = Duration::from_secs(15);

/// A courier whose clock stopped cannot know that its lease is over.
const FROZEN_CLOCK: Excuse = Excuse {
    name: "FROZEN_CLOCK",
    because: "a paused machine cannot know that it was paused",
    needs: &[Cause::ClockStopped],
    reach: Duration::from_secs(5),
    most_per_run: 200,
    each_at_most: Duration::ZERO,
};

/// A disk that loses durable writes loses notes that were acknowledged a moment ago.
const DISK_LIED: Excuse = Excuse {
    name: "DISK_LIED",
    because: "no machine can keep what its disk forgets",
    needs: &[Cause::DiskLied, Cause::DiskLost],
    reach: Duration::from_secs(5),
    most_per_run: 20,
    each_at_most: Duration::ZERO,
};

const GOES_ON: Promise =
    Promise { name: "goes_on", prompt: Duration::from_secs(8), at_last: Duration::from_secs(20) };

/// One fault, and a world in which it happens.
struct Row {
    clause: &'static str,
    flaw: Flaw,
    plan: FaultPlan,
    world: fn(&mut Config),
    /// The pause between two notes.
    every: Duration,
    /// Whether notes are for an application.
    has_app: bool,
}

fn row(clause: &'static str, flaw: Flaw, plan: FaultPlan) -> Row {
    Row { clause, flaw, plan, world: |_| {}, every: Duration::from_secs(1), has_app: false }
}

fn plan(change: impl Fn(&mut FaultPlan)) -> FaultPlan {
    let mut plan = FaultPlan { model: FaultModel::V2, ..FaultPlan::default() };
    change(&mut plan);
    plan
}

fn more(change: impl Fn(&mut MorePlan)) -> FaultPlan {
    plan(|plan| change(&mut plan.more))
}

fn rows() -> Vec<Row> {
    vec![
        row("FA-1", Flaw::TrustsKernel, plan(|plan| plan.crashes = 8)),
        row("FA-2", Flaw::NoTimeout, more(|more| more.pair_cuts = 8)),
        Row {
            world: |config| {
                config.stream.keepalive = None;
                config.network.flow_idle_max = Some(Duration::from_secs(20));
                config.network.flow_end = Block::Drop;
            },
            every: Duration::from_secs(25),
            ..row("FA-3", Flaw::NoTimeout, FaultPlan::default())
        },
        Row {
            world: |config| config.host.backlog = 1,
            ..row("FA-4", Flaw::NoConnectTimeout, plan(|plan| (plan.suspensions, plan.crashes) = (6, 4)))
        },
        row("FA-5", Flaw::FlagNotClock, plan(|plan| plan.suspensions = 8)),
        row("FA-6", Flaw::NoGrace, plan(|plan| plan.suspensions = 8)),
        Row {
            every: Duration::from_secs(7),
            ..row("FA-6", Flaw::FlagNotClock, more(|more| more.stutters = 4))
        },
        row("FA-7", Flaw::CountsTicks, plan(|plan| plan.sleeps = 6)),
        Row {
            every: Duration::from_secs(4),
            ..row("FA-8", Flaw::WallClock, plan(|plan| (plan.wall_jumps, plan.more.pair_cuts) = (60, 20)))
        },
        row("FA-9", Flaw::PongIsProof, more(|more| more.filters = 40)),
        row("FA-9", Flaw::NoTimeout, more(|more| more.delays = 40)),
        row("FA-10", Flaw::PongIsProof, more(|more| more.path_mtus = 8)),
        row("FA-11", Flaw::IgnoresFailed, plan(|plan| plan.disk_faults = 6)),
        row("FA-11", Flaw::IgnoresFailed, more(|more| more.sync_failures = 6)),
        row("FA-11", Flaw::NeverGoesBack, more(|more| more.disk_lies = 6)),
        row("FA-11", Flaw::NeverGoesBack, more(|more| more.rollbacks = 4)),
        row("FA-12", Flaw::FixedAddress, more(|more| more.readdresses = 1)),
        row("FA-12", Flaw::FixedAddress, more(|more| more.moves = 1)),
        row("FA-13", Flaw::NoIdentityCheck, more(|more| more.clones = 1)),
        row("FA-14", Flaw::FailedIsFinal, more(|more| more.starvations = 12)),
        Row {
            world: |config| config.network.stray = 0.2,
            ..row("FA-15", Flaw::LateIsFresh, plan(|plan| plan.crashes = 4))
        },
        Row { has_app: true, ..row("FA-16", Flaw::EventIsDelivery, more(|more| more.app_stops = 8)) },
        row("FA-17", Flaw::NeedsAll, more(|more| more.deaths = 1)),
    ]
}

/// Watches all couriers.
#[derive(Default)]
struct Watch {
    ledger: Ledger,
    /// When a note was written last: by writer, then by number.
    written: BTreeMap<(HostId, u64), Duration>,
    /// When each host was last not simply running.
    uneasy: BTreeMap<HostId, Duration>,
    done_at: BTreeMap<HostId, Duration>,
    conflicts: BTreeSet<usize>,
    /// The applications, by host.
    apps: BTreeMap<HostId, App<(usize, u64)>>,
    /// Notes that are done but not finished: receiver, writer, number.
    unfinished: BTreeSet<(usize, usize, u64)>,
    finished: BTreeSet<(usize, usize, u64)>,
    /// Notes that were taken for done: when, by whom, where they must be, and their number.
    owed: Vec<(Duration, HostId, HostId, u64)>,
}

impl Watch {
    /// Lets the applications work, unless they are stopped, and settles the notes that they have finished.
    fn run_apps(&mut self, sim: &mut Sim<Courier>) {
        let now = sim.elapsed();
        for (host, app) in &mut self.apps {
            let is_stopped = sim.causes(*host, now, now).any(|one| one.cause == Cause::BesideStopped);
            app.stop(now, is_stopped);
            app.run(now);
            for (from, number) in app.take_finished() {
                self.finished.insert((host.index(), from, number));
                sim.command(*host, Settle { from, number });
            }
        }
    }

    /// Checks all couriers from outside.
    fn look(&mut self, sim: &Sim<Courier>) -> Verdict {
        let now = sim.elapsed();
        for host in sim.hosts() {
            if sim.state(host) != HostState::Up {
                self.uneasy.insert(host, now);
            }
        }
        self.look_at_disks(sim)?;
        for (host, courier) in sim.machines().filter(|(host, _)| sim.state(*host) != HostState::Asleep) {
            self.look_at_lease(sim, host, courier)?;
            for other in sim.hosts().filter(|other| *other != host) {
                self.look_at_suspicion(sim, (host, courier), other)?;
            }
        }
        Ok(())
    }

    /// A note that is done is on the disk of its receiver.
    fn look_at_disks(&mut self, sim: &Sim<Courier>) -> Verdict {
        let (due, later) = self.owed.drain(..).partition(|(at, ..)| *at + DURABLE_WITHIN <= sim.elapsed());
        self.owed = later;
        let mut due: Vec<(Duration, HostId, HostId, u64)> = due;
        if sim.hosts().any(|host| is_cloned(sim, host)) {
            due.clear();
        }
        for (_, host, to, number) in due {
            let (disk, key) = (sim.disk(to), Courier::key(host.index()));
            let value = disk.and_then(|disk| disk.value(SPACE, &key));
            let stored = value.map_or(0, |value| u64::from_be_bytes(value.try_into().unwrap()));
            let is_synced = disk.is_some_and(|disk| disk.is_synced(SPACE, &key));
            if stored < number || (stored == number && !is_synced) {
                let excused = self.ledger.excuse(sim, &DISK_LIED, to, Duration::ZERO);
                excused.map_err(|why| {
                    Violation::new(format!("{host} takes note {number} for done, which {to} lacks: {why}"))
                })?;
            }
        }
        Ok(())
    }

    fn look_at_lease(&mut self, sim: &Sim<Courier>, host: HostId, courier: &Courier) -> Verdict {
        let Some((_, number)) = courier.lease(sim.clock(host)) else { return Ok(()) };
        let written = self.written.get(&(host, number)).copied().unwrap_or_default();
        // Clocks drift by a twentieth at most.
        if sim.elapsed() - written > LEASE.mul_f64(1.1) {
            let excused = self.ledger.excuse(sim, &FROZEN_CLOCK, host, Duration::ZERO);
            return excused.map_err(|why| Violation::new(format!("{host} has a lease that is over: {why}")));
        }
        Ok(())
    }

    /// The healthy are not suspected, and those without power are.
    fn look_at_suspicion(
        &self,
        sim: &Sim<Courier>,
        (host, courier): (HostId, &Courier),
        other: HostId,
    ) -> Verdict {
        let now = sim.elapsed();
        let suspects = courier.suspects(other.index(), sim.clock(host));
        let since = now.saturating_sub(NOTICED);
        let trouble = |host| sim.causes(host, since, now).map(|one| one.cause).collect::<Vec<_>>();
        let own_pause = [Cause::Stalled, Cause::Asleep, Cause::ClockStopped];
        let mostly = |causes: Vec<Cause>| causes.iter().all(|cause| own_pause.contains(cause));
        let noise = sim.config().network.stray > 0.0 || sim.hosts().any(|host| is_cloned(sim, host));
        // A courier that is paused itself has not looked yet.
        let looks = sim.state(host) == HostState::Up;
        if suspects && looks && mostly(trouble(host)) && trouble(other).is_empty() && !noise {
            return Err(Violation::new(format!("{host} suspects {other}, to which nothing has happened")));
        }
        let is_gone = sim.causes(other, now, now).any(|one| {
            one.cause == Cause::PowerLost && one.from + NOTICED < now && sim.state(other) == HostState::Off
        });
        let is_easy = self.uneasy.get(&host).is_none_or(|at| *at + NOTICED < now) && trouble(host).is_empty();
        if !suspects && is_gone && is_easy {
            return Err(Violation::new(format!("{host} does not notice that {other} is gone")));
        }
        Ok(())
    }
}

impl Observer<Courier> for Watch {
    fn on_event(&mut self, sim: &Sim<Courier>, host: HostId, event: &Event) -> Verdict {
        match *event {
            Event::Arrived { from, number } => {
                let app = self.apps.entry(host).or_insert_with(|| App::new(APP.0, APP.1));
                app.arrive(sim.elapsed(), (from, number));
            }
            Event::Conflict(id) => drop(self.conflicts.insert(id)),
            Event::Done { to, number } => {
                if sim.hosts().any(|host| is_cloned(sim, host)) {
                    // Numbers of hosts are not those of couriers any more.
                    return Ok(());
                }
                self.done_at.insert(host, sim.elapsed());
                self.unfinished.insert((to, host.index(), number));
                self.owed.push((sim.elapsed(), host, HostId::new(to as u32), number));
            }
        }
        Ok(())
    }

    fn on_write(&mut self, sim: &Sim<Courier>, host: HostId, stream: StreamId, bytes: &[u8]) {
        if !stream.is_accepted() {
            let number = u64::from_be_bytes(bytes[8..16].try_into().unwrap());
            self.written.insert((host, number), sim.elapsed());
        }
    }
}

fn is_cloned(sim: &Sim<Courier>, host: HostId) -> bool {
    sim.causes(host, Duration::ZERO, sim.elapsed()).any(|one| one.cause == Cause::Cloned)
}

static AIMS: [Aim<Courier>; 1] = [Aim { name: "holder", find: |sim, rng| sim.hosts().nth(rng.index(2)) }];

/// Runs one world; the violation, if there is one.
fn run(row: &Row, flaw: Option<Flaw>, seed: u64) -> Verdict {
    let mut config = Config { stream: StreamConfig::linux(), ..Config::default() };
    (row.world)(&mut config);
    let (every, has_app) = (row.every, row.has_app);
    let mut sim =
        Sim::new(seed, config, move |birth| Courier::new(birth.host.index(), HOSTS, every, has_app, flaw));
    for _ in 0..HOSTS {
        sim.add_host();
    }
    row.plan.put_into(seed, &mut sim, FAULTS, &AIMS);
    let mut watch = Watch::default();
    while sim.elapsed() < FAULTS {
        sim.run_for(LOOK, &mut watch)?;
        watch.look(&sim)?;
        watch.run_apps(&mut sim);
    }
    // Flows that are forgotten are no fault that ends.
    sim.fault(Fault::Calm);
    while sim.elapsed() < FAULTS + GOES_ON.at_last + 2 * every {
        sim.run_for(LOOK, &mut watch)?;
        watch.run_apps(&mut sim);
    }
    if sim.hosts().any(|host| is_cloned(&sim, host)) {
        let is_seen = !watch.conflicts.is_empty();
        return if is_seen { Ok(()) } else { Err(Violation::new("two with one id, and nobody says so")) };
    }
    if has_app && let Some((to, from, number)) = watch.unfinished.difference(&watch.finished).next() {
        let text = format!("note {number} of host {from} is done, but host {to}'s application never got it");
        return Err(Violation::new(text));
    }
    for host in sim.hosts().filter(|host| !sim.is_dead(*host)) {
        let last = watch.done_at.get(&host).copied().unwrap_or_default();
        if last < FAULTS {
            return Err(Violation::new(format!("{host} has not got a note through since {last:?}")));
        }
    }
    Ok(())
}

#[test]
fn fa_19_every_fault_catches_a_machine_that_is_careless_about_it() {
    let mut missed = Vec::new();
    for row in rows() {
        let caught =
            (0..20).find_map(|seed| run(&row, Some(row.flaw), seed).err().map(|found| (seed, found)));
        match caught {
            Some((seed, found)) => println!("{} {:?}: seed {seed}: {found}", row.clause, row.flaw),
            None => missed.push(format!("{} does not catch {:?}", row.clause, row.flaw)),
        }
    }
    assert!(missed.is_empty(), "{}", missed.join("\n"));
}

#[test]
fn fa_19_a_sound_machine_passes_every_fault() {
    let mut failed = Vec::new();
    for row in rows() {
        for seed in 0..10 {
            if let Err(found) = run(&row, None, seed) {
                failed.push(format!("{} without {:?}, seed {seed}: {found}", row.clause, row.flaw));
            }
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}
