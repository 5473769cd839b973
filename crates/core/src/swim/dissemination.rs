//! Dissemination between pings: the timer of gossip, and the commands that wait for their update to be sent.

use core::time::Duration;

use super::api::Reply;
use super::machine::Out;
use super::packets::Packets;
use crate::tag::RequestId;
use crate::time::Instant;

/// A command that waits for its update to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Waiting {
    request: RequestId,
    until: Option<Instant>,
}

/// The timer of gossip, and up to `waiting_max` commands. A further command is answered at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Dissemination {
    next: Option<Instant>,
    is_wanted: bool,
    /// When updates last went out between pings.
    last: Instant,
    waiting: Vec<Waiting>,
    waiting_max: usize,
}

impl Dissemination {
    pub(super) const fn new(waiting_max: usize) -> Self {
        Self { next: None, is_wanted: false, last: Instant::ZERO, waiting: Vec::new(), waiting_max }
    }

    /// Notes new updates. If updates go out between pings, these do so soon.
    pub(super) const fn wake(&mut self) {
        self.is_wanted = true;
    }

    /// Whether new updates were noted since the last call.
    pub(super) const fn take_wanted(&mut self) -> bool {
        core::mem::replace(&mut self.is_wanted, false)
    }

    /// Sets when updates go out next between pings; `None` is never.
    pub(super) const fn set_next(&mut self, next: Option<Instant>) {
        self.next = next;
    }

    /// Whether the last gossip is at least half an interval ago. If so, `now` becomes the time of the last one.
    pub(super) fn may_hurry(&mut self, now: Instant, interval: Duration) -> bool {
        let may = now >= self.last + interval / 2;
        if may {
            self.last = now;
        }
        may
    }

    /// Registers a command that waits; false if too many do.
    pub(super) fn wait(&mut self, request: RequestId, until: Option<Instant>) -> bool {
        let has_room = self.waiting.len() < self.waiting_max;
        if has_room {
            self.waiting.push(Waiting { request, until });
        }
        has_room
    }

    /// Answers the commands whose update was sent.
    pub(super) fn answer_sent(&mut self, packets: &mut Packets, out: Out<'_, '_>) {
        for request in packets.take_handed() {
            if let Some(place) = self.waiting.iter().position(|waiting| waiting.request == request) {
                self.waiting.remove(place);
                out.reply(request, Reply::Done);
            }
        }
    }

    /// Answers the commands whose timeout has passed.
    pub(super) fn time_out(&mut self, now: Instant, out: Out<'_, '_>) {
        let over = |waiting: &Waiting| waiting.until.is_some_and(|until| until <= now);
        for waiting in self.waiting.iter().filter(|waiting| over(waiting)) {
            out.reply(waiting.request, Reply::TimedOut);
        }
        self.waiting.retain(|waiting| !over(waiting));
    }

    /// Answers all commands that wait: for an update to be sent, or for room in the queue (SF-15).
    pub(super) fn end_waiting(&mut self, packets: &mut Packets, reply: &Reply, out: Out<'_, '_>) {
        let waiting = core::mem::take(&mut self.waiting).into_iter().map(|waiting| waiting.request);
        for request in waiting.chain(packets.gossip_mut().turn_away()) {
            out.reply(request, reply.clone());
        }
    }

    /// When updates go out next between pings.
    pub(super) const fn next(&self) -> Option<Instant> {
        self.next
    }

    /// The next timeout of a command.
    pub(super) fn waiting_deadline(&self) -> Option<Instant> {
        self.waiting.iter().filter_map(|waiting| waiting.until).min()
    }
}
