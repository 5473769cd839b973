//! The database: groups of operations in order, one transaction for each group.
//!
//! The order that [`annulus_core::StoreOp`] promises comes from there being one writer and one transaction at a time:
//! a commit that is not synced is visible to the next and becomes safe with the next that is. If a group fails,
//! nothing of it was kept and everyone in it is told; nobody in it has been answered before.

use std::io;
use std::ops::Bound;
use std::path::{Path, PathBuf};

use annulus_core::{Space, SpaceId, StoreFault};
use redb::backends::InMemoryBackend;
use redb::{
    Durability, ReadableDatabase, ReadableTable, StorageBackend, TableDefinition, TableError,
    WriteTransaction,
};

use super::{Change, Outcome, Store, Work};
use crate::error::OpenError;

/// How much the database may keep in memory: an idle agent has little, and the system caches the file anyway.
const CACHE_BYTES: usize = 1024 * 1024;
/// A page of a range stops growing here, whatever number of entries was asked for.
const PAGE_BYTES: usize = 1024 * 1024;

type Definition<'a> = TableDefinition<'a, &'static [u8], &'static [u8]>;

/// An open database.
pub(super) struct Database {
    store: Store,
    spaces: Vec<(SpaceId, String)>,
    /// `None` if it failed and could not be opened again.
    inner: Option<redb::Database>,
    /// Whether everything written is safe.
    synced: bool,
    /// Set when something that was answered got lost; whatever came behind it would be out of order.
    broken: Option<StoreFault>,
}

impl Database {
    /// Opens it and makes the tables of these spaces.
    pub(super) fn open(store: &Store, spaces: &[Space]) -> Result<Self, OpenError> {
        let spaces: Vec<_> =
            spaces.iter().map(|space| (space.id, format!("{}/{}", space.id.service(), space.name))).collect();
        let inner = open(store, &spaces).map_err(|error| refused(store, error))?;
        Ok(Self { store: store.clone(), spaces, inner: Some(inner), synced: true, broken: None })
    }

    /// Carries out a group: one outcome for each, in order. All writes are kept, or none.
    pub(super) fn run<'a>(&mut self, group: impl Iterator<Item = &'a Work> + Clone) -> Vec<Outcome> {
        let len = group.clone().count();
        let writes = group.clone().any(|work| matches!(work, Work::Write { .. }));
        let durable = group.clone().any(|work| matches!(work, Work::Write { durable: true, .. }));
        let done = match (self.broken, &self.inner) {
            (Some(fault), _) => Err(fault),
            (None, None) => Err(StoreFault::Broken),
            (None, Some(inner)) if writes => {
                write(inner, &self.spaces, group, durable).map_err(|error| fault(&error))
            }
            (None, Some(inner)) => read(inner, &self.spaces, group).map_err(|error| fault(&error)),
        };
        match done {
            Ok(outcomes) => {
                self.synced = if writes { durable } else { self.synced };
                outcomes
            }
            Err(fault) => {
                self.recover(fault);
                vec![Outcome::Failed(fault); len]
            }
        }
    }

    /// Makes everything written safe.
    pub(super) fn sync(&mut self) {
        let _ = self.run([Work::Write { changes: Vec::new(), durable: true }].iter());
        // If it failed, `broken` says so to all that follow; to try again every second would help nobody.
        self.synced = true;
    }

    /// Whether everything written is safe.
    pub(super) fn is_synced(&self) -> bool {
        self.synced
    }

    /// The database does nothing more after an error of the medium, so it is opened again: a disk that was full may
    /// have room now. That forgets what was not safe, and if somebody was told that it was written, the order of
    /// what survives could no longer be kept: then it stays broken until the node is started again.
    fn recover(&mut self, fault: StoreFault) {
        if self.broken.is_some() {
            return;
        }
        if !self.synced {
            tracing::error!(?fault, "the store failed with writes that were not safe yet");
            self.broken = Some(fault);
        }
        self.inner = None;
        if self.broken.is_none() && !matches!(self.store, Store::Memory) {
            self.inner = open(&self.store, &self.spaces)
                .map_err(|error| tracing::error!(%error, "cannot open the store again"))
                .ok();
        }
    }
}

fn open(store: &Store, spaces: &[(SpaceId, String)]) -> Result<redb::Database, redb::Error> {
    let mut builder = redb::Builder::new();
    builder.set_cache_size(CACHE_BYTES);
    let database = match store {
        Store::Memory => builder.create_with_backend(InMemoryBackend::new())?,
        Store::File(path) => {
            if !path.exists() {
                create(&builder, path)?;
            }
            builder.open(path)?
        }
        Store::Backend(make) => builder.create_with_backend(Boxed(make().map_err(redb::Error::Io)?))?,
    };
    let present = database.begin_read()?;
    let missing = spaces.iter().any(|(_, name)| {
        matches!(present.open_table(definition(name)), Err(TableError::TableDoesNotExist(_)))
    });
    drop(present);
    if missing {
        let transaction = database.begin_write()?;
        for (_, name) in spaces {
            transaction.open_table(definition(name))?;
        }
        transaction.commit()?;
    }
    Ok(database)
}

/// Makes the file under another name first: the database cannot be opened if the power goes while it is being made,
/// and a node must not be stuck with such a file for ever.
fn create(builder: &redb::Builder, path: &Path) -> Result<(), redb::Error> {
    let mut unfinished = path.as_os_str().to_owned();
    unfinished.push(".new");
    match std::fs::remove_file(&unfinished) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error.into()),
        _ => {}
    }
    drop(builder.create(&unfinished)?);
    std::fs::rename(&unfinished, path)?;
    // The name is safe when the directory is. Not every system can sync one; then nothing more can be done.
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    if let Ok(directory) = std::fs::File::open(directory.unwrap_or(Path::new("."))) {
        let _ = directory.sync_all();
    }
    Ok(())
}

fn definition(name: &str) -> Definition<'_> {
    Definition::new(name)
}

/// A group with writes in it. Reads in it see the writes before them and are answered only if those are kept.
fn write<'a>(
    database: &redb::Database,
    spaces: &[(SpaceId, String)],
    group: impl Iterator<Item = &'a Work>,
    durable: bool,
) -> Result<Vec<Outcome>, redb::Error> {
    let mut transaction = database.begin_write()?;
    if !durable {
        transaction.set_durability(Durability::None)?;
    }
    let outcomes = apply(&transaction, spaces, group)?;
    transaction.commit()?;
    Ok(outcomes)
}

fn apply<'a>(
    transaction: &WriteTransaction,
    spaces: &[(SpaceId, String)],
    group: impl Iterator<Item = &'a Work>,
) -> Result<Vec<Outcome>, redb::Error> {
    let mut tables = Tables { transaction, spaces, open: spaces.iter().map(|_| None).collect() };
    let mut outcomes = Vec::new();
    for work in group {
        outcomes.push(match work {
            Work::Get { space, key } => match tables.table(*space)? {
                Some(table) => get(table, key)?,
                None => unknown(*space),
            },
            Work::Page { space, from, until, entries_max } => match tables.table(*space)? {
                Some(table) => page(table, from, until, *entries_max)?,
                None => unknown(*space),
            },
            Work::Write { changes, .. } => tables.change(changes)?,
        });
    }
    Ok(outcomes)
}

/// A group of reads only.
fn read<'a>(
    database: &redb::Database,
    spaces: &[(SpaceId, String)],
    group: impl Iterator<Item = &'a Work>,
) -> Result<Vec<Outcome>, redb::Error> {
    let transaction = database.begin_read()?;
    let mut outcomes = Vec::new();
    for work in group {
        outcomes.push(match work {
            Work::Get { space, key } => match position(spaces, *space) {
                Some(at) => get(&transaction.open_table(definition(&spaces[at].1))?, key)?,
                None => unknown(*space),
            },
            Work::Page { space, from, until, entries_max } => match position(spaces, *space) {
                Some(at) => {
                    page(&transaction.open_table(definition(&spaces[at].1))?, from, until, *entries_max)?
                }
                None => unknown(*space),
            },
            Work::Write { .. } => unreachable!("a group with a write in it goes another way"),
        });
    }
    Ok(outcomes)
}

type Table<'t> = redb::Table<'t, &'static [u8], &'static [u8]>;

/// The tables of one transaction. Each may be open only once, and opening is not free: it happens at the first use.
struct Tables<'t> {
    transaction: &'t WriteTransaction,
    spaces: &'t [(SpaceId, String)],
    open: Vec<Option<Table<'t>>>,
}

impl<'t> Tables<'t> {
    /// The table of a space, if it was declared.
    fn table(&mut self, space: SpaceId) -> Result<Option<&mut Table<'t>>, redb::Error> {
        let Some(at) = position(self.spaces, space) else { return Ok(None) };
        if self.open[at].is_none() {
            self.open[at] = Some(self.transaction.open_table(definition(&self.spaces[at].1))?);
        }
        Ok(self.open[at].as_mut())
    }

    /// All of these changes, or none.
    fn change(&mut self, changes: &[Change]) -> Result<Outcome, redb::Error> {
        if let Some((space, ..)) = changes.iter().find(|(space, ..)| position(self.spaces, *space).is_none())
        {
            return Ok(unknown(*space));
        }
        for (space, key, value) in changes {
            let Some(table) = self.table(*space)? else { continue };
            match value {
                Some(value) => drop(table.insert(key.as_slice(), value.as_slice())?),
                None => drop(table.remove(key.as_slice())?),
            }
        }
        Ok(Outcome::Written)
    }
}

type Key = &'static [u8];

fn get(table: &impl ReadableTable<Key, Key>, key: &[u8]) -> Result<Outcome, redb::Error> {
    Ok(Outcome::Value(table.get(key)?.map(|value| value.value().to_vec())))
}

fn page(
    table: &impl ReadableTable<Key, Key>,
    from: &[u8],
    until: &[u8],
    entries_max: u32,
) -> Result<Outcome, redb::Error> {
    let end = if until.is_empty() { Bound::Unbounded } else { Bound::Excluded(until) };
    let (mut entries, mut bytes) = (Vec::new(), 0);
    // The database calls a range that ends before it begins a bug; here it is empty.
    if !until.is_empty() && until <= from {
        return Ok(Outcome::Page { entries, more: false });
    }
    for entry in table.range::<&[u8]>((Bound::Included(from), end))? {
        if entries.len() >= entries_max as usize || bytes >= PAGE_BYTES {
            return Ok(Outcome::Page { entries, more: true });
        }
        let (key, value) = entry?;
        let (key, value) = (key.value().to_vec(), value.value().to_vec());
        bytes += key.len() + value.len();
        entries.push((key, value));
    }
    Ok(Outcome::Page { entries, more: false })
}

fn position(spaces: &[(SpaceId, String)], space: SpaceId) -> Option<usize> {
    spaces.iter().position(|(id, _)| *id == space)
}

fn unknown(space: SpaceId) -> Outcome {
    tracing::error!(%space, "the machine used a space it did not declare");
    Outcome::Failed(StoreFault::Broken)
}

/// What an error of the database means for a machine.
fn fault(error: &redb::Error) -> StoreFault {
    tracing::warn!(%error, "the store failed");
    match error {
        redb::Error::Io(error)
            if matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) =>
        {
            StoreFault::Full
        }
        _ => StoreFault::Broken,
    }
}

/// Why it could not be opened, and what to do about it.
fn refused(store: &Store, error: redb::Error) -> OpenError {
    let path = match store {
        Store::File(path) => path.clone(),
        Store::Memory | Store::Backend(_) => PathBuf::from("(no file)"),
    };
    match error {
        redb::Error::DatabaseAlreadyOpen => OpenError::InUse { path },
        error => OpenError::Unusable { path, reason: Box::new(error) },
    }
}

/// A backend behind a pointer, which the database takes only by type.
#[derive(Debug)]
struct Boxed(Box<dyn StorageBackend>);

impl StorageBackend for Boxed {
    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.0.read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.0.write(offset, data)
    }

    fn close(&self) -> io::Result<()> {
        self.0.close()
    }
}
