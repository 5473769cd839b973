//! A node: up to four services in one process, behind typed handles.

mod builder;
mod join;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use annulus_core::Service;
use annulus_core::node::{Companion, Node as Machine};
use annulus_core::swim::Swim;
use annulus_net::{Counters, Driver, Ended, Events, Handle, Stopped};
use tokio::sync::{Mutex, watch};

pub use builder::{Builder, broadcast_of};
pub use join::JoinError;

use crate::channel::Channel;
use crate::companion::CompanionHandle;
use crate::data_dir::DataDir;
use crate::identity::Identity;
use crate::known_nodes;
use crate::locks::Locks;
use crate::member_list::MemberList;
use crate::mesh::Mesh;
use crate::router::Router;
use crate::services;
use crate::start::StartError;
use crate::tags_file::TagsFile;
use crate::token::Token;
use join::JoinWatch;

/// A running node. It is cheap to clone. The node leaves its group in the background when the last clone and the last
/// handle of a service are dropped.
///
/// ```
/// use std::net::IpAddr;
/// use std::time::Duration;
///
/// use annulus::Node;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// let node = |name: &str, ip: [u8; 4]| Node::builder().name(name).bind(IpAddr::from(ip)).members();
/// let red = node("red", [127, 0, 7, 1]).start().await?;
/// let blue = node("blue", [127, 0, 7, 2]).join(["127.0.7.1:7946"]).start().await?;
///
/// // The node is in, or the error says why not.
/// blue.joined(Duration::from_secs(20)).await?;
/// let members = blue.members().expect("this node runs members");
/// assert_eq!(members.members().await?.len(), 2);
///
/// blue.stop().await;
/// red.stop().await;
/// # Ok(()) }) }
/// ```
#[derive(Clone, Debug)]
pub struct Node {
    running: Arc<Running>,
}

/// A running machine that stops when the last of its users is gone.
#[derive(Debug)]
pub(crate) struct Running {
    handle: Handle<Machine>,
    name: String,
    identity: Identity,
    join: JoinWatch,
    tags_file: Mutex<TagsFile>,
    /// Its sender is dropped with the lock of the data directory.
    unlocked: watch::Receiver<()>,
}

impl Running {
    pub(crate) const fn handle(&self) -> &Handle<Machine> {
        &self.handle
    }

    /// Hold this lock to change the tags of the node.
    pub(crate) const fn tags_file(&self) -> &Mutex<TagsFile> {
        &self.tags_file
    }

    /// Stops the node, and waits until its ports and its data directory are free.
    pub(crate) async fn stop(&self) -> Ended {
        let ended = self.handle.stop().await;
        let mut unlocked = self.unlocked.clone();
        while unlocked.changed().await.is_ok() {}
        ended
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.handle.begin_stop();
    }
}

impl Node {
    /// Begins to describe a node.
    pub fn builder() -> Builder {
        Builder::new()
    }

    /// Runs the machine that the builder assembled.
    fn run(machine: Machine, data: DataDir, plan: builder::Plan) -> Result<Self, StartError> {
        let builder::Plan { name, options, seeds, hosts } = plan;
        let (driver, handle) = Driver::bind(machine, options)?;
        let (identity, tags_file) = (data.identity(), Mutex::new(TagsFile::new(data.path())));
        // The watch hears every event: the machine is not called before the driver runs.
        let join = JoinWatch::start(&handle, &seeds, hosts);
        tokio::spawn(driver);
        tokio::spawn(known_nodes::keep(handle.clone(), data.path().map(known_nodes::KnownNodes::new)));
        let (ended, (lock, unlocked)) = (handle.clone(), watch::channel(()));
        tokio::spawn(async move {
            ended.ended().await;
            // The directory stays locked until the store is closed.
            drop((data, lock));
        });
        Ok(Self { running: Arc::new(Running { handle, name, identity, join, tags_file, unlocked }) })
    }

    /// Waits until every service of this node is in its group: a member answers, and the ring of `route` has this node.
    ///
    /// # Errors
    /// [`JoinError`] says why the node is not in after `within`.
    pub async fn joined(&self, within: Duration) -> Result<(), JoinError> {
        self.running.join.joined(&self.running.handle, within).await
    }

    /// The handle of `members`; `None` if this node does not run it.
    #[must_use]
    pub fn members(&self) -> Option<MemberList> {
        let addr = self.addr(services::MEMBERS)?;
        Some(MemberList::within(Channel::<Swim>::within(&self.running, services::MEMBERS), addr))
    }

    /// The handle of `route`; `None` if this node does not run it.
    #[must_use]
    pub fn route(&self) -> Option<Router> {
        let addr = self.addr(services::ROUTE)?;
        Some(Router::within(Channel::within(&self.running, services::ROUTE), addr))
    }

    /// The handle of `token`; `None` if this node does not run it.
    #[must_use]
    pub fn token(&self) -> Option<Token> {
        self.addr(services::TOKEN)?;
        Some(Token::within(Channel::within(&self.running, services::TOKEN)))
    }

    /// The handle of exclusive locks; `None` if this node does not run `turns`.
    #[must_use]
    pub fn locks(&self) -> Option<Locks> {
        self.addr(services::TURNS)?;
        Some(Locks::within(Channel::within(&self.running, services::TURNS)))
    }

    /// The handle of `mesh`; `None` if this node does not run it.
    #[must_use]
    pub fn mesh(&self) -> Option<Mesh> {
        self.addr(services::MESH)?;
        Some(Mesh::within(Channel::within(&self.running, services::MESH)))
    }

    /// The handle of a machine that [`Builder::with`] added under this tag.
    #[must_use]
    pub fn companion<M: Companion>(&self, service: Service) -> CompanionHandle<M> {
        CompanionHandle::new(&self.running, service)
    }

    /// The name of this node.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.running.name
    }

    /// The identity of this node.
    #[must_use]
    pub fn identity(&self) -> Identity {
        self.running.identity
    }

    /// The commands, replies and events of all services, as the machines define them.
    #[must_use]
    pub fn handle(&self) -> &Handle<Machine> {
        &self.running.handle
    }

    /// Subscribes to the events of all services from here on.
    #[must_use]
    pub fn events(&self) -> Events<Machine> {
        self.running.handle.events()
    }

    /// The counters of driver and machines.
    ///
    /// # Errors
    /// If the node has ended.
    pub async fn counters(&self) -> Result<Counters, Stopped> {
        self.running.handle.counters().await
    }

    /// Stops the node: it leaves the group, closes its store and frees its ports and its data directory.
    pub async fn stop(&self) -> Ended {
        self.running.stop().await
    }

    /// The address of the first socket or listener of a service; `None` if this node does not run it.
    #[must_use]
    pub fn addr(&self, service: Service) -> Option<SocketAddr> {
        let bound = self.running.handle.bound().of(service);
        let sockets = bound.sockets.first().map(|(_, addr)| *addr);
        sockets.or_else(|| bound.listeners.first().map(|(_, addr)| *addr))
    }
}
