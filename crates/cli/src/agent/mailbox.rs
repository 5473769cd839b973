//! The mailbox: the agent's own application. It keeps messages on disk until a client has read them.
//!
//! | message | what the mailbox does |
//! |---|---|
//! | new, with room beside the unread ones | writes it to disk, then accepts it: the sender learns that it is kept |
//! | new, without room | answers busy: the sender tries again until its deadline |
//! | a question | shows it; a client answers it. It is not written to disk: no sender waits for the answer after a
//! restart |
//! | a repetition, also after a restart | accepts it without keeping it again |
//!
//! Read messages make room for new ones, the oldest first. Unread ones never do.

mod disk;

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use annulus::core::Id;
use annulus::core::pastry::{AppName, Contact, MessageId};
use anyhow::Context as _;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use disk::Disk;

/// The most bytes of payloads kept. Messages can be long: their number alone would not bound the memory.
const BYTES_MAX: usize = 64 * 1024 * 1024;

/// The number of message ids that are remembered to detect duplicates.
const IDS_MAX: u64 = 65_536;

/// The time that an unanswered request takes room.
const QUESTION_MICROS: u64 = 60_000_000;

/// How many clients may read at once. Each holds one message, also when it has made room for others since.
const READERS_MAX: usize = 8;

/// How long another one waits for its turn.
const READER_PATIENCE: Duration = Duration::from_secs(2);

/// A message that was delivered here.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Letter {
    /// When, in microseconds since the epoch.
    pub(crate) at_micros: u64,
    /// Its number.
    pub(crate) id: MessageId,
    /// For which application.
    pub(crate) app: AppName,
    /// Its key.
    pub(crate) key: Id,
    /// The sender.
    pub(crate) origin: Contact,
    /// After how many hops.
    pub(crate) hops: u8,
    /// Whether the sender waits for an answer.
    pub(crate) ask: bool,
    /// The bytes.
    pub(crate) payload: Vec<u8>,
}

/// The decision about a message that arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// There is room for it.
    New,
    /// It is kept already, or was.
    Known,
    /// There is no room beside the unread ones.
    Full,
}

/// The messages of this agent, the oldest first.
#[derive(Debug)]
pub(crate) struct Mailbox {
    kept_max: usize,
    letters: Mutex<Letters>,
    disk: Arc<Disk>,
    readers: Arc<Semaphore>,
}

#[derive(Debug, Default)]
struct Letters {
    kept: BTreeMap<u64, Kept>,
    ids: HashMap<MessageId, u64>,
    order: BTreeMap<u64, MessageId>,
    next: u64,
    bytes: usize,
    unread: usize,
    unread_bytes: usize,
}

#[derive(Debug)]
struct Kept {
    letter: Arc<Letter>,
    is_read: bool,
}

impl Mailbox {
    /// The mailbox in this directory, with the messages that were unread when it was last used; or one that is forgotten
    /// with the agent.
    pub(crate) fn open(dir: Option<&Path>, kept_max: usize) -> anyhow::Result<Self> {
        let disk = Disk::open(dir).context("cannot open the mailbox")?;
        let mut letters = Letters::default();
        let (ids, kept) = disk.load().context("cannot read the mailbox")?;
        for (number, id) in ids {
            letters.remember(number, id);
        }
        for (number, letter) in kept {
            letters.insert(number, letter);
        }
        let readers = Arc::new(Semaphore::new(READERS_MAX));
        Ok(Self { kept_max, letters: Mutex::new(letters), disk: Arc::new(disk), readers })
    }

    /// The decision about a message, if `coming` others with so many bytes are accepted before it.
    pub(crate) fn arrival(&self, letter: &Letter, coming: (usize, usize)) -> Arrival {
        let mut letters = self.lock();
        if letters.ids.contains_key(&letter.id) {
            return Arrival::Known;
        }
        if !letters.has_room(self.kept_max, letter.payload.len(), coming) {
            letters.expire_questions(letter.at_micros);
        }
        if letters.has_room(self.kept_max, letter.payload.len(), coming) {
            Arrival::New
        } else {
            Arrival::Full
        }
    }

    /// Keeps messages on disk; when this returns they are safe. Questions are kept in memory only.
    ///
    /// # Errors
    /// If the disk does not take them; then none is kept.
    pub(crate) async fn keep(&self, letters: Vec<Arc<Letter>>) -> anyhow::Result<()> {
        if letters.is_empty() {
            return Ok(());
        }
        let first = {
            let mut own = self.lock();
            let first = own.next;
            own.next += letters.len() as u64;
            first
        };
        let numbered: Vec<(u64, Arc<Letter>)> = (first..).zip(letters).collect();
        let (disk, written) = (Arc::clone(&self.disk), numbered.clone());
        tokio::task::spawn_blocking(move || disk.write(&written, IDS_MAX)).await??;
        let mut own = self.lock();
        for (number, letter) in numbered {
            own.remember(number, letter.id);
            own.insert(number, letter);
        }
        own.make_room(self.kept_max);
        Ok(())
    }

    /// Marks messages as read; how many of them were unread. They are not shown again after a restart.
    pub(crate) async fn read(&self, ids: &[MessageId]) -> usize {
        let numbers: Vec<u64> = {
            let mut letters = self.lock();
            let numbers = ids.iter().filter_map(|id| letters.ids.get(id).copied()).collect::<Vec<_>>();
            numbers.into_iter().filter(|number| letters.mark_read(*number)).collect()
        };
        if numbers.is_empty() {
            return 0;
        }
        let (disk, count) = (Arc::clone(&self.disk), numbers.len());
        match tokio::task::spawn_blocking(move || disk.remove(&numbers)).await {
            Ok(Ok(())) => {}
            // Then they are shown again after a restart, which loses nothing.
            Ok(Err(error)) => {
                tracing::warn!(%error, "the mailbox cannot forget read messages; check the disk");
            }
            Err(error) => tracing::error!(%error, "the mailbox failed"),
        }
        count
    }

    /// The numbers of those that are kept now.
    pub(crate) fn numbers(&self) -> Range<u64> {
        let letters = self.lock();
        let first = letters.kept.keys().next().copied().unwrap_or(letters.next);
        first..letters.next
    }

    /// The first of those that are kept from this number on, with its number and whether it was read.
    pub(crate) fn from(&self, number: u64) -> Option<(u64, Arc<Letter>, bool)> {
        let letters = self.lock();
        let (number, kept) = letters.kept.range(number..).next()?;
        Some((*number, Arc::clone(&kept.letter), kept.is_read))
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

impl Letters {
    fn remember(&mut self, number: u64, id: MessageId) {
        self.next = self.next.max(number + 1);
        self.ids.insert(id, number);
        self.order.insert(number, id);
        while self.order.len() as u64 > IDS_MAX
            && let Some((_, id)) = self.order.pop_first()
        {
            self.ids.remove(&id);
        }
    }

    fn insert(&mut self, number: u64, letter: Arc<Letter>) {
        self.next = self.next.max(number + 1);
        self.bytes += letter.payload.len();
        self.unread += 1;
        self.unread_bytes += letter.payload.len();
        self.kept.insert(number, Kept { letter, is_read: false });
    }

    /// Whether there is room for a message of so many bytes beside the unread ones and those that are `coming`.
    fn has_room(&self, kept_max: usize, bytes: usize, coming: (usize, usize)) -> bool {
        let (unread, unread_bytes) = (self.unread + coming.0, self.unread_bytes + coming.1);
        unread < kept_max && (unread == 0 || unread_bytes.saturating_add(bytes) <= BYTES_MAX)
    }

    /// Marks requests as read that got no answer in time.
    fn expire_questions(&mut self, now_micros: u64) {
        let is_over = |letter: &Letter| letter.ask && letter.at_micros + QUESTION_MICROS < now_micros;
        let over = self.kept.iter().filter(|(_, kept)| is_over(&kept.letter)).map(|(number, _)| *number);
        for number in over.collect::<Vec<_>>() {
            self.mark_read(number);
        }
    }

    fn mark_read(&mut self, number: u64) -> bool {
        let Some(kept) = self.kept.get_mut(&number).filter(|kept| !kept.is_read) else { return false };
        kept.is_read = true;
        self.unread -= 1;
        self.unread_bytes -= kept.letter.payload.len();
        true
    }

    /// Forgets the oldest read messages beyond the limits.
    fn make_room(&mut self, kept_max: usize) {
        while self.kept.len() > kept_max || self.bytes > BYTES_MAX {
            let Some(number) = self.kept.iter().find(|(_, kept)| kept.is_read).map(|(number, _)| *number)
            else {
                return;
            };
            if let Some(gone) = self.kept.remove(&number) {
                self.bytes -= gone.letter.payload.len();
            }
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use annulus::core::pastry::Generation;

    pub(crate) fn letter(id: u128, bytes: usize) -> Arc<Letter> {
        let addr = ([127, 0, 0, 1], 1).into();
        let origin = Contact { id: Id::MIN, addr, generation: Generation(1) };
        let (id, app, key) = (MessageId(id), AppName::new("a \"name\"").expect("it is short"), Id::MAX);
        let payload = (0..bytes).map(|at| at as u8).collect();
        Arc::new(Letter { at_micros: 7, id, app, key, origin, hops: 3, ask: false, payload })
    }

    fn ids(mailbox: &Mailbox) -> Vec<u128> {
        let mut ids = Vec::new();
        let mut next = 0;
        while let Some((number, letter, _)) = mailbox.from(next) {
            ids.push(letter.id.0);
            next = number + 1;
        }
        ids
    }

    #[tokio::test]
    async fn unread_messages_are_never_dropped_and_read_ones_make_room() {
        let mailbox = Mailbox::open(None, 2).unwrap();
        let arrival = |id, bytes, coming| mailbox.arrival(&letter(id, bytes), coming);
        assert_eq!(arrival(2, 1, (1, 1)), Arrival::New);
        mailbox.keep(vec![letter(1, 1), letter(2, 1)]).await.unwrap();
        assert_eq!(arrival(3, 1, (0, 0)), Arrival::Full);
        assert_eq!(arrival(1, 1, (0, 0)), Arrival::Known);
        assert_eq!(mailbox.read(&[MessageId(2), MessageId(9)]).await, 1);
        assert_eq!(mailbox.read(&[MessageId(2)]).await, 0, "it is read already");
        assert_eq!(arrival(3, 1, (0, 0)), Arrival::New);
        mailbox.keep(vec![letter(3, 1)]).await.unwrap();
        assert_eq!(ids(&mailbox), [1, 3]);
        assert_eq!(arrival(2, 1, (0, 0)), Arrival::Known, "it was here");
    }

    #[tokio::test]
    async fn an_unanswered_request_takes_room_for_a_minute() {
        let mailbox = Mailbox::open(None, 1).unwrap();
        let asked = Arc::into_inner(letter(1, 1)).unwrap();
        mailbox.keep(vec![Arc::new(Letter { ask: true, ..asked })]).await.unwrap();
        let at = |at_micros| Letter { at_micros, ..Arc::into_inner(letter(2, 1)).unwrap() };
        assert_eq!(mailbox.arrival(&at(QUESTION_MICROS), (0, 0)), Arrival::Full);
        assert_eq!(mailbox.arrival(&at(QUESTION_MICROS + 8), (0, 0)), Arrival::New);
    }

    #[tokio::test]
    async fn long_messages_are_bounded_by_their_bytes() {
        let mailbox = Mailbox::open(None, 100).unwrap();
        let long = letter(2, BYTES_MAX / 2);
        assert_eq!(mailbox.arrival(&letter(1, BYTES_MAX + 1), (0, 0)), Arrival::New, "it is alone");
        mailbox.keep(vec![letter(1, BYTES_MAX / 2)]).await.unwrap();
        assert_eq!(mailbox.arrival(&long, (0, 0)), Arrival::New);
        assert_eq!(mailbox.arrival(&long, (1, 1)), Arrival::Full);
    }

    #[tokio::test]
    async fn unread_messages_and_the_numbers_of_all_survive_a_restart() {
        let dir = tempfile::tempdir().unwrap();
        let mailbox = Mailbox::open(Some(dir.path()), 9).unwrap();
        mailbox.keep(vec![letter(1, 5), letter(2, 100_000), letter(3, 0)]).await.unwrap();
        mailbox.read(&[MessageId(1)]).await;
        drop(mailbox);
        let mailbox = Mailbox::open(Some(dir.path()), 9).unwrap();
        assert_eq!(ids(&mailbox), [2, 3]);
        assert_eq!(mailbox.from(0).unwrap().1, letter(2, 100_000));
        assert_eq!(mailbox.arrival(&letter(1, 1), (0, 0)), Arrival::Known, "read before the restart");
        mailbox.keep(vec![letter(4, 1)]).await.unwrap();
        assert_eq!(ids(&mailbox), [2, 3, 4]);
    }
}
