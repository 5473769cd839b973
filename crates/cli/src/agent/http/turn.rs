//! `POST /v1/token/turn`: a hold that lives as long as its connection.

use std::convert::Infallible;
use std::time::Duration;

use annulus::core::RequestId;
use annulus::core::jitterbug::{self, LostReason};
use annulus::core::node::{Node, PartEvent};
use annulus::net::Events;
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::sse::{Event, Sse};
use futures_core::Stream;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::Api;
use super::error::{ApiError, ErrorBody, JsonBody, number};
use super::token::{self, ask, bounded, held, next_key, status};

/// The greatest time between two signs of life in a turn. They show the client that its agent is not paused, and the
/// agent that its client is connected.
const ALIVE_MAX: Duration = Duration::from_secs(5);

/// The number of `alive` events within the silence that ends a turn.
const ALIVE_PER_SILENCE: u32 = 5;

pub(super) fn routes() -> OpenApiRouter<Api> {
    OpenApiRouter::new().routes(routes!(turn)).routes(routes!(keep))
}

/// The limit of the hold, and the longest wait for it.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct TurnRequest {
    /// The limit: from 1 to 86400000.
    limit_ms: u64,
    /// The longest wait for the token, up to 86400000; 0 waits for one loop of the ring. Without it there is no
    /// limit.
    wait_ms: Option<u64>,
}

/// An event of a turn.
enum News {
    Held { hold: RequestId, fence: u64, silence: Duration },
    Alive,
    Ended(&'static str),
}

/// Wait for the token and keep it as long as this connection is open, but no longer than the limit.
///
/// The answer is a stream of server-sent events, each with a JSON object. `held` (`hold`, `fence`, `silence_ms`) comes
/// when the token is here, `alive` periodically. `ended` comes when the turn is over; its `reason` is "released",
/// "limit", "stopping", "stalled", "merged", "cut_off" or "unknown". If the agent does not answer `POST /v1/token/keep` for
/// `silence_ms`, the ring may have regenerated the token. If the client disconnects, the agent passes the token on after
/// `silence_ms`; a client that has ended its work releases the hold.
#[utoipa::path(post, path = "/v1/token/turn", request_body = TurnRequest, responses(
    (status = 200, description = "The token is here and stays.", body = String, content_type = "text/event-stream"),
    (status = 400, description = "The limit is too short or too long.", body = ErrorBody),
    (status = 409, description = "It cannot be held, or it did not come in time.", body = ErrorBody),
))]
async fn turn(
    State(api): State<Api>,
    JsonBody(request): JsonBody<TurnRequest>,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>, ApiError> {
    let limit = bounded("limit_ms", request.limit_ms)?;
    let ring = status(&api).await?;
    let wait = match request.wait_ms {
        // A token that has not come within a loop is held.
        Some(0) => Some(token::loop_of(&ring)),
        Some(ms) => Some(bounded("wait_ms", ms)?),
        None => None,
    };
    // TU-42: an agent that is silent for this time has lost its hold by itself, or is still paused.
    let silence = Duration::from_micros(ring.pause_max_micros);
    let alive = (silence / ALIVE_PER_SILENCE).min(ALIVE_MAX);
    let (sender, mut news) = mpsc::channel(2);
    // In a task of its own: it outlives a client that disconnects, and releases a hold without a client.
    tokio::spawn(watch(api, Terms { limit, wait, silence }, sender));
    let first = news.recv().await.ok_or_else(ApiError::stopping)??;
    let stream = futures_util::stream::unfold((Some(first), news), move |(first, mut news)| async move {
        let next = match first {
            Some(next) => next,
            None => match timeout(alive, news.recv()).await {
                Ok(next) => next?.ok()?,
                Err(_) => News::Alive,
            },
        };
        Some((Ok(event(&next)), (None, news)))
    });
    Ok(Sse::new(stream))
}

/// The limit of a hold, the longest wait for it, and the longest silence of the agent.
#[derive(Clone, Copy)]
struct Terms {
    limit: Duration,
    wait: Option<Duration>,
    silence: Duration,
}

/// Holds the token for a client until the turn is over or the client is gone.
async fn watch(api: Api, terms: Terms, client: mpsc::Sender<Result<News, ApiError>>) {
    let Terms { limit, wait, silence } = terms;
    // Subscribe before the hold: its end must not be missed.
    let mut events = api.node.events();
    let key = next_key();
    let reply = tokio::select! {
        reply = ask(&api, jitterbug::Command::HoldAs { key, limit }) => reply,
        () = client.closed() => {
            // Its place is released at once. If the node has ended there is none.
            let _ = ask(&api, jitterbug::Command::Withdraw { key }).await;
            return;
        }
        waited = over(wait) => {
            let _ = ask(&api, jitterbug::Command::Withdraw { key }).await;
            // If the client is gone it needs no answer.
            let _ = client.send(Err(token::not_free(&api, waited).await)).await;
            return;
        }
    };
    let (hold, fence) = match held(reply) {
        Ok(held) => held,
        Err(error) => {
            // If the client is gone it needs no answer.
            let _ = client.send(Err(error)).await;
            return;
        }
    };
    let there = client.send(Ok(News::Held { hold, fence, silence })).await.is_ok();
    let ended = tokio::select! {
        reason = end_of(hold, &mut events), if there => Some(reason),
        () = client.closed() => None,
    };
    match ended {
        Some(reason) => drop(client.send(Ok(News::Ended(reason))).await),
        None => {
            // A client that did not release the hold may have left a command, which its guard ends in half of this time.
            sleep(silence).await;
            // If the node has ended there is nothing to give back.
            let _ = ask(&api, jitterbug::Command::Release { hold }).await;
        }
    }
}

/// Waits until the wait is over; for ever if it has no end.
async fn over(wait: Option<Duration>) -> Duration {
    match wait {
        Some(wait) => {
            sleep(wait).await;
            wait
        }
        None => std::future::pending().await,
    }
}

/// The hold.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct KeepRequest {
    /// As the hold was answered.
    #[serde(deserialize_with = "number")]
    hold: u64,
}

/// The hold is in force.
#[derive(Serialize, ToSchema)]
struct KeepAnswer {
    /// No other node makes a token within this time. Count it from when this request was sent.
    left_ms: u64,
    /// The rest of the limit.
    limit_ms: u64,
    /// Always "weak".
    guarantee: &'static str,
}

/// Ask whether a hold is in force. Its client ends its work if no answer comes for half of `left_ms`.
#[utoipa::path(post, path = "/v1/token/keep", request_body = KeepRequest, responses(
    (status = 200, description = "It is in force.", body = KeepAnswer),
    (status = 410, description = "It is over.", body = ErrorBody),
))]
async fn keep(
    State(api): State<Api>,
    JsonBody(request): JsonBody<KeepRequest>,
) -> Result<Json<KeepAnswer>, ApiError> {
    match ask(&api, jitterbug::Command::Keep { hold: RequestId(request.hold) }).await? {
        jitterbug::Reply::Kept { left_micros, limit_micros } => Ok(Json(KeepAnswer {
            left_ms: left_micros / 1000,
            limit_ms: limit_micros / 1000,
            guarantee: "weak",
        })),
        jitterbug::Reply::NotHeld => Err(ApiError::new(
            StatusCode::GONE,
            "turn_lost",
            "this agent does not hold the token for you any more",
            "stop what runs under the turn, and get a new one",
        )),
        _ => Err(ApiError::stopping()),
    }
}

/// Waits until a hold is over, and returns the reason.
async fn end_of(hold: RequestId, events: &mut Events<Node>) -> &'static str {
    while let Some(event) = events.next().await {
        match &event.event {
            PartEvent::Token(jitterbug::Event::TokenReleased { hold: over, .. }) if *over == hold => {
                return "released";
            }
            PartEvent::Token(jitterbug::Event::TokenLost { hold: over, reason, .. }) if *over == hold => {
                return match reason {
                    LostReason::Limit => "limit",
                    LostReason::Stopping => "stopping",
                    LostReason::Stalled => "stalled",
                    LostReason::Merged => "merged",
                    LostReason::CutOff => "cut_off",
                    _ => "unknown",
                };
            }
            _ => {}
        }
    }
    "stopping"
}

fn event(news: &News) -> Event {
    let (kind, data): (_, Value) = match news {
        News::Held { hold, fence, silence } => {
            ("held", json!({ "hold": hold.0, "fence": fence, "silence_ms": silence.as_millis() as u64 }))
        }
        News::Alive => ("alive", json!({})),
        News::Ended(reason) => ("ended", json!({ "reason": reason })),
    };
    Event::default().event(kind).data(data.to_string())
}
