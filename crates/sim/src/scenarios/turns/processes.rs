//! The processes beside the agents are stopped and killed (FA-20).

use core::time::Duration;
use std::cell::RefCell;
use std::rc::Rc;

use annulus_core::Rng;
use annulus_core::turns::Turns;

use super::plan::{at_holder, span};
use super::runner::{Runner, TICK, Who};
use crate::disk::DiskFate;
use crate::fault::{Fault, Step};
use crate::host::HostId;
use crate::sim::Sim;

const ALL: [Who; 5] = [Who::Agent, Who::Client, Who::Guard, Who::Command, Who::All];

/// The share of these faults that hit the host with a command, and the share that kills instead of stopping.
const AIMED: f64 = 0.7;
const KILLS: f64 = 0.3;

/// Schedules so many stops and kills.
pub(super) fn schedule(
    times: u32,
    sim: &mut Sim<Turns>,
    runner: &Rc<RefCell<Runner>>,
    rng: &mut Rng,
    faults_for: Duration,
) {
    for _ in 0..times {
        let at = rng.duration_below(faults_for);
        let host = HostId::new(rng.below(sim.len() as u64) as u32);
        let (who, lasts, kills) = (ALL[rng.index(ALL.len())], span(rng), rng.chance(KILLS));
        let is_aimed = rng.chance(AIMED);
        // After a stop of all, either the guard or the command runs first.
        let later = TICK * rng.below(3) as u32;
        let inner = Rc::clone(runner);
        let strike = move |sim: &mut Sim<Turns>, host: HostId| {
            if kills {
                kill(sim, &inner, host, who, lasts);
            } else {
                freeze(sim, &inner, host, who, lasts, later);
            }
        };
        if is_aimed {
            at_holder(sim, runner, at, host, strike);
        } else {
            sim.at(at, Step::Call(Box::new(move |sim: &mut Sim<Turns>| strike(sim, host))));
        }
    }
}

/// Stops a process, or all of a host, for a time.
pub(super) fn freeze(
    sim: &mut Sim<Turns>,
    runner: &Rc<RefCell<Runner>>,
    host: HostId,
    who: Who,
    lasts: Duration,
    later: Duration,
) {
    if matches!(who, Who::Agent | Who::All) {
        sim.fault(Fault::Suspend(host));
        sim.after(lasts, Fault::Resume(host));
    }
    let until = sim.elapsed() + lasts;
    let mut runner = runner.borrow_mut();
    match who {
        Who::Agent => {}
        Who::All => {
            runner.stop(sim, host, Who::Client, until);
            runner.stop(sim, host, Who::Guard, until + later);
            runner.stop(sim, host, Who::Command, until);
        }
        who => runner.stop(sim, host, who, until),
    }
}

/// Kills a process, or all of a host; an agent is started again later.
fn kill(sim: &mut Sim<Turns>, runner: &Rc<RefCell<Runner>>, host: HostId, who: Who, down: Duration) {
    let now = sim.elapsed();
    if matches!(who, Who::Agent | Who::All) {
        sim.fault(Fault::Crash { host, power: false, disk: DiskFate::Kept });
        sim.after(down, Fault::Start(host));
    }
    let mut runner = runner.borrow_mut();
    match who {
        Who::Agent => {}
        Who::All => [Who::Client, Who::Guard].into_iter().for_each(|who| runner.kill(now, host, who)),
        who => runner.kill(now, host, who),
    }
}
