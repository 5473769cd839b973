//! The routes of token: its holder, its data, and holds.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use annulus::core::jitterbug::{self, Document, Edge, Raw, Set};
use annulus::core::node::{Command, PartCommand, Reply};
use annulus::core::{RequestId, jitterbug::Status};
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
use super::names::Names;
use crate::agent::services;

/// The default wait of a value for the token.
const WAIT: Duration = Duration::from_secs(30);
/// The extra time of a loop until the fate of a value is known.
const LOOP: Duration = Duration::from_millis(500);
/// The longest wait for that.
const LOOP_MAX: Duration = Duration::from_secs(5);

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
/// The object has these fields:
///
/// - `state` ("orphan", "waiter" or "leader"), `token_id`, `host_id`, `addr`;
/// - `nodes`, each with its `host_id`, `name` if it is known, `addr`, penalty and `tenures`;
/// - `waiting`, `fence`, `passed_to`, `loop_micros`, `renew_timeout_micros`, `grace_micros`, `pause_max_micros`;
/// - `holder`, as far as this node knows: itself, or the node that it passed the token to; `holder_name` if it is known;
/// - `guarantee` of a turn: "exclusive" with voters; "weak" without: two can run at once if the network splits;
/// - `voters`, the group of voters that the ring has;
/// - `generation`, the edge of the graph that made this token, if it is known;
/// - `availability`, the share of the time in which the token was not lost;
/// - `values_dropped`, `refused_tokens`, `data_bytes`;
/// - `data`, the JSON that travels, as it was written; null if it is not ours.
#[utoipa::path(get, path = "/v1/token", responses(
    (status = 200, description = "The token.", body = Object),
    (status = 404, description = "This agent does not run token.", body = ErrorBody),
))]
async fn token(State(api): State<Api>) -> Result<Json<TokenShown>, ApiError> {
    let status = status(&api).await?;
    let data = document_if_any(&api).await?;
    let document = data.clone().unwrap_or_default();
    let mut shown = serde_json::to_value(&*status).map_err(|error| unexpected(&error.to_string()))?;
    let (names, by_role, mut roles) = (Names::read(&api).await, shown.clone(), Vec::new());
    for node in shown["nodes"].as_array_mut().into_iter().flatten() {
        let tenures = document.counts.get(&node["host_id"].to_string()).copied().unwrap_or(0);
        node["tenures"] = tenures.into();
        let addr = node["addr"].as_str().and_then(|addr| addr.parse::<SocketAddr>().ok());
        if let Some(name) = addr.and_then(|addr| names.at(addr.ip())) {
            for role in ["holder", "passed_to"] {
                if node["host_id"] == by_role[role] {
                    roles.push((role, name.clone()));
                }
            }
            node["name"] = name.into();
        }
    }
    for (role, name) in roles {
        shown[format!("{role}_name")] = name.into();
    }
    let guarantee = if super::turns::has_voters(&api).await { "exclusive" } else { "weak" };
    let own = status.token_id.magnitude();
    let generation = document.edges.iter().rfind(|edge| edge.to == own).copied();
    let data = data.map_or_else(|| Value::Null.into(), |document| document.to_json());
    Ok(Json(TokenShown { status: shown, guarantee, generation, data }))
}

/// The token in the answer.
#[derive(Serialize)]
struct TokenShown {
    #[serde(flatten)]
    status: Value,
    guarantee: &'static str,
    generation: Option<Edge>,
    data: Raw,
}

/// A value to set.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct SetRequest {
    /// Its name.
    #[schema(min_length = 1, max_length = 128)]
    key: String,
    /// Any JSON; null unsets it.
    #[schema(value_type = Object)]
    value: Raw,
    /// How long to wait for the token, from 1 to 86400000; 30000 if not given.
    #[schema(minimum = 1, maximum = 86_400_000)]
    wait_ms: Option<u64>,
}

/// A value is in the token.
#[derive(Serialize, ToSchema)]
struct SetAnswer {
    /// Always true.
    done: bool,
    /// Whether the token returned with the value: false if a node of the ring drops values, null if it did not return in
    /// time.
    kept: Option<bool>,
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
    (status = 200, description = "It is set.", body = SetAnswer),
    (status = 400, description = "The wait is too short or too long.", body = ErrorBody),
    (status = 409, description = "It cannot be set.", body = ErrorBody),
    (status = 504, description = "No token came: it is not set.", body = ErrorBody),
))]
async fn set(
    State(api): State<Api>,
    JsonBody(request): JsonBody<SetRequest>,
) -> Result<Json<SetAnswer>, ApiError> {
    let wait = request.wait_ms.map_or(Ok(WAIT), |ms| bounded("wait_ms", ms))?;
    let change = Set { key: request.key, value: request.value };
    match ask(&api, jitterbug::Command::Change { change, wait }).await? {
        jitterbug::Reply::Done => Ok(Json(SetAnswer { done: true, kept: is_kept(&api).await? })),
        jitterbug::Reply::NotChanged => Err(no_token(wait)),
        jitterbug::Reply::Stopping => Err(ApiError::stopping()),
        jitterbug::Reply::Refused(reason) => Err(refused(reason)),
        other => Err(unexpected(&format!("{other:?}"))),
    }
}

/// Waits until the token was round the ring once more, but not for long; whether it still had the values.
async fn is_kept(api: &Api) -> Result<Option<bool>, ApiError> {
    let at_first = status(api).await?;
    if at_first.nodes.len() < 2 {
        return Ok(Some(true));
    }
    let until = tokio::time::Instant::now() + loop_of(&at_first);
    loop {
        let status = status(api).await?;
        if status.tenures > at_first.tenures {
            return Ok(Some(!status.values_dropped));
        }
        if tokio::time::Instant::now() >= until {
            return Ok(None);
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// The time of one loop of the token without holds.
pub(super) fn loop_of(status: &Status) -> Duration {
    let usual = status.loop_micros.map_or(LOOP, Duration::from_micros);
    (2 * usual + LOOP).min(LOOP_MAX)
}

/// The error of a token that did not come in time; it names the holder.
pub(super) async fn not_free(api: &Api, waited: Duration) -> ApiError {
    let holder = match status(api).await {
        Ok(status) => status.holder.and_then(|holder| {
            let node = status.nodes.iter().find(|node| node.host_id == holder)?;
            Some(format!("; {} has it, as far as this agent knows", node.addr.ip()))
        }),
        Err(_) => None,
    };
    let waited = humantime::format_duration(waited);
    ApiError::new(
        StatusCode::CONFLICT,
        "not_free",
        format!("the token did not come within {waited}{}", holder.unwrap_or_default()),
        "wait longer with --wait, or try again",
    )
}

/// The history of the token: its splits and merges, as far as this node saw them.
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

/// The request of a hold.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct HoldRequest {
    /// The limit: from 1 to 86400000.
    #[schema(minimum = 1, maximum = 86_400_000)]
    limit_ms: u64,
}

impl HoldRequest {
    fn limit(&self) -> Result<Duration, ApiError> {
        bounded("limit_ms", self.limit_ms)
    }
}

/// A time that a client may ask for.
pub(super) fn bounded(name: &str, ms: u64) -> Result<Duration, ApiError> {
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
    /// The number of the hold, for its release.
    hold: u64,
    /// A number that grows from holder to holder.
    fence: u64,
}

/// Wait for the token and keep it, until it is released or the limit is over.
///
/// If the client disconnects while it waits, it loses its place at once; later the token stays until the limit is over.
/// An event `token_lost` reports a hold that ended by itself. `POST /v1/token/turn` is a hold that ends with its client.
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
    let (mut sender, answer) = oneshot::channel();
    let key = next_key();
    // In a task of its own: it outlives a client that disconnects, and releases a hold without a client.
    tokio::spawn(async move {
        let reply = tokio::select! {
            reply = ask(&api, jitterbug::Command::HoldAs { key, limit }) => Some(reply),
            () = sender.closed() => None,
        };
        let delivered = reply.is_some_and(|reply| sender.send(reply).is_ok());
        if !delivered {
            // If the node has ended there is nothing to give back.
            let _ = ask(&api, jitterbug::Command::Withdraw { key }).await;
        }
    });
    let (hold, fence) = held(answer.await.map_err(|_| ApiError::stopping())?)?;
    Ok(Json(HoldAnswer { hold: hold.0, fence }))
}

/// The key of the next hold of this agent.
pub(super) fn next_key() -> u64 {
    static KEYS: AtomicU64 = AtomicU64::new(1);
    KEYS.fetch_add(1, Ordering::Relaxed)
}

/// The number and the fence of a hold.
pub(super) fn held(reply: Result<jitterbug::Reply, ApiError>) -> Result<(RequestId, u64), ApiError> {
    match reply? {
        jitterbug::Reply::Held { hold, fence } => Ok((hold, fence)),
        jitterbug::Reply::Refused(reason) => Err(refused(reason)),
        jitterbug::Reply::VotersExist => Err(voters_exist()),
        jitterbug::Reply::NotHeld | jitterbug::Reply::Stopping => Err(ApiError::stopping()),
        other => Err(unexpected(&format!("{other:?}"))),
    }
}

/// The hold to end.
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
    document_if_any(api).await.map(Option::unwrap_or_default)
}

async fn document_if_any(api: &Api) -> Result<Option<Document>, ApiError> {
    match ask(api, jitterbug::Command::Data).await? {
        jitterbug::Reply::Data(data) => Ok(Document::from_data(&data).ok()),
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

fn voters_exist() -> ApiError {
    ApiError::new(
        StatusCode::CONFLICT,
        "voters_exist",
        "this ring has voters of exclusive turns, so it grants no weak ones",
        "set token.voters on this agent as on the others, and ask /v1/turns (docs/token.md)",
    )
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
