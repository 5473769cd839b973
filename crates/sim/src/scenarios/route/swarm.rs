//! A ring under any faults: the scenario of `annulus sim route --swarm`.
//!
//! Nodes join through the first three, faults happen, messages are sent. The checker requires:
//!
//! - A message sent `once` is delivered at most once, also when processes or machines were paused, and while the ring
//!   is partitioned.
//! - A message that was reported as failed was not delivered, and is not delivered later.
//! - A message that was reported as delivered was delivered, at the reported node.
//! - Every sender without a crash learns the outcome of its message.
//! - When the faults have stopped, all leaf sets become exact, and then every message arrives at its owner.

use core::time::Duration;
use std::collections::BTreeMap;
use std::net::SocketAddr;

use annulus_core::pastry::{
    self, AppName, Application, Command, Event, Failure, Forward, Outcome, Passing, Pastry, Reply,
};
use annulus_core::ring::Side;
use annulus_core::{Id, RequestId, Rng};
use serde_json::json;

use super::world::id_of;
use crate::aim::Aim;
use crate::conditions::Conditions;
use crate::disk::DiskFate;
use crate::host::{Birth, HostId};
use crate::observer::{Observer, Verdict, Violation};
use crate::scenario::{Checker, Scenario, Setup};
use crate::sim::{Sim, address, stream_of};

/// How long a ring may take to be whole again: lost nodes are tried one a minute.
const WHOLE_WITHIN: Duration = Duration::from_secs(1500);
/// The longest time of the last messages after that.
const ARRIVED_WITHIN: Duration = Duration::from_secs(100);
/// The number of messages to a ring that is whole.
const LAST_MESSAGES: u64 = 40;

/// A fault of ours, to see that the checker notices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broken {
    /// The owner of a key does not deliver.
    Swallows,
}

/// The settings of the scenario.
#[derive(Clone, Debug)]
pub struct RouteScenario {
    /// The number of nodes; with `swarm`, the largest number.
    pub nodes: u32,
    /// The time with faults.
    pub seconds: u64,
    /// |L|, both sides together.
    pub leaf_set_max: usize,
    /// |M|.
    pub neighbourhood_max: usize,
    /// Network and faults.
    pub conditions: Conditions,
    /// Whether the seed draws the number of nodes and the conditions.
    pub swarm: bool,
    /// The built-in fault of the nodes.
    pub broken: Option<Broken>,
}

/// Accepts every message; or stops it at its owner.
struct Accepts {
    swallows: bool,
}

impl Application for Accepts {
    fn forward(&self, passing: &Passing<'_>) -> Forward {
        if self.swallows && passing.next.is_none() { Forward::Stop } else { Forward::Continue }
    }

    fn deliver(&self, _: &Passing<'_>) -> Option<pastry::Verdict> {
        Some(pastry::Verdict::Accept)
    }
}

fn addr_of(host: u32) -> SocketAddr {
    SocketAddr::new(address(HostId::new(host)), pastry::PORT)
}

impl RouteScenario {
    fn config(&self, seed: u64, birth: &Birth<'_>, nodes: u32) -> pastry::Config {
        pastry::Config {
            id: id_of(seed, birth.host.index() as u32),
            bind: SocketAddr::new(birth.address, pastry::PORT),
            seeds: (0..nodes.min(3)).map(addr_of).collect(),
            leaf_set_max: self.leaf_set_max,
            neighbourhood_max: self.neighbourhood_max,
            ..pastry::Config::default()
        }
    }
}

impl Scenario for RouteScenario {
    type Machine = Pastry;
    type Checker = RouteChecker;

    fn name(&self) -> &'static str {
        "route"
    }

    fn setup(&self, seed: u64) -> Result<Setup<Pastry, RouteChecker>, Violation> {
        let mut rng = Rng::from_number(seed, stream_of::SCENARIO);
        let (nodes, mut conditions) = if self.swarm {
            (rng.between(2, u64::from(self.nodes.max(2))) as u32, self.conditions.drawn(&mut rng))
        } else {
            (self.nodes, self.conditions.clone())
        };
        if self.swarm {
            conditions.faults.draw_moves(seed);
        }
        let settings = self.clone();
        let mut sim = Sim::new(seed, conditions.config.clone(), move |birth| {
            let config = settings.config(seed, &birth, nodes);
            let pastry = Pastry::new(config, birth.seed).expect("the settings go together");
            let swallows = settings.broken == Some(Broken::Swallows);
            pastry.with_application(AppName::default(), std::sync::Arc::new(Accepts { swallows }))
        });
        (0..nodes).for_each(|_| {
            sim.add_host();
        });
        let faults_for = Duration::from_secs(self.seconds);
        conditions.faults.put_into(seed, &mut sim, faults_for, &AIMS);
        let mut checker = RouteChecker::new(seed, nodes, self.leaf_set_max / 2);
        for _ in 0..self.seconds * 2 {
            let after = rng.duration_below(faults_for);
            checker.send_after(after, &mut sim, &mut rng, false);
        }
        for _ in 0..LAST_MESSAGES {
            let after = faults_for + WHOLE_WITHIN + rng.duration_below(Duration::from_secs(20));
            checker.send_after(after, &mut sim, &mut rng, true);
        }
        let network = &conditions.config.network;
        let settings = json!({
            "seconds": self.seconds, "swarm": self.swarm, "leaf": self.leaf_set_max,
            "latency": network.latency.to_string(), "loss": network.loss, "duplicate": network.duplicate,
            "reorder": network.reorder, "faults": conditions.faults,
        });
        Ok(Setup { sim, checker, faults_for, converge_within: WHOLE_WITHIN + ARRIVED_WITHIN, settings })
    }
}

/// Hits the clockwise neighbour of a node, which takes over its keys.
static AIMS: [Aim<Pastry>; 1] = [Aim { name: "neighbour", find: neighbour }];

fn neighbour(sim: &Sim<Pastry>, rng: &mut Rng) -> Option<HostId> {
    let joined: Vec<&Pastry> =
        sim.machines().map(|(_, pastry)| pastry).filter(|pastry| pastry.is_active()).collect();
    let next = *rng.pick(&joined)?.leaf_set().side(Side::Clockwise).first()?;
    sim.machines().find(|(_, pastry)| pastry.own().id == next).map(|(host, _)| host)
}

/// A message and its outcome so far.
struct Sent {
    from: HostId,
    key: Id,
    /// When.
    after: Duration,
    once: bool,
    last: bool,
    /// Where it was delivered.
    at: Vec<HostId>,
    /// Its sender crashed: no node waits for its outcome.
    orphaned: bool,
    reply: Option<Reply>,
}

/// Watches all nodes.
pub struct RouteChecker {
    ids: Vec<(Id, HostId)>,
    side_max: usize,
    sent: Vec<Sent>,
    by_request: BTreeMap<RequestId, usize>,
    whole_at: Option<Duration>,
}

impl RouteChecker {
    fn new(seed: u64, nodes: u32, side_max: usize) -> Self {
        let mut ids: Vec<_> = (0..nodes).map(|host| (id_of(seed, host), HostId::new(host))).collect();
        ids.sort_unstable();
        Self { ids, side_max, sent: Vec::new(), by_request: BTreeMap::new(), whole_at: None }
    }

    fn send_after(&mut self, after: Duration, sim: &mut Sim<Pastry>, rng: &mut Rng, last: bool) {
        let from = HostId::new(rng.below(self.ids.len() as u64) as u32);
        let key = Id::new(rng.next_u128());
        let once = rng.chance(0.5);
        let payload = (self.sent.len() as u32).to_be_bytes().to_vec();
        let app = AppName::default();
        let command = Command::Route { app, key, payload, once, wants_answer: false, deadline: None };
        let request = sim.command_after(after, from, command);
        self.by_request.insert(request, self.sent.len());
        self.sent.push(Sent { from, key, after, once, last, at: Vec::new(), orphaned: false, reply: None });
    }

    /// Those that have not gone for good, in the order of the ring.
    fn living(&self, sim: &Sim<Pastry>) -> Vec<(Id, HostId)> {
        self.ids.iter().copied().filter(|(_, host)| !sim.is_dead(*host)).collect()
    }

    fn owner(&self, sim: &Sim<Pastry>, key: Id) -> Option<HostId> {
        let living = self.living(sim);
        let owner = key.closest(living.iter().map(|(id, _)| *id))?;
        living.iter().find(|(id, _)| *id == owner).map(|(_, host)| *host)
    }

    /// The sender of messages crashed: no node waits for the outcome of those that were sent before.
    fn orphan(&mut self, sim: &Sim<Pastry>, host: HostId) {
        let now = sim.elapsed();
        let is_its = |sent: &&mut Sent| sent.from == host && sent.after <= now && sent.reply.is_none();
        self.sent.iter_mut().filter(is_its).for_each(|sent| sent.orphaned = true);
    }

    /// A node whose leaf set is not exact.
    fn whole(&self, sim: &Sim<Pastry>) -> Result<(), String> {
        let living = self.living(sim);
        let (count, side_max) = (living.len(), self.side_max.min(living.len() - 1));
        for (at, (id, host)) in living.iter().enumerate() {
            let Some(machine) = sim.machine(*host) else { return Err(format!("{host} is down")) };
            if !machine.is_active() {
                return Err(format!("{host} has not joined"));
            }
            for (side, step) in [(Side::Clockwise, 1), (Side::CounterClockwise, count - 1)] {
                let should: Vec<Id> = (1..=side_max).map(|n| living[(at + n * step) % count].0).collect();
                let has = machine.leaf_set().side(side);
                if has != should {
                    return Err(format!("{host} ({id:?}) has {has:?} {side:?} of it, not {should:?}"));
                }
            }
        }
        Ok(())
    }
}

impl Observer<Pastry> for RouteChecker {
    fn on_event(&mut self, sim: &Sim<Pastry>, host: HostId, event: &Event) -> Verdict {
        let Event::Delivered { payload, .. } = event else { return Ok(()) };
        let number = payload.as_slice().try_into().map_or(u32::MAX, u32::from_be_bytes) as usize;
        let owner = self.sent.get(number).and_then(|sent| self.owner(sim, sent.key));
        let Some(sent) = self.sent.get_mut(number) else {
            return Err(Violation::new(format!("{host} delivered message {number}, which nobody sent")));
        };
        if let Some(&first) = sent.at.first().filter(|_| sent.once) {
            let text = format!("{host} delivered message {number}, which {first} had delivered");
            return Err(Violation::new(text));
        }
        if matches!(sent.reply, Some(Reply::Outcome(Outcome::Failed { .. }))) {
            return Err(Violation::new(format!("{host} delivered message {number}, reported as failed")));
        }
        if sent.last && owner != Some(host) {
            return Err(Violation::new(format!("{host} delivered message {number} of {owner:?}")));
        }
        sent.at.push(host);
        Ok(())
    }

    fn on_reply(&mut self, _: &Sim<Pastry>, _: HostId, request: RequestId, reply: &Reply) -> Verdict {
        let Some(&number) = self.by_request.get(&request) else { return Ok(()) };
        let ids = &self.ids;
        let sent = &mut self.sent[number];
        let violation = match reply {
            _ if sent.reply.is_some() => Some(String::from("was answered twice")),
            Reply::Outcome(Outcome::Delivered { by, .. }) => {
                let at = ids.iter().find(|(id, _)| *id == by.id).map(|(_, host)| *host);
                let known = at.is_some_and(|at| sent.at.contains(&at));
                (!known).then(|| format!("was reported as delivered by {:?}, and was not", by.id))
            }
            Reply::Outcome(Outcome::Failed { why: Failure::Stopped | Failure::NoApplication }) => {
                Some(format!("ended with {reply:?}"))
            }
            Reply::Outcome(Outcome::Failed { .. }) if !sent.at.is_empty() => {
                Some(format!("was reported as failed, but {} delivered it", sent.at[0]))
            }
            other if sent.last => Some(format!("ended with {other:?} in a ring that is whole")),
            _ => None,
        };
        sent.reply = Some(reply.clone());
        violation.map_or(Ok(()), |text| Err(Violation::new(format!("message {number} {text}"))))
    }

    fn on_start(&mut self, sim: &Sim<Pastry>, host: HostId) {
        // A host that is down does not answer.
        self.orphan(sim, host);
    }

    fn on_crash(&mut self, sim: &Sim<Pastry>, host: HostId, _: DiskFate) {
        self.orphan(sim, host);
    }
}

impl Checker<Pastry> for RouteChecker {
    fn converged(&mut self, sim: &Sim<Pastry>) -> Result<(), String> {
        if self.whole_at.is_none() {
            self.whole(sim)?;
            self.whole_at = Some(sim.elapsed());
        }
        // A host that stopped for good gives no replies.
        let open = |sent: &&Sent| sent.reply.is_none() && !sent.orphaned && !sim.is_dead(sent.from);
        let count = self.sent.iter().filter(open).count();
        if count > 0 { Err(format!("{count} senders wait for word of their messages")) } else { Ok(()) }
    }

    fn measured(&mut self, _: &Sim<Pastry>) -> serde_json::Map<String, serde_json::Value> {
        let mut measured = serde_json::Map::new();
        let count = |which: fn(&Sent) -> bool| self.sent.iter().filter(|sent| which(sent)).count();
        measured.insert("messages".into(), json!(self.sent.len()));
        measured.insert("delivered".into(), json!(count(|sent| !sent.at.is_empty())));
        measured.insert(
            "unknown".into(),
            json!(count(|sent| sent.reply == Some(Reply::Outcome(Outcome::Unknown)))),
        );
        measured.insert(
            "failed".into(),
            json!(count(|sent| matches!(sent.reply, Some(Reply::Outcome(Outcome::Failed { .. }))))),
        );
        measured.insert("whole_at_seconds".into(), json!(self.whole_at.map(|at| at.as_secs_f64())));
        measured
    }
}
