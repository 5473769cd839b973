//! The application outside of a machine (FA-21). It is not part of the engine: a scenario owns it and gives it the
//! events of its machines. `scenarios/turns/runner.rs` has client, guard, command and resource (FA-20, FA-22).

use core::time::Duration;
use std::collections::VecDeque;

/// An application behind a bounded queue: it works at its own speed, and may be stopped. Only finished items count.
#[derive(Clone, Debug)]
pub struct App<T> {
    places: usize,
    each: Duration,
    queue: VecDeque<T>,
    free_at: Duration,
    is_stopped: bool,
    /// Things that found no place.
    pub missed: u64,
    finished: Vec<T>,
}

impl<T> App<T> {
    /// An application with a queue of `places` that takes `each` for an item.
    #[must_use]
    pub fn new(places: usize, each: Duration) -> Self {
        let (queue, finished) = (VecDeque::new(), Vec::new());
        Self { places, each, queue, free_at: Duration::ZERO, is_stopped: false, missed: 0, finished }
    }

    /// Something arrives; false if there is no place for it.
    pub fn arrive(&mut self, now: Duration, thing: T) -> bool {
        self.run(now);
        let is_taken = self.queue.len() < self.places;
        if !is_taken {
            self.missed += 1;
        } else {
            if self.queue.is_empty() {
                self.free_at = self.free_at.max(now);
            }
            self.queue.push_back(thing);
        }
        is_taken
    }

    /// Stops it, or lets it go on. The work that it interrupted begins again.
    pub fn stop(&mut self, now: Duration, is_stopped: bool) {
        self.run(now);
        if self.is_stopped {
            self.free_at = self.free_at.max(now);
        }
        self.is_stopped = is_stopped;
    }

    /// Lets it work until now.
    pub fn run(&mut self, now: Duration) {
        while !self.is_stopped && self.free_at + self.each <= now {
            let Some(thing) = self.queue.pop_front() else { return };
            self.free_at += self.each;
            self.finished.push(thing);
        }
    }

    /// Whether nothing waits for it.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.queue.is_empty()
    }

    /// The things it has finished since it was last asked, in order.
    pub fn take_finished(&mut self) -> Vec<T> {
        core::mem::take(&mut self.finished)
    }
}
