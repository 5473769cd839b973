//! The disk behind [`StoreOp`]: a database on its own thread, and the driver's client of it.
//!
//! A durable write takes milliseconds, so a thread does it: operations go to it through a bounded queue, and it sends
//! the answers. While the disk is busy with one group of writes the next one gathers, and one sync makes
//! all of it safe (group commit); see [`worker`]. `docs/store.md` describes the database and why it is redb.

#[cfg(feature = "disk")]
mod database;
#[cfg(feature = "disk")]
mod free;
#[cfg(any(test, not(feature = "disk")))]
mod memory;
#[cfg(feature = "disk")]
mod tables;
#[cfg(feature = "disk")]
mod unsynced;
#[cfg(feature = "disk")]
mod values;
mod worker;

#[cfg(test)]
#[cfg(feature = "disk")]
mod medium;
#[cfg(test)]
#[cfg(feature = "disk")]
mod tests;

use std::collections::VecDeque;
use std::fmt;
#[cfg(feature = "disk")]
use std::io;
#[cfg(feature = "disk")]
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::task::Poll;

use annulus_core::{OpId, Space, SpaceId, StoreFault, StoreOp, StoreReply, StoreResult};
use bytes::Bytes;
use tokio::sync::mpsc;

use crate::counters::DriverCounters;
use crate::error::OpenError;
use crate::ready::{Ready, Signal, Token};

#[cfg(feature = "disk")]
pub use redb::StorageBackend;

#[cfg(feature = "disk")]
use database::Database;
#[cfg(not(feature = "disk"))]
use memory::Memory as Database;

/// The most bytes in a page of a range, whatever number of entries was requested.
const PAGE_BYTES: usize = 1024 * 1024;

/// The place of the data that outlives a node.
#[derive(Clone, Default)]
#[non_exhaustive]
pub enum Store {
    /// Nowhere: it is forgotten with the node.
    #[default]
    Memory,
    /// In this file, created if it is not there. One process at a time. It needs the feature `disk`.
    #[cfg(feature = "disk")]
    File(PathBuf),
    /// On the medium that this makes: for tests, which lose unsynced writes. It needs the feature `disk`.
    #[cfg(feature = "disk")]
    Backend(Arc<MakeBackend>),
}

/// The two files of a store.
#[cfg(feature = "disk")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The database.
    Database,
    /// The values that are too large for it.
    Values,
}

/// Opens the medium of one file of a store; called again if the database has to be reopened after an error.
#[cfg(feature = "disk")]
pub type MakeBackend = dyn Fn(Part) -> io::Result<Box<dyn StorageBackend>> + Send + Sync;

impl Store {
    /// One value as the last run of a node left it, before any other use of this store. It makes no file.
    ///
    /// # Errors
    /// If there is a store and it cannot be opened or read.
    pub fn read(&self, space: &Space, key: &[u8]) -> Result<Option<Vec<u8>>, OpenError> {
        let there = match self {
            Self::Memory => false,
            #[cfg(feature = "disk")]
            Self::File(path) => path.exists(),
            #[cfg(feature = "disk")]
            Self::Backend(_) => true,
        };
        if !there {
            return Ok(None);
        }
        let mut database = Database::open(self, std::slice::from_ref(space))?;
        let work = Work::Get { space: space.id, key: key.to_vec() };
        match database.run(std::iter::once(&work)).pop() {
            Some(Outcome::Value(value)) => Ok(value),
            _ => Ok(None),
        }
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory => write!(f, "Memory"),
            #[cfg(feature = "disk")]
            Self::File(path) => write!(f, "File({})", path.display()),
            #[cfg(feature = "disk")]
            Self::Backend(_) => write!(f, "Backend"),
        }
    }
}

/// An operation on its way to the thread.
#[derive(Debug)]
pub(crate) struct Request {
    op: OpId,
    bytes: usize,
    work: Work,
}

/// Where, which key, and its new value; `None` deletes it.
pub(crate) type Change = (SpaceId, Vec<u8>, Option<Bytes>);

/// An operation: a [`StoreOp`] that owns its bytes.
#[derive(Debug)]
pub(crate) enum Work {
    Get { space: SpaceId, key: Vec<u8> },
    Page { space: SpaceId, from: Vec<u8>, until: Vec<u8>, entries_max: u32 },
    Write { changes: Vec<Change>, durable: bool },
}

impl Work {
    fn new(request: &StoreOp<'_>) -> Self {
        match *request {
            StoreOp::Get { space, key } => Self::Get { space, key: key.to_vec() },
            StoreOp::Page { space, from, until, entries_max } => {
                Self::Page { space, from: from.to_vec(), until: until.to_vec(), entries_max }
            }
            StoreOp::Write { batch, durable } => Self::Write {
                changes: (batch.iter())
                    .map(|change| {
                        (change.space, change.key.to_vec(), change.value.map(|value| value.to_bytes()))
                    })
                    .collect(),
                durable,
            },
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Self::Get { key, .. } => key.len(),
            Self::Page { from, until, .. } => from.len() + until.len(),
            Self::Write { changes, .. } => {
                changes.iter().map(|(_, key, value)| key.len() + value.as_ref().map_or(0, Bytes::len)).sum()
            }
        }
    }
}

/// An answer on its way back.
#[derive(Debug)]
pub(crate) struct Answer {
    op: OpId,
    outcome: Outcome,
}

/// The result of an operation: a [`StoreResult`] that owns its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Value(Option<Vec<u8>>),
    Page { entries: Vec<(Vec<u8>, Vec<u8>)>, more: bool },
    Written,
    Failed(StoreFault),
}

impl Answer {
    /// As the machine gets it.
    pub(crate) fn as_reply(&self) -> StoreReply<'_> {
        let result = match &self.outcome {
            Outcome::Value(value) => StoreResult::Value(value.as_deref()),
            Outcome::Page { entries, more } => StoreResult::Page { entries, more: *more },
            Outcome::Written => StoreResult::Written,
            Outcome::Failed(fault) => StoreResult::Failed(*fault),
        };
        StoreReply { op: self.op, result }
    }
}

/// The driver's end of the line.
#[derive(Debug)]
pub(crate) struct Client {
    /// Its waker.
    pub(crate) signal: Signal,
    line: Option<Line>,
    refused: VecDeque<Answer>,
    /// Operations under way with their size; they are answered in this order.
    waiting: VecDeque<(OpId, usize)>,
    waiting_bytes: usize,
    waiting_max: usize,
    bytes_max: usize,
}

#[derive(Debug)]
struct Line {
    /// `None` once it is closed from this end.
    requests: Option<SyncSender<Request>>,
    answers: mpsc::UnboundedReceiver<Answer>,
}

impl Client {
    /// Opens the store and starts its thread; neither is needed if no space was declared.
    pub(crate) fn open(
        store: &Store,
        spaces: &[Space],
        ops_max: usize,
        bytes_max: usize,
        ready: &Arc<Ready>,
    ) -> Result<Self, OpenError> {
        let line = if spaces.is_empty() {
            None
        } else {
            let database = Database::open(store, spaces)?;
            let (requests, inbox) = sync_channel(ops_max);
            // It holds at most one answer for each request, and those are counted on this end.
            let (outbox, answers) = mpsc::unbounded_channel();
            worker::start(database, inbox, outbox).map_err(OpenError::Thread)?;
            Some(Line { requests: Some(requests), answers })
        };
        Ok(Self {
            signal: Signal::new(ready, Token::Store),
            line,
            refused: VecDeque::new(),
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            waiting_max: ops_max,
            bytes_max,
        })
    }

    /// Sends an operation to the thread; the next [`Client::poll_answer`] answers an operation that the queue
    /// refused.
    pub(crate) fn ask(&mut self, op: OpId, request: &StoreOp<'_>, counters: &mut DriverCounters) {
        let Some(requests) = self.line.as_ref().and_then(|line| line.requests.as_ref()) else {
            tracing::error!(%op, "the machine used a store it did not declare, or after its end");
            self.refuse(op, StoreFault::Broken);
            return;
        };
        let (waiting, bytes) = (self.waiting.len(), self.waiting_bytes);
        let full = waiting >= self.waiting_max || (waiting > 0 && bytes > self.bytes_max);
        let work = Work::new(request);
        let bytes = work.bytes();
        let sent = if full { Err(StoreFault::Busy) } else { send(requests, Request { op, bytes, work }) };
        match sent {
            Ok(()) => {
                counters.store_ops += 1;
                self.waiting.push_back((op, bytes));
                self.waiting_bytes += bytes;
            }
            Err(fault) => {
                counters.store_ops_shed += 1;
                self.refuse(op, fault);
            }
        }
    }

    /// The next answer; `None` arms the signal.
    pub(crate) fn poll_answer(&mut self, counters: &mut DriverCounters) -> Option<Answer> {
        let answer = self.refused.pop_front().or_else(|| self.poll_line())?;
        if matches!(answer.outcome, Outcome::Failed(_)) {
            counters.store_ops_failed += 1;
        }
        Some(answer)
    }

    /// Makes the thread sync everything and end.
    pub(crate) fn close(&mut self) {
        if let Some(line) = &mut self.line {
            line.requests = None;
        }
    }

    /// Whether the thread has ended and the database is closed; arms the signal if not. Answers that still come are
    /// dropped.
    pub(crate) fn poll_closed(&mut self) -> bool {
        let Some(line) = &mut self.line else { return true };
        loop {
            match line.answers.poll_recv(&mut self.signal.context()) {
                Poll::Ready(Some(_)) => {}
                Poll::Ready(None) => return true,
                Poll::Pending => return false,
            }
        }
    }

    /// Whether every operation has been answered.
    pub(crate) fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.refused.is_empty()
    }

    fn poll_line(&mut self) -> Option<Answer> {
        let line = self.line.as_mut()?;
        let Poll::Ready(answer) = line.answers.poll_recv(&mut self.signal.context()) else { return None };
        let Some(answer) = answer else {
            // The thread has panicked. Operations that wait for it must not wait for ever.
            self.waiting_bytes = 0;
            while let Some((op, _)) = self.waiting.pop_front() {
                self.refuse(op, StoreFault::Broken);
            }
            return self.refused.pop_front();
        };
        if let Some((_, bytes)) = self.waiting.pop_front() {
            self.waiting_bytes -= bytes;
        }
        Some(answer)
    }

    fn refuse(&mut self, op: OpId, fault: StoreFault) {
        self.refused.push_back(Answer { op, outcome: Outcome::Failed(fault) });
        self.signal.raise();
    }
}

/// Makes the name of a new file safe: it is when the directory is. Not every system can sync one; then nothing more can be
/// done.
#[cfg(feature = "disk")]
fn sync_directory(path: &Path) {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    if let Ok(directory) = std::fs::File::open(directory.unwrap_or(Path::new("."))) {
        let _ = directory.sync_all();
    }
}

fn send(requests: &SyncSender<Request>, request: Request) -> Result<(), StoreFault> {
    requests.try_send(request).map_err(|error| match error {
        TrySendError::Full(_) => StoreFault::Busy,
        TrySendError::Disconnected(_) => StoreFault::Broken,
    })
}
