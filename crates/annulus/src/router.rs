//! Routing by key for applications: a node of a Pastry ring on real sockets.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use annulus_core::Id;
use annulus_core::pastry::{
    AppName, Application, Command, Config, Contact, Event, KeyRange, MessageId, Outcome, Pastry, PathStep,
    Reply, TCP, Tables, Verdict,
};
use annulus_net::{Counters, Ended, Options};

mod error;
mod inbox;
mod serve;

pub use error::RouteError;
pub use inbox::{Arrival, Inbox};
pub use serve::{Limits, Request, Serve, Server};

use crate::channel::{Channel, ServiceEvent, ServiceEvents};
use crate::start;

/// A node of a Pastry ring: it routes messages to the owners of keys, and owns keys itself.
///
/// It is cheap to clone. When the last clone is dropped the node leaves the ring and ends.
///
/// ```
/// use annulus::core::Id;
/// use annulus::core::pastry::{AppName, Config, Verdict};
/// use annulus::{Limits, Options, Router};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// let node = |address: &str, id, seeds| -> Result<_, Box<dyn std::error::Error>> {
///     let config = Config { id: Id::new(id), bind: address.parse()?, seeds, ..Config::default() };
///     Ok(Router::start(config, Options::default())?)
/// };
/// // The first node of a ring needs no seed, the others need one.
/// let red = node("127.0.0.1:0", 1 << 120, vec![])?;
/// let blue = node("127.0.0.2:0", 9 << 120, vec![red.addr()])?;
/// blue.joined().await?;
///
/// // An application accepts or refuses each message, and may answer it.
/// let app = AppName::default();
/// let server = blue.serve(&app, Limits::default(), |request| async move {
///     match &request.payload[..] {
///         b"which colour?" => Verdict::Answer(b"blue".to_vec()),
///         _ => Verdict::Accept,
///     }
/// });
/// let _server = server.await?;
///
/// // A message arrives at the node whose id is closest to its key, and is delivered when the application accepts it.
/// let key = Id::new(8 << 120);
/// assert_eq!(red.route(&app, key, "hello").await?.by.id, Id::new(9 << 120));
/// assert_eq!(red.ask(&app, key, "which colour?").await?.payload, b"blue");
/// # Ok(()) }) }
/// ```
#[derive(Clone, Debug)]
pub struct Router {
    channel: Channel<Pastry>,
    addr: SocketAddr,
}

/// A message that an application accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Delivered {
    /// Where.
    pub by: Contact,
    /// After how many hops.
    pub hops: u8,
    /// Whether the application has stored it and will handle it later.
    pub is_kept: bool,
}

/// The answer to a question.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Answer {
    /// The node that answers.
    pub by: Contact,
    /// After how many hops the question was there.
    pub hops: u8,
    /// The answer.
    pub payload: Vec<u8>,
}

/// The options of a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SendOptions {
    /// Whether the router retries only after an attempt that certainly reached no application. Then no application gets
    /// it twice, but [`RouteError::Unknown`] is more frequent in faults.
    pub once: bool,
    /// The deadline for the outcome; `None` is `message_timeout` of the configuration.
    pub deadline: Option<Duration>,
}

impl Router {
    /// Binds the sockets and starts the node on the current tokio runtime. A node without seeds is the first of its
    /// ring; any other joins, and [`Router::joined`] waits for that. With [`Options::with_store`] a restarted node has
    /// a new generation.
    ///
    /// The applications of this node are those with a live [`Server`] or [`Inbox`]. The router ignores `applications`
    /// of the configuration.
    ///
    /// # Errors
    /// If the settings cannot work, or the address or the store cannot be used.
    pub fn start(config: Config, options: Options) -> Result<Self, RouteError> {
        Self::start_with(config, Vec::new(), options)
    }

    /// As [`Router::start`], with applications that decide about passing messages (N-8). Every node on the path calls
    /// its application, the first and the last included.
    ///
    /// # Errors
    /// As [`Router::start`].
    pub fn start_with(
        config: Config,
        applications: Vec<(AppName, Arc<dyn Application>)>,
        options: Options,
    ) -> Result<Self, RouteError> {
        let bind = config.bind;
        let mut machine = Pastry::new(Config { applications: Vec::new(), ..config }, start::seed()?)?;
        for (name, application) in applications {
            machine = machine.with_application(name, application);
        }
        let handle = start::spawn(machine, options)?;
        let addr = handle.bound().listener(TCP).unwrap_or(bind);
        Ok(Self { channel: Channel::Alone(handle), addr })
    }

    /// The view of a part of a node.
    pub(crate) const fn within(channel: Channel<Pastry>, addr: SocketAddr) -> Self {
        Self { channel, addr }
    }

    /// Waits until the node is active in the ring and delivers messages.
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

    /// Sends a message to the owner of a key (N-6). Returns when an application there has accepted it. The router
    /// retransmits it over other paths, under the same id, until the outcome is known or the deadline has passed.
    ///
    /// # Errors
    /// [`RouteError::Refused`] if the application refused it, [`RouteError::Failed`] if no application saw it,
    /// [`RouteError::Unknown`] if the deadline passed.
    pub async fn route(
        &self,
        app: &AppName,
        key: Id,
        payload: impl Into<Vec<u8>>,
    ) -> Result<Delivered, RouteError> {
        self.route_with(app, key, payload, SendOptions::default()).await
    }

    /// [`Router::route`] under the name that reads well behind [`Node::route`](crate::Node::route).
    ///
    /// # Errors
    /// As [`Router::route`].
    pub async fn send(
        &self,
        app: &AppName,
        key: Id,
        payload: impl Into<Vec<u8>>,
    ) -> Result<Delivered, RouteError> {
        self.route(app, key, payload).await
    }

    /// The same, with options.
    ///
    /// # Errors
    /// As [`Router::route`].
    pub async fn route_with(
        &self,
        app: &AppName,
        key: Id,
        payload: impl Into<Vec<u8>>,
        SendOptions { once, deadline }: SendOptions,
    ) -> Result<Delivered, RouteError> {
        let (app, payload) = (app.clone(), payload.into());
        let command = Command::Route { app, key, payload, once, wants_answer: false, deadline };
        Ok(self.outcome(command).await?.0)
    }

    /// Asks the owner of a key; the answer of its application comes straight back. An application may see the question
    /// more than once.
    ///
    /// # Errors
    /// As [`Router::route`].
    pub async fn ask(
        &self,
        app: &AppName,
        key: Id,
        payload: impl Into<Vec<u8>>,
    ) -> Result<Answer, RouteError> {
        let (app, payload) = (app.clone(), payload.into());
        let command = Command::Route { app, key, payload, once: false, wants_answer: true, deadline: None };
        let (Delivered { by, hops, .. }, answer) = self.outcome(command).await?;
        Ok(Answer { by, hops, payload: answer.unwrap_or_default() })
    }

    /// Sends a message to one node, whatever keys it owns.
    ///
    /// # Errors
    /// As [`Router::route`]; it fails if there is no such node.
    pub async fn send_to(
        &self,
        app: &AppName,
        node: Id,
        payload: impl Into<Vec<u8>>,
        SendOptions { once, deadline }: SendOptions,
    ) -> Result<Delivered, RouteError> {
        let (app, payload) = (app.clone(), payload.into());
        let command = Command::SendTo { app, node, payload, once, wants_answer: false, deadline };
        Ok(self.outcome(command).await?.0)
    }

    /// Serves an application: calls `handler` for every message and sends its verdict to the origin. The service begins
    /// when this is awaited, and ends when the [`Server`] is dropped. An application has one server or inbox at a time; a
    /// second one is [`RouteError::AlreadyServed`].
    pub fn serve<H, F>(&self, app: &AppName, limits: Limits, handler: H) -> Serve<H>
    where
        H: Fn(Request) -> F + Send + Sync + 'static,
        F: Future<Output = Verdict> + Send + 'static,
    {
        Serve::new(self.channel.clone(), app.clone(), limits, handler)
    }

    /// The new messages for an application, for a program that pulls them. [`Arrival::accept`], [`Arrival::answer`] or
    /// [`Arrival::refuse`] settles each.
    ///
    /// # Errors
    /// [`RouteError::AlreadyServed`] if the application has a server or an inbox; or if the node has ended.
    pub async fn inbox(&self, app: &AppName) -> Result<Inbox, RouteError> {
        Inbox::open(self.channel.clone(), app.clone()).await
    }

    /// The path to a key, hop by hop; its owner is the last.
    ///
    /// # Errors
    /// As [`Router::route`].
    pub async fn path(&self, key: Id) -> Result<Vec<PathStep>, RouteError> {
        match self.command(Command::Trace { key }).await? {
            Reply::Path(path) => Ok(path),
            other => Err(error::refused(other)),
        }
    }

    /// The node that owns a key: the end of the path to it.
    ///
    /// # Errors
    /// As [`Router::route`].
    pub async fn owner(&self, key: Id) -> Result<Contact, RouteError> {
        let path = self.path(key).await?;
        path.last().map(|step| step.contact).ok_or(RouteError::Stopped)
    }

    /// The nodes closest to a key, closest first; `None` if the leaf set does not reach so far.
    ///
    /// # Errors
    /// If the node has ended.
    pub async fn replicas(&self, key: Id, count: usize) -> Result<Option<Vec<Contact>>, RouteError> {
        match self.command(Command::Replicas { key, count }).await? {
            Reply::Replicas(replicas) => Ok(replicas),
            other => Err(error::refused(other)),
        }
    }

    /// The node that a message to a key would go to now; `None` if this node owns it.
    ///
    /// # Errors
    /// If the node has ended.
    pub async fn next_hop(&self, key: Id) -> Result<Option<Contact>, RouteError> {
        match self.command(Command::NextHop { key }).await? {
            Reply::NextHop(next) => Ok(next),
            other => Err(error::refused(other)),
        }
    }

    /// The keys that this node owns.
    ///
    /// # Errors
    /// If the node has ended.
    pub async fn owned_range(&self) -> Result<KeyRange, RouteError> {
        match self.command(Command::OwnedRange).await? {
            Reply::OwnedRange(range) => Ok(range),
            other => Err(error::refused(other)),
        }
    }

    /// The tables of this node.
    ///
    /// # Errors
    /// If it has ended.
    pub async fn tables(&self) -> Result<Tables, RouteError> {
        match self.command(Command::Tables).await? {
            Reply::Tables(tables) => Ok(*tables),
            other => Err(error::refused(other)),
        }
    }

    /// Joins through this address; if the node is in a ring already, the two rings merge.
    ///
    /// # Errors
    /// If the node has ended.
    pub async fn join(&self, addr: SocketAddr) -> Result<(), RouteError> {
        match self.command(Command::Join(addr)).await? {
            Reply::Done => Ok(()),
            other => Err(error::refused(other)),
        }
    }

    /// All events from now on; [`Event::LeafSetChanged`] is `newLeafSet` of the notes (N-9).
    #[must_use]
    pub fn events(&self) -> ServiceEvents<Pastry> {
        self.channel.events()
    }

    /// The changes of the leaf set from now on: the neighbours with which this node shares its keys.
    #[must_use]
    pub fn leaf_set_changes(&self) -> ServiceEvents<Pastry> {
        self.channel.events_where(|event| matches!(event, Event::LeafSetChanged { .. }))
    }

    /// The connections to known nodes that break from now on: messages sent over one may be lost.
    #[must_use]
    pub fn broken_connections(&self) -> ServiceEvents<Pastry> {
        self.channel.events_where(|event| matches!(event, Event::ConnectionBroken { .. }))
    }

    /// The bound address of this node.
    #[must_use]
    pub const fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// The counters of driver and machine.
    ///
    /// # Errors
    /// If the node has ended.
    pub async fn counters(&self) -> Result<Counters, RouteError> {
        Ok(self.channel.counters().await?)
    }

    /// Stops the node: it leaves the ring and frees its port.
    pub async fn stop(&self) -> Ended {
        self.channel.stop().await
    }

    async fn outcome(&self, command: Command) -> Result<(Delivered, Option<Vec<u8>>), RouteError> {
        match self.command(command).await? {
            Reply::Outcome(Outcome::Delivered { by, hops, answer }) => {
                Ok((Delivered { by, hops, is_kept: false }, answer))
            }
            Reply::Outcome(Outcome::Kept { by, hops }) => Ok((Delivered { by, hops, is_kept: true }, None)),
            other => Err(error::refused(other)),
        }
    }

    async fn command(&self, command: Command) -> Result<Reply, RouteError> {
        Ok(self.channel.command(command).await?)
    }
}

/// Registers an application, and unregisters it when this is dropped.
#[derive(Debug)]
struct Registration {
    channel: Channel<Pastry>,
    app: AppName,
}

impl Registration {
    async fn new(channel: Channel<Pastry>, app: AppName) -> Result<Self, RouteError> {
        match channel.command(Command::Register(app.clone())).await? {
            Reply::Done => Ok(Self { channel, app }),
            other => Err(error::refused(other)),
        }
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.channel.tell(Command::Unregister(self.app.clone()));
    }
}

/// The messages for an application, none of them left out.
fn arrivals(channel: &Channel<Pastry>, app: &AppName) -> ServiceEvents<Pastry> {
    let own = app.clone();
    channel.every_event_where(
        move |event| matches!(event, Event::Delivered { app, is_settled: false, .. } if *app == own),
    )
}

fn request(event: ServiceEvent<Pastry>) -> Option<Request> {
    let Event::Delivered { id, attempt, origin, key, payload, hops, wants_answer, .. } = event.into_inner()
    else {
        return None;
    };
    Some(Request { id, attempt, origin, key, payload, hops, wants_answer })
}

/// Settles a message without waiting for the reply.
fn settle(channel: &Channel<Pastry>, id: MessageId, verdict: Verdict) {
    channel.tell(Command::Settle(vec![(id, verdict)]));
}
