//! The data directory of a node: a lock, the identity, the store. A node without one is new at each start.

use std::fmt::{self, Display};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use annulus_net::Store;

use crate::identity::Identity;

/// An open data directory. Its lock is held until this is dropped.
#[derive(Debug)]
pub struct DataDir {
    identity: Identity,
    path: Option<PathBuf>,
    _lock: Option<File>,
}

impl DataDir {
    /// Opens the directory. The first use makes it and the identity. It needs the feature `disk`.
    ///
    /// # Errors
    /// If the directory cannot be made, written or locked, or if its identity is no UUID.
    #[cfg(feature = "disk")]
    pub fn open(path: &Path) -> Result<Self, DataDirError> {
        fs::create_dir_all(path).map_err(DataDirError::at(path, Problem::Make))?;
        let lock = lock(path)?;
        let identity = identity(path)?;
        Ok(Self { identity, path: Some(path.into()), _lock: Some(lock) })
    }

    /// A node without a directory: it gets a new identity and keeps nothing.
    #[must_use]
    pub fn none() -> Self {
        Self { identity: Identity::random(), path: None, _lock: None }
    }

    /// The identity of the node.
    #[must_use]
    pub const fn identity(&self) -> Identity {
        self.identity
    }

    /// The path, if there is a directory.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// The place of the node's store.
    #[must_use]
    pub fn store(&self) -> Store {
        #[cfg(feature = "disk")]
        if let Some(path) = &self.path {
            return Store::File(path.join("store.redb"));
        }
        Store::Memory
    }
}

/// The error of an unusable data directory.
#[derive(Debug, thiserror::Error)]
#[error("{problem} {}{}", path.display(), cause.as_ref().map_or_else(String::new, |error| format!(": {error}")))]
pub struct DataDirError {
    /// The directory or the file that is concerned.
    pub path: PathBuf,
    /// The operation that failed.
    pub problem: Problem,
    /// The error of the system, if there is one.
    #[source]
    pub cause: Option<io::Error>,
}

#[cfg(feature = "disk")]
impl DataDirError {
    fn at(path: &Path, problem: Problem) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |error| Self { path, problem, cause: Some(error) }
    }
}

/// The operation on a data directory that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Problem {
    /// The directory cannot be made.
    Make,
    /// The directory cannot be written to.
    Write,
    /// Another process uses it.
    InUse,
    /// The lock cannot be taken.
    Lock,
    /// The identity cannot be read.
    Read,
    /// The identity is no UUID.
    BadIdentity,
}

impl Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Make => "cannot make the data directory",
            Self::Write => "cannot write to the data directory",
            Self::InUse => "another node uses the data directory",
            Self::Lock => "cannot lock",
            Self::Read => "cannot read",
            Self::BadIdentity => {
                "restore the identity, or remove it to become a new node; there is no UUID in"
            }
        })
    }
}

/// Takes the lock. The system drops it with the process, however that ends, so a `kill -9` leaves nothing to clean.
#[cfg(feature = "disk")]
fn lock(path: &Path) -> Result<File, DataDirError> {
    let file = path.join("lock");
    let lock = OpenOptions::new().create(true).truncate(false).write(true).open(&file);
    let lock = lock.map_err(DataDirError::at(path, Problem::Write))?;
    match lock.try_lock() {
        Ok(()) => Ok(lock),
        Err(fs::TryLockError::WouldBlock) => {
            Err(DataDirError { path: path.to_owned(), problem: Problem::InUse, cause: None })
        }
        Err(fs::TryLockError::Error(error)) => Err(DataDirError::at(&file, Problem::Lock)(error)),
    }
}

#[cfg(feature = "disk")]
fn identity(path: &Path) -> Result<Identity, DataDirError> {
    let file = path.join("identity");
    match fs::read(&file) {
        Ok(bytes) => str::from_utf8(&bytes).ok().and_then(Identity::parse).ok_or(DataDirError {
            path: file,
            problem: Problem::BadIdentity,
            cause: None,
        }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let identity = Identity::random();
            replace(path, &file, &identity.text()).map_err(DataDirError::at(path, Problem::Write))?;
            Ok(identity)
        }
        Err(error) => Err(DataDirError::at(&file, Problem::Read)(error)),
    }
}

/// Replaces a file, readable for its owner only. After a crash the file has the old text or the new one, whole.
pub(crate) fn replace(dir: &Path, file: &Path, text: &str) -> io::Result<()> {
    let draft = file.with_extension("new");
    let mut options = OpenOptions::new();
    options.create(true).truncate(true).write(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut writer = options.open(&draft)?;
    writer.write_all(text.as_bytes())?;
    writer.sync_all()?;
    fs::rename(&draft, file)?;
    File::open(dir)?.sync_all()
}

/// Reads a file; `None` if there is none. A file that cannot be parsed is renamed to `.bad`, so that a person can mend it.
pub(crate) fn read_or_set_aside<T, E: Display>(
    file: &Path,
    parse: impl FnOnce(&str) -> Result<T, E>,
) -> Option<T> {
    let text = match fs::read_to_string(file) {
        Ok(text) => text,
        Err(error) => {
            if error.kind() != io::ErrorKind::NotFound {
                tracing::warn!(file = %file.display(), %error, "cannot read the file; starting without it");
            }
            return None;
        }
    };
    match parse(&text) {
        Ok(parsed) => Some(parsed),
        Err(error) => {
            let aside = file.with_extension("bad");
            let moved = fs::rename(file, &aside).is_ok();
            let file = file.display();
            tracing::warn!(%file, %error, aside = %aside.display(), moved, "the file is damaged and set aside; starting without it");
            None
        }
    }
}

#[cfg(test)]
#[cfg(feature = "disk")]
mod tests {
    use super::*;

    #[test]
    fn the_identity_is_made_once_and_kept() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("deep/inside");
        let first = DataDir::open(&path).unwrap();
        let busy = DataDir::open(&path).unwrap_err().to_string();
        assert!(busy.contains("another node uses the data directory"), "{busy}");
        let identity = first.identity;
        drop(first);
        assert_eq!(DataDir::open(&path).unwrap().identity, identity);
    }

    #[test]
    fn a_spoilt_identity_is_not_replaced() {
        let dir = tempfile::tempdir().unwrap();
        for spoilt in [&b"not a uuid"[..], b"\xff\xfe"] {
            fs::write(dir.path().join("identity"), spoilt).unwrap();
            let error = DataDir::open(dir.path()).unwrap_err().to_string();
            assert!(error.contains("there is no UUID in"), "{error}");
            assert_eq!(fs::read(dir.path().join("identity")).unwrap(), spoilt);
        }
    }

    #[test]
    fn without_a_directory_a_node_is_new_each_time() {
        assert_ne!(DataDir::none().identity, DataDir::none().identity);
    }
}
