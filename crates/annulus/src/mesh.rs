//! Messages to nodes that may be offline, for applications.

mod error;
mod file;
mod inbox;

use std::path::Path;
use std::time::Duration;

use annulus_core::w3w::{
    self, BookEntry, Command, Event, FileStatus, Form, Key, Mesh as Machine, Nid, Peer, Reply, SentState,
    Status,
};

use crate::channel::{Channel, ServiceEvents};

pub use error::MeshError;
pub use file::FileSending;
pub use inbox::{Letter, MeshInbox};

/// The mesh of a node, from [`Node::mesh`](crate::Node::mesh). It is cheap to clone.
#[derive(Clone, Debug)]
pub struct Mesh {
    channel: Channel<Machine>,
}

/// A node as people or programs name it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Recipient {
    /// By its address in the mesh.
    Nid(Nid),
    /// By a name of the address book, which has the names of all members that were ever seen.
    Name(String),
}

impl From<Nid> for Recipient {
    fn from(nid: Nid) -> Self {
        Self::Nid(nid)
    }
}

impl From<&str> for Recipient {
    fn from(text: &str) -> Self {
        text.parse().map_or_else(|_| Self::Name(text.to_owned()), Self::Nid)
    }
}

impl From<String> for Recipient {
    fn from(text: String) -> Self {
        Self::from(text.as_str())
    }
}

impl From<&String> for Recipient {
    fn from(text: &String) -> Self {
        Self::from(text.as_str())
    }
}

impl Mesh {
    /// The view of a part of a node.
    pub(crate) const fn within(channel: Channel<Machine>) -> Self {
        Self { channel }
    }

    /// Sends bytes to a node that may be offline. Returns when they are on the disk of this node; [`Sent::delivered`]
    /// waits for the recipient's receipt.
    ///
    /// # Errors
    /// [`MeshError`] says why nothing was sent.
    pub async fn send(&self, to: impl Into<Recipient>, data: impl Into<Vec<u8>>) -> Result<Sent, MeshError> {
        self.send_within(to, data, None).await
    }

    /// The same with a lifetime: how long the message may wait for its recipient. `None` is `expiry` of the configuration.
    ///
    /// # Errors
    /// As [`Mesh::send`].
    pub async fn send_within(
        &self,
        to: impl Into<Recipient>,
        data: impl Into<Vec<u8>>,
        lifetime: Option<Duration>,
    ) -> Result<Sent, MeshError> {
        let to = self.resolve(to.into()).await?;
        let command = Command::SendLetter { to, data: data.into(), lifetime, certain: true, receipt: true };
        match self.command(command).await? {
            Reply::Sent { number, key, .. } => Ok(Sent { mesh: self.clone(), number, key, to }),
            other => Err(MeshError::refused(&other)),
        }
    }

    /// A message that was sent before, by its number in the outbox: also one of before a restart.
    ///
    /// # Errors
    /// [`MeshError::NoSuchMessage`] if the outbox has none with this number.
    pub async fn sent(&self, number: u64) -> Result<Sent, MeshError> {
        let line = self.line(number).await?;
        Ok(Sent { mesh: self.clone(), number, key: line.key, to: line.to })
    }

    /// Everything that this node sent, oldest first.
    ///
    /// # Errors
    /// If the node has ended.
    pub async fn outbox(&self) -> Result<Vec<w3w::Sent>, MeshError> {
        let (mut lines, mut from) = (Vec::new(), 0);
        loop {
            let Reply::Outbox(part) = self.command(Command::Outbox { from }).await? else {
                return Err(MeshError::Stopped);
            };
            let Some(last) = part.last() else { return Ok(lines) };
            from = last.number + 1;
            lines.extend(part);
        }
    }

    /// The messages for this node: those that are in the inbox, then each that comes. A message stays in the inbox until
    /// [`Letter::accept`].
    pub fn inbox(&self) -> MeshInbox {
        MeshInbox::open(self.clone())
    }

    /// Offers a file, and gives its blocks as the recipient asks for them: memory holds one of them. Dropping
    /// [`FileSending`] stops that; sending the same file again resumes where it stopped.
    ///
    /// # Errors
    /// If the file cannot be read or offered.
    pub async fn send_file(
        &self,
        to: impl Into<Recipient>,
        path: impl AsRef<Path>,
    ) -> Result<FileSending, MeshError> {
        let to = self.resolve(to.into()).await?;
        FileSending::offer(self.clone(), to, path.as_ref()).await
    }

    /// All files under way, and those that have come.
    ///
    /// # Errors
    /// If the node has ended.
    pub async fn files(&self) -> Result<Vec<FileStatus>, MeshError> {
        match self.command(Command::Files).await? {
            Reply::Files(files) => Ok(files),
            other => Err(MeshError::refused(&other)),
        }
    }

    /// One block of a file that has come.
    ///
    /// # Errors
    /// If there is no such file or block.
    pub async fn read_block(&self, file: Key, index: u32) -> Result<Vec<u8>, MeshError> {
        match self.command(Command::ReadBlock { file, index }).await? {
            Reply::Block(bytes) => Ok(bytes.to_vec()),
            other => Err(MeshError::refused(&other)),
        }
    }

    /// The nodes that this one is connected to.
    ///
    /// # Errors
    /// If the node has ended.
    pub async fn peers(&self) -> Result<Vec<Peer>, MeshError> {
        match self.command(Command::Peers).await? {
            Reply::Peers(peers) => Ok(peers),
            other => Err(MeshError::refused(&other)),
        }
    }

    /// The address book: every node that was ever seen, with its names.
    ///
    /// # Errors
    /// If the node has ended.
    pub async fn book(&self) -> Result<Vec<BookEntry>, MeshError> {
        let (mut entries, mut from) = (Vec::new(), None);
        loop {
            let Reply::Book(mut part) = self.command(Command::Book { from }).await? else {
                return Err(MeshError::Stopped);
            };
            // The first of a part is the last of the one before it.
            if from.is_some() && !part.is_empty() {
                part.remove(0);
            }
            let Some(last) = part.last().map(|entry| entry.nid) else { return Ok(entries) };
            entries.append(&mut part);
            from = Some(last);
        }
    }

    /// Gives a node a name.
    ///
    /// # Errors
    /// If the node has ended.
    pub async fn set_name(&self, name: impl Into<String>, nid: Nid) -> Result<(), MeshError> {
        let command = Command::SetName { name: name.into(), nid, knows_letters: true };
        match self.command(command).await? {
            Reply::Done => Ok(()),
            other => Err(MeshError::refused(&other)),
        }
    }

    /// The address of the node that is meant.
    ///
    /// # Errors
    /// [`MeshError::UnknownName`] or [`MeshError::AmbiguousName`].
    pub async fn resolve(&self, recipient: impl Into<Recipient>) -> Result<Nid, MeshError> {
        let name = match recipient.into() {
            Recipient::Nid(nid) => return Ok(nid),
            Recipient::Name(name) => name,
        };
        let Reply::Book(found) = self.command(Command::Lookup { name: name.clone() }).await? else {
            return Err(MeshError::Stopped);
        };
        match &found[..] {
            [one] => Ok(one.nid),
            [] => Err(MeshError::UnknownName(name)),
            several => {
                Err(MeshError::AmbiguousName { name, nids: several.iter().map(|entry| entry.nid).collect() })
            }
        }
    }

    /// The state of this node.
    ///
    /// # Errors
    /// If it has ended.
    pub async fn status(&self) -> Result<Status, MeshError> {
        match self.command(Command::Status).await? {
            Reply::Status(status) => Ok(*status),
            other => Err(MeshError::refused(&other)),
        }
    }

    /// Subscribes to the events of the mesh from here on.
    #[must_use]
    pub fn events(&self) -> ServiceEvents<Machine> {
        self.channel.events()
    }

    async fn line(&self, number: u64) -> Result<w3w::Sent, MeshError> {
        match self.command(Command::Outbox { from: number }).await? {
            Reply::Outbox(lines) => {
                lines.into_iter().find(|line| line.number == number).ok_or(MeshError::NoSuchMessage)
            }
            other => Err(MeshError::refused(&other)),
        }
    }

    async fn command(&self, command: Command) -> Result<Reply, MeshError> {
        Ok(self.channel.command(command).await?)
    }
}

/// The bytes that the sender of DATA wrote, without the form around them.
#[must_use]
pub fn payload_of(data: &[u8]) -> &[u8] {
    match w3w::read_form(data) {
        Form::Plain(payload) | Form::Ask { payload, .. } => payload,
        Form::Letter(letter) => letter.payload,
        _ => data,
    }
}

/// A message that is on the disk of this node and on its way. Dropping it changes nothing.
#[derive(Clone, Debug)]
pub struct Sent {
    mesh: Mesh,
    number: u64,
    key: Key,
    to: Nid,
}

impl Sent {
    /// Its number in the outbox; [`Mesh::sent`] finds it again.
    #[must_use]
    pub const fn number(&self) -> u64 {
        self.number
    }

    /// The key of its bytes.
    #[must_use]
    pub const fn key(&self) -> Key {
        self.key
    }

    /// The recipient.
    #[must_use]
    pub const fn to(&self) -> Nid {
        self.to
    }

    /// Its state, as far as this node knows.
    ///
    /// # Errors
    /// If the node has ended.
    pub async fn state(&self) -> Result<SentState, MeshError> {
        Ok(self.mesh.line(self.number).await?.state)
    }

    /// Waits for the receipt: the recipient has the message on its disk. This node may restart in between: see
    /// [`Mesh::sent`].
    ///
    /// # Errors
    /// [`MeshError::NotDelivered`] with the state, once that state is final.
    pub async fn delivered(&self) -> Result<(), MeshError> {
        let number = self.number;
        let mut events = self.mesh.channel.events_where(move |event| {
            matches!(event, Event::MessageConfirmed { number: of, .. } | Event::MessageStateChanged { number: of, .. } if *of == number)
        });
        loop {
            match self.state().await? {
                SentState::Delivered => return Ok(()),
                state if !state.is_open() => return Err(MeshError::NotDelivered(state)),
                _ => events.next().await.ok_or(MeshError::Stopped)?,
            };
        }
    }

    /// Withdraws it. Returns whether it certainly never left this node.
    ///
    /// # Errors
    /// [`MeshError::NotDelivered`] if its state is final.
    pub async fn cancel(&self) -> Result<bool, MeshError> {
        match self.mesh.command(Command::Cancel { number: self.number }).await? {
            Reply::Cancelled { is_certain } => Ok(is_certain),
            other => Err(MeshError::refused(&other)),
        }
    }
}
