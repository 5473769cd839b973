//! The routes of members: the list, joining and leaving, events, tags, round-trip times.

#![expect(unused_qualifications, reason = "the description of parameters is generated")]

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use annulus::MembersError;
use annulus::core::Id;
use annulus::core::node::{Command, PartCommand, PartEvent, Reply};
use annulus::core::swim::{self, MemberStatus, Tags, TagsError};
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::Api;
use super::error::{ApiError, ErrorBody, JsonBody, QueryArgs};
use crate::agent::services;

/// The timeout of a join or a leave.
const PATIENCE: Duration = Duration::from_secs(10);

pub(super) fn routes() -> OpenApiRouter<Api> {
    OpenApiRouter::new()
        .routes(routes!(members))
        .routes(routes!(join))
        .routes(routes!(leave))
        .routes(routes!(force_leave))
        .routes(routes!(send_event))
        .routes(routes!(tags))
        .routes(routes!(rtt))
}

/// A member of the group.
#[derive(Serialize, ToSchema)]
struct MemberInfo {
    /// Its place on the ring.
    #[schema(value_type = String, pattern = "^[0-9a-f]{32}$")]
    id: Id,
    /// Its name.
    name: String,
    /// Its addresses, the best first.
    #[schema(value_type = Vec<String>)]
    addrs: Vec<SocketAddr>,
    /// "alive", "suspect", "dead" or "left".
    #[schema(value_type = String)]
    state: swim::State,
    /// Its incarnation: the number of its refutations and changes.
    #[schema(value_type = u32)]
    incarnation: swim::Incarnation,
    /// The measured round-trip time.
    rtt_ms: Option<f64>,
    /// Since when it is dead or has left, in microseconds since the Unix epoch.
    since_micros: Option<u64>,
    /// The member whose last probe of it failed; the member itself, if it left or was forced to.
    #[schema(value_type = Option<String>)]
    by: Option<Id>,
    /// The ports of its other services, by name, and its address in the mesh as `nid`.
    #[schema(value_type = BTreeMap<String, Value>)]
    services: swim::Services,
    /// Its tags.
    tags: BTreeMap<String, String>,
    /// Whether it is the agent that answers.
    is_self: bool,
}

/// The members to show.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
struct MembersQuery {
    /// Leave out dead and left members.
    #[serde(default)]
    live: bool,
}

/// All members that this node knows.
#[utoipa::path(get, path = "/v1/members", params(MembersQuery), responses(
    (status = 200, description = "The members, in order of ids.", body = Vec<MemberInfo>),
    (status = 404, description = "This agent does not run members.", body = ErrorBody),
))]
async fn members(
    State(api): State<Api>,
    QueryArgs(query): QueryArgs<MembersQuery>,
) -> Result<Json<Vec<MemberInfo>>, ApiError> {
    Ok(Json(list(&api, !query.live).await?.iter().map(shown).collect()))
}

/// The addresses to join.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct JoinRequest {
    /// IP:PORT of nodes that run members.
    #[schema(value_type = Vec<String>)]
    addrs: Vec<SocketAddr>,
}

/// The result of a join.
#[derive(Serialize, ToSchema)]
struct JoinAnswer {
    /// Those that answered.
    #[schema(value_type = Vec<String>)]
    joined: Vec<SocketAddr>,
    /// Those that did not.
    #[schema(value_type = Vec<String>)]
    failed: Vec<SocketAddr>,
}

/// Join a group through any of its nodes, and wait for an answer.
#[utoipa::path(post, path = "/v1/join", request_body = JoinRequest, responses(
    (status = 200, description = "At least one of them answered.", body = JoinAnswer),
    (status = 409, description = "There is nothing to join, or a node of another ring answered.", body = ErrorBody),
    (status = 504, description = "None of them answered in time.", body = ErrorBody),
))]
async fn join(
    State(api): State<Api>,
    JsonBody(request): JsonBody<JoinRequest>,
) -> Result<Json<JoinAnswer>, ApiError> {
    let mut events = api.node.events();
    let count = match ask(&api, swim::Command::Join { addrs: request.addrs }).await? {
        swim::Reply::Joining { addrs } => addrs,
        swim::Reply::NoAddress => {
            return Err(ApiError::new(
                StatusCode::CONFLICT,
                "nothing_to_join",
                "there is no address to join: they are this agent's own, or already being joined",
                "name the address of another node, with the port of its members service",
            ));
        }
        other => return Err(unexpected(&other)),
    };
    let mut answer = JoinAnswer { joined: Vec::new(), failed: Vec::new() };
    let mut elsewhere = None;
    let heard = async {
        while answer.joined.len() + answer.failed.len() < count {
            let Some(event) = events.next().await else { break };
            match &event.event {
                PartEvent::Members(swim::Event::Joined { addr }) => answer.joined.push(*addr),
                PartEvent::Members(swim::Event::WrongRing { addr }) => {
                    elsewhere = Some(*addr);
                    answer.failed.push(*addr);
                }
                PartEvent::Members(swim::Event::JoinFailed { addr }) if !answer.failed.contains(addr) => {
                    answer.failed.push(*addr);
                }
                _ => {}
            }
        }
    };
    // An address without an answer by then counts as not joined; the machine keeps trying.
    let _ = tokio::time::timeout(PATIENCE, heard).await;
    if let (true, Some(addr)) = (answer.joined.is_empty(), elsewhere) {
        return Err(ApiError::new(
            StatusCode::CONFLICT,
            "wrong_ring",
            format!("the node at {addr} is of another ring"),
            "set members.ring to the same name on both, or join through another node",
        ));
    }
    if answer.joined.is_empty() {
        return Err(ApiError::new(
            StatusCode::GATEWAY_TIMEOUT,
            "nobody_answered",
            "none of the addresses answered",
            "check that agents with members run there, and that the ring name (members.ring) is the same",
        ));
    }
    Ok(Json(answer))
}

/// An empty body.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct Nothing {}

/// It is done.
#[derive(Serialize, ToSchema)]
struct Done {
    /// Always true.
    done: bool,
}

const DONE: Json<Done> = Json(Done { done: true });

/// Leave the group; the agent keeps running.
#[utoipa::path(post, path = "/v1/leave", request_body = Nothing, responses(
    (status = 200, description = "A member was told.", body = Done),
    (status = 504, description = "No member received the broadcast within the timeout.", body = ErrorBody),
))]
async fn leave(
    State(api): State<Api>,
    JsonBody(Nothing {}): JsonBody<Nothing>,
) -> Result<Json<Done>, ApiError> {
    match ask(&api, swim::Command::Leave { timeout: Some(PATIENCE) }).await? {
        swim::Reply::Done => Ok(DONE),
        swim::Reply::TimedOut => Err(ApiError::new(
            StatusCode::GATEWAY_TIMEOUT,
            "broadcast_timeout",
            "no member received the broadcast within the timeout",
            "the goodbye is still being sent; check the network",
        )),
        other => Err(unexpected(&other)),
    }
}

/// A member, named by people.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct MemberRequest {
    /// Its name, its id, or how its id begins.
    member: String,
    /// Forget it as well: it is no longer listed, probed or stored.
    #[serde(default)]
    prune: bool,
}

/// Mark a failed member as left.
#[utoipa::path(post, path = "/v1/force-leave", request_body = MemberRequest, responses(
    (status = 200, description = "The group will hear that it left; if it lives, it contradicts.", body = Done),
    (status = 400, description = "It is this agent itself.", body = ErrorBody),
    (status = 404, description = "No such member is known.", body = ErrorBody),
))]
async fn force_leave(
    State(api): State<Api>,
    JsonBody(request): JsonBody<MemberRequest>,
) -> Result<Json<Done>, ApiError> {
    let id = resolve(&api, &request.member).await?;
    if id == api.identity.id() {
        return Err(ApiError::new(
            StatusCode::BAD_REQUEST,
            "own_member",
            format!("{:?} is this agent itself", request.member),
            "to leave the group use `annulus leave`",
        ));
    }
    match ask(&api, swim::Command::ForceLeave { id, prune: request.prune }).await? {
        swim::Reply::Done => Ok(DONE),
        other => Err(unexpected(&other)),
    }
}

/// An event for all members.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct EventRequest {
    /// Its name.
    name: String,
    /// Its payload.
    #[serde(default)]
    payload: String,
}

/// Send an event to the application of every member.
#[utoipa::path(post, path = "/v1/events", request_body = EventRequest, responses(
    (status = 200, description = "It is on its way.", body = Done),
    (status = 400, description = "It has no name that can be shown.", body = ErrorBody),
    (status = 413, description = "It does not fit a packet.", body = ErrorBody),
    (status = 503, description = "Too many events wait to be sent.", body = ErrorBody),
))]
async fn send_event(
    State(api): State<Api>,
    JsonBody(request): JsonBody<EventRequest>,
) -> Result<Json<Done>, ApiError> {
    let event = swim::UserEvent { name: &request.name, payload: request.payload.as_bytes() };
    let data = event.encode().ok_or_else(|| {
        ApiError::new(
            StatusCode::BAD_REQUEST,
            "bad_name",
            format!("{} bytes are no name of an event", request.name.len()),
            "give it a name of 1 to 255 bytes without control characters",
        )
    })?;
    match ask(&api, swim::Command::Broadcast { data, wait: false }).await? {
        swim::Reply::Done => Ok(DONE),
        swim::Reply::TooLarge { bytes, bytes_max } => Err(ApiError::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            "event_too_large",
            format!("the event takes {bytes} bytes, a packet has room for {bytes_max}"),
            "send less, or send where to find it",
        )),
        swim::Reply::Full => Err(ApiError::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "too_many_events",
            "too many events wait to be sent",
            "wait a moment and try again",
        )),
        other => Err(unexpected(&other)),
    }
}

/// A change of the own tags.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct TagsRequest {
    /// Tags to set.
    #[serde(default)]
    set: BTreeMap<String, String>,
    /// Tags to remove.
    #[serde(default)]
    remove: Vec<String>,
}

/// Change the tags of this node.
#[utoipa::path(post, path = "/v1/tags", request_body = TagsRequest, responses(
    (status = 200, description = "All own tags, as they are now.", body = BTreeMap<String, String>),
    (status = 400, description = "A key is empty or has a `=` in it, or a tag has control characters.", body = ErrorBody),
    (status = 413, description = "Name and tags take more than 512 bytes.", body = ErrorBody),
))]
async fn tags(
    State(api): State<Api>,
    JsonBody(request): JsonBody<TagsRequest>,
) -> Result<Json<BTreeMap<String, String>>, ApiError> {
    let Some(members) = &api.members else {
        return Err(ApiError::no_service("members"));
    };
    let changed = members.change_tags(request.set, &request.remove).await;
    changed.map(Json).map_err(|error| {
        let (status, code, hint) = match error {
            MembersError::BadTag(_) => (StatusCode::BAD_REQUEST, "bad_tag", "give it a name without `=`"),
            MembersError::Tags(TagsError::Control(_)) => {
                (StatusCode::BAD_REQUEST, "bad_tag", "use characters that a terminal shows")
            }
            MembersError::Tags(_) => {
                (StatusCode::PAYLOAD_TOO_LARGE, "tags_too_large", "remove some tags first")
            }
            MembersError::TagsNotKept(_) => (
                StatusCode::INTERNAL_SERVER_ERROR,
                "tags_not_kept",
                "make room in the data directory or mend its owner, and set them again",
            ),
            MembersError::HasLeft => return unexpected(&swim::Reply::HasLeft),
            _ => return ApiError::stopping(),
        };
        ApiError::new(status, code, error.to_string(), hint)
    })
}

/// Between whom.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
struct RttQuery {
    /// A member by name or id; this node if left out.
    from: Option<String>,
    /// A member by name or id.
    to: String,
}

/// A round-trip time.
#[derive(Serialize, ToSchema)]
struct RttAnswer {
    /// Measured from here, or estimated from the coordinates of both; `None` if nothing is known yet.
    rtt_ms: Option<f64>,
}

/// The round-trip time between two members.
#[utoipa::path(get, path = "/v1/rtt", params(RttQuery), responses(
    (status = 200, description = "The round-trip time.", body = RttAnswer),
    (status = 400, description = "The query cannot be read.", body = ErrorBody),
    (status = 404, description = "No such member is known.", body = ErrorBody),
))]
async fn rtt(
    State(api): State<Api>,
    QueryArgs(query): QueryArgs<RttQuery>,
) -> Result<Json<RttAnswer>, ApiError> {
    let from = match &query.from {
        Some(from) => Some(resolve(&api, from).await?),
        None => None,
    };
    let to = resolve(&api, &query.to).await?;
    match ask(&api, swim::Command::Rtt { from, to }).await? {
        swim::Reply::Rtt(micros) => Ok(Json(RttAnswer { rtt_ms: micros.map(super::milliseconds) })),
        other => Err(unexpected(&other)),
    }
}

async fn list(api: &Api, all: bool) -> Result<Vec<MemberStatus>, ApiError> {
    match ask(api, swim::Command::Members { all }).await? {
        swim::Reply::Members(members) => Ok(members),
        other => Err(unexpected(&other)),
    }
}

/// The member that people mean by a name, an id, or the beginning of an id.
async fn resolve(api: &Api, text: &str) -> Result<Id, ApiError> {
    let members = list(api, true).await?;
    let named = |member: &&MemberStatus| {
        Tags::decode(&member.node.meta).is_ok_and(|tags| tags.name == text)
            || (text.len() >= 4 && member.node.id.to_string().starts_with(&text.to_lowercase()))
    };
    let mut found = members.iter().filter(named).map(|member| member.node.id);
    match (found.next(), found.next()) {
        (Some(id), None) => Ok(id),
        (None, _) => Err(no_member(&format!("no member is called {text:?}"))),
        (Some(_), Some(_)) => Err(no_member(&format!("several members are called {text:?}"))),
    }
}

/// The NID of the member of this name, if it announces one. `None` if no member or several have the name, or members does
/// not run here.
pub(super) async fn nid_of(api: &Api, name: &str) -> Option<Option<String>> {
    let members = list(api, true).await.ok()?;
    let told = members.iter().filter_map(|member| Tags::decode(&member.node.meta).ok());
    let mut named = told.filter(|tags| tags.name == name);
    let (first, second) = (named.next()?, named.next());
    second.is_none().then_some(first.services.nid)
}

fn no_member(message: &str) -> ApiError {
    let hint = "`annulus members` shows names and ids; give a name, an id, or at least four digits of one";
    ApiError::new(StatusCode::NOT_FOUND, "no_such_member", message, hint)
}

async fn ask(api: &Api, command: swim::Command) -> Result<swim::Reply, ApiError> {
    let command = Command { service: services::MEMBERS, command: PartCommand::Members(command) };
    match api.node.command(command).await {
        Ok(Reply::Members(reply)) => Ok(reply),
        Ok(_) => Err(ApiError::no_service("members")),
        Err(_) => Err(ApiError::stopping()),
    }
}

/// The error of an unexpected reply.
fn unexpected(reply: &swim::Reply) -> ApiError {
    match reply {
        swim::Reply::NoSuchMember => no_member("the member was forgotten just now"),
        swim::Reply::HasLeft => ApiError::new(
            StatusCode::CONFLICT,
            "has_left",
            "this node has left the group",
            "join again with `annulus join ADDR`",
        ),
        swim::Reply::Stopped | swim::Reply::NotStarted => ApiError::stopping(),
        _ => ApiError::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "unexpected",
            format!("members answered {reply:?}"),
            "this is a fault of the program: please report it",
        ),
    }
}

fn shown(member: &MemberStatus) -> MemberInfo {
    let tags = Tags::decode(&member.node.meta).unwrap_or_default();
    MemberInfo {
        id: member.node.id,
        name: tags.name,
        addrs: member.node.addrs.clone(),
        state: member.state,
        incarnation: member.incarnation,
        rtt_ms: member.rtt_micros.map(super::milliseconds),
        since_micros: member.since_micros,
        by: member.by,
        services: tags.services,
        tags: tags.tags,
        is_self: member.is_self,
    }
}
