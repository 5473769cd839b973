//! An exclusive turn as its client sees it: a lease from the voters, kept at the agent (TU-34, TU-35).

use std::time::Duration;

use annulus::core::{Instant, micros, turns::keeping};
use anyhow::Context as _;
use serde_json::{Value, json};

use super::guarded::{Claim, Guarded, Kept};
use crate::cli::client::{Client, Exchange};
use crate::cli::guard::since_boot;

/// How much a command that was stopped for its limit may have left of it, beside the time that its end takes.
const LIMIT_SLACK: Duration = Duration::from_millis(100);

/// A turn that took more than this part of its validity to come was waited for.
const WAITED: u32 = 8;

/// A turn as the agent gave it.
#[derive(Clone)]
pub(super) struct Lease {
    client: Client,
    name: String,
    id: String,
    /// When the request for it was sent.
    asked: Instant,
    answer: Value,
    limit: Duration,
    /// When its limit is over.
    ends: Instant,
}

/// A turn that was requested.
pub(super) struct Request {
    exchange: Exchange,
    client: Client,
    name: String,
    id: String,
    asked: Instant,
    limit: Duration,
}

impl Request {
    /// Sends the request.
    pub(super) fn send(client: &Client, run: &Guarded<'_>) -> anyhow::Result<Self> {
        let id = format!("{:032x}", uuid::Uuid::new_v4().as_u128());
        let (name, limit) = (run.name.to_owned(), run.limit);
        let ms = |duration: Duration| micros(duration).div_ceil(1000);
        let body = json!({ "name": name, "turn": id, "wait_ms": ms(run.wait), "limit_ms": ms(limit) });
        let asked = since_boot();
        let exchange = Exchange::begin(client, "/v1/turns", &body)?;
        Ok(Self { exchange, client: client.clone(), name, id, asked, limit })
    }

    /// The id of the turn.
    pub(super) fn id(&self) -> &str {
        &self.id
    }
}

impl Lease {
    /// Waits for the turn.
    pub(super) async fn acquire(request: Request) -> anyhow::Result<Self> {
        let Request { exchange, client, name, id, asked, limit } = request;
        let answer = exchange.answer().await?;
        answer["fence"].as_u64().context("the agent gave no fence; check --agent")?;
        Ok(Self { client, name, id, asked, answer, limit, ends: since_boot() + limit })
    }

    fn lease(&self) -> Duration {
        Duration::from_millis(self.answer["lease_ms"].as_u64().unwrap_or(10_000))
    }

    /// Whether a command that was stopped just now had come to its limit.
    fn is_at_limit(&self) -> bool {
        let span = keeping::validity(self.lease()).min(self.limit);
        since_boot() + span * 3 / 8 + LIMIT_SLACK >= self.ends
    }
}

fn kept(asked: Instant, answer: &Value) -> anyhow::Result<Kept> {
    let left = answer["left_ms"].as_u64().context("the agent gave no time; check --agent")?;
    Ok(Kept { asked, left: Duration::from_millis(left), limit: None })
}

impl Claim for Lease {
    fn env(&self) -> Vec<(&'static str, String)> {
        vec![("ANNULUS_FENCE", self.answer["fence"].to_string()), ("ANNULUS_TURN", self.id.clone())]
    }

    /// The answer to the request itself says enough, unless the turn was waited for.
    fn first(&self) -> anyhow::Result<Kept> {
        let kept = kept(self.asked, &self.answer)?;
        if since_boot().since(kept.asked) > kept.left / WAITED { self.keep() } else { Ok(kept) }
    }

    fn interval(&self) -> Duration {
        keeping::interval(self.lease())
    }

    fn keep(&self) -> anyhow::Result<Kept> {
        let asked = since_boot();
        let path = format!("/v1/turns/{}/keep", self.id);
        kept(asked, &self.client.post_within(&path, "{}", keeping::validity(self.lease()))?)
    }

    /// Presents the turn to an agent that was restarted.
    fn resume(&self, deadline: Instant) -> Option<anyhow::Result<Kept>> {
        let asked = since_boot();
        let limit = self.ends.since(asked).as_millis() as u64;
        let body = json!({
            "name": self.name,
            "turn": self.id,
            "session": self.answer["session"],
            "fence": self.answer["fence"],
            "deadline_micros": deadline.as_micros(),
            "boot_id": self.answer["boot_id"].as_str().unwrap_or_default(),
            "limit_ms": limit.max(1),
        });
        Some(self.client.post("/v1/turns/resume", &body).and_then(|answer| kept(asked, &answer)))
    }

    fn wait_for_loss(&self) -> Option<String> {
        let answer = self.client.get(&format!("/v1/turns/{}/lost", self.id)).ok()?;
        match answer["reason"].as_str()? {
            // An agent that stops may be back in time.
            "released" | "stopping" | "unknown" => None,
            reason => Some(self.lost(reason)),
        }
    }

    fn lost(&self, reason: &str) -> String {
        format!("the turn was lost ({reason}): the command was stopped; check its last step by its fence")
    }

    fn ran_out(&self, _: Option<(Instant, Instant)>) -> String {
        let text = if self.is_at_limit() {
            "the limit of the turn is over: the command was stopped; give it more time with --limit"
        } else {
            "the turn ran out: the command was stopped; check its last step by its fence"
        };
        text.to_owned()
    }

    /// Waits for a silent agent until the end of the validity: until then no other node can get the turn.
    fn release(&self) {
        let claim = self.clone();
        let done = std::thread::spawn(move || drop(claim.client.delete(&format!("/v1/turns/{}", claim.id))));
        let begin = since_boot();
        while !done.is_finished() && since_boot().since(begin) < keeping::validity(self.lease()) {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}
