//! Large values: they lie in a file beside the database, which keeps only where.
//!
//! The database would give a value of 64 KiB two pages of that size and copy it several times. Here it is written once, into
//! whole pages of the file. Order makes that safe. A value is written before the transaction that names its place. The
//! file is synced before a durable transaction. A place is reused only when no transaction names it that a crash could
//! restore.

use std::io;
use std::path::{Path, PathBuf};

use redb::StorageBackend;
use redb::backends::{FileBackend, InMemoryBackend};

use super::free::{Extent, Free};
use super::tables::{FarSpaces, SPACE_BYTES};
use super::{Part, Store, sync_directory};

/// Values of this length and more are kept here. A durable write of such a value costs a second sync.
pub(super) const LARGE_BYTES: usize = 16 * 1024;
/// Extents are whole pages: the kernel need not read a page before it overwrites it.
const PAGE_BYTES: u64 = 4096;
/// The file grows by this much at least.
const GROW_BYTES: u64 = 1024 * 1024;
/// The file is cut when this much at its end is free.
const CUT_BYTES: u64 = 64 * 1024 * 1024;
/// When so much waits for a sync to be free again, it is time for one.
const LEAVING_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// The length of an extent in the database.
pub(super) const PLACE_BYTES: usize = 16;

/// The file.
pub(super) struct Values {
    store: Store,
    /// Made when the first large value comes.
    medium: Option<Box<dyn StorageBackend>>,
    medium_len: u64,
    free: Free,
    /// Released by transactions that a crash could undo.
    leaving: Vec<Extent>,
    leaving_bytes: u64,
    /// Allocated and released by the transaction under way.
    taken: Vec<Extent>,
    released: Vec<Extent>,
    spaces: FarSpaces,
    is_synced: bool,
}

impl Values {
    /// Opens the file, if there is one. `used` are the places that the database names.
    pub(super) fn open(store: &Store, used: Vec<Extent>, spaces: FarSpaces) -> io::Result<Self> {
        let mut values = Self {
            store: store.clone(),
            medium: None,
            medium_len: 0,
            free: Free::default(),
            leaving: Vec::new(),
            leaving_bytes: 0,
            taken: Vec::new(),
            released: Vec::new(),
            spaces,
            is_synced: true,
        };
        let is_there = match store {
            Store::Memory => false,
            Store::File(path) => path_of(path).exists(),
            Store::Backend(_) => true,
        };
        if is_there {
            values.open_medium()?;
        }
        values.free = Free::around(used.into_iter().map(padded).collect());
        if values.free.end() > values.medium_len {
            let text = "the file of large values beside it (.values) is missing or too short: put back the one that belongs to it";
            return Err(io::Error::other(text));
        }
        Ok(values)
    }

    /// Writes a value; where it is.
    pub(super) fn write(&mut self, value: &[u8]) -> io::Result<Extent> {
        if self.medium.is_none() {
            self.open_medium()?;
        }
        let place = self.free.take(padded_len(value.len() as u64));
        self.taken.push(place);
        self.is_synced = false;
        let Some(medium) = &self.medium else { return Err(io::ErrorKind::NotFound.into()) };
        if place.end() > self.medium_len {
            let len = place.end().max(self.medium_len + GROW_BYTES);
            medium.set_len(len)?;
            self.medium_len = len;
        }
        medium.write(place.offset, value)?;
        Ok(Extent { offset: place.offset, len: value.len() as u64 })
    }

    pub(super) fn read(&self, extent: Extent) -> io::Result<Vec<u8>> {
        let Some(medium) = &self.medium else { return Err(io::ErrorKind::NotFound.into()) };
        if extent.end() > self.medium_len {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let mut value = vec![0; extent.len as usize];
        medium.read(extent.offset, &mut value)?;
        Ok(value)
    }

    /// Whether a key of this space can have a large value: one is about to, or some have had one.
    pub(super) fn may_be_far(&mut self, space: [u8; SPACE_BYTES], is_about_to: bool) -> bool {
        if is_about_to {
            self.spaces.insert(space);
        }
        is_about_to || self.spaces.contains(&space)
    }

    /// The transaction under way no longer names this place.
    pub(super) fn release(&mut self, extent: Extent) {
        self.released.push(padded(extent));
    }

    /// Makes everything written safe: before a durable transaction is.
    pub(super) fn sync(&mut self) -> io::Result<()> {
        if let (false, Some(medium)) = (self.is_synced, &self.medium) {
            medium.sync_data()?;
        }
        self.is_synced = true;
        Ok(())
    }

    /// The transaction under way was kept.
    pub(super) fn committed(&mut self, durable: bool) {
        self.taken.clear();
        self.leaving_bytes += self.released.iter().map(|extent| extent.len).sum::<u64>();
        self.leaving.append(&mut self.released);
        if durable {
            self.leaving.drain(..).for_each(|extent| self.free.give(extent));
            self.leaving_bytes = 0;
            self.cut();
        }
    }

    /// Keeps the places that the current transaction released: they were released before.
    pub(super) fn forget_released(&mut self) {
        self.released.clear();
    }

    /// The transaction under way was not kept.
    pub(super) fn aborted(&mut self) {
        self.released.clear();
        self.taken.drain(..).for_each(|extent| self.free.give(extent));
    }

    /// Whether much waits to be free again.
    pub(super) fn wants_sync(&self) -> bool {
        self.leaving_bytes > LEAVING_BYTES_MAX
    }

    /// Gives the end of the file back to the system, if it is long enough to be worth it.
    fn cut(&mut self) {
        let len = self.free.end() + GROW_BYTES;
        if let Some(medium) = &self.medium
            && self.medium_len > len + CUT_BYTES
        {
            match medium.set_len(len) {
                Ok(()) => self.medium_len = len,
                Err(error) => tracing::warn!(%error, "cannot cut the file of large values"),
            }
        }
    }

    fn open_medium(&mut self) -> io::Result<()> {
        let medium: Box<dyn StorageBackend> = match &self.store {
            Store::Memory => Box::new(InMemoryBackend::new()),
            Store::File(path) => {
                let path = path_of(path);
                let mut options = std::fs::File::options();
                let file = options.read(true).write(true).create(true).truncate(false).open(&path)?;
                sync_directory(&path);
                Box::new(FileBackend::new(file).map_err(io::Error::other)?)
            }
            Store::Backend(make) => make(Part::Values)?,
        };
        self.medium_len = medium.len()?;
        self.medium = Some(medium);
        Ok(())
    }
}

/// As the database keeps it.
pub(super) fn place_to_bytes(extent: Extent) -> [u8; PLACE_BYTES] {
    let mut bytes = [0; PLACE_BYTES];
    bytes[..8].copy_from_slice(&extent.offset.to_be_bytes());
    bytes[8..].copy_from_slice(&extent.len.to_be_bytes());
    bytes
}

/// The place that the database stored; `None` if the bytes are no place.
pub(super) fn place_from_bytes(bytes: &[u8]) -> Option<Extent> {
    let (offset, len) = bytes.split_at_checked(8)?;
    let (offset, len) = (offset.try_into().ok()?, len.try_into().ok()?);
    Some(Extent { offset: u64::from_be_bytes(offset), len: u64::from_be_bytes(len) })
}

fn padded(extent: Extent) -> Extent {
    Extent { len: padded_len(extent.len), ..extent }
}

fn padded_len(len: u64) -> u64 {
    len.max(1).next_multiple_of(PAGE_BYTES)
}

fn path_of(database: &Path) -> PathBuf {
    let mut path = database.as_os_str().to_owned();
    path.push(".values");
    path.into()
}
