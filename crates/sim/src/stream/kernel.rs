//! Segments and timers: the part that a kernel plays, whether or not its machine listens.

use annulus_core::{CloseReason, Machine, micros};

use super::{EndKey, Phase, Segment, SegmentKind};
use crate::fault::{Block, Traffic};
use crate::host::{HostId, HostState};
use crate::observer::Violation;
use crate::packet::Loss;
use crate::queue::What;
use crate::sim::Sim;

/// The size of a segment beside its data.
const HEADER_BYTES: usize = 40;

/// How long the answer of a filter takes.
const BOUNCE_MICROS: u64 = 500;

/// The first wait before a SYN is sent again.
const SYN_RETRANSMIT_MICROS: u64 = 1_000_000;

impl<M: Machine> Sim<M> {
    /// A segment arrives at a host.
    pub(crate) fn segment_arrives(&mut self, slot: u32) {
        let segment = std::mem::take(self.segments.at_mut(slot));
        let key = segment.to;
        if let Some(end) = self.end(key) {
            let (host, phase) = (end.host, end.phase);
            if self.hosts[host.index()].answers() {
                self.hear(key);
                self.segment_reaches(key, phase, &segment);
                self.free_if_over(key);
            } else {
                self.stats.segments_lost += 1;
            }
        }
        // The slot keeps the buffer for its next user.
        *self.segments.at_mut(slot) = segment;
        self.segments.release(slot);
    }

    fn hear(&mut self, key: EndKey) {
        let now = self.now;
        if let Some(end) = self.end_mut(key) {
            (end.heard_at, end.probes) = (now, 0);
        }
    }

    fn segment_reaches(&mut self, key: EndKey, phase: Phase, segment: &Segment) {
        match (segment.kind, phase) {
            (SegmentKind::Reset, Phase::Gone | Phase::Idle) => {}
            (SegmentKind::Reset, Phase::SynSent) => self.fail(key, CloseReason::Refused),
            (SegmentKind::Reset, _) => self.fail(key, CloseReason::Reset),
            (SegmentKind::Syn, Phase::Idle | Phase::SynReceived) => self.syn_arrives(key),
            (SegmentKind::Syn, Phase::Open | Phase::SynSent) | (_, Phase::Idle) => {}
            (_, Phase::Gone) => self.send_reset(key),
            (SegmentKind::SynAck, _) => self.syn_ack_arrives(key, segment.edge),
            (_, Phase::SynSent) => {}
            (SegmentKind::Plain | SegmentKind::Probe, Phase::SynReceived) => {
                self.handshake_done(key);
                self.plain_arrives(key, segment);
            }
            (SegmentKind::Plain | SegmentKind::Probe, Phase::Open) => self.plain_arrives(key, segment),
        }
    }

    fn plain_arrives(&mut self, key: EndKey, segment: &Segment) {
        let (now, room) = (self.now, self.config.stream.receive_buffer_bytes);
        let Some(end) = self.end_mut(key) else { return };
        let arrived = end.arrive(segment.sequence, &segment.bytes, segment.fin, room);
        if arrived.news && !end.held && !end.incoming.is_empty() {
            // Data for a machine that is gone: the kernel resets the stream.
            return self.abandon(key);
        }
        end.confirm(segment.ack, segment.edge, now);
        // The process writes the rest of its bytes, once it runs.
        if arrived.news || end.has_unsent() {
            self.queue_pump(key);
        }
        self.transmit(key);
        if arrived.answer || segment.kind == SegmentKind::Probe {
            self.send_control(key, SegmentKind::Plain);
        }
    }

    /// Moves bytes from the machine into the kernel, and from the kernel onto the wire. The process must be running: it
    /// makes the system call.
    pub(super) fn take_and_transmit(&mut self, key: EndKey) {
        if self.take(key) {
            self.queue_pump(key);
        }
        self.transmit(key);
    }

    /// Moves bytes from the machine into the kernel. True if the kernel took anything.
    pub(super) fn take(&mut self, key: EndKey) -> bool {
        let (buffer, buffer_max) =
            (self.config.stream.send_buffer_bytes, self.config.stream.send_buffer_max_bytes);
        let Some(end) = self.end_mut(key) else { return false };
        let before = end.taken;
        let took = end.take(buffer, buffer_max);
        let (host, bytes) = (end.host, end.taken - before);
        if took {
            self.stats.stream_bytes_sent += bytes;
            self.hosts[host.index()].stats.stream_bytes_sent += bytes;
        }
        took
    }

    /// Sends as much as the peer has room for.
    pub(super) fn transmit(&mut self, key: EndKey) {
        let (now, odd) = (self.now, self.config.stream.odd_chunks);
        let segment_bytes = self.config.stream.segment_bytes;
        let Some(end) = self.end_mut(key) else { return };
        if end.phase != Phase::Open {
            return;
        }
        if end.next == end.unconfirmed && end.next < end.limit() && end.retries == 0 {
            end.silent_since = now; // From now on there is something to confirm.
        }
        while let Some((mut length, mut fin)) = self.end(key).and_then(|end| end.next_piece(segment_bytes)) {
            if odd > 0.0 && length > 1 && self.network_rng.chance(odd) {
                let cut = self.network_rng.between(1, length as u64) as usize;
                fin &= cut == length;
                length = cut;
            }
            let Some(end) = self.end_mut(key) else { return };
            let sequence = end.next;
            end.next += length as u64 + u64::from(fin);
            self.send_piece(key, sequence, length, fin);
        }
        if self.end(key).is_some_and(|end| !end.is_confirmed()) {
            self.await_confirmation(key);
        }
    }

    /// Sets the retransmission timer anew.
    pub(super) fn await_confirmation(&mut self, key: EndKey) {
        let (now, shortest) = (self.now, micros(self.config.stream.retransmit_min));
        let stream = &self.config.stream;
        let connect_timeout = micros(stream.connect_timeout);
        let (rto_max, syn_wait_max) = (micros(stream.rto_max), micros(stream.syn_wait_max));
        let syn_linear = stream.syn_linear;
        let Some(end) = self.end_mut(key) else { return };
        let (wait, give_up_after) = match end.phase {
            Phase::Open => ((shortest.max(3 * end.round_trip) << end.retries.min(16)).min(rto_max), u64::MAX),
            _ => {
                let doublings = end.retries.saturating_sub(syn_linear).min(16);
                ((SYN_RETRANSMIT_MICROS << doublings).min(syn_wait_max), connect_timeout)
            }
        };
        // A SYN times out exactly, an open stream at the first retransmission after its timeout.
        end.retransmit_at = (now + wait).min(end.silent_since.saturating_add(give_up_after)).max(now + 1);
        if !end.retransmit_queued {
            end.retransmit_queued = true;
            let at = end.retransmit_at;
            self.queue.push(at, What::Retransmit(key));
        }
    }

    /// The retransmission timer may have run out.
    pub(crate) fn retransmit_due(&mut self, key: EndKey) {
        let (now, shortest) = (self.now, micros(self.config.stream.retransmit_min));
        let stream = &self.config.stream;
        let (connect_timeout, give_up) = (micros(stream.connect_timeout), micros(stream.give_up_after));
        let Some(end) = self.end(key) else { return };
        let id = end.host;
        if self.hosts[id.index()].state == HostState::Asleep {
            return self.stop_timer(id, What::Retransmit(key));
        }
        let Some(end) = self.end_mut(key) else { return };
        end.retransmit_queued = false;
        let waits = match end.phase {
            Phase::Open => !end.is_confirmed(),
            Phase::SynSent | Phase::SynReceived => true,
            Phase::Idle | Phase::Gone => false,
        };
        if !waits {
            return;
        }
        if now < end.retransmit_at {
            end.retransmit_queued = true;
            let at = end.retransmit_at;
            return self.queue.push(at, What::Retransmit(key));
        }
        // For an open stream the time counts from the first retransmission.
        let give_up_after = if end.phase == Phase::Open { give_up + shortest } else { connect_timeout };
        if now - end.silent_since >= give_up_after {
            self.stats.streams_timed_out += 1;
            self.fail(key, CloseReason::TimedOut);
            return self.free_if_over(key);
        }
        end.retries += 1;
        self.retransmit(key);
    }

    fn retransmit(&mut self, key: EndKey) {
        self.stats.retransmissions += 1;
        let Some(end) = self.end_mut(key) else { return };
        match end.phase {
            Phase::SynSent => self.send_control(key, SegmentKind::Syn),
            Phase::SynReceived => self.send_control(key, SegmentKind::SynAck),
            _ => {
                end.next = end.unconfirmed;
                if end.edge <= end.next && end.taken > end.next {
                    end.probes += 1;
                    self.send_control(key, SegmentKind::Probe);
                } else {
                    self.transmit(key);
                }
            }
        }
        self.await_confirmation(key);
    }

    /// The end is dead for the kernel; its machine, if it has one, gets the reason.
    pub(super) fn fail(&mut self, key: EndKey, reason: CloseReason) {
        let Some(end) = self.end_mut(key) else { return };
        end.forget();
        if !end.held {
            return;
        }
        if end.listener.is_some() && !end.is_reported {
            // The machine does not know it: an accept that failed.
            return self.let_go(key);
        }
        end.closed = Some(reason);
        if reason == CloseReason::Reset {
            self.stats.streams_reset += 1;
        }
        self.queue_pump(key);
    }

    /// Closes an end at once and sends a reset to the peer.
    pub(super) fn abandon(&mut self, key: EndKey) {
        self.send_reset(key);
        if let Some(end) = self.end_mut(key) {
            end.forget();
        }
    }

    /// The machine no longer holds the end.
    pub(super) fn let_go(&mut self, key: EndKey) {
        let Some(end) = self.end_mut(key) else { return };
        end.held = false;
        end.unsent = Default::default();
        let (id, stream, listener, is_reported) = (end.host, end.stream, end.listener, end.is_reported);
        let host = &mut self.hosts[id.index()];
        if let Some(extra) = &mut host.extra {
            extra.streams.remove(&stream);
        }
        if let Some(listener) = host.listeners.iter_mut().find(|bound| Some(bound.id) == listener) {
            listener.streams = listener.streams.saturating_sub(1);
            if !is_reported {
                listener.untaken = listener.untaken.saturating_sub(1);
            }
        }
        self.free_if_over(key);
    }

    /// Ends all streams of a host. After a loss of power they are silent. After the end of a process the kernel sends
    /// the bytes that it took, and resets streams with unread data.
    pub(crate) fn end_streams(&mut self, id: HostId, power: bool) {
        let Some(extra) = &mut self.hosts[id.index()].extra else { return };
        extra.accepted = 0;
        for (_, key) in std::mem::take(&mut extra.streams) {
            let Some(end) = self.end_mut(key) else { continue };
            end.held = false;
            end.unsent = Default::default();
            if power {
                end.forget();
            } else if end.phase != Phase::Open || !end.incoming.is_empty() {
                if end.phase != Phase::Gone {
                    self.abandon(key);
                }
            } else {
                end.fin_taken = true;
                self.transmit(key);
            }
            self.free_if_over(key);
        }
    }

    /// Sends a segment without data.
    pub(super) fn send_control(&mut self, key: EndKey, kind: SegmentKind) {
        let Some(end) = self.end(key) else { return };
        let sequence = end.next;
        self.send_segment(key, kind, sequence, 0, false);
    }

    /// Sends a reset to the other end.
    pub(super) fn send_reset(&mut self, key: EndKey) {
        self.send_segment(key, SegmentKind::Reset, 0, 0, false);
    }

    fn send_piece(&mut self, key: EndKey, sequence: u64, length: usize, fin: bool) {
        self.send_segment(key, SegmentKind::Plain, sequence, length, fin);
    }

    fn send_segment(&mut self, key: EndKey, kind: SegmentKind, sequence: u64, length: usize, fin: bool) {
        let Some((from, to)) = self.hosts_of(key) else { return };
        self.stats.segments_sent += 1;
        let travel = if self.is_stranded(key) {
            Err(Loss::Cut)
        } else if from != to && self.is_flow_forgotten(key, kind) {
            Err(if self.config.network.flow_end == Block::Drop { Loss::Cut } else { Loss::Rejected })
        } else {
            self.travel(from, to, HEADER_BYTES + length, Traffic::Streams)
        };
        let arrives = match travel {
            Ok(arrives) => arrives,
            Err(loss) => {
                self.stats.segments_lost += 1;
                if loss == Loss::Rejected && kind != SegmentKind::Reset {
                    self.bounce(key);
                }
                return;
            }
        };
        let room = self.config.stream.receive_buffer_bytes;
        let slot = self.segments.claim();
        let end = &mut self.conns.at_mut(key.conn).ends[key.end()];
        end.last_arrival = end.last_arrival.max(arrives);
        end.edge_advertised = end.own_edge(room);
        let segment = self.segments.at_mut(slot);
        segment.to = key.peer();
        segment.kind = kind;
        segment.sequence = sequence;
        segment.fin = fin;
        segment.ack = end.expected;
        segment.edge = end.edge_advertised;
        segment.bytes.clear();
        if length > 0 {
            let from = (sequence - end.unconfirmed) as usize;
            segment.bytes.extend(end.outgoing.range(from..from + length));
        }
        let at = end.last_arrival;
        self.queue.push(at, What::Segment(slot));
    }

    /// Whether a host has the address no more that an end of the connection is bound to.
    fn is_stranded(&self, key: EndKey) -> bool {
        let has_lost = |key| self.end(key).is_some_and(|end| self.has_lost(end.host, end.addr.ip()));
        self.has_moved && (has_lost(key) || has_lost(key.peer()))
    }

    /// Whether a middlebox has forgotten the connection and lets nothing of it pass.
    fn is_flow_forgotten(&mut self, key: EndKey, kind: SegmentKind) -> bool {
        let Some(idle_max) = self.config.network.flow_idle_max else { return false };
        let now = self.now;
        let conn = self.conns.at_mut(key.conn);
        let is_new = matches!(kind, SegmentKind::Syn | SegmentKind::SynAck);
        conn.is_forgotten |= !is_new && now - conn.flow_at > micros(idle_max);
        conn.flow_at = now;
        conn.is_forgotten
    }

    /// A middlebox answers a segment with a reset.
    fn bounce(&mut self, key: EndKey) {
        let slot = self.segments.claim();
        let segment = self.segments.at_mut(slot);
        *segment = Segment {
            to: key,
            kind: SegmentKind::Reset,
            bytes: std::mem::take(&mut segment.bytes),
            ..Segment::default()
        };
        self.queue.push(self.now + BOUNCE_MICROS, What::Segment(slot));
    }

    /// A complaint about a machine that breaks the rules of streams.
    pub(super) fn breach(id: HostId, text: &str) -> Violation {
        Violation::new(format!("{id} {text}"))
    }
}
