//! The builder: from a description of a node to the machine that runs.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
#[cfg(feature = "disk")]
use std::path::PathBuf;
use std::sync::Arc;

use annulus_core::jitterbug::{OwnApplication, Shipped};
use annulus_core::node::{Assembly, Companion, MEMBERS_PORT, OwnPart, Part};
use annulus_core::pastry::{AppName, Application};
use annulus_core::swim::Preset;
use annulus_core::{Rng, Service, jitterbug, pastry, swim, turns, w3w};
use annulus_net::Options;

use super::Node;
use crate::data_dir::DataDir;
use crate::known_nodes::KnownNodes;
use crate::start::{self, StartError};
use crate::tags_file::TagsFile;
use crate::token_port::token_port;

/// Describes a node: its addresses, its seeds, its services. [`Builder::start`] runs it.
#[must_use = "a builder does nothing until `start`"]
pub struct Builder {
    name: Option<String>,
    #[cfg(feature = "disk")]
    data_dir: Option<PathBuf>,
    join: Vec<String>,
    options: Options,
    assembly: Assembly,
}

/// The part of a description that the running node needs.
pub(super) struct Plan {
    pub(super) name: String,
    pub(super) options: Options,
    pub(super) seeds: Vec<SocketAddr>,
    pub(super) hosts: Vec<String>,
}

impl Builder {
    pub(super) fn new() -> Self {
        Self {
            name: None,
            #[cfg(feature = "disk")]
            data_dir: None,
            join: Vec::new(),
            options: Options::default(),
            // The identity is that of the data directory, or a new one.
            assembly: Assembly::new([0; 16]),
        }
    }

    /// The name that people call this node by. Without one, it is the first eight digits of its id.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// The directory for identity and store. Without one, the node has a new identity at each start and keeps nothing. It
    /// needs the feature `disk`.
    #[cfg(feature = "disk")]
    pub fn data_dir(mut self, path: impl Into<PathBuf>) -> Self {
        self.data_dir = Some(path.into());
        self
    }

    /// The address of all services; each has its own port. The default is 127.0.0.1.
    pub fn bind(mut self, ip: impl Into<IpAddr>) -> Self {
        self.assembly.bind = ip.into();
        self
    }

    /// The address at which others reach this node, if it differs from the bound one: behind a NAT, or with a socket
    /// bound to all addresses. It is that of `members` and `route`; their ports are those of the bound sockets.
    pub fn advertise(mut self, ip: impl Into<IpAddr>) -> Self {
        self.assembly.advertise = Some(ip.into());
        self
    }

    /// A tag that other members see.
    pub fn tag(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.assembly.tags.insert(key.into(), value.into());
        self
    }

    /// Members to join through: addresses or host names, with a port or with the default port 7946. The node looks host
    /// names up again until a member answers.
    pub fn join<S: Into<String>>(mut self, seeds: impl IntoIterator<Item = S>) -> Self {
        self.join.extend(seeds.into_iter().map(Into::into));
        self
    }

    /// The name that keeps this group of `members` and `route` apart from others. The default is that of agents.
    pub fn ring(mut self, name: impl Into<String>) -> Self {
        self.assembly.ring = name.into();
        self
    }

    /// The timing of `members`. The default is [`Preset::Lan`].
    pub fn preset(mut self, preset: Preset) -> Self {
        self.assembly.preset = preset;
        self
    }

    /// The limits of the driver. The store in them is used only by a node without a data directory.
    pub fn options(mut self, options: Options) -> Self {
        self.options = options;
        self
    }

    /// Runs `members`.
    pub fn members(self) -> Self {
        self.members_with(|_| {})
    }

    /// Runs `members` with a changed configuration. Id, addresses, metadata and seeds are set before.
    pub fn members_with(mut self, setup: impl FnOnce(&mut swim::Config) + Send + 'static) -> Self {
        self.assembly.members = Some(Box::new(setup));
        self
    }

    /// Runs `route`.
    pub fn route(self) -> Self {
        self.route_with(|_| {})
    }

    /// Runs `route` with a changed configuration. Id and addresses are set before.
    pub fn route_with(mut self, setup: impl FnOnce(&mut pastry::Config) + Send + 'static) -> Self {
        self.assembly.route = Some(Box::new(setup));
        self
    }

    /// Calls this for every message of an application that passes this node: its `forward` decides whether and where the
    /// message goes on.
    pub fn route_application(mut self, name: AppName, application: Arc<dyn Application>) -> Self {
        self.assembly.applications.push((name, application));
        self
    }

    /// Runs `token`.
    pub fn token(self) -> Self {
        self.token_with(|_| {})
    }

    /// Runs `token` with a changed configuration. Address and broadcast addresses are set before.
    pub fn token_with(mut self, setup: impl FnOnce(&mut jitterbug::Config) + Send + 'static) -> Self {
        self.assembly.token = Some(Box::new(setup));
        self
    }

    /// The data that the token of this node carries. The default is [`Shipped::Ledger`].
    pub fn token_data(mut self, data: Shipped) -> Self {
        self.assembly.token_data = data;
        self
    }

    /// The token of this node carries the data of an application of your own. A panic in it is the error of that call. All
    /// nodes of a ring run the same application.
    pub fn token_application<A>(self, application: A) -> Self
    where
        A: jitterbug::Application<Change = jitterbug::Set> + Clone + fmt::Debug + PartialEq + Send + 'static,
    {
        self.token_data(Shipped::Own(OwnApplication::new(application)))
    }

    /// Runs `mesh`.
    pub fn mesh(self) -> Self {
        self.mesh_with(|_| {})
    }

    /// Runs `mesh` with a changed configuration. Identity, address and known nodes are set before.
    pub fn mesh_with(mut self, setup: impl FnOnce(&mut w3w::Config) + Send + 'static) -> Self {
        self.assembly.mesh = Some(Box::new(setup));
        self
    }

    /// Takes exclusive turns from these voters, and is one of them if its address is in the list. The list is the same on all
    /// nodes; three or five voters are usual. [`Node::locks`] is the handle.
    pub fn locks(self, voters: impl IntoIterator<Item = SocketAddr>) -> Self {
        let voters: Vec<SocketAddr> = voters.into_iter().collect();
        self.turns_with(move |config| {
            let own = voters.iter().find(|voter| voter.ip() == config.bind.ip()).copied();
            (config.bind, config.own) = (own.unwrap_or(config.bind), own.unwrap_or(config.own));
            config.voters = voters;
        })
    }

    /// Runs `turns`: grants and takes exclusive turns. The setup names the voters; id and address are set before.
    pub fn turns_with(mut self, setup: impl FnOnce(&mut turns::Config) + Send + 'static) -> Self {
        self.assembly.turns = Some(Box::new(setup));
        self
    }

    /// Adds a machine of the application's own under a tag: it runs beside the services, gets their events and gives them
    /// commands. Tags from 128 on are for applications; a tag is part of the store's format. [`Node::companion`] is the
    /// handle.
    pub fn with<M: Companion>(mut self, service: Service, machine: M) -> Self {
        self.assembly.companions.push((service, Part::Own(OwnPart::new(machine))));
        self
    }

    /// Starts the node on the tokio runtime that this is called in.
    ///
    /// # Errors
    /// [`StartError`] names the service or the resource that cannot be used.
    #[expect(
        clippy::unused_async,
        reason = "a later version may have to wait, and the call then stays the same"
    )]
    pub async fn start(mut self) -> Result<Node, StartError> {
        if tokio::runtime::Handle::try_current().is_err() {
            return Err(StartError::NoRuntime);
        }
        let data = self.open_data_dir()?;
        let (seeds, hosts) = seeds(std::mem::take(&mut self.join));
        let (mut assembly, mut options) = (self.assembly, self.options);
        assembly.has_seeds = !(seeds.is_empty() && hosts.is_empty());
        if assembly.has_seeds && assembly.members.is_none() {
            return Err(StartError::JoinWithoutMembers);
        }
        if data.path().is_some() {
            options.store = data.store();
        }
        let name = self.name.unwrap_or_else(|| data.identity().id().to_string()[..8].to_owned());
        TagsFile::new(data.path()).read().apply(&mut assembly.tags);
        (assembly.uuid, assembly.name) = (data.identity().uuid(), name.clone());
        assembly.seeds.clone_from(&seeds);
        if assembly.token.is_some() {
            assembly.token_tcp_port = token_port(&options.store, assembly.bind);
            assembly.broadcast = broadcast_of(assembly.bind);
        }
        assembly.known = KnownNodes::read(data.path());
        // One seed of the system gives those of all services.
        let mut rng = Rng::new(start::seed()?);
        let machine = assembly.build(|_| rng.seed())?;
        Node::run(machine, data, Plan { name, options, seeds, hosts })
    }

    #[cfg(feature = "disk")]
    fn open_data_dir(&mut self) -> Result<DataDir, StartError> {
        Ok(match self.data_dir.take() {
            Some(path) => DataDir::open(&path)?,
            None => DataDir::none(),
        })
    }

    #[cfg(not(feature = "disk"))]
    #[expect(clippy::unnecessary_wraps, clippy::unused_self, reason = "with a disk it can fail")]
    fn open_data_dir(&mut self) -> Result<DataDir, StartError> {
        Ok(DataDir::none())
    }
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("name", &self.name)
            .field("join", &self.join)
            .field("assembly", &self.assembly)
            .finish_non_exhaustive()
    }
}

/// Splits a join list into addresses and host names, each with a port.
fn seeds(join: Vec<String>) -> (Vec<SocketAddr>, Vec<String>) {
    let (mut addrs, mut hosts) = (Vec::new(), Vec::new());
    for seed in join {
        if let Ok(addr) = seed.parse::<SocketAddr>() {
            addrs.push(addr);
        } else if let Ok(ip) = seed.parse::<IpAddr>() {
            addrs.push(SocketAddr::new(ip, MEMBERS_PORT));
        } else if seed.contains(':') {
            hosts.push(seed);
        } else {
            hosts.push(format!("{seed}:{MEMBERS_PORT}"));
        }
    }
    (addrs, hosts)
}

/// The broadcast addresses of the network that an address of this machine is in.
pub fn broadcast_of(addr: IpAddr) -> Vec<IpAddr> {
    if addr.is_loopback() && addr.is_ipv4() {
        return vec![IpAddr::V4(Ipv4Addr::new(127, 255, 255, 255))];
    }
    let interfaces = if_addrs::get_if_addrs().unwrap_or_default();
    let own = interfaces.into_iter().filter(|interface| interface.ip() == addr);
    own.filter_map(|interface| match interface.addr {
        if_addrs::IfAddr::V4(v4) => v4.broadcast.map(IpAddr::V4),
        if_addrs::IfAddr::V6(_) => None,
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_join_list_has_addresses_and_host_names() {
        let join = ["10.0.0.1:7000", "10.0.0.2", "seed.example", "seed.example:7000", "::1"];
        let (addrs, hosts) = seeds(join.map(String::from).to_vec());
        let expected: Vec<SocketAddr> =
            ["10.0.0.1:7000", "10.0.0.2:7946", "[::1]:7946"].map(|addr| addr.parse().unwrap()).to_vec();
        assert_eq!(addrs, expected);
        assert_eq!(hosts, ["seed.example:7946", "seed.example:7000"]);
    }
}
