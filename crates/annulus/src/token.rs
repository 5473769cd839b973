//! The token, for applications: turns in the order of the ring, and values that travel with it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use annulus_core::RequestId;
use annulus_core::jitterbug::{Command, Document, Event, Raw, Reply, Set, Status};
use annulus_core::node::Token as Machine;
use annulus_net::{Stopped, monotonic};
use tokio::sync::watch;

use crate::channel::{Channel, ServiceEvents};
use crate::start;
use crate::turn::{Claim, LostReason, Place, Turn};

/// The number of queries about a hold within its safe time.
const KEEPS: u64 = 10;

/// The token of a node's ring, from [`Node::token`](crate::Node::token). It is cheap to clone.
///
/// Its turns are weak: two nodes can have one at once if the network splits or a machine is suspended.
/// [`Locks`](crate::Locks) gives exclusive turns.
#[derive(Clone, Debug)]
pub struct Token {
    channel: Channel<Machine>,
}

/// The error of a [`Token`] method.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TokenError {
    /// No token arrived in time: nothing was changed, and nothing will be.
    #[error("no token came by in time: wait longer, or look at the ring with `status`")]
    NoToken,
    /// The ring has voters: its turns are exclusive, and no weak one is given beside them.
    #[error("the ring has voters: take the turn with `Node::locks`")]
    VotersExist,
    /// It cannot be done, and why.
    #[error("the token refused it: {0}")]
    Refused(&'static str),
    /// The value is not JSON.
    #[error("the value is not JSON: {0}")]
    NotJson(String),
    /// The turn ended before it was given out.
    #[error("the turn is over: {0}; try again")]
    Lost(LostReason),
    /// The node has ended.
    #[error("the node has ended: start it again")]
    Stopped,
}

impl From<Stopped> for TokenError {
    fn from(_: Stopped) -> Self {
        Self::Stopped
    }
}

impl Token {
    /// The view of a part of a node.
    pub(crate) const fn within(channel: Channel<Machine>) -> Self {
        Self { channel }
    }

    /// Waits for the token and keeps it, until the [`Turn`] is dropped or `limit` is over. Dropping this future releases
    /// the place in the queue at once, and the token if it came in the meantime.
    ///
    /// # Errors
    /// If the token cannot be held, or the node has ended.
    pub async fn acquire(&self, limit: Duration) -> Result<Turn, TokenError> {
        let key = hold_key()?;
        let events = self
            .channel
            .events_where(|event| matches!(event, Event::TokenLost { .. } | Event::TokenReleased { .. }));
        let place = Place::new(Claim::Token(self.channel.clone(), key));
        let (hold, fence) = match self.channel.command(Command::HoldAs { key, limit }).await? {
            Reply::Held { hold, fence } => (hold, fence),
            Reply::Refused(reason) => return Err(TokenError::Refused(reason)),
            Reply::VotersExist => return Err(TokenError::VotersExist),
            _ => return Err(TokenError::Stopped),
        };
        let Some(first) = kept(&self.channel, hold).await? else {
            return Err(TokenError::Lost(LostReason::Paused));
        };
        let ends = Arc::new(AtomicU64::new(first.ends));
        let (sender, lost) = watch::channel(None);
        tokio::spawn(watch_hold(self.channel.clone(), hold, first, Arc::clone(&ends), events, sender));
        Ok(Turn::new(place, fence, ends, lost))
    }

    /// The ring, the holder and the token as this node knows them.
    ///
    /// # Errors
    /// If the node has ended.
    pub async fn status(&self) -> Result<Status, TokenError> {
        match self.channel.command(Command::Status).await? {
            Reply::Status(status) => Ok(*status),
            _ => Err(TokenError::Stopped),
        }
    }

    /// All values that travel with the token, as JSON texts by key, as this node last saw them.
    ///
    /// # Errors
    /// If the node has ended.
    pub async fn values(&self) -> Result<BTreeMap<String, String>, TokenError> {
        let Reply::Data(data) = self.channel.command(Command::Data).await? else {
            return Err(TokenError::Stopped);
        };
        // The data of another application has no values.
        let values = Document::from_data(&data).unwrap_or_default().values.into_iter();
        let values = values.filter(|(_, stamped)| !stamped.value.is_null());
        Ok(values.map(|(key, stamped)| (key, stamped.value.text().to_owned())).collect())
    }

    /// The bytes that the token carries, as this node last saw them: the data of an own application.
    ///
    /// # Errors
    /// If the node has ended.
    pub async fn data(&self) -> Result<Vec<u8>, TokenError> {
        match self.channel.command(Command::Data).await? {
            Reply::Data(data) => Ok(data),
            _ => Err(TokenError::Stopped),
        }
    }

    /// One value as a JSON text.
    ///
    /// # Errors
    /// If the node has ended.
    pub async fn get(&self, key: &str) -> Result<Option<String>, TokenError> {
        Ok(self.values().await?.remove(key))
    }

    /// Sets a value, a JSON text, in the next tenure of this node; `null` unsets it. Returns when it is set.
    ///
    /// # Errors
    /// [`TokenError::NoToken`] if no token arrived within `wait`: then the value is not set.
    pub async fn set(&self, key: &str, json: &str, wait: Duration) -> Result<(), TokenError> {
        let value = Raw::new(json).map_err(|error| TokenError::NotJson(error.to_string()))?;
        let change = Set { key: key.to_owned(), value };
        match self.channel.command(Command::Change { change, wait }).await? {
            Reply::Done => Ok(()),
            Reply::NotChanged => Err(TokenError::NoToken),
            Reply::Refused(reason) => Err(TokenError::Refused(reason)),
            _ => Err(TokenError::Stopped),
        }
    }

    /// Watches a value: it is read whenever the token arrives.
    #[must_use]
    pub fn watch(&self, key: impl Into<String>) -> TokenWatch {
        let events = self.channel.events_where(|event| {
            matches!(event, Event::TokenTaken { .. } | Event::TokenMerged { .. } | Event::TokenPassed { .. })
        });
        TokenWatch { token: self.clone(), key: key.into(), events, last: None }
    }

    /// Subscribes to the events of the token from here on.
    #[must_use]
    pub fn events(&self) -> ServiceEvents<Machine> {
        self.channel.events()
    }
}

/// A value that is watched, from [`Token::watch`].
#[derive(Debug)]
pub struct TokenWatch {
    token: Token,
    key: String,
    events: ServiceEvents<Machine>,
    /// The last value that was given out.
    last: Option<Option<String>>,
}

impl TokenWatch {
    /// The value at once the first time, then each time it differs; `None` in it if it is unset. Cancelling this loses
    /// nothing.
    ///
    /// # Errors
    /// If the node has ended.
    pub async fn changed(&mut self) -> Result<Option<String>, TokenError> {
        loop {
            let value = self.token.get(&self.key).await?;
            if self.last.as_ref() != Some(&value) {
                self.last = Some(value.clone());
                return Ok(value);
            }
            self.events.next().await.ok_or(TokenError::Stopped)?;
        }
    }
}

/// The safe time of a hold, counted from the time of the query (TU-42).
#[derive(Clone, Copy, Debug)]
struct Kept {
    /// The end in microseconds: no other node makes a token before it, and the limit is not over.
    ends: u64,
    /// The interval between queries.
    interval: Duration,
}

/// Queries whether a hold is in force; `None` if it is not.
async fn kept(channel: &Channel<Machine>, hold: RequestId) -> Result<Option<Kept>, TokenError> {
    let asked = monotonic().as_micros();
    match channel.command(Command::Keep { hold }).await? {
        Reply::Kept { left_micros, limit_micros } => {
            let (left, interval) = (left_micros.min(limit_micros), left_micros.min(limit_micros) / KEEPS);
            let interval = Duration::from_micros(interval).max(Duration::from_millis(1));
            Ok(Some(Kept { ends: asked.saturating_add(left), interval }))
        }
        Reply::NotHeld => Ok(None),
        _ => Err(TokenError::Stopped),
    }
}

/// Learns how long a hold is safe, and its end.
async fn watch_hold(
    channel: Channel<Machine>,
    hold: RequestId,
    first: Kept,
    ends: Arc<AtomicU64>,
    mut events: ServiceEvents<Machine>,
    lost: watch::Sender<Option<LostReason>>,
) {
    let mut interval = first.interval;
    loop {
        let reason = tokio::select! {
            event = events.next() => match event.as_deref() {
                Some(Event::TokenLost { hold: over, reason, .. }) if *over == hold => (*reason).into(),
                Some(Event::TokenReleased { hold: over, .. }) if *over == hold => LostReason::Unknown,
                Some(_) => continue,
                None => LostReason::Stopping,
            },
            () = lost.closed() => return,
            () = tokio::time::sleep(interval) => match kept(&channel, hold).await {
                Ok(Some(kept)) => {
                    ends.fetch_max(kept.ends, Ordering::AcqRel);
                    interval = kept.interval;
                    continue;
                }
                // The event says why.
                Ok(None) => {
                    interval = Duration::from_secs(1);
                    continue;
                }
                Err(_) => LostReason::Stopping,
            },
        };
        lost.send_replace(Some(reason));
        return;
    }
}

/// The key of a hold: drawn, so that it differs from that of any other client of the node.
fn hold_key() -> Result<u64, TokenError> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let seed = start::seed().map_err(|_| TokenError::Stopped)?;
    let drawn = u64::from_le_bytes(*seed.first_chunk().expect("32 bytes have 8"));
    // The second quarter of all numbers: they differ from clients that count from 1, and from turns of the ring.
    Ok(drawn.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed)) >> 2 | 1 << 62)
}
