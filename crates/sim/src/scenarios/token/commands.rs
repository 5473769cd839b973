//! Commands that run under holds, by true time: a continuous load, and its checks (TUF-14).
//!
//! A command runs from the grant of its hold until the hold is released, lost or its host crashes. A client whose agent is
//! silent ends its command by itself, after 4/5 of the grace period (TU-42).

use core::time::Duration;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use annulus_core::jitterbug::{Command, Config};
use annulus_core::{RequestId, Rng};

use super::Node;
use crate::fault::Step;
use crate::host::{HostId, HostState};
use crate::observer::Violation;
use crate::sim::Sim;

/// The interval between steps of a client.
const TICK: Duration = Duration::from_millis(10);

struct Running {
    request: RequestId,
    fence: u64,
    since: Duration,
    /// Since when its agent is silent.
    silent_since: Option<Duration>,
}

/// See the module.
pub(super) struct Commands {
    running: BTreeMap<HostId, Running>,
    asked: BTreeMap<HostId, RequestId>,
    /// When a silent agent's command is killed.
    killed_after: Duration,
    /// Whether two commands at once, or a fence that is not above all before it, are violations.
    is_strict: bool,
    highest: u64,
    pub(super) granted: u64,
    pub(super) lost: u64,
}

/// The commands, shared by the clients and the checker.
pub(super) type Shared = Arc<Mutex<Commands>>;

impl Commands {
    pub(super) fn shared(config: &Config, is_strict: bool) -> Shared {
        Arc::new(Mutex::new(Self {
            running: BTreeMap::new(),
            asked: BTreeMap::new(),
            // Without it a client waits for the renew_timeout and a quarter, as it did.
            killed_after: if config.is_patient {
                config.grace() * 4 / 5
            } else {
                config.renew_timeout * 5 / 4
            },
            is_strict,
            highest: 0,
            granted: 0,
            lost: 0,
        }))
    }

    /// A hold was granted: its command starts. Returns the hosts whose commands run beside it.
    ///
    /// # Errors
    /// In a run in which that must not be.
    pub(super) fn start(
        &mut self,
        sim: &Sim<Node>,
        host: HostId,
        request: RequestId,
        fence: u64,
    ) -> Result<Vec<HostId>, Violation> {
        self.look(sim);
        self.granted += 1;
        let others: Vec<HostId> = self.running.keys().copied().filter(|other| *other != host).collect();
        if self.is_strict && !others.is_empty() {
            let text = |other| {
                let Running { fence, since, .. } = &self.running[other];
                format!("{other} with {fence} since {since:?}")
            };
            return Err(Violation::new(format!(
                "{host} runs a command with {fence} beside {}",
                others.iter().map(text).collect::<Vec<_>>().join(", ")
            )));
        }
        if self.is_strict && fence <= self.highest {
            return Err(Violation::new(format!(
                "{host} holds with {fence}, after a hold with {}",
                self.highest
            )));
        }
        self.highest = self.highest.max(fence);
        let (since, silent_since) = (sim.elapsed(), None);
        self.running.insert(host, Running { request, fence, since, silent_since });
        Ok(others)
    }

    /// Whether another host waits for a hold.
    pub(super) fn is_wanted(&self, host: HostId) -> bool {
        self.asked.keys().any(|other| *other != host && !self.running.contains_key(other))
    }

    /// The end of a hold was reported: its command is ended.
    pub(super) fn end(&mut self, host: HostId, request: RequestId, lost: bool) {
        self.lost += u64::from(lost);
        if self.running.get(&host).is_some_and(|command| command.request == request) {
            self.running.remove(&host);
        }
        self.asked.retain(|_, asked| *asked != request);
    }

    pub(super) fn crashed(&mut self, host: HostId) {
        self.running.remove(&host);
        self.asked.remove(&host);
    }

    /// Ends the commands whose agents are silent for too long.
    fn look(&mut self, sim: &Sim<Node>) {
        let now = sim.elapsed();
        for (host, command) in &mut self.running {
            let silent = matches!(sim.state(*host), HostState::Suspended | HostState::Asleep);
            command.silent_since = silent.then(|| command.silent_since.unwrap_or(now));
        }
        let killed_after = self.killed_after;
        self.running.retain(|_, command| command.silent_since.is_none_or(|since| now - since < killed_after));
    }

    /// The next action of the client of a host.
    fn next(
        &mut self,
        sim: &Sim<Node>,
        host: HostId,
        rng: &mut Rng,
    ) -> Option<Command<annulus_core::jitterbug::Set>> {
        if sim.state(host) != HostState::Up {
            return None;
        }
        match self.running.get(&host) {
            Some(command) if rng.chance(0.1) => Some(Command::Release { hold: command.request }),
            None if !self.asked.contains_key(&host) && rng.chance(0.1) => {
                Some(Command::Hold { limit: Duration::from_millis(rng.between(20, 30_000)) })
            }
            _ => None,
        }
    }
}

/// Lets every host ask for a hold, run a command, release it, and ask again, without end.
pub(super) fn load(sim: &mut Sim<Node>, commands: &Shared, rng: Rng) {
    tick(sim, Arc::clone(commands), rng);
}

fn tick(sim: &mut Sim<Node>, commands: Shared, mut rng: Rng) {
    for host in sim.hosts() {
        let next = {
            let mut commands = commands.lock().unwrap_or_else(PoisonError::into_inner);
            commands.look(sim);
            commands.next(sim, host, &mut rng)
        };
        let Some(command) = next else { continue };
        let asks = matches!(command, Command::Hold { .. });
        let request = sim.command(host, command);
        if asks {
            commands.lock().unwrap_or_else(PoisonError::into_inner).asked.insert(host, request);
        }
    }
    sim.after(TICK, Step::Call(Box::new(move |sim: &mut Sim<Node>| tick(sim, commands, rng))));
}
