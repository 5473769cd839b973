//! A disk for tests: it forgets what was not synced, and it can fail at any moment.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard};

use annulus_core::Rng;
use redb::StorageBackend;

use super::Store;

/// Disks lose power between sectors, not between writes.
const SECTOR_BYTES: usize = 512;

/// What survives the process: shared by all who open it.
#[derive(Clone, Debug, Default)]
pub(super) struct Medium {
    disk: Arc<Mutex<Disk>>,
}

#[derive(Debug, Default)]
struct Disk {
    /// What a loss of power leaves for certain.
    safe: Vec<u8>,
    /// What the running process sees.
    seen: Vec<u8>,
    /// The difference, in order.
    unsynced: Vec<Change>,
    /// After so many more operations the power is gone.
    fuse: Option<u32>,
    /// Says that everything is safe without doing anything.
    lies: bool,
    /// The disk is full at this size.
    bytes_max: Option<usize>,
    syncs: u64,
}

#[derive(Debug)]
enum Change {
    Write(usize, Vec<u8>),
    Length(usize),
}

impl Medium {
    /// As a driver is told of it.
    pub(super) fn store(&self) -> Store {
        let medium = self.clone();
        Store::Backend(Arc::new(move || Ok(Box::new(medium.clone()))))
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

    /// How much is on it.
    pub(super) fn len(&self) -> usize {
        self.lock().seen.len()
    }

    /// How often it was synced.
    pub(super) fn syncs(&self) -> u64 {
        self.lock().syncs
    }

    /// What is there when the power comes back: everything synced, and of the rest what chance left, by sectors.
    pub(super) fn after_power_loss(&self, rng: &mut Rng) -> Self {
        let mut disk = self.lock();
        disk.fuse = Some(0);
        let mut left = std::mem::take(&mut disk.safe);
        // Sometimes almost everything got there, sometimes almost nothing.
        let kept_percent = rng.below(101);
        for change in disk.unsynced.drain(..) {
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
        let disk = Disk { seen: left.clone(), safe: left, ..Disk::default() };
        Self { disk: Arc::new(Mutex::new(disk)) }
    }

    /// Another one with the same on it, all of it safe.
    pub(super) fn copy(&self) -> Self {
        let seen = self.lock().seen.clone();
        Self { disk: Arc::new(Mutex::new(Disk { safe: seen.clone(), seen, ..Disk::default() })) }
    }

    fn lock(&self) -> MutexGuard<'_, Disk> {
        self.disk.lock().expect("nothing panics while it holds the disk")
    }
}

impl Disk {
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

impl StorageBackend for Medium {
    fn len(&self) -> io::Result<u64> {
        Ok(self.lock().seen.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let mut disk = self.lock();
        disk.burn()?;
        let from = offset as usize;
        let bytes = disk.seen.get(from..from + out.len()).ok_or(io::ErrorKind::UnexpectedEof)?;
        out.copy_from_slice(bytes);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut disk = self.lock();
        disk.burn()?;
        disk.room(len as usize)?;
        disk.seen.resize(len as usize, 0);
        disk.unsynced.push(Change::Length(len as usize));
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut disk = self.lock();
        disk.burn()?;
        disk.syncs += 1;
        if !disk.lies {
            let Disk { safe, unsynced, .. } = &mut *disk;
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
        let mut disk = self.lock();
        disk.burn()?;
        let from = offset as usize;
        let Some(place) = disk.seen.get_mut(from..from + data.len()) else {
            return Err(io::ErrorKind::UnexpectedEof.into());
        };
        place.copy_from_slice(data);
        disk.unsynced.push(Change::Write(from, data.to_vec()));
        Ok(())
    }
}
