//! Events on their way to the application: a bounded queue for each who listens.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use annulus_core::Machine;
use tokio::sync::mpsc;

use crate::counters::DriverCounters;

/// A subscription to a machine's events, made by [`crate::Handle::events`].
///
/// It has a bounded queue of its own. Who reads too slowly misses what does not fit, and [`Events::missed`] tells
/// how much; neither the machine nor other subscribers wait for it.
#[derive(Debug)]
pub struct Events<M: Machine> {
    queue: mpsc::Receiver<Arc<M::Event>>,
    missed: Arc<AtomicU64>,
}

impl<M: Machine> Events<M> {
    /// The next event; `None` once the machine has ended and everything was read.
    pub async fn next(&mut self) -> Option<Arc<M::Event>> {
        self.queue.recv().await
    }

    /// The next event if one is there already.
    pub fn try_next(&mut self) -> Option<Arc<M::Event>> {
        self.queue.try_recv().ok()
    }

    /// The next event, for hand-written futures and streams.
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Arc<M::Event>>> {
        self.queue.poll_recv(cx)
    }

    /// How many events did not fit into the queue so far; of a subscription to some of them, how many of those.
    #[must_use]
    pub fn missed(&self) -> u64 {
        self.missed.load(Ordering::Relaxed)
    }
}

/// Everyone who listens to one machine.
#[derive(Debug)]
pub(crate) struct Subscribers<M: Machine> {
    list: Mutex<Option<Vec<Subscriber<M>>>>,
    events_max: usize,
}

struct Subscriber<M: Machine> {
    queue: mpsc::Sender<Arc<M::Event>>,
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

    /// One more. Of a machine that has ended it hears nothing but the end.
    pub(crate) fn subscribe(&self, wanted: Option<Wanted<M>>) -> Events<M> {
        let (sender, queue) = mpsc::channel(self.events_max);
        let missed = Arc::new(AtomicU64::new(0));
        if let Some(list) = &mut *self.lock() {
            list.push(Subscriber { queue: sender, missed: Arc::clone(&missed), wanted });
        }
        Events { queue, missed }
    }

    /// Tells everyone.
    pub(crate) fn tell(&self, event: M::Event, counters: &mut DriverCounters) {
        let mut list = self.lock();
        let Some(list) = &mut *list else { return };
        if list.is_empty() {
            return;
        }
        let event = Arc::new(event);
        list.retain(|subscriber| {
            if subscriber.wanted.as_ref().is_some_and(|wanted| !wanted(&event)) {
                return !subscriber.queue.is_closed();
            }
            match subscriber.queue.try_send(Arc::clone(&event)) {
                Ok(()) => counters.events += 1,
                Err(mpsc::error::TrySendError::Full(_)) => {
                    counters.events_shed += 1;
                    subscriber.missed.fetch_add(1, Ordering::Relaxed);
                }
                Err(mpsc::error::TrySendError::Closed(_)) => return false,
            }
            true
        });
    }

    /// There will be no more events.
    pub(crate) fn end(&self) {
        *self.lock() = None;
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Vec<Subscriber<M>>>> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
