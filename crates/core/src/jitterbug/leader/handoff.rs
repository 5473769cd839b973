//! token_pass: the round over the candidates, and the stream on which the token goes out.

use std::net::SocketAddr;

use super::super::application::Application;
use super::super::lower::{Cx, Transition};
use super::super::message::{Message, NodeEntry};
use super::super::wire::{ENTRY_BYTES_MAX, Kind, TP1_BYTES, TP4_BYTES, encode};
use super::super::{Event, PassFailure};
use super::attempt::{Attempt, Piece};
use super::{Step, Tenure};
use crate::machine::Refusal;
use crate::stream::StreamEvent;
use crate::tag::StreamId;
use crate::wire::{DecodeError, Writer};

impl Tenure {
    /// Adds waiting nodes to the list, and tries the first candidate.
    pub(super) fn start_round<A: Application>(&mut self, cx: &mut Cx<'_, '_, A>) -> Option<Transition> {
        let grown = cx.lower.ring.grow(cx.lower.env.config());
        grown.into_iter().for_each(|event| cx.out.event(event));
        self.seen = 0;
        self.next_candidate(cx)
    }

    /// Handles an event of the attempt's stream. Returns the transition, and whether the bytes were valid. `None` if
    /// the stream is another one.
    pub(in super::super) fn on_stream<A: Application>(
        &mut self,
        cx: &mut Cx<'_, '_, A>,
        stream: StreamId,
        event: &StreamEvent<'_>,
    ) -> Option<(Option<Transition>, Result<(), Refusal>)> {
        let attempt = self.attempt_mut().filter(|attempt| attempt.stream() == stream)?;
        let transition = match *event {
            StreamEvent::Data(bytes) if attempt.is_offered() => return Some(self.offer_answered(cx, bytes)),
            StreamEvent::Sent { bytes, fin } => {
                if attempt.sent(bytes, fin) {
                    self.passed(cx)
                } else {
                    self.write_on(cx);
                    None
                }
            }
            // Before TP2 or TP3 this is a refusal; after them the candidate sends nothing more.
            StreamEvent::Finished if attempt.is_offered() => {
                cx.out.abort(stream);
                self.failed(cx, PassFailure::Refused)
            }
            StreamEvent::Closed(_) => self.failed(cx, PassFailure::Broken),
            _ => None,
        };
        Some((transition, Ok(())))
    }

    /// Ends the attempt: its time is over.
    pub(super) fn time_out<A: Application>(&mut self, cx: &mut Cx<'_, '_, A>) -> Option<Transition> {
        let (now, interval) = (cx.now.mono, cx.lower.env.config().tr_interval);
        // After a pause the kernel may have sent everything long ago, and that event is behind this timer.
        if self.attempt_mut().is_some_and(|attempt| attempt.extend_late(now, interval)) {
            return None;
        }
        self.abort(cx);
        self.failed(cx, PassFailure::TimedOut)
    }

    /// Resets an attempt: until the kernel has the FIN, the candidate discards what came before a reset (JA-33).
    pub(in super::super) fn abort<A: Application>(&self, cx: &mut Cx<'_, '_, A>) {
        if let Some(attempt) = self.attempt() {
            cx.out.abort(attempt.stream());
        }
    }

    /// Makes one last round with the data as it is, before the node stops (JA-52).
    pub(in super::super) fn hand_off_and_stop<A: Application>(
        &mut self,
        cx: &mut Cx<'_, '_, A>,
    ) -> Option<Transition> {
        if self.is_passing() {
            return None;
        }
        // An outstanding result would come too late.
        self.awaited = None;
        self.keeping = None;
        self.step = Step::Here;
        self.start_round(cx)
    }

    /// Tries the next candidate that is allowed (J-78 … J-84); if there is none, waits (JA-40).
    fn next_candidate<A: Application>(&mut self, cx: &mut Cx<'_, '_, A>) -> Option<Transition> {
        let own = cx.lower.env.host_id();
        if let Some(node) = cx.lower.ring.next_candidate(cx.now.mono, own, &mut self.seen) {
            self.offer(cx, node);
            return None;
        }
        if cx.is_stopping {
            return Some(Transition::Waiter);
        }
        self.step = Step::Idle { until: cx.now.mono + cx.lower.env.config().tr_interval };
        None
    }

    fn offer<A: Application>(&mut self, cx: &mut Cx<'_, '_, A>, node: NodeEntry) {
        let stream = cx.lower.env.next_stream();
        let config = cx.lower.env.config();
        let to = SocketAddr::new(node.addr.ip().to_canonical(), node.addr.port());
        // JA-44b: the candidate knows us by the address we dial from.
        let from = Some(config.addr).filter(|ip| ip.is_ipv4() == to.is_ipv4());
        cx.out.open(stream, to, from);
        let hash = cx.lower.ring.list().hash();
        let offer = Message::Tp1 { token_id: cx.lower.token.id().held(), node_list_hash: hash };
        cx.out.write_with(stream, TP1_BYTES, |writer| encode(&offer, writer)).expect("a TP1 has its length");
        cx.out.read(stream, 1);
        let deadline = cx.now.mono + config.pass_timeout;
        self.step = Step::Passing(Attempt::new(stream, node, deadline, TP1_BYTES));
    }

    /// Handles the answer of the candidate: TP2, TP3 or something else.
    fn offer_answered<A: Application>(
        &mut self,
        cx: &mut Cx<'_, '_, A>,
        bytes: &[u8],
    ) -> (Option<Transition>, Result<(), Refusal>) {
        let Some(attempt) = self.attempt_mut() else { return (None, Ok(())) };
        let answer = match bytes {
            [byte] => Kind::of(*byte),
            _ => Err(DecodeError::Trailing),
        };
        let mut head = Vec::new();
        match answer {
            Ok(Kind::Tp3) => {}
            Ok(Kind::Tp2) => {
                let nodes = cx.lower.ring.list().nodes().to_vec();
                let bytes_max = TP4_BYTES + ENTRY_BYTES_MAX * nodes.len();
                encode(&Message::Tp4 { nodes }, &mut Writer::new(&mut head, bytes_max));
            }
            other => {
                cx.lower.env.count().malformed += 1;
                cx.out.abort(attempt.stream());
                let transition = self.failed(cx, PassFailure::Malformed);
                return (transition, Err(other.err().unwrap_or(DecodeError::Kind).into()));
            }
        }
        head.push(Kind::Tp5.byte());
        attempt.accepted(head);
        self.write_on(cx);
        (None, Ok(()))
    }

    /// Writes as much as the kernel may have in flight.
    fn write_on<A: Application>(&mut self, cx: &mut Cx<'_, '_, A>) {
        let Some(attempt) = self.attempt_mut() else { return };
        let stream = attempt.stream();
        while let Some(piece) = attempt.piece(cx.lower.token.data()) {
            match piece {
                Piece::Bytes(head, data) => cx
                    .out
                    .write_with(stream, head.len() + data.len(), |writer| {
                        writer.bytes(head);
                        writer.bytes(data);
                    })
                    .expect("it has just that length"),
                Piece::Fin => cx.out.finish(stream),
            }
        }
    }

    /// The commit point: the kernel has all of it (J-65, J-71, JA-33).
    fn passed<A: Application>(&mut self, cx: &mut Cx<'_, '_, A>) -> Option<Transition> {
        let attempt = self.attempt()?;
        let (stream, deadline, to) = (attempt.stream(), attempt.deadline(), attempt.to().host_id);
        let lower = &mut *cx.lower;
        lower.env.count().passes += 1;
        let was_held = lower.holds.used(lower.token.fence());
        let (id, tenures) = (lower.token.id(), lower.token.app().tenures_of(to));
        lower.ring.passed(cx.now.mono, to, stream, was_held, id, tenures);
        lower.streams.linger(stream, deadline);
        lower.token.passed(cx.now, to);
        cx.out.event(Event::TokenPassed { token_id: lower.token.id(), to, fence: lower.token.fence() });
        Some(Transition::Waiter)
    }

    fn failed<A: Application>(&mut self, cx: &mut Cx<'_, '_, A>, reason: PassFailure) -> Option<Transition> {
        let to = self.attempt()?.to().host_id;
        self.step = Step::Here;
        cx.lower.env.count().passes_failed += 1;
        cx.lower.ring.failed(to);
        cx.out.event(Event::PassFailed { to, reason });
        self.next_candidate(cx)
    }
}
