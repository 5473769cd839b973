//! The address book of mesh.

use std::collections::BTreeMap;

use annulus::core::w3w::{self, Nid};
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::{MeshDone, ask, refused};
use crate::agent::http::Api;
use crate::agent::http::error::{ApiError, ErrorBody, JsonBody};

pub(super) fn routes() -> OpenApiRouter<Api> {
    OpenApiRouter::new().routes(routes!(list)).routes(routes!(set))
}

/// A node of the address book.
#[derive(Serialize, ToSchema)]
struct BookLine {
    /// Its address in the mesh.
    nid: String,
    /// Its names, latest first.
    names: Vec<String>,
    /// The last address at which it was seen.
    #[serde(skip_serializing_if = "Option::is_none")]
    ip: Option<String>,
    /// Whether it knows letters.
    knows_letters: bool,
    /// Whether the user set its name.
    is_set: bool,
    /// When it was first seen, in seconds since 1970.
    first_seen: u64,
    /// When it was last seen, in seconds since 1970; 0 if it never was. While it is there, up to an hour old.
    last_seen: u64,
    /// "unknown", "alive", "suspected", "dead" or "left", as members reports it.
    #[schema(value_type = String)]
    presence: w3w::Presence,
}

/// The address book, in order of addresses.
#[utoipa::path(get, path = "/v1/mesh/book", responses(
    (status = 200, description = "The nodes.", body = Vec<BookLine>),
    (status = 404, description = "This agent does not run mesh.", body = ErrorBody),
))]
async fn list(State(api): State<Api>) -> Result<Json<Vec<BookLine>>, ApiError> {
    let line = |entry: w3w::BookEntry| BookLine {
        nid: entry.nid.to_string(),
        names: entry.names,
        ip: entry.ip.map(|ip| ip.to_string()),
        knows_letters: entry.knows_letters,
        is_set: entry.is_set,
        first_seen: entry.first_seen,
        last_seen: entry.last_seen,
        presence: entry.presence,
    };
    Ok(Json(entries(&api).await?.into_iter().map(line).collect()))
}

/// A name for a node.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct NameRequest {
    /// The name.
    name: String,
    /// The address in the mesh, 64 hexadecimal digits.
    #[schema(pattern = "^[0-9a-fA-F]{64}$")]
    nid: String,
    /// Whether the node knows letters.
    #[serde(default)]
    letters: bool,
}

/// Give a node a name.
#[utoipa::path(post, path = "/v1/mesh/book", request_body = NameRequest, responses(
    (status = 200, description = "The node has the name.", body = MeshDone),
    (status = 400, description = "No address.", body = ErrorBody),
    (status = 404, description = "This agent does not run mesh.", body = ErrorBody),
))]
async fn set(
    State(api): State<Api>,
    JsonBody(request): JsonBody<NameRequest>,
) -> Result<Json<MeshDone>, ApiError> {
    let nid: Nid = request.nid.parse().map_err(|_| {
        ApiError::new(
            StatusCode::BAD_REQUEST,
            "bad_address",
            format!("{:?} is no address in the mesh", request.nid),
            "give the 64 digits that `annulus mesh status` shows there",
        )
    })?;
    let command = w3w::Command::SetName { name: request.name, nid, knows_letters: request.letters };
    match ask(&api, command).await? {
        w3w::Reply::Done => Ok(Json(MeshDone { done: true })),
        other => Err(refused(&other)),
    }
}

/// The nodes of the address book by their addresses.
pub(super) struct Names(BTreeMap<Nid, w3w::BookEntry>);

impl Names {
    pub(super) async fn read(api: &Api) -> Result<Self, ApiError> {
        Ok(Self(entries(api).await?.into_iter().map(|entry| (entry.nid, entry)).collect()))
    }

    /// The latest name of a node.
    pub(super) fn name(&self, nid: &Nid) -> Option<String> {
        self.0.get(nid)?.names.first().cloned()
    }

    /// When a node was last seen, if it ever was.
    pub(super) fn last_seen(&self, nid: &Nid) -> Option<u64> {
        Some(self.0.get(nid)?.last_seen).filter(|seconds| *seconds > 0)
    }
}

async fn entries(api: &Api) -> Result<Vec<w3w::BookEntry>, ApiError> {
    let (mut entries, mut from) = (Vec::new(), None);
    loop {
        let w3w::Reply::Book(mut part) = ask(api, w3w::Command::Book { from }).await? else {
            return Err(ApiError::stopping());
        };
        // The first of a part is the last of the one before it.
        if from.is_some() && !part.is_empty() {
            part.remove(0);
        }
        let Some(last) = part.last().map(|entry| entry.nid) else { return Ok(entries) };
        entries.append(&mut part);
        from = Some(last);
    }
}
