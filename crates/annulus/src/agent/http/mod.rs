//! The HTTP API: one file per group of routes, guards before all of them, one form for all errors.
//!
//! A service adds its routes with one file and one line in [`routes`]; the description in `/v1/openapi.json` is
//! made from the handlers.

mod error;
mod events;
mod guard;
mod info;
mod members;
mod mesh;
mod messages;
mod ping;
mod route;
mod server;
mod token;
mod turn;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;

use annulus_core::node::Node;
use annulus_net::Handle;
use axum::extract::DefaultBodyLimit;
use axum::routing::get;
use axum::{Json, Router, middleware};
use tokio::sync::{Mutex, Semaphore, watch};
use utoipa::OpenApi;
use utoipa_axum::router::OpenApiRouter;

use super::identity::Identity;
use super::joining::Joining;
use super::journal::Journal;
use super::kept_tags::KeptTags;
use super::mailbox::Mailbox;
pub(crate) use error::ApiError;
pub(crate) use info::{EndpointInfo, ServiceInfo};
pub(crate) use messages::LONG_BODIES_MAX;
pub(crate) use server::serve;

/// The port of the API if none is configured.
const PORT: u16 = 7373;

/// What every handler can use.
#[derive(Clone)]
pub(crate) struct Api {
    shared: Arc<Shared>,
}

/// What an agent tells about itself.
pub(crate) struct Shared {
    pub(crate) node: Handle<Node>,
    pub(crate) journal: Journal,
    pub(crate) mailbox: Mailbox,
    pub(crate) joining: Joining,
    pub(crate) identity: Identity,
    /// One change of the own tags after the other.
    pub(crate) kept_tags: Mutex<KeptTags>,
    pub(crate) name: String,
    pub(crate) started: Instant,
    pub(crate) started_micros: u64,
    pub(crate) services: Vec<ServiceInfo>,
    pub(crate) http: SocketAddr,
    pub(crate) token: Option<String>,
    pub(crate) body_bytes_max: usize,
    /// Who sends a long body holds one of these while it is read.
    pub(crate) long_bodies: Arc<Semaphore>,
    /// The longest message of route.
    pub(crate) message_bytes_max: usize,
    /// Becomes true when the agent leaves: streams of events end then, or they would hold it for ever.
    pub(crate) leaving: watch::Receiver<bool>,
}

impl Api {
    pub(crate) fn new(shared: Shared) -> Self {
        Self { shared: Arc::new(shared) }
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
        .merge(ping::routes())
        .merge(route::routes())
        .merge(token::routes())
        .merge(turn::routes())
}

/// The whole API, guards included.
pub(crate) fn app(api: Api) -> Router {
    let body_bytes_max = api.body_bytes_max;
    let (router, description) = routes(api.message_bytes_max).split_for_parts();
    router
        .route("/v1/openapi.json", get(async move || Json(description)))
        .fallback(error::no_such_route)
        .method_not_allowed_fallback(error::wrong_method)
        .layer(DefaultBodyLimit::max(body_bytes_max))
        .layer(middleware::from_fn_with_state(api.clone(), guard::check))
        .with_state(api)
}

/// Where the API listens if nothing is configured: beside the services when they are on loopback, else on loopback.
pub(crate) fn default_addr(bind: IpAddr) -> SocketAddr {
    let ip = if bind.is_loopback() { bind } else { IpAddr::V4(Ipv4Addr::LOCALHOST) };
    SocketAddr::new(ip, PORT)
}

fn milliseconds(micros: u64) -> f64 {
    micros as f64 / 1000.0
}
