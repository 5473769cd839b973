//! Continuous messages under one fault: the scenario of `annulus sim route --flow`.
//!
//! Every node sends a message to every other twice a second. The seed draws a [`Drill`], its time and its target.
//! These hold in every drill and at every moment:
//!
//! | checker | what it holds |
//! |---|---|
//! | T | a sender gets `delivered` and `refused` only after the application of that node has decided so; `failed` only if
//! no application accepted the message, and none accepts it later |
//! | O | at most one application takes a message sent `once`, and only once; no node gives a message to its application again that this accepted in the same life |
//! | A | a sender without a fault learns the outcome of its message within its deadline |
//! | B | no node has more open messages than `open_max` |
//!
//! In a local network with one fault, messages must also be prompt, from the true beginning or end of the fault on:
//! [`FLOW`], [`FAILOVER`], [`RETURNED`], [`STEADY`] and [`REFUSED_AT_ONCE`]. No node removes a peer that was silent for
//! less than [`REMOVED_AFTER`]. In the end the ring is [`WHOLE`].

mod application;
mod checker;
mod drill;

#[cfg(test)]
mod tests;

use core::time::Duration;
use std::net::SocketAddr;
use std::sync::Arc;

use annulus_core::pastry::{self, AppName, Application, Command, Passing, Pastry, Verdict};
use annulus_core::{Id, Rng};
use serde_json::json;

use super::world::id_of;
use crate::fault::Step;
use crate::host::HostId;
use crate::ledger::Promise;
use crate::observer::Violation;
use crate::scenario::{Scenario, Setup};
use crate::sim::{Sim, address, stream_of};
use application::{Applications, Habits};
pub use checker::FlowChecker;
use checker::{Sent, Settings};
use drill::Plan;
pub use drill::{Drill, Gone};

const SECOND: Duration = Duration::from_secs(1);
/// The interval between two messages of a pair.
const EVERY: Duration = Duration::from_millis(500);
/// The same in the middle of a long fault.
const SELDOM: Duration = Duration::from_secs(5);
/// The longest time for the ring to form before messages are sent.
const FORMED_AT: Duration = Duration::from_secs(20);
/// The time with messages after the faults.
const AFTERWARDS: Duration = Duration::from_secs(12);

/// After a partition every pair exchanges messages again; after other faults every node reaches the one that was cut off.
const FLOW: Promise =
    Promise { name: "flow", prompt: Duration::from_secs(2), at_last: Duration::from_secs(10) };
/// A message to the keys of an owner that is gone is delivered, by the next closest node.
const FAILOVER: Promise =
    Promise { name: "failover", prompt: Duration::from_secs(1), at_last: Duration::from_secs(3) };
/// A node that starts again has its keys back.
const RETURNED: Promise =
    Promise { name: "returned", prompt: Duration::from_secs(5), at_last: Duration::from_secs(10) };
/// A message is delivered while every process is late by up to 20 ms.
const STEADY: Promise =
    Promise { name: "steady", prompt: Duration::from_millis(200), at_last: Duration::from_secs(1) };
/// The sender of a message that no application waits for learns so.
const REFUSED_AT_ONCE: Promise =
    Promise { name: "no_application", prompt: Duration::from_millis(100), at_last: Duration::from_secs(1) };
/// All leaf sets of running nodes are exact, after the faults.
const WHOLE: Promise =
    Promise { name: "whole", prompt: Duration::from_secs(120), at_last: Duration::from_secs(300) };
/// A node that is silent for less than this keeps its entries.
const REMOVED_AFTER: Duration = Duration::from_secs(10);

/// A fault of ours, to see that a checker notices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlowBroken {
    /// Applications accept messages before they have finished them: T.
    Hasty,
    /// Messages sent `once` are repeated like all others: O.
    Repeating,
    /// Nodes take more open messages than they may: B.
    Unbounded,
    /// Nodes wait for seconds before they suspect a peer: failover.
    Patient,
    /// Nodes remove a peer that is silent for half a second.
    Impatient,
    /// The partition does not heal: flow.
    Apart,
    /// The machine has a fault of an earlier version.
    Machine(pastry::Fault),
}

/// The settings of the scenario.
#[derive(Clone, Debug)]
pub struct RouteFlow {
    /// How many nodes at most; the seed draws from 3 on.
    pub nodes: u32,
    /// The drill; the seed draws one if `None`.
    pub drill: Option<Drill>,
    /// The fault of the nodes.
    pub broken: Option<FlowBroken>,
}

impl Default for RouteFlow {
    fn default() -> Self {
        Self { nodes: 8, drill: None, broken: None }
    }
}

/// Accepts every message in the call that delivers it.
struct Accepts;

impl Application for Accepts {
    fn deliver(&self, _: &Passing<'_>) -> Option<Verdict> {
        Some(Verdict::Accept)
    }
}

fn addr_of(host: u32) -> SocketAddr {
    SocketAddr::new(address(HostId::new(host)), pastry::PORT)
}

/// The habits of applications, as the seed draws them.
#[derive(Clone, Copy)]
struct Draw {
    /// Whether applications settle in the call that delivers.
    in_call: bool,
    habits: Habits,
    open_max: usize,
}

impl Draw {
    fn new(drill: Drill, broken: Option<FlowBroken>, rng: &mut Rng) -> Self {
        let is_about_applications = matches!(drill, Drill::Flood | Drill::NoApplication);
        let is_hasty = broken == Some(FlowBroken::Hasty);
        let in_call = rng.chance(0.5) && !is_about_applications && !is_hasty;
        let slow = Duration::from_millis(rng.between(5, 50));
        let service = if drill == Drill::Flood { slow } else { Duration::from_micros(rng.between(10, 500)) };
        let refused = if is_about_applications { 0.2 * rng.unit() } else { 0.0 };
        let (waiting_max, open_max) = (rng.between(8, 64) as usize, rng.between(8, 64) as usize);
        let (waiting_max, open_max) =
            if drill == Drill::Flood { (waiting_max, open_max) } else { (1024, 4096) };
        Self { in_call, habits: Habits { service, waiting_max, refused, is_hasty }, open_max }
    }
}

fn machine(
    seed: u64,
    nodes: u32,
    draw: Draw,
    broken: Option<FlowBroken>,
    birth: &crate::host::Birth<'_>,
) -> Pastry {
    let host = birth.host.index() as u32;
    let mut config = pastry::Config {
        id: id_of(seed, host),
        bind: addr_of(host),
        seeds: (0..nodes.min(3)).map(addr_of).collect(),
        applications: vec![AppName::default()],
        open_max: draw.open_max,
        ..pastry::Config::default()
    };
    match broken {
        Some(FlowBroken::Unbounded) => config.open_max = 4096,
        Some(FlowBroken::Patient) => config.ack_timeout_min = 4 * SECOND,
        Some(FlowBroken::Impatient) => config.away_timeout = SECOND / 2,
        Some(FlowBroken::Machine(fault)) => config.fault = Some(fault),
        _ => {}
    }
    let machine = Pastry::new(config, birth.seed).expect("the settings go together");
    if draw.in_call { machine.with_application(AppName::default(), Arc::new(Accepts)) } else { machine }
}

impl Scenario for RouteFlow {
    type Machine = Pastry;
    type Checker = FlowChecker;

    fn name(&self) -> &'static str {
        "route"
    }

    fn setup(&self, seed: u64) -> Result<Setup<Pastry, FlowChecker>, Violation> {
        let mut rng = Rng::from_number(seed, stream_of::SCENARIO);
        let nodes = rng.between(3, u64::from(self.nodes.max(3))) as u32;
        let drawn = Drill::draw(&mut rng);
        let drill = self.drill.unwrap_or(drawn);
        let broken = self.broken;
        let conditions = drill.conditions(&mut rng);
        let draw = Draw::new(drill, broken, &mut rng);
        let mut sim = Sim::new(seed, conditions.config.clone(), move |birth| {
            machine(seed, nodes, draw, broken, &birth)
        });
        (0..nodes).for_each(|_| {
            sim.add_host();
        });
        let begin = FORMED_AT + 3 * SECOND + rng.duration_below(EVERY);
        let victim = HostId::new(rng.below(nodes.into()) as u32);
        let plan = Plan { drill, begin, end: begin + drill.length(&mut rng), victim };
        plan.schedule(seed, &conditions, &mut sim, &mut rng, broken == Some(FlowBroken::Apart));
        let applications = Applications::new(nodes as usize, draw.habits, Rng::new(rng.seed()));
        if drill == Drill::NoApplication {
            end_application(&plan, &applications, &mut sim);
        }
        let ids: Vec<Id> = (0..nodes).map(|host| id_of(seed, host)).collect();
        let mut load = Load { sim: &mut sim, ids: &ids, rng: &mut rng, broken, sent: Vec::new() };
        load.schedule(&plan, draw.habits.service);
        let sent = load.sent;
        let settings = Settings { plan, ids, open_max: draw.open_max };
        let checker = FlowChecker::new(settings, applications, sent);
        let settings = json!({
            "drill": drill.name(), "seconds": (plan.end - plan.begin).as_secs_f64(), "in_call": draw.in_call,
            "latency": conditions.config.network.latency.to_string(), "loss": conditions.config.network.loss,
            "rto_max_seconds": conditions.config.stream.rto_max.as_secs_f64(), "faults": conditions.faults,
        });
        let faults_for = plan.end + AFTERWARDS;
        Ok(Setup { sim, checker, faults_for, converge_within: WHOLE.at_last, settings })
    }
}

/// The application of the victim ends with messages open, and starts again later.
fn end_application(plan: &Plan, applications: &Applications, sim: &mut Sim<Pastry>) {
    for (at, is_stopped) in [(plan.begin, true), (plan.end, false)] {
        let (applications, host) = (applications.clone(), plan.victim);
        let step = move |sim: &mut Sim<Pastry>| {
            applications.set_stopped(host, is_stopped);
            let app = AppName::default();
            sim.command(host, if is_stopped { Command::Unregister(app) } else { Command::Register(app) });
        };
        sim.at(at, Step::Call(Box::new(step)));
    }
}

/// Puts all messages into a run.
struct Load<'a> {
    sim: &'a mut Sim<Pastry>,
    ids: &'a [Id],
    rng: &'a mut Rng,
    broken: Option<FlowBroken>,
    sent: Vec<Sent>,
}

impl Load<'_> {
    fn schedule(&mut self, plan: &Plan, service: Duration) {
        let hosts: Vec<HostId> = self.sim.hosts().collect();
        let end = plan.end + AFTERWARDS;
        let phases: Vec<Duration> =
            (0..hosts.len() * hosts.len()).map(|_| self.rng.duration_below(EVERY)).collect();
        let mut tick = FORMED_AT;
        while tick < end {
            for &from in &hosts {
                for &to in hosts.iter().filter(|to| **to != from) {
                    let phase = phases[from.index() * hosts.len() + to.index()];
                    self.send(tick + phase, from, to);
                }
            }
            let is_near = |moment: Duration| tick + 2 * SECOND >= moment && tick <= moment + AFTERWARDS;
            // The end of the fault finds a message on its way every half second, however long the fault was.
            let seldom = (tick + SELDOM).min((plan.end - 2 * SECOND).max(tick + EVERY));
            tick = if is_near(plan.begin) || is_near(plan.end) { tick + EVERY } else { seldom };
        }
        if plan.drill == Drill::Flood {
            // Ten times more than the application takes.
            let others: Vec<HostId> = hosts.into_iter().filter(|host| *host != plan.victim).collect();
            let mut at = plan.begin;
            while at < plan.end {
                let from = others[self.rng.index(others.len())];
                self.send(at, from, plan.victim);
                at += service / 10;
            }
        }
    }

    fn send(&mut self, at: Duration, from: HostId, to: HostId) {
        let number = self.sent.len() as u32;
        let is_once = self.rng.chance(0.25);
        let once = is_once && self.broken != Some(FlowBroken::Repeating);
        let (app, key, payload) = (AppName::default(), self.ids[to.index()], number.to_be_bytes().to_vec());
        let command = Command::Route { app, key, payload, once, wants_answer: false, deadline: None };
        let request = self.sim.command_after(at.saturating_sub(self.sim.elapsed()), from, command);
        self.sent.push(Sent::new(request, from, to, is_once, at));
    }
}
