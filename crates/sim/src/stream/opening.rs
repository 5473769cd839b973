//! The handshake: from a machine's wish to two open ends, or to a refusal.

use std::net::{IpAddr, SocketAddr};

use annulus_core::{CloseReason, Machine, StreamId};

use super::{EndKey, Phase, SegmentKind};
use crate::host::{HostId, covers};
use crate::observer::{Verdict, Violation};
use crate::sim::Sim;
use crate::trace::{Kind, Record};

impl<M: Machine> Sim<M> {
    /// A machine opens a stream.
    pub(crate) fn open_stream(
        &mut self,
        id: HostId,
        stream: StreamId,
        to: SocketAddr,
        from: Option<IpAddr>,
    ) -> Verdict {
        self.stats.streams_opened += 1;
        self.trace.note(self.now, Some(id), Kind::Open, || Record::Open { stream: stream.to_string(), to });
        self.trace.address(to);
        if stream.is_accepted() || self.hosts[id.index()].stream(stream).is_some() {
            return Err(Violation::new(format!("{id} opens stream {stream}, a number it may not use again")));
        }
        let is_starved = self.hosts[id.index()].is_starved();
        let local = match from.filter(|ip| !ip.is_unspecified()) {
            Some(ip) => self.has_address(id, ip).then_some(ip).ok_or(CloseReason::Failed),
            None => self.own_address(id, to.is_ipv4()).ok_or(CloseReason::Unreachable),
        };
        let local = local
            .and_then(|ip| if ip.is_ipv4() == to.is_ipv4() { Ok(ip) } else { Err(CloseReason::Unreachable) });
        let local = if is_starved { Err(CloseReason::Failed) } else { local };
        let target = self.listener_host(to);
        let port = self.free_port(id);
        let conn = self.conns.claim();
        let slot = self.conns.at_mut(conn);
        slot.in_use = true;
        let key = EndKey::new(conn, slot.generation, 0);
        let [opener, accepter] = &mut slot.ends;
        opener.host = id;
        opener.stream = stream;
        opener.held = true;
        accepter.addr = to;
        self.hosts[id.index()].extra().streams.insert(stream, key);
        match (local, target) {
            (Ok(ip), Some(host)) => {
                opener.addr = SocketAddr::new(ip, port);
                opener.phase = Phase::SynSent;
                opener.silent_since = self.now;
                accepter.host = host;
                self.send_control(key, SegmentKind::Syn);
                self.await_confirmation(key);
            }
            (Err(reason), _) => self.fail(key, reason),
            (Ok(_), None) => self.fail(key, CloseReason::Unreachable),
        }
        Ok(())
    }

    /// Someone asks for a connection.
    pub(super) fn syn_arrives(&mut self, key: EndKey) {
        let Some(end) = self.end(key) else { return };
        let (id, addr) = (end.host, end.addr);
        match end.phase {
            Phase::SynReceived => return self.send_control(key, SegmentKind::SynAck),
            Phase::Idle => {}
            _ => return,
        }
        let backlog = self.config.host.backlog;
        let host = &mut self.hosts[id.index()];
        let is_starved = host.is_starved();
        let listener = host.listeners.iter_mut().find(|listener| covers(listener.addr, addr));
        let Some(listener) = listener else {
            self.stats.streams_refused += 1;
            return self.send_reset(key);
        };
        if listener.untaken >= backlog || is_starved {
            self.stats.syns_dropped += 1;
            return; // The queue of those who wait to be accepted is full: the kernel is silent.
        }
        if listener.streams >= listener.streams_max {
            self.stats.streams_above_limit += 1;
            self.send_control(key, SegmentKind::SynAck);
            return self.send_reset(key);
        }
        listener.streams += 1;
        listener.untaken += 1;
        let listener = listener.id;
        let extra = host.extra();
        let stream = StreamId::accepted(extra.accepted).in_service(listener.service());
        extra.accepted += 1;
        extra.streams.insert(stream, key);
        let now = self.now;
        if let Some(end) = self.end_mut(key) {
            end.stream = stream;
            end.listener = Some(listener);
            end.held = true;
            end.phase = Phase::SynReceived;
            end.silent_since = now;
        }
        self.send_control(key, SegmentKind::SynAck);
        self.await_confirmation(key);
    }

    /// A connection was granted, perhaps not for the first time.
    pub(super) fn syn_ack_arrives(&mut self, key: EndKey, edge: u64) {
        let now = self.now;
        let Some(end) = self.end_mut(key) else { return };
        match end.phase {
            Phase::SynSent => {
                end.phase = Phase::Open;
                end.edge = edge;
                end.round_trip = if end.retries == 0 { now - end.silent_since } else { 0 };
                end.retries = 0;
                self.queue_probe(key);
                self.queue_pump(key);
                self.send_control(key, SegmentKind::Plain);
            }
            Phase::Open => self.send_control(key, SegmentKind::Plain),
            _ => {}
        }
    }

    /// The ACK of the handshake arrived: the accepting end is connected.
    pub(super) fn handshake_done(&mut self, key: EndKey) {
        let now = self.now;
        if let Some(end) = self.end_mut(key) {
            end.phase = Phase::Open;
            end.round_trip = if end.retries == 0 { now - end.silent_since } else { 0 };
            end.retries = 0;
            self.stats.streams_accepted += 1;
            self.queue_probe(key);
            self.queue_pump(key);
        }
    }

    /// The host that a connection to an address goes to; of several that share it, the one that listens.
    fn listener_host(&self, to: SocketAddr) -> Option<HostId> {
        let first = self.host_at(to.ip())?;
        let listens =
            |id: &&HostId| self.hosts[id.index()].listeners.iter().any(|listener| covers(listener.addr, to));
        let sharing = self.other_addresses.get(&to.ip()).into_iter().flatten();
        Some(sharing.into_iter().find(listens).copied().unwrap_or(first))
    }
}
