//! The checkers: X and R by the runners, F and E by the reports of the nodes, V after the faults.

use core::time::Duration;
use std::cell::RefCell;
use std::rc::Rc;

use annulus_core::RequestId;
use annulus_core::turns::{Event, Reply, TurnId, Turns};
use serde_json::{Map, Value};

use super::plan;
use super::runner::Runner;
use crate::host::{HostId, HostState};
use crate::ledger::Ledger;
use crate::observer::{Observer, Verdict, Violation};
use crate::scenario::Checker;
use crate::sim::Sim;

/// Watches all turns of one name.
pub struct TurnsChecker {
    runner: Rc<RefCell<Runner>>,
    voters: u32,
    ledger: Ledger,
    /// The greatest fence that was granted.
    fence: u64,
    grants: u64,
    last_grant: Duration,
    calm_at: Option<Duration>,
    /// The longest wait of a request after the last fault, once no command runs.
    granted_within: Duration,
}

impl TurnsChecker {
    pub(super) fn new(runner: Rc<RefCell<Runner>>, voters: u32, granted_within: Duration) -> Self {
        Self {
            runner,
            voters,
            ledger: Ledger::default(),
            fence: 0,
            grants: 0,
            last_grant: Duration::ZERO,
            calm_at: None,
            granted_within,
        }
    }

    /// V: the first grant after the last fault comes in time, counted from the end of the command that ran then.
    fn check_wait(&self, now: Duration) -> Verdict {
        let Some(calm) = self.calm_at.filter(|calm| self.last_grant <= *calm) else { return Ok(()) };
        let waited = now.saturating_sub(calm.max(self.runner.borrow().seen.last_end));
        if waited <= self.granted_within {
            return Ok(());
        }
        Err(Violation::new(format!("V: the first turn after the faults came after {waited:?}")))
    }

    /// E: when a node is granted the turn, no other node holds one. A machine whose clock stopped keeps its turn, and
    /// accepts answers that it got meanwhile, until they end on its own clock.
    fn check_alone(&self, sim: &Sim<Turns>, host: HostId, granted: TurnId) -> Verdict {
        let runner = self.runner.borrow();
        if runner.is_frozen(sim, host, granted) {
            return Ok(());
        }
        for (other, machine) in sim.machines() {
            if other == host || sim.state(other) == HostState::Asleep {
                continue;
            }
            let turns = machine.status(sim.clock(other).mono).turns;
            let mut valid = turns.iter().filter(|turn| turn.fence.is_some() && turn.left_micros > 0);
            if valid.any(|turn| !runner.is_frozen(sim, other, turn.turn)) {
                return Err(Violation::new(format!("E: {host} was granted a turn while {other} has one")));
            }
        }
        Ok(())
    }
}

impl Observer<Turns> for TurnsChecker {
    fn on_event(&mut self, sim: &Sim<Turns>, host: HostId, event: &Event) -> Verdict {
        if let Event::TurnGranted { fence, turn, .. } = event {
            if *fence <= self.fence {
                return Err(Violation::new(format!("F: {host} got fence {fence} after {}", self.fence)));
            }
            self.check_wait(sim.elapsed())?;
            self.fence = *fence;
            self.grants += 1;
            self.last_grant = sim.elapsed();
            self.check_alone(sim, host, *turn)?;
            let is_due = core::mem::take(&mut self.runner.borrow_mut().seen.is_crash_due);
            if is_due {
                plan::crash_all_voters(sim, self.voters);
            }
        }
        Ok(())
    }

    fn on_reply(&mut self, sim: &Sim<Turns>, host: HostId, request: RequestId, reply: &Reply) -> Verdict {
        self.runner.borrow_mut().on_reply(sim.elapsed(), host, request, reply);
        Ok(())
    }
}

impl Checker<Turns> for TurnsChecker {
    fn check(&mut self, _: &Sim<Turns>) -> Verdict {
        match &self.runner.borrow().seen.violation {
            Some(text) => Err(Violation::new(text.clone())),
            None => Ok(()),
        }
    }

    fn on_calm(&mut self, sim: &Sim<Turns>) {
        self.calm_at = Some(sim.elapsed());
    }

    fn converged(&mut self, _: &Sim<Turns>) -> Result<(), String> {
        self.ledger = self.runner.borrow().ledger.clone();
        if self.last_grant > self.calm_at.unwrap_or_default() {
            return Ok(());
        }
        Err("V: nobody has got a turn since the faults stopped".to_owned())
    }

    fn ledger(&self) -> Option<&Ledger> {
        Some(&self.ledger)
    }

    fn measured(&mut self, sim: &Sim<Turns>) -> Map<String, Value> {
        let runner = self.runner.borrow();
        let least = sim.hosts().map(|host| runner.turns(host)).min().unwrap_or(0);
        let most = sim.hosts().map(|host| runner.turns(host)).max().unwrap_or(0);
        let mut map = Map::new();
        for (name, value) in [
            ("grants", self.grants),
            ("commands", runner.seen.turns),
            ("killed", runner.seen.killed),
            ("fewest_turns", least),
            ("most_turns", most),
            ("longest_wait_ms", runner.seen.longest_wait.as_millis() as u64),
            ("writes_refused_by_fence", runner.seen.refused),
        ] {
            map.insert(name.to_owned(), value.into());
        }
        map
    }
}
