//! Files: hashed block by block, then given as the recipient asks for them.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::Duration;

use annulus_core::w3w::{
    Command, Event, FILE_BLOCKS_MAX, FileStatus, Key, Manifest, Mesh as Machine, Nid, Reply,
};
use tokio::task::spawn_blocking;

use super::{Mesh, MeshError, Sent};
use crate::channel::ServiceEvents;

/// The length of a block. The database stores a value in a power of two of bytes. With the form around it, a block of
/// one MiB would take two MiB.
const BLOCK_BYTES: usize = (1 << 20) - (1 << 12);
/// The pause when the node has too much to do.
const BUSY_PAUSE: Duration = Duration::from_millis(200);

/// A file on its way, from [`Mesh::send_file`]. Blocks go out while [`FileSending::progress`] or
/// [`FileSending::delivered`] is awaited.
#[derive(Debug)]
pub struct FileSending {
    mesh: Mesh,
    path: PathBuf,
    to: Nid,
    file: Key,
    number: Option<u64>,
    events: ServiceEvents<Machine>,
}

impl FileSending {
    pub(super) async fn offer(mesh: Mesh, to: Nid, path: &Path) -> Result<Self, MeshError> {
        let path = path.to_owned();
        let read = path.clone();
        let manifest = spawn_blocking(move || manifest(&read)).await.map_err(io::Error::other)??;
        // Listening begins first, so that nothing is wanted unseen.
        let events = mesh.channel.events_where(move |event| {
            matches!(event,
                Event::BlockWanted { to: of, .. } | Event::FileProgressed { to: of, .. }
                | Event::FileDelivered { to: of, .. } | Event::FileGivenUp { peer: of, .. } if *of == to)
        });
        match mesh.command(Command::OfferFile { to, manifest }).await? {
            Reply::Offered { file, number } => Ok(Self { mesh, path, to, file, number, events }),
            other => Err(MeshError::refused(&other)),
        }
    }

    /// The key of the file.
    #[must_use]
    pub const fn key(&self) -> Key {
        self.file
    }

    /// Gives the wanted blocks, and returns the progress each time it changes; `None` when the file is no longer under
    /// way. Cancelling this loses nothing.
    ///
    /// # Errors
    /// If the file cannot be read, or has changed.
    pub async fn progress(&mut self) -> Result<Option<FileStatus>, MeshError> {
        loop {
            let status = match self.mesh.command(Command::File { file: self.file, to: Some(self.to) }).await?
            {
                Reply::File(status) => status,
                Reply::NoSuchFile => return Ok(None),
                other => return Err(MeshError::refused(&other)),
            };
            if status.wanted.is_empty() {
                self.events.next().await.ok_or(MeshError::Stopped)?;
                continue;
            }
            for index in &status.wanted {
                if !self.supply(*index).await? {
                    break;
                }
            }
            return Ok(Some(*status));
        }
    }

    /// Waits until the recipient has all of it.
    ///
    /// # Errors
    /// [`MeshError::NotDelivered`] if the transfer was abandoned.
    pub async fn delivered(mut self) -> Result<(), MeshError> {
        while self.progress().await?.is_some() {}
        let Some(number) = self.number else { return Err(MeshError::NoSuchFile) };
        Sent { mesh: self.mesh, number, key: self.file, to: self.to }.delivered().await
    }

    /// Gives one block; false if the node has too much to do, or wants it no longer.
    async fn supply(&self, index: u32) -> Result<bool, MeshError> {
        let path = self.path.clone();
        let bytes = spawn_blocking(move || block(&path, index)).await.map_err(io::Error::other)??;
        let (to, file) = (self.to, self.file);
        match self.mesh.command(Command::Supply { to, file, index, bytes }).await? {
            Reply::Done => Ok(true),
            Reply::QueueFull => {
                tokio::time::sleep(BUSY_PAUSE).await;
                Ok(false)
            }
            Reply::NoSuchFile => Ok(false),
            other => Err(MeshError::refused(&other)),
        }
    }
}

/// The blocks of a file with their hashes.
fn manifest(path: &Path) -> io::Result<Manifest> {
    let mut file = File::open(path)?;
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let (mut size, mut blocks) = (0, Vec::new());
    loop {
        let bytes = fill(&mut file)?;
        if bytes.is_empty() {
            return Ok(Manifest { name, size, block_bytes: BLOCK_BYTES as u32, blocks });
        }
        if blocks.len() == FILE_BLOCKS_MAX {
            return Err(io::Error::new(
                io::ErrorKind::FileTooLarge,
                "the file has too many blocks: split it",
            ));
        }
        size += bytes.len() as u64;
        blocks.push(Key::of(&bytes));
    }
}

fn block(path: &Path, index: u32) -> io::Result<Vec<u8>> {
    let mut file = File::open(path)?;
    file.seek(SeekFrom::Start(u64::from(index) * BLOCK_BYTES as u64))?;
    fill(&mut file)
}

/// Reads until the block is full or the file ends.
fn fill(file: &mut File) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(BLOCK_BYTES as u64).read_to_end(&mut bytes)?;
    Ok(bytes)
}
