//! Processes that are paused, holders above all: for 1 ms to 100 s, and never while a node starts.

use core::time::Duration;

use annulus_core::Rng;

use super::{Node, holder};
use crate::fault::{Fault, Step};
use crate::host::{HostId, HostState};
use crate::sim::Sim;

/// How long a fault waits until its conditions are there.
const AGAIN: Duration = Duration::from_millis(200);

/// Pauses processes a number of times; every other time it is the one that has the token then.
pub(super) fn stall_holders(sim: &mut Sim<Node>, rng: &mut Rng, times: u32, during: Duration) {
    for time in 0..times {
        let at = during.mul_f64((f64::from(time) + 0.5 * rng.unit()) / f64::from(times));
        let host = (time % 2 == 1).then(|| HostId::new(rng.below(sim.len() as u64) as u32));
        // Log-uniform from 1 ms to 100 s.
        let paused = Duration::from_secs_f64(10_f64.powf(-3.0 + 5.0 * rng.unit()));
        sim.at(at, Step::Call(Box::new(move |sim: &mut Sim<Node>| stall(sim, host, paused))));
    }
}

fn stall(sim: &mut Sim<Node>, host: Option<HostId>, paused: Duration) {
    // A node that has just started knows of no ring, and makes a token beside a holder that is paused (TU-41).
    let all_in_a_ring = sim.hosts().all(|host| {
        let joined = sim.machine(host).is_some_and(|node| node.list().len() > 1);
        joined || sim.state(host) == HostState::Suspended
    });
    let held = || sim.machines().find(|(_, node)| node.held().is_some()).map(|(host, _)| host);
    match host.or_else(held).or_else(|| holder(sim)).filter(|_| all_in_a_ring) {
        Some(host) => {
            sim.fault(Fault::Suspend(host));
            sim.after(paused, Fault::Resume(host));
        }
        None => sim.after(AGAIN, Step::Call(Box::new(move |sim: &mut Sim<Node>| stall(sim, host, paused)))),
    }
}

/// Starts a host again, as soon as no other is paused.
pub(super) fn start_when_none_is_paused(sim: &mut Sim<Node>, host: HostId) {
    if sim.hosts().any(|host| sim.state(host) == HostState::Suspended) {
        let again = move |sim: &mut Sim<Node>| start_when_none_is_paused(sim, host);
        return sim.after(AGAIN, Step::Call(Box::new(again)));
    }
    sim.fault(Fault::Start(host));
}
