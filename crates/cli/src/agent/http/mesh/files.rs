//! Files: offered by the hashes of their blocks, given block by block as the recipient requests them, read as a
//! stream.
//!
//! The agent never holds a whole file: the sending program keeps it and gives each block when it is wanted.

use annulus::core::w3w::{self, DATA_BYTES_MAX, FILE_BLOCKS_MAX, FileStatus, Form, Key, Manifest, Nid};
use axum::Json;
use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, FromRequest, Path, Request, State};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::super::Api;
use super::super::error::{ApiError, ErrorBody, JsonBody, QueryArgs};
use super::{MeshDone, ask, find, refused, resolve};

/// The largest body of an offer: 64 digits, quotes and a comma for each block, and room for the rest.
const OFFER_BYTES_MAX: usize = FILE_BLOCKS_MAX * 67 + (1 << 17);

pub(super) fn routes() -> OpenApiRouter<Api> {
    let offer = OpenApiRouter::new().routes(routes!(offer)).layer(DefaultBodyLimit::max(OFFER_BYTES_MAX));
    let supply = OpenApiRouter::new().routes(routes!(supply)).layer(DefaultBodyLimit::max(DATA_BYTES_MAX));
    OpenApiRouter::new()
        .merge(offer)
        .merge(supply)
        .routes(routes!(files))
        .routes(routes!(file))
        .routes(routes!(give_up))
}

/// A file to send.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct OfferRequest {
    /// An address in the mesh, or the name of a member that tells its address.
    #[schema(min_length = 1)]
    to: String,
    /// The name that the recipient sees.
    name: String,
    /// Its length in bytes.
    size: u64,
    /// The length of every block but the last, in bytes.
    block_bytes: u32,
    /// The hash of every block.
    blocks: Vec<String>,
}

/// A file is offered.
#[derive(Serialize, ToSchema)]
struct OfferAnswer {
    /// The key of the file.
    file: String,
    /// Its number in the outbox.
    number: Option<u64>,
    /// The address it goes to.
    to: String,
}

/// Offer a file, or go on with one that was offered before; then give the blocks that are wanted.
#[utoipa::path(post, path = "/v1/mesh/files", request_body = OfferRequest, responses(
    (status = 200, description = "It is offered.", body = OfferAnswer),
    (status = 400, description = "No address, or numbers that do not fit together.", body = ErrorBody),
    (status = 503, description = "Too many files are under way.", body = ErrorBody),
    (status = 507, description = "The store is full.", body = ErrorBody),
))]
async fn offer(
    State(api): State<Api>,
    JsonBody(request): JsonBody<OfferRequest>,
) -> Result<Json<OfferAnswer>, ApiError> {
    let to = resolve(&api, &request.to).await?;
    let blocks: Result<Vec<Key>, _> = request.blocks.iter().map(|block| block.parse()).collect();
    let blocks = blocks.map_err(|_| refused(&w3w::Reply::BadManifest))?;
    let manifest =
        Manifest { name: request.name, size: request.size, block_bytes: request.block_bytes, blocks };
    match ask(&api, w3w::Command::OfferFile { to, manifest }).await? {
        w3w::Reply::Offered { file, number } => {
            Ok(Json(OfferAnswer { file: file.to_string(), number, to: to.to_string() }))
        }
        other => Err(refused(&other)),
    }
}

/// A file under way, or one that has come.
#[derive(Serialize, ToSchema)]
struct FileInfo {
    /// Its key.
    file: String,
    /// The node at the other end.
    peer: String,
    /// Whether this node sends it.
    is_outgoing: bool,
    /// The name that its sender chose.
    name: String,
    /// Its length in bytes.
    size: u64,
    /// The number of its blocks.
    blocks: usize,
    /// The number of blocks that the recipient has.
    done: usize,
    /// Whether all of it is there.
    is_complete: bool,
    /// The blocks to give now; of a file that this node sends only.
    wanted: Vec<u32>,
}

impl From<FileStatus> for FileInfo {
    fn from(status: FileStatus) -> Self {
        Self {
            file: status.file.to_string(),
            peer: status.peer.to_string(),
            is_outgoing: status.is_outgoing,
            name: status.name,
            size: status.size,
            blocks: status.blocks,
            done: status.done,
            is_complete: status.is_complete,
            wanted: status.wanted,
        }
    }
}

/// All files under way, and those that have come.
#[utoipa::path(get, path = "/v1/mesh/files", responses(
    (status = 200, description = "The files.", body = Vec<FileInfo>),
    (status = 404, description = "This agent does not run mesh.", body = ErrorBody),
))]
async fn files(State(api): State<Api>) -> Result<Json<Vec<FileInfo>>, ApiError> {
    match ask(&api, w3w::Command::Files).await? {
        w3w::Reply::Files(files) => Ok(Json(files.into_iter().map(FileInfo::from).collect())),
        other => Err(refused(&other)),
    }
}

/// The direction of a file.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
struct ToQuery {
    /// The address of the recipient, if this node sends the file.
    to: Option<String>,
}

impl ToQuery {
    fn nid(&self) -> Result<Option<Nid>, ApiError> {
        let parsed = self.to.as_ref().map(|to| to.parse()).transpose();
        parsed.map_err(|_| refused(&w3w::Reply::NoSuchFile))
    }
}

/// The progress of a file, and the wanted blocks.
#[utoipa::path(get, path = "/v1/mesh/files/{file}",
    params(("file" = String, Path, description = "64 hexadecimal digits."), ToQuery),
    responses(
        (status = 200, description = "The file.", body = FileInfo),
        (status = 404, description = "There is no such file under way, or no mesh.", body = ErrorBody),
    ))]
async fn file(
    State(api): State<Api>,
    Path(file): Path<String>,
    QueryArgs(query): QueryArgs<ToQuery>,
) -> Result<Json<FileInfo>, ApiError> {
    match ask(&api, w3w::Command::File { file: key(&file)?, to: query.nid()? }).await? {
        w3w::Reply::File(status) => Ok(Json((*status).into())),
        other => Err(refused(&other)),
    }
}

/// The file.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct DropRequest {
    /// Its hash, or the first eight digits or more.
    #[schema(pattern = "^[0-9a-fA-F]{8,64}$")]
    file: String,
}

/// The dropped file.
#[derive(Serialize, ToSchema)]
struct DropAnswer {
    /// Its hash.
    file: String,
}

/// Drop an outgoing or incoming file. One for this node is not taken again while it is still being offered.
#[utoipa::path(post, path = "/v1/mesh/files/drop", request_body = DropRequest, responses(
    (status = 200, description = "It is given up.", body = DropAnswer),
    (status = 400, description = "That is no hash.", body = ErrorBody),
    (status = 404, description = "There is no such file, or no mesh.", body = ErrorBody),
    (status = 409, description = "Several begin with these digits.", body = ErrorBody),
))]
async fn give_up(
    State(api): State<Api>,
    JsonBody(request): JsonBody<DropRequest>,
) -> Result<Json<DropAnswer>, ApiError> {
    let file = find(&api, &request.file, true).await?;
    match ask(&api, w3w::Command::DropFile { file }).await? {
        w3w::Reply::Done => Ok(Json(DropAnswer { file: file.to_string() })),
        other => Err(refused(&other)),
    }
}

/// Give a block that is wanted. Answered as soon as it is on its way.
#[utoipa::path(put, path = "/v1/mesh/files/{file}/blocks/{index}",
    params(
        ("file" = String, Path, description = "64 hexadecimal digits."),
        ("index" = u32, Path, description = "Which block."),
        ToQuery,
    ),
    request_body(content = String, content_type = "application/octet-stream"),
    responses(
        (status = 200, description = "It is on its way.", body = MeshDone),
        (status = 404, description = "There is no such file under way, or no mesh.", body = ErrorBody),
        (status = 409, description = "These are not the bytes that were offered.", body = ErrorBody),
        (status = 503, description = "Too much waits already.", body = ErrorBody),
        (status = 507, description = "The store is full.", body = ErrorBody),
    ))]
async fn supply(
    State(api): State<Api>,
    Path((file, index)): Path<(String, String)>,
    QueryArgs(query): QueryArgs<ToQuery>,
    RawBody(bytes): RawBody,
) -> Result<Json<MeshDone>, ApiError> {
    let none = || refused(&w3w::Reply::NoSuchFile);
    let (file, index) = (key(&file)?, index.parse().map_err(|_| none())?);
    let to = query.nid()?.ok_or_else(none)?;
    match ask(&api, w3w::Command::Supply { to, file, index, bytes: bytes.into() }).await? {
        w3w::Reply::Done => Ok(Json(MeshDone { done: true })),
        other => Err(refused(&other)),
    }
}

/// The bytes of a body; one that is too long is refused in the form of all errors.
struct RawBody(Bytes);

impl<S: Send + Sync> FromRequest<S> for RawBody {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        Bytes::from_request(request, state).await.map(Self).map_err(|rejection| {
            let hint = "send a block as long as the offer said";
            ApiError::new(rejection.status(), "body_too_large", rejection.body_text(), hint)
        })
    }
}

fn key(text: &str) -> Result<Key, ApiError> {
    text.parse().map_err(|_| refused(&w3w::Reply::NoSuchFile))
}

/// A file that has come, as a response that is made block by block while it is read: memory holds one block of it.
pub(super) async fn stream(api: Api, file: Key) -> Result<Response, ApiError> {
    let status = match ask(&api, w3w::Command::File { file, to: None }).await? {
        w3w::Reply::File(status) if status.is_complete => status,
        w3w::Reply::File(_) => return Err(refused(&w3w::Reply::NoSuchFile)),
        other => return Err(refused(&other)),
    };
    let (count, size) = (status.blocks, status.size);
    let blocks = futures_util::stream::unfold(0, move |index| {
        let api = api.clone();
        async move {
            if index as usize >= count {
                return None;
            }
            Some((block(&api, file, index).await, index + 1))
        }
    });
    let headers = [
        (header::CONTENT_TYPE, "application/octet-stream".to_owned()),
        (header::CONTENT_LENGTH, size.to_string()),
    ];
    Ok((headers, Body::from_stream(blocks)).into_response())
}

/// One block; an error ends the response before its length is reached, so its reader knows that it is not whole.
async fn block(api: &Api, file: Key, index: u32) -> Result<Bytes, std::io::Error> {
    match ask(api, w3w::Command::ReadBlock { file, index }).await {
        Ok(w3w::Reply::Block(bytes)) => Ok(Bytes::copy_from_slice(&bytes)),
        _ => Err(std::io::Error::other("a block cannot be read")),
    }
}

/// The content of a message, without the form around it.
pub(super) fn payload(data: &w3w::Data) -> Vec<u8> {
    match w3w::read_form(data) {
        Form::Plain(payload) | Form::Ask { payload, .. } => payload.to_vec(),
        Form::Letter(letter) => letter.payload.to_vec(),
        _ => data.to_vec(),
    }
}
