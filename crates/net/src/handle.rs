//! The application's side of a running machine.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use annulus_core::{Bound, Machine};
use tokio::sync::{mpsc, oneshot, watch};

use crate::counters::Counters;
use crate::events::{Events, Subscribers};
use crate::lane::{Due, Lane};
use crate::ready::Signal;

/// A running machine: give it commands, subscribe to its events, read its counters, stop it.
///
/// Handles are cheap to clone. When the last is dropped the machine stops as by [`Handle::stop`].
pub struct Handle<M: Machine> {
    commands: mpsc::Sender<Ask<M>>,
    counters: mpsc::Sender<oneshot::Sender<Counters>>,
    shared: Arc<Shared<M>>,
    ended: watch::Receiver<Option<Ended>>,
    alive: Arc<Alive>,
}

impl<M: Machine> Handle<M> {
    pub(crate) fn new(
        commands: mpsc::Sender<Ask<M>>,
        counters: mpsc::Sender<oneshot::Sender<Counters>>,
        shared: Arc<Shared<M>>,
        ended: watch::Receiver<Option<Ended>>,
        wish: Arc<Wish>,
    ) -> Self {
        Self { commands, counters, shared, ended, alive: Arc::new(Alive(wish)) }
    }

    /// Gives a command and waits for its reply. If too many commands wait, this waits too.
    ///
    /// # Errors
    /// If the machine has ended before it replied. The command may have had its effect.
    pub async fn command(&self, command: M::Command) -> Result<M::Reply, Stopped> {
        let room = self.room().await.ok_or(Stopped)?;
        let (reply, answer) = oneshot::channel();
        room.give(command, Asker::One(reply));
        self.pending(answer).reply().await
    }

    /// Gives a command whose reply nobody reads. If too many commands wait, this waits too.
    ///
    /// # Errors
    /// If the machine has ended.
    pub async fn give(&self, command: M::Command) -> Result<(), Stopped> {
        self.room().await.ok_or(Stopped)?.give(command, Asker::Nobody);
        Ok(())
    }

    /// Gives a command only if it need not wait for others; the reply comes as before.
    ///
    /// # Errors
    /// The command itself, if too many wait or the machine has ended.
    pub fn try_command(&self, command: M::Command) -> Result<Pending<M>, TryCommandError<M::Command>> {
        match self.commands.try_reserve() {
            Ok(room) => {
                let (reply, answer) = oneshot::channel();
                Room(room).give(command, Asker::One(reply));
                Ok(self.pending(answer))
            }
            Err(mpsc::error::TrySendError::Full(())) => Err(TryCommandError::Full(command)),
            Err(mpsc::error::TrySendError::Closed(())) => Err(TryCommandError::Stopped(command)),
        }
    }

    /// A lane for up to so many commands under way at once.
    #[must_use]
    pub fn lane(&self, under_way_max: usize) -> Lane<M> {
        Lane::new(self.clone(), under_way_max)
    }

    /// Subscribes to the events from here on.
    #[must_use]
    pub fn events(&self) -> Events<M> {
        self.shared.subscribers.subscribe(None)
    }

    /// Subscribes to the wanted events from here on; others take no room in the queue. The driver calls `wanted` for every
    /// event: it should be quick, and must not use this handle.
    #[must_use]
    pub fn events_where(&self, wanted: impl Fn(&M::Event) -> bool + Send + 'static) -> Events<M> {
        self.shared.subscribers.subscribe(Some(Box::new(wanted)))
    }

    /// The same, but no event is left out: the queue has no limit. Use it only for events that the machine bounds itself,
    /// because it waits for an answer to each and makes no more than so many at a time.
    #[must_use]
    pub fn every_event_where(&self, wanted: impl Fn(&M::Event) -> bool + Send + 'static) -> Events<M> {
        self.shared.subscribers.subscribe_to_every(Box::new(wanted))
    }

    /// The bound addresses of the machine's sockets and listeners.
    #[must_use]
    pub fn bound(&self) -> &Bound {
        &self.shared.bound
    }

    /// The counters of driver and machine so far.
    ///
    /// # Errors
    /// If the machine has ended.
    pub async fn counters(&self) -> Result<Counters, Stopped> {
        let (reply, answer) = oneshot::channel();
        self.counters.send(reply).await.map_err(|_| Stopped)?;
        answer.await.map_err(|_| Stopped)
    }

    /// Stops the machine and waits for its end. Within the grace period the machine takes its leave, written bytes go
    /// out, and the store is synced and closed. Afterwards its ports and its store are free.
    pub async fn stop(&self) -> Ended {
        self.begin_stop();
        self.ended().await
    }

    /// Requests a stop and does not wait for the end.
    pub fn begin_stop(&self) {
        self.alive.0.make(Wish::STOP);
    }

    /// Ends the machine at once, as a crash would: it gets no `handle_stop`. [`Handle::ended`] resolves when ports and
    /// store are free.
    pub fn abort(&self) {
        self.alive.0.make(Wish::ABORT);
    }

    /// Waits for the end, however it comes.
    pub async fn ended(&self) -> Ended {
        let mut ended = self.ended.clone();
        // It fails only if the driver was dropped without a word: with its runtime, or by a panic of the machine.
        ended.wait_for(Option::is_some).await.ok().and_then(|ended| *ended).unwrap_or(Ended::Dropped)
    }

    /// Room for one more command; `None` if the machine has ended.
    pub(crate) async fn room(&self) -> Option<Room<'_, M>> {
        match self.commands.try_reserve() {
            Ok(room) => Some(Room(room)),
            Err(mpsc::error::TrySendError::Full(())) => self.commands.reserve().await.ok().map(Room),
            Err(mpsc::error::TrySendError::Closed(())) => None,
        }
    }

    /// Makes the driver check its waiting commands again.
    pub(crate) fn raise_commands(&self) {
        self.shared.commands.raise();
    }

    fn pending(&self, answer: oneshot::Receiver<M::Reply>) -> Pending<M> {
        Pending { answer, given_up: Some(self.shared.commands.clone()) }
    }
}

impl<M: Machine> Clone for Handle<M> {
    fn clone(&self) -> Self {
        Self {
            commands: self.commands.clone(),
            counters: self.counters.clone(),
            shared: Arc::clone(&self.shared),
            ended: self.ended.clone(),
            alive: Arc::clone(&self.alive),
        }
    }
}

impl<M: Machine> fmt::Debug for Handle<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle").field("bound", &self.shared.bound).finish_non_exhaustive()
    }
}

/// The end of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ended {
    /// As it wished, after [`Handle::stop`].
    Stopped,
    /// After [`Handle::stop`], but it or its peers took longer than the grace period.
    GraceOver,
    /// By [`Handle::abort`].
    Aborted,
    /// Its driver was dropped: with the runtime, or because the machine panicked.
    Dropped,
}

/// The machine has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the machine has ended: start it again")]
pub struct Stopped;

/// The reason why a command was not taken, with the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TryCommandError<C> {
    /// Too many wait.
    #[error("too many commands wait: try again later")]
    Full(C),
    /// The machine has ended.
    #[error("the machine has ended: start it again")]
    Stopped(C),
}

/// A reply on its way, from [`Handle::try_command`].
#[derive(Debug)]
pub struct Pending<M: Machine> {
    answer: oneshot::Receiver<M::Reply>,
    /// Raised when the caller dropped the reply: the driver may have let other commands wait for this one.
    given_up: Option<Signal>,
}

impl<M: Machine> Pending<M> {
    /// Waits for it.
    ///
    /// # Errors
    /// If the machine has ended before it replied.
    pub async fn reply(mut self) -> Result<M::Reply, Stopped> {
        let reply = (&mut self.answer).await.map_err(|_| Stopped);
        self.given_up = None;
        reply
    }
}

impl<M: Machine> Drop for Pending<M> {
    fn drop(&mut self) {
        if let Some(commands) = self.given_up.take() {
            self.answer.close();
            commands.raise();
        }
    }
}

/// A command on its way, and the channel for its reply.
pub(crate) struct Ask<M: Machine> {
    pub(crate) command: M::Command,
    pub(crate) asker: Asker<M::Reply>,
}

/// Room for a command.
pub(crate) struct Room<'a, M: Machine>(mpsc::Permit<'a, Ask<M>>);

impl<M: Machine> Room<'_, M> {
    pub(crate) fn give(self, command: M::Command, asker: Asker<M::Reply>) {
        self.0.send(Ask { command, asker });
    }
}

/// The receiver of a reply.
pub(crate) enum Asker<R> {
    /// A caller that waits for this reply.
    One(oneshot::Sender<R>),
    /// A lane, which waits for many replies.
    Lane(Due<R>),
    /// No receiver.
    Nobody,
}

impl<R> Asker<R> {
    /// Gives the reply; the caller may not wait any more.
    pub(crate) fn give(self, reply: R) {
        match self {
            Self::One(asker) => drop(asker.send(reply)),
            Self::Lane(due) => due.give(reply),
            Self::Nobody => {}
        }
    }

    /// Whether the caller dropped the reply.
    pub(crate) fn is_closed(&self) -> bool {
        match self {
            Self::One(asker) => asker.is_closed(),
            Self::Lane(due) => due.is_closed(),
            Self::Nobody => true,
        }
    }
}

/// The state that handles and driver share.
#[derive(Debug)]
pub(crate) struct Shared<M: Machine> {
    /// The waker of the commands.
    pub(crate) commands: Signal,
    pub(crate) bound: Bound,
    pub(crate) subscribers: Subscribers<M>,
}

/// The application's request to stop or abort. It needs no queue, so it works even if all queues are full.
#[derive(Debug)]
pub(crate) struct Wish {
    wish: AtomicU8,
    signal: Signal,
}

impl Wish {
    const STOP: u8 = 1;
    const ABORT: u8 = 2;

    pub(crate) fn new(signal: Signal) -> Self {
        Self { wish: AtomicU8::new(0), signal }
    }

    /// Whether it is to stop, at once or otherwise.
    pub(crate) fn is_stop(&self) -> bool {
        self.wish.load(Ordering::Acquire) >= Self::STOP
    }

    /// Whether it is to stop at once.
    pub(crate) fn is_abort(&self) -> bool {
        self.wish.load(Ordering::Acquire) >= Self::ABORT
    }

    fn make(&self, wish: u8) {
        self.wish.fetch_max(wish, Ordering::AcqRel);
        self.signal.raise();
    }
}

/// Lives as long as any handle.
#[derive(Debug)]
struct Alive(Arc<Wish>);

impl Drop for Alive {
    fn drop(&mut self) {
        self.0.make(Wish::STOP);
    }
}
