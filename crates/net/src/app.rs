//! The driver's side of the application: commands in, replies and events out.

use std::sync::Arc;
use std::task::Poll;

use annulus_core::{Machine, RequestId};
use tokio::sync::{mpsc, oneshot, watch};

use crate::counters::{Counters, DriverCounters};
use crate::events::Subscribers;
use crate::handle::{Ask, Asker, Ended, Handle, Shared, Wish};
use crate::numbers::NumberMap;
use crate::options::Options;
use crate::ready::{Ready, Signal, Token};

/// The most requests for counters at once; others wait for them.
const COUNTERS_MAX: usize = 16;

/// The most commands taken from their queue at once: that costs little more than to take one.
const ASKS_TAKEN: usize = 32;

/// The application, as a driver sees it.
pub(crate) struct App<M: Machine> {
    /// The waker of the commands.
    pub(crate) signal: Signal,
    /// The waker of everything that may come at any time.
    pub(crate) control: Signal,
    /// The application's request to stop or abort.
    pub(crate) wish: Arc<Wish>,
    commands: mpsc::Receiver<Ask<M>>,
    /// Taken from the commands, the last first.
    asks: Vec<Ask<M>>,
    counters: mpsc::Receiver<oneshot::Sender<Counters>>,
    shared: Arc<Shared<M>>,
    ended: watch::Sender<Option<Ended>>,
    requests: NumberMap<RequestId, Asker<M::Reply>>,
    requests_made: u64,
    requests_max: usize,
    /// Whether a caller got a reply, or an event to answer, since this was last asked.
    commands_expected: bool,
}

impl<M: Machine> App<M> {
    /// Both sides.
    pub(crate) fn new(
        bound: annulus_core::Bound,
        options: &Options,
        ready: &Arc<Ready>,
    ) -> (Self, Handle<M>) {
        let (asks, commands) = mpsc::channel(options.commands_max.max(1));
        let (ask_counters, counters) = mpsc::channel(COUNTERS_MAX);
        let (ended, end) = watch::channel(None);
        let control = Signal::new(ready, Token::Control);
        let wish = Arc::new(Wish::new(control.clone()));
        let signal = Signal::new(ready, Token::Commands);
        let subscribers = Subscribers::new(options.events_max);
        let shared = Arc::new(Shared { commands: signal.clone(), bound, subscribers });
        let handle = Handle::new(asks, ask_counters, Arc::clone(&shared), end, Arc::clone(&wish));
        let app = Self {
            signal,
            control,
            wish,
            commands,
            asks: Vec::new(),
            counters,
            shared,
            ended,
            requests: NumberMap::default(),
            requests_made: 0,
            requests_max: options.requests_max.max(1),
            commands_expected: false,
        };
        (app, handle)
    }

    /// The next command; `None` arms the signal, or waits until one of the many before it has its reply.
    pub(crate) fn poll_command(&mut self) -> Option<(RequestId, M::Command)> {
        if self.requests.len() >= self.requests_max {
            // Some callers may have dropped their replies.
            self.requests.retain(|_, asker| !asker.is_closed());
            if self.requests.len() >= self.requests_max {
                return None;
            }
        }
        if self.asks.is_empty() {
            let Poll::Ready(_) =
                self.commands.poll_recv_many(&mut self.signal.context(), &mut self.asks, ASKS_TAKEN)
            else {
                return None;
            };
            self.asks.reverse();
        }
        let ask = self.asks.pop()?;
        let request = RequestId(self.requests_made);
        self.requests_made += 1;
        self.requests.insert(request, ask.asker);
        Some((request, ask.command))
    }

    /// The next request for counters; `None` arms the control signal.
    pub(crate) fn poll_counters(&mut self) -> Option<oneshot::Sender<Counters>> {
        match self.counters.poll_recv(&mut self.control.context()) {
            Poll::Ready(asks) => asks,
            Poll::Pending => None,
        }
    }

    /// Answers a command.
    pub(crate) fn reply(&mut self, request: RequestId, reply: M::Reply) {
        let full = self.requests.len() >= self.requests_max;
        match self.requests.remove(&request) {
            Some(asker) => {
                self.commands_expected |= !matches!(asker, Asker::Nobody);
                asker.give(reply);
            }
            None => tracing::debug!(request = request.0, "a reply without a waiting caller"),
        }
        if full {
            self.signal.raise();
        }
    }

    /// Whether a caller got a reply, or an event to answer, since this was last asked. Commands may follow.
    pub(crate) fn take_commands_expected(&mut self) -> bool {
        std::mem::take(&mut self.commands_expected)
    }

    /// Sends an event to all subscribers.
    pub(crate) fn event(&mut self, event: M::Event, counters: &mut DriverCounters) {
        self.commands_expected |= self.shared.subscribers.tell(event, counters);
    }

    /// The bound addresses.
    pub(crate) fn bound(&self) -> &annulus_core::Bound {
        &self.shared.bound
    }

    /// There will be no more replies and events.
    pub(crate) fn close(&mut self) {
        self.commands.close();
        self.asks.clear();
        self.counters.close();
        self.requests.clear();
        self.shared.subscribers.end();
    }

    /// Reports the end of the driver.
    pub(crate) fn end(&self, ended: Ended) {
        self.ended.send_replace(Some(ended));
    }
}

impl<M: Machine> Drop for App<M> {
    fn drop(&mut self) {
        self.shared.subscribers.end();
    }
}
