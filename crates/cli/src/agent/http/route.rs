//! The routes of route for the ring itself: the owner of a key, the path to it, and the tables.

use std::net::SocketAddr;

use annulus::core::Id;
use annulus::core::node::{Command, PartCommand, Reply};
use annulus::core::pastry::{self, CellStatus, Failure, PathStep, PeerStatus};
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::get;
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::error::{ApiError, ErrorBody, PathArg};
use super::names::Names;
use super::{Api, milliseconds};
use crate::agent::services;

pub(super) fn routes() -> OpenApiRouter<Api> {
    // A key may be empty; a part of a path may not.
    let empty = get(async |State(api): State<Api>| way_to(&api, "").await);
    OpenApiRouter::new().routes(routes!(route)).routes(routes!(tables)).route("/v1/route/", empty)
}

/// The path to a key.
#[derive(Serialize, ToSchema)]
struct RouteAnswer {
    /// The key as a place on the ring.
    #[schema(value_type = String, pattern = "^[0-9a-f]{32}$")]
    key: Id,
    /// The id of the node that owns it.
    #[schema(value_type = String, pattern = "^[0-9a-f]{32}$")]
    owner: Id,
    /// The name of that node, if it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    owner_name: Option<String>,
    /// The nodes a message to it passes, this agent first, the owner last.
    path: Vec<Hop>,
}

/// A node on the path.
#[derive(Serialize, ToSchema)]
struct Hop {
    /// Its name, if it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    /// Its place on the ring.
    #[schema(value_type = String, pattern = "^[0-9a-f]{32}$")]
    id: Id,
    /// Its address.
    #[schema(value_type = String)]
    addr: SocketAddr,
    /// The measured round-trip time from the node before it; null for the first.
    rtt_ms: Option<f64>,
}

/// The owner of a key, and the path to it.
#[utoipa::path(get, path = "/v1/route/{key}",
    params(("key" = String, Path, description = "32 hexadecimal digits, or any text: then its hash.")),
    responses(
        (status = 200, description = "The owner and the way.", body = RouteAnswer),
        (status = 404, description = "This agent does not run route.", body = ErrorBody),
        (status = 502, description = "The owner could not be reached.", body = ErrorBody),
        (status = 503, description = "This node has not joined the ring.", body = ErrorBody),
        (status = 504, description = "The owner could not be found in time.", body = ErrorBody),
    ))]
async fn route(State(api): State<Api>, PathArg(text): PathArg) -> Result<Json<RouteAnswer>, ApiError> {
    way_to(&api, &text).await
}

async fn way_to(api: &Api, text: &str) -> Result<Json<RouteAnswer>, ApiError> {
    let key = key_of(text);
    let path = match route_from(api, pastry::Command::Trace { key }).await? {
        pastry::Reply::Path(path) => path,
        other => return Err(not_done(other)),
    };
    let Some(last) = path.last() else { return Err(unexpected("an empty path")) };
    let (owner, names) = (last.contact.id, Names::read(api).await);
    Ok(Json(RouteAnswer { key, owner, owner_name: names.of(owner), path: hops(&path, &names) }))
}

/// The machine notes at each node the time to the next one; people look for it at the next one.
fn hops(path: &[PathStep], names: &Names) -> Vec<Hop> {
    let to_here = std::iter::once(None).chain(path.iter().map(|step| step.rtt_micros));
    let hop = |(step, rtt): (&PathStep, Option<u32>)| Hop {
        name: names.of(step.contact.id),
        id: step.contact.id,
        addr: step.contact.addr,
        rtt_ms: rtt.map(|micros| milliseconds(micros.into())),
    };
    path.iter().zip(to_here).map(hop).collect()
}

/// All tables of this node.
#[derive(Serialize, ToSchema)]
struct TablesAnswer {
    /// The name of this node.
    name: String,
    /// This node's place on the ring.
    #[schema(value_type = String, pattern = "^[0-9a-f]{32}$")]
    id: Id,
    /// Its address.
    #[schema(value_type = String)]
    addr: SocketAddr,
    /// Whether it has joined: only then it delivers.
    active: bool,
    /// The leaf set clockwise, nearest first.
    clockwise: Vec<PeerInfo>,
    /// The leaf set counter-clockwise, nearest first.
    counter_clockwise: Vec<PeerInfo>,
    /// The filled cells of the routing table.
    routing_table: Vec<CellInfo>,
    /// The neighbourhood set, nearest first.
    neighbourhood: Vec<PeerInfo>,
}

/// A node in a table.
#[derive(Serialize, ToSchema)]
struct PeerInfo {
    /// Its name, if it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    /// Its place on the ring.
    #[schema(value_type = String, pattern = "^[0-9a-f]{32}$")]
    id: Id,
    /// Its address.
    #[schema(value_type = String)]
    addr: SocketAddr,
    /// The measured round-trip time.
    rtt_ms: Option<f64>,
    /// Whether messages go around it for now.
    suspected: bool,
}

/// A filled cell of the routing table.
#[derive(Serialize, ToSchema)]
struct CellInfo {
    /// Its name, if it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    /// Digits that the node shares with this one.
    row: u8,
    /// The first digit that differs.
    column: u8,
    /// Its place on the ring.
    #[schema(value_type = String, pattern = "^[0-9a-f]{32}$")]
    id: Id,
    /// Its address.
    #[schema(value_type = String)]
    addr: SocketAddr,
    /// The measured round-trip time.
    rtt_ms: Option<f64>,
    /// Whether messages go around it for now.
    suspected: bool,
}

/// The leaf set, the routing table and the neighbourhood set of this node.
#[utoipa::path(get, path = "/v1/tables", responses(
    (status = 200, description = "The tables.", body = TablesAnswer),
    (status = 404, description = "This agent does not run route.", body = ErrorBody),
))]
async fn tables(State(api): State<Api>) -> Result<Json<TablesAnswer>, ApiError> {
    let tables = match ask(&api, pastry::Command::Tables).await? {
        pastry::Reply::Tables(tables) => *tables,
        other => return Err(not_done(other)),
    };
    let names = Names::read(&api).await;
    let (peer, cell) = (|status| peer(status, &names), |status| cell(status, &names));
    Ok(Json(TablesAnswer {
        name: api.name.clone(),
        id: tables.own.id,
        addr: tables.own.addr,
        active: tables.active,
        clockwise: tables.clockwise.iter().map(peer).collect(),
        counter_clockwise: tables.counter_clockwise.iter().map(peer).collect(),
        routing_table: tables.cells.iter().map(cell).collect(),
        neighbourhood: tables.neighbourhood.iter().map(peer).collect(),
    }))
}

fn peer(status: &PeerStatus, names: &Names) -> PeerInfo {
    PeerInfo {
        name: names.of(status.contact.id),
        id: status.contact.id,
        addr: status.contact.addr,
        rtt_ms: status.rtt_micros.map(|micros| milliseconds(micros.into())),
        suspected: status.suspected,
    }
}

fn cell(status: &CellStatus, names: &Names) -> CellInfo {
    let PeerInfo { name, id, addr, rtt_ms, suspected } = peer(&status.peer, names);
    CellInfo { name, row: status.row, column: status.column, id, addr, rtt_ms, suspected }
}

/// A key is an id, or any text, which is hashed.
pub(super) fn key_of(text: &str) -> Id {
    text.parse().unwrap_or_else(|_| Id::from_text(text))
}

pub(super) async fn ask(api: &Api, command: pastry::Command) -> Result<pastry::Reply, ApiError> {
    let command = Command { service: services::ROUTE, command: PartCommand::Route(command) };
    match api.node.command(command).await {
        Ok(Reply::Route(reply)) => Ok(reply),
        Ok(_) => Err(ApiError::no_service("route")),
        Err(_) => Err(ApiError::stopping()),
    }
}

/// The same for messages into the ring: waits until the node has joined.
pub(super) async fn route_from(api: &Api, command: pastry::Command) -> Result<pastry::Reply, ApiError> {
    if !has_joined(api).await? {
        api.joining.decided().await;
        if !has_joined(api).await? {
            return Err(api.joining.refusal());
        }
    }
    ask(api, command).await
}

async fn has_joined(api: &Api) -> Result<bool, ApiError> {
    if api.joining.has_joined() {
        return Ok(true);
    }
    match ask(api, pastry::Command::Tables).await? {
        pastry::Reply::Tables(tables) => {
            if tables.active {
                api.joining.joined();
            }
            Ok(tables.active)
        }
        other => Err(not_done(other)),
    }
}

/// The error of an unexpected reply.
pub(super) fn not_done(reply: pastry::Reply) -> ApiError {
    match reply {
        pastry::Reply::Outcome(pastry::Outcome::Failed { why }) => failed(why),
        pastry::Reply::Outcome(pastry::Outcome::Refused { reason, .. }) => ApiError::new(
            StatusCode::BAD_GATEWAY,
            "not_delivered",
            format!("the application of the owner refused the message: {reason}"),
            "ask whoever runs it",
        ),
        pastry::Reply::Outcome(pastry::Outcome::Unknown) => ApiError::new(
            StatusCode::GATEWAY_TIMEOUT,
            "delivery_unknown",
            "it is not known whether the message was delivered: no receipt came",
            "ask its owner, or send it again if it may arrive twice",
        ),
        pastry::Reply::Full => ApiError::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "too_many_messages",
            "too many messages are under way",
            "wait until some have arrived, and try again",
        ),
        pastry::Reply::TooLong => ApiError::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            "message_too_long",
            "the message is too long",
            "send less, or raise route.message_bytes_max on all nodes",
        ),
        pastry::Reply::Stopping => ApiError::stopping(),
        other => unexpected(&format!("{other:?}")),
    }
}

pub(super) fn no_such_question() -> ApiError {
    ApiError::new(
        StatusCode::CONFLICT,
        "no_such_question",
        "no request waits for this answer",
        "answer sooner, once, and with the id of a message whose `ask` is true",
    )
}

pub(super) fn not_answered() -> ApiError {
    ApiError::new(
        StatusCode::GATEWAY_TIMEOUT,
        "not_answered",
        "the owner of the key gave no answer in time",
        "let `annulus listen --answer TEXT` or a program run there that answers",
    )
}

fn failed(reason: Failure) -> ApiError {
    let (message, hint) = match reason {
        Failure::NoApplication => {
            ("the owner runs no application of that name", "check `app` and route.apps")
        }
        Failure::Stopped => ("an application on the way stopped the message", "ask whoever runs it"),
        Failure::HopLimit => ("the message took more steps than it may", "wait until the ring has settled"),
        Failure::NoRoute => ("every way that was tried failed", "see `annulus tables`, and try again"),
        Failure::NoSuchNode => ("no node has that id", "see `annulus members`"),
        Failure::Busy => ("a node on the way had no room for the message", "wait and try again"),
        _ => ("the ring could not deliver the message", "see `annulus tables`, and try again"),
    };
    let status = match reason {
        Failure::NoApplication | Failure::NoSuchNode => StatusCode::NOT_FOUND,
        _ => StatusCode::BAD_GATEWAY,
    };
    ApiError::new(status, "not_delivered", message, hint)
}

fn unexpected(what: &str) -> ApiError {
    ApiError::new(
        StatusCode::INTERNAL_SERVER_ERROR,
        "unexpected",
        format!("route answered {what}"),
        "this is a fault of the program: please report it",
    )
}
