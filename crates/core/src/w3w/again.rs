//! Messages of ours whose receipt has not come: they are kept, and offered again to a recipient that is there.
//!
//! The recipient may have had no room, or have died before the message was safe. The same bytes are no second message to
//! one that has it (MA-40), and go only to the recipient itself: others would drop them as seen.

use core::time::Duration;

use super::alarms::Alarm;
use super::machine::{Mesh, Out};
use super::nid::Nid;
use super::queue::Line;
use crate::time::{Instant, Now};

/// How long it is waited for a receipt before the message is offered again; each time twice as long.
const PATIENCE: Duration = Duration::from_secs(60);

/// When a message is offered again, and how long it is waited after that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Again {
    at: Instant,
    patience: Duration,
}

impl Mesh {
    /// A message has been handed on and would leave the queue: it stays if a receipt of it can still come. True if so.
    pub(super) fn keep_for_receipt(&mut self, now: Now, line: Line) -> bool {
        // What must wait goes before what may.
        let is_crowded = self.queue.is_half_full() || self.shelf.is_half_pinned();
        let Some(entry) = self.queue.get_mut(line) else { return false };
        let is_awaited = entry.outbox.is_some_and(|number| self.post.is_awaited(number));
        if !is_awaited || !entry.is_stored || is_crowded {
            return false;
        }
        let patience = entry.again.map_or(PATIENCE, |again| again.patience * 2);
        let at = now.mono + patience;
        entry.again = Some(Again { at, patience });
        self.alarms.set_by(Alarm::Again, at);
        self.queue.unload(line);
        true
    }

    /// The recipient has gone: what it has not confirmed is offered to it when it comes back.
    pub(super) fn offer_when_back(&mut self, nid: Nid) {
        self.queue.offer_again(|entry| entry.recipient == nid);
    }

    /// Offers again what has waited long enough for its receipt.
    pub(super) fn offer_again(&mut self, now: Now, out: Out<'_, '_>) {
        let due = self.queue.offer_again(|entry| entry.again.is_some_and(|again| again.at <= now.mono));
        for line in due {
            if let Some(entry) = self.queue.get_mut(line)
                && let Some(again) = &mut entry.again
            {
                // If the recipient is away this was in vain, and it is tried when it comes.
                again.at = now.mono + again.patience;
            }
            self.route(now, line, out);
        }
        if let Some(at) = self.queue.own_lines().filter_map(|entry| entry.again).map(|again| again.at).min() {
            self.alarms.set_by(Alarm::Again, at);
        }
    }
}
