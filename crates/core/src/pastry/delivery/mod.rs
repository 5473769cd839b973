//! Delivery: forwards messages hop by hop to the owner of their key, and delivers those that this node owns (P-20 …
//! P-26, PA-35, PD-6 … PD-10).
//!
//! A node that acknowledges a message is responsible for it. It delivers it, forwards it, or reports to the origin.
//!
//! | what happens | what the node does |
//! |---|---|
//! | a nack, or a connection that was never established | tries another next hop: the message was certainly not taken |
//! | no acknowledgement in time, or a broken connection | suspects the next hop and reports `Lost` to the origin |
//! | the owner is suspected | defers the message until the prober has a verdict |
//! | the TTL is 0, or more than `reroutes_max` nodes did not take it | reports `HopLimit` or `NoRoute` |
//! | the application settles it | reports `Delivered`, `Kept`, `Refused` or `Busy` |
//!
//! Only the origin retransmits a message. So it knows how many copies there may be, and a message sent `once` has only
//! one (`outstanding.rs`). Limits: at most `relays_max` messages are unacknowledged, and as many deferred; beyond that
//! the node answers with a nack. At most `open_max` messages are open, not settled by their applications; beyond that
//! the owner answers `Busy`. Only the machine calls this part.

mod acks;
mod apps;
mod in_flight;
mod open;
mod origin;
mod outstanding;
mod transit;

use core::time::Duration;
use std::sync::Arc;

use super::config::{Config, Fault};
use super::contact::Contact;
use super::lower::{Cx, Lower};
use super::message::{AppName, Body, Envelope, Failure, Message, MessageId, PathStep, Report};
use super::state_transfer;
use super::tables::{Peer, Rtt, Step};
use super::wire::encode_route;
use super::{Application, Event, Verdict};
use crate::common::RecentIds;
use crate::id::Id;
use crate::pool::Expects;
use crate::tag::StreamId;
use crate::time::Instant;
use acks::Acks;
use apps::{Applications, Consulted};
use in_flight::{Deferred, InFlight, Sent, Unacked};
use open::{Open, OpenTable};
use outstanding::OutstandingTable;
use transit::Transit;

pub(super) use origin::Sending;

/// The longest message whose acknowledgement is a round-trip sample.
const SAMPLE_BYTES_MAX: usize = 4096;
/// When an origin retries a message that found no room here.
const BUSY_AFTER: Duration = Duration::from_millis(100);
/// How long the first messages may take to be settled, until so many were measured: connections must be opened on their way.
const SETTLED_UNMEASURED: Duration = Duration::from_secs(1);
const SETTLED_SAMPLES: u8 = 8;
/// More than an envelope needs besides its payload.
const ENVELOPE_BYTES: usize = 512;

/// The delivery of messages.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Delivery {
    /// Whether this node has joined, and so delivers. It is never unset.
    is_active: bool,
    apps: Applications,
    in_flight: InFlight,
    outstanding: OutstandingTable,
    open: OpenTable,
    /// The messages that applications here accepted last.
    accepted: RecentIds,
    acks: Acks,
    /// How long messages take to be settled, all owners together, and how many were measured.
    rtt: Rtt,
    samples: u8,
}

/// Which message a report is about.
#[derive(Clone, Copy, Debug)]
struct Subject {
    id: MessageId,
    attempt: u16,
    origin: Contact,
    hops: u8,
}

impl Subject {
    fn of(envelope: &Envelope) -> Self {
        let &Envelope { id, attempt, origin, hops, .. } = envelope;
        Self { id, attempt, origin, hops }
    }
}

/// The result of a step of a message.
enum Next {
    /// The next hop certainly did not take it: another one is to be tried.
    Again,
    /// It ended with a report.
    Ended,
    /// This node delivers it.
    Deliver,
    /// It waits.
    Defer(Deferred),
    /// It was sent to the next hop.
    Sent(Sent),
}

impl Delivery {
    /// `key` is a random number that makes the hash unpredictable.
    pub(super) fn new(config: &Config, key: u64) -> Self {
        let mut apps = Applications::default();
        for name in &config.applications {
            apps.register(name.clone());
        }
        Self {
            is_active: false,
            apps,
            in_flight: InFlight::new(config.relays_max),
            outstanding: OutstandingTable::new(config.outstanding_max),
            open: OpenTable::new(config.open_max, config.open_bytes_max, key),
            accepted: RecentIds::new(key, config.window_max),
            acks: Acks::default(),
            rtt: Rtt::default(),
            samples: 0,
        }
    }

    /// Registers a server of an application. Returns false if there is one already.
    pub(super) fn register(&mut self, name: AppName) -> bool {
        self.apps.register(name)
    }

    pub(super) fn register_with(&mut self, name: AppName, application: Arc<dyn Application>) {
        self.apps.register_with(name, application);
    }

    /// Removes the server of an application. Its open messages are reported as lost, since it may have acted on them.
    pub(super) fn unregister(&mut self, cx: &mut Cx<'_, '_>, name: &AppName) {
        self.apps.unregister(name);
        self.lose_open(cx, Some(name));
    }

    /// Begins to collect the acknowledgements for messages of this node, which arrived over this connection.
    pub(super) fn begin_acks(&mut self, from: Contact, over: StreamId) {
        self.acks.begin(from, over);
    }

    /// Sends the collected acknowledgements.
    pub(super) fn send_acks(&mut self, cx: &mut Cx<'_, '_>) {
        if let Some(((to, over), ack)) = self.acks.take() {
            cx.answer(over, to.addr, &ack);
            self.acks.recycle(ack);
        }
    }

    /// Handles a message from another node. Acknowledging it makes this node responsible for it.
    pub(super) fn on_route(
        &mut self,
        cx: &mut Cx<'_, '_>,
        from: Contact,
        transmission: u64,
        envelope: Envelope,
    ) {
        let knows_nobody = !self.is_active && cx.tables().len() == 0;
        if !self.in_flight.has_room() || knows_nobody || cx.lower.env.is_stopping() {
            cx.count().messages_refused += 1;
            let nack = Message::Nack { transmission };
            match self.acks.over() {
                Some(over) => cx.answer(over, from.addr, &nack),
                None => cx.send(from.addr, &nack),
            };
            return;
        }
        self.acks.push(transmission);
        if envelope.body == Body::Join {
            cx.count().joins_seen += 1;
            if envelope.origin.id == cx.own().id {
                return state_transfer::reject_duplicate_id(cx, envelope.origin);
            }
        }
        self.route(cx, Transit::new(envelope));
    }

    /// Handles an Ack of another node. `delivered` are messages of this node that the other node settled at once.
    pub(super) fn on_acks(
        &mut self,
        cx: &mut Cx<'_, '_>,
        from: Contact,
        transmissions: &[u64],
        delivered: &[MessageId],
    ) {
        let mut is_acked = false;
        for &transmission in transmissions {
            let Some(unacked) = self.in_flight.get(transmission, &from) else { continue };
            if unacked.connected && unacked.transit.payload_bytes() < SAMPLE_BYTES_MAX {
                // P-5: every exchange is a sample.
                cx.lower.tables.add_sample(from.id, cx.now.mono.since(unacked.sent));
            }
            self.in_flight.end(transmission);
            is_acked = true;
        }
        if is_acked {
            cx.clear_suspicion(from.id);
        }
        for &id in delivered {
            match self.outstanding.was_sent_to(id, from.id) {
                Some(true) => {
                    let attempt = self.outstanding.get(id).map_or(0, |at| at.envelope.attempt);
                    self.on_report(cx, from, (id, attempt, 1), Report::Delivered { answer: None });
                }
                // That node never got the message from this one.
                Some(false) => cx.count().refused += 1,
                None => {}
            }
        }
    }

    /// Handles a Nack. Returns false if the transmission is none of these messages.
    pub(super) fn on_nack(&mut self, cx: &mut Cx<'_, '_>, from: Contact, transmission: u64) -> bool {
        let Some(unacked) = self.in_flight.take(transmission, &from) else { return false };
        self.reroute(cx, unacked);
        true
    }

    /// Handles a broken connection. If it certainly never carried anything, its messages take another path; else they
    /// are lost.
    pub(super) fn on_connection_lost(&mut self, cx: &mut Cx<'_, '_>, stream: StreamId, never_sent: bool) {
        for unacked in self.in_flight.drain(|unacked| unacked.stream == stream) {
            cx.suspect(unacked.to);
            if never_sent {
                self.reroute(cx, unacked);
            } else {
                self.lose(cx, unacked);
            }
        }
    }

    /// Handles a node that is away or was removed. Messages sent to it are lost; messages deferred for it go elsewhere.
    pub(super) fn on_unreachable(&mut self, cx: &mut Cx<'_, '_>, id: Id) {
        for unacked in self.in_flight.drain(|unacked| unacked.to == id) {
            self.lose(cx, unacked);
        }
        self.resume(cx, Deferred::UntilVerdict(id));
    }

    /// Resumes messages for a node that recovered.
    pub(super) fn on_recovered(&mut self, cx: &mut Cx<'_, '_>, id: Id) {
        self.resume(cx, Deferred::UntilVerdict(id));
    }

    /// Begins to deliver: the join is complete.
    pub(super) fn on_activated(&mut self, cx: &mut Cx<'_, '_>) {
        self.is_active = true;
        self.resume(cx, Deferred::UntilActive);
    }

    /// Settles open messages. Returns how many of them were open.
    pub(super) fn settle(&mut self, cx: &mut Cx<'_, '_>, verdicts: Vec<(MessageId, Verdict)>) -> usize {
        let mut settled = 0;
        for (id, verdict) in verdicts {
            let Some(open) = self.open.take(id) else { continue };
            let Open { attempt, origin, hops, wants_answer, .. } = open;
            self.conclude(cx, Subject { id, attempt, origin, hops }, wants_answer, verdict);
            settled += 1;
        }
        settled
    }

    /// Handles all deadlines that have passed.
    pub(super) fn expire(&mut self, cx: &mut Cx<'_, '_>) {
        for unacked in self.in_flight.expired(cx.now.mono) {
            cx.count().messages_overdue += 1;
            cx.lower.tables.back_off(unacked.to);
            cx.suspect(unacked.to);
            self.lose(cx, unacked);
        }
        for transit in self.in_flight.resume_expired(cx.now.mono) {
            self.fail(cx, &transit.envelope, Failure::NoRoute);
        }
        self.open.expire(cx.now.mono);
        self.expire_outstanding(cx);
    }

    /// Stops: fails deferred messages, reports open ones as lost, and ends those of this node.
    pub(super) fn stop(&mut self, cx: &mut Cx<'_, '_>) {
        for transit in self.in_flight.resume_all() {
            self.fail(cx, &transit.envelope, Failure::NoRoute);
        }
        self.lose_open(cx, None);
        self.end_outstanding(cx);
    }

    /// The deadlines of messages in flight, of own messages, and of open ones.
    pub(super) fn deadlines(&self) -> [Option<Instant>; 3] {
        [self.in_flight.deadline(), self.outstanding.deadline(), self.open.deadline()]
    }

    /// Routes a message as far as it goes now.
    fn route(&mut self, cx: &mut Cx<'_, '_>, mut transit: Transit) {
        loop {
            match self.step(cx, &mut transit) {
                Next::Again => {}
                Next::Ended => return,
                Next::Deliver => return self.deliver(cx, transit.envelope),
                Next::Defer(why) => return self.defer(cx, transit, why),
                Next::Sent(sent) => return self.in_flight.insert(transit, sent),
            }
        }
    }

    /// Takes the next step with a message (P-20).
    fn step(&mut self, cx: &mut Cx<'_, '_>, transit: &mut Transit) -> Next {
        if transit.tries > cx.config().reroutes_max {
            return self.end(cx, transit, Failure::NoRoute);
        }
        let Transit { envelope, tried, .. } = &*transit;
        let absent = transit.is_join().then_some(envelope.origin.id);
        let Lower { env, tables, .. } = &mut *cx.lower;
        let step = if envelope.attempt == 0 {
            tables.next_hop(envelope.key, tried, absent)
        } else {
            tables.next_hop_at_random(envelope.key, tried, absent, env.rng())
        };
        if step != Step::Deliver && transit.is_join() && !transit.is_reported {
            // P-29: the joiner gets this node's state.
            transit.is_reported = true;
            state_transfer::send_join_state(cx, &transit.envelope, false);
        }
        match step {
            Step::Deliver => self.arrive(cx, transit),
            Step::Forward { to, .. } => self.forward(cx, transit, to),
            Step::Blocked { by } => {
                cx.suspect(by);
                Next::Defer(Deferred::UntilVerdict(by))
            }
        }
    }

    /// Handles a message at its owner.
    fn arrive(&mut self, cx: &mut Cx<'_, '_>, transit: &mut Transit) -> Next {
        if !self.is_active && !transit.is_join() {
            // PA-19: the ring may route our keys here before this node knows the ring. A join is answered even so: else
            // two joiners that own each other's ids would wait for ever.
            return Next::Defer(Deferred::UntilActive);
        }
        if transit.envelope.to_node && transit.envelope.key != cx.own().id {
            return self.end(cx, transit, Failure::NoSuchNode);
        }
        match self.consult(cx, &mut transit.envelope, None) {
            Consulted::Stopped => self.end(cx, transit, Failure::Stopped),
            Consulted::Changed { next: Some(next) } if next != cx.own().id => {
                self.transmit(cx, transit, next)
            }
            Consulted::Changed { .. } | Consulted::Unchanged => Next::Deliver,
        }
    }

    /// Forwards a message to another node.
    fn forward(&mut self, cx: &mut Cx<'_, '_>, transit: &mut Transit, to: Id) -> Next {
        match self.consult(cx, &mut transit.envelope, Some(to)) {
            Consulted::Stopped => self.end(cx, transit, Failure::Stopped),
            Consulted::Changed { next: Some(next) } if next == cx.own().id => Next::Deliver,
            Consulted::Changed { next: Some(next) } => self.transmit(cx, transit, next),
            Consulted::Changed { next: None } | Consulted::Unchanged => self.transmit(cx, transit, to),
        }
    }

    /// Calls the application for a message on its path (N-8).
    fn consult(&mut self, cx: &mut Cx<'_, '_>, envelope: &mut Envelope, next: Option<Id>) -> Consulted {
        let bytes_max = payload_bytes_max(cx.config());
        let (own, tables) = (cx.own().id, &cx.lower.tables);
        let is_possible = |id: Id| id == own || tables.contact(id).is_some();
        let consulted = self.apps.consult(envelope, next, bytes_max, is_possible);
        cx.count().messages_intercepted += u64::from(consulted != Consulted::Unchanged);
        consulted
    }

    fn deliver(&mut self, cx: &mut Cx<'_, '_>, envelope: Envelope) {
        let subject = Subject::of(&envelope);
        match envelope.body {
            Body::Join => state_transfer::send_join_state(cx, &envelope, true),
            Body::Trace { mut path } => {
                path.push(PathStep { contact: cx.own(), rtt_micros: None });
                self.report(cx, subject, Report::Traced { path });
            }
            Body::App { .. } => self.deliver_to_application(cx, envelope),
        }
    }

    fn deliver_to_application(&mut self, cx: &mut Cx<'_, '_>, envelope: Envelope) {
        let subject = Subject::of(&envelope);
        let Subject { id, attempt, origin, hops } = subject;
        let Body::App { app, wants_answer, payload } = &envelope.body else { return };
        let (wants_answer, bytes) = (*wants_answer, payload.len());
        let due = cx.now.mono + Duration::from_millis(envelope.lifetime_millis.into());
        if !self.apps.contains(app) {
            return self.fail(cx, &envelope, Failure::NoApplication);
        }
        if self.open.note_duplicate(id, attempt, due) {
            cx.count().duplicates_dropped += 1;
            return;
        }
        if !wants_answer && self.accepted.contains(id.0) {
            cx.count().duplicates_dropped += 1;
            return self.confirm(cx, subject);
        }
        let verdict = self.apps.deliver(&envelope);
        if verdict.is_none() && !self.apps.is_served(app) {
            // PD-8: the code inside the machine leaves it to a server, and there is none.
            return self.fail(cx, &envelope, Failure::NoApplication);
        }
        if verdict.is_none() && !self.open.has_room(bytes) {
            cx.count().messages_refused += 1;
            return self.conclude(cx, subject, wants_answer, Verdict::Busy(BUSY_AFTER));
        }
        if let Some(verdict @ (Verdict::Busy(_) | Verdict::Refuse(_))) = verdict {
            return self.conclude(cx, subject, wants_answer, verdict);
        }
        let Envelope { key, body: Body::App { app, payload, .. }, .. } = envelope else { return };
        if verdict.is_none() {
            let app = app.clone();
            self.open.insert(id, Open { app, origin, attempt, hops, wants_answer, bytes, due });
        }
        let is_settled = verdict.is_some();
        let payload = payload.into();
        cx.out.event(Event::Delivered {
            id,
            attempt,
            origin,
            app,
            key,
            payload,
            hops,
            wants_answer,
            is_settled,
        });
        let is_early = cx.config().has(Fault::ReportBeforeSettled);
        if let Some(verdict) = verdict.or(is_early.then_some(Verdict::Accept)) {
            self.conclude(cx, subject, wants_answer, verdict);
        }
    }

    /// Reports the verdict of the application.
    fn conclude(&mut self, cx: &mut Cx<'_, '_>, subject: Subject, wants_answer: bool, verdict: Verdict) {
        match verdict {
            Verdict::Answer(answer) if wants_answer => {
                self.accepted.insert(subject.id.0);
                cx.count().messages_delivered += 1;
                self.report(cx, subject, Report::Delivered { answer: Some(answer.into()) });
            }
            Verdict::Accept | Verdict::Answer(_) => {
                self.accepted.insert(subject.id.0);
                cx.count().messages_delivered += 1;
                self.confirm(cx, subject);
            }
            Verdict::Keep => {
                cx.count().messages_delivered += 1;
                self.report(cx, subject, Report::Kept);
            }
            Verdict::Refuse(reason) => self.report(cx, subject, Report::Refused { reason }),
            Verdict::Busy(after) => {
                self.report(cx, subject, Report::Busy { after_millis: outstanding::millis(after) });
            }
        }
    }

    /// Reports that a message was accepted, with the acknowledgement if that goes to its origin.
    fn confirm(&mut self, cx: &mut Cx<'_, '_>, subject: Subject) {
        if !self.acks.confirm(subject.id, &subject.origin, subject.hops) {
            self.report(cx, subject, Report::Delivered { answer: None });
        }
    }

    /// Sends a message to the next hop.
    fn transmit(&mut self, cx: &mut Cx<'_, '_>, transit: &mut Transit, to: Id) -> Next {
        if transit.envelope.ttl == 0 {
            return self.end(cx, transit, Failure::HopLimit);
        }
        let Some(&Peer { contact, rtt, .. }) = cx.tables().peer(to) else {
            transit.refused_by(to);
            return Next::Again;
        };
        let nonce = cx.lower.env.rng().next_u32();
        let transmission = self.in_flight.next(nonce);
        // The envelope is changed for the next hop and changed back: a copy would cost more.
        let own = cx.own();
        let envelope = &mut transit.envelope;
        let unchanged = (envelope.ttl, envelope.hops);
        envelope.ttl -= 1;
        envelope.hops = envelope.hops.saturating_add(1);
        if let Body::Trace { path } = &mut envelope.body {
            let rtt_micros = Some(rtt.score().0).filter(|&rtt| rtt != u32::MAX);
            path.push(PathStep { contact: own, rtt_micros });
        }
        let Lower { env, transport, .. } = &mut *cx.lower;
        let now = cx.now.mono;
        let taken = transport.send_with(
            env,
            now,
            (contact.addr, Expects::Reply),
            |writer| encode_route(transmission, envelope, writer),
            cx.out,
        );
        (envelope.ttl, envelope.hops) = unchanged;
        if let Body::Trace { path } = &mut envelope.body {
            path.pop();
        }
        let Some(taken) = taken else {
            transit.refused_by(to);
            return Next::Again;
        };
        cx.count().messages_forwarded += 1;
        // A long message takes longer: one megabyte per second is assumed. A connection that must be opened first costs
        // another round trip.
        let long = Duration::from_micros(transit.payload_bytes() as u64);
        let hop = cx.tables().ack_timeout_of(rtt);
        let timeout = if taken.connected { hop } else { hop * 2 } + long;
        if unchanged.1 == 0 && transit.envelope.origin == own {
            // A loss on the way is reported; this is for reports that are lost themselves.
            let measured = self.rtt.timeout().filter(|_| self.samples >= SETTLED_SAMPLES);
            let settled = measured.map_or(SETTLED_UNMEASURED, |settled| settled.max(hop) * 2);
            self.outstanding.sent(transit.envelope.id, to, now, settled + long * 2);
        }
        Next::Sent(Sent { nonce, to: contact, taken, at: now, timeout })
    }

    /// Tries another next hop: this one certainly did not take the message.
    fn reroute(&mut self, cx: &mut Cx<'_, '_>, unacked: Unacked) {
        let Unacked { mut transit, to, .. } = unacked;
        cx.count().messages_rerouted += 1;
        transit.refused_by(to);
        self.route(cx, transit);
    }

    /// Reports a message as lost: the next hop may have taken it. The origin retries it, if it may. A join may be
    /// repeated.
    fn lose(&mut self, cx: &mut Cx<'_, '_>, unacked: Unacked) {
        if unacked.transit.is_join() {
            return self.reroute(cx, unacked);
        }
        cx.count().messages_lost += 1;
        self.report(cx, Subject::of(&unacked.transit.envelope), Report::Lost);
    }

    fn lose_open(&mut self, cx: &mut Cx<'_, '_>, app: Option<&AppName>) {
        for (id, Open { attempt, origin, hops, .. }) in self.open.take_of(app) {
            self.report(cx, Subject { id, attempt, origin, hops }, Report::Lost);
        }
    }

    fn defer(&mut self, cx: &mut Cx<'_, '_>, transit: Transit, why: Deferred) {
        let due = cx.now.mono + Duration::from_millis(transit.envelope.lifetime_millis.into());
        if let Some(transit) = self.in_flight.defer(transit, why, due) {
            self.fail(cx, &transit.envelope, Failure::Busy);
        }
    }

    /// Routes the messages that were deferred for this reason.
    fn resume(&mut self, cx: &mut Cx<'_, '_>, why: Deferred) {
        for mut transit in self.in_flight.resume(why) {
            transit.tried.clear();
            self.route(cx, transit);
        }
    }

    /// Ends a message that goes no further.
    fn end(&mut self, cx: &mut Cx<'_, '_>, transit: &Transit, why: Failure) -> Next {
        self.fail(cx, &transit.envelope, why);
        Next::Ended
    }

    /// Fails an attempt before an application saw it.
    fn fail(&mut self, cx: &mut Cx<'_, '_>, envelope: &Envelope, why: Failure) {
        cx.count().messages_failed += 1;
        if envelope.body != Body::Join {
            self.report(cx, Subject::of(envelope), Report::Failed { why });
        }
    }

    /// Reports the result of an attempt to the origin.
    fn report(&mut self, cx: &mut Cx<'_, '_>, subject: Subject, report: Report) {
        let Subject { id, attempt, origin, hops } = subject;
        if origin.id == cx.own().id {
            self.on_report(cx, cx.own(), (id, attempt, hops), report);
        } else {
            cx.send(origin.addr, &Message::Receipt { id, attempt, hops, report });
        }
    }
}

/// The longest payload.
fn payload_bytes_max(config: &Config) -> usize {
    config.message_bytes_max.saturating_sub(ENVELOPE_BYTES)
}
