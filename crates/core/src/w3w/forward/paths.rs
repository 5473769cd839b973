//! The peers that a queued message goes to: those it waits for, those that have it and have not answered, and those that
//! have had it.

use core::time::Duration;

use crate::tag::StreamId;
use crate::time::Instant;
use crate::w3w::nid::Nid;

/// The pause before a peer that refused a message is tried again: at first, and at most.
const BACKOFF_FIRST: Duration = Duration::from_secs(5);
const BACKOFF_LAST: Duration = Duration::from_secs(60);
/// Peers remembered as having had it: enough for any ring, and bounded.
const SENT_TO_MAX: usize = 64;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Paths {
    /// Connections it waits for, or is being written to.
    targets: Vec<StreamId>,
    /// Connections it was written to, whose peers have not answered.
    given: Vec<StreamId>,
    /// Peers it was given to, so that none gets it twice from this node.
    sent_to: Vec<Nid>,
    /// Those of them that had no room, or refused it.
    refused: Vec<Nid>,
    /// The pause after the next refusal.
    backoff: Duration,
    /// Whether a peer has answered that it holds it.
    is_placed: bool,
    first_given: Option<Instant>,
}

impl Paths {
    pub(super) const fn new() -> Self {
        Self {
            targets: Vec::new(),
            given: Vec::new(),
            sent_to: Vec::new(),
            refused: Vec::new(),
            backoff: BACKOFF_FIRST,
            is_placed: false,
            first_given: None,
        }
    }

    /// Adds a peer that gets the message.
    pub(super) fn add(&mut self, nid: Nid, stream: StreamId) {
        if self.sent_to.len() == SENT_TO_MAX {
            self.sent_to.remove(0);
        }
        self.sent_to.push(nid);
        self.targets.push(stream);
    }

    /// Notes that the kernel has taken the frame. Returns whether the message waited for this connection.
    pub(super) fn on_taken(&mut self, stream: StreamId) -> bool {
        take(&mut self.targets, stream)
    }

    /// Notes that the peer has the frame and must answer. Returns whether the message waited for this connection.
    pub(super) fn on_given(&mut self, stream: StreamId, now: Instant) -> bool {
        let was_target = take(&mut self.targets, stream);
        if was_target {
            self.given.push(stream);
            self.first_given.get_or_insert(now);
        }
        was_target
    }

    /// Notes that the peer answered, or that no answer is awaited.
    pub(super) fn on_answered(&mut self, stream: StreamId) {
        take(&mut self.targets, stream);
        take(&mut self.given, stream);
    }

    /// Notes that a peer holds the message.
    pub(super) fn on_placed(&mut self) {
        self.is_placed = true;
        self.backoff = BACKOFF_FIRST;
    }

    /// Notes that a foreign peer has had the message long enough.
    pub(super) fn on_released(&mut self, stream: StreamId) {
        take(&mut self.given, stream);
        self.is_placed = true;
    }

    /// Notes that a peer refused the message. Returns the pause before it is tried again.
    pub(super) fn on_refused(&mut self, nid: Nid) -> Duration {
        self.refused.push(nid);
        let pause = self.backoff;
        self.backoff = (pause * 2).min(BACKOFF_LAST);
        pause
    }

    /// Lets the peers that refused the message have it again.
    pub(super) fn retry_refused(&mut self) {
        let refused = core::mem::take(&mut self.refused);
        self.sent_to.retain(|nid| !refused.contains(nid));
    }

    /// Notes that a connection is closed: its peer may have the message again.
    pub(super) fn on_closed(&mut self, stream: StreamId, nid: Nid) {
        self.on_answered(stream);
        self.forget(nid);
    }

    /// Lets a peer have the message again.
    pub(super) fn forget(&mut self, nid: Nid) {
        self.sent_to.retain(|sent_to| *sent_to != nid);
    }

    /// Begins again with other bytes. Returns the connections whose peers have not answered.
    pub(super) fn restart(&mut self) -> Vec<StreamId> {
        self.sent_to.clear();
        self.refused.clear();
        self.is_placed = false;
        core::mem::take(&mut self.given)
    }

    /// Connections the message waits for, or is being written to.
    pub(super) fn targets(&self) -> &[StreamId] {
        &self.targets
    }

    /// All connections that have the message, or get it.
    pub(super) fn streams(&self) -> impl Iterator<Item = StreamId> + '_ {
        self.given.iter().chain(&self.targets).copied()
    }

    /// Whether the message is being given to no peer just now.
    pub(super) fn is_idle(&self) -> bool {
        self.targets.is_empty() && self.given.is_empty()
    }

    pub(super) fn is_placed(&self) -> bool {
        self.is_placed
    }

    pub(super) fn was_sent_to(&self, nid: Nid) -> bool {
        self.sent_to.contains(&nid)
    }

    pub(super) fn is_refused_by(&self, nid: Nid) -> bool {
        self.refused.contains(&nid)
    }

    pub(super) fn is_refused(&self) -> bool {
        !self.refused.is_empty()
    }

    pub(super) fn first_given(&self) -> Option<Instant> {
        self.first_given
    }
}

/// Removes a connection from a list. Returns whether it was there.
fn take(streams: &mut Vec<StreamId>, stream: StreamId) -> bool {
    let before = streams.len();
    streams.retain(|one| *one != stream);
    streams.len() < before
}
