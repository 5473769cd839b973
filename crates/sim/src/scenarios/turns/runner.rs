//! The processes that act on a turn (FA-20): on every host a client, a guard and a command, and one resource for all.
//!
//! Client and guard use the rules of [`annulus_core::turns::keeping`], as the real ones do. Each process runs, is stopped, or
//! is dead by itself; all of a host count on its clock. Replies reach the client after a drawn delay, in order, also old ones
//! after a stop.

use core::time::Duration;
use std::collections::VecDeque;

use annulus_core::turns::keeping::{Keeping, Signal, interval, validity};
use annulus_core::turns::{Command, Grant, Lock, LostReason, Reply, Resume, TurnId, Turns};
use annulus_core::{Instant, RequestId, Rng};

use super::NAME;
use super::resource::{Entry, Resource, Write};
use crate::causes::Cause;
use crate::host::{HostId, HostState};
use crate::ledger::{Excuse, Ledger};
use crate::sim::Sim;

/// A client that lost its agent asks again so much later.
const RECONNECT: Duration = Duration::from_secs(1);
/// The interval between steps of the processes.
pub(super) const TICK: Duration = Duration::from_millis(10);

/// A process of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Who {
    /// The agent: the machine itself.
    Agent,
    /// The command line.
    Client,
    /// The guard.
    Guard,
    /// The command that the guard ends.
    Command,
    /// All of them.
    All,
}

/// The client's stage.
#[derive(Clone, Debug)]
enum Stage {
    /// Wants the next turn at this moment.
    Idle(Duration),
    Asking {
        turn: TurnId,
        since: Duration,
    },
    /// Has a turn and asks how much is left, or runs the command under it.
    Holding(Holding),
}

#[derive(Clone, Debug)]
struct Holding {
    grant: Grant,
    /// How long the client waited for it.
    waited: Duration,
    deadline: Instant,
    /// The question under way: when it was sent by both clocks.
    asked: Option<(Instant, Duration)>,
    next: Duration,
    is_started: bool,
    resumes: bool,
}

/// A guard and its command.
#[derive(Clone, Debug)]
struct Guarded {
    keeping: Keeping,
    turn: TurnId,
    fence: u64,
    /// The command ends by itself then.
    ends: Duration,
    /// A command that got TERM ends then.
    leaves: Option<Duration>,
    mail: VecDeque<(Duration, Mail)>,
}

#[derive(Clone, Copy, Debug)]
enum Mail {
    Extend(Instant, Duration),
    End,
}

/// One host.
#[derive(Debug)]
struct Machine {
    stage: Stage,
    guarded: Option<Guarded>,
    replies: VecDeque<(Duration, RequestId, Reply)>,
    requests: Vec<(RequestId, What)>,
    /// The wish of a client that was killed: its connection ends.
    withdrawn: Option<TurnId>,
    client_stopped: Duration,
    guard_stopped: Duration,
    command_stopped: Duration,
    pause: Option<Pause>,
    turns: u64,
}

/// A pause in which the clock of a host stopped.
#[derive(Clone, Debug)]
struct Pause {
    /// The turns that its processes and its agent had or asked for in it. Only these can be thought to be valid for too long.
    turns: Vec<TurnId>,
    /// No Ask was sent later than the pause, so all validity of the machine has ended by then on its own clock (TU-14).
    over: Instant,
}

impl Machine {
    /// The turns that the processes of the host have or ask for.
    fn turns_under_way(&self) -> Vec<TurnId> {
        let staged = match &self.stage {
            Stage::Idle(_) => None,
            Stage::Asking { turn, .. } => Some(*turn),
            Stage::Holding(holding) => Some(holding.grant.turn),
        };
        self.guarded.iter().map(|guarded| guarded.turn).chain(staged).collect()
    }

    /// The pause because of which a turn of this host may outlive its lease.
    fn paused(&self, turn: TurnId, local: Instant) -> Option<&Pause> {
        self.pause.as_ref().filter(|pause| local < pause.over && pause.turns.contains(&turn))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Lock,
    Keep,
    Other,
}

/// A machine whose clock stopped keeps its turn until its first refused renewal. If the network loses the renewal or its
/// answers, the turn ends with its validity on the machine's own clock (TU-4). That is 8 s, by a clock that is slow by a
/// tenth.
pub const FROZEN_CLOCK: Excuse = Excuse {
    name: "FROZEN_CLOCK",
    because: "a paused machine cannot know that it was paused",
    needs: &[Cause::ClockStopped],
    reach: Duration::from_millis(8_900),
    most_per_run: 64,
    each_at_most: Duration::from_millis(8_900),
};

/// A guard that is stopped ends nothing (TU-4).
pub const GUARD_STOPPED: Excuse = Excuse {
    name: "GUARD_STOPPED",
    because: "nobody else can end the command while its guard is stopped",
    needs: &[Cause::BesideStopped],
    reach: Duration::from_secs(1),
    // A crowd hands on five turns a second while one guard is stopped for 100 s.
    most_per_run: 512,
    each_at_most: Duration::from_secs(101),
};

/// Observations of all hosts.
#[derive(Debug, Default)]
pub(super) struct Seen {
    pub(super) violation: Option<String>,
    /// Two commands run because of an excused fault: the excuse, the time since then, and the host.
    excused: Option<(&'static Excuse, Duration, HostId)>,
    pub(super) is_crash_due: bool,
    pub(super) turns: u64,
    pub(super) killed: u64,
    /// When the last command ended.
    pub(super) last_end: Duration,
    /// The longest that a client waited for a turn.
    pub(super) longest_wait: Duration,
}

/// All hosts.
pub(super) struct Runner {
    machines: Vec<Machine>,
    rng: Rng,
    lease: Duration,
    longest: Duration,
    resource: Resource,
    pub(super) seen: Seen,
    pub(super) ledger: Ledger,
}

/// The situations that a run may meet.
pub(super) const SITUATIONS: [&str; 7] = [
    "two_askers",
    "holder_killed",
    "turn_lost",
    "majority_lost",
    "client_stopped",
    "guard_stopped",
    "command_stopped",
];

impl Runner {
    pub(super) fn new(hosts: usize, seed: u64, lease: Duration, longest: Duration) -> Self {
        let mut rng = Rng::from_number(seed, 77);
        let machine = |rng: &mut Rng| Machine {
            stage: Stage::Idle(Duration::from_secs(3) + rng.duration_below(Duration::from_secs(1))),
            guarded: None,
            replies: VecDeque::new(),
            requests: Vec::new(),
            withdrawn: None,
            client_stopped: Duration::ZERO,
            guard_stopped: Duration::ZERO,
            command_stopped: Duration::ZERO,
            pause: None,
            turns: 0,
        };
        let machines = (0..hosts).map(|_| machine(&mut rng)).collect();
        let ledger = Ledger::new(&SITUATIONS);
        Self { machines, rng, lease, longest, resource: Resource::default(), seen: Seen::default(), ledger }
    }

    /// Stops a process until this moment. The agent is the machine, which the simulator stops.
    pub(super) fn stop(&mut self, sim: &mut Sim<Turns>, host: HostId, who: Who, until: Duration) {
        let machine = &mut self.machines[host.index()];
        match who {
            Who::Agent | Who::All => {}
            Who::Client => {
                self.ledger.met("client_stopped");
                machine.client_stopped = machine.client_stopped.max(until);
            }
            Who::Guard => {
                self.ledger.met("guard_stopped");
                sim.note_beside_stopped(host, until);
                machine.guard_stopped = machine.guard_stopped.max(until);
            }
            Who::Command => {
                let Some(guarded) = &mut machine.guarded else { return };
                self.ledger.met("command_stopped");
                machine.command_stopped = machine.command_stopped.max(until);
                // It does not work meanwhile, and does not see TERM.
                guarded.ends = guarded.ends.max(until);
                guarded.leaves = guarded.leaves.map(|at| at.max(until));
            }
        }
    }

    /// Kills a process: without its client a guard ends the command, without its guard a command dies at once (TU-35).
    pub(super) fn kill(&mut self, now: Duration, host: HostId, who: Who) {
        let machine = &mut self.machines[host.index()];
        match who {
            Who::Agent | Who::All => {}
            Who::Client => {
                if let Stage::Asking { turn, .. } = machine.stage {
                    machine.withdrawn = Some(turn);
                }
                machine.stage = Stage::Idle(now + Duration::from_secs(1));
                machine.requests.clear();
                machine.replies.clear();
                if let Some(guarded) = &mut machine.guarded {
                    guarded.mail.push_back((now, Mail::End));
                }
            }
            Who::Guard | Who::Command => machine.guarded = None,
        }
    }

    /// The faults are over: all processes go on.
    pub(super) fn calm(&mut self, now: Duration) {
        for machine in &mut self.machines {
            for stopped in
                [&mut machine.client_stopped, &mut machine.guard_stopped, &mut machine.command_stopped]
            {
                *stopped = (*stopped).min(now);
            }
            // A command that was stopped for longer goes on, too.
            let last = now + self.longest;
            machine.guarded.iter_mut().for_each(|guarded| guarded.ends = guarded.ends.min(last));
        }
    }

    /// An agent ended: its client sees the end of its connection. A waiting one asks the next agent.
    pub(super) fn on_crash(&mut self, sim: &Sim<Turns>, host: HostId) {
        let now = sim.elapsed();
        // A loss of power ends all processes, also if the host is back before the next step.
        if sim.causes(host, now, now).any(|one| one.cause == Cause::PowerLost) {
            self.machines[host.index()].guarded = None;
            self.kill(now, host, Who::Client);
        }
        let machine = &mut self.machines[host.index()];
        if matches!(machine.stage, Stage::Asking { .. }) {
            machine.stage = Stage::Idle(now + RECONNECT);
        }
    }

    pub(super) fn resource(&self) -> &Resource {
        &self.resource
    }

    /// A machine answered a command.
    pub(super) fn on_reply(&mut self, now: Duration, host: HostId, request: RequestId, reply: &Reply) {
        let delay = Duration::from_micros(self.rng.between(50, 5_000));
        match reply {
            Reply::NotFree(_) => self.ledger.met("two_askers"),
            Reply::NoMajority { .. } => self.ledger.met("majority_lost"),
            Reply::Lost(_) => self.ledger.met("turn_lost"),
            _ => {}
        }
        let machine = &mut self.machines[host.index()];
        let after = machine.replies.back().map_or(Duration::ZERO, |(at, ..)| *at);
        machine.replies.push_back(((now + delay).max(after), request, reply.clone()));
    }

    /// The number of turns of a host.
    pub(super) fn turns(&self, host: HostId) -> u64 {
        self.machines[host.index()].turns
    }

    /// The host that has a command now.
    pub(super) fn holder(&self) -> Option<usize> {
        self.machines.iter().position(|machine| machine.guarded.is_some())
    }

    /// Whether a host may think that it has this turn because its clock stopped.
    pub(super) fn is_frozen(&self, sim: &Sim<Turns>, host: HostId, turn: TurnId) -> bool {
        self.machines[host.index()].paused(turn, sim.clock(host).mono).is_some()
    }

    /// Runs all due steps of processes.
    pub(super) fn tick(&mut self, sim: &mut Sim<Turns>) {
        let now = sim.elapsed();
        for host in sim.hosts() {
            let state = sim.state(host);
            if state == HostState::Off {
                self.machines[host.index()].guarded = None;
                self.kill(now, host, Who::Client);
                continue;
            }
            if state == HostState::Asleep {
                if sim.causes(host, now, now).any(|one| one.cause == Cause::ClockStopped) {
                    self.pause(sim, host);
                }
                continue;
            }
            if let Some(turn) = self.machines[host.index()].withdrawn.take() {
                sim.command(host, Command::Release(turn));
            }
            let local = sim.clock(host).mono;
            self.guard(now, local, host);
            if now >= self.machines[host.index()].client_stopped {
                self.client(sim, now, local, host);
            }
        }
        self.check(sim, now);
    }

    /// The clock of a host stops.
    fn pause(&mut self, sim: &Sim<Turns>, host: HostId) {
        let local = sim.clock(host).mono;
        let agent = sim.machine(host).map(|machine| machine.status(local).turns);
        let machine = &mut self.machines[host.index()];
        let mut turns = machine.turns_under_way();
        turns.extend(agent.into_iter().flatten().map(|status| status.turn));
        machine.pause = Some(Pause { turns, over: local + validity(self.lease) });
    }

    fn guard(&mut self, now: Duration, local: Instant, host: HostId) {
        let machine = &mut self.machines[host.index()];
        let Some(guarded) = &mut machine.guarded else { return };
        self.seen.last_end = now;
        let is_done = now >= guarded.ends || guarded.leaves.is_some_and(|at| now >= at);
        if is_done {
            machine.guarded = None;
            return;
        }
        if now < machine.guard_stopped {
            return;
        }
        while guarded.mail.front().is_some_and(|(at, _)| *at <= now)
            && let Some((_, mail)) = guarded.mail.pop_front()
        {
            match mail {
                Mail::Extend(asked, left) => guarded.keeping.extend(asked, left),
                Mail::End => guarded.keeping.end(local),
            }
        }
        match guarded.keeping.signal(local) {
            Some(Signal::Term) => {
                let politely = self.rng.chance(0.5);
                let from = now.max(machine.command_stopped);
                guarded.leaves = politely.then(|| from + self.rng.duration_below(Duration::from_millis(200)));
            }
            Some(Signal::Kill) => {
                self.seen.killed += 1;
                self.ledger.met("holder_killed");
                machine.guarded = None;
            }
            None => {}
        }
    }

    fn client(&mut self, sim: &mut Sim<Turns>, now: Duration, local: Instant, host: HostId) {
        while let Some((_, request, reply)) = {
            let replies = &mut self.machines[host.index()].replies;
            let is_due = replies.front().is_some_and(|(at, ..)| *at <= now);
            if is_due { replies.pop_front() } else { None }
        } {
            self.heed(now, local, host, request, reply);
        }
        let hour = Duration::from_secs(3600);
        let machine = &mut self.machines[host.index()];
        match &mut machine.stage {
            Stage::Idle(at) if now >= *at && sim.state(host) != HostState::Down => {
                let turn = TurnId(self.rng.next_u128());
                let (name, wait) = (NAME.to_owned(), Duration::from_secs(30));
                let lock = Lock { name, turn, wait, limit: hour, attended: true };
                machine.requests.push((sim.command(host, Command::Lock(lock)), What::Lock));
                machine.stage = Stage::Asking { turn, since: now };
            }
            Stage::Idle(_) => {}
            // The agent crashed, or the wish is lost with it.
            Stage::Asking { turn, since } if now > *since + Duration::from_secs(40) => {
                machine.requests.push((sim.command(host, Command::Release(*turn)), What::Other));
                machine.stage = Stage::Idle(now);
            }
            Stage::Asking { .. } => {}
            Stage::Holding(holding) => {
                if holding.is_started && machine.guarded.is_none() {
                    // The command has ended: the turn is given back.
                    let turn = holding.grant.turn;
                    machine.requests.push((sim.command(host, Command::Release(turn)), What::Other));
                    let pause = self.rng.duration_below(Duration::from_secs(1));
                    machine.stage = Stage::Idle(now + pause);
                    return;
                }
                if core::mem::take(&mut holding.resumes) {
                    let resume = Resume {
                        name: NAME.to_owned(),
                        turn: holding.grant.turn,
                        session: holding.grant.session,
                        fence: holding.grant.fence,
                        deadline_micros: holding.deadline.as_micros(),
                        limit_micros: 3_600_000_000,
                    };
                    machine.requests.push((sim.command(host, Command::Resume(resume)), What::Other));
                }
                let is_silent = holding.asked.is_some_and(|(_, at)| now > at + Duration::from_secs(1));
                if (holding.asked.is_none() && now >= holding.next) || is_silent {
                    let command = Command::Keep(holding.grant.turn);
                    machine.requests.push((sim.command(host, command), What::Keep));
                    holding.asked = Some((local, now));
                    holding.next = now + interval(self.lease);
                }
            }
        }
    }

    fn heed(&mut self, now: Duration, local: Instant, host: HostId, request: RequestId, reply: Reply) {
        let run = Duration::from_millis(self.rng.between(50, self.longest.as_millis() as u64));
        let mail_after = Duration::from_micros(self.rng.between(20, 2_000));
        let machine = &mut self.machines[host.index()];
        let Some(place) = machine.requests.iter().position(|(asked, _)| *asked == request) else { return };
        let (_, what) = machine.requests.remove(place);
        match (&mut machine.stage, what, reply) {
            (Stage::Asking { turn, since }, What::Lock, Reply::Granted(grant)) if grant.turn == *turn => {
                machine.stage = Stage::Holding(Holding {
                    waited: now.saturating_sub(*since),
                    deadline: Instant::from_micros(grant.deadline_micros),
                    grant,
                    asked: None,
                    next: now,
                    is_started: false,
                    resumes: false,
                });
            }
            (Stage::Asking { .. }, What::Lock, _) => machine.stage = Stage::Idle(now),
            (Stage::Holding(holding), What::Keep, Reply::Kept { left_micros, deadline_micros }) => {
                let Some((asked, _)) = holding.asked.take() else { return };
                let left = Duration::from_micros(left_micros);
                holding.deadline = holding.deadline.max(Instant::from_micros(deadline_micros));
                if holding.is_started {
                    let guarded = machine.guarded.as_mut();
                    let mail = (now + mail_after, Mail::Extend(asked, left));
                    guarded.into_iter().for_each(|guarded| guarded.mail.push_back(mail));
                } else if Keeping::new(asked, left).is_valid(local) {
                    holding.is_started = true;
                    machine.turns += 1;
                    self.seen.turns += 1;
                    self.seen.longest_wait = self.seen.longest_wait.max(holding.waited);
                    machine.guarded = Some(Guarded {
                        keeping: Keeping::new(asked, left),
                        turn: holding.grant.turn,
                        fence: holding.grant.fence,
                        ends: now + run,
                        leaves: None,
                        mail: VecDeque::new(),
                    });
                }
            }
            (Stage::Holding(holding), What::Keep, Reply::Lost(LostReason::Unknown)) if holding.is_started => {
                // The agent was restarted: it may go on with the turn (TU-35).
                holding.asked = None;
                holding.resumes = true;
            }
            (Stage::Holding(holding), What::Keep, _) => {
                holding.asked = None;
                let guarded = machine.guarded.as_mut();
                let mail = (now + mail_after, Mail::End);
                guarded.into_iter().for_each(|guarded| guarded.mail.push_back(mail));
                if !holding.is_started {
                    machine.stage = Stage::Idle(now);
                }
            }
            _ => {}
        }
    }

    /// X and R: no two commands run at one moment, and the resource takes no lower fence after a higher one.
    fn check(&mut self, sim: &Sim<Turns>, now: Duration) {
        let paused = |host: usize| sim.state(HostId::new(host as u32)) == HostState::Asleep;
        let running: Vec<usize> = (0..self.machines.len())
            .filter(|host| self.machines[*host].guarded.is_some() && !paused(*host))
            .collect();
        running.iter().for_each(|host| self.write(*host, now));
        let reason = if running.len() > 1 { self.excuse_for(sim, &running, now) } else { None };
        let open = self.seen.excused.map(|(excuse, _, host)| (excuse, host));
        if reason != open
            && let Some((excuse, since, host)) = self.seen.excused.take()
            && let Err(violation) = self.ledger.excuse(sim, excuse, host, now - TICK - since)
        {
            self.seen.violation.get_or_insert(format!("X: {violation}"));
        }
        match reason {
            Some((excuse, host)) => {
                self.seen.excused.get_or_insert((excuse, now, host));
            }
            None if running.len() > 1 => {
                let fence = |host: &usize| Some(self.machines[*host].guarded.as_ref()?.fence);
                let fences: Vec<u64> = running.iter().filter_map(fence).collect();
                let text = format!("X: commands run on hosts {running:?} with fences {fences:?} at {now:?}");
                self.seen.violation.get_or_insert(text);
            }
            None => {}
        }
    }

    /// The command of a host writes with its fence.
    fn write(&mut self, host: usize, now: Duration) {
        let machine = &self.machines[host];
        let Some(guarded) = machine.guarded.as_ref().filter(|_| now >= machine.command_stopped) else {
            return;
        };
        let fence = guarded.fence;
        let entry = Entry { at: now, host: HostId::new(host as u32), fence };
        match self.resource.write(NAME, guarded.turn, entry) {
            Write::Taken | Write::Refused => {}
            Write::Ambiguous => {
                let text =
                    format!("R: the resource takes fence {fence} of two turns, the second on host {host}");
                self.seen.violation.get_or_insert(text);
            }
        }
    }

    /// Why these commands may run at once, and on which host it happened (TU-4).
    fn excuse_for(
        &self,
        sim: &Sim<Turns>,
        running: &[usize],
        now: Duration,
    ) -> Option<(&'static Excuse, HostId)> {
        let of = |is: &dyn Fn(usize, &Machine) -> bool| {
            running.iter().copied().find(|host| is(*host, &self.machines[*host]))
        };
        let is_frozen = |host: usize, machine: &Machine| {
            let turn = machine.guarded.as_ref().map(|guarded| guarded.turn);
            turn.is_some_and(|turn| self.is_frozen(sim, HostId::new(host as u32), turn))
        };
        let is_stopped = |_: usize, machine: &Machine| {
            let stopped = machine.guard_stopped;
            stopped > Duration::ZERO && now < stopped + Duration::from_secs(1)
        };
        let frozen = of(&is_frozen).map(|host| (&FROZEN_CLOCK, host));
        let (excuse, host) = frozen.or_else(|| of(&is_stopped).map(|host| (&GUARD_STOPPED, host)))?;
        Some((excuse, HostId::new(host as u32)))
    }
}

/// The time from the deadline to the end of a command that ignores TERM, if its guard gets nothing more from a stopped
/// client. The kernel's half is in the tests of the program (FA-34).
#[must_use]
pub fn guard_alone(left: Duration) -> Duration {
    let (host, asked) = (HostId::new(0), TICK / 3);
    let mut runner = Runner::new(1, 0, left, left);
    let keeping = Keeping::new(Instant::ZERO + asked, left);
    let far = left * 100;
    runner.machines[0].guarded =
        Some(Guarded { keeping, turn: TurnId(1), fence: 1, ends: far, leaves: None, mail: VecDeque::new() });
    let mut now = Duration::ZERO;
    while let Some(guarded) = &mut runner.machines[0].guarded {
        guarded.leaves = None;
        now += TICK;
        runner.guard(now, Instant::ZERO + now, host);
    }
    now.saturating_sub(Duration::from_micros(keeping.kill_at().as_micros()))
}
