//! A gate: faults that a program injects into its own drivers, for demos and tests.
//!
//! A driver with a gate drops datagrams to and from the peers that the gate cuts off, and holds the streams to them: no byte
//! passes, in neither direction. A suspended driver is not polled. A driver without a gate pays one test of an option for
//! each datagram.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use crate::ready::Signal;

/// The faults of one driver. It is given to the driver in [`crate::Options::gate`]; clones control the same driver.
///
/// A stream to a peer behind a cut resumes where it was when the cut ends. Before that, it ends as
/// `TimedOut` if it is watched and the time of its watch is over.
#[derive(Clone, Debug, Default)]
pub struct Gate {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    /// Whether any peer is cut off: the usual answer costs no lock.
    is_cut: AtomicBool,
    is_suspended: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    cut_off: BTreeSet<IpAddr>,
    /// Raised when the peers that are cut off have changed.
    control: Option<Signal>,
    /// Woken when the driver is resumed.
    task: Option<Waker>,
}

impl Gate {
    /// A gate that lets everything pass.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Cuts off these peers and no others: an empty list heals.
    pub fn cut_off(&self, peers: impl IntoIterator<Item = IpAddr>) {
        let control = {
            let mut state = self.lock();
            state.cut_off = peers.into_iter().collect();
            self.shared.is_cut.store(!state.cut_off.is_empty(), Ordering::Release);
            state.control.clone()
        };
        if let Some(control) = control {
            control.raise();
        }
    }

    /// Stops to poll the driver: its machine does not run, the kernel and the store go on.
    pub fn suspend(&self) {
        self.shared.is_suspended.store(true, Ordering::Release);
    }

    /// Polls the driver again.
    pub fn resume(&self) {
        self.shared.is_suspended.store(false, Ordering::Release);
        let task = self.lock().task.take();
        if let Some(task) = task {
            task.wake();
        }
    }

    /// Whether the driver is suspended.
    #[must_use]
    pub fn is_suspended(&self) -> bool {
        self.shared.is_suspended.load(Ordering::Acquire)
    }

    /// Whether nothing passes to and from this peer.
    #[must_use]
    pub fn is_cut_off(&self, peer: IpAddr) -> bool {
        self.shared.is_cut.load(Ordering::Acquire) && self.lock().cut_off.contains(&peer)
    }

    /// From now on changes raise this signal.
    pub(crate) fn attach(&self, control: &Signal) {
        self.lock().control = Some(control.clone());
    }

    /// Whether the driver is suspended; `task` is woken when it is not.
    pub(crate) fn poll_suspended(&self, task: &Waker) -> bool {
        if !self.is_suspended() {
            return false;
        }
        self.lock().task = Some(task.clone());
        // It may have been resumed before the waker was there.
        self.is_suspended()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing in here can panic half-way, so a poisoned state is still whole.
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
