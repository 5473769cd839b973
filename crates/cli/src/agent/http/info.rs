//! `GET /v1/info` and `GET /metrics`: the identity and the counters of this node.

use std::net::SocketAddr;

use annulus::core::Id;
use axum::Json;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::Api;
use super::error::{ApiError, ErrorBody};
use crate::agent::metrics;

pub(super) fn routes() -> OpenApiRouter<Api> {
    OpenApiRouter::new().routes(routes!(info)).routes(routes!(prometheus))
}

/// The identity of a node and its services.
#[derive(Serialize, ToSchema)]
pub(crate) struct Info {
    /// Its name.
    name: String,
    /// Its place on the ring, 32 hexadecimal digits.
    #[schema(value_type = String, pattern = "^[0-9a-f]{32}$")]
    id: Id,
    /// Its address in the mesh, 64 hexadecimal digits.
    nid: String,
    /// The version of the program.
    version: &'static str,
    /// The version of the event schema.
    events_version: u8,
    /// When it started, in microseconds since the epoch.
    started_micros: u64,
    /// Seconds since then.
    uptime_seconds: f64,
    /// The address of this API.
    #[schema(value_type = String)]
    http: SocketAddr,
    /// Its services.
    services: Vec<ServiceInfo>,
}

/// A service and where it listens.
#[derive(Clone, Serialize, ToSchema)]
pub(crate) struct ServiceInfo {
    /// Its name.
    pub(crate) name: &'static str,
    /// Its addresses.
    pub(crate) addresses: Vec<EndpointInfo>,
}

/// A socket or listener.
#[derive(Clone, Serialize, ToSchema)]
pub(crate) struct EndpointInfo {
    /// `udp` or `tcp`.
    pub(crate) transport: &'static str,
    /// Where.
    #[schema(value_type = String)]
    pub(crate) addr: SocketAddr,
}

/// The name, the id, the services and the addresses of this node.
#[utoipa::path(get, path = "/v1/info", responses(
    (status = 200, description = "The node.", body = Info),
    (status = 401, description = "A token is needed.", body = ErrorBody),
))]
async fn info(State(api): State<Api>) -> Json<Info> {
    Json(Info {
        name: api.name.clone(),
        id: api.identity.id(),
        nid: api.identity.nid(),
        version: env!("CARGO_PKG_VERSION"),
        events_version: annulus::core::EVENTS_VERSION,
        started_micros: api.started_micros,
        uptime_seconds: api.started.elapsed().as_secs_f64(),
        http: api.http,
        services: api.services.clone(),
    })
}

/// All counters, as Prometheus text.
#[utoipa::path(get, path = "/metrics", responses(
    (status = 200, description = "Prometheus text, version 0.0.4.", body = String, content_type = "text/plain"),
    (status = 503, description = "The agent is stopping.", body = ErrorBody),
))]
async fn prometheus(State(api): State<Api>) -> Result<Response, ApiError> {
    let counters = api.node.counters().await.map_err(|_| ApiError::stopping())?;
    let id = api.identity.id().to_string();
    let about =
        metrics::About { name: &api.name, id: &id, uptime_seconds: api.started.elapsed().as_secs_f64() };
    let kind = [(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")];
    Ok((kind, metrics::render(&about, &counters)).into_response())
}
