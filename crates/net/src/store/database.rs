//! The database: groups of operations in order, one transaction for each group.
//!
//! One writer and one transaction at a time keep the order that [`annulus_core::StoreOp`] promises. A commit without a sync
//! is visible to the next one, and becomes durable with the next synced commit. If a group fails, nothing of it is stored,
//! and every operation of it fails; none was answered before.

use std::io;
use std::path::{Path, PathBuf};

use annulus_core::{Space, SpaceId, StoreFault};
use redb::backends::InMemoryBackend;
use redb::{Durability, ReadableDatabase, StorageBackend};

use super::tables::{self, Page, Reading, Spaces, Writing};
use super::unsynced::{Stored, Unsynced};
use super::values::{LARGE_BYTES, Values};
use super::{Outcome, Part, Store, Work, sync_directory};
use crate::error::OpenError;

/// The cache of the database: small for an idle agent, and the kernel caches the file anyway.
const CACHE_BYTES: usize = 1024 * 1024;

/// An open database.
pub(super) struct Database {
    store: Store,
    spaces: Vec<(SpaceId, String)>,
    /// `None` if it failed and could not be opened again.
    inner: Option<redb::Database>,
    values: Values,
    /// Writes that were answered and are not durable.
    unsynced: Unsynced,
    /// Whether the database has forgotten that, because it had to be opened again.
    is_behind: bool,
    /// Whether everything written is safe.
    synced: bool,
    /// Set when something that was answered may be lost for good; whatever came behind it would be out of order.
    broken: Option<StoreFault>,
}

impl Database {
    /// Opens it and makes the tables of these spaces.
    pub(super) fn open(store: &Store, spaces: &[Space]) -> Result<Self, OpenError> {
        let spaces: Vec<_> =
            spaces.iter().map(|space| (space.id, format!("{}/{}", space.id.service(), space.name))).collect();
        let opened = open(store, &spaces).and_then(|inner| {
            let (used, services) = tables::places(&inner.begin_read()?)?;
            Ok((inner, Values::open(store, used, services)?))
        });
        let (inner, values) = opened.map_err(|error| refused(store, error))?;
        Ok(Self {
            store: store.clone(),
            spaces,
            inner: Some(inner),
            values,
            unsynced: Unsynced::default(),
            is_behind: false,
            synced: true,
            broken: None,
        })
    }

    /// Carries out a group: one outcome for each, in order. All writes are kept, or none.
    pub(super) fn run<'a>(&mut self, group: impl Iterator<Item = &'a Work> + Clone) -> Vec<Outcome> {
        if group.clone().any(|work| matches!(work, Work::Write { .. })) {
            return match self.write(group.clone()) {
                Ok(outcomes) => outcomes,
                // The reads among them can still be answered: the writes before them were not kept.
                Err(fault) => group.map(|work| self.read_or(work, fault)).collect(),
            };
        }
        group.map(|work| self.read_or(work, StoreFault::Broken)).collect()
    }

    /// Makes everything written safe.
    pub(super) fn sync(&mut self) {
        // If this fails, the next write reports it. The next sync retries, because the disk may have room again.
        let _ = self.write([Work::Write { changes: Vec::new(), durable: true }].iter());
    }

    /// Whether everything written is safe, or never will be.
    pub(super) fn is_synced(&self) -> bool {
        self.synced || self.broken.is_some()
    }

    fn write<'a>(
        &mut self,
        group: impl Iterator<Item = &'a Work> + Clone,
    ) -> Result<Vec<Outcome>, StoreFault> {
        if let Some(fault) = self.broken {
            return Err(fault);
        }
        if !self.is_open() {
            return Err(StoreFault::Broken);
        }
        self.catch_up()?;
        let is_durable = group.clone().any(|work| matches!(work, Work::Write { durable: true, .. }))
            || self.unsynced.is_full()
            || self.values.wants_sync();
        // Large values first: if there is no room for them, nothing has happened to the database.
        let placed = match self.place(group.clone()) {
            Ok(placed) => placed,
            Err(error) => {
                self.values.aborted();
                let fault = fault(&error.into());
                return Err(if fault == StoreFault::Full { fault } else { self.recover(fault) });
            }
        };
        match self.commit(group.clone(), &placed, is_durable) {
            Ok(outcomes) => {
                self.values.committed(is_durable);
                self.synced = is_durable;
                if is_durable {
                    self.unsynced.clear();
                } else {
                    self.remember(group, &placed);
                }
                Ok(outcomes)
            }
            Err(error) => {
                self.values.aborted();
                Err(self.recover(fault(&error)))
            }
        }
    }

    /// The value that each change of the group leaves under its key; large values are in their file then.
    fn place<'a>(&mut self, group: impl Iterator<Item = &'a Work>) -> io::Result<Vec<Stored>> {
        let mut placed = Vec::new();
        for (.., value) in changes(&self.spaces, group) {
            placed.push(match value {
                Some(value) if value.len() >= LARGE_BYTES => Stored::Far(self.values.write(value)?),
                Some(value) => Stored::Inline(value.clone()),
                None => Stored::Nothing,
            });
        }
        Ok(placed)
    }

    /// Keeps answered writes that are not synced.
    fn remember<'a>(&mut self, group: impl Iterator<Item = &'a Work>, placed: &[Stored]) {
        for ((space, key, _), stored) in changes(&self.spaces, group).zip(placed) {
            self.unsynced.insert(*space, key.clone(), stored.clone());
        }
    }

    /// One transaction. Reads in it see the writes before them and are answered only if those are kept.
    fn commit<'a>(
        &mut self,
        group: impl Iterator<Item = &'a Work>,
        placed: &[Stored],
        is_durable: bool,
    ) -> Result<Vec<Outcome>, redb::Error> {
        let Some(inner) = &self.inner else { return Err(io::Error::other("the store is closed").into()) };
        if is_durable {
            self.values.sync()?;
        }
        let mut transaction = inner.begin_write()?;
        if !is_durable {
            transaction.set_durability(Durability::None)?;
        }
        let mut outcomes = Vec::new();
        let mut tables = Writing::new(&transaction, &self.spaces)?;
        let mut placed = placed.iter();
        for work in group {
            outcomes.push(match work {
                Work::Get { space, key } => tables.get(*space, key, &self.values)?,
                Work::Page { .. } => tables.page(&page_of(work), &self.values)?,
                Work::Write { changes, .. } => match unknown(&self.spaces, changes) {
                    Some(outcome) => outcome,
                    None => {
                        for ((space, key, _), stored) in changes.iter().zip(placed.by_ref()) {
                            tables.set(*space, key, stored, &mut self.values)?;
                        }
                        Outcome::Written
                    }
                },
            });
        }
        drop(tables);
        transaction.commit()?;
        Ok(outcomes)
    }

    /// A read on its own; a write is not done, for this reason.
    fn read_or(&mut self, work: &Work, otherwise: StoreFault) -> Outcome {
        if matches!(work, Work::Write { .. }) {
            return Outcome::Failed(otherwise);
        }
        if let Some(fault) = self.broken {
            return Outcome::Failed(fault);
        }
        if !self.is_open() {
            return Outcome::Failed(StoreFault::Broken);
        }
        match self.read(work) {
            Ok(outcome) => outcome,
            Err(error) => Outcome::Failed(self.recover(fault(&error))),
        }
    }

    fn read(&self, work: &Work) -> Result<Outcome, redb::Error> {
        let Some(inner) = &self.inner else { return Err(io::Error::other("the store is closed").into()) };
        let transaction = inner.begin_read()?;
        let nothing = Unsynced::default();
        let missing = if self.is_behind { &self.unsynced } else { &nothing };
        let tables = Reading { transaction: &transaction, spaces: &self.spaces, missing };
        match work {
            Work::Get { space, key } => tables.get(*space, key, &self.values),
            work => tables.page(&page_of(work), &self.values),
        }
    }

    /// Repeats the writes that were lost when the database was opened again.
    fn catch_up(&mut self) -> Result<(), StoreFault> {
        if !self.is_behind {
            return Ok(());
        }
        let Some(inner) = &self.inner else { return Err(StoreFault::Broken) };
        let mut again = || -> Result<(), redb::Error> {
            self.values.sync()?;
            let transaction = inner.begin_write()?;
            let mut tables = Writing::new(&transaction, &self.spaces)?;
            for (space, key, stored) in self.unsynced.iter() {
                tables.set(space, key, stored, &mut self.values)?;
            }
            drop(tables);
            Ok(transaction.commit()?)
        };
        match again() {
            Ok(()) => {
                // The first attempt has already recorded the extents that these changes release.
                self.values.forget_released();
                self.values.committed(true);
                self.unsynced.clear();
                (self.is_behind, self.synced) = (false, true);
                Ok(())
            }
            Err(error) => {
                self.values.aborted();
                Err(self.recover(fault(&error)))
            }
        }
    }

    /// redb refuses all work after an error of the medium, so the database is opened again. That loses unsynced writes.
    /// If the disk was only full, it is written again as soon as there is room; until then reads find it here, and
    /// writes are refused. After any other error the content is unknown: the store stays broken until the node
    /// restarts, unless nothing was lost.
    fn recover(&mut self, fault: StoreFault) -> StoreFault {
        if !self.synced && fault != StoreFault::Full {
            tracing::error!(?fault, "the store failed with writes that were not safe yet");
            self.broken = Some(fault);
            self.inner = None;
            return fault;
        }
        self.is_behind = !self.unsynced.is_empty();
        // In memory there is nothing to open again, and no disk that could be full.
        if matches!(self.store, Store::Memory) {
            self.broken = Some(fault);
        }
        self.reopen();
        fault
    }

    /// Whether it is open, or can be opened again by now.
    fn is_open(&mut self) -> bool {
        if self.inner.is_none() {
            self.reopen();
        }
        self.inner.is_some()
    }

    fn reopen(&mut self) {
        self.inner = None;
        if self.broken.is_none() {
            self.inner = open(&self.store, &self.spaces)
                .map_err(|error| tracing::error!(%error, "cannot open the store again"))
                .ok();
        }
    }
}

/// Every change of a group, in order, but for those that cannot be made.
fn changes<'a>(
    spaces: &Spaces,
    group: impl Iterator<Item = &'a Work>,
) -> impl Iterator<Item = &'a super::Change> {
    group
        .filter_map(|work| if let Work::Write { changes, .. } = work { Some(changes) } else { None })
        .filter(|changes| unknown(spaces, changes).is_none())
        .flatten()
}

fn page_of(work: &Work) -> Page<'_> {
    match work {
        Work::Page { space, from, until, entries_max } => {
            Page { space: *space, from, until, entries_max: *entries_max }
        }
        Work::Get { .. } | Work::Write { .. } => unreachable!("only pages are read as pages"),
    }
}

/// The error for changes of a space that was not declared: a bug of the machine.
fn unknown(spaces: &Spaces, changes: &[super::Change]) -> Option<Outcome> {
    let (space, ..) = changes.iter().find(|(space, ..)| tables::position(spaces, *space).is_none())?;
    Some(tables::unknown(*space))
}

fn open(store: &Store, spaces: &Spaces) -> Result<redb::Database, redb::Error> {
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
        Store::Backend(make) => {
            builder.create_with_backend(Boxed(make(Part::Database).map_err(redb::Error::Io)?))?
        }
    };
    tables::make(&database, spaces)?;
    Ok(database)
}

/// Makes the file under another name first. redb cannot open a file whose creation was interrupted by a loss of power.
fn create(builder: &redb::Builder, path: &Path) -> Result<(), redb::Error> {
    let mut unfinished = path.as_os_str().to_owned();
    unfinished.push(".new");
    match std::fs::remove_file(&unfinished) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error.into()),
        _ => {}
    }
    drop(builder.create(&unfinished)?);
    std::fs::rename(&unfinished, path)?;
    sync_directory(path);
    Ok(())
}

/// The fault that a machine gets for an error of the database.
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

/// The reason why it could not be opened, with the remedy.
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
