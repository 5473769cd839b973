//! Errors before a machine runs; each text says what to do next.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

/// The reason why a declared endpoint or store could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BindError {
    /// The port is taken.
    #[error("another process uses {at}: stop it or choose another port")]
    InUse {
        /// The endpoint.
        at: Place,
    },
    /// The system does not allow it.
    #[error("no permission to use {at}: choose a port of 1024 or above, or grant the right to bind it")]
    Denied {
        /// The endpoint.
        at: Place,
    },
    /// The address is not one of this machine.
    #[error("{} is not an address of this machine ({at}): choose one that `ip address` shows", at.address.ip())]
    NoSuchAddress {
        /// The endpoint.
        at: Place,
    },
    /// Too many files are open.
    #[error("too many open files to use {at}: raise the limit with `ulimit -n`")]
    TooManyFiles {
        /// The endpoint.
        at: Place,
    },
    /// Any other error of the system.
    #[error("cannot use {at}: {reason}")]
    Io {
        /// The endpoint.
        at: Place,
        /// The error of the system.
        reason: io::Error,
    },
    /// The store could not be opened.
    #[error(transparent)]
    Store(#[from] OpenError),
}

impl BindError {
    /// An error of the system while binding `at`, with its cure.
    pub(crate) fn new(at: Place, source: io::Error) -> Self {
        match source.kind() {
            io::ErrorKind::AddrInUse => Self::InUse { at },
            io::ErrorKind::PermissionDenied => Self::Denied { at },
            io::ErrorKind::AddrNotAvailable => Self::NoSuchAddress { at },
            _ if is_exhausted(&source) => Self::TooManyFiles { at },
            _ => Self::Io { at, reason: source },
        }
    }
}

/// The error of opening the store.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// Another process has it open.
    #[error("another process uses the store {}: stop it or choose another data directory", path.display())]
    InUse {
        /// Where it is.
        path: PathBuf,
    },
    /// It is not a store, or one that cannot be read.
    #[error("cannot open the store {}: {reason}; move it away to start with an empty one", path.display())]
    Unusable {
        /// Where it is.
        path: PathBuf,
        /// The error of the database.
        reason: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The system would not start a thread for it.
    #[error("cannot start the store's thread: {0}")]
    Thread(io::Error),
}

/// An endpoint, as people call it: `127.0.0.1:7946/udp (members/udp)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The name that the machine gave it.
    pub name: &'static str,
    /// Where it is.
    pub address: SocketAddr,
    /// `udp` or `tcp`.
    pub protocol: &'static str,
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{} ({})", self.address, self.protocol, self.name)
    }
}

/// Whether the system is out of a resource that others may release: descriptors, memory.
pub(crate) fn is_exhausted(error: &io::Error) -> bool {
    // EMFILE, ENFILE, ENOMEM and ENOBUFS have no common kind; their numbers are the same on every Linux, and
    // ENOBUFS is 55 on the BSDs.
    error.kind() == io::ErrorKind::OutOfMemory || matches!(error.raw_os_error(), Some(23 | 24 | 55 | 105))
}

/// Whether a datagram was larger than a datagram can be (EMSGSIZE, which has no kind).
pub(crate) fn is_oversize(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(40 | 90 | 10040))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(kind: io::ErrorKind) -> String {
        let at = Place { name: "members/udp", address: "127.0.0.1:7946".parse().unwrap(), protocol: "udp" };
        BindError::new(at, kind.into()).to_string()
    }

    #[test]
    fn errors_name_the_endpoint_and_a_remedy() {
        assert_eq!(
            text(io::ErrorKind::AddrInUse),
            "another process uses 127.0.0.1:7946/udp (members/udp): stop it or choose another port"
        );
        assert!(text(io::ErrorKind::PermissionDenied).contains("choose a port of 1024 or above"));
        assert!(text(io::ErrorKind::AddrNotAvailable).starts_with("127.0.0.1 is not an address"));
    }
}
