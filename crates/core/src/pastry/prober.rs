//! The prober: decides whether nodes are alive (PD-3, PD-4).
//!
//! A probe is a datagram at 0, T, 2 T and 3 T (at least 250 ms), and a ping over a connection at T. The connection also
//! works where datagrams are blocked. A node that did not acknowledge a message gets that ping each time, and only a
//! pong over a connection clears it: a firewall that stops streams may let datagrams pass. `Tables::ack_timeout`
//! computes T as RFC 6298 computes the RTO, so verdicts scale with the round-trip time.
//!
//! | no answer | verdict |
//! |---|---|
//! | for T, and the node's system refused a connection | away |
//! | for 4 T, at least 400 ms | away; a node that is in no table is dropped |
//! | for `away_timeout` more | overdue: the machine decides whether the node is dead |
//!
//! The prober continues to probe a node that is away, every second for `away_timeout`. If a timer of our own was late
//! by more than T/2, this process was paused, and the probe begins again.
//!
//! Known nodes and nodes that others named have separate queues and limits. So a peer that names many nodes, or invents
//! them, delays no verdict.
//!
//! A node that takes long for every input is not to be overloaded by the answers to its own probes: it would take all its
//! peers for away. So nodes that others named are probed by a window with slow start, as TCP's, and the lateness of our own
//! timers is added to T.

use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;

use super::contact::Contact;
use crate::common::Timers;
use crate::id::Id;
use crate::time::Instant;

/// The least time without an answer after which a node counts as away.
const AWAY_AFTER_LEAST: Duration = Duration::from_millis(400);
/// The least time until the last datagram: a short interruption is no verdict.
const LAST_AFTER_LEAST: Duration = Duration::from_millis(250);
/// The interval between probes of an away node: a second for `away_timeout`, so that messages flow soon after a short
/// partition. Then it doubles each time, up to the maximum.
const AWAY_INTERVAL: Duration = Duration::from_secs(1);
const AWAY_INTERVAL_MAX: Duration = Duration::from_secs(10);
/// The longest round-trip time that an answer can give.
const SAMPLE_MAX: Duration = Duration::from_secs(1);
/// How often a probe restarts because this process was paused.
const RESTARTS_MAX: u8 = 3;
/// How many nodes that others named are probed at once at first, and after a probe that was not answered in time.
const WINDOW_MIN: usize = 4;
/// The most lateness of our own timers that is added to T.
const LATENESS_MAX: Duration = Duration::from_millis(500);

/// Why a node is probed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reason {
    /// Others named it.
    Unverified,
    /// It has, or had, an entry in a table.
    Known,
    /// The same, and messages for it are deferred until the verdict: it is probed first. It did not acknowledge over a
    /// connection, so only an answer over a connection clears it.
    Suspected,
}

/// The stage of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// This many datagrams were sent.
    Asking(u8),
    /// The node does not answer.
    Away {
        since: Instant,
        interval: Duration,
        is_reported: bool,
        /// When the next regular probe follows.
        regular: Instant,
        /// Whether one more probe may be sent before that, because a message of the node arrived.
        may_hasten: bool,
    },
}

/// A probe under way.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Probe {
    contact: Contact,
    /// Whether the node is a candidate for the leaf set: a join waits for these.
    leaf: bool,
    reason: Reason,
    stage: Stage,
    /// T, the acknowledgement timeout.
    timeout: Duration,
    started: Instant,
    /// When the last datagram was sent.
    sent: Instant,
    /// When it was sent over a connection, and whether that was established then.
    by_stream: Option<(Instant, bool)>,
    /// Whether the node's system has refused a connection since.
    refused: bool,
    restarts: u8,
}

/// The result of an answered probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    /// The contact that was probed.
    pub(super) contact: Contact,
    /// The round-trip time. If several probes were sent, it is counted from the first one. It may then be too long,
    /// which gives a slow node more time, but is at most [`SAMPLE_MAX`].
    pub(super) rtt: Duration,
}

/// The next action of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    /// Send it again.
    Send { nonce: u64, contact: Contact, by_stream: bool },
    /// The node did not answer: mark it as away, or drop the probe.
    Silent { nonce: u64, contact: Contact, reason: Reason },
    /// The node has been away for half of `away_timeout`: report it to others.
    StillAway { contact: Contact },
    /// The node has been away for `away_timeout`: mark it as dead, or prolong the probe.
    Overdue { nonce: u64, contact: Contact },
}

/// The pace of probes, so that their answers overload neither this node nor the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Pace {
    /// The most nodes named by others that are probed at once: one more for each that answers in time.
    window: usize,
    /// The greatest lateness of this node's own timers, halved by each timer since.
    lateness: Duration,
}

/// All probes of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Prober {
    active: BTreeMap<u64, Probe>,
    due: Timers<u64>,
    /// Nodes that others named, those for the leaf set first.
    unverified: VecDeque<(Contact, bool)>,
    /// Known nodes, the suspected first.
    known: VecDeque<(Contact, bool, Reason)>,
    /// How many known nodes are being probed, without those that are away; and how many unverified ones.
    known_active: usize,
    unverified_active: usize,
    /// Every node that waits or is being probed, and whether because others named it.
    pending: BTreeMap<Id, bool>,
    /// How many of those may get into the leaf set.
    leaf_pending: usize,
    pace: Pace,
    probes_max: usize,
    candidates_max: usize,
    away_timeout: Duration,
}

impl Prober {
    pub(super) fn new(probes_max: usize, candidates_max: usize, away_timeout: Duration) -> Self {
        Self {
            active: BTreeMap::new(),
            due: Timers::default(),
            unverified: VecDeque::new(),
            known: VecDeque::new(),
            known_active: 0,
            unverified_active: 0,
            pending: BTreeMap::new(),
            leaf_pending: 0,
            pace: Pace { window: WINDOW_MIN, lateness: Duration::ZERO },
            probes_max,
            candidates_max,
            away_timeout,
        }
    }

    /// Queues a probe of a node, unless it is being probed already. Returns false if too many wait. `leaf` is whether
    /// it is a candidate for the leaf set.
    pub(super) fn ask(&mut self, contact: Contact, leaf: bool, reason: Reason) -> bool {
        let is_unverified = reason == Reason::Unverified;
        match self.pending.get(&contact.id) {
            // Others may have named another address. That does not replace our own probe.
            Some(true) if !is_unverified => self.forget(contact.id),
            Some(false) if reason == Reason::Suspected => {
                self.hasten_waiting(contact.id);
                return true;
            }
            Some(_) => return true,
            None => {}
        }
        if is_unverified && self.unverified.len() >= self.candidates_max {
            return false;
        }
        self.pending.insert(contact.id, is_unverified);
        self.leaf_pending += usize::from(leaf);
        match reason {
            Reason::Unverified if leaf => self.unverified.push_front((contact, leaf)),
            Reason::Unverified => self.unverified.push_back((contact, leaf)),
            Reason::Known => self.known.push_back((contact, leaf, reason)),
            Reason::Suspected => self.known.push_front((contact, leaf, reason)),
        }
        let shed = if self.known.len() > self.candidates_max { self.known.pop_back() } else { None };
        if let Some((contact, leaf, _)) = shed {
            self.pending.remove(&contact.id);
            self.leaf_pending -= usize::from(leaf);
        }
        shed.is_none()
    }

    /// Whether there is a node to probe now.
    pub(super) fn has_next(&self) -> bool {
        self.has_next_known() || self.has_next_unverified()
    }

    /// Begins the next probe with this nonce. Returns whether it goes over a connection at once.
    pub(super) fn start_next(
        &mut self,
        now: Instant,
        nonce: u64,
        timeout: impl Fn(Id) -> Duration,
    ) -> Option<(Contact, bool)> {
        let (contact, leaf, reason) = if self.has_next_known() {
            self.known.pop_front()?
        } else if self.has_next_unverified() {
            self.unverified.pop_front().map(|(contact, leaf)| (contact, leaf, Reason::Unverified))?
        } else {
            return None;
        };
        if reason == Reason::Unverified && self.unverified_active == 0 {
            self.pace.window = WINDOW_MIN;
        }
        *self.active_count(reason) += 1;
        let timeout = timeout(contact.id) + self.pace.lateness;
        self.active.insert(
            nonce,
            Probe {
                contact,
                leaf,
                reason,
                stage: Stage::Asking(1),
                timeout,
                started: now,
                sent: now,
                by_stream: None,
                refused: false,
                restarts: 0,
            },
        );
        self.due.set(nonce, now + timeout);
        Some((contact, reason == Reason::Suspected))
    }

    /// The next action that is due.
    pub(super) fn pop_due(&mut self, now: Instant) -> Option<Due> {
        let (due, nonce) = self.due.next().filter(|(due, _)| *due <= now)?;
        self.due.cancel(nonce);
        let away_timeout = self.away_timeout;
        self.pace.lateness = now.since(due).min(LATENESS_MAX).max(self.pace.lateness / 2);
        let probe = self.active.get_mut(&nonce)?;
        let (contact, timeout) = (probe.contact, probe.timeout);
        let is_late = now.since(due) > timeout / 2 && probe.restarts < RESTARTS_MAX;
        let silent = Due::Silent { nonce, contact, reason: probe.reason };
        let is_suspected = probe.reason == Reason::Suspected;
        let is_refused = probe.refused && probe.reason != Reason::Unverified;
        let (next, by_stream) = match &mut probe.stage {
            Stage::Asking(sent) if is_late => {
                (*sent, probe.started, probe.refused) = (1, now, false);
                probe.restarts += 1;
                (now + timeout, is_suspected)
            }
            Stage::Asking(_) if is_refused && now.since(probe.started) >= timeout => return Some(silent),
            Stage::Asking(sent @ 1) => {
                *sent = 2;
                if probe.reason == Reason::Unverified {
                    self.pace.window = (self.pace.window / 2).max(WINDOW_MIN);
                }
                (probe.started + timeout * 2, true)
            }
            Stage::Asking(sent @ 2) => {
                *sent = 3;
                (probe.started + (timeout * 3).max(LAST_AFTER_LEAST), is_suspected)
            }
            Stage::Asking(sent @ 3) => {
                *sent = 4;
                (probe.started + (timeout * 4).max(AWAY_AFTER_LEAST), is_suspected)
            }
            Stage::Asking(_) => return Some(silent),
            Stage::Away { since, .. } if now.since(*since) >= away_timeout => {
                return Some(Due::Overdue { nonce, contact });
            }
            Stage::Away { since, is_reported, .. }
                if !*is_reported && now.since(*since) >= away_timeout / 2 =>
            {
                *is_reported = true;
                self.due.set(nonce, due);
                return Some(Due::StillAway { contact });
            }
            Stage::Away { since, interval, regular, may_hasten, .. } => {
                if *regular <= now {
                    (*regular, *may_hasten) = (now + *interval, true);
                }
                ((*regular).min(*since + away_timeout), true)
            }
        };
        probe.sent = now;
        self.due.set(nonce, next);
        Some(Due::Send { nonce, contact, by_stream })
    }

    /// Notes that a probe was sent over a connection.
    pub(super) fn sent_by_stream(&mut self, nonce: u64, now: Instant, connected: bool) {
        if let Some(probe) = self.active.get_mut(&nonce) {
            probe.by_stream = Some((now, connected));
        }
    }

    /// Marks the node of a silent or overdue probe as away, and continues to probe it.
    pub(super) fn set_away(&mut self, nonce: u64, now: Instant) {
        let Some(probe) = self.active.get_mut(&nonce) else { return };
        let was_asking = matches!(probe.stage, Stage::Asking(_));
        let interval = match probe.stage {
            Stage::Asking(_) => AWAY_INTERVAL,
            // `members` keeps it alive: that may last.
            Stage::Away { interval, .. } => (interval * 2).min(AWAY_INTERVAL_MAX),
        };
        // A probe that is prolonged was reported before.
        let regular = now + interval;
        probe.stage =
            Stage::Away { since: now, interval, is_reported: !was_asking, regular, may_hasten: true };
        let (leaf, reason) = (core::mem::take(&mut probe.leaf), probe.reason);
        self.due.set(nonce, regular);
        self.leaf_pending -= usize::from(leaf);
        if was_asking {
            *self.active_count(reason) -= 1;
        }
    }

    /// Probes an away node once its last probe has timed out, because a message of it arrived. The last probe may have
    /// been lost with a connection that could not be opened, so this is an extra one. Each regular probe allows one
    /// extra: a firewall may block connections for long, and let datagrams pass.
    pub(super) fn hasten_away(&mut self, id: Id, now: Instant) {
        let found = self.active.iter_mut().find(|(_, probe)| probe.contact.id == id);
        let Some((&nonce, probe)) = found else { return };
        let at = now.max(probe.sent + probe.timeout);
        if let Stage::Away { may_hasten: may_hasten @ true, .. } = &mut probe.stage
            && self.due.get(nonce).is_some_and(|due| at < due)
        {
            *may_hasten = false;
            self.due.set(nonce, at);
        }
    }

    /// Notes that the system at an address refused a connection: nothing listens there (PD-2).
    pub(super) fn on_refused(&mut self, addr: SocketAddr, now: Instant) {
        let refused = self.active.iter_mut().filter(|(_, probe)| probe.contact.addr == addr);
        for (&nonce, probe) in refused {
            probe.refused = true;
            if matches!(probe.stage, Stage::Asking(_)) && now.since(probe.started) >= probe.timeout {
                self.due.set(nonce, now);
            }
        }
    }

    /// Whether a datagram answers the probe of a node that did not acknowledge over a connection. That shows only that
    /// its system runs. A node that was away is then probed over a connection once more.
    pub(super) fn is_half_answered(&mut self, nonce: u64, now: Instant) -> bool {
        let Some(probe) = self.active.get(&nonce).filter(|probe| probe.reason == Reason::Suspected) else {
            return false;
        };
        let id = probe.contact.id;
        self.hasten_away(id, now);
        true
    }

    /// Ends the probe with this nonce: it was answered.
    pub(super) fn on_answer(&mut self, nonce: u64, now: Instant, over_stream: bool) -> Option<Answer> {
        let probe = self.take(nonce)?;
        if probe.reason == Reason::Unverified && probe.stage == Stage::Asking(1) {
            self.pace.window += 1;
        }
        let rtt = match probe.by_stream {
            // A connection that had to be opened first cost a round trip more.
            Some((at, connected)) if over_stream => {
                if connected {
                    now.since(at)
                } else {
                    now.since(at) / 2
                }
            }
            _ => now.since(probe.started).min(SAMPLE_MAX),
        };
        Some(Answer { contact: probe.contact, rtt })
    }

    /// Ends the probe with this nonce.
    pub(super) fn end(&mut self, nonce: u64) {
        self.take(nonce);
    }

    /// Ends the probes of a node whose liveness was decided by other means.
    pub(super) fn forget(&mut self, id: Id) {
        if self.pending.remove(&id).is_none() {
            return;
        }
        let leaf_pending = &mut self.leaf_pending;
        let mut keep = |contact: &Contact, leaf: bool| {
            let keep = contact.id != id;
            *leaf_pending -= usize::from(!keep && leaf);
            keep
        };
        self.unverified.retain(|(contact, leaf)| keep(contact, *leaf));
        self.known.retain(|(contact, leaf, _)| keep(contact, *leaf));
        let nonce = self.active.iter().find(|(_, probe)| probe.contact.id == id).map(|(nonce, _)| *nonce);
        if let Some(nonce) = nonce {
            self.take(nonce);
        }
    }

    /// Whether the node is being probed, or waits to be.
    pub(super) fn is_pending(&self, id: Id) -> bool {
        self.pending.contains_key(&id)
    }

    /// How many leaf candidates have not answered yet.
    pub(super) fn leaf_pending(&self) -> usize {
        self.leaf_pending
    }

    /// Whether no node is being probed; nodes that are away do not count.
    pub(super) fn is_idle(&self) -> bool {
        self.known_active + self.unverified_active == 0 && self.known.is_empty() && self.unverified.is_empty()
    }

    /// How many known nodes are being asked, or wait to be.
    pub(super) fn known_pending(&self) -> usize {
        self.known_active + self.known.len()
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        self.due.next().map(|(due, _)| due)
    }

    #[cfg(test)]
    pub(super) fn is_probing(&self, nonce: u64, contact: &Contact) -> bool {
        self.active.get(&nonce).is_some_and(|probe| probe.contact == *contact)
    }

    fn take(&mut self, nonce: u64) -> Option<Probe> {
        let probe = self.active.remove(&nonce)?;
        self.due.cancel(nonce);
        self.pending.remove(&probe.contact.id);
        self.leaf_pending -= usize::from(probe.leaf);
        if matches!(probe.stage, Stage::Asking(_)) {
            *self.active_count(probe.reason) -= 1;
        }
        Some(probe)
    }

    /// Moves a waiting node to the front, or treats its probe as that of a suspected node.
    fn hasten_waiting(&mut self, id: Id) {
        if let Some(probe) = self.active.values_mut().find(|probe| probe.contact.id == id) {
            probe.reason = Reason::Suspected;
            return;
        }
        let is_it =
            |(contact, _, reason): &(Contact, bool, Reason)| contact.id == id && *reason == Reason::Known;
        let at = self.known.iter().position(is_it);
        if let Some((contact, leaf, _)) = at.and_then(|at| self.known.remove(at)) {
            self.known.push_front((contact, leaf, Reason::Suspected));
        }
    }

    fn has_next_known(&self) -> bool {
        !self.known.is_empty() && self.known_active < self.probes_max
    }

    fn has_next_unverified(&self) -> bool {
        // A join waits for the leaves: they are few, and probed at once.
        let limit = |&(_, leaf): &(Contact, bool)| if leaf { self.probes_max } else { self.pace.window };
        self.unverified.front().is_some_and(|next| self.unverified_active < limit(next).min(self.probes_max))
    }

    fn active_count(&mut self, reason: Reason) -> &mut usize {
        match reason {
            Reason::Unverified => &mut self.unverified_active,
            Reason::Known | Reason::Suspected => &mut self.known_active,
        }
    }
}

#[cfg(test)]
#[path = "prober_tests.rs"]
mod tests;
