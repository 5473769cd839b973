//! The mailbox on disk: one database of its own.
//!
//! | table | from | to |
//! |---|---|---|
//! | `letters` | number | unread message: one line of JSON, then its payload |
//! | `ids` | number | id of the message, also of those that were read |

use std::path::Path;
use std::sync::Arc;

use annulus::core::Id;
use annulus::core::pastry::{AppName, Contact, Generation, MessageId};
use redb::backends::InMemoryBackend;
use redb::{Database, Durability, ReadableDatabase as _, ReadableTable as _, TableDefinition};
use serde::{Deserialize, Serialize};

use super::Letter;

const FILE: &str = "messages.redb";
const LETTERS: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("letters");
const IDS: TableDefinition<'_, u64, u128> = TableDefinition::new("ids");
/// Memory for pages: the messages themselves are in the mailbox.
const CACHE_BYTES: usize = 1024 * 1024;

/// The database.
#[derive(Debug)]
pub(super) struct Disk {
    database: Database,
}

/// All but the payload.
#[derive(Serialize, Deserialize)]
struct Head {
    at_micros: u64,
    app: String,
    key: String,
    origin: String,
    addr: std::net::SocketAddr,
    generation: u64,
    hops: u8,
}

type Numbered<T> = Vec<(u64, T)>;

impl Disk {
    pub(super) fn open(dir: Option<&Path>) -> Result<Self, redb::Error> {
        let mut builder = Database::builder();
        builder.set_cache_size(CACHE_BYTES);
        let database = match dir {
            Some(dir) => builder.create(dir.join(FILE))?,
            None => builder.create_with_backend(InMemoryBackend::new())?,
        };
        let transaction = database.begin_write()?;
        transaction.open_table(LETTERS)?;
        transaction.open_table(IDS)?;
        transaction.commit()?;
        Ok(Self { database })
    }

    /// The ids of all messages, and the unread ones.
    pub(super) fn load(&self) -> Result<(Numbered<MessageId>, Numbered<Arc<Letter>>), redb::Error> {
        let transaction = self.database.begin_read()?;
        let (mut ids, mut letters) = (Vec::new(), Vec::new());
        for entry in transaction.open_table(IDS)?.iter()? {
            let (number, id) = entry?;
            ids.push((number.value(), MessageId(id.value())));
        }
        for entry in transaction.open_table(LETTERS)?.iter()? {
            let (number, bytes) = entry?;
            let number = number.value();
            let id = ids.binary_search_by_key(&number, |(number, _)| *number).ok().map(|at| ids[at].1);
            match id.and_then(|id| decode(id, bytes.value())) {
                Some(letter) => letters.push((number, Arc::new(letter))),
                None => tracing::warn!(number, "a message in the mailbox cannot be read: it is left out"),
            }
        }
        Ok((ids, letters))
    }

    /// Writes messages; when this returns they are safe.
    pub(super) fn write(&self, letters: &[(u64, Arc<Letter>)], ids_max: u64) -> Result<(), redb::Error> {
        let transaction = self.database.begin_write()?;
        {
            let (mut table, mut ids) = (transaction.open_table(LETTERS)?, transaction.open_table(IDS)?);
            for (number, letter) in letters {
                // After a restart no sender waits for an answer.
                if !letter.ask {
                    table.insert(number, encode(letter).as_slice())?;
                }
                ids.insert(number, letter.id.0)?;
                if let Some(oldest) = number.checked_sub(ids_max) {
                    ids.remove(oldest)?;
                }
            }
        }
        Ok(transaction.commit()?)
    }

    /// Removes messages. That need not be safe: at worst they are unread again.
    pub(super) fn remove(&self, numbers: &[u64]) -> Result<(), redb::Error> {
        let mut transaction = self.database.begin_write()?;
        transaction.set_durability(Durability::None)?;
        {
            let mut table = transaction.open_table(LETTERS)?;
            for number in numbers {
                table.remove(number)?;
            }
        }
        Ok(transaction.commit()?)
    }
}

fn encode(letter: &Letter) -> Vec<u8> {
    let Contact { id, addr, generation } = letter.origin;
    let head = Head {
        at_micros: letter.at_micros,
        app: letter.app.as_str().to_owned(),
        key: letter.key.to_string(),
        origin: id.to_string(),
        addr,
        generation: generation.0,
        hops: letter.hops,
    };
    let mut bytes = serde_json::to_vec(&head).unwrap_or_default();
    bytes.push(b'\n');
    bytes.extend_from_slice(&letter.payload);
    bytes
}

fn decode(id: MessageId, bytes: &[u8]) -> Option<Letter> {
    let end = bytes.iter().position(|byte| *byte == b'\n')?;
    let (head, payload) = (&bytes[..end], &bytes[end + 1..]);
    let head: Head = serde_json::from_slice(head).ok()?;
    let origin: Id = head.origin.parse().ok()?;
    Some(Letter {
        at_micros: head.at_micros,
        id,
        app: AppName::new(head.app).ok()?,
        key: head.key.parse().ok()?,
        origin: Contact { id: origin, addr: head.addr, generation: Generation(head.generation) },
        hops: head.hops,
        ask: false,
        payload: payload.to_vec(),
    })
}
