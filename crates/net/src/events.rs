//! Events on their way to the application: a bounded queue for each subscriber.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use annulus_core::Machine;
use tokio::sync::mpsc;

use crate::counters::DriverCounters;

/// A subscription to a machine's events, made by [`crate::Handle::events`].
///
/// It has a bounded queue of its own. A subscriber that reads too slowly misses events, and [`Events::missed`] counts
/// them; neither the machine nor other subscribers wait for it. A subscription by
/// [`crate::Handle::every_event_where`] misses nothing.
#[derive(Debug)]
pub struct Events<M: Machine> {
    queue: Receiver<Arc<M::Event>>,
    missed: Arc<AtomicU64>,
}

/// The queue of a subscriber.
#[derive(Debug)]
enum Receiver<E> {
    Bounded(mpsc::Receiver<E>),
    /// For events of which the machine itself bounds how many are under way.
    Every(mpsc::UnboundedReceiver<E>),
}

#[derive(Debug)]
enum Sender<E> {
    Bounded(mpsc::Sender<E>),
    Every(mpsc::UnboundedSender<E>),
}

/// The fate of an event.
enum Told {
    Queued,
    Missed,
    Closed,
}

impl<E> Sender<E> {
    fn is_closed(&self) -> bool {
        match self {
            Self::Bounded(queue) => queue.is_closed(),
            Self::Every(queue) => queue.is_closed(),
        }
    }

    fn tell(&self, event: E) -> Told {
        match self {
            Self::Bounded(queue) => match queue.try_send(event) {
                Ok(()) => Told::Queued,
                Err(mpsc::error::TrySendError::Full(_)) => Told::Missed,
                Err(mpsc::error::TrySendError::Closed(_)) => Told::Closed,
            },
            Self::Every(queue) => queue.send(event).map_or(Told::Closed, |()| Told::Queued),
        }
    }
}

impl<M: Machine> Events<M> {
    /// The next event; `None` once the machine has ended and everything was read.
    pub async fn next(&mut self) -> Option<Arc<M::Event>> {
        match &mut self.queue {
            Receiver::Bounded(queue) => queue.recv().await,
            Receiver::Every(queue) => queue.recv().await,
        }
    }

    /// The next event if one is there already.
    pub fn try_next(&mut self) -> Option<Arc<M::Event>> {
        match &mut self.queue {
            Receiver::Bounded(queue) => queue.try_recv().ok(),
            Receiver::Every(queue) => queue.try_recv().ok(),
        }
    }

    /// The next event, for hand-written futures and streams.
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Arc<M::Event>>> {
        match &mut self.queue {
            Receiver::Bounded(queue) => queue.poll_recv(cx),
            Receiver::Every(queue) => queue.poll_recv(cx),
        }
    }

    /// The number of wanted events that did not fit into the queue so far.
    #[must_use]
    pub fn missed(&self) -> u64 {
        self.missed.load(Ordering::Relaxed)
    }
}

/// All subscribers of one machine.
#[derive(Debug)]
pub(crate) struct Subscribers<M: Machine> {
    list: Mutex<Option<Vec<Subscriber<M>>>>,
    events_max: usize,
}

struct Subscriber<M: Machine> {
    queue: Sender<Arc<M::Event>>,
    missed: Arc<AtomicU64>,
    wanted: Option<Wanted<M>>,
}

/// Whether a subscriber wants an event.
pub(crate) type Wanted<M> = Box<dyn Fn(&<M as Machine>::Event) -> bool + Send>;

impl<M: Machine> fmt::Debug for Subscriber<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subscriber").field("missed", &self.missed).finish_non_exhaustive()
    }
}

impl<M: Machine> Subscribers<M> {
    pub(crate) fn new(events_max: usize) -> Self {
        Self { list: Mutex::new(Some(Vec::new())), events_max: events_max.max(1) }
    }

    /// Adds a subscriber. If the machine has ended, it gets the end only.
    pub(crate) fn subscribe(&self, wanted: Option<Wanted<M>>) -> Events<M> {
        let (sender, queue) = mpsc::channel(self.events_max);
        self.add(Sender::Bounded(sender), Receiver::Bounded(queue), wanted)
    }

    /// Adds a subscriber that misses none of the events that it wants.
    pub(crate) fn subscribe_to_every(&self, wanted: Wanted<M>) -> Events<M> {
        let (sender, queue) = mpsc::unbounded_channel();
        self.add(Sender::Every(sender), Receiver::Every(queue), Some(wanted))
    }

    fn add(
        &self,
        sender: Sender<Arc<M::Event>>,
        queue: Receiver<Arc<M::Event>>,
        wanted: Option<Wanted<M>>,
    ) -> Events<M> {
        let missed = Arc::new(AtomicU64::new(0));
        if let Some(list) = &mut *self.lock() {
            list.push(Subscriber { queue: sender, missed: Arc::clone(&missed), wanted });
        }
        Events { queue, missed }
    }

    /// Sends an event to all subscribers. Returns whether one of them will answer it.
    pub(crate) fn tell(&self, event: M::Event, counters: &mut DriverCounters) -> bool {
        let mut list = self.lock();
        let Some(list) = &mut *list else { return false };
        if list.is_empty() {
            return false;
        }
        let event = Arc::new(event);
        let mut is_answered = false;
        list.retain(|subscriber| {
            if subscriber.wanted.as_ref().is_some_and(|wanted| !wanted(&event)) {
                return !subscriber.queue.is_closed();
            }
            match subscriber.queue.tell(Arc::clone(&event)) {
                Told::Queued => {
                    counters.events += 1;
                    is_answered |= matches!(subscriber.queue, Sender::Every(_));
                }
                Told::Missed => {
                    counters.events_shed += 1;
                    subscriber.missed.fetch_add(1, Ordering::Relaxed);
                }
                Told::Closed => return false,
            }
            true
        });
        is_answered
    }

    /// There will be no more events.
    pub(crate) fn end(&self) {
        *self.lock() = None;
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Vec<Subscriber<M>>>> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
