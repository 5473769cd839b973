//! The routes of ping: ask for one, and see how the peers are doing.

use std::net::SocketAddr;

use annulus_core::node::{Command, PartCommand, Reply};
use annulus_core::ping;
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::Api;
use super::error::{ApiError, ErrorBody, JsonBody};
use crate::agent::services;

pub(super) fn routes() -> OpenApiRouter<Api> {
    OpenApiRouter::new().routes(routes!(ping_once)).routes(routes!(peers))
}

/// Whom to ping, and how.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct PingRequest {
    /// IP:PORT of the node to ping.
    #[schema(value_type = String)]
    to: SocketAddr,
    /// How the ping travels.
    #[serde(default)]
    via: Via,
}

/// How a ping travels.
#[derive(Clone, Copy, Default, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum Via {
    /// In a UDP datagram.
    #[default]
    Datagram,
    /// Over a TCP stream of its own.
    Stream,
}

/// A ping that was answered.
#[derive(Serialize, ToSchema)]
struct PingAnswer {
    /// Who answered.
    #[schema(value_type = String)]
    peer: SocketAddr,
    /// After how long.
    rtt_ms: f64,
}

/// How a peer is doing.
#[derive(Serialize, ToSchema)]
struct Peer {
    /// Where it is.
    #[schema(value_type = String)]
    addr: SocketAddr,
    /// "unknown", "present" or "vanished".
    #[schema(value_type = String)]
    state: ping::PeerState,
    /// How long its answers take, smoothed.
    rtt_ms: Option<f64>,
    /// Pings it answered.
    answered: u64,
    /// Pings it did not answer.
    missed: u64,
}

/// Ping a node once and wait for its answer.
#[utoipa::path(post, path = "/v1/ping", request_body = PingRequest, responses(
    (status = 200, description = "It answered.", body = PingAnswer),
    (status = 504, description = "It did not answer in time.", body = ErrorBody),
    (status = 503, description = "Too many pings are under way, or the agent is stopping.", body = ErrorBody),
    (status = 404, description = "This agent does not run ping.", body = ErrorBody),
))]
async fn ping_once(
    State(api): State<Api>,
    JsonBody(request): JsonBody<PingRequest>,
) -> Result<Json<PingAnswer>, ApiError> {
    let via = match request.via {
        Via::Datagram => ping::Via::Datagram,
        Via::Stream => ping::Via::Stream,
    };
    match ask(&api, ping::Command::Ping { to: request.to, via }).await? {
        ping::Reply::Answered { rtt_micros } => {
            Ok(Json(PingAnswer { peer: request.to, rtt_ms: super::milliseconds(rtt_micros) }))
        }
        ping::Reply::Full => Err(ApiError::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "too_many_pings",
            "too many pings are under way",
            "wait a moment and try again",
        )),
        ping::Reply::Stopping => Err(ApiError::stopping()),
        _ => Err(ApiError::new(
            StatusCode::GATEWAY_TIMEOUT,
            "no_answer",
            format!("{} did not answer in time", request.to),
            "check the address and that a node with ping runs there",
        )),
    }
}

/// How the peers are doing.
#[utoipa::path(get, path = "/v1/ping/peers", responses(
    (status = 200, description = "All peers.", body = Vec<Peer>),
    (status = 404, description = "This agent does not run ping.", body = ErrorBody),
))]
async fn peers(State(api): State<Api>) -> Result<Json<Vec<Peer>>, ApiError> {
    match ask(&api, ping::Command::Peers).await? {
        ping::Reply::Peers(peers) => Ok(Json(peers.iter().map(shown).collect())),
        _ => Err(ApiError::stopping()),
    }
}

async fn ask(api: &Api, command: ping::Command) -> Result<ping::Reply, ApiError> {
    let command = Command { service: services::PING, command: PartCommand::Ping(command) };
    match api.node.command(command).await {
        Ok(Reply::Ping(reply)) => Ok(reply),
        Ok(_) => Err(ApiError::no_service("ping")),
        Err(_) => Err(ApiError::stopping()),
    }
}

fn shown(peer: &ping::PeerStatus) -> Peer {
    Peer {
        addr: peer.addr,
        state: peer.state,
        rtt_ms: peer.rtt_micros.map(super::milliseconds),
        answered: peer.answered,
        missed: peer.missed,
    }
}
