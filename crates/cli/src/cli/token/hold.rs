//! A weak turn as its client sees it: a hold of the token at the agent (TU-42).
//!
//! The hold lives as long as its connection. Signs of life that the agent sends by itself may wait in a buffer while this
//! program is stopped. So the client asks, and counts the answer from when it sent the question, as for a lease.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use annulus::core::{Instant, micros};
use anyhow::Context as _;
use serde_json::{Value, json};

use super::guarded::{Claim, Guarded, Kept};
use crate::cli::client::{Client, Events};
use crate::cli::guard::since_boot;

/// The longest time of a command to end at its limit: it must have ended when the limit is over.
const ENDING_MAX: Duration = Duration::from_secs(5);
/// The part of the limit that it may take.
const ENDING: u32 = 4;
/// The part of that which is left to kill it, and to notify the agent.
const KILLING: u32 = 5;
/// The timeout of a release at the agent.
const RELEASE: Duration = Duration::from_secs(2);

/// A hold as the agent gave it.
#[derive(Clone)]
pub(super) struct Hold {
    client: Client,
    number: u64,
    fence: u64,
    /// The longest silence of an agent.
    silence: Duration,
    limit: Duration,
    limit_text: String,
    /// The events of the hold; the connection ends with it.
    news: Arc<Mutex<Events>>,
}

impl Hold {
    /// Waits for the token.
    pub(super) fn acquire(
        client: Client,
        run: &Guarded<'_>,
    ) -> impl FnOnce() -> anyhow::Result<Self> + Send + use<> {
        let ms = |duration: Duration| micros(duration).div_ceil(1000);
        let body = json!({ "limit_ms": ms(run.limit), "wait_ms": ms(run.wait) });
        let (limit, limit_text) = (run.limit, run.how.limit_text().to_owned());
        move || {
            let mut news = client.stream("/v1/token/turn", &body)?;
            let first =
                news.next()?.context("the agent ended before the token came; start it again and retry")?;
            anyhow::ensure!(first.kind == "held", "the agent tells of no hold; check --agent");
            let held: Value = serde_json::from_str(&first.data).unwrap_or_default();
            let number = |key: &str| held[key].as_u64().context("the agent gave no number; check --agent");
            let silence = Duration::from_millis(number("silence_ms")?);
            let (hold, fence) = (number("hold")?, number("fence")?);
            let news = Arc::new(Mutex::new(news));
            Ok(Self { client, number: hold, fence, silence, limit, limit_text, news })
        }
    }
}

/// When a command gets TERM and KILL, so that it has ended when its limit is over.
fn end_of(ends: Instant, limit: Duration) -> (Instant, Instant) {
    let ending = ENDING_MAX.min(limit / ENDING);
    (ends - ending, ends - ending / KILLING)
}

impl Claim for Hold {
    fn env(&self) -> Vec<(&'static str, String)> {
        vec![("ANNULUS_FENCE", self.fence.to_string()), ("ANNULUS_HOLD", self.number.to_string())]
    }

    fn interval(&self) -> Duration {
        self.silence / 5
    }

    fn keep(&self) -> anyhow::Result<Kept> {
        let asked = since_boot();
        let body = json!({ "hold": self.number }).to_string();
        let answer = self.client.post_within("/v1/token/keep", &body, 2 * self.silence)?;
        let ms = |key: &str| answer[key].as_u64().context("the agent gave no time; check --agent");
        let limit = end_of(asked + Duration::from_millis(ms("limit_ms")?), self.limit);
        Ok(Kept { asked, left: Duration::from_millis(ms("left_ms")?), limit: Some(limit) })
    }

    fn wait_for_loss(&self) -> Option<String> {
        let mut news = self.news.lock().unwrap_or_else(PoisonError::into_inner);
        while let Ok(Some(event)) = news.next() {
            if event.kind == "ended" {
                let data: Value = serde_json::from_str(&event.data).unwrap_or_default();
                let reason = data["reason"].as_str().unwrap_or_default();
                return (reason != "released").then(|| self.lost(reason));
            }
        }
        Some(self.lost("gone"))
    }

    fn lost(&self, reason: &str) -> String {
        match reason {
            "limit" => format!(
                "the limit of {} is over: the command was stopped; give it more time with --limit",
                self.limit_text
            ),
            "stalled" | "merged" => String::from(
                "the token was lost: the agent was paused and the ring went on; the command was stopped, and what it did last \
                 must be checked by its fence",
            ),
            "cut_off" => String::from(
                "the agent reaches less than half of the ring: the command was stopped, for the others may have made a token; \
                 check its last step by its fence",
            ),
            "silent" => format!(
                "the agent has said nothing for {}: the command was stopped, for the ring may have gone on; look why the agent \
                 is paused",
                humantime::format_duration(self.silence)
            ),
            _ => String::from(
                "the agent went away: the command was stopped; start the agent again and repeat the command",
            ),
        }
    }

    fn ran_out(&self, limit: Option<(Instant, Instant)>) -> String {
        let is_at_limit = limit.is_some_and(|(term, _)| since_boot() >= term);
        self.lost(if is_at_limit { "limit" } else { "silent" })
    }

    /// Releases the token, and waits for the answer of the agent. An agent that hangs must not hold this program: the
    /// connection closes with it.
    fn release(&self) {
        let claim = self.clone();
        let body = json!({ "hold": self.number });
        // If the hold has ended by itself just now there is nothing to release.
        let done = std::thread::spawn(move || drop(claim.client.post("/v1/token/release", &body)));
        let begin = since_boot();
        while !done.is_finished() && since_boot().since(begin) < RELEASE {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_ends_before_its_limit_is_over() {
        let left = |limit: u64| {
            let limit = Duration::from_millis(limit);
            let ends = Instant::ZERO + limit;
            let (term, kill) = end_of(ends, limit);
            (ends.since(term).as_millis(), ends.since(kill).as_millis())
        };
        assert_eq!(left(3_600_000), (5000, 1000));
        assert_eq!(left(60_000), (5000, 1000));
        assert_eq!(left(8_000), (2000, 400), "a quarter, if that is less");
    }
}
