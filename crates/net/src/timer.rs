//! The one timer of a driver.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use annulus_core::Instant;
use tokio::time::Sleep;

use crate::clock::Clock;
use crate::ready::{Ready, Signal, Token};

/// Wakes the driver at a moment or before.
///
/// Machines move their deadlines with almost every message, and mostly away. So the timer is set again only for an
/// earlier moment: it may ring once too often, which is harmless and cheaper than setting it each time.
#[derive(Debug)]
pub(crate) struct Timer {
    /// Its waker.
    pub(crate) signal: Signal,
    sleep: Pin<Box<Sleep>>,
    armed: Option<Instant>,
}

impl Timer {
    pub(crate) fn new(ready: &Arc<Ready>) -> Self {
        Self {
            signal: Signal::new(ready, Token::Timer),
            sleep: Box::pin(tokio::time::sleep(std::time::Duration::ZERO)),
            armed: None,
        }
    }

    /// The signal came: whether it rang or not, it may be set for a later moment now.
    pub(crate) fn serve(&mut self) {
        self.signal.clear();
        if self.armed.is_some() && self.sleep.as_mut().poll(&mut self.signal.context()).is_ready() {
            self.armed = None;
        }
    }

    /// Makes sure that the signal comes at this moment or before.
    pub(crate) fn arm(&mut self, at: Option<Instant>, clock: &Clock) {
        let Some(at) = at.filter(|at| self.armed.is_none_or(|armed| *at < armed)) else { return };
        let Some(deadline) = clock.to_tokio(at) else { return };
        self.sleep.as_mut().reset(deadline);
        if self.sleep.as_mut().poll(&mut self.signal.context()).is_ready() {
            self.armed = None;
            self.signal.raise();
        } else {
            self.armed = Some(at);
        }
    }
}
