//! The join of route: its progress for the log, and for clients whose messages wait for it.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::sync::watch;

use super::http::ApiError;
use crate::config::Settings;

/// `members` names the seeds, and the first member bootstraps the ring after it has tried the others: so many failures
/// are normal.
const MEMBERS_TRIES: u32 = 4;

/// The progress of the join.
#[derive(Debug)]
pub(crate) struct Joining {
    seeds: Vec<SocketAddr>,
    /// The longest wait of a client for the join.
    timeout: Duration,
    state: watch::Sender<State>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct State {
    has_joined: bool,
    /// The number of failed tries.
    tries: u32,
}

impl Joining {
    pub(crate) fn new(settings: &Settings) -> Self {
        Self::through(settings.addrs("route.seeds"), settings.duration("route.message_timeout"))
    }

    fn through(seeds: Vec<SocketAddr>, timeout: Duration) -> Self {
        Self { seeds, timeout, state: watch::Sender::default() }
    }

    /// The node is in the ring.
    pub(crate) fn joined(&self) {
        let before = self.state.send_replace(State { has_joined: true, tries: 0 });
        if before.tries >= self.round() {
            tracing::info!(tries = before.tries, "route has joined the ring");
        }
    }

    /// A try has failed. The log has a warning when all seeds were tried, and further ones at growing intervals.
    pub(crate) fn failed(&self, tries: u32) {
        self.state.send_modify(|state| state.tries = tries);
        if tries.is_multiple_of(self.round()) && (tries / self.round()).is_power_of_two() {
            tracing::warn!(tries, "route has not joined the ring: {}; {}", self.why(), self.what_to_do());
        }
    }

    /// Whether it is known that the node is in the ring. Some events can be lost, so this reads the state of the
    /// node.
    pub(crate) fn has_joined(&self) -> bool {
        self.state.borrow().has_joined
    }

    /// Waits until the node has joined, or every way in was tried, or it takes too long.
    pub(crate) async fn decided(&self) {
        let mut state = self.state.subscribe();
        let is_decided = |state: &State| state.has_joined || state.tries >= self.round();
        // The time that is over is a decision, too.
        let _ = tokio::time::timeout(self.timeout, state.wait_for(is_decided)).await;
    }

    /// The error of a send before the join.
    pub(crate) fn refusal(&self) -> ApiError {
        let tries = self.state.borrow().tries;
        let message = format!("this node has not joined the ring: {} (tries: {tries})", self.why());
        ApiError::not_joined(message, self.what_to_do())
    }

    /// After so many failures every way in was tried.
    fn round(&self) -> u32 {
        if self.seeds.is_empty() {
            MEMBERS_TRIES
        } else {
            u32::try_from(self.seeds.len()).unwrap_or(u32::MAX)
        }
    }

    fn why(&self) -> String {
        if self.seeds.is_empty() {
            return "no member has let it in yet".into();
        }
        let seeds: Vec<String> = self.seeds.iter().map(SocketAddr::to_string).collect();
        format!("nobody let it in through its route.seeds {}", seeds.join(", "))
    }

    fn what_to_do(&self) -> &'static str {
        if self.seeds.is_empty() {
            "check with `annulus members` that one of them runs route, and that it can be reached at its route.port"
        } else {
            "check that an agent with route runs at one of them, with the same route.ring, and can be reached from here"
        }
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Waker};

    use super::*;

    fn joining(seeds: u8) -> Joining {
        let seeds = (1..=seeds).map(|last| SocketAddr::from(([127, 0, 0, last], 22001))).collect();
        Joining::through(seeds, Duration::from_secs(3600))
    }

    #[tokio::test]
    async fn the_join_is_decided_when_every_seed_was_tried() {
        let joining = joining(2);
        let mut decided = Box::pin(joining.decided());
        let mut context = Context::from_waker(Waker::noop());
        assert!(decided.as_mut().poll(&mut context).is_pending());
        joining.failed(1);
        assert!(decided.as_mut().poll(&mut context).is_pending(), "one of two");
        joining.failed(2);
        decided.await;
        assert!(!joining.has_joined());
        let error = joining.refusal().to_json();
        assert!(error.contains("127.0.0.1:22001, 127.0.0.2:22001 (tries: 2)"), "{error}");
        joining.joined();
        joining.decided().await;
        assert!(joining.has_joined());
    }

    #[tokio::test]
    async fn the_wait_for_a_join_has_a_limit() {
        let joining = Joining::through(Vec::new(), Duration::from_millis(1));
        joining.decided().await;
        assert!(joining.refusal().to_json().contains("no member has let it in yet"));
    }
}
