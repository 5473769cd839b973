//! The HTTP side of the demo: its page, its controls, and behind them the API of the first node.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::extract::{DefaultBodyLimit, FromRef, Path, Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use axum::{Json, Router, middleware};
use hyper::service::Service as _;
use hyper_util::service::TowerToHyperService;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::cluster::{Cluster, lock};
use super::member::Member;
use super::view::DemoView;
use crate::agent::http::{self as api, ApiError, Guard, JsonBody};
use crate::page::{self, Page};

/// The largest body of a request to the demo itself.
const BODY_BYTES_MAX: usize = 64 * 1024;

/// The state of all handlers.
#[derive(Clone)]
struct Demo {
    cluster: Arc<Cluster>,
    page: Page,
    /// The API of the first node in its present life.
    first: Arc<Mutex<Option<(u64, Router)>>>,
}

impl FromRef<Demo> for Page {
    fn from_ref(demo: &Demo) -> Self {
        demo.page.clone()
    }
}

/// Everything that the demo serves.
pub(crate) fn app(cluster: Arc<Cluster>, leaving: watch::Receiver<bool>) -> Router {
    let page = Page::new(DemoView { cluster: Arc::clone(&cluster) }, leaving);
    let demo = Demo { cluster, page, first: Arc::default() };
    Router::new()
        .route("/v1/demo", get(state))
        .route("/v1/demo/nodes/{name}/{action}", post(node))
        .route("/v1/demo/turn/kill", post(kill_in_turn))
        .route("/v1/demo/cut", post(cut))
        .route("/v1/demo/heal", post(heal))
        .route("/v1/demo/send", post(send))
        .merge(page::routes())
        .fallback(first_node)
        .method_not_allowed_fallback(api::wrong_method)
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .with_state(demo)
        .merge(page::assets())
        .layer(middleware::from_fn_with_state(Guard::new(None), api::check))
}

/// The nodes, and whether the network is cut.
async fn state(State(demo): State<Demo>) -> Json<Value> {
    Json(json!({ "nodes": demo.cluster.rows(), "is_cut": demo.cluster.is_cut() }))
}

/// An empty body.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Nothing {}

fn done() -> Json<Value> {
    Json(json!({ "done": true }))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NodeRequest {
    /// After a kill: restart the node after this time, unless it runs already.
    revive_after_ms: Option<u64>,
}

/// Kills, revives, suspends or resumes a node.
async fn node(
    State(demo): State<Demo>,
    Path((name, action)): Path<(String, String)>,
    JsonBody(request): JsonBody<NodeRequest>,
) -> Result<Json<Value>, ApiError> {
    let cluster = &demo.cluster;
    match action.as_str() {
        "kill" => {
            cluster.kill(&name).await?;
            if let Some(after) = request.revive_after_ms {
                tokio::spawn(revive_after(Arc::clone(cluster), name, Duration::from_millis(after)));
            }
        }
        "revive" => cluster.revive(&name).await?,
        "suspend" => cluster.suspend(&name, true)?,
        "resume" => cluster.suspend(&name, false)?,
        _ => {
            let message = format!("nothing is called {action:?}");
            let hint = "use kill, revive, suspend or resume";
            return Err(ApiError::new(StatusCode::NOT_FOUND, "no_such_route", message, hint));
        }
    }
    Ok(done())
}

/// Kills the next node that has its turn; the answer names it.
async fn kill_in_turn(
    State(demo): State<Demo>,
    JsonBody(request): JsonBody<NodeRequest>,
) -> Result<Json<Value>, ApiError> {
    let member = demo.cluster.kill_in_turn().await?;
    let (id, name) = (&member.id, &member.name);
    if let Some(after) = request.revive_after_ms {
        tokio::spawn(revive_after(Arc::clone(&demo.cluster), name.clone(), Duration::from_millis(after)));
    }
    Ok(Json(json!({ "done": true, "id": id, "name": name })))
}

/// Starts a node again after a while, unless it runs or was killed again.
async fn revive_after(cluster: Arc<Cluster>, name: String, after: Duration) {
    let kills = |cluster: &Cluster| cluster.member(&name).map_or(0, Member::kills);
    let kill = kills(&cluster);
    tokio::time::sleep(after).await;
    if kills(&cluster) == kill {
        let _ = cluster.revive(&name).await;
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CutRequest {
    /// The nodes of one side; half of the ring if it is empty.
    #[serde(default)]
    nodes: Vec<String>,
}

async fn cut(
    State(demo): State<Demo>,
    JsonBody(request): JsonBody<CutRequest>,
) -> Result<Json<Value>, ApiError> {
    demo.cluster.cut(&request.nodes)?;
    Ok(done())
}

async fn heal(State(demo): State<Demo>, JsonBody(Nothing {}): JsonBody<Nothing>) -> Json<Value> {
    demo.cluster.heal();
    done()
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SendRequest {
    /// The node that sends.
    from: String,
    /// The key whose owner gets a message.
    key: Option<String>,
    /// The node that gets mail.
    to: Option<String>,
    #[serde(default)]
    text: String,
}

/// Sends a message to the owner of `key`, or mail to the node `to`.
async fn send(
    State(demo): State<Demo>,
    JsonBody(request): JsonBody<SendRequest>,
) -> Result<Json<Value>, ApiError> {
    let SendRequest { from, key, to, text } = request;
    match (key, to) {
        (Some(key), None) => demo.cluster.send(&from, &key, &text).await.map(Json),
        (None, Some(to)) => demo.cluster.mail(&from, &to, &text).await.map(Json),
        _ => Err(ApiError::new(
            StatusCode::BAD_REQUEST,
            "bad_body",
            "a message has either a key or a recipient",
            "give `key` for route, or `to` for mesh",
        )),
    }
}

/// Everything else is the API of the first node.
async fn first_node(State(demo): State<Demo>, request: Request) -> Response {
    let first = &demo.cluster.members[0];
    let Some(node) = first.awake() else {
        let message = format!("{}, whose view this is, is down or suspended", first.name);
        let hint = format!("POST /v1/demo/nodes/{}/revive, or resume", first.name);
        return ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "wrong_state", message, hint).into_response();
    };
    let app = {
        let mut kept = lock(&demo.first);
        match &*kept {
            Some((life, app)) if *life == node.started_micros => app.clone(),
            _ => {
                let app = api::app(node.clone());
                *kept = Some((node.started_micros, app.clone()));
                app
            }
        }
    };
    match TowerToHyperService::new(app).call(request).await {
        Ok(response) => response,
        Err(never) => match never {},
    }
}
