//! Proof of addresses: claims of a node are accepted once it answered a nonce that was sent to its address (SA-58a).
//!
//! The nonce is a keyed hash of the node's id, its address and the time, so nothing is stored for a node that does not
//! answer. Each table here has a limit. The tables hold questions that wait for their turn, and addresses that got one a
//! moment ago. They hold moves that wait until the old address is silent, and goodbyes that wait for their node to
//! disagree. They hold members that ended a moment ago and get further questions.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;

use super::addr::Addr;
use super::contents::OwnContents;
use super::members::Slot;
use super::sequence::Sequence;
use super::status::Incarnation;
use crate::common::ExpiringSet;
use crate::id::{Id, hash};
use crate::time::Instant;

/// How long a nonce is valid: for the rest of this epoch and for the next one.
const EPOCH: Duration = Duration::from_secs(64);
/// Questions are sent in bursts of this size.
const BURST: u32 = 32;
/// The time of a burst: 320 questions per second.
const BURST_INTERVAL: Duration = Duration::from_millis(100);
/// The most questions in the queue. Further ones are dropped, and asked when their claim arrives again.
const QUEUE_MAX: usize = 1024;
/// The most recently questioned addresses that are remembered.
const ASKED_MAX: usize = 2048;
/// The most members that move at a time; the claim of a further one must arrive again.
const MOVES_MAX: usize = 64;
/// The number of questions to a member that ended (SA-31d).
const RECHECKS: u32 = 6;
/// The most members that get further questions at once; another one gets one when it sends a packet.
const RECHECKED_MAX: usize = 32;
/// The most nodes whose Join was heard of before they were proved.
const JOINERS_MAX: usize = 256;

/// A question to a node: a nonce that requests its Alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Question {
    pub(super) id: Id,
    pub(super) addr: Addr,
    /// The expected length of the answer.
    pub(super) answer_bytes: u16,
}

/// A member that answered at an address that was not known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Move {
    pub(super) contents: OwnContents,
    pub(super) incarnation: Incarnation,
    /// The number of the ping to the old address.
    pub(super) nonce: Sequence,
    /// When the old address has been silent long enough.
    pub(super) until: Instant,
}

/// All proofs under way.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Verifier {
    secret: [u8; 32],
    queue: VecDeque<Question>,
    asked: ExpiringSet<(Id, Addr)>,
    burst_left: u32,
    burst_ends: Instant,
    moves: BTreeMap<Id, Move>,
    leaves: BTreeSet<Slot>,
    /// Members that ended a moment ago: when each gets its next question, and how many are left.
    rechecks: BTreeMap<Slot, (Instant, u32)>,
    joiners: ExpiringSet<Id>,
}

impl Verifier {
    pub(super) fn new(secret: [u8; 32]) -> Self {
        Self {
            secret,
            queue: VecDeque::new(),
            asked: ExpiringSet::new(ASKED_MAX),
            burst_left: BURST,
            burst_ends: Instant::ZERO,
            moves: BTreeMap::new(),
            leaves: BTreeSet::new(),
            rechecks: BTreeMap::new(),
            joiners: ExpiringSet::new(JOINERS_MAX),
        }
    }

    /// Queues a question, unless the same was queued within `again_after`. Returns whether it was queued.
    pub(super) fn ask(&mut self, question: Question, now: Instant, again_after: Duration) -> bool {
        while self.asked.pop_expired(now).is_some() {}
        let key = (question.id, question.addr);
        // A repeated claim does not extend the time: whoever repeats it could keep the node from being asked again.
        if self.queue.len() >= QUEUE_MAX || self.asked.contains(key, now) {
            return false;
        }
        self.asked.insert(key, now, now + again_after);
        self.queue.push_back(question);
        true
    }

    /// Takes a question that is due.
    pub(super) fn pop_due(&mut self, now: Instant) -> Option<Question> {
        if now >= self.burst_ends && !self.queue.is_empty() {
            (self.burst_left, self.burst_ends) = (BURST, now + BURST_INTERVAL);
        }
        if self.burst_left == 0 {
            return None;
        }
        let question = self.queue.pop_front()?;
        self.burst_left -= 1;
        Some(question)
    }

    /// The nonce for a node at an address.
    pub(super) fn nonce(&self, id: Id, addr: SocketAddr, now: Instant) -> Sequence {
        self.nonce_of(id, addr, epoch(now))
    }

    /// Whether this nonce was sent recently to that address, for that node.
    pub(super) fn is_nonce(&self, said: Sequence, id: Id, addr: SocketAddr, now: Instant) -> bool {
        let epoch = epoch(now);
        said == self.nonce_of(id, addr, epoch)
            || epoch.checked_sub(1).is_some_and(|before| said == self.nonce_of(id, addr, before))
    }

    /// Notes a move. Returns false if the same node moves already, or if too many do.
    pub(super) fn begin_move(&mut self, id: Id, to: Move) -> bool {
        let has_room = self.moves.len() < MOVES_MAX && !self.moves.contains_key(&id);
        if has_room {
            self.moves.insert(id, to);
        }
        has_room
    }

    /// Takes a move that was none: the old address answered.
    pub(super) fn stays(&mut self, id: Id, nonce: Sequence) -> Option<Move> {
        self.moves.get(&id).filter(|to| to.nonce == nonce)?;
        self.moves.remove(&id)
    }

    /// Takes a move whose old address was silent.
    pub(super) fn pop_moved(&mut self, now: Instant) -> Option<(Id, Move)> {
        let id = self.moves.iter().find(|(_, to)| to.until <= now).map(|(id, _)| *id)?;
        self.moves.remove_entry(&id)
    }

    /// Notes a leave that its node has not confirmed. Returns whether it is new.
    pub(super) fn begin_leave(&mut self, slot: Slot) -> bool {
        self.leaves.insert(slot)
    }

    /// Whether an unconfirmed leave of this node is pending.
    pub(super) fn is_leaving(&self, slot: Slot) -> bool {
        self.leaves.contains(&slot)
    }

    /// A member ended because it was silent: it gets further questions from now on (SA-31d).
    pub(super) fn begin_rechecks(&mut self, slot: Slot, now: Instant) {
        if self.rechecks.len() < RECHECKED_MAX {
            self.rechecks.insert(slot, (now, RECHECKS));
        }
    }

    /// A member that ended is back, or forgotten.
    pub(super) fn end_rechecks(&mut self, slot: Slot) {
        self.rechecks.remove(&slot);
    }

    /// Takes a member that ended and whose next question is due; the one after it is due after `every`.
    pub(super) fn pop_recheck(&mut self, now: Instant, every: Duration) -> Option<Slot> {
        let (slot, (at, left)) = self.rechecks.iter_mut().find(|(_, (at, _))| *at <= now)?;
        let slot = *slot;
        (*at, *left) = (now + every, *left - 1);
        if *left == 0 {
            self.rechecks.remove(&slot);
        }
        Some(slot)
    }

    /// A Join of a node that is not proved was passed on to us.
    pub(super) fn heard_join(&mut self, id: Id, now: Instant) {
        while self.joiners.pop_expired(now).is_some() {}
        self.joiners.insert(id, now, now + EPOCH);
    }

    /// Whether a forwarded Join of this node was noted.
    pub(super) fn is_joiner(&self, id: Id, now: Instant) -> bool {
        self.joiners.contains(id, now)
    }

    /// Ends a pending leave: the node refuted it, or ended otherwise. Returns whether one was pending.
    pub(super) fn end_leave(&mut self, slot: Slot) -> bool {
        self.leaves.remove(&slot)
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        let queue = (!self.queue.is_empty()).then_some(self.burst_ends);
        let moves = self.moves.values().map(|to| to.until).min();
        let rechecks = self.rechecks.values().map(|(at, _)| *at).min();
        queue.into_iter().chain(moves).chain(rechecks).min()
    }

    fn nonce_of(&self, id: Id, addr: SocketAddr, epoch: u64) -> Sequence {
        let (ip, port) = Addr::from(addr).bits();
        let mut bytes = Vec::with_capacity(96);
        bytes.extend_from_slice(&self.secret);
        bytes.extend_from_slice(&id.to_bytes());
        bytes.extend_from_slice(&ip.to_be_bytes());
        bytes.extend_from_slice(&port.to_be_bytes());
        bytes.extend_from_slice(&epoch.to_be_bytes());
        let digest = hash(&bytes);
        Sequence(u32::from_be_bytes([digest[0], digest[1], digest[2], digest[3]]))
    }
}

fn epoch(now: Instant) -> u64 {
    now.as_micros() / EPOCH.as_micros() as u64
}
