//! `POST /v1/token/turn`: a hold that lives as long as its connection.

use std::convert::Infallible;
use std::time::Duration;

use annulus_core::RequestId;
use annulus_core::jitterbug::{self, LostReason};
use annulus_core::node::{Node, PartEvent};
use annulus_net::Events;
use axum::extract::State;
use axum::response::sse::{Event, Sse};
use futures_core::Stream;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::timeout;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::Api;
use super::error::{ApiError, ErrorBody, JsonBody};
use super::token::{HoldRequest, ask, held, status};

/// The greatest time between two signs of life in a turn. They tell the client that its agent does not stand still, and the
/// agent that its client is there.
const ALIVE_MAX: Duration = Duration::from_secs(5);

/// How many signs of life fit into the time after which the others go on without a node that stands still.
const ALIVE_PER_RENEW: u32 = 4;

pub(super) fn routes() -> OpenApiRouter<Api> {
    OpenApiRouter::new().routes(routes!(turn))
}

/// What becomes of a turn.
enum News {
    Held { hold: RequestId, fence: u64, silence: Duration },
    Alive,
    Ended(&'static str),
}

/// Wait for the token and keep it as long as this connection is open, but no longer than the limit.
///
/// Server-sent events, each with a JSON object: `held` (`hold`, `fence`, `silence_ms`) when the token is here, `alive` now and
/// then, and `ended` (`reason`: "released", "limit", "stopping", "stalled" or "merged") when the turn is over. If the client
/// hears nothing for `silence_ms` the agent stands still, and the ring may have gone on without it. If the client goes away,
/// whatever way, the token goes on.
#[utoipa::path(post, path = "/v1/token/turn", request_body = HoldRequest, responses(
    (status = 200, description = "The token is here and stays.", body = String, content_type = "text/event-stream"),
    (status = 400, description = "The limit is too short or too long.", body = ErrorBody),
    (status = 409, description = "It cannot be held.", body = ErrorBody),
))]
async fn turn(
    State(api): State<Api>,
    JsonBody(request): JsonBody<HoldRequest>,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>, ApiError> {
    let limit = request.limit()?;
    let renew = Duration::from_micros(status(&api).await?.renew_timeout_micros);
    let alive = (renew / ALIVE_PER_RENEW).min(ALIVE_MAX);
    // One sign of life may be late.
    let silence = renew + alive;
    let (sender, mut news) = mpsc::channel(2);
    // In a task of its own: it outlives a client that goes away, and gives back what nobody waits for any more.
    tokio::spawn(watch(api, limit, silence, sender));
    let first = news.recv().await.ok_or_else(ApiError::stopping)??;
    let told = futures_util::stream::unfold((Some(first), news), move |(first, mut news)| async move {
        let next = match first {
            Some(next) => next,
            None => match timeout(alive, news.recv()).await {
                Ok(next) => next?.ok()?,
                Err(_) => News::Alive,
            },
        };
        Some((Ok(event(&next)), (None, news)))
    });
    Ok(Sse::new(told))
}

/// Holds the token for a client until the turn is over or the client is gone.
async fn watch(api: Api, limit: Duration, silence: Duration, client: mpsc::Sender<Result<News, ApiError>>) {
    // Before the hold: what ends it must not be missed.
    let mut events = api.node.events();
    let (hold, fence) = match held(ask(&api, jitterbug::Command::Hold { limit }).await) {
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
        // If the node has ended there is nothing to give back.
        None => drop(ask(&api, jitterbug::Command::Release { hold }).await),
    }
}

/// Waits until a hold is over, and says why.
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
