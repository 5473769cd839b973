//! A query of a name: the voters name its holder.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use annulus::core::Id;
use annulus::core::node::{Node, PartEvent};
use annulus::core::turns::{self, LeaseSeen, Status};
use annulus::net::Events;
use axum::Json;
use axum::extract::State;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::timeout;
use utoipa::ToSchema;

use super::super::Api;
use super::super::error::{ApiError, ErrorBody, JsonBody};
use super::{ask, checked_name, no_majority, status};

/// The timeout of a query to the voters.
const QUERY: Duration = Duration::from_millis(500);
/// The number of queries before the answer is `no_majority`.
const QUESTIONS: u32 = 2;

/// A name to look up.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct QueryRequest {
    /// The name.
    #[schema(max_length = 1024)]
    name: String,
}

/// Query the voters for the holder of a name.
#[utoipa::path(post, path = "/v1/turns/query", request_body = QueryRequest, responses(
    (status = 200, description = "`holder`, `fence`, `left_ms`, `waiting`, `answered` of `voters`.", body = Object),
    (status = 400, description = "The name is too long.", body = ErrorBody),
    (status = 404, description = "This agent has no voters.", body = ErrorBody),
    (status = 503, description = "Too few voters vote and answer. The message names those that rest or are silent, and says if the group is not founded.", body = ErrorBody),
))]
pub(super) async fn query(
    State(api): State<Api>,
    JsonBody(request): JsonBody<QueryRequest>,
) -> Result<Json<Value>, ApiError> {
    let name = checked_name(request.name)?;
    let mut events = api.node.events();
    let mut seen: BTreeMap<SocketAddr, LeaseSeen> = BTreeMap::new();
    let mut need = 0;
    // The second question covers datagrams that were lost.
    for _ in 0..QUESTIONS {
        let nonce = match ask(&api, turns::Command::Query(name.clone())).await? {
            turns::Reply::Asked { nonce } => nonce,
            turns::Reply::NoMajority { .. } => break,
            _ => return Err(ApiError::stopping()),
        };
        let group = status(&api).await?;
        // Voters that are down do not answer; the others have.
        let _ = timeout(QUERY, gather(&mut events, nonce, group.voters.len(), &mut seen)).await;
        if seen.len() >= group.majority {
            return Ok(Json(answer(&seen, &group)));
        }
        need = group.majority;
    }
    Err(no_majority(&api, seen.len(), need).await)
}

fn answer(seen: &BTreeMap<SocketAddr, LeaseSeen>, group: &Status) -> Value {
    let holders: Vec<Id> = seen.values().filter_map(|lease| lease.holder).collect();
    let count = |id: &Id| holders.iter().filter(|other| *other == id).count();
    let holder = holders.iter().copied().max_by_key(count).filter(|id| count(id) >= group.majority);
    json!({
        "holder": holder,
        "fence": seen.values().map(|lease| lease.number).max(),
        "left_ms": seen.values().filter(|lease| lease.holder == holder).map(|lease| lease.left_ms).max(),
        "waiting": seen.values().map(|lease| lease.waiting).max(),
        "answered": seen.len(),
        "voters": group.voters.len(),
        "guarantee": "exclusive",
    })
}

/// Takes the answers to one question until all voters have answered.
async fn gather(
    events: &mut Events<Node>,
    nonce: u64,
    voters: usize,
    seen: &mut BTreeMap<SocketAddr, LeaseSeen>,
) {
    while let Some(event) = events.next().await {
        if let PartEvent::Turns(turns::Event::LeaseSeen { nonce: of, from, lease }) = &event.event
            && *of == nonce
        {
            seen.insert(*from, *lease);
            if seen.len() >= voters {
                return;
            }
        }
    }
}
