//! The checkers: X and R by the runners, F and E by the reports of the nodes, V after the faults.

use core::time::Duration;
use std::cell::RefCell;
use std::rc::Rc;

use annulus_core::RequestId;
use annulus_core::turns::{Event, Reply, TurnId, TurnStatus, Turns};
use serde_json::{Map, Value};

use super::group::{Group, VOTERS_LOST};
use super::plan;
use super::runner::{FROZEN_CLOCK, Runner};
use crate::disk::DiskFate;
use crate::host::{HostId, HostState};
use crate::ledger::Ledger;
use crate::observer::{Observer, Verdict, Violation};
use crate::scenario::Checker;
use crate::sim::Sim;

/// Watches all turns of one name.
pub struct TurnsChecker {
    runner: Rc<RefCell<Runner>>,
    group: Rc<RefCell<Group>>,
    ledger: Ledger,
    /// The greatest fence that was granted.
    fence: u64,
    grants: u64,
    last_grant: Duration,
    calm_at: Option<Duration>,
    /// The end of the slow syncs of voters that were under way then.
    synced_at: Duration,
    /// The longest wait of a request after the last fault, once no command runs.
    granted_within: Duration,
}

impl TurnsChecker {
    pub(super) fn new(
        runner: Rc<RefCell<Runner>>,
        group: Rc<RefCell<Group>>,
        granted_within: Duration,
    ) -> Self {
        Self {
            runner,
            group,
            ledger: Ledger::default(),
            fence: 0,
            grants: 0,
            last_grant: Duration::ZERO,
            calm_at: None,
            synced_at: Duration::ZERO,
            granted_within,
        }
    }

    /// V: the first grant after the last fault comes in time, counted from the end of the command that ran then.
    /// A slow sync of a voter counts as a fault until it ends: the voter answers nothing meanwhile.
    fn check_wait(&self, now: Duration) -> Verdict {
        let Some(calm) = self.calm_at.filter(|calm| self.last_grant <= *calm) else { return Ok(()) };
        let waited = now.saturating_sub(calm.max(self.synced_at).max(self.runner.borrow().seen.last_end));
        if waited <= self.granted_within {
            return Ok(());
        }
        Err(Violation::new(format!("V: the first turn after the faults came after {waited:?}")))
    }

    /// E: when a node is granted the turn, no other node holds one. A machine whose clock stopped keeps its turn, and
    /// accepts answers that it got meanwhile, until they end on its own clock.
    fn check_alone(&self, sim: &Sim<Turns>, host: HostId, granted: TurnId) -> Verdict {
        let mut runner = self.runner.borrow_mut();
        let mut frozen = runner.is_frozen(sim, host, granted).then_some(host);
        let mut holders = Vec::new();
        for (other, machine) in sim.machines() {
            if other == host || sim.state(other) == HostState::Asleep {
                continue;
            }
            let turns = machine.status(sim.clock(other).mono).turns;
            let valid = |turn: &&TurnStatus| turn.fence.is_some() && turn.left_micros > 0;
            if turns.iter().any(|turn| valid(&turn) && runner.is_frozen(sim, other, turn.turn)) {
                frozen.get_or_insert(other);
            }
            if let Some(turn) = turns.iter().find(valid) {
                holders.push((other, turn.turn));
            }
        }
        let Some((other, _)) = holders.first() else { return Ok(()) };
        match frozen {
            Some(at)
                if at == host || holders.iter().all(|(other, turn)| runner.is_frozen(sim, *other, *turn)) =>
            {
                runner.ledger.excuse(sim, &FROZEN_CLOCK, at, Duration::ZERO)
            }
            _ => Err(Violation::new(format!("E: {host} was granted a turn while {other} has one"))),
        }
    }
}

impl Observer<Turns> for TurnsChecker {
    fn on_event(&mut self, sim: &Sim<Turns>, host: HostId, event: &Event) -> Verdict {
        if let Event::TurnGranted { fence, turn, .. } = event {
            // A machine whose clock stopped gets old answers: the grant is older than those meanwhile, and its fence too.
            let is_frozen = self.runner.borrow().is_frozen(sim, host, *turn);
            if *fence < self.fence && is_frozen {
                self.runner.borrow_mut().ledger.excuse(sim, &FROZEN_CLOCK, host, Duration::ZERO)?;
            } else if *fence <= self.fence {
                return Err(Violation::new(format!("F: {host} got fence {fence} after {}", self.fence)));
            }
            self.check_wait(sim.elapsed())?;
            self.fence = self.fence.max(*fence);
            self.grants += 1;
            self.last_grant = sim.elapsed();
            self.check_alone(sim, host, *turn)?;
            let is_due = core::mem::take(&mut self.runner.borrow_mut().seen.is_crash_due);
            if is_due {
                plan::crash_all_voters(sim, &self.group.borrow());
            }
        }
        if matches!(event, Event::VoterReady { .. }) {
            self.group.borrow_mut().on_ready(host);
        }
        Ok(())
    }

    fn on_crash(&mut self, sim: &Sim<Turns>, host: HostId, disk: DiskFate) {
        self.group.borrow_mut().on_crash(host, disk);
        self.runner.borrow_mut().on_crash(sim, host);
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
        let ends = self.group.borrow().voters().map(|voter| sim.slow_sync_ends(voter)).max();
        self.synced_at = ends.unwrap_or_default();
        self.runner.borrow_mut().calm(sim.elapsed());
    }

    fn converged(&mut self, sim: &Sim<Turns>) -> Result<(), String> {
        let mut runner = self.runner.borrow_mut();
        let lost = self.group.borrow().lost(sim);
        if let Some(host) = lost {
            runner
                .ledger
                .excuse(sim, &VOTERS_LOST, host, Duration::ZERO)
                .map_err(|violation| violation.text)?;
        }
        self.ledger = runner.ledger.clone();
        if lost.is_some() || self.last_grant > self.calm_at.unwrap_or_default() {
            return Ok(());
        }
        let standing = |voter: HostId| {
            let machine = sim.machine(voter)?;
            let now = sim.clock(voter).mono;
            Some((machine.standing(now), machine.status(now).halted))
        };
        let voters: Vec<_> = self.group.borrow().voters().map(standing).collect();
        Err(format!("V: no node has got a turn since the faults stopped; voters: {voters:?}"))
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
            ("turns_written", runner.resource().log().len() as u64),
            ("writes_refused_by_fence", runner.resource().refused()),
        ] {
            map.insert(name.to_owned(), value.into());
        }
        map
    }
}
