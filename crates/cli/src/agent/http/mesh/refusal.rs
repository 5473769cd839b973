//! The errors of the API for replies that refuse a command of mesh.

use annulus::core::w3w;
use axum::http::StatusCode;

use crate::agent::http::error::ApiError;

/// The error of a refused command.
pub(super) fn refused(reply: &w3w::Reply) -> ApiError {
    use w3w::Reply as R;
    let (status, code, message, hint) = match reply {
        R::Duplicate { .. } => (
            StatusCode::CONFLICT,
            "duplicate_message",
            "the same bytes were sent to the same node a short time ago".to_owned(),
            "add something that differs, ask for a receipt, or send a letter: then every message is another one",
        ),
        R::QueueFull => (
            StatusCode::SERVICE_UNAVAILABLE,
            "queue_full",
            "too many messages wait already".to_owned(),
            "wait until some are gone; `annulus mesh outbox` shows them",
        ),
        R::QuotaFull => (
            StatusCode::INSUFFICIENT_STORAGE,
            "quota_full",
            "the store is full of messages that somebody waits for".to_owned(),
            "take messages out of the inbox with `annulus mesh read N --remove`, or raise mesh.quota",
        ),
        R::RecipientQuotaFull(to) => (
            StatusCode::INSUFFICIENT_STORAGE,
            "quota_full",
            format!("messages for {to} that are open fill a quarter of the store already"),
            "wait until some are delivered, withdraw some with `annulus mesh cancel N`, or raise mesh.quota",
        ),
        R::TooLong { data_bytes_max } => (
            StatusCode::PAYLOAD_TOO_LARGE,
            "message_too_long",
            format!("a message has at most {data_bytes_max} bytes"),
            "send it as a file: POST /v1/mesh/files",
        ),
        R::StoreFailed { fault } => (
            StatusCode::INSUFFICIENT_STORAGE,
            "store_failed",
            format!("the store could not keep it ({fault:?}); nothing was sent"),
            "check the disk of the data directory",
        ),
        R::NoSuchBlock => (
            StatusCode::NOT_FOUND,
            "no_such_block",
            "there is no such block".to_owned(),
            "`annulus mesh inbox` and `annulus mesh outbox` show the hashes; the agent deletes unreferenced blocks",
        ),
        R::Corrupt { key } => (
            StatusCode::INTERNAL_SERVER_ERROR,
            "block_corrupt",
            format!("the block {key} was spoilt on the disk, and is gone"),
            "check the disk, and ask its sender to send it again",
        ),
        other => return file_refused(other),
    };
    ApiError::new(status, code, message, hint)
}

/// The error of a refused command about a file or a stored message.
fn file_refused(reply: &w3w::Reply) -> ApiError {
    use w3w::Reply as R;
    let (status, code, message, hint) = match reply {
        R::BadManifest => (
            StatusCode::BAD_REQUEST,
            "bad_file",
            "size, block_bytes and blocks do not fit together, or the recipient is this node".to_owned(),
            "give the hash of every block, and blocks that fit into a message",
        ),
        R::NoSuchFile => (
            StatusCode::NOT_FOUND,
            "no_such_file",
            "there is no such file under way".to_owned(),
            "`annulus mesh files` shows those that are, `annulus mesh outbox` whether one was received; send it again to go on",
        ),
        R::WrongBlock => (
            StatusCode::CONFLICT,
            "wrong_block",
            "these are not the bytes that were offered: the file has changed".to_owned(),
            "send the file again, as it is now",
        ),
        R::NotOpen { state } => (
            StatusCode::CONFLICT,
            "not_open",
            format!("the message is {state}: it cannot be withdrawn"),
            "`annulus mesh outbox` shows the messages that are waiting or under way",
        ),
        R::NoSuchMessage => (
            StatusCode::NOT_FOUND,
            "no_such_message",
            "there is no such message".to_owned(),
            "`annulus mesh inbox` shows the numbers",
        ),
        other => (
            StatusCode::INTERNAL_SERVER_ERROR,
            "unexpected",
            format!("mesh answered {other:?}"),
            "this is a fault of the program: please report it",
        ),
    };
    ApiError::new(status, code, message, hint)
}
