//! Exclusive turns for applications: a lock by name, with a fencing number.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use annulus_core::Id;
use annulus_core::Instant;
use annulus_core::turns::{Command, Config, Event, Grant, Lock, Reply, Status, TurnId, Turns, keeping};
use annulus_net::{Ended, Options, Stopped, monotonic};
use tokio::sync::watch;

use crate::channel::{Channel, ServiceEvents};
use crate::start::{self, StartError};
use crate::turn::{Claim, LostReason, Place, Turn};

/// A node that takes exclusive turns, and grants them if it is one of the voters.
///
/// It is cheap to clone. Its turns are released when it ends.
///
/// ```
/// use std::time::Duration;
/// use annulus::core::turns::Config;
/// use annulus::{Locks, Options};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// // One voter is a group of its own; a real one has three or five, the same list on all nodes.
/// let own = "127.0.0.1:30942".parse()?;
/// let config = Config { bind: own, own, voters: vec![own], ..Config::default() };
/// let locks = Locks::start(&config, Options::default())?;
///
/// let turn = locks.lock("billing").wait(Duration::from_secs(60)).acquire().await?;
/// // update accounts set …, fence = $1 where fence < $1
/// assert!(turn.fence() > 0);
/// turn.check()?;
/// assert!(locks.lock("billing").try_acquire().await?.is_none(), "one at a time");
/// let sum = turn.run(async { 1 + 1 }).await?;
/// assert_eq!(sum, 2);
/// turn.release().await;
/// assert!(locks.lock("billing").try_acquire().await?.is_some());
/// # Ok(()) }) }
/// ```
#[derive(Clone, Debug)]
pub struct Locks {
    channel: Channel<Turns>,
}

/// The error of a request for a turn.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LocksError {
    /// Another turn of the name is in force.
    #[error("the name is not free; wait longer, or try again")]
    NotFree {
        /// The holder, if a voter named it.
        by: Option<Id>,
        /// The rest of its lease, if it is not renewed.
        left: Option<Duration>,
    },
    /// Too few voters answered.
    #[error("{have} voters answered, {need} are needed: check that they run and are reached")]
    NoMajority {
        /// The number of voters that answered.
        have: usize,
        /// The number that is needed.
        need: usize,
    },
    /// The turn is over.
    #[error("the turn is over: {0}; stop the work under it")]
    Lost(LostReason),
    /// This node has too many waiting requests.
    #[error("too many turns and wishes at a time: release some, or raise wishes_max")]
    Full,
    /// The node has ended.
    #[error("the node has ended")]
    Stopped,
}

impl From<Stopped> for LocksError {
    fn from(_: Stopped) -> Self {
        Self::Stopped
    }
}

impl Locks {
    /// Starts a node on the tokio runtime that this is called in.
    ///
    /// # Errors
    /// If the settings cannot work, or the address or the store cannot be used.
    pub fn start(config: &Config, options: Options) -> Result<Self, StartError> {
        let handle = start::spawn(Turns::new(config, start::seed()?)?, options)?;
        Ok(Self { channel: Channel::Alone(handle) })
    }

    /// The view of a part of a node.
    pub(crate) const fn within(channel: Channel<Turns>) -> Self {
        Self { channel }
    }

    /// Prepares a request for a name; see [`Locking`].
    #[must_use = "no request is sent before `acquire`"]
    pub fn lock(&self, name: impl Into<String>) -> Locking {
        Locking { locks: self.clone(), name: name.into(), wait: FOR_EVER, limit: FOR_EVER }
    }

    /// The voters, and the turns of this node.
    ///
    /// # Errors
    /// If the node has ended.
    pub async fn status(&self) -> Result<Status, LocksError> {
        match self.channel.command(Command::Status).await? {
            Reply::Status(status) => Ok(*status),
            _ => Err(LocksError::Stopped),
        }
    }

    /// Releases all turns and ends the node.
    pub async fn stop(&self) -> Ended {
        self.channel.stop().await
    }
}

const FOR_EVER: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// A request for a turn that has not been sent.
#[derive(Clone, Debug)]
pub struct Locking {
    locks: Locks,
    name: String,
    wait: Duration,
    limit: Duration,
}

impl Locking {
    /// Sets the longest wait.
    #[must_use]
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait = wait;
        self
    }

    /// Sets the longest duration of the turn.
    #[must_use]
    pub fn limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// Sends the request and waits for the turn. Dropping this future cancels the request.
    ///
    /// # Errors
    /// [`LocksError::NotFree`] or [`LocksError::NoMajority`] if the wait is over.
    pub async fn acquire(self) -> Result<Turn, LocksError> {
        let drawn = start::seed().map_err(|_| LocksError::Stopped)?;
        let turn = TurnId(u128::from_le_bytes(*drawn.first_chunk().expect("32 bytes have 16")));
        let channel = self.locks.channel;
        let place = Place::new(Claim::Lock(channel.clone(), turn));
        let lock = Lock { name: self.name, turn, wait: self.wait, limit: self.limit, attended: false };
        match channel.command(Command::Lock(lock)).await? {
            Reply::Granted(grant) => begin(channel, &grant, place).await,
            Reply::NotFree(blocker) => Err(LocksError::NotFree {
                by: blocker.map(|blocker| blocker.by),
                left: blocker.map(|blocker| Duration::from_micros(blocker.left_micros)),
            }),
            Reply::NoMajority { have, need } => Err(LocksError::NoMajority { have, need }),
            Reply::Lost(reason) => Err(LocksError::Lost(reason.into())),
            Reply::Full => Err(LocksError::Full),
            _ => Err(LocksError::Stopped),
        }
    }

    /// Tries once; none if another has the name.
    ///
    /// # Errors
    /// If too few voters answer.
    pub async fn try_acquire(self) -> Result<Option<Turn>, LocksError> {
        match self.wait(Duration::ZERO).acquire().await {
            Ok(turn) => Ok(Some(turn)),
            Err(LocksError::NotFree { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// The turn that was granted.
async fn begin(channel: Channel<Turns>, grant: &Grant, place: Place) -> Result<Turn, LocksError> {
    let turn = grant.turn;
    let events = channel.events_where(is_end_of(turn));
    let first = ends_of(&channel, turn).await?;
    let Reply::Status(status) = channel.command(Command::Status).await? else {
        return Err(LocksError::Stopped);
    };
    let lease = Duration::from_micros(status.lease_micros);
    let ends = Arc::new(AtomicU64::new(first.as_micros()));
    let (sender, lost) = watch::channel(None);
    tokio::spawn(watch_turn(channel, turn, Arc::clone(&ends), sender, events, lease));
    Ok(Turn::new(place, grant.fence, ends, lost))
}

/// Learns new deadlines of a turn, and its end.
async fn watch_turn(
    channel: Channel<Turns>,
    turn: TurnId,
    ends: Arc<AtomicU64>,
    lost: watch::Sender<Option<LostReason>>,
    mut events: ServiceEvents<Turns>,
    lease: Duration,
) {
    loop {
        let left = Instant::from_micros(ends.load(Ordering::Acquire)).since(monotonic());
        let pause = keeping::interval(lease).min(left).max(Duration::from_millis(1));
        let reason = tokio::select! {
            event = events.next() => match event.as_deref() {
                Some(Event::TurnLost { reason, .. }) => Some((*reason).into()),
                Some(_) | None => Some(LostReason::Stopping),
            },
            () = lost.closed() => return,
            () = tokio::time::sleep(pause) => match ends_of(&channel, turn).await {
                Ok(at) => {
                    ends.fetch_max(at.as_micros(), Ordering::AcqRel);
                    None
                }
                Err(LocksError::Lost(reason)) => Some(reason),
                Err(_) => Some(LostReason::Stopping),
            },
        };
        if let Some(reason) = reason {
            lost.send_replace(Some(reason));
            return;
        }
    }
}

/// The end of a turn's validity, counted from the time of the request (TU-34).
async fn ends_of(channel: &Channel<Turns>, turn: TurnId) -> Result<Instant, LocksError> {
    let asked = monotonic();
    match channel.command(Command::Check(turn)).await? {
        Reply::Kept { left_micros, .. } => Ok(asked + Duration::from_micros(left_micros)),
        Reply::Lost(reason) => Err(LocksError::Lost(reason.into())),
        _ => Err(LocksError::Stopped),
    }
}

fn is_end_of(turn: TurnId) -> impl Fn(&Event) -> bool + Send + 'static {
    move |event| matches!(event, Event::TurnLost { turn: over, .. } | Event::TurnReleased { turn: over, .. } if *over == turn)
}
