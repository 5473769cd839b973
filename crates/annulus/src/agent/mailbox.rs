//! The mailbox: the last messages that were delivered to this agent, for clients that ask later.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use annulus_core::Id;
use annulus_core::pastry::{AppName, Contact, MessageId};

/// The most bytes of payloads kept. Messages can be long: their number alone would not bound the memory.
const BYTES_MAX: usize = 64 * 1024 * 1024;

/// A message that was delivered here.
#[derive(Clone, Debug)]
pub(crate) struct Letter {
    /// When, in microseconds since the epoch.
    pub(crate) at_micros: u64,
    /// Its number.
    pub(crate) id: MessageId,
    /// For which application.
    pub(crate) app: AppName,
    /// Its key.
    pub(crate) key: Id,
    /// Who sent it.
    pub(crate) origin: Contact,
    /// After how many steps.
    pub(crate) hops: u8,
    /// Whether the sender waits for an answer.
    pub(crate) ask: bool,
    /// What.
    pub(crate) payload: Vec<u8>,
}

/// The last messages, the oldest first.
#[derive(Debug)]
pub(crate) struct Mailbox {
    kept_max: usize,
    letters: Mutex<Letters>,
}

#[derive(Debug, Default)]
struct Letters {
    bytes: usize,
    kept: VecDeque<Letter>,
}

impl Mailbox {
    /// An empty one that keeps so many messages.
    pub(crate) fn new(kept_max: usize) -> Self {
        Self { kept_max, letters: Mutex::default() }
    }

    /// Keeps a message; the oldest make room for it.
    pub(crate) fn push(&self, letter: Letter) {
        let mut letters = self.letters.lock().unwrap_or_else(PoisonError::into_inner);
        letters.bytes += letter.payload.len();
        letters.kept.push_back(letter);
        while letters.kept.len() > self.kept_max || letters.bytes > BYTES_MAX {
            let Some(gone) = letters.kept.pop_front() else { break };
            letters.bytes -= gone.payload.len();
        }
    }

    /// What `shown` makes of each message, the oldest first.
    pub(crate) fn map<T>(&self, shown: impl FnMut(&Letter) -> T) -> Vec<T> {
        self.letters.lock().unwrap_or_else(PoisonError::into_inner).kept.iter().map(shown).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use annulus_core::pastry::Incarnation;

    fn letter(id: u128, bytes: usize) -> Letter {
        let addr = ([127, 0, 0, 1], 1).into();
        let origin = Contact { id: Id::MIN, addr, incarnation: Incarnation(1) };
        let (id, app, key) = (MessageId(id), AppName::default(), Id::MAX);
        Letter { at_micros: 0, id, app, key, origin, hops: 0, ask: false, payload: vec![0; bytes] }
    }

    fn ids(mailbox: &Mailbox) -> Vec<u128> {
        mailbox.map(|letter| letter.id.0)
    }

    #[test]
    fn the_oldest_make_room() {
        let mailbox = Mailbox::new(2);
        (1..=3).for_each(|id| mailbox.push(letter(id, 1)));
        assert_eq!(ids(&mailbox), [2, 3]);
    }

    #[test]
    fn long_messages_are_bounded_by_their_bytes() {
        let mailbox = Mailbox::new(100);
        (1..=3).for_each(|id| mailbox.push(letter(id, BYTES_MAX / 2)));
        assert_eq!(ids(&mailbox), [2, 3]);
        mailbox.push(letter(4, 1));
        assert_eq!(ids(&mailbox), [3, 4]);
    }
}
