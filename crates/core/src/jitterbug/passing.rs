//! token_pass: the round over the candidates, and the streams on which the token goes out.

use std::net::SocketAddr;

use super::application::Application;
use super::graph::What;
use super::lead::Step;
use super::machine::{Jitterbug, Out, State};
use super::message::{Message, NodeEntry};
use super::pass::{Pass, Piece};
use super::wire::{ENTRY_BYTES_MAX, Kind, TP1_BYTES, TP4_BYTES, encode};
use super::{Event, PassFailure};
use crate::machine::Refusal;
use crate::stream::StreamEvent;
use crate::tag::StreamId;
use crate::time::{Now, micros};
use crate::wire::{DecodeError, Writer};

impl<A: Application> Jitterbug<A> {
    /// The list takes in who waited, and the first candidate is tried.
    pub(super) fn start_round(&mut self, now: Now, out: Out<'_, '_, A>) {
        self.grow_list(out);
        let State::Leader(lead) = &mut self.state else { return };
        lead.seen = 0;
        self.next_candidate(now, out);
    }

    /// News of a stream that we opened.
    pub(super) fn outgoing(
        &mut self,
        now: Now,
        stream: StreamId,
        event: StreamEvent<'_>,
        out: Out<'_, '_, A>,
    ) -> Result<(), Refusal> {
        let pass = match &mut self.state {
            State::Leader(lead) => lead.pass_mut().filter(|pass| pass.stream == stream),
            State::Orphan(_) | State::Waiter { .. } => None,
        };
        let Some(pass) = pass else {
            if let StreamEvent::Closed(_) = event {
                self.lingering.remove(&stream);
            }
            return Ok(());
        };
        match event {
            StreamEvent::Data(bytes) if pass.is_offered() => return self.offer_answered(now, bytes, out),
            StreamEvent::Sent { bytes, fin } => {
                if pass.sent(bytes, fin) {
                    self.passed(now, out);
                } else {
                    self.write_on(out);
                }
            }
            // Before TP2 or TP3 this is a no; after them the candidate has just nothing more to say.
            StreamEvent::Finished if pass.is_offered() => {
                out.abort(stream);
                self.failed(now, PassFailure::Refused, out);
            }
            StreamEvent::Closed(_) => self.failed(now, PassFailure::Broken, out),
            _ => {}
        }
        Ok(())
    }

    /// The attempt's time is over.
    pub(super) fn time_out(&mut self, now: Now, out: Out<'_, '_, A>) {
        self.abort_pass(out);
        self.failed(now, PassFailure::TimedOut, out);
    }

    /// Undoes an attempt: until the FIN is with the kernel, a reset makes that it never was (JA-33).
    pub(super) fn abort_pass(&mut self, out: Out<'_, '_, A>) {
        if let State::Leader(lead) = &self.state
            && let Some(pass) = lead.pass()
        {
            out.abort(pass.stream);
        }
    }

    /// The node stops: one round with the data as it is (JA-52).
    pub(super) fn pass_and_go(&mut self, now: Now, out: Out<'_, '_, A>) {
        let State::Leader(lead) = &mut self.state else { return };
        if lead.pass().is_none() {
            lead.give_up_work();
            self.start_round(now, out);
        }
    }

    fn grow_list(&mut self, out: Out<'_, '_, A>) {
        let applied = self.add_set.apply(&mut self.list, &mut self.penalties);
        applied.added.iter().for_each(|&node| out.event(Event::NodeAdded { node }));
        applied.moved.iter().for_each(|&node| out.event(Event::NodeMoved { node }));
        let (renew_timeout, nodes) = (self.renew(), self.list.len());
        // JA-28b: told when it begins to matter, and then at every doubling.
        if renew_timeout > self.config.renew_timeout
            && (self.renew_told == self.config.renew_timeout || renew_timeout >= 2 * self.renew_told)
        {
            self.renew_told = renew_timeout;
            out.event(Event::RenewRaised { renew_timeout_micros: micros(renew_timeout), nodes });
        }
    }

    /// Tries the next candidate that is allowed (J-78 … J-84); if there is none, waits (JA-40).
    fn next_candidate(&mut self, now: Now, out: Out<'_, '_, A>) {
        let State::Leader(lead) = &mut self.state else { return };
        while let Some(node) = self.list.candidate(self.host_id, lead.seen) {
            lead.seen += 1;
            if self.penalties.allow(node.host_id) {
                return self.offer(now, node, out);
            }
        }
        if self.stage.is_ending() {
            return self.become_waiter(now, out);
        }
        lead.step = Step::Idle { until: now.mono + self.config.tr_interval };
    }

    fn offer(&mut self, now: Now, node: NodeEntry, out: Out<'_, '_, A>) {
        let State::Leader(lead) = &mut self.state else { return };
        let stream = self.numbers.stream();
        let to = SocketAddr::new(node.addr.ip().to_canonical(), node.addr.port());
        // JA-44b: the candidate knows us by the address we dial from.
        let from = Some(self.config.addr).filter(|ip| ip.is_ipv4() == to.is_ipv4());
        out.open(stream, to, from);
        let offer = Message::Tp1 { token_id: self.token.held(), node_list_hash: self.list.hash() };
        out.write_with(stream, TP1_BYTES, |writer| encode(&offer, writer)).expect("a TP1 has its length");
        out.read(stream, 1);
        let deadline = now.mono + self.config.pass_timeout;
        lead.step = Step::Passing(Pass::new(stream, node, deadline, TP1_BYTES));
    }

    /// The candidate says TP2 or TP3, or something else.
    fn offer_answered(&mut self, now: Now, bytes: &[u8], out: Out<'_, '_, A>) -> Result<(), Refusal> {
        let State::Leader(lead) = &mut self.state else { return Ok(()) };
        let Some(pass) = lead.pass_mut() else { return Ok(()) };
        let answer = match bytes {
            [byte] => Kind::of(*byte),
            _ => Err(DecodeError::Trailing),
        };
        let mut head = Vec::new();
        match answer {
            Ok(Kind::Tp3) => {}
            Ok(Kind::Tp2) => {
                let nodes = self.list.nodes().to_vec();
                let bytes_max = TP4_BYTES + ENTRY_BYTES_MAX * nodes.len();
                encode(&Message::Tp4 { nodes }, &mut Writer::new(&mut head, bytes_max));
            }
            other => {
                self.counters.malformed += 1;
                out.abort(pass.stream);
                self.failed(now, PassFailure::Malformed, out);
                return Err(other.err().unwrap_or(DecodeError::Kind).into());
            }
        }
        head.push(Kind::Tp5.byte());
        pass.accepted(head);
        self.write_on(out);
        Ok(())
    }

    /// Writes as much as the kernel may be asked to take.
    fn write_on(&mut self, out: Out<'_, '_, A>) {
        let State::Leader(lead) = &mut self.state else { return };
        let Some(pass) = lead.pass_mut() else { return };
        let stream = pass.stream;
        while let Some(piece) = pass.piece(&self.data) {
            match piece {
                Piece::Bytes(head, data) => out
                    .write_with(stream, head.len() + data.len(), |writer| {
                        writer.bytes(head);
                        writer.bytes(data);
                    })
                    .expect("it has just that length"),
                Piece::Fin => out.finish(stream),
            }
        }
    }

    /// The commit point: the kernel has all of it (J-65, J-71, JA-33).
    fn passed(&mut self, now: Now, out: Out<'_, '_, A>) {
        let State::Leader(lead) = &mut self.state else { return };
        let Some(pass) = lead.pass() else { return };
        let (stream, deadline, to) = (pass.stream, pass.deadline, pass.to.host_id);
        self.counters.passes += 1;
        if self.held_already() {
            self.loops.held_until(now.mono);
        }
        self.penalties.succeeded(to);
        self.lingering.insert(stream, deadline);
        self.passed_to = Some(to);
        self.holder = Some(to);
        self.known_at = now.mono;
        if !self.log.ends_with_pass() {
            self.log.push(now.wall, What::Passed { token_id: self.token, to });
        }
        out.event(Event::TokenPassed { token_id: self.token, to, fence: self.fence });
        self.become_waiter(now, out);
    }

    fn failed(&mut self, now: Now, reason: PassFailure, out: Out<'_, '_, A>) {
        let State::Leader(lead) = &mut self.state else { return };
        let Some(pass) = lead.pass() else { return };
        let to = pass.to.host_id;
        lead.step = Step::Here;
        self.counters.passes_failed += 1;
        self.penalties.failed(to);
        out.event(Event::PassFailed { to, reason });
        self.next_candidate(now, out);
    }
}
