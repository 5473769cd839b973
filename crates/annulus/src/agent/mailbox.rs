//! The mailbox: the last messages that were delivered to this agent, for clients that ask later.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use annulus_core::Id;
use annulus_core::pastry::{AppName, Contact, MessageId};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The most bytes of payloads kept. Messages can be long: their number alone would not bound the memory.
const BYTES_MAX: usize = 64 * 1024 * 1024;

/// How many clients may read at once. Each holds one message, also when it has made room for others since.
const READERS_MAX: usize = 8;

/// How long another one waits for its turn.
const READER_PATIENCE: Duration = Duration::from_secs(2);

/// A message that was delivered here.
#[derive(Debug)]
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
    readers: Arc<Semaphore>,
}

#[derive(Debug, Default)]
struct Letters {
    bytes: usize,
    /// The number of the oldest one: they are counted from the start.
    first: u64,
    kept: VecDeque<Arc<Letter>>,
}

impl Mailbox {
    /// An empty one that keeps so many messages.
    pub(crate) fn new(kept_max: usize) -> Self {
        Self { kept_max, letters: Mutex::default(), readers: Arc::new(Semaphore::new(READERS_MAX)) }
    }

    /// Keeps a message; the oldest make room for it.
    pub(crate) fn push(&self, letter: Letter) {
        let mut letters = self.lock();
        letters.bytes += letter.payload.len();
        letters.kept.push_back(Arc::new(letter));
        while letters.kept.len() > self.kept_max || letters.bytes > BYTES_MAX {
            let Some(gone) = letters.kept.pop_front() else { break };
            letters.bytes -= gone.payload.len();
            letters.first += 1;
        }
    }

    /// The numbers of those that are kept now.
    pub(crate) fn numbers(&self) -> Range<u64> {
        let letters = self.lock();
        letters.first..letters.first + letters.kept.len() as u64
    }

    /// The first of those that are kept from this number on, with its number.
    pub(crate) fn from(&self, number: u64) -> Option<(u64, Arc<Letter>)> {
        let letters = self.lock();
        let number = number.max(letters.first);
        let place = usize::try_from(number - letters.first).ok()?;
        Some((number, Arc::clone(letters.kept.get(place)?)))
    }

    /// The right to read, as long as it is held; `None` if too many others read and none of them ends.
    pub(crate) async fn reader(&self) -> Option<OwnedSemaphorePermit> {
        let turn = Arc::clone(&self.readers).acquire_owned();
        tokio::time::timeout(READER_PATIENCE, turn).await.ok()?.ok()
    }

    fn lock(&self) -> MutexGuard<'_, Letters> {
        self.letters.lock().unwrap_or_else(PoisonError::into_inner)
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
        mailbox.numbers().filter_map(|number| Some(mailbox.from(number)?.1.id.0)).collect()
    }

    #[test]
    fn the_oldest_make_room() {
        let mailbox = Mailbox::new(2);
        (1..=3).for_each(|id| mailbox.push(letter(id, 1)));
        assert_eq!(ids(&mailbox), [2, 3]);
    }

    #[test]
    fn what_has_made_room_is_passed_over() {
        let mailbox = Mailbox::new(2);
        (0..5).for_each(|id| mailbox.push(letter(id, 1)));
        assert_eq!(mailbox.numbers(), 3..5);
        assert_eq!(mailbox.from(0).map(|(number, letter)| (number, letter.id.0)), Some((3, 3)));
        assert!(mailbox.from(5).is_none());
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
