//! The HTTP API: one file per group of routes, guards before all of them, one form for all errors.
//!
//! A service adds its routes with one file and one line in [`routes`]; the description in `/v1/openapi.json` is
//! made from the handlers.

mod description;
mod error;
mod events;
mod guard;
mod info;
mod members;
mod mesh;
mod messages;
mod names;
mod route;
mod server;
mod token;
mod turn;
mod turns;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;

use annulus::core::node::Node;
use annulus::net::Handle;
use axum::extract::DefaultBodyLimit;
use axum::routing::get;
use axum::{Json, Router, middleware};
use tokio::sync::{Semaphore, watch};
use utoipa::OpenApi;
use utoipa_axum::router::OpenApiRouter;

use super::joining::Joining;
use super::journal::Journal;
use super::mailbox::Mailbox;
use crate::page::{self, Page};
pub(crate) use error::{ApiError, JsonBody, PathArg, no_such_route, wrong_method};
pub(crate) use guard::{Guard, check};
pub(crate) use info::{EndpointInfo, ServiceInfo};
pub(crate) use messages::LONG_BODIES_MAX;
pub(crate) use names::{Named, RecentNames};
pub(crate) use server::serve;

/// The port of the API if none is configured.
const PORT: u16 = 7373;

/// The argument of every handler.
#[derive(Clone)]
pub(crate) struct Api {
    shared: Arc<Shared>,
}

/// The state that handlers share.
pub(crate) struct Shared {
    pub(crate) node: Handle<Node>,
    pub(crate) journal: Arc<Journal>,
    pub(crate) mailbox: Mailbox,
    pub(crate) joining: Joining,
    pub(crate) identity: annulus::Identity,
    /// The library's handle, if this agent runs members.
    pub(crate) members: Option<annulus::MemberList>,
    pub(crate) names: names::RecentNames,
    pub(crate) name: String,
    pub(crate) started: Instant,
    pub(crate) started_micros: u64,
    pub(crate) services: Vec<ServiceInfo>,
    pub(crate) http: SocketAddr,
    pub(crate) token: Option<String>,
    pub(crate) body_bytes_max: usize,
    /// A request with a long body holds one of these while the body is read.
    pub(crate) long_bodies: Arc<Semaphore>,
    /// The longest message of route.
    pub(crate) message_bytes_max: usize,
    /// Becomes true when the agent leaves: streams of events end then, or they would hold it for ever.
    pub(crate) leaving: watch::Receiver<bool>,
    /// The page of this agent.
    pub(crate) page: std::sync::OnceLock<Page>,
}

impl Api {
    pub(crate) fn new(shared: Shared) -> Self {
        Self { shared: Arc::new(shared) }
    }

    /// The names of nodes, as they were a second ago or later.
    pub(crate) async fn recent_names(&self) -> Arc<names::Names> {
        names::Names::recent(self).await
    }

    /// The page of this agent.
    pub(crate) fn page(&self) -> Page {
        let view = || Page::new(page::AgentView::new(Arc::downgrade(&self.shared)), self.leaving.clone());
        self.page.get_or_init(view).clone()
    }
}

impl From<Arc<Shared>> for Api {
    fn from(shared: Arc<Shared>) -> Self {
        Self { shared }
    }
}

impl axum::extract::FromRef<Api> for Page {
    fn from_ref(api: &Api) -> Self {
        api.page()
    }
}

impl std::ops::Deref for Api {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        &self.shared
    }
}

#[derive(OpenApi)]
#[openapi(info(
    title = "annulus agent",
    description = "One node: who it is, what happens, and its services.",
    license(name = "MIT OR Apache-2.0")
))]
struct Description;

/// All routes with their description.
fn routes(message_bytes_max: usize) -> OpenApiRouter<Api> {
    OpenApiRouter::with_openapi(Description::openapi())
        .merge(info::routes())
        .merge(events::routes())
        .merge(members::routes())
        .merge(messages::routes(message_bytes_max))
        .merge(mesh::routes())
        .merge(route::routes())
        .merge(token::routes())
        .merge(turn::routes())
        .merge(turns::routes())
}

/// The whole API, guards included.
pub(crate) fn app(api: Api) -> Router {
    let body_bytes_max = api.body_bytes_max;
    let (router, mut description) = routes(api.message_bytes_max).split_for_parts();
    description::complete(&mut description);
    let detailed = description::detailed(&description);
    let guard = Guard::new(api.token.as_deref()).with_posts(description::posts(&description));
    router
        .route("/v1/openapi.json", get(async move || Json(detailed)))
        .merge(page::routes())
        .fallback(error::no_such_route)
        .method_not_allowed_fallback(error::wrong_method)
        .layer(DefaultBodyLimit::max(body_bytes_max))
        .with_state(api)
        .merge(page::assets())
        .layer(middleware::from_fn_with_state(guard, guard::check))
}

/// The default address of the API: beside the services when they are on loopback, else on loopback.
pub(crate) fn default_addr(bind: IpAddr) -> SocketAddr {
    let ip = if bind.is_loopback() { bind } else { IpAddr::V4(Ipv4Addr::LOCALHOST) };
    SocketAddr::new(ip, PORT)
}

pub(crate) fn milliseconds(micros: u64) -> f64 {
    micros as f64 / 1000.0
}
