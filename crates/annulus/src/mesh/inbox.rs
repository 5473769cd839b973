//! Messages for this node, each kept until it is accepted.

use std::collections::VecDeque;

use annulus_core::w3w::{Command, Event, Key, Mesh as Machine, Nid, Received, Reply};

use super::{Mesh, MeshError, payload_of};
use crate::channel::ServiceEvents;

/// The messages for this node, from [`Mesh::inbox`]. A second inbox of the node sees the same messages.
#[derive(Debug)]
pub struct MeshInbox {
    mesh: Mesh,
    events: ServiceEvents<Machine>,
    /// Lines of the inbox that were read and not given out.
    ready: VecDeque<Received>,
    /// The least number that was not read.
    next: u64,
}

impl MeshInbox {
    pub(super) fn open(mesh: Mesh) -> Self {
        let events = mesh.channel.events_where(|event| {
            matches!(event, Event::MessageReceived { .. } | Event::FileReceived { .. })
        });
        Self { mesh, events, ready: VecDeque::new(), next: 0 }
    }

    /// The next message; `None` once the node has ended. Cancelling this loses nothing.
    pub async fn next(&mut self) -> Option<Letter> {
        loop {
            while let Some(line) = self.ready.front().copied() {
                let letter = self.letter(line).await;
                self.ready.pop_front();
                match letter {
                    Ok(letter) => return Some(letter),
                    Err(MeshError::Stopped) => return None,
                    // It was accepted in the meantime, or its block is spoilt and gone.
                    Err(error) => tracing::debug!(number = line.number, %error, "a message is not there"),
                }
            }
            let Ok(Reply::Inbox(lines)) = self.mesh.command(Command::Inbox { from: self.next }).await else {
                return None;
            };
            match lines.last() {
                Some(last) => {
                    self.next = last.number + 1;
                    self.ready.extend(lines);
                }
                None => drop(self.events.next().await?),
            }
        }
    }

    async fn letter(&self, line: Received) -> Result<Letter, MeshError> {
        let data = if line.is_file {
            Vec::new()
        } else {
            match self.mesh.command(Command::Get { key: line.key }).await? {
                Reply::Block(data) => payload_of(&data).to_vec(),
                other => return Err(MeshError::refused(&other)),
            }
        };
        let Received { number, from, key, received_at, is_file, .. } = line;
        Ok(Letter { mesh: self.mesh.clone(), number, from, data, received_at, file: is_file.then_some(key) })
    }
}

/// A message for this node. It stays in the inbox until it is accepted: dropped without that, it is there again at the
/// next [`Mesh::inbox`], also after a restart.
#[derive(Debug)]
pub struct Letter {
    mesh: Mesh,
    number: u64,
    /// The sender. The mesh does not prove it.
    pub from: Nid,
    /// The bytes; empty for a file.
    pub data: Vec<u8>,
    /// When it came, in seconds since 1970.
    pub received_at: u64,
    /// The file that came; [`Mesh::read_block`] reads it.
    pub file: Option<Key>,
}

impl Letter {
    /// The name of the sender, if the address book has one.
    ///
    /// # Errors
    /// If the node has ended.
    pub async fn from_name(&self) -> Result<Option<String>, MeshError> {
        let Reply::Book(part) = self.mesh.command(Command::Book { from: Some(self.from) }).await? else {
            return Err(MeshError::Stopped);
        };
        let entry = part.into_iter().next().filter(|entry| entry.nid == self.from);
        Ok(entry.and_then(|entry| entry.names.into_iter().next()))
    }

    /// Removes the message from the inbox for good.
    ///
    /// # Errors
    /// [`MeshError::NoSuchMessage`] if it was accepted before.
    pub async fn accept(self) -> Result<(), MeshError> {
        match self.mesh.command(Command::Remove { number: self.number }).await? {
            Reply::Done => Ok(()),
            other => Err(MeshError::refused(&other)),
        }
    }
}
