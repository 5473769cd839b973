//! Outstanding messages: those of this node, without outcome so far.
//!
//! Only the origin makes copies of a message, one for each attempt. So it knows whether an attempt may still reach an
//! application. An attempt is *pending* until its report arrives. Its end is *uncertain* if it was lost, or if another
//! attempt began while it was pending. The outcome is `Failed` only if no attempt is pending or uncertain.

use core::time::Duration;

use crate::id::Id;
use crate::pastry::message::{Body, Envelope, Failure, MessageId, Outcome};
use crate::tag::RequestId;
use crate::time::Instant;

/// The longest time between two attempts (PD-9).
const RETRY_MAX: Duration = Duration::from_secs(1);
/// The least time between two attempts after several were lost in a row. It doubles with each further loss.
const RETRY_LEAST: Duration = Duration::from_millis(100);
/// How many earlier receivers of one message are remembered.
const EARLIER_MAX: usize = 16;
/// How many bits of a message's number name its slot.
const SLOT_BITS: u32 = 20;
const SLOT_MASK: u128 = (1 << SLOT_BITS) - 1;

/// A message of this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Outstanding {
    pub(super) request: RequestId,
    /// The attempt that was sent last.
    pub(super) envelope: Envelope,
    pub(super) once: bool,
    deadline: Instant,
    /// When this attempt was sent.
    sent: Instant,
    is_pending: bool,
    is_uncertain: bool,
    failure: Failure,
    /// How many attempts were lost.
    lost: u32,
    /// The time until the next attempt.
    backoff: Duration,
    /// The node that the last attempt was sent to; `earlier` has those before.
    to: Option<Id>,
    earlier: Vec<Id>,
}

impl Outstanding {
    pub(super) fn new(
        request: RequestId,
        envelope: Envelope,
        once: bool,
        now: Instant,
        deadline: Instant,
    ) -> Self {
        Self {
            request,
            envelope,
            once,
            deadline,
            sent: now,
            is_pending: true,
            is_uncertain: false,
            failure: Failure::NoRoute,
            lost: 0,
            backoff: Duration::ZERO,
            to: None,
            earlier: Vec::new(),
        }
    }

    pub(super) fn is_trace(&self) -> bool {
        matches!(self.envelope.body, Body::Trace { .. })
    }

    /// The duration of the attempt, if it is the first one.
    pub(super) fn sample(&self, now: Instant) -> Option<Duration> {
        (self.envelope.attempt == 0).then(|| now.since(self.sent))
    }

    /// The outcome without a further attempt.
    pub(super) fn give_up(&self) -> Outcome {
        if self.is_pending || self.is_uncertain {
            Outcome::Unknown
        } else {
            Outcome::Failed { why: self.failure }
        }
    }

    /// Begins another attempt. Returns the message to send.
    pub(super) fn begin_attempt(&mut self, now: Instant) -> Envelope {
        self.is_uncertain |= self.is_pending;
        self.is_pending = true;
        self.sent = now;
        self.envelope.attempt = self.envelope.attempt.saturating_add(1);
        self.envelope.lifetime_millis = millis(self.deadline.since(now));
        self.envelope.clone()
    }

    /// The time until the next attempt. The first two follow at once, over other paths. A report says that an attempt was lost,
    /// so the time does not depend on how long reports take.
    fn pause_after_loss(&self) -> Duration {
        match self.lost {
            0..=2 => Duration::ZERO,
            lost => RETRY_LEAST.saturating_mul(1 << (lost - 3).min(8)).min(RETRY_MAX),
        }
    }
}

/// A duration in whole milliseconds.
pub(super) fn millis(duration: Duration) -> u32 {
    u32::try_from(duration.as_millis()).unwrap_or(u32::MAX)
}

/// The next action for a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    Retry,
    Deadline,
}

/// The end of an attempt without a verdict of an application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// It certainly reached no application, for this reason.
    Failed(Failure),
    /// The same; the owner has room after this time.
    Busy(Duration),
    /// It may have reached one.
    Lost,
}

/// All outstanding messages. The number of each names its slot, so its report finds it at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct OutstandingTable {
    slots: Vec<Option<Outstanding>>,
    /// When each is due; in an array of its own, because all are scanned.
    dues: Vec<Instant>,
    free: Vec<u32>,
    /// No message is due before this.
    due: Option<Instant>,
    /// Messages whose next attempt begins at once.
    ready: Vec<MessageId>,
    messages_max: usize,
}

impl OutstandingTable {
    pub(super) fn new(messages_max: usize) -> Self {
        let (slots, dues, free, ready) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Self { slots, dues, free, due: None, ready, messages_max: messages_max.min(SLOT_MASK as usize) }
    }

    pub(super) fn has_room(&self) -> bool {
        self.slots.len() - self.free.len() < self.messages_max
    }

    /// The number of the next message, with these random bits.
    pub(super) fn next_id(&self, random: u128) -> MessageId {
        let slot = self.free.last().map_or(self.slots.len(), |slot| *slot as usize);
        MessageId(random & !SLOT_MASK | slot as u128)
    }

    /// Inserts the message with the [next](OutstandingTable::next_id) number.
    pub(super) fn insert(&mut self, outstanding: Outstanding) {
        let due = outstanding.deadline;
        match self.free.pop() {
            Some(slot) => {
                self.slots[slot as usize] = Some(outstanding);
                self.dues[slot as usize] = due;
            }
            None => {
                self.slots.push(Some(outstanding));
                self.dues.push(due);
            }
        }
        self.look_by(due);
    }

    pub(super) fn get(&self, id: MessageId) -> Option<&Outstanding> {
        self.slots.get(slot(id))?.as_ref().filter(|at| at.envelope.id == id)
    }

    /// Ends a message, and returns its request. It is dropped in place: it is large, and every message ends here.
    pub(super) fn end(&mut self, id: MessageId) -> Option<RequestId> {
        let request = self.get(id)?.request;
        self.slots[slot(id)] = None;
        self.free.push(slot(id) as u32);
        self.dues[slot(id)] = Instant::FAR;
        if self.free.len() == self.slots.len() {
            self.due = None;
        }
        Some(request)
    }

    /// Notes that the attempt was sent to a node. If no report comes within `timeout`, another attempt begins. The
    /// timeout doubles each time, up to a second. A message sent `once` only waits for its deadline.
    pub(super) fn sent(&mut self, id: MessageId, to: Id, now: Instant, timeout: Duration) {
        let Some(at) = self.get_mut(id) else { return };
        if let Some(before) = at.to.replace(to)
            && before != to
            && at.earlier.len() < EARLIER_MAX
            && !at.earlier.contains(&before)
        {
            at.earlier.push(before);
        }
        if at.once {
            return;
        }
        let doubled = if at.backoff.is_zero() { timeout } else { at.backoff * 2 };
        at.backoff = doubled.min(RETRY_MAX.max(timeout));
        let due = (now + at.backoff).min(at.deadline);
        self.dues[slot(id)] = due;
        self.look_by(due);
    }

    /// Whether a message was ever sent to this node; `None` if it is not outstanding.
    pub(super) fn was_sent_to(&self, id: MessageId, to: Id) -> Option<bool> {
        let at = self.get(id)?;
        Some(at.to == Some(to) || at.earlier.contains(&to))
    }

    /// Ends the current attempt of a message without a verdict. Returns false if there is no further attempt: the
    /// message ends with [`Outstanding::give_up`].
    pub(super) fn attempt_ended(&mut self, id: MessageId, ended: Ended, now: Instant) -> bool {
        let Some(at) = self.get_mut(id) else { return true };
        at.is_pending = false;
        let pause = match ended {
            Ended::Lost => {
                at.is_uncertain = true;
                at.lost += 1;
                if at.once {
                    // The next hop may have the message after all. Its receipt then comes before the deadline.
                    let deadline = at.deadline;
                    self.dues[slot(id)] = deadline;
                    self.look_by(deadline);
                    return true;
                }
                at.pause_after_loss()
            }
            Ended::Failed(why) => {
                at.failure = why;
                let is_final = matches!(why, Failure::NoApplication | Failure::Stopped);
                if is_final && !at.is_uncertain {
                    return false;
                }
                at.backoff = (at.backoff * 2).clamp(RETRY_LEAST, RETRY_MAX);
                at.backoff
            }
            Ended::Busy(after) => {
                at.failure = Failure::Busy;
                after.max(RETRY_LEAST / 10)
            }
        };
        let due = (now + pause).min(at.deadline);
        self.dues[slot(id)] = due;
        if pause.is_zero() {
            self.ready.push(id);
        } else {
            self.look_by(due);
        }
        true
    }

    /// Messages whose next attempt begins at once.
    pub(super) fn take_ready(&mut self) -> Vec<MessageId> {
        core::mem::take(&mut self.ready)
    }

    pub(super) fn begin_attempt(&mut self, id: MessageId, now: Instant) -> Option<Envelope> {
        let at = self.get_mut(id)?;
        let (envelope, deadline) = (at.begin_attempt(now), at.deadline);
        self.dues[slot(id)] = deadline;
        self.look_by(deadline);
        Some(envelope)
    }

    /// The messages that are due, in order of slots.
    pub(super) fn pop_due(&mut self, now: Instant) -> Vec<(MessageId, Due)> {
        if self.due.is_none_or(|due| due > now) {
            return Vec::new();
        }
        self.due = self.dues.iter().copied().filter(|due| *due > now && *due < Instant::FAR).min();
        let due_slots = (0..self.dues.len()).filter(|&slot| self.dues[slot] <= now);
        due_slots
            .filter_map(|slot| self.slots[slot].as_ref())
            .map(|at| (at.envelope.id, if at.deadline <= now { Due::Deadline } else { Due::Retry }))
            .collect()
    }

    /// Takes all messages.
    pub(super) fn drain(&mut self) -> Vec<Outstanding> {
        (self.due, self.dues, self.free) = (None, Vec::new(), Vec::new());
        self.slots.drain(..).flatten().collect()
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        self.due
    }

    fn get_mut(&mut self, id: MessageId) -> Option<&mut Outstanding> {
        self.slots.get_mut(slot(id))?.as_mut().filter(|at| at.envelope.id == id)
    }

    fn look_by(&mut self, at: Instant) {
        self.due = Some(self.due.map_or(at, |due| due.min(at)));
    }
}

/// The slot that a number names.
fn slot(id: MessageId) -> usize {
    (id.0 & SLOT_MASK) as usize
}

#[cfg(test)]
#[path = "outstanding_tests.rs"]
mod tests;
