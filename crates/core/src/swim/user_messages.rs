//! User messages: duplicates are dropped, and deliveries to the application are limited.

use std::collections::{BTreeMap, VecDeque};

use super::api::Event;
use super::gossip::Update;
use super::lower::Cx;
use super::message::Message;
use super::sequence::Sequence;
use crate::id::Id;

/// How far back duplicates are recognised (SA-24).
pub const WINDOW: u32 = 4096;
/// A gap of this size means that the originator restarted and counts from another number.
const RESTART_GAP: u32 = 1 << 20;

/// The newest number of one originator and which of the `WINDOW` before it were seen.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Window {
    newest: Sequence,
    seen: VecDeque<u64>,
}

impl Window {
    fn new(first: Sequence) -> Self {
        Self { newest: first, seen: VecDeque::from([1]) }
    }

    /// Whether a number belongs to the run of the originator that this window covers.
    fn covers(&self, sequence: Sequence) -> bool {
        let ahead = sequence.0.wrapping_sub(self.newest.0);
        ahead.min(ahead.wrapping_neg()) < RESTART_GAP
    }

    /// Whether this number, of this run, is new. It is then marked as seen.
    fn take(&mut self, sequence: Sequence) -> bool {
        let ahead = sequence.0.wrapping_sub(self.newest.0);
        let behind = self.newest.0.wrapping_sub(sequence.0);
        if ahead != 0 && ahead < RESTART_GAP {
            self.advance(ahead);
            self.newest = sequence;
            self.seen[0] |= 1;
            return true;
        }
        if behind >= WINDOW {
            return false;
        }
        let (word, bit) = ((behind / 64) as usize, 1u64 << (behind % 64));
        while self.seen.len() <= word {
            self.seen.push_back(0);
        }
        let new = self.seen[word] & bit == 0;
        self.seen[word] |= bit;
        new
    }

    /// Moves the window forward by `ahead` numbers.
    fn advance(&mut self, ahead: u32) {
        let words = (ahead / 64).min(WINDOW / 64);
        for _ in 0..words {
            self.seen.push_front(0);
        }
        let bits = ahead % 64;
        if bits > 0 {
            let mut carried = 0;
            for word in &mut self.seen {
                let over = *word >> (64 - bits);
                *word = *word << bits | carried;
                carried = over;
            }
            self.seen.push_back(carried);
        }
        self.seen.truncate((WINDOW / 64) as usize);
    }
}

/// The windows of one originator, one per run. Messages of an earlier run may still be under way after a restart, and
/// must not be mistaken for another restart.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Restarts {
    /// The latest first.
    windows: VecDeque<Window>,
}

impl Restarts {
    /// How many runs are remembered. An originator that restarts more often while its messages are under way may cause
    /// a duplicate delivery.
    const MAX: usize = 8;

    fn new(first: Sequence) -> Self {
        Self { windows: VecDeque::from([Window::new(first)]) }
    }

    fn take(&mut self, sequence: Sequence) -> bool {
        if let Some(window) = self.windows.iter_mut().find(|window| window.covers(sequence)) {
            return window.take(sequence);
        }
        self.windows.truncate(Self::MAX - 1);
        self.windows.push_front(Window::new(sequence));
        true
    }
}

/// The windows of up to `origins_max` originators. A new one replaces the one that was silent longest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    origins: BTreeMap<Id, (u64, Restarts)>,
    by_age: BTreeMap<u64, Id>,
    clock: u64,
    origins_max: usize,
}

impl Seen {
    pub(super) const fn new(origins_max: usize) -> Self {
        Self { origins: BTreeMap::new(), by_age: BTreeMap::new(), clock: 0, origins_max }
    }

    /// Whether this message is new. It is then marked as seen.
    pub(super) fn take(&mut self, origin: Id, sequence: Sequence) -> bool {
        self.clock += 1;
        let clock = self.clock;
        if let Some((age, lives)) = self.origins.get_mut(&origin) {
            self.by_age.remove(age);
            self.by_age.insert(clock, origin);
            *age = clock;
            return lives.take(sequence);
        }
        if self.origins.len() >= self.origins_max
            && let Some((_, oldest)) = self.by_age.pop_first()
        {
            self.origins.remove(&oldest);
        }
        self.origins.insert(origin, (clock, Restarts::new(sequence)));
        self.by_age.insert(clock, origin);
        true
    }
}

/// User messages of all members: each is delivered to the application and forwarded, once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct UserMessages {
    seen: Seen,
    /// The number of our own last message.
    sequence: Sequence,
    /// How many were delivered to the application in this period.
    given: u32,
    given_max: u32,
}

impl UserMessages {
    pub(super) const fn new(origins_max: usize, given_max: u32, sequence: Sequence) -> Self {
        Self { seen: Seen::new(origins_max), sequence, given: 0, given_max }
    }

    pub(super) const fn new_period(&mut self) {
        self.given = 0;
    }

    /// The number of our own next message.
    pub(super) const fn next_sequence(&mut self) -> Sequence {
        self.sequence = self.sequence.next();
        self.sequence
    }

    /// Handles a user message with the sequence number of its originator.
    pub(super) fn on_message(
        &mut self,
        cx: &mut Cx<'_, '_>,
        message: Message<'_>,
        (from, sequence): (Id, Sequence),
        data: &[u8],
    ) {
        if from == cx.lower.env.id() || !self.seen.take(from, sequence) {
            cx.count().users_repeated += 1;
            return;
        }
        if self.given >= self.given_max {
            cx.count().users_dropped += 1; // SA-25
        } else {
            self.given += 1;
            cx.count().users_received += 1;
            cx.out.event(Event::UserReceived { from, sequence, data: data.to_vec() });
        }
        let update = Update::new(cx.lower.packets.codec(), &message, None);
        if !cx.lower.packets.gossip_mut().relay_user(update) {
            cx.count().users_not_relayed += 1;
        }
        cx.lower.dissemination.wake();
    }
}
