//! The peers of mesh and the nodes that it knows.

use annulus::core::w3w;
use axum::Json;
use axum::extract::State;
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::book::Names;
use super::{ask, refused};
use crate::agent::http::Api;
use crate::agent::http::error::{ApiError, ErrorBody};

pub(super) fn routes() -> OpenApiRouter<Api> {
    OpenApiRouter::new().routes(routes!(peers)).routes(routes!(known))
}

/// A node that this one is connected to.
#[derive(Serialize, ToSchema)]
struct MeshPeer {
    /// Its name in the address book, if it has one.
    name: Option<String>,
    /// Its address in the mesh.
    nid: String,
    /// Its IP address.
    ip: String,
    /// The port at which it accepts connections.
    port: u16,
    /// "in" if it dialled, "out" if this node did.
    #[schema(value_type = String)]
    direction: w3w::Direction,
}

/// The routing ring, ascending.
#[utoipa::path(get, path = "/v1/mesh/peers", responses(
    (status = 200, description = "The peers.", body = Vec<MeshPeer>),
    (status = 404, description = "This agent does not run mesh.", body = ErrorBody),
))]
async fn peers(State(api): State<Api>) -> Result<Json<Vec<MeshPeer>>, ApiError> {
    let names = Names::read(&api).await?;
    let info = |peer: w3w::Peer| MeshPeer {
        name: names.name(&peer.nid),
        nid: peer.nid.to_string(),
        ip: peer.ip.to_string(),
        port: peer.port,
        direction: peer.direction,
    };
    match ask(&api, w3w::Command::Peers).await? {
        w3w::Reply::Peers(peers) => Ok(Json(peers.into_iter().map(info).collect())),
        other => Err(refused(&other)),
    }
}

/// A node that was there once.
#[derive(Serialize, ToSchema)]
struct KnownInfo {
    /// Where.
    ip: String,
    /// When this node last had to do with it, in seconds since 1970.
    seen_at: u64,
}

/// The nodes to ask when the network is entered again, latest first.
#[utoipa::path(get, path = "/v1/mesh/known", responses(
    (status = 200, description = "The known nodes.", body = Vec<KnownInfo>),
    (status = 404, description = "This agent does not run mesh.", body = ErrorBody),
))]
async fn known(State(api): State<Api>) -> Result<Json<Vec<KnownInfo>>, ApiError> {
    let info = |node: w3w::KnownNode| KnownInfo { ip: node.ip.to_string(), seen_at: node.seen_at };
    match ask(&api, w3w::Command::Known).await? {
        w3w::Reply::Known(nodes) => Ok(Json(nodes.into_iter().map(info).collect())),
        other => Err(refused(&other)),
    }
}
