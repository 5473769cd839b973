//! Errors of the mesh.

use std::io;

use annulus_core::w3w::{Nid, Reply, SentState};
use annulus_net::Stopped;

/// The error of a [`Mesh`](super::Mesh) method.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MeshError {
    /// The address book has no such name.
    #[error("no node is known as {0:?}: wait until it was seen once, or name it with `set_name`")]
    UnknownName(String),
    /// Several nodes have the name.
    #[error("{} nodes are known as {name:?}: give the address of one, or choose with `set_name`", .nids.len())]
    AmbiguousName {
        /// The name.
        name: String,
        /// The nodes.
        nids: Vec<Nid>,
    },
    /// The same bytes are on their way to the same node.
    #[error("the same bytes were sent to the same node a short time ago: add something that differs")]
    Duplicate,
    /// Too many messages wait.
    #[error("too many messages wait: try again when some are gone")]
    QueueFull,
    /// The store is full of referenced blocks.
    #[error("the store is full: accept messages of the inbox, or raise `quota_bytes`")]
    QuotaFull,
    /// The message is too long.
    #[error("a message has at most {0} bytes: send it as a file")]
    TooLong(usize),
    /// The disk refused.
    #[error("the store could not keep it: check the disk of the data directory")]
    StoreFailed,
    /// There is no such message.
    #[error("there is no such message: it was accepted, or its line made room for others")]
    NoSuchMessage,
    /// There is no such file, or not all of it.
    #[error("there is no such file here, or it is not whole yet")]
    NoSuchFile,
    /// The bytes have changed.
    #[error("the bytes are not those that were offered: offer the file again")]
    Changed,
    /// The state of the message is final.
    #[error("the message is {0}: nothing more can become known of it")]
    NotDelivered(SentState),
    /// The file could not be read.
    #[error("the file cannot be read: {0}")]
    Io(#[from] io::Error),
    /// The node has ended.
    #[error("the node has ended: start it again")]
    Stopped,
}

impl From<Stopped> for MeshError {
    fn from(_: Stopped) -> Self {
        Self::Stopped
    }
}

impl MeshError {
    /// The error of a reply other than the wanted one.
    pub(super) fn refused(reply: &Reply) -> Self {
        match reply {
            Reply::Duplicate { .. } => Self::Duplicate,
            Reply::QueueFull => Self::QueueFull,
            Reply::QuotaFull => Self::QuotaFull,
            Reply::TooLong { data_bytes_max } => Self::TooLong(*data_bytes_max),
            Reply::StoreFailed { .. } => Self::StoreFailed,
            Reply::NoSuchMessage | Reply::NoSuchBlock => Self::NoSuchMessage,
            Reply::NoSuchFile => Self::NoSuchFile,
            Reply::WrongBlock | Reply::BadManifest | Reply::Corrupt { .. } => Self::Changed,
            Reply::NotOpen { state } => Self::NotDelivered(*state),
            _ => Self::Stopped,
        }
    }
}
