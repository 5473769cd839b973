//! The routes of exclusive turns: getting, keeping and releasing a turn, and the voters (TU-39).

mod query;

use std::time::Duration;

use annulus::core::node::{Command, Node, PartCommand, PartEvent, Reply};
use annulus::core::turns::{self, Blocker, Grant, Lock, LostReason, Resume, Status, TurnId, VoterStatus};
use annulus::net::Events;
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
use super::error::{ApiError, ErrorBody, JsonBody, Nothing, PathArg, number};
use crate::agent::services;

/// The longest name.
const NAME_BYTES_MAX: usize = 1024;

pub(super) fn routes() -> OpenApiRouter<Api> {
    OpenApiRouter::new()
        .routes(routes!(turns, lock))
        .routes(routes!(resume))
        .routes(routes!(query::query))
        .routes(routes!(check, release))
        .routes(routes!(keep))
        .routes(routes!(lost))
        .routes(routes!(voters))
        .routes(routes!(renew))
        .routes(routes!(refound))
}

/// A wish for a turn.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct LockRequest {
    /// The name, up to 1024 bytes.
    #[schema(max_length = 1024)]
    name: String,
    /// 32 hexadecimal digits that the client draws; a repeat with the same is the same wish.
    #[schema(pattern = "^[0-9a-fA-F]{32}$")]
    turn: String,
    /// The longest wait in milliseconds, up to 86400000; 0 tries once.
    #[schema(maximum = 86_400_000)]
    wait_ms: u64,
    /// The limit of the turn in milliseconds, from 1 to 86400000.
    #[schema(minimum = 1, maximum = 86_400_000)]
    limit_ms: u64,
}

/// A turn.
#[derive(Serialize, ToSchema)]
struct TurnAnswer {
    /// As the client drew it.
    turn: String,
    /// Greater than the fence of every earlier turn of the name.
    fence: u64,
    /// The validity that is left without another keep.
    left_ms: u64,
    /// The length of a lease: keep the turn every sixth of it.
    lease_ms: u64,
    /// To be presented to an agent that was restarted.
    #[schema(format = "uint64")]
    session: u64,
    /// The end of validity on the clock of this boot, in microseconds.
    deadline_micros: u64,
    /// The boot, if the system names it.
    boot_id: Option<String>,
    /// Always "exclusive".
    guarantee: &'static str,
}

/// Get a turn: wait until a majority of voters has granted it.
///
/// If the client disconnects while it waits, the request is withdrawn. A turn that is not kept for 0.8 of a lease is
/// renewed no more, and runs out.
#[utoipa::path(post, path = "/v1/turns", request_body = LockRequest, responses(
    (status = 200, description = "The turn is here.", body = TurnAnswer),
    (status = 400, description = "A field is out of range.", body = ErrorBody),
    (status = 404, description = "This agent has no voters.", body = ErrorBody),
    (status = 409, description = "Another has the name.", body = ErrorBody),
    (status = 503, description = "Too few voters answer.", body = ErrorBody),
))]
async fn lock(
    State(api): State<Api>,
    JsonBody(request): JsonBody<LockRequest>,
) -> Result<Json<TurnAnswer>, ApiError> {
    let turn = turn_id(&request.turn)?;
    let (wait, limit) = (bounded("wait_ms", request.wait_ms, 0)?, bounded("limit_ms", request.limit_ms, 1)?);
    let name = checked_name(request.name)?;
    let lock = Lock { name, turn, wait, limit, attended: true };
    let (sender, answer) = oneshot::channel();
    let waiting = Withdraw { api: api.clone(), turn, armed: true };
    let asking = api.clone();
    // In a task of its own: it outlives a client that disconnects, and releases a turn without a client.
    tokio::spawn(async move {
        let reply = ask(&asking, turns::Command::Lock(lock)).await;
        if let Err(Ok(turns::Reply::Granted(grant))) = sender.send(reply) {
            // If the node has ended there is nothing to give back.
            let _ = ask(&asking, turns::Command::Release(grant.turn)).await;
        }
    });
    let reply = answer.await.map_err(|_| ApiError::stopping())?;
    waiting.disarm();
    granted(&api, reply?).await
}

/// Withdraws a request whose client has disconnected.
struct Withdraw {
    api: Api,
    turn: TurnId,
    armed: bool,
}

impl Withdraw {
    fn disarm(mut self) {
        self.armed = false;
    }
}

impl Drop for Withdraw {
    fn drop(&mut self) {
        if self.armed {
            let (api, turn) = (self.api.clone(), self.turn);
            // If the node has ended, no release is needed.
            tokio::spawn(async move { drop(ask(&api, turns::Command::Release(turn)).await) });
        }
    }
}

async fn granted(api: &Api, reply: turns::Reply) -> Result<Json<TurnAnswer>, ApiError> {
    match reply {
        turns::Reply::Granted(grant) => {
            let status = status(api).await?;
            Ok(Json(answer_of(&grant, &status)))
        }
        turns::Reply::NotFree(blocker) => Err(not_free(blocker)),
        turns::Reply::NoMajority { have, need } => Err(no_majority(api, have, need).await),
        turns::Reply::Lost(reason) => Err(gone(reason)),
        turns::Reply::Withdrawn => Err(ApiError::new(
            StatusCode::CONFLICT,
            "withdrawn",
            "the wish was withdrawn, or made again by another request",
            "draw a new turn for every wish",
        )),
        turns::Reply::Full => Err(ApiError::new(
            StatusCode::CONFLICT,
            "too_many_turns",
            "this agent has as many turns and wishes as it keeps, or this turn is in use for another name",
            "release some of them, or draw another turn",
        )),
        _ => Err(ApiError::stopping()),
    }
}

fn answer_of(grant: &Grant, status: &Status) -> TurnAnswer {
    TurnAnswer {
        turn: grant.turn.to_string(),
        fence: grant.fence,
        left_ms: grant.left_micros / 1000,
        lease_ms: status.lease_micros / 1000,
        session: grant.session,
        deadline_micros: grant.deadline_micros,
        boot_id: status.boot_id.clone(),
        guarantee: "exclusive",
    }
}

/// A turn of an agent that was restarted.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct ResumeRequest {
    /// The name.
    #[schema(max_length = 1024)]
    name: String,
    /// As the client drew it.
    #[schema(pattern = "^[0-9a-fA-F]{32}$")]
    turn: String,
    /// As granted: any 64 bits.
    #[schema(format = "uint64")]
    session: u64,
    /// As granted.
    #[serde(deserialize_with = "number")]
    fence: u64,
    /// The end of validity in the last answer.
    #[serde(deserialize_with = "number")]
    deadline_micros: u64,
    /// The boot, as in the grant.
    boot_id: String,
    /// The rest of the limit in milliseconds.
    #[schema(minimum = 1, maximum = 86_400_000)]
    limit_ms: u64,
}

/// Go on with a turn that this agent granted before it was restarted.
#[utoipa::path(post, path = "/v1/turns/resume", request_body = ResumeRequest, responses(
    (status = 200, description = "The turn goes on.", body = TurnAnswer),
    (status = 400, description = "A field is out of range.", body = ErrorBody),
    (status = 404, description = "This agent has no voters.", body = ErrorBody),
    (status = 410, description = "The turn is over.", body = ErrorBody),
))]
async fn resume(
    State(api): State<Api>,
    JsonBody(request): JsonBody<ResumeRequest>,
) -> Result<Json<TurnAnswer>, ApiError> {
    let status = status(&api).await?;
    let resume = Resume {
        name: checked_name(request.name)?,
        turn: turn_id(&request.turn)?,
        session: request.session,
        fence: request.fence,
        deadline_micros: request.deadline_micros,
        limit_micros: bounded("limit_ms", request.limit_ms, 1)?.as_micros() as u64,
    };
    if status.boot_id.as_deref() != Some(request.boot_id.as_str()) {
        return Err(gone(LostReason::Unknown));
    }
    granted(&api, ask(&api, turns::Command::Resume(resume)).await?).await
}

/// The rest of a turn.
#[derive(Serialize, ToSchema)]
struct LeftAnswer {
    /// The validity that is left without another keep.
    left_ms: u64,
    /// The end of validity on the clock of this boot, in microseconds.
    deadline_micros: u64,
    /// Always "exclusive".
    guarantee: &'static str,
}

fn left(reply: &turns::Reply) -> Result<Json<LeftAnswer>, ApiError> {
    match reply {
        turns::Reply::Kept { left_micros, deadline_micros } => Ok(Json(LeftAnswer {
            left_ms: left_micros / 1000,
            deadline_micros: *deadline_micros,
            guarantee: "exclusive",
        })),
        turns::Reply::Lost(reason) => Err(gone(*reason)),
        _ => Err(ApiError::stopping()),
    }
}

/// Keep a turn; count what is left from when this request was sent.
#[utoipa::path(post, path = "/v1/turns/{turn}/keep", request_body = Nothing,
    params(("turn" = String, Path, pattern = "^[0-9a-fA-F]{32}$", description = "32 hexadecimal digits.")), responses(
    (status = 200, description = "It goes on.", body = LeftAnswer),
    (status = 400, description = "That is no turn.", body = ErrorBody),
    (status = 404, description = "This agent has no voters.", body = ErrorBody),
    (status = 410, description = "It is over, and why.", body = ErrorBody),
))]
async fn keep(
    State(api): State<Api>,
    PathArg(turn): PathArg,
    JsonBody(Nothing {}): JsonBody<Nothing>,
) -> Result<Json<LeftAnswer>, ApiError> {
    left(&ask(&api, turns::Command::Keep(turn_id(&turn)?)).await?)
}

/// The validity that is left of a turn; this does not keep it.
#[utoipa::path(get, path = "/v1/turns/{turn}",
    params(("turn" = String, Path, pattern = "^[0-9a-fA-F]{32}$", description = "32 hexadecimal digits.")), responses(
    (status = 200, description = "It is valid.", body = LeftAnswer),
    (status = 400, description = "That is no turn.", body = ErrorBody),
    (status = 404, description = "This agent has no voters.", body = ErrorBody),
    (status = 410, description = "It is over, and why.", body = ErrorBody),
))]
async fn check(State(api): State<Api>, PathArg(turn): PathArg) -> Result<Json<LeftAnswer>, ApiError> {
    left(&ask(&api, turns::Command::Check(turn_id(&turn)?)).await?)
}

/// Wait until a turn is over; the answer is why.
#[utoipa::path(get, path = "/v1/turns/{turn}/lost",
    params(("turn" = String, Path, pattern = "^[0-9a-fA-F]{32}$", description = "32 hexadecimal digits.")), responses(
    (status = 200, description = "`reason`: why it is over.", body = Object),
    (status = 400, description = "That is no turn.", body = ErrorBody),
    (status = 404, description = "This agent has no voters.", body = ErrorBody),
))]
async fn lost(State(api): State<Api>, PathArg(turn): PathArg) -> Result<Json<Value>, ApiError> {
    let turn = turn_id(&turn)?;
    // Subscribe before the query: an event in between must not be missed.
    let mut events = api.node.events();
    let reason = match ask(&api, turns::Command::Check(turn)).await? {
        turns::Reply::Lost(reason) => serde_json::to_value(reason).unwrap_or_default(),
        _ => {
            let mut leaving = api.leaving.clone();
            tokio::select! {
                reason = end_of(turn, &mut events) => reason,
                _ = leaving.wait_for(|leaving| *leaving) => "stopping".into(),
            }
        }
    };
    Ok(Json(json!({ "reason": reason })))
}

async fn end_of(turn: TurnId, events: &mut Events<Node>) -> Value {
    while let Some(event) = events.next().await {
        match &event.event {
            PartEvent::Turns(turns::Event::TurnLost { turn: over, reason, .. }) if *over == turn => {
                return serde_json::to_value(reason).unwrap_or_default();
            }
            PartEvent::Turns(turns::Event::TurnReleased { turn: over, .. }) if *over == turn => {
                return "released".into();
            }
            _ => {}
        }
    }
    "stopping".into()
}

/// It is done.
#[derive(Serialize, ToSchema)]
struct TurnsDone {
    /// Always true.
    done: bool,
}

/// End a turn, or the wait for it.
#[utoipa::path(delete, path = "/v1/turns/{turn}",
    params(("turn" = String, Path, pattern = "^[0-9a-fA-F]{32}$", description = "32 hexadecimal digits.")), responses(
    (status = 200, description = "It has ended.", body = TurnsDone),
    (status = 400, description = "That is no turn.", body = ErrorBody),
    (status = 404, description = "This agent has no voters.", body = ErrorBody),
    (status = 410, description = "It was over before.", body = ErrorBody),
))]
async fn release(State(api): State<Api>, PathArg(turn): PathArg) -> Result<Json<TurnsDone>, ApiError> {
    let turn = turn_id(&turn)?;
    // In a task of its own: the command has ended, even if its client has disconnected since.
    let released = tokio::spawn(async move { ask(&api, turns::Command::Release(turn)).await });
    match released.await.map_err(|_| ApiError::stopping())?? {
        turns::Reply::Released => Ok(Json(TurnsDone { done: true })),
        turns::Reply::Lost(reason) => Err(gone(reason)),
        _ => Err(ApiError::stopping()),
    }
}

/// The turns of this agent, and the wishes that wait.
#[utoipa::path(get, path = "/v1/turns", responses(
    (status = 200, description = "`turns`, each with `name`, `turn`, `fence`, `left_micros` and `waits_for`.", body = Object),
    (status = 404, description = "This agent has no voters.", body = ErrorBody),
))]
async fn turns(State(api): State<Api>) -> Result<Json<Value>, ApiError> {
    let status = status(&api).await?;
    Ok(Json(json!({ "turns": status.turns, "guarantee": "exclusive" })))
}

/// The voters of exclusive turns, as this agent sees them.
#[utoipa::path(get, path = "/v1/voters", responses(
    (status = 200, description = "`group`, `epoch`, `lease_micros`, `majority`, `standing` of this node, and `voters`.", body = Object),
    (status = 404, description = "This agent has no voters.", body = ErrorBody),
))]
async fn voters(State(api): State<Api>) -> Result<Json<Box<Status>>, ApiError> {
    Ok(Json(status(&api).await?))
}

/// Make this voter forget its disk: it rests, reads the others, and votes again (TU-22).
#[utoipa::path(post, path = "/v1/voters/renew", request_body = Nothing, responses(
    (status = 200, description = "It rests and reads the others.", body = TurnsDone),
    (status = 404, description = "This agent has no voters.", body = ErrorBody),
    (status = 409, description = "This agent is no voter.", body = ErrorBody),
))]
async fn renew(
    State(api): State<Api>,
    JsonBody(Nothing {}): JsonBody<Nothing>,
) -> Result<Json<TurnsDone>, ApiError> {
    operated(&ask(&api, turns::Command::Renew).await?)
}

/// The confirmation of an operator.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct RefoundRequest {
    /// Must be true: no command runs under a turn anywhere.
    ended_everywhere: bool,
}

/// Found a new group of voters, although the old one may live (TU-28).
#[utoipa::path(post, path = "/v1/voters/refound", request_body = RefoundRequest, responses(
    (status = 200, description = "The group is founded as soon as all listed voters have accepted.", body = TurnsDone),
    (status = 404, description = "This agent has no voters.", body = ErrorBody),
    (status = 409, description = "The operator does not say that all commands have ended, or this agent is no voter.", body = ErrorBody),
))]
async fn refound(
    State(api): State<Api>,
    JsonBody(request): JsonBody<RefoundRequest>,
) -> Result<Json<TurnsDone>, ApiError> {
    if !request.ended_everywhere {
        return Err(ApiError::new(
            StatusCode::CONFLICT,
            "not_ended",
            "a new group does not know the turns of the old one",
            "end all commands under turns on all machines, then say ended_everywhere",
        ));
    }
    operated(&ask(&api, turns::Command::Refound).await?)
}

fn operated(reply: &turns::Reply) -> Result<Json<TurnsDone>, ApiError> {
    match reply {
        turns::Reply::Done => Ok(Json(TurnsDone { done: true })),
        turns::Reply::NotVoter => Err(ApiError::new(
            StatusCode::CONFLICT,
            "not_a_voter",
            "this agent is not one of token.voters, or has no record yet",
            "`annulus voters` lists the voters; run this on one of them",
        )),
        _ => Err(ApiError::stopping()),
    }
}

/// Whether this agent has voters.
pub(super) async fn has_voters(api: &Api) -> bool {
    status(api).await.is_ok()
}

async fn status(api: &Api) -> Result<Box<Status>, ApiError> {
    match ask(api, turns::Command::Status).await? {
        turns::Reply::Status(status) => Ok(status),
        _ => Err(ApiError::stopping()),
    }
}

async fn ask(api: &Api, command: turns::Command) -> Result<turns::Reply, ApiError> {
    let command = Command { service: services::TURNS, command: PartCommand::Turns(command) };
    match api.node.command(command).await {
        Ok(Reply::Turns(reply)) => Ok(reply),
        Ok(_) => Err(no_voters()),
        Err(_) => Err(ApiError::stopping()),
    }
}

fn turn_id(text: &str) -> Result<TurnId, ApiError> {
    let bad = |error: turns::ParseTurnIdError| {
        ApiError::new(
            StatusCode::BAD_REQUEST,
            "bad_turn",
            error.to_string(),
            "draw 128 random bits for each wish",
        )
    };
    text.parse().map_err(bad)
}

fn checked_name(name: String) -> Result<String, ApiError> {
    if name.len() <= NAME_BYTES_MAX {
        return Ok(name);
    }
    let text = format!("the name has {} bytes: it may have {NAME_BYTES_MAX}", name.len());
    Err(ApiError::new(StatusCode::BAD_REQUEST, "bad_name", text, "give a shorter name"))
}

fn bounded(name: &str, ms: u64, least: u64) -> Result<Duration, ApiError> {
    let max = services::HOLD_MAX;
    if ms >= least && Duration::from_millis(ms) <= max {
        return Ok(Duration::from_millis(ms));
    }
    let message = format!("{name} is {ms}: it must be from {least} to {}", max.as_millis());
    Err(ApiError::new(StatusCode::BAD_REQUEST, "bad_limit", message, "give milliseconds, up to 24 hours"))
}

fn no_voters() -> ApiError {
    ApiError::new(
        StatusCode::NOT_FOUND,
        "no_voters",
        "this agent has no voters, so it grants no exclusive turns",
        "set token.voters to 1, 3, 5 or 7 addresses, the same on all nodes (docs/token.md)",
    )
}

fn not_free(blocker: Option<Blocker>) -> ApiError {
    let message = match blocker {
        Some(blocker) => {
            let left = Duration::from_millis(blocker.left_micros / 1000);
            let left = humantime::format_duration(left);
            format!(
                "{} has the name with fence {}; its lease lasts {left} if it is not renewed",
                blocker.by, blocker.fence
            )
        }
        None => "another node or client has the name, or asks for it at this moment".to_owned(),
    };
    ApiError::new(StatusCode::CONFLICT, "not_free", message, "wait longer, or try again")
}

/// Names the voters that are silent or rest. A group is founded when all voters have answered (TU-8).
async fn no_majority(api: &Api, have: usize, need: usize) -> ApiError {
    let status = match status(api).await {
        Ok(status) => status,
        Err(error) => return error,
    };
    let is_founded = status.group.is_some();
    let need = if is_founded { need } else { status.voters.len() };
    let fresh = |ago: Option<u64>| ago.is_some_and(|micros| micros < 15_000_000);
    let named = |what: &str, is: &dyn Fn(&VoterStatus) -> bool| {
        let addrs = status.voters.iter().filter(|voter| is(voter)).map(|voter| voter.addr.to_string());
        let addrs: Vec<String> = addrs.collect();
        if addrs.is_empty() { String::new() } else { format!("; {what}: {}", addrs.join(", ")) }
    };
    let silent = named("silent", &|voter| !fresh(voter.answered_micros_ago));
    let rests = Some(turns::Standing::Resting);
    let resting = named("resting", &|voter| fresh(voter.answered_micros_ago) && voter.standing == rests);
    let unfounded = if is_founded { "" } else { "; the group of voters is not founded yet" };
    let lease = humantime::format_duration(Duration::from_millis(status.lease_micros / 1000));
    let hint = match (is_founded, resting.is_empty()) {
        (false, _) => {
            "start all voters and try again; `annulus voters` shows which of them answer".to_owned()
        }
        (true, false) => format!("try again in {lease}: a voter that started rests that long"),
        (true, true) => "`annulus voters` shows which voters answer and which rest".to_owned(),
    };
    ApiError::new(
        StatusCode::SERVICE_UNAVAILABLE,
        "no_majority",
        format!("{have} voters granted or answered, {need} are needed{silent}{resting}{unfounded}"),
        hint,
    )
}

fn gone(reason: LostReason) -> ApiError {
    let why = match reason {
        LostReason::NoMajority => "no majority of voters renewed the turn in time",
        LostReason::Limit => "the limit of the turn is over",
        LostReason::Taken => "another has the name: the clock of this machine was stopped",
        LostReason::Unattended => "the client did not keep the turn",
        LostReason::Stopping => "the agent stopped",
        _ => "this agent does not know the turn",
    };
    ApiError::new(StatusCode::GONE, "turn_lost", why, "stop what runs under the turn, and get a new one")
}
