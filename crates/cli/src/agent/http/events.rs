//! `GET /v1/events`: events as they happen, as server-sent events.

use std::convert::Infallible;
use std::time::Duration;

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::sse::{Event, KeepAlive, Sse};
use futures_core::Stream;
use serde_json::json;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::Api;
use crate::agent::journal::{Next, Position};

/// The interval of keep-alive comments on a silent stream.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

pub(super) fn routes() -> OpenApiRouter<Api> {
    OpenApiRouter::new().routes(routes!(events))
}

/// Events from now on, or from the event behind the one that `Last-Event-ID` names.
///
/// Each event's data is one JSON object: `v` (1), `seq`, `at_micros`, `node`, `service`, `protocol`, `event` and the
/// fields of that event. If events between the named one and the oldest kept are gone, the first event is of the
/// type `missed` and has their number.
#[utoipa::path(get, path = "/v1/events",
    params(("Last-Event-ID" = Option<String>, Header, description = "The last event the client has, to go on behind it.")),
    responses((status = 200, description = "Events without end.", body = String, content_type = "text/event-stream")))]
async fn events(
    State(api): State<Api>,
    headers: HeaderMap,
) -> Sse<impl Stream<Item = Result<Event, Infallible>>> {
    let named = headers.get("last-event-id").and_then(|value| value.to_str().ok()).and_then(Position::parse);
    let position = named.unwrap_or_else(|| api.journal.end());
    Sse::new(follow(api, position)).keep_alive(KeepAlive::new().interval(KEEP_ALIVE))
}

/// The journal from `position` on, without end.
fn follow(api: Api, position: Position) -> impl Stream<Item = Result<Event, Infallible>> {
    let (bell, leaving) = (api.journal.bell(), api.leaving.clone());
    futures_util::stream::unfold(
        (api, position, bell, leaving),
        async |(api, position, mut bell, mut leaving)| {
            loop {
                // Seen first, asked second: an event between the two rings the bell again.
                bell.borrow_and_update();
                let (next, event) = match api.journal.after(position) {
                    Next::Line(next, line) => (next, Event::default().data(line)),
                    Next::Missed(next, missed) => (
                        next,
                        Event::default()
                            .event("missed")
                            .data(json!({ "v": 1, "missed": missed }).to_string()),
                    ),
                    Next::Wait => {
                        tokio::select! {
                            rung = bell.changed() => rung.ok()?,
                            _ = leaving.wait_for(|leaving| *leaving) => return None,
                        }
                        continue;
                    }
                };
                return Some((Ok(event.id(next.to_string())), (api, next, bell, leaving)));
            }
        },
    )
}
