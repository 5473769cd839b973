//! The HTTP side of a replay: the page, and the trace as one document.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router, middleware};
use serde_json::{Value, json};

use super::Trace;
use crate::agent::http::{self as api, Guard};
use crate::page;

#[derive(Clone)]
struct Replay {
    name: Arc<str>,
    trace: Bytes,
}

/// Everything that a replay serves.
pub(crate) fn app(name: &str, trace: &Trace) -> anyhow::Result<Router> {
    let replay = Replay { name: name.into(), trace: serde_json::to_vec(trace)?.into() };
    let app = Router::new()
        .route("/v1/page", get(snapshot))
        .route("/v1/replay", get(whole))
        .fallback(api::no_such_route)
        .method_not_allowed_fallback(api::wrong_method)
        .with_state(replay)
        .merge(page::assets())
        .layer(middleware::from_fn_with_state(Guard::new(None), api::check));
    Ok(app)
}

async fn snapshot(State(replay): State<Replay>) -> Json<Value> {
    let view = json!({
        "kind": "replay", "name": &*replay.name, "version": env!("CARGO_PKG_VERSION"), "controls": false,
    });
    Json(json!({ "v": 1, "position": null, "sections": { "view": view } }))
}

async fn whole(State(replay): State<Replay>) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], replay.trace.clone()).into_response()
}
