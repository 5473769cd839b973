//! Watches all nodes of the ring from outside.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{MutexGuard, PoisonError};

use annulus_core::RequestId;
use annulus_core::jitterbug::{
    Document, Event, HostId as TokenHost, KEPT_KEY, Reply, SPACE, StateName, TokenId,
};
use serde_json::{Map, Value, json};

use super::Node;
use super::commands::{Commands, Shared};
use super::measure::Measure;
use super::{SITUATIONS, WEAK_SPLIT};
use crate::disk::DiskFate;
use crate::host::HostId;
use crate::ledger::Ledger;
use crate::observer::{Observer, Verdict, Violation};
use crate::scenario::Checker;
use crate::scenarios::node::DISK_LOST;
use crate::sim::Sim;

/// Watches all nodes.
pub struct TokenChecker {
    nodes: Vec<Watched>,
    measure: Measure,
    ledger: Ledger,
    commands: Shared,
    /// The highest fence taken of each token.
    fences: BTreeMap<TokenId, u64>,
    /// The highest of all, a while ago.
    earlier: Earlier,
    /// Whether the wall clocks of all hosts agree: then a restored token begins above all fences so far (TU-43).
    clocks_agree: bool,
    /// The time since which there is one token, by the events.
    quiet_since: Duration,
    last_taken: Option<TokenId>,
}

/// The highest fence so far, without those of the last moment: clocks and disks are not faster than that.
#[derive(Default)]
struct Earlier {
    recent: VecDeque<(Duration, u64)>,
    highest: u64,
}

/// How far the clocks of nodes may be apart (TUF-14).
const CLOCKS_WITHIN: Duration = Duration::from_secs(1);

impl Earlier {
    fn push(&mut self, now: Duration, fence: u64) {
        self.recent.push_back((now, fence));
    }

    fn before(&mut self, now: Duration) -> u64 {
        while let Some((_, fence)) = self.recent.front().copied().filter(|(at, _)| *at + CLOCKS_WITHIN <= now)
        {
            self.highest = self.highest.max(fence);
            self.recent.pop_front();
        }
        self.highest
    }
}

/// The observations of one node.
#[derive(Default)]
struct Watched {
    /// The list at the end of its last tenure.
    list: BTreeSet<TokenHost>,
    /// The counts it had when it last passed the token on, if it has not crashed since.
    passed: BTreeMap<String, u64>,
    /// The highest fence it has ever taken.
    fence: u64,
    /// It was started without stored data, and has taken no fence since.
    is_blank: bool,
    /// A restore of its own has just made a token.
    made: bool,
    /// The token that it restored, until its first fence comes, and the highest fence that tokens made before then had.
    restored: Option<(TokenId, u64)>,
    /// It has just passed the token on.
    gave: bool,
    /// The process was restarted, so its list begins anew.
    state: Option<StateName>,
}

impl TokenChecker {
    /// A checker of so many nodes and of the commands that run under their holds.
    pub(super) fn new(nodes: usize, commands: Shared, clocks_agree: bool) -> Self {
        Self {
            nodes: (0..nodes).map(|_| Watched::default()).collect(),
            measure: Measure::default(),
            ledger: Ledger::new(&SITUATIONS),
            commands,
            fences: BTreeMap::new(),
            earlier: Earlier::default(),
            clocks_agree,
            quiet_since: Duration::ZERO,
            last_taken: None,
        }
    }

    /// The number of nodes that hold a token.
    #[must_use]
    pub fn holders(&self) -> usize {
        self.measure.holders()
    }

    fn commands(&self) -> MutexGuard<'_, Commands> {
        self.commands.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn entered(&mut self, now: Duration, host: HostId, state: StateName) {
        let node = &mut self.nodes[host.index()];
        let before = node.state.replace(state);
        let (made, gave) = (core::mem::take(&mut node.made), core::mem::take(&mut node.gave));
        if state == StateName::Orphan {
            self.measure.launches(host);
        }
        if state == StateName::Leader {
            if self.measure.is_open() {
                self.measure.holds(now, host, made);
            }
        } else if before == Some(StateName::Leader) && self.measure.is_open() {
            self.measure.gives_up(now, host, gave);
        }
        if made {
            self.quiet_since = now;
        }
    }

    fn taken(&mut self, sim: &Sim<Node>, host: HostId, token: TokenId, fence: u64) -> Verdict {
        let now = sim.elapsed();
        if self.last_taken.replace(token) != Some(token) {
            self.quiet_since = now;
        }
        let node = &mut self.nodes[host.index()];
        let before = node.restored.take().filter(|(made, _)| *made == token).map(|(_, fence)| fence);
        let is_blank = core::mem::take(&mut node.is_blank);
        let (mut own, of_token) = (node.fence, self.fences.get(&token).copied().unwrap_or(0));
        if is_blank && fence <= own {
            self.ledger.excuse(sim, &DISK_LOST, host, Duration::ZERO)?;
            own = 0;
        }
        let all = before.filter(|_| self.clocks_agree).unwrap_or(0);
        if fence <= own.max(of_token).max(all) {
            return Err(Violation::new(format!(
                "{host} takes fence {fence} of token {token}, after {own} of its own, {of_token} of that token, \
                 {all} of all"
            )));
        }
        self.nodes[host.index()].fence = fence;
        self.fences.insert(token, fence);
        self.earlier.push(now, fence);
        Ok(())
    }

    /// A hold was granted. Where a weak ring may split, the fault that split it excuses a command beside another.
    fn held(&mut self, sim: &Sim<Node>, host: HostId, hold: RequestId, fence: u64) -> Verdict {
        let (others, is_wanted) = {
            let mut commands = self.commands();
            (commands.start(sim, host, hold, fence)?, commands.is_wanted(host))
        };
        if is_wanted {
            self.ledger.met("two_askers");
        }
        if others.is_empty() {
            return Ok(());
        }
        let mut hosts = sim.hosts();
        let was_hit = |one: &HostId| {
            let mut causes = sim.causes(*one, Duration::ZERO, sim.elapsed());
            causes.any(|trouble| WEAK_SPLIT.needs.contains(&trouble.cause))
        };
        self.ledger.excuse(sim, &WEAK_SPLIT, hosts.find(was_hit).unwrap_or(host), Duration::ZERO)
    }

    fn passed(&mut self, sim: &Sim<Node>, host: HostId) -> Verdict {
        self.measure.passes += u64::from(self.measure.is_open());
        let node = &mut self.nodes[host.index()];
        node.gave = true;
        let Some(machine) = sim.machine(host) else { return Ok(()) };
        let list: BTreeSet<TokenHost> = machine.list().nodes().iter().map(|entry| entry.host_id).collect();
        if let Some(missing) = node.list.difference(&list).next() {
            return Err(Violation::new(format!("{host} had {missing} in its list and has it no longer")));
        }
        node.list = list;
        node.passed = counts(machine);
        Ok(())
    }

    /// All nodes have every count that a running node passed on.
    fn missing_count(&self, sim: &Sim<Node>) -> Option<String> {
        let (_, machine) = sim.machines().max_by_key(|(_, machine)| machine.fence())?;
        let data = counts(machine);
        for (index, node) in self.nodes.iter().enumerate() {
            for (host, count) in &node.passed {
                let have = data.get(host).copied().unwrap_or(0);
                if have < *count {
                    return Some(format!("node {index} passed on {count} of host {host}, now it is {have}"));
                }
            }
        }
        None
    }
}

fn counts(machine: &Node) -> BTreeMap<String, u64> {
    Document::from_data(machine.data()).map(|document| document.counts).unwrap_or_default()
}

impl Observer<Node> for TokenChecker {
    fn on_event(&mut self, sim: &Sim<Node>, host: HostId, event: &Event) -> Verdict {
        let now = sim.elapsed();
        match event {
            Event::StateEntered { state, .. } => self.entered(now, host, *state),
            Event::TokenRestored { token_id, .. } => {
                self.nodes[host.index()].made = true;
                // A slow disk may delay its first fence, which is drawn now.
                self.nodes[host.index()].restored = Some((*token_id, self.earlier.before(now)));
                if !self.fences.is_empty() {
                    self.ledger.met("token_regenerated");
                }
            }
            Event::TokenTaken { token_id, fence: Some(fence) } => {
                return self.taken(sim, host, *token_id, *fence);
            }
            Event::TokenPassed { .. } => return self.passed(sim, host),
            Event::TokenMerged { branches_merged: true, .. } => {
                self.measure.merges += 1;
                self.ledger.met("tokens_merged");
            }
            Event::TokenReleased { hold, .. } => self.commands().end(host, *hold, false),
            Event::TokenLost { hold, .. } => {
                self.commands().end(host, *hold, true);
                self.ledger.met("hold_lost");
            }
            Event::TokenDropped { .. } => self.measure.drops += u64::from(self.measure.is_open()),
            _ => {}
        }
        Ok(())
    }

    fn on_reply(&mut self, sim: &Sim<Node>, host: HostId, request: RequestId, reply: &Reply) -> Verdict {
        match reply {
            Reply::Held { fence, hold } => return self.held(sim, host, *hold, *fence),
            Reply::NotHeld | Reply::Refused(_) | Reply::Stopping => self.commands().end(host, request, false),
            _ => {}
        }
        Ok(())
    }

    fn on_start(&mut self, sim: &Sim<Node>, host: HostId) {
        // A disk may also be lost while its host is down. A node without stored data knows no fences.
        if sim.disk(host).and_then(|disk| disk.value(SPACE, KEPT_KEY)).is_none() {
            self.nodes[host.index()].is_blank = true;
        }
    }

    fn on_crash(&mut self, sim: &Sim<Node>, host: HostId, _: DiskFate) {
        if self.measure.is_open() {
            self.measure.gives_up(sim.elapsed(), host, false);
        }
        self.commands().crashed(host);
        let Watched { fence, is_blank, .. } = self.nodes[host.index()];
        self.nodes[host.index()] = Watched { fence, is_blank, ..Watched::default() };
        self.quiet_since = sim.elapsed();
    }
}

impl Checker<Node> for TokenChecker {
    fn on_calm(&mut self, sim: &Sim<Node>) {
        self.measure.close(sim.elapsed());
        self.quiet_since = sim.elapsed();
    }

    fn converged(&mut self, sim: &Sim<Node>) -> Result<(), String> {
        let Some((_, first)) = sim.machines().next() else { return Err("nobody is up".into()) };
        let leaders = sim.machines().filter(|(_, node)| node.state_name() == StateName::Leader).count();
        if leaders > 1 {
            self.quiet_since = sim.elapsed();
            return Err(format!("{leaders} nodes lead"));
        }
        let living: Vec<HostId> = sim.hosts().filter(|host| !sim.is_dead(*host)).collect();
        for &host in &living {
            let Some(machine) = sim.machine(host) else { return Err(format!("{host} is down")) };
            if machine.token_id() != first.token_id() {
                return Err(format!("{host} has token {}, not {}", machine.token_id(), first.token_id()));
            }
            if machine.list().nodes() != first.list().nodes() {
                return Err(format!("{host} has a list of {}", machine.list().len()));
            }
        }
        // The list only grows: it may have dead nodes.
        let listed: BTreeSet<u64> =
            first.list().nodes().iter().map(|entry| entry.host_id.number().into()).collect();
        if let Some(host) = living.iter().find(|host| !listed.contains(&(host.index() as u64 + 1))) {
            return Err(format!("the list of {} is without {host}", listed.len()));
        }
        let clock = sim.clock(HostId::new(0)).mono;
        let slowest = sim.machines().filter_map(|(_, node)| node.status(clock).loop_micros).max();
        let quiet = sim.elapsed().saturating_sub(self.quiet_since);
        if quiet < Duration::from_secs(1) + Duration::from_micros(2 * slowest.unwrap_or(0)) {
            return Err(format!("one token, but only for {quiet:?}"));
        }
        self.missing_count(sim).map_or(Ok(()), Err)
    }

    fn ledger(&self) -> Option<&Ledger> {
        Some(&self.ledger)
    }

    fn measured(&mut self, sim: &Sim<Node>) -> Map<String, Value> {
        let mut json = self.measure.to_json(sim.elapsed());
        let hashes: BTreeSet<i32> = sim.machines().map(|(_, node)| node.list().hash()).collect();
        let leaders = sim.machines().filter(|(_, node)| node.state_name() == StateName::Leader).count();
        let ids: BTreeSet<TokenId> = sim.machines().map(|(_, node)| node.token_id()).collect();
        json.insert("tokens_final".into(), leaders.max(usize::from(ids.len() == 1)).into());
        json.insert("components_final".into(), components(sim).into());
        let commands = self.commands();
        if commands.granted > 0 {
            json.insert("holds".into(), json!({"granted": commands.granted, "lost": commands.lost}));
        }
        drop(commands);
        json.insert("lists_equal".into(), (hashes.len() == 1).into());
        json
    }
}

/// How many groups of hosts there are that can reach each other.
fn components(sim: &Sim<Node>) -> usize {
    let mut rest: BTreeSet<HostId> = sim.machines().map(|(host, _)| host).collect();
    let mut count = 0;
    while let Some(first) = rest.pop_first() {
        count += 1;
        let mut reached = vec![first];
        while let Some(from) = reached.pop() {
            let linked = |to: &HostId| sim.is_linked(from, *to) && sim.is_linked(*to, from);
            let (near, far) = rest.into_iter().partition(linked);
            rest = far;
            let near: BTreeSet<HostId> = near;
            reached.extend(near);
        }
    }
    count
}
