//! The origin's side of delivery: sends messages, counts their attempts, and replies with their outcome.

use core::time::Duration;

use super::outstanding::{Due, Ended, Outstanding, millis};
use super::transit::Transit;
use super::{Delivery, payload_bytes_max};
use crate::id::Id;
use crate::pastry::Reply;
use crate::pastry::contact::Contact;
use crate::pastry::lower::Cx;
use crate::pastry::message::{Body, Envelope, MessageId, Outcome, Report};
use crate::tag::RequestId;

/// A message to send.
pub(in crate::pastry) struct Sending {
    pub(in crate::pastry) key: Id,
    /// Whether it is for the node with that id only.
    pub(in crate::pastry) to_node: bool,
    pub(in crate::pastry) body: Body,
    pub(in crate::pastry) once: bool,
    pub(in crate::pastry) deadline: Option<Duration>,
}

impl Delivery {
    /// Sends a message of this node: it is routed like any other, and its outcome is the reply to `request`.
    pub(in crate::pastry) fn originate(&mut self, cx: &mut Cx<'_, '_>, request: RequestId, sending: Sending) {
        let Sending { key, to_node, body, once, deadline } = sending;
        if let Body::App { payload, .. } = &body
            && payload.len() > payload_bytes_max(cx.config())
        {
            return cx.out.reply(request, Reply::TooLong);
        }
        if !self.outstanding.has_room() || !self.in_flight.has_room() {
            cx.count().messages_refused += 1;
            return cx.out.reply(request, Reply::Full);
        }
        let lifetime = deadline.unwrap_or(cx.config().message_timeout);
        let id = self.outstanding.next_id(cx.lower.env.rng().next_u128());
        let (origin, ttl, lifetime_millis) = (cx.own(), cx.config().ttl, millis(lifetime));
        let envelope = Envelope { id, attempt: 0, key, to_node, origin, ttl, hops: 0, lifetime_millis, body };
        let now = cx.now.mono;
        self.outstanding.insert(Outstanding::new(request, envelope.clone(), once, now, now + lifetime));
        cx.count().messages_sent += 1;
        self.route(cx, Transit::new(envelope));
        self.retry_ready(cx);
    }

    /// Handles the report of a node about an attempt of this node's message.
    pub(in crate::pastry) fn on_report(
        &mut self,
        cx: &mut Cx<'_, '_>,
        by: Contact,
        (id, attempt, hops): (MessageId, u16, u8),
        report: Report,
    ) {
        let Some(at) = self.outstanding.get(id) else { return };
        let fits = match report {
            Report::Delivered { .. } | Report::Kept | Report::Refused { .. } | Report::Busy { .. } => {
                !at.is_trace()
            }
            Report::Traced { ref path } => at.is_trace() && !path.is_empty(),
            Report::Failed { .. } | Report::Lost => true,
        };
        if !fits {
            cx.count().refused += 1;
            return;
        }
        let is_current = attempt == at.envelope.attempt;
        let ended = match report {
            Report::Delivered { answer } => {
                if let Some(sample) = at.sample(cx.now.mono) {
                    self.rtt.add(sample);
                    self.samples = self.samples.saturating_add(1);
                }
                let answer = answer.map(Into::into);
                return self.finish(cx, id, Reply::Outcome(Outcome::Delivered { by, hops, answer }));
            }
            Report::Kept => return self.finish(cx, id, Reply::Outcome(Outcome::Kept { by, hops })),
            Report::Traced { path } => return self.finish(cx, id, Reply::Path(path)),
            Report::Refused { reason } => {
                return self.finish(cx, id, Reply::Outcome(Outcome::Refused { by, reason }));
            }
            // Only the current attempt counts.
            _ if !is_current => return,
            Report::Failed { why } => Ended::Failed(why),
            Report::Busy { after_millis } => Ended::Busy(Duration::from_millis(after_millis.into())),
            Report::Lost => Ended::Lost,
        };
        if !self.outstanding.attempt_ended(id, ended, cx.now.mono) {
            self.give_up(cx, id);
        }
    }

    /// Begins the attempts that are ready at once.
    pub(in crate::pastry) fn retry_ready(&mut self, cx: &mut Cx<'_, '_>) {
        loop {
            let ready = self.outstanding.take_ready();
            if ready.is_empty() {
                return;
            }
            ready.into_iter().for_each(|id| self.retry(cx, id));
        }
    }

    /// Begins attempts that are due, and ends messages whose deadline has passed.
    pub(super) fn expire_outstanding(&mut self, cx: &mut Cx<'_, '_>) {
        for (id, due) in self.outstanding.pop_due(cx.now.mono) {
            match due {
                Due::Retry if !cx.lower.env.is_stopping() => self.retry(cx, id),
                Due::Retry | Due::Deadline => self.give_up(cx, id),
            }
        }
    }

    /// Ends all own messages as unknown: the node stops and will not see their outcomes.
    pub(super) fn end_outstanding(&mut self, cx: &mut Cx<'_, '_>) {
        for at in self.outstanding.drain() {
            cx.out.reply(at.request, Reply::Outcome(Outcome::Unknown));
        }
    }

    fn retry(&mut self, cx: &mut Cx<'_, '_>, id: MessageId) {
        if let Some(envelope) = self.outstanding.begin_attempt(id, cx.now.mono) {
            cx.count().messages_retried += 1;
            self.route(cx, Transit::new(envelope));
        }
    }

    fn give_up(&mut self, cx: &mut Cx<'_, '_>, id: MessageId) {
        if let Some(at) = self.outstanding.get(id) {
            let outcome = at.give_up();
            self.finish(cx, id, Reply::Outcome(outcome));
        }
    }

    fn finish(&mut self, cx: &mut Cx<'_, '_>, id: MessageId, reply: Reply) {
        if let Some(request) = self.outstanding.end(id) {
            cx.out.reply(request, reply);
        }
    }
}
