//! User messages: which were seen already, and how many the application is given.

use std::collections::{BTreeMap, VecDeque};

use super::sequence::Sequence;
use crate::id::Id;

/// How far back a message is still told from one seen before (SA-24).
pub const WINDOW: u32 = 4096;
/// Numbers this far apart belong to different lives of the originator: it restarted, and counts from elsewhere.
const ANOTHER_LIFE: u32 = 1 << 20;

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

    /// Whether a number belongs to the life that this is of.
    fn covers(&self, sequence: Sequence) -> bool {
        let ahead = sequence.0.wrapping_sub(self.newest.0);
        ahead.min(ahead.wrapping_neg()) < ANOTHER_LIFE
    }

    /// Whether this number, of this life, is new; it is seen from then on.
    fn take(&mut self, sequence: Sequence) -> bool {
        let ahead = sequence.0.wrapping_sub(self.newest.0);
        let behind = self.newest.0.wrapping_sub(sequence.0);
        if ahead != 0 && ahead < ANOTHER_LIFE {
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

    /// Moves what was seen back by `ahead` numbers.
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

/// What was seen of one originator, by its lives: what it said in an earlier one may still be under way when it has
/// restarted, and must not be taken for yet another life.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Lives {
    /// The last one first.
    windows: VecDeque<Window>,
}

impl Lives {
    /// Who restarts more often than this while its messages are under way may be told twice of one.
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

/// What was seen, of up to `origins_max` originators; the one heard from longest ago makes room for a new one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    origins: BTreeMap<Id, (u64, Lives)>,
    by_age: BTreeMap<u64, Id>,
    clock: u64,
    origins_max: usize,
}

impl Seen {
    pub(super) const fn new(origins_max: usize) -> Self {
        Self { origins: BTreeMap::new(), by_age: BTreeMap::new(), clock: 0, origins_max }
    }

    /// Whether this message is new; it is seen from then on.
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
        self.origins.insert(origin, (clock, Lives::new(sequence)));
        self.by_age.insert(clock, origin);
        true
    }
}
