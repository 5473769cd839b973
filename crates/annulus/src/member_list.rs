//! Membership for applications: a member of a group on real sockets.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use annulus_core::Id;
use annulus_core::swim::{
    Command, Config, ConfigError, Handler, Info, MemberStatus, Node, Reply, Swim, Tags, TagsError, UDP,
};
use annulus_net::{Counters, Ended, Options, Stopped};

use crate::channel::{Channel, ServiceEvents};
use crate::member::{Member, MemberEvents};
use crate::router::RouteError;
use crate::start::{self, StartError};
use crate::tags_file::TagChanges;

/// A member of a group: it lists the other members and broadcasts to them.
///
/// It is cheap to clone. When the last clone is dropped the node leaves the group and ends.
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
/// // Join through any member; its table names the others.
/// blue.join(&[red.addr()]).await?;
/// while !matches!(events.next().await.as_deref(), Some(Event::MemberJoined { .. })) {}
/// assert_eq!(red.member_count().await?, 2);
/// assert_eq!(red.members().await?.len(), 2);
///
/// // A broadcast reaches the application of every other member.
/// blue.broadcast("hello").await?;
/// while !matches!(events.next().await.as_deref(), Some(Event::UserReceived { data, .. }) if data == b"hello") {}
///
/// // A member that leaves is not suspected.
/// blue.leave(Some(Duration::from_secs(10))).await?;
/// while !matches!(events.next().await.as_deref(), Some(Event::MemberLeft { .. })) {}
/// blue.stop().await;
/// # Ok(()) }) }
/// ```
#[derive(Clone, Debug)]
pub struct MemberList {
    channel: Channel<Swim>,
    addr: SocketAddr,
}

impl MemberList {
    /// Binds the socket and starts the failure detector on the current tokio runtime (S-126, S-132).
    /// With [`Options::with_store`] the known members outlive the process.
    ///
    /// # Errors
    /// If the settings cannot work, or the address or the store cannot be used.
    pub fn start(config: &Config, options: Options) -> Result<Self, MembersError> {
        Self::start_with(config, Vec::new(), options)
    }

    /// The same, with handlers that see every message before the protocol does, in this order (S-9, S-108).
    ///
    /// ```
    /// use annulus::core::Id;
    /// use annulus::core::swim::{Config, Handler, Member, Message, Next, Preset, Verdict};
    /// use annulus::{MemberList, Options};
    ///
    /// /// Takes no events from members whose metadata does not begin with `ops`.
    /// #[derive(Clone, Debug)]
    /// struct OnlyOperators;
    ///
    /// impl Handler for OnlyOperators {
    ///     fn handle(&mut self, message: &Message<'_>, member: Option<&Member>, next: Next<'_>) -> Verdict {
    ///         let is_operator = member.is_some_and(|member| member.contents().meta().starts_with(b"ops"));
    ///         match message {
    ///             Message::User { .. } if !is_operator => Verdict::Refused,
    ///             _ => next.handle(message, member),
    ///         }
    ///     }
    ///
    ///     fn boxed(&self) -> Box<dyn Handler> {
    ///         Box::new(self.clone())
    ///     }
    /// }
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// let config = Config { bind: "127.0.0.1:0".parse()?, ..Config::new(Id::from_uuid([3; 16]), Preset::Local) };
    /// let members = MemberList::start_with(&config, vec![Box::new(OnlyOperators)], Options::default())?;
    /// members.stop().await;
    /// # Ok(()) }) }
    /// ```
    ///
    /// # Errors
    /// As [`MemberList::start`].
    pub fn start_with(
        config: &Config,
        handlers: Vec<Box<dyn Handler>>,
        options: Options,
    ) -> Result<Self, MembersError> {
        let mut swim = Swim::new(config, start::seed()?)?;
        handlers.into_iter().for_each(|handler| swim.use_handler(handler));
        let handle = start::spawn(swim, options)?;
        let addr = handle.bound().socket(UDP).unwrap_or(config.bind);
        Ok(Self { channel: Channel::Alone(handle), addr })
    }

    /// The view of a part of a node.
    pub(crate) const fn within(channel: Channel<Swim>, addr: SocketAddr) -> Self {
        Self { channel, addr }
    }

    /// Sends a user message to every member (S-127). It waits while the send queue is full.
    ///
    /// # Errors
    /// If the message does not fit a packet, the node has ended, or its failure detector is paused.
    pub async fn broadcast(&self, data: impl Into<Vec<u8>>) -> Result<(), MembersError> {
        self.done(Command::Broadcast { data: data.into(), wait: true }).await
    }

    /// As [`MemberList::broadcast`], but without waiting.
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

    /// The channel to the machine.
    pub(crate) const fn channel(&self) -> &Channel<Swim> {
        &self.channel
    }

    /// As [`MemberList::members`], plus the failed and left members of the last [`Config::keep_failed`], with time and
    /// reporter.
    ///
    /// # Errors
    /// If the node has ended.
    pub async fn all_members(&self) -> Result<Vec<MemberStatus>, MembersError> {
        self.list(true).await
    }

    /// All known members with name, tags and state: the live ones, or with `all` also those that failed or left.
    ///
    /// # Errors
    /// If the node has ended.
    pub async fn snapshot(&self, all: bool) -> Result<Vec<Member>, MembersError> {
        Ok(self.list(all).await?.into_iter().map(Member::from).collect())
    }

    /// The members of this name, failed and left ones included; the live ones come first. Names need not be unique.
    ///
    /// # Errors
    /// If the node has ended.
    pub async fn by_name(&self, name: &str) -> Result<Vec<Member>, MembersError> {
        let mut found = self.snapshot(true).await?;
        found.retain(|member| member.name == name);
        found.sort_by_key(|member| !member.state.is_live());
        Ok(found)
    }

    /// The member with this id, also if it failed or left.
    ///
    /// # Errors
    /// If the node has ended.
    pub async fn by_id(&self, id: Id) -> Result<Option<Member>, MembersError> {
        Ok(self.snapshot(true).await?.into_iter().find(|member| member.id == id))
    }

    /// The members as a stream: first each other member that lives is [`MemberEvent::Joined`], then come the changes. So
    /// nobody is missed who joined before this was called.
    ///
    /// [`MemberEvent::Joined`]: crate::MemberEvent::Joined
    #[must_use]
    pub fn member_events(&self) -> MemberEvents {
        MemberEvents::new(self.clone(), self.events())
    }

    /// The number of live members, as far as this node knows (S-130).
    ///
    /// # Errors
    /// If it has ended.
    pub async fn member_count(&self) -> Result<usize, MembersError> {
        match self.ask(Command::MemberCount).await? {
            Reply::Count(count) => Ok(count),
            other => Err(refused(&other)),
        }
    }

    /// Replaces the metadata of this node and broadcasts it (S-131).
    ///
    /// # Errors
    /// If it is too large, or the node has ended.
    pub async fn set_meta(&self, meta: impl Into<Vec<u8>>) -> Result<(), MembersError> {
        self.done(Command::SetMeta { meta: meta.into() }).await
    }

    /// The tags of this node.
    ///
    /// # Errors
    /// If the node has ended.
    pub async fn tags(&self) -> Result<BTreeMap<String, String>, MembersError> {
        Ok(Tags::decode(&self.local_node().await?.meta).unwrap_or_default().tags)
    }

    /// Changes the tags of this node and broadcasts them. Returns the new tags. A tag that is both set and removed is
    /// removed. A node with a data directory has the change after a restart, too.
    ///
    /// # Errors
    /// [`MembersError::Tags`] if they cannot be sent, [`MembersError::TagsNotKept`] if the disk does not take them.
    pub async fn change_tags(
        &self,
        set: BTreeMap<String, String>,
        remove: &[String],
    ) -> Result<BTreeMap<String, String>, MembersError> {
        if let Some(key) = set.keys().find(|key| key.is_empty() || key.contains('=')) {
            return Err(MembersError::BadTag(key.clone()));
        }
        // One change at a time: each begins with the tags that the one before it has left.
        let kept = match self.channel.node() {
            Some(node) => Some(node.tags_file().lock().await),
            None => None,
        };
        let mut tags = Tags::decode(&self.local_node().await?.meta).unwrap_or_default();
        let mut change = TagChanges::default();
        change.change(set, remove);
        change.apply(&mut tags.tags);
        self.set_meta(tags.encode()?).await?;
        if let Some(file) = kept.as_deref().cloned().filter(|_| change != TagChanges::default()) {
            let keep = move || file.write(&file.read().then(change));
            let kept = tokio::task::spawn_blocking(keep).await.unwrap_or_else(|error| Err(error.into()));
            kept.map_err(MembersError::TagsNotKept)?;
        }
        Ok(tags.tags)
    }

    /// Broadcasts the state of this node. Returns when it was sent to a first member (S-134). `None` is no timeout.
    ///
    /// # Errors
    /// If no member received it before the timeout, the node has ended, or its failure detector is paused.
    pub async fn update(&self, timeout: Option<Duration>) -> Result<(), MembersError> {
        self.done(Command::Update { timeout }).await
    }

    /// Sends a Join to these addresses and returns (S-135). An address that answers gives
    /// [`Event::Joined`](annulus_core::swim::Event::Joined), any other
    /// [`Event::JoinFailed`](annulus_core::swim::Event::JoinFailed).
    ///
    /// # Errors
    /// If none of the addresses can be joined, the node has ended, or its failure detector is paused.
    pub async fn join(&self, addrs: &[SocketAddr]) -> Result<usize, MembersError> {
        match self.ask(Command::Join { addrs: addrs.to_vec() }).await? {
            Reply::Joining { addrs } => Ok(addrs),
            other => Err(refused(&other)),
        }
    }

    /// Leaves the group. Returns when the notice was sent to one member (S-136). `None` is no timeout.
    ///
    /// # Errors
    /// If no member received it before the timeout, the node has ended, or its failure detector is paused.
    pub async fn leave(&self, timeout: Option<Duration>) -> Result<(), MembersError> {
        self.done(Command::Leave { timeout }).await
    }

    /// Marks a failed member as left. A member that is alive refutes it.
    ///
    /// # Errors
    /// If it is not known, or the node has ended.
    pub async fn force_leave(&self, id: Id) -> Result<(), MembersError> {
        self.done(Command::ForceLeave { id, prune: false }).await
    }

    /// As [`MemberList::force_leave`], and forgets the member: this node no longer lists, probes or stores it.
    ///
    /// # Errors
    /// If it is not known, or the node has ended.
    pub async fn prune(&self, id: Id) -> Result<(), MembersError> {
        self.done(Command::ForceLeave { id, prune: true }).await
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

    /// The state of this node: incarnation, health, queue lengths.
    ///
    /// # Errors
    /// If it has ended.
    pub async fn info(&self) -> Result<Info, MembersError> {
        match self.ask(Command::Info).await? {
            Reply::Info(info) => Ok(info),
            other => Err(refused(&other)),
        }
    }

    /// Pauses the failure detector without leaving the group (S-133); [`MemberList::resume`] restarts it.
    ///
    /// # Errors
    /// If the node has ended.
    pub async fn pause(&self) -> Result<(), MembersError> {
        self.done(Command::Stop).await
    }

    /// Resumes the failure detector (S-132).
    ///
    /// # Errors
    /// If the detector runs already, or the node has ended.
    pub async fn resume(&self) -> Result<(), MembersError> {
        self.done(Command::Start).await
    }

    /// Stops the node: it leaves the group, unless the configuration says otherwise, and frees its port.
    pub async fn stop(&self) -> Ended {
        self.channel.stop().await
    }

    /// Subscribes to events from here on (S-125).
    #[must_use]
    pub fn events(&self) -> ServiceEvents<Swim> {
        self.channel.events()
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
    pub async fn counters(&self) -> Result<Counters, MembersError> {
        Ok(self.channel.counters().await?)
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
        Ok(self.channel.command(command).await?)
    }
}

/// The error of a [`MemberList`] method.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
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
        /// Its size.
        bytes: usize,
        /// The limit.
        bytes_max: usize,
    },
    /// Too much waits to be sent.
    #[error("too many messages wait to be sent: try again later, or use `broadcast`, which waits")]
    Full,
    /// The timeout passed before a member was sent the update; it stays in the queue.
    #[error("no member received the broadcast within the timeout; it is still being sent")]
    TimedOut,
    /// None of the addresses can be joined.
    #[error("there is no address to join: they are this node's own, or already being joined")]
    NoAddress,
    /// The node has left the group.
    #[error("this node has left the group: join again first")]
    HasLeft,
    /// No such member is known.
    #[error("no such member is known")]
    NoSuchMember,
    /// Several members have the name.
    #[error("{} members have the name {name:?}: give the id of one", .ids.len())]
    AmbiguousName {
        /// The name.
        name: String,
        /// The members.
        ids: Vec<Id>,
    },
    /// This node does not run `route`, which carries messages to one member.
    #[error("messages to one member travel over `route`: let the node run it")]
    NeedsRoute,
    /// The member did not accept the message.
    #[error("the member did not accept it: {0}")]
    NotDelivered(#[source] Box<RouteError>),
    /// It is no key of a tag.
    #[error("{0:?} is no key of a tag")]
    BadTag(String),
    /// The tags cannot be sent to others.
    #[error(transparent)]
    Tags(#[from] TagsError),
    /// The tags are changed, but not on the disk.
    #[error("the tags are changed, but a restart would lose them: {0}")]
    TagsNotKept(#[source] io::Error),
    /// The detector is paused.
    #[error("the failure detector is paused: `resume` it first")]
    Paused,
    /// The detector is not paused.
    #[error("the failure detector runs already")]
    Running,
    /// The node ended before or during this call.
    #[error("the node has ended: start it again")]
    Stopped,
}

impl MembersError {
    /// The error of a message to one member.
    pub(crate) fn not_delivered(error: RouteError) -> Self {
        match error {
            RouteError::Stopped => Self::Stopped,
            other => Self::NotDelivered(Box::new(other)),
        }
    }
}

impl From<Stopped> for MembersError {
    fn from(_: Stopped) -> Self {
        Self::Stopped
    }
}

/// The error of an unexpected reply.
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
