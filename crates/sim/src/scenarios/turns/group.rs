//! The voters whose records survive, by what the simulator did to their hosts and disks (FA-27).

use core::time::Duration;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;

use annulus_core::Rng;
use annulus_core::turns::Turns;

use super::plan::span;
use crate::causes::Cause;
use crate::disk::DiskFate;
use crate::fault::{Fault, Step};
use crate::host::HostId;
use crate::ledger::Excuse;
use crate::sim::Sim;

/// Too few voters are left for a majority, or too few records for a voter that lost its own (TU-3, TU-21, TU-28).
pub const VOTERS_LOST: Excuse = Excuse {
    name: "VOTERS_LOST",
    because: "no node gets a turn when a majority of voters has gone for good, or one before the group was founded",
    needs: &[Cause::Died],
    // Voters may go at any time of the run; the use itself has no length.
    reach: Duration::from_secs(86_400),
    most_per_run: 1,
    each_at_most: Duration::ZERO,
};

/// The group of voters, seen from outside.
#[derive(Debug)]
pub(super) struct Group {
    voters: u32,
    /// Voters that have written the record of a founded group, and did not lose their disk since.
    intact: BTreeSet<HostId>,
    is_founded: bool,
}

impl Group {
    pub(super) fn new(voters: u32) -> Self {
        Self { voters, intact: BTreeSet::new(), is_founded: false }
    }

    pub(super) fn voters(&self) -> impl Iterator<Item = HostId> + use<> {
        (0..self.voters).map(HostId::new)
    }

    /// A voter has written the record.
    pub(super) fn on_ready(&mut self, host: HostId) {
        self.intact.insert(host);
        self.is_founded |= self.intact.len() == self.voters as usize;
    }

    pub(super) fn on_crash(&mut self, host: HostId, disk: DiskFate) {
        if disk == DiskFate::Lost {
            self.intact.remove(&host);
        }
    }

    /// A dead voter without which there is no majority, if there is one.
    pub(super) fn lost(&self, sim: &Sim<Turns>) -> Option<HostId> {
        let living = self.voters().filter(|voter| !sim.is_dead(*voter)).count();
        let dead = self.voters().find(|voter| sim.is_dead(*voter))?;
        // A voter that lost its record needs those of others, and so does one that has only an offered record.
        let (is_whole, can_read) =
            (self.intact_living(sim) == living, self.intact_living(sim) >= self.needed());
        let votes = self.is_founded && living >= self.majority() && (is_whole || can_read);
        (!votes).then_some(dead)
    }

    /// Whether this host may lose its disk: fewer than a majority of voters have lost theirs then (TU-1).
    pub(super) fn may_lose(&self, sim: &Sim<Turns>, host: HostId) -> bool {
        let is_intact = self.intact.contains(&host);
        let rest = self.intact_living(sim) - usize::from(is_intact && !sim.is_dead(host));
        host.index() >= self.voters as usize || (self.is_founded && rest >= self.needed())
    }

    fn intact_living(&self, sim: &Sim<Turns>) -> usize {
        self.intact.iter().filter(|voter| !sim.is_dead(**voter)).count()
    }

    fn majority(&self) -> usize {
        self.voters as usize / 2 + 1
    }

    /// The number of intact voters that one without a record reads (TU-21).
    fn needed(&self) -> usize {
        self.voters as usize - self.majority() + 1
    }
}

/// Disks are lost with a crash, at any host. A voter keeps its disk if too few others have their records.
pub(super) fn lose_disks(
    times: u32,
    sim: &mut Sim<Turns>,
    group: &Rc<RefCell<Group>>,
    rng: &mut Rng,
    faults_for: Duration,
) {
    for _ in 0..times {
        let (at, down, group) = (rng.duration_below(faults_for), span(rng), Rc::clone(group));
        let host = HostId::new(rng.below(sim.len() as u64) as u32);
        let call = move |sim: &mut Sim<Turns>| {
            let may_lose = group.borrow().may_lose(sim, host);
            if may_lose && !sim.is_dead(host) {
                sim.fault(Fault::Crash { host, power: true, disk: DiskFate::Lost });
                sim.after(down, Fault::Start(host));
            }
        };
        sim.at(at, Step::Call(Box::new(call)));
    }
}
