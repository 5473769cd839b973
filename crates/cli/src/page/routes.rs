//! The routes behind the page: a snapshot, later events, and the inside of one node.

use std::convert::Infallible;
use std::time::Duration;

use axum::extract::{FromRef, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::routing::get;
use axum::{Json, Router};
use futures_core::Stream;
use serde_json::Value;

use super::Page;
use crate::agent::Position;
use crate::agent::http::{ApiError, PathArg};

/// The interval of keep-alive comments on a silent stream. The page takes three times as long without a byte for a lost
/// connection.
const KEEP_ALIVE: Duration = Duration::from_secs(5);

/// The routes, for any state that has a page. They change with the page, so the description of the API leaves them out.
pub(crate) fn routes<S>() -> Router<S>
where
    S: Clone + Send + Sync + 'static,
    Page: FromRef<S>,
{
    Router::new()
        .route("/v1/page", get(snapshot))
        .route("/v1/page/events", get(follow))
        .route("/v1/page/nodes/{node}", get(node))
}

/// A snapshot of the page: an object with `v` (1), `position`, `sections` and `news`. Send `position` as
/// `Last-Event-ID` to `/v1/page/events`. `news` has the last events without those that come many times a second.
async fn snapshot(State(page): State<Page>) -> Json<Value> {
    Json(page.snapshot().await)
}

/// Changes of the page: `sections` (an object with those that changed), `news` (an event as in `/v1/events`) and `missed`.
async fn follow(
    State(page): State<Page>,
    headers: HeaderMap,
) -> Sse<impl Stream<Item = Result<Event, Infallible>>> {
    let named = headers.get("last-event-id").and_then(|value| value.to_str().ok()).and_then(Position::parse);
    Sse::new(page.follow(named)).keep_alive(KeepAlive::new().interval(KEEP_ALIVE))
}

/// The tables, the token and the mailboxes of one node; null while it does not answer.
async fn node(State(page): State<Page>, PathArg(name): PathArg) -> Result<Json<Value>, ApiError> {
    page.node(&name).await.map(Json).ok_or_else(|| {
        ApiError::new(
            StatusCode::NOT_FOUND,
            "no_such_node",
            format!("this agent cannot look into {name:?}"),
            "an agent looks into its own node only; open the page of the other agent",
        )
    })
}
