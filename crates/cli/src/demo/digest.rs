//! The events of all nodes as few lines for people: one line for an event that many nodes see.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Instant;

use annulus::core::node::PartEvent;
use annulus::core::w3w::SentState;
use annulus::core::{Id, jitterbug, swim, w3w};

use super::events::What;

/// The most lines that wait to be printed; older ones are dropped.
const LINES_MAX: usize = 200;

/// The messages that are shown.
const MESSAGES_MAX: usize = 4;

/// The state behind the lines, and the pending lines.
pub(super) struct Digest {
    /// Names by ring id.
    names: BTreeMap<String, String>,
    /// Suspected or dead nodes, with the nodes that report it.
    suspected: BTreeMap<Id, BTreeSet<String>>,
    dead: BTreeMap<Id, BTreeSet<String>>,
    /// When which node was killed.
    killed: BTreeMap<String, Instant>,
    lines: Vec<String>,
    /// The last messages with their paths, newest first.
    messages: VecDeque<String>,
}

impl Digest {
    pub(super) fn new(names: BTreeMap<String, String>) -> Self {
        let (suspected, dead, killed) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Self { names, suspected, dead, killed, lines: Vec::new(), messages: VecDeque::new() }
    }

    /// Adds a line.
    pub(super) fn note(&mut self, line: String) {
        self.push(line);
    }

    pub(super) fn take_lines(&mut self) -> Vec<String> {
        std::mem::take(&mut self.lines)
    }

    /// The last messages with their paths, newest first.
    pub(super) fn messages(&self) -> Vec<String> {
        self.messages.iter().cloned().collect()
    }

    /// The demo did something.
    pub(super) fn on_demo(&mut self, what: &What) {
        let line = match what {
            What::Ready { took_ms } => {
                format!("all nodes know each other after {}.{:01} s", took_ms / 1000, took_ms % 1000 / 100)
            }
            What::Killed { id } => {
                self.killed.insert(id.clone(), Instant::now());
                format!("{} was killed", self.name(id))
            }
            What::Revived { id } => format!("{} was started again", self.name(id)),
            What::Suspended { id } => format!("{} is suspended", self.name(id)),
            What::Resumed { id } => format!("{} goes on", self.name(id)),
            What::Cut { side } => {
                let names: Vec<String> = side.iter().map(|id| self.name(id)).collect();
                format!("the network is cut: {} on one side", names.join(", "))
            }
            What::Healed => "the network is whole".into(),
            What::MessageFailed { from, text, why } => {
                format!("the message of {} to {text:?} was not delivered: {why}", self.name(from))
            }
            What::MessageRouted { text, path, .. } => {
                let names: Vec<String> = path.iter().map(|id| self.name(id)).collect();
                self.messages.push_front(format!("{text}: {}", names.join(" → ")));
                self.messages.truncate(MESSAGES_MAX);
                return;
            }
            What::TurnBegan { .. } | What::TurnEnded { .. } | What::MailSent { .. } => return,
        };
        self.push(line);
    }

    /// An event of a node.
    pub(super) fn on_event(&mut self, by: &str, event: &PartEvent) {
        match event {
            PartEvent::Members(event) => self.on_members(by, event),
            PartEvent::Token(jitterbug::Event::TokenRestored { token_id, .. }) => {
                self.push(format!("{by} restored the token as {token_id}"));
            }
            PartEvent::Token(jitterbug::Event::TokenMerged { branches_merged: true, .. }) => {
                self.push(format!("{by} merged two tokens"));
            }
            PartEvent::Mesh(w3w::Event::MessageStateChanged { number, state, .. })
                if *state == SentState::Delivered =>
            {
                self.push(format!("mail {number} of {by} has arrived"));
            }
            _ => {}
        }
    }

    fn on_members(&mut self, by: &str, event: &swim::Event) {
        match event {
            swim::Event::MemberSuspected { id, .. } => {
                let is_news = is_first(self.suspected.entry(*id).or_default(), by);
                if is_news {
                    self.push(format!("{} is suspected, first by {by}", self.name(&id.to_string())));
                }
            }
            swim::Event::MemberDied { id, .. } => {
                let is_news = is_first(self.dead.entry(*id).or_default(), by);
                if is_news {
                    let name = self.name(&id.to_string());
                    let after = self.killed.get(&id.to_string()).map(|at| at.elapsed().as_secs_f64());
                    let after =
                        after.map_or_else(String::new, |after| format!(", {after:.1} s after it was killed"));
                    self.push(format!("{name} is dead, first for {by}{after}"));
                }
            }
            swim::Event::MemberJoined { id, .. } | swim::Event::MemberRecovered { id, .. } => {
                let was_suspected = self.suspected.get_mut(id).is_some_and(|by_whom| by_whom.remove(by));
                let was_dead = self.dead.get_mut(id).is_some_and(|by_whom| by_whom.remove(by));
                let is_last =
                    |seen: &BTreeMap<Id, BTreeSet<String>>| seen.get(id).is_none_or(BTreeSet::is_empty);
                if (was_suspected || was_dead) && is_last(&self.suspected) && is_last(&self.dead) {
                    self.killed.remove(&id.to_string());
                    self.push(format!("{} is alive again for all", self.name(&id.to_string())));
                }
            }
            _ => {}
        }
    }

    fn name(&self, id: &str) -> String {
        self.names.get(id).cloned().unwrap_or_else(|| id.chars().take(8).collect())
    }

    fn push(&mut self, line: String) {
        if self.lines.len() == LINES_MAX {
            self.lines.remove(0);
        }
        self.lines.push(line);
    }
}

/// Adds an observer; whether it is the first.
fn is_first(observers: &mut BTreeSet<String>, by: &str) -> bool {
    observers.insert(by.to_owned()) && observers.len() == 1
}
