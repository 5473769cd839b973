//! Holders that stand still: a process is stopped while its command has the token.

use core::time::Duration;

use annulus_core::Rng;
use annulus_core::jitterbug::{Command, Config};

use super::Node;
use crate::fault::{Fault, Step};
use crate::host::{HostId, HostState};
use crate::sim::Sim;

/// How often is looked whether a hold was granted.
const LOOK: Duration = Duration::from_millis(20);
/// How often at most.
const LOOKS_MAX: u32 = 2000;

/// Lets nodes hold the token and stand still for longer than `renew_timeout`, a number of times; meanwhile everybody else
/// wants to hold it too.
pub(super) fn stall_holders(
    sim: &mut Sim<Node>,
    rng: &mut Rng,
    times: u32,
    during: Duration,
    config: &Config,
) {
    for time in 0..times {
        let at = during.mul_f64((f64::from(time) + 0.5 * rng.unit()) / f64::from(times));
        let host = HostId::new(rng.below(sim.len() as u64) as u32);
        let (renew, still) = (config.renew_timeout, config.renew_timeout.mul_f64(1.05 + 1.5 * rng.unit()));
        let hold = move |sim: &mut Sim<Node>| {
            sim.command(host, Command::Hold { limit: 8 * renew });
            stall_when_held(sim, host, still, renew / 8, LOOKS_MAX);
        };
        sim.at(at, Step::Call(Box::new(hold)));
    }
}

fn stall_when_held(sim: &mut Sim<Node>, host: HostId, still: Duration, limit: Duration, looks: u32) {
    if sim.machine(host).and_then(Node::held).is_none() {
        if looks > 0 {
            let again = move |sim: &mut Sim<Node>| stall_when_held(sim, host, still, limit, looks - 1);
            sim.after(LOOK, Step::Call(Box::new(again)));
        }
        return;
    }
    sim.fault(Fault::Suspend(host));
    sim.after(still, Fault::Resume(host));
    for other in sim.hosts() {
        if other != host && sim.state(other) == HostState::Up {
            sim.command(other, Command::Hold { limit });
        }
    }
}
