//! Who owns a key, and messages to it, for applications: a node of a Pastry ring on real sockets.

use std::net::SocketAddr;
use std::sync::Arc;

use annulus_core::Id;
use annulus_core::pastry::{
    AppName, Application, Command, Config, ConfigError, Contact, Event, Failure, MessageId, Pastry, PathStep,
    Reply, TCP, Tables,
};
use annulus_net::{Counters, Ended, Events, Handle, Options, Stopped};

use crate::start::{self, StartError};

/// A node of a ring: it gets messages to the owner of a key, and owns keys itself.
///
/// It is cheap to clone. When the last clone is dropped the node says goodbye to the ring and ends.
///
/// ```
/// use annulus::core::Id;
/// use annulus::core::pastry::{AppName, Config};
/// use annulus::{Options, Router};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// let node = |address: &str, id, seeds| -> Result<_, Box<dyn std::error::Error>> {
///     let config = Config { id: Id::new(id), bind: address.parse()?, seeds, ..Config::default() };
///     Ok(Router::start(config, Options::default())?)
/// };
/// // The first of a ring needs nobody, the others need one.
/// let red = node("127.0.0.1:0", 1 << 120, vec![])?;
/// let blue = node("127.0.0.2:0", 9 << 120, vec![red.addr()])?;
/// blue.joined().await?;
///
/// // A message arrives at the node whose id is closest to its key.
/// let app = AppName::default();
/// let mut inbox = blue.inbox(&app);
/// let delivered = red.route_with_retries(&app, Id::new(8 << 120), "hello", 2).await?;
/// assert_eq!(delivered.by.id, Id::new(9 << 120));
/// assert_eq!(inbox.next().await.map(|message| message.payload), Some(b"hello".to_vec()));
///
/// // A question is answered by the owner's application.
/// let asking = tokio::spawn({
///     let (red, app) = (red.clone(), app.clone());
///     async move { red.ask(&app, Id::new(8 << 120), "which colour?").await }
/// });
/// let question = inbox.next().await.expect("it is asked");
/// blue.answer(question.id, "blue").await?;
/// assert_eq!(asking.await??.payload, b"blue");
/// # Ok(()) }) }
/// ```
#[derive(Clone, Debug)]
pub struct Router {
    handle: Handle<Pastry>,
    addr: SocketAddr,
}

/// A message that arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delivered {
    /// Where.
    pub by: Contact,
    /// After how many steps.
    pub hops: u8,
}

/// The answer to a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Who answers.
    pub by: Contact,
    /// After how many steps the question was there.
    pub hops: u8,
    /// The answer.
    pub payload: Vec<u8>,
}

/// A message delivered here (N-7).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// Its number; for [`Router::answer`].
    pub id: MessageId,
    /// Its key.
    pub key: Id,
    /// Who sent it.
    pub origin: Contact,
    /// What.
    pub payload: Vec<u8>,
    /// After how many steps.
    pub hops: u8,
    /// Whether the sender waits for an answer.
    pub ask: bool,
}

impl Router {
    /// How often a question is put again, by another way, when no answer comes.
    pub const RETRIES: u8 = 2;

    /// Binds the sockets and starts the node: on the tokio runtime that this is called in. Without seeds it is the first
    /// of its ring, else it joins; [`Router::joined`] waits for that. With [`Options::with_store`] it comes back under a
    /// new incarnation after a restart.
    ///
    /// # Errors
    /// If the settings cannot work, or the address or the store cannot be used.
    pub fn start(config: Config, options: Options) -> Result<Self, RouteError> {
        Self::start_with(config, Vec::new(), options)
    }

    /// The same, with applications that decide about the messages that pass (N-8): each is called at every node on the
    /// way, the first and the last included, and says whether a message goes on, is rewritten, goes elsewhere or ends.
    ///
    /// # Errors
    /// As [`Router::start`].
    pub fn start_with(
        config: Config,
        applications: Vec<(AppName, Arc<dyn Application>)>,
        options: Options,
    ) -> Result<Self, RouteError> {
        let bind = config.bind;
        let mut machine = Pastry::new(config, start::seed()?)?;
        for (name, application) in applications {
            machine = machine.with_application(name, application);
        }
        let handle = start::spawn(machine, options)?;
        let addr = handle.bound().listener(TCP).unwrap_or(bind);
        Ok(Self { handle, addr })
    }

    /// Waits until the node has found its place: from then on it delivers.
    ///
    /// # Errors
    /// If the node has ended.
    pub async fn joined(&self) -> Result<(), RouteError> {
        let mut events = self.events();
        if self.tables().await?.active {
            return Ok(());
        }
        while let Some(event) = events.next().await {
            if matches!(*event, Event::Joined { .. }) {
                return Ok(());
            }
        }
        Err(RouteError::Stopped)
    }

    /// Sends a message to the owner of a key (N-6); returns when it was delivered. It is delivered at most once,
    /// whatever happens.
    ///
    /// # Errors
    /// [`RouteError::Failed`] if it was certainly not delivered, [`RouteError::Unknown`] if that is not known.
    pub async fn route(
        &self,
        app: &AppName,
        key: Id,
        payload: impl Into<Vec<u8>>,
    ) -> Result<Delivered, RouteError> {
        self.route_with_retries(app, key, payload, 0).await
    }

    /// The same, but it is sent again so often, by another way, when no receipt comes. It is delivered again if its owner
    /// died after delivering it.
    ///
    /// # Errors
    /// As [`Router::route`].
    pub async fn route_with_retries(
        &self,
        app: &AppName,
        key: Id,
        payload: impl Into<Vec<u8>>,
        retries: u8,
    ) -> Result<Delivered, RouteError> {
        let command = Command::Route { app: app.clone(), key, payload: payload.into(), retries };
        match self.command(command).await? {
            Reply::Delivered { by, hops } => Ok(Delivered { by, hops }),
            other => Err(refused(&other)),
        }
    }

    /// Asks the owner of a key; its application's [answer](Router::answer) comes straight back. An application may see
    /// the question more than once.
    ///
    /// # Errors
    /// As [`Router::route`]; [`Failure::NoAnswer`] if the application gave none in time.
    pub async fn ask(
        &self,
        app: &AppName,
        key: Id,
        payload: impl Into<Vec<u8>>,
    ) -> Result<Answer, RouteError> {
        let (app, payload, retries) = (app.clone(), payload.into(), Self::RETRIES);
        match self.command(Command::Ask { app, key, payload, retries }).await? {
            Reply::Answered { by, hops, payload } => Ok(Answer { by, hops, payload }),
            other => Err(refused(&other)),
        }
    }

    /// Answers a question that arrived here.
    ///
    /// # Errors
    /// [`RouteError::NoSuchQuestion`] if it was answered, or nobody waits any more.
    pub async fn answer(&self, question: MessageId, payload: impl Into<Vec<u8>>) -> Result<(), RouteError> {
        self.done(Command::Answer { id: question, payload: payload.into() }).await
    }

    /// The way to a key, step by step; its owner is the last.
    ///
    /// # Errors
    /// As [`Router::route`].
    pub async fn path(&self, key: Id) -> Result<Vec<PathStep>, RouteError> {
        match self.command(Command::Trace { key }).await? {
            Reply::Path(path) => Ok(path),
            other => Err(refused(&other)),
        }
    }

    /// Everything this node knows of the ring.
    ///
    /// # Errors
    /// If it has ended.
    pub async fn tables(&self) -> Result<Tables, RouteError> {
        match self.command(Command::Tables).await? {
            Reply::Tables(tables) => Ok(*tables),
            other => Err(refused(&other)),
        }
    }

    /// Runs an application of this name here from now on: messages for it are delivered, see [`Router::inbox`].
    ///
    /// # Errors
    /// If the node has ended.
    pub async fn register(&self, app: &AppName) -> Result<(), RouteError> {
        self.done(Command::Register(app.clone())).await
    }

    /// Runs it no longer: messages for it fail with [`Failure::NoApplication`].
    ///
    /// # Errors
    /// If the node has ended.
    pub async fn unregister(&self, app: &AppName) -> Result<(), RouteError> {
        self.done(Command::Unregister(app.clone())).await
    }

    /// Joins through this address; if the node is in a ring already, the two rings become one.
    ///
    /// # Errors
    /// If the node has ended.
    pub async fn join(&self, addr: SocketAddr) -> Result<(), RouteError> {
        self.done(Command::Join(addr)).await
    }

    /// What is delivered here for an application from now on. The inbox holds as many unread messages as
    /// [`Options::events_max`] says; see [`Inbox::missed`].
    #[must_use]
    pub fn inbox(&self, app: &AppName) -> Inbox {
        let own = app.clone();
        let is_for_it = move |event: &Event| matches!(event, Event::Delivered { app, .. } if *app == own);
        Inbox { events: self.handle.events_where(is_for_it) }
    }

    /// Everything that happens from now on; [`Event::LeafSetChanged`] is what the notes call `newLeafSet` (N-9).
    #[must_use]
    pub fn events(&self) -> Events<Pastry> {
        self.handle.events()
    }

    /// Where this node really listens.
    #[must_use]
    pub const fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// What driver and machine have counted so far.
    ///
    /// # Errors
    /// If the node has ended.
    pub async fn counters(&self) -> Result<Counters, RouteError> {
        Ok(self.handle.counters().await?)
    }

    /// Ends the node in good order: it says goodbye, and its port is free.
    pub async fn stop(&self) -> Ended {
        self.handle.stop().await
    }

    async fn done(&self, command: Command) -> Result<(), RouteError> {
        match self.command(command).await? {
            Reply::Done => Ok(()),
            other => Err(refused(&other)),
        }
    }

    async fn command(&self, command: Command) -> Result<Reply, RouteError> {
        Ok(self.handle.command(command).await?)
    }
}

/// The messages delivered for one application.
///
/// It is a bounded queue of its own, filled whether somebody reads or not: a message is delivered when it is put in. What
/// comes while it is full is lost to this inbox, and [`Inbox::missed`] counts it. Read it in a task that does
/// nothing slow, or give the node a greater [`Options::events_max`].
#[derive(Debug)]
pub struct Inbox {
    events: Events<Pastry>,
}

impl Inbox {
    /// The next message; `None` once the node has ended.
    pub async fn next(&mut self) -> Option<Arrival> {
        loop {
            let event = self.events.next().await?;
            let Event::Delivered { id, key, origin, payload, hops, ask, .. } = &*event else { continue };
            let (payload, origin) = (payload.clone(), *origin);
            return Some(Arrival { id: *id, key: *key, origin, payload, hops: *hops, ask: *ask });
        }
    }

    /// How many messages were delivered while this inbox was full, and are not in it.
    #[must_use]
    pub fn missed(&self) -> u64 {
        self.events.missed()
    }
}

/// Why a [`Router`] could not do it.
#[derive(Debug, thiserror::Error)]
pub enum RouteError {
    /// The settings cannot work.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The node could not start.
    #[error(transparent)]
    Start(#[from] StartError),
    /// The message was certainly not delivered.
    #[error("{}", why(*.0))]
    Failed(Failure),
    /// Whether the message was delivered is not known.
    #[error("whether it was delivered is not known: ask the owner, or send it again if it may come twice")]
    Unknown,
    /// Too many messages are under way.
    #[error("too many messages are under way: wait for some of them to end")]
    Full,
    /// The message is longer than the configuration allows.
    #[error("the message is longer than `message_bytes_max`: send less, or send where to find it")]
    TooLong,
    /// That question is not open.
    #[error("that question is not open: it was answered, or nobody waits any more")]
    NoSuchQuestion,
    /// The node has ended, or was told to while this waited.
    #[error("the node has ended: start it again")]
    Stopped,
}

fn why(failure: Failure) -> &'static str {
    match failure {
        Failure::NoApplication => "the owner runs no application of that name: register it there",
        Failure::Stopped => "an application on the way stopped the message",
        Failure::HopLimit => "it took more steps than `ttl` allows: the ring is being repaired, try again",
        Failure::NoRoute => "every way that was tried failed: the ring is being repaired, try again",
        Failure::Busy => "a node on the way had no room for it: try again later",
        Failure::NoAnswer => "the owner's application gave no answer in time: see that it answers",
    }
}

impl From<Stopped> for RouteError {
    fn from(_: Stopped) -> Self {
        Self::Stopped
    }
}

/// What a reply other than the one hoped for means.
fn refused(reply: &Reply) -> RouteError {
    match reply {
        Reply::Failed { reason } => RouteError::Failed(*reason),
        Reply::Unknown => RouteError::Unknown,
        Reply::Full => RouteError::Full,
        Reply::TooLong => RouteError::TooLong,
        Reply::NoSuchQuestion => RouteError::NoSuchQuestion,
        _ => RouteError::Stopped,
    }
}
