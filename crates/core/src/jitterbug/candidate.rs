//! The candidate: what we say to a token on offer, and the one step in which we take it.

use std::net::IpAddr;

use super::Event;
use super::application::Application;
use super::incoming::{Answer, Arrived, CREDIT, OFFER_CREDIT};
use super::lead::Line;
use super::machine::{Jitterbug, Out, State};
use super::message::TokenId;
use super::start::Stage;
use super::wire::Kind;
use crate::machine::Refusal;
use crate::stream::StreamEvent;
use crate::tag::StreamId;
use crate::time::Now;
use crate::wire::DecodeError;

impl<A: Application> Jitterbug<A> {
    /// News of a stream that a peer opened.
    pub(super) fn incoming(
        &mut self,
        now: Now,
        stream: StreamId,
        event: StreamEvent<'_>,
        out: Out<'_, '_, A>,
    ) -> Result<(), Refusal> {
        match event {
            StreamEvent::Accepted { from, .. } => self.accepted(now, stream, from.ip().to_canonical(), out),
            StreamEvent::Data(bytes) => self.heard(now, stream, bytes, out),
            StreamEvent::Finished => self.arrived(now, stream, out),
            StreamEvent::Closed(_) => {
                self.incomings.forget(stream);
                Ok(())
            }
            StreamEvent::Connected { .. } | StreamEvent::Sent { .. } => Ok(()),
        }
    }

    /// Whether we would take this token from there, now (JA-30).
    fn takes(&self, token: TokenId, from: IpAddr) -> bool {
        let State::Leader(lead) = &self.state else { return true };
        if !lead.has_room() {
            return false;
        }
        match lead.pass() {
            None => true,
            // Equal ids that pass to each other would refuse each other for ever. Both know both addresses: the lower
            // one takes, the higher one gives.
            Some(_) if token == self.token => from > self.config.addr.to_canonical(),
            Some(_) => token > self.token,
        }
    }

    fn accepted(
        &mut self,
        now: Now,
        stream: StreamId,
        from: IpAddr,
        out: Out<'_, '_, A>,
    ) -> Result<(), Refusal> {
        let deadline = now.mono + self.config.pass_timeout;
        let welcome = self.stage == Stage::Running && self.config.allows(from);
        if !welcome || !self.incomings.accept(stream, from, deadline) {
            self.counters.refused += 1;
            out.abort(stream);
            return Err(Refusal::Reject("no stream is taken from there now"));
        }
        out.read(stream, OFFER_CREDIT);
        Ok(())
    }

    fn heard(
        &mut self,
        now: Now,
        stream: StreamId,
        bytes: &[u8],
        out: Out<'_, '_, A>,
    ) -> Result<(), Refusal> {
        // Taken out for the call, for the answer to the offer depends on the rest of the node.
        let mut incomings = core::mem::replace(&mut self.incomings, super::incoming::Incomings::new(0, 0));
        let took = incomings.push(stream, bytes, self.list.hash(), |token, from| self.takes(token, from));
        self.incomings = incomings;
        let took = took.map_err(|error| self.refuse_stream(stream, error, out))?;
        match took.answer {
            Some(Answer::SendList) => out.write(stream, &[Kind::Tp2.byte()]),
            Some(Answer::SameList) => out.write(stream, &[Kind::Tp3.byte()]),
            Some(Answer::Refused) => {
                self.counters.offers_refused += 1;
                out.finish(stream);
            }
            None => {}
        }
        // JA-46: a valid TP1 is what a waiter waits for.
        if took.answer.is_some() && matches!(self.state, State::Waiter { .. }) {
            self.state = State::Waiter { renew_at: now.mono + self.renew() };
        }
        if self.incomings.wants_more(stream) {
            out.read(stream, if took.answer.is_some() { CREDIT } else { bytes.len() });
        }
        Ok(())
    }

    /// The FIN: the token is whole, or it never was one (JA-33a).
    fn arrived(&mut self, now: Now, stream: StreamId, out: Out<'_, '_, A>) -> Result<(), Refusal> {
        let arrived = match self.incomings.finish(stream) {
            None => return Ok(()),
            Some(Ok(arrived)) if self.app.accepts(&arrived.data) => arrived,
            Some(Ok(_)) => return Err(self.refuse_stream(stream, DecodeError::Field("data"), out)),
            Some(Err(error)) => return Err(self.refuse_stream(stream, error, out)),
        };
        out.finish(stream);
        if self.stage != Stage::Running || !self.takes(arrived.token, arrived.from) {
            // JA-30a: while it came, ours went on its way, and ours is the better one.
            self.counters.tokens_discarded += 1;
            out.event(Event::TokenDiscarded { token_id: arrived.token });
            return Ok(());
        }
        self.commit(now, arrived, out);
        Ok(())
    }

    /// Takes a token over, in one step: list, id, data, state (JA-34).
    fn commit(&mut self, now: Now, arrived: Arrived, out: Out<'_, '_, A>) {
        let Arrived { from, token, list, data } = arrived;
        self.abort_pass(out);
        if let Some(list) = list {
            let old = core::mem::replace(&mut self.list, list);
            for node in old.nodes().iter().filter(|node| !self.list.contains(node.host_id)) {
                self.add_set.retain(*node);
            }
        }
        self.check_own_entry(out);
        // JA-44: who brings a token lives.
        let alive: Vec<_> = self.list.at_ip(from).collect();
        alive.into_iter().for_each(|host_id| self.penalties.clear(host_id));
        let own = core::mem::replace(&mut self.token, token);
        let leading = matches!(self.state, State::Leader(_));
        if leading {
            self.counters.tokens_coalesced += 1;
        } else {
            self.lead(now, None, out);
        }
        if own == token && !leading {
            self.data = data;
            self.known_at = now.mono;
        } else {
            // JA-31: a leader merges even its own id, or one side's progress would be lost.
            self.join_line(Line { own, received: token, data }, out);
        }
        if !leading {
            self.watch_for_twin(now);
        }
        self.proceed(now, out);
    }

    /// We are in our own add-set, unless the list has us where we are (JA-35, JA-36).
    fn check_own_entry(&mut self, out: Out<'_, '_, A>) {
        let own = self.own_entry();
        match self.list.addr(own.host_id) {
            Some(addr) if addr == own.addr => return,
            Some(addr) if addr.ip() != own.addr.ip() => self.report_duplicate(addr, out),
            _ => {}
        }
        self.add_set.remember(own);
    }

    fn refuse_stream(&mut self, stream: StreamId, error: DecodeError, out: Out<'_, '_, A>) -> Refusal {
        self.counters.malformed += 1;
        self.incomings.forget(stream);
        out.abort(stream);
        error.into()
    }
}
