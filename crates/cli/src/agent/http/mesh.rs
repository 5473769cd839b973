//! The routes of mesh: sending, inbox, outbox, peers and store.

#![expect(unused_qualifications, reason = "the description of parameters is generated")]

mod book;
mod files;
mod nodes;
mod refusal;

use annulus::core::node::{Command, PartCommand, Reply};
use annulus::core::w3w::{self, DATA_BYTES_MAX, Key, Nid};
use axum::Json;
use axum::extract::{DefaultBodyLimit, Path, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::error::{ApiError, ErrorBody, JsonBody, Nothing, QueryArgs, number};
use super::{Api, members};
use crate::agent::services;
use refusal::refused;

/// The largest body of a message: the longest DATA as base64, and room for the other fields.
const BODY_BYTES_MAX: usize = DATA_BYTES_MAX.div_ceil(3) * 4 + 4096;

pub(super) fn routes() -> OpenApiRouter<Api> {
    // A message may be longer than other requests: its own limit lies inside, and so it counts.
    let messages = OpenApiRouter::new().routes(routes!(send)).layer(DefaultBodyLimit::max(BODY_BYTES_MAX));
    OpenApiRouter::new()
        .merge(messages)
        .merge(files::routes())
        .routes(routes!(status))
        .routes(routes!(inbox))
        .routes(routes!(outbox))
        .routes(routes!(payload))
        .routes(routes!(cancel))
        .merge(book::routes())
        .routes(routes!(remove))
        .routes(routes!(block))
        .merge(nodes::routes())
        .routes(routes!(collect))
}

/// The state of this node.
#[derive(Serialize, ToSchema)]
struct MeshStatus {
    /// Its address in the mesh.
    nid: String,
    /// The address at which it accepts connections.
    at: String,
    /// The number of peers in its ring.
    peers: usize,
    /// Its neighbours on the ring.
    neighbours: Vec<String>,
    /// The number of known nodes.
    known: usize,
    /// Messages in the inbox.
    inbox: usize,
    /// Messages in the outbox.
    outbox: usize,
    /// Messages that wait here for a peer, for their recipient or for their receipt.
    waiting: usize,
    /// Messages remembered as seen.
    seen: usize,
    /// Blocks in the store.
    blocks: usize,
    /// Bytes of them.
    bytes: u64,
    /// The most bytes of them.
    quota_bytes: u64,
    /// Messages for this node that wait for room in the store; they are neither reported nor confirmed.
    deferred: usize,
    /// Bytes of messages in memory.
    memory_bytes: usize,
}

/// The address and the state of this node in the mesh.
#[utoipa::path(get, path = "/v1/mesh", responses(
    (status = 200, description = "How the node is.", body = MeshStatus),
    (status = 404, description = "This agent does not run mesh.", body = ErrorBody),
))]
async fn status(State(api): State<Api>) -> Result<Json<MeshStatus>, ApiError> {
    let w3w::Reply::Status(status) = ask(&api, w3w::Command::Status).await? else {
        return Err(ApiError::stopping());
    };
    // In a ring of two both neighbours are the same node.
    let neighbours = status.neighbours.map_or_else(Vec::new, |(younger, older)| {
        let older = (older != younger).then(|| older.to_string());
        std::iter::once(younger.to_string()).chain(older).collect()
    });
    Ok(Json(MeshStatus {
        nid: status.nid.to_string(),
        at: status.at.to_string(),
        peers: status.peers,
        neighbours,
        known: status.known,
        inbox: status.inbox,
        outbox: status.outbox,
        waiting: status.waiting,
        seen: status.seen,
        blocks: status.blocks,
        bytes: status.bytes,
        quota_bytes: status.quota_bytes,
        deferred: status.deferred,
        memory_bytes: status.memory_bytes,
    }))
}

/// A message to send.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct LetterRequest {
    /// An address in the mesh, or a name of the address book.
    #[schema(min_length = 1)]
    to: String,
    /// The bytes, as base64.
    #[schema(pattern = "^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/][AQgw]==|[A-Za-z0-9+/]{2}[AEIMQUYcgkosw048]=)?$")]
    data_base64: String,
    /// Whether the recipient of a plain message is to confirm it. A letter is always confirmed.
    #[serde(default)]
    receipt: bool,
    /// Send a letter although it is not known whether the recipient knows letters.
    #[serde(default)]
    letter: bool,
    /// The lifetime in seconds, from a minute to 365 days; `mesh.expiry` if not given.
    #[serde(default)]
    #[schema(minimum = 60, maximum = 31_536_000)]
    lifetime_seconds: Option<u64>,
}

/// A message is safe here and on its way.
#[derive(Serialize, ToSchema)]
struct LetterAnswer {
    /// The hash of its bytes.
    hash: String,
    /// Its number in the outbox.
    number: u64,
    /// The address it goes to.
    to: String,
    /// Whether it is a letter: the recipient confirms it, and this node keeps it until then.
    is_letter: bool,
    /// When its lifetime ends, in seconds since 1970.
    until: u64,
}

/// Send bytes to a node; answered when they are safe on this one's disk.
#[utoipa::path(post, path = "/v1/mesh/messages", request_body = LetterRequest, responses(
    (status = 200, description = "It is safe here and on its way.", body = LetterAnswer),
    (status = 400, description = "No address, or no base64.", body = ErrorBody),
    (status = 409, description = "The same was sent to the same node a short time ago.", body = ErrorBody),
    (status = 413, description = "It is too long.", body = ErrorBody),
    (status = 503, description = "Too much waits already.", body = ErrorBody),
    (status = 507, description = "The store is full or cannot be written.", body = ErrorBody),
))]
async fn send(
    State(api): State<Api>,
    JsonBody(request): JsonBody<LetterRequest>,
) -> Result<Json<LetterAnswer>, ApiError> {
    let to = resolve(&api, &request.to).await?;
    let data = STANDARD.decode(&request.data_base64).map_err(|error| {
        ApiError::new(
            StatusCode::BAD_REQUEST,
            "bad_base64",
            format!("data_base64 is no base64: {error}"),
            "encode the bytes with the standard alphabet and padding",
        )
    })?;
    let lifetime = request.lifetime_seconds.map(std::time::Duration::from_secs);
    let (certain, receipt) = (request.letter, request.receipt);
    match ask(&api, w3w::Command::SendLetter { to, data, lifetime, certain, receipt }).await? {
        w3w::Reply::Sent { number, key, until, is_letter } => {
            Ok(Json(LetterAnswer { hash: key.to_string(), number, to: to.to_string(), is_letter, until }))
        }
        other => Err(refused(&other)),
    }
}

/// From where on to show a list.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
struct FromQuery {
    /// The least number; at most 1024 lines are shown at once.
    #[serde(default, deserialize_with = "number")]
    from: u64,
}

/// A message for this node.
#[derive(Serialize, ToSchema)]
struct InboxLine {
    /// Its number in the inbox.
    number: u64,
    /// The sender, which the mesh does not prove.
    from: String,
    /// This node.
    to: String,
    /// The hash of its bytes.
    hash: String,
    /// Its length in bytes.
    size: u64,
    /// When it came, in seconds since 1970.
    received_at: u64,
    /// Whether it is a file in several blocks.
    is_file: bool,
    /// The sender's name in the address book.
    #[serde(skip_serializing_if = "Option::is_none")]
    from_name: Option<String>,
    /// The first line of a message, at most 80 characters, as its sender wrote it.
    #[serde(skip_serializing_if = "Option::is_none")]
    first_line: Option<String>,
    /// The name of a file, as its sender calls it.
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
}

/// The received messages, oldest first.
#[utoipa::path(get, path = "/v1/mesh/inbox", params(FromQuery), responses(
    (status = 200, description = "The messages.", body = Vec<InboxLine>),
    (status = 404, description = "This agent does not run mesh.", body = ErrorBody),
))]
async fn inbox(
    State(api): State<Api>,
    QueryArgs(query): QueryArgs<FromQuery>,
) -> Result<Json<Vec<InboxLine>>, ApiError> {
    let own = api.identity.nid();
    let names = book::Names::read(&api).await?;
    let mut lines = Vec::new();
    for line in received(&api, query.from).await? {
        let (first_line, name) = describe(&api, &line).await;
        lines.push(InboxLine {
            number: line.number,
            from: line.from.to_string(),
            to: own.clone(),
            hash: line.key.to_string(),
            size: line.size,
            received_at: line.received_at,
            is_file: line.is_file,
            from_name: names.name(&line.from),
            first_line,
            name,
        });
    }
    Ok(Json(lines))
}

/// The longest message whose first line is shown, and the longest first line.
const SHOWN_BYTES_MAX: u64 = 64 * 1024;
const LINE_CHARS_MAX: usize = 80;

/// The first line of a message, or the name of a file.
async fn describe(api: &Api, line: &w3w::Received) -> (Option<String>, Option<String>) {
    if line.is_file {
        let status = ask(api, w3w::Command::File { file: line.key, to: None }).await;
        let name = if let Ok(w3w::Reply::File(status)) = status { Some(status.name) } else { None };
        return (None, name);
    }
    if line.size > SHOWN_BYTES_MAX {
        return (None, None);
    }
    let Ok(data) = data(api, line.key).await else { return (None, None) };
    let payload = files::payload(&data);
    let text = String::from_utf8_lossy(&payload);
    let first = text.lines().next().unwrap_or_default();
    (Some(first.chars().take(LINE_CHARS_MAX).collect()), None)
}

/// A message from this node.
#[derive(Serialize, ToSchema)]
struct OutboxLine {
    /// Its number in the outbox.
    number: u64,
    /// The recipient.
    to: String,
    /// The hash of its bytes.
    hash: String,
    /// Their length; that of the whole file, for a file.
    size: u64,
    /// When it was sent, in seconds since 1970.
    sent_at: u64,
    /// Whether a receipt was requested.
    wants_receipt: bool,
    /// Whether it is a file in several blocks.
    is_file: bool,
    /// "waiting", "under_way", "delivered", "refused", "expired", "unconfirmed", "given" or "cancelled".
    #[schema(value_type = String)]
    state: w3w::SentState,
    /// The recipient's name in the address book.
    #[serde(skip_serializing_if = "Option::is_none")]
    to_name: Option<String>,
    /// Whether it is a letter: the recipient confirms it.
    is_letter: bool,
    /// When its lifetime ends, in seconds since 1970.
    until: u64,
    /// Why it waits: "no_peer", "recipient_away", "peers_full" or "being_sent".
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    why: Option<w3w::Why>,
    /// When a recipient that is away was last seen, in seconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    away_since: Option<u64>,
    /// The nodes that answered `held`: names, or addresses in the mesh.
    custodians: Vec<String>,
    /// When the receipt came, in seconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    delivered_at: Option<u64>,
    /// Why the recipient refused it: "blocked", "too_long" or "no_application".
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    refusal: Option<w3w::RefusalReason>,
}

/// The sent messages and their states, oldest first.
#[utoipa::path(get, path = "/v1/mesh/outbox", params(FromQuery), responses(
    (status = 200, description = "The messages.", body = Vec<OutboxLine>),
    (status = 404, description = "This agent does not run mesh.", body = ErrorBody),
))]
async fn outbox(
    State(api): State<Api>,
    QueryArgs(query): QueryArgs<FromQuery>,
) -> Result<Json<Vec<OutboxLine>>, ApiError> {
    let names = book::Names::read(&api).await?;
    let name = |nid: &Nid| names.name(nid);
    let is_away = |line: &w3w::Sent| line.why == Some(w3w::Why::RecipientAway);
    let line = |line: w3w::Sent| OutboxLine {
        to_name: name(&line.to),
        is_letter: line.letter.is_some(),
        until: line.until,
        why: line.why,
        away_since: names.last_seen(&line.to).filter(|_| is_away(&line)),
        custodians: (line.custodians.iter().flatten())
            .map(|nid| name(nid).unwrap_or_else(|| nid.to_string()))
            .collect(),
        delivered_at: line.delivered_at,
        refusal: line.refusal,
        number: line.number,
        to: line.to.to_string(),
        hash: line.key.to_string(),
        size: line.size,
        sent_at: line.sent_at,
        wants_receipt: line.wants_receipt,
        is_file: line.is_file,
        state: line.state,
    };
    match ask(&api, w3w::Command::Outbox { from: query.from }).await? {
        w3w::Reply::Outbox(lines) => Ok(Json(lines.into_iter().map(line).collect())),
        other => Err(refused(&other)),
    }
}

/// The content of a message, without the form around it; a file as a stream.
#[utoipa::path(get, path = "/v1/mesh/inbox/{number}",
    params(("number" = String, Path, description = "As the inbox shows it.")),
    responses(
        (status = 200, description = "The bytes.", body = String, content_type = "application/octet-stream"),
        (status = 404, description = "There is no such message, or no mesh.", body = ErrorBody),
        (status = 500, description = "The bytes are spoilt.", body = ErrorBody),
    ))]
async fn payload(State(api): State<Api>, Path(number): Path<String>) -> Result<Response, ApiError> {
    let number: u64 = number.parse().map_err(|_| refused(&w3w::Reply::NoSuchMessage))?;
    let lines = received(&api, number).await?;
    let Some(line) = lines.first().filter(|line| line.number == number) else {
        return Err(refused(&w3w::Reply::NoSuchMessage));
    };
    if line.is_file {
        let file = line.key;
        return files::stream(api, file).await;
    }
    let bytes = files::payload(&data(&api, line.key).await?);
    Ok(([(header::CONTENT_TYPE, "application/octet-stream")], bytes).into_response())
}

/// The message.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct CancelRequest {
    /// As the outbox shows it.
    number: u64,
}

/// A message is withdrawn.
#[derive(Serialize, ToSchema)]
struct CancelAnswer {
    /// Whether it certainly never left this node.
    is_certain: bool,
}

/// Withdraw a message that is waiting or under way. It is certain only if the message never left this node.
#[utoipa::path(post, path = "/v1/mesh/outbox/cancel", request_body = CancelRequest, responses(
    (status = 200, description = "It is withdrawn.", body = CancelAnswer),
    (status = 404, description = "There is no such message, or no mesh.", body = ErrorBody),
    (status = 409, description = "Nothing more can become known of it.", body = ErrorBody),
))]
async fn cancel(
    State(api): State<Api>,
    JsonBody(request): JsonBody<CancelRequest>,
) -> Result<Json<CancelAnswer>, ApiError> {
    match ask(&api, w3w::Command::Cancel { number: request.number }).await? {
        w3w::Reply::Cancelled { is_certain } => Ok(Json(CancelAnswer { is_certain })),
        other => Err(refused(&other)),
    }
}

/// The message.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct RemoveRequest {
    /// As the inbox shows it.
    number: u64,
}

/// It is done.
#[derive(Serialize, ToSchema)]
struct MeshDone {
    /// Always true.
    done: bool,
}

/// Take a message out of the inbox; the agent may delete its bytes from then on.
#[utoipa::path(post, path = "/v1/mesh/inbox/remove", request_body = RemoveRequest, responses(
    (status = 200, description = "It is gone.", body = MeshDone),
    (status = 404, description = "There is no such message, or no mesh.", body = ErrorBody),
))]
async fn remove(
    State(api): State<Api>,
    JsonBody(request): JsonBody<RemoveRequest>,
) -> Result<Json<MeshDone>, ApiError> {
    match ask(&api, w3w::Command::Remove { number: request.number }).await? {
        w3w::Reply::Done => Ok(Json(MeshDone { done: true })),
        other => Err(refused(&other)),
    }
}

/// The bytes under a hash, checked against it: those of a message, or a file that has come.
///
/// The first eight digits or more are enough if nothing else begins with them.
#[utoipa::path(get, path = "/v1/mesh/blocks/{hash}",
    params(("hash" = String, Path, pattern = "^[0-9a-fA-F]{8,64}$", description = "64 hexadecimal digits, or the first 8 or more.")),
    responses(
        (status = 200, description = "The bytes.", body = String, content_type = "application/octet-stream"),
        (status = 400, description = "That is no hash.", body = ErrorBody),
        (status = 404, description = "There is no such block, or no mesh.", body = ErrorBody),
        (status = 409, description = "Several begin with these digits.", body = ErrorBody),
        (status = 500, description = "The bytes are spoilt.", body = ErrorBody),
    ))]
async fn block(State(api): State<Api>, Path(hash): Path<String>) -> Result<Response, ApiError> {
    let key = find(&api, &hash, false).await?;
    match ask(&api, w3w::Command::Get { key }).await? {
        w3w::Reply::Block(data) => {
            Ok(([(header::CONTENT_TYPE, "application/octet-stream")], data.to_vec()).into_response())
        }
        w3w::Reply::NoSuchBlock => {
            files::stream(api, key).await.map_err(|_| refused(&w3w::Reply::NoSuchBlock))
        }
        other => Err(refused(&other)),
    }
}

/// The deleted blocks.
#[derive(Serialize, ToSchema)]
struct CollectAnswer {
    /// The number of blocks.
    blocks: usize,
    /// The number of bytes.
    bytes: u64,
}

/// Delete stored blocks that no inbox line, queue entry or file refers to.
#[utoipa::path(post, path = "/v1/mesh/gc", request_body = Nothing, responses(
    (status = 200, description = "They are gone.", body = CollectAnswer),
    (status = 404, description = "This agent does not run mesh.", body = ErrorBody),
))]
async fn collect(
    State(api): State<Api>,
    JsonBody(Nothing {}): JsonBody<Nothing>,
) -> Result<Json<CollectAnswer>, ApiError> {
    match ask(&api, w3w::Command::Collect).await? {
        w3w::Reply::Collected { blocks, bytes } => Ok(Json(CollectAnswer { blocks, bytes })),
        other => Err(refused(&other)),
    }
}

/// The address that people mean: one in digits, or a name of the address book or of a member.
async fn resolve(api: &Api, text: &str) -> Result<Nid, ApiError> {
    if let Ok(nid) = text.parse() {
        return Ok(nid);
    }
    let found = match ask(api, w3w::Command::Lookup { name: text.to_owned() }).await? {
        w3w::Reply::Book(found) => found,
        other => return Err(refused(&other)),
    };
    match &found[..] {
        [one] => return Ok(one.nid),
        [] => {}
        several => {
            let nids: Vec<String> = several.iter().map(|entry| entry.nid.to_string()).collect();
            return Err(ApiError::new(
                StatusCode::CONFLICT,
                "ambiguous_name",
                format!("several nodes have the name {text:?}: {}", nids.join(", ")),
                "give the address, or choose one with `annulus mesh book set NAME NID`",
            ));
        }
    }
    let told = members::nid_of(api, text).await;
    if let Some(nid) = told.as_ref().and_then(|nid| nid.as_ref()?.parse().ok()) {
        return Ok(nid);
    }
    let (message, hint) = match told {
        Some(_) => (
            format!("the member {text:?} does not run mesh"),
            "start its agent with --services members,mesh, or send to a node that runs mesh",
        ),
        None => (
            format!("{text:?} is no address in the mesh, and no node of that name is known"),
            "give the 64 digits that `annulus mesh status` shows there, or name them with `annulus mesh book set`",
        ),
    };
    Err(ApiError::new(StatusCode::NOT_FOUND, "bad_address", message, hint))
}

/// The one block or file whose hash begins with these digits.
async fn find(api: &Api, digits: &str, is_file: bool) -> Result<Key, ApiError> {
    let Some((first, last)) = Key::beginning_with(digits) else {
        // An agent without the service reports that first, whatever the hash.
        ask(api, w3w::Command::Status).await?;
        return Err(ApiError::new(
            StatusCode::BAD_REQUEST,
            "bad_hash",
            format!("{digits:?} is no hash"),
            "give its 64 hexadecimal digits, or at least the first 8; inbox, outbox and files show them",
        ));
    };
    let found = match ask(api, w3w::Command::Find { first, last, is_file }).await? {
        w3w::Reply::Found(found) => found,
        other => return Err(refused(&other)),
    };
    match found[..] {
        [key] => Ok(key),
        [] if is_file => Err(refused(&w3w::Reply::NoSuchFile)),
        [] => Err(refused(&w3w::Reply::NoSuchBlock)),
        _ => Err(ApiError::new(
            StatusCode::CONFLICT,
            "ambiguous_hash",
            format!("several hashes begin with {digits}"),
            "give more of its digits; with --json inbox, outbox and files show all of them",
        )),
    }
}

async fn received(api: &Api, from: u64) -> Result<Vec<w3w::Received>, ApiError> {
    match ask(api, w3w::Command::Inbox { from }).await? {
        w3w::Reply::Inbox(lines) => Ok(lines),
        other => Err(refused(&other)),
    }
}

async fn data(api: &Api, key: Key) -> Result<w3w::Data, ApiError> {
    match ask(api, w3w::Command::Get { key }).await? {
        w3w::Reply::Block(data) => Ok(data),
        other => Err(refused(&other)),
    }
}

async fn ask(api: &Api, command: w3w::Command) -> Result<w3w::Reply, ApiError> {
    let command = Command { service: services::MESH, command: PartCommand::Mesh(command) };
    match api.node.command(command).await {
        Ok(Reply::Mesh(w3w::Reply::Stopping)) | Err(_) => Err(ApiError::stopping()),
        Ok(Reply::Mesh(reply)) => Ok(reply),
        Ok(_) => Err(ApiError::no_service("mesh")),
    }
}
