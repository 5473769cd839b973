//! Passage: messages that are routed through here, from their origin to their owner.

use core::time::Duration;

use super::clocks::Age;
use super::contact::Contact;
use super::machine::{Out, Pastry};
use super::message::{Body, Copies, Envelope, Failure, Message, MessageId, Outcome, PathStep};
use super::probes::Ground;
use super::relays::{Held, Passage, Relay};
use super::routing::{Avoid, Step, Tables};
use super::sendings::{Kind, Sending};
use super::wire::encode_route;
use super::{Event, Passing, Reply, Verdict};
use crate::id::Id;
use crate::pool::Lost;
use crate::tag::RequestId;
use crate::time::Now;
use crate::wire::Writer;

/// Whether a message is new here, or goes another way after a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fresh {
    Yes,
    No,
}

impl Pastry {
    /// A message of our own: it is routed like any other, and its end is told to `request`.
    pub(super) fn originate(
        &mut self,
        now: Now,
        request: RequestId,
        key: Id,
        body: Body,
        retries: u8,
        out: Out<'_, '_>,
    ) {
        if let Body::App { payload, .. } = &body
            && payload.len() > self.config.message_bytes_max.saturating_sub(ENVELOPE_BYTES)
        {
            return out.reply(request, Reply::TooLong);
        }
        if !self.sendings.has_room() || !self.relays.has_room() {
            self.counters.messages_refused += 1;
            return out.reply(request, Reply::Full);
        }
        let kind = match body {
            Body::App { ask: true, .. } => Kind::Question,
            Body::App { .. } | Body::Join => Kind::Message,
            Body::Trace { .. } => Kind::Trace,
        };
        let once = retries == 0 && kind == Kind::Message;
        let copies = if once { Copies::One } else { Copies::Many };
        let id = self.allot_message(self.sendings.next());
        let envelope = Envelope::new(id, key, self.own, self.config.ttl, copies, body);
        let again = (retries > 0).then(|| Box::new(envelope.clone()));
        let due = now.mono + self.config.message_timeout;
        self.sendings.insert(id, Sending::new(request, kind, again, retries, due));
        self.counters.messages_sent += 1;
        self.step(now, Passage::new(envelope, now.mono), Fresh::Yes, out);
    }

    /// A message came from another node. Whoever acknowledges answers for it from then on.
    pub(super) fn on_route(
        &mut self,
        now: Now,
        from: Contact,
        transmission: u64,
        (age, under_way): (Age, Duration),
        envelope: Envelope,
        out: Out<'_, '_>,
    ) {
        let lost_here = !self.join.is_active() && self.peers.len() == 0;
        if !self.relays.has_room() || lost_here || self.is_stopping() {
            self.counters.messages_refused += 1;
            self.send(now, from.addr, &Message::Nack { transmission }, out);
            return;
        }
        if age == Age::Untold && envelope.copies != Copies::Many {
            // PA-36b: who sent it learns our clock, and sends it again.
            self.show_clock(now, from.addr, out);
            self.send(now, from.addr, &Message::Nack { transmission }, out);
            return;
        }
        self.acks.transmissions.push(transmission);
        if envelope.body == Body::Join {
            self.counters.joins_seen += 1;
            if envelope.origin.id == self.own.id {
                return self.refuse_joiner(now, envelope.origin, out);
            }
        }
        let mut passage = Passage { before: under_way, ..Passage::new(envelope, now.mono) };
        if age != Age::Young {
            self.notice_standstill(now);
            passage.doubt();
        }
        if passage.envelope.copies == Copies::Doubtful && self.window.contains(passage.envelope.id) {
            // Whoever owns its key by now, we have delivered it.
            return self.deliver(now, passage.envelope, out);
        }
        if age == Age::Outlived && passage.envelope.copies != Copies::Many {
            return self.end(now, &passage.envelope, Outcome::Unknown, out);
        }
        self.step(now, passage, Fresh::Yes, out);
    }

    /// Takes the next step with a message (P-20).
    pub(super) fn step(&mut self, now: Now, mut passage: Passage, fresh: Fresh, out: Out<'_, '_>) {
        if passage.envelope.origin.id != self.own.id {
            if now.mono.since(passage.taken) >= self.config.ack_timeout_min + self.grace {
                // It waited here, and who sent it may not know that we took it.
                passage.doubt();
            }
        } else if fresh == Fresh::No
            && passage.envelope.body != Body::Join
            && !self.sendings.contains(passage.envelope.id)
        {
            // Its end is known already: only the acknowledgement got lost.
            return;
        }
        if let Some((owner, incarnation)) = passage.perhaps
            && passage.envelope.copies != Copies::Many
            && self.peers.get(owner).is_none_or(|peer| peer.contact.incarnation != incarnation)
        {
            return self.end(now, &passage.envelope, Outcome::Unknown, out);
        }
        let once = passage.envelope.copies != Copies::Many;
        if once && passage.age(now.mono) > self.config.message_timeout {
            // Its origin has given it up.
            return self.end(now, &passage.envelope, Outcome::Unknown, out);
        }
        // There is no other way than to the owner itself: as long as that lives it is tried, ever more patiently.
        if passage.tries > self.config.reroutes_max && (passage.perhaps.is_none() || !once) {
            return self.give_up(now, &passage, Failure::NoRoute, out);
        }
        let envelope = &passage.envelope;
        let absent = (envelope.body == Body::Join).then_some(envelope.origin.id);
        let avoid = Avoid { suspected: self.peers.suspected(), tried: &passage.tried, absent };
        let tables =
            Tables { own: self.own.id, leaf_set: &self.leaf_set, routing_table: &self.routing_table };
        let step = if envelope.attempt == 0 {
            tables.decide(envelope.key, avoid)
        } else {
            tables.decide_randomly(envelope.key, avoid, &mut self.rng)
        };
        match step {
            Step::Deliver => self.arrive(now, passage, fresh, out),
            Step::Forward { to, last } => self.forward(now, passage, to, last, fresh, out),
            Step::Blocked { by } => {
                self.report_passing_join(now, &passage, fresh, out);
                self.suspect(by);
                self.hold(now, passage, Held::UntilVerdict(by), out);
            }
        }
    }

    /// The message is at its owner.
    #[inline]
    fn arrive(&mut self, now: Now, mut passage: Passage, fresh: Fresh, out: Out<'_, '_>) {
        if !self.join.is_active() && passage.envelope.body != Body::Join {
            // PA-19: the keys are ours as soon as the ring knows us, but not before we know it. A join is answered all
            // the same: two joiners that own each other's ids would wait for ever.
            return self.hold(now, passage, Held::UntilActive, out);
        }
        if fresh == Fresh::Yes {
            match self.consult(&mut passage.envelope, None) {
                Verdict::Stop => return self.stop(now, &passage.envelope, out),
                Verdict::Redirect(to) if self.peers.get(to).is_some() => {
                    return self.transmit(now, passage, to, false, out);
                }
                _ => {}
            }
        }
        if self.is_in_doubt(&passage) {
            return self.inquire(now, passage, out);
        }
        self.deliver(now, passage.envelope, out);
    }

    pub(super) fn deliver(&mut self, now: Now, envelope: Envelope, out: Out<'_, '_>) {
        let Envelope { id, key, origin, hops, .. } = envelope;
        match envelope.body {
            Body::Join => self.report_to_joiner(now, &envelope, true, out),
            Body::Trace { mut path } => {
                path.push(PathStep { contact: self.own, rtt_micros: None });
                let outcome = Outcome::Delivered { by: self.own };
                self.give_receipt(now, origin, Message::Receipt { id, outcome, hops, path }, out);
            }
            Body::App { ref app, .. } if !self.apps.iter().any(|at| at.name == *app) => {
                let outcome = Outcome::Failed { reason: Failure::NoApplication };
                self.end(now, &envelope, outcome, out);
            }
            Body::App { .. } if envelope.copies != Copies::Many && self.denied.contains(id) => {
                // A neighbour has our word that we do not deliver it.
                self.end(now, &envelope, Outcome::Unknown, out);
            }
            Body::App { app, ask, payload } => {
                let is_new = self.window.insert(id, now.mono);
                let waits = ask && self.questions.contains(id);
                if waits || !(is_new || ask) {
                    self.counters.messages_repeated += 1;
                } else if ask
                    && !self.questions.insert(id, origin, hops, now.mono + self.config.message_timeout)
                {
                    let outcome = Outcome::Failed { reason: Failure::Busy };
                    let receipt = Message::Receipt { id, outcome, hops, path: Vec::new() };
                    return self.give_receipt(now, origin, receipt, out);
                } else {
                    self.counters.messages_delivered += 1;
                    out.event(Event::Delivered { id, app, key, origin, payload, hops, ask });
                }
                if !ask && !self.acks.confirm(id, &origin, hops) {
                    let outcome = Outcome::Delivered { by: self.own };
                    let receipt = Message::Receipt { id, outcome, hops, path: Vec::new() };
                    self.give_receipt(now, origin, receipt, out);
                }
            }
        }
    }

    /// The message goes to another node.
    #[inline]
    fn forward(
        &mut self,
        now: Now,
        mut passage: Passage,
        mut to: Id,
        mut last: bool,
        fresh: Fresh,
        out: Out<'_, '_>,
    ) {
        self.report_passing_join(now, &passage, fresh, out);
        if fresh == Fresh::Yes {
            match self.consult(&mut passage.envelope, Some(to)) {
                Verdict::Stop => return self.stop(now, &passage.envelope, out),
                Verdict::Redirect(other) if self.peers.get(other).is_some() => (to, last) = (other, false),
                _ => {}
            }
        }
        self.transmit(now, passage, to, last, out);
    }

    /// Asks the application about a message that passes (N-8); a rewrite is done here.
    fn consult(&mut self, envelope: &mut Envelope, next: Option<Id>) -> Verdict {
        let (key, origin) = (envelope.key, envelope.origin);
        let Body::App { app, payload, .. } = &mut envelope.body else { return Verdict::Forward };
        let registered = self.apps.iter().find(|at| at.name == *app);
        let Some(application) = registered.and_then(|at| at.application.as_ref()) else {
            return Verdict::Forward;
        };
        let verdict = application.forward(&Passing { app, key, origin, payload, next });
        self.counters.messages_judged += u64::from(verdict != Verdict::Forward);
        match verdict {
            Verdict::Rewrite(content) => {
                *payload = content;
                Verdict::Forward
            }
            other => other,
        }
    }

    fn stop(&mut self, now: Now, envelope: &Envelope, out: Out<'_, '_>) {
        self.end(now, envelope, Outcome::Failed { reason: Failure::Stopped }, out);
    }

    /// Sends a message to the next node and waits for its acknowledgement.
    fn transmit(&mut self, now: Now, mut passage: Passage, to: Id, last: bool, out: Out<'_, '_>) {
        if passage.envelope.ttl == 0 {
            return self.give_up(now, &passage, Failure::HopLimit, out);
        }
        let Some(peer) = self.peers.get(to) else {
            return self.give_up(now, &passage, Failure::NoRoute, out);
        };
        let (addr, estimate, clock) = (peer.contact.addr, peer.estimate, peer.clock);
        let (least, most) = (self.config.ack_timeout_min, self.config.network_timeout);
        let once = passage.envelope.copies != Copies::Many;
        // A long message takes long: a megabyte a second is allowed for.
        let long = Duration::from_micros(payload_bytes(&passage.envelope) as u64);
        // Who was never measured may be far away, and who did not acknowledge in time may be slow.
        let measured = estimate.timeout().unwrap_or(most).max(least);
        let patient =
            if passage.tries == 0 { measured } else { measured.saturating_mul(1 << passage.tries.min(4)) };
        let patience = patient.min(most);
        let transmission = self.relays.next();
        let wait = if once { patience + long + self.grace } else { patience + long };
        let sent = clock.and_then(|clock| clock.sent(now.mono, wait, passage.age(now.mono)));
        // The envelope is changed for the next node and back again: to copy it would cost more.
        let envelope = &mut passage.envelope;
        let untouched = (envelope.ttl, envelope.hops);
        envelope.ttl -= 1;
        envelope.hops = envelope.hops.saturating_add(1);
        if let Body::Trace { path } = &mut envelope.body {
            let rtt_micros = Some(estimate.score().0).filter(|&rtt| rtt != u32::MAX);
            path.push(PathStep { contact: self.own, rtt_micros });
        }
        let write = |w: &mut Writer<'_>| encode_route(transmission, sent, envelope, w);
        let taken = self.send_with(now, addr, write, out);
        let envelope = &mut passage.envelope;
        (envelope.ttl, envelope.hops) = untouched;
        if let Body::Trace { path } = &mut envelope.body {
            path.pop();
        }
        let Some(taken) = taken else {
            passage.tried.push(to);
            passage.tries += 1;
            return self.step(now, passage, Fresh::No, out);
        };
        self.counters.messages_forwarded += 1;
        if passage.envelope.hops == 0 {
            self.sendings.sent(passage.envelope.id, to);
        }
        let timeout = if taken.connected { patience } else { (patience * 2).min(most) };
        self.relays.insert(passage, (to, last, sent.is_some()), taken, now.mono, timeout + long);
    }

    /// A message was not acknowledged: it goes another way (PA-35). `certain` is that the node never saw it.
    fn unanswered(&mut self, now: Now, relay: Relay, certain: bool, out: Out<'_, '_>) {
        let Relay { mut passage, to, last, .. } = relay;
        self.counters.messages_rerouted += 1;
        let incarnation = self.peers.get(to).map(|peer| peer.contact.incarnation);
        self.suspect(to);
        passage.tried.push(to);
        passage.tries += 1;
        if !certain && !passage.doubt_of(to) {
            return self.end(now, &passage.envelope, Outcome::Unknown, out);
        }
        if last && !certain {
            passage.perhaps = incarnation.map(|incarnation| (to, incarnation)).or(passage.perhaps);
        }
        self.step(now, passage, Fresh::No, out);
    }

    /// A connection broke: what went by it and was not acknowledged goes another way at once.
    pub(super) fn lost(&mut self, now: Now, lost: Option<Lost>, out: Out<'_, '_>) {
        let Some(lost) = lost else { return };
        for relay in self.relays.drain(|relay| relay.stream == lost.stream) {
            self.unanswered(now, relay, !lost.connected, out);
        }
        let Some(addr) = lost.peer else { return };
        if self.join.is_through(addr) {
            self.give_up_seed(now, out);
        }
        let peer = self.peers.iter().find(|peer| peer.contact.addr == addr).map(|peer| peer.contact);
        if let Some(contact) = peer {
            // A broken connection is no verdict, but a reason to ask.
            self.ask(contact, self.leaf_set.contains(contact.id), Ground::Own);
        }
    }

    /// What was under way to a node that is gone goes another way.
    pub(super) fn reroute_from(&mut self, now: Now, id: Id, out: Out<'_, '_>) {
        for relay in self.relays.drain(|relay| relay.to == id) {
            let Relay { mut passage, last, .. } = relay;
            passage.tries += 1;
            let can_be_told = passage.doubt_of(id);
            if (last && passage.envelope.copies != Copies::Many) || !can_be_told {
                self.end(now, &passage.envelope, Outcome::Unknown, out);
            } else {
                self.counters.messages_rerouted += 1;
                self.step(now, passage, Fresh::No, out);
            }
        }
    }

    fn hold(&mut self, now: Now, passage: Passage, why: Held, out: Out<'_, '_>) {
        let due = now.mono + self.config.message_timeout;
        if let Some(passage) = self.relays.hold(passage, why, due) {
            self.give_up(now, &passage, Failure::Busy, out);
        }
    }

    /// What was held for this reason goes on.
    pub(super) fn release(&mut self, now: Now, why: Held, out: Out<'_, '_>) {
        for mut passage in self.relays.release(why) {
            let fresh = if why == Held::UntilActive { Fresh::Yes } else { Fresh::No };
            passage.tried.clear();
            self.step(now, passage, fresh, out);
        }
    }

    /// We leave: what waits here, and is on its way nowhere, ends.
    pub(super) fn end_held(&mut self, now: Now, out: Out<'_, '_>) {
        for passage in self.relays.release_all() {
            self.give_up(now, &passage, Failure::NoRoute, out);
        }
        for passage in self.inquiries.drain(|_| true) {
            self.end(now, &passage.envelope, Outcome::Unknown, out);
        }
    }

    /// No way is left.
    fn give_up(&mut self, now: Now, passage: &Passage, reason: Failure, out: Out<'_, '_>) {
        let outcome = if passage.perhaps.is_some() { Outcome::Unknown } else { Outcome::Failed { reason } };
        self.end(now, &passage.envelope, outcome, out);
    }

    /// A message ends here without being delivered: its origin is told.
    pub(super) fn end(&mut self, now: Now, envelope: &Envelope, mut outcome: Outcome, out: Out<'_, '_>) {
        self.counters.messages_failed += 1;
        if envelope.copies == Copies::Doubtful {
            // Another of it may be delivered yet.
            outcome = Outcome::Unknown;
        }
        if envelope.body != Body::Join {
            let receipt =
                Message::Receipt { id: envelope.id, outcome, hops: envelope.hops, path: Vec::new() };
            self.give_receipt(now, envelope.origin, receipt, out);
        }
    }

    pub(super) fn give_receipt(&mut self, now: Now, origin: Contact, receipt: Message, out: Out<'_, '_>) {
        if origin.id != self.own.id {
            self.send(now, origin.addr, &receipt, out);
        } else if let Message::Receipt { id, outcome, hops, path } = receipt {
            self.on_receipt(now, id, outcome, hops, path, out);
        }
    }

    /// What became of a message of ours. If it got stuck on its way it is tried again, as often as it may be.
    pub(super) fn on_receipt(
        &mut self,
        now: Now,
        id: MessageId,
        outcome: Outcome,
        hops: u8,
        path: Vec<PathStep>,
        out: Out<'_, '_>,
    ) {
        let delivered = matches!(outcome, Outcome::Delivered { .. });
        let fits = match self.sendings.kind(id) {
            None => return,
            Some(Kind::Message) => path.is_empty(),
            Some(Kind::Question) => path.is_empty() && !delivered,
            Some(Kind::Trace) => path.is_empty() != delivered,
        };
        if !fits {
            // What does not end so is not of our sending.
            self.counters.refused += 1;
            return;
        }
        let Some(sending) = self.sendings.take(id) else { return };
        let is_stuck = match outcome {
            Outcome::Failed { reason } => {
                matches!(reason, Failure::NoRoute | Failure::HopLimit | Failure::Busy)
            }
            Outcome::Unknown => true,
            Outcome::Delivered { .. } => false,
        };
        if is_stuck && sending.retries > 0 {
            return self.send_again(now, id, sending, out);
        }
        let reply = match outcome {
            Outcome::Delivered { .. } if !path.is_empty() => Reply::Path(path),
            Outcome::Delivered { by } => Reply::Delivered { by, hops },
            Outcome::Failed { reason } => Reply::Failed { reason },
            Outcome::Unknown => Reply::Unknown,
        };
        out.reply(sending.request, reply);
    }

    pub(super) fn on_answer(
        &mut self,
        id: MessageId,
        hops: u8,
        by: Contact,
        payload: Vec<u8>,
        out: Out<'_, '_>,
    ) {
        match self.sendings.kind(id) {
            Some(Kind::Question) => {
                if let Some(sending) = self.sendings.take(id) {
                    out.reply(sending.request, Reply::Answered { by, hops, payload });
                }
            }
            Some(Kind::Message | Kind::Trace) => self.counters.refused += 1,
            None => {}
        }
    }

    /// The application answers a question.
    pub(super) fn answer(&mut self, now: Now, id: MessageId, payload: Vec<u8>, out: Out<'_, '_>) -> Reply {
        let Some(question) = self.questions.take(id) else { return Reply::NoSuchQuestion };
        if question.origin.id == self.own.id {
            self.on_answer(id, question.hops, self.own, payload, out);
            return Reply::Done;
        }
        let answer = Message::Answer { id, hops: question.hops, from: self.own, payload };
        match self.send(now, question.origin.addr, &answer, out) {
            Some(_) => Reply::Done,
            None => Reply::Full,
        }
    }

    /// What was not acknowledged in time. A message that may not be repeated stays for a while with a node that answers when
    /// it is asked: sent another way there would be two of it.
    fn overdue(&mut self, now: Now) -> Vec<Relay> {
        let (grace, pause) = (self.config.ack_timeout_min, self.grace);
        let (peers, counters, most) = (&self.peers, &mut self.counters, self.config.network_timeout);
        let mut slow = Vec::new();
        let expired = self.relays.expired(now.mono, grace, |relay| {
            let is_first = relay.due == relay.first_due;
            counters.messages_overdue += u64::from(is_first);
            let lives = !peers.suspected().contains(&relay.to) && now.mono.since(relay.first_due) < most;
            let stays = relay.passage.envelope.copies != Copies::Many && (is_first || lives);
            stays.then(|| {
                slow.push(relay.to);
                now.mono + pause
            })
        });
        slow.into_iter().for_each(|id| self.suspect(id));
        expired
    }

    /// Whatever waited for an acknowledgement, a verdict, a receipt or an answer too long.
    pub(super) fn expire_messages(&mut self, now: Now, out: Out<'_, '_>) {
        for relay in self.overdue(now) {
            if now.mono.since(relay.first_due) > self.config.message_timeout
                && relay.passage.envelope.copies != Copies::Many
            {
                // We stood still: all others have given it up.
                self.end(now, &relay.passage.envelope, Outcome::Unknown, out);
                continue;
            }
            self.unanswered(now, relay, false, out);
        }
        for (passage, _) in self.relays.release_expired(now.mono) {
            self.give_up(now, &passage, Failure::NoRoute, out);
        }
        self.expire_inquiries(now, out);
        while let Some((id, question)) = self.questions.expired(now.mono) {
            let outcome = Outcome::Failed { reason: Failure::NoAnswer };
            let receipt = Message::Receipt { id, outcome, hops: question.hops, path: Vec::new() };
            self.give_receipt(now, question.origin, receipt, out);
        }
        while let Some((id, sending)) = self.sendings.expired(now.mono) {
            self.send_again(now, id, sending, out);
        }
    }

    /// Sends a message of ours again, by another way (PA-7a); if that is no longer allowed, what became of it is not
    /// known.
    fn send_again(&mut self, now: Now, id: MessageId, mut sending: Sending, out: Out<'_, '_>) {
        let retries = sending.retries;
        let request = sending.request;
        let Some(mut again) = sending.again.take().filter(|_| retries > 0 && !self.is_stopping()) else {
            return out.reply(request, Reply::Unknown);
        };
        again.attempt = again.attempt.saturating_add(1);
        let (envelope, retries) = ((*again).clone(), retries - 1);
        let due = now.mono + self.config.message_timeout;
        let again = (retries > 0).then_some(again);
        (sending.again, sending.retries, sending.due) = (again, retries, due);
        self.sendings.insert(id, sending);
        self.step(now, Passage::new(envelope, now.mono), Fresh::Yes, out);
    }
}

/// More than an envelope needs besides its payload.
const ENVELOPE_BYTES: usize = 512;

pub(super) fn payload_bytes(envelope: &Envelope) -> usize {
    match &envelope.body {
        Body::App { payload, .. } => payload.len(),
        Body::Join | Body::Trace { .. } => 0,
    }
}
