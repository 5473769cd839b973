//! Who is alive, for applications: a member of a group on real sockets.

use std::net::SocketAddr;
use std::time::Duration;

use annulus_core::Id;
use annulus_core::swim::{Command, Config, ConfigError, Info, MemberStatus, Node, Reply, Swim, UDP};
use annulus_net::{Counters, Ended, Events, Handle, Options, Stopped};

use crate::start::{self, StartError};

/// A member of a group: who else is there, and what is to be told to everybody.
///
/// It is cheap to clone. When the last clone is dropped the node says goodbye to the group and ends.
///
/// ```
/// use std::time::Duration;
///
/// use annulus::core::Id;
/// use annulus::core::swim::{Config, Event, Preset};
/// use annulus::{MemberList, Options};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// let node = |address: &str, number| -> Result<_, Box<dyn std::error::Error>> {
///     let id = Id::from_uuid([number; 16]);
///     let config = Config { bind: address.parse()?, ..Config::new(id, Preset::Local) };
///     Ok(MemberList::start(&config, Options::default())?)
/// };
/// let (red, blue) = (node("127.0.0.1:0", 1)?, node("127.0.0.2:0", 2)?);
/// let mut events = red.events();
///
/// // Any member will do: the others are heard of soon after.
/// blue.join(&[red.addr()]).await?;
/// while !matches!(events.next().await.as_deref(), Some(Event::MemberJoined { .. })) {}
/// assert_eq!(red.member_count().await?, 2);
/// assert_eq!(red.members().await?.len(), 2);
///
/// // What one member tells, the application of every other hears.
/// blue.broadcast("hello").await?;
/// while !matches!(events.next().await.as_deref(), Some(Event::UserReceived { data, .. }) if data == b"hello") {}
///
/// // Who leaves is not missed.
/// blue.leave(Some(Duration::from_secs(10))).await?;
/// while !matches!(events.next().await.as_deref(), Some(Event::MemberLeft { .. })) {}
/// blue.stop().await;
/// # Ok(()) }) }
/// ```
#[derive(Clone, Debug)]
pub struct MemberList {
    handle: Handle<Swim>,
    addr: SocketAddr,
}

impl MemberList {
    /// Binds the socket and starts the failure detector (S-126, S-132): on the tokio runtime that this is called in.
    /// With [`Options::with_store`] the known members outlive the process.
    ///
    /// # Errors
    /// If the settings cannot work, or the address or the store cannot be used.
    pub fn start(config: &Config, options: Options) -> Result<Self, MembersError> {
        let handle = start::spawn(Swim::new(config, start::seed()?)?, options)?;
        let addr = handle.bound().socket(UDP).unwrap_or(config.bind);
        Ok(Self { handle, addr })
    }

    /// Tells something to the application of every member (S-127). Waits while too much waits to be sent.
    ///
    /// # Errors
    /// If it does not fit a packet, or the node has ended or does not detect.
    pub async fn broadcast(&self, data: impl Into<Vec<u8>>) -> Result<(), MembersError> {
        self.done(Command::Broadcast { data: data.into(), wait: true }).await
    }

    /// The same, but does not wait.
    ///
    /// # Errors
    /// As [`MemberList::broadcast`], and [`MembersError::Full`] if too much waits to be sent.
    pub async fn try_broadcast(&self, data: impl Into<Vec<u8>>) -> Result<(), MembersError> {
        self.done(Command::Broadcast { data: data.into(), wait: false }).await
    }

    /// This node, as the others see it (S-128).
    ///
    /// # Errors
    /// If it has ended.
    pub async fn local_node(&self) -> Result<Node, MembersError> {
        match self.ask(Command::LocalNode).await? {
            Reply::LocalNode(node) => Ok(node),
            other => Err(refused(&other)),
        }
    }

    /// All known live members, this node among them (S-129).
    ///
    /// # Errors
    /// If the node has ended.
    pub async fn members(&self) -> Result<Vec<MemberStatus>, MembersError> {
        self.list(false).await
    }

    /// The same, and those who died or left and are not forgotten yet.
    ///
    /// # Errors
    /// If the node has ended.
    pub async fn all_members(&self) -> Result<Vec<MemberStatus>, MembersError> {
        self.list(true).await
    }

    /// How many members live, as far as this node knows (S-130).
    ///
    /// # Errors
    /// If it has ended.
    pub async fn member_count(&self) -> Result<usize, MembersError> {
        match self.ask(Command::MemberCount).await? {
            Reply::Count(count) => Ok(count),
            other => Err(refused(&other)),
        }
    }

    /// Changes what this node tells of itself, and tells it (S-131).
    ///
    /// # Errors
    /// If it is too large, or the node has ended.
    pub async fn set_meta(&self, meta: impl Into<Vec<u8>>) -> Result<(), MembersError> {
        self.done(Command::SetMeta { meta: meta.into() }).await
    }

    /// Tells everybody how this node is; returns when the first member was told (S-134). `None` waits for ever.
    ///
    /// # Errors
    /// If nobody could be told in time, or the node has ended or does not detect.
    pub async fn update(&self, timeout: Option<Duration>) -> Result<(), MembersError> {
        self.done(Command::Update { timeout }).await
    }

    /// Joins a group through any of these; returns when all were written to (S-135). Who answers is told as
    /// [`Event::Joined`](annulus_core::swim::Event::Joined), who does not as
    /// [`Event::JoinFailed`](annulus_core::swim::Event::JoinFailed).
    ///
    /// # Errors
    /// If none of the addresses can be joined, or the node has ended or does not detect.
    pub async fn join(&self, addrs: &[SocketAddr]) -> Result<usize, MembersError> {
        match self.ask(Command::Join { addrs: addrs.to_vec() }).await? {
            Reply::Joining { addrs } => Ok(addrs),
            other => Err(refused(&other)),
        }
    }

    /// Says goodbye; returns when the first member was told (S-136). `None` waits for ever.
    ///
    /// # Errors
    /// If nobody could be told in time, or the node has ended or does not detect.
    pub async fn leave(&self, timeout: Option<Duration>) -> Result<(), MembersError> {
        self.done(Command::Leave { timeout }).await
    }

    /// Takes a node that will not come back for one that left. If it lives, it contradicts.
    ///
    /// # Errors
    /// If it is not known, or the node has ended.
    pub async fn force_leave(&self, id: Id) -> Result<(), MembersError> {
        self.done(Command::ForceLeave { id }).await
    }

    /// The round-trip time to a member, or between any two; `None` if nothing is known of it yet.
    ///
    /// # Errors
    /// If the node has ended.
    pub async fn rtt(&self, from: Option<Id>, to: Id) -> Result<Option<Duration>, MembersError> {
        match self.ask(Command::Rtt { from, to }).await? {
            Reply::Rtt(micros) => Ok(micros.map(Duration::from_micros)),
            other => Err(refused(&other)),
        }
    }

    /// How this node is.
    ///
    /// # Errors
    /// If it has ended.
    pub async fn info(&self) -> Result<Info, MembersError> {
        match self.ask(Command::Info).await? {
            Reply::Info(info) => Ok(info),
            other => Err(refused(&other)),
        }
    }

    /// Detects failures no longer, without a goodbye (S-133); [`MemberList::resume`] goes on.
    ///
    /// # Errors
    /// If the node has ended.
    pub async fn pause(&self) -> Result<(), MembersError> {
        self.done(Command::Stop).await
    }

    /// Detects failures again (S-132).
    ///
    /// # Errors
    /// If it does already, or the node has ended.
    pub async fn resume(&self) -> Result<(), MembersError> {
        self.done(Command::Start).await
    }

    /// Ends the node in good order: it says goodbye, unless the configuration says otherwise, and its port is free.
    pub async fn stop(&self) -> Ended {
        self.handle.stop().await
    }

    /// Subscribes to what happens from here on (S-125).
    #[must_use]
    pub fn events(&self) -> Events<Swim> {
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
    pub async fn counters(&self) -> Result<Counters, MembersError> {
        Ok(self.handle.counters().await?)
    }

    async fn list(&self, all: bool) -> Result<Vec<MemberStatus>, MembersError> {
        match self.ask(Command::Members { all }).await? {
            Reply::Members(members) => Ok(members),
            other => Err(refused(&other)),
        }
    }

    async fn done(&self, command: Command) -> Result<(), MembersError> {
        match self.ask(command).await? {
            Reply::Done => Ok(()),
            other => Err(refused(&other)),
        }
    }

    async fn ask(&self, command: Command) -> Result<Reply, MembersError> {
        Ok(self.handle.command(command).await?)
    }
}

/// Why a [`MemberList`] could not do it.
#[derive(Debug, thiserror::Error)]
pub enum MembersError {
    /// The settings cannot work.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The node could not start.
    #[error(transparent)]
    Start(#[from] StartError),
    /// It does not fit a packet.
    #[error("{bytes} bytes are over the limit of {bytes_max}: send less, or send where to find it")]
    TooLarge {
        /// How large it is.
        bytes: usize,
        /// How large it may be.
        bytes_max: usize,
    },
    /// Too much waits to be sent.
    #[error("too many messages wait to be sent: try again later, or use `broadcast`, which waits")]
    Full,
    /// Nobody was told in time; it is still on its way.
    #[error("nobody could be told in time: it is still on its way")]
    TimedOut,
    /// None of the addresses can be joined.
    #[error("there is no address to join: they are this node's own, or already being joined")]
    NoAddress,
    /// The node has said goodbye.
    #[error("this node has left the group: join again first")]
    HasLeft,
    /// No such member is known.
    #[error("no such member is known")]
    NoSuchMember,
    /// The detector is paused.
    #[error("the failure detector is paused: `resume` it first")]
    Paused,
    /// The detector is not paused.
    #[error("the failure detector runs already")]
    Running,
    /// The node has ended, or was told to while this waited.
    #[error("the node has ended: start it again")]
    Stopped,
}

impl From<Stopped> for MembersError {
    fn from(_: Stopped) -> Self {
        Self::Stopped
    }
}

/// What a reply other than the one hoped for means.
fn refused(reply: &Reply) -> MembersError {
    match reply {
        Reply::TooLarge { bytes, bytes_max } => {
            MembersError::TooLarge { bytes: *bytes, bytes_max: *bytes_max }
        }
        Reply::Full => MembersError::Full,
        Reply::TimedOut => MembersError::TimedOut,
        Reply::NoAddress => MembersError::NoAddress,
        Reply::NoSuchMember => MembersError::NoSuchMember,
        Reply::HasLeft => MembersError::HasLeft,
        Reply::NotStarted => MembersError::Paused,
        Reply::AlreadyStarted => MembersError::Running,
        _ => MembersError::Stopped,
    }
}
