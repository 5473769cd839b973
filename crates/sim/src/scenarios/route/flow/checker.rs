//! The checkers of messages: T, O, A, B, and how prompt they are.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use annulus_core::pastry::{self, Event, Failure, Outcome, Pastry, Reply};
use annulus_core::ring::Side;
use annulus_core::{Id, RequestId};
use serde_json::json;

use super::application::{Applications, Done};
use super::drill::{Drill, Plan};
use super::{FAILOVER, FLOW, REFUSED_AT_ONCE, REMOVED_AFTER, RETURNED, STEADY, WHOLE};
use crate::causes::Cause;
use crate::disk::DiskFate;
use crate::host::{HostId, HostState};
use crate::ledger::{Ledger, Promise};
use crate::observer::{Observer, Verdict, Violation};
use crate::scenario::Checker;
use crate::sim::Sim;

const SECOND: Duration = Duration::from_secs(1);
/// The deadline of a message.
const DEADLINE: Duration = Duration::from_secs(10);
/// The wire has deadlines in whole milliseconds.
const SLACK: Duration = Duration::from_millis(10);
/// The situations that runs may meet.
const SITUATIONS: [&str; 12] = [
    "partition",
    "owner_gone",
    "flood",
    "no_application",
    "noise",
    "anything",
    "answered_busy",
    "refused",
    "unknown",
    "retransmitted",
    "away",
    "sender_crashed",
];

/// A message and its outcome so far.
#[derive(Clone, Debug)]
pub(super) struct Sent {
    request: RequestId,
    from: HostId,
    to: HostId,
    once: bool,
    at: Duration,
    /// The nodes whose applications accepted it, each with its run.
    taken: Vec<(HostId, u32)>,
    /// Its sender crashed, or was down: no node waits for its outcome.
    is_orphaned: bool,
    reply: Option<(Duration, Reply)>,
}

impl Sent {
    pub(super) fn new(request: RequestId, from: HostId, to: HostId, once: bool, at: Duration) -> Self {
        Self { request, from, to, once, at, taken: Vec::new(), is_orphaned: false, reply: None }
    }

    fn delivered_by(&self) -> Option<Id> {
        match &self.reply {
            Some((_, Reply::Outcome(Outcome::Delivered { by, .. }))) => Some(by.id),
            _ => None,
        }
    }
}

/// The part of a run that the checker knows before it begins.
pub(super) struct Settings {
    pub(super) plan: Plan,
    /// The ids of the hosts.
    pub(super) ids: Vec<Id>,
    pub(super) open_max: usize,
}

/// Watches all nodes and their applications.
pub struct FlowChecker {
    settings: Settings,
    applications: Applications,
    sent: Vec<Sent>,
    by_request: BTreeMap<RequestId, usize>,
    /// Unanswered messages, in the order in which they were sent.
    unanswered: BTreeSet<(Duration, usize)>,
    /// Pairs that have exchanged a message since the fault ended.
    flowing: BTreeSet<(HostId, HostId)>,
    whole_at: Option<Duration>,
    calm_at: Option<Duration>,
    ledger: Ledger,
}

impl FlowChecker {
    pub(super) fn new(settings: Settings, applications: Applications, sent: Vec<Sent>) -> Self {
        let by_request = sent.iter().enumerate().map(|(number, sent)| (sent.request, number)).collect();
        let unanswered = sent.iter().enumerate().map(|(number, sent)| (sent.at, number)).collect();
        let mut ledger = Ledger::new(&SITUATIONS);
        ledger.met(match settings.plan.drill {
            Drill::Owner(_) => "owner_gone",
            other => other.name(),
        });
        Self {
            settings,
            applications,
            sent,
            by_request,
            unanswered,
            flowing: BTreeSet::new(),
            whole_at: None,
            calm_at: None,
            ledger,
        }
    }

    fn host_of(&self, id: Id) -> Option<HostId> {
        self.settings.ids.iter().position(|at| *at == id).map(|at| HostId::new(at as u32))
    }

    /// An application took a message: O, and the second half of T.
    fn taken(&mut self, sim: &Sim<Pastry>, host: HostId, number: usize) -> Verdict {
        let life = sim.life(host);
        let was_refused = self.applications.has_done(number, host, Done::Refused);
        let sent = &mut self.sent[number];
        let text = if sent.once && !sent.taken.is_empty() {
            format!("{host} took message {number}, sent once, which {} had taken", sent.taken[0].0)
        } else if sent.taken.contains(&(host, life)) && !was_refused {
            format!("{host} took message {number} twice in one life")
        } else if matches!(sent.reply, Some((_, Reply::Outcome(Outcome::Failed { .. })))) {
            format!("{host} took message {number}, which was reported as failed")
        } else {
            sent.taken.push((host, life));
            return Ok(());
        };
        Err(Violation::new(text))
    }

    /// B: messages whose origin still waits are open at the machine as well.
    fn check_open(&self, sim: &Sim<Pastry>, host: HostId) -> Verdict {
        let now = sim.elapsed();
        let is_open = |number: &usize| self.sent[*number].at + DEADLINE > now + SLACK;
        let open = self.applications.open(host).iter().filter(|number| is_open(number)).count();
        if open <= self.settings.open_max {
            return Ok(());
        }
        Err(Violation::new(format!("{host} has {open} open messages, above {}", self.settings.open_max)))
    }

    /// T: whether a reply is true.
    fn check_true(&self, number: usize, reply: &Reply) -> Verdict {
        let sent = &self.sent[number];
        let done = |by: &pastry::Contact, done| {
            self.host_of(by.id).is_some_and(|host| self.applications.has_done(number, host, done))
        };
        let is_true = match reply {
            _ if sent.reply.is_some() => false,
            Reply::Outcome(Outcome::Delivered { by, .. }) => done(by, Done::Accepted),
            Reply::Outcome(Outcome::Refused { by, .. }) => done(by, Done::Refused),
            Reply::Outcome(Outcome::Failed { .. }) => sent.taken.is_empty(),
            Reply::Outcome(Outcome::Unknown) | Reply::Full => true,
            _ => false,
        };
        if is_true {
            return Ok(());
        }
        let (taken, before) = (&sent.taken, &sent.reply);
        Err(Violation::new(format!("message {number}: {reply:?} is not true; {taken:?}, {before:?}")))
    }

    /// How prompt a message was, and whether the drill lets it end so.
    fn check_prompt(&mut self, sim: &Sim<Pastry>, number: usize) -> Verdict {
        let now = sim.elapsed();
        let Plan { drill, begin, end, victim } = self.settings.plan;
        let Sent { from, to, once, at, .. } = self.sent[number];
        let by = self.sent[number].delivered_by();
        let (took, is_during) = (now - at, at >= begin && at < end);
        let to_victim = to == victim && from != victim;
        match drill {
            Drill::Owner(_) if to_victim && is_during && !once => {
                if by.is_none() {
                    let reply = &self.sent[number].reply;
                    return Err(Violation::new(format!(
                        "message {number} to a gone owner ended as {reply:?}"
                    )));
                }
                self.ledger.took(&FAILOVER, took)?;
            }
            Drill::Noise if is_during => {
                if by != Some(self.settings.ids[to.index()]) {
                    let reply = &self.sent[number].reply;
                    return Err(Violation::new(format!("message {number} ended as {reply:?} under noise")));
                }
                self.ledger.took(&STEADY, took)?;
            }
            // One that was sent right before may have been lost with the application.
            Drill::NoApplication if to_victim && at > begin + SECOND && at + SECOND < end => {
                let failed = Reply::Outcome(Outcome::Failed { why: Failure::NoApplication });
                let is_failed = matches!(&self.sent[number].reply, Some((_, reply)) if *reply == failed);
                if !is_failed {
                    let reply = &self.sent[number].reply;
                    return Err(Violation::new(format!("message {number} to nobody ended as {reply:?}")));
                }
                self.ledger.took(&REFUSED_AT_ONCE, took)?;
            }
            _ => {}
        }
        let flows = at >= end && by == Some(self.settings.ids[to.index()]);
        if flows
            && let Some(promise) = self.flow_promise(from, to)
            && self.flowing.insert((from, to))
        {
            self.ledger.took(promise, now - end)?;
        }
        Ok(())
    }

    /// The bound for messages of a pair after the fault.
    fn flow_promise(&self, from: HostId, to: HostId) -> Option<&'static Promise> {
        let Plan { drill, victim, .. } = self.settings.plan;
        match drill {
            Drill::Heal => Some(&FLOW),
            Drill::Owner(gone) if from == victim || to == victim => {
                Some(if gone.restarts() { &RETURNED } else { &FLOW })
            }
            _ => None,
        }
    }

    /// The pairs that never exchanged a message after the fault.
    fn check_flowing(&self, sim: &Sim<Pastry>) -> Verdict {
        for from in sim.hosts() {
            for to in sim.hosts().filter(|to| *to != from) {
                if let Some(promise) = self.flow_promise(from, to)
                    && !self.flowing.contains(&(from, to))
                {
                    return Err(Violation::new(format!("{}: no message from {from} to {to}", promise.name)));
                }
            }
        }
        Ok(())
    }

    /// A: a sender without faults since its message has the reply.
    fn check_answered(&mut self, sim: &Sim<Pastry>) -> Verdict {
        let now = sim.elapsed();
        let late: Vec<(Duration, usize)> =
            self.unanswered.iter().take_while(|(at, _)| *at + DEADLINE + SECOND <= now).copied().collect();
        for (at, number) in late {
            let from = self.sent[number].from;
            if self.sent[number].is_orphaned {
                self.unanswered.remove(&(at, number));
            } else if sim.causes(from, at, now).next().is_none() {
                return Err(Violation::new(format!("{from} did not learn the outcome of message {number}")));
            }
        }
        Ok(())
    }

    /// The first node that has another leaf set than it should have.
    fn missing(&self, sim: &Sim<Pastry>) -> Result<(), String> {
        let living = sim.hosts().filter(|host| !sim.is_dead(*host));
        let mut ids: Vec<(Id, HostId)> = living.map(|host| (self.settings.ids[host.index()], host)).collect();
        ids.sort_unstable();
        let count = ids.len();
        for (at, (id, host)) in ids.iter().enumerate() {
            let Some(machine) = sim.machine(*host).filter(|_| sim.state(*host) == HostState::Up) else {
                return Err(format!("{host} is down"));
            };
            if !machine.is_active() {
                return Err(format!("{host} has not joined"));
            }
            for (side, step) in [(Side::Clockwise, 1), (Side::CounterClockwise, count - 1)] {
                let should: Vec<Id> = (1..count).map(|n| ids[(at + n * step) % count].0).collect();
                let has = machine.leaf_set().side(side);
                if has != should {
                    return Err(format!("{host} ({id:?}) has {has:?} {side:?} of it, not {should:?}"));
                }
            }
        }
        Ok(())
    }

    fn orphan(&mut self, sim: &Sim<Pastry>, host: HostId) {
        let now = sim.elapsed();
        for sent in self.sent.iter_mut().filter(|sent| sent.from == host && sent.at <= now) {
            if sent.reply.is_none() {
                sent.is_orphaned = true;
                self.ledger.met("sender_crashed");
            }
        }
    }
}

impl Observer<Pastry> for FlowChecker {
    fn on_event(&mut self, sim: &Sim<Pastry>, host: HostId, event: &Event) -> Verdict {
        match event {
            Event::Delivered { id, attempt, payload, is_settled, .. } => {
                let number = payload.as_slice().try_into().map_or(u32::MAX, u32::from_be_bytes) as usize;
                if self.sent.get(number).is_none_or(|sent| sent.at > sim.elapsed()) {
                    return Err(Violation::new(format!("{host} got message {number}, which nobody sent")));
                }
                if *attempt > 0 {
                    self.ledger.met("retransmitted");
                }
                if *is_settled {
                    self.applications.accepted(host, number);
                } else if !self.applications.arrived(sim, host, *id, number) {
                    self.ledger.met("answered_busy");
                    return Ok(());
                }
                self.taken(sim, host, number)?;
                self.check_open(sim, host)
            }
            Event::PeerFailed { contact } => {
                let Plan { drill, begin, end, .. } = self.settings.plan;
                let is_short = drill == Drill::Noise
                    || matches!(drill, Drill::Owner(gone) if !gone.restarts() && end - begin < REMOVED_AFTER);
                if is_short {
                    return Err(Violation::new(format!("{host} removed {}, which lives", contact.id)));
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn on_reply(&mut self, sim: &Sim<Pastry>, _: HostId, request: RequestId, reply: &Reply) -> Verdict {
        let Some(&number) = self.by_request.get(&request) else { return Ok(()) };
        self.check_true(number, reply)?;
        match reply {
            Reply::Outcome(Outcome::Refused { .. }) => self.ledger.met("refused"),
            Reply::Outcome(Outcome::Unknown) => self.ledger.met("unknown"),
            _ => {}
        }
        self.unanswered.remove(&(self.sent[number].at, number));
        self.sent[number].reply = Some((sim.elapsed(), reply.clone()));
        self.check_prompt(sim, number)
    }

    fn on_start(&mut self, sim: &Sim<Pastry>, host: HostId) {
        // A host that is down does not answer.
        self.orphan(sim, host);
    }

    fn on_crash(&mut self, sim: &Sim<Pastry>, host: HostId, _: DiskFate) {
        self.orphan(sim, host);
        self.applications.ended(host);
    }
}

impl Checker<Pastry> for FlowChecker {
    fn check(&mut self, sim: &Sim<Pastry>) -> Verdict {
        if sim.machines().any(|(_, machine)| !machine.away().is_empty()) {
            self.ledger.met("away");
        }
        self.check_answered(sim)
    }

    fn on_calm(&mut self, sim: &Sim<Pastry>) {
        self.calm_at = Some(sim.elapsed());
    }

    fn converged(&mut self, sim: &Sim<Pastry>) -> Result<(), String> {
        let since = sim.elapsed() - self.calm_at.unwrap_or_default();
        if self.whole_at.is_none() {
            self.missing(sim)?;
            self.whole_at = Some(sim.elapsed());
            self.ledger.took(&WHOLE, since).map_err(|late| late.text)?;
        }
        // A host that is dead sent nothing.
        let waits = |sent: &&Sent| sent.reply.is_none() && !sent.is_orphaned && !sim.is_dead(sent.from);
        if let Some(first) = self.sent.iter().find(waits) {
            let (count, from, at) = (self.sent.iter().filter(waits).count(), first.from, first.at);
            return Err(format!("{count} senders wait for word of their messages, {from} since {at:?}"));
        }
        self.check_flowing(sim).map_err(|violation| violation.text)
    }

    fn ledger(&self) -> Option<&Ledger> {
        Some(&self.ledger)
    }

    fn measured(&mut self, sim: &Sim<Pastry>) -> serde_json::Map<String, serde_json::Value> {
        let mut measured = serde_json::Map::new();
        let count = |which: &dyn Fn(&Outcome) -> bool| {
            let outcome =
                |sent: &&Sent| matches!(&sent.reply, Some((_, Reply::Outcome(outcome))) if which(outcome));
            self.sent.iter().filter(outcome).count()
        };
        let is_unknown = |outcome: &Outcome| *outcome == Outcome::Unknown;
        measured.insert("messages".into(), json!(self.sent.len()));
        measured.insert(
            "delivered".into(),
            json!(count(&|outcome| matches!(outcome, Outcome::Delivered { .. }))),
        );
        measured.insert("unknown".into(), json!(count(&is_unknown)));
        measured.insert("failed".into(), json!(count(&|outcome| matches!(outcome, Outcome::Failed { .. }))));
        let taken_again = self.sent.iter().filter(|sent| sent.taken.len() > 1).count();
        measured.insert("taken_again".into(), json!(taken_again));
        let away: u64 = sim.machines().map(|(_, machine)| machine.counted().peers_away).sum();
        measured.insert("away".into(), json!(away));
        let stalled = |host: &HostId| {
            sim.causes(*host, Duration::ZERO, sim.elapsed()).any(|one| one.cause == Cause::Stalled)
        };
        measured.insert("hosts_stalled".into(), json!(sim.hosts().filter(stalled).count()));
        measured
    }
}
