//! The list of ready sources: a wake-up costs time by the number of ready sources, not of all.
//!
//! A driver owns thousands of sources (sockets, listeners, streams) but is one task with one waker. Polling all of
//! them whenever one stirs would make a busy node with many idle streams slow. Instead every source is polled with
//! a waker of its own, a [`Signal`], which puts the source's [`Token`] on a list and then wakes the task. The task
//! serves only the sources on the list.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Wake, Waker};

/// The name of a source within one driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Token {
    /// The application requests counters, a stop or an abort.
    Control,
    /// The application has commands.
    Commands,
    /// The store has answers.
    Store,
    /// The one timer has run out.
    Timer,
    /// The datagram port at this place.
    Port(usize),
    /// The listener at this place.
    Listener(usize),
    /// The stream in this slot.
    Stream(usize),
}

/// The list of sources that want attention, shared by all signals of a driver.
#[derive(Debug, Default)]
pub(crate) struct Ready {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    tokens: Vec<Token>,
    task: Option<Waker>,
}

impl Ready {
    /// From now on signals wake this task.
    pub(crate) fn attach(&self, task: &Waker) {
        let mut state = self.lock();
        if !state.task.as_ref().is_some_and(|known| known.will_wake(task)) {
            state.task = Some(task.clone());
        }
    }

    /// Moves the list into `tokens`, which is empty.
    pub(crate) fn take(&self, tokens: &mut Vec<Token>) {
        debug_assert!(tokens.is_empty(), "the last list was served");
        std::mem::swap(&mut self.lock().tokens, tokens);
    }

    fn push(&self, token: Token) {
        let task = {
            let mut state = self.lock();
            state.tokens.push(token);
            // Only the first of a list has to wake the task: it will take the whole list.
            if state.tokens.len() == 1 { state.task.clone() } else { None }
        };
        if let Some(task) = task {
            task.wake();
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        // Nothing in here can panic half-way, so a poisoned list is still whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The waker of one source.
#[derive(Clone, Debug)]
pub(crate) struct Signal {
    flag: Arc<Flag>,
    waker: Waker,
}

#[derive(Debug)]
struct Flag {
    token: Token,
    listed: AtomicBool,
    ready: Arc<Ready>,
}

impl Signal {
    /// A signal that lists `token`.
    pub(crate) fn new(ready: &Arc<Ready>, token: Token) -> Self {
        let flag = Arc::new(Flag { token, listed: AtomicBool::new(false), ready: Arc::clone(ready) });
        Self { waker: Waker::from(Arc::clone(&flag)), flag }
    }

    /// The source is about to be served; a later wake-up lists it again.
    pub(crate) fn clear(&self) {
        self.flag.listed.store(false, Ordering::Release);
    }

    /// Lists the source: it has more to do.
    pub(crate) fn raise(&self) {
        self.flag.raise();
    }

    /// To poll the source with.
    pub(crate) fn context(&self) -> Context<'_> {
        Context::from_waker(&self.waker)
    }
}

impl Flag {
    fn raise(&self) {
        if !self.listed.swap(true, Ordering::AcqRel) {
            self.ready.push(self.token);
        }
    }
}

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.raise();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.raise();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Count(std::sync::atomic::AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_source_is_listed_once_until_it_is_served() {
        let ready = Arc::new(Ready::default());
        let wakes = Arc::new(Count::default());
        ready.attach(&Waker::from(Arc::clone(&wakes)));
        let (a, b) = (Signal::new(&ready, Token::Port(0)), Signal::new(&ready, Token::Stream(7)));
        a.context().waker().wake_by_ref();
        a.raise();
        b.context().waker().wake_by_ref();
        assert_eq!(wakes.0.load(Ordering::Relaxed), 1, "one wake-up takes the whole list");

        let mut tokens = Vec::new();
        ready.take(&mut tokens);
        assert_eq!(tokens, [Token::Port(0), Token::Stream(7)]);

        tokens.clear();
        a.raise();
        ready.take(&mut tokens);
        assert_eq!(tokens, [], "it was not served yet, so it is known already");
        a.clear();
        a.raise();
        ready.take(&mut tokens);
        assert_eq!(tokens, [Token::Port(0)]);
        assert_eq!(wakes.0.load(Ordering::Relaxed), 2);
    }
}
