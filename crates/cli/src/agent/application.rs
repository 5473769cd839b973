//! The agent as the application of `route`: it gives every message that arrives to the mailbox, and settles it.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use annulus::core::node::{Command, Event, Node, PartCommand, PartEvent};
use annulus::core::pastry::{self, MessageId, Verdict};
use annulus::core::{Id, Service};
use annulus::net::{Events, Handle};
use base64::prelude::{BASE64_STANDARD, Engine as _};
use serde::Serialize;

use super::http::Api;
use super::mailbox::{Arrival, Letter};

/// The most messages that are written to disk together.
const TOGETHER_MAX: usize = 256;
/// The retry delay for a sender while the mailbox is full.
const FULL_AFTER: Duration = Duration::from_millis(500);
/// The same, if the disk did not take it.
const DISK_AFTER: Duration = Duration::from_secs(1);
/// The longest payload that an event carries. The journal keeps many events, so none may be large.
const EVENT_PAYLOAD_BYTES_MAX: usize = 16 * 1024;

/// The messages for this agent, none of them left out. Call it before the node runs.
pub(super) fn arrivals(node: &Handle<Node>) -> Events<Node> {
    node.every_event_where(|event| {
        matches!(event.event, PartEvent::Route(pastry::Event::Delivered { is_settled: false, .. }))
    })
}

/// Stores arriving messages until the node ends.
pub(super) async fn run(api: Api, mut arrivals: Events<Node>) {
    while let Some(first) = arrivals.next().await {
        let mut events = vec![first];
        while events.len() < TOGETHER_MAX
            && let Some(next) = arrivals.try_next()
        {
            events.push(next);
        }
        take(&api, events).await;
    }
}

/// Takes messages that arrived together.
async fn take(api: &Api, events: Vec<Arc<Event>>) {
    let Some(service) = events.first().map(|event| event.service) else { return };
    let mut verdicts: Vec<(MessageId, Verdict)> = Vec::new();
    let mut letters: Vec<Arc<Letter>> = Vec::new();
    let mut bytes = 0;
    for letter in events.into_iter().filter_map(letter) {
        let (id, length) = (letter.id, letter.payload.len());
        match api.mailbox.arrival(&letter, (letters.len(), bytes)) {
            // A question that was shown waits for its answer.
            Arrival::Known if letter.ask => {}
            Arrival::Known => verdicts.push((id, Verdict::Keep)),
            Arrival::Full => verdicts.push((id, Verdict::Busy(FULL_AFTER))),
            Arrival::New if letters.iter().any(|known| known.id == id) => {}
            Arrival::New => {
                bytes += length;
                letters.push(Arc::new(letter));
            }
        }
    }
    let statements: Vec<(MessageId, bool)> = letters.iter().map(|letter| (letter.id, letter.ask)).collect();
    let names = api.recent_names().await;
    let told = |letter: &Arc<Letter>| MessageDelivered::new(service, letter, names.of(letter.origin.id));
    let told: Vec<_> = letters.iter().map(told).collect();
    let at_micros = now_micros();
    match api.mailbox.keep(letters).await {
        Ok(()) => {
            verdicts.extend(statements.iter().filter(|(_, ask)| !ask).map(|(id, _)| (*id, Verdict::Keep)));
            // The mailbox has stored the messages before their events: a client that gets the event finds the
            // message.
            told.iter().for_each(|told| api.journal.push(at_micros, told));
        }
        Err(error) => {
            tracing::warn!(%error, "the mailbox cannot keep messages: check the disk of the data directory");
            verdicts.extend(statements.iter().map(|(id, _)| (*id, Verdict::Busy(DISK_AFTER))));
        }
    }
    if !verdicts.is_empty() {
        let command = PartCommand::Route(pastry::Command::Settle(verdicts));
        // If the node has ended, the command needs no reply.
        let _ = api.node.command(Command { service, command }).await;
    }
}

fn letter(event: Arc<Event>) -> Option<Letter> {
    let event = Arc::try_unwrap(event).unwrap_or_else(|event| (*event).clone());
    let PartEvent::Route(pastry::Event::Delivered {
        id, app, key, origin, payload, hops, wants_answer, ..
    }) = event.event
    else {
        return None;
    };
    Some(Letter { at_micros: now_micros(), id, app, key, origin, hops, ask: wants_answer, payload })
}

/// A message as programs and people read it.
#[derive(Serialize)]
struct MessageDelivered {
    service: Service,
    protocol: &'static str,
    event: &'static str,
    id: String,
    app: String,
    key: Id,
    origin: Id,
    /// The name of that node, if it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    origin_name: Option<String>,
    hops: u8,
    ask: bool,
    payload_bytes: usize,
    /// Left out if it is too long: then it is in `/v1/messages`.
    #[serde(skip_serializing_if = "Option::is_none")]
    payload_base64: Option<String>,
}

impl MessageDelivered {
    fn new(service: Service, letter: &Letter, origin_name: Option<String>) -> Self {
        let fits = letter.payload.len() <= EVENT_PAYLOAD_BYTES_MAX;
        Self {
            service,
            protocol: "route",
            event: "delivered",
            id: letter.id.to_string(),
            app: letter.app.as_str().to_owned(),
            key: letter.key,
            origin: letter.origin.id,
            origin_name,
            hops: letter.hops,
            ask: letter.ask,
            payload_bytes: letter.payload.len(),
            payload_base64: fits.then(|| BASE64_STANDARD.encode(&letter.payload)),
        }
    }
}

fn now_micros() -> u64 {
    annulus::core::micros(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default())
}
