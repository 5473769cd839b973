//! Many commands under way at once, and one task that takes their replies.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use annulus_core::Machine;

use crate::handle::{Asker, Handle, Stopped, TryCommandError};

/// A lane of commands, made by [`Handle::lane`]: for a program that keeps many commands under way without a task for
/// each.
///
/// ```no_run
/// # use annulus_core::Machine;
/// # async fn run<M: Machine>(handle: annulus_net::Handle<M>, commands: Vec<M::Command>) {
/// let mut lane = handle.lane(128);
/// for command in commands {
///     if !lane.has_room() {
///         let (number, reply) = lane.next().await.expect("some are under way");
///     }
///     let number = lane.give(command).await;
/// }
/// while let Some((number, reply)) = lane.next().await {}
/// # }
/// ```
pub struct Lane<M: Machine> {
    handle: Handle<M>,
    replies: Arc<Replies<M::Reply>>,
    /// Taken from the replies, not yet by the application.
    taken: VecDeque<Numbered<M::Reply>>,
    given: u64,
    under_way: usize,
    under_way_max: usize,
}

/// A reply and the number of its command.
type Numbered<R> = (u64, Result<R, Stopped>);

impl<M: Machine> Lane<M> {
    pub(crate) fn new(handle: Handle<M>, under_way_max: usize) -> Self {
        let (replies, taken) = (Arc::new(Replies::default()), VecDeque::new());
        Self { handle, replies, taken, given: 0, under_way: 0, under_way_max: under_way_max.max(1) }
    }

    /// Whether one more command may be given before a reply is taken.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.under_way < self.under_way_max
    }

    /// Gives a command; its reply will bear the number. If too many commands of others wait, this waits too.
    ///
    /// # Errors
    /// The command itself, if the lane is full (take a reply first) or the machine has ended.
    pub async fn give(&mut self, command: M::Command) -> Result<u64, TryCommandError<M::Command>> {
        if !self.has_room() {
            return Err(TryCommandError::Full(command));
        }
        let room = self.handle.room().await;
        let Some(room) = room else { return Err(TryCommandError::Stopped(command)) };
        let number = self.given;
        self.given += 1;
        self.under_way += 1;
        room.give(command, Asker::Lane(Due { replies: Arc::clone(&self.replies), number, is_open: true }));
        Ok(number)
    }

    /// The next reply, of whichever command has one; `None` if none is under way.
    pub async fn next(&mut self) -> Option<(u64, Result<M::Reply, Stopped>)> {
        std::future::poll_fn(|cx| self.poll_next(cx)).await
    }

    /// The same, for hand-written futures.
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Numbered<M::Reply>>> {
        if self.taken.is_empty() {
            if self.under_way == 0 {
                return Poll::Ready(None);
            }
            let mut waiting = self.replies.lock();
            if waiting.list.is_empty() {
                if waiting.task.as_ref().is_none_or(|task| !task.will_wake(cx.waker())) {
                    waiting.task = Some(cx.waker().clone());
                }
                return Poll::Pending;
            }
            std::mem::swap(&mut waiting.list, &mut self.taken);
        }
        self.under_way -= 1;
        Poll::Ready(self.taken.pop_front())
    }
}

impl<M: Machine> Drop for Lane<M> {
    fn drop(&mut self) {
        self.replies.lock().is_closed = true;
        // The driver may have let other commands wait for the replies of this dropped lane.
        self.handle.raise_commands();
    }
}

impl<M: Machine> fmt::Debug for Lane<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lane").field("under_way", &self.under_way).finish_non_exhaustive()
    }
}

/// The queue of a lane's replies. There are never more than its commands.
pub(crate) struct Replies<R> {
    waiting: Mutex<Waiting<R>>,
}

struct Waiting<R> {
    list: VecDeque<Numbered<R>>,
    task: Option<Waker>,
    is_closed: bool,
}

impl<R> Default for Replies<R> {
    fn default() -> Self {
        Self { waiting: Mutex::new(Waiting { list: VecDeque::new(), task: None, is_closed: false }) }
    }
}

impl<R> Replies<R> {
    fn push(&self, reply: Numbered<R>) {
        let task = {
            let mut waiting = self.lock();
            waiting.list.push_back(reply);
            // Only the first has to wake the task: it will take them all.
            if waiting.list.len() == 1 { waiting.task.take() } else { None }
        };
        if let Some(task) = task {
            task.wake();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Waiting<R>> {
        // Nothing in here can panic half-way, so a poisoned list is still whole.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An outstanding reply of a lane. If it is dropped before it is given, the lane learns that there will be none.
pub(crate) struct Due<R> {
    replies: Arc<Replies<R>>,
    number: u64,
    is_open: bool,
}

impl<R> Due<R> {
    pub(crate) fn give(mut self, reply: R) {
        self.is_open = false;
        self.replies.push((self.number, Ok(reply)));
    }

    /// Whether the lane was dropped.
    pub(crate) fn is_closed(&self) -> bool {
        self.replies.lock().is_closed
    }
}

impl<R> Drop for Due<R> {
    fn drop(&mut self) {
        if self.is_open {
            self.replies.push((self.number, Err(Stopped)));
        }
    }
}
