//! Serving an application: a bounded number of handlers at work, a bounded number of messages that wait for one.

use std::collections::{HashMap, VecDeque};
use std::future::IntoFuture;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use annulus_core::Id;
use annulus_core::pastry::{AppName, Command, Contact, MessageId, Pastry, Verdict};
use tokio::task::{AbortHandle, JoinSet};

use super::{Registration, RouteError, arrivals, request};
use crate::channel::{Channel, ServiceEvents};

/// The retry delay for a sender whose message exceeds `waiting`.
const BUSY_AFTER: Duration = Duration::from_millis(100);
/// The reason that the sender gets if the handler panicked.
const PANICKED: &str = "the handler panicked";
/// The most verdicts that one command settles.
const SETTLED_TOGETHER: usize = 64;
/// A handler that runs for longer before it first waits is not quick.
const QUICK_MAX: Duration = Duration::from_micros(100);
/// How many handlers begin in tasks of their own after one that was not quick.
const APART: u32 = 64;
/// Answers longer than this are not remembered: the handler is called again.
const REMEMBERED_BYTES_MAX: usize = 1024;

/// The limits of a [`Server`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The most handlers that run at once.
    pub workers: usize,
    /// The most messages that wait for a handler. The sender of one more gets `Busy` and retries.
    pub waiting: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { workers: 64, waiting: 256 }
    }
}

/// A message, as a handler gets it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Its number, the same for all attempts.
    pub id: MessageId,
    /// The number of the attempt, from 0. A later one may repeat a message that the handler has seen.
    pub attempt: u16,
    /// The sender.
    pub origin: Contact,
    /// Its key.
    pub key: Id,
    /// The bytes.
    pub payload: Vec<u8>,
    /// The number of hops.
    pub hops: u8,
    /// Whether the sender waits for an answer.
    pub wants_answer: bool,
}

/// A server that has not started, from [`Router::serve`](super::Router::serve). Awaiting it starts it.
#[derive(Debug)]
pub struct Serve<H> {
    channel: Channel<Pastry>,
    app: AppName,
    limits: Limits,
    remembered_max: usize,
    handler: H,
}

impl<H> Serve<H> {
    pub(super) fn new(channel: Channel<Pastry>, app: AppName, limits: Limits, handler: H) -> Self {
        Self { channel, app, limits, remembered_max: 0, handler }
    }

    /// Remembers the verdicts on this many messages. The handler then runs once for each message id, as long as this
    /// server lives. A retransmission gets the first verdict.
    #[must_use]
    pub fn remember(mut self, messages_max: usize) -> Self {
        self.remembered_max = messages_max;
        self
    }
}

impl<H, F> IntoFuture for Serve<H>
where
    H: Fn(Request) -> F + Send + Sync + 'static,
    F: Future<Output = Verdict> + Send + 'static,
{
    type Output = Result<Server, RouteError>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let events = arrivals(&self.channel, &self.app);
            let registration = Registration::new(self.channel.clone(), self.app).await?;
            let work = Work {
                channel: self.channel,
                limits: self.limits,
                handler: Arc::new(self.handler),
                waiting: VecDeque::new(),
                running: JoinSet::new(),
                ids: HashMap::new(),
                apart: 0,
                settled: Vec::new(),
                remembered: Remembered::new(self.remembered_max),
            };
            let task = tokio::spawn(work.run(events)).abort_handle();
            Ok(Server { task, _registration: registration })
        })
    }
}

/// A running server. Dropping it ends the service; senders of messages that a handler still works on get `Lost`.
#[derive(Debug)]
pub struct Server {
    task: AbortHandle,
    _registration: Registration,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The work of a server.
///
/// A handler begins in the server's task: most are done there at once, and a task for each would cost more than they do.
/// One that waits goes on in a task of its own. After one that computes for long, the next begin in tasks, so that
/// several threads share them.
struct Work<H> {
    channel: Channel<Pastry>,
    limits: Limits,
    handler: Arc<H>,
    waiting: VecDeque<Request>,
    running: JoinSet<Verdict>,
    /// The message of each running handler.
    ids: HashMap<tokio::task::Id, MessageId>,
    /// How many of the next handlers begin in tasks of their own.
    apart: u32,
    /// Verdicts that the machine has not got.
    settled: Vec<(MessageId, Verdict)>,
    remembered: Remembered,
}

impl<H, F> Work<H>
where
    H: Fn(Request) -> F + Send + Sync + 'static,
    F: Future<Output = Verdict> + Send + 'static,
{
    async fn run(mut self, mut events: ServiceEvents<Pastry>) {
        loop {
            tokio::select! {
                event = events.next() => {
                    let Some(event) = event else { return };
                    let mut next = Some(event);
                    while let Some(event) = next.take() {
                        request(event).into_iter().for_each(|request| self.arrived(request));
                        if self.settled.len() < SETTLED_TOGETHER {
                            next = events.try_next();
                        }
                    }
                }
                Some(ended) = self.running.join_next_with_id() => {
                    self.ended(ended);
                    while let Some(ended) = self.running.try_join_next_with_id() {
                        self.ended(ended);
                    }
                    self.start_waiting();
                }
            }
            // All that ended together is settled together.
            let settled = std::mem::take(&mut self.settled);
            if !settled.is_empty() && self.channel.give(Command::Settle(settled)).await.is_err() {
                return;
            }
        }
    }

    fn arrived(&mut self, request: Request) {
        if let Some(verdict) = self.remembered.verdict(request.id) {
            self.settled.push((request.id, verdict));
        } else if self.running.len() < self.limits.workers.max(1) {
            self.start(request);
        } else if self.waiting.len() < self.limits.waiting {
            self.waiting.push_back(request);
        } else {
            self.settled.push((request.id, Verdict::Busy(BUSY_AFTER)));
        }
    }

    fn start(&mut self, request: Request) {
        let (id, handler) = (request.id, Arc::clone(&self.handler));
        if self.apart > 0 {
            self.apart -= 1;
            // The handler is called in the task as well: a panic of it ends that task only.
            let task = self.running.spawn(async move { handler(request).await });
            self.ids.insert(task.id(), id);
            return;
        }
        let begun = Instant::now();
        let first = catch_unwind(AssertUnwindSafe(move || {
            let mut work = Box::pin(handler(request));
            match work.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(verdict) => Ok(verdict),
                // A task polls it again at once, with a waker of its own.
                Poll::Pending => Err(work),
            }
        }));
        match first {
            Ok(Ok(verdict)) => self.settle(id, verdict),
            Ok(Err(work)) => {
                let task = self.running.spawn(work);
                self.ids.insert(task.id(), id);
            }
            Err(_) => self.settle(id, Verdict::Refuse(PANICKED.to_owned())),
        }
        if begun.elapsed() > QUICK_MAX {
            self.apart = APART;
        }
    }

    fn start_waiting(&mut self) {
        while self.running.len() < self.limits.workers.max(1)
            && let Some(request) = self.waiting.pop_front()
        {
            self.start(request);
        }
    }

    fn ended(&mut self, ended: Result<(tokio::task::Id, Verdict), tokio::task::JoinError>) {
        let (task, verdict) = match ended {
            Ok((task, verdict)) => (task, verdict),
            Err(error) => (error.id(), Verdict::Refuse(PANICKED.to_owned())),
        };
        if let Some(id) = self.ids.remove(&task) {
            self.settle(id, verdict);
        }
    }

    fn settle(&mut self, id: MessageId, verdict: Verdict) {
        self.remembered.insert(id, &verdict);
        self.settled.push((id, verdict));
    }
}

/// The last verdicts, by message.
struct Remembered {
    verdicts: HashMap<MessageId, Verdict>,
    order: VecDeque<MessageId>,
    max: usize,
}

impl Remembered {
    fn new(max: usize) -> Self {
        Self { verdicts: HashMap::new(), order: VecDeque::new(), max }
    }

    fn insert(&mut self, id: MessageId, verdict: &Verdict) {
        let is_kept = match verdict {
            Verdict::Accept | Verdict::Keep | Verdict::Refuse(_) => true,
            Verdict::Answer(answer) => answer.len() <= REMEMBERED_BYTES_MAX,
            // `Busy` asks for another attempt, so the handler sees the message again.
            _ => false,
        };
        if self.max == 0 || !is_kept || self.verdicts.insert(id, verdict.clone()).is_some() {
            return;
        }
        self.order.push_back(id);
        if self.order.len() > self.max
            && let Some(oldest) = self.order.pop_front()
        {
            self.verdicts.remove(&oldest);
        }
    }

    fn verdict(&self, id: MessageId) -> Option<Verdict> {
        self.verdicts.get(&id).cloned()
    }
}
