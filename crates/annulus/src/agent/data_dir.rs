//! The data directory: a lock, the identity, the store. Or none, for a node that is new at each start.

use std::fmt::Display;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use annulus_net::Store;
use anyhow::{Context as _, bail};

use super::identity::Identity;

/// Where a node keeps what it must not forget. It is locked as long as this lives.
#[derive(Debug)]
pub(crate) struct DataDir {
    /// Who the node is.
    pub(crate) identity: Identity,
    path: Option<PathBuf>,
    _lock: Option<File>,
}

impl DataDir {
    /// Opens the directory, making it and the identity on first use.
    pub(crate) fn open(path: Option<&Path>) -> anyhow::Result<Self> {
        let Some(path) = path else {
            return Ok(Self { identity: Identity::random(), path: None, _lock: None });
        };
        let shown = path.display();
        fs::create_dir_all(path).with_context(|| {
            format!("cannot make the data directory {shown}; choose another with --data-dir")
        })?;
        let lock = lock(path)?;
        let identity = identity(path)?;
        Ok(Self { identity, path: Some(path.into()), _lock: Some(lock) })
    }

    /// Where it is, if there is one.
    pub(crate) fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// Where the store of this node is.
    pub(crate) fn store(&self) -> Store {
        self.path.as_ref().map_or(Store::Memory, |path| Store::File(path.join("store.redb")))
    }
}

/// Takes the lock. The system drops it with the process, however that ends, so a `kill -9` leaves nothing to clean.
fn lock(path: &Path) -> anyhow::Result<File> {
    let file = path.join("lock");
    let lock =
        OpenOptions::new().create(true).truncate(false).write(true).open(&file).with_context(|| {
            format!(
                "cannot write to the data directory {}; check its owner, or choose another with --data-dir",
                path.display()
            )
        })?;
    match lock.try_lock() {
        Ok(()) => Ok(lock),
        Err(fs::TryLockError::WouldBlock) => bail!(
            "another agent uses the data directory {}: stop it, or give this one its own with --data-dir",
            path.display()
        ),
        Err(fs::TryLockError::Error(error)) => {
            Err(error).with_context(|| format!("cannot lock {}", file.display()))
        }
    }
}

fn identity(path: &Path) -> anyhow::Result<Identity> {
    let file = path.join("identity");
    match fs::read(&file) {
        Ok(bytes) => str::from_utf8(&bytes).ok().and_then(Identity::parse).with_context(|| {
            format!("{} holds no UUID: restore it, or remove it to become a new node", file.display())
        }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let identity = Identity::random();
            replace(path, &file, &identity.text())
                .with_context(|| format!("cannot write {}; check the directory's owner", file.display()))?;
            Ok(identity)
        }
        Err(error) => Err(error).with_context(|| format!("cannot read {}; check its owner", file.display())),
    }
}

/// Writes a file so that a crash leaves either what was there or all that is new, for the owner only.
pub(super) fn replace(dir: &Path, file: &Path, text: &str) -> io::Result<()> {
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

/// What a file says; `None` if there is none. One that cannot be understood is set aside: whoever wrote it can mend it,
/// and the node starts without it.
pub(super) fn read_or_set_aside<T, E: Display>(
    file: &Path,
    parse: impl FnOnce(&str) -> Result<T, E>,
) -> Option<T> {
    let text = match fs::read_to_string(file) {
        Ok(text) => text,
        Err(error) => {
            if error.kind() != io::ErrorKind::NotFound {
                tracing::warn!(file = %file.display(), %error, "cannot read it; starting without");
            }
            return None;
        }
    };
    match parse(&text) {
        Ok(said) => Some(said),
        Err(error) => {
            let aside = file.with_extension("bad");
            let moved = fs::rename(file, &aside).is_ok();
            let file = file.display();
            tracing::warn!(%file, %error, aside = %aside.display(), moved, "it is spoilt and set aside; starting without");
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_identity_is_made_once_and_kept() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("deep/inside");
        let first = DataDir::open(Some(&path)).unwrap();
        let busy = DataDir::open(Some(&path)).unwrap_err().to_string();
        assert!(busy.contains("another agent uses the data directory"), "{busy}");
        let identity = first.identity;
        drop(first);
        assert_eq!(DataDir::open(Some(&path)).unwrap().identity, identity);
    }

    #[test]
    fn a_spoilt_identity_is_not_replaced() {
        let dir = tempfile::tempdir().unwrap();
        for spoilt in [&b"not a uuid"[..], b"\xff\xfe"] {
            fs::write(dir.path().join("identity"), spoilt).unwrap();
            let error = DataDir::open(Some(dir.path())).unwrap_err().to_string();
            assert!(error.contains("holds no UUID"), "{error}");
            assert_eq!(fs::read(dir.path().join("identity")).unwrap(), spoilt);
        }
    }

    #[test]
    fn without_a_directory_a_node_is_new_each_time() {
        assert_ne!(DataDir::open(None).unwrap().identity, DataDir::open(None).unwrap().identity);
    }
}
