//! A look into one node: everything that the page shows of it, asked from its machines.

use std::time::Duration;

use annulus::core::jitterbug::{self, Document, Edge};
use annulus::core::node::{Command, PartCommand, Reply};
use annulus::core::swim::{self, MemberStatus};
use annulus::core::{Service, pastry, w3w};
use annulus::net::DriverCounters;

use crate::agent::http::Api;
use crate::agent::services;

/// The timeout of a query of a node, which may be suspended.
const LOOK_TIMEOUT: Duration = Duration::from_secs(1);

/// The state of a node by its own answers; a service that does not run has none.
#[derive(Debug, Default)]
pub(crate) struct Look {
    pub(crate) members: Vec<MemberStatus>,
    pub(crate) tables: Option<Box<pastry::Tables>>,
    pub(crate) token: Option<Box<jitterbug::Status>>,
    pub(crate) edges: Vec<Edge>,
    pub(crate) mesh: Option<Box<w3w::Status>>,
    pub(crate) peers: Vec<w3w::Peer>,
    pub(crate) outbox: Vec<w3w::Sent>,
    pub(crate) counters: DriverCounters,
}

impl Look {
    /// Looks into a node; `None` if it does not answer.
    pub(crate) async fn into(api: &Api) -> Option<Self> {
        tokio::time::timeout(LOOK_TIMEOUT, Self::gather(api)).await.ok()?
    }

    async fn gather(api: &Api) -> Option<Self> {
        let mut look = Self { counters: api.node.counters().await.ok()?.driver, ..Self::default() };
        let members = swim::Command::Members { all: true };
        if let Reply::Members(swim::Reply::Members(members)) =
            ask(api, services::MEMBERS, PartCommand::Members(members)).await?
        {
            look.members = members;
        }
        if let Reply::Route(pastry::Reply::Tables(tables)) =
            ask(api, services::ROUTE, PartCommand::Route(pastry::Command::Tables)).await?
        {
            look.tables = Some(tables);
        }
        if let Reply::Token(jitterbug::Reply::Status(status)) =
            ask(api, services::TOKEN, PartCommand::Token(jitterbug::Command::Status)).await?
        {
            look.token = Some(status);
        }
        if let Reply::Token(jitterbug::Reply::Data(data)) =
            ask(api, services::TOKEN, PartCommand::Token(jitterbug::Command::Data)).await?
        {
            look.edges = Document::from_data(&data).map(|document| document.edges).unwrap_or_default();
        }
        look.look_at_mesh(api).await?;
        Some(look)
    }

    async fn look_at_mesh(&mut self, api: &Api) -> Option<()> {
        let mesh = async |command| match ask(api, services::MESH, PartCommand::Mesh(command)).await? {
            Reply::Mesh(reply) => Some(Some(reply)),
            _ => Some(None),
        };
        if let Some(w3w::Reply::Status(status)) = mesh(w3w::Command::Status).await? {
            self.mesh = Some(status);
        }
        if let Some(w3w::Reply::Peers(peers)) = mesh(w3w::Command::Peers).await? {
            self.peers = peers;
        }
        if let Some(w3w::Reply::Outbox(lines)) = mesh(w3w::Command::Outbox { from: 0 }).await? {
            self.outbox = lines;
        }
        Some(())
    }
}

async fn ask(api: &Api, service: Service, command: PartCommand) -> Option<Reply> {
    api.node.command(Command { service, command }).await.ok()
}
