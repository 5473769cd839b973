//! A disk for tests: it loses unsynced writes, and it can fail at any moment.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard};

use annulus_core::Rng;
use redb::StorageBackend;

use super::{Part, Store};

/// Disks lose power between sectors, not between writes.
const SECTOR_BYTES: usize = 512;

/// The content that survives the process, shared by all that open it.
#[derive(Clone, Debug, Default)]
pub(super) struct Medium {
    disk: Arc<Mutex<Disk>>,
}

#[derive(Debug, Default)]
struct Disk {
    /// The database, and the large values.
    files: [File; 2],
    /// After so many more operations the power is gone.
    fuse: Option<u32>,
    /// Acknowledges syncs without doing them.
    lies: bool,
    /// The disk is full at this size.
    bytes_max: Option<usize>,
    syncs: u64,
}

#[derive(Debug, Default)]
struct File {
    /// The content that a loss of power certainly leaves.
    safe: Vec<u8>,
    /// The content that the running process sees.
    seen: Vec<u8>,
    /// The difference, in order.
    unsynced: Vec<Change>,
}

/// One file of the disk, as the store gets it.
#[derive(Debug)]
struct Face {
    medium: Medium,
    file: usize,
}

#[derive(Debug)]
enum Change {
    Write(usize, Vec<u8>),
    Length(usize),
}

impl Medium {
    /// As a driver gets it.
    pub(super) fn store(&self) -> Store {
        let medium = self.clone();
        Store::Backend(Arc::new(move |part| {
            let file = if part == Part::Database { 0 } else { 1 };
            Ok(Box::new(Face { medium: medium.clone(), file }))
        }))
    }

    /// Loses power after so many more operations.
    pub(super) fn burn_after(&self, operations: u32) {
        self.lock().fuse = Some(operations);
    }

    /// From now on syncs do nothing and say that all is well.
    pub(super) fn lie(&self) {
        self.lock().lies = true;
    }

    /// From now on there is only so much room.
    pub(super) fn limit(&self, bytes_max: Option<usize>) {
        self.lock().bytes_max = bytes_max;
    }

    /// The number of bytes on it.
    pub(super) fn len(&self) -> usize {
        self.lock().len()
    }

    /// The number of syncs.
    pub(super) fn syncs(&self) -> u64 {
        self.lock().syncs
    }

    /// The content after a loss of power: everything synced, and a random selection of the other sectors.
    pub(super) fn after_power_loss(&self, rng: &mut Rng) -> Self {
        let mut disk = self.lock();
        disk.fuse = Some(0);
        // Sometimes almost everything got there, sometimes almost nothing.
        let kept_percent = rng.below(101);
        let files = disk.files.each_mut().map(|file| file.after_power_loss(kept_percent, rng));
        Self { disk: Arc::new(Mutex::new(Disk { files, ..Disk::default() })) }
    }

    /// Another one with the same on it, all of it safe.
    pub(super) fn copy(&self) -> Self {
        let files = self.lock().files.each_ref().map(|file| File::new(file.seen.clone()));
        Self { disk: Arc::new(Mutex::new(Disk { files, ..Disk::default() })) }
    }

    fn lock(&self) -> MutexGuard<'_, Disk> {
        self.disk.lock().expect("nothing panics while it holds the disk")
    }
}

impl File {
    fn new(bytes: Vec<u8>) -> Self {
        Self { safe: bytes.clone(), seen: bytes, unsynced: Vec::new() }
    }

    fn after_power_loss(&mut self, kept_percent: u64, rng: &mut Rng) -> Self {
        let mut left = std::mem::take(&mut self.safe);
        for change in self.unsynced.drain(..) {
            match change {
                Change::Length(length) if rng.below(100) < kept_percent => left.resize(length, 0),
                Change::Length(_) => {}
                Change::Write(offset, bytes) => {
                    for (index, sector) in bytes.chunks(SECTOR_BYTES).enumerate() {
                        let from = offset + index * SECTOR_BYTES;
                        if rng.below(100) < kept_percent && from + sector.len() <= left.len() {
                            left[from..from + sector.len()].copy_from_slice(sector);
                        }
                    }
                }
            }
        }
        Self::new(left)
    }
}

impl Disk {
    fn len(&self) -> usize {
        self.files.iter().map(|file| file.seen.len()).sum()
    }

    fn burn(&mut self) -> io::Result<()> {
        match &mut self.fuse {
            Some(0) => Err(io::Error::other("the power is gone")),
            Some(left) => {
                *left -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }

    fn room(&self, bytes: usize) -> io::Result<()> {
        match self.bytes_max {
            Some(bytes_max) if bytes > bytes_max => Err(io::ErrorKind::StorageFull.into()),
            _ => Ok(()),
        }
    }
}

impl StorageBackend for Face {
    fn len(&self) -> io::Result<u64> {
        Ok(self.medium.lock().files[self.file].seen.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let mut disk = self.medium.lock();
        disk.burn()?;
        let from = offset as usize;
        let seen = &disk.files[self.file].seen;
        let bytes = seen.get(from..from + out.len()).ok_or(io::ErrorKind::UnexpectedEof)?;
        out.copy_from_slice(bytes);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut disk = self.medium.lock();
        disk.burn()?;
        let others = disk.len() - disk.files[self.file].seen.len();
        disk.room(others + len as usize)?;
        let file = &mut disk.files[self.file];
        file.seen.resize(len as usize, 0);
        file.unsynced.push(Change::Length(len as usize));
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut disk = self.medium.lock();
        disk.burn()?;
        disk.syncs += 1;
        if !disk.lies {
            let File { safe, unsynced, .. } = &mut disk.files[self.file];
            for change in unsynced.drain(..) {
                match change {
                    Change::Length(length) => safe.resize(length, 0),
                    Change::Write(from, bytes) => safe[from..from + bytes.len()].copy_from_slice(&bytes),
                }
            }
        }
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut disk = self.medium.lock();
        disk.burn()?;
        let (from, file) = (offset as usize, &mut disk.files[self.file]);
        let Some(place) = file.seen.get_mut(from..from + data.len()) else {
            return Err(io::ErrorKind::UnexpectedEof.into());
        };
        place.copy_from_slice(data);
        file.unsynced.push(Change::Write(from, data.to_vec()));
        Ok(())
    }
}
