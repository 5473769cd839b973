//! The routes of token: whose turn it is, what it carries, and holding it.

use std::time::Duration;

use annulus_core::jitterbug::{self, Document, Edge, Raw, Set};
use annulus_core::node::{Command, PartCommand, Reply};
use annulus_core::{RequestId, jitterbug::Status};
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::sync::oneshot;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::Api;
use super::error::{ApiError, ErrorBody, JsonBody};
use crate::agent::services;

/// How long a value waits for the token if its setter does not say.
const WAIT: Duration = Duration::from_secs(30);

pub(super) fn routes() -> OpenApiRouter<Api> {
    OpenApiRouter::new()
        .routes(routes!(token))
        .routes(routes!(set))
        .routes(routes!(graph))
        .routes(routes!(hold))
        .routes(routes!(release))
}

/// The token, its ring and its data, as this node sees them.
///
/// An object with `state` ("orphan", "waiter" or "leader"), `token_id`, `host_id`, `addr`, `nodes` (each with its
/// `host_id`, `addr`, penalty and `tenures`), `waiting`, `fence`, `holder` (as far as this node knows: itself, or whom it gave
/// the token to), `generation` (the edge of the graph by which this token came about, if it is known), `passed_to`, `loop_micros`, `availability`, `renew_timeout_micros`, `data_bytes` and `data` (the JSON that
/// travels, as it was written).
#[utoipa::path(get, path = "/v1/token", responses(
    (status = 200, description = "The token.", body = Object),
    (status = 404, description = "This agent does not run token.", body = ErrorBody),
))]
async fn token(State(api): State<Api>) -> Result<Json<TokenShown>, ApiError> {
    let status = status(&api).await?;
    let document = document(&api).await?;
    let mut shown = serde_json::to_value(&*status).map_err(|error| unexpected(&error.to_string()))?;
    for node in shown["nodes"].as_array_mut().into_iter().flatten() {
        let tenures = document.counts.get(&node["host_id"].to_string()).copied().unwrap_or(0);
        node["tenures"] = tenures.into();
    }
    let own = status.token_id.magnitude();
    let generation = document.edges.iter().rfind(|edge| edge.to == own).copied();
    Ok(Json(TokenShown { status: shown, generation, data: document.to_json() }))
}

/// The token as it is told.
#[derive(Serialize)]
struct TokenShown {
    #[serde(flatten)]
    status: Value,
    generation: Option<Edge>,
    data: Raw,
}

/// A value to set.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct SetRequest {
    /// Its name.
    key: String,
    /// Any JSON; null unsets it.
    #[schema(value_type = Object)]
    value: Raw,
    /// How long to wait for the token, from 1 to 86400000; 30000 if not given.
    wait_ms: Option<u64>,
}

/// It is done.
#[derive(Serialize, ToSchema)]
struct TokenDone {
    /// Always true.
    done: bool,
}

/// Set a small value that travels with the token.
///
/// It is answered when the token is here and has the value, which is durable then. If no token comes in time the value is
/// not set, and will not be.
#[utoipa::path(post, path = "/v1/token/values", request_body = SetRequest, responses(
    (status = 200, description = "It is set.", body = TokenDone),
    (status = 400, description = "The wait is too short or too long.", body = ErrorBody),
    (status = 409, description = "It cannot be set.", body = ErrorBody),
    (status = 504, description = "No token came: it is not set.", body = ErrorBody),
))]
async fn set(
    State(api): State<Api>,
    JsonBody(request): JsonBody<SetRequest>,
) -> Result<Json<TokenDone>, ApiError> {
    let wait = request.wait_ms.map_or(Ok(WAIT), |ms| bounded("wait_ms", ms))?;
    let change = Set { key: request.key, value: request.value };
    match ask(&api, jitterbug::Command::Change { change, wait }).await? {
        jitterbug::Reply::Done => Ok(Json(TokenDone { done: true })),
        jitterbug::Reply::NotChanged => Err(no_token(wait)),
        jitterbug::Reply::Stopping => Err(ApiError::stopping()),
        jitterbug::Reply::Refused(reason) => Err(refused(reason)),
        other => Err(unexpected(&format!("{other:?}"))),
    }
}

/// How the token came about: its splits and merges, and what this node saw of them.
#[utoipa::path(get, path = "/v1/token/graph", responses(
    (status = 200, description = "`edges` of the graph, `text` and `dot` to read and draw it, `log` of this node.", body = Object),
    (status = 404, description = "This agent does not run token.", body = ErrorBody),
))]
async fn graph(State(api): State<Api>) -> Result<Json<Value>, ApiError> {
    let edges = document(&api).await?.edges;
    let jitterbug::Reply::Log(log) = ask(&api, jitterbug::Command::Log).await? else {
        return Err(ApiError::stopping());
    };
    let (text, dot) = (jitterbug::to_text(&edges), jitterbug::to_dot(&edges));
    Ok(Json(json!({ "edges": edges, "text": text, "dot": dot, "log": log })))
}

/// How long to hold the token.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct HoldRequest {
    /// At most so long: from 1 to 86400000.
    limit_ms: u64,
}

impl HoldRequest {
    pub(super) fn limit(&self) -> Result<Duration, ApiError> {
        bounded("limit_ms", self.limit_ms)
    }
}

/// A time that a client may ask for.
fn bounded(name: &str, ms: u64) -> Result<Duration, ApiError> {
    let max = services::HOLD_MAX;
    let asked = Duration::from_millis(ms);
    if ms > 0 && asked <= max {
        return Ok(asked);
    }
    let message = format!("{name} is {ms}: it must be from 1 to {}", max.as_millis());
    Err(ApiError::new(StatusCode::BAD_REQUEST, "bad_limit", message, "give milliseconds, up to 24 hours"))
}

/// The token is here and stays.
#[derive(Serialize, ToSchema)]
struct HoldAnswer {
    /// What to release.
    hold: u64,
    /// A number that grows from holder to holder.
    fence: u64,
}

/// Wait for the token and keep it, until it is released or the limit is over.
///
/// If the client goes away while it waits, the token goes on when it comes; later it stays until the limit is over. An
/// event `token_lost` tells of a hold that ended by itself. `POST /v1/token/turn` is a hold that ends with its client.
#[utoipa::path(post, path = "/v1/token/hold", request_body = HoldRequest, responses(
    (status = 200, description = "The token is here and stays.", body = HoldAnswer),
    (status = 400, description = "The limit is too short or too long.", body = ErrorBody),
    (status = 409, description = "It cannot be held.", body = ErrorBody),
))]
async fn hold(
    State(api): State<Api>,
    JsonBody(request): JsonBody<HoldRequest>,
) -> Result<Json<HoldAnswer>, ApiError> {
    let limit = request.limit()?;
    let (sender, answer) = oneshot::channel();
    // In a task of its own: it outlives a client that goes away, and gives back what nobody waits for any more.
    tokio::spawn(async move {
        let reply = ask(&api, jitterbug::Command::Hold { limit }).await;
        if let Err(Ok(jitterbug::Reply::Held { hold, .. })) = sender.send(reply) {
            // If the node has ended there is nothing to give back.
            let _ = ask(&api, jitterbug::Command::Release { hold }).await;
        }
    });
    let (hold, fence) = held(answer.await.map_err(|_| ApiError::stopping())?)?;
    Ok(Json(HoldAnswer { hold: hold.0, fence }))
}

/// What a hold got: its number and the fence.
pub(super) fn held(reply: Result<jitterbug::Reply, ApiError>) -> Result<(RequestId, u64), ApiError> {
    match reply? {
        jitterbug::Reply::Held { hold, fence } => Ok((hold, fence)),
        jitterbug::Reply::Refused(reason) => Err(refused(reason)),
        jitterbug::Reply::NotHeld | jitterbug::Reply::Stopping => Err(ApiError::stopping()),
        other => Err(unexpected(&format!("{other:?}"))),
    }
}

/// Which hold to end.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct ReleaseRequest {
    /// As the hold was answered.
    hold: u64,
}

/// Let the token go on.
#[utoipa::path(post, path = "/v1/token/release", request_body = ReleaseRequest, responses(
    (status = 200, description = "It goes on.", body = TokenDone),
    (status = 409, description = "There is no such hold; it may have ended by itself.", body = ErrorBody),
))]
async fn release(
    State(api): State<Api>,
    JsonBody(request): JsonBody<ReleaseRequest>,
) -> Result<Json<TokenDone>, ApiError> {
    match ask(&api, jitterbug::Command::Release { hold: RequestId(request.hold) }).await? {
        jitterbug::Reply::Done => Ok(Json(TokenDone { done: true })),
        jitterbug::Reply::NotHeld => Err(refused("there is no such hold")),
        other => Err(unexpected(&format!("{other:?}"))),
    }
}

pub(super) async fn status(api: &Api) -> Result<Box<Status>, ApiError> {
    match ask(api, jitterbug::Command::Status).await? {
        jitterbug::Reply::Status(status) => Ok(status),
        _ => Err(ApiError::stopping()),
    }
}

/// The data that travels; that of another application is empty here.
async fn document(api: &Api) -> Result<Document, ApiError> {
    match ask(api, jitterbug::Command::Data).await? {
        jitterbug::Reply::Data(data) => Ok(Document::from_data(&data).unwrap_or_default()),
        _ => Err(ApiError::stopping()),
    }
}

pub(super) async fn ask(api: &Api, command: jitterbug::Command<Set>) -> Result<jitterbug::Reply, ApiError> {
    let command = Command { service: services::TOKEN, command: PartCommand::Token(command) };
    match api.node.command(command).await {
        Ok(Reply::Token(reply)) => Ok(reply),
        Ok(_) => Err(ApiError::no_service("token")),
        Err(_) => Err(ApiError::stopping()),
    }
}

fn refused(reason: &str) -> ApiError {
    let hint = "`annulus token` shows the state of the token; docs/api.md has the limits";
    ApiError::new(StatusCode::CONFLICT, "token_refused", reason, hint)
}

fn no_token(waited: Duration) -> ApiError {
    let waited = humantime::format_duration(waited);
    ApiError::new(
        StatusCode::GATEWAY_TIMEOUT,
        "no_token",
        format!("no token came by within {waited}; the value is not set"),
        "`annulus token` shows whether the ring has one; somebody may hold it, so wait longer or try again",
    )
}

fn unexpected(what: &str) -> ApiError {
    ApiError::new(
        StatusCode::INTERNAL_SERVER_ERROR,
        "unexpected",
        format!("token answered {what}"),
        "this is a fault of the program: please report it",
    )
}
