//! Messages for an application that pulls them.

use std::time::Duration;

use annulus_core::Id;
use annulus_core::pastry::{AppName, Command, Contact, MessageId, Pastry, Reply, Verdict};

use super::{Registration, RouteError, arrivals, error, request, settle};
use crate::channel::{Channel, ServiceEvents};

/// The retry delay for the sender of a dropped message.
const DROPPED_AFTER: Duration = Duration::from_millis(100);

/// The messages delivered for one application, from [`Router::inbox`](super::Router::inbox).
///
/// None is left out: the machine bounds how many are open, and senders wait while there are too many.
#[derive(Debug)]
pub struct Inbox {
    events: ServiceEvents<Pastry>,
    registration: Registration,
}

impl Inbox {
    pub(super) async fn open(channel: Channel<Pastry>, app: AppName) -> Result<Self, RouteError> {
        let events = arrivals(&channel, &app);
        Ok(Self { events, registration: Registration::new(channel, app).await? })
    }

    /// The next message; `None` once the node has ended.
    pub async fn next(&mut self) -> Option<Arrival> {
        loop {
            let event = self.events.next().await?;
            let Some(request) = request(event) else { continue };
            let super::Request { id, attempt, origin, key, payload, hops, wants_answer } = request;
            let open = Some(self.registration.channel.clone());
            return Some(Arrival { id, attempt, key, origin, payload, hops, wants_answer, open });
        }
    }
}

/// A message delivered here (N-7). Dropping it without a verdict makes the sender retry.
#[derive(Debug)]
pub struct Arrival {
    /// Its number, the same for all attempts.
    pub id: MessageId,
    /// The number of the attempt, from 0.
    pub attempt: u16,
    /// Its key.
    pub key: Id,
    /// The sender.
    pub origin: Contact,
    /// The bytes.
    pub payload: Vec<u8>,
    /// The number of hops.
    pub hops: u8,
    /// Whether the sender waits for an answer.
    pub wants_answer: bool,
    open: Option<Channel<Pastry>>,
}

impl Arrival {
    /// Accepts the message: its sender gets `Delivered`.
    ///
    /// # Errors
    /// [`RouteError::NotOpen`] if its sender waits no longer.
    pub async fn accept(self) -> Result<(), RouteError> {
        self.settle(Verdict::Accept).await
    }

    /// The same, with an answer.
    ///
    /// # Errors
    /// [`RouteError::NotOpen`] if its sender waits no longer.
    pub async fn answer(self, payload: impl Into<Vec<u8>>) -> Result<(), RouteError> {
        self.settle(Verdict::Answer(payload.into())).await
    }

    /// Refuses the message: its sender gets the reason.
    ///
    /// # Errors
    /// [`RouteError::NotOpen`] if its sender waits no longer.
    pub async fn refuse(self, reason: impl Into<String>) -> Result<(), RouteError> {
        self.settle(Verdict::Refuse(reason.into())).await
    }

    async fn settle(mut self, verdict: Verdict) -> Result<(), RouteError> {
        let Some(channel) = self.open.clone() else { return Err(RouteError::NotOpen) };
        // Cancelled before the command is given, the message is dropped without a verdict.
        let reply = channel.command(Command::Settle(vec![(self.id, verdict)])).await?;
        self.open = None;
        match reply {
            Reply::Settled { open: 0 } => Err(RouteError::NotOpen),
            Reply::Settled { .. } => Ok(()),
            other => Err(error::refused(other)),
        }
    }
}

impl Drop for Arrival {
    fn drop(&mut self) {
        if let Some(channel) = self.open.take() {
            settle(&channel, self.id, Verdict::Busy(DROPPED_AFTER));
        }
    }
}
