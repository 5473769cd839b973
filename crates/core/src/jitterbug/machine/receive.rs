//! The candidate: the answer to an offered token, and the one step that takes it (JA-34).

use std::net::IpAddr;

use super::super::Event;
use super::super::application::Application;
use super::super::lower::Transition;
use super::super::message::TokenId;
use super::super::records::{Arrived, Branch};
use super::super::role::Role;
use super::super::streams::{Answer, CREDIT, OFFER_CREDIT};
use super::super::wire::Kind;
use super::start::Stage;
use super::{Jitterbug, Out};
use crate::machine::Refusal;
use crate::stream::StreamEvent;
use crate::tag::StreamId;
use crate::time::Now;
use crate::wire::DecodeError;

impl<A: Application> Jitterbug<A> {
    /// Handles an event of a stream that a peer opened.
    pub(super) fn on_incoming(
        &mut self,
        now: Now,
        stream: StreamId,
        event: &StreamEvent<'_>,
        out: Out<'_, '_, A>,
    ) -> Result<(), Refusal> {
        if !matches!(event, StreamEvent::Closed(_)) && self.lower.streams.is_over(stream, now.mono) {
            // TU-42: a token that waited in the kernel longer than a pass may take can have been restored meanwhile.
            self.lower.env.count().streams_expired += 1;
            self.lower.streams.forget(stream);
            out.abort(stream);
            return Err(Refusal::Reject("the pass took too long"));
        }
        match *event {
            StreamEvent::Accepted { from, .. } => {
                self.on_accepted(now, stream, from.ip().to_canonical(), out)
            }
            StreamEvent::Data(bytes) => self.on_bytes(now, stream, bytes, out),
            StreamEvent::Finished => self.on_fin(now, stream, out),
            StreamEvent::Closed(_) => {
                self.lower.streams.forget(stream);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn on_accepted(
        &mut self,
        now: Now,
        stream: StreamId,
        from: IpAddr,
        out: Out<'_, '_, A>,
    ) -> Result<(), Refusal> {
        let config = self.lower.env.config();
        let deadline = now.mono + config.pass_timeout;
        let welcome = self.stage == Stage::Running && config.allows(from);
        if !welcome || !self.lower.streams.accept(stream, from, deadline) {
            self.lower.env.count().refused += 1;
            out.abort(stream);
            return Err(Refusal::Reject("no stream is taken from there now"));
        }
        out.read(stream, OFFER_CREDIT);
        Ok(())
    }

    fn on_bytes(
        &mut self,
        now: Now,
        stream: StreamId,
        bytes: &[u8],
        out: Out<'_, '_, A>,
    ) -> Result<(), Refusal> {
        let (role, lower) = (&self.role, &mut self.lower);
        let (own, addr) = (lower.token.id(), lower.env.config().addr.to_canonical());
        let takes = |token: TokenId, from: IpAddr| takes(role, own, addr, token, from);
        let answer = lower.streams.push(stream, bytes, lower.ring.list().hash(), takes);
        let answer = answer.map_err(|error| self.refuse(stream, error, out))?;
        match answer {
            Some(Answer::SendList) => out.write(stream, &[Kind::Tp2.byte()]),
            Some(Answer::SameList) => out.write(stream, &[Kind::Tp3.byte()]),
            Some(Answer::Refused) => {
                self.lower.env.count().offers_refused += 1;
                out.finish(stream);
            }
            None => {}
        }
        let from = self.lower.streams.source(stream);
        let is_foreign = from.is_some_and(|from| self.lower.ring.is_foreign(now.mono, from));
        if let (Some(_), false, Role::Waiter(waiter)) = (answer, is_foreign, &mut self.role) {
            waiter.offered(now.mono, self.lower.ring.renew(self.lower.env.config()));
        }
        if self.lower.streams.wants_more(stream) {
            out.read(stream, if answer.is_some() { CREDIT } else { bytes.len() });
        }
        Ok(())
    }

    /// Handles the FIN: the token is complete, or it never was one (JA-33a).
    fn on_fin(&mut self, now: Now, stream: StreamId, out: Out<'_, '_, A>) -> Result<(), Refusal> {
        let arrived = match self.lower.streams.finish(stream) {
            None => return Ok(()),
            Some(Ok(arrived)) if self.lower.token.accepts(&arrived.data) => arrived,
            Some(Ok(arrived)) => {
                let host_id = self.lower.ring.list().at_ip(arrived.from).next();
                if self.lower.env.refused_token(arrived.from) {
                    out.event(Event::TokenRefused { from: arrived.from, host_id });
                }
                let refusal = self.refuse(stream, DecodeError::Field("data"), out);
                if !self.lower.token.is_foreign(&arrived.data) {
                    return Err(refusal);
                }
                self.found_foreign(now, arrived.from, out);
                return Ok(());
            }
            Some(Err(error)) => return Err(self.refuse(stream, error, out)),
        };
        out.finish(stream);
        let (own, addr) = (self.lower.token.id(), self.lower.env.config().addr.to_canonical());
        if self.stage != Stage::Running || !takes(&self.role, own, addr, arrived.token, arrived.from) {
            // JA-30a: while it arrived, this node began to pass its own token, which is the better one.
            self.lower.env.count().tokens_discarded += 1;
            out.event(Event::TokenDiscarded { token_id: arrived.token });
            return Ok(());
        }
        self.commit(now, arrived, out);
        Ok(())
    }

    /// A node of another application leads (JA-32c). No holder of ours denied it that, so ours may be lost behind it, and only
    /// the nodes that it passes to know.
    fn found_foreign(&mut self, now: Now, from: IpAddr, out: Out<'_, '_, A>) {
        self.lower.ring.found_foreign(now.mono, from);
        if self.stage == Stage::Running && matches!(self.role, Role::Waiter(_)) {
            self.follow(now, Some(Transition::Orphan), out);
        }
    }

    /// Takes a token over, in one step: list, id, data, role.
    fn commit(&mut self, now: Now, arrived: Arrived, out: Out<'_, '_, A>) {
        let Arrived { from, token, list, data } = arrived;
        let (role, mut cx) = self.split(now, &mut *out);
        if let Some(tenure) = role.leader() {
            tenure.abort(&mut cx);
        }
        if let Some(conflict) = cx.lower.ring.adopt(list, from, cx.lower.env.own_entry()) {
            cx.out.event(conflict);
        }
        let own = cx.lower.token.id();
        cx.lower.token.set_id(token);
        let was_leader = role.is_leader();
        if was_leader {
            cx.lower.env.count().tokens_coalesced += 1;
        } else {
            self.enter_leader(now, None, &mut *out);
        }
        let (role, mut cx) = self.split(now, &mut *out);
        let Role::Leader(tenure) = role else { return };
        if own == token && !was_leader {
            cx.lower.token.replace_data(now.mono, data);
        } else {
            // JA-31: a leader merges even its own id, or the progress of one side would be lost.
            tenure.merge_branch(&mut cx, Branch { own, received: token, data });
        }
        let (env, ring) = (&mut cx.lower.env, &mut cx.lower.ring);
        if !was_leader && let Some(wait) = ring.duplicate_wait(now.mono, token, env.config()) {
            env.count().duplicates_awaited += 1;
            tenure.await_duplicate(now.mono, wait);
        }
        let next = tenure.advance(&mut cx);
        self.follow(now, next, out);
    }

    fn refuse(&mut self, stream: StreamId, error: DecodeError, out: Out<'_, '_, A>) -> Refusal {
        self.lower.env.count().malformed += 1;
        self.lower.streams.forget(stream);
        out.abort(stream);
        error.into()
    }
}

/// Whether this node would take this token from that address now (JA-30).
fn takes(role: &Role, own: TokenId, addr: IpAddr, token: TokenId, from: IpAddr) -> bool {
    match role {
        Role::Leader(tenure) => tenure.takes(own, addr, token, from),
        Role::Orphan(_) | Role::Waiter(_) => true,
    }
}
