//! A turn: the result of acquiring a lock or the token, and its end.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;

use annulus_core::node::Token;
use annulus_core::turns::{TurnId, Turns};
use annulus_core::{Instant, jitterbug, turns};
use annulus_net::monotonic;
use tokio::sync::watch;

use crate::channel::Channel;
use crate::locks::LocksError;

/// A turn: this program has the name, or the token. Dropping it releases it, and so does a panic.
///
/// It can be neither cloned nor taken twice. A program that is stopped between a check and its effect may be late: give the
/// fence to whatever it changes.
#[derive(Debug)]
pub struct Turn {
    place: Place,
    fence: u64,
    ends: Arc<AtomicU64>,
    lost: watch::Receiver<Option<LostReason>>,
}

/// The reason for the end of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum LostReason {
    /// No majority of voters renewed it in time.
    #[error("no majority of voters renewed it")]
    NoMajority,
    /// Its limit is reached.
    #[error("its limit is reached")]
    Limit,
    /// Another node has it: this machine was paused, or two tokens met.
    #[error("another has it")]
    Taken,
    /// Its client did not keep it.
    #[error("its client did not keep it")]
    Unattended,
    /// The process was paused: others may have a turn of their own.
    #[error("the process was paused")]
    Paused,
    /// This node reaches less than half of its ring: the others may make a token of their own.
    #[error("this node is cut off from its ring")]
    CutOff,
    /// The node stops, or has stopped.
    #[error("the node stops")]
    Stopping,
    /// There is no such turn.
    #[error("there is no such turn")]
    Unknown,
}

impl From<turns::LostReason> for LostReason {
    fn from(reason: turns::LostReason) -> Self {
        use turns::LostReason as R;
        match reason {
            R::NoMajority => Self::NoMajority,
            R::Limit => Self::Limit,
            R::Taken => Self::Taken,
            R::Unattended => Self::Unattended,
            R::Stopping => Self::Stopping,
            _ => Self::Unknown,
        }
    }
}

impl From<jitterbug::LostReason> for LostReason {
    fn from(reason: jitterbug::LostReason) -> Self {
        use jitterbug::LostReason as R;
        match reason {
            R::Limit => Self::Limit,
            R::Stopping => Self::Stopping,
            R::Stalled => Self::Paused,
            R::Merged => Self::Taken,
            R::CutOff => Self::CutOff,
            _ => Self::Unknown,
        }
    }
}

/// A place in a queue, or the turn that came of it. Dropping it releases it at once.
#[derive(Debug)]
pub(crate) struct Place {
    claim: Option<Claim>,
}

/// The queue of the place.
#[derive(Debug)]
pub(crate) enum Claim {
    /// A lock.
    Lock(Channel<Turns>, TurnId),
    /// The token, under the key of a hold.
    Token(Channel<Token>, u64),
}

impl Place {
    pub(crate) const fn new(claim: Claim) -> Self {
        Self { claim: Some(claim) }
    }

    /// Releases it, and waits until the node has done so. If the node has ended, so has the turn.
    async fn release(mut self) {
        // The claim stays here while this waits: if this is cancelled, `drop` does it.
        match &self.claim {
            Some(Claim::Lock(channel, turn)) => {
                let _ = channel.command(turns::Command::Release(*turn)).await;
            }
            Some(Claim::Token(channel, key)) => {
                let _ = channel.command(jitterbug::Command::Withdraw { key: *key }).await;
            }
            None => {}
        }
        self.claim = None;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        match self.claim.take() {
            Some(Claim::Lock(channel, turn)) => channel.tell(turns::Command::Release(turn)),
            Some(Claim::Token(channel, key)) => channel.tell(jitterbug::Command::Withdraw { key }),
            None => {}
        }
    }
}

impl Turn {
    pub(crate) fn new(
        place: Place,
        fence: u64,
        ends: Arc<AtomicU64>,
        lost: watch::Receiver<Option<LostReason>>,
    ) -> Self {
        Self { place, fence, ends, lost }
    }

    /// The number of the turn: greater than that of every earlier turn of the name.
    #[must_use]
    pub const fn fence(&self) -> u64 {
        self.fence
    }

    /// The validity that is left without another renewal.
    #[must_use]
    pub fn left(&self) -> Duration {
        Instant::from_micros(self.ends.load(Ordering::Acquire)).since(monotonic())
    }

    /// Whether the turn is valid at this moment: reads the clock, not a flag.
    ///
    /// # Errors
    /// [`LocksError::Lost`] if it is over.
    pub fn check(&self) -> Result<(), LocksError> {
        let reason = *self.lost.borrow();
        match reason {
            Some(reason) => Err(LocksError::Lost(reason)),
            None if self.left().is_zero() => Err(LocksError::Lost(match self.place.claim {
                Some(Claim::Token(..)) => LostReason::Paused,
                _ => LostReason::NoMajority,
            })),
            None => Ok(()),
        }
    }

    /// Waits until the turn is lost.
    pub async fn lost(&self) -> LostReason {
        let mut lost = self.lost.clone();
        let reason = lost.wait_for(Option::is_some).await.ok().and_then(|reason| *reason);
        reason.unwrap_or(LostReason::Stopping)
    }

    /// Runs a future as long as the turn is valid; the future is dropped when the turn is lost. The clock is read before
    /// each step of the future, so a process that was paused does nothing more under a turn that ran out.
    ///
    /// # Errors
    /// [`LocksError::Lost`] if the turn ended first.
    pub async fn run<T>(&self, work: impl Future<Output = T>) -> Result<T, LocksError> {
        let (mut work, mut lost) = (pin!(work), pin!(self.lost()));
        poll_fn(|cx| {
            if let Poll::Ready(reason) = lost.as_mut().poll(cx) {
                return Poll::Ready(Err(LocksError::Lost(reason)));
            }
            match self.check() {
                Err(error) => Poll::Ready(Err(error)),
                Ok(()) => work.as_mut().poll(cx).map(Ok),
            }
        })
        .await
    }

    /// Ends the turn, and waits until the node has released it.
    pub async fn release(self) {
        self.place.release().await;
    }
}
