//! The assembly: from a description of a node to the machine that runs, without I/O.
//!
//! The builder of the library and the simulator both assemble their nodes here, so the tested node is the one in use.

use core::fmt;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4};
use std::sync::Arc;

use super::{DuplicateService, Node, Part, Token, services};
use crate::id::{Id, hash};
use crate::jitterbug::{Ledger, Shipped};
use crate::outbox::Hex;
use crate::pastry::{AppName, Application, Liveness, Pastry};
use crate::rng::Seed;
use crate::swim::{Preset, Services, Swim, Tags, TagsError};
use crate::tag::Service;
use crate::turns::Turns;
use crate::w3w::{KnownNode, Mesh};
use crate::{jitterbug, pastry, swim, turns, w3w};

/// The default port of `members`.
pub const MEMBERS_PORT: u16 = 7946;

/// The default name of the group.
const RING: &str = "annulus";

/// Changes the configuration of a service after the node has filled it in.
pub type Setup<C> = Box<dyn FnOnce(&mut C) + Send>;

/// Describes a node; [`Assembly::build`] makes the machine.
pub struct Assembly {
    /// The identity of the node; its ids follow from it.
    pub uuid: [u8; 16],
    /// Its name for people.
    pub name: String,
    /// The address of all services.
    pub bind: IpAddr,
    /// The address at which others reach `members` and `route`, if it is another.
    pub advertise: Option<IpAddr>,
    /// The tags that other members see.
    pub tags: BTreeMap<String, String>,
    /// The group of `members` and `route`.
    pub ring: String,
    /// The timing of `members`.
    pub preset: Preset,
    /// Members to join through.
    pub seeds: Vec<SocketAddr>,
    /// Whether `route` waits for members to join through: the node has seeds, or host names of some.
    pub has_seeds: bool,
    /// The broadcast addresses of `token`.
    pub broadcast: Vec<IpAddr>,
    /// The last TCP port of `token` before a restart; 0 if none.
    pub token_tcp_port: u16,
    /// The nodes that `mesh` knows from a file.
    pub known: Vec<KnownNode>,
    /// The application of the token.
    pub token_data: Shipped,
    /// Applications of `route` that decide about messages on their path.
    pub applications: Vec<(AppName, Arc<dyn Application>)>,
    /// Runs `members`, with this change of its configuration.
    pub members: Option<Setup<swim::Config>>,
    /// Runs `route`.
    pub route: Option<Setup<pastry::Config>>,
    /// Runs `token`.
    pub token: Option<Setup<jitterbug::Config>>,
    /// Runs `mesh`.
    pub mesh: Option<Setup<w3w::Config>>,
    /// Runs `turns`.
    pub turns: Option<Setup<turns::Config>>,
    /// Machines of the application.
    pub companions: Vec<(Service, Part)>,
}

/// Why a description is invalid.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum AssemblyError {
    /// The configuration of `members` cannot work.
    #[error("members: {0}")]
    Members(#[from] swim::ConfigError),
    /// The configuration of `route` cannot work.
    #[error("route: {0}")]
    Route(#[from] pastry::ConfigError),
    /// The configuration of `token` cannot work.
    #[error("token: {0}")]
    Token(#[from] jitterbug::ConfigError),
    /// The configuration of `mesh` cannot work.
    #[error("mesh: {0}")]
    Mesh(#[from] w3w::ConfigError),
    /// The configuration of `turns` cannot work.
    #[error("turns: {0}")]
    Turns(#[from] turns::ConfigError),
    /// The name and the tags cannot be sent to other members.
    #[error("name and tags: {0}")]
    Tags(#[from] TagsError),
    /// `mesh` was requested on an IPv6 address.
    #[error("mesh speaks IPv4 only: bind to an IPv4 address")]
    MeshNeedsIpv4,
    /// Two parts have one tag.
    #[error(transparent)]
    DuplicateService(#[from] DuplicateService),
}

impl Assembly {
    /// A node without services.
    #[must_use]
    pub fn new(uuid: [u8; 16]) -> Self {
        Self {
            uuid,
            name: String::new(),
            bind: IpAddr::V4(Ipv4Addr::LOCALHOST),
            advertise: None,
            tags: BTreeMap::new(),
            ring: RING.to_owned(),
            preset: Preset::Lan,
            seeds: Vec::new(),
            has_seeds: false,
            broadcast: Vec::new(),
            token_tcp_port: 0,
            known: Vec::new(),
            token_data: Shipped::Ledger(Ledger::new()),
            applications: Vec::new(),
            members: None,
            route: None,
            token: None,
            mesh: None,
            turns: None,
            companions: Vec::new(),
        }
    }

    /// The id in `members` and `route`.
    #[must_use]
    pub fn id(&self) -> Id {
        Id::from_uuid(self.uuid)
    }

    /// Makes the machine; each service draws from a seed of its own.
    ///
    /// # Errors
    /// [`AssemblyError`] names the service whose configuration cannot work.
    pub fn build(mut self, mut seed: impl FnMut(Service) -> Seed) -> Result<Node, AssemblyError> {
        // The metadata of `members` has the ports of the other services, so `members` is made last.
        let (mut parts, mut at) = (Vec::new(), Services::default());
        if let Some(setup) = self.token.take() {
            let token = self.token(setup, &mut at, seed(services::TOKEN))?;
            parts.push((services::TOKEN, token));
        }
        if let Some(setup) = self.route.take() {
            parts.push((services::ROUTE, self.route(setup, &mut at, seed(services::ROUTE))?));
        }
        if let Some(setup) = self.mesh.take() {
            parts.push((services::MESH, self.mesh(setup, &mut at, seed(services::MESH))?));
        }
        if let Some(setup) = self.turns.take() {
            parts.push((services::TURNS, self.turns(setup, &mut at, seed(services::TURNS))?));
        }
        parts.append(&mut self.companions);
        if let Some(setup) = self.members.take() {
            parts.insert(0, (services::MEMBERS, self.members(setup, at, seed(services::MEMBERS))?));
        }
        Ok(Node::new(parts)?)
    }

    fn members(self, setup: Setup<swim::Config>, at: Services, seed: Seed) -> Result<Part, AssemblyError> {
        let (id, bind) = (self.id(), SocketAddr::new(self.bind, MEMBERS_PORT));
        let meta = Tags { name: self.name, services: at, tags: self.tags }.encode()?;
        let (ring, seeds) = (self.ring, self.seeds);
        let mut config = swim::Config { bind, meta, ring, seeds, ..swim::Config::new(id, self.preset) };
        setup(&mut config);
        if let (Some(ip), true) = (self.advertise, config.addrs.is_empty()) {
            config.addrs = vec![SocketAddr::new(ip, config.bind.port())];
        }
        Ok(Part::Members(Box::new(Swim::new(&config, seed)?)))
    }

    fn route(
        &mut self,
        setup: Setup<pastry::Config>,
        at: &mut Services,
        seed: Seed,
    ) -> Result<Part, AssemblyError> {
        let mut config = pastry::Config {
            id: self.id(),
            ring: self.ring.clone(),
            liveness: if self.members.is_some() { Liveness::Members } else { Liveness::Own },
            await_members: self.has_seeds,
            ..pastry::Config::default()
        };
        config.bind.set_ip(self.bind);
        setup(&mut config);
        if let Some(ip) = self.advertise {
            config.advertise.get_or_insert(SocketAddr::new(ip, config.bind.port()));
        }
        at.route = Some(config.advertise.unwrap_or(config.bind).port());
        let mut pastry = Pastry::new(config, seed)?;
        for (name, application) in self.applications.drain(..) {
            pastry = pastry.with_application(name, application);
        }
        Ok(Part::Route(Box::new(pastry)))
    }

    fn token(
        &mut self,
        setup: Setup<jitterbug::Config>,
        at: &mut Services,
        seed: Seed,
    ) -> Result<Part, AssemblyError> {
        let mut config = jitterbug::Config {
            addr: self.bind,
            tcp_port: self.token_tcp_port,
            broadcast: core::mem::take(&mut self.broadcast),
            ..jitterbug::Config::lan()
        };
        setup(&mut config);
        at.token = Some(config.udp_port);
        let data = core::mem::replace(&mut self.token_data, Shipped::Ledger(Ledger::new()));
        Ok(Part::Token(Box::new(Token::new(&config, data, seed)?)))
    }

    fn mesh(
        &mut self,
        setup: Setup<w3w::Config>,
        at: &mut Services,
        seed: Seed,
    ) -> Result<Part, AssemblyError> {
        let IpAddr::V4(ip) = self.bind else { return Err(AssemblyError::MeshNeedsIpv4) };
        let port = w3w::Config::default().bind.port();
        let mut config = w3w::Config {
            uuid: self.uuid,
            bind: SocketAddrV4::new(ip, port),
            known: core::mem::take(&mut self.known),
            ..w3w::Config::default()
        };
        setup(&mut config);
        let nid = Hex(&hash(&self.uuid)).to_string();
        (at.mesh, at.nid, at.letters) = (Some(config.bind.port()), Some(nid), true);
        Ok(Part::Mesh(Box::new(Mesh::new(&config, seed)?)))
    }

    fn turns(
        &self,
        setup: Setup<turns::Config>,
        at: &mut Services,
        seed: Seed,
    ) -> Result<Part, AssemblyError> {
        let own = SocketAddr::new(self.bind, turns::PORT);
        let mut config = turns::Config { id: self.id(), bind: own, own, ..turns::Config::default() };
        setup(&mut config);
        at.turns = Some(config.bind.port());
        Ok(Part::Turns(Box::new(Turns::new(&config, seed)?)))
    }
}

impl fmt::Debug for Assembly {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let services = [
            ("members", self.members.is_some()),
            ("route", self.route.is_some()),
            ("token", self.token.is_some()),
            ("mesh", self.mesh.is_some()),
            ("turns", self.turns.is_some()),
        ];
        let services: Vec<_> = services.iter().filter(|(_, runs)| *runs).map(|(name, _)| name).collect();
        f.debug_struct("Assembly")
            .field("name", &self.name)
            .field("bind", &self.bind)
            .field("services", &services)
            .finish_non_exhaustive()
    }
}
