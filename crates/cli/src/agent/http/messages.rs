//! The routes of route for messages: sending, requesting, answering, and the mailbox.

mod reading;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use annulus::core::Id;
use annulus::core::pastry::{self, AppName, MessageId};
use axum::Json;
use axum::body::{Body, HttpBody as _};
use axum::extract::{DefaultBodyLimit, FromRequest, Request, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use base64::prelude::{BASE64_STANDARD, Engine as _};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::sync::OwnedSemaphorePermit;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::Api;
use super::error::{ApiError, ErrorBody, JsonBody};
use super::names::Names;
use super::route::{ask as ask_machine, key_of, no_such_question, not_answered, not_done, route_from};
use crate::agent::mailbox::Letter;
use crate::agent::services;
use reading::Reading;

/// The most bodies longer than `http.body_bytes_max` that are read at once.
pub(crate) const LONG_BODIES_MAX: usize = 8;

/// The longest wait of a further one.
const LONG_BODY_PATIENCE: Duration = Duration::from_secs(5);

/// The most bytes around the payload in a body: the key, which is any text, and the other fields.
const AROUND_BYTES_MAX: usize = 64 * 1024;

/// Their bodies may be as long as the longest message is as base64.
pub(super) fn routes(message_bytes_max: usize) -> OpenApiRouter<Api> {
    OpenApiRouter::new()
        .routes(routes!(messages, send))
        .routes(routes!(ask))
        .routes(routes!(answer))
        .routes(routes!(read))
        .layer(DefaultBodyLimit::max(body_bytes_max(message_bytes_max)))
}

/// The longest message as base64, and the other fields.
fn body_bytes_max(message_bytes_max: usize) -> usize {
    message_bytes_max.div_ceil(3) * 4 + AROUND_BYTES_MAX
}

/// A body with a payload in it: one that is too long is a message that is. Few long ones are read at once; this is one of
/// them as long as it is held.
struct LetterBody<T> {
    body: T,
    _turn: Option<OwnedSemaphorePermit>,
}

impl<T> LetterBody<T> {
    /// Converts the body with `read`, which consumes it and ends its turn.
    fn read<U>(self, read: impl FnOnce(T) -> Result<U, ApiError>) -> Result<U, ApiError> {
        read(self.body)
    }
}

impl<T: DeserializeOwned> FromRequest<Api> for LetterBody<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &Api) -> Result<Self, ApiError> {
        let size = request.body().size_hint();
        // Refuses a body before reading it: a client that is sending would not read the error.
        if size.lower() > body_bytes_max(state.message_bytes_max) as u64 {
            return Err(not_done(pastry::Reply::TooLong));
        }
        let is_long = size.upper().is_none_or(|bytes| bytes > state.body_bytes_max as u64);
        let turn = if is_long { Some(turn(state).await?) } else { None };
        match JsonBody::from_request(request, state).await {
            Ok(JsonBody(body)) => Ok(Self { body, _turn: turn }),
            Err(error) if error.is("body_too_large") => Err(not_done(pastry::Reply::TooLong)),
            Err(error) => Err(error),
        }
    }
}

/// The right to send a long body.
async fn turn(api: &Api) -> Result<OwnedSemaphorePermit, ApiError> {
    let turn = Arc::clone(&api.long_bodies).acquire_owned();
    let turn = tokio::time::timeout(LONG_BODY_PATIENCE, turn).await.ok().and_then(Result::ok);
    turn.ok_or_else(|| not_done(pastry::Reply::Full))
}

/// A message to send, or a question.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct SendRequest {
    /// The key: 32 hexadecimal digits, or any text, which is hashed.
    key: String,
    /// What, in base64.
    #[schema(pattern = "^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/][AQgw]==|[A-Za-z0-9+/]{2}[AEIMQUYcgkosw048]=)?$")]
    payload_base64: String,
    /// For which application; the one without a name if not given.
    #[serde(default)]
    app: String,
    /// Whether it is sent once only. If not, it is retried over another path, under the same id, until its outcome is
    /// known; an application may see it twice.
    #[serde(default)]
    once: bool,
}

impl SendRequest {
    fn command(self, wants_answer: bool) -> Result<pastry::Command, ApiError> {
        Ok(pastry::Command::Route {
            app: app(self.app)?,
            key: key_of(&self.key),
            payload: payload(&self.payload_base64)?,
            once: self.once,
            wants_answer,
            deadline: None,
        })
    }
}

/// The application of the owner has the message.
#[derive(Serialize, ToSchema)]
struct SendAnswer {
    /// The outcome: `kept`, on the owner's disk and possibly unread; or `handled`, by an application there.
    state: &'static str,
    /// The id of the node it was delivered to.
    #[schema(value_type = String, pattern = "^[0-9a-f]{32}$")]
    delivered_to: Id,
    /// The name of that node, if it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    delivered_to_name: Option<String>,
    /// Its address.
    #[schema(value_type = String)]
    addr: SocketAddr,
    /// The number of steps.
    hops: u8,
}

/// Send a message to the owner of a key, and wait until it is delivered.
#[utoipa::path(post, path = "/v1/messages", request_body = SendRequest, responses(
    (status = 200, description = "It is delivered.", body = SendAnswer),
    (status = 400, description = "The payload is no base64, or the name of the application is too long.", body = ErrorBody),
    (status = 413, description = "It is too long.", body = ErrorBody),
    (status = 502, description = "It was not delivered.", body = ErrorBody),
    (status = 503, description = "This node has not joined the ring, or too much is under way.", body = ErrorBody),
    (status = 504, description = "It is not known whether it was delivered.", body = ErrorBody),
))]
async fn send(State(api): State<Api>, body: LetterBody<SendRequest>) -> Result<Json<SendAnswer>, ApiError> {
    let command = body.read(|request| request.command(false))?;
    let (state, by, hops) = match route_from(&api, command).await? {
        pastry::Reply::Outcome(pastry::Outcome::Kept { by, hops }) => ("kept", by, hops),
        pastry::Reply::Outcome(pastry::Outcome::Delivered { by, hops, .. }) => ("handled", by, hops),
        other => return Err(not_done(other)),
    };
    let delivered_to_name = Names::recent(&api).await.of(by.id);
    Ok(Json(SendAnswer { state, delivered_to: by.id, delivered_to_name, addr: by.addr, hops }))
}

/// The owner has answered.
#[derive(Serialize, ToSchema)]
struct AskAnswer {
    /// The outcome of the request: `handled`.
    state: &'static str,
    /// The id of the node that answered.
    #[schema(value_type = String, pattern = "^[0-9a-f]{32}$")]
    answered_by: Id,
    /// The name of that node, if it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    answered_by_name: Option<String>,
    /// Its address.
    #[schema(value_type = String)]
    addr: SocketAddr,
    /// After how many steps the question was there.
    hops: u8,
    /// The answer, in base64.
    payload_base64: String,
}

/// Ask the owner of a key, and wait for its answer.
#[utoipa::path(post, path = "/v1/ask", request_body = SendRequest, responses(
    (status = 200, description = "The answer.", body = AskAnswer),
    (status = 400, description = "The payload is no base64, or the name of the application is too long.", body = ErrorBody),
    (status = 413, description = "It is too long.", body = ErrorBody),
    (status = 502, description = "The question was not delivered.", body = ErrorBody),
    (status = 503, description = "This node has not joined the ring, or too much is under way.", body = ErrorBody),
    (status = 504, description = "No answer came.", body = ErrorBody),
))]
async fn ask(State(api): State<Api>, body: LetterBody<SendRequest>) -> Result<Json<AskAnswer>, ApiError> {
    let command = body.read(|request| request.command(true))?;
    match route_from(&api, command).await? {
        pastry::Reply::Outcome(pastry::Outcome::Delivered { by, hops, answer }) => Ok(Json(AskAnswer {
            state: "handled",
            answered_by: by.id,
            answered_by_name: Names::recent(&api).await.of(by.id),
            addr: by.addr,
            hops,
            payload_base64: BASE64_STANDARD.encode(answer.unwrap_or_default()),
        })),
        pastry::Reply::Outcome(pastry::Outcome::Unknown) => Err(not_answered()),
        other => Err(not_done(other)),
    }
}

/// An answer to a question that was delivered here.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct AnswerRequest {
    /// The id of the message that asked.
    id: String,
    /// The answer, in base64.
    #[schema(pattern = "^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/][AQgw]==|[A-Za-z0-9+/]{2}[AEIMQUYcgkosw048]=)?$")]
    payload_base64: String,
}

/// The answer is on its way.
#[derive(Serialize, ToSchema)]
struct AnswerDone {
    /// Always true.
    done: bool,
}

/// Answer a question that was delivered here.
#[utoipa::path(post, path = "/v1/answers", request_body = AnswerRequest, responses(
    (status = 200, description = "The answer is on its way.", body = AnswerDone),
    (status = 409, description = "Nobody waits for it.", body = ErrorBody),
    (status = 413, description = "It is too long.", body = ErrorBody),
))]
async fn answer(
    State(api): State<Api>,
    body: LetterBody<AnswerRequest>,
) -> Result<Json<AnswerDone>, ApiError> {
    let command = body.read(|request| {
        let payload = payload(&request.payload_base64)?;
        // An id that is no number belongs to no request.
        let Ok(id) = u128::from_str_radix(&request.id, 16) else {
            return Err(no_such_question());
        };
        Ok(pastry::Command::Settle(vec![(MessageId(id), pastry::Verdict::Answer(payload))]))
    })?;
    let question = match &command {
        pastry::Command::Settle(settled) => settled.first().map(|(id, _)| *id),
        _ => None,
    };
    match ask_machine(&api, command).await? {
        pastry::Reply::Settled { open: 1 } => {
            api.mailbox.read(question.as_slice()).await;
            Ok(Json(AnswerDone { done: true }))
        }
        pastry::Reply::Settled { .. } => Err(no_such_question()),
        other => Err(not_done(other)),
    }
}

/// Messages to mark as read.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct ReadRequest {
    /// Their ids.
    ids: Vec<String>,
}

/// They are marked as read.
#[derive(Serialize, ToSchema)]
struct ReadDone {
    /// The number of them that were unread.
    read: usize,
}

/// Mark messages as read: they make room for others.
#[utoipa::path(post, path = "/v1/messages/read", request_body = ReadRequest, responses(
    (status = 200, description = "They are marked.", body = ReadDone),
))]
async fn read(
    State(api): State<Api>,
    JsonBody(request): JsonBody<ReadRequest>,
) -> Result<Json<ReadDone>, ApiError> {
    let ids = request.ids.iter().filter_map(|id| u128::from_str_radix(id, 16).ok());
    let ids: Vec<MessageId> = ids.map(MessageId).collect();
    Ok(Json(ReadDone { read: api.mailbox.read(&ids).await }))
}

/// A message that was delivered here.
#[derive(Serialize, ToSchema)]
struct MessageInfo {
    /// Its number; for an answer.
    id: String,
    /// When it came, in microseconds since the epoch.
    at_micros: u64,
    /// For which application.
    app: String,
    /// Its key.
    #[schema(value_type = String, pattern = "^[0-9a-f]{32}$")]
    key: Id,
    /// The id of the node that sent it.
    #[schema(value_type = String, pattern = "^[0-9a-f]{32}$")]
    origin: Id,
    /// Its name, if it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    origin_name: Option<String>,
    /// The number of steps.
    hops: u8,
    /// Whether the sender waits for an answer.
    ask: bool,
    /// Whether a client has marked it as read. Unread messages stay, also when the agent restarts.
    read: bool,
    /// The payload in base64. The last field: it is written piece by piece.
    payload_base64: String,
}

/// The messages delivered here, the oldest first: all unread ones, and the last read ones.
#[utoipa::path(get, path = "/v1/messages", responses(
    (status = 200, description = "The messages.", body = Vec<MessageInfo>),
    (status = 404, description = "This agent does not run route.", body = ErrorBody),
    (status = 503, description = "Too many clients read them.", body = ErrorBody),
))]
async fn messages(State(api): State<Api>) -> Result<Response, ApiError> {
    let route = services::name_of(services::ROUTE);
    if api.services.iter().all(|service| service.name != route) {
        return Err(ApiError::no_service(route));
    }
    let Some(turn) = api.mailbox.reader().await else {
        return Err(ApiError::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "too_many_readers",
            "too many clients read the messages",
            "try again when some of them have read theirs, or close them",
        ));
    };
    let names = Names::recent(&api).await;
    // In pieces, as the client reads them: all messages as text would be a multiple of the mailbox for each client.
    let pieces = futures_util::stream::iter(Reading::new(api, names, turn).map(Ok::<_, Infallible>));
    let json = [(header::CONTENT_TYPE, "application/json")];
    Ok((json, Body::from_stream(pieces)).into_response())
}

/// All but its payload.
fn shown(letter: &Letter, names: &Names, read: bool) -> MessageInfo {
    MessageInfo {
        id: letter.id.to_string(),
        at_micros: letter.at_micros,
        app: letter.app.as_str().to_owned(),
        key: letter.key,
        origin: letter.origin.id,
        origin_name: names.of(letter.origin.id),
        hops: letter.hops,
        ask: letter.ask,
        read,
        payload_base64: String::new(),
    }
}

fn app(name: String) -> Result<AppName, ApiError> {
    AppName::new(name).map_err(|error| {
        let hint = format!("give at most {} bytes", AppName::BYTES_MAX);
        ApiError::new(StatusCode::BAD_REQUEST, "bad_name", error.to_string(), hint)
    })
}

fn payload(text: &str) -> Result<Vec<u8>, ApiError> {
    BASE64_STANDARD.decode(text).map_err(|error| {
        let message = format!("payload_base64 is no base64: {error}");
        ApiError::new(
            StatusCode::BAD_REQUEST,
            "bad_body",
            message,
            "encode it with padding, as base64(1) does",
        )
    })
}
