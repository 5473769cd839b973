//! The processes beside whole nodes, and the checker of all their services.

use core::time::Duration;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use annulus_core::node::{Command, Event, Node, Part, PartCommand, PartEvent, Reply, Token};
use annulus_core::pastry::{self, AppName, MessageId, Outcome, Verdict as Settled};
use annulus_core::swim::{self, Swim};
use annulus_core::{Id, RequestId, Rng, jitterbug, turns, w3w};

use super::exclusive;
use super::{
    DEAD_FORGOTTEN, DISK_LOST, FIRST_SECOND, MESH, ONE_TOKEN, ROUTE, VOTERS, WHOLE, id_of, mesh, route,
};
use crate::disk::DiskFate;
use crate::host::{HostId, HostState};
use crate::ledger::Ledger;
use crate::observer::{Observer, Verdict, Violation};
use crate::outside::App;
use crate::scenario::Checker;
use crate::sim::Sim;

/// How often one node sends a message to a key.
const MESSAGE_EVERY: Duration = Duration::from_millis(500);
/// The places of an application, and the time it takes for a message.
const PLACES: usize = 64;
const TAKES: Duration = Duration::from_millis(20);
/// The retry delay for a sender while the queue is full.
const BUSY: Duration = Duration::from_millis(200);

/// A routed message and its outcome.
#[derive(Default)]
struct Sent {
    /// The nodes whose application has finished it.
    finished: Vec<Id>,
    is_failed: bool,
}

/// The applications beside the nodes, and the messages for them.
pub(super) struct Outside {
    apps: Vec<App<(MessageId, usize)>>,
    sent: Vec<Sent>,
    by_request: BTreeMap<RequestId, usize>,
    next_message: Duration,
    rng: Rng,
    is_loaded: bool,
    violation: Option<String>,
}

impl Outside {
    pub(super) fn new(nodes: u32, seed: u64, is_loaded: bool) -> Self {
        Self {
            apps: (0..nodes).map(|_| App::new(PLACES, TAKES)).collect(),
            sent: Vec::new(),
            by_request: BTreeMap::new(),
            next_message: Duration::from_secs(FIRST_SECOND),
            // A stream of its own, far beyond the numbers of the others.
            rng: Rng::from_number(seed, 1 << 34),
            is_loaded,
            violation: None,
        }
    }

    pub(super) fn tick(&mut self, sim: &mut Sim<Node>) {
        if !self.is_loaded {
            return;
        }
        self.settle(sim);
        if sim.elapsed() >= self.next_message {
            self.next_message = sim.elapsed() + MESSAGE_EVERY;
            let from = HostId::new(self.rng.below(sim.len() as u64) as u32);
            let (key, number) = (Id::new(self.rng.next_u128()), self.sent.len());
            let payload = (number as u64).to_be_bytes().to_vec();
            let request =
                sim.command(from, to_route(pastry::Command::route(AppName::default(), key, payload)));
            self.by_request.insert(request, number);
            self.sent.push(Sent::default());
        }
    }

    /// Lets applications of running processes work, and settles the messages that they have finished.
    fn settle(&mut self, sim: &mut Sim<Node>) {
        let now = sim.elapsed();
        for host in sim.hosts() {
            let app = &mut self.apps[host.index()];
            app.stop(now, !matches!(sim.state(host), HostState::Up | HostState::Loading));
            app.run(now);
            let finished = app.take_finished();
            let id = id_of(host);
            for (_, number) in &finished {
                let sent = &mut self.sent[*number];
                sent.finished.push(id);
                if sent.is_failed {
                    let text = format!("{host} finished message {number}, reported as failed");
                    self.violation.get_or_insert(text);
                }
            }
            let verdicts: Vec<_> = finished.into_iter().map(|(id, _)| (id, Settled::Accept)).collect();
            if !verdicts.is_empty() {
                sim.command(host, to_route(pastry::Command::Settle(verdicts)));
            }
        }
    }

    /// A message waits for the application of a host.
    fn arrived(&mut self, sim: &Sim<Node>, host: HostId, id: MessageId, payload: &[u8]) -> Verdict {
        let number = payload.try_into().map_or(u64::MAX, u64::from_be_bytes) as usize;
        let Some(sent) = self.sent.get(number) else {
            return Err(Violation::new(format!("{host} delivered message {number}, which nobody sent")));
        };
        if sent.is_failed {
            return Err(Violation::new(format!("{host} delivered message {number}, reported as failed")));
        }
        if !self.apps[host.index()].arrive(sim.elapsed(), (id, number)) {
            let busy = to_route(pastry::Command::Settle(vec![(id, Settled::Busy(BUSY))]));
            sim.inject(crate::fault::Step::Command(host, RequestId(u64::MAX), busy));
        }
        Ok(())
    }

    /// T: a message that is reported as delivered was finished, one that is reported as failed was not.
    fn reported(&mut self, host: HostId, request: RequestId, outcome: &Outcome) -> Verdict {
        let Some(&number) = self.by_request.get(&request) else { return Ok(()) };
        let sent = &mut self.sent[number];
        match outcome {
            Outcome::Delivered { by, .. } if !sent.finished.contains(&by.id) => Err(Violation::new(format!(
                "{host} sees message {number} delivered by {:?}, whose application has not finished it",
                by.id
            ))),
            Outcome::Failed { why } if !sent.finished.is_empty() => Err(Violation::new(format!(
                "{host} sees message {number} failed ({why:?}), which an application has finished"
            ))),
            Outcome::Failed { .. } => {
                sent.is_failed = true;
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

fn to_route(command: pastry::Command) -> Command {
    Command { service: ROUTE, command: PartCommand::Route(command) }
}

fn members(node: &Node) -> Option<&Swim> {
    node.parts().iter().find_map(|(_, part)| match part {
        Part::Members(swim) => Some(&**swim),
        _ => None,
    })
}

/// Watches whole nodes.
pub struct NodeChecker {
    outside: Rc<RefCell<Outside>>,
    ledger: Ledger,
    /// The highest fence that each node took.
    fences: Vec<u64>,
    /// The highest fence of an exclusive turn, by name.
    turns: BTreeMap<String, u64>,
    /// The letters that arrived at any node; every letter of the scenario has another text.
    received: BTreeSet<w3w::Key>,
    calm_at: Option<Duration>,
    forgotten: bool,
    whole: bool,
}

impl NodeChecker {
    pub(super) fn new(nodes: usize, outside: Rc<RefCell<Outside>>) -> Self {
        let situations = [
            "took_token",
            "took_turn",
            "took_ring_turn",
            "letter_confirmed",
            "message_delivered",
            "message_unknown",
            "owner_died",
        ];
        Self {
            outside,
            ledger: Ledger::new(&situations),
            fences: vec![0; nodes],
            turns: BTreeMap::new(),
            received: BTreeSet::new(),
            calm_at: None,
            forgotten: false,
            whole: false,
        }
    }

    /// Checks that a confirmed letter has arrived. Its recipient may have crashed between its disk and its event.
    fn check_confirmed(&self, sim: &Sim<Node>, host: HostId, key: w3w::Key) -> Verdict {
        let blocks = w3w::BLOCKS.in_service(MESH);
        let Some(data) = sim.disk(host).and_then(|disk| disk.value(blocks, &key.to_bytes())) else {
            return Err(Violation::new(format!("{host} sees {key} confirmed, which it does not have")));
        };
        let letter = letter_in(data);
        let has = |other: HostId| {
            let mut letters = sim.disk(other).into_iter().flat_map(|disk| disk.entries(blocks));
            other != host && letters.any(|(_, data)| letter_in(data) == letter)
        };
        if letter.is_some_and(|letter| self.received.contains(&letter)) || sim.hosts().any(has) {
            return Ok(());
        }
        Err(Violation::new(format!("{host} sees {key} confirmed, which came to nobody")))
    }

    /// A node that still counts on one that has gone for good.
    fn remembers(sim: &Sim<Node>) -> Option<String> {
        let dead: Vec<HostId> = sim.hosts().filter(|host| sim.is_dead(*host)).collect();
        for (host, node) in sim.machines() {
            let leaves = route(node).map(|pastry| pastry.leaf_set().members().collect::<Vec<_>>());
            for gone in &dead {
                if leaves.as_ref().is_some_and(|leaves| leaves.contains(&id_of(*gone))) {
                    return Some(format!("{host} has {gone}, which is gone, in its leaf set"));
                }
                let state = state_of(node, *gone);
                if matches!(state, Some(swim::State::Alive | swim::State::Suspect)) {
                    return Some(format!("{host} lists {gone}, which is gone, as {state:?}"));
                }
            }
        }
        None
    }

    fn missing(sim: &Sim<Node>) -> Result<(), String> {
        let living: Vec<HostId> = sim.hosts().filter(|host| !sim.is_dead(*host)).collect();
        for &host in &living {
            let Some(node) = sim.machine(host).filter(|_| sim.state(host) == HostState::Up) else {
                return Err(format!("{host} is down"));
            };
            let unknown = |other: &&HostId| state_of(node, **other) != Some(swim::State::Alive);
            if let Some(other) = living.iter().find(unknown).filter(|_| members(node).is_some()) {
                return Err(format!("{host} lists {other} as {:?}", state_of(node, *other)));
            }
            let Some(pastry) = route(node).filter(|pastry| pastry.is_active()) else {
                return Err(format!("{host} has not joined the ring"));
            };
            let mut leaves: Vec<Id> = pastry.leaf_set().members().collect();
            let mut all: Vec<Id> =
                living.iter().filter(|other| **other != host).map(|other| id_of(*other)).collect();
            leaves.sort_unstable();
            leaves.dedup();
            all.sort_unstable();
            if leaves != all {
                return Err(format!("{host} has {} of {} leaves", leaves.len(), all.len()));
            }
            if living.len() > 1 && mesh(node).is_none_or(|mesh| mesh.peers().is_empty()) {
                return Err(format!("{host} has no peers in the mesh"));
            }
        }
        Ok(())
    }

    fn check_turn(&mut self, sim: &Sim<Node>, host: HostId, name: &str, fence: u64) -> Verdict {
        self.ledger.met(if name.is_empty() { "took_ring_turn" } else { "took_turn" });
        let last = self.turns.insert(name.to_owned(), fence).unwrap_or(0);
        if fence > last {
            return Ok(());
        }
        let voters: Vec<HostId> = sim.hosts().take(VOTERS.into()).collect();
        let excused =
            voters.iter().any(|voter| self.ledger.excuse(sim, &DISK_LOST, *voter, Duration::ZERO).is_ok());
        let text = format!("{host} got {name} with fence {fence} after {last}, and no voter lost its disk");
        if excused { Ok(()) } else { Err(Violation::new(text)) }
    }

    fn check_fence(&mut self, sim: &Sim<Node>, host: HostId, fence: u64) -> Verdict {
        self.ledger.met("took_token");
        let last = self.fences[host.index()];
        if fence <= last {
            let excused = self.ledger.excuse(sim, &DISK_LOST, host, Duration::ZERO);
            excused
                .map_err(|why| Violation::new(format!("{host} took fence {fence} after {last}; {why}")))?;
        }
        self.fences[host.index()] = fence;
        Ok(())
    }
}

/// Every node is in the ring of one token. The list of a ring only grows: the dead may be in it.
fn one_token(sim: &Sim<Node>) -> Result<(), String> {
    let (mut first, living) = (None, sim.hosts().filter(|host| !sim.is_dead(*host)).count());
    for (host, token) in sim.machines().filter_map(|(host, node)| Some((host, token(node)?))) {
        let (id, list) = (token.token_id(), token.list());
        if list.len() < living {
            return Err(format!("{host} has {} of {living} nodes in its ring", list.len()));
        }
        let seen = (id, list.hash());
        let (of, expected) = *first.get_or_insert((host, seen));
        if seen != expected {
            return Err(format!("{host} is in the ring of another token than {of}: {seen:?}, {expected:?}"));
        }
    }
    Ok(())
}

/// The letter in these bytes: the key of its text. Each attempt to send one letter has bytes of its own.
fn letter_in(data: &[u8]) -> Option<w3w::Key> {
    match w3w::read_form(data) {
        w3w::Form::Letter(letter) => Some(w3w::Key::of(letter.payload)),
        _ => None,
    }
}

fn token(node: &Node) -> Option<&Token> {
    node.parts().iter().find_map(|(_, part)| match part {
        Part::Token(token) => Some(&**token),
        _ => None,
    })
}

/// How a node lists another, or itself.
fn state_of(node: &Node, other: HostId) -> Option<swim::State> {
    members(node)?.members().member(id_of(other)).map(swim::Member::state)
}

impl Observer<Node> for NodeChecker {
    fn on_event(&mut self, sim: &Sim<Node>, host: HostId, event: &Event) -> Verdict {
        match &event.event {
            PartEvent::Token(jitterbug::Event::TokenTaken { fence: Some(fence), .. }) => {
                self.check_fence(sim, host, *fence)
            }
            PartEvent::Turns(turns::Event::TurnGranted { name, fence, .. }) => {
                exclusive::check(sim, &mut self.ledger)?;
                self.check_turn(sim, host, name, *fence)
            }
            PartEvent::Route(pastry::Event::Delivered { id, payload, .. }) => {
                self.outside.borrow_mut().arrived(sim, host, *id, payload)
            }
            PartEvent::Mesh(w3w::Event::MessageReceived { data, .. }) => {
                self.received.extend(letter_in(data));
                Ok(())
            }
            PartEvent::Mesh(w3w::Event::MessageConfirmed { key, .. }) => {
                self.ledger.met("letter_confirmed");
                self.check_confirmed(sim, host, *key)
            }
            _ => Ok(()),
        }
    }

    fn on_reply(&mut self, _: &Sim<Node>, host: HostId, request: RequestId, reply: &Reply) -> Verdict {
        match reply {
            Reply::Route(pastry::Reply::Outcome(outcome)) => {
                match outcome {
                    Outcome::Delivered { .. } => self.ledger.met("message_delivered"),
                    Outcome::Unknown => self.ledger.met("message_unknown"),
                    _ => {}
                }
                self.outside.borrow_mut().reported(host, request, outcome)
            }
            _ => Ok(()),
        }
    }

    fn on_crash(&mut self, sim: &Sim<Node>, host: HostId, _: DiskFate) {
        let mut outside = self.outside.borrow_mut();
        let app = &mut outside.apps[host.index()];
        app.run(sim.elapsed());
        if !app.is_idle() {
            self.ledger.met("owner_died");
        }
        // The application is a part of the process: messages that it has not settled are gone with it.
        *app = App::new(PLACES, TAKES);
    }
}

impl Checker<Node> for NodeChecker {
    fn check(&mut self, sim: &Sim<Node>) -> Verdict {
        exclusive::check(sim, &mut self.ledger)?;
        let violation = self.outside.borrow().violation.clone();
        violation.map_or(Ok(()), |text| Err(Violation::new(text)))
    }

    fn on_calm(&mut self, sim: &Sim<Node>) {
        self.calm_at = Some(sim.elapsed());
    }

    fn converged(&mut self, sim: &Sim<Node>) -> Result<(), String> {
        let since = sim.elapsed() - self.calm_at.unwrap_or_default();
        if !self.forgotten {
            if let Some(text) = Self::remembers(sim) {
                if since > DEAD_FORGOTTEN.at_last {
                    self.ledger.took(&DEAD_FORGOTTEN, since).map_err(|late| format!("{text}; {late}"))?;
                }
                return Err(text);
            }
            self.forgotten = true;
            self.ledger.took(&DEAD_FORGOTTEN, since).map_err(|late| late.text)?;
        }
        Self::missing(sim)?;
        if !self.whole {
            self.whole = true;
            self.ledger.took(&WHOLE, since).map_err(|late| late.text)?;
        }
        one_token(sim)?;
        self.ledger.took(&ONE_TOKEN, since).map_err(|late| late.text)
    }

    fn ledger(&self) -> Option<&Ledger> {
        Some(&self.ledger)
    }
}
